//! The Container Runtime Interface: the seam between a kubelet and whatever runs its containers.
//!
//! [`RuntimeService`] and [`ImageService`] are the two services of `runtime.v1` as traits. [`mock::MockRuntime`] implements them in
//! process; [`grpc::GrpcRuntime`] implements them over a socket, against containerd, CRI-O or anything else that speaks the protocol.
//! [`Host`] is what CRI leaves to the machine itself: log files, and the network that probes go through.

pub mod grpc;
pub mod host;
pub mod image;
pub mod mock;
pub mod v1;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Probe;
pub use tonic::Status;

use v1::*;

/// An answer of a runtime, some time later.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Status>>;

/// Sandboxes and containers.
pub trait RuntimeService: Send + Sync {
    /// Who the runtime is.
    fn version(&self, request: VersionRequest) -> Answer<'_, VersionResponse>;
    /// How the runtime is.
    fn status(&self, request: StatusRequest) -> Answer<'_, StatusResponse>;
    /// Tells the runtime the node's range of Pod addresses.
    fn update_runtime_config(&self, request: UpdateRuntimeConfigRequest) -> Answer<'_, UpdateRuntimeConfigResponse>;
    /// Makes and starts a sandbox.
    fn run_pod_sandbox(&self, request: RunPodSandboxRequest) -> Answer<'_, RunPodSandboxResponse>;
    /// Stops a sandbox and everything in it.
    fn stop_pod_sandbox(&self, request: StopPodSandboxRequest) -> Answer<'_, StopPodSandboxResponse>;
    /// Removes a sandbox and everything in it.
    fn remove_pod_sandbox(&self, request: RemovePodSandboxRequest) -> Answer<'_, RemovePodSandboxResponse>;
    /// How a sandbox is.
    fn pod_sandbox_status(&self, request: PodSandboxStatusRequest) -> Answer<'_, PodSandboxStatusResponse>;
    /// Lists sandboxes.
    fn list_pod_sandbox(&self, request: ListPodSandboxRequest) -> Answer<'_, ListPodSandboxResponse>;
    /// Makes a container.
    fn create_container(&self, request: CreateContainerRequest) -> Answer<'_, CreateContainerResponse>;
    /// Starts a container.
    fn start_container(&self, request: StartContainerRequest) -> Answer<'_, StartContainerResponse>;
    /// Stops a container and returns when it has stopped.
    fn stop_container(&self, request: StopContainerRequest) -> Answer<'_, StopContainerResponse>;
    /// Removes a container.
    fn remove_container(&self, request: RemoveContainerRequest) -> Answer<'_, RemoveContainerResponse>;
    /// Lists containers.
    fn list_containers(&self, request: ListContainersRequest) -> Answer<'_, ListContainersResponse>;
    /// How a container is.
    fn container_status(&self, request: ContainerStatusRequest) -> Answer<'_, ContainerStatusResponse>;
    /// Runs a command in a container.
    fn exec_sync(&self, request: ExecSyncRequest) -> Answer<'_, ExecSyncResponse>;
    /// Follows what happens to containers. A runtime may not support it; then its containers are listed now and then.
    fn get_container_events(&self, request: GetEventsRequest) -> Answer<'_, BoxStream<'static, Result<ContainerEventResponse, Status>>>;
}

/// Images.
pub trait ImageService: Send + Sync {
    /// Lists images.
    fn list_images(&self, request: ListImagesRequest) -> Answer<'_, ListImagesResponse>;
    /// Says whether an image is present.
    fn image_status(&self, request: ImageStatusRequest) -> Answer<'_, ImageStatusResponse>;
    /// Fetches an image.
    fn pull_image(&self, request: PullImageRequest) -> Answer<'_, PullImageResponse>;
    /// Removes an image.
    fn remove_image(&self, request: RemoveImageRequest) -> Answer<'_, RemoveImageResponse>;
}

/// One line that a container printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When.
    pub time: Timestamp,
    /// Whether on standard error.
    pub stderr: bool,
    /// What, without the line end.
    pub text: String,
}

/// Which container a log or a probe is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerHandle {
    /// The runtime's id.
    pub id: String,
    /// The file its log is in, if the runtime writes files.
    pub log_path: String,
    /// The Pod's address.
    pub pod_ip: String,
}

/// What CRI leaves to the machine the containers run on.
pub trait Host: Send + Sync {
    /// What a container has printed so far; with `follow` also what it prints from now on, until it ends.
    fn logs(&self, container: &ContainerHandle, follow: bool) -> BoxStream<'static, LogLine>;
    /// For how long after its start a container counts as not ready although it has no readiness probe. Nothing real does that;
    /// the mock can, so that a rollout can be watched without writing probes.
    fn ready_delay(&self, container: &ContainerHandle) -> Duration {
        let _ = container;
        Duration::ZERO
    }
    /// Tries a probe once; the error is what the Unhealthy event says.
    fn probe<'a>(
        &'a self,
        container: &'a ContainerHandle,
        probe: &'a Probe,
        kind: ProbeKind,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<(), String>>;
}

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProbeKind {
    /// Has it started?
    Startup,
    /// Does it still work?
    Liveness,
    /// Can it take requests?
    Readiness,
}

impl ProbeKind {
    /// The word in events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// Everything one node's kubelet needs from below.
pub trait ContainerRuntime: RuntimeService + ImageService + Host {}

impl<T: RuntimeService + ImageService + Host> ContainerRuntime for T {}

/// Hands out the runtime of a node.
pub type RuntimeFor = Arc<dyn Fn(&str) -> Arc<dyn ContainerRuntime> + Send + Sync>;
