//! NodeAffinity: `nodeSelector` and required node affinity rule nodes out, preferred node affinity ranks the rest.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelector, PreferredSchedulingTerm};

use super::default_normalize;
use crate::scheduler::cache::Snapshot;
use crate::scheduler::event::{ClusterEvent, QueueingHint};
use crate::scheduler::framework::{CycleState, Filter, Plugin, PreFilter, PreFilterOutcome, PreScore, Rejection, Score};
use crate::scheduler::info::{NodeInfo, PodInfo};
use crate::scheduler::selector::{node_selector_matches, node_selector_term_matches};

/// See the module's description.
pub struct NodeAffinity;

fn required(pod: &PodInfo) -> Option<&NodeSelector> {
    let affinity = pod.spec()?.affinity.as_ref()?.node_affinity.as_ref()?;
    affinity.required_during_scheduling_ignored_during_execution.as_ref()
}

fn preferred(pod: &PodInfo) -> &[PreferredSchedulingTerm] {
    pod.spec()
        .and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref()?.preferred_during_scheduling_ignored_during_execution.as_deref())
        .unwrap_or_default()
}

/// Whether a node satisfies the Pod's `nodeSelector` and required node affinity. Pod topology spread counts only such nodes.
#[must_use]
pub fn node_matches(pod: &PodInfo, node: &k8s_openapi::api::core::v1::Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let selector = pod.spec().and_then(|spec| spec.node_selector.as_ref());
    selector.is_none_or(|selector| selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value)))
        && required(pod).is_none_or(|selector| node_selector_matches(selector, node))
}

/// The nodes a Pod names by `metadata.name` in every term of its affinity (as DaemonSet Pods do), if it does.
fn named_nodes(selector: &NodeSelector) -> Option<HashSet<String>> {
    let mut names = HashSet::new();
    for term in &selector.node_selector_terms {
        let mut of_term: Option<HashSet<String>> = None;
        for field in term.match_fields.iter().flatten().filter(|field| field.key == "metadata.name" && field.operator == "In") {
            let values: HashSet<String> = field.values.iter().flatten().cloned().collect();
            of_term = Some(match of_term {
                Some(before) => before.intersection(&values).cloned().collect(),
                None => values,
            });
        }
        names.extend(of_term?);
    }
    Some(names)
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        "NodeAffinity"
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent) -> QueueingHint {
        event.node().is_some_and(|node| node_matches(pod, node)).into()
    }
}

impl PreFilter for NodeAffinity {
    fn pre_filter(&self, _: &mut CycleState, pod: &PodInfo, _: &Snapshot) -> Result<PreFilterOutcome, Rejection> {
        let Some(selector) = required(pod) else {
            let plain = pod.spec().is_none_or(|spec| spec.node_selector.as_ref().is_none_or(|selector| selector.is_empty()));
            return Ok(if plain { PreFilterOutcome::Skip } else { PreFilterOutcome::All });
        };
        match named_nodes(selector).filter(|_| !selector.node_selector_terms.is_empty()) {
            Some(names) if names.is_empty() => Err(Rejection::unresolvable("pod affinity terms conflict")),
            Some(names) => Ok(PreFilterOutcome::Only(names)),
            None => Ok(PreFilterOutcome::All),
        }
    }
}

impl Filter for NodeAffinity {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        if node_matches(pod, &node.node) {
            Ok(())
        } else {
            Err(Rejection::unresolvable("node(s) didn't match Pod's node affinity/selector"))
        }
    }
}

impl PreScore for NodeAffinity {
    fn pre_score(&self, _: &mut CycleState, pod: &PodInfo, _: &[Arc<NodeInfo>], _: &Snapshot) -> bool {
        !preferred(pod).is_empty()
    }
}

impl Score for NodeAffinity {
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        preferred(pod)
            .iter()
            .filter(|term| node_selector_term_matches(&term.preference, &node.name, node.labels()))
            .map(|term| i64::from(term.weight))
            .sum()
    }

    fn normalize(&self, _: &CycleState, _: &PodInfo, _: &[Arc<NodeInfo>], scores: &mut [i64]) {
        default_normalize(scores, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::testing::{node_named, pod_on};
    use serde_json::json;

    fn ssd() -> NodeInfo {
        NodeInfo::new(node_named("n", json!({"metadata": {"labels": {"disk": "ssd"}}})))
    }

    #[test]
    fn the_node_selector_and_required_affinity_must_both_hold() {
        let state = CycleState::default();
        let fits = |spec: serde_json::Value| NodeAffinity.filter(&state, &pod_on("p", "", json!({"spec": spec})), &ssd()).is_ok();
        let required = |value: &str| {
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disk", "operator": "In", "values": [value]}]}]}}})
        };
        assert!(fits(json!({"nodeSelector": {"disk": "ssd"}})));
        assert!(!fits(json!({"nodeSelector": {"disk": "hdd"}})));
        assert!(fits(json!({"affinity": required("ssd")})));
        assert!(!fits(json!({"affinity": required("hdd"), "nodeSelector": {"disk": "ssd"}})));
    }

    #[test]
    fn a_pod_that_names_its_nodes_is_tried_only_there() {
        let pod = pod_on(
            "p",
            "",
            json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}}}}}),
        );
        let outcome = NodeAffinity.pre_filter(&mut CycleState::default(), &pod, &Snapshot::default()).unwrap();
        assert_eq!(outcome, PreFilterOutcome::Only(HashSet::from(["a".to_owned()])));
    }

    #[test]
    fn preferred_terms_add_their_weights() {
        let pod = pod_on(
            "p",
            "",
            json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 30, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}},
            {"weight": 9, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}]}}}}),
        );
        assert_eq!(NodeAffinity.score(&CycleState::default(), &pod, &ssd(), &Snapshot::default()), 30);
    }
}
