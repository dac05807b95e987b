//! The work that a Pod's worker sets going against the runtime: sandboxes, starts, kills, probes.
//!
//! Each function carries out one [`Action`](super::machine::Action) and answers with the [`Input`] that reports its result.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{LifecycleHandler, Pod, Probe};
use parking_lot::Mutex;

use super::agent::{Agent, terminated, timestamp};
use super::environment::{self, Sources};
use super::machine::{ContainerMachine, Input, PodEvent, Sandbox, StartError, Terminated};
use super::pod_config::{container_config, log_directory, sandbox_config};
use crate::cri::v1::*;
use crate::cri::{ContainerHandle, ProbeKind, Status, image};
use crate::events::EventType;

/// How long a Pod waits for the node's range of addresses before it takes whatever the runtime has.
const NETWORK_PATIENCE: Duration = Duration::from_secs(1);
/// What is left of the grace period after a preStop hook that has used it up.
const MINIMUM_GRACE: Duration = Duration::from_secs(2);

/// What a job needs to know of its Pod.
#[derive(Clone)]
pub(super) struct Job {
    pub agent: Arc<Agent>,
    pub pod: Arc<Pod>,
    /// Events wait here until the worker sends them.
    pub events: Arc<Mutex<Vec<PodEvent>>>,
}

/// A duration as Go prints it, cut to milliseconds: `0s`, `12ms`, `1.234s`, `1m2.5s`.
fn go_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0s".into();
    }
    if millis < 1000 {
        return format!("{millis}ms");
    }
    let (minutes, rest) = (millis / 60_000, millis % 60_000);
    let mut seconds = format!("{}.{:03}", rest / 1000, rest % 1000);
    seconds.truncate(seconds.trim_end_matches('0').trim_end_matches('.').len());
    match minutes {
        0 => format!("{seconds}s"),
        minutes if minutes < 60 => format!("{minutes}m{seconds}s"),
        minutes => format!("{}h{}m{seconds}s", minutes / 60, minutes % 60),
    }
}

/// A runtime's refusal as gRPC clients print it.
fn rpc_error(status: &Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}

fn elapsed(from: Timestamp, to: Timestamp) -> Duration {
    crate::clock::left(from, to)
}

impl Job {
    fn event(&self, container: &ContainerMachine, r#type: EventType, reason: &'static str, message: String) {
        self.events.lock().push(PodEvent::of(container, r#type, reason, message));
    }

    pub(super) async fn run_sandbox(self, attempt: u32) -> Input {
        let host_network = self.pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default();
        if !host_network && !*self.agent.network.borrow() {
            let mut network = self.agent.network.subscribe();
            // If it does not come, the runtime uses the range it was made with, and nobody waits for it again.
            if self.agent.clock.timeout(NETWORK_PATIENCE, network.wait_for(|known| *known)).await.is_err() {
                self.agent.network.send_replace(true);
            }
        }
        let runtime = &self.agent.runtime;
        let request = RunPodSandboxRequest { config: Some(sandbox_config(&self.pod, attempt)), runtime_handler: String::new() };
        let id = match runtime.run_pod_sandbox(request).await {
            Ok(answer) => answer.pod_sandbox_id,
            Err(status) => return Input::SandboxFailed(rpc_error(&status)),
        };
        match runtime.pod_sandbox_status(PodSandboxStatusRequest { pod_sandbox_id: id.clone(), verbose: false }).await {
            Ok(answer) => {
                let network = answer.status.and_then(|status| status.network).unwrap_or_default();
                let others = network.additional_ips.iter().map(|address| address.ip.as_str());
                let ips = std::iter::once(network.ip.as_str()).chain(others).filter_map(|ip| ip.parse().ok()).collect();
                Input::SandboxReady(Sandbox { id, ips })
            }
            Err(status) => Input::SandboxFailed(rpc_error(&status)),
        }
    }

    pub(super) async fn stop_sandbox(self, id: String) -> Input {
        if let Err(status) = self.agent.runtime.stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: id }).await {
            tracing::warn!(node = %self.agent.name, status = %status.message(), "a sandbox could not be stopped");
        }
        Input::SandboxStopped
    }

    pub(super) async fn start(self, index: usize, container: ContainerMachine, sandbox: Sandbox) -> Input {
        match self.try_start(index, &container, &sandbox).await {
            Ok(started) => started,
            Err((error, message)) => Input::StartFailed { container: index, error, message },
        }
    }

    async fn try_start(&self, index: usize, container: &ContainerMachine, sandbox: &Sandbox) -> Result<Input, (StartError, String)> {
        let runtime = &self.agent.runtime;
        let image = self.ensure_image(container).await?;
        let ip = sandbox.ips.first().map(ToString::to_string).unwrap_or_default();
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let sources = Sources { client: &self.agent.client, namespace };
        let environment = environment::resolve(&container.spec, &self.pod, self.agent.host_ip, &ip, &sources);
        let environment = environment.await.map_err(|message| (StartError::Config, message))?;
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.id.clone(),
            config: Some(container_config(&self.pod, container, &image, environment)),
            sandbox_config: Some(sandbox_config(&self.pod, 0)),
        };
        let created = runtime.create_container(request).await.map_err(|status| (StartError::Create, status.message().to_owned()))?;
        let id = created.container_id;
        self.event(container, EventType::Normal, "Created", "Container created".into());
        let start = runtime.start_container(StartContainerRequest { container_id: id.clone() });
        start.await.map_err(|status| (StartError::Run, status.message().to_owned()))?;
        self.event(container, EventType::Normal, "Started", "Container started".into());
        let status = runtime.container_status(ContainerStatusRequest { container_id: id.clone(), verbose: false }).await;
        let status = status.map_err(|status| (StartError::Run, status.message().to_owned()))?.status.unwrap_or_default();
        if let Some(hook) = container.spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref()) {
            self.hook(hook, &id, &ip).await;
        }
        let handle = ContainerHandle { id: id.clone(), ..ContainerHandle::default() };
        Ok(Input::Started {
            container: index,
            ready_after: self.agent.runtime.ready_delay(&handle),
            id,
            image: status.image.unwrap_or_default().image,
            image_id: status.image_ref,
            at: timestamp(status.started_at),
        })
    }

    /// Sees to it that the image is there, and returns the runtime's id of it.
    async fn ensure_image(&self, container: &ContainerMachine) -> Result<String, (StartError, String)> {
        let wanted = container.spec.image.clone().unwrap_or_default();
        let full = image::normalize(&wanted).map_err(|error| {
            let message = format!("Failed to apply default image tag \"{wanted}\": couldn't parse image name \"{wanted}\": {error}");
            (StartError::InvalidImageName, message)
        })?;
        let policy =
            container.spec.image_pull_policy.as_deref().unwrap_or(if full.ends_with(":latest") { "Always" } else { "IfNotPresent" });
        let spec = ImageSpec { image: full.clone(), user_specified_image: wanted.clone(), ..ImageSpec::default() };
        let present = self.image(&spec).await;
        match (policy, present) {
            ("Never" | "IfNotPresent", Some(image)) => {
                let message = format!("Container image \"{wanted}\" already present on machine");
                self.event(container, EventType::Normal, "Pulled", message);
                return Ok(image.id);
            }
            ("Never", None) => {
                return Err((StartError::NeverPull, format!("Container image \"{wanted}\" is not present with pull policy of Never")));
            }
            _ => {}
        }
        self.event(container, EventType::Normal, "Pulling", format!("Pulling image \"{wanted}\""));
        let asked = self.agent.clock.now();
        let turn = self.agent.pulls.lock().await;
        let began = self.agent.clock.now();
        let request = PullImageRequest { image: Some(spec.clone()), auth: None, sandbox_config: Some(sandbox_config(&self.pod, 0)) };
        let pulled = self.agent.runtime.pull_image(request).await;
        drop(turn);
        let done = self.agent.clock.now();
        let pulled = pulled.map_err(|status| (StartError::Pull, rpc_error(&status)))?;
        let size = self.image(&spec).await.map_or(0, |image| image.size);
        self.agent.images_changed.notify_one();
        let message = format!(
            "Successfully pulled image \"{wanted}\" in {} ({} including waiting). Image size: {size} bytes.",
            go_duration(elapsed(began, done)),
            go_duration(elapsed(asked, done)),
        );
        self.event(container, EventType::Normal, "Pulled", message);
        Ok(pulled.image_ref)
    }

    async fn image(&self, spec: &ImageSpec) -> Option<Image> {
        let request = ImageStatusRequest { image: Some(spec.clone()), verbose: false };
        self.agent.runtime.image_status(request).await.ok()?.image
    }

    pub(super) async fn kill(self, container: ContainerMachine, id: String, pod_ip: String, grace: Duration) -> Input {
        let began = self.agent.clock.now();
        let mut left = grace;
        let hook = container.spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref());
        if let Some(hook) = hook.filter(|_| !grace.is_zero()) {
            // A hook that takes too long is cut off; the container is stopped either way.
            let _ = self.agent.clock.timeout(grace, self.hook(hook, &id, &pod_ip)).await;
            left = grace.saturating_sub(elapsed(began, self.agent.clock.now())).max(MINIMUM_GRACE);
        }
        let timeout = i64::try_from(left.as_secs()).unwrap_or(i64::MAX);
        if let Err(status) = self.agent.runtime.stop_container(StopContainerRequest { container_id: id.clone(), timeout }).await {
            tracing::warn!(container = %id, status = %status.message(), "a container could not be stopped");
        }
        let answer = self.agent.runtime.container_status(ContainerStatusRequest { container_id: id.clone(), verbose: false }).await;
        let run = answer.ok().and_then(|answer| answer.status).as_ref().and_then(terminated);
        Input::Exited(run.unwrap_or_else(|| Terminated {
            id,
            exit_code: 137,
            reason: "ContainerStatusUnknown".into(),
            message: "The container could not be located when the pod was terminated".into(),
            started_at: began,
            finished_at: self.agent.clock.now(),
        }))
    }

    async fn hook(&self, hook: &LifecycleHandler, id: &str, pod_ip: &str) {
        if let Some(sleep) = &hook.sleep {
            self.agent.clock.sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or_default())).await;
        } else if let Some(exec) = &hook.exec {
            let cmd = exec.command.clone().unwrap_or_default();
            if let Err(status) = self.agent.runtime.exec_sync(ExecSyncRequest { container_id: id.to_owned(), cmd, timeout: 0 }).await {
                tracing::debug!(container = %id, status = %status.message(), "a lifecycle hook failed");
            }
        } else if let Some(get) = &hook.http_get {
            let handle = ContainerHandle { id: id.to_owned(), pod_ip: pod_ip.to_owned(), ..ContainerHandle::default() };
            let probe = Probe { http_get: Some(get.clone()), ..Probe::default() };
            let _ = self.agent.runtime.probe(&handle, &probe, ProbeKind::Startup, Duration::from_secs(30)).await;
        }
    }

    pub(super) async fn probe(
        self,
        index: usize,
        container: ContainerMachine,
        id: String,
        pod_ip: String,
        kind: ProbeKind,
        after: Duration,
    ) -> Input {
        if !after.is_zero() {
            self.agent.clock.sleep(after).await;
        }
        let result = match container.probe(kind) {
            Some(probe) => {
                let log_path = format!("{}/{}/{}.log", log_directory(&self.pod), container.name, container.restart_count);
                let handle = ContainerHandle { id: id.clone(), log_path, pod_ip };
                let timeout = Duration::from_secs(u64::try_from(probe.timeout_seconds.unwrap_or(1)).unwrap_or(1).max(1));
                self.agent.runtime.probe(&handle, probe, kind, timeout).await
            }
            None => Ok(()),
        };
        Input::Probed { container: index, id, kind, result }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_look_as_go_prints_them() {
        let cases = [(0, "0s"), (12, "12ms"), (1000, "1s"), (1234, "1.234s"), (1500, "1.5s"), (62_500, "1m2.5s"), (3_600_000, "1h0m0s")];
        for (millis, text) in cases {
            assert_eq!(go_duration(Duration::from_millis(millis)), text);
        }
    }
}
