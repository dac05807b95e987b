//! Which objects a quota is about: its `scopes` and `scopeSelector`. Plain functions.

use serde_json::Value;

use crate::admission::plugins::pod::containers;
use crate::registry::Resource;

/// Whether a quota's scopes, all of them, are about an object.
pub fn matches(spec: &Value, resource: &Resource, object: &Value) -> bool {
    let scopes = spec["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let plain = scopes.map(|scope| (scope, "Exists", Vec::new()));
    let expressions = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten().map(|e| {
        let values = e["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>();
        (e["scopeName"].as_str().unwrap_or_default(), e["operator"].as_str().unwrap_or("Exists"), values)
    });
    let all: Vec<_> = plain.chain(expressions).collect();
    if all.is_empty() {
        return true;
    }
    let is_pod = resource.group.is_empty() && &*resource.plural == "pods";
    let is_claim = resource.group.is_empty() && &*resource.plural == "persistentvolumeclaims";
    all.into_iter().all(|(scope, operator, values)| match scope {
        "VolumeAttributesClass" if is_claim => selects(operator, &values, object["spec"]["volumeAttributesClassName"].as_str()),
        _ if !is_pod => false,
        "Terminating" => object["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|s| s >= 0),
        "NotTerminating" => object["spec"]["activeDeadlineSeconds"].is_null(),
        "BestEffort" => is_best_effort(&object["spec"]),
        "NotBestEffort" => !is_best_effort(&object["spec"]),
        "PriorityClass" => selects(operator, &values, object["spec"]["priorityClassName"].as_str().filter(|n| !n.is_empty())),
        "CrossNamespacePodAffinity" => crosses_namespaces(&object["spec"]["affinity"]),
        _ => false,
    })
}

fn selects(operator: &str, values: &[&str], value: Option<&str>) -> bool {
    match operator {
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "In" => value.is_some_and(|v| values.contains(&v)),
        "NotIn" => value.is_none_or(|v| !values.contains(&v)),
        _ => false,
    }
}

fn is_best_effort(spec: &Value) -> bool {
    let asks = |container: &Value| {
        ["requests", "limits"].into_iter().any(|f| ["cpu", "memory"].into_iter().any(|r| container["resources"][f].get(r).is_some()))
    };
    !asks(spec) && !containers(spec).any(asks)
}

fn crosses_namespaces(affinity: &Value) -> bool {
    let term_crosses = |term: &Value| term["namespaces"].as_array().is_some_and(|n| !n.is_empty()) || !term["namespaceSelector"].is_null();
    ["podAffinity", "podAntiAffinity"].into_iter().any(|field| {
        let required = affinity[field]["requiredDuringSchedulingIgnoredDuringExecution"].as_array().into_iter().flatten();
        let preferred = affinity[field]["preferredDuringSchedulingIgnoredDuringExecution"].as_array().into_iter().flatten();
        required.chain(preferred.map(|p| &p["podAffinityTerm"])).any(term_crosses)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use serde_json::json;

    #[test]
    fn scopes_select_pods_by_deadline_effort_and_class() {
        let pods = Registry::new().lookup("", "v1", "pods").unwrap();
        let pod = json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high", "containers": [{"name": "c"}]}});
        assert!(matches(&json!({"scopes": ["Terminating", "BestEffort"]}), &pods, &pod));
        assert!(!matches(&json!({"scopes": ["NotTerminating"]}), &pods, &pod));
        let class = |operator: &str, values: &[&str]| json!({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]}});
        assert!(matches(&class("In", &["high"]), &pods, &pod));
        assert!(!matches(&class("NotIn", &["high"]), &pods, &pod));
    }
}
