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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::mock::MockRuntime;
    use std::convert::Infallible;

    /// One method of a server, as tonic wants it.
    struct Method(MockRuntime);

    impl tonic::server::UnaryService<VersionRequest> for Method {
        type Response = VersionResponse;
        type Future = BoxFuture<'static, Result<tonic::Response<VersionResponse>, Status>>;

        fn call(&mut self, request: tonic::Request<VersionRequest>) -> Self::Future {
            let mock = self.0.clone();
            Box::pin(async move { mock.version(request.into_inner()).await.map(tonic::Response::new) })
        }
    }

    impl tonic::server::UnaryService<RunPodSandboxRequest> for Method {
        type Response = RunPodSandboxResponse;
        type Future = BoxFuture<'static, Result<tonic::Response<RunPodSandboxResponse>, Status>>;

        fn call(&mut self, request: tonic::Request<RunPodSandboxRequest>) -> Self::Future {
            let mock = self.0.clone();
            Box::pin(async move { mock.run_pod_sandbox(request.into_inner()).await.map(tonic::Response::new) })
        }
    }

    /// The mock behind gRPC, as far as the test needs it.
    #[derive(Clone)]
    struct MockServer(MockRuntime);

    impl tonic::server::NamedService for MockServer {
        const NAME: &'static str = "runtime.v1.RuntimeService";
    }

    impl tower::Service<http::Request<tonic::body::Body>> for MockServer {
        type Response = http::Response<tonic::body::Body>;
        type Error = Infallible;
        type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
            let mock = self.0.clone();
            async move {
                Ok(match request.uri().path().rsplit('/').next() {
                    Some("Version") => {
                        let mut grpc = tonic::server::Grpc::new(Prost::<VersionResponse, VersionRequest>::default());
                        grpc.unary(Method(mock), request).await
                    }
                    Some("RunPodSandbox") => {
                        let mut grpc = tonic::server::Grpc::new(Prost::<RunPodSandboxResponse, RunPodSandboxRequest>::default());
                        grpc.unary(Method(mock), request).await
                    }
                    _ => Status::unimplemented("not in this test").into_http(),
                })
            }
            .boxed()
        }
    }

    #[tokio::test]
    async fn a_runtime_behind_a_socket_answers_like_one_in_process() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
        let mock = MockServer(MockRuntime::new(Clock::system(), "10.0.0.0/24"));
        let incoming = futures::stream::unfold(listener, |listener| async move {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let server = tokio::spawn(tonic::transport::Server::builder().add_service(mock).serve_with_incoming(incoming));
        let runtime = GrpcRuntime::new(&endpoint, Clock::system()).unwrap();
        let version = runtime.version(VersionRequest { version: "0.1.0".into() }).await.unwrap();
        assert_eq!((version.runtime_name.as_str(), version.runtime_api_version.as_str()), ("mock", "v1"));
        let request = RunPodSandboxRequest { config: Some(PodSandboxConfig::default()), runtime_handler: String::new() };
        assert_eq!(runtime.run_pod_sandbox(request).await.unwrap().pod_sandbox_id.len(), 64);
        let refused = runtime.list_containers(ListContainersRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unimplemented);
        server.abort();
    }

    #[tokio::test]
    async fn what_is_no_endpoint_is_refused() {
        assert!(GrpcRuntime::new("containerd", Clock::system()).is_err());
        assert!(GrpcRuntime::new("unix:///run/containerd/containerd.sock", Clock::system()).is_ok());
    }
}
