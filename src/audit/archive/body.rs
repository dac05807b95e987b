//! The body of a request or a response as an expression sees it: of a JSON text only what is read of it becomes a value, the rest is
//! skipped.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::{Map, Value};
use usher_cel::Reads;

/// Reads a body over another one, of which it keeps what it needs again; `None` if it is damaged.
pub fn read(json: &[u8], reads: &Reads, over: Value) -> Option<Value> {
    match json.first()? {
        b'{' if reads.only_plain() => return Some(Value::Object(Map::new())),
        b'[' if reads.only_plain() => return Some(Value::Array(Vec::new())),
        _ => {}
    }
    let mut text = serde_json::Deserializer::from_str(std::str::from_utf8(json).ok()?);
    let value = Picked { reads, over }.deserialize(&mut text).ok()?;
    text.end().ok()?;
    Some(value)
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

struct Picked<'r> {
    reads: &'r Reads,
    over: Value,
}

impl<'de> DeserializeSeed<'de> for Picked<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        if self.reads.all() {
            return Value::deserialize(from);
        }
        if self.reads.only_presence() {
            return IgnoredAny::deserialize(from).map(|_| Value::Null);
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Picked<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = match self.over {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        let mut seen = Vec::with_capacity(map.len());
        while let Some(Name(name)) = entries.next_key()? {
            let Some(reads) = self.reads.field(&name) else {
                entries.next_value::<IgnoredAny>()?;
                continue;
            };
            match map.get_mut(&*name) {
                Some(place) => *place = entries.next_value_seed(Picked { reads, over: place.take() })?,
                None => drop(map.insert(name.to_string(), entries.next_value_seed(Picked { reads, over: Value::Null })?)),
            }
            seen.push(name);
        }
        // A name may be there twice.
        seen.sort_unstable();
        seen.dedup();
        if seen.len() != map.len() {
            map.retain(|name, _| seen.binary_search_by(|seen| (**seen).cmp(name)).is_ok());
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        match self.reads.item() {
            Some(reads) => {
                while let Some(item) = items.next_element_seed(Picked { reads, over: Value::Null })? {
                    list.push(item);
                }
            }
            None => while items.next_element::<IgnoredAny>()?.is_some() {},
        }
        Ok(Value::Array(list))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_is_read_becomes_a_value() {
        let body = json!({"kind": "Pod", "metadata": {"name": "a", "labels": {"x": "y"}, "n": 1}, "spec": {"containers": [{"name": "c", "image": "i"}, {"args": ["x"]}], "list": [1]}});
        let text = body.to_string();
        let shown = |source: &str| {
            let reads = Reads::of(source, "event");
            let reads = reads.field("o").unwrap();
            let value = read(text.as_bytes(), reads, Value::Null);
            // Whatever was there before.
            for before in [json!({"kind": {"a": 1}, "other": null, "metadata": {"name": [1], "x": 2}}), json!([1]), body.clone()] {
                assert_eq!(read(text.as_bytes(), reads, before), value);
            }
            value
        };
        assert_eq!(shown("event.o == event"), Some(body.clone()));
        assert_eq!(shown("event.o == {}"), Some(json!({"kind": null, "metadata": null, "spec": null})));
        assert_eq!(shown("event.exists(k, event[k] == 'x')"), Some(json!({})));
        assert_eq!(shown("event.o[event.k] == 'Pod'"), Some(json!({"kind": "Pod", "metadata": {}, "spec": {}})));
        assert_eq!(shown("event.o.metadata.name == 'a'"), Some(json!({"metadata": {"name": "a"}})));
        assert_eq!(shown("has(event.o.spec) && event.o.metadata.n == 1"), Some(json!({"metadata": {"n": 1}, "spec": null})));
        assert_eq!(shown("event.o.metadata.labels.exists(l, l == 'x')"), Some(json!({"metadata": {"labels": {"x": null}}})));
        let containers = json!({"spec": {"containers": [{"name": "c"}, {}], "list": []}});
        assert_eq!(shown("event.o.spec.containers.exists(c, c.name == 'c') && event.o.spec.list.a == 1"), Some(containers));
        assert_eq!(
            shown("event.o.spec.list.size() == event.o.spec.containers.size()"),
            Some(json!({"spec": {"containers": [null, null], "list": [null]}}))
        );
        let keys = |text: &str| read(text.as_bytes(), &Reads::of("event == {}", "event"), json!({"a": null, "b": null}));
        assert_eq!(keys(r#"{"a": 1, "a": 2}"#), Some(json!({"a": null})));
        assert_eq!(keys(r#"{"a": "#), None);
        assert_eq!(keys(r#"{} {}"#), None);
    }
}
