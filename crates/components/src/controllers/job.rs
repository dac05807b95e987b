//! Job: Pods that run to completion.
//!
//! What comes next is decided in [`decide`]; this file carries it out, step after step, until there is nothing to do.

pub mod decide;
pub mod indexes;
pub mod pod;
pub mod policy;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::{
    batch::v1::{Job, JobStatus},
    core::v1::Pod,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    owner::{self, claim_all, controller_reference, may_adopt},
    pod_control::PodControl,
    pods,
};
use crate::{
    clock::Clock,
    events::{EventType, regarding},
    runtime::{Component, Context, Error, Identity, Informer, Key, Outcome, Requeue, Source, Writer, cause, controller_of},
};
use decide::{Decision, decide, is_finished};

const ACCOUNT: &str = "job-controller";
/// Pods that wait to be counted, by the Job they belong to.
const TRACKED: &str = "job-tracked";
/// A Job that needs more steps than this in one round gets another round.
const STEPS: usize = 8;

struct Controller {
    jobs: Informer<Job>,
    pods: Informer<Pod>,
    writer: Writer<Job>,
    control: PodControl,
    clock: Clock,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(ACCOUNT));
    let (jobs, pods) = (context.watches.of(), context.watches.of());
    pods::add_indexes(&pods);
    pods.add_index(TRACKED, |pod: &Pod| job_of(pod).filter(|_| pod::is_tracked(pod)).map(|key| key.to_string()).into_iter().collect());
    let recorder = context.recorder(client.clone(), ACCOUNT);
    context.run(Controller {
        writer: Writer::new(client.clone(), &jobs),
        control: PodControl::new(client, &pods, recorder, context.clock.clone()),
        jobs,
        pods,
        clock: context.clock.clone(),
    })
}

/// The Job that a Pod belongs to, or belonged to when it was made.
fn job_of(pod: &Pod) -> Option<Key> {
    let namespace = pod.metadata.namespace.as_deref()?;
    match controller_of(&pod.metadata) {
        Some(owner) if owner.kind == "Job" => Some(Key::new(namespace, &owner.name)),
        Some(_) => None,
        None => Some(Key::new(namespace, pod.metadata.labels.as_ref()?.get("batch.kubernetes.io/job-name")?)),
    }
}

/// A status as it is compared: that nothing waits to be counted can be said in two ways.
fn written(status: &JobStatus) -> JobStatus {
    let mut status = status.clone();
    status.uncounted_terminated_pods = status.uncounted_terminated_pods.filter(|u| u.succeeded.is_some() || u.failed.is_some());
    status
}

impl Component for Controller {
    const NAME: &'static str = "job-controller";
    const WORKERS: usize = 10;

    fn sources(&self) -> Vec<Source> {
        vec![
            Source::own(&self.jobs),
            Source::new(&self.pods, |change, queue| {
                if let Some(key) = change.latest().and_then(|pod| job_of(pod)) {
                    queue.add(key);
                }
            }),
        ]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let job = self.jobs.find(&key);
        self.release_strays(&key, job.as_deref()).await?;
        let Some(job) = job else { return Ok(Requeue::Done) };
        let managed_by = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
        if managed_by.is_some_and(|manager| manager != "kubernetes.io/job-controller") {
            return Ok(Requeue::Done);
        }
        if job.status.as_ref().is_some_and(is_finished) {
            return Ok(Requeue::Done);
        }
        self.claim(&job).await?;
        self.work(&key).await
    }
}

impl Controller {
    async fn claim(&self, job: &Job) -> Result<(), Error> {
        let selector = job.spec.as_ref().and_then(|spec| spec.selector.as_ref()).and_then(owner::selector);
        let Some(selector) = selector else { return Ok(()) };
        let meta = &job.metadata;
        let orphans = self.pods.indexed(pods::ORPHANS, meta.namespace.as_deref().unwrap_or_default());
        let owner = (meta, controller_reference::<Job>(meta));
        claim_all(&self.control.writer, &self.pods, owner, &selector, orphans, || may_adopt(&self.writer, meta)).await?;
        Ok(())
    }

    /// Takes steps until nothing is left to do.
    async fn work(&self, key: &Key) -> Outcome {
        let mut acted = false;
        let mut failed = Ok(());
        for _ in 0..STEPS {
            let Some(job) = self.jobs.find(key) else { return Ok(Requeue::Done) };
            let pods: Vec<_> = self.pods.owned_by(job.metadata.uid.as_deref().unwrap_or_default());
            let decision = decide(&job, &pods, &self.clock.time(), self.clock.now());
            let moves = !decision.create.is_empty() || !decision.delete.is_empty();
            if moves && !acted {
                // First the Pods, then the status: so it is written once, and says how it is.
                acted = true;
                failed = self.act(&job, &pods, &decision).await;
                continue;
            }
            let changed = written(&job.status.clone().unwrap_or_default()) != written(&decision.status);
            if changed {
                let mut next = (*job).clone();
                next.status = Some(decision.status.clone());
                self.writer.update_status(&next).await?;
                for (warning, reason, message) in &decision.events {
                    let r#type = if *warning { EventType::Warning } else { EventType::Normal };
                    self.control.recorder.event(&regarding(&*job), r#type, reason, message.clone());
                }
            }
            self.release(&decision.release).await?;
            if !changed && decision.release.is_empty() || is_finished(&decision.status) {
                failed?;
                return Ok(Requeue::after(decision.again));
            }
        }
        failed?;
        Ok(Requeue::After(std::time::Duration::from_millis(10)))
    }

    async fn act(&self, job: &Job, pods: &[Arc<Pod>], decision: &Decision) -> Result<(), Error> {
        let about = regarding(job);
        if !decision.delete.is_empty() {
            if decision.uncounted {
                self.release(&decision.delete).await?;
            }
            self.control.delete_all(&about, &decision.delete).await?;
        }
        let per_index = job.spec.as_ref().is_some_and(|spec| spec.backoff_limit_per_index.is_some());
        let new = decision.create.iter().filter_map(|index| {
            let failures = index.filter(|_| per_index).map(|index| pod::index_failures(job, pods, index));
            pod::new(job, *index, failures)
        });
        let new: Vec<_> = new.collect();
        self.control.create_all(&about, &new).await.1
    }

    /// Removes the finalizers of Pods that have been counted.
    async fn release(&self, pods: &[Arc<Pod>]) -> Result<(), Error> {
        let mut tasks = JoinSet::new();
        for pod in pods {
            let (writer, pod) = (self.control.writer.clone(), pod.clone());
            tasks.spawn(cause::carry(async move {
                let mut finalizers = pod.metadata.finalizers.clone().unwrap_or_default();
                finalizers.retain(|finalizer| finalizer != pod::TRACKING);
                let finalizers = if finalizers.is_empty() { Value::Null } else { json!(finalizers) };
                let patch = json!({"metadata": {"uid": pod.metadata.uid, "finalizers": finalizers}});
                match writer.merge(&Key::of(&pod.metadata), "", &patch).await {
                    Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
                    _ => Ok(()),
                }
            }));
        }
        let mut outcome = Ok(());
        while let Some(done) = tasks.join_next().await {
            outcome = outcome.and(done.map_err(|error| Error::Other(error.to_string())).and_then(|done| done));
        }
        outcome
    }

    /// Pods of a Job that is no more, or of an earlier one of the same name, will never be counted.
    async fn release_strays(&self, key: &Key, job: Option<&Job>) -> Result<(), Error> {
        let mut strays = self.pods.indexed(TRACKED, &key.to_string());
        let uid = job.and_then(|job| job.metadata.uid.as_ref());
        let finished = job.is_some_and(|job| job.status.as_ref().is_some_and(is_finished));
        strays.retain(|pod| finished || controller_of(&pod.metadata).is_none_or(|owner| Some(&owner.uid) != uid));
        if job.is_some() && !finished {
            // An orphan that the Job may still adopt is not a stray.
            strays.retain(|pod| controller_of(&pod.metadata).is_some());
        }
        self.release(&strays).await
    }
}
