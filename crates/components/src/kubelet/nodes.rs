//! The nodes of this process: which there are, what runs their containers, and where their servers are.
//!
//! A handle that is shared between whoever starts the components (to add and remove nodes), the kubelets themselves, and the API
//! server (to reach a node's logs).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::{KubeletServer, NodeConfig};
use crate::clock::Clock;
use crate::cri::mock::MockRuntime;
use crate::cri::{ContainerRuntime, RuntimeFor};

/// How many statuses of all nodes together may be on their way to the server. Enough that it can commit many at once; nodes that start many
/// Pods shall not stand in everybody's way.
const STATUS_WRITES: usize = 32;

/// The port of a kubelet that is nowhere in particular.
const KUBELET_PORT: u16 = 10250;

/// See the module's description. Clones are the same nodes.
#[derive(Clone)]
pub struct Nodes(Arc<Shared>);

struct Shared {
    config: NodeConfig,
    names: watch::Sender<Vec<(usize, String)>>,
    runtime_for: Option<RuntimeFor>,
    /// Kept here so that they outlive a restart of the kubelets.
    runtimes: Mutex<HashMap<String, Arc<dyn ContainerRuntime>>>,
    servers: Mutex<HashMap<String, KubeletServer>>,
    ports: Mutex<HashMap<String, u16>>,
    status_writes: Arc<Semaphore>,
}

impl Default for Nodes {
    fn default() -> Self {
        Self::new(NodeConfig::default(), None)
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Nodes").field(&self.names()).finish()
    }
}

impl Nodes {
    /// No nodes yet. Without `runtime_for` every node has a mock runtime.
    #[must_use]
    pub fn new(config: NodeConfig, runtime_for: Option<RuntimeFor>) -> Self {
        Self(Arc::new(Shared {
            config,
            names: watch::Sender::new(Vec::new()),
            runtime_for,
            runtimes: Mutex::default(),
            servers: Mutex::default(),
            ports: Mutex::default(),
            status_writes: Arc::new(Semaphore::new(STATUS_WRITES)),
        }))
    }

    /// `count` mock nodes named `node-1`, `node-2`, ….
    #[must_use]
    pub fn mock(count: usize) -> Self {
        let nodes = Self::default();
        nodes.add_numbered(count);
        nodes
    }

    /// Adds `node-1`, `node-2`, … up to `count`.
    pub fn add_numbered(&self, count: usize) {
        numbered(count).for_each(|name| self.add(&name));
    }

    /// Adds a node. One that is there already stays as it is.
    pub fn add(&self, name: &str) {
        self.0.names.send_if_modified(|names| {
            if names.iter().any(|(_, known)| known == name) {
                return false;
            }
            let free = (0..=names.len()).find(|index| !names.iter().any(|(taken, _)| taken == index)).unwrap_or_default();
            names.push((free, name.to_owned()));
            true
        });
    }

    /// Stops a node's kubelet, as if the machine were switched off: its Node object stays and is soon NotReady.
    pub fn remove(&self, name: &str) {
        self.0.runtimes.lock().remove(name);
        self.0.names.send_if_modified(|names| {
            let before = names.len();
            names.retain(|(_, known)| known != name);
            names.len() != before
        });
    }

    /// The nodes' names.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.0.names.borrow().iter().map(|(_, name)| name.clone()).collect()
    }

    /// Says at which port the kubelet of a node is to be found; before the node is added.
    pub fn set_port(&self, name: &str, port: u16) {
        self.0.ports.lock().insert(name.to_owned(), port);
    }

    pub(super) fn port(&self, name: &str) -> u16 {
        self.0.ports.lock().get(name).copied().unwrap_or(KUBELET_PORT)
    }

    /// The HTTP server of a node's kubelet, if it runs in this process.
    #[must_use]
    pub fn server(&self, name: &str) -> Option<KubeletServer> {
        self.0.servers.lock().get(name).cloned()
    }

    /// What every node is like.
    #[must_use]
    pub fn config(&self) -> &NodeConfig {
        &self.0.config
    }

    pub(super) fn watch(&self) -> watch::Receiver<Vec<(usize, String)>> {
        self.0.names.subscribe()
    }

    pub(super) fn runtime(&self, index: usize, name: &str, clock: &Clock) -> Arc<dyn ContainerRuntime> {
        let mut runtimes = self.0.runtimes.lock();
        let made = runtimes.entry(name.to_owned()).or_insert_with(|| match &self.0.runtime_for {
            Some(runtime_for) => runtime_for(name),
            // The range is used only if nobody gives the node one.
            None => Arc::new(MockRuntime::new(clock.clone(), &format!("10.{}.{}.0/24", 88 + index / 256 % 64, index % 256))),
        });
        made.clone()
    }

    pub(super) fn status_writes(&self) -> Arc<Semaphore> {
        self.0.status_writes.clone()
    }

    pub(super) fn announce(&self, name: &str, server: KubeletServer) {
        self.0.servers.lock().insert(name.to_owned(), server);
    }

    pub(super) fn withdraw(&self, name: &str) {
        self.0.servers.lock().remove(name);
    }
}

/// The names of nodes that have no other: `node-1`, `node-2`, ….
pub fn numbered(count: usize) -> impl Iterator<Item = String> {
    (1..=count).map(|number| format!("node-{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_its_number_while_others_come_and_go() {
        let nodes = Nodes::mock(3);
        nodes.remove("node-1");
        nodes.add("other");
        nodes.add("other");
        assert_eq!(*nodes.0.names.borrow(), [(1, "node-2".to_owned()), (2, "node-3".to_owned()), (0, "other".to_owned())]);
    }
}
