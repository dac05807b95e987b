//! Pods: the phase and the quality-of-service class of a new one.

use serde_json::{Value, json};

use crate::api::strategy::Phase;

pub(super) fn prepare_for_create(object: &mut Value) {
    let class = qos_class(&object["spec"]);
    object["status"] = json!({"phase": "Pending", "qosClass": class});
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

/// Guaranteed: every container has cpu and memory limits equal to its requests. BestEffort: none asks for anything. Else Burstable.
fn qos_class(spec: &Value) -> &'static str {
    let containers = ["containers", "initContainers"].into_iter().flat_map(|list| spec[list].as_array().into_iter().flatten());
    let (mut any, mut guaranteed) = (false, true);
    for container in containers {
        for resource in ["cpu", "memory"] {
            let quantity = |kind: &str| container["resources"][kind].get(resource).filter(|q| !is_zero(q));
            let (request, limit) = (quantity("requests"), quantity("limits"));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn is_zero(quantity: &Value) -> bool {
    quantity.as_str().is_some_and(|q| q.trim_start_matches(['0', '.']).trim_end_matches(|c: char| c.is_alphabetic()).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_follows_from_requests_and_limits() {
        let spec = |resources: Value| json!({"containers": [{"name": "c", "resources": resources}]});
        assert_eq!(qos_class(&spec(json!({}))), "BestEffort");
        assert_eq!(qos_class(&spec(json!({"requests": {"cpu": "1"}}))), "Burstable");
        let full = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(qos_class(&spec(json!({"requests": full, "limits": full}))), "Guaranteed");
        assert_eq!(qos_class(&spec(json!({"limits": full}))), "Guaranteed");
    }
}
