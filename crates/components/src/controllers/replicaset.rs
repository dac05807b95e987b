//! ReplicaSet and ReplicationController: as many Pods of one template as are wanted.
//!
//! The two are the same controller with different words; [`Replicas`] is what it needs to know of either. It adopts
//! and releases Pods by its selector, creates what is missing, deletes what is too much (those that are missed least
//! first) and reports what it has.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus},
        core::v1::{Pod, PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::core::Selector;
use serde::Serialize;

use super::{
    owner::{self, claim_all, controller_reference, may_adopt},
    pod_control::{PodControl, from_template},
    pods,
};
use crate::{
    clock::Clock,
    events::regarding,
    runtime::{Change, Component, Context, Error, Identity, Informer, Key, Object, Outcome, Queue, Requeue, Source, Writer},
};

/// What the controller needs to know of a kind that has replicas.
pub trait Replicas: Object + k8s_openapi::Resource + Serialize + Clone {
    /// The controller's name.
    const CONTROLLER: &'static str;
    /// Its service account, and the source of its events.
    const ACCOUNT: &'static str;

    /// How many are wanted.
    fn wanted(&self) -> usize;
    /// Which Pods are its own.
    fn selector(&self) -> Option<Selector>;
    /// What new Pods look like.
    fn template(&self) -> Option<&PodTemplateSpec>;
    /// How long a Pod must be ready to be available.
    fn min_ready(&self) -> Duration;
    /// The status, as a ReplicaSet has it.
    fn status(&self) -> ReplicaSetStatus;
    /// The same object with another status.
    fn with_status(&self, status: ReplicaSetStatus) -> Self;
}

fn count(number: Option<i32>) -> usize {
    number.map_or(1, |number| usize::try_from(number).unwrap_or(0))
}

impl Replicas for ReplicaSet {
    const CONTROLLER: &'static str = "replicaset-controller";
    const ACCOUNT: &'static str = "replicaset-controller";

    fn wanted(&self) -> usize {
        count(self.spec.replicas)
    }
    fn selector(&self) -> Option<Selector> {
        owner::selector(&self.spec.selector)
    }
    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.template.as_ref()
    }
    fn min_ready(&self) -> Duration {
        pods::seconds(self.spec.min_ready_seconds)
    }
    fn status(&self) -> ReplicaSetStatus {
        self.status.clone().unwrap_or_default()
    }
    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        ReplicaSet { status: Some(status), ..self.clone() }
    }
}

impl Replicas for ReplicationController {
    const CONTROLLER: &'static str = "replicationcontroller-controller";
    const ACCOUNT: &'static str = "replication-controller";

    fn wanted(&self) -> usize {
        count(self.spec.as_ref().and_then(|spec| spec.replicas))
    }
    fn selector(&self) -> Option<Selector> {
        let labels = self.spec.as_ref()?.selector.clone()?;
        (!labels.is_empty()).then(|| labels.into_iter().collect())
    }
    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }
    fn min_ready(&self) -> Duration {
        pods::seconds(self.spec.as_ref().and_then(|spec| spec.min_ready_seconds))
    }
    fn status(&self) -> ReplicaSetStatus {
        let status = self.status.clone().unwrap_or_default();
        let conditions = status.conditions.map(|conditions| {
            let convert = |c: ReplicationControllerCondition| ReplicaSetCondition {
                last_transition_time: c.last_transition_time,
                message: c.message,
                reason: c.reason,
                status: Some(c.status),
                type_: Some(c.type_),
            };
            conditions.into_iter().map(convert).collect()
        });
        ReplicaSetStatus {
            available_replicas: status.available_replicas,
            conditions,
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
            terminating_replicas: None,
        }
    }
    fn with_status(&self, status: ReplicaSetStatus) -> Self {
        let conditions = status.conditions.map(|conditions| {
            let convert = |c: ReplicaSetCondition| ReplicationControllerCondition {
                last_transition_time: c.last_transition_time,
                message: c.message,
                reason: c.reason,
                status: c.status.unwrap_or_default(),
                type_: c.type_.unwrap_or_default(),
            };
            conditions.into_iter().map(convert).collect()
        });
        let status = ReplicationControllerStatus {
            available_replicas: status.available_replicas,
            conditions,
            fully_labeled_replicas: status.fully_labeled_replicas,
            observed_generation: status.observed_generation,
            ready_replicas: status.ready_replicas,
            replicas: status.replicas,
        };
        ReplicationController { status: Some(status), ..self.clone() }
    }
}

/// The controller of one of the two kinds.
struct Controller<K> {
    sets: Informer<K>,
    pods: Informer<Pod>,
    writer: Writer<K>,
    control: PodControl,
    clock: Clock,
}

/// Runs the controller of `K`.
pub fn run<K: Replicas>(context: Context) -> futures::future::BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(K::ACCOUNT));
    let (sets, pods) = (context.watches.of::<K>(), context.watches.of::<Pod>());
    pods::add_indexes(&pods);
    let recorder = context.recorder(client.clone(), K::ACCOUNT);
    context.run(Controller {
        writer: Writer::new(client.clone(), &sets),
        control: PodControl::new(client, &pods, recorder, context.clock.clone()),
        sets,
        pods,
        clock: context.clock.clone(),
    })
}

impl<K: Replicas> Component for Controller<K> {
    const NAME: &'static str = K::CONTROLLER;
    const WORKERS: usize = 16;
    const TIMEOUT: Duration = Duration::from_secs(300);

    fn sources(&self) -> Vec<Source> {
        vec![
            Source::own(&self.sets),
            Source::controlled(&self.pods, K::GROUP, K::KIND),
            Source::new(&self.pods, orphan_to_sets(self.sets.clone())),
        ]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(set) = self.sets.find(&key) else { return Ok(Requeue::Done) };
        let Some(selector) = set.selector() else { return Ok(Requeue::Done) };
        let mine = self.claim(&set, &selector).await?;
        let managed = if set.meta().deletion_timestamp.is_none() { self.manage(&set, &mine).await } else { Ok(()) };
        // What was just written is in the cache by now, so the status is already the one after it.
        let uid = set.meta().uid.as_deref().unwrap_or_default();
        let mut mine = self.pods.owned_by(uid);
        mine.retain(|pod| owner::selects(&selector, &pod.metadata));
        let now = self.clock.now();
        let status = status(&*set, &mine, managed.as_ref().err(), &self.clock.time(), now);
        if status != set.status() {
            self.writer.update_status(&set.with_status(status)).await?;
        }
        managed?;
        let min_ready = set.min_ready();
        Ok(Requeue::after(mine.iter().filter_map(|pod| pods::available_in(pod, min_ready, now)).min()))
    }
}

/// An orphan concerns every set that would select it.
fn orphan_to_sets<K: Replicas>(sets: Informer<K>) -> impl Fn(Change<'_, Pod>, &Queue) + Send + Sync + 'static {
    move |change, queue| {
        let Some(pod) = change.new else { return };
        if crate::runtime::controller_of(&pod.metadata).is_some() || pods::is_terminating(pod) {
            return;
        }
        for set in sets.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default()) {
            if set.selector().is_some_and(|selector| owner::selects(&selector, &pod.metadata)) {
                queue.add(Key::of(set.meta()));
            }
        }
    }
}

impl<K: Replicas> Controller<K> {
    async fn claim(&self, set: &K, selector: &Selector) -> Result<Vec<Arc<Pod>>, Error> {
        let meta = set.meta();
        let orphans = self.pods.indexed(pods::ORPHANS, meta.namespace.as_deref().unwrap_or_default());
        let owner = (meta, controller_reference::<K>(meta));
        claim_all(&self.control.writer, &self.pods, owner, selector, orphans, || may_adopt(&self.writer, meta)).await
    }

    /// Creates or deletes until there are as many as wanted.
    async fn manage(&self, set: &K, mine: &[Arc<Pod>]) -> Result<(), Error> {
        let active: Vec<_> = mine.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
        let wanted = set.wanted();
        let about = regarding(set);
        if active.len() < wanted {
            let Some(template) = set.template() else { return Ok(()) };
            let meta = set.meta();
            let pod = from_template(template, meta.namespace.as_deref().unwrap_or_default(), &controller_reference::<K>(meta));
            let (created, outcome) = self.control.create_many(&about, &pod, wanted - active.len()).await;
            tracing::debug!(set = %Key::of(meta), created, "created Pods");
            outcome?;
        } else if active.len() > wanted {
            let many = active.len() - wanted;
            let mut doomed = active;
            if wanted > 0 {
                let related = self.related(set, &doomed);
                pods::sort_for_deletion(&mut doomed, &related, self.clock.now());
            }
            self.control.delete_all(&about, &doomed[..many]).await?;
        }
        Ok(())
    }

    /// The Pods of all sets with the same controller: during a rollout those of the other revisions count, too.
    fn related(&self, set: &K, own: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let Some(controller) = crate::runtime::controller_of(set.meta()) else { return own.to_vec() };
        let sets = self.sets.owned_by(&controller.uid);
        sets.iter().flat_map(|set| self.pods.owned_by(set.meta().uid.as_deref().unwrap_or_default())).collect()
    }
}

/// What the status should say.
fn status<K: Replicas>(set: &K, mine: &[Arc<Pod>], failed: Option<&Error>, time: &Time, now: Timestamp) -> ReplicaSetStatus {
    let old = set.status();
    let number = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let some = |count: usize| (count > 0).then(|| number(count));
    let active: Vec<_> = mine.iter().filter(|pod| pods::is_active(pod)).collect();
    let template: Option<Selector> =
        set.template().and_then(|template| template.metadata.as_ref()?.labels.clone()).map(|labels| labels.into_iter().collect());
    let labeled = |pod: &&&Arc<Pod>| template.as_ref().is_none_or(|template| owner::selects(template, &pod.metadata));
    let terminating = mine.iter().filter(|pod| pods::is_terminating(pod) && !pods::is_finished(pod)).count();
    let mut conditions = old.conditions.clone().unwrap_or_default();
    let failure = failed.map(|error| {
        let reason = if active.len() < set.wanted() { "FailedCreate" } else { "FailedDelete" };
        (reason, error.message())
    });
    match failure {
        Some((reason, message)) if !conditions.iter().any(|c| c.type_.as_deref() == Some("ReplicaFailure")) => {
            conditions.push(ReplicaSetCondition {
                last_transition_time: Some(time.clone()),
                message: Some(message),
                reason: Some(reason.into()),
                status: Some("True".into()),
                type_: Some("ReplicaFailure".into()),
            })
        }
        Some(_) => {}
        None => conditions.retain(|condition| condition.type_.as_deref() != Some("ReplicaFailure")),
    }
    ReplicaSetStatus {
        replicas: number(active.len()),
        fully_labeled_replicas: some(active.iter().filter(labeled).count()),
        ready_replicas: some(active.iter().filter(|pod| pods::is_ready(pod)).count()),
        available_replicas: some(active.iter().filter(|pod| pods::is_available(pod, set.min_ready(), now)).count()),
        terminating_replicas: (K::KIND == "ReplicaSet").then_some(number(terminating)),
        observed_generation: set.meta().generation,
        conditions: (!conditions.is_empty()).then_some(conditions),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set() -> ReplicaSet {
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "a", "uid": "u", "generation": 4},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web", "tier": "front"}}, "spec": {"containers": []}}},
            "status": {"replicas": 0}
        }))
        .unwrap()
    }

    fn pod(labels: serde_json::Value, ready: bool) -> Arc<Pod> {
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]});
        Arc::new(serde_json::from_value(json!({"metadata": {"labels": labels}, "status": status})).unwrap())
    }

    #[test]
    fn the_status_counts_what_there_is() {
        let pods = [pod(json!({"app": "web", "tier": "front"}), true), pod(json!({"app": "web"}), false)];
        let time = Time(Timestamp::UNIX_EPOCH);
        let status = status(&set(), &pods, None, &time, Timestamp::UNIX_EPOCH);
        assert_eq!((status.replicas, status.fully_labeled_replicas, status.ready_replicas), (2, Some(1), Some(1)));
        assert_eq!((status.available_replicas, status.observed_generation), (Some(1), Some(4)));
        assert_eq!(status.conditions, None);
    }

    #[test]
    fn a_failure_to_create_becomes_a_condition_and_goes_away_again() {
        let time = Time(Timestamp::UNIX_EPOCH);
        let error = Error::Other("exceeded quota".into());
        let failed = status(&set(), &[], Some(&error), &time, Timestamp::UNIX_EPOCH);
        let condition = failed.conditions.clone().unwrap().remove(0);
        assert_eq!((condition.type_.as_deref(), condition.reason.as_deref()), (Some("ReplicaFailure"), Some("FailedCreate")));
        let set = set().with_status(failed);
        assert_eq!(status(&set, &[], None, &time, Timestamp::UNIX_EPOCH).conditions, None);
    }
}
