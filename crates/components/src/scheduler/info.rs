//! What the scheduler knows of a Pod and of a Node, worked out once and kept up to date as Pods come and go.
//!
//! A `PodInfo` never changes; a `NodeInfo` changes by adding and removing Pods, in step with the cluster or, on a private copy, in a
//! what-if of preemption. Neither talks to the API.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, PodSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::resource::{Resource, pod_requests, pod_requests_for_scoring};
use super::selector::{Labels, label_selector_matches};

static NO_LABELS: Labels = Labels::new();

/// A term of Pod (anti-)affinity with its namespaces and selector settled for the Pod that carries it.
#[derive(Clone, Debug)]
pub struct AffinityTerm {
    /// Namespaces the term looks into by name.
    pub namespaces: BTreeSet<String>,
    /// Namespaces the term looks into by their labels.
    pub namespace_selector: Option<LabelSelector>,
    /// Which Pods it is about; `None` matches no Pod.
    pub selector: Option<LabelSelector>,
    /// The node label that says what counts as one place.
    pub topology_key: String,
    /// The weight of a preferred term; 0 for a required one.
    pub weight: i64,
}

impl AffinityTerm {
    fn new(term: &PodAffinityTerm, weight: i64, namespace: &str, labels: &Labels) -> Self {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(namespace.to_owned());
        }
        let mut selector = term.label_selector.clone();
        for (keys, operator) in [(&term.match_label_keys, "In"), (&term.mismatch_label_keys, "NotIn")] {
            add_label_keys(&mut selector, keys.as_deref().unwrap_or_default(), operator, labels);
        }
        Self { namespaces, namespace_selector: term.namespace_selector.clone(), selector, topology_key: term.topology_key.clone(), weight }
    }

    /// Whether the term is about `pod`.
    #[must_use]
    pub fn matches(&self, pod: &PodInfo, namespaces: &HashMap<String, Labels>) -> bool {
        let here = self.namespaces.contains(&pod.namespace)
            || self
                .namespace_selector
                .as_ref()
                .is_some_and(|selector| label_selector_matches(selector, namespaces.get(&pod.namespace).unwrap_or(&NO_LABELS)));
        here && self.selector.as_ref().is_some_and(|selector| label_selector_matches(selector, pod.labels()))
    }
}

/// Narrows a selector to the Pod's own values of `keys` (`matchLabelKeys` and its opposite).
pub fn add_label_keys(selector: &mut Option<LabelSelector>, keys: &[String], operator: &str, labels: &Labels) {
    let Some(selector) = selector else { return };
    for key in keys {
        let Some(value) = labels.get(key) else { continue };
        let requirement = LabelSelectorRequirement { key: key.clone(), operator: operator.to_owned(), values: Some(vec![value.clone()]) };
        let expressions = selector.match_expressions.get_or_insert_with(Vec::new);
        // The API server writes these into the selector as well; saying it twice would only cost time.
        if !expressions.contains(&requirement) {
            expressions.push(requirement);
        }
    }
}

/// A Pod as the scheduler sees it.
#[derive(Debug)]
pub struct PodInfo {
    /// The Pod itself.
    pub pod: Arc<Pod>,
    /// `namespace/name`.
    pub key: String,
    /// Its namespace.
    pub namespace: String,
    /// Its UID.
    pub uid: String,
    /// Its priority.
    pub priority: i32,
    /// What it asks of a node.
    pub requests: Resource,
    /// What scoring takes it to use.
    pub scoring_requests: Resource,
    /// Host ports it wants.
    pub host_ports: Vec<HostPort>,
    /// Required Pod affinity.
    pub required_affinity: Vec<AffinityTerm>,
    /// Required Pod anti-affinity.
    pub required_anti_affinity: Vec<AffinityTerm>,
    /// Preferred Pod affinity.
    pub preferred_affinity: Vec<AffinityTerm>,
    /// Preferred Pod anti-affinity.
    pub preferred_anti_affinity: Vec<AffinityTerm>,
}

impl PodInfo {
    /// Works out everything the plugins ask for.
    #[must_use]
    pub fn new(pod: Arc<Pod>) -> Self {
        let default_spec;
        let spec: &PodSpec = match &pod.spec {
            Some(spec) => spec,
            None => {
                default_spec = PodSpec::default();
                &default_spec
            }
        };
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&NO_LABELS);
        let required = |terms: &Option<Vec<PodAffinityTerm>>| -> Vec<AffinityTerm> {
            terms.iter().flatten().map(|term| AffinityTerm::new(term, 0, &namespace, labels)).collect()
        };
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref());
        let anti = spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        let weighted = |terms: Option<&Vec<k8s_openapi::api::core::v1::WeightedPodAffinityTerm>>| -> Vec<AffinityTerm> {
            terms
                .into_iter()
                .flatten()
                .map(|term| AffinityTerm::new(&term.pod_affinity_term, term.weight.into(), &namespace, labels))
                .collect()
        };
        Self {
            key: format!("{namespace}/{}", pod.metadata.name.as_deref().unwrap_or_default()),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            priority: spec.priority.unwrap_or_default(),
            requests: pod_requests(spec),
            scoring_requests: pod_requests_for_scoring(spec),
            host_ports: host_ports(spec),
            required_affinity: affinity.map(|a| required(&a.required_during_scheduling_ignored_during_execution)).unwrap_or_default(),
            required_anti_affinity: anti.map(|a| required(&a.required_during_scheduling_ignored_during_execution)).unwrap_or_default(),
            preferred_affinity: weighted(affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref())),
            preferred_anti_affinity: weighted(anti.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref())),
            namespace,
            pod,
        }
    }

    /// The Pod's name without its namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// The Pod's labels.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        self.pod.metadata.labels.as_ref().unwrap_or(&NO_LABELS)
    }

    /// The Pod's spec, if it has one.
    #[must_use]
    pub fn spec(&self) -> Option<&PodSpec> {
        self.pod.spec.as_ref()
    }

    /// The node it is bound to, if any.
    #[must_use]
    pub fn node_name(&self) -> Option<&str> {
        self.pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
    }

    /// The node a preemption has cleared for it, if any.
    #[must_use]
    pub fn nominated_node_name(&self) -> Option<&str> {
        self.pod.status.as_ref()?.nominated_node_name.as_deref().filter(|name| !name.is_empty())
    }

    /// Whether it is being deleted.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    /// Whether it carries any Pod affinity or anti-affinity.
    #[must_use]
    pub fn has_affinity(&self) -> bool {
        !(self.required_affinity.is_empty()
            && self.required_anti_affinity.is_empty()
            && self.preferred_affinity.is_empty()
            && self.preferred_anti_affinity.is_empty())
    }
}

/// A port on the node's own address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// The address, `0.0.0.0` for all.
    pub ip: String,
    /// TCP, UDP or SCTP.
    pub protocol: String,
    /// The port.
    pub port: i32,
}

impl HostPort {
    /// Whether both cannot be had on one node.
    #[must_use]
    pub fn conflicts_with(&self, other: &Self) -> bool {
        const ALL: &str = "0.0.0.0";
        self.port == other.port && self.protocol == other.protocol && (self.ip == other.ip || self.ip == ALL || other.ip == ALL)
    }
}

fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| super::resource::is_sidecar(container));
    spec.containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            Some(HostPort {
                ip: port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned()),
                protocol: port.protocol.clone().filter(|protocol| !protocol.is_empty()).unwrap_or_else(|| "TCP".to_owned()),
                port: port.host_port.filter(|port| *port > 0)?,
            })
        })
        .collect()
}

/// A Node and everything that runs on it.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    /// The Node itself.
    pub node: Arc<Node>,
    /// Its name.
    pub name: String,
    /// What Pods may use of it.
    pub allocatable: Resource,
    /// What its Pods ask for.
    pub requested: Resource,
    /// What scoring takes its Pods to use.
    pub scoring_requested: Resource,
    /// The Pods on it, assumed ones included.
    pub pods: Vec<Arc<PodInfo>>,
    /// How many of them carry any Pod (anti-)affinity.
    pub pods_with_affinity: usize,
    /// How many of them carry required Pod anti-affinity.
    pub pods_with_required_anti_affinity: usize,
    /// Image name → size in bytes.
    pub images: HashMap<String, i64>,
}

impl NodeInfo {
    /// A node with nothing on it.
    #[must_use]
    pub fn new(node: Arc<Node>) -> Self {
        let mut info = Self::default();
        info.set_node(node);
        info
    }

    /// Takes over a newer version of the Node; the Pods stay.
    pub fn set_node(&mut self, node: Arc<Node>) {
        self.name = node.metadata.name.clone().unwrap_or_default();
        let status = node.status.as_ref();
        self.allocatable = status.and_then(|status| status.allocatable.as_ref()).map(Resource::from_list).unwrap_or_default();
        self.images = status
            .and_then(|status| status.images.as_ref())
            .into_iter()
            .flatten()
            .flat_map(|image| {
                let size = image.size_bytes.unwrap_or_default();
                image.names.iter().flatten().map(move |name| (name.clone(), size))
            })
            .collect();
        self.node = node;
    }

    /// Puts a Pod on the node.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.requested.add(&pod.requests);
        self.scoring_requested.add(&pod.scoring_requests);
        self.pods_with_affinity += usize::from(pod.has_affinity());
        self.pods_with_required_anti_affinity += usize::from(!pod.required_anti_affinity.is_empty());
        self.pods.push(pod);
    }

    /// Takes a Pod off the node and says whether it was there.
    pub fn remove_pod(&mut self, uid: &str) -> bool {
        let Some(position) = self.pods.iter().position(|pod| pod.uid == uid) else { return false };
        let pod = self.pods.swap_remove(position);
        self.requested.subtract(&pod.requests);
        self.scoring_requested.subtract(&pod.scoring_requests);
        self.pods_with_affinity -= usize::from(pod.has_affinity());
        self.pods_with_required_anti_affinity -= usize::from(!pod.required_anti_affinity.is_empty());
        true
    }

    /// The node's labels.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        self.node.metadata.labels.as_ref().unwrap_or(&NO_LABELS)
    }

    /// The node's taints.
    #[must_use]
    pub fn taints(&self) -> &[Taint] {
        self.node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
    }

    /// Whether the node is cordoned.
    #[must_use]
    pub fn is_unschedulable(&self) -> bool {
        self.node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::testing::{node, pod};
    use serde_json::json;

    #[test]
    fn removing_a_pod_gives_back_what_adding_it_took() {
        let mut info = NodeInfo::new(node(json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}})));
        let before = info.requested.clone();
        let pod = pod(
            json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "example.com/gpu": "2"}}}]}}),
        );
        info.add_pod(pod);
        assert_eq!(info.requested.milli_cpu, 1000);
        assert!(info.remove_pod("u"));
        assert!(!info.remove_pod("u"));
        assert_eq!(info.requested.milli_cpu, before.milli_cpu);
        assert_eq!(info.requested.scalar["example.com/gpu"], 0);
    }

    #[test]
    fn a_term_without_namespaces_looks_into_the_pods_own() {
        let pod = pod(json!({"metadata": {"name": "p", "namespace": "a"}, "spec": {"containers": [], "affinity": {"podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", "labelSelector": {}}]}}}}));
        assert_eq!(pod.required_affinity[0].namespaces.iter().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn host_ports_conflict_unless_address_or_protocol_differ() {
        let port = |ip: &str, protocol: &str| HostPort { ip: ip.into(), protocol: protocol.into(), port: 80 };
        assert!(port("0.0.0.0", "TCP").conflicts_with(&port("10.0.0.1", "TCP")));
        assert!(!port("10.0.0.2", "TCP").conflicts_with(&port("10.0.0.1", "TCP")));
        assert!(!port("0.0.0.0", "TCP").conflicts_with(&port("0.0.0.0", "UDP")));
    }
}
