//! Tables.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::registry::Resource;

/// A Table of objects.
pub fn document<'a>(
    _resource: &Resource,
    objects: impl Iterator<Item = &'a Value>,
    meta: Value,
    _now: Timestamp,
    form: super::representation::Representation,
) -> Value {
    let rows: Vec<Value> = objects
        .map(|o| json!({"cells": [o["metadata"]["name"]], "object": super::representation::metadata_only(o, form.meta_version)}))
        .collect();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}], "rows": rows})
}
