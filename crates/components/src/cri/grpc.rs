//! A runtime behind a socket: the same traits, spoken as gRPC to containerd, CRI-O or any other CRI v1 endpoint.
//!
//! Calls are made with tonic's generic client and prost's codec; there is no generated code.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::uri::PathAndQuery;
use k8s_openapi::api::core::v1::Probe;
use prost::Message;
use tonic::Status;
use tonic::client::Grpc;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};

use super::host::MachineHost;
use super::v1::*;
use super::{Answer, ContainerHandle, Host, ImageService, LogLine, ProbeKind, RuntimeService};
use crate::clock::Clock;

/// The client of one endpoint.
#[derive(Clone)]
pub struct GrpcRuntime {
    channel: Channel,
    host: Arc<MachineHost>,
}

/// Why an endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Neither `unix://…` nor `tcp://…` nor `http://…`.
    #[error("{0:?} is not an endpoint: expected unix:///path or tcp://host:port")]
    Form(String),
    /// It could not be parsed or reached.
    #[error(transparent)]
    Transport(#[from] tonic::transport::Error),
}

impl GrpcRuntime {
    /// A client for `endpoint`. Connects when it is first used, and again after the runtime has been restarted.
    pub fn new(endpoint: &str, clock: Clock) -> Result<Self, EndpointError> {
        let channel = if let Some(path) = endpoint.strip_prefix("unix://").filter(|path| path.starts_with('/')) {
            Endpoint::from_shared(format!("unix://{path}"))?.connect_lazy()
        } else if let Some(address) = endpoint.strip_prefix("tcp://").or_else(|| endpoint.strip_prefix("http://")) {
            Endpoint::from_shared(format!("http://{address}"))?.connect_lazy()
        } else {
            return Err(EndpointError::Form(endpoint.to_owned()));
        };
        let mut runtime = Self { channel: channel.clone(), host: Arc::new(MachineHost::new(None, clock.clone())) };
        let exec: Arc<dyn RuntimeService> = Arc::new(runtime.clone());
        runtime.host = Arc::new(MachineHost::new(Some(exec), clock));
        Ok(runtime)
    }

    fn unary<Q, A>(&self, path: &'static str, request: Q) -> Answer<'_, A>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone());
        async move {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let path = PathAndQuery::from_static(path);
            Ok(grpc.unary(tonic::Request::new(request), path, Prost::<Q, A>::default()).await?.into_inner())
        }
        .boxed()
    }
}

/// Prost messages as gRPC bodies.
struct Prost<Q, A>(std::marker::PhantomData<(Q, A)>);

impl<Q, A> Default for Prost<Q, A> {
    fn default() -> Self {
        Self(std::marker::PhantomData)
    }
}

impl<Q: Message + Default + 'static, A: Message + Default + 'static> Codec for Prost<Q, A> {
    type Encode = Q;
    type Decode = A;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        Self::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        Self::default()
    }
}

impl<Q: Message + 'static, A: 'static> Encoder for Prost<Q, A> {
    type Item = Q;
    type Error = Status;

    fn encode(&mut self, item: Q, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

impl<Q: 'static, A: Message + Default + 'static> Decoder for Prost<Q, A> {
    type Item = A;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<A>, Status> {
        A::decode(buffer).map(Some).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

macro_rules! calls {
    ($($name:ident($request:ty) -> $response:ty = $path:literal;)*) => {
        $(fn $name(&self, request: $request) -> Answer<'_, $response> {
            self.unary($path, request)
        })*
    };
}

impl RuntimeService for GrpcRuntime {
    calls! {
        version(VersionRequest) -> VersionResponse = "/runtime.v1.RuntimeService/Version";
        status(StatusRequest) -> StatusResponse = "/runtime.v1.RuntimeService/Status";
        update_runtime_config(UpdateRuntimeConfigRequest) -> UpdateRuntimeConfigResponse = "/runtime.v1.RuntimeService/UpdateRuntimeConfig";
        run_pod_sandbox(RunPodSandboxRequest) -> RunPodSandboxResponse = "/runtime.v1.RuntimeService/RunPodSandbox";
        stop_pod_sandbox(StopPodSandboxRequest) -> StopPodSandboxResponse = "/runtime.v1.RuntimeService/StopPodSandbox";
        remove_pod_sandbox(RemovePodSandboxRequest) -> RemovePodSandboxResponse = "/runtime.v1.RuntimeService/RemovePodSandbox";
        pod_sandbox_status(PodSandboxStatusRequest) -> PodSandboxStatusResponse = "/runtime.v1.RuntimeService/PodSandboxStatus";
        list_pod_sandbox(ListPodSandboxRequest) -> ListPodSandboxResponse = "/runtime.v1.RuntimeService/ListPodSandbox";
        create_container(CreateContainerRequest) -> CreateContainerResponse = "/runtime.v1.RuntimeService/CreateContainer";
        start_container(StartContainerRequest) -> StartContainerResponse = "/runtime.v1.RuntimeService/StartContainer";
        stop_container(StopContainerRequest) -> StopContainerResponse = "/runtime.v1.RuntimeService/StopContainer";
        remove_container(RemoveContainerRequest) -> RemoveContainerResponse = "/runtime.v1.RuntimeService/RemoveContainer";
        list_containers(ListContainersRequest) -> ListContainersResponse = "/runtime.v1.RuntimeService/ListContainers";
        container_status(ContainerStatusRequest) -> ContainerStatusResponse = "/runtime.v1.RuntimeService/ContainerStatus";
        exec_sync(ExecSyncRequest) -> ExecSyncResponse = "/runtime.v1.RuntimeService/ExecSync";
    }

    fn get_container_events(&self, request: GetEventsRequest) -> Answer<'_, BoxStream<'static, Result<ContainerEventResponse, Status>>> {
        let mut grpc = Grpc::new(self.channel.clone());
        async move {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/GetContainerEvents");
            let codec = Prost::<GetEventsRequest, ContainerEventResponse>::default();
            let stream = grpc.server_streaming(tonic::Request::new(request), path, codec).await?.into_inner();
            Ok(stream.boxed())
        }
        .boxed()
    }
}

impl ImageService for GrpcRuntime {
    calls! {
        list_images(ListImagesRequest) -> ListImagesResponse = "/runtime.v1.ImageService/ListImages";
        image_status(ImageStatusRequest) -> ImageStatusResponse = "/runtime.v1.ImageService/ImageStatus";
        pull_image(PullImageRequest) -> PullImageResponse = "/runtime.v1.ImageService/PullImage";
        remove_image(RemoveImageRequest) -> RemoveImageResponse = "/runtime.v1.ImageService/RemoveImage";
    }
}

impl Host for GrpcRuntime {
    fn logs(&self, container: &ContainerHandle, follow: bool) -> BoxStream<'static, LogLine> {
        self.host.logs(container, follow)
    }

    fn probe<'a>(
        &'a self,
        container: &'a ContainerHandle,
        probe: &'a Probe,
        kind: ProbeKind,
        timeout: Duration,
    ) -> BoxFuture<'a, Result<(), String>> {
        self.host.probe(container, probe, kind, timeout)
    }
}
