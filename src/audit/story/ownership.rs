//! Who owns a field by `metadata.managedFields`: one question, asked of the stored form without reading it into sets.

use serde_json::Value;

use super::fields::Element;

/// One entry that owns a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The field manager.
    pub manager: String,
    /// `Apply` or `Update`.
    pub operation: String,
    /// When it last wrote, as the entry says.
    pub time: String,
}

/// The managers that own a field, in the order of the entries.
pub fn owners(object: &Value, path: &[Element]) -> Vec<Owner> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let owning = entries.into_iter().flatten().filter(|entry| owns(&entry["fieldsV1"], path));
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    owning.map(|entry| Owner { manager: text(entry, "manager"), operation: text(entry, "operation"), time: text(entry, "time") }).collect()
}

/// Whether a set in the form FieldsV1 contains a path, itself or as part of something that is owned as a whole.
fn owns(set: &Value, path: &[Element]) -> bool {
    let Some(fields) = set.as_object() else { return false };
    let Some((first, rest)) = path.split_first() else { return true };
    let below = match first {
        Element::Field(name) => fields.get(&format!("f:{name}")),
        Element::Key(keys) => fields.iter().find(|(key, _)| is_key(key, keys)).map(|(_, below)| below),
        Element::Member(value) => fields.iter().find(|(key, _)| is_member(key, value)).map(|(_, below)| below),
        Element::Index(index) => fields.get(&format!("i:{index}")),
    };
    match below.and_then(Value::as_object) {
        // Nothing is said of the parts: they are owned with the whole.
        Some(below) if below.is_empty() => true,
        Some(below) => owns(&Value::Object(below.clone()), rest),
        None => false,
    }
}

fn is_key(key: &str, keys: &[(String, Value)]) -> bool {
    let parsed = key.strip_prefix("k:").and_then(|text| serde_json::from_str::<Value>(text).ok());
    parsed.is_some_and(|parsed| {
        parsed
            .as_object()
            .is_some_and(|parsed| parsed.len() == keys.len() && keys.iter().all(|(name, value)| parsed.get(name) == Some(value)))
    })
}

fn is_member(key: &str, value: &Value) -> bool {
    key.strip_prefix("v:").and_then(|text| serde_json::from_str::<Value>(text).ok()).is_some_and(|parsed| parsed == *value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(name: &str) -> Element {
        Element::Field(name.into())
    }

    #[test]
    fn a_field_is_owned_by_itself_or_with_the_whole_it_is_part_of() {
        let object = json!({"metadata": {"managedFields": [
            {"manager": "one", "operation": "Apply", "time": "t", "fieldsV1": {"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}}}}}},
            {"manager": "two", "operation": "Update", "fieldsV1": {"f:spec": {"f:args": {}, "f:finalizers": {"v:\"x\"": {}}}}},
        ]}});
        let container = Element::Key(vec![("name".into(), json!("a"))]);
        let managers = |path: &[Element]| owners(&object, path).into_iter().map(|owner| owner.manager).collect::<Vec<_>>();
        assert_eq!(managers(&[field("spec"), field("containers"), container.clone(), field("image")]), ["one"]);
        assert_eq!(managers(&[field("spec"), field("containers"), container, field("name")]), Vec::<String>::new());
        assert_eq!(managers(&[field("spec"), field("args"), Element::Index(0)]), ["two"]);
        assert_eq!(managers(&[field("spec"), field("finalizers"), Element::Member(json!("x"))]), ["two"]);
    }
}
