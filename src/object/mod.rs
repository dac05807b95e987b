//! An object as bytes: its canonical JSON, with apiVersion, kind and metadata in front, so that a list can leave out the
//! first two and a revision can be written into the third at a known place without parsing. What is stored carries no
//! resourceVersion (a store may learn the revision only when it commits); what readers get does.

pub mod list;
pub mod qos;
pub mod selector;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::store::{Key, Revision};

const METADATA: &[u8] = b"\"metadata\":{";

/// Labels as pairs of key and value.
type Labels = Box<[(Box<str>, Box<str>)]>;

/// An object as readers share it: complete JSON at one revision.
#[derive(Debug)]
pub struct Object {
    /// Its key in the store.
    pub key: Key,
    /// The revision that wrote it, or that deleted it.
    pub revision: Revision,
    /// The JSON, with `metadata.resourceVersion` in it.
    pub json: Bytes,
    head: usize,
    parsed: OnceLock<Arc<Value>>,
    labels: OnceLock<Labels>,
}

impl Object {
    /// Takes stored bytes and writes their revision into them.
    pub fn new(key: Key, revision: Revision, stored: &[u8]) -> Self {
        let head = memchr::memmem::find(stored, METADATA).unwrap_or(0);
        Object { key, revision, json: splice(stored, head, revision), head, parsed: OnceLock::new(), labels: OnceLock::new() }
    }

    /// An object that was never written: no revision in its bytes.
    pub fn unversioned(key: Key, bytes: Bytes) -> Self {
        let head = memchr::memmem::find(&bytes, METADATA).unwrap_or(0);
        Object { key, revision: 0, json: bytes, head, parsed: OnceLock::new(), labels: OnceLock::new() }
    }

    /// The object without apiVersion and kind, as an item of a built-in list: the part behind an opening brace.
    pub fn item(&self) -> &[u8] {
        self.json.get(self.head..).unwrap_or_default()
    }

    /// Its `apiVersion`, which canonical bytes begin with.
    pub fn api_version(&self) -> &str {
        let text = self.json.strip_prefix(b"{\"apiVersion\":\"").unwrap_or_default();
        let end = memchr::memchr(b'"', text).unwrap_or(0);
        std::str::from_utf8(&text[..end]).unwrap_or_default()
    }

    /// The namespace and name that the key ends with; the namespace is empty for a cluster-scoped object.
    pub fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }

    /// The bytes as they are stored, without the revision.
    pub fn stored(&self) -> Vec<u8> {
        unsplice(&self.json, self.head, self.revision)
    }

    /// The object as a value, parsed when first asked for and kept.
    pub fn value(&self) -> &Arc<Value> {
        self.parsed.get_or_init(|| Arc::new(serde_json::from_slice(&self.json).unwrap_or_default()))
    }

    /// The object as a value of the caller's own; does not keep the parsed form.
    pub fn to_value(&self) -> Value {
        match self.parsed.get() {
            Some(value) => (**value).clone(),
            None => serde_json::from_slice(&self.json).unwrap_or_default(),
        }
    }

    /// A field as a field selector compares it, without keeping a parsed form: one string is no reason to hold the whole object twice.
    pub fn field(&self, path: &str) -> String {
        match self.parsed.get() {
            Some(value) => selector::field_text(value, path),
            None => selector::field_text(&branch(&self.json, path), path),
        }
    }

    /// The labels, read when first asked for.
    pub fn labels(&self) -> &[(Box<str>, Box<str>)] {
        self.labels.get_or_init(|| {
            // Most objects carry no labels; they are not worth a parse.
            if self.parsed.get().is_none() && memchr::memmem::find(&self.json, b"\"labels\":{").is_none() {
                return Box::default();
            }
            let owned;
            let value = match self.parsed.get() {
                Some(value) => &**value,
                None => {
                    owned = serde_json::from_slice::<Head>(&self.json).unwrap_or_default();
                    return owned.metadata.labels.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
                }
            };
            let labels = value.pointer("/metadata/labels").and_then(Value::as_object);
            labels.into_iter().flatten().filter_map(|(k, v)| Some((k.as_str().into(), v.as_str()?.into()))).collect()
        })
    }

    /// The same object told at another revision: what a watcher sees when an object leaves its selection.
    pub fn at(&self, revision: Revision) -> Object {
        Object::new(self.key.clone(), revision, &self.stored())
    }
}

/// The part of a JSON object that a dotted path leads through, everything beside it left out.
fn branch(json: &[u8], path: &str) -> Value {
    let mut reader = serde_json::Deserializer::from_slice(json);
    Branch(path).deserialize(&mut reader).unwrap_or_default()
}

struct Branch<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for Branch<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        if self.0.is_empty() { Value::deserialize(reader) } else { reader.deserialize_map(self) }
    }
}

impl<'de> Visitor<'de> for Branch<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let (first, rest) = self.0.split_once('.').unwrap_or((self.0, ""));
        let mut found = Map::new();
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            if key == first {
                found.insert(first.to_owned(), map.next_value_seed(Branch(rest))?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found.into())
    }
}

#[derive(Default, serde::Deserialize)]
struct Head {
    #[serde(default)]
    metadata: HeadMetadata,
}

#[derive(Default, serde::Deserialize)]
struct HeadMetadata {
    #[serde(default)]
    labels: std::collections::BTreeMap<String, String>,
}

fn splice(stored: &[u8], head: usize, revision: Revision) -> Bytes {
    let cut = head + METADATA.len();
    if stored.len() < cut {
        return Bytes::copy_from_slice(stored);
    }
    let mut out = Vec::with_capacity(stored.len() + 42);
    out.extend_from_slice(&stored[..cut]);
    out.extend_from_slice(b"\"resourceVersion\":\"");
    out.extend_from_slice(revision.to_string().as_bytes());
    out.push(b'"');
    if stored[cut] != b'}' {
        out.push(b',');
    }
    out.extend_from_slice(&stored[cut..]);
    out.shrink_to_fit();
    out.into()
}

fn unsplice(json: &[u8], head: usize, revision: Revision) -> Vec<u8> {
    let cut = head + METADATA.len();
    let spliced = format!("\"resourceVersion\":\"{revision}\"").len();
    let mut rest = json.get(cut + spliced..).unwrap_or_default();
    if rest.first() == Some(&b',') {
        rest = &rest[1..];
    }
    [json.get(..cut).unwrap_or_default(), rest].concat()
}

/// The bytes to store: canonical, without a resourceVersion.
pub fn canonical(object: &Value) -> Bytes {
    let mut out = Vec::with_capacity(1024);
    let empty = Map::new();
    let map = object.as_object().unwrap_or(&empty);
    out.extend_from_slice(b"{\"apiVersion\":");
    write(&mut out, map.get("apiVersion").unwrap_or(&Value::Null));
    out.extend_from_slice(b",\"kind\":");
    write(&mut out, map.get("kind").unwrap_or(&Value::Null));
    out.extend_from_slice(b",\"metadata\":{");
    let mut first = true;
    for (key, value) in map.get("metadata").and_then(Value::as_object).into_iter().flatten() {
        if key != "resourceVersion" {
            field(&mut out, &mut first, key, value);
        }
    }
    out.push(b'}');
    first = false;
    for (key, value) in map {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            field(&mut out, &mut first, key, value);
        }
    }
    out.push(b'}');
    out.into()
}

fn field(out: &mut Vec<u8>, first: &mut bool, key: &str, value: &Value) {
    if !std::mem::take(first) {
        out.push(b',');
    }
    // Writing into a vector cannot fail.
    let _ = serde_json::to_writer(&mut *out, key);
    out.push(b':');
    write(out, value);
}

fn write(out: &mut Vec<u8>, value: &Value) {
    let _ = serde_json::to_writer(out, value);
}

/// The value at a dotted path (`spec.nodeName`), or `None`.
pub fn lookup<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(object, |value, part| value.get(part))
}

/// The word for a JSON value in messages, which is the one that Go's decoder has.
pub fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A string of the metadata, or the empty string.
pub fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|m| m.get(field)).and_then(Value::as_str).unwrap_or_default()
}

/// The metadata to change; made where it is missing.
pub fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(map) = object else { unreachable!("made an object above") };
    let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    let Value::Object(metadata) = metadata else { unreachable!("made an object above") };
    metadata
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_revision_is_written_into_the_bytes_and_taken_out_again() {
        let value = json!({"kind": "Pod", "apiVersion": "v1", "data": {"metadata": {}}, "metadata": {"name": "x", "resourceVersion": "7", "labels": {"a": "b"}}});
        let stored = canonical(&value);
        assert!(!String::from_utf8_lossy(&stored).contains("resourceVersion"));
        let object = Object::new("/registry/pods/d/x".into(), 42, &stored);
        assert_eq!(object.value()["metadata"]["resourceVersion"], "42");
        assert_eq!(object.labels(), &[("a".into(), "b".into())]);
        assert!(object.item().starts_with(b"\"metadata\":{\"resourceVersion\":\"42\","));
        assert_eq!(object.at(43).value()["metadata"]["resourceVersion"], "43");
        assert_eq!(&object.at(43).value()["data"], &value["data"]);
    }

    #[test]
    fn a_single_field_is_read_without_the_rest() {
        let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}, "spec": {"a": [{"nodeName": 1}], "nodeName": "n\u{e9}\n", "hostNetwork": true}});
        let object = Object::new("/registry/pods/d/x".into(), 1, &canonical(&pod));
        let fields = ["spec.nodeName", "spec.hostNetwork", "metadata.name", "status.phase", "spec.nodeName.deeper", "spec.a"];
        let read = fields.map(|field| object.field(field));
        let parsed = fields.map(|field| selector::field_text(object.value(), field));
        assert_eq!(read, parsed);
        assert_eq!(read[0], "n\u{e9}\n");
    }

    #[test]
    fn an_object_with_empty_metadata_stays_json() {
        let object = Object::new("/registry/x/y".into(), 1, &canonical(&json!({"kind": "X", "apiVersion": "v1"})));
        assert_eq!(object.to_value(), json!({"kind": "X", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}}));
    }
}
