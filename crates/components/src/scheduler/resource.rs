//! Resource vectors: what a Pod asks for and what a Node has, as integers.
//!
//! Holds the rules by which containers, init containers, sidecars, overhead and Pod-level resources add up to one request. It does
//! not decide whether a Pod fits: that is the NodeResourcesFit plugin.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::quantity::{milli_value, value};

/// What scoring assumes of a container that asks for no cpu: 0.1 core.
pub const DEFAULT_MILLI_CPU_REQUEST: i64 = 100;
/// What scoring assumes of a container that asks for no memory: 200 MiB.
pub const DEFAULT_MEMORY_REQUEST: i64 = 200 * 1024 * 1024;

/// An amount of every resource a node can run out of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// Thousandths of a core.
    pub milli_cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral_storage: i64,
    /// How many Pods (only ever set on a node's side).
    pub pods: i64,
    /// Extended resources and huge pages by name.
    pub scalar: BTreeMap<String, i64>,
}

impl Resource {
    /// Reads a resource list as it stands in an object.
    #[must_use]
    pub fn from_list(list: &BTreeMap<String, Quantity>) -> Self {
        let mut resource = Self::default();
        for (name, quantity) in list {
            match name.as_str() {
                "cpu" => resource.milli_cpu = milli_value(quantity),
                "memory" => resource.memory = value(quantity),
                "ephemeral-storage" => resource.ephemeral_storage = value(quantity),
                "pods" => resource.pods = value(quantity),
                _ => {
                    resource.scalar.insert(name.clone(), value(quantity));
                }
            }
        }
        resource
    }

    /// Adds `other` in place.
    pub fn add(&mut self, other: &Self) {
        self.milli_cpu = self.milli_cpu.saturating_add(other.milli_cpu);
        self.memory = self.memory.saturating_add(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.saturating_add(other.ephemeral_storage);
        for (name, amount) in &other.scalar {
            let sum = self.scalar.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    /// Takes `other` away in place.
    pub fn subtract(&mut self, other: &Self) {
        self.milli_cpu = self.milli_cpu.saturating_sub(other.milli_cpu);
        self.memory = self.memory.saturating_sub(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.saturating_sub(other.ephemeral_storage);
        for (name, amount) in &other.scalar {
            if let Some(sum) = self.scalar.get_mut(name) {
                *sum = sum.saturating_sub(*amount);
            }
        }
    }

    /// Raises every amount to at least that of `other`.
    pub fn raise(&mut self, other: &Self) {
        self.milli_cpu = self.milli_cpu.max(other.milli_cpu);
        self.memory = self.memory.max(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.max(other.ephemeral_storage);
        for (name, amount) in &other.scalar {
            let most = self.scalar.entry(name.clone()).or_default();
            *most = (*most).max(*amount);
        }
    }

    /// Whether nothing at all is asked for.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.milli_cpu == 0 && self.memory == 0 && self.ephemeral_storage == 0 && self.scalar.values().all(|amount| *amount == 0)
    }
}

/// Whether an init container is a sidecar: it starts in order but keeps running beside the main containers.
#[must_use]
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn container_requests(container: &Container, assume: bool) -> Resource {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let mut resource = requests.map(Resource::from_list).unwrap_or_default();
    if assume {
        let asks = |name| requests.is_some_and(|requests| requests.contains_key(name));
        if !asks("cpu") {
            resource.milli_cpu = DEFAULT_MILLI_CPU_REQUEST;
        }
        if !asks("memory") {
            resource.memory = DEFAULT_MEMORY_REQUEST;
        }
    }
    resource
}

/// What the whole Pod asks of a node.
///
/// Main containers and sidecars run together, so they add up. An init container runs beside the sidecars started before it, and only
/// until it ends, so the Pod needs the larger of the two. Pod-level resources replace the sum where they are given; overhead comes on top.
#[must_use]
pub fn pod_requests(spec: &PodSpec) -> Resource {
    sum(spec, false)
}

/// The same, with an assumed amount for every container that asks for no cpu or memory, so that scoring spreads such Pods too.
#[must_use]
pub fn pod_requests_for_scoring(spec: &PodSpec) -> Resource {
    sum(spec, true)
}

fn sum(spec: &PodSpec, assume: bool) -> Resource {
    let mut total = Resource::default();
    for container in &spec.containers {
        total.add(&container_requests(container, assume));
    }
    let mut sidecars = Resource::default();
    let mut init_peak = Resource::default();
    for container in spec.init_containers.iter().flatten() {
        let mut requests = container_requests(container, assume);
        if is_sidecar(container) {
            total.add(&requests);
            sidecars.add(&requests);
            init_peak.raise(&sidecars);
        } else {
            requests.add(&sidecars);
            init_peak.raise(&requests);
        }
    }
    total.raise(&init_peak);
    if let Some(requests) = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()) {
        let pod_level = Resource::from_list(requests);
        for name in requests.keys() {
            match name.as_str() {
                "cpu" => total.milli_cpu = pod_level.milli_cpu,
                "memory" => total.memory = pod_level.memory,
                name if name.starts_with("hugepages-") => {
                    total.scalar.insert(name.to_owned(), pod_level.scalar.get(name).copied().unwrap_or_default());
                }
                _ => {}
            }
        }
    }
    if let Some(overhead) = &spec.overhead {
        total.add(&Resource::from_list(overhead));
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: serde_json::Value) -> PodSpec {
        serde_json::from_value(json).unwrap()
    }

    fn asks(name: &str, cpu: &str) -> serde_json::Value {
        serde_json::json!({"name": name, "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn main_containers_add_up() {
        let spec = spec(serde_json::json!({"containers": [asks("a", "100m"), asks("b", "1")]}));
        assert_eq!(pod_requests(&spec).milli_cpu, 1100);
    }

    #[test]
    fn the_largest_init_container_counts_when_it_exceeds_the_sum() {
        let spec =
            spec(serde_json::json!({"initContainers": [asks("i", "3"), asks("j", "2")], "containers": [asks("a", "1"), asks("b", "1")]}));
        assert_eq!(pod_requests(&spec).milli_cpu, 3000);
    }

    #[test]
    fn a_sidecar_counts_beside_the_main_containers_and_the_init_containers_after_it() {
        let mut sidecar = asks("s", "500m");
        sidecar["restartPolicy"] = "Always".into();
        let spec = spec(serde_json::json!({"initContainers": [sidecar, asks("i", "2")], "containers": [asks("a", "1")]}));
        assert_eq!(pod_requests(&spec).milli_cpu, 2500);
    }

    #[test]
    fn overhead_and_pod_level_resources_are_counted() {
        let spec = spec(serde_json::json!({
            "containers": [asks("a", "1")],
            "resources": {"requests": {"cpu": "2"}},
            "overhead": {"cpu": "250m", "memory": "10"},
        }));
        let requests = pod_requests(&spec);
        assert_eq!((requests.milli_cpu, requests.memory), (2250, 10));
    }

    #[test]
    fn scoring_assumes_an_amount_for_a_container_that_asks_for_nothing() {
        let spec = spec(serde_json::json!({"containers": [{"name": "a"}]}));
        assert!(pod_requests(&spec).is_zero());
        let assumed = pod_requests_for_scoring(&spec);
        assert_eq!((assumed.milli_cpu, assumed.memory), (DEFAULT_MILLI_CPU_REQUEST, DEFAULT_MEMORY_REQUEST));
    }
}
