//! Is an object of a built-in kind right? Every mistake is found, not only the first.

use serde_json::Value;

use crate::registry::Resource;
use crate::status::FieldError;

/// A new object.
pub fn create(_resource: &Resource, _object: &Value) -> Vec<FieldError> {
    Vec::new()
}

/// A changed object.
pub fn update(_resource: &Resource, _subresource: &str, _new: &Value, _old: &Value) -> Vec<FieldError> {
    Vec::new()
}
