//! Reading a custom kind: the value as it is, with a note of every field that is there twice. Only its metadata has a
//! type. What the schema does not know is found when it is pruned.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::typed;
use crate::schema::{Schema, SchemaRef, Shape, builtin};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Reads any object. The other result is what is wrong with its metadata.
pub(super) fn read<'de, D: Deserializer<'de>>(from: D, noted: &mut Vec<String>) -> Result<(Value, Option<String>), D::Error> {
    let mut path = String::new();
    let mut value = Node { path: &mut path, noted }.deserialize(from)?;
    let mut error = None;
    if let Some(metadata) = value.get_mut("metadata") {
        error = coerce_metadata(metadata, noted);
    }
    Ok((value, error))
}

/// Reads anything, even metadata, as it is.
pub(super) fn read_plain<'de, D: Deserializer<'de>>(from: D, noted: &mut Vec<String>) -> Result<Value, D::Error> {
    Node { path: &mut String::new(), noted }.deserialize(from)
}

/// Metadata is typed even here.
fn coerce_metadata(metadata: &mut Value, noted: &mut Vec<String>) -> Option<String> {
    let schema = builtin::of_definition(OBJECT_META)?;
    let mut inner = Vec::new();
    let (coerced, error) = typed::read(std::mem::take(metadata), &schema, &mut inner).ok()?;
    *metadata = coerced;
    noted.extend(inner.into_iter().map(|sentence| sentence.replacen("field \"", "field \"metadata.", 1)));
    error
}

/// Gives the objects inside of an object typed metadata as well; answers what is wrong with one of them.
pub(super) fn coerce_embedded(value: &mut Value, schema: &Schema, path: &mut String) -> Option<String> {
    let mut inside = |value: &mut Value, reference: &SchemaRef, step: String| {
        let SchemaRef::Inline(inner) = reference else { return None };
        let before = path.len();
        path.push_str(if before == 0 { step.trim_start_matches('.') } else { &step });
        let found = coerce_embedded(value, inner, path);
        path.truncate(before);
        found
    };
    match (&schema.shape, value) {
        (Shape::Object(shape), Value::Object(fields)) => {
            let found = fields.iter_mut().filter(|(_, value)| value.is_object() || value.is_array()).find_map(|(name, value)| {
                let (reference, step) = match (shape.properties.get(name.as_str()), &shape.additional) {
                    (Some(reference), _) => (reference, format!(".{name}")),
                    (None, Some(reference)) => (reference, format!("[{name}]")),
                    (None, None) => return None,
                };
                inside(value, reference, step)
            });
            if found.is_some() || !shape.embedded || path.is_empty() { found } else { coerce_whole(fields, path) }
        }
        (Shape::Array { items, .. }, Value::Array(list)) => {
            list.iter_mut().enumerate().find_map(|(i, item)| inside(item, items, format!("[{i}]")))
        }
        _ => None,
    }
}

fn coerce_whole(object: &mut Map<String, Value>, path: &str) -> Option<String> {
    for name in ["apiVersion", "kind"] {
        if let Some(value) = object.get(name).filter(|value| !value.is_string()) {
            return Some(format!("{path}.{name}: Invalid value: {value}: must be a string"));
        }
    }
    let metadata = object.get_mut("metadata")?;
    let schema = builtin::of_definition(OBJECT_META)?;
    let (coerced, error) = typed::read(metadata.clone(), &schema, &mut Vec::new()).ok()?;
    let mistake = error.map(|error| format!("{path}.metadata: Invalid value: {metadata}: {error}"));
    *metadata = coerced;
    mistake
}

struct Node<'n> {
    path: &'n mut String,
    noted: &'n mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, yes: bool) -> Result<Value, E> {
        Ok(yes.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        loop {
            let before = self.path.len();
            self.path.push_str(&format!("[{}]", all.len()));
            let item = seq.next_element_seed(Node { path: self.path, noted: self.noted })?;
            self.path.truncate(before);
            match item {
                Some(item) => all.push(item),
                None => return Ok(Value::Array(all)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let before = self.path.len();
            if before > 0 {
                self.path.push('.');
            }
            self.path.push_str(&key);
            if all.contains_key(&key) {
                self.noted.push(format!("duplicate field {:?}", self.path));
            }
            let value = map.next_value_seed(Node { path: self.path, noted: self.noted })?;
            self.path.truncate(before);
            all.insert(key, value);
        }
        Ok(Value::Object(all))
    }
}
