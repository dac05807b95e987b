//! InterPodAffinity: Pods that want to be near certain Pods, or away from them, by required rules and by preference.

use std::collections::HashMap;
use std::sync::Arc;

use crate::scheduler::cache::Snapshot;
use crate::scheduler::event::{ClusterEvent, QueueingHint};
use crate::scheduler::framework::{CycleState, Filter, MAX_NODE_SCORE, Plugin, PreFilter, PreFilterOutcome, PreScore, Rejection, Score};
use crate::scheduler::info::{AffinityTerm, NodeInfo, PodInfo};
use crate::scheduler::selector::Labels;

/// What required affinity of a running Pod towards the new one counts for in scoring.
const HARD_POD_AFFINITY_WEIGHT: i64 = 1;

/// See the module's description.
pub struct InterPodAffinity;

/// (topology key, value) → how many.
type Places = HashMap<(String, String), i64>;

fn count(places: &mut Places, term: &AffinityTerm, node: &NodeInfo, by: i64) {
    if let Some(value) = node.labels().get(&term.topology_key) {
        let key = (term.topology_key.clone(), value.clone());
        let left = places.entry(key.clone()).or_default();
        *left += by;
        if *left == 0 {
            places.remove(&key);
        }
    }
}

fn has(places: &Places, term: &AffinityTerm, node: &NodeInfo) -> bool {
    node.labels()
        .get(&term.topology_key)
        .is_some_and(|value| places.get(&(term.topology_key.clone(), value.clone())).is_some_and(|count| *count > 0))
}

#[derive(Clone, Debug, Default)]
struct Required {
    /// Where running Pods do not want the new one.
    existing_anti: Places,
    /// Where there are Pods that the new one wants to be near.
    affinity: Places,
    /// Where there are Pods that the new one wants to be away from.
    anti: Places,
}

impl Required {
    fn adjust(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, namespaces: &HashMap<String, Labels>, by: i64) {
        for term in other.required_anti_affinity.iter().filter(|term| term.matches(pod, namespaces)) {
            count(&mut self.existing_anti, term, node, by);
        }
        if matches_all(&pod.required_affinity, other, namespaces) {
            for term in &pod.required_affinity {
                count(&mut self.affinity, term, node, by);
            }
        }
        for term in pod.required_anti_affinity.iter().filter(|term| term.matches(other, namespaces)) {
            count(&mut self.anti, term, node, by);
        }
    }
}

fn matches_all(terms: &[AffinityTerm], pod: &PodInfo, namespaces: &HashMap<String, Labels>) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.matches(pod, namespaces))
}

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        "InterPodAffinity"
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent) -> QueueingHint {
        // Namespace labels are not at hand here; a selector over namespaces counts as a possible match.
        let may_match = |term: &AffinityTerm, other: &PodInfo| term.namespace_selector.is_some() || term.matches(other, &HashMap::new());
        match event {
            ClusterEvent::AssignedPodAdded(other) => pod.required_affinity.iter().any(|term| may_match(term, other)).into(),
            ClusterEvent::AssignedPodDeleted(other) => {
                let was_in_the_way = pod.required_anti_affinity.iter().any(|term| may_match(term, other));
                (was_in_the_way || other.required_anti_affinity.iter().any(|term| may_match(term, pod))).into()
            }
            ClusterEvent::NodeDeleted(_) => QueueingHint::Skip,
            _ => QueueingHint::Queue,
        }
    }
}

impl PreFilter for InterPodAffinity {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, snapshot: &Snapshot) -> Result<PreFilterOutcome, Rejection> {
        let own = !pod.required_affinity.is_empty() || !pod.required_anti_affinity.is_empty();
        let mut required = Required::default();
        if own || snapshot.has_pods_with_required_anti_affinity() {
            for node in snapshot.nodes() {
                if !own && node.pods_with_required_anti_affinity == 0 {
                    continue;
                }
                for other in &node.pods {
                    required.adjust(pod, other, node, &snapshot.namespaces, 1);
                }
            }
        }
        if !own && required.existing_anti.is_empty() {
            return Ok(PreFilterOutcome::Skip);
        }
        // Whether the Pod satisfies its own affinity decides if it may be the first of its kind.
        state.write(SelfMatch(matches_all(&pod.required_affinity, pod, &snapshot.namespaces)));
        state.write(required);
        Ok(PreFilterOutcome::All)
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) {
        if let Some(required) = state.read_mut::<Required>() {
            required.adjust(pod, added, node, &snapshot.namespaces, 1);
        }
    }

    fn remove_pod(&self, state: &mut CycleState, pod: &PodInfo, removed: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) {
        if let Some(required) = state.read_mut::<Required>() {
            required.adjust(pod, removed, node, &snapshot.namespaces, -1);
        }
    }
}

#[derive(Clone, Copy)]
struct SelfMatch(bool);

impl Filter for InterPodAffinity {
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(required) = state.read::<Required>() else { return Ok(()) };
        let near = pod.required_affinity.iter().all(|term| has(&required.affinity, term, node));
        if !near {
            let keys = pod.required_affinity.iter().all(|term| node.labels().contains_key(&term.topology_key));
            let first = required.affinity.is_empty() && state.read::<SelfMatch>().is_some_and(|own| own.0);
            if !(keys && first) {
                return Err(Rejection::unresolvable("node(s) didn't match pod affinity rules"));
            }
        }
        if pod.required_anti_affinity.iter().any(|term| has(&required.anti, term, node)) {
            return Err(Rejection::unschedulable("node(s) didn't match pod anti-affinity rules"));
        }
        let unwelcome = !required.existing_anti.is_empty()
            && node.labels().iter().any(|(key, value)| required.existing_anti.contains_key(&(key.clone(), value.clone())));
        if unwelcome {
            return Err(Rejection::unschedulable("node(s) didn't satisfy existing pods anti-affinity rules"));
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Default)]
struct Preferred(Places);

impl PreScore for InterPodAffinity {
    fn pre_score(&self, state: &mut CycleState, pod: &PodInfo, _: &[Arc<NodeInfo>], snapshot: &Snapshot) -> bool {
        let own = !pod.preferred_affinity.is_empty() || !pod.preferred_anti_affinity.is_empty();
        if !own && !snapshot.has_pods_with_affinity() {
            return false;
        }
        let namespaces = &snapshot.namespaces;
        let mut places = Places::new();
        for node in snapshot.nodes().iter().filter(|node| own || node.pods_with_affinity > 0) {
            for other in &node.pods {
                for term in pod.preferred_affinity.iter().filter(|term| term.matches(other, namespaces)) {
                    count(&mut places, term, node, term.weight);
                }
                for term in pod.preferred_anti_affinity.iter().filter(|term| term.matches(other, namespaces)) {
                    count(&mut places, term, node, -term.weight);
                }
                for term in other.required_affinity.iter().filter(|term| term.matches(pod, namespaces)) {
                    count(&mut places, term, node, HARD_POD_AFFINITY_WEIGHT);
                }
                for term in other.preferred_affinity.iter().filter(|term| term.matches(pod, namespaces)) {
                    count(&mut places, term, node, term.weight);
                }
                for term in other.preferred_anti_affinity.iter().filter(|term| term.matches(pod, namespaces)) {
                    count(&mut places, term, node, -term.weight);
                }
            }
        }
        if places.is_empty() {
            return false;
        }
        state.write(Preferred(places));
        true
    }
}

impl Score for InterPodAffinity {
    fn score(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let Some(Preferred(places)) = state.read::<Preferred>() else { return 0 };
        places.iter().filter(|((key, value), _)| node.labels().get(key) == Some(value)).map(|(_, weight)| weight).sum()
    }

    fn normalize(&self, _: &CycleState, _: &PodInfo, _: &[Arc<NodeInfo>], scores: &mut [i64]) {
        let min = scores.iter().copied().min().unwrap_or_default();
        let max = scores.iter().copied().max().unwrap_or_default();
        for score in scores {
            *score = if max == min { 0 } else { MAX_NODE_SCORE * (*score - min) / (max - min) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::testing::{node_named, pod_on, snapshot};
    use serde_json::{Value, json};

    fn term(app: &str) -> Value {
        json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}})
    }

    fn pod(name: &str, on: &str, app: &str, affinity: Value) -> Arc<PodInfo> {
        pod_on(name, on, json!({"metadata": {"labels": {"app": app}}, "spec": {"affinity": affinity}}))
    }

    fn verdicts(pod: &PodInfo, snapshot: &Snapshot) -> Vec<Result<(), String>> {
        let mut state = CycleState::default();
        if InterPodAffinity.pre_filter(&mut state, pod, snapshot).unwrap() == PreFilterOutcome::Skip {
            return snapshot.nodes().iter().map(|_| Ok(())).collect();
        }
        snapshot.nodes().iter().map(|node| InterPodAffinity.filter(&state, pod, node).map_err(|rejection| rejection.message())).collect()
    }

    #[test]
    fn required_affinity_draws_a_pod_to_its_friends() {
        let snapshot = snapshot([node_named("a", json!({})), node_named("b", json!({}))], [pod("db", "b", "db", json!({}))]);
        let web = pod("web", "", "web", json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("db")]}}));
        assert_eq!(verdicts(&web, &snapshot), [Err("node(s) didn't match pod affinity rules".to_owned()), Ok(())]);
    }

    #[test]
    fn the_first_of_a_group_that_wants_to_be_together_may_go_anywhere() {
        let snapshot = snapshot([node_named("a", json!({}))], []);
        let web = pod("web", "", "web", json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("web")]}}));
        assert_eq!(verdicts(&web, &snapshot), [Ok(())]);
    }

    #[test]
    fn anti_affinity_holds_in_both_directions() {
        let loner = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term("web")]}});
        let two = || [node_named("a", json!({})), node_named("b", json!({}))];
        let running = snapshot(two(), [pod("x", "a", "web", json!({}))]);
        assert_eq!(
            verdicts(&pod("y", "", "web", loner.clone()), &running),
            [Err("node(s) didn't match pod anti-affinity rules".to_owned()), Ok(())]
        );
        let running = snapshot(two(), [pod("x", "a", "other", loner)]);
        assert_eq!(
            verdicts(&pod("y", "", "web", json!({})), &running),
            [Err("node(s) didn't satisfy existing pods anti-affinity rules".to_owned()), Ok(())]
        );
    }

    #[test]
    fn preferences_rank_nodes() {
        let snapshot = snapshot([node_named("a", json!({})), node_named("b", json!({}))], [pod("db", "b", "db", json!({}))]);
        let web = pod(
            "web",
            "",
            "web",
            json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 10, "podAffinityTerm": term("db")}]}}),
        );
        let mut state = CycleState::default();
        assert!(InterPodAffinity.pre_score(&mut state, &web, snapshot.nodes(), &snapshot));
        let mut scores: Vec<i64> = snapshot.nodes().iter().map(|node| InterPodAffinity.score(&state, &web, node, &snapshot)).collect();
        InterPodAffinity.normalize(&state, &web, snapshot.nodes(), &mut scores);
        assert_eq!(scores, [0, 100]);
    }

    #[test]
    fn a_pod_without_affinity_in_a_cluster_without_any_costs_nothing() {
        let snapshot = snapshot([node_named("a", json!({}))], [pod("x", "a", "web", json!({}))]);
        let outcome = InterPodAffinity.pre_filter(&mut CycleState::default(), &pod("y", "", "web", json!({})), &snapshot);
        assert_eq!(outcome.unwrap(), PreFilterOutcome::Skip);
    }
}
