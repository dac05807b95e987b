//! Whether a Pod may be on a node, as far as controllers need to know: node selector, node affinity, taints.

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration};

/// Whether a node has the labels and the name that the Pod requires.
pub fn fits_affinity(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).map(String::as_str);
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| label(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    selected && required.is_none_or(|required| required.node_selector_terms.iter().any(|term| matches(term, node, &label)))
}

fn matches<'a>(term: &NodeSelectorTerm, node: &Node, label: &impl Fn(&str) -> Option<&'a str>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    // A term without requirements selects nothing.
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|requirement| satisfies(requirement, label(&requirement.key)))
        && fields.iter().all(|field| field.key == "metadata.name" && satisfies(field, node.metadata.name.as_deref()))
}

fn satisfies(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|other| other == value));
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let bound = number(values.first().map(String::as_str));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => matches!((number(value), bound), (Some(value), Some(bound)) if value > bound),
        "Lt" => matches!((number(value), bound), (Some(value), Some(bound)) if value < bound),
        _ => false,
    }
}

/// Whether one of the tolerations tolerates the taint.
pub fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| {
        let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        some(&toleration.effect).is_none_or(|effect| effect == taint.effect)
            && some(&toleration.key).is_none_or(|key| key == taint.key)
            && match toleration.operator.as_deref() {
                Some("Exists") => true,
                _ => toleration.key.is_some() && toleration.value.clone().unwrap_or_default() == taint.value.clone().unwrap_or_default(),
            }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn affinity_can_ask_for_labels_and_for_the_name() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1", "labels": {"disk": "ssd", "cores": "8"}}})).unwrap();
        let spec = |requirement| -> PodSpec {
            serde_json::from_value(json!({"containers": [], "affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [requirement]}}}}))
            .unwrap()
        };
        assert!(fits_affinity(&spec(json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]})), &node));
        assert!(fits_affinity(&spec(json!({"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}]})), &node));
        assert!(fits_affinity(&spec(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})), &node));
        assert!(!fits_affinity(&spec(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]})), &node));
        assert!(!fits_affinity(&spec(json!({})), &node));
        let selector: PodSpec = serde_json::from_value(json!({"containers": [], "nodeSelector": {"disk": "hdd"}})).unwrap();
        assert!(!fits_affinity(&selector, &node));
    }

    #[test]
    fn a_toleration_matches_by_key_value_and_effect() {
        let taint: Taint = serde_json::from_value(json!({"key": "k", "value": "v", "effect": "NoSchedule"})).unwrap();
        let toleration = |value| vec![serde_json::from_value::<Toleration>(value).unwrap()];
        assert!(tolerates(&toleration(json!({"operator": "Exists"})), &taint));
        assert!(tolerates(&toleration(json!({"key": "k", "value": "v"})), &taint));
        assert!(!tolerates(&toleration(json!({"key": "k", "value": "w"})), &taint));
        assert!(!tolerates(&toleration(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"})), &taint));
        assert!(!tolerates(&[], &taint));
    }
}
