//! Values and JSON: reading a document in place with its schema, writing the result of an expression as the JSON
//! of an object, and reading and writing the typed values of the vector files.

use serde_json::{Value as Json, json};

use crate::convert::format_double;
use crate::library::string_format::quoted;
use crate::schema::{Reading, Schema};
use crate::time::{Timestamp, format_duration, parse_duration};
use crate::types::Type;
use crate::value::{Entries, List, Map, Text, Value};

/// The most values that are written; expressions can share what JSON has to repeat.
const MAX_WRITTEN: usize = 1_000_000;

/// Why a value cannot be written as JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// JSON has no such value.
    #[error("a value of type {0} has no JSON form")]
    NoForm(String),
    /// Written out, the value would be too large.
    #[error("the value is too large")]
    TooLarge,
}

impl<'a> Value<'a> {
    /// A JSON value, read in place. The schema says how strings and numbers are to be read.
    pub fn from_json(json: &'a Json, schema: Option<&'a Schema>) -> Value<'a> {
        match json {
            Json::String(text) => match schema.map_or(Reading::Plain, Schema::reading) {
                Reading::Plain | Reading::Int | Reading::Double => Value::borrowed(text),
                reading => read_string(text, reading).unwrap_or(Value::borrowed(text)),
            },
            Json::Object(object) => Value::Map(Map::Json(object, schema)),
            Json::Array(items) => Value::List(List::Json(items, schema)),
            Json::Bool(b) => Value::Bool(*b),
            Json::Null => Value::Null,
            Json::Number(number) => {
                let reading = schema.map_or(Reading::Plain, Schema::reading);
                match (number.as_i64(), number.as_f64()) {
                    (Some(_), Some(d)) if reading == Reading::Double => Value::Double(d),
                    (Some(i), _) => Value::Int(i),
                    (None, Some(d)) if reading == Reading::Int && d.fract() == 0.0 && d.abs() < 9.2e18 => Value::Int(d as i64),
                    (None, d) => match number.as_u64() {
                        Some(u) => Value::Uint(u),
                        None => Value::Double(d.unwrap_or(f64::NAN)),
                    },
                }
            }
        }
    }

    /// The JSON of the value, as for an object: times and bytes become strings, messages become objects.
    pub fn to_json(&self) -> Result<Json, JsonError> {
        write(self, &mut 0)
    }

    /// The value with its type, as in the vector files: `{"int64": "1"}`.
    pub fn to_typed_json(&self) -> Json {
        match self {
            Value::Null => json!({"null": null}),
            Value::Bool(b) => json!({"bool": b}),
            Value::Int(i) => json!({"int64": i.to_string()}),
            Value::Uint(u) => json!({"uint64": u.to_string()}),
            Value::Double(d) => json!({"double": typed_double(*d)}),
            Value::String(s) => json!({"string": &**s}),
            Value::Bytes(b) => json!({"bytes": encode_base64(b)}),
            Value::Duration(d) => json!({"duration": format_duration(*d)}),
            Value::Timestamp(t) => json!({"timestamp": t.to_string()}),
            Value::List(l) => {
                json!({"list": l.iter().take(MAX_WRITTEN).map(|v| v.to_typed_json()).collect::<Vec<_>>()})
            }
            Value::Map(m) => {
                let mut entries: Vec<_> = m.iter().map(|(k, v)| [k.to_typed_json(), v.to_typed_json()]).collect();
                entries.sort_by_cached_key(|[key, _]| key.to_string());
                json!({"map": entries})
            }
            Value::Type(t) => json!({"type": t.name()}),
            Value::Optional(None) => json!({"optional": []}),
            Value::Optional(Some(v)) => json!({"optional": [v.to_typed_json()]}),
            Value::Struct(s) => {
                let fields: serde_json::Map<_, _> = s.fields.iter().map(|(k, v)| (k.to_string(), v.to_typed_json())).collect();
                json!({"object": [&*s.name, fields]})
            }
            Value::Opaque(o) => json!({"opaque": [o.type_name(), o.to_string()]}),
        }
    }

    /// Reads a value with its type, as in the vector files.
    pub fn from_typed_json(json: &Json) -> Option<Value<'static>> {
        let (kind, value) = json.as_object().filter(|o| o.len() == 1)?.iter().next()?;
        Some(match kind.as_str() {
            "null" => Value::Null,
            "bool" => Value::Bool(value.as_bool()?),
            "int64" => Value::Int(value.as_str().map_or_else(|| value.as_i64(), |s| s.parse().ok())?),
            "uint64" => Value::Uint(value.as_str().map_or_else(|| value.as_u64(), |s| s.parse().ok())?),
            "double" => Value::Double(value.as_str().map_or_else(|| value.as_f64(), |s| s.parse().ok())?),
            "string" => Value::string(value.as_str()?),
            "bytes" => Value::Bytes(decode_base64(value.as_str()?)?.into()),
            "duration" => Value::Duration(parse_duration(value.as_str()?)?),
            "timestamp" => Value::Timestamp(Timestamp::parse(value.as_str()?)?),
            "type" => Value::Type(crate::declarations::read_type(value.as_str()?)?.into()),
            "list" => Value::list(value.as_array()?.iter().map(Value::from_typed_json).collect::<Option<_>>()?),
            "map" => {
                let mut entries = Entries::default();
                for entry in value.as_array()? {
                    let [key, value] = entry.as_array()?.as_slice() else {
                        return None;
                    };
                    entries.insert(Value::from_typed_json(key)?, Value::from_typed_json(value)?);
                }
                Value::Map(entries.into())
            }
            "optional" => match value.as_array()?.first() {
                Some(inner) => Value::Optional(Some(Value::from_typed_json(inner)?.into())),
                None => Value::Optional(None),
            },
            _ => return None,
        })
    }
}

fn read_string<'a>(text: &'a str, reading: Reading) -> Option<Value<'a>> {
    Some(match reading {
        Reading::Bytes => Value::Bytes(decode_base64(text)?.into()),
        Reading::Duration => Value::Duration(parse_duration(text)?),
        Reading::Timestamp if text.len() == 10 => Value::Timestamp(Timestamp::parse(&format!("{text}T00:00:00Z"))?),
        Reading::Timestamp => Value::Timestamp(Timestamp::parse(text)?),
        _ => Value::String(Text::Borrowed(text)),
    })
}

fn write(value: &Value<'_>, written: &mut usize) -> Result<Json, JsonError> {
    *written += 1;
    if *written > MAX_WRITTEN {
        return Err(JsonError::TooLarge);
    }
    Ok(match value {
        Value::Null | Value::Optional(None) => Json::Null,
        Value::Bool(b) => Json::Bool(*b),
        Value::Int(i) => json!(i),
        Value::Uint(u) => json!(u),
        Value::Double(d) => json!(d),
        Value::String(s) => json!(&**s),
        Value::Bytes(b) => json!(encode_base64(b)),
        Value::Duration(d) => json!(format_duration(*d)),
        Value::Timestamp(t) => json!(t.to_string()),
        Value::List(l) => Json::Array(l.iter().map(|v| write(&v, written)).collect::<Result<_, _>>()?),
        Value::Map(Map::Json(object, _)) => Json::Object((*object).clone()),
        Value::Map(map) => {
            let mut object = serde_json::Map::new();
            for (key, value) in map.iter() {
                object.insert(json_key(&key)?, write(&value, written)?);
            }
            Json::Object(object)
        }
        Value::Struct(message) => {
            let mut object = serde_json::Map::new();
            for (name, value) in &message.fields {
                object.insert(name.to_string(), write(value, written)?);
            }
            Json::Object(object)
        }
        Value::Optional(Some(value)) => write(value, written)?,
        Value::Type(_) | Value::Opaque(_) => {
            return Err(JsonError::NoForm(value.type_of().to_string()));
        }
    })
}

fn json_key(key: &Value<'_>) -> Result<String, JsonError> {
    Ok(match key {
        Value::String(s) => s.to_string(),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Uint(u) => u.to_string(),
        other => return Err(JsonError::NoForm(other.type_of().to_string())),
    })
}

fn typed_double(d: f64) -> String {
    if d.is_nan() {
        return "NaN".into();
    }
    if d.is_infinite() {
        return if d > 0.0 { "Infinity".into() } else { "-Infinity".into() };
    }
    if d != 0.0 && !(1e-4..1e16).contains(&d.abs()) {
        let text = format!("{d:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        return format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs());
    }
    format!("{d:?}")
}

/// A value as error texts show it.
pub(crate) fn show(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".into(),
        Value::String(s) => s.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Uint(u) => u.to_string(),
        Value::Bool(b) => b.to_string(),
        Value::Double(d) => format_double(*d),
        Value::Bytes(b) => format!("b{}", quoted(&String::from_utf8_lossy(b))),
        Value::Timestamp(t) => t.to_string(),
        Value::Duration(d) => format_duration(*d),
        other => match other.type_of() {
            Type::List(_) => "list".into(),
            Type::Map(_) => "map".into(),
            t => t.to_string(),
        },
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Standard base64 with padding.
pub(crate) fn encode_base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let n = chunk.iter().enumerate().fold(0u32, |n, (i, b)| n | u32::from(*b) << (16 - 8 * i));
        for i in 0..4 {
            if i <= chunk.len() {
                out.push(char::from(ALPHABET[(n >> (18 - 6 * i) & 63) as usize]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

/// Reads standard base64; the padding is required.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let data = text.trim_end_matches('=');
    if text.len() - data.len() > 2 {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let mut buffer = 0u32;
    let mut bits = 0;
    for b in data.bytes() {
        let digit = ALPHABET.iter().position(|a| *a == b)? as u32;
        buffer = buffer << 6 | digit;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((buffer >> bits) as u8);
            buffer &= (1 << bits) - 1;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_values_survive_their_json() {
        let typed = json!({"map": [[{"string": "a"}, {"list": [{"int64": "1"}, {"uint64": "2"}, {"double": "1.5"}, {"null": null}]}],
            [{"string": "b"}, {"optional": [{"bytes": "AP8="}]}], [{"string": "c"}, {"timestamp": "2020-01-01T00:00:00Z"}],
            [{"string": "d"}, {"duration": "1.5s"}], [{"string": "e"}, {"bool": true}], [{"string": "f"}, {"type": "int"}]]});
        assert_eq!(Value::from_typed_json(&typed).unwrap().to_typed_json(), typed);
    }

    #[test]
    fn the_schema_decides_how_scalars_are_read() {
        let schema = json!({"type": "object", "properties": {"t": {"type": "string", "format": "date-time"}, "d": {"type": "number"},
            "b": {"type": "string", "format": "byte"}, "day": {"type": "string", "format": "date"}, "s": {"type": "string", "format": "duration"}}});
        let schema = Schema::from_openapi(&schema, false).unwrap();
        let document = json!({"t": "2020-01-01T00:00:00Z", "d": 1, "b": "aGk=", "day": "2020-01-01", "s": "1h"});
        let Value::Map(map) = Value::from_json(&document, Some(&schema)) else { panic!() };
        assert!(matches!(map.get_str("t"), Some(Value::Timestamp(_))));
        assert!(matches!(map.get_str("d"), Some(Value::Double(_))));
        assert!(matches!(map.get_str("b"), Some(Value::Bytes(_))));
        assert!(matches!(map.get_str("day"), Some(Value::Timestamp(_))));
        assert!(matches!(map.get_str("s"), Some(Value::Duration(3_600_000_000_000))));
    }

    #[test]
    fn base64_is_the_standard_one() {
        for (plain, encoded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(encode_base64(plain.as_bytes()), encoded);
            assert_eq!(decode_base64(encoded).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(decode_base64("Zg"), None);
        assert_eq!(decode_base64("Z==="), None);
    }

    #[test]
    fn shared_structure_is_not_written_without_end() {
        let mut value = Value::list(vec![Value::Int(1); 100]);
        for _ in 0..5 {
            value = Value::list(vec![value; 100]);
        }
        assert_eq!(value.to_json(), Err(JsonError::TooLarge));
    }
}
