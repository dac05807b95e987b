//! Short ways for tests to make Pods, Nodes and snapshots.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::cache::Snapshot;
use super::info::PodInfo;

pub fn pod(value: Value) -> Arc<PodInfo> {
    Arc::new(PodInfo::new(Arc::new(serde_json::from_value(value).unwrap())))
}

pub fn node(value: Value) -> Arc<Node> {
    Arc::new(serde_json::from_value(value).unwrap())
}

/// A Pod in `default` whose UID is its name, on `on` if that is not empty, merged with `extra`.
pub fn pod_on(name: &str, on: &str, extra: Value) -> Arc<PodInfo> {
    let mut value = json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"containers": [{"name": "c"}]}});
    if !on.is_empty() {
        value["spec"]["nodeName"] = on.into();
    }
    merge(&mut value, extra);
    pod(value)
}

/// A node with 4 cores, 8 GiB and 110 Pods, labelled with its hostname, merged with `extra`.
pub fn node_named(name: &str, extra: Value) -> Arc<Node> {
    let mut value = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    });
    merge(&mut value, extra);
    node(value)
}

pub fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

pub fn snapshot(nodes: impl IntoIterator<Item = Arc<Node>>, pods: impl IntoIterator<Item = Arc<PodInfo>>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for node in nodes {
        snapshot.set_node(node);
    }
    for pod in pods {
        let node = pod.node_name().unwrap().to_owned();
        snapshot.add_pod(&node, pod);
    }
    snapshot
}

struct NoBinder;

impl super::framework::Plugin for NoBinder {
    fn name(&self) -> &'static str {
        "NoBinder"
    }
}

impl super::framework::Bind for NoBinder {
    fn bind(&self, _: Arc<PodInfo>, _: String) -> futures::future::BoxFuture<'static, Option<Result<(), super::framework::Rejection>>> {
        Box::pin(async { None })
    }
}

/// The default profile with a binder that binds nothing.
pub fn profile() -> super::framework::Profile {
    super::plugins::default_profile("default-scheduler", Arc::new(NoBinder))
}
