//! The quality-of-service class of a Pod: how much of what it asks for it is promised.

use serde_json::Value;

/// Guaranteed: every container has cpu and memory limits equal to its requests. BestEffort: none asks for anything. Else Burstable.
pub fn class(spec: &Value) -> &'static str {
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
    use serde_json::json;

    #[test]
    fn the_class_follows_from_requests_and_limits() {
        let spec = |resources: Value| json!({"containers": [{"name": "c", "resources": resources}]});
        assert_eq!(class(&spec(json!({}))), "BestEffort");
        assert_eq!(class(&spec(json!({"requests": {"cpu": "1"}}))), "Burstable");
        let full = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(class(&spec(json!({"requests": full, "limits": full}))), "Guaranteed");
        assert_eq!(class(&spec(json!({"limits": full}))), "Guaranteed");
    }
}
