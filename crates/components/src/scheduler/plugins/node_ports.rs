//! NodePorts: two Pods cannot have the same host port on one node.

use crate::scheduler::cache::Snapshot;
use crate::scheduler::event::{ClusterEvent, QueueingHint};
use crate::scheduler::framework::{CycleState, Filter, Plugin, PreFilter, PreFilterOutcome, Rejection};
use crate::scheduler::info::{NodeInfo, PodInfo};

/// See the module's description.
pub struct NodePorts;

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        "NodePorts"
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent) -> QueueingHint {
        match event {
            ClusterEvent::NodeAdded(_) => QueueingHint::Queue,
            ClusterEvent::AssignedPodDeleted(gone) => conflict(pod, gone).into(),
            _ => QueueingHint::Skip,
        }
    }
}

fn conflict(pod: &PodInfo, other: &PodInfo) -> bool {
    pod.host_ports.iter().any(|wanted| other.host_ports.iter().any(|taken| wanted.conflicts_with(taken)))
}

impl PreFilter for NodePorts {
    fn pre_filter(&self, _: &mut CycleState, pod: &PodInfo, _: &Snapshot) -> Result<PreFilterOutcome, Rejection> {
        Ok(if pod.host_ports.is_empty() { PreFilterOutcome::Skip } else { PreFilterOutcome::All })
    }
}

impl Filter for NodePorts {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        if node.pods.iter().any(|other| conflict(pod, other)) {
            Err(Rejection::unschedulable("node(s) didn't have free ports for the requested pod ports"))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::testing::{node_named, pod_on};
    use serde_json::json;

    #[test]
    fn a_taken_host_port_rules_the_node_out() {
        let wants =
            |name, on| pod_on(name, on, json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}}));
        let mut node = NodeInfo::new(node_named("n", json!({})));
        assert!(NodePorts.filter(&CycleState::default(), &wants("b", ""), &node).is_ok());
        node.add_pod(wants("a", "n"));
        assert!(NodePorts.filter(&CycleState::default(), &wants("b", ""), &node).is_err());
        assert_eq!(NodePorts.queueing_hint(&wants("b", ""), &ClusterEvent::AssignedPodDeleted(wants("a", "n"))), QueueingHint::Queue);
    }
}
