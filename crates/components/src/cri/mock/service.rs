//! The services of CRI v1, and the host, as the mock answers them.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Probe;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::super::{Answer, ContainerHandle, Host, ImageService, LogLine, ProbeKind, RuntimeService};
use super::behaviour::Behaviour;
use super::log::Log;
use super::play::Play;
use super::script::{self, Step};
use super::*;

fn not_found(what: &str, id: &str) -> Status {
    Status::not_found(format!("an error occurred when try to find {what} \"{id}\": not found"))
}

/// An answer that is there already: most of what the mock does takes no time, and then nobody should have to wait for a task.
fn now<'a, T: Send + 'a>(result: Result<T, Status>) -> Answer<'a, T> {
    std::future::ready(result).boxed()
}

impl RuntimeService for MockRuntime {
    fn version(&self, _: VersionRequest) -> Answer<'_, VersionResponse> {
        now(Ok(VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "mock".into(),
            runtime_version: env!("CARGO_PKG_VERSION").into(),
            runtime_api_version: "v1".into(),
        }))
    }

    fn status(&self, _: StatusRequest) -> Answer<'_, StatusResponse> {
        let condition = |name: &str| RuntimeCondition { type_: name.into(), status: true, ..RuntimeCondition::default() };
        let conditions = vec![condition("RuntimeReady"), condition("NetworkReady")];
        now(Ok(StatusResponse { status: Some(RuntimeStatus { conditions }), ..StatusResponse::default() }))
    }

    fn update_runtime_config(&self, request: UpdateRuntimeConfigRequest) -> Answer<'_, UpdateRuntimeConfigResponse> {
        if let Some(network) = request.runtime_config.and_then(|config| config.network_config) {
            self.shared.state.lock().addresses.reconfigure(&network.pod_cidr);
        }
        now(Ok(UpdateRuntimeConfigResponse {}))
    }

    fn run_pod_sandbox(&self, request: RunPodSandboxRequest) -> Answer<'_, RunPodSandboxResponse> {
        let config = request.config.unwrap_or_default();
        let created_at = self.now();
        let host_network = config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref()?.namespace_options.as_ref())
            .is_some_and(|namespaces| namespaces.network == NamespaceMode::Node as i32);
        let mut state = self.shared.state.lock();
        let address = if host_network {
            None
        } else {
            match state.addresses.allocate() {
                Some(address) => Some(address),
                None => {
                    let reason = if state.addresses.is_configured() {
                        "no IP addresses available in range set"
                    } else {
                        "cni plugin not initialized"
                    };
                    return now(Err(Status::unknown(format!("failed to setup network for sandbox: {reason}"))));
                }
            }
        };
        let id = state.new_id("sandbox", created_at);
        state.sandboxes.insert(id.clone(), Sandbox { config, ready: true, created_at, address });
        now(Ok(RunPodSandboxResponse { pod_sandbox_id: id }))
    }

    fn stop_pod_sandbox(&self, request: StopPodSandboxRequest) -> Answer<'_, StopPodSandboxResponse> {
        let id = request.pod_sandbox_id;
        let inside: Vec<String> = {
            let mut state = self.shared.state.lock();
            let released = state.sandboxes.get_mut(&id).and_then(|sandbox| {
                sandbox.ready = false;
                sandbox.address.take()
            });
            if let Some(address) = released {
                state.addresses.release(address);
            }
            state.containers.iter().filter(|(_, container)| container.sandbox == id).map(|(id, _)| id.clone()).collect()
        };
        for container in inside {
            self.shared.exit(&container, 137, None);
        }
        now(Ok(StopPodSandboxResponse {}))
    }

    fn remove_pod_sandbox(&self, request: RemovePodSandboxRequest) -> Answer<'_, RemovePodSandboxResponse> {
        let mut state = self.shared.state.lock();
        if let Some(address) = state.sandboxes.remove(&request.pod_sandbox_id).and_then(|sandbox| sandbox.address) {
            state.addresses.release(address);
        }
        state.containers.retain(|_, container| {
            let stays = container.sandbox != request.pod_sandbox_id;
            if !stays {
                container.stop.cancel();
                container.log.end();
            }
            stays
        });
        now(Ok(RemovePodSandboxResponse {}))
    }

    fn pod_sandbox_status(&self, request: PodSandboxStatusRequest) -> Answer<'_, PodSandboxStatusResponse> {
        let state = self.shared.state.lock();
        now(match state.sandboxes.get(&request.pod_sandbox_id) {
            Some(sandbox) => Ok(PodSandboxStatusResponse {
                status: Some(sandbox.status(&request.pod_sandbox_id)),
                timestamp: self.now(),
                ..PodSandboxStatusResponse::default()
            }),
            None => Err(not_found("sandbox", &request.pod_sandbox_id)),
        })
    }

    fn list_pod_sandbox(&self, request: ListPodSandboxRequest) -> Answer<'_, ListPodSandboxResponse> {
        let filter = request.filter.unwrap_or_default();
        let state = self.shared.state.lock();
        let items = state
            .sandboxes
            .iter()
            .map(|(id, sandbox)| sandbox.status(id))
            .filter(|status| filter.id.is_empty() || filter.id == status.id)
            .filter(|status| filter.state.as_ref().is_none_or(|wanted| wanted.state == status.state))
            .filter(|status| filter.label_selector.iter().all(|(key, value)| status.labels.get(key) == Some(value)))
            .map(|status| PodSandbox {
                id: status.id,
                metadata: status.metadata,
                state: status.state,
                created_at: status.created_at,
                labels: status.labels,
                annotations: status.annotations,
                runtime_handler: String::new(),
            })
            .collect();
        now(Ok(ListPodSandboxResponse { items }))
    }

    fn create_container(&self, request: CreateContainerRequest) -> Answer<'_, CreateContainerResponse> {
        let config = request.config.unwrap_or_default();
        let pod = request.sandbox_config.unwrap_or_default();
        let created_at = self.now();
        let metadata = config.metadata.clone().unwrap_or_default();
        let image = config.image.clone().unwrap_or_default();
        let mut state = self.shared.state.lock();
        if !state.sandboxes.get(&request.pod_sandbox_id).is_some_and(|sandbox| sandbox.ready) {
            return now(Err(not_found("sandbox", &request.pod_sandbox_id)));
        }
        let found = state.images.values().find(|known| known.id == image.image || known.repo_tags.contains(&image.image)).cloned();
        let Some(found) = found else { return now(Err(not_found("image", &image.image))) };
        let id = state.new_id(&metadata.name, created_at);
        let argv: Vec<String> = config.command.iter().chain(&config.args).cloned().collect();
        let init = config.annotations.get(CONTAINER_TYPE_ANNOTATION).is_some_and(|kind| kind == "init");
        let container = Running {
            behaviour: Behaviour::of(&pod.annotations, &metadata.name),
            steps: script::parse(&argv),
            ends_by_default: init || pod.labels.contains_key(JOB_NAME_LABEL),
            log: Arc::new(Log::default()),
            stop: CancellationToken::new(),
            sandbox: request.pod_sandbox_id,
            status: ContainerStatus {
                id: id.clone(),
                metadata: Some(metadata),
                state: ContainerState::ContainerCreated as i32,
                created_at,
                image: Some(ImageSpec { image: found.repo_tags.first().cloned().unwrap_or(image.image), ..ImageSpec::default() }),
                image_ref: found.repo_digests.first().cloned().unwrap_or_default(),
                image_id: found.id,
                labels: config.labels,
                annotations: config.annotations,
                log_path: config.log_path,
                ..ContainerStatus::default()
            },
        };
        state.containers.insert(id.clone(), container);
        self.shared.tell(&state, &id, ContainerEventType::ContainerCreatedEvent);
        now(Ok(CreateContainerResponse { container_id: id }))
    }

    fn start_container(&self, request: StartContainerRequest) -> Answer<'_, StartContainerResponse> {
        let id = request.container_id;
        let behaviour = match self.shared.state.lock().containers.get(&id) {
            Some(container) => container.behaviour.clone(),
            None => return now(Err(not_found("container", &id))),
        };
        let delay = behaviour.start_delay;
        let begin = move |shared: &Arc<Shared>| {
            if let Some(message) = behaviour.start_error {
                return Err(Status::unknown(message));
            }
            let (play, stop) = {
                let mut state = shared.state.lock();
                let started_at = shared.now();
                let Some(container) = state.containers.get_mut(&id) else { return Err(not_found("container", &id)) };
                container.status.state = ContainerState::ContainerRunning as i32;
                container.status.started_at = started_at;
                let play = Play {
                    shared: shared.clone(),
                    id: id.clone(),
                    log: container.log.clone(),
                    behaviour: container.behaviour.clone(),
                    steps: container.steps.clone(),
                    ends_by_default: container.ends_by_default,
                };
                let stop = container.stop.clone();
                shared.tell(&state, &id, ContainerEventType::ContainerStartedEvent);
                (play, stop)
            };
            if play.begin() {
                tokio::spawn(async move {
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = play.perform() => {}
                    }
                });
            }
            Ok(StartContainerResponse {})
        };
        if delay.is_zero() {
            return now(begin(&self.shared));
        }
        async move {
            self.shared.clock.sleep(delay).await;
            begin(&self.shared)
        }
        .boxed()
    }

    fn stop_container(&self, request: StopContainerRequest) -> Answer<'_, StopContainerResponse> {
        let found = self.shared.state.lock().containers.get(&request.container_id).map(|container| container.behaviour.clone());
        let Some(behaviour) = found else { return now(Ok(StopContainerResponse {})) };
        let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or_default());
        let (wait, code) = if behaviour.ignore_sigterm || behaviour.stop_time > grace { (grace, 137) } else { (behaviour.stop_time, 0) };
        let finish = move |shared: &Shared| {
            shared.exit(&request.container_id, code, None);
            Ok(StopContainerResponse {})
        };
        if wait.is_zero() {
            return now(finish(&self.shared));
        }
        async move {
            self.shared.clock.sleep(wait).await;
            finish(&self.shared)
        }
        .boxed()
    }

    fn remove_container(&self, request: RemoveContainerRequest) -> Answer<'_, RemoveContainerResponse> {
        let mut state = self.shared.state.lock();
        self.shared.tell(&state, &request.container_id, ContainerEventType::ContainerDeletedEvent);
        if let Some(container) = state.containers.remove(&request.container_id) {
            container.stop.cancel();
            container.log.end();
        }
        now(Ok(RemoveContainerResponse {}))
    }

    fn list_containers(&self, request: ListContainersRequest) -> Answer<'_, ListContainersResponse> {
        let filter = request.filter.unwrap_or_default();
        let state = self.shared.state.lock();
        let containers = state
            .containers
            .values()
            .filter(|container| filter.id.is_empty() || filter.id == container.status.id)
            .filter(|container| filter.pod_sandbox_id.is_empty() || filter.pod_sandbox_id == container.sandbox)
            .filter(|container| filter.state.as_ref().is_none_or(|wanted| wanted.state == container.status.state))
            .filter(|container| filter.label_selector.iter().all(|(key, value)| container.status.labels.get(key) == Some(value)))
            .map(|container| Container {
                id: container.status.id.clone(),
                pod_sandbox_id: container.sandbox.clone(),
                metadata: container.status.metadata.clone(),
                image: container.status.image.clone(),
                image_ref: container.status.image_ref.clone(),
                state: container.status.state,
                created_at: container.status.created_at,
                labels: container.status.labels.clone(),
                annotations: container.status.annotations.clone(),
                image_id: container.status.image_id.clone(),
            })
            .collect();
        now(Ok(ListContainersResponse { containers }))
    }

    fn container_status(&self, request: ContainerStatusRequest) -> Answer<'_, ContainerStatusResponse> {
        let state = self.shared.state.lock();
        now(match state.containers.get(&request.container_id) {
            Some(container) => Ok(ContainerStatusResponse { status: Some(container.status.clone()), ..ContainerStatusResponse::default() }),
            None => Err(not_found("container", &request.container_id)),
        })
    }

    fn exec_sync(&self, request: ExecSyncRequest) -> Answer<'_, ExecSyncResponse> {
        let running = self
            .shared
            .state
            .lock()
            .containers
            .get(&request.container_id)
            .is_some_and(|container| container.status.state == ContainerState::ContainerRunning as i32);
        if !running {
            return now(Err(Status::unknown(format!("container not running ({})", request.container_id))));
        }
        async move {
            let mut answer = ExecSyncResponse::default();
            let Some(steps) = script::parse(&request.cmd) else { return Ok(answer) };
            for step in steps {
                match step {
                    Step::Print(text, stderr) => {
                        let out = if stderr { &mut answer.stderr } else { &mut answer.stdout };
                        out.extend_from_slice(text.as_bytes());
                        out.push(b'\n');
                    }
                    Step::Sleep(duration) => self.shared.clock.sleep(duration).await,
                    Step::Exit(code) => {
                        answer.exit_code = code;
                        break;
                    }
                    Step::Forever | Step::Loop(_) => std::future::pending().await,
                }
            }
            Ok(answer)
        }
        .boxed()
    }

    fn get_container_events(&self, _: GetEventsRequest) -> Answer<'_, BoxStream<'static, Result<ContainerEventResponse, Status>>> {
        let stream = futures::stream::unfold(self.shared.events.subscribe(), |mut events| async move {
            match events.recv().await {
                Ok(event) => Some((Ok(Arc::unwrap_or_clone(event)), events)),
                Err(RecvError::Lagged(missed)) => Some((Err(Status::data_loss(format!("{missed} events were missed"))), events)),
                Err(RecvError::Closed) => None,
            }
        });
        now(Ok(stream.boxed()))
    }
}

impl ImageService for MockRuntime {
    fn list_images(&self, _: ListImagesRequest) -> Answer<'_, ListImagesResponse> {
        now(Ok(ListImagesResponse { images: self.shared.state.lock().images.values().cloned().collect() }))
    }

    fn image_status(&self, request: ImageStatusRequest) -> Answer<'_, ImageStatusResponse> {
        let name = request.image.unwrap_or_default().image;
        now(match image::normalize(&name) {
            Ok(name) => {
                Ok(ImageStatusResponse { image: self.shared.state.lock().images.get(&name).cloned(), ..ImageStatusResponse::default() })
            }
            Err(error) => Err(Status::invalid_argument(error)),
        })
    }

    fn pull_image(&self, request: PullImageRequest) -> Answer<'_, PullImageResponse> {
        let spec = request.image.unwrap_or_default();
        let behaviour = Behaviour::of(&request.sandbox_config.unwrap_or_default().annotations, "");
        let name = match image::normalize(&spec.image) {
            Ok(name) => name,
            Err(error) => return now(Err(Status::invalid_argument(error))),
        };
        let wait = behaviour.pull_time;
        let finish = move |shared: &Shared| {
            let failure = match behaviour.pull_error.as_deref() {
                Some("" | "true") => {
                    Some(format!("failed to pull and unpack image \"{name}\": failed to resolve reference \"{name}\": {name}: not found"))
                }
                Some(message) => Some(message.to_owned()),
                None => missing(&name),
            };
            if let Some(message) = failure {
                return Err(Status::not_found(message));
            }
            let image = image_of(&name);
            let image_ref = image.id.clone();
            shared.state.lock().images.insert(name, image);
            Ok(PullImageResponse { image_ref })
        };
        if wait.is_zero() {
            return now(finish(&self.shared));
        }
        async move {
            self.shared.clock.sleep(wait).await;
            finish(&self.shared)
        }
        .boxed()
    }

    fn remove_image(&self, request: RemoveImageRequest) -> Answer<'_, RemoveImageResponse> {
        if let Ok(name) = image::normalize(&request.image.unwrap_or_default().image) {
            self.shared.state.lock().images.remove(&name);
        }
        now(Ok(RemoveImageResponse {}))
    }
}

impl Host for MockRuntime {
    fn logs(&self, container: &ContainerHandle, follow: bool) -> BoxStream<'static, LogLine> {
        match self.shared.state.lock().containers.get(&container.id) {
            Some(container) => container.log.clone().read(follow),
            None => futures::stream::empty().boxed(),
        }
    }

    fn ready_delay(&self, container: &ContainerHandle) -> Duration {
        let state = self.shared.state.lock();
        state.containers.get(&container.id).map_or(Duration::ZERO, |container| container.behaviour.ready_after)
    }

    fn probe<'a>(
        &'a self,
        container: &'a ContainerHandle,
        probe: &'a Probe,
        kind: ProbeKind,
        _: Duration,
    ) -> BoxFuture<'a, Result<(), String>> {
        let state = self.shared.state.lock();
        let healthy = state.containers.get(&container.id).is_some_and(|container| {
            let age = Duration::from_nanos(u64::try_from(self.now() - container.status.started_at).unwrap_or_default());
            match kind {
                ProbeKind::Startup | ProbeKind::Readiness => age >= container.behaviour.ready_after,
                ProbeKind::Liveness => container.behaviour.live_for.is_none_or(|live_for| age < live_for),
            }
        });
        let failure = match probe {
            Probe { exec: Some(_), .. } => "command exited with code 1",
            Probe { http_get: Some(_), .. } => "HTTP probe failed with statuscode: 503",
            _ => "dial tcp: connect: connection refused",
        };
        std::future::ready(if healthy { Ok(()) } else { Err(failure.to_owned()) }).boxed()
    }
}
