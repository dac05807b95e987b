//! PodDisruptionBudget: how many Pods may be disrupted right now.
//!
//! The status is what the eviction API decides by, and where it notes the Pods it has just evicted, until they are gone
//! or two minutes have passed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, StatefulSet},
        core::v1::{Pod, ReplicationController},
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
    },
    apimachinery::pkg::{
        apis::meta::v1::{Condition, Time},
        util::intstr::IntOrString,
    },
};
use kube::core::Selector;

use super::{
    owner::selects,
    percent::{Round, resolve},
    pods,
};
use crate::{
    clock::{Clock, later, left},
    events::{EventType, Recorder, regarding},
    runtime::{Component, Context, Identity, Informer, Key, Outcome, Requeue, Source, Writer, controller_of},
};

const ACCOUNT: &str = "disruption-controller";
/// After how long an eviction that did not happen is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(120);

struct Controller {
    budgets: Informer<PodDisruptionBudget>,
    pods: Informer<Pod>,
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    stateful: Informer<StatefulSet>,
    replication: Informer<ReplicationController>,
    writer: Writer<PodDisruptionBudget>,
    recorder: Recorder,
    clock: Clock,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(ACCOUNT));
    let budgets = context.watches.of();
    context.run(Controller {
        writer: Writer::new(client.clone(), &budgets),
        recorder: context.recorder(client, "controllermanager"),
        budgets,
        pods: context.watches.of(),
        deployments: context.watches.of(),
        sets: context.watches.of(),
        stateful: context.watches.of(),
        replication: context.watches.of(),
        clock: context.clock.clone(),
    })
}

fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    // Without a selector it selects nothing; with an empty one, everything.
    Selector::try_from(budget.spec.as_ref()?.selector.clone()?).ok()
}

impl Component for Controller {
    const NAME: &'static str = "disruption-controller";

    fn sources(&self) -> Vec<Source> {
        let budgets = self.budgets.clone();
        vec![
            Source::own(&self.budgets),
            Source::new(&self.pods, move |change, queue| {
                let Some(pod) = change.latest() else { return };
                for budget in budgets.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default()) {
                    if selector(&budget).is_some_and(|selector| change.states().any(|pod| selects(&selector, &pod.metadata))) {
                        queue.add(Key::of(&budget.metadata));
                    }
                }
            }),
            Source::lookup(&self.deployments),
            Source::lookup(&self.sets),
            Source::lookup(&self.stateful),
            Source::lookup(&self.replication),
        ]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(budget) = self.budgets.find(&key) else { return Ok(Requeue::Done) };
        let selector = selector(&budget);
        let mut pods = self.pods.in_namespace(&key.namespace);
        pods.retain(|pod| selector.as_ref().is_some_and(|selector| selects(selector, &pod.metadata)) && !pods::is_finished(pod));
        if pods.is_empty() {
            self.recorder.event(&regarding(&*budget), EventType::Normal, "NoPods", "No matching pods found");
        }
        let now = self.clock.now();
        let expected = self.expected(&budget, &pods);
        if let Err(message) = &expected {
            self.recorder.event(&regarding(&*budget), EventType::Warning, "CalculateExpectedPodCountFailed", message.clone());
        }
        let (status, again) = status(&budget, &pods, expected, &self.clock.time(), now);
        if budget.status.as_ref() != Some(&status) {
            let mut next = (*budget).clone();
            next.status = Some(status);
            self.writer.update_status(&next).await?;
        }
        Ok(Requeue::after(again))
    }
}

/// How many Pods there should be, and how many of them healthy.
type Expected = Result<(i32, i32), String>;

impl Controller {
    fn expected(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Expected {
        let Some(spec) = &budget.spec else { return Ok((0, 0)) };
        let present = i32::try_from(pods.len()).unwrap_or(i32::MAX);
        if let Some(most) = &spec.max_unavailable {
            let expected = self.scale_of(pods)?;
            let most = resolve(most, expected, Round::Up).unwrap_or(0);
            return Ok((expected, (expected - most).max(0)));
        }
        match &spec.min_available {
            Some(IntOrString::Int(least)) => Ok((present, *least)),
            Some(least) => {
                let expected = self.scale_of(pods)?;
                Ok((expected, resolve(least, expected, Round::Up).unwrap_or(0)))
            }
            None => Ok((present, 0)),
        }
    }

    /// The sum of what the Pods' controllers want.
    fn scale_of(&self, pods: &[Arc<Pod>]) -> Result<i32, String> {
        let mut scales: BTreeMap<String, i32> = BTreeMap::new();
        let mut unmanaged = BTreeSet::new();
        for pod in pods {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let Some(owner) = controller_of(&pod.metadata) else {
                unmanaged.insert(pod.metadata.name.clone().unwrap_or_default());
                continue;
            };
            if scales.contains_key(&owner.uid) {
                continue;
            }
            let found = match owner.kind.as_str() {
                "ReplicaSet" => self.sets.get(namespace, &owner.name).map(|set| {
                    let deployment = controller_of(&set.metadata).and_then(|owner| self.deployments.get(namespace, &owner.name));
                    match deployment {
                        Some(deployment) => (deployment.metadata.uid.clone().unwrap_or_default(), deployment.spec.replicas.unwrap_or(1)),
                        None => (owner.uid.clone(), set.spec.replicas.unwrap_or(1)),
                    }
                }),
                "StatefulSet" => self.stateful.get(namespace, &owner.name).map(|set| (owner.uid.clone(), set.spec.replicas.unwrap_or(1))),
                "ReplicationController" => {
                    let set = self.replication.get(namespace, &owner.name);
                    set.map(|set| (owner.uid.clone(), set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)))
                }
                kind => {
                    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
                    return Err(format!(
                        "Failed to calculate the number of expected pods: {}.{group} does not implement the scale subresource",
                        kind.to_lowercase() + "s"
                    ));
                }
            };
            if let Some((uid, scale)) = found {
                scales.insert(uid, scale);
            }
        }
        if scales.is_empty()
            && let Some(pod) = unmanaged.first()
        {
            return Err(format!("Failed to calculate the number of expected pods: found no controllers for pod {pod:?}"));
        }
        Ok(scales.values().sum())
    }
}

fn status(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    expected: Expected,
    time: &Time,
    now: Timestamp,
) -> (PodDisruptionBudgetStatus, Option<Duration>) {
    let old = budget.status.clone().unwrap_or_default();
    let (disrupted, again) = disrupted(&old, pods, now);
    let healthy = |pod: &&Arc<Pod>| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        pods::is_ready(pod) && !pods::is_terminating(pod) && !disrupted.contains_key(name)
    };
    let current = i32::try_from(pods.iter().filter(healthy).count()).unwrap_or(i32::MAX);
    let (count, desired, allowed, condition) = match expected {
        Ok((count, desired)) => {
            let allowed = if count > 0 { (current - desired).max(0) } else { 0 };
            let (truth, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
            (count, desired, allowed, (truth, reason, String::new()))
        }
        // Nobody knows; so nothing may go.
        Err(message) => (old.expected_pods.unwrap_or(0), old.desired_healthy.unwrap_or(0), 0, ("False", "SyncFailed", message)),
    };
    let mut conditions = old.conditions.clone().unwrap_or_default();
    set_condition(&mut conditions, condition, budget.metadata.generation, time);
    let status = PodDisruptionBudgetStatus {
        conditions: Some(conditions),
        current_healthy: Some(current),
        desired_healthy: Some(desired),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(count),
        observed_generation: budget.metadata.generation,
    };
    (status, again)
}

/// The evictions that are still on their way, and when the first of them is forgotten.
fn disrupted(old: &PodDisruptionBudgetStatus, pods: &[Arc<Pod>], now: Timestamp) -> (BTreeMap<String, Time>, Option<Duration>) {
    let mut kept = old.disrupted_pods.clone().unwrap_or_default();
    kept.retain(|name, since| {
        let pod = pods.iter().find(|pod| pod.metadata.name.as_ref() == Some(name));
        pod.is_some_and(|pod| !pods::is_terminating(pod)) && later(since.0, FORGOTTEN) > now
    });
    let again = kept.values().map(|since| left(now, later(since.0, FORGOTTEN))).min();
    (kept, again)
}

fn set_condition(conditions: &mut Vec<Condition>, wanted: (&str, &str, String), generation: Option<i64>, now: &Time) {
    let (status, reason, message) = wanted;
    let old = conditions.iter().position(|condition| condition.type_ == "DisruptionAllowed").map(|at| conditions.remove(at));
    let since = old.filter(|old| old.status == status).map_or_else(|| now.clone(), |old| old.last_transition_time);
    conditions.push(Condition {
        type_: "DisruptionAllowed".into(),
        status: status.into(),
        reason: reason.into(),
        message,
        observed_generation: generation,
        last_transition_time: since,
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, ready: bool) -> Arc<Pod> {
        let truth = if ready { "True" } else { "False" };
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": truth}]}}))
                .unwrap(),
        )
    }

    fn at(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], expected: Expected) -> PodDisruptionBudgetStatus {
        let now: Timestamp = "2030-01-01T00:01:00Z".parse().unwrap();
        status(budget, pods, expected, &Time(now), now).0
    }

    #[test]
    fn as_many_may_go_as_are_healthy_beyond_the_minimum() {
        let budget = PodDisruptionBudget::default();
        let pods = [pod("a", true), pod("b", true), pod("c", false)];
        let status = at(&budget, &pods, Ok((3, 1)));
        assert_eq!((status.disruptions_allowed, status.current_healthy), (Some(1), Some(2)));
        assert_eq!(status.conditions.unwrap()[0].reason, "SufficientPods");
        assert_eq!(at(&budget, &pods, Ok((3, 2))).conditions.unwrap()[0].reason, "InsufficientPods");
        assert_eq!(at(&budget, &pods, Err("?".into())).disruptions_allowed, Some(0));
    }

    #[test]
    fn an_eviction_under_way_counts_until_it_is_forgotten() {
        let mut budget = PodDisruptionBudget::default();
        let since = |text: &str| BTreeMap::from([("a".to_owned(), Time(text.parse().unwrap()))]);
        budget.status.get_or_insert_default().disrupted_pods = Some(since("2030-01-01T00:00:30Z"));
        let pods = [pod("a", true), pod("b", true)];
        assert_eq!(at(&budget, &pods, Ok((2, 1))).disruptions_allowed, Some(0));
        budget.status.get_or_insert_default().disrupted_pods = Some(since("2029-12-31T23:58:00Z"));
        assert_eq!(at(&budget, &pods, Ok((2, 1))).disruptions_allowed, Some(1));
    }
}
