//! Namespaces: the finalizer that holds them while they are emptied, the phase, and the label with their name.

use serde_json::{Value, json};

use crate::api::strategy::Phase;
use crate::object::{meta, meta_mut};

pub(super) fn prepare_for_create(object: &mut Value) {
    let name = meta(object, "name").to_owned();
    label(object, &name);
    object["status"] = json!({"phase": "Active"});
    let spec = &mut object["spec"];
    if !spec.is_object() {
        *spec = json!({});
    }
    let finalizers = spec["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.contains(&json!("kubernetes")) {
        let mut finalizers = finalizers;
        finalizers.push(json!("kubernetes"));
        spec["finalizers"] = finalizers.into();
    }
}

pub(super) fn prepare_for_update(phase: Phase, old: &Value, new: &mut Value) {
    let name = meta(old, "name").to_owned();
    label(new, &name);
    // Only the finalize subresource changes the spec.
    if phase == Phase::Main {
        new["spec"] = old["spec"].clone();
    }
}

fn label(object: &mut Value, name: &str) {
    let labels = meta_mut(object).entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
    }
}
