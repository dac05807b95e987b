//! Conversions between the language's types: `int()`, `string()`, `timestamp()` and so on, and the text of
//! numbers. JSON is in [`crate::json`].

use crate::error::{conversion_error, failed};
use crate::operations::Answer;
use crate::time::{Timestamp, format_duration, parse_duration};
use crate::value::{Text, Value};

fn impossible<'a>(value: &Value<'_>, to: &str) -> Answer<'a> {
    Err(conversion_error(value.type_of().name(), to))
}

pub(crate) fn to_bool<'a>(value: &Value<'a>) -> Answer<'a> {
    match value {
        Value::Bool(_) => Ok(value.clone()),
        Value::String(s) => match &**s {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => impossible(value, "bool"),
        },
        _ => impossible(value, "bool"),
    }
}

pub(crate) fn to_bytes<'a>(value: &Value<'a>) -> Answer<'a> {
    match value {
        Value::Bytes(_) => Ok(value.clone()),
        Value::String(s) => Ok(Value::Bytes(s.as_bytes().into())),
        _ => impossible(value, "bytes"),
    }
}

pub(crate) fn to_double<'a>(value: &Value<'a>) -> Answer<'a> {
    match value {
        Value::Double(_) => Ok(value.clone()),
        Value::Int(i) => Ok(Value::Double(*i as f64)),
        Value::Uint(u) => Ok(Value::Double(*u as f64)),
        Value::String(s) => match s.trim_start_matches(['+', '-']).to_ascii_lowercase().as_str() {
            "nan" | "inf" | "infinity" => s.parse().map(Value::Double).or_else(|_| impossible(value, "double")),
            digits if digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') => match s.parse::<f64>() {
                Ok(d) if d.is_finite() => Ok(Value::Double(d)),
                _ => impossible(value, "double"),
            },
            _ => impossible(value, "double"),
        },
        _ => impossible(value, "double"),
    }
}

pub(crate) fn to_int<'a>(value: &Value<'a>) -> Answer<'a> {
    let overflow = || failed("integer overflow");
    match value {
        Value::Int(_) => Ok(value.clone()),
        Value::Uint(u) => i64::try_from(*u).map(Value::Int).map_err(|_| overflow()),
        Value::Double(d) => {
            // The limits themselves are not representable exactly, so they count as too large.
            if d.is_nan() || *d <= i64::MIN as f64 || *d >= i64::MAX as f64 {
                return Err(overflow());
            }
            Ok(Value::Int(*d as i64))
        }
        Value::String(s) => s.parse().map(Value::Int).or_else(|_| impossible(value, "int")),
        Value::Timestamp(t) => Ok(Value::Int(t.seconds())),
        Value::Duration(d) => Ok(Value::Int(*d)),
        _ => impossible(value, "int"),
    }
}

pub(crate) fn to_uint<'a>(value: &Value<'a>) -> Answer<'a> {
    let overflow = || failed("unsigned integer overflow");
    match value {
        Value::Uint(_) => Ok(value.clone()),
        Value::Int(i) => u64::try_from(*i).map(Value::Uint).map_err(|_| overflow()),
        Value::Double(d) => {
            if d.is_nan() || *d < 0.0 || *d >= u64::MAX as f64 {
                return Err(overflow());
            }
            Ok(Value::Uint(*d as u64))
        }
        Value::String(s) if !s.starts_with('+') => s.parse().map(Value::Uint).or_else(|_| impossible(value, "uint")),
        _ => impossible(value, "uint"),
    }
}

pub(crate) fn to_string<'a>(value: &Value<'a>) -> Answer<'a> {
    let text = match value {
        Value::String(_) => return Ok(value.clone()),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Uint(u) => u.to_string(),
        Value::Double(d) => format_double(*d),
        Value::Bytes(b) => match std::str::from_utf8(b) {
            Ok(s) => return Ok(Value::String(Text::Shared(s.into()))),
            Err(_) => return Err(failed("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Value::Timestamp(t) => t.to_string(),
        Value::Duration(d) => format_duration(*d),
        Value::Type(t) => t.name().to_owned(),
        Value::Opaque(o) => match o.to_text() {
            Some(text) => text,
            None => return impossible(value, "string"),
        },
        _ => return impossible(value, "string"),
    };
    Ok(Value::string(text))
}

pub(crate) fn to_timestamp<'a>(value: &Value<'a>) -> Answer<'a> {
    match value {
        Value::Timestamp(_) => Ok(value.clone()),
        Value::Int(i) => Timestamp::from_seconds(*i).map(Value::Timestamp).ok_or_else(|| failed("timestamp overflow")),
        Value::String(s) => match Timestamp::parse(s) {
            Some(t) => Ok(Value::Timestamp(t)),
            None => impossible(value, "google.protobuf.Timestamp"),
        },
        _ => impossible(value, "google.protobuf.Timestamp"),
    }
}

pub(crate) fn to_duration<'a>(value: &Value<'a>) -> Answer<'a> {
    match value {
        Value::Duration(_) => Ok(value.clone()),
        Value::Int(i) => Ok(Value::Duration(*i)),
        Value::String(s) => match parse_duration(s) {
            Some(d) => Ok(Value::Duration(d)),
            None => impossible(value, "google.protobuf.Duration"),
        },
        _ => impossible(value, "google.protobuf.Duration"),
    }
}

/// The shortest text of a number, with an exponent when it is below -4 or at least 6.
pub(crate) fn format_double(d: f64) -> String {
    if d.is_nan() {
        return "NaN".into();
    }
    if d.is_infinite() {
        return if d > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    if d == 0.0 {
        return if d.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    let scientific = format!("{d:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{d}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: Value<'_>) -> String {
        to_string(&value).unwrap().as_str().unwrap().to_owned()
    }

    #[test]
    fn doubles_are_written_as_in_go() {
        assert_eq!(text(Value::Double(1e100)), "1e+100");
        assert_eq!(text(Value::Double(1.5e-7)), "1.5e-07");
        assert_eq!(text(Value::Double(123.456)), "123.456");
        assert_eq!(text(Value::Double(1_234_567.0)), "1.234567e+06");
        assert_eq!(text(Value::Double(f64::NEG_INFINITY)), "-Inf");
        assert_eq!(text(Value::Double(-0.0)), "-0");
    }

    #[test]
    fn what_cannot_be_converted_says_so() {
        let message = |answer: Answer<'_>| answer.unwrap_err().to_string();
        assert_eq!(message(to_bool(&Value::string("TrUe"))), "type conversion error from 'string' to 'bool'");
        assert_eq!(message(to_int(&Value::string("1.5"))), "type conversion error from 'string' to 'int'");
        assert_eq!(message(to_uint(&Value::Int(-1))), "unsigned integer overflow");
        assert_eq!(message(to_int(&Value::Double(9.3e18))), "integer overflow");
        assert_eq!(message(to_double(&Value::string("x"))), "type conversion error from 'string' to 'double'");
        assert_eq!(message(to_timestamp(&Value::string("x"))), "type conversion error from 'string' to 'google.protobuf.Timestamp'");
        assert_eq!(message(to_timestamp(&Value::Int(253_402_300_800))), "timestamp overflow");
        assert_eq!(message(to_duration(&Value::string("x"))), "type conversion error from 'string' to 'google.protobuf.Duration'");
        assert_eq!(message(to_string(&Value::Bytes([0xff].as_slice().into()))), "invalid UTF-8 in bytes, cannot convert to string");
        assert_eq!(message(to_bytes(&Value::Int(1))), "type conversion error from 'int' to 'bytes'");
    }

    #[test]
    fn doubles_are_cut_off_not_rounded() {
        assert!(matches!(to_int(&Value::Double(-1.9)), Ok(Value::Int(-1))));
        assert!(matches!(to_uint(&Value::Double(1.9)), Ok(Value::Uint(1))));
        assert!(matches!(to_double(&Value::string("NaN")), Ok(Value::Double(d)) if d.is_nan()));
    }
}
