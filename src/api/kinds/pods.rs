//! Pods: the phase and the quality-of-service class of a new one.

use serde_json::{Value, json};

use crate::api::strategy::Phase;

pub(super) fn prepare_for_create(object: &mut Value, now: &str) {
    taken_labels(object);
    let class = crate::object::qos::class(&object["spec"]);
    object["status"] = json!({"phase": "Pending", "qosClass": class});
    if object["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        object["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "lastProbeTime": null, "lastTransitionTime": now, "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
}

/// Terms that are to match the Pod's own labels get them into their selectors: `matchLabelKeys` as they are, `mismatchLabelKeys` negated.
fn taken_labels(object: &mut Value) {
    let labels = object["metadata"]["labels"].clone();
    let mut merge = |term: &mut Value| {
        if !term["labelSelector"].is_object() {
            return;
        }
        for (list, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
            let keys = term[list].as_array().cloned().unwrap_or_default();
            for key in keys.iter().filter_map(Value::as_str) {
                let Some(value) = labels[key].as_str() else { continue };
                let expressions = &mut term["labelSelector"]["matchExpressions"];
                if !expressions.is_array() {
                    *expressions = json!([]);
                }
                if let Some(expressions) = expressions.as_array_mut() {
                    expressions.push(json!({"key": key, "operator": operator, "values": [value]}));
                }
            }
        }
    };
    let spec = &mut object["spec"];
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(affinity) = spec.get_mut("affinity").and_then(|a| a.get_mut(kind)) else { continue };
        let required = affinity.get_mut("requiredDuringSchedulingIgnoredDuringExecution").and_then(Value::as_array_mut);
        required.into_iter().flatten().for_each(&mut merge);
        let preferred = affinity.get_mut("preferredDuringSchedulingIgnoredDuringExecution").and_then(Value::as_array_mut);
        preferred.into_iter().flatten().filter_map(|term| term.get_mut("podAffinityTerm")).for_each(&mut merge);
    }
    spec.get_mut("topologySpreadConstraints").and_then(Value::as_array_mut).into_iter().flatten().for_each(&mut merge);
}

pub(super) fn prepare_for_update(phase: Phase, old: &Value, new: &mut Value) {
    if phase == Phase::Status {
        // The class is fixed at creation, and a kubelet that does not know it must not remove it.
        if new["status"].get("qosClass").is_none()
            && let Some(class) = old["status"].get("qosClass")
        {
            new["status"]["qosClass"] = class.clone();
        }
    }
}

/// A write of `ephemeralcontainers` changes those and nothing else; a write of `resize`, the resources of containers and how they are resized.
pub(in crate::api) fn isolate(phase: Phase, old: &Value, new: &mut Value) {
    let wanted = std::mem::replace(new, old.clone());
    for field in ["managedFields", "resourceVersion"] {
        match wanted["metadata"].get(field) {
            Some(value) => new["metadata"][field] = value.clone(),
            None => drop(crate::object::meta_mut(new).remove(field)),
        }
    }
    if phase == Phase::EphemeralContainers {
        match wanted["spec"].get("ephemeralContainers") {
            Some(containers) => new["spec"]["ephemeralContainers"] = containers.clone(),
            None => drop(new["spec"].as_object_mut().map(|spec| spec.remove("ephemeralContainers"))),
        }
        return;
    }
    // Who knows nothing of the Pod's own resources, and leaves them out, does not mean to take them away.
    if let Some(resources) = wanted["spec"].get("resources") {
        new["spec"]["resources"] = resources.clone();
    }
    for list in ["containers", "initContainers"] {
        let containers = new["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let asked = wanted["spec"][list].as_array().into_iter().flatten().find(|other| other["name"] == container["name"]);
            let (Some(asked), Some(container)) = (asked, container.as_object_mut()) else { continue };
            for field in ["resources", "resizePolicy"] {
                match asked.get(field) {
                    Some(value) => container.insert(field.into(), value.clone()),
                    None => container.remove(field),
                };
            }
        }
    }
}
