//! The scheduler's plugins, one file each, under the names that Kubernetes gives them.

mod default_binder;
mod default_preemption;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_resources_balanced_allocation;
mod node_resources_fit;
mod node_unschedulable;
mod pod_topology_spread;
mod priority_sort;
mod scheduling_gates;
mod taint_toleration;

pub use default_binder::DefaultBinder;
pub use default_preemption::DefaultPreemption;
pub use image_locality::ImageLocality;
pub use inter_pod_affinity::InterPodAffinity;
pub use node_affinity::NodeAffinity;
pub use node_name::NodeName;
pub use node_ports::NodePorts;
pub use node_resources_balanced_allocation::NodeResourcesBalancedAllocation;
pub use node_resources_fit::NodeResourcesFit;
pub use node_unschedulable::NodeUnschedulable;
pub use pod_topology_spread::PodTopologySpread;
pub use priority_sort::PrioritySort;
pub use scheduling_gates::SchedulingGates;
pub use taint_toleration::TaintToleration;

use std::collections::HashMap;
use std::sync::Arc;

use super::framework::{Bind, MAX_NODE_SCORE, Plugin, Profile};

/// The plugins of the default profile with the default weights, for Pods of `scheduler_name`.
#[must_use]
pub fn default_profile(scheduler_name: &str, binder: Arc<dyn Bind>) -> Profile {
    let affinity = Arc::new(NodeAffinity);
    let ports = Arc::new(NodePorts);
    let fit = Arc::new(NodeResourcesFit);
    let balanced = Arc::new(NodeResourcesBalancedAllocation);
    let taints = Arc::new(TaintToleration);
    let spread = Arc::new(PodTopologySpread);
    let pod_affinity = Arc::new(InterPodAffinity);
    let images = Arc::new(ImageLocality);
    let node_name = Arc::new(NodeName);
    let unschedulable = Arc::new(NodeUnschedulable);
    let gates = Arc::new(SchedulingGates);
    let sort = Arc::new(PrioritySort);
    let preemption = Arc::new(DefaultPreemption);
    let all: [Arc<dyn Plugin>; 13] = [
        affinity.clone(),
        ports.clone(),
        fit.clone(),
        balanced.clone(),
        taints.clone(),
        spread.clone(),
        pod_affinity.clone(),
        images.clone(),
        node_name.clone(),
        unschedulable.clone(),
        gates.clone(),
        sort.clone(),
        preemption.clone(),
    ];
    Profile {
        scheduler_name: scheduler_name.to_owned(),
        queue_sort: sort,
        pre_enqueue: vec![gates],
        pre_filter: vec![affinity.clone(), ports.clone(), fit.clone(), spread.clone(), pod_affinity.clone()],
        // Cheap checks first; the two that look beyond the node come last.
        filter: vec![unschedulable, node_name, taints.clone(), affinity.clone(), ports, fit.clone(), spread.clone(), pod_affinity.clone()],
        post_filter: vec![preemption],
        pre_score: vec![taints.clone(), affinity.clone(), spread.clone(), pod_affinity.clone()],
        score: vec![(taints, 3), (affinity, 2), (fit, 1), (spread, 2), (pod_affinity, 2), (balanced, 1), (images, 1)],
        reserve: Vec::new(),
        permit: Vec::new(),
        pre_bind: Vec::new(),
        bind: vec![binder],
        post_bind: Vec::new(),
        plugins: all.into_iter().map(|plugin| (plugin.name(), plugin)).collect::<HashMap<_, _>>(),
    }
}

/// Stretches scores to 0…100 by their maximum; `reverse` makes the lowest the best.
pub(super) fn default_normalize(scores: &mut [i64], reverse: bool) {
    let max = scores.iter().copied().max().unwrap_or_default();
    for score in scores {
        let stretched = if max == 0 { 0 } else { MAX_NODE_SCORE * *score / max };
        *score = if reverse { MAX_NODE_SCORE - stretched } else { stretched };
    }
}
