//! SchedulingGates: a Pod with scheduling gates is not tried until the last one has been taken away.

use crate::scheduler::event::{ClusterEvent, QueueingHint};
use crate::scheduler::framework::{Plugin, PreEnqueue, Rejection};
use crate::scheduler::info::PodInfo;

/// See the module's description.
pub struct SchedulingGates;

impl Plugin for SchedulingGates {
    fn name(&self) -> &'static str {
        "SchedulingGates"
    }

    fn queueing_hint(&self, _: &PodInfo, _: &ClusterEvent) -> QueueingHint {
        // Only a change of the Pod itself opens a gate.
        QueueingHint::Skip
    }
}

impl PreEnqueue for SchedulingGates {
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Rejection> {
        let gates: Vec<&str> =
            pod.spec().and_then(|spec| spec.scheduling_gates.as_ref()).into_iter().flatten().map(|gate| gate.name.as_str()).collect();
        if gates.is_empty() { Ok(()) } else { Err(Rejection::unresolvable(format!("waiting for scheduling gates: [{}]", gates.join(" ")))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::testing::pod_on;
    use serde_json::json;

    #[test]
    fn gates_keep_a_pod_out_and_are_named() {
        let gated = pod_on("p", "", json!({"spec": {"schedulingGates": [{"name": "a"}, {"name": "b"}]}}));
        assert_eq!(SchedulingGates.pre_enqueue(&gated).unwrap_err().message(), "waiting for scheduling gates: [a b]");
        assert!(SchedulingGates.pre_enqueue(&pod_on("p", "", json!({}))).is_ok());
    }
}
