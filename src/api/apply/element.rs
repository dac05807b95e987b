//! One step of a field path, as managedFields writes it: `f:` a field, `k:` the item with these keys, `v:` the item with this
//! value, `i:` the item at this place. Order and spelling are those of structured-merge-diff, because they are what
//! clients see.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value};

use crate::api::patch::go;

/// One step of a path.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// A field of an object or a key of a map.
    Field(Box<str>),
    /// The item of an associative list with these key fields, sorted by name.
    Key(Box<[(Box<str>, Value)]>),
    /// The item of a set with this value.
    Value(Value),
    /// The item of an atomic list at this place.
    Index(i64),
}

/// Why a step could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnreadableElement(pub String);

impl PathElement {
    /// A field.
    pub fn field(name: &str) -> Self {
        PathElement::Field(name.into())
    }

    /// Reads a step; `None` if it is of a type that a later version may know.
    pub fn parse(text: &str) -> Result<Option<Self>, UnreadableElement> {
        let unreadable = |why: String| Err(UnreadableElement(why));
        let mut chars = text.chars();
        let (Some(kind), Some(separator)) = (chars.next(), chars.next()) else {
            return unreadable("key must be 2 characters long:".into());
        };
        if separator != ':' {
            return unreadable(format!("missing colon: {text}"));
        }
        let rest = chars.as_str();
        Ok(Some(match kind {
            'f' => PathElement::Field(rest.into()),
            'v' => match serde_json::from_str(rest) {
                Ok(value) => PathElement::Value(value),
                Err(error) => return unreadable(error.to_string()),
            },
            'k' => match serde_json::from_str::<Map<String, Value>>(rest) {
                // The map is sorted by name, and so are keys.
                Ok(keys) => PathElement::Key(keys.into_iter().map(|(name, value)| (name.into_boxed_str(), value)).collect()),
                Err(error) => return unreadable(error.to_string()),
            },
            'i' => match rest.parse() {
                Ok(index) => PathElement::Index(index),
                Err(_) => return unreadable(format!("strconv.Atoi: parsing \"{rest}\": invalid syntax")),
            },
            _ => return Ok(None),
        }))
    }

    /// The step as a member name of FieldsV1.
    pub fn to_key(&self) -> String {
        match self {
            PathElement::Field(name) => {
                let mut key = String::with_capacity(name.len() + 2);
                key.push_str("f:");
                key.push_str(name);
                key
            }
            PathElement::Key(keys) => {
                let mut key = String::from("k:{");
                for (i, (name, value)) in keys.iter().enumerate() {
                    if i > 0 {
                        key.push(',');
                    }
                    push_string(&mut key, name);
                    key.push(':');
                    push_value(&mut key, value);
                }
                key.push('}');
                key
            }
            PathElement::Value(value) => {
                let mut key = String::from("v:");
                push_value(&mut key, value);
                key
            }
            PathElement::Index(index) => format!("i:{index}"),
        }
    }
}

fn push_string(out: &mut String, text: &str) {
    // A string cannot fail to serialise.
    if let Ok(text) = serde_json::to_string(text) {
        out.push_str(&text);
    }
}

fn push_value(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => push_string(out, text),
        // A whole number is spelled as one, however it came.
        Value::Number(number) if number.is_f64() => out.push_str(&go::plain(value)),
        other => out.push_str(&other.to_string()),
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathElement::Field(name) => write!(f, ".{name}"),
            PathElement::Key(keys) => {
                f.write_str("[")?;
                for (i, (name, value)) in keys.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", readable(value))?;
                }
                f.write_str("]")
            }
            PathElement::Value(value) => write!(f, "[={}]", readable(value)),
            PathElement::Index(index) => write!(f, "[{index}]"),
        }
    }
}

fn readable(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::String(text) => go::quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(readable).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => fields.iter().map(|(name, value)| format!("{name}={}", readable(value))).collect(),
        scalar => go::plain(scalar),
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (PathElement::Field(a), PathElement::Field(b)) => a.cmp(b),
            (PathElement::Key(a), PathElement::Key(b)) => {
                for ((a_name, a), (b_name, b)) in a.iter().zip(b) {
                    let order = a_name.cmp(b_name).then_with(|| compare(a, b));
                    if order != Ordering::Equal {
                        return order;
                    }
                }
                a.len().cmp(&b.len())
            }
            (PathElement::Value(a), PathElement::Value(b)) => compare(a, b),
            (PathElement::Index(a), PathElement::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PathElement {
    fn rank(&self) -> u8 {
        match self {
            PathElement::Field(_) => 0,
            PathElement::Key(_) => 1,
            PathElement::Value(_) => 2,
            PathElement::Index(_) => 3,
        }
    }
}

/// The order of values: numbers by size, then strings, booleans, lists, objects and null.
pub fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => a.as_f64().partial_cmp(&b.as_f64()).unwrap_or(Ordering::Equal),
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            a.iter().zip(b).map(|(a, b)| compare(a, b)).find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => a
            .iter()
            .zip(b)
            .map(|((a_name, a), (b_name, b))| a_name.cmp(b_name).then_with(|| compare(a, b)))
            .find(|order| order.is_ne())
            .unwrap_or_else(|| a.len().cmp(&b.len())),
        _ => rank(a).cmp(&rank(b)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Whether two values are the same to a field manager, for whom 1 and 1.0 are one number.
pub fn equal(a: &Value, b: &Value) -> bool {
    a == b || compare(a, b).is_eq()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn steps_are_spelled_and_read_back() {
        for (text, shown) in [
            ("f:data", ".data"),
            ("f:example.com/a:b", ".example.com/a:b"),
            (r#"k:{"name":"c"}"#, r#"[name="c"]"#),
            (r#"k:{"containerPort":80,"protocol":"TCP"}"#, r#"[containerPort=80,protocol="TCP"]"#),
            (r#"v:"example.com/f""#, r#"[="example.com/f"]"#),
            ("v:1.5", "[=1.5]"),
            ("v:true", "[=true]"),
            ("i:3", "[3]"),
        ] {
            let element = PathElement::parse(text).expect("readable").expect("known");
            assert_eq!(element.to_key(), text);
            assert_eq!(element.to_string(), shown);
        }
        assert_eq!(PathElement::Value(json!(2.0)).to_key(), "v:2");
        assert_eq!(PathElement::parse("z:future"), Ok(None));
        assert_eq!(PathElement::parse("f"), Err(UnreadableElement("key must be 2 characters long:".into())));
        assert_eq!(PathElement::parse("fdata"), Err(UnreadableElement("missing colon: fdata".into())));
        assert!(PathElement::parse("k:{").is_err() && PathElement::parse("v:1 2").is_err() && PathElement::parse("i:x").is_err());
    }

    #[test]
    fn numbers_are_ordered_by_size_and_not_by_spelling() {
        let port = |port: i64| PathElement::parse(&format!(r#"k:{{"port":{port}}}"#)).expect("readable").expect("known");
        assert!(port(80) < port(443));
        assert!(equal(&json!(1), &json!(1.0)) && !equal(&json!(1), &json!("1")));
        assert!(PathElement::field("z") < port(1));
    }
}
