//! Label selectors and node selectors: does this set of labels satisfy that selector?
//!
//! Plain matching functions on the API's own types, used by the affinity, spread and preemption plugins.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Labels as objects carry them.
pub type Labels = BTreeMap<String, String>;

/// Whether `labels` satisfy `selector`. An empty selector matches everything; a missing one is the caller's question.
#[must_use]
pub fn label_selector_matches(selector: &LabelSelector, labels: &Labels) -> bool {
    let exact = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    exact
        && selector
            .match_expressions
            .iter()
            .flatten()
            .all(|r| requirement_matches(&r.key, &r.operator, r.values.as_deref().unwrap_or_default(), labels))
}

fn requirement_matches(key: &str, operator: &str, values: &[String], labels: &Labels) -> bool {
    let value = labels.get(key);
    match operator {
        "In" => value.is_some_and(|value| values.contains(value)),
        "NotIn" => value.is_none_or(|value| !values.contains(value)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" | "Lt" => {
            let bound = values.first().and_then(|bound| bound.parse::<i64>().ok());
            match (value.and_then(|value| value.parse::<i64>().ok()), bound) {
                (Some(value), Some(bound)) if operator == "Gt" => value > bound,
                (Some(value), Some(bound)) => value < bound,
                _ => false,
            }
        }
        _ => false,
    }
}

fn field_matches(requirement: &NodeSelectorRequirement, node_name: &str) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    requirement.key == "metadata.name"
        && match requirement.operator.as_str() {
            "In" => values.iter().any(|value| value == node_name),
            "NotIn" => !values.iter().any(|value| value == node_name),
            _ => false,
        }
}

/// Whether a node satisfies one term: all its expressions and all its fields. A term that asks for nothing matches nothing.
#[must_use]
pub fn node_selector_term_matches(term: &NodeSelectorTerm, node_name: &str, labels: &Labels) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    (!expressions.is_empty() || !fields.is_empty())
        && expressions.iter().all(|r| requirement_matches(&r.key, &r.operator, r.values.as_deref().unwrap_or_default(), labels))
        && fields.iter().all(|r| field_matches(r, node_name))
}

/// Whether a node satisfies any term of the selector.
#[must_use]
pub fn node_selector_matches(selector: &NodeSelector, node: &Node) -> bool {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let empty = Labels::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    selector.node_selector_terms.iter().any(|term| node_selector_term_matches(term, name, labels))
}

/// Whether a toleration covers a taint.
#[must_use]
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let blank = |text: &Option<String>| text.as_deref().unwrap_or_default().is_empty();
    if !blank(&toleration.effect) && toleration.effect.as_deref() != Some(taint.effect.as_str()) {
        return false;
    }
    if !blank(&toleration.key) && toleration.key.as_deref() != Some(taint.key.as_str()) {
        return false;
    }
    let value = toleration.value.as_deref().unwrap_or_default();
    let taint_value = taint.value.as_deref().unwrap_or_default();
    match toleration.operator.as_deref().unwrap_or_default() {
        // A toleration without a key must say Exists; validation has seen to that.
        "" | "Equal" => value == taint_value && !blank(&toleration.key),
        "Exists" => true,
        operator @ ("Lt" | "Gt") => match (taint_value.parse::<i64>(), value.parse::<i64>()) {
            (Ok(taint), Ok(bound)) if operator == "Lt" => taint < bound,
            (Ok(taint), Ok(bound)) => taint > bound,
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect()
    }

    #[test]
    fn every_operator_of_a_label_selector_is_understood() {
        let have = labels(&[("app", "web"), ("tier", "3")]);
        let matches = |selector: serde_json::Value| label_selector_matches(&serde_json::from_value(selector).unwrap(), &have);
        assert!(matches(json!({})));
        assert!(matches(json!({"matchLabels": {"app": "web"}})));
        assert!(!matches(json!({"matchLabels": {"app": "db"}})));
        assert!(matches(json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]})));
        assert!(matches(json!({"matchExpressions": [{"key": "gone", "operator": "NotIn", "values": ["x"]}]})));
        assert!(matches(json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]})));
        assert!(!matches(json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]})));
    }

    #[test]
    fn a_node_selector_term_reads_numbers_and_the_node_name() {
        let have = labels(&[("cores", "8")]);
        let term = |json| serde_json::from_value::<NodeSelectorTerm>(json).unwrap();
        assert!(node_selector_term_matches(
            &term(json!({"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["4"]}]})),
            "n",
            &have
        ));
        assert!(!node_selector_term_matches(
            &term(json!({"matchExpressions": [{"key": "cores", "operator": "Lt", "values": ["4"]}]})),
            "n",
            &have
        ));
        assert!(node_selector_term_matches(
            &term(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]})),
            "n",
            &have
        ));
        assert!(!node_selector_term_matches(&term(json!({})), "n", &have));
    }

    #[test]
    fn tolerations_cover_taints_by_key_value_and_effect() {
        let taint = Taint { key: "k".into(), value: Some("v".into()), effect: "NoSchedule".into(), time_added: None };
        let covers = |json| tolerates(&serde_json::from_value(json).unwrap(), &taint);
        assert!(covers(json!({"operator": "Exists"})));
        assert!(covers(json!({"key": "k", "operator": "Exists"})));
        assert!(covers(json!({"key": "k", "value": "v"})));
        assert!(!covers(json!({"key": "k", "value": "w"})));
        assert!(!covers(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"})));
    }
}
