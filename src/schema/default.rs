//! What stands in for what a client left out. Most of it is data: a custom kind's schema says its defaults, and the
//! overlay says those of built-in definitions. The few that depend on other fields are code, in [`super::defaults`].
//! After it, a built-in object looks as a typed server writes it.

use serde_json::{Map, Value};

use super::{ObjectShape, Schema, SchemaRef, Shape, defaults};
use crate::registry::Resource;

/// Fills in the defaults of an object of a resource. Doing it twice changes nothing more.
pub fn apply_defaults(object: &mut Value, resource: &Resource) {
    apply(object, &resource.schema());
}

/// Fills in the defaults of a value of a schema.
pub fn apply(value: &mut Value, schema: &Schema) {
    match (&schema.shape, value) {
        (Shape::Object(object), Value::Object(fields)) => {
            match &schema.name {
                // Parents come before their parts, which may depend on what was decided above them.
                Some(name) => {
                    defaults::apply(name, fields);
                    fill(name, fields, object);
                }
                None => fill_custom(fields, object),
            }
            for (key, value) in fields.iter_mut().filter(|(_, value)| value.is_object() || value.is_array()) {
                if let Some(reference) = object.properties.get(key.as_str()).or(object.additional.as_ref()) {
                    apply_reference(value, reference);
                }
            }
        }
        (Shape::Array { items, .. }, Value::Array(all)) => {
            for item in all.iter_mut().filter(|item| item.is_object() || item.is_array()) {
                apply_reference(item, items);
            }
        }
        _ => {}
    }
}

fn apply_reference(value: &mut Value, reference: &SchemaRef) {
    match reference {
        SchemaRef::Inline(schema) => apply(value, schema),
        SchemaRef::Named(_) => apply(value, &reference.get()),
    }
}

/// The absent fields of a built-in object. An empty text is as good as none, since a typed server cannot tell them apart.
fn fill(definition: &str, fields: &mut Map<String, Value>, object: &ObjectShape) {
    let pointers = defaults::optional::pointers(definition);
    for (name, default) in &object.defaults {
        match fields.get(&**name) {
            None => {}
            Some(Value::Null) if !default.is_null() => {}
            Some(Value::String(_)) if pointers.contains(&&**name) => continue,
            Some(Value::String(text)) if text.is_empty() && default.as_str().is_some_and(|d| !d.is_empty()) => {}
            Some(_) => continue,
        }
        fields.insert(name.to_string(), default.clone());
    }
}

/// The absent fields of a custom object. `null` where it is no value is absence.
fn fill_custom(fields: &mut Map<String, Value>, object: &ObjectShape) {
    for (name, reference) in &object.properties {
        let SchemaRef::Inline(schema) = reference else { continue };
        let absent = match fields.get(&**name) {
            None => true,
            Some(Value::Null) if !schema.nullable => {
                fields.remove(&**name);
                true
            }
            Some(_) => false,
        };
        if let Some(default) = schema.default.as_ref().filter(|_| absent) {
            fields.insert(name.to_string(), default.clone());
        }
    }
    if let Some(SchemaRef::Inline(schema)) = &object.additional
        && !schema.nullable
        && !matches!(schema.shape, Shape::Any)
    {
        fields.retain(|name, value| {
            if value.is_null() && !object.properties.contains_key(name.as_str()) {
                match &schema.default {
                    Some(default) => *value = default.clone(),
                    None => return false,
                }
            }
            true
        });
    }
}

#[cfg(test)]
#[path = "default/tests.rs"]
mod tests;
