//! TTL after finished: Jobs that say how long they may stay after their end, and no longer.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;

use super::job::decide::{has, is_finished};
use crate::{
    clock::{Clock, later, left},
    runtime::{Component, Context, Identity, Informer, Key, Outcome, Propagation, Requeue, Source, Writer},
};

struct Controller {
    jobs: Informer<Job>,
    writer: Writer<Job>,
    clock: Clock,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller("ttl-after-finished-controller"));
    let jobs = context.watches.of();
    context.run(Controller { writer: Writer::new(client, &jobs), jobs, clock: context.clock.clone() })
}

impl Component for Controller {
    const NAME: &'static str = "ttl-after-finished-controller";

    fn sources(&self) -> Vec<Source> {
        vec![Source::new(&self.jobs, |change, queue| {
            if let Some(job) = change.new.filter(|job| expires(job).is_some()) {
                queue.add(Key::of(&job.metadata));
            }
        })]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(job) = self.jobs.find(&key) else { return Ok(Requeue::Done) };
        let Some(expires) = expires(&job).filter(|_| job.metadata.deletion_timestamp.is_none()) else { return Ok(Requeue::Done) };
        let wait = left(self.clock.now(), expires);
        if !wait.is_zero() {
            return Ok(Requeue::After(wait));
        }
        self.writer.delete(&job, Propagation::Foreground).await?;
        Ok(Requeue::Done)
    }
}

/// When a finished Job may go.
fn expires(job: &Job) -> Option<Timestamp> {
    let ttl = Duration::from_secs(u64::try_from(job.spec.as_ref()?.ttl_seconds_after_finished?).ok()?);
    let status = job.status.as_ref().filter(|status| is_finished(status))?;
    let end = has(status, "Complete").or_else(|| has(status, "Failed"))?.last_transition_time?;
    Some(later(end.0, ttl))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_expires_after_its_end_and_not_before() {
        let job = |conditions| -> Job {
            serde_json::from_value(json!({"spec": {"ttlSecondsAfterFinished": 60, "template": {}}, "status": {"conditions": conditions}}))
                .unwrap()
        };
        assert_eq!(expires(&job(json!([]))), None);
        let done = json!([{"type": "Complete", "status": "True", "lastTransitionTime": "2030-01-01T00:00:00Z"}]);
        assert_eq!(expires(&job(done)), Some("2030-01-01T00:01:00Z".parse().unwrap()));
    }
}
