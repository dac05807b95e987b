//! A container runtime that runs nothing: sandboxes, containers, images and logs exist, processes do not.
//!
//! What a container would do is played: by its Pod's annotations ([`behaviour`]), by the few commands that [`script`] understands, and
//! otherwise by a guess: a container of a Job and an init container end at once with code 0, any other runs until it is stopped.
//! Images are present after the first pull; names that say that they do not exist (`….invalid/…`, `:does-not-exist`) cannot be pulled.

mod address;
pub mod behaviour;
mod log;
mod play;
pub mod script;
mod service;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::image;
use super::v1::*;
use crate::clock::Clock;
use address::Addresses;
use behaviour::Behaviour;
use log::Log;

/// Where the kubelet says what kind of container it makes; CRI itself does not know.
pub const CONTAINER_TYPE_ANNOTATION: &str = "io.kubernetes.container.type";
/// The label of a Job's Pods.
const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";
/// How many events a slow listener may fall behind before it has to list again.
const EVENTS_KEPT: usize = 1024;

/// The runtime of one node. Clones are the same runtime.
#[derive(Clone)]
pub struct MockRuntime {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    state: Mutex<State>,
    /// Boxed, because the room for all that may be kept is taken at once.
    events: broadcast::Sender<Arc<ContainerEventResponse>>,
}

#[derive(Default)]
struct State {
    sandboxes: HashMap<String, Sandbox>,
    containers: HashMap<String, Running>,
    images: BTreeMap<String, Image>,
    addresses: Addresses,
    made: u64,
}

struct Sandbox {
    config: PodSandboxConfig,
    ready: bool,
    created_at: i64,
    address: Option<Ipv4Addr>,
}

/// A container and the play it performs.
struct Running {
    status: ContainerStatus,
    sandbox: String,
    behaviour: Behaviour,
    steps: Option<Vec<script::Step>>,
    /// What it does when nothing says what it does.
    ends_by_default: bool,
    log: Arc<Log>,
    /// Ends the play.
    stop: CancellationToken,
}

impl MockRuntime {
    /// A runtime that gives its Pods addresses from `pod_cidr` until it is told another range.
    #[must_use]
    pub fn new(clock: Clock, pod_cidr: &str) -> Self {
        let state = State { addresses: Addresses::of(pod_cidr), ..State::default() };
        Self { shared: Arc::new(Shared { clock, state: Mutex::new(state), events: broadcast::Sender::new(EVENTS_KEPT) }) }
    }

    fn now(&self) -> i64 {
        self.shared.now()
    }
}

impl Shared {
    fn now(&self) -> i64 {
        i64::try_from(self.clock.now().as_nanosecond()).unwrap_or(i64::MAX)
    }

    fn tell(&self, state: &State, id: &str, what: ContainerEventType) {
        let Some(container) = state.containers.get(id) else { return };
        let event = ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: what as i32,
            created_at: self.now(),
            pod_sandbox_status: state.sandboxes.get(&container.sandbox).map(|sandbox| sandbox.status(&container.sandbox)),
            containers_statuses: vec![container.status.clone()],
        };
        // Nobody may be listening; that is fine.
        let _ = self.events.send(Arc::new(event));
    }

    /// Ends a container, unless it has ended already.
    fn exit(&self, id: &str, code: i32, reason: Option<String>) {
        let mut state = self.state.lock();
        let now = self.now();
        let Some(container) = state.containers.get_mut(id) else { return };
        if container.status.state != ContainerState::ContainerRunning as i32 {
            return;
        }
        container.status.state = ContainerState::ContainerExited as i32;
        container.status.finished_at = now;
        container.status.exit_code = code;
        container.status.reason = reason.unwrap_or_else(|| if code == 0 { "Completed" } else { "Error" }.to_owned());
        container.log.end();
        container.stop.cancel();
        self.tell(&state, id, ContainerEventType::ContainerStoppedEvent);
    }
}

impl Sandbox {
    fn status(&self, id: &str) -> PodSandboxStatus {
        let state = if self.ready { PodSandboxState::SandboxReady } else { PodSandboxState::SandboxNotready };
        PodSandboxStatus {
            id: id.to_owned(),
            metadata: self.config.metadata.clone(),
            state: state as i32,
            created_at: self.created_at,
            network: Some(PodSandboxNetworkStatus {
                ip: self.address.map(|address| address.to_string()).unwrap_or_default(),
                additional_ips: Vec::new(),
            }),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: String::new(),
        }
    }
}

impl State {
    /// An id as runtimes make them: 64 hexadecimal digits.
    fn new_id(&mut self, what: &str, created_at: i64) -> String {
        self.made += 1;
        hex64(&(what, created_at, self.made))
    }
}

/// 64 hexadecimal digits that follow from `seed`.
fn hex64(seed: &impl Hash) -> String {
    (0u8..4)
        .map(|part| {
            let mut hasher = DefaultHasher::new();
            (part, seed).hash(&mut hasher);
            format!("{:016x}", hasher.finish())
        })
        .collect()
}

/// The image behind a normalized name; the same name always gives the same image.
fn image_of(name: &str) -> Image {
    let digest = format!("sha256:{}", hex64(&image::repository(name)));
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    let tagged = !name.contains('@');
    Image {
        id: format!("sha256:{}", hex64(&name)),
        repo_tags: if tagged { vec![name.to_owned()] } else { Vec::new() },
        repo_digests: vec![if tagged { format!("{}@{digest}", image::repository(name)) } else { name.to_owned() }],
        // Between 10 and 90 MB, as images are.
        size: 10_000_000 + hasher.finish() % 80_000_000,
        ..Image::default()
    }
}

/// Why an image cannot be had, if its name says so.
fn missing(name: &str) -> Option<String> {
    const WORDS: [&str; 6] = ["does-not-exist", "doesnotexist", "nonexistent", "non-existent", "no-such", "nosuch"];
    let (registry, path) = name.split_once('/')?;
    let resolve = format!("failed to pull and unpack image \"{name}\": failed to resolve reference \"{name}\"");
    if registry.split(':').next().is_some_and(|host| host.ends_with(".invalid")) {
        let path = image::repository(path);
        let tag = name.rsplit([':', '@']).next().unwrap_or("latest");
        return Some(format!(
            "{resolve}: failed to do request: Head \"https://{registry}/v2/{path}/manifests/{tag}\": dial tcp: lookup {registry}: no such host"
        ));
    }
    WORDS.iter().any(|word| name.contains(word)).then(|| format!("{resolve}: {name}: not found"))
}
