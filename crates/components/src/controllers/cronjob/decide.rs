//! When a CronJob is due, and what its concurrency policy makes of it.

use std::time::Duration;

use jiff::{Timestamp, tz::TimeZone};
use k8s_openapi::{
    api::{
        batch::v1::{CronJob, Job, JobStatus},
        core::v1::ObjectReference,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use super::schedule::Schedule;
use crate::{
    clock::{later, left},
    controllers::{job::decide::has, owner::controller_reference},
};

/// The times a CronJob was due, seen from now.
#[derive(Debug, PartialEq, Eq)]
pub struct Due {
    /// The latest time that has come, if there is one since the last run.
    pub now: Option<Timestamp>,
    /// Whether more than a hundred were missed, which hints at a wrong clock or a long stop.
    pub many_missed: bool,
    /// When it is due next.
    pub next: Option<Timestamp>,
}

/// The zone that a CronJob's schedule is read in.
pub fn zone(cron: &CronJob) -> Result<TimeZone, String> {
    match cron.spec.time_zone.as_deref() {
        None => Ok(TimeZone::UTC),
        Some(name) => TimeZone::get(name).map_err(|error| format!("invalid timeZone: {name:?}: {error}")),
    }
}

/// When a CronJob is due.
pub fn due(cron: &CronJob, schedule: &Schedule, zone: &TimeZone, now: Timestamp) -> Due {
    let created = cron.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let last = cron.status.as_ref().and_then(|status| status.last_schedule_time.as_ref()).map(|time| time.0);
    let mut earliest = last.unwrap_or(created);
    if let Some(deadline) = deadline(cron) {
        let bound = now.checked_sub(jiff::SignedDuration::try_from(deadline).unwrap_or_default()).unwrap_or(earliest);
        earliest = earliest.max(bound);
    }
    let mut latest = None;
    let mut missed = 0_u32;
    let mut at = schedule.next(earliest, zone);
    while let Some(time) = at.filter(|time| *time <= now) {
        latest = Some(time);
        missed += 1;
        // After a long stop only the newest counts; jump near it instead of walking through years of minutes.
        let far = left(time, now) > Duration::from_secs(7 * 24 * 3600);
        let from = if missed > 100 && far { later(time, left(time, now) / 2) } else { time };
        at = schedule.next(from, zone);
    }
    Due { now: latest, many_missed: missed > 100, next: schedule.next(now, zone) }
}

fn deadline(cron: &CronJob) -> Option<Duration> {
    cron.spec.starting_deadline_seconds.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Whether it is too late to start a run that was due at `time`.
pub fn is_too_late(cron: &CronJob, time: Timestamp, now: Timestamp) -> bool {
    deadline(cron).is_some_and(|deadline| later(time, deadline) < now)
}

/// The name of the Job for a time, the same whenever it is computed.
pub fn job_name(cron: &CronJob, time: Timestamp) -> String {
    format!("{}-{}", cron.metadata.name.as_deref().unwrap_or_default(), time.as_second() / 60)
}

/// The Job for a time.
pub fn job(cron: &CronJob, time: Timestamp, zone: &TimeZone) -> Job {
    let template = &cron.spec.job_template;
    let meta = template.metadata.clone().unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    let local = time.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string().replace("+00:00", "Z");
    annotations.insert("batch.kubernetes.io/cronjob-scheduled-timestamp".into(), local);
    Job {
        metadata: ObjectMeta {
            name: Some(job_name(cron, time)),
            namespace: cron.metadata.namespace.clone(),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference::<CronJob>(&cron.metadata)]),
            creation_timestamp: None,
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// How a Job has ended: `Complete` or `Failed`.
pub fn ending(status: Option<&JobStatus>) -> Option<&'static str> {
    let status = status?;
    match (has(status, "Complete"), has(status, "Failed")) {
        (Some(_), _) => Some("Complete"),
        (_, Some(_)) => Some("Failed"),
        _ => None,
    }
}

/// The finished Jobs beyond the history limits, oldest first.
pub fn expired<'a>(cron: &CronJob, jobs: &[&'a Job]) -> Vec<&'a Job> {
    let limit = |limit: Option<i32>, default| usize::try_from(limit.unwrap_or(default)).unwrap_or(0);
    let limits =
        [("Complete", limit(cron.spec.successful_jobs_history_limit, 3)), ("Failed", limit(cron.spec.failed_jobs_history_limit, 1))];
    let mut expired = Vec::new();
    for (kind, keep) in limits {
        let mut ended: Vec<&Job> = jobs.iter().copied().filter(|job| ending(job.status.as_ref()) == Some(kind)).collect();
        let started = |job: &Job| job.status.as_ref().and_then(|status| status.start_time.clone());
        ended.sort_by(|a, b| (started(a), &a.metadata.name).cmp(&(started(b), &b.metadata.name)));
        expired.extend(ended.iter().take(ended.len().saturating_sub(keep)));
    }
    expired
}

/// The reference to a running Job that the status keeps.
pub fn active(job: &Job) -> ObjectReference {
    crate::events::regarding(job)
}

/// When the newest successful Job ended.
pub fn completed_at(job: &Job) -> Option<Time> {
    job.status.as_ref()?.completion_time.clone()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cron(spec: serde_json::Value) -> CronJob {
        let mut spec = spec;
        spec["schedule"] = json!("*/5 * * * *");
        spec["jobTemplate"] = json!({});
        serde_json::from_value(
            json!({"metadata": {"name": "c", "namespace": "a", "creationTimestamp": "2030-01-01T00:01:00Z"}, "spec": spec}),
        )
        .unwrap()
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn due_at(cron: &CronJob, now: &str) -> Due {
        due(cron, &cron.spec.schedule.parse().unwrap(), &TimeZone::UTC, time(now))
    }

    #[test]
    fn it_is_due_at_the_latest_time_that_has_come() {
        let cron = cron(json!({}));
        assert_eq!(due_at(&cron, "2030-01-01T00:04:59Z").now, None);
        assert_eq!(due_at(&cron, "2030-01-01T00:05:00Z").now, Some(time("2030-01-01T00:05:00Z")));
        let late = due_at(&cron, "2030-01-01T00:17:00Z");
        assert_eq!((late.now, late.next), (Some(time("2030-01-01T00:15:00Z")), Some(time("2030-01-01T00:20:00Z"))));
        assert!(!late.many_missed && due_at(&cron, "2030-01-02T00:17:00Z").many_missed);
        assert_eq!(due_at(&cron, "2032-01-01T00:17:00Z").now, Some(time("2032-01-01T00:15:00Z")));
    }

    #[test]
    fn a_deadline_forgets_what_was_missed_before_it() {
        let cron = cron(json!({"startingDeadlineSeconds": 60}));
        assert_eq!(due_at(&cron, "2030-01-01T00:08:00Z").now, None);
        assert!(is_too_late(&cron, time("2030-01-01T00:05:00Z"), time("2030-01-01T00:06:01Z")));
    }

    #[test]
    fn the_job_of_a_time_always_has_the_same_name() {
        let job = job(&cron(json!({})), time("2030-01-01T00:05:00Z"), &TimeZone::UTC);
        assert_eq!(job.metadata.name.as_deref(), Some("c-31557605"));
        let annotation = &job.metadata.annotations.unwrap()["batch.kubernetes.io/cronjob-scheduled-timestamp"];
        assert_eq!(annotation, "2030-01-01T00:05:00Z");
    }

    #[test]
    fn only_so_many_finished_jobs_are_kept() {
        let finished = |n: u32, kind: &str| -> Job {
            serde_json::from_value(json!({"metadata": {"name": format!("{kind}-{n}")}, "status": {
                "startTime": format!("2030-01-01T00:0{n}:00Z"), "conditions": [{"type": kind, "status": "True"}]}}))
            .unwrap()
        };
        let jobs: Vec<Job> = (0..5).map(|n| finished(n, "Complete")).chain((0..2).map(|n| finished(n, "Failed"))).collect();
        let gone = expired(&cron(json!({})), &jobs.iter().collect::<Vec<_>>());
        let names: Vec<_> = gone.iter().filter_map(|job| job.metadata.name.as_deref()).collect();
        assert_eq!(names, ["Complete-0", "Complete-1", "Failed-0"]);
    }
}
