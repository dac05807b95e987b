//! NodeResourcesFit: a Pod goes only where what it asks for is left, preferably where the most is left (LeastAllocated).

use crate::scheduler::cache::Snapshot;
use crate::scheduler::event::{ClusterEvent, QueueingHint};
use crate::scheduler::framework::{Code, CycleState, Filter, MAX_NODE_SCORE, Plugin, PreFilter, PreFilterOutcome, Rejection, Score};
use crate::scheduler::info::{NodeInfo, PodInfo};
use crate::scheduler::resource::Resource;

/// See the module's description.
pub struct NodeResourcesFit;

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent) -> QueueingHint {
        match event {
            ClusterEvent::NodeAdded(node) | ClusterEvent::NodeUpdated { new: node, .. } => {
                shortages(pod, &NodeInfo::new(node.clone())).is_empty().into()
            }
            // Every Pod that goes leaves at least its place among the node's Pods.
            ClusterEvent::AssignedPodDeleted(_) | ClusterEvent::AssignedPodUpdated(_) => QueueingHint::Queue,
            _ => QueueingHint::Skip,
        }
    }
}

struct Shortage {
    reason: String,
    /// The node could not take the Pod even if it were empty.
    hopeless: bool,
}

fn shortages(pod: &PodInfo, node: &NodeInfo) -> Vec<Shortage> {
    let mut shortages = Vec::new();
    let pods = i64::try_from(node.pods.len()).unwrap_or(i64::MAX);
    if pods + 1 > node.allocatable.pods {
        shortages.push(Shortage { reason: "Too many pods".into(), hopeless: false });
    }
    let wants = &pod.requests;
    let mut check = |name: &str, wanted: i64, allocatable: i64, used: i64| {
        if wanted > 0 && wanted > allocatable - used {
            shortages.push(Shortage { reason: format!("Insufficient {name}"), hopeless: wanted > allocatable });
        }
    };
    check("cpu", wants.milli_cpu, node.allocatable.milli_cpu, node.requested.milli_cpu);
    check("memory", wants.memory, node.allocatable.memory, node.requested.memory);
    check("ephemeral-storage", wants.ephemeral_storage, node.allocatable.ephemeral_storage, node.requested.ephemeral_storage);
    for (name, wanted) in &wants.scalar {
        let of = |resource: &Resource| resource.scalar.get(name).copied().unwrap_or_default();
        check(name, *wanted, of(&node.allocatable), of(&node.requested));
    }
    shortages
}

impl PreFilter for NodeResourcesFit {
    fn pre_filter(&self, _: &mut CycleState, _: &PodInfo, _: &Snapshot) -> Result<PreFilterOutcome, Rejection> {
        Ok(PreFilterOutcome::All)
    }
}

impl Filter for NodeResourcesFit {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let shortages = shortages(pod, node);
        if shortages.is_empty() {
            return Ok(());
        }
        let hopeless = shortages.iter().any(|shortage| shortage.hopeless);
        Err(Rejection {
            code: if hopeless { Code::UnschedulableAndUnresolvable } else { Code::Unschedulable },
            reasons: shortages.into_iter().map(|shortage| shortage.reason.into()).collect(),
            plugin: "",
        })
    }
}

/// How much of a resource would be left, in hundredths.
fn left(capacity: i64, requested: i64) -> i64 {
    if capacity == 0 || requested > capacity { 0 } else { (capacity - requested) * MAX_NODE_SCORE / capacity }
}

impl Score for NodeResourcesFit {
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let capacity = &node.allocatable;
        let mut score = 0;
        let mut weights = 0;
        for (capacity, requested) in [
            (capacity.milli_cpu, node.scoring_requested.milli_cpu + pod.scoring_requests.milli_cpu),
            (capacity.memory, node.scoring_requested.memory + pod.scoring_requests.memory),
        ] {
            if capacity > 0 {
                score += left(capacity, requested);
                weights += 1;
            }
        }
        if weights == 0 { 0 } else { score / weights }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::testing::{node_named, pod_on};
    use serde_json::json;
    use std::sync::Arc;

    fn asking(name: &str, on: &str, requests: serde_json::Value) -> Arc<PodInfo> {
        pod_on(name, on, json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}))
    }

    fn rejection(pod: &PodInfo, node: &NodeInfo) -> Rejection {
        NodeResourcesFit.filter(&CycleState::default(), pod, node).unwrap_err()
    }

    #[test]
    fn every_resource_that_is_short_is_named() {
        let node = NodeInfo::new(node_named("n", json!({})));
        let rejection = rejection(&asking("p", "", json!({"cpu": "5", "memory": "9Gi", "example.com/gpu": "1"})), &node);
        assert_eq!(rejection.reasons, ["Insufficient cpu", "Insufficient memory", "Insufficient example.com/gpu"]);
        assert_eq!(rejection.code, Code::UnschedulableAndUnresolvable);
    }

    #[test]
    fn a_full_node_could_be_cleared_but_a_small_one_could_not() {
        let mut node = NodeInfo::new(node_named("n", json!({})));
        node.add_pod(asking("a", "n", json!({"cpu": "3"})));
        assert_eq!(rejection(&asking("b", "", json!({"cpu": "2"})), &node).code, Code::Unschedulable);
        assert!(NodeResourcesFit.filter(&CycleState::default(), &asking("b", "", json!({"cpu": "1"})), &node).is_ok());
    }

    #[test]
    fn a_node_takes_no_more_pods_than_it_allows() {
        let mut node = NodeInfo::new(node_named("n", json!({"status": {"allocatable": {"pods": "1"}}})));
        node.add_pod(pod_on("a", "n", json!({})));
        assert_eq!(rejection(&pod_on("b", "", json!({})), &node).reasons, ["Too many pods"]);
    }

    #[test]
    fn the_emptier_node_scores_higher() {
        let empty = NodeInfo::new(node_named("n", json!({})));
        let mut busy = empty.clone();
        busy.add_pod(asking("a", "n", json!({"cpu": "2", "memory": "4Gi"})));
        let pod = asking("b", "", json!({"cpu": "1", "memory": "2Gi"}));
        let score = |node| NodeResourcesFit.score(&CycleState::default(), &pod, node, &Snapshot::default());
        assert_eq!((score(&empty), score(&busy)), (75, 25));
    }

    #[test]
    fn a_new_node_that_is_too_small_is_no_reason_to_try_again() {
        let pod = asking("p", "", json!({"cpu": "5"}));
        let hint = |node| NodeResourcesFit.queueing_hint(&pod, &ClusterEvent::NodeAdded(node));
        assert_eq!(hint(node_named("n", json!({}))), QueueingHint::Skip);
        assert_eq!(hint(node_named("n", json!({"status": {"allocatable": {"cpu": "8"}}}))), QueueingHint::Queue);
    }
}
