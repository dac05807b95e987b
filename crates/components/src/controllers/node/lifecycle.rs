//! Node lifecycle: a node that falls silent becomes unknown, and its state becomes taints.
//!
//! A node is heard of when its Lease or its status is renewed. What counts is when this process saw that, not what the
//! node's clock says. The taints keep new Pods away; what happens to those on the node is the taint eviction's business.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Node, NodeCondition, Pod, Taint},
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use parking_lot::Mutex;
use serde_json::json;

use crate::{
    clock::{Clock, later, left},
    controllers::pods,
    events::{EventType, ObjectReference, Recorder, regarding},
    runtime::{Component, Context, Error, Identity, Informer, Key, Outcome, Requeue, Source, Writer},
};

const LEASES: &str = "kube-node-lease";
/// Taints that follow from conditions: the condition, the status that brings the taint, the taint.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", "node.kubernetes.io/not-ready"),
    ("Ready", "Unknown", "node.kubernetes.io/unreachable"),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
];
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

type Heard = Arc<Mutex<HashMap<String, Timestamp>>>;

struct Controller {
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    pods: Informer<Pod>,
    writer: Writer<Node>,
    pod_writer: Writer<Pod>,
    recorder: Recorder,
    clock: Clock,
    grace: Duration,
    heard: Heard,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(super::ACCOUNT));
    let (nodes, pods) = (context.watches.of(), context.watches.of());
    pods::add_indexes(&pods);
    context.run(Controller {
        writer: Writer::new(client.clone(), &nodes),
        pod_writer: Writer::new(client.clone(), &pods),
        recorder: context.recorder(client, "node-controller"),
        nodes,
        pods,
        leases: context.watches.of(),
        clock: context.clock.clone(),
        grace: context.options.node_monitor_grace_period,
        heard: Heard::default(),
    })
}

impl Component for Controller {
    const NAME: &'static str = "node-lifecycle-controller";

    fn sources(&self) -> Vec<Source> {
        let (heard, clock) = (self.heard.clone(), self.clock.clone());
        let (heard_of, now) = (self.heard.clone(), self.clock.clone());
        let recorder = self.recorder.clone();
        vec![
            // A renewal is only noted; a node that is well needs no work because of it.
            Source::new(&self.leases, move |change, _| {
                if let Some(lease) = change.new.filter(|lease| lease.metadata.namespace.as_deref() == Some(LEASES)) {
                    heard.lock().insert(lease.metadata.name.clone().unwrap_or_default(), clock.now());
                }
            }),
            Source::new(&self.nodes, move |change, queue| {
                let Some(node) = change.latest() else { return };
                let name = node.metadata.name.clone().unwrap_or_default();
                match (change.old, change.new) {
                    (_, None) => {
                        heard_of.lock().remove(&name);
                        tell(&recorder, node, "RemovingNode", format!("Removing Node {name} from Controller"));
                    }
                    (None, Some(_)) => {
                        heard_of.lock().insert(name.clone(), now.now());
                        tell(&recorder, node, "RegisteredNode", format!("Registered Node {name} in Controller"));
                    }
                    (Some(old), Some(new)) if heartbeat(old) != heartbeat(new) => {
                        heard_of.lock().insert(name, now.now());
                    }
                    _ => {}
                }
                queue.add(Key::of(&node.metadata));
            }),
            Source::lookup(&self.pods),
        ]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(mut node) = self.nodes.find(&key) else { return Ok(Requeue::Done) };
        let now = self.clock.now();
        let heard = *self.heard.lock().entry(key.name.to_string()).or_insert(now);
        let silent = later(heard, self.grace) <= now;
        if silent && let Some(conditions) = unknown(&node, &self.clock.time()) {
            let about = regarding(&*node);
            let patch = json!({"metadata": {"uid": node.metadata.uid}, "status": {"conditions": conditions}});
            node = self.writer.patch(&key, "/status", &patch).await?;
            let message = format!("Node {} status is now: NodeNotReady", key.name);
            self.recorder.event(&about, EventType::Normal, "NodeNotReady", message);
        }
        if let Some(taints) = taints(&node, &self.clock.time()) {
            let taints = if taints.is_empty() { serde_json::Value::Null } else { json!(taints) };
            let patch = json!({"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}});
            node = self.writer.merge(&key, "", &patch).await?;
        }
        if status_of(&node, "Ready").is_some_and(|ready| ready != "True") {
            self.pods_not_ready(&node).await?;
        }
        let again = if silent { self.grace } else { left(now, later(heard, self.grace)) };
        Ok(Requeue::After(again.max(Duration::from_millis(100))))
    }
}

fn tell(recorder: &Recorder, node: &Node, reason: &str, what: String) {
    // Events about nodes name them by uid as the kubelet does.
    let about = ObjectReference { namespace: None, resource_version: None, ..regarding(node) };
    let name = node.metadata.name.as_deref().unwrap_or_default();
    recorder.event(&about, EventType::Normal, reason, format!("Node {name} event: {what}"));
}

impl Controller {
    /// Pods on a node that is not ready are not ready either, whatever they said last.
    async fn pods_not_ready(&self, node: &Node) -> Result<(), Error> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        for pod in self.pods.indexed(pods::NODE, name) {
            if !pods::is_ready(&pod) || pods::is_finished(&pod) {
                continue;
            }
            let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": self.clock.time()});
            let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
            match self.pod_writer.patch(&Key::of(&pod.metadata), "/status", &patch).await {
                Ok(_) => self.recorder.event(&regarding(&*pod), EventType::Warning, "NodeNotReady", "Node is not ready"),
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn condition<'a>(node: &'a Node, r#type: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == r#type)
}

fn status_of<'a>(node: &'a Node, r#type: &str) -> Option<&'a str> {
    condition(node, r#type).map(|condition| condition.status.as_str())
}

fn heartbeat(node: &Node) -> Option<&Time> {
    condition(node, "Ready").and_then(|ready| ready.last_heartbeat_time.as_ref())
}

/// The conditions of a node that has fallen silent; `None` if they say so already.
fn unknown(node: &Node, now: &Time) -> Option<Vec<NodeCondition>> {
    let types = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
    let changed = types.into_iter().filter(|r#type| status_of(node, r#type) != Some("Unknown"));
    let changed: Vec<_> = changed
        .map(|r#type| {
            let old = condition(node, r#type);
            let (reason, message) = match old {
                Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
                None => ("NodeStatusNeverUpdated", "Kubelet never posted node status."),
            };
            NodeCondition {
                type_: r#type.into(),
                status: "Unknown".into(),
                reason: Some(reason.into()),
                message: Some(message.into()),
                last_heartbeat_time: old.map_or_else(|| node.metadata.creation_timestamp.clone(), |old| old.last_heartbeat_time.clone()),
                last_transition_time: Some(now.clone()),
            }
        })
        .collect();
    (!changed.is_empty()).then_some(changed)
}

/// The taints a node should have; `None` if it has them.
fn taints(node: &Node, now: &Time) -> Option<Vec<Taint>> {
    let spec = node.spec.as_ref();
    let current = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for (r#type, status, key) in BY_CONDITION {
        if status_of(node, r#type) == Some(status) {
            wanted.push((key, "NoSchedule"));
            if r#type == "Ready" {
                wanted.push((key, "NoExecute"));
            }
        }
    }
    if spec.and_then(|spec| spec.unschedulable) == Some(true) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    // A node whose kubelet has not said anything yet keeps what it was created with.
    let ours = |taint: &Taint| {
        let known = BY_CONDITION.iter().any(|(_, _, key)| *key == taint.key) || taint.key == UNSCHEDULABLE;
        let silent = status_of(node, "Ready").is_none() && taint.key != UNSCHEDULABLE;
        known && !silent && matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
    };
    let mut next: Vec<Taint> =
        current.iter().filter(|taint| !ours(taint) || wanted.contains(&(taint.key.as_str(), taint.effect.as_str()))).cloned().collect();
    for (key, effect) in wanted {
        if !next.iter().any(|taint| taint.key == key && taint.effect == effect) {
            next.push(Taint { key: key.into(), effect: effect.into(), time_added: Some(now.clone()), value: None });
        }
    }
    (next != current).then_some(next)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn node(conditions: Value, spec: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions}})).unwrap()
    }

    fn keys(taints: &[Taint]) -> Vec<String> {
        taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect()
    }

    const NOW: Time = Time(Timestamp::UNIX_EPOCH);

    #[test]
    fn a_silent_node_becomes_unknown_once() {
        let unknown_conditions = unknown(&node(json!([{"type": "Ready", "status": "True"}]), json!({})), &NOW).unwrap();
        assert_eq!(unknown_conditions.len(), 4);
        assert_eq!(unknown_conditions[0].message.as_deref(), Some("Kubelet stopped posting node status."));
        let again = node(json!(unknown_conditions), json!({}));
        assert!(unknown(&again, &NOW).is_none());
    }

    #[test]
    fn conditions_become_taints_and_go_again() {
        let lost = node(json!([{"type": "Ready", "status": "Unknown"}]), json!({}));
        let tainted = taints(&lost, &NOW).unwrap();
        assert_eq!(keys(&tainted), ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"]);
        let back = node(json!([{"type": "Ready", "status": "True"}]), json!({"taints": tainted}));
        assert_eq!(taints(&back, &NOW), Some(vec![]));
    }

    #[test]
    fn other_peoples_taints_stay() {
        let own = json!([{"key": "example.com/gpu", "effect": "NoSchedule"}]);
        let node = node(json!([{"type": "Ready", "status": "True"}]), json!({"taints": own, "unschedulable": true}));
        assert_eq!(keys(&taints(&node, &NOW).unwrap()), ["example.com/gpu:NoSchedule", "node.kubernetes.io/unschedulable:NoSchedule"]);
    }
}
