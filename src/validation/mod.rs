//! Is an object right? Every mistake is found, not only the first, and told in the words of a real server. Decoding,
//! defaulting and admission have happened before; nothing here changes an object or looks at another one.
//!
//! Metadata is the same for all kinds; custom resources are checked by their schema and its rules; built-in kinds have a
//! file per subject.

mod address;
mod autoscaling;
mod batch;
mod certificates;
mod cluster;
mod config;
mod container;
mod custom;
mod definition;
mod device_slices;
mod devices;
mod embedded;
mod endpoints;
mod environment;
mod event;
mod field;
mod flow_control;
mod formats;
mod handler;
mod internal;
mod job;
mod kinds;
mod metadata;
pub(crate) mod names;
mod networking;
mod pod;
mod pod_update;
mod pod_warnings;
mod policy;
mod projected;
mod quota;
mod rbac;
mod resources;
mod rules;
mod scheduling;
mod schema;
mod schema_words;
mod security;
mod selector;
mod service;
mod storage;
mod storage_classes;
mod structural;
mod structure;
mod typed;
mod volume;
pub mod warnings;
mod webhook;
mod workload;

use serde_json::Value;

use crate::registry::Resource;
use crate::status::FieldError;

/// Labels or annotations that somebody else than a client wrote; `field` says which they are.
pub fn check_map(field: &str, metadata: &Value) -> Result<(), String> {
    let mut errors = Vec::new();
    let root = field::Path::root("metadata");
    match field {
        "labels" => metadata::labels(metadata, &root, &mut errors),
        _ => metadata::annotations(metadata, &root, &mut errors),
    }
    match errors.iter().map(ToString::to_string).collect::<Vec<_>>().as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

/// What is wrong with the addresses and families of a Service's spec, before any is drawn.
pub fn cluster_ips(spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    service::cluster_ips(spec, old, &mut errors);
    errors
}

/// Whether a balancer asks the nodes of a Service for their health.
pub fn needs_health_check(spec: &Value) -> bool {
    service::needs_health_check(spec)
}

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

/// The rules of a definition that an object was found to break, each with the values of its parts.
pub fn broken_rules(resource: &Resource, object: &Value, old: Option<&Value>, errors: &[FieldError]) -> Vec<Value> {
    let rules = resource.custom.as_ref().filter(|_| errors.iter().all(|error| error.detail != custom::UNCHECKED)).and_then(rules::of);
    rules.map(|rules| rules.broken(object, old)).unwrap_or_default()
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
