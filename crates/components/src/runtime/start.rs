//! Starts and stops components by name.
//!
//! [`start`] is the one entrance for a process that runs components, whether it is the server itself or a process of
//! its own: it decides by the selection what runs, waits for leadership if that is asked for, and gives every
//! component its [`Context`].

use std::{collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;
use kube::Client;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    client::{ClientFor, Identity},
    component::Component,
    driver,
    leader::Candidate,
    metrics::Metrics,
    selection::{Selectable, Selection, Unknown},
    watches::Watches,
};
use crate::{Options, clock::Clock, events::Recorder};

/// A component that can be started by name.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its names.
    pub names: Selectable,
    /// The Lease that whoever runs it holds where several processes could: that of `kube-controller-manager` or of `kube-scheduler`.
    pub lease: &'static str,
    /// Runs it until the context's `stop`.
    pub run: fn(Context) -> BoxFuture<'static, ()>,
}

/// What a component is given.
#[derive(Clone)]
pub struct Context {
    clients: Arc<dyn ClientFor>,
    /// The shared caches.
    pub watches: Watches,
    /// The clock.
    pub clock: Clock,
    /// What the process was told.
    pub options: Arc<Options>,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// Says when to stop.
    pub stop: CancellationToken,
}

impl Context {
    /// A client that speaks for `identity`.
    pub fn client(&self, identity: &Identity) -> Client {
        self.clients.client(identity)
    }

    /// A recorder of events for the component that is known as `source` in them.
    pub fn recorder(&self, client: Client, source: &str) -> Recorder {
        Recorder::new(client, source, "", self.clock.clone(), self.stop.clone())
    }

    /// Runs a reconciling component until it is stopped.
    pub fn run<C: Component>(&self, component: C) -> BoxFuture<'static, ()> {
        driver::run(component, self.clock.clone(), &self.metrics, self.stop.clone())
    }
}

/// The running components. When the last clone is dropped they stop.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

struct Shared {
    context: Context,
    entries: Vec<Entry>,
    running: Mutex<BTreeMap<&'static str, Running>>,
    elections: Mutex<Vec<JoinHandle<()>>>,
}

struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.context.stop.cancel();
    }
}

/// Starts the components that `selection` names, among `entries`.
///
/// Must be called within a Tokio runtime. It returns at once; with a leader election the components of a Lease start when this
/// process has become its holder, and stop when it no longer is.
pub fn start(
    entries: Vec<Entry>,
    selection: &Selection,
    clients: Arc<dyn ClientFor>,
    clock: Clock,
    options: Options,
) -> Result<Handle, Unknown> {
    let names: Vec<Selectable> = entries.iter().map(|entry| entry.names).collect();
    selection.check(&names)?;
    let stop = CancellationToken::new();
    let shared_client = clients.client(&options.watch_identity);
    let election = options.leader_election.clone();
    let context = Context {
        watches: Watches::new(shared_client.clone(), clock.clone(), stop.clone()),
        clients,
        clock: clock.clone(),
        options: Arc::new(options),
        metrics: Arc::default(),
        stop: stop.clone(),
    };
    let handle = Handle(Arc::new(Shared { context, entries, running: Mutex::default(), elections: Mutex::default() }));
    let mut leases: BTreeMap<&'static str, Vec<&'static str>> = BTreeMap::new();
    for entry in handle.0.entries.iter().filter(|entry| selection.includes(&entry.names)) {
        leases.entry(entry.lease).or_default().push(entry.names.name);
    }
    for (lease, chosen) in leases {
        match &election {
            // Nodes alone are nobody else's.
            Some(election) if chosen != ["kubelet"] => {
                let client = handle.0.context.client(&Identity::user(format!("system:{lease}"), &[]));
                lead(&handle, chosen, lease, Candidate::new(client, lease, election.clone(), clock.clone()));
            }
            _ => handle.start_all(&chosen),
        }
    }
    Ok(handle)
}

/// Runs `chosen` for as long as this process holds the Lease.
fn lead(handle: &Handle, chosen: Vec<&'static str>, lease: &'static str, mut candidate: Candidate) {
    let stop = handle.0.context.stop.clone();
    // Weak, so that the election does not keep alive what it starts.
    let shared = Arc::downgrade(&handle.0);
    let election = tokio::spawn(async move {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = candidate.acquire() => {}
            }
            tracing::info!(lease, "became leader");
            match shared.upgrade() {
                Some(shared) => Handle(shared).start_all(&chosen),
                None => return,
            }
            tokio::select! {
                () = stop.cancelled() => {
                    candidate.release().await;
                    return;
                }
                () = candidate.hold() => {}
            }
            tracing::warn!(lease, "lost the lead");
            let Some(shared) = shared.upgrade() else {
                return;
            };
            Handle(shared).stop_these(&chosen).await;
        }
    });
    handle.0.elections.lock().push(election);
}

impl Handle {
    fn start_all(&self, names: &[&'static str]) {
        for name in names {
            // The names come from the entries themselves.
            let _ = self.start(name);
        }
    }

    /// Starts a component. One that runs already goes on.
    pub fn start(&self, name: &str) -> Result<(), Unknown> {
        let entry = self.entry(name)?;
        let mut running = self.0.running.lock();
        if running.get(entry.names.name).is_some_and(|running| !running.task.is_finished()) {
            return Ok(());
        }
        let stop = self.0.context.stop.child_token();
        let context = Context { stop: stop.clone(), ..self.0.context.clone() };
        let task = tokio::spawn((entry.run)(context));
        running.insert(entry.names.name, Running { stop, task });
        Ok(())
    }

    /// Stops a component and waits until it has.
    pub async fn stop(&self, name: &str) -> Result<(), Unknown> {
        let entry = self.entry(name)?;
        let running = self.0.running.lock().remove(entry.names.name);
        if let Some(running) = running {
            running.stop.cancel();
            let _ = running.task.await;
        }
        Ok(())
    }

    /// Stops all components; the caches stay.
    pub async fn stop_all(&self) {
        let names: Vec<_> = self.0.running.lock().keys().copied().collect();
        self.stop_these(&names).await;
    }

    async fn stop_these(&self, names: &[&'static str]) {
        let stopped: Vec<Running> = {
            let mut running = self.0.running.lock();
            names.iter().filter_map(|name| running.remove(name)).collect()
        };
        for running in &stopped {
            running.stop.cancel();
        }
        for running in stopped {
            let _ = running.task.await;
        }
    }

    /// Stops everything and gives the Leases back, so that another process need not wait until they run out; without any there is
    /// nothing to give back.
    pub async fn resign(&self) {
        if !self.0.elections.lock().is_empty() {
            self.shutdown().await;
        }
    }

    /// Stops everything for good, and waits until it has.
    pub async fn shutdown(&self) {
        self.stop_all().await;
        self.0.context.stop.cancel();
        let elections = std::mem::take(&mut *self.0.elections.lock());
        for election in elections {
            // It gives the Lease back.
            let _ = election.await;
        }
    }

    /// The components that run.
    pub fn running(&self) -> Vec<&'static str> {
        let running = self.0.running.lock();
        running.iter().filter(|(_, running)| !running.task.is_finished()).map(|(name, _)| *name).collect()
    }

    /// The counters in Prometheus' text format.
    pub fn metrics(&self) -> String {
        self.0.context.metrics.render()
    }

    /// The caches, for whoever lives in the same process and wants to read along.
    pub fn watches(&self) -> &Watches {
        &self.0.context.watches
    }

    fn entry(&self, name: &str) -> Result<&Entry, Unknown> {
        let mut entries = self.0.entries.iter();
        entries.find(|entry| entry.names.name == name || entry.names.aliases.contains(&name)).ok_or_else(|| Unknown(name.to_owned()))
    }
}
