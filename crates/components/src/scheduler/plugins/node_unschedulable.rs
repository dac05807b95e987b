//! NodeUnschedulable: a cordoned node takes no Pods, except those that tolerate being on one.

use k8s_openapi::api::core::v1::Taint;

use crate::scheduler::event::{ClusterEvent, QueueingHint};
use crate::scheduler::framework::{CycleState, Filter, Plugin, Rejection};
use crate::scheduler::info::{NodeInfo, PodInfo};
use crate::scheduler::selector::tolerates;

/// See the module's description.
pub struct NodeUnschedulable;

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        "NodeUnschedulable"
    }

    fn queueing_hint(&self, _: &PodInfo, event: &ClusterEvent) -> QueueingHint {
        event.node().is_some_and(|node| !node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()).into()
    }
}

impl Filter for NodeUnschedulable {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        if !node.is_unschedulable() {
            return Ok(());
        }
        let taint = Taint { key: "node.kubernetes.io/unschedulable".into(), effect: "NoSchedule".into(), ..Taint::default() };
        let tolerations = pod.spec().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        if tolerations.iter().any(|toleration| tolerates(toleration, &taint)) {
            Ok(())
        } else {
            Err(Rejection::unresolvable("node(s) were unschedulable"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::testing::{node_named, pod_on};
    use serde_json::json;

    #[test]
    fn a_cordoned_node_takes_only_pods_that_tolerate_it() {
        let node = NodeInfo::new(node_named("n", json!({"spec": {"unschedulable": true}})));
        let state = CycleState::default();
        let rejection = NodeUnschedulable.filter(&state, &pod_on("p", "", json!({})), &node).unwrap_err();
        assert_eq!(rejection.message(), "node(s) were unschedulable");
        let tolerant =
            pod_on("p", "", json!({"spec": {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]}}));
        assert!(NodeUnschedulable.filter(&state, &tolerant, &node).is_ok());
    }
}
