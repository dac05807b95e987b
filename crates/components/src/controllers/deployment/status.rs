//! A Deployment's status: its counts, and the conditions that `kubectl rollout status` and `kubectl wait` watch.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::rollout::Bounds;
use crate::{
    clock::{later, left},
    controllers::pods::seconds,
};

const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// The deadline of a rollout, if it has one.
pub fn progress_deadline(deployment: &Deployment) -> Option<Duration> {
    deployment.spec.progress_deadline_seconds.filter(|s| *s != i32::MAX).map(|s| seconds(Some(s)))
}

/// A condition of now.
pub fn condition(r#type: &str, status: &str, reason: &str, message: String, now: &Time) -> DeploymentCondition {
    DeploymentCondition {
        type_: Some(r#type.into()),
        status: Some(status.into()),
        reason: Some(reason.into()),
        message: Some(message),
        last_update_time: Some(now.clone()),
        last_transition_time: Some(now.clone()),
    }
}

/// One condition of a status.
pub fn find<'a>(status: &'a DeploymentStatus, r#type: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_.as_deref() == Some(r#type))
}

/// The reason of the Progressing condition.
pub fn progressing_reason(status: &DeploymentStatus) -> Option<&str> {
    find(status, PROGRESSING)?.reason.as_deref()
}

/// Sets a condition. One that says the same, for the same reason, stays as it is.
pub fn set(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    let r#type = condition.type_.clone().unwrap_or_default();
    if let Some(current) = find(status, &r#type).filter(|current| current.status == condition.status) {
        if current.reason == condition.reason {
            return;
        }
        condition.last_transition_time = current.last_transition_time.clone();
    }
    remove(status, &r#type);
    status.conditions.get_or_insert_default().push(condition);
}

fn remove(status: &mut DeploymentStatus, r#type: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_.as_deref() != Some(r#type));
        if conditions.is_empty() {
            status.conditions = None;
        }
    }
}

/// The counts and the Available condition.
pub fn counts(deployment: &Deployment, all: &[Arc<ReplicaSet>], new: Option<&ReplicaSet>, now: &Time) -> DeploymentStatus {
    let old = deployment.status.clone().unwrap_or_default();
    let some = |count: i32| (count > 0).then_some(count);
    let sum = |field: fn(&k8s_openapi::api::apps::v1::ReplicaSetStatus) -> Option<i32>| -> i32 {
        all.iter().filter_map(|set| set.status.as_ref().and_then(field)).sum()
    };
    let available = sum(|status| status.available_replicas);
    let wanted: i32 = all.iter().map(|set| set.spec.replicas.unwrap_or(1)).sum();
    let terminating = sum(|status| status.terminating_replicas);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(sum(|status| Some(status.replicas))),
        updated_replicas: some(new.and_then(|set| set.status.as_ref()).map_or(0, |status| status.replicas)),
        ready_replicas: some(sum(|status| status.ready_replicas)),
        available_replicas: some(available),
        unavailable_replicas: some((wanted - available).max(0)),
        terminating_replicas: all
            .iter()
            .any(|set| set.status.as_ref().is_some_and(|s| s.terminating_replicas.is_some()))
            .then_some(terminating),
        collision_count: old.collision_count,
        conditions: old.conditions,
    };
    let bounds = Bounds::of(deployment);
    let (truth, reason, message) = if available >= bounds.replicas - bounds.unavailable {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set(&mut status, condition(AVAILABLE, truth, reason, message.into(), now));
    status
}

/// Whether everything is as it should be.
pub fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = deployment.spec.replicas.unwrap_or(1);
    let is = |count: Option<i32>| count.unwrap_or(0) == wanted;
    is(status.updated_replicas)
        && is(status.replicas)
        && is(status.available_replicas)
        && status.observed_generation >= deployment.metadata.generation
}

fn is_progressing(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let n = |count: Option<i32>| count.unwrap_or(0);
    n(new.updated_replicas) > n(old.updated_replicas)
        || n(new.replicas) - n(new.updated_replicas) < n(old.replicas) - n(old.updated_replicas)
        || n(new.ready_replicas) > n(old.ready_replicas)
        || n(new.available_replicas) > n(old.available_replicas)
}

fn has_timed_out(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> bool {
    let Some(progress) = find(status, PROGRESSING) else { return false };
    match progress.reason.as_deref() {
        Some(NEW_SET_AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        _ => match (&progress.last_update_time, progress_deadline(deployment)) {
            (Some(since), Some(deadline)) => later(since.0, deadline) < now,
            _ => false,
        },
    }
}

/// The whole status during and after a rollout.
pub fn rollout(deployment: &Deployment, all: &[Arc<ReplicaSet>], new: Option<&ReplicaSet>, now: &Time) -> DeploymentStatus {
    let old = deployment.status.clone().unwrap_or_default();
    let mut status = counts(deployment, all, new, now);
    let name = match new {
        Some(set) => format!("ReplicaSet {:?}", set.metadata.name.as_deref().unwrap_or_default()),
        None => format!("Deployment {:?}", deployment.metadata.name.as_deref().unwrap_or_default()),
    };
    if progress_deadline(deployment).is_none() {
        remove(&mut status, PROGRESSING);
    } else {
        let was_complete = status.replicas == status.updated_replicas && progressing_reason(&old) == Some(NEW_SET_AVAILABLE);
        if !was_complete {
            if is_complete(deployment, &status) {
                let message = format!("{name} has successfully progressed.");
                set(&mut status, condition(PROGRESSING, "True", NEW_SET_AVAILABLE, message, now));
            } else if is_progressing(&old, &status) {
                let mut progress = condition(PROGRESSING, "True", "ReplicaSetUpdated", format!("{name} is progressing."), now);
                if let Some(current) = find(&old, PROGRESSING) {
                    if current.status.as_deref() == Some("True") {
                        progress.last_transition_time = current.last_transition_time.clone();
                    }
                    // The time of the last progress must move even if the words stay the same.
                    remove(&mut status, PROGRESSING);
                }
                set(&mut status, progress);
            } else if has_timed_out(deployment, &status, now.0) {
                let message = format!("{name} has timed out progressing.");
                set(&mut status, condition(PROGRESSING, "False", TIMED_OUT, message, now));
            }
        }
    }
    let failure = new.and_then(replica_failure).or_else(|| all.iter().find_map(|set| replica_failure(set)));
    match failure {
        Some(failure) => set(&mut status, failure),
        None => remove(&mut status, REPLICA_FAILURE),
    }
    status
}

fn replica_failure(set: &ReplicaSet) -> Option<DeploymentCondition> {
    let conditions = set.status.as_ref()?.conditions.as_ref()?;
    let failure = conditions.iter().find(|condition| condition.type_.as_deref() == Some(REPLICA_FAILURE))?;
    Some(DeploymentCondition {
        type_: Some(REPLICA_FAILURE.into()),
        status: failure.status.clone(),
        reason: failure.reason.clone(),
        message: failure.message.clone(),
        last_update_time: failure.last_transition_time.clone(),
        last_transition_time: failure.last_transition_time.clone(),
    })
}

/// The condition for having been paused or resumed, if it must change.
pub fn pause(deployment: &Deployment, now: &Time) -> Option<DeploymentCondition> {
    progress_deadline(deployment)?;
    let status = deployment.status.clone().unwrap_or_default();
    let reason = progressing_reason(&status);
    if reason == Some(TIMED_OUT) {
        return None;
    }
    let paused = deployment.spec.paused == Some(true);
    match (paused, reason == Some(PAUSED)) {
        (true, false) => Some(condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused".into(), now)),
        (false, true) => Some(condition(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed".into(), now)),
        _ => None,
    }
}

/// The condition for a new ReplicaSet: made, found, or refused.
pub fn new_set(reason: &str, message: String, now: &Time) -> DeploymentCondition {
    let status = if reason == "ReplicaSetCreateError" { "False" } else { "True" };
    condition(PROGRESSING, status, reason, message, now)
}

/// When to look again whether a rollout that does not move has timed out.
pub fn check_in(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> Option<Duration> {
    let deadline = progress_deadline(deployment)?;
    let progress = find(status, PROGRESSING)?;
    if is_complete(deployment, status) || progress.reason.as_deref() == Some(TIMED_OUT) || deployment.spec.paused == Some(true) {
        return None;
    }
    // A second more, because the times in the status are whole seconds.
    Some(left(now, later(progress.last_update_time.as_ref()?.0, deadline)) + Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn time(text: &str) -> Time {
        Time(text.parse().unwrap())
    }

    fn deployment(status: serde_json::Value) -> Deployment {
        serde_json::from_value(json!({"metadata": {"name": "web", "generation": 2},
            "spec": {"replicas": 3, "progressDeadlineSeconds": 600, "selector": {}, "template": {}}, "status": status}))
        .unwrap()
    }

    fn set(name: &str, replicas: i32, available: i32) -> Arc<ReplicaSet> {
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {}},
                "status": {"replicas": replicas, "readyReplicas": available, "availableReplicas": available}}))
            .unwrap(),
        )
    }

    #[test]
    fn a_complete_rollout_is_available_and_has_progressed() {
        let new = set("web-1", 3, 3);
        let status = rollout(&deployment(json!({})), std::slice::from_ref(&new), Some(&new), &time("2030-01-01T00:00:00Z"));
        assert_eq!((status.replicas, status.updated_replicas, status.observed_generation), (Some(3), Some(3), Some(2)));
        let progress = find(&status, "Progressing").unwrap();
        assert_eq!(progress.reason.as_deref(), Some("NewReplicaSetAvailable"));
        assert_eq!(progress.message.as_deref(), Some("ReplicaSet \"web-1\" has successfully progressed."));
        assert_eq!(find(&status, "Available").unwrap().reason.as_deref(), Some("MinimumReplicasAvailable"));
    }

    #[test]
    fn a_rollout_that_stands_still_times_out() {
        let new = set("web-2", 1, 0);
        let old = set("web-1", 3, 3);
        let all = [old, new.clone()];
        let first = rollout(&deployment(json!({})), &all, Some(&new), &time("2030-01-01T00:00:00Z"));
        assert_eq!(progressing_reason(&first), Some("ReplicaSetUpdated"));
        let stuck = deployment(serde_json::to_value(&first).unwrap());
        assert_eq!(check_in(&stuck, &first, "2030-01-01T00:03:20Z".parse().unwrap()), Some(Duration::from_secs(401)));
        let late = rollout(&stuck, &all, Some(&new), &time("2030-01-01T00:10:01Z"));
        let progress = find(&late, "Progressing").unwrap();
        assert_eq!((progress.status.as_deref(), progress.reason.as_deref()), (Some("False"), Some("ProgressDeadlineExceeded")));
        assert_eq!(progress.message.as_deref(), Some("ReplicaSet \"web-2\" has timed out progressing."));
    }

    #[test]
    fn pausing_and_resuming_shows_in_the_progress() {
        let now = time("2030-01-01T00:00:00Z");
        let mut paused = deployment(json!({}));
        paused.spec.paused = Some(true);
        let condition = pause(&paused, &now).unwrap();
        assert_eq!(condition.reason.as_deref(), Some("DeploymentPaused"));
        super::set(paused.status.get_or_insert_default(), condition);
        assert!(pause(&paused, &now).is_none());
        paused.spec.paused = None;
        assert_eq!(pause(&paused, &now).unwrap().reason.as_deref(), Some("DeploymentResumed"));
    }
}
