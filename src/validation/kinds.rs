//! Which checks a built-in kind has.

use serde_json::Value;

use super::definition;
use super::field::Errors;
use crate::registry::Resource;

/// A new object.
pub fn create(resource: &Resource, object: &Value, errors: &mut Errors) {
    match (&*resource.group, &*resource.plural) {
        ("apiextensions.k8s.io", "customresourcedefinitions") => definition::create(object, errors),
        _ => {}
    }
}

/// A changed object.
pub fn update(resource: &Resource, subresource: &str, new: &Value, old: &Value, errors: &mut Errors) {
    match (&*resource.group, &*resource.plural, subresource) {
        ("apiextensions.k8s.io", "customresourcedefinitions", _) => definition::update(new, old, errors),
        _ => {}
    }
}
