//! One node: what its Pod workers share, and who gets which news.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::machine::{Adopted, Sandbox, Terminated};
use super::pod_config::{CONTAINER_NAME_LABEL, POD_UID_LABEL};
use super::worker::{Mail, Worker};
use crate::clock::Clock;
use crate::cri::ContainerRuntime;
use crate::cri::v1::*;
use crate::events::Recorder;

/// Marks a Pod in the API that only mirrors a static Pod of its node.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// What everything on one node shares.
pub(super) struct Agent {
    pub name: String,
    pub host_ip: IpAddr,
    /// Where the kubelet's own server is.
    pub port: u16,
    pub client: Client,
    pub runtime: Arc<dyn ContainerRuntime>,
    /// The runtime's name as container ids carry it: `mock://…`, `containerd://…`.
    pub runtime_name: Mutex<String>,
    pub recorder: Recorder,
    pub clock: Clock,
    pub stop: CancellationToken,
    /// Images are fetched one after the other.
    pub pulls: tokio::sync::Mutex<()>,
    /// Statuses are written a few at a time.
    pub status_writes: Arc<tokio::sync::Semaphore>,
    /// Whether the runtime knows the node's range of Pod addresses.
    pub network: watch::Sender<bool>,
    /// The range itself, once the node has one.
    pub pod_cidr: Mutex<Option<String>>,
    /// Set when the images on the node may have changed.
    pub images_changed: tokio::sync::Notify,
    workers: Mutex<HashMap<String, mpsc::UnboundedSender<Mail>>>,
    left_behind: Mutex<HashMap<String, LeftBehind>>,
    known: Mutex<HashMap<(String, String), Known>>,
}

/// What an earlier kubelet has left in the runtime.
pub(super) struct LeftBehind {
    pub sandbox: Sandbox,
    pub containers: Vec<Adopted>,
}

/// A Pod as the node's own server knows it.
#[derive(Clone)]
pub(super) struct Known {
    pub pod: Arc<Pod>,
    pub status: Arc<PodStatus>,
}

impl Known {
    /// The status of one of its containers.
    pub(super) fn container(&self, name: &str) -> Option<&k8s_openapi::api::core::v1::ContainerStatus> {
        let mut statuses = self.status.container_statuses.iter().chain(&self.status.init_container_statuses).flatten();
        statuses.find(|status| status.name == name)
    }
}

pub(super) struct AgentParts {
    pub name: String,
    pub host_ip: IpAddr,
    pub port: u16,
    pub client: Client,
    pub runtime: Arc<dyn ContainerRuntime>,
    pub status_writes: Arc<tokio::sync::Semaphore>,
    pub recorder: Recorder,
    pub clock: Clock,
    pub stop: CancellationToken,
}

fn key(pod: &Pod) -> (String, String) {
    (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}

pub(super) fn is_mirror(pod: &Pod) -> bool {
    pod.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(MIRROR_ANNOTATION))
}

/// Nanoseconds since 1970, as CRI gives times.
pub(super) fn timestamp(nanoseconds: i64) -> Timestamp {
    Timestamp::from_nanosecond(nanoseconds.into()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// How a container ended, from the runtime's words.
pub(super) fn terminated(status: &ContainerStatus) -> Option<Terminated> {
    (status.state == ContainerState::ContainerExited as i32).then(|| Terminated {
        id: status.id.clone(),
        exit_code: status.exit_code,
        reason: status.reason.clone(),
        message: status.message.clone(),
        started_at: timestamp(status.started_at),
        finished_at: timestamp(status.finished_at),
    })
}

impl Agent {
    pub(super) fn new(parts: AgentParts) -> Arc<Self> {
        let AgentParts { name, host_ip, port, client, runtime, status_writes, recorder, clock, stop } = parts;
        Arc::new(Self {
            name,
            host_ip,
            port,
            client,
            runtime,
            runtime_name: Mutex::new("mock".into()),
            recorder,
            clock,
            stop,
            pulls: tokio::sync::Mutex::default(),
            status_writes,
            network: watch::Sender::new(false),
            pod_cidr: Mutex::default(),
            images_changed: tokio::sync::Notify::new(),
            workers: Mutex::default(),
            left_behind: Mutex::default(),
            known: Mutex::default(),
        })
    }

    /// Takes in a change of a Pod that is bound to this node.
    pub(super) fn pod_changed(self: &Arc<Self>, old: Option<&Arc<Pod>>, new: Option<&Arc<Pod>>) {
        if let Some(old) = old
            && new.is_none_or(|new| new.metadata.uid != old.metadata.uid)
        {
            self.send(old, Mail::Gone);
        }
        if let Some(new) = new.filter(|pod| !is_mirror(pod)) {
            self.run(new, false);
        }
    }

    /// Hands a Pod to its worker, who is made if there is none yet.
    pub(super) fn run(self: &Arc<Self>, pod: &Arc<Pod>, is_static: bool) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let mut workers = self.workers.lock();
        if let Some(worker) = workers.get(&uid) {
            let _ = worker.send(Mail::Updated(pod.clone()));
            return;
        }
        let (sender, mail) = mpsc::unbounded_channel();
        workers.insert(uid.clone(), sender);
        // In one step with becoming its worker: whoever finds the worker here may clear away what nobody has taken.
        let left_behind = self.left_behind.lock().remove(&uid);
        drop(workers);
        let worker = Worker::new(self.clone(), pod.clone(), mail, is_static, left_behind);
        let (agent, stop) = (self.clone(), self.stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = worker.work() => {}
            }
            agent.workers.lock().remove(&uid);
        });
    }

    pub(super) fn send(&self, pod: &Pod, mail: Mail) {
        self.send_to(pod.metadata.uid.as_deref().unwrap_or_default(), mail);
    }

    fn send_to(&self, uid: &str, mail: Mail) {
        if let Some(worker) = self.workers.lock().get(uid) {
            // A worker that is just ending needs no news.
            let _ = worker.send(mail);
        }
    }

    /// A container has ended, says the runtime.
    pub(super) fn container_exited(&self, uid: &str, run: Terminated) {
        self.send_to(uid, Mail::Exited(run));
    }

    /// What the node's server tells of a Pod.
    pub(super) fn know(&self, pod: &Arc<Pod>, status: &PodStatus) {
        self.known.lock().insert(key(pod), Known { pod: pod.clone(), status: Arc::new(status.clone()) });
    }

    pub(super) fn forget(&self, pod: &Pod) {
        let mut known = self.known.lock();
        let key = key(pod);
        if known.get(&key).is_some_and(|known| known.pod.metadata.uid == pod.metadata.uid) {
            known.remove(&key);
        }
    }

    pub(super) fn known(&self, namespace: &str, name: &str) -> Option<Known> {
        self.known.lock().get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    pub(super) fn all_known(&self) -> Vec<Known> {
        self.known.lock().values().cloned().collect()
    }

    /// Looks what runs already, so that a restart of the kubelet does not restart its Pods.
    pub(super) async fn take_stock(&self) {
        let filter = PodSandboxFilter { state: Some(PodSandboxStateValue::default()), ..PodSandboxFilter::default() };
        let Ok(sandboxes) = self.runtime.list_pod_sandbox(ListPodSandboxRequest { filter: Some(filter) }).await else { return };
        for sandbox in sandboxes.items {
            let Some(uid) = sandbox.labels.get(POD_UID_LABEL).cloned() else { continue };
            let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox.id.clone(), verbose: false };
            let Ok(status) = self.runtime.pod_sandbox_status(request).await else { continue };
            let network = status.status.and_then(|status| status.network);
            let ips = network.iter().filter_map(|network| network.ip.parse().ok()).collect();
            let filter = ContainerFilter {
                pod_sandbox_id: sandbox.id.clone(),
                state: Some(ContainerStateValue { state: ContainerState::ContainerRunning as i32 }),
                ..ContainerFilter::default()
            };
            let Ok(list) = self.runtime.list_containers(ListContainersRequest { filter: Some(filter) }).await else { continue };
            let mut containers = Vec::new();
            for container in list.containers {
                let request = ContainerStatusRequest { container_id: container.id.clone(), verbose: false };
                let Some(status) = self.runtime.container_status(request).await.ok().and_then(|answer| answer.status) else { continue };
                containers.push(Adopted {
                    name: container.labels.get(CONTAINER_NAME_LABEL).cloned().unwrap_or_default(),
                    id: container.id,
                    since: timestamp(status.started_at),
                    attempt: status.metadata.map_or(0, |metadata| i32::try_from(metadata.attempt).unwrap_or_default()),
                    image: status.image.unwrap_or_default().image,
                    image_id: status.image_ref,
                });
            }
            self.left_behind.lock().insert(uid, LeftBehind { sandbox: Sandbox { id: sandbox.id, ips }, containers });
        }
    }

    /// Removes everything that the runtime still has of a Pod.
    pub(super) async fn remove_sandboxes(&self, pod: &Pod) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let filter = PodSandboxFilter { label_selector: HashMap::from([(POD_UID_LABEL.to_owned(), uid)]), ..PodSandboxFilter::default() };
        let Ok(list) = self.runtime.list_pod_sandbox(ListPodSandboxRequest { filter: Some(filter) }).await else { return };
        for sandbox in list.items {
            if let Err(status) = self.runtime.remove_pod_sandbox(RemovePodSandboxRequest { pod_sandbox_id: sandbox.id }).await {
                tracing::warn!(node = %self.name, status = %status.message(), "a sandbox could not be removed");
            }
        }
    }

    /// Removes what an earlier kubelet has left and no Pod wants any more.
    pub(super) async fn clear_leftovers(&self) {
        let leftovers = std::mem::take(&mut *self.left_behind.lock());
        for (uid, left) in leftovers {
            tracing::info!(node = %self.name, uid, "removing the sandbox of a Pod that is gone");
            let stop = StopPodSandboxRequest { pod_sandbox_id: left.sandbox.id.clone() };
            let remove = RemovePodSandboxRequest { pod_sandbox_id: left.sandbox.id };
            if self.runtime.stop_pod_sandbox(stop).await.is_err() || self.runtime.remove_pod_sandbox(remove).await.is_err() {
                tracing::warn!(node = %self.name, uid, "the sandbox could not be removed");
            }
        }
    }
}
