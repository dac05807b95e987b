//! Small things that the server itself writes into objects of some kinds: the count of a DaemonSet's templates, when a volume came into
//! its phase, and what a claim is filled from in both ways of saying it; and what it leaves out of others.

use serde_json::{Value, json};

use crate::object::meta_mut;

const TEMPLATES: &str = "deprecated.daemonset.template.generation";

/// How often the template of a DaemonSet has changed, as an annotation that is older than the generation.
pub(super) fn daemon_set(object: &mut Value, old: Option<&Value>) {
    let count = |object: &Value| object["metadata"]["annotations"][TEMPLATES].as_str().and_then(|count| count.parse::<i64>().ok());
    let count = match old {
        None => count(object).unwrap_or(0).max(1),
        Some(old) => {
            let changed = old["spec"]["template"] != object["spec"]["template"];
            count(old).unwrap_or(0) + i64::from(changed)
        }
    };
    let annotations = meta_mut(object).entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(TEMPLATES.into(), count.to_string().into());
    }
}

/// A new volume has just come into its phase.
pub(super) fn volume(object: &mut Value, now: &str) {
    object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
}

/// When a volume changed its phase.
pub(super) fn volume_phase(old: &Value, new: &mut Value, now: &str) {
    let (before, after) = (&old["status"], &mut new["status"]);
    if before["phase"] == after["phase"] {
        if after["lastPhaseTransitionTime"].is_null()
            && let Some(time) = before.get("lastPhaseTransitionTime")
        {
            after["lastPhaseTransitionTime"] = time.clone();
        }
    } else if after["lastPhaseTransitionTime"].is_null() || after["lastPhaseTransitionTime"] == before["lastPhaseTransitionTime"] {
        after["lastPhaseTransitionTime"] = now.into();
    }
}

/// What a claim is filled from: both ways to say it say the same; what only the newer way can say is not taken in the older.
pub(super) fn claim(object: &mut Value, old: Option<&Value>) {
    let had = |name: &str| old.is_some_and(|old| old["spec"][name].is_object());
    let (had_source, had_reference) = (had("dataSource"), had("dataSourceRef"));
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let given = |spec: &serde_json::Map<String, Value>, name: &str| spec.get(name).is_some_and(Value::is_object);
    if !had_reference && spec.get("dataSourceRef").is_some_and(|r| r["namespace"].as_str().is_some_and(|n| !n.is_empty())) {
        spec.remove("dataSourceRef");
    }
    if given(spec, "dataSource") && !given(spec, "dataSourceRef") && !had_source {
        let source = &spec["dataSource"];
        let (kind, group) = (source["kind"].as_str().unwrap_or_default(), source["apiGroup"].as_str().unwrap_or_default());
        if !matches!((kind, group), ("PersistentVolumeClaim", "") | ("VolumeSnapshot", "snapshot.storage.k8s.io")) {
            spec.remove("dataSource");
        }
    }
    match (given(spec, "dataSource"), given(spec, "dataSourceRef")) {
        (true, false) => {
            let source = spec["dataSource"].clone();
            spec.insert("dataSourceRef".into(), source);
        }
        (false, true) if spec["dataSourceRef"]["namespace"].as_str().is_none_or(str::is_empty) => {
            let mut source = spec["dataSourceRef"].clone();
            drop(source.as_object_mut().map(|source| source.remove("namespace")));
            spec.insert("dataSource".into(), source);
        }
        _ => {}
    }
}

/// Of the Secrets of a service account, only the names are kept.
pub(super) fn service_account(object: &mut Value) {
    for secret in object.get_mut("secrets").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(fields) = secret.as_object_mut() {
            fields.retain(|name, _| name == "name");
        }
    }
}

/// Whoever has no name for a range of limits is given one.
pub(super) fn limit_range(object: &mut Value) {
    if crate::object::meta(object, "name").is_empty() {
        crate::object::meta_mut(object).insert("name".into(), uuid::Uuid::new_v4().to_string().into());
    }
}

/// The topology of an endpoint was a field of a version that is no more.
pub(super) fn endpoint_slice(object: &mut Value) {
    for endpoint in object.get_mut("endpoints").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(fields) = endpoint.as_object_mut() {
            fields.remove("deprecatedTopology");
        }
    }
}

/// When devices were tainted.
pub(super) fn device_taints(object: &mut Value, now: &str) {
    let stamp = |taint: &mut Value| {
        if taint.is_object() && taint["timeAdded"].is_null() {
            taint["timeAdded"] = now.into();
        }
    };
    if let Some(taint) = object.pointer_mut("/spec/taint") {
        stamp(taint);
    }
    let devices = object.pointer_mut("/spec/devices").and_then(Value::as_array_mut).into_iter().flatten();
    let taints = devices.filter_map(|device| device.get_mut("taints").and_then(Value::as_array_mut));
    taints.flatten().for_each(stamp);
}
