//! A `Status` as a real server writes it: its members, those of its details and of their causes in the order of Go's structs. Other
//! objects are written as they come; of these a log has one in every refusal, and whoever compares two logs compares lines.

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::Value;

/// The members of a `Status`, of its details, and of one of their causes.
const ORDERS: [&[&str]; 3] = [
    &["kind", "apiVersion", "metadata", "status", "message", "reason", "details", "code"],
    &["name", "group", "kind", "uid", "causes", "retryAfterSeconds"],
    &["reason", "message", "field"],
];

/// A part of a `Status`, and how deep in it.
struct InOrder<'a>(&'a Value, usize);

/// A whole `Status`.
pub fn status(value: &Value) -> impl Serialize + '_ {
    InOrder(value, 0)
}

/// Its details.
pub fn details(value: &Value) -> impl Serialize + '_ {
    InOrder(value, 1)
}

/// The same, for a field that has them.
pub fn serialize_details<S: Serializer>(value: &Option<Value>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(details).serialize(serializer)
}

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let InOrder(value, depth) = *self;
        match (value, ORDERS.get(depth)) {
            (Value::Object(map), Some(order)) => {
                let mut out = serializer.serialize_map(Some(map.len()))?;
                for (key, part) in order.iter().filter_map(|key| Some((*key, map.get(*key)?))) {
                    let is_deeper = matches!((depth, key), (0, "details") | (1, "causes"));
                    out.serialize_entry(key, &InOrder(part, if is_deeper { depth + 1 } else { ORDERS.len() }))?;
                }
                for (key, part) in map.iter().filter(|(key, _)| !order.contains(&key.as_str())) {
                    out.serialize_entry(key, part)?;
                }
                out.end()
            }
            (Value::Array(items), Some(_)) => {
                let mut out = serializer.serialize_seq(Some(items.len()))?;
                items.iter().try_for_each(|item| out.serialize_element(&InOrder(item, depth)))?;
                out.end()
            }
            _ => value.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_written_in_the_order_of_a_real_server_and_nothing_is_left_out() {
        let text = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"m","reason":"Invalid","details":{"name":"d","group":"apps","kind":"Deployment","causes":[{"reason":"FieldValueInvalid","message":"m","field":"f"}],"more":{"b":1}},"code":422}"#;
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&status(&value)).unwrap(), text);
        assert_eq!(serde_json::to_string(&details(&json!(["odd", 1]))).unwrap(), r#"["odd",1]"#);
    }
}
