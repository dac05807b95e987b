//! The life of one Pod on a node, as a state machine without any I/O.
//!
//! [`PodMachine::step`] takes one input and answers with actions; the worker carries the actions out and feeds their results back.
//!
//! The Pod:
//!
//! | stage | input | next | actions |
//! |---|---|---|---|
//! | New | any | SandboxStarting | RunSandbox |
//! | SandboxStarting | SandboxReady | Up | Start of the containers whose turn it is |
//! | SandboxStarting | SandboxFailed | SandboxStarting | event; RunSandbox after the back-off |
//! | Up | Started, Exited, Probed, Wake | Up | Start, Kill, Probe as the table below says |
//! | Up | all main containers are done, or an init container failed for good | Finishing | Kill what still runs, sidecars last |
//! | any but Stopped | Updated with a deletionTimestamp, Gone, deadline exceeded | Finishing | Kill everything, with its grace period |
//! | Finishing | nothing runs any more | StoppingSandbox | StopSandbox |
//! | StoppingSandbox | SandboxStopped | Stopped | – |
//! | Stopped | deleted in the API, final status written | Stopped | the worker deletes the Pod with grace period 0 |
//! | Stopped | Gone | (ends) | the worker removes the sandbox |
//!
//! A container:
//!
//! | state | input | next | shown as |
//! |---|---|---|---|
//! | Waiting | its turn comes | Starting | PodInitializing or ContainerCreating |
//! | Starting | Started | Running | running |
//! | Starting | image could not be fetched | PullFailed | ErrImagePull |
//! | PullFailed | a moment later | PullBackOff | ImagePullBackOff |
//! | PullBackOff | the back-off is over | Starting | what was shown before |
//! | Starting | could not be made or started | StartFailed | CreateContainerError, RunContainerError, InvalidImageName, … |
//! | Running | Exited | Exited | terminated |
//! | Running | liveness or startup probe failed | Running, stopping | running |
//! | Exited | the restart policy says again, no back-off | Starting | terminated, then running |
//! | Exited | the restart policy says again, back-off | CrashBackOff | CrashLoopBackOff |
//! | CrashBackOff | the back-off is over | Starting | CrashLoopBackOff |

mod container;
mod life;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

pub use container::{ContainerMachine, Kind, ProbeCounter, State, Terminated, Verdict};

use super::backoff::Backoff;
use crate::cri::ProbeKind;
use crate::events::EventType;

/// Where a Pod is. See the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing has been done yet.
    New,
    /// The sandbox is being made, or will be tried again.
    SandboxStarting,
    /// The sandbox is there.
    Up,
    /// What runs is being stopped.
    Finishing,
    /// The sandbox is being stopped.
    StoppingSandbox,
    /// Nothing runs any more.
    Stopped,
}

/// A sandbox that is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// The runtime's id.
    pub id: String,
    /// The Pod's addresses; none on the host's network.
    pub ips: Vec<IpAddr>,
}

/// Why a container could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The image could not be fetched.
    Pull,
    /// The image's name cannot be read.
    InvalidImageName,
    /// The image is not there and must not be fetched.
    NeverPull,
    /// What the container refers to is not there.
    Config,
    /// The container could not be made.
    Create,
    /// The container could not be started.
    Run,
}

impl StartError {
    /// The reason that a waiting container shows.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Pull => "ErrImagePull",
            Self::InvalidImageName => "InvalidImageName",
            Self::NeverPull => "ErrImageNeverPull",
            Self::Config => "CreateContainerConfigError",
            Self::Create => "CreateContainerError",
            Self::Run => "RunContainerError",
        }
    }
}

/// What a machine is told.
#[derive(Clone, Debug)]
pub enum Input {
    /// Time has passed.
    Wake,
    /// A newer version of the Pod.
    Updated(Arc<Pod>),
    /// The Pod is gone from the API.
    Gone,
    /// The sandbox is there.
    SandboxReady(Sandbox),
    /// The sandbox could not be made.
    SandboxFailed(String),
    /// The sandbox has been stopped.
    SandboxStopped,
    /// A container runs.
    Started {
        /// Which.
        container: usize,
        /// The runtime's id.
        id: String,
        /// The image as the runtime names it.
        image: String,
        /// The image's digest.
        image_id: String,
        /// Since when.
        at: Timestamp,
        /// How long it counts as not ready although it has no readiness probe.
        ready_after: Duration,
    },
    /// A container could not be started.
    StartFailed {
        /// Which.
        container: usize,
        /// At what.
        error: StartError,
        /// Why.
        message: String,
    },
    /// A container has ended.
    Exited(Terminated),
    /// A probe was tried.
    Probed {
        /// Which container.
        container: usize,
        /// Its id when the probe was tried.
        id: String,
        /// Which probe.
        kind: ProbeKind,
        /// What it found.
        result: Result<(), String>,
    },
}

/// What a machine asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make the sandbox.
    RunSandbox {
        /// The how-manieth.
        attempt: u32,
    },
    /// Fetch the image, make and start the container.
    Start {
        /// Which.
        container: usize,
    },
    /// Run the preStop hook and stop the container.
    Kill {
        /// Which.
        container: usize,
        /// The runtime's id.
        id: String,
        /// How long it may take.
        grace: Duration,
    },
    /// Try a probe after a while.
    Probe {
        /// Which container.
        container: usize,
        /// The runtime's id.
        id: String,
        /// Which probe.
        kind: ProbeKind,
        /// When.
        after: Duration,
    },
    /// Stop the sandbox.
    StopSandbox {
        /// The runtime's id.
        id: String,
    },
    /// Tell the world.
    Event(PodEvent),
}

/// An event about the Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    /// Normal or Warning.
    pub r#type: EventType,
    /// The reason.
    pub reason: &'static str,
    /// The message.
    pub message: String,
    /// The container it is about, as a field path.
    pub field_path: Option<String>,
}

impl PodEvent {
    /// An event about a container.
    #[must_use]
    pub fn of(container: &ContainerMachine, r#type: EventType, reason: &'static str, message: String) -> Self {
        Self { r#type, reason, message, field_path: Some(container.field_path()) }
    }
}

/// A container that an earlier kubelet has left running.
#[derive(Clone, Debug)]
pub struct Adopted {
    /// Its name in the Pod.
    pub name: String,
    /// The runtime's id.
    pub id: String,
    /// Since when it runs.
    pub since: Timestamp,
    /// The how-manieth restart it is.
    pub attempt: i32,
    /// The image as the runtime names it.
    pub image: String,
    /// The image's digest.
    pub image_id: String,
}

/// See the module's description.
#[derive(Clone, Debug)]
pub struct PodMachine {
    /// The newest version of the Pod.
    pub pod: Arc<Pod>,
    /// Where it is.
    pub stage: Stage,
    /// Its sandbox.
    pub sandbox: Option<Sandbox>,
    /// Init containers and sidecars in their order, then the main containers.
    pub containers: Vec<ContainerMachine>,
    /// When the kubelet first saw it.
    pub start_time: Timestamp,
    /// Why the whole Pod failed, if that was not its containers' doing.
    pub failure: Option<(&'static str, String)>,
    /// Whether all init containers are done.
    pub initialized: bool,
    /// Whether it is gone from the API.
    pub gone: bool,
    /// How long its containers have to stop, once they have to.
    grace: Option<Duration>,
    sandbox_attempts: u32,
    sandbox_backoff: Backoff,
    sandbox_retry_at: Option<Timestamp>,
}

/// The Pod's restart policy.
fn restart_policy(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always")
}

fn containers_of(spec: Option<&PodSpec>) -> Vec<ContainerMachine> {
    let Some(spec) = spec else { return Vec::new() };
    let kind = |container: &Container| if container.restart_policy.as_deref() == Some("Always") { Kind::Sidecar } else { Kind::Init };
    let init = spec.init_containers.iter().flatten().map(|container| ContainerMachine::new(container, kind(container)));
    init.chain(spec.containers.iter().map(|container| ContainerMachine::new(container, Kind::Main))).collect()
}

impl PodMachine {
    /// A Pod that the kubelet has just seen. One that ran before goes on counting its restarts.
    #[must_use]
    pub fn new(pod: Arc<Pod>, now: Timestamp) -> Self {
        let status = pod.status.as_ref();
        let mut containers = containers_of(pod.spec.as_ref());
        let known = status
            .into_iter()
            .flat_map(|status| status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten()));
        for known in known {
            let ran = known.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some());
            if let Some(container) = containers.iter_mut().find(|container| container.name == known.name) {
                container.restart_count = known.restart_count + i32::from(ran);
            }
        }
        let finished = matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"));
        Self {
            stage: if finished { Stage::Stopped } else { Stage::New },
            sandbox: None,
            containers,
            start_time: status.and_then(|status| status.start_time.as_ref()).map_or(now, |time| time.0),
            failure: None,
            initialized: false,
            gone: false,
            grace: None,
            sandbox_attempts: 0,
            sandbox_backoff: Backoff::default(),
            sandbox_retry_at: None,
            pod,
        }
    }

    /// Takes over what a runtime still runs of this Pod from an earlier kubelet.
    pub fn adopt(&mut self, sandbox: Sandbox, running: Vec<Adopted>) {
        if self.stage != Stage::New {
            return;
        }
        self.stage = Stage::Up;
        self.sandbox = Some(sandbox);
        for Adopted { name, id, since, attempt, image, image_id } in running {
            if let Some(container) = self.containers.iter_mut().find(|container| container.name == name) {
                container.restart_count = attempt;
                container.started = container.probe(ProbeKind::Startup).is_none();
                container.ready = container.probe(ProbeKind::Readiness).is_none() && container.started;
                (container.image, container.image_id) = (image, image_id);
                container.state = State::Running { id, since, stopping: false };
            }
        }
        let mains_run = self.containers.iter().any(|container| container.kind == Kind::Main && container.running_id().is_some());
        self.initialized = mains_run;
    }

    /// Whether the Pod is to be deleted.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.gone || self.pod.metadata.deletion_timestamp.is_some()
    }

    /// Whether the Pod has come to its end, so that only its deletion is left.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stage == Stage::Stopped
    }

    /// The Pod as logs and messages name it: `name_namespace(uid)`.
    #[must_use]
    pub fn display(&self) -> String {
        let meta = &self.pod.metadata;
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        format!("{}_{}({})", text(&meta.name), text(&meta.namespace), text(&meta.uid))
    }

    /// When to be woken, if nothing else happens.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        let containers = self.containers.iter().filter_map(ContainerMachine::deadline);
        let active = self
            .active_deadline()
            .filter(|_| self.failure.is_none() && !matches!(self.stage, Stage::Finishing | Stage::StoppingSandbox | Stage::Stopped));
        let containers: Vec<Timestamp> = if matches!(self.stage, Stage::Up) { containers.collect() } else { Vec::new() };
        containers.into_iter().chain(active).chain(self.sandbox_retry_at).min()
    }

    fn active_deadline(&self) -> Option<Timestamp> {
        let seconds = self.pod.spec.as_ref()?.active_deadline_seconds?;
        Some(crate::clock::later(self.start_time, Duration::from_secs(u64::try_from(seconds).ok()?)))
    }
}
