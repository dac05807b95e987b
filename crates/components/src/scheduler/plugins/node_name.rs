//! NodeName: a Pod that names its node runs there or nowhere.

use crate::scheduler::event::{ClusterEvent, QueueingHint};
use crate::scheduler::framework::{CycleState, Filter, Plugin, Rejection};
use crate::scheduler::info::{NodeInfo, PodInfo};

/// See the module's description.
pub struct NodeName;

impl Plugin for NodeName {
    fn name(&self) -> &'static str {
        "NodeName"
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent) -> QueueingHint {
        event.node().is_some_and(|node| node.metadata.name.as_deref() == pod.node_name()).into()
    }
}

impl Filter for NodeName {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        match pod.node_name() {
            Some(name) if name != node.name => Err(Rejection::unresolvable("node(s) didn't match the requested node name")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::testing::{node_named, pod_on};
    use serde_json::json;

    #[test]
    fn only_the_named_node_will_do() {
        let node = NodeInfo::new(node_named("a", json!({})));
        assert!(NodeName.filter(&CycleState::default(), &pod_on("p", "a", json!({})), &node).is_ok());
        assert!(NodeName.filter(&CycleState::default(), &pod_on("p", "", json!({})), &node).is_ok());
        assert!(NodeName.filter(&CycleState::default(), &pod_on("p", "b", json!({})), &node).is_err());
    }
}
