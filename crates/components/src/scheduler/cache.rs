//! The scheduler's picture of the cluster: every Node with its Pods, kept up to date change by change.
//!
//! `Snapshot` is what plugins read. It is never rebuilt: the one task that schedules is also the one that applies changes, so between
//! two Pods it simply is the newest state. `Cache` adds the Pods that have been given a node but whose binding the API has not confirmed
//! yet (assumed Pods), so that the next Pod already sees their place as taken.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::info::{NodeInfo, PodInfo};
use super::selector::Labels;

/// Nodes with their Pods, and what plugins ask of the whole cluster.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    nodes: Vec<Arc<NodeInfo>>,
    index: HashMap<String, usize>,
    /// Pods bound to a node that has not been seen (yet): they are counted when it appears.
    homeless: HashMap<String, Vec<Arc<PodInfo>>>,
    /// Labels of each namespace.
    pub namespaces: HashMap<String, Labels>,
    images: HashMap<String, usize>,
    pods_with_affinity: usize,
    pods_with_required_anti_affinity: usize,
}

impl Snapshot {
    /// All nodes, in the order in which they appeared.
    #[must_use]
    pub fn nodes(&self) -> &[Arc<NodeInfo>] {
        &self.nodes
    }

    /// One node by name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Arc<NodeInfo>> {
        self.index.get(name).and_then(|index| self.nodes.get(*index))
    }

    /// On how many nodes an image is present.
    #[must_use]
    pub fn nodes_with_image(&self, name: &str) -> usize {
        self.images.get(name).copied().unwrap_or_default()
    }

    /// Whether any Pod on any node carries Pod (anti-)affinity.
    #[must_use]
    pub fn has_pods_with_affinity(&self) -> bool {
        self.pods_with_affinity > 0
    }

    /// Whether any Pod on any node carries required anti-affinity.
    #[must_use]
    pub fn has_pods_with_required_anti_affinity(&self) -> bool {
        self.pods_with_required_anti_affinity > 0
    }

    fn change<T>(&mut self, index: usize, change: impl FnOnce(&mut NodeInfo) -> T) -> Option<T> {
        let slot = self.nodes.get_mut(index)?;
        self.pods_with_affinity -= slot.pods_with_affinity;
        self.pods_with_required_anti_affinity -= slot.pods_with_required_anti_affinity;
        let result = change(Arc::make_mut(slot));
        self.pods_with_affinity += slot.pods_with_affinity;
        self.pods_with_required_anti_affinity += slot.pods_with_required_anti_affinity;
        Some(result)
    }

    fn count_images(&mut self, index: usize, present: bool) {
        let Some(info) = self.nodes.get(index) else { return };
        for name in info.images.keys() {
            if present {
                *self.images.entry(name.clone()).or_default() += 1;
            } else if let Some(count) = self.images.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.images.remove(name);
                }
            }
        }
    }

    /// Adds a node or takes over its newer version.
    pub fn set_node(&mut self, node: Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        if let Some(index) = self.index.get(&name).copied() {
            self.count_images(index, false);
            self.change(index, |info| info.set_node(node));
            self.count_images(index, true);
        } else {
            let index = self.nodes.len();
            self.nodes.push(Arc::new(NodeInfo::new(node)));
            self.index.insert(name.clone(), index);
            self.count_images(index, true);
            for pod in self.homeless.remove(&name).unwrap_or_default() {
                self.change(index, |info| info.add_pod(pod));
            }
        }
    }

    /// Forgets a node; its Pods are kept aside until it returns or they go.
    pub fn remove_node(&mut self, name: &str) {
        let Some(index) = self.index.remove(name) else { return };
        self.count_images(index, false);
        let info = self.nodes.remove(index);
        self.pods_with_affinity -= info.pods_with_affinity;
        self.pods_with_required_anti_affinity -= info.pods_with_required_anti_affinity;
        for position in self.index.values_mut() {
            *position -= usize::from(*position > index);
        }
        if !info.pods.is_empty() {
            self.homeless.insert(name.to_owned(), info.pods.clone());
        }
    }

    /// Puts a Pod on a node.
    pub fn add_pod(&mut self, node: &str, pod: Arc<PodInfo>) {
        match self.index.get(node).copied() {
            Some(index) => {
                self.change(index, |info| info.add_pod(pod));
            }
            None => self.homeless.entry(node.to_owned()).or_default().push(pod),
        }
    }

    /// Takes a Pod off a node.
    pub fn remove_pod(&mut self, node: &str, uid: &str) {
        if let Some(index) = self.index.get(node).copied() {
            self.change(index, |info| info.remove_pod(uid));
        } else if let Some(pods) = self.homeless.get_mut(node) {
            pods.retain(|pod| pod.uid != uid);
            if pods.is_empty() {
                self.homeless.remove(node);
            }
        }
    }
}

#[derive(Debug)]
struct Placed {
    node: String,
    pod: Arc<PodInfo>,
    assumed: bool,
}

/// The snapshot plus which Pod stands where, and whether the API has said so.
#[derive(Debug, Default)]
pub struct Cache {
    snapshot: Snapshot,
    placed: HashMap<String, Placed>,
}

impl Cache {
    /// What plugins read.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// For changes that concern nodes and namespaces only.
    pub fn snapshot_mut(&mut self) -> &mut Snapshot {
        &mut self.snapshot
    }

    /// Treats a Pod as running on `node` from now on, before the API knows.
    pub fn assume(&mut self, pod: Arc<PodInfo>, node: &str) {
        self.place(pod, node, true);
    }

    /// Takes an assumption back, unless the API has confirmed it meanwhile.
    pub fn forget(&mut self, uid: &str) {
        if self.placed.get(uid).is_some_and(|placed| placed.assumed) {
            self.remove(uid);
        }
    }

    /// Takes over a Pod that the API says is bound: new, changed, or the confirmation of an assumption. Returns what was there before.
    pub fn set_bound(&mut self, pod: Arc<PodInfo>) -> Option<Arc<PodInfo>> {
        let node = pod.node_name()?.to_owned();
        self.place(pod, &node, false)
    }

    fn place(&mut self, pod: Arc<PodInfo>, node: &str, assumed: bool) -> Option<Arc<PodInfo>> {
        let before = self.remove(&pod.uid.clone());
        self.snapshot.add_pod(node, pod.clone());
        self.placed.insert(pod.uid.clone(), Placed { node: node.to_owned(), pod, assumed });
        before
    }

    /// Removes a Pod that is gone or has finished.
    pub fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let placed = self.placed.remove(uid)?;
        self.snapshot.remove_pod(&placed.node, uid);
        Some(placed.pod)
    }

    /// Whether the Pod has been given a node, by us or by the API.
    #[must_use]
    pub fn is_placed(&self, uid: &str) -> bool {
        self.placed.contains_key(uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::testing::{node_named, pod_on};
    use serde_json::json;

    fn requested(cache: &Cache, node: &str) -> i64 {
        cache.snapshot().node(node).unwrap().requested.milli_cpu
    }

    fn one_core() -> serde_json::Value {
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}})
    }

    #[test]
    fn an_assumed_pod_takes_its_place_until_it_is_forgotten() {
        let mut cache = Cache::default();
        cache.snapshot_mut().set_node(node_named("n", json!({})));
        cache.assume(pod_on("p", "", one_core()), "n");
        assert_eq!(requested(&cache, "n"), 1000);
        cache.forget("p");
        assert_eq!(requested(&cache, "n"), 0);
    }

    #[test]
    fn a_confirmed_pod_is_counted_once_and_no_longer_forgotten() {
        let mut cache = Cache::default();
        cache.snapshot_mut().set_node(node_named("n", json!({})));
        cache.assume(pod_on("p", "", one_core()), "n");
        cache.set_bound(pod_on("p", "n", one_core()));
        cache.forget("p");
        assert_eq!(requested(&cache, "n"), 1000);
        cache.remove("p");
        assert_eq!(requested(&cache, "n"), 0);
    }

    #[test]
    fn a_pod_whose_node_is_not_known_yet_counts_once_the_node_appears() {
        let mut cache = Cache::default();
        cache.set_bound(pod_on("p", "n", one_core()));
        cache.snapshot_mut().set_node(node_named("n", json!({})));
        assert_eq!(requested(&cache, "n"), 1000);
        cache.snapshot_mut().remove_node("n");
        cache.snapshot_mut().set_node(node_named("n", json!({})));
        assert_eq!(requested(&cache, "n"), 1000);
    }

    #[test]
    fn the_index_survives_the_removal_of_a_node() {
        let mut cache = Cache::default();
        for name in ["a", "b", "c"] {
            cache.snapshot_mut().set_node(node_named(name, json!({"status": {"images": [{"names": ["img"], "sizeBytes": 5}]}})));
        }
        cache.snapshot_mut().remove_node("a");
        assert_eq!(cache.snapshot().node("c").unwrap().name, "c");
        assert_eq!(cache.snapshot().nodes_with_image("img"), 2);
    }
}
