//! Pods: the phase and the quality-of-service class of a new one.

use serde_json::{Value, json};

use crate::api::strategy::Phase;

pub(super) fn prepare_for_create(object: &mut Value, now: &str) {
    let class = crate::object::qos::class(&object["spec"]);
    object["status"] = json!({"phase": "Pending", "qosClass": class});
    // No scheduler says this: it does not look at such a Pod.
    if object["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        object["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "lastProbeTime": null, "lastTransitionTime": now, "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
    }
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
    for list in ["containers", "initContainers"] {
        for container in new["spec"][list].as_array_mut().into_iter().flatten() {
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
