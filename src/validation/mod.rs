//! Is an object right? Every mistake is found, not only the first, and told in the words of a real server. Decoding,
//! defaulting and admission have happened before; nothing here changes an object or looks at another one.
//!
//! Metadata is the same for all kinds; custom resources are checked by their schema and its rules; built-in kinds have a
//! file per subject.

mod autoscaling;
mod batch;
mod certificates;
mod cluster;
mod config;
mod container;
mod custom;
mod definition;
mod field;
mod formats;
mod kinds;
mod metadata;
mod names;
mod networking;
mod pod;
mod policy;
mod rbac;
mod rules;
mod scheduling;
mod schema;
mod selector;
mod service;
mod storage;
mod structural;
mod volume;
mod webhook;
mod workload;

use serde_json::Value;

use crate::registry::Resource;
use crate::status::FieldError;

/// A new object.
pub fn create(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata::create(resource, object, &mut errors);
    match &resource.custom {
        Some(_) => custom::create(resource, object, &mut errors),
        None => kinds::create(resource, object, &mut errors),
    }
    errors
}

/// A changed object.
pub fn update(resource: &Resource, subresource: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    metadata::update(resource, new, old, &mut errors);
    match &resource.custom {
        Some(_) => custom::update(resource, subresource, new, old, &mut errors),
        None => kinds::update(resource, subresource, new, old, &mut errors),
    }
    errors
}
