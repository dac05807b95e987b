//! The scheduler's loop: takes in changes of the cluster, decides for one Pod after the other, and sets bindings going.
//!
//! One task owns the queue and the cache, so that a decision always sees the newest state and needs no lock. Everything that talks
//! to the API (bindings, status, preemption) runs beside it and reports back through the same channel as the changes do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use tokio::sync::{Semaphore, mpsc};

use super::binding::{Binding, bind};
use super::cache::Cache;
use super::event::{ClusterEvent, node_change_matters};
use super::framework::{Cluster, CycleState, Diagnosis, Permission, PostFilterOutcome, Profile, Rejection};
use super::info::PodInfo;
use super::queue::{QueuedPod, SchedulingQueue};
use super::schedule::{Outcome, Scheduling};
use super::status::Reporter;
use crate::clock::Clock;
use crate::runtime::{cause, revision_of};

/// How many bindings may be under way at once. The API server commits what waits together, so more is faster, up to a point.
const BINDINGS_IN_FLIGHT: usize = 32;
/// How many decisions are made before other tasks of this thread get their turn.
const DECISIONS_PER_TURN: usize = 16;
/// How long waiting Pods are left alone while others keep the loop busy.
const LONGEST_WITHOUT_FLUSH: Duration = Duration::from_secs(1);

/// What the loop is told.
pub(super) enum Input {
    Pod {
        old: Option<Arc<Pod>>,
        new: Option<Arc<Pod>>,
    },
    Node {
        old: Option<Arc<Node>>,
        new: Option<Arc<Node>>,
    },
    Namespace {
        name: String,
        namespace: Option<Arc<Namespace>>,
    },
    Budget {
        key: String,
        budget: Option<Arc<PodDisruptionBudget>>,
    },
    /// A binding has come to an end.
    Bound {
        queued: QueuedPod,
        node: String,
        state: CycleState,
        result: Result<(), Rejection>,
    },
    /// Victims could not be removed: the Pod that needed their place is to be tried again.
    Activate {
        uid: String,
    },
}

pub(super) struct Scheduler {
    pub profiles: HashMap<String, Arc<Profile>>,
    pub queue: SchedulingQueue,
    pub cache: Cache,
    pub reporter: Reporter,
    pub clock: Clock,
    pub inputs: mpsc::UnboundedSender<Input>,
    /// The newest version of every Pod that waits for a node, bindings under way included.
    pending: HashMap<String, Arc<PodInfo>>,
    nominated: HashMap<String, Vec<Arc<PodInfo>>>,
    budgets: HashMap<String, Arc<PodDisruptionBudget>>,
    budget_list: Vec<Arc<PodDisruptionBudget>>,
    scheduling: Scheduling,
    in_flight: Arc<Semaphore>,
}

fn is_finished(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

fn is_assigned(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|name| !name.is_empty())
}

/// Whether anything changed that the cache keeps; most updates of a running Pod are status only.
fn matters_to_cache(old: &Pod, new: &Pod) -> bool {
    let started = |pod: &Pod| pod.status.as_ref().and_then(|status| status.start_time.clone());
    old.metadata.uid != new.metadata.uid
        || old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        || old.metadata.labels != new.metadata.labels
        || started(old) != started(new)
        || old.spec != new.spec
}

impl Scheduler {
    pub(super) fn new(
        profiles: Vec<Arc<Profile>>,
        queue: SchedulingQueue,
        reporter: Reporter,
        clock: Clock,
        inputs: mpsc::UnboundedSender<Input>,
    ) -> Self {
        Self {
            profiles: profiles.into_iter().map(|profile| (profile.scheduler_name.clone(), profile)).collect(),
            queue,
            cache: Cache::default(),
            reporter,
            clock,
            inputs,
            pending: HashMap::new(),
            nominated: HashMap::new(),
            budgets: HashMap::new(),
            budget_list: Vec::new(),
            scheduling: Scheduling::default(),
            in_flight: Arc::new(Semaphore::new(BINDINGS_IN_FLIGHT)),
        }
    }

    /// Works until the channel closes.
    pub(super) async fn work(&mut self, mut inputs: mpsc::UnboundedReceiver<Input>) {
        let mut flushed = self.clock.now();
        let mut deadline = None;
        loop {
            let busy = self.clock.placing();
            for _ in 0..DECISIONS_PER_TURN {
                while let Ok(input) = inputs.try_recv() {
                    self.take(input);
                }
                match self.queue.pop() {
                    Some(pod) => self.schedule(pod),
                    None => break,
                }
            }
            let now = self.clock.now();
            if !self.queue.has_active() || now >= crate::clock::later(flushed, LONGEST_WITHOUT_FLUSH) {
                deadline = self.queue.flush(now);
                flushed = now;
            }
            drop(busy);
            if self.queue.has_active() {
                tokio::task::yield_now().await;
                continue;
            }
            let input = tokio::select! {
                input = inputs.recv() => input,
                () = self.clock.sleep_until(deadline.unwrap_or(Timestamp::MAX)), if deadline.is_some() => continue,
            };
            match input {
                Some(input) => self.take(input),
                None => return,
            }
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Pod { old, new } => self.pod_changed(old, new),
            Input::Node { old, new } => self.node_changed(old, new),
            Input::Namespace { name, namespace } => {
                let labels = namespace.and_then(|namespace| namespace.metadata.labels.clone());
                let namespaces = &mut self.cache.snapshot_mut().namespaces;
                let changed = match labels {
                    Some(labels) => namespaces.insert(name, labels.clone()) != Some(labels),
                    None => namespaces.remove(&name).is_some(),
                };
                if changed {
                    self.happened(&ClusterEvent::NamespaceChanged);
                }
            }
            Input::Budget { key, budget } => {
                match budget {
                    Some(budget) => self.budgets.insert(key, budget),
                    None => self.budgets.remove(&key),
                };
                self.budget_list = self.budgets.values().cloned().collect();
            }
            Input::Bound { queued, node, state, result } => self.bound(queued, &node, state, result),
            Input::Activate { uid } => self.queue.activate(&uid, self.clock.now()),
        }
    }

    /// Asks the waiting Pods, through the plugins that turned them away, whether an event gives them hope.
    fn happened(&mut self, event: &ClusterEvent) {
        let profiles = &self.profiles;
        self.queue.move_all(self.clock.now(), |queued| {
            profile_of(profiles, &queued.info)
                .is_none_or(|profile| profile.is_worth_requeuing(&queued.info, &queued.unschedulable_plugins, event))
        });
    }

    fn node_changed(&mut self, old: Option<Arc<Node>>, new: Option<Arc<Node>>) {
        match (old, new) {
            (old, Some(new)) => {
                self.cache.snapshot_mut().set_node(new.clone());
                match old {
                    Some(old) if node_change_matters(&old, &new) => self.happened(&ClusterEvent::NodeUpdated { old, new }),
                    Some(_) => {}
                    None => self.happened(&ClusterEvent::NodeAdded(new)),
                }
            }
            (Some(old), None) => {
                self.cache.snapshot_mut().remove_node(old.metadata.name.as_deref().unwrap_or_default());
                self.happened(&ClusterEvent::NodeDeleted(old));
            }
            (None, None) => {}
        }
    }

    fn pod_changed(&mut self, old: Option<Arc<Pod>>, new: Option<Arc<Pod>>) {
        // A Pod of the same name that is another Pod: the first one is gone.
        if let (Some(before), Some(after)) = (&old, &new)
            && before.metadata.uid != after.metadata.uid
        {
            let before = before.clone();
            self.pod_changed(Some(before), None);
            self.pod_changed(None, new);
            return;
        }
        let Some(new) = new else {
            if let Some(old) = old {
                self.pod_gone(old.metadata.uid.as_deref().unwrap_or_default());
            }
            return;
        };
        let uid = new.metadata.uid.clone().unwrap_or_default();
        if is_finished(&new) {
            self.pod_gone(&uid);
        } else if is_assigned(&new) {
            let known = !self.pending.contains_key(&uid) && self.cache.is_placed(&uid);
            if known && old.as_ref().is_some_and(|old| !matters_to_cache(old, &new)) {
                return;
            }
            self.queue.remove(&uid);
            self.pending.remove(&uid);
            self.denominate(&uid);
            let info = Arc::new(PodInfo::new(new));
            let event = match self.cache.set_bound(info.clone()) {
                Some(_) if known => ClusterEvent::AssignedPodUpdated(info),
                _ => ClusterEvent::AssignedPodAdded(info),
            };
            self.happened(&event);
        } else if new.metadata.deletion_timestamp.is_some() {
            self.pod_gone(&uid);
        } else {
            let info = Arc::new(PodInfo::new(new));
            let Some(profile) = profile_of(&self.profiles, &info) else { return };
            let gated = profile.run_pre_enqueue(&info).is_err();
            self.pending.insert(uid.clone(), info.clone());
            self.denominate(&uid);
            if let Some(node) = info.nominated_node_name() {
                self.nominated.entry(node.to_owned()).or_default().push(info.clone());
            }
            if !self.cache.is_placed(&uid) {
                self.queue.update(info, gated, self.clock.now());
            }
        }
    }

    fn pod_gone(&mut self, uid: &str) {
        self.queue.remove(uid);
        self.pending.remove(uid);
        self.denominate(uid);
        if let Some(info) = self.cache.remove(uid) {
            self.happened(&ClusterEvent::AssignedPodDeleted(info));
        }
    }

    fn denominate(&mut self, uid: &str) {
        if !self.nominated.is_empty() {
            self.nominated.retain(|_, pods| {
                pods.retain(|pod| pod.uid != uid);
                !pods.is_empty()
            });
        }
    }

    fn schedule(&mut self, queued: QueuedPod) {
        let info = queued.info.clone();
        let Some(profile) = profile_of(&self.profiles, &info).cloned() else { return };
        if !self.pending.contains_key(&info.uid) || self.cache.is_placed(&info.uid) {
            return;
        }
        let cluster =
            Cluster { profile: &profile, snapshot: self.cache.snapshot(), nominated: &self.nominated, budgets: &self.budget_list };
        match self.scheduling.schedule(&info, &cluster) {
            Outcome::Placed { node, state } => self.placed(queued, node, state, profile),
            Outcome::Unschedulable { diagnosis, post_filter } => self.unschedulable(queued, &diagnosis, post_filter),
            Outcome::Failed(rejection) => self.failed(queued, &rejection),
        }
    }

    fn placed(&mut self, queued: QueuedPod, node: String, mut state: CycleState, profile: Arc<Profile>) {
        let info = queued.info.clone();
        if let Err(rejection) = profile.run_reserve(&mut state, &info, &node) {
            self.failed(queued, &rejection);
            return;
        }
        let mut holds = Vec::new();
        for plugin in &profile.permit {
            match plugin.permit(&state, &info, &node) {
                Ok(Permission::Allow) => {}
                Ok(Permission::Wait { timeout, decision }) => holds.push((plugin.name(), timeout, decision)),
                Err(rejection) => {
                    profile.run_unreserve(&mut state, &info, &node);
                    self.failed(queued, &rejection.by(plugin.name()));
                    return;
                }
            }
        }
        self.cache.assume(info.clone(), &node);
        self.denominate(&info.uid);
        let looked_at = revision_of(&info.pod.metadata);
        let binding = Binding { pod: info, node: node.clone(), profile, holds };
        let (inputs, in_flight, reporter, clock) = (self.inputs.clone(), self.in_flight.clone(), self.reporter.clone(), self.clock.clone());
        tokio::spawn(async move {
            let _busy = clock.busy();
            // The semaphore is never closed; an error would only mean that the loop has ended.
            let Ok(_slot) = in_flight.acquire().await else { return };
            let result = cause::because(looked_at, bind(binding, &reporter, &clock)).await;
            let _ = inputs.send(Input::Bound { queued, node, state, result });
        });
    }

    fn bound(&mut self, mut queued: QueuedPod, node: &str, mut state: CycleState, result: Result<(), Rejection>) {
        let Err(rejection) = result else { return };
        tracing::debug!(pod = %queued.info.key, node, reason = %rejection.message(), "the binding came to nothing");
        if let Some(profile) = profile_of(&self.profiles, &queued.info) {
            profile.run_unreserve(&mut state, &queued.info, node);
        }
        self.cache.forget(&queued.info.uid);
        // Whoever was turned away because of the assumption may fit now.
        self.happened(&ClusterEvent::AssignedPodDeleted(queued.info.clone()));
        // Gone, or bound by somebody else: nothing left to do here.
        let Some(latest) = self.pending.get(&queued.info.uid) else { return };
        queued.info = latest.clone();
        self.failed(queued, &rejection);
    }

    fn unschedulable(&mut self, mut queued: QueuedPod, diagnosis: &Diagnosis, post_filter: PostFilterOutcome) {
        let info = queued.info.clone();
        if diagnosis.all_nodes == 0 {
            // Before the first node there was nothing to try; when it comes, nobody should have to wait.
            queued.attempts = queued.attempts.saturating_sub(1);
        }
        let message = diagnosis.to_string();
        self.queue.park(queued, diagnosis.unschedulable_plugins.clone(), self.clock.now());
        if let Some(node) = &post_filter.nominated_node_name {
            self.denominate(&info.uid);
            if !node.is_empty() {
                self.nominated.entry(node.clone()).or_default().push(info.clone());
            }
        }
        self.reporter.failed_scheduling(&info, &message);
        self.reporter.pod_scheduled_false(&info, "Unschedulable", message, post_filter.nominated_node_name.clone());
        if !post_filter.victims.is_empty() {
            let (reporter, inputs) = (self.reporter.clone(), self.inputs.clone());
            tokio::spawn(async move {
                let node = post_filter.nominated_node_name.unwrap_or_default();
                if !reporter.preempt(&info, &node, post_filter.victims).await {
                    let _ = inputs.send(Input::Activate { uid: info.uid.clone() });
                }
            });
        }
    }

    fn failed(&mut self, queued: QueuedPod, rejection: &Rejection) {
        let info = queued.info.clone();
        self.queue.back_off(queued, self.clock.now());
        let message = rejection.message();
        self.reporter.failed_scheduling(&info, &message);
        self.reporter.pod_scheduled_false(&info, "SchedulerError", message, None);
    }
}

fn profile_of<'a>(profiles: &'a HashMap<String, Arc<Profile>>, pod: &PodInfo) -> Option<&'a Arc<Profile>> {
    let name = pod.spec().and_then(|spec| spec.scheduler_name.as_deref()).filter(|name| !name.is_empty());
    profiles.get(name.unwrap_or(super::DEFAULT_SCHEDULER_NAME))
}
