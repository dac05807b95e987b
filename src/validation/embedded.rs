//! Whole objects inside of custom ones (`x-kubernetes-embedded-resource`): what they call themselves, and their metadata, which is held to
//! what that of every object is held to.

use serde_json::Value;

use super::field::{Errors, Path, invalid};
use super::{metadata, names};
use crate::schema::{Schema, SchemaRef, Shape};
use crate::status::FieldError;

/// Checks the objects inside of an object.
pub fn validate(schema: &Schema, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (&schema.shape, value) {
        (Shape::Object(shape), Value::Object(fields)) => {
            if shape.embedded && !path.to_string().is_empty() {
                object(value, path, errors);
            }
            for (name, field) in fields.iter().filter(|(_, field)| field.is_object() || field.is_array()) {
                match (shape.properties.get(name.as_str()), &shape.additional) {
                    (Some(SchemaRef::Inline(inner)), _) => validate(inner, field, &path.field(name), errors),
                    (None, Some(SchemaRef::Inline(inner))) => validate(inner, field, &path.key(name), errors),
                    _ => {}
                }
            }
        }
        (Shape::Array { items: SchemaRef::Inline(inner), .. }, Value::Array(list)) => {
            for (i, item) in list.iter().enumerate() {
                validate(inner, item, &path.index(i), errors);
            }
        }
        _ => {}
    }
}

fn object(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in ["apiVersion", "kind"] {
        let at = path.field(name);
        match object.get(name) {
            None => errors.push(FieldError::required(at, "")),
            Some(Value::String(text)) if text.is_empty() => errors.push(invalid(&at, "", "must not be empty")),
            Some(Value::String(text)) if name == "kind" => {
                let wrong = names::label_1035(&text.to_lowercase());
                if !wrong.is_empty() {
                    errors.push(invalid(&at, text, format!("may have mixed case, but should otherwise match: {}", wrong.join(","))));
                }
            }
            Some(Value::String(text)) if text.matches('/').count() > 1 => {
                errors.push(invalid(&at, text, format!("unexpected GroupVersion string: {text}")));
            }
            Some(Value::String(_)) => {}
            Some(other) => errors.push(FieldError::invalid(at, other, "must be a string")),
        }
    }
    if let Some(given) = object.get("metadata") {
        metadata::embedded(given, &path.field("metadata"), errors);
    }
}
