//! The mock as a kubelet meets it.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Probe;

use super::*;
use crate::cri::{ContainerHandle, Host, ImageService, ProbeKind, RuntimeService};

fn config(annotations: &[(&str, &str)]) -> PodSandboxConfig {
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata { name: "p".into(), uid: "u".into(), namespace: "ns".into(), attempt: 0 }),
        annotations: annotations.iter().map(|(k, v)| (format!("{}{k}", behaviour::PREFIX), (*v).to_owned())).collect(),
        ..PodSandboxConfig::default()
    }
}

fn image(name: &str) -> Option<ImageSpec> {
    Some(ImageSpec { image: name.into(), ..ImageSpec::default() })
}

async fn started(runtime: &MockRuntime, pod: PodSandboxConfig, command: &[&str]) -> String {
    let pulled = runtime.pull_image(PullImageRequest { image: image("nginx"), ..PullImageRequest::default() }).await.unwrap();
    let request = RunPodSandboxRequest { config: Some(pod.clone()), runtime_handler: String::new() };
    let sandbox = runtime.run_pod_sandbox(request).await.unwrap().pod_sandbox_id;
    let request = CreateContainerRequest {
        pod_sandbox_id: sandbox,
        config: Some(ContainerConfig {
            metadata: Some(ContainerMetadata { name: "c".into(), attempt: 0 }),
            image: image(&pulled.image_ref),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            ..ContainerConfig::default()
        }),
        sandbox_config: Some(pod),
    };
    let id = runtime.create_container(request).await.unwrap().container_id;
    runtime.start_container(StartContainerRequest { container_id: id.clone() }).await.unwrap();
    id
}

async fn status(runtime: &MockRuntime, id: &str) -> ContainerStatus {
    let request = ContainerStatusRequest { container_id: id.into(), verbose: false };
    runtime.container_status(request).await.unwrap().status.unwrap()
}

async fn log(runtime: &MockRuntime, id: &str) -> Vec<String> {
    let handle = ContainerHandle { id: id.into(), ..ContainerHandle::default() };
    runtime.logs(&handle, true).map(|line| line.text).collect().await
}

fn runtime() -> MockRuntime {
    MockRuntime::new(Clock::virtual_clock(), "10.0.0.0/24")
}

#[tokio::test]
async fn a_container_runs_until_it_is_stopped() {
    let runtime = runtime();
    let id = started(&runtime, config(&[]), &["nginx"]).await;
    assert_eq!(status(&runtime, &id).await.state, ContainerState::ContainerRunning as i32);
    runtime.stop_container(StopContainerRequest { container_id: id.clone(), timeout: 30 }).await.unwrap();
    let ended = status(&runtime, &id).await;
    assert_eq!((ended.state, ended.exit_code, ended.reason.as_str()), (ContainerState::ContainerExited as i32, 0, "Completed"));
    assert_eq!(ended.image.unwrap().image, "docker.io/library/nginx:latest");
    assert!(ended.image_ref.starts_with("docker.io/library/nginx@sha256:"));
}

#[tokio::test]
async fn a_command_is_played_and_its_end_is_told() {
    let runtime = runtime();
    let mut events = runtime.get_container_events(GetEventsRequest {}).await.unwrap();
    let id = started(&runtime, config(&[]), &["sh", "-c", "echo hello; exit 3"]).await;
    assert_eq!(log(&runtime, &id).await, ["hello"]);
    let stopped = loop {
        let event = events.next().await.unwrap().unwrap();
        if event.container_event_type == ContainerEventType::ContainerStoppedEvent as i32 {
            break event;
        }
    };
    assert_eq!((stopped.containers_statuses[0].exit_code, stopped.containers_statuses[0].reason.as_str()), (3, "Error"));
    assert_eq!(stopped.pod_sandbox_status.unwrap().metadata.unwrap().uid, "u");
}

#[tokio::test]
async fn annotations_decide_when_and_how_it_ends() {
    let runtime = runtime();
    let id = started(&runtime, config(&[("crash-after", "1h"), ("exit-reason", "OOMKilled"), ("log-lines", "one\ntwo")]), &["nginx"]).await;
    tokio::task::yield_now().await;
    assert_eq!(status(&runtime, &id).await.state, ContainerState::ContainerRunning as i32);
    runtime.shared.clock.advance(Duration::from_secs(3601)).await;
    let ended = status(&runtime, &id).await;
    assert_eq!((ended.exit_code, ended.reason.as_str()), (1, "OOMKilled"));
    assert_eq!(log(&runtime, &id).await, ["one", "two"]);
}

#[tokio::test]
async fn one_that_ignores_the_signal_is_killed_when_the_grace_period_is_over() {
    let runtime = runtime();
    let id = started(&runtime, config(&[("ignore-sigterm", "true")]), &["nginx"]).await;
    let stop = tokio::spawn({
        let (runtime, id) = (runtime.clone(), id.clone());
        async move { runtime.stop_container(StopContainerRequest { container_id: id, timeout: 30 }).await }
    });
    tokio::task::yield_now().await;
    runtime.shared.clock.advance(Duration::from_secs(31)).await;
    stop.await.unwrap().unwrap();
    assert_eq!(status(&runtime, &id).await.exit_code, 137);
}

#[tokio::test]
async fn images_that_say_they_do_not_exist_cannot_be_pulled() {
    let runtime = runtime();
    let pull = |name: &str| runtime.pull_image(PullImageRequest { image: image(name), ..PullImageRequest::default() });
    let error = pull("registry.invalid/app:v1").await.unwrap_err();
    assert!(error.message().ends_with("dial tcp: lookup registry.invalid: no such host"), "{}", error.message());
    assert!(pull("nginx:does-not-exist").await.unwrap_err().message().ends_with("docker.io/library/nginx:does-not-exist: not found"));
    assert!(pull("nginx").await.is_ok());
    let present = runtime.image_status(ImageStatusRequest { image: image("nginx:latest"), verbose: false }).await.unwrap();
    assert!(present.image.is_some());
}

#[tokio::test]
async fn probes_pass_when_the_annotations_say_so() {
    let runtime = runtime();
    let id = started(&runtime, config(&[("ready-after", "1h"), ("live-for", "2h")]), &["nginx"]).await;
    let handle = ContainerHandle { id, ..ContainerHandle::default() };
    let probe = Probe::default();
    let passes = |kind| runtime.probe(&handle, &probe, kind, Duration::from_secs(1));
    assert!(passes(ProbeKind::Readiness).await.is_err());
    runtime.shared.clock.advance(Duration::from_secs(3601)).await;
    assert!(passes(ProbeKind::Readiness).await.is_ok() && passes(ProbeKind::Liveness).await.is_ok());
    runtime.shared.clock.advance(Duration::from_secs(3601)).await;
    assert!(passes(ProbeKind::Liveness).await.is_err());
}

#[tokio::test]
async fn a_sandbox_gives_its_address_back() {
    let runtime = MockRuntime::new(Clock::system(), "10.0.0.0/30");
    let run = || runtime.run_pod_sandbox(RunPodSandboxRequest { config: Some(config(&[])), runtime_handler: String::new() });
    let first = run().await.unwrap().pod_sandbox_id;
    assert!(run().await.unwrap_err().message().contains("no IP addresses available"));
    runtime.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: first }).await.unwrap();
    assert!(run().await.is_ok());
}

#[tokio::test]
async fn a_job_container_that_nobody_understands_ends_by_itself() {
    let runtime = runtime();
    let labels = HashMap::from([(JOB_NAME_LABEL.to_owned(), "j".to_owned())]);
    let id = started(&runtime, PodSandboxConfig { labels, ..config(&[]) }, &["perl", "-e", "print 1"]).await;
    assert!(log(&runtime, &id).await.is_empty());
    assert_eq!(status(&runtime, &id).await.reason, "Completed");
}
