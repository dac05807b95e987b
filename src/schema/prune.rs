//! Dropping what a schema does not know. Used for custom kinds, whose objects are read whole, and wherever an object that
//! was changed behind the door must fit its schema again.

use serde_json::Value;

use super::{ObjectShape, Schema, SchemaRef, Shape};

/// Drops every field that the schema does not know.
pub fn prune(value: &mut Value, schema: &Schema) {
    walk(value, schema, &mut String::new(), &mut None);
}

/// Drops every field that the schema does not know, and notes each: `unknown field "spec.bogus"`.
pub fn prune_noting(value: &mut Value, schema: &Schema, noted: &mut Vec<String>) {
    walk(value, schema, &mut String::new(), &mut Some(noted));
}

fn walk(value: &mut Value, schema: &Schema, path: &mut String, noted: &mut Option<&mut Vec<String>>) {
    match (&schema.shape, value) {
        (Shape::Object(object), Value::Object(_)) if keeps_everything(object) => {}
        (Shape::Object(object), Value::Object(fields)) => fields.retain(|key, value| {
            let before = path.len();
            if before > 0 {
                path.push('.');
            }
            path.push_str(key);
            let known = object.properties.get(key.as_str()).or(object.additional.as_ref());
            match known {
                Some(reference) => into(value, reference, path, noted),
                None if !object.preserve_unknown => {
                    if let Some(noted) = noted {
                        noted.push(format!("unknown field {path:?}"));
                    }
                }
                None => {}
            }
            path.truncate(before);
            known.is_some() || object.preserve_unknown
        }),
        (Shape::Array { items, .. }, Value::Array(all)) => {
            for (index, item) in all.iter_mut().enumerate() {
                let before = path.len();
                path.push_str(&format!("[{index}]"));
                into(item, items, path, noted);
                path.truncate(before);
            }
        }
        _ => {}
    }
}

fn into(value: &mut Value, reference: &SchemaRef, path: &mut String, noted: &mut Option<&mut Vec<String>>) {
    // Scalars have nothing to prune, and most values are scalars.
    if !(value.is_object() || value.is_array()) {
        return;
    }
    match reference {
        SchemaRef::Inline(schema) => walk(value, schema, path, noted),
        SchemaRef::Named(_) => walk(value, &reference.get(), path, noted),
    }
}

fn keeps_everything(object: &ObjectShape) -> bool {
    object.preserve_unknown && object.properties.is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::custom::compile;

    #[test]
    fn unknown_fields_go_unless_the_schema_keeps_them() {
        let schema = compile(&json!({"schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "known": {"type": "string"},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"inner": {"type": "object"}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}}}}}}}));
        let mut value = json!({"apiVersion": "ex.com/v1", "kind": "Wid", "metadata": {"name": "w", "bogus": 1}, "spec": {
            "known": "k", "unknown": 1, "open": {"anything": {"goes": 1}, "inner": {"not": "here"}},
            "map": {"x": {"a": "1", "b": 2}}, "list": [{"a": "1"}, {"b": 2}]}, "extra": {}});
        let mut noted = Vec::new();
        prune_noting(&mut value, &schema, &mut noted);
        assert_eq!(
            value,
            json!({"apiVersion": "ex.com/v1", "kind": "Wid", "metadata": {"name": "w"}, "spec": {
            "known": "k", "open": {"anything": {"goes": 1}, "inner": {}}, "map": {"x": {"a": "1"}}, "list": [{"a": "1"}, {}]}})
        );
        noted.sort();
        assert_eq!(
            noted,
            [
                "unknown field \"extra\"",
                "unknown field \"metadata.bogus\"",
                "unknown field \"spec.list[1].b\"",
                "unknown field \"spec.map.x.b\"",
                "unknown field \"spec.open.inner.not\"",
                "unknown field \"spec.unknown\"",
            ]
        );
    }
}
