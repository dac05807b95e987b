//! PodTopologySpread: keeps the number of like Pods in each topology domain within `maxSkew`, strictly (`DoNotSchedule`) or as a wish
//! (`ScheduleAnyway`).
//!
//! Only the constraints that a Pod carries are applied; there are no cluster-wide default constraints.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::node_affinity::node_matches;
use super::taint_toleration::untolerated;
use crate::scheduler::cache::Snapshot;
use crate::scheduler::event::{ClusterEvent, QueueingHint};
use crate::scheduler::framework::{CycleState, Filter, MAX_NODE_SCORE, Plugin, PreFilter, PreFilterOutcome, PreScore, Rejection, Score};
use crate::scheduler::info::{NodeInfo, PodInfo, add_label_keys};
use crate::scheduler::selector::label_selector_matches;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// See the module's description.
pub struct PodTopologySpread;

#[derive(Clone, Debug)]
struct Constraint {
    max_skew: i64,
    topology_key: String,
    selector: Option<LabelSelector>,
    min_domains: i64,
    honor_affinity: bool,
    honor_taints: bool,
}

impl Constraint {
    fn new(constraint: &TopologySpreadConstraint, pod: &PodInfo) -> Self {
        let mut selector = constraint.label_selector.clone();
        add_label_keys(&mut selector, constraint.match_label_keys.as_deref().unwrap_or_default(), "In", pod.labels());
        Self {
            max_skew: constraint.max_skew.into(),
            topology_key: constraint.topology_key.clone(),
            selector,
            min_domains: constraint.min_domains.unwrap_or(1).into(),
            honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        }
    }

    fn is_about(&self, of: &PodInfo, pod: &PodInfo) -> bool {
        pod.namespace == of.namespace && self.selector.as_ref().is_some_and(|selector| label_selector_matches(selector, pod.labels()))
    }

    fn counts_node(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        (!self.honor_affinity || node_matches(pod, &node.node)) && (!self.honor_taints || untolerated(pod, node.taints()).is_none())
    }

    fn count_on(&self, pod: &PodInfo, node: &NodeInfo) -> i64 {
        let count = node.pods.iter().filter(|other| !other.is_terminating() && self.is_about(pod, other)).count();
        i64::try_from(count).unwrap_or(i64::MAX)
    }
}

fn constraints(pod: &PodInfo, when_unsatisfiable: &str) -> Vec<Constraint> {
    pod.spec()
        .and_then(|spec| spec.topology_spread_constraints.as_ref())
        .into_iter()
        .flatten()
        .filter(|constraint| constraint.when_unsatisfiable == when_unsatisfiable)
        .map(|constraint| Constraint::new(constraint, pod))
        .collect()
}

fn has_all_keys(node: &NodeInfo, constraints: &[Constraint]) -> bool {
    constraints.iter().all(|constraint| node.labels().contains_key(&constraint.topology_key))
}

/// How many like Pods each domain of each hard constraint has.
#[derive(Clone, Debug, Default)]
struct Hard {
    constraints: Vec<Constraint>,
    counts: Vec<HashMap<String, i64>>,
}

impl Hard {
    fn least(&self, index: usize) -> i64 {
        let domains = i64::try_from(self.counts[index].len()).unwrap_or(i64::MAX);
        if domains < self.constraints[index].min_domains {
            return 0;
        }
        self.counts[index].values().copied().min().unwrap_or_default()
    }

    fn adjust(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, by: i64) {
        if !has_all_keys(node, &self.constraints) {
            return;
        }
        for (constraint, counts) in self.constraints.iter().zip(&mut self.counts) {
            if constraint.counts_node(pod, node)
                && constraint.is_about(pod, other)
                && let Some(count) = node.labels().get(&constraint.topology_key).and_then(|value| counts.get_mut(value))
            {
                *count += by;
            }
        }
    }
}

impl Plugin for PodTopologySpread {
    fn name(&self) -> &'static str {
        "PodTopologySpread"
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent) -> QueueingHint {
        let hard = constraints(pod, "DoNotSchedule");
        match event {
            ClusterEvent::AssignedPodAdded(other) | ClusterEvent::AssignedPodDeleted(other) | ClusterEvent::AssignedPodUpdated(other) => {
                hard.iter().any(|constraint| constraint.is_about(pod, other)).into()
            }
            ClusterEvent::NodeAdded(_) | ClusterEvent::NodeUpdated { .. } | ClusterEvent::NodeDeleted(_) => QueueingHint::Queue,
            ClusterEvent::NamespaceChanged => QueueingHint::Skip,
        }
    }
}

impl PreFilter for PodTopologySpread {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Result<PreFilterOutcome, Rejection> {
        let constraints = constraints(pod, "DoNotSchedule");
        if constraints.is_empty() {
            return Ok(PreFilterOutcome::Skip);
        }
        let mut counts = vec![HashMap::new(); constraints.len()];
        for node in snapshot.nodes().iter().filter(|node| has_all_keys(node, &constraints)) {
            for (constraint, counts) in constraints.iter().zip(&mut counts) {
                if let Some(value) = node.labels().get(&constraint.topology_key).filter(|_| constraint.counts_node(pod, node)) {
                    *counts.entry(value.clone()).or_insert(0) += constraint.count_on(pod, node);
                }
            }
        }
        state.write(Hard { constraints, counts });
        Ok(PreFilterOutcome::All)
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo, _: &Snapshot) {
        if let Some(hard) = state.read_mut::<Hard>() {
            hard.adjust(pod, added, node, 1);
        }
    }

    fn remove_pod(&self, state: &mut CycleState, pod: &PodInfo, removed: &PodInfo, node: &NodeInfo, _: &Snapshot) {
        if let Some(hard) = state.read_mut::<Hard>() {
            hard.adjust(pod, removed, node, -1);
        }
    }
}

impl Filter for PodTopologySpread {
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(hard) = state.read::<Hard>() else { return Ok(()) };
        for (index, constraint) in hard.constraints.iter().enumerate() {
            let Some(value) = node.labels().get(&constraint.topology_key) else {
                return Err(Rejection::unresolvable("node(s) didn't match pod topology spread constraints (missing required label)"));
            };
            let here = hard.counts[index].get(value).copied().unwrap_or_default();
            let own = i64::from(constraint.is_about(pod, pod));
            if here + own - hard.least(index) > constraint.max_skew {
                return Err(Rejection::unschedulable("node(s) didn't match pod topology spread constraints"));
            }
        }
        Ok(())
    }
}

/// How many like Pods each domain of each soft constraint has, among the nodes that are still in the race.
#[derive(Clone, Debug, Default)]
struct Soft {
    constraints: Vec<Constraint>,
    counts: Vec<HashMap<String, i64>>,
    weights: Vec<f64>,
    ignored: HashSet<String>,
}

impl PreScore for PodTopologySpread {
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, nodes: &[Arc<NodeInfo>], snapshot: &Snapshot) -> bool {
        let constraints = constraints(pod, "ScheduleAnyway");
        if constraints.is_empty() {
            return false;
        }
        let mut soft = Soft { counts: vec![HashMap::new(); constraints.len()], ..Soft::default() };
        for node in nodes {
            if !has_all_keys(node, &constraints) {
                soft.ignored.insert(node.name.clone());
                continue;
            }
            for (constraint, counts) in constraints.iter().zip(&mut soft.counts) {
                if let Some(value) = node.labels().get(&constraint.topology_key) {
                    counts.entry(value.clone()).or_insert(0);
                }
            }
        }
        // A constraint over many small domains would drown one over few large ones; the logarithm evens that out.
        #[expect(clippy::cast_precision_loss, reason = "a number of topology domains is far below 2^52")]
        let weigh = |domains: usize| ((domains + 2) as f64).ln();
        soft.weights = soft.counts.iter().map(|counts| weigh(counts.len())).collect();
        for node in snapshot.nodes().iter().filter(|node| has_all_keys(node, &constraints)) {
            for (constraint, counts) in constraints.iter().zip(&mut soft.counts) {
                if constraint.topology_key == HOSTNAME || !constraint.counts_node(pod, node) {
                    continue;
                }
                if let Some(count) = node.labels().get(&constraint.topology_key).and_then(|value| counts.get_mut(value)) {
                    *count += constraint.count_on(pod, node);
                }
            }
        }
        soft.constraints = constraints;
        state.write(soft);
        true
    }
}

impl Score for PodTopologySpread {
    fn score(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let Some(soft) = state.read::<Soft>().filter(|soft| !soft.ignored.contains(&node.name)) else { return 0 };
        let mut score = 0.0;
        for ((constraint, counts), weight) in soft.constraints.iter().zip(&soft.counts).zip(&soft.weights) {
            let Some(value) = node.labels().get(&constraint.topology_key) else { continue };
            // With one node per domain the node itself is the count.
            let count = if constraint.topology_key == HOSTNAME {
                constraint.count_on(pod, node)
            } else {
                counts.get(value).copied().unwrap_or_default()
            };
            #[expect(clippy::cast_precision_loss, reason = "a number of Pods is far below 2^52")]
            {
                score += count as f64 * weight + (constraint.max_skew - 1) as f64;
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "a float too large saturates")]
        {
            score.round() as i64
        }
    }

    fn normalize(&self, state: &CycleState, _: &PodInfo, nodes: &[Arc<NodeInfo>], scores: &mut [i64]) {
        let Some(soft) = state.read::<Soft>() else { return };
        let ignored = |index: usize| nodes.get(index).is_some_and(|node| soft.ignored.contains(&node.name));
        let counted = || scores.iter().enumerate().filter(|(index, _)| !ignored(*index)).map(|(_, score)| *score);
        let (min, max) = (counted().min().unwrap_or_default(), counted().max().unwrap_or_default());
        for (index, score) in scores.iter_mut().enumerate() {
            *score = match max {
                _ if ignored(index) => 0,
                0 => MAX_NODE_SCORE,
                max => MAX_NODE_SCORE * (max + min - *score) / max,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::testing::{node_named, pod_on, snapshot};
    use serde_json::json;

    fn zone(name: &str, zone: &str) -> Arc<k8s_openapi::api::core::v1::Node> {
        node_named(name, json!({"metadata": {"labels": {"zone": zone}}}))
    }

    fn web(name: &str, on: &str, when: &str) -> Arc<PodInfo> {
        pod_on(
            name,
            on,
            json!({"metadata": {"labels": {"app": "web"}}, "spec": {"topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when, "labelSelector": {"matchLabels": {"app": "web"}}}]}}),
        )
    }

    #[test]
    fn a_domain_that_would_be_too_far_ahead_is_ruled_out() {
        let snapshot = snapshot([zone("a", "1"), zone("b", "2"), node_named("c", json!({}))], [web("x", "a", "DoNotSchedule")]);
        let pod = web("y", "", "DoNotSchedule");
        let mut state = CycleState::default();
        PodTopologySpread.pre_filter(&mut state, &pod, &snapshot).unwrap();
        let filter = |name: &str| PodTopologySpread.filter(&state, &pod, snapshot.node(name).unwrap());
        assert_eq!(filter("a").unwrap_err().message(), "node(s) didn't match pod topology spread constraints");
        assert!(filter("b").is_ok());
        assert_eq!(filter("c").unwrap_err().message(), "node(s) didn't match pod topology spread constraints (missing required label)");
    }

    #[test]
    fn removing_a_pod_in_a_what_if_opens_its_domain() {
        let first = web("x", "a", "DoNotSchedule");
        let snapshot = snapshot([zone("a", "1"), zone("b", "2")], [first.clone()]);
        let pod = web("y", "", "DoNotSchedule");
        let mut state = CycleState::default();
        PodTopologySpread.pre_filter(&mut state, &pod, &snapshot).unwrap();
        let node = snapshot.node("a").unwrap();
        PodTopologySpread.remove_pod(&mut state, &pod, &first, node, &snapshot);
        assert!(PodTopologySpread.filter(&state, &pod, node).is_ok());
    }

    #[test]
    fn too_few_domains_count_as_if_one_were_empty() {
        let mut pod = serde_json::to_value(&*web("y", "", "DoNotSchedule").pod).unwrap();
        pod["spec"]["topologySpreadConstraints"][0]["minDomains"] = 2.into();
        let pod = crate::scheduler::testing::pod(pod);
        let snapshot = snapshot([zone("a", "1")], [web("x", "a", "DoNotSchedule")]);
        let mut state = CycleState::default();
        PodTopologySpread.pre_filter(&mut state, &pod, &snapshot).unwrap();
        assert!(PodTopologySpread.filter(&state, &pod, snapshot.node("a").unwrap()).is_err());
    }

    #[test]
    fn a_wish_ranks_the_emptier_domain_higher() {
        let snapshot = snapshot([zone("a", "1"), zone("b", "2")], [web("x", "a", "ScheduleAnyway"), web("z", "a", "ScheduleAnyway")]);
        let pod = web("y", "", "ScheduleAnyway");
        let mut state = CycleState::default();
        assert!(PodTopologySpread.pre_score(&mut state, &pod, snapshot.nodes(), &snapshot));
        let mut scores: Vec<i64> = snapshot.nodes().iter().map(|node| PodTopologySpread.score(&state, &pod, node, &snapshot)).collect();
        PodTopologySpread.normalize(&state, &pod, snapshot.nodes(), &mut scores);
        assert_eq!(scores, [0, 100]);
    }
}
