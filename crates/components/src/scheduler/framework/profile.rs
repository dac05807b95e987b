//! A profile: the plugins that place the Pods of one `schedulerName`, in order, and how each point runs them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::cache::Snapshot;
use super::super::event::{ClusterEvent, QueueingHint};
use super::super::info::{NodeInfo, PodInfo};
use super::{
    Bind, Code, CycleState, Diagnosis, Filter, Permit, Plugin, PostBind, PostFilter, PreBind, PreEnqueue, PreFilter, PreFilterOutcome,
    PreScore, QueueSort, Rejection, Reserve, Score,
};

/// The plugins of one scheduler name, one list per extension point.
pub struct Profile {
    /// `spec.schedulerName` of the Pods it places.
    pub scheduler_name: String,
    /// Orders the queue.
    pub queue_sort: Arc<dyn QueueSort>,
    /// May keep a Pod out of the queue.
    pub pre_enqueue: Vec<Arc<dyn PreEnqueue>>,
    /// Run once per Pod.
    pub pre_filter: Vec<Arc<dyn PreFilter>>,
    /// Run per Pod and node, in order, until one says no.
    pub filter: Vec<Arc<dyn Filter>>,
    /// Run when no node is left.
    pub post_filter: Vec<Arc<dyn PostFilter>>,
    /// Run once per Pod over the feasible nodes.
    pub pre_score: Vec<Arc<dyn PreScore>>,
    /// Run per Pod and feasible node; the number is the weight.
    pub score: Vec<(Arc<dyn Score>, i64)>,
    /// Run when a node has been chosen.
    pub reserve: Vec<Arc<dyn Reserve>>,
    /// May hold the binding back.
    pub permit: Vec<Arc<dyn Permit>>,
    /// Run before the binding.
    pub pre_bind: Vec<Arc<dyn PreBind>>,
    /// The first that takes the Pod binds it.
    pub bind: Vec<Arc<dyn Bind>>,
    /// Told of the binding.
    pub post_bind: Vec<Arc<dyn PostBind>>,
    /// Every plugin by name, for queueing hints.
    pub plugins: HashMap<&'static str, Arc<dyn Plugin>>,
}

impl Profile {
    /// Runs PreEnqueue; an error keeps the Pod out of the active queue.
    pub fn run_pre_enqueue(&self, pod: &PodInfo) -> Result<(), Rejection> {
        self.pre_enqueue.iter().try_for_each(|plugin| plugin.pre_enqueue(pod).map_err(|rejection| rejection.by(plugin.name())))
    }

    /// Runs PreFilter. `Ok(None)` means all nodes; an error has been written into the diagnosis.
    pub fn run_pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot,
        diagnosis: &mut Diagnosis,
    ) -> Result<Option<HashSet<String>>, Rejection> {
        let mut only: Option<HashSet<String>> = None;
        let mut narrowed_by: Vec<&'static str> = Vec::new();
        for plugin in &self.pre_filter {
            match plugin.pre_filter(state, pod, snapshot) {
                Ok(PreFilterOutcome::Skip) => state.skip_filter.push(plugin.name()),
                Ok(PreFilterOutcome::All) => {}
                Ok(PreFilterOutcome::Only(names)) => {
                    narrowed_by.push(plugin.name());
                    only = Some(match only {
                        Some(before) => before.intersection(&names).cloned().collect(),
                        None => names,
                    });
                    if only.as_ref().is_some_and(HashSet::is_empty) {
                        let reason = if narrowed_by.len() == 1 {
                            format!("node(s) didn't satisfy plugin {}", narrowed_by.join(","))
                        } else {
                            format!("node(s) didn't satisfy plugin(s) [{}] simultaneously", narrowed_by.join(" "))
                        };
                        let rejection = Rejection::unresolvable(reason).by(plugin.name());
                        diagnosis.unschedulable_plugins.extend(narrowed_by);
                        diagnosis.pre_filter_message = rejection.message();
                        return Err(rejection);
                    }
                }
                Err(rejection) => {
                    let rejection = rejection.by(plugin.name());
                    diagnosis.unschedulable_plugins.insert(rejection.plugin);
                    diagnosis.pre_filter_message = rejection.message();
                    return Err(rejection);
                }
            }
        }
        Ok(only)
    }

    /// Runs the filters on one node.
    pub fn run_filters(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        self.filter
            .iter()
            .filter(|plugin| !state.skip_filter.contains(&plugin.name()))
            .try_for_each(|plugin| plugin.filter(state, pod, node).map_err(|rejection| rejection.by(plugin.name())))
    }

    /// Runs the filters as if the Pods nominated to the node ran there already, and then without them: a Pod of lower priority must
    /// not take the place that was cleared for another, nor lean on it (by affinity) before it is there.
    pub fn run_filters_with_nominated(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
        nominated: &HashMap<String, Vec<Arc<PodInfo>>>,
        snapshot: &Snapshot,
    ) -> Result<(), Rejection> {
        let others: Vec<&Arc<PodInfo>> = nominated
            .get(&node.name)
            .into_iter()
            .flatten()
            .filter(|other| other.priority >= pod.priority && other.uid != pod.uid)
            .collect();
        if !others.is_empty() {
            let mut crowded = node.clone();
            let mut state = state.clone();
            for other in others {
                crowded.add_pod(other.clone());
                self.pre_filter.iter().for_each(|plugin| plugin.add_pod(&mut state, pod, other, node, snapshot));
            }
            self.run_filters(&state, pod, &crowded)?;
        }
        self.run_filters(state, pod, node)
    }

    /// Scores the feasible nodes: the weighted sum over plugins, in the order of `nodes`.
    #[must_use]
    pub fn run_scores(&self, state: &mut CycleState, pod: &PodInfo, nodes: &[Arc<NodeInfo>], snapshot: &Snapshot) -> Vec<i64> {
        for plugin in &self.pre_score {
            if !plugin.pre_score(state, pod, nodes, snapshot) {
                state.skip_score.push(plugin.name());
            }
        }
        let mut totals = vec![0i64; nodes.len()];
        for (plugin, weight) in &self.score {
            if state.skip_score.contains(&plugin.name()) {
                continue;
            }
            let mut scores: Vec<i64> = nodes.iter().map(|node| plugin.score(state, pod, node, snapshot)).collect();
            plugin.normalize(state, pod, nodes, &mut scores);
            for (total, score) in totals.iter_mut().zip(scores) {
                *total = total.saturating_add(score.saturating_mul(*weight));
            }
        }
        totals
    }

    /// Runs Reserve; on a refusal everything reserved so far is given back.
    pub fn run_reserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str) -> Result<(), Rejection> {
        for plugin in &self.reserve {
            if let Err(rejection) = plugin.reserve(state, pod, node) {
                self.run_unreserve(state, pod, node);
                return Err(rejection.by(plugin.name()));
            }
        }
        Ok(())
    }

    /// Gives back what Reserve took, last first.
    pub fn run_unreserve(&self, state: &mut CycleState, pod: &PodInfo, node: &str) {
        self.reserve.iter().rev().for_each(|plugin| plugin.unreserve(state, pod, node));
    }

    /// Whether any of the plugins that turned the Pod away hopes for something from this event.
    #[must_use]
    pub fn is_worth_requeuing<'a>(
        &self,
        pod: &PodInfo,
        rejected_by: impl IntoIterator<Item = &'a &'static str>,
        event: &ClusterEvent,
    ) -> bool {
        let mut nobody = true;
        for name in rejected_by {
            nobody = false;
            // A plugin that cannot be asked may hope for anything.
            if self.plugins.get(name).is_none_or(|plugin| plugin.queueing_hint(pod, event) == QueueingHint::Queue) {
                return true;
            }
        }
        nobody
    }
}

impl Rejection {
    /// Whether removing Pods from the node could change the answer.
    #[must_use]
    pub fn is_resolvable(&self) -> bool {
        self.code == Code::Unschedulable
    }
}
