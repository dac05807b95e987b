//! The messages whose JSON form is a string or a number: times, quantities, `IntOrString`. Pure conversions of one value; a problem is
//! told in words and the caller adds the field.

use jiff::Timestamp;
use serde_json::Value;

use crate::object::json_kind;

use super::error::Error;
use super::wire::{LENGTH, Reader, VARINT, put_bytes, put_int};

/// Go's zero time, which JSON shows as null: midnight of the first of January of the year one.
const ZERO_TIME: i64 = -62_135_596_800;

/// How finely a time is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    Seconds,
    Micros,
}

/// `Time` and `MicroTime`: a `Timestamp` of seconds and nanoseconds, or nothing for the zero time.
pub(super) fn time_from(bytes: &[u8], precision: Precision) -> Result<Value, Error> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        match reader.tag()? {
            (1, VARINT) => seconds = reader.varint()? as i64,
            (2, VARINT) => nanos = i64::from(reader.varint()? as i32),
            (field @ (1 | 2), wire) => {
                let field = if field == 1 { "seconds" } else { "nanos" };
                return Err(Error::WireType { message: "Timestamp", field, wire });
            }
            (_, wire) => reader.skip(wire)?,
        }
    }
    if precision == Precision::Seconds {
        nanos = 0;
    }
    let seconds = seconds.saturating_add(nanos.div_euclid(1_000_000_000));
    let nanos = nanos.rem_euclid(1_000_000_000) / 1_000 * 1_000;
    if seconds == ZERO_TIME && nanos == 0 {
        return Ok(Value::Null);
    }
    let time = Timestamp::new(seconds, nanos as i32).map_err(|_| Error::Value {
        message: "Timestamp",
        field: "seconds",
        problem: format!("{seconds} is out of range"),
    })?;
    Ok(Value::String(match precision {
        Precision::Seconds => time.to_string(),
        Precision::Micros => format!("{time:.6}"),
    }))
}

/// Writes the content of a `Time` or `MicroTime`.
pub(super) fn put_time(out: &mut Vec<u8>, value: &Value, precision: Precision) -> Result<(), String> {
    let text = match value {
        Value::Null => return Ok(()),
        Value::String(text) => text,
        other => return Err(format!("expected a time, got {}", json_kind(other))),
    };
    let time: Timestamp = text.parse().map_err(|_| format!("parsing time {text:?}: not in RFC 3339 form"))?;
    let (mut seconds, mut nanos) = (time.as_second(), time.subsec_nanosecond());
    if nanos < 0 {
        // Nanoseconds count forward, also before 1970.
        (seconds, nanos) = (seconds - 1, nanos + 1_000_000_000);
    }
    let nanos = match precision {
        Precision::Seconds => 0,
        Precision::Micros => nanos / 1_000 * 1_000,
    };
    if seconds != ZERO_TIME || nanos != 0 {
        put_int(out, 1, seconds);
        put_int(out, 2, i64::from(nanos));
    }
    Ok(())
}

/// `Quantity`: its text. Bringing it to its canonical form is not done here.
pub(super) fn quantity_from(bytes: &[u8]) -> Result<Value, Error> {
    let mut text = &b"0"[..];
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        match reader.tag()? {
            (1, LENGTH) => text = reader.bytes()?,
            (1, wire) => {
                return Err(Error::WireType { message: "Quantity", field: "string", wire });
            }
            (_, wire) => reader.skip(wire)?,
        }
    }
    Ok(Value::String(String::from_utf8_lossy(text).into_owned()))
}

/// Writes the content of a `Quantity`.
pub(super) fn put_quantity(out: &mut Vec<u8>, value: &Value) -> Result<(), String> {
    match value {
        Value::Null => put_bytes(out, 1, b"0"),
        Value::String(text) => put_bytes(out, 1, text.as_bytes()),
        Value::Number(number) => put_bytes(out, 1, number.to_string().as_bytes()),
        other => return Err(format!("expected a quantity, got {}", json_kind(other))),
    }
    Ok(())
}

/// `IntOrString`: a type, and a value of either.
pub(super) fn int_or_string_from(bytes: &[u8]) -> Result<Value, Error> {
    let (mut kind, mut int, mut text) = (0, 0, &[][..]);
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        match reader.tag()? {
            (1, VARINT) => kind = reader.varint()?,
            (2, VARINT) => int = reader.varint()? as i32,
            (3, LENGTH) => text = reader.bytes()?,
            (field @ 1..=3, wire) => {
                let field = ["type", "intVal", "strVal"][field as usize - 1];
                return Err(Error::WireType { message: "IntOrString", field, wire });
            }
            (_, wire) => reader.skip(wire)?,
        }
    }
    match kind {
        0 => Ok(Value::from(int)),
        1 => Ok(Value::String(String::from_utf8_lossy(text).into_owned())),
        other => Err(Error::Value { message: "IntOrString", field: "type", problem: format!("{other} is neither a number nor a string") }),
    }
}

/// Writes the content of an `IntOrString`.
pub(super) fn put_int_or_string(out: &mut Vec<u8>, value: &Value) -> Result<(), String> {
    let (kind, int, text) = match value {
        Value::Null => (0, 0, ""),
        Value::String(text) => (1, 0, text.as_str()),
        other => (0, int32_of(other)?, ""),
    };
    put_int(out, 1, kind);
    put_int(out, 2, i64::from(int));
    put_bytes(out, 3, text.as_bytes());
    Ok(())
}

/// A whole number, which JSON may have written with a point.
pub(super) fn int64_of(value: &Value) -> Result<i64, String> {
    let Value::Number(number) = value else {
        return Err(format!("expected a number, got {}", json_kind(value)));
    };
    match (number.as_i64(), number.as_f64()) {
        (Some(int), _) => Ok(int),
        (None, Some(float)) if float.fract() == 0.0 && float.abs() < i64::MAX as f64 => Ok(float as i64),
        _ => Err(format!("{number} is not a whole number of 64 bits")),
    }
}

pub(super) fn int32_of(value: &Value) -> Result<i32, String> {
    let int = int64_of(value)?;
    i32::try_from(int).map_err(|_| format!("{int} does not fit 32 bits"))
}

/// A floating point number as Go prints it: without a point where there is nothing behind it.
pub(super) fn double_from(float: f64) -> Value {
    if float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 { Value::from(float as i64) } else { Value::from(float) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn there_and_back(value: &Value, precision: Precision) -> Value {
        let mut out = Vec::new();
        put_time(&mut out, value, precision).unwrap();
        time_from(&out, precision).unwrap()
    }

    #[test]
    fn a_time_keeps_its_second_and_a_microtime_its_microsecond() {
        let time = json!("2026-07-24T04:09:49Z");
        assert_eq!(there_and_back(&time, Precision::Seconds), time);
        assert_eq!(there_and_back(&json!("2026-07-24T06:09:49.25+02:00"), Precision::Seconds), time);
        let micro = json!("2026-07-24T04:09:49.123456Z");
        assert_eq!(there_and_back(&micro, Precision::Micros), micro);
        assert_eq!(there_and_back(&time, Precision::Micros), json!("2026-07-24T04:09:49.000000Z"));
        let early = json!("1969-12-31T23:59:59.999999Z");
        assert_eq!(there_and_back(&early, Precision::Micros), early);
    }

    #[test]
    fn the_zero_time_is_null_and_takes_no_bytes() {
        for value in [json!(null), json!("0001-01-01T00:00:00Z")] {
            let mut out = Vec::new();
            put_time(&mut out, &value, Precision::Seconds).unwrap();
            assert!(out.is_empty());
            assert_eq!(there_and_back(&value, Precision::Micros), Value::Null);
        }
    }

    #[test]
    fn times_out_of_range_are_errors() {
        for seconds in [i64::MIN, i64::MAX, 999_999_999_999] {
            let mut out = Vec::new();
            put_int(&mut out, 1, seconds);
            put_int(&mut out, 2, i64::from(i32::MIN));
            assert!(matches!(time_from(&out, Precision::Micros), Err(Error::Value { .. })));
        }
        assert!(put_time(&mut Vec::new(), &json!("yesterday"), Precision::Seconds).is_err());
        assert!(put_time(&mut Vec::new(), &json!(12), Precision::Seconds).is_err());
    }

    #[test]
    fn numbers_are_printed_as_go_prints_them() {
        assert_eq!(double_from(1.0).to_string(), "1");
        assert_eq!(double_from(-0.5).to_string(), "-0.5");
        assert_eq!(int32_of(&json!(3.0)), Ok(3));
        assert!(int32_of(&json!(3_000_000_000_i64)).is_err());
        assert!(int64_of(&json!(0.5)).is_err());
        assert!(int64_of(&json!(u64::MAX)).is_err());
    }
}
