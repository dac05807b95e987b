//! DefaultPreemption: when no node has room, looks for one where removing Pods of lower priority would make room.
//!
//! Chooses the victims and the node; the loop in `run` removes them through the API and records the nomination.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use crate::scheduler::event::{ClusterEvent, QueueingHint};
use crate::scheduler::framework::{Cluster, Code, CycleState, Diagnosis, NodeStatuses, Plugin, PostFilter, PostFilterOutcome, Rejection};
use crate::scheduler::info::{NodeInfo, PodInfo};
use crate::scheduler::selector::label_selector_matches;

/// See the module's description.
pub struct DefaultPreemption;

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        "DefaultPreemption"
    }

    fn queueing_hint(&self, _: &PodInfo, _: &ClusterEvent) -> QueueingHint {
        QueueingHint::Skip
    }
}

/// A node that would do, and what it would cost.
#[derive(Debug)]
struct Candidate {
    node: String,
    victims: Vec<Arc<PodInfo>>,
    violations: usize,
}

fn start_time(pod: &PodInfo) -> Timestamp {
    pod.pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map_or(Timestamp::MAX, |time| time.0)
}

/// Most important first: higher priority, then longer running.
fn importance(pod: &PodInfo) -> (Reverse<i32>, Timestamp) {
    (Reverse(pod.priority), start_time(pod))
}

/// Splits Pods into those whose removal would break a budget and the rest, keeping the order.
fn by_budget(pods: Vec<Arc<PodInfo>>, budgets: &[Arc<PodDisruptionBudget>]) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut allowed: Vec<i32> =
        budgets.iter().map(|budget| budget.status.as_ref().and_then(|status| status.disruptions_allowed).unwrap_or(0)).collect();
    pods.into_iter().partition(|pod| {
        let mut breaks = false;
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            let selects = budget.metadata.namespace.as_deref() == Some(pod.namespace.as_str())
                && !pod.labels().is_empty()
                && budget
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.selector.as_ref())
                    .is_some_and(|selector| label_selector_matches(selector, pod.labels()));
            // A Pod that is already being disrupted has been counted against the budget.
            let counted = budget.status.as_ref().and_then(|s| s.disrupted_pods.as_ref()).is_some_and(|pods| pods.contains_key(pod.name()));
            if selects && !counted {
                *allowed -= 1;
                breaks |= *allowed < 0;
            }
        }
        breaks
    })
}

fn select_victims(state: &CycleState, pod: &PodInfo, node: &NodeInfo, cluster: &Cluster<'_>) -> Result<Candidate, Rejection> {
    let mut what_if = node.clone();
    let mut state = state.clone();
    let mut potential: Vec<Arc<PodInfo>> = node.pods.iter().filter(|other| other.priority < pod.priority).cloned().collect();
    if potential.is_empty() {
        return Err(Rejection::unresolvable("No preemption victims found for incoming pod"));
    }
    let remove = |what_if: &mut NodeInfo, state: &mut CycleState, victim: &Arc<PodInfo>| {
        what_if.remove_pod(&victim.uid);
        cluster.profile.pre_filter.iter().for_each(|plugin| plugin.remove_pod(state, pod, victim, node, cluster.snapshot));
    };
    for victim in &potential {
        remove(&mut what_if, &mut state, victim);
    }
    let fits = |what_if: &NodeInfo, state: &CycleState| {
        cluster.profile.run_filters_with_nominated(state, pod, what_if, cluster.nominated, cluster.snapshot)
    };
    fits(&what_if, &state)?;
    // Give back as many as possible, the important ones and those protected by a budget first.
    potential.sort_by_key(|victim| importance(victim));
    let (violating, others) = by_budget(potential, cluster.budgets);
    let mut victims = Vec::new();
    let mut violations = 0;
    let violating_count = violating.len();
    for (index, victim) in violating.into_iter().chain(others).enumerate() {
        what_if.add_pod(victim.clone());
        cluster.profile.pre_filter.iter().for_each(|plugin| plugin.add_pod(&mut state, pod, &victim, node, cluster.snapshot));
        if fits(&what_if, &state).is_err() {
            remove(&mut what_if, &mut state, &victim);
            violations += usize::from(index < violating_count);
            victims.push(victim);
        }
    }
    victims.sort_by_key(|victim| importance(victim));
    Ok(Candidate { node: node.name.clone(), victims, violations })
}

/// Less harm first: fewer broken budgets, a less important most important victim, less priority in sum, fewer victims, and among
/// equals the node whose most important victims started last.
fn harm(candidate: &Candidate) -> (usize, i32, i64, usize, Reverse<Timestamp>) {
    let highest = candidate.victims.first().map_or(i32::MIN, |victim| victim.priority);
    // Shifted so that a negative priority does not make a longer list of victims look cheaper.
    let sum = candidate.victims.iter().map(|victim| i64::from(victim.priority) + i64::from(i32::MAX) + 1).sum();
    let latest = candidate.victims.iter().filter(|victim| victim.priority == highest).map(|victim| start_time(victim)).min();
    (candidate.violations, highest, sum, candidate.victims.len(), Reverse(latest.unwrap_or(Timestamp::MIN)))
}

/// Whether the Pod may preempt at all; otherwise why not.
fn ineligible(pod: &PodInfo, statuses: &NodeStatuses, cluster: &Cluster<'_>) -> Option<&'static str> {
    if pod.spec().and_then(|spec| spec.preemption_policy.as_deref()) == Some("Never") {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let nominated = pod.nominated_node_name()?;
    if statuses.get(nominated).is_some_and(|status| status.code == Code::UnschedulableAndUnresolvable) {
        return None;
    }
    let node = cluster.snapshot.node(nominated)?;
    node.pods
        .iter()
        .any(|other| other.priority < pod.priority && other.is_terminating())
        .then_some("not eligible due to a terminating pod on the nominated node.")
}

impl PostFilter for DefaultPreemption {
    fn post_filter(&self, state: &CycleState, pod: &Arc<PodInfo>, statuses: &NodeStatuses, cluster: &Cluster<'_>) -> PostFilterOutcome {
        if let Some(reason) = ineligible(pod, statuses, cluster) {
            return PostFilterOutcome { message: format!("preemption: {reason}"), ..PostFilterOutcome::default() };
        }
        let mut diagnosis = Diagnosis {
            all_nodes: cluster.snapshot.nodes().len(),
            absent: Some(Rejection::unresolvable("Preemption is not helpful for scheduling")),
            ..Diagnosis::default()
        };
        let mut candidates = Vec::new();
        for node in cluster.snapshot.nodes() {
            if !statuses.get(&node.name).is_some_and(Rejection::is_resolvable) {
                continue;
            }
            match select_victims(state, pod, node, cluster) {
                Ok(candidate) => candidates.push(candidate),
                Err(rejection) => {
                    diagnosis.statuses.insert(node.name.clone(), rejection);
                }
            }
        }
        match candidates.into_iter().min_by_key(harm) {
            Some(best) => PostFilterOutcome {
                message: format!(
                    "preemption: found a potential placement for pod on node {}, preempting {} victims",
                    best.node,
                    best.victims.len()
                ),
                nominated_node_name: Some(best.node),
                victims: best.victims,
            },
            None => PostFilterOutcome {
                nominated_node_name: Some(String::new()),
                victims: Vec::new(),
                message: format!("preemption: {diagnosis}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::schedule::{Outcome, Scheduling};
    use crate::scheduler::testing::{node_named, pod_on, profile, snapshot};
    use serde_json::{Value, json};

    fn asking(name: &str, on: &str, priority: i32, cpu: &str, extra: Value) -> Arc<PodInfo> {
        let mut value = json!({"spec": {"priority": priority, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}});
        crate::scheduler::testing::merge(&mut value, extra);
        pod_on(name, on, value)
    }

    fn place(pod: &Arc<PodInfo>, nodes: &[&str], pods: Vec<Arc<PodInfo>>, budgets: &[Arc<PodDisruptionBudget>]) -> Outcome {
        let snapshot = snapshot(nodes.iter().map(|name| node_named(name, json!({}))), pods);
        let nominated = std::collections::HashMap::new();
        Scheduling::default().schedule(pod, &Cluster { profile: &profile(), snapshot: &snapshot, nominated: &nominated, budgets })
    }

    fn unplaced(outcome: Outcome) -> (String, PostFilterOutcome) {
        match outcome {
            Outcome::Unschedulable { diagnosis, post_filter } => (diagnosis.to_string(), post_filter),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_well_known_texts_say_why_preemption_does_not_help() {
        let full = vec![asking("a", "n", 0, "4", json!({}))];
        let (message, _) = unplaced(place(&asking("b", "", 0, "1", json!({})), &["n"], full.clone(), &[]));
        assert_eq!(
            message,
            "0/1 nodes are available: 1 Insufficient cpu. \
             preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        );
        let (message, _) = unplaced(place(&asking("b", "", 0, "9", json!({})), &["n"], full.clone(), &[]));
        assert_eq!(
            message,
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        );
        let never = asking("b", "", 10, "1", json!({"spec": {"preemptionPolicy": "Never"}}));
        let (message, _) = unplaced(place(&never, &["n"], full, &[]));
        assert_eq!(message, "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.");
    }

    #[test]
    fn as_few_and_as_unimportant_pods_as_possible_are_removed() {
        let running = vec![asking("small", "n", 1, "1", json!({})), asking("big", "n", 0, "3", json!({}))];
        let (_, found) = unplaced(place(&asking("p", "", 10, "2", json!({})), &["n"], running, &[]));
        assert_eq!(found.nominated_node_name.as_deref(), Some("n"));
        assert_eq!(found.victims.iter().map(|victim| victim.uid.as_str()).collect::<Vec<_>>(), ["big"]);
    }

    #[test]
    fn the_node_with_less_important_victims_is_chosen() {
        let running = vec![asking("x", "a", 5, "4", json!({})), asking("y", "b", 1, "4", json!({}))];
        let (_, found) = unplaced(place(&asking("p", "", 10, "1", json!({})), &["a", "b"], running, &[]));
        assert_eq!(found.nominated_node_name.as_deref(), Some("b"));
    }

    #[test]
    fn a_budget_is_broken_only_if_there_is_no_other_way() {
        let labelled = json!({"metadata": {"labels": {"app": "x"}}});
        let running = vec![asking("x", "a", 0, "4", labelled), asking("y", "b", 1, "4", json!({}))];
        let budget: PodDisruptionBudget = serde_json::from_value(json!({
            "metadata": {"name": "b", "namespace": "default"}, "spec": {"selector": {"matchLabels": {"app": "x"}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}}))
        .unwrap();
        let (_, found) = unplaced(place(&asking("p", "", 10, "1", json!({})), &["a", "b"], running, &[Arc::new(budget)]));
        assert_eq!(found.nominated_node_name.as_deref(), Some("b"));
    }
}
