//! ImageLocality: prefers nodes that have the Pod's images already, the more so the larger and the wider spread they are.

use crate::scheduler::cache::Snapshot;
use crate::scheduler::framework::{CycleState, MAX_NODE_SCORE, Plugin, Score};
use crate::scheduler::info::{NodeInfo, PodInfo};

const MIN_THRESHOLD: i64 = 23 * 1024 * 1024;
const MAX_CONTAINER_THRESHOLD: i64 = 1000 * 1024 * 1024;

/// See the module's description.
pub struct ImageLocality;

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }
}

/// The name under which a node lists an image: without a tag it is `:latest`.
fn normalized(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    if last.contains(':') || last.contains('@') { name.to_owned() } else { format!("{name}:latest") }
}

impl Score for ImageLocality {
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, snapshot: &Snapshot) -> i64 {
        let Some(spec) = pod.spec() else { return 0 };
        if node.images.is_empty() {
            return 0;
        }
        let total = i64::try_from(snapshot.nodes().len()).unwrap_or(i64::MAX).max(1);
        let mut sum = 0i64;
        let mut containers = 0i64;
        for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
            containers += 1;
            let name = normalized(container.image.as_deref().unwrap_or_default());
            if let Some(size) = node.images.get(&name) {
                // Scaled by how many nodes have it, so that one node with a rare image does not draw every Pod.
                let spread = i64::try_from(snapshot.nodes_with_image(&name)).unwrap_or_default();
                sum = sum.saturating_add(size.saturating_mul(spread) / total);
            }
        }
        let most = MAX_CONTAINER_THRESHOLD * containers.max(1);
        MAX_NODE_SCORE * (sum.clamp(MIN_THRESHOLD, most) - MIN_THRESHOLD) / (most - MIN_THRESHOLD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::testing::{node_named, pod_on, snapshot};
    use serde_json::json;

    #[test]
    fn a_node_that_has_the_image_scores_higher() {
        let has = node_named("a", json!({"status": {"images": [{"names": ["app:latest"], "sizeBytes": 900 * 1024 * 1024}]}}));
        let snapshot = snapshot([has, node_named("b", json!({}))], []);
        let pod = pod_on("p", "", json!({"spec": {"containers": [{"name": "c", "image": "app"}]}}));
        let score = |name| ImageLocality.score(&CycleState::default(), &pod, snapshot.node(name).unwrap(), &snapshot);
        assert!(score("a") > 40);
        assert_eq!(score("b"), 0);
    }
}
