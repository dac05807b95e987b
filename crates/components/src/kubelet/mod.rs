//! The kubelet: runs the Pods that are bound to its node, and reports how they and the node are.
//!
//! Many kubelets live in one process: they share one watch of Pods, whose changes are routed by node name to the worker of the Pod.
//!
//! ```text
//! Pod watch ─▶ router ─▶ Agent (one per node) ─▶ Worker (one per Pod) ── jobs ──▶ ContainerRuntime (CRI v1)
//!                          ▲       ▲                 │  PodMachine                   │
//!            static Pods ──┘       └──── PLEG ◀──────┼───────────────────────────────┘
//!                                                    ▼ status, events, delete as system:node:<name>
//! ```

mod agent;
mod api;
pub mod backoff;
mod environment;
mod heartbeat;
mod jobs;
pub mod log_options;
pub mod machine;
mod node;
mod nodes;
mod pleg;
pub mod pod_config;
mod server;
mod static_pods;
pub mod status;
mod worker;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use parking_lot::RwLock;

pub use agent::MIRROR_ANNOTATION;
pub use nodes::{Nodes, numbered};
pub use server::{Body, KubeletServer};

use crate::cri::v1::{NetworkConfig, RuntimeConfig, UpdateRuntimeConfigRequest};
use crate::events::Recorder;
use crate::runtime::{Context, Entry, Identity, Informer, Selectable};
use agent::{Agent, AgentParts};
use heartbeat::Heartbeat;

/// What every node of a process is like.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Cores.
    pub cpu: String,
    /// Memory.
    pub memory: String,
    /// Local storage.
    pub ephemeral_storage: String,
    /// How many Pods.
    pub pods: u32,
    /// Anything else it has, such as `example.com/gpu`.
    pub extended_resources: BTreeMap<String, String>,
    /// Labels beside the usual ones.
    pub labels: BTreeMap<String, String>,
    /// Taints it registers with.
    pub taints: Vec<Taint>,
    /// The version it claims to be.
    pub kubelet_version: String,
    /// A directory of manifests that the node runs without being asked by the API.
    pub static_pod_path: Option<PathBuf>,
    /// The address of the machine that the nodes are on; without one they have addresses of their own, which nobody can reach.
    pub ip: Option<IpAddr>,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            cpu: "16".into(),
            memory: "64Gi".into(),
            ephemeral_storage: "200Gi".into(),
            pods: 110,
            extended_resources: BTreeMap::new(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            kubelet_version: "v1.37.0".into(),
            static_pod_path: None,
            ip: None,
        }
    }
}

/// The kubelets of this process as a component that can be started by name. Which nodes they are is in [`Options::nodes`].
///
/// [`Options::nodes`]: crate::Options::nodes
#[must_use]
pub fn entry() -> Entry {
    Entry {
        names: Selectable { name: "kubelet", aliases: &["kubelets", "nodes"], controller: false },
        // The nodes of several replicas of a server are the same ones: they are run where the controllers are.
        lease: "kube-controller-manager",
        run: |context| {
            Box::pin(async move {
                let nodes = context.options.nodes.clone();
                run(context, nodes).await;
            })
        },
    }
}

/// The address of the n-th node of a process: one network, as the nodes of a `kind` cluster have.
fn host_ip(index: usize) -> IpAddr {
    let offset = u32::try_from(index).unwrap_or_default();
    IpAddr::V4(Ipv4Addr::from(u32::from(Ipv4Addr::new(172, 18, 0, 2)).wrapping_add(offset)))
}

type Agents = Arc<RwLock<HashMap<String, Arc<Agent>>>>;

/// Runs the kubelets of `nodes` until the context says stop. Nodes may come and go meanwhile.
pub async fn run(context: Context, nodes: Nodes) {
    let pods = context.watches.of::<Pod>();
    let node_objects = context.watches.of::<Node>();
    let agents = Agents::default();
    let mut wanted = nodes.watch();
    tokio::select! {
        () = context.stop.cancelled() => return,
        () = async { tokio::join!(pods.synced(), node_objects.synced()); } => {}
    }
    pods.add_index("nodeName", |pod: &Pod| node_of(pod).map(str::to_owned).into_iter().collect());
    let _subscriptions = (
        pods.subscribe({
            let agents = agents.clone();
            move |change| {
                let Some(name) = change.latest().and_then(|pod| node_of(pod)) else { return };
                if let Some(agent) = agents.read().get(name).cloned() {
                    // Before it was bound it was none of this node's business.
                    agent.pod_changed(change.old.filter(|old| node_of(old) == Some(name)), change.new);
                }
            }
        }),
        node_objects.subscribe({
            let agents = agents.clone();
            move |change| {
                let Some(node) = change.new else { return };
                if let Some(agent) = agents.read().get(node.metadata.name.as_deref().unwrap_or_default()) {
                    configure_network(agent, node);
                }
            }
        }),
    );
    loop {
        let names = wanted.borrow_and_update().clone();
        for (index, name) in &names {
            if !agents.read().contains_key(name) {
                start(&context, &nodes, *index, name, &agents, &pods, &node_objects).await;
            }
        }
        let gone: Vec<String> = agents.read().keys().filter(|name| !names.iter().any(|(_, wanted)| wanted == *name)).cloned().collect();
        for name in gone {
            nodes.withdraw(&name);
            if let Some(agent) = agents.write().remove(&name) {
                agent.stop.cancel();
            }
        }
        tokio::select! {
            () = context.stop.cancelled() => break,
            changed = wanted.changed() => if changed.is_err() { break },
        }
    }
    for name in agents.read().keys() {
        nodes.withdraw(name);
    }
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Tells the runtime the node's range of Pod addresses, once it has one.
fn configure_network(agent: &Arc<Agent>, node: &Node) {
    let Some(pod_cidr) = node.spec.as_ref().and_then(|spec| spec.pod_cidr.clone()) else { return };
    if agent.pod_cidr.lock().replace(pod_cidr.clone()).as_ref() == Some(&pod_cidr) {
        return;
    }
    let agent = agent.clone();
    tokio::spawn(async move {
        let request =
            UpdateRuntimeConfigRequest { runtime_config: Some(RuntimeConfig { network_config: Some(NetworkConfig { pod_cidr }) }) };
        match agent.runtime.update_runtime_config(request).await {
            Ok(_) => {
                agent.network.send_replace(true);
            }
            Err(status) => tracing::warn!(node = %agent.name, status = %status.message(), "the runtime did not take the node's podCIDR"),
        }
    });
}

async fn start(
    context: &Context,
    nodes: &Nodes,
    index: usize,
    name: &str,
    agents: &Agents,
    pods: &Informer<Pod>,
    node_objects: &Informer<Node>,
) {
    let client = context.client(&Identity::node(name));
    let stop = context.stop.child_token();
    let agent = Agent::new(AgentParts {
        name: name.to_owned(),
        host_ip: nodes.config().ip.unwrap_or_else(|| host_ip(index)),
        port: nodes.port(name),
        recorder: Recorder::new(client.clone(), "kubelet", name, context.clock.clone(), stop.clone()),
        client,
        runtime: nodes.runtime(index, name, &context.clock),
        status_writes: nodes.status_writes(),
        clock: context.clock.clone(),
        stop,
    });
    agent.take_stock().await;
    if let Some(node) = node_objects.get("", name) {
        configure_network(&agent, &node);
    }
    agents.write().insert(name.to_owned(), agent.clone());
    // What was bound before the router knew this node; what comes twice changes nothing.
    for pod in pods.indexed("nodeName", name) {
        agent.pod_changed(None, Some(&pod));
    }
    agent.clear_leftovers().await;
    tokio::spawn(pleg::run(agent.clone()));
    tokio::spawn(Heartbeat::new(agent.clone(), nodes.config().clone()).beat());
    if let Some(path) = nodes.config().static_pod_path.clone() {
        tokio::spawn(static_pods::run(agent.clone(), path, pods.clone()));
    }
    nodes.announce(name, KubeletServer::new(agent));
}
