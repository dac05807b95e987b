//! Which nodes a DaemonSet should have a Pod on, and the steps from one revision to the next.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{DaemonSet, DaemonSetStatus},
    core::v1::{
        Affinity, Node, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, PodTemplateSpec, Taint,
        Toleration,
    },
};

use crate::controllers::{
    node_fit::{fits_affinity, tolerates},
    owner::controller_reference,
    percent::{Round, resolve},
    pod_control::from_template,
    pods,
    revisions::REVISION_HASH,
};

/// What a node means to the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// A Pod should be there.
    pub run: bool,
    /// A Pod that is there may stay.
    pub stay: bool,
}

/// What to do next.
#[derive(Debug, Default)]
pub struct Step {
    /// Nodes that need a Pod.
    pub create: Vec<String>,
    /// Pods to delete.
    pub delete: Vec<Arc<Pod>>,
    /// What to say about Pods that ended: whether it is a warning, the reason and the message.
    pub events: Vec<(bool, &'static str, String)>,
}

/// The taints that no daemon minds.
fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut all = spec.tolerations.clone().unwrap_or_default();
    let node = |name: &str| format!("node.kubernetes.io/{name}");
    let mut always = vec![
        (node("not-ready"), "NoExecute"),
        (node("unreachable"), "NoExecute"),
        (node("disk-pressure"), "NoSchedule"),
        (node("memory-pressure"), "NoSchedule"),
        (node("pid-pressure"), "NoSchedule"),
        (node("unschedulable"), "NoSchedule"),
    ];
    if spec.host_network == Some(true) {
        always.push((node("network-unavailable"), "NoSchedule"));
    }
    for (key, effect) in always {
        all.retain(|own| {
            !(own.key.as_ref() == Some(&key) && own.effect.as_deref() == Some(effect) && own.operator.as_deref() == Some("Exists"))
        });
        all.push(Toleration { key: Some(key), operator: Some("Exists".into()), effect: Some(effect.into()), ..Toleration::default() });
    }
    all
}

/// What a node means to the set.
pub fn place(set: &DaemonSet, node: &Node) -> Place {
    let Some(spec) = set.spec.template.spec.as_ref() else { return Place { run: false, stay: false } };
    let elsewhere = spec.node_name.as_ref().is_some_and(|name| !name.is_empty() && Some(name) != node.metadata.name.as_ref());
    if elsewhere || !fits_affinity(spec, node) {
        return Place { run: false, stay: false };
    }
    let tolerations = tolerations(spec);
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let kept_off =
        |effects: &[&str]| taints.iter().any(|taint: &Taint| effects.contains(&taint.effect.as_str()) && !tolerates(&tolerations, taint));
    Place { run: !kept_off(&["NoSchedule", "NoExecute"]), stay: !kept_off(&["NoExecute"]) }
}

/// The node that a Pod is on or meant for.
pub fn node_of(pod: &Pod) -> Option<&str> {
    pods::node_name(pod).or_else(|| {
        let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
        let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
        let mut fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
        fields.find(|field| field.key == "metadata.name")?.values.as_ref()?.first().map(String::as_str)
    })
}

/// Where the server counts the changes of the template, for clients from before there were revisions.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// A new Pod for a node.
pub fn new_pod(set: &DaemonSet, hash: &str, node: &str) -> Pod {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let template: &PodTemplateSpec = &set.spec.template;
    let mut pod = from_template(template, namespace, &controller_reference::<DaemonSet>(&set.metadata));
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(REVISION_HASH.into(), hash.to_owned());
    if let Some(generation) = set.metadata.annotations.as_ref().and_then(|annotations| annotations.get(TEMPLATE_GENERATION)) {
        labels.insert("pod-template-generation".into(), generation.clone());
    }
    let spec = pod.spec.get_or_insert_default();
    spec.tolerations = Some(tolerations(spec));
    let field = NodeSelectorRequirement { key: "metadata.name".into(), operator: "In".into(), values: Some(vec![node.to_owned()]) };
    let term = NodeSelectorTerm { match_fields: Some(vec![field]), match_expressions: None };
    let affinity: &mut Affinity = spec.affinity.get_or_insert_default();
    let affinity: &mut NodeAffinity = affinity.node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution = Some(NodeSelector { node_selector_terms: vec![term] });
    pod
}

fn hash_of(pod: &Pod) -> &str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION_HASH)).map(String::as_str).unwrap_or_default()
}

fn by_node(pods: &[Arc<Pod>]) -> BTreeMap<&str, Vec<&Arc<Pod>>> {
    let mut map: BTreeMap<&str, Vec<&Arc<Pod>>> = BTreeMap::new();
    for pod in pods {
        map.entry(node_of(pod).unwrap_or_default()).or_default().push(pod);
    }
    for pods in map.values_mut() {
        // The one that is bound and the oldest first.
        pods.sort_by_key(|pod| (pods::node_name(pod).is_none(), pod.metadata.creation_timestamp.clone(), pod.metadata.name.clone()));
    }
    map
}

/// The bounds of an update, of so many nodes: how many more Pods, how many fewer.
fn bounds(set: &DaemonSet, nodes: usize) -> (usize, usize) {
    let rolling = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let nodes = i32::try_from(nodes).unwrap_or(i32::MAX);
    let number = |value: Option<i32>| usize::try_from(value.unwrap_or(0)).unwrap_or(0);
    let surge = number(rolling.and_then(|r| r.max_surge.as_ref()).and_then(|surge| resolve(surge, nodes, Round::Up)));
    let unavailable = match rolling.and_then(|r| r.max_unavailable.as_ref()) {
        Some(most) => number(resolve(most, nodes, Round::Up)),
        None => 1,
    };
    // Neither more nor fewer would mean that nothing ever moves.
    (surge, if surge == 0 { unavailable.max(1) } else { unavailable })
}

fn is_rolling(set: &DaemonSet) -> bool {
    set.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
}

/// Pods where there should be some, and none where there should not.
pub fn manage(set: &DaemonSet, nodes: &[Arc<Node>], pods: &[Arc<Pod>], hash: &str, now: Timestamp) -> Step {
    let mut step = Step::default();
    let mut on = by_node(pods);
    let surges = bounds(set, nodes.len()).0 > 0 && is_rolling(set);
    for node in nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let place = place(set, node);
        let here = on.remove(name);
        let Some(here) = here else {
            if place.run {
                step.create.push(name.to_owned());
            }
            continue;
        };
        let living: Vec<_> = here.into_iter().filter(|pod| !pods::is_terminating(pod)).collect();
        if !place.stay {
            step.delete.extend(living.into_iter().cloned());
            continue;
        }
        let (ended, running): (Vec<_>, Vec<_>) = living.into_iter().partition(|pod| pods::is_finished(pod));
        for pod in ended {
            let (kind, what) = if pods::phase(pod) == "Failed" { ("failed", "kill") } else { ("succeeded", "delete") };
            let full =
                format!("{}/{}", pod.metadata.namespace.as_deref().unwrap_or_default(), pod.metadata.name.as_deref().unwrap_or_default());
            let reason = if kind == "failed" { "FailedDaemonPod" } else { "SucceededDaemonPod" };
            step.events.push((kind == "failed", reason, format!("Found {kind} daemon pod {full} on node {name}, will try to {what} it")));
            step.delete.push(pod.clone());
        }
        if surges {
            if running.is_empty() && place.run {
                step.create.push(name.to_owned());
            }
            step.delete.extend(surplus_while_surging(set, &running, hash, now));
        } else {
            step.delete.extend(running.into_iter().skip(1).cloned());
        }
    }
    // What is left is on nodes that are not there; the Pod garbage collector removes bound ones.
    step.delete.extend(on.into_values().flatten().filter(|pod| !pods::is_terminating(pod) && pods::node_name(pod).is_none()).cloned());
    step
}

/// One old and one new Pod may share a node, until the new one is available.
fn surplus_while_surging(set: &DaemonSet, running: &[&Arc<Pod>], hash: &str, now: Timestamp) -> Vec<Arc<Pod>> {
    let (new, old): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) = running.iter().copied().partition(|pod| hash_of(pod) == hash);
    let mut gone: Vec<_> = new.iter().skip(1).chain(old.iter().skip(1)).map(|pod| Arc::clone(pod)).collect();
    if let (Some(new), Some(old)) = (new.first(), old.first())
        && (!pods::is_ready(old) || pods::is_available(new, pods::seconds(set.spec.min_ready_seconds), now))
    {
        gone.push(Arc::clone(old));
    }
    gone
}

/// The next step of a rolling update, after [`manage`] has nothing to do.
pub fn roll(set: &DaemonSet, nodes: &[Arc<Node>], pods: &[Arc<Pod>], hash: &str, now: Timestamp) -> Step {
    let mut step = Step::default();
    if !is_rolling(set) {
        return step;
    }
    let min_ready = pods::seconds(set.spec.min_ready_seconds);
    let available = |pod: &Pod| pods::is_available(pod, min_ready, now);
    let wanted: Vec<_> = nodes.iter().filter(|node| place(set, node).run).filter_map(|node| node.metadata.name.as_deref()).collect();
    let (surge, unavailable) = bounds(set, wanted.len());
    let on = by_node(pods);
    let mut candidates = Vec::new();
    let mut missing = 0;
    let mut surging = 0;
    for node in wanted {
        let living: Vec<_> = on.get(node).into_iter().flatten().filter(|pod| !pods::is_terminating(pod)).collect();
        let new = living.iter().find(|pod| hash_of(pod) == hash);
        let old = living.iter().find(|pod| hash_of(pod) != hash);
        match (old, new) {
            (None, Some(new)) => missing += usize::from(!available(new)),
            (Some(old), None) if !available(old) => {
                // Nobody misses what is not available.
                missing += 1;
                if surge > 0 { step.create.push(node.to_owned()) } else { step.delete.push((**old).clone()) }
            }
            (Some(old), None) => candidates.push((node, (**old).clone())),
            (Some(_), Some(_)) => surging += 1,
            (None, None) => missing += 1,
        }
    }
    if surge > 0 {
        step.create.extend(candidates.into_iter().take(surge.saturating_sub(surging)).map(|(node, _)| node.to_owned()));
    } else {
        step.delete.extend(candidates.into_iter().take(unavailable.saturating_sub(missing)).map(|(_, old)| old));
    }
    step
}

/// What the status should say, and when something becomes available that is not yet.
pub fn status(
    set: &DaemonSet,
    nodes: &[Arc<Node>],
    pods: &[Arc<Pod>],
    hash: &str,
    collisions: Option<i32>,
    now: Timestamp,
) -> (DaemonSetStatus, Option<Duration>) {
    let min_ready = pods::seconds(set.spec.min_ready_seconds);
    let on = by_node(pods);
    let mut status = DaemonSetStatus {
        observed_generation: set.metadata.generation,
        collision_count: collisions,
        conditions: set.status.as_ref().and_then(|status| status.conditions.clone()),
        ..DaemonSetStatus::default()
    };
    let (mut available, mut updated) = (0, 0);
    for node in nodes {
        let here: Vec<_> = on.get(node.metadata.name.as_deref().unwrap_or_default()).into_iter().flatten().collect();
        if !place(set, node).run {
            status.number_misscheduled += i32::from(!here.is_empty());
            continue;
        }
        status.desired_number_scheduled += 1;
        let Some(first) = here.first() else { continue };
        status.current_number_scheduled += 1;
        if here.iter().any(|pod| pods::is_ready(pod)) {
            status.number_ready += 1;
            available += i32::from(here.iter().any(|pod| pods::is_available(pod, min_ready, now)));
        }
        let newest = here.iter().max_by_key(|pod| pod.metadata.creation_timestamp.clone()).unwrap_or(first);
        updated += i32::from(hash_of(newest) == hash);
    }
    let some = |count: i32| (count > 0).then_some(count);
    status.number_available = some(available);
    status.updated_number_scheduled = some(updated);
    status.number_unavailable = some(status.desired_number_scheduled - available);
    (status, pods.iter().filter_map(|pod| pods::available_in(pod, min_ready, now)).min())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(update: Value) -> DaemonSet {
        serde_json::from_value(json!({"metadata": {"name": "d", "namespace": "a", "uid": "u"}, "spec": {"selector": {},
            "updateStrategy": update, "template": {"spec": {"containers": [], "nodeSelector": {"os": "linux"}}}}}))
        .unwrap()
    }

    fn node(name: &str, taints: Value) -> Arc<Node> {
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": name, "labels": {"os": "linux"}}, "spec": {"taints": taints}})).unwrap(),
        )
    }

    fn pod(node: &str, hash: &str, ready: bool) -> Arc<Pod> {
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]});
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": format!("d-{node}-{hash}"), "labels": {"controller-revision-hash": hash}},
                "spec": {"containers": [], "nodeName": node}, "status": status}))
            .unwrap(),
        )
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
        pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect()
    }

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    #[test]
    fn every_node_that_fits_gets_one_pod() {
        let set = set(json!({}));
        let nodes = [node("n1", json!([])), node("n2", json!([])), node("n3", json!([{"key": "k", "effect": "NoSchedule"}]))];
        let step = manage(&set, &nodes, &[pod("n1", "h", true)], "h", NOW);
        assert_eq!(step.create, ["n2"]);
        assert!(step.delete.is_empty());
    }

    #[test]
    fn a_cordoned_or_unready_node_keeps_its_daemon() {
        let set = set(json!({}));
        let taints = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]);
        assert_eq!(place(&set, &node("n", taints)), Place { run: true, stay: true });
        let evicting = json!([{"key": "k", "effect": "NoExecute"}]);
        assert_eq!(place(&set, &node("n", evicting)), Place { run: false, stay: false });
    }

    #[test]
    fn an_update_replaces_as_many_as_may_be_unavailable() {
        let set = set(json!({"rollingUpdate": {"maxUnavailable": 1}}));
        let nodes = [node("n1", json!([])), node("n2", json!([]))];
        let old = [pod("n1", "old", true), pod("n2", "old", true)];
        assert_eq!(names(&roll(&set, &nodes, &old, "new", NOW).delete), ["d-n1-old"]);
        let half = [pod("n1", "new", false), pod("n2", "old", true)];
        assert!(roll(&set, &nodes, &half, "new", NOW).delete.is_empty());
        let next = [pod("n1", "new", true), pod("n2", "old", true)];
        assert_eq!(names(&roll(&set, &nodes, &next, "new", NOW).delete), ["d-n2-old"]);
    }

    #[test]
    fn a_surging_update_starts_the_new_pod_before_the_old_one_goes() {
        let set = set(json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}));
        let nodes = [node("n1", json!([])), node("n2", json!([]))];
        let old = [pod("n1", "old", true), pod("n2", "old", true)];
        assert_eq!(roll(&set, &nodes, &old, "new", NOW).create, ["n1"]);
        let both = [pod("n1", "old", true), pod("n1", "new", true), pod("n2", "old", true)];
        assert_eq!(names(&manage(&set, &nodes, &both, "new", NOW).delete), ["d-n1-old"]);
    }

    #[test]
    fn a_new_pod_is_meant_for_its_node_and_tolerates_what_daemons_do() {
        let pod = new_pod(&set(json!({})), "h", "n1");
        assert_eq!(node_of(&pod), Some("n1"));
        assert_eq!(pod.spec.unwrap().tolerations.unwrap().len(), 6);
    }
}
