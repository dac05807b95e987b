//! One scheduling decision: from a Pod and a picture of the cluster to a node, or to the reasons why there is none.
//!
//! Pure logic. It neither assumes nor binds nor removes anything; the loop in `run` does what is decided here.

use std::sync::Arc;

use super::framework::{Cluster, Code, CycleState, Diagnosis, PostFilterOutcome, Rejection};
use super::info::{NodeInfo, PodInfo};

/// Below this many nodes all are looked at.
const MIN_FEASIBLE_NODES: usize = 100;
const MIN_FEASIBLE_PERCENTAGE: usize = 5;

/// What came of it.
#[derive(Debug)]
pub enum Outcome {
    /// The Pod goes to this node.
    Placed {
        /// The node's name.
        node: String,
        /// What the plugins remember, for Reserve and Permit.
        state: CycleState,
    },
    /// There is no place for it now.
    Unschedulable {
        /// Why, node by node.
        diagnosis: Box<Diagnosis>,
        /// What PostFilter proposes.
        post_filter: PostFilterOutcome,
    },
    /// A plugin failed.
    Failed(Rejection),
}

/// What one decision leaves for the next: where to start looking, and a source of even-handedness among equals.
#[derive(Debug)]
pub struct Scheduling {
    next_start: usize,
    dice: u64,
}

impl Default for Scheduling {
    fn default() -> Self {
        Self { next_start: 0, dice: 0x9E37_79B9_7F4A_7C15 }
    }
}

/// How many feasible nodes are enough: all in a small cluster, a falling share in a large one.
fn enough_nodes(all: usize) -> usize {
    if all < MIN_FEASIBLE_NODES {
        return all;
    }
    let percentage = 50usize.saturating_sub(all / 125).max(MIN_FEASIBLE_PERCENTAGE);
    (all * percentage / 100).max(MIN_FEASIBLE_NODES)
}

impl Scheduling {
    /// Decides where `pod` goes.
    pub fn schedule(&mut self, pod: &Arc<PodInfo>, cluster: &Cluster<'_>) -> Outcome {
        let mut state = CycleState::default();
        let mut diagnosis = Diagnosis { all_nodes: cluster.snapshot.nodes().len(), ..Diagnosis::default() };
        if diagnosis.all_nodes == 0 {
            return Outcome::Unschedulable { diagnosis: Box::new(diagnosis), post_filter: PostFilterOutcome::default() };
        }
        let feasible = match self.feasible_nodes(&mut state, pod, cluster, &mut diagnosis) {
            Ok(nodes) => nodes,
            Err(rejection) => return Outcome::Failed(rejection),
        };
        if feasible.is_empty() {
            let mut post_filter = PostFilterOutcome::default();
            for plugin in &cluster.profile.post_filter {
                post_filter = plugin.post_filter(&state, pod, &diagnosis.statuses, cluster);
                diagnosis.post_filter_message.clone_from(&post_filter.message);
                if !post_filter.victims.is_empty() {
                    break;
                }
            }
            return Outcome::Unschedulable { diagnosis: Box::new(diagnosis), post_filter };
        }
        let node = if let [only] = feasible.as_slice() {
            only
        } else {
            let scores = cluster.profile.run_scores(&mut state, pod, &feasible, cluster.snapshot);
            &feasible[self.best(&scores)]
        };
        Outcome::Placed { node: node.name.clone(), state }
    }

    fn feasible_nodes(
        &mut self,
        state: &mut CycleState,
        pod: &PodInfo,
        cluster: &Cluster<'_>,
        diagnosis: &mut Diagnosis,
    ) -> Result<Vec<Arc<NodeInfo>>, Rejection> {
        let only = match cluster.profile.run_pre_filter(state, pod, cluster.snapshot, diagnosis) {
            Ok(only) => only,
            Err(rejection) if rejection.code == Code::Error => return Err(rejection),
            Err(rejection) => {
                let everywhere = cluster.snapshot.nodes().iter().map(|node| (node.name.clone(), rejection.clone()));
                diagnosis.statuses.extend(everywhere);
                return Ok(Vec::new());
            }
        };
        let fits = |node: &NodeInfo| cluster.profile.run_filters_with_nominated(state, pod, node, cluster.nominated, cluster.snapshot);
        // A node that a preemption has cleared for this Pod is tried before all others.
        if let Some(node) = pod.nominated_node_name().and_then(|name| cluster.snapshot.node(name))
            && only.as_ref().is_none_or(|only| only.contains(&node.name))
            && fits(node).is_ok()
        {
            return Ok(vec![node.clone()]);
        }
        let nodes = cluster.snapshot.nodes();
        let enough = enough_nodes(nodes.len());
        let mut feasible = Vec::with_capacity(enough);
        let mut looked_at = 0;
        for offset in 0..nodes.len() {
            let node = &nodes[(self.next_start + offset) % nodes.len()];
            looked_at += 1;
            if only.as_ref().is_some_and(|only| !only.contains(&node.name)) {
                diagnosis.absent.get_or_insert_with(|| Rejection::unresolvable("node(s) didn't satisfy plugin(s) [NodeAffinity]"));
                continue;
            }
            match fits(node) {
                Ok(()) => feasible.push(node.clone()),
                Err(rejection) if rejection.code == Code::Error => return Err(rejection),
                Err(rejection) => {
                    diagnosis.unschedulable_plugins.insert(rejection.plugin);
                    diagnosis.statuses.insert(node.name.clone(), rejection);
                }
            }
            if feasible.len() >= enough {
                break;
            }
        }
        self.next_start = (self.next_start + looked_at) % nodes.len();
        if only.is_some() && feasible.is_empty() {
            diagnosis.unschedulable_plugins.insert("NodeAffinity");
        }
        Ok(feasible)
    }

    /// The index of the best score; among equals any, so that ties do not pile up on one node.
    fn best(&mut self, scores: &[i64]) -> usize {
        let mut best = 0;
        let mut equals = 1u64;
        for (index, score) in scores.iter().enumerate().skip(1) {
            match score.cmp(&scores[best]) {
                std::cmp::Ordering::Greater => {
                    best = index;
                    equals = 1;
                }
                std::cmp::Ordering::Equal => {
                    equals += 1;
                    self.dice ^= self.dice << 13;
                    self.dice ^= self.dice >> 7;
                    self.dice ^= self.dice << 17;
                    if self.dice.is_multiple_of(equals) {
                        best = index;
                    }
                }
                std::cmp::Ordering::Less => {}
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::cache::Cache;
    use crate::scheduler::testing::{node_named, pod_on, profile};
    use serde_json::json;
    use std::collections::HashMap;

    fn schedule(scheduling: &mut Scheduling, cache: &Cache, pod: &Arc<PodInfo>) -> Outcome {
        let nominated = HashMap::new();
        scheduling.schedule(pod, &Cluster { profile: &profile(), snapshot: cache.snapshot(), nominated: &nominated, budgets: &[] })
    }

    #[test]
    fn a_cluster_without_nodes_places_nothing_and_says_so() {
        let outcome = schedule(&mut Scheduling::default(), &Cache::default(), &pod_on("p", "", json!({})));
        let Outcome::Unschedulable { diagnosis, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(diagnosis.to_string(), "no nodes available to schedule pods");
    }

    #[test]
    fn a_thousand_pods_spread_evenly_over_twenty_nodes() {
        let mut cache = Cache::default();
        for index in 0..20 {
            cache
                .snapshot_mut()
                .set_node(node_named(&format!("node-{index}"), json!({"status": {"allocatable": {"cpu": "16", "memory": "64Gi"}}})));
        }
        let profile = profile();
        let nominated = HashMap::new();
        let mut scheduling = Scheduling::default();
        let started = std::time::Instant::now();
        for index in 0..1000 {
            let pod = pod_on(&format!("p{index}"), "", json!({}));
            let cluster = Cluster { profile: &profile, snapshot: cache.snapshot(), nominated: &nominated, budgets: &[] };
            let Outcome::Placed { node, .. } = scheduling.schedule(&pod, &cluster) else { panic!("not placed") };
            cache.assume(pod, &node);
        }
        let took = started.elapsed();
        for node in cache.snapshot().nodes() {
            assert!((49..=51).contains(&node.pods.len()), "{}: {}", node.name, node.pods.len());
        }
        // Generous: it takes a fraction of this even without optimisation.
        assert!(took < std::time::Duration::from_secs(2), "{took:?}");
    }

    #[test]
    fn reasons_are_counted_over_all_nodes() {
        let mut cache = Cache::default();
        cache.snapshot_mut().set_node(node_named("a", json!({"spec": {"unschedulable": true}})));
        cache.snapshot_mut().set_node(node_named("b", json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})));
        cache.snapshot_mut().set_node(node_named("c", json!({"status": {"allocatable": {"cpu": "1"}}})));
        let pod = pod_on("p", "", json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}));
        let outcome = schedule(&mut Scheduling::default(), &cache, &pod);
        let Outcome::Unschedulable { diagnosis, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(
            diagnosis.to_string(),
            "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. \
             preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
        );
        assert_eq!(
            diagnosis.unschedulable_plugins.iter().copied().collect::<Vec<_>>(),
            ["NodeResourcesFit", "NodeUnschedulable", "TaintToleration"]
        );
    }

    #[test]
    fn a_large_cluster_is_sampled() {
        assert_eq!((enough_nodes(20), enough_nodes(1000), enough_nodes(10_000)), (20, 420, 500));
    }
}
