//! Taint eviction: Pods that do not tolerate a node's `NoExecute` taints go, at once or when their patience ends.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use serde_json::json;

use crate::{
    clock::{Clock, later, left},
    controllers::{node_fit::tolerates, pods},
    events::{EventType, Recorder, regarding},
    runtime::{Component, Context, Identity, Informer, Key, Outcome, Propagation, Requeue, Source, Writer},
};

struct Controller {
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    writer: Writer<Pod>,
    recorder: Recorder,
    clock: Clock,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(super::ACCOUNT));
    let pods = context.watches.of();
    pods::add_indexes(&pods);
    context.run(Controller {
        writer: Writer::new(client.clone(), &pods),
        recorder: context.recorder(client, "taint-eviction-controller"),
        nodes: context.watches.of(),
        pods,
        clock: context.clock.clone(),
    })
}

fn evicting(node: &Node) -> Vec<Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

impl Component for Controller {
    const NAME: &'static str = "taint-eviction-controller";

    fn sources(&self) -> Vec<Source> {
        let (nodes, pods) = (self.nodes.clone(), self.pods.clone());
        vec![
            Source::new(&self.nodes, move |change, queue| {
                let Some(node) = change.new else { return };
                if change.old.map(|old| evicting(old)) != Some(evicting(node)) && !(change.old.is_none() && evicting(node).is_empty()) {
                    for pod in pods.indexed(pods::NODE, node.metadata.name.as_deref().unwrap_or_default()) {
                        queue.add(Key::of(&pod.metadata));
                    }
                }
            }),
            Source::new(&self.pods, move |change, queue| {
                let Some(pod) = change.new else { return };
                let bound = pods::node_name(pod);
                if bound.is_none() || change.old.is_some_and(|old| pods::node_name(old) == bound) {
                    return;
                }
                if bound.and_then(|node| nodes.get("", node)).is_some_and(|node| !evicting(&node).is_empty()) {
                    queue.add(Key::of(&pod.metadata));
                }
            }),
        ]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(pod) = self.pods.find(&key).filter(|pod| pods::is_active(pod)) else { return Ok(Requeue::Done) };
        let Some(node) = pods::node_name(&pod).and_then(|node| self.nodes.get("", node)) else { return Ok(Requeue::Done) };
        let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        let now = self.clock.now();
        let Some(at) = leaves_at(&evicting(&node), tolerations, now) else { return Ok(Requeue::Done) };
        let wait = left(now, at);
        if !wait.is_zero() {
            return Ok(Requeue::After(wait));
        }
        self.recorder.event(&regarding(&*pod), EventType::Normal, "TaintManagerEviction", format!("Marking for deletion Pod {key}"));
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": self.clock.time(),
        });
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
        match self.writer.patch(&key, "/status", &patch).await {
            Err(error) if error.is_not_found() => return Ok(Requeue::Done),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        self.writer.delete(&pod, Propagation::Default).await?;
        Ok(Requeue::Done)
    }
}

/// When a Pod has to leave; `None` if it may stay for ever.
fn leaves_at(taints: &[Taint], tolerations: &[Toleration], now: Timestamp) -> Option<Timestamp> {
    let mut earliest: Option<Timestamp> = None;
    for taint in taints {
        let matching: Vec<_> = tolerations.iter().filter(|toleration| tolerates(std::slice::from_ref(toleration), taint)).collect();
        if matching.is_empty() {
            return Some(now);
        }
        let patience = matching.iter().filter_map(|toleration| toleration.toleration_seconds).min();
        if let Some(seconds) = patience {
            let since = taint.time_added.as_ref().map_or(now, |time| time.0);
            let at = later(since, Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
            earliest = Some(earliest.map_or(at, |earliest| earliest.min(at)));
        }
    }
    earliest
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_pod_stays_as_long_as_it_tolerates_the_taint() {
        let taint = |key: &str| -> Taint {
            serde_json::from_value(json!({"key": key, "effect": "NoExecute", "timeAdded": "2030-01-01T00:00:00Z"})).unwrap()
        };
        let toleration = |value: Value| -> Toleration { serde_json::from_value(value).unwrap() };
        let now: Timestamp = "2030-01-01T00:01:00Z".parse().unwrap();
        let patient = toleration(json!({"key": "k", "operator": "Exists", "tolerationSeconds": 300}));
        let forever = toleration(json!({"key": "k", "operator": "Exists"}));
        assert_eq!(leaves_at(&[], &[], now), None);
        assert_eq!(leaves_at(&[taint("k")], &[], now), Some(now));
        assert_eq!(leaves_at(&[taint("k")], &[forever], now), None);
        assert_eq!(leaves_at(&[taint("k")], std::slice::from_ref(&patient), now), Some("2030-01-01T00:05:00Z".parse().unwrap()));
        assert_eq!(leaves_at(&[taint("k"), taint("other")], &[patient], now), Some(now));
    }
}
