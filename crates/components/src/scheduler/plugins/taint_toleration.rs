//! TaintToleration: NoSchedule and NoExecute taints rule a node out, PreferNoSchedule taints rank it lower, unless tolerated.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint, Toleration};

use super::default_normalize;
use crate::scheduler::cache::Snapshot;
use crate::scheduler::event::{ClusterEvent, QueueingHint};
use crate::scheduler::framework::{CycleState, Filter, Plugin, PreScore, Rejection, Score};
use crate::scheduler::info::{NodeInfo, PodInfo};
use crate::scheduler::selector::tolerates;

/// See the module's description.
pub struct TaintToleration;

fn tolerations(pod: &PodInfo) -> &[Toleration] {
    pod.spec().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default()
}

/// The first taint that keeps the Pod off the node.
#[must_use]
pub fn untolerated<'a>(pod: &PodInfo, taints: &'a [Taint]) -> Option<&'a Taint> {
    let tolerations = tolerations(pod);
    taints
        .iter()
        .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        "TaintToleration"
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent) -> QueueingHint {
        event.node().is_some_and(|node| untolerated(pod, taints(node)).is_none()).into()
    }
}

impl Filter for TaintToleration {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        match untolerated(pod, node.taints()) {
            Some(_) => Err(Rejection::unresolvable("node(s) had untolerated taint(s)")),
            None => Ok(()),
        }
    }
}

impl PreScore for TaintToleration {
    fn pre_score(&self, _: &mut CycleState, _: &PodInfo, nodes: &[Arc<NodeInfo>], _: &Snapshot) -> bool {
        nodes.iter().any(|node| node.taints().iter().any(|taint| taint.effect == "PreferNoSchedule"))
    }
}

impl Score for TaintToleration {
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let tolerations = tolerations(pod);
        let disliked = node
            .taints()
            .iter()
            .filter(|taint| taint.effect == "PreferNoSchedule" && !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
            .count();
        i64::try_from(disliked).unwrap_or(i64::MAX)
    }

    fn normalize(&self, _: &CycleState, _: &PodInfo, _: &[Arc<NodeInfo>], scores: &mut [i64]) {
        default_normalize(scores, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::testing::{node_named, pod_on};
    use serde_json::json;

    #[test]
    fn a_taint_keeps_pods_away_unless_they_tolerate_it() {
        let node = NodeInfo::new(node_named("n", json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})));
        let state = CycleState::default();
        assert_eq!(
            TaintToleration.filter(&state, &pod_on("p", "", json!({})), &node).unwrap_err().message(),
            "node(s) had untolerated taint(s)"
        );
        let tolerant = pod_on("p", "", json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}));
        assert!(TaintToleration.filter(&state, &tolerant, &node).is_ok());
    }

    #[test]
    fn a_soft_taint_only_ranks_the_node_lower() {
        let soft = NodeInfo::new(node_named("n", json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}})));
        let pod = pod_on("p", "", json!({}));
        let state = CycleState::default();
        assert!(TaintToleration.filter(&state, &pod, &soft).is_ok());
        let mut scores = [TaintToleration.score(&state, &pod, &soft, &Snapshot::default()), 0];
        TaintToleration.normalize(&state, &pod, &[], &mut scores);
        assert_eq!(scores, [0, 100]);
    }
}
