//! The body of a request or a response in an event: JSON as text on one line, which is passed on from who made it to who keeps it
//! without being read. What comes back from a disk may be damaged, and is looked through where it is written out again.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::in_order;

/// JSON on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json(Bytes);

impl Json {
    /// What this server has written as JSON itself.
    pub fn written(text: Bytes) -> Json {
        let end = text.trim_ascii_end().len();
        Json(text.slice(..end))
    }

    /// What somebody else has written; `None` if it is no JSON.
    pub fn checked(text: Bytes) -> Option<Json> {
        serde_json::from_slice::<&RawValue>(&text).is_ok().then(|| Json::written(text))
    }

    /// The text.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The text, to be kept.
    pub fn shared(&self) -> &Bytes {
        &self.0
    }

    /// What it says.
    pub fn value(&self) -> Option<Value> {
        serde_json::from_slice(&self.0).ok()
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Json {
        let text = match value.get("kind").is_some_and(|kind| kind == "Status") {
            true => serde_json::to_vec(&in_order::status(value)),
            false => serde_json::to_vec(value),
        };
        Json(text.unwrap_or_default().into())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Damage becomes null.
        serde_json::from_slice::<&RawValue>(&self.0).ok().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Json(String::from(Box::<str>::from(raw)).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_written_as_it_is_and_damage_does_not_break_the_line() {
        let written = |text: &'static str| serde_json::to_string(&[Json::written(Bytes::from_static(text.as_bytes()))]).unwrap();
        assert_eq!(written("{\"a\": 1.50}\n"), r#"[{"a": 1.50}]"#);
        assert_eq!(written("{\"a\": "), "[null]");
        assert_eq!(Json::checked(Bytes::from_static(b"{\"a\": ")), None);
        let read: Json = serde_json::from_str(" {\"b\": [1]} ").unwrap();
        assert_eq!((read.bytes(), read.value()), (&b"{\"b\": [1]}"[..], Some(serde_json::json!({"b": [1]}))));
    }
}
