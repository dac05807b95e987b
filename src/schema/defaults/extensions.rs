//! Defaults of the groups that extend and guard the API: roles, flow control, devices, CustomResourceDefinitions.

use serde_json::{Value, json};

use super::{Fields, part, set_nonzero, text};

/// Users and groups belong to the API group of roles, service accounts to the core group.
pub(super) fn subject(fields: &mut Fields) {
    if matches!(text(fields, "kind"), "User" | "Group") {
        set_nonzero(fields, "apiGroup", "rbac.authorization.k8s.io");
    }
}

pub(super) fn flow_schema_spec(fields: &mut Fields) {
    set_nonzero(fields, "matchingPrecedence", 1000);
}

pub(super) fn queuing_configuration(fields: &mut Fields) {
    set_nonzero(fields, "handSize", 8);
    set_nonzero(fields, "queues", 64);
    set_nonzero(fields, "queueLengthLimit", 50);
}

pub(super) fn device_request(fields: &mut Fields) {
    set_nonzero(fields, "allocationMode", "ExactCount");
    if text(fields, "allocationMode") == "ExactCount" {
        set_nonzero(fields, "count", 1);
    }
}

/// Names follow from the kind, and the first stored version is the one that is stored.
pub(super) fn custom_resource_definition(fields: &mut Fields) {
    let stored = fields.get("spec").and_then(|spec| spec["versions"].as_array()).into_iter().flatten();
    let stored = stored.filter(|version| version["storage"] == true).find_map(|version| version["name"].as_str()).map(str::to_owned);
    if let Some(names) = part(fields, "spec").and_then(|spec| part(spec, "names")) {
        let kind = text(names, "kind").to_owned();
        if !kind.is_empty() {
            set_nonzero(names, "singular", kind.to_lowercase());
            set_nonzero(names, "listKind", format!("{kind}List"));
        }
    }
    if let (Some(stored), Some(status)) = (stored, part(fields, "status")) {
        let known = status.get("storedVersions").and_then(Value::as_array).is_some_and(|versions| !versions.is_empty());
        if !known {
            status.insert("storedVersions".into(), json!([stored]));
        }
    }
}
