//! The quality-of-service class of a Pod: how much of what it asks for it is promised.

use serde_json::Value;

/// Guaranteed: every container has cpu and memory limits equal to its requests. BestEffort: none asks for anything. Else Burstable.
pub fn class(spec: &Value) -> &'static str {
    let containers = ["containers", "initContainers"].into_iter().flat_map(|list| spec[list].as_array().into_iter().flatten());
    // What the Pod says for itself counts, and then nothing else does.
    let says = |kind: &str| spec["resources"][kind].as_object().is_some_and(|list| !list.is_empty());
    let asking: Vec<&Value> = if says("requests") || says("limits") { vec![spec] } else { containers.collect() };
    let (mut any, mut guaranteed) = (false, true);
    for one in asking {
        for resource in ["cpu", "memory"] {
            let said = |kind: &str| one["resources"][kind].get(resource);
            let (request, limit) = (said("requests").filter(|q| !is_zero(q)), said("limits").filter(|q| !is_zero(q)));
            any |= request.is_some() || limit.is_some();
            // A request that is left out is the limit; one of nothing is nothing.
            guaranteed &= limit.is_some() && (said("requests").is_none() || request == limit);
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
    use serde_json::json;

    #[test]
    fn the_class_follows_from_requests_and_limits() {
        let spec = |resources: Value| json!({"containers": [{"name": "c", "resources": resources}]});
        assert_eq!(class(&spec(json!({}))), "BestEffort");
        assert_eq!(class(&spec(json!({"requests": {"cpu": "1"}}))), "Burstable");
        let full = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(class(&spec(json!({"requests": full, "limits": full}))), "Guaranteed");
        assert_eq!(class(&spec(json!({"limits": full}))), "Guaranteed");
        assert_eq!(class(&spec(json!({"limits": full, "requests": {"cpu": "0", "memory": "1Gi"}}))), "Burstable");
        let mut of_pod = spec(json!({"limits": full}));
        of_pod["resources"] = json!({"requests": {"cpu": "1"}});
        assert_eq!(class(&of_pod), "Burstable", "the Pod's own word counts");
    }
}
