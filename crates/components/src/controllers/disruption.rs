//! PodDisruptionBudget: how many Pods may be disrupted right now.
//!
//! The status is what the eviction API decides by, and where it notes the Pods it has just evicted, until they are gone
//! or two minutes have passed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, StatefulSet},
        autoscaling::v1::Scale,
        core::v1::{Pod, ReplicationController},
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus},
    },
    apimachinery::pkg::{
        apis::meta::v1::{Condition, LabelSelector, OwnerReference, Time},
        util::intstr::IntOrString,
    },
};
use kube::{Client, core::Selector};

use super::{
    owner::selects,
    percent::{Round, resolve},
    pods,
};
use crate::{
    clock::{Clock, later, left},
    events::{EventType, Recorder, regarding},
    runtime::{Component, Context, Error, Identity, Informer, Key, Outcome, Requeue, Source, Writer, controller_of, discovery::discover},
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
    client: Client,
    clock: Clock,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(ACCOUNT));
    let budgets = context.watches.of();
    context.run(Controller {
        writer: Writer::new(client.clone(), &budgets),
        recorder: context.recorder(client.clone(), "controllermanager"),
        client,
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
        let about = regarding(&*budget);
        let expected = self.expected(&budget, &pods).await;
        match &expected {
            Err(message) => self.recorder.event(&about, EventType::Warning, "CalculateExpectedPodCountFailed", message.clone()),
            Ok(expected) if expected.unmanaged => {
                let message = format!(
                    "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the PDB \
                     cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \
                     \".spec.minAvailable\" field of the PDB to an integer value.",
                    in_go(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()))
                );
                self.recorder.event(&about, EventType::Warning, "UnmanagedPods", message);
            }
            Ok(_) => {}
        }
        let expected = expected.map(|expected| (expected.count, expected.healthy));
        let (status, again) = status(&budget, &pods, expected, &self.clock.time(), now);
        if budget.status.as_ref() != Some(&status) {
            let mut next = (*budget).clone();
            next.status = Some(status);
            self.writer.update_status(&next).await?;
        }
        Ok(Requeue::after(again))
    }
}

/// How many Pods there should be, how many of them healthy, and whether some belong to nobody and were not counted.
#[derive(Default)]
struct Expected {
    count: i32,
    healthy: i32,
    unmanaged: bool,
}

impl Controller {
    async fn expected(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Result<Expected, String> {
        let Some(spec) = &budget.spec else { return Ok(Expected::default()) };
        let present = i32::try_from(pods.len()).unwrap_or(i32::MAX);
        if let Some(most) = &spec.max_unavailable {
            let (count, unmanaged) = self.scale_of(pods).await?;
            let most = resolve(most, count, Round::Up).unwrap_or(0);
            return Ok(Expected { count, healthy: (count - most).max(0), unmanaged });
        }
        match &spec.min_available {
            Some(IntOrString::Int(least)) => Ok(Expected { count: present, healthy: *least, unmanaged: false }),
            Some(least) => {
                let (count, unmanaged) = self.scale_of(pods).await?;
                Ok(Expected { count, healthy: resolve(least, count, Round::Up).unwrap_or(0), unmanaged })
            }
            None => Ok(Expected { count: present, ..Expected::default() }),
        }
    }

    /// The sum of what the Pods' controllers want, and whether some have none.
    async fn scale_of(&self, pods: &[Arc<Pod>]) -> Result<(i32, bool), String> {
        let mut scales: BTreeMap<String, i32> = BTreeMap::new();
        let mut unmanaged = false;
        for pod in pods {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let Some(owner) = controller_of(&pod.metadata) else {
                unmanaged = true;
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
                _ => Some((owner.uid.clone(), self.scale_by_subresource(namespace, owner).await?)),
            };
            let Some((uid, scale)) = found else {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                return Err(format!("Failed to calculate the number of expected pods: found no controllers for pod {name:?}"));
            };
            scales.insert(uid, scale);
        }
        Ok((scales.values().sum(), unmanaged))
    }

    /// What a controller of any other kind wants: it says so itself, if it can be scaled at all.
    async fn scale_by_subresource(&self, namespace: &str, owner: &OwnerReference) -> Result<i32, String> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let resources = discover(&self.client).await.map_err(|error| error.message())?;
        let found = resources.iter().find(|resource| resource.group == group && resource.kind == owner.kind);
        let plural = found.map_or_else(|| owner.kind.to_lowercase() + "s", |resource| resource.plural.clone());
        let none = format!("Failed to calculate the number of expected pods: {plural}.{group} does not implement the scale subresource");
        let Some(resource) = found else { return Err(none) };
        let request = http::Request::get(resource.path(namespace, &owner.name) + "/scale").body(Vec::new());
        let request = request.map_err(|error| error.to_string())?;
        match self.client.request::<Scale>(request).await.map_err(Error::from) {
            Ok(scale) => Ok(scale.spec.and_then(|spec| spec.replicas).unwrap_or(0)),
            Err(error) if error.is_not_found() => Err(none),
            Err(error) => Err(error.message()),
        }
    }
}

/// A selector as it is written in the words of the language that Kubernetes is made of.
fn in_go(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".into() };
    let labels: String = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions = selector.match_expressions.iter().flatten().map(|r| {
        let values = r.values.as_deref().unwrap_or_default().join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", r.key, r.operator)
    });
    let expressions: String = expressions.collect();
    format!("&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}")
}

fn status(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    expected: Result<(i32, i32), String>,
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

    fn at(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], expected: Result<(i32, i32), String>) -> PodDisruptionBudgetStatus {
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
    fn a_selector_is_written_as_others_write_it() {
        let selector: LabelSelector = serde_json::from_value(
            json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["x", "y"]}]}),
        )
        .unwrap();
        assert_eq!(
            in_go(Some(&selector)),
            "&LabelSelector{MatchLabels:map[string]string{app: web,},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:a,Operator:In,Values:[x y],},},}"
        );
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
