//! Pods as the controllers see them: is one active, ready, available, and which of several should go first.

use std::{
    cmp::{Ordering, Reverse},
    collections::HashMap,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Pod, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::{
    clock::{later, left},
    runtime::Informer,
};

/// The index of Pods that nobody controls, by namespace.
pub const ORPHANS: &str = "orphans";
/// The index of Pods by the node they are bound to.
pub const NODE: &str = "node";

/// Adds the indexes that controllers read.
pub fn add_indexes(pods: &Informer<Pod>) {
    pods.add_index(ORPHANS, |pod| match crate::runtime::controller_of(&pod.metadata) {
        Some(_) => Vec::new(),
        None => pod.metadata.namespace.iter().cloned().collect(),
    });
    pods.add_index(NODE, |pod| node_name(pod).map(str::to_owned).into_iter().collect());
}

/// The node a Pod is bound to.
pub fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// The Pod's phase; `Pending` if it has none yet.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Whether it has ended, well or badly.
pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether it is being deleted.
pub fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether it counts: neither ended nor being deleted.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && !is_terminating(pod)
}

/// One of its conditions.
pub fn condition<'a>(pod: &'a Pod, r#type: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == r#type)
}

fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    condition(pod, "Ready").filter(|ready| ready.status == "True")
}

/// Whether its Ready condition is true.
pub fn is_ready(pod: &Pod) -> bool {
    ready_condition(pod).is_some()
}

/// Whether it has been ready for `min_ready` at least.
pub fn is_available(pod: &Pod, min_ready: Duration, now: Timestamp) -> bool {
    match ready_condition(pod) {
        None => false,
        Some(_) if min_ready.is_zero() => true,
        Some(ready) => ready.last_transition_time.as_ref().is_some_and(|since| later(since.0, min_ready) <= now),
    }
}

/// When a ready Pod that is not available yet will be.
pub fn available_in(pod: &Pod, min_ready: Duration, now: Timestamp) -> Option<Duration> {
    let ready = ready_condition(pod)?;
    let wait = left(now, later(ready.last_transition_time.as_ref()?.0, min_ready));
    (!wait.is_zero()).then_some(wait)
}

/// `minReadySeconds` and its like.
pub fn seconds(value: Option<i32>) -> Duration {
    Duration::from_secs(value.and_then(|v| u64::try_from(v).ok()).unwrap_or(0))
}

/// The larger number of restarts of any container, and of init containers that restart with the Pod.
fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.map(|status| status.restart_count).max().unwrap_or(0)
}

fn deletion_cost(pod: &Pod) -> i32 {
    let annotations = pod.metadata.annotations.as_ref();
    annotations
        .and_then(|annotations| annotations.get("controller.kubernetes.io/pod-deletion-cost"))
        .and_then(|cost| cost.parse().ok())
        .unwrap_or(0)
}

/// Sorts so that those which are missed least come first: unassigned, pending, not ready, cheap, crowded with others
/// of the same owner on their node, ready for a short time, often restarted, young.
pub fn sort_for_deletion(pods: &mut [Arc<Pod>], related: &[Arc<Pod>], now: Timestamp) {
    let mut on_node: HashMap<&str, usize> = HashMap::new();
    for pod in related.iter().filter(|pod| is_active(pod)) {
        if let Some(node) = node_name(pod) {
            *on_node.entry(node).or_default() += 1;
        }
    }
    let rank = |pod: &Pod| node_name(pod).and_then(|node| on_node.get(node)).copied().unwrap_or(0);
    pods.sort_by(|a, b| compare_for_deletion(a, b, rank(a), rank(b), now));
}

fn compare_for_deletion(a: &Pod, b: &Pod, a_rank: usize, b_rank: usize, now: Timestamp) -> Ordering {
    let phase_order = |pod: &Pod| match phase(pod) {
        "Pending" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    node_name(a)
        .is_some()
        .cmp(&node_name(b).is_some())
        .then_with(|| phase_order(a).cmp(&phase_order(b)))
        .then_with(|| is_ready(a).cmp(&is_ready(b)))
        .then_with(|| deletion_cost(a).cmp(&deletion_cost(b)))
        .then_with(|| Reverse(a_rank).cmp(&Reverse(b_rank)))
        .then_with(|| {
            // Times on a logarithmic scale, so that Pods of about the same age are chosen at random and not always
            // the newest.
            let since = |pod: &Pod| ready_condition(pod).and_then(|c| c.last_transition_time.as_ref()).map(|t| scale(t, now));
            since(a).cmp(&since(b))
        })
        .then_with(|| Reverse(restarts(a)).cmp(&Reverse(restarts(b))))
        .then_with(|| {
            let born = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|t| scale(t, now));
            born(a).cmp(&born(b))
        })
        .then_with(|| a.metadata.uid.cmp(&b.metadata.uid))
}

/// How long ago, as a power of two of seconds.
fn scale(time: &Time, now: Timestamp) -> u32 {
    64 - left(time.0, now).as_secs().leading_zeros()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(value: serde_json::Value) -> Arc<Pod> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_pod_is_available_when_it_has_been_ready_for_long_enough() {
        let ready = pod(json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}]}}));
        let now: Timestamp = "2030-01-01T00:00:05Z".parse().unwrap();
        assert!(is_available(&ready, Duration::ZERO, now));
        assert!(is_available(&ready, Duration::from_secs(5), now));
        assert!(!is_available(&ready, Duration::from_secs(6), now));
        assert_eq!(available_in(&ready, Duration::from_secs(6), now), Some(Duration::from_secs(1)));
    }

    #[test]
    fn the_pods_that_are_missed_least_go_first() {
        let now: Timestamp = "2030-01-01T01:00:00Z".parse().unwrap();
        let ready = |name: &str, since: &str| {
            pod(json!({"metadata": {"name": name, "uid": name, "creationTimestamp": since}, "spec": {"containers": [], "nodeName": "n"},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}}))
        };
        let old = ready("old", "2030-01-01T00:00:00Z");
        let young = ready("young", "2030-01-01T00:59:50Z");
        let unready =
            pod(json!({"metadata": {"name": "unready"}, "spec": {"containers": [], "nodeName": "n"}, "status": {"phase": "Running"}}));
        let pending = pod(json!({"metadata": {"name": "pending"}, "spec": {"containers": [], "nodeName": "n"}}));
        let unbound = pod(json!({"metadata": {"name": "unbound"}, "spec": {"containers": []}}));
        let mut pods = vec![old, young, unready, pending, unbound];
        let related = pods.clone();
        sort_for_deletion(&mut pods, &related, now);
        let names: Vec<_> = pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        assert_eq!(names, ["unbound", "pending", "unready", "young", "old"]);
    }

    #[test]
    fn of_equal_pods_the_one_on_the_most_crowded_node_goes_first() {
        let now: Timestamp = "2030-01-01T01:00:00Z".parse().unwrap();
        let on =
            |name: &str, node: &str| pod(json!({"metadata": {"name": name, "uid": name}, "spec": {"containers": [], "nodeName": node}}));
        let mut pods = vec![on("a", "lonely"), on("b", "crowded"), on("c", "crowded")];
        let related = pods.clone();
        sort_for_deletion(&mut pods, &related, now);
        assert_eq!(pods[2].metadata.name.as_deref(), Some("a"));
    }
}
