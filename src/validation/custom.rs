//! A custom resource: its schema, what its scale reads, its lists, and its rules, in the order in which a real server tells
//! about them. Rules are not run on an object whose shape they cannot rely on.

use serde_json::Value;

use super::field::{Errors, Path, text};
use super::{rules, schema};
use crate::registry::Resource;
use crate::status::{FieldError, FieldReason};

pub(super) const UNCHECKED: &str =
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// A new object.
pub fn create(resource: &Resource, object: &Value, errors: &mut Errors) {
    validate(resource, object, None, errors);
}

/// A changed object.
pub fn update(resource: &Resource, subresource: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let before = errors.len();
    validate(resource, new, Some(old), errors);
    if subresource != "status" {
        return;
    }
    // A status is looked at by itself, and its mistakes are told from there.
    for error in &mut errors[before..] {
        if let Some(rest) = error.detail.strip_prefix("status").filter(|rest| rest.contains(" in body ")) {
            let rest = rest.strip_prefix('.').unwrap_or(rest).to_owned();
            error.detail = rest;
        }
    }
}

fn validate(resource: &Resource, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let Some(custom) = &resource.custom else { return };
    let compiled = resource.schema();
    schema::validate(&compiled, object, old, errors);
    if let Some(scale) = custom.version.pointer("/subresources/scale") {
        replicas(object, text(scale, "specReplicasPath"), errors);
        replicas(object, text(scale, "statusReplicasPath"), errors);
    }
    super::embedded::validate(&compiled, object, &Path::object(), errors);
    schema::list_types(&compiled, object, old, &Path::object(), errors);
    let Some(rules) = rules::of(custom) else { return };
    let blocking = |error: &FieldError| {
        use FieldReason::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
        matches!(error.reason, NotSupported | Required | TooLong | TooMany | TypeInvalid)
    };
    match errors.iter().any(blocking) {
        true => {
            errors.push(FieldError { field: "<nil>".into(), reason: FieldReason::Invalid, value: "null".into(), detail: UNCHECKED.into() })
        }
        false => rules.validate(object, old, errors),
    }
}

/// The number that the scale subresource reads.
fn replicas(object: &Value, path: &str, errors: &mut Errors) {
    if path.is_empty() {
        return;
    }
    let Some(value) = path.trim_start_matches('.').split('.').try_fold(object, |value, part| value.get(part)) else { return };
    match value.as_i64() {
        Some(n) if n < 0 => errors.push(FieldError::invalid(path, value, "should be a non-negative integer")),
        Some(n) if n > i64::from(i32::MAX) => {
            errors.push(FieldError::invalid(path, value, format!("should be less than or equal to {}", i32::MAX)));
        }
        Some(_) => {}
        None => {
            let (shown, of) = match value {
                Value::Null => ("<nil>".to_owned(), "<nil>"),
                Value::Bool(b) => (b.to_string(), "bool"),
                Value::Number(n) => (n.to_string(), "float64"),
                Value::String(s) => (s.clone(), "string"),
                Value::Array(list) if list.is_empty() => ("[]".to_owned(), "[]interface {}"),
                Value::Object(fields) if fields.is_empty() => ("map[]".to_owned(), "map[string]interface {}"),
                Value::Array(_) => (value.to_string(), "[]interface {}"),
                Value::Object(_) => (value.to_string(), "map[string]interface {}"),
            };
            let why = format!("{path} accessor error: {shown} is of the type {of}, expected int64");
            errors.push(FieldError::invalid(path, &0.into(), why));
        }
    }
}
