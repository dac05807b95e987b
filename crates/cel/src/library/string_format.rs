//! `format`: fills the clauses of a format string. The output is the one of version 2 of the strings library, which
//! Kubernetes has: English grouping of thousands, `1.5×10⁰³` for `%e`, quoted strings inside lists and maps.
//! The checker uses the same reader of clauses to find mistakes in literals.

use crate::convert;
use crate::error::{EvalError, failed, no_such_overload};
use crate::meter::Meter;
use crate::operations::Answer;
use crate::value::{List, Map, Value};

/// The longest fraction that may be asked for. Kubernetes sets no limit of its own.
const MAX_PRECISION: usize = 1_000;

/// A clause such as `%.3f`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clause {
    pub verb: char,
    pub precision: Option<usize>,
}

/// A piece of a format string.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece<'s> {
    Text(&'s str),
    Clause(Clause),
}

/// Splits the next piece off a format string.
pub(crate) fn next_piece(format: &str) -> Result<Option<(Piece<'_>, &str)>, String> {
    let Some(at) = format.find('%') else {
        return Ok((!format.is_empty()).then_some((Piece::Text(format), "")));
    };
    if at > 0 {
        return Ok(Some((Piece::Text(&format[..at]), &format[at..])));
    }
    let rest = &format[1..];
    if let Some(after) = rest.strip_prefix('%') {
        return Ok(Some((Piece::Text("%"), after)));
    }
    if rest.is_empty() {
        return Err("unexpected end of string".into());
    }
    let unparsed = |why: &str| format!("could not parse formatting clause: {why}");
    let mut rest = rest;
    let mut precision = None;
    if let Some(after) = rest.strip_prefix('.') {
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        if digits == after.len() {
            return Err(unparsed("error while parsing precision: could not find end of precision specifier"));
        }
        let number = after[..digits].parse::<usize>().ok().filter(|p| *p <= MAX_PRECISION);
        precision = Some(
            number.ok_or_else(|| unparsed("error while parsing precision: error while converting precision to integer: out of range"))?,
        );
        rest = &after[digits..];
    }
    match rest.chars().next() {
        Some(verb @ ('s' | 'd' | 'f' | 'e' | 'b' | 'x' | 'X' | 'o')) => Ok(Some((Piece::Clause(Clause { verb, precision }), &rest[1..]))),
        other => Err(unparsed(&format!("unrecognized formatting clause \"{}\"", other.unwrap_or(' ')))),
    }
}

/// What a clause says about an argument of a type that it does not take.
pub(crate) fn mismatch(verb: char, type_name: &str) -> String {
    let rule = match verb {
        'b' => "only integers and bools can be formatted as binary",
        'd' => "decimal clause can only be used on integers",
        'f' => "fixed-point clause can only be used on doubles",
        'x' | 'X' => "only integers, byte buffers, and strings can be formatted as hex",
        'o' => "octal clause can only be used on integers",
        'e' => "scientific clause can only be used on doubles",
        _ => "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
    };
    format!("error during formatting: {rule}, was given {type_name}")
}

pub(crate) fn format<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(format), Value::List(values)] = args else {
        return Err(no_such_overload());
    };
    let mut out = String::with_capacity(format.len() + 32);
    let mut rest = &**format;
    let mut used = 0;
    while let Some((piece, after)) = next_piece(rest).map_err(failed)? {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Clause(clause) => {
                let value = values.get(used).ok_or_else(|| failed(format!("index {used} out of range")))?;
                used += 1;
                write_clause(meter, &mut out, clause, &value)?;
            }
        }
        meter.check_string(out.len())?;
        rest = after;
    }
    Ok(Value::string(out))
}

fn write_clause(meter: &mut Meter, out: &mut String, clause: Clause, value: &Value<'_>) -> Result<(), EvalError> {
    let wrong = || failed(mismatch(clause.verb, value.type_of().name()));
    let text = match (clause.verb, value) {
        ('s', _) => return write_string(meter, out, value, &wrong),
        ('d', Value::Int(i)) => i.to_string(),
        ('d', Value::Uint(u)) => u.to_string(),
        ('b', Value::Int(i)) => radix(*i, |n| format!("{n:b}")),
        ('b', Value::Uint(u)) => format!("{u:b}"),
        ('b', Value::Bool(b)) => u8::from(*b).to_string(),
        ('o', Value::Int(i)) => radix(*i, |n| format!("{n:o}")),
        ('o', Value::Uint(u)) => format!("{u:o}"),
        ('x', Value::Int(i)) => radix(*i, |n| format!("{n:x}")),
        ('X', Value::Int(i)) => radix(*i, |n| format!("{n:X}")),
        ('x', Value::Uint(u)) => format!("{u:x}"),
        ('X', Value::Uint(u)) => format!("{u:X}"),
        ('x' | 'X', Value::String(s)) => hex(s.as_bytes(), clause.verb),
        ('x' | 'X', Value::Bytes(b)) => hex(b, clause.verb),
        ('f', _) => fixed(double(value).ok_or_else(wrong)?, clause.precision.unwrap_or(6)),
        ('e', _) => scientific(double(value).ok_or_else(wrong)?, clause.precision.unwrap_or(6)),
        _ => return Err(wrong()),
    };
    out.push_str(&text);
    Ok(())
}

fn radix(number: i64, digits: fn(u64) -> String) -> String {
    format!("{}{}", if number < 0 { "-" } else { "" }, digits(number.unsigned_abs()))
}

fn hex(bytes: &[u8], verb: char) -> String {
    bytes.iter().map(|b| if verb == 'X' { format!("{b:02X}") } else { format!("{b:02x}") }).collect()
}

/// Doubles, and the strings that stand for what is not a number.
fn double(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Double(d) => Some(*d),
        Value::String(s) => match &**s {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn not_finite(number: f64) -> Option<&'static str> {
    match number {
        n if n.is_nan() => Some("NaN"),
        f64::INFINITY => Some("∞"),
        f64::NEG_INFINITY => Some("-∞"),
        _ => None,
    }
}

fn fixed(number: f64, precision: usize) -> String {
    if let Some(text) = not_finite(number) {
        return text.to_owned();
    }
    let text = format!("{number:.precision$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("-", rest));
    let (whole, fraction) = digits.split_once('.').map_or((digits, ""), |(w, f)| (w, f));
    let mut out = String::from(sign);
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// With six digits after the point; the precision asked for is taken as a width, as Kubernetes' library does.
fn scientific(number: f64, width: usize) -> String {
    let text = match not_finite(number) {
        Some(text) => text.to_owned(),
        None => {
            let text = format!("{number:.6e}");
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let exponent: i32 = exponent.parse().unwrap_or(0);
            let digits = format!("{:02}", exponent.abs());
            let raised: String =
                digits.chars().map(|c| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(c.to_digit(10).unwrap_or(0) as usize).unwrap_or('⁰')).collect();
            format!("{mantissa}×10{}{raised}", if exponent < 0 { "⁻" } else { "" })
        }
    };
    let padding = width.saturating_sub(text.chars().count());
    format!("{}{text}", " ".repeat(padding))
}

fn write_string(meter: &mut Meter, out: &mut String, value: &Value<'_>, wrong: &dyn Fn() -> EvalError) -> Result<(), EvalError> {
    match value {
        Value::Null => out.push_str("null"),
        Value::List(list) => write_list(meter, out, list)?,
        Value::Map(map) => write_map(meter, out, map)?,
        Value::String(text) => out.push_str(text),
        Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::Bool(_)
        | Value::Bytes(_)
        | Value::Timestamp(_)
        | Value::Duration(_)
        | Value::Type(_) => {
            if let Value::String(text) = convert::to_string(value)? {
                out.push_str(&text);
            }
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

fn write_list(meter: &mut Meter, out: &mut String, list: &List<'_>) -> Result<(), EvalError> {
    out.push('[');
    for (i, item) in list.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        write_literal(meter, out, &item)?;
    }
    out.push(']');
    Ok(())
}

fn write_map(meter: &mut Meter, out: &mut String, map: &Map<'_>) -> Result<(), EvalError> {
    let mut pairs = Vec::with_capacity(map.len());
    for (key, value) in map.iter() {
        if !matches!(key, Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Uint(_)) {
            let name = key.type_of();
            return Err(failed(format!("error during formatting: no formatting function for map key of type {}", name.name())));
        }
        let mut texts = [String::new(), String::new()];
        write_literal(meter, &mut texts[0], &key)?;
        write_literal(meter, &mut texts[1], &value)?;
        pairs.push(texts);
    }
    pairs.sort();
    out.push('{');
    for (i, [key, value]) in pairs.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        out.push_str(key);
        out.push(':');
        out.push_str(value);
    }
    out.push('}');
    Ok(())
}

/// A value inside a list or map: as one would write it in an expression.
fn write_literal(meter: &mut Meter, out: &mut String, value: &Value<'_>) -> Result<(), EvalError> {
    meter.work(1)?;
    meter.check_string(out.len())?;
    match value {
        Value::String(text) => out.push_str(&quoted(text)),
        Value::Bytes(_) => {
            if let Value::String(text) = convert::to_string(value)? {
                out.push('b');
                out.push_str(&quoted(&text));
            }
        }
        Value::Double(d) => match *d {
            d if d.is_nan() => out.push_str("\"NaN\""),
            f64::INFINITY => out.push_str("\"+Inf\""),
            f64::NEG_INFINITY => out.push_str("\"-Inf\""),
            d => out.push_str(&format!("{d:.6}")),
        },
        Value::Timestamp(t) => out.push_str(&format!("timestamp(\"{t}\")")),
        Value::Duration(d) => out.push_str(&format!("duration(\"{}\")", crate::time::format_duration(*d))),
        Value::List(list) => write_list(meter, out, list)?,
        Value::Map(map) => write_map(meter, out, map)?,
        other => {
            let name = other.type_of();
            let wrong = || failed(format!("error during formatting: no formatting function for {}", name.name()));
            write_string(meter, out, other, &wrong)?;
        }
    }
    Ok(())
}

/// A string in double quotes, as Go quotes it.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format_string: &str, values: Vec<Value<'_>>) -> Result<String, String> {
        let args = [Value::string(format_string), Value::list(values)];
        let answer = format(&mut Meter::for_constants(), &args);
        answer.map(|v| v.as_str().unwrap().to_owned()).map_err(|e| e.to_string())
    }

    #[test]
    fn clauses_write_numbers() {
        assert_eq!(
            text("%d %b %o %x %X", vec![Value::Int(-5), Value::Int(5), Value::Int(9), Value::Int(255), Value::Uint(255)]).unwrap(),
            "-5 101 11 ff FF"
        );
        assert_eq!(text("%f|%.1f", vec![Value::Double(1_234_567.0), Value::Double(2.25)]).unwrap(), "1,234,567.000000|2.2");
        assert_eq!(text("%e", vec![Value::Double(1052.032911275)]).unwrap(), "1.052033×10⁰³");
        assert_eq!(text("%e", vec![Value::Double(0.001)]).unwrap(), "1.000000×10⁻⁰³");
        assert_eq!(text("%x %X", vec![Value::string("hi"), Value::Bytes([1, 255].as_slice().into())]).unwrap(), "6869 01FF");
    }

    #[test]
    fn nested_values_are_written_as_literals() {
        let list = Value::list(vec![Value::Int(6), Value::Double(4.2), Value::string("a \"b\""), Value::Null]);
        assert_eq!(text("%s", vec![list]).unwrap(), r#"[6, 4.200000, "a \"b\"", null]"#);
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(
            text("%d", vec![Value::string("x")]).unwrap_err(),
            "error during formatting: decimal clause can only be used on integers, was given string"
        );
        assert_eq!(text("%s", vec![]).unwrap_err(), "index 0 out of range");
        assert_eq!(text("%z", vec![Value::Null]).unwrap_err(), "could not parse formatting clause: unrecognized formatting clause \"z\"");
        assert_eq!(text("%", vec![Value::Null]).unwrap_err(), "unexpected end of string");
        assert!(text("%.99999f", vec![Value::Double(1.0)]).is_err());
        assert!(text("%s", vec![Value::Optional(None)]).is_err());
    }
}
