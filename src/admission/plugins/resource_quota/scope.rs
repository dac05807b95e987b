//! Which objects a quota is about: its `scopes` and `scopeSelector`. Plain functions.

use serde_json::Value;

use crate::admission::plugins::pod::containers;
use crate::registry::Resource;

/// What a quota, or the configuration, asks of an object in one respect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// `scopeName`.
    pub name: String,
    operator: String,
    values: Vec<String>,
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{{{} {} [{}]}}", self.name, self.operator, self.values.join(" "))
    }
}

impl Scope {
    /// Reads an expression of a `scopeSelector`.
    pub fn from_value(expression: &Value) -> Scope {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let values = expression["values"].as_array().into_iter().flatten().map(text).collect();
        let operator = expression["operator"].as_str().unwrap_or("Exists").to_owned();
        Scope { name: text(&expression["scopeName"]), operator, values }
    }

    /// Whether it is about an object.
    pub fn matches(&self, resource: &Resource, object: &Value) -> bool {
        let is_pod = resource.group.is_empty() && &*resource.plural == "pods";
        let is_claim = resource.group.is_empty() && &*resource.plural == "persistentvolumeclaims";
        let selects = |value: Option<&str>| selects(&self.operator, &self.values, value);
        match self.name.as_str() {
            "VolumeAttributesClass" if is_claim => selects(object["spec"]["volumeAttributesClassName"].as_str()),
            _ if !is_pod => false,
            "Terminating" => is_terminating(object),
            "NotTerminating" => !is_terminating(object),
            "BestEffort" => is_best_effort(&object["spec"]),
            "NotBestEffort" => !is_best_effort(&object["spec"]),
            "PriorityClass" => selects(object["spec"]["priorityClassName"].as_str().filter(|n| !n.is_empty())),
            "CrossNamespacePodAffinity" => crosses_namespaces(&object["spec"]["affinity"]),
            _ => false,
        }
    }
}

/// The scopes of a quota.
pub fn scopes(spec: &Value) -> Vec<Scope> {
    let names = spec["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let plain = names.map(|name| Scope { name: name.to_owned(), operator: "Exists".into(), values: Vec::new() });
    plain.chain(spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten().map(Scope::from_value)).collect()
}

/// Whether a quota's scopes, all of them, are about an object.
pub fn matches(spec: &Value, resource: &Resource, object: &Value) -> bool {
    scopes(spec).iter().all(|scope| scope.matches(resource, object))
}

/// Whether a Pod ends by itself after a time.
pub fn is_terminating(pod: &Value) -> bool {
    pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

fn selects(operator: &str, values: &[String], value: Option<&str>) -> bool {
    match operator {
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "In" => value.is_some_and(|v| values.iter().any(|known| known == v)),
        "NotIn" => value.is_none_or(|v| !values.iter().any(|known| known == v)),
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
