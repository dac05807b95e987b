//! What is decided about Jobs, step by step.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::{batch::v1::Job, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::decide::{Decision, decide, has, is_finished};

const START: &str = "2030-01-01T00:00:00Z";

fn job(spec: Value) -> Job {
    let mut spec = spec;
    spec["template"] = json!({"spec": {"containers": []}});
    serde_json::from_value(json!({"metadata": {"name": "j", "namespace": "a", "uid": "j"}, "spec": spec})).unwrap()
}

fn pod(uid: &str, phase: &str, tracked: bool, index: Option<i32>) -> Arc<Pod> {
    let finalizers = if tracked { json!(["batch.kubernetes.io/job-tracking"]) } else { json!([]) };
    let annotations = index.map(|index| json!({"batch.kubernetes.io/job-completion-index": index.to_string()}));
    let state = json!([{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 1, "finishedAt": START}}}]);
    let statuses = if phase == "Running" { json!([]) } else { state };
    Arc::new(
        serde_json::from_value(
            json!({"metadata": {"name": uid, "namespace": "a", "uid": uid, "finalizers": finalizers, "annotations": annotations},
            "status": {"phase": phase, "containerStatuses": statuses}}),
        )
        .unwrap(),
    )
}

fn at(job: &Job, pods: &[Arc<Pod>], time: &str) -> Decision {
    let time: jiff::Timestamp = time.parse().unwrap();
    decide(job, pods, &Time(time), time)
}

#[test]
fn as_many_pods_are_started_as_may_run_at_once() {
    let decision = at(&job(json!({"completions": 5, "parallelism": 2})), &[], START);
    assert_eq!(decision.create, [None, None]);
    assert!(decision.status.start_time.is_some());
}

#[test]
fn a_pod_is_noted_then_released_then_counted_and_the_job_completes() {
    let mut job = job(json!({"completions": 1, "parallelism": 1}));
    let first = at(&job, &[pod("p", "Succeeded", true, None)], START);
    assert_eq!(first.status.uncounted_terminated_pods.clone().unwrap().succeeded, Some(vec!["p".into()]));
    assert_eq!(first.release.len(), 1);
    assert!(has(&first.status, "SuccessCriteriaMet").is_some() && !is_finished(&first.status));
    job.status = Some(first.status);
    let second = at(&job, &[pod("p", "Succeeded", false, None)], START);
    assert_eq!(second.status.succeeded, Some(1));
    let complete = has(&second.status, "Complete").unwrap();
    assert_eq!(complete.reason.as_deref(), Some("CompletionsReached"));
    assert!(second.status.completion_time.is_some());
    assert_eq!(second.events, [(false, "Completed".into(), "Job completed".into())]);
}

#[test]
fn a_failed_pod_is_replaced_after_a_while() {
    let mut job = job(json!({"completions": 1, "parallelism": 1, "backoffLimit": 3}));
    let failed = [pod("p", "Failed", true, None)];
    let early = at(&job, &failed, "2030-01-01T00:00:04Z");
    assert!(early.create.is_empty());
    assert_eq!(early.again, Some(Duration::from_secs(6)));
    job.status = Some(early.status);
    assert_eq!(at(&job, &failed, "2030-01-01T00:00:10Z").create.len(), 1);
}

#[test]
fn too_many_failures_fail_the_job_and_take_the_others_along() {
    let job = job(json!({"completions": 3, "parallelism": 2, "backoffLimit": 0}));
    let decision = at(&job, &[pod("bad", "Failed", true, None), pod("good", "Running", true, None)], START);
    let target = has(&decision.status, "FailureTarget").unwrap();
    assert_eq!(target.reason.as_deref(), Some("BackoffLimitExceeded"));
    assert_eq!(decision.delete.len(), 1);
    assert!(!is_finished(&decision.status), "not before the others are gone");
}

#[test]
fn a_deadline_fails_the_job() {
    let mut job = job(json!({"activeDeadlineSeconds": 60, "parallelism": 1, "completions": 1}));
    job.status = Some(at(&job, &[], START).status);
    let running = [pod("p", "Running", true, None)];
    let decision = at(&job, &running, "2030-01-01T00:00:30Z");
    assert_eq!(decision.again, Some(Duration::from_millis(30_010)));
    let late = at(&job, &running, "2030-01-01T00:01:00Z");
    assert_eq!(has(&late.status, "FailureTarget").unwrap().reason.as_deref(), Some("DeadlineExceeded"));
}

#[test]
fn a_suspended_job_gives_up_its_pods_and_starts_anew() {
    let mut job = job(json!({"completions": 1, "parallelism": 1, "suspend": true}));
    let decision = at(&job, &[pod("p", "Running", true, None)], START);
    assert_eq!((decision.delete.len(), decision.status.start_time.clone()), (1, None));
    assert_eq!(decision.events[0].1, "Suspended");
    job.status = Some(decision.status);
    job.spec.as_mut().unwrap().suspend = Some(false);
    let resumed = at(&job, &[], "2030-01-01T00:05:00Z");
    assert_eq!(resumed.create.len(), 1);
    assert_eq!(resumed.events[0].1, "Resumed");
}

#[test]
fn an_indexed_job_runs_every_index_once() {
    let job = job(json!({"completions": 4, "parallelism": 2, "completionMode": "Indexed"}));
    let pods = [pod("a", "Succeeded", true, Some(0)), pod("b", "Running", true, Some(1))];
    let decision = at(&job, &pods, START);
    assert_eq!(decision.create, [Some(2)]);
    assert_eq!(decision.status.completed_indexes.as_deref(), Some("0"));
}
