//! NodeResourcesBalancedAllocation: prefers nodes where cpu and memory would be used in like proportion, so that neither strands the other.

use crate::scheduler::cache::Snapshot;
use crate::scheduler::framework::{CycleState, MAX_NODE_SCORE, Plugin, Score};
use crate::scheduler::info::{NodeInfo, PodInfo};

/// See the module's description.
pub struct NodeResourcesBalancedAllocation;

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }
}

/// Used part of a resource in millionths, at most all of it.
fn fraction(capacity: i64, requested: i64) -> i64 {
    i64::try_from((i128::from(requested) * 1_000_000) / i128::from(capacity.max(1))).unwrap_or(i64::MAX).clamp(0, 1_000_000)
}

impl Score for NodeResourcesBalancedAllocation {
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let capacity = &node.allocatable;
        if capacity.milli_cpu == 0 || capacity.memory == 0 {
            return MAX_NODE_SCORE;
        }
        let cpu = fraction(capacity.milli_cpu, node.requested.milli_cpu + pod.requests.milli_cpu);
        let memory = fraction(capacity.memory, node.requested.memory + pod.requests.memory);
        // Of two values the standard deviation is half their distance.
        let deviation = (cpu - memory).abs() / 2;
        (1_000_000 - deviation) * MAX_NODE_SCORE / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::testing::{node_named, pod_on};
    use serde_json::json;

    #[test]
    fn even_use_of_cpu_and_memory_scores_best() {
        let node = NodeInfo::new(node_named("n", json!({})));
        let score = |cpu: &str, memory: &str| {
            let pod = pod_on(
                "p",
                "",
                json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]}}),
            );
            NodeResourcesBalancedAllocation.score(&CycleState::default(), &pod, &node, &Snapshot::default())
        };
        assert_eq!(score("2", "4Gi"), 100);
        assert_eq!(score("4", "0"), 50);
    }
}
