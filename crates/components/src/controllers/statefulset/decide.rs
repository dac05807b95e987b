//! The next step of a StatefulSet: Pods in order, one at a time unless the set is parallel, newest first when updating.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{StatefulSet, StatefulSetStatus},
    core::v1::Pod,
};

use super::identity::{ordinal, revision, start};
use crate::controllers::{
    percent::{Round, resolve},
    pods,
};

/// What to do next.
#[derive(Debug, Default)]
pub struct Step {
    /// Ordinals to create, and whether in the updated revision.
    pub create: Vec<(i32, bool)>,
    /// Pods to delete.
    pub delete: Vec<Arc<Pod>>,
    /// When something becomes available that is not yet.
    pub again: Option<Duration>,
}

fn min_ready(set: &StatefulSet) -> Duration {
    pods::seconds(set.spec.min_ready_seconds)
}

fn is_available(set: &StatefulSet, pod: &Pod, now: Timestamp) -> bool {
    pods::phase(pod) == "Running" && pods::is_available(pod, min_ready(set), now)
}

fn is_healthy(set: &StatefulSet, pod: &Pod, now: Timestamp) -> bool {
    is_available(set, pod, now) && !pods::is_terminating(pod)
}

fn is_rolling(set: &StatefulSet) -> bool {
    set.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
}

fn partition(set: &StatefulSet) -> i32 {
    let rolling = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    rolling.and_then(|rolling| rolling.partition).unwrap_or(0)
}

/// Whether a new Pod with this ordinal is of the updated revision. Below the partition it is of the current one.
fn wants_update(set: &StatefulSet, ordinal: i32) -> bool {
    !is_rolling(set) || ordinal >= start(set) + partition(set)
}

/// Decides on the next step.
pub fn step(set: &StatefulSet, pods: &[Arc<Pod>], updated: &str, now: Timestamp) -> Step {
    let first = start(set);
    let last = first + set.spec.replicas.unwrap_or(1);
    let ordered = set.spec.pod_management_policy.as_deref() != Some("Parallel");
    let by_ordinal: BTreeMap<i32, &Arc<Pod>> = pods.iter().filter_map(|pod| Some((ordinal(set, pod)?, pod))).collect();
    let mut step = Step { again: pods.iter().filter_map(|pod| pods::available_in(pod, min_ready(set), now)).min(), ..Step::default() };
    for ordinal in first..last {
        let waits = match by_ordinal.get(&ordinal) {
            None => {
                step.create.push((ordinal, wants_update(set, ordinal)));
                true
            }
            Some(pod) if pods::is_finished(pod) => {
                if !pods::is_terminating(pod) {
                    step.delete.push((*pod).clone());
                }
                true
            }
            Some(pod) => !is_healthy(set, pod, now),
        };
        if waits && ordered {
            return step;
        }
    }
    let condemned = by_ordinal.iter().rev().filter(|(ordinal, _)| !(first..last).contains(ordinal)).map(|(_, pod)| *pod);
    let unhealthy = by_ordinal.values().find(|pod| !is_healthy(set, pod, now)).copied();
    let mut shrinking = false;
    for pod in condemned {
        shrinking = true;
        if pods::is_terminating(pod) {
            if ordered {
                return step;
            }
            continue;
        }
        // An unhealthy one goes only if it is the first, so that no more than one is missing at a time.
        let first_unhealthy = unhealthy.is_some_and(|unhealthy| Arc::ptr_eq(unhealthy, pod));
        if ordered && !is_available(set, pod, now) && !first_unhealthy {
            return step;
        }
        step.delete.push(pod.clone());
        if ordered {
            return step;
        }
    }
    if shrinking || !step.create.is_empty() || !step.delete.is_empty() || !is_rolling(set) {
        return step;
    }
    let replicas: Vec<&Arc<Pod>> = (first..last).filter_map(|ordinal| by_ordinal.get(&ordinal).copied()).collect();
    step.delete = update(set, &replicas, updated, ordered, now);
    step
}

/// Which Pods to replace by ones of the updated revision.
fn update(set: &StatefulSet, replicas: &[&Arc<Pod>], updated: &str, ordered: bool, now: Timestamp) -> Vec<Arc<Pod>> {
    let rolling = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let count = i32::try_from(replicas.len()).unwrap_or(i32::MAX);
    let most = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).and_then(|most| resolve(most, count, Round::Up));
    let most = usize::try_from(most.unwrap_or(1).max(1)).unwrap_or(1);
    let below = usize::try_from(partition(set)).unwrap_or(0);
    let is_old = |pod: &Pod| revision(pod) != updated && !pods::is_terminating(pod);
    let unavailable = replicas.iter().filter(|pod| !is_healthy(set, pod, now)).count();
    let candidates = || replicas.iter().skip(below).rev().filter(|pod| is_old(pod)).map(|pod| (*pod).clone());
    let mut gone = Vec::new();
    if !ordered {
        // Those that are unavailable anyway cost nothing.
        gone.extend(candidates().filter(|pod| !is_available(set, pod, now)));
        let room = most.saturating_sub(unavailable);
        gone.extend(candidates().filter(|pod| is_available(set, pod, now)).take(room));
        return gone;
    }
    gone.extend(candidates().take(most.saturating_sub(unavailable)));
    gone
}

/// What the status should say. `current` and `updated` are the names of the two revisions.
pub fn status(
    set: &StatefulSet,
    pods: &[Arc<Pod>],
    current: &str,
    updated: &str,
    collisions: Option<i32>,
    now: Timestamp,
) -> StatefulSetStatus {
    let old = set.status.clone().unwrap_or_default();
    let count = |test: &dyn Fn(&Pod) -> bool| {
        let found = pods.iter().filter(|pod| ordinal(set, pod).is_some() && test(pod)).count();
        i32::try_from(found).unwrap_or(i32::MAX)
    };
    let some = |count: i32| (count > 0).then_some(count);
    let of = |pod: &Pod, name: &str| pods::is_active(pod) && revision(pod) == name;
    let mut status = StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas: count(&|pod| !pods::is_finished(pod)),
        ready_replicas: some(count(&|pod| pods::phase(pod) == "Running" && pods::is_ready(pod))),
        available_replicas: Some(count(&|pod| is_available(set, pod, now))),
        current_replicas: some(count(&|pod| of(pod, current))),
        updated_replicas: some(count(&|pod| of(pod, updated))),
        current_revision: Some(current.to_owned()),
        update_revision: Some(updated.to_owned()),
        collision_count: Some(collisions.unwrap_or(0)),
        conditions: old.conditions,
    };
    let wanted = set.spec.replicas.unwrap_or(1);
    let all = |count: Option<i32>| count.unwrap_or(0) == wanted;
    if is_rolling(set) && current != updated && status.replicas == wanted && all(status.updated_replicas) && all(status.ready_replicas) {
        // The update is complete; what was new is current from now on.
        status.current_revision = Some(updated.to_owned());
        status.current_replicas = status.updated_replicas;
    }
    status
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(spec: serde_json::Value) -> StatefulSet {
        let mut spec = spec;
        spec["selector"] = json!({});
        spec["template"] = json!({});
        spec["serviceName"] = json!("s");
        serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap()
    }

    fn pod(ordinal: i32, revision: &str, ready: bool) -> Arc<Pod> {
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]});
        Arc::new(
            serde_json::from_value(
                json!({"metadata": {"name": format!("web-{ordinal}"), "labels": {"controller-revision-hash": revision}},
                "status": status}),
            )
            .unwrap(),
        )
    }

    fn plan(set: &StatefulSet, pods: &[Arc<Pod>]) -> (Vec<i32>, Vec<String>) {
        let step = step(set, pods, "new", Timestamp::UNIX_EPOCH);
        (step.create.iter().map(|(n, _)| *n).collect(), step.delete.iter().filter_map(|pod| pod.metadata.name.clone()).collect())
    }

    #[test]
    fn pods_come_one_after_the_other() {
        let set = set(json!({"replicas": 3}));
        assert_eq!(plan(&set, &[]), (vec![0], vec![]));
        assert_eq!(plan(&set, &[pod(0, "new", false)]), (vec![], vec![]));
        assert_eq!(plan(&set, &[pod(0, "new", true)]), (vec![1], vec![]));
    }

    #[test]
    fn a_parallel_set_waits_for_nobody() {
        let set = set(json!({"replicas": 3, "podManagementPolicy": "Parallel"}));
        assert_eq!(plan(&set, &[pod(1, "new", false)]), (vec![0, 2], vec![]));
    }

    #[test]
    fn the_highest_ordinal_goes_first() {
        let set = set(json!({"replicas": 1}));
        let pods: Vec<_> = (0..3).map(|n| pod(n, "new", true)).collect();
        assert_eq!(plan(&set, &pods), (vec![], vec!["web-2".into()]));
    }

    #[test]
    fn an_update_goes_from_the_highest_ordinal_down_to_the_partition() {
        let set = set(json!({"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}));
        let old: Vec<_> = (0..3).map(|n| pod(n, "old", true)).collect();
        assert_eq!(plan(&set, &old), (vec![], vec!["web-2".into()]));
        let half = [pod(0, "old", true), pod(1, "old", true), pod(2, "new", false)];
        assert_eq!(plan(&set, &half), (vec![], vec![]), "one at a time");
        let done = [pod(0, "old", true), pod(1, "new", true), pod(2, "new", true)];
        assert_eq!(plan(&set, &done), (vec![], vec![]), "below the partition nothing changes");
    }

    #[test]
    fn below_the_partition_a_lost_pod_comes_back_as_it_was() {
        let set = set(json!({"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": 1}}}));
        assert_eq!(step(&set, &[], "new", Timestamp::UNIX_EPOCH).create, [(0, false)]);
    }

    #[test]
    fn a_complete_update_makes_the_new_revision_current() {
        let set = set(json!({"replicas": 2}));
        let pods = [pod(0, "new", true), pod(1, "new", true)];
        let status = status(&set, &pods, "old", "new", None, Timestamp::UNIX_EPOCH);
        assert_eq!((status.current_revision.as_deref(), status.current_replicas), (Some("new"), Some(2)));
    }
}
