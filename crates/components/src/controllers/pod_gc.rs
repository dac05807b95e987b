//! The Pod garbage collector: Pods that nobody will ever end properly.
//!
//! Those on nodes that are gone, those that are being deleted but were never bound, and the oldest of the terminated
//! ones when there are too many.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use serde_json::json;

use super::pods;
use crate::{
    clock::{Clock, later},
    runtime::{Component, Context, Error, Identity, Informer, Key, Outcome, Propagation, Requeue, Source, Writer},
};

const ACCOUNT: &str = "pod-garbage-collector";
const PERIOD: Duration = Duration::from_secs(20);
/// How long a node must have been missing before its Pods are taken for lost.
const QUARANTINE: Duration = Duration::from_secs(40);

struct Controller {
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    writer: Writer<Pod>,
    node_writer: Writer<Node>,
    clock: Clock,
    threshold: usize,
    missing: Mutex<HashMap<String, Timestamp>>,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(ACCOUNT));
    let (nodes, pods) = (context.watches.of(), context.watches.of());
    pods::add_indexes(&pods);
    context.run(Controller {
        writer: Writer::new(client.clone(), &pods),
        node_writer: Writer::new(client, &nodes),
        nodes,
        pods,
        clock: context.clock.clone(),
        threshold: context.options.terminated_pod_gc_threshold,
        missing: Mutex::default(),
    })
}

impl Component for Controller {
    const NAME: &'static str = "pod-garbage-collector-controller";
    const WORKERS: usize = 1;

    fn sources(&self) -> Vec<Source> {
        vec![Source::lookup(&self.nodes), Source::lookup(&self.pods), Source::once(Key::cluster("all"))]
    }

    async fn reconcile(self: Arc<Self>, _: Key) -> Outcome {
        let pods = self.pods.list();
        for pod in pods.iter().filter(|pod| pods::is_terminating(pod) && pods::node_name(pod).is_none()) {
            self.remove(pod, None).await?;
        }
        for pod in surplus(&pods, self.threshold) {
            self.remove(&pod, None).await?;
        }
        for node in self.lost_nodes(&pods).await? {
            for pod in self.pods.indexed(pods::NODE, &node) {
                self.remove(&pod, Some("PodGC: node no longer exists")).await?;
            }
        }
        Ok(Requeue::After(PERIOD))
    }
}

impl Controller {
    /// Nodes that Pods are bound to and that have been gone for long enough.
    async fn lost_nodes(&self, pods: &[Arc<Pod>]) -> Result<Vec<String>, Error> {
        let now = self.clock.now();
        let gone: Vec<String> = {
            let mut missing = self.missing.lock();
            let absent: Vec<_> =
                pods.iter().filter_map(|pod| pods::node_name(pod)).filter(|node| self.nodes.get("", node).is_none()).collect();
            missing.retain(|node, _| absent.contains(&node.as_str()));
            for node in absent {
                missing.entry(node.to_owned()).or_insert(now);
            }
            missing.iter().filter(|(_, since)| later(**since, QUARANTINE) <= now).map(|(node, _)| node.clone()).collect()
        };
        let mut lost = Vec::new();
        for node in gone {
            match self.node_writer.get(&Key::cluster(&node)).await {
                Err(error) if error.is_not_found() => lost.push(node),
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        Ok(lost)
    }

    async fn remove(&self, pod: &Pod, disruption: Option<&str>) -> Result<(), Error> {
        if !pods::is_finished(pod) {
            let mut status = json!({"phase": "Failed"});
            if let Some(message) = disruption {
                status["conditions"] = json!([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
                    "message": message, "lastTransitionTime": self.clock.time()}]);
            }
            let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
            match self.writer.patch(&Key::of(&pod.metadata), "/status", &patch).await {
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        self.writer.delete_with(pod, Propagation::Default, Some(0)).await
    }
}

/// The oldest terminated Pods beyond the threshold.
fn surplus(pods: &[Arc<Pod>], threshold: usize) -> Vec<Arc<Pod>> {
    if threshold == 0 {
        return Vec::new();
    }
    let mut ended: Vec<_> = pods.iter().filter(|pod| pods::is_finished(pod)).cloned().collect();
    let many = ended.len().saturating_sub(threshold);
    ended.sort_by_key(|pod| pod.metadata.creation_timestamp.clone());
    ended.truncate(many);
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_terminated_pods_go_first() {
        let pod = |n: u32, phase: &str| -> Arc<Pod> {
            let meta = json!({"name": n.to_string(), "creationTimestamp": format!("2030-01-01T00:00:0{n}Z")});
            Arc::new(serde_json::from_value(json!({"metadata": meta, "status": {"phase": phase}})).unwrap())
        };
        let pods = [pod(3, "Failed"), pod(1, "Succeeded"), pod(0, "Running"), pod(2, "Failed")];
        let gone = surplus(&pods, 1);
        let names: Vec<_> = gone.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        assert_eq!(names, ["1", "2"]);
    }
}
