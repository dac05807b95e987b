//! An object as a set of fields, and what changed between two of them. Items of a list whose schema names keys are told apart by
//! those keys and not by their position, so that a container that moved is not a container that changed.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::audit::redact;
use crate::schema::{ListType, Schema, Shape};

/// One step of a field's path.
#[derive(Clone, Debug, PartialEq)]
pub enum Element {
    /// A field, or a key of a map.
    Field(String),
    /// An item with these keys.
    Key(Vec<(String, Value)>),
    /// An item of a set.
    Member(Value),
    /// An item by its position.
    Index(usize),
}

/// A field that has no parts: a scalar, or an empty list or object.
#[derive(Clone, Debug)]
pub struct Leaf<'a> {
    /// Its path.
    pub path: Vec<Element>,
    /// Where it is now, as a JSON pointer.
    pub pointer: String,
    /// What it holds.
    pub value: &'a Value,
}

/// What changed about one field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Difference {
    /// Its path, as [`show`] writes it.
    pub path: String,
    /// What it was; absent where it is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// What it is; absent where it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
}

/// A path as people read it: `spec.containers[name=web].image`.
pub fn show(path: &[Element]) -> String {
    let mut out = String::new();
    for element in path {
        match element {
            Element::Field(name) if name.is_empty() || name.contains(['.', '[', ']', '/', '"']) => {
                let _ = write!(out, "[{}]", Value::from(name.as_str()));
            }
            Element::Field(name) => {
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
            Element::Key(keys) => {
                let keys: Vec<_> = keys.iter().map(|(name, value)| format!("{name}={}", bare(value))).collect();
                let _ = write!(out, "[{}]", keys.join(","));
            }
            Element::Member(value) => {
                let _ = write!(out, "[={}]", bare(value));
            }
            Element::Index(index) => {
                let _ = write!(out, "[{index}]");
            }
        }
    }
    out
}

fn bare(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What the server writes at every turn and nobody means to read.
fn is_noise(path: &[Element]) -> bool {
    match path {
        [Element::Field(metadata), Element::Field(field)] => {
            metadata == "metadata" && matches!(field.as_str(), "managedFields" | "resourceVersion")
        }
        _ => false,
    }
}

/// The fields of an object, in order.
pub fn leaves<'a>(object: &'a Value, schema: &Schema) -> Vec<Leaf<'a>> {
    let mut found = Vec::new();
    collect(object, Some(schema), &mut Vec::new(), &mut String::new(), &mut found);
    found
}

fn collect<'a>(value: &'a Value, schema: Option<&Schema>, path: &mut Vec<Element>, pointer: &mut String, found: &mut Vec<Leaf<'a>>) {
    if is_noise(path) {
        return;
    }
    let length = pointer.len();
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let below = schema.and_then(|schema| schema.field(name));
                path.push(Element::Field(name.clone()));
                let _ = write!(pointer, "/{}", name.replace('~', "~0").replace('/', "~1"));
                collect(value, below.as_deref(), path, pointer, found);
                path.pop();
                pointer.truncate(length);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let (below, list) = list_of(schema);
            for (index, item) in items.iter().enumerate() {
                path.push(element(&list, index, item));
                let _ = write!(pointer, "/{index}");
                collect(item, below.as_deref(), path, pointer, found);
                path.pop();
                pointer.truncate(length);
            }
        }
        value => found.push(Leaf { path: path.clone(), pointer: pointer.clone(), value }),
    }
}

fn list_of(schema: Option<&Schema>) -> (Option<std::sync::Arc<Schema>>, ListType) {
    match schema.map(|schema| &schema.shape) {
        Some(Shape::Array { items, list_type, .. }) => (Some(items.get()), list_type.clone()),
        _ => (None, ListType::Atomic),
    }
}

fn element(list: &ListType, index: usize, item: &Value) -> Element {
    match list {
        ListType::Map(keys) => {
            let keys: Vec<_> = keys.iter().filter_map(|key| Some((key.to_string(), item.get(&**key)?.clone()))).collect();
            if keys.is_empty() { Element::Index(index) } else { Element::Key(keys) }
        }
        ListType::Set if !item.is_object() && !item.is_array() => Element::Member(item.clone()),
        _ => Element::Index(index),
    }
}

/// What changed from one state of an object to the next. A part that is new or gone as a whole is one difference.
pub fn diff(from: &Value, to: &Value, schema: &Schema) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(Some(from), Some(to), Some(schema), &mut Vec::new(), &mut found);
    found
}

fn compare(from: Option<&Value>, to: Option<&Value>, schema: Option<&Schema>, path: &mut Vec<Element>, found: &mut Vec<Difference>) {
    if from == to || is_noise(path) {
        return;
    }
    match (from, to) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let below = schema.and_then(|schema| schema.field(name));
                path.push(Element::Field(name.clone()));
                compare(old.get(name), new.get(name), below.as_deref(), path, found);
                path.pop();
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => {
            let (below, list) = list_of(schema);
            // Two lists of different lengths without keys have no items in common that anybody could point at.
            if list == ListType::Atomic && old.len() != new.len() {
                found.push(Difference { path: show(path), from: from.cloned(), to: to.cloned() });
                return;
            }
            let keyed = |items: &[Value]| -> Vec<Element> { items.iter().enumerate().map(|(i, item)| element(&list, i, item)).collect() };
            let (old_keys, new_keys) = (keyed(old), keyed(new));
            for (key, item) in old_keys.iter().zip(old) {
                let other = new_keys.iter().position(|other| other == key).map(|at| &new[at]);
                path.push(key.clone());
                compare(Some(item), other, below.as_deref(), path, found);
                path.pop();
            }
            for (key, item) in new_keys.iter().zip(new).filter(|(key, _)| !old_keys.contains(key)) {
                path.push(key.clone());
                compare(None, Some(item), below.as_deref(), path, found);
                path.pop();
            }
        }
        _ => {
            let clean = |value: Option<&Value>| {
                let mut value = value.cloned();
                if path.len() == 1 && path[0] == Element::Field("metadata".into()) {
                    for field in ["managedFields", "resourceVersion"] {
                        value.as_mut().and_then(Value::as_object_mut).map(|metadata| metadata.remove(field));
                    }
                }
                value
            };
            found.push(Difference { path: show(path), from: clean(from), to: clean(to) });
        }
    }
}

/// Takes the values out of a Secret: what it holds is shown by its size alone.
pub fn redact_secret(object: &mut Value) {
    // kubectl keeps the whole of what was applied in an annotation.
    let applied = object.pointer_mut("/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration");
    if let Some(applied) = applied {
        *applied = redacted(applied);
    }
    redact::copies(object);
    for part in ["data", "stringData"] {
        for value in object.get_mut(part).and_then(Value::as_object_mut).into_iter().flat_map(|fields| fields.values_mut()) {
            *value = redacted(value);
        }
    }
}

/// Takes the values out of what an object holds of Secrets, and the credentials that are known by their looks.
pub fn redact_within(object: &mut Value) {
    let mut masked = object.clone();
    redact::within(&mut masked);
    mark(object, &masked);
}

/// Puts a mark wherever something is masked, so that one sees when it changed.
fn mark(shown: &mut Value, masked: &Value) {
    match (shown, masked) {
        (Value::Object(shown), Value::Object(masked)) => {
            shown.iter_mut().for_each(|(key, value)| mark(value, masked.get(key).unwrap_or(&Value::Null)));
        }
        (Value::Array(shown), Value::Array(masked)) => shown.iter_mut().zip(masked).for_each(|(shown, masked)| mark(shown, masked)),
        (shown, masked) if shown != masked => *shown = redacted(shown),
        _ => {}
    }
}

/// What stands for a value that is not shown: equal for equal values, and nothing else about them.
pub fn redacted(value: &Value) -> Value {
    use std::hash::{BuildHasher, RandomState};
    use std::sync::OnceLock;
    // Keyed anew in every process, so that the mark cannot be searched for.
    static KEYS: OnceLock<RandomState> = OnceLock::new();
    let mark = KEYS.get_or_init(RandomState::new).hash_one(value.to_string()) & 0xffff;
    Value::from(format!("<redacted #{mark:04x}>"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> std::sync::Arc<Schema> {
        crate::schema::builtin::of_kind("", "v1", "Pod").expect("Pod")
    }

    #[test]
    fn a_container_that_moved_is_not_a_container_that_changed() {
        let from = json!({"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}});
        let to = json!({"spec": {"containers": [{"name": "b", "image": "z"}, {"name": "a", "image": "x"}]}});
        let found = diff(&from, &to, &pod());
        let wanted = Difference { path: "spec.containers[name=b].image".into(), from: Some(json!("y")), to: Some(json!("z")) };
        assert_eq!(found, [wanted]);
    }

    #[test]
    fn a_new_part_is_one_difference_and_noise_is_none() {
        let from = json!({"metadata": {"resourceVersion": "1", "managedFields": [{}]}});
        let to = json!({"metadata": {"resourceVersion": "2", "labels": {"a": "b", "c": "d"}}});
        let found = diff(&from, &to, &pod());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), &found[0].to), ("metadata.labels", &Some(json!({"a": "b", "c": "d"}))));
    }

    #[test]
    fn leaves_have_a_path_for_people_and_a_pointer_for_programs() {
        let object = json!({"metadata": {"labels": {"app.kubernetes.io/name": "x"}, "finalizers": ["f"]},
                            "spec": {"containers": [{"name": "a", "args": ["-v"], "resources": {}}]}});
        let schema = pod();
        let shown: Vec<_> = leaves(&object, &schema).iter().map(|leaf| (show(&leaf.path), leaf.pointer.clone())).collect();
        let wanted = [
            ("metadata.finalizers[=f]", "/metadata/finalizers/0"),
            ("metadata.labels[\"app.kubernetes.io/name\"]", "/metadata/labels/app.kubernetes.io~1name"),
            ("spec.containers[name=a].args[0]", "/spec/containers/0/args/0"),
            ("spec.containers[name=a].name", "/spec/containers/0/name"),
            ("spec.containers[name=a].resources", "/spec/containers/0/resources"),
        ];
        assert_eq!(shown, wanted.map(|(path, pointer)| (path.to_owned(), pointer.to_owned())));
    }

    #[test]
    fn a_secret_shows_that_a_value_changed_and_not_what_it_is() {
        let applied = json!({"data": {"k": "cGxhbnRlZA=="}}).to_string();
        let secret = |value: &str| {
            let mut secret = json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": applied}},
                                    "data": {"k": value, "same": "eA=="}});
            redact_secret(&mut secret);
            secret
        };
        let (from, to) = (secret("cGxhbnRlZA=="), secret("b3RoZXI="));
        assert!(!from.to_string().contains("cGxhbnRlZA"));
        let schema = crate::schema::builtin::of_kind("", "v1", "Secret").expect("Secret");
        let found = diff(&from, &to, &schema);
        assert_eq!(found.iter().map(|d| d.path.as_str()).collect::<Vec<_>>(), ["data.k"]);
    }

    #[test]
    fn a_secret_within_another_object_is_shown_by_its_marks_too() {
        let object = |value: &str| {
            let manifest = format!("kind: Secret\nstringData: {{k: {value}}}\n");
            let template = json!({"kind": "Secret", "data": {"k": value}, "metadata": {"name": "s"}});
            let mut object = json!({"kind": "ConfigMap", "data": {"a": manifest, "open": "told"}, "spec": [template, "told"]});
            redact_within(&mut object);
            object
        };
        let (one, other) = (object("cGxhbnRlZA=="), object("b3RoZXI="));
        assert!(!one.to_string().contains("cGxhbnRlZA"), "{one}");
        assert_eq!(
            (&one["data"]["open"], &one["spec"][1], &one["spec"][0]["metadata"]["name"]),
            (&json!("told"), &json!("told"), &json!("s"))
        );
        assert_eq!(one, object("cGxhbnRlZA=="));
        assert!(one["data"]["a"] != other["data"]["a"] && one["spec"][0]["data"]["k"] != other["spec"][0]["data"]["k"]);
    }
}
