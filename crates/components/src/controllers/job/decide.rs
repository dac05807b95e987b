//! What to do next about a Job, given its Pods: one step of the way, as a plain function.
//!
//! Finished Pods are counted in two writes, so that none is lost and none counted twice: first its uid is noted in the
//! status, then its finalizer is removed, then the note becomes a number. The controller asks again after every step
//! until there is nothing left to do.

use std::{collections::HashSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobCondition, JobSpec, JobStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    indexes::Indexes,
    pod,
    policy::{self, Failure},
};
use crate::{
    clock::{later, left},
    controllers::pods,
};

const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LAST_BACKOFF: Duration = Duration::from_secs(600);
/// How many Pods may be noted at once, so that the status stays small.
const NOTED: usize = 500;
const AT_ONCE: usize = 500;

/// The next step.
#[derive(Debug, Default)]
pub struct Decision {
    /// The status, if nothing of the following changes it.
    pub status: JobStatus,
    /// Pods to create: one per entry, with its index if the Job is indexed.
    pub create: Vec<Option<i32>>,
    /// Pods to delete.
    pub delete: Vec<Arc<Pod>>,
    /// Whether the Pods to delete are only too many and not failures, and must not be counted.
    pub uncounted: bool,
    /// Pods whose finalizer can go once the status is written.
    pub release: Vec<Arc<Pod>>,
    /// What to tell: whether it is a warning, the reason and the message.
    pub events: Vec<(bool, String, String)>,
    /// When to look again.
    pub again: Option<Duration>,
}

/// One condition that is true.
pub fn has(status: &JobStatus, r#type: &str) -> Option<JobCondition> {
    status.conditions.iter().flatten().find(|c| c.type_ == r#type && c.status == "True").cloned()
}

/// Whether the Job is over.
pub fn is_finished(status: &JobStatus) -> bool {
    has(status, "Complete").or_else(|| has(status, "Failed")).is_some()
}

fn condition(r#type: &str, reason: &str, message: &str, now: &Time) -> JobCondition {
    JobCondition {
        type_: r#type.into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_probe_time: Some(now.clone()),
        last_transition_time: Some(now.clone()),
    }
}

/// Everything the steps share.
struct View<'a> {
    job: &'a Job,
    spec: &'a JobSpec,
    pods: &'a [Arc<Pod>],
    active: Vec<Arc<Pod>>,
    succeeded: i32,
    failed: i32,
    succeeded_indexes: Indexes,
    failed_indexes: Indexes,
    now: &'a Time,
}

/// Decides on the next step.
pub fn decide(job: &Job, pods: &[Arc<Pod>], time: &Time, now: Timestamp) -> Decision {
    let Some(spec) = job.spec.as_ref() else { return Decision::default() };
    let mut status = job.status.clone().unwrap_or_default();
    count_released(&mut status, pods);
    let indexed = spec.completion_mode.as_deref() == Some("Indexed");
    let mut view = View {
        job,
        spec,
        pods,
        active: pods.iter().filter(|pod| pods::is_active(pod)).cloned().collect(),
        succeeded: 0,
        failed: 0,
        succeeded_indexes: Indexes::default(),
        failed_indexes: Indexes::default(),
        now: time,
    };
    view.count(&status, indexed);
    let suspended = spec.suspend == Some(true);
    if status.start_time.is_none() && !suspended {
        status.start_time = Some(time.clone());
    }
    let mut decision = Decision::default();
    let verdict = has(&status, "SuccessCriteriaMet").or_else(|| has(&status, "FailureTarget")).or_else(|| view.ends(&status, indexed, now));
    match &verdict {
        Some(_) => decision.delete = view.active.clone(),
        None => {
            decision.uncounted = true;
            if job.metadata.deletion_timestamp.is_none() {
                view.manage(&mut decision, indexed, suspended, now);
            }
            if let (Some(seconds), Some(start), false) = (spec.active_deadline_seconds, &status.start_time, suspended) {
                let deadline = later(start.0, Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
                let wait = left(now, deadline) + Duration::from_millis(10);
                decision.again = Some(decision.again.map_or(wait, |again| again.min(wait)));
            }
            suspend(&mut status, suspended, time, &mut decision);
        }
    }
    if let Some(verdict) = &verdict
        && has(&status, &verdict.type_).is_none()
    {
        status.conditions.get_or_insert_default().push(verdict.clone());
    }
    view.note(&mut status, &mut decision, verdict.as_ref(), indexed);
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let terminating = pods.iter().filter(|pod| pods::is_terminating(pod) && !pods::is_finished(pod)).count();
    status.active = Some(number(view.active.len())).filter(|n| *n > 0);
    status.ready = Some(number(view.active.iter().filter(|pod| pods::is_ready(pod)).count()));
    status.terminating = Some(number(terminating));
    if let Some(verdict) = verdict
        && view.active.is_empty()
        && terminating == 0
        && !pods.iter().any(|pod| pod::is_tracked(pod))
        && noted(&status).is_empty()
    {
        finish(&mut status, &verdict, time, &mut decision);
    }
    decision.status = status;
    decision
}

fn noted(status: &JobStatus) -> HashSet<String> {
    let uncounted = status.uncounted_terminated_pods.as_ref();
    uncounted.into_iter().flat_map(|u| u.succeeded.iter().flatten().chain(u.failed.iter().flatten())).cloned().collect()
}

/// Turns notes about Pods whose finalizer is gone into numbers.
fn count_released(status: &mut JobStatus, pods: &[Arc<Pod>]) {
    let tracked: HashSet<_> = pods.iter().filter(|pod| pod::is_tracked(pod)).filter_map(|pod| pod.metadata.uid.clone()).collect();
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    for (notes, count) in [(&mut uncounted.succeeded, &mut status.succeeded), (&mut uncounted.failed, &mut status.failed)] {
        let Some(list) = notes else { continue };
        let before = list.len();
        list.retain(|uid| tracked.contains(uid));
        let released = i32::try_from(before - list.len()).unwrap_or(0);
        if released > 0 {
            *count = Some(count.unwrap_or(0) + released);
        }
        if list.is_empty() {
            *notes = None;
        }
    }
}

impl View<'_> {
    fn is_new(&self, pod: &Pod, notes: &HashSet<String>) -> bool {
        pod::is_tracked(pod) && pod.metadata.uid.as_ref().is_none_or(|uid| !notes.contains(uid))
    }

    fn count(&mut self, status: &JobStatus, indexed: bool) {
        let notes = noted(status);
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let length = |list: &Option<Vec<String>>| list.as_ref().map_or(0, Vec::len);
        let new = |test: &dyn Fn(&Pod) -> bool| self.pods.iter().filter(|pod| self.is_new(pod, &notes) && test(pod)).count();
        let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        let failed = new(&|pod| policy::is_failed(self.job, pod) && policy::failure(self.job, pod) != Failure::Ignore);
        let succeeded = new(&|pod| pods::phase(pod) == "Succeeded");
        self.failed = status.failed.unwrap_or(0) + number(failed + length(&uncounted.failed));
        self.succeeded = status.succeeded.unwrap_or(0) + number(succeeded + length(&uncounted.succeeded));
        if let (true, Some(completions)) = (indexed, self.spec.completions) {
            let mut done = Indexes::parse(status.completed_indexes.as_deref().unwrap_or_default(), completions);
            for pod in self.pods.iter().filter(|pod| pods::phase(pod) == "Succeeded" && pod::is_tracked(pod)) {
                pod::index(pod).filter(|index| *index < completions).into_iter().for_each(|index| done.insert(index));
            }
            self.succeeded = number(done.len());
            if let Some(limit) = self.spec.backoff_limit_per_index {
                let mut lost = Indexes::parse(status.failed_indexes.as_deref().unwrap_or_default(), completions);
                for pod in self.pods.iter().filter(|pod| policy::is_failed(self.job, pod)) {
                    let Some(index) = pod::index(pod).filter(|index| *index < completions && !done.contains(*index)) else { continue };
                    let meaning = policy::failure(self.job, pod);
                    if meaning == Failure::FailIndex || (meaning != Failure::Ignore && pod::earlier_failures(pod) >= limit) {
                        lost.insert(index);
                    }
                }
                self.failed_indexes = lost;
            }
            self.succeeded_indexes = done;
        }
    }

    /// Whether the Job ends now, and how.
    fn ends(&self, status: &JobStatus, indexed: bool, now: Timestamp) -> Option<JobCondition> {
        let failed = |reason: &str, message: &str| Some(condition("FailureTarget", reason, message, self.now));
        let by_policy =
            self.pods.iter().filter(|pod| policy::is_failed(self.job, pod)).find_map(|pod| match policy::failure(self.job, pod) {
                Failure::FailJob(message) => Some(message),
                _ => None,
            });
        if let Some(message) = by_policy {
            return failed("PodFailurePolicy", &message);
        }
        let limit = self.spec.backoff_limit.unwrap_or(6);
        if self.failed > limit || self.restarts_exceed(limit) {
            return failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        }
        if let (Some(seconds), Some(start)) = (self.spec.active_deadline_seconds, &status.start_time)
            && self.spec.suspend != Some(true)
            && later(start.0, Duration::from_secs(u64::try_from(seconds).unwrap_or(0))) <= now
        {
            return failed("DeadlineExceeded", "Job was active longer than specified deadline");
        }
        let completions = self.spec.completions;
        if indexed && self.spec.backoff_limit_per_index.is_some() {
            let lost = i32::try_from(self.failed_indexes.len()).unwrap_or(i32::MAX);
            if self.spec.max_failed_indexes.is_some_and(|most| lost > most) {
                return failed("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes");
            }
            if lost > 0 && completions.is_some_and(|completions| lost + self.succeeded >= completions) {
                return failed("FailedIndexes", "Job has failed indexes");
            }
        }
        if indexed && let Some(message) = policy::success(self.job, &self.succeeded_indexes) {
            return Some(condition("SuccessCriteriaMet", "SuccessPolicy", &message, self.now));
        }
        let complete = match completions {
            None => self.succeeded > 0 && self.active.is_empty(),
            Some(completions) => self.succeeded >= completions && self.active.is_empty(),
        };
        let suspended = self.spec.suspend == Some(true) && completions.is_none_or(|completions| self.succeeded < completions);
        let reached = "Reached expected number of succeeded pods";
        (complete && !suspended).then(|| condition("SuccessCriteriaMet", "CompletionsReached", reached, self.now))
    }

    fn restarts_exceed(&self, limit: i32) -> bool {
        let policy = self.spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        if policy != Some("OnFailure") {
            return false;
        }
        let running = self.pods.iter().filter(|pod| matches!(pods::phase(pod), "Running" | "Pending"));
        let statuses = running.filter_map(|pod| pod.status.as_ref());
        let all = statuses.flat_map(|s| s.init_container_statuses.iter().flatten().chain(s.container_statuses.iter().flatten()));
        let restarts: i32 = all.map(|container| container.restart_count).sum();
        if limit == 0 { restarts > 0 } else { restarts >= limit }
    }

    /// How many Pods there should be, and which ones to add or take away.
    fn manage(&self, decision: &mut Decision, indexed: bool, suspended: bool, now: Timestamp) {
        if suspended {
            decision.delete = self.active.clone();
            return;
        }
        let parallelism = self.spec.parallelism.unwrap_or(1);
        let active = i32::try_from(self.active.len()).unwrap_or(i32::MAX);
        let wanted = match self.spec.completions {
            None if self.succeeded > 0 => active,
            None => parallelism,
            Some(completions) => {
                let lost = i32::try_from(self.failed_indexes.len()).unwrap_or(0);
                parallelism.min(completions - self.succeeded - lost).max(0)
            }
        };
        if active > wanted {
            decision.delete = self.surplus(usize::try_from(active - wanted).unwrap_or(0), indexed, now);
            return;
        }
        // Where only failed Pods are replaced, one that is on its way out still holds its place.
        let waits = self.spec.pod_failure_policy.is_some() || self.spec.pod_replacement_policy.as_deref() == Some("Failed");
        let leaving = self.pods.iter().filter(|pod| waits && pods::is_terminating(pod) && !pods::is_finished(pod)).count();
        let missing = usize::try_from(wanted - active).unwrap_or(0).saturating_sub(leaving).min(AT_ONCE);
        if missing == 0 {
            return;
        }
        let per_index = self.spec.backoff_limit_per_index.is_some();
        if !per_index && let Some(wait) = self.backoff(|_| true, now) {
            decision.again = Some(wait);
            return;
        }
        if !indexed {
            decision.create = vec![None; missing];
            return;
        }
        let taken: HashSet<i32> = self.active.iter().filter_map(|pod| pod::index(pod)).collect();
        let free = (0..self.spec.completions.unwrap_or(0))
            .filter(|index| !taken.contains(index) && !self.succeeded_indexes.contains(*index) && !self.failed_indexes.contains(*index));
        for index in free.take(missing) {
            match self.backoff(|pod| pod::index(pod) == Some(index), now).filter(|_| per_index) {
                Some(wait) => decision.again = Some(decision.again.map_or(wait, |again| again.min(wait))),
                None => decision.create.push(Some(index)),
            }
        }
    }

    /// How long to wait before failed Pods are replaced: ten seconds, doubled with every failure since the last success.
    fn backoff(&self, of: impl Fn(&Pod) -> bool, now: Timestamp) -> Option<Duration> {
        let pods: Vec<_> = self.pods.iter().filter(|pod| of(pod)).collect();
        let success = pods.iter().filter(|pod| pods::phase(pod) == "Succeeded").filter_map(|pod| ended(pod)).max();
        let failures: Vec<_> = pods
            .iter()
            .filter(|pod| policy::is_failed(self.job, pod) && policy::failure(self.job, pod) != Failure::Ignore)
            .filter_map(|pod| ended(pod))
            .filter(|at| success.is_none_or(|success| *at > success))
            .collect();
        let last = failures.iter().max()?;
        let doubled = FIRST_BACKOFF.saturating_mul(1 << (failures.len() - 1).min(10)).min(LAST_BACKOFF);
        let wait = left(now, later(*last, doubled));
        (!wait.is_zero()).then_some(wait)
    }

    fn surplus(&self, many: usize, indexed: bool, now: Timestamp) -> Vec<Arc<Pod>> {
        let mut left = self.active.clone();
        let mut gone = Vec::new();
        if indexed {
            let mut seen = HashSet::new();
            let completions = self.spec.completions.unwrap_or(0);
            left.sort_by_key(|pod| (!pods::is_ready(pod), pod.metadata.creation_timestamp.clone()));
            let keeps = |pod: &Arc<Pod>| pod::index(pod).is_some_and(|index| index < completions && seen.insert(index));
            (left, gone) = left.into_iter().partition(keeps);
        }
        pods::sort_for_deletion(&mut left, &self.active, now);
        gone.extend(left.into_iter().take(many.saturating_sub(gone.len())));
        gone
    }

    /// Notes finished Pods in the status, and lets go of those that are noted.
    fn note(&self, status: &mut JobStatus, decision: &mut Decision, verdict: Option<&JobCondition>, indexed: bool) {
        let notes = noted(status);
        let success = verdict.is_some_and(|verdict| verdict.type_ == "SuccessCriteriaMet");
        let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
        for pod in self.pods.iter().filter(|pod| pod::is_tracked(pod)) {
            let Some(uid) = pod.metadata.uid.clone() else { continue };
            let succeeded = pods::phase(pod) == "Succeeded";
            let failed = policy::is_failed(self.job, pod);
            let over = self.job.metadata.deletion_timestamp.is_some() || verdict.is_some();
            if !(succeeded || failed || over) {
                continue;
            }
            decision.release.push(pod.clone());
            if decision.release.len() > NOTED {
                break;
            }
            if notes.contains(&uid) {
                continue;
            }
            if succeeded {
                if !indexed {
                    uncounted.succeeded.get_or_insert_default().push(uid);
                }
            } else if (failed || (verdict.is_some() && !success)) && (!failed || policy::failure(self.job, pod) != Failure::Ignore) {
                uncounted.failed.get_or_insert_default().push(uid);
            }
        }
        if indexed {
            status.completed_indexes = Some(self.succeeded_indexes.to_string()).filter(|text| !text.is_empty());
            status.succeeded = Some(self.succeeded).filter(|count| *count > 0);
            if self.spec.backoff_limit_per_index.is_some() {
                status.failed_indexes = Some(self.failed_indexes.to_string());
            }
        }
    }
}

/// When a Pod ended: when the last of its containers did.
fn ended(pod: &Pod) -> Option<Timestamp> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let ends = statuses.filter_map(|c| c.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref().map(|time| time.0));
    let deleted = pod.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    ends.max().or(deleted).or_else(|| {
        let ready = pods::condition(pod, "Ready").and_then(|ready| ready.last_transition_time.as_ref());
        ready.or(pod.metadata.creation_timestamp.as_ref()).map(|time| time.0)
    })
}

fn suspend(status: &mut JobStatus, suspended: bool, now: &Time, decision: &mut Decision) {
    let was = status.conditions.iter().flatten().find(|c| c.type_ == "Suspended").map(|c| c.status == "True");
    let (truth, reason, message, event) =
        if suspended { ("True", "JobSuspended", "Job suspended", "Suspended") } else { ("False", "JobResumed", "Job resumed", "Resumed") };
    if was == Some(suspended) || (was.is_none() && !suspended) {
        return;
    }
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|c| c.type_ != "Suspended");
    conditions.push(JobCondition { status: truth.into(), ..condition("Suspended", reason, message, now) });
    // The deadline counts from when the Job runs again.
    status.start_time = (!suspended).then(|| now.clone());
    decision.events.push((false, event.into(), message.into()));
}

fn finish(status: &mut JobStatus, verdict: &JobCondition, now: &Time, decision: &mut Decision) {
    let (reason, message) = (verdict.reason.clone().unwrap_or_default(), verdict.message.clone().unwrap_or_default());
    let r#type = if verdict.type_ == "SuccessCriteriaMet" { "Complete" } else { "Failed" };
    status.conditions.get_or_insert_default().push(condition(r#type, &reason, &message, now));
    if r#type == "Complete" {
        status.completion_time = Some(now.clone());
        decision.events.push((false, "Completed".into(), "Job completed".into()));
    } else {
        decision.events.push((true, reason, message));
    }
}
