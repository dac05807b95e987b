//! The status of a Pod, worked out from its machine: phase, conditions and container statuses as `kubectl` shows them.
//!
//! Pure: what it returns is compared with what was written last, and only differences are written.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus, HostIP, PodCondition, PodIP,
    PodStatus, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::machine::{ContainerMachine, Kind, PodMachine, Stage, State, Terminated};

/// Whole seconds, as the API keeps times.
fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

fn terminated(run: &Terminated, runtime: &str) -> ContainerStateTerminated {
    ContainerStateTerminated {
        container_id: Some(format!("{runtime}://{}", run.id)),
        exit_code: run.exit_code,
        finished_at: Some(time(run.finished_at)),
        message: Some(run.message.clone()).filter(|message| !message.is_empty()),
        reason: Some(run.reason.clone()),
        signal: None,
        started_at: Some(time(run.started_at)),
    }
}

fn state_terminated(run: Option<&Terminated>, runtime: &str) -> ContainerState {
    ContainerState { terminated: run.map(|run| terminated(run, runtime)), ..ContainerState::default() }
}

fn container_status(container: &ContainerMachine, machine: &PodMachine, runtime: &str) -> ContainerStatus {
    let waiting = || {
        let default = if has_init(machine) { "PodInitializing" } else { "ContainerCreating" };
        let (reason, message) = match &container.shown {
            Some((reason, message)) => (*reason, Some(message.clone())),
            None => (default, None),
        };
        ContainerState { waiting: Some(ContainerStateWaiting { reason: Some(reason.into()), message }), ..ContainerState::default() }
    };
    let (state, last, id) = match &container.state {
        State::Running { id, since, .. } => {
            let running =
                ContainerState { running: Some(ContainerStateRunning { started_at: Some(time(*since)) }), ..ContainerState::default() };
            (running, container.last.as_ref(), Some(id.clone()))
        }
        State::Exited => {
            let run = container.terminated.as_ref();
            (state_terminated(run, runtime), container.last.as_ref(), run.map(|run| run.id.clone()))
        }
        // Between two runs the latest end is the last state; a container that is being started at once still shows it.
        State::Starting if container.terminated.is_some() && container.shown.is_none() => {
            let run = container.terminated.as_ref();
            (state_terminated(run, runtime), container.last.as_ref(), run.map(|run| run.id.clone()))
        }
        _ => {
            let last = container.terminated.as_ref().or(container.last.as_ref());
            (waiting(), last, last.map(|run| run.id.clone()))
        }
    };
    let resources = container.spec.resources.clone().filter(|resources| resources.requests.is_some() || resources.limits.is_some());
    let mounts: Vec<VolumeMountStatus> = container
        .spec
        .volume_mounts
        .iter()
        .flatten()
        .map(|mount| VolumeMountStatus {
            mount_path: mount.mount_path.clone(),
            name: mount.name.clone(),
            read_only: mount.read_only.filter(|read_only| *read_only),
            recursive_read_only: mount.read_only.filter(|read_only| *read_only).map(|_| "Disabled".to_owned()),
            ..VolumeMountStatus::default()
        })
        .collect();
    let running = container.running_id().is_some();
    let image = if container.image.is_empty() { container.spec.image.clone().unwrap_or_default() } else { container.image.clone() };
    ContainerStatus {
        allocated_resources: resources.as_ref().filter(|_| running).and_then(|resources| resources.requests.clone()),
        container_id: id.map(|id| format!("{runtime}://{id}")),
        image,
        image_id: container.image_id.clone(),
        last_state: Some(state_or_empty(last, runtime)),
        name: container.name.clone(),
        // An init container is ready when it has done its work.
        ready: if container.kind == Kind::Init { container.has_succeeded() } else { running && container.ready },
        resources: resources.filter(|_| running),
        restart_count: container.restart_count,
        started: Some(running && container.started),
        state: Some(state),
        volume_mounts: (!mounts.is_empty()).then_some(mounts),
        ..ContainerStatus::default()
    }
}

fn state_or_empty(run: Option<&Terminated>, runtime: &str) -> ContainerState {
    run.map_or_else(ContainerState::default, |run| state_terminated(Some(run), runtime))
}

fn has_init(machine: &PodMachine) -> bool {
    machine.containers.iter().any(|container| container.kind != Kind::Main)
}

fn phase(machine: &PodMachine) -> &'static str {
    if machine.failure.is_some() {
        return "Failed";
    }
    let ended = |container: &&ContainerMachine| container.terminated.is_some() || container.last.is_some();
    let mains = || machine.containers.iter().filter(|container| container.kind == Kind::Main);
    let never = machine.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("Never");
    let finished = matches!(machine.stage, Stage::Finishing | Stage::StoppingSandbox | Stage::Stopped);
    if never
        && !machine.initialized
        && machine.containers.iter().any(|c| c.kind == Kind::Init && c.state == State::Exited && !c.has_succeeded())
    {
        return "Failed";
    }
    if !machine.initialized {
        return "Pending";
    }
    let running = machine.containers.iter().filter(|container| container.kind != Kind::Init && container.running_id().is_some()).count();
    let waiting =
        mains().filter(|container| !matches!(container.state, State::Running { .. } | State::Exited) && !ended(container)).count();
    if waiting > 0 && !finished {
        return "Pending";
    }
    if running > 0 {
        return "Running";
    }
    let policy = machine.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always");
    let succeeded = mains().all(ContainerMachine::has_succeeded);
    let all_exited = mains().all(|container| container.state == State::Exited);
    match policy {
        // Deleted while it ran: how its containers ended is how it ended.
        _ if finished && all_exited && succeeded => "Succeeded",
        _ if finished && all_exited => "Failed",
        _ if finished && waiting > 0 => "Pending",
        "Always" => "Running",
        _ if all_exited && succeeded => "Succeeded",
        "Never" if all_exited => "Failed",
        _ => "Running",
    }
}

struct Verdict {
    status: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Verdict {
    fn yes() -> Self {
        Self { status: true, reason: None, message: None }
    }
    fn no(reason: &'static str, message: Option<String>) -> Self {
        Self { status: false, reason: Some(reason), message }
    }
}

fn names<'a>(containers: impl Iterator<Item = &'a ContainerMachine>) -> String {
    containers.map(|container| container.name.as_str()).collect::<Vec<_>>().join(" ")
}

fn initialized(machine: &PodMachine, phase: &str) -> Verdict {
    if phase == "Succeeded" {
        return Verdict { status: true, reason: Some("PodCompleted"), message: None };
    }
    if machine.initialized || !has_init(machine) {
        return Verdict::yes();
    }
    let incomplete = names(machine.containers.iter().filter(|c| match c.kind {
        Kind::Init => !c.has_succeeded(),
        Kind::Sidecar => !c.started,
        Kind::Main => false,
    }));
    if incomplete.is_empty() {
        return Verdict::yes();
    }
    Verdict::no("ContainersNotInitialized", Some(format!("containers with incomplete status: [{incomplete}]")))
}

fn containers_ready(machine: &PodMachine, phase: &str) -> Verdict {
    match phase {
        "Succeeded" => return Verdict::no("PodCompleted", None),
        "Failed" => return Verdict::no("PodFailed", None),
        _ => {}
    }
    let unready = names(
        machine
            .containers
            .iter()
            .filter(|container| container.kind != Kind::Init && !(container.running_id().is_some() && container.ready)),
    );
    if unready.is_empty() {
        return Verdict::yes();
    }
    Verdict::no("ContainersNotReady", Some(format!("containers with unready status: [{unready}]")))
}

fn ready(machine: &PodMachine, containers: &Verdict) -> Verdict {
    if !containers.status {
        return Verdict { status: false, reason: containers.reason, message: containers.message.clone() };
    }
    let conditions = machine.pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let gates = machine.pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default();
    let mut open = Vec::new();
    for gate in gates {
        match conditions.iter().find(|condition| condition.type_ == gate.condition_type) {
            Some(condition) if condition.status == "True" => {}
            Some(_) => open.push(format!("the status of pod readiness gate \"{}\" is not \"True\", but False", gate.condition_type)),
            None => open.push(format!("corresponding condition of pod readiness gate \"{}\" does not exist.", gate.condition_type)),
        }
    }
    if open.is_empty() { Verdict::yes() } else { Verdict::no("ReadinessGatesNotReady", Some(open.join(", "))) }
}

/// The status of the Pod as it should stand in the API. `written` is what stands there already, for the transition times.
#[must_use]
pub fn pod_status(machine: &PodMachine, written: Option<&PodStatus>, host_ip: IpAddr, runtime: &str, now: Timestamp) -> PodStatus {
    let phase = phase(machine);
    let containers = containers_ready(machine, phase);
    let sandbox = machine.sandbox.is_some() && matches!(machine.stage, Stage::Up | Stage::Finishing);
    let verdicts = [
        ("PodReadyToStartContainers", Verdict { status: sandbox, reason: None, message: None }),
        ("Initialized", initialized(machine, phase)),
        ("Ready", ready(machine, &containers)),
        ("ContainersReady", containers),
        ("PodScheduled", Verdict::yes()),
    ];
    let generation = machine.pod.metadata.generation;
    let known = written.or(machine.pod.status.as_ref()).and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let conditions = verdicts
        .into_iter()
        .map(|(name, verdict)| {
            let status = if verdict.status { "True" } else { "False" };
            let since = known.iter().find(|condition| condition.type_ == name && condition.status == status);
            PodCondition {
                type_: name.into(),
                status: status.into(),
                reason: verdict.reason.map(str::to_owned),
                message: verdict.message,
                last_transition_time: Some(since.and_then(|condition| condition.last_transition_time.clone()).unwrap_or_else(|| time(now))),
                last_probe_time: None,
                observed_generation: generation,
            }
        })
        .collect();
    let of_kind = |main: bool| -> Vec<ContainerStatus> {
        let wanted = machine.containers.iter().filter(|container| (container.kind == Kind::Main) == main);
        wanted.map(|container| container_status(container, machine, runtime)).collect()
    };
    let init = of_kind(false);
    let host_network = machine.pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or_default();
    let ips: Vec<PodIP> = match &machine.sandbox {
        Some(_) if host_network => vec![PodIP { ip: host_ip.to_string() }],
        Some(sandbox) => sandbox.ips.iter().map(|ip| PodIP { ip: ip.to_string() }).collect(),
        None => Vec::new(),
    };
    PodStatus {
        conditions: Some(conditions),
        container_statuses: Some(of_kind(true)),
        host_ip: Some(host_ip.to_string()),
        host_ips: Some(vec![HostIP { ip: host_ip.to_string() }]),
        init_container_statuses: (!init.is_empty()).then_some(init),
        message: machine.failure.as_ref().map(|(_, message)| message.clone()),
        observed_generation: generation,
        phase: Some(phase.into()),
        pod_ip: ips.first().map(|ip| ip.ip.clone()),
        pod_ips: (!ips.is_empty()).then_some(ips),
        reason: machine.failure.as_ref().map(|(reason, _)| (*reason).to_owned()),
        start_time: Some(time(machine.start_time)),
        ..PodStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::machine::{Input, Sandbox, StartError};
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::time::Duration;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(172, 18, 0, 2));

    fn now() -> Timestamp {
        Timestamp::from_second(1_700_000_000).unwrap()
    }

    fn machine(spec: Value) -> PodMachine {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 1}, "spec": spec}))
                .unwrap();
        let mut machine = PodMachine::new(Arc::new(pod), now());
        machine.step(Input::Wake, now());
        machine.step(Input::SandboxReady(Sandbox { id: "s".into(), ips: vec!["10.244.0.2".parse().unwrap()] }), now());
        machine
    }

    fn start(machine: &mut PodMachine, container: usize, id: &str) {
        let image = "docker.io/library/nginx:latest".to_owned();
        let image_id = "docker.io/library/nginx@sha256:0".to_owned();
        machine.step(Input::Started { container, id: id.into(), image, image_id, at: now(), ready_after: Duration::ZERO }, now());
    }

    fn exit(machine: &mut PodMachine, id: &str, exit_code: i32) {
        let reason = if exit_code == 0 { "Completed" } else { "Error" };
        machine.step(
            Input::Exited(Terminated {
                id: id.into(),
                exit_code,
                reason: reason.into(),
                message: String::new(),
                started_at: now(),
                finished_at: now(),
            }),
            now(),
        );
    }

    fn json_of(machine: &PodMachine) -> Value {
        serde_json::to_value(pod_status(machine, None, HOST, "mock", now())).unwrap()
    }

    fn condition(status: &Value, name: &str) -> Value {
        status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == name).cloned().unwrap()
    }

    #[test]
    fn a_running_pod_is_ready_with_addresses() {
        let mut machine = machine(json!({"containers": [{"name": "c", "image": "nginx"}]}));
        let status = json_of(&machine);
        assert_eq!(status["phase"], "Pending");
        assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
        assert_eq!(condition(&status, "Ready")["message"], "containers with unready status: [c]");
        assert_eq!(condition(&status, "Initialized")["status"], "True");
        start(&mut machine, 0, "id");
        let status = json_of(&machine);
        assert_eq!(status["phase"], "Running");
        assert_eq!((&status["podIP"], &status["hostIP"]), (&json!("10.244.0.2"), &json!("172.18.0.2")));
        for name in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
            assert_eq!(condition(&status, name)["status"], "True", "{name}");
        }
        assert_eq!(
            status["containerStatuses"][0],
            json!({
                "name": "c", "ready": true, "started": true, "restartCount": 0,
                "image": "docker.io/library/nginx:latest", "imageID": "docker.io/library/nginx@sha256:0",
                "containerID": "mock://id", "lastState": {}, "state": {"running": {"startedAt": "2023-11-14T22:13:20Z"}},
            })
        );
    }

    #[test]
    fn a_crash_loop_looks_as_people_know_it() {
        let mut machine = machine(json!({"containers": [{"name": "c"}]}));
        start(&mut machine, 0, "one");
        exit(&mut machine, "one", 1);
        start(&mut machine, 0, "two");
        exit(&mut machine, "two", 3);
        let status = json_of(&machine);
        assert_eq!(status["phase"], "Running");
        let container = &status["containerStatuses"][0];
        assert_eq!(container["state"]["waiting"]["reason"], "CrashLoopBackOff");
        assert_eq!(container["lastState"]["terminated"]["exitCode"], 3);
        assert_eq!((&container["restartCount"], &container["ready"], &container["started"]), (&json!(1), &json!(false), &json!(false)));
    }

    #[test]
    fn waiting_for_an_init_container_is_pod_initializing() {
        let mut machine = machine(json!({"initContainers": [{"name": "i"}], "containers": [{"name": "c"}]}));
        start(&mut machine, 0, "init");
        let status = json_of(&machine);
        assert_eq!(status["phase"], "Pending");
        assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
        assert_eq!(condition(&status, "Initialized")["message"], "containers with incomplete status: [i]");
        exit(&mut machine, "init", 0);
        let status = json_of(&machine);
        assert_eq!(status["initContainerStatuses"][0]["ready"], true);
        assert_eq!(condition(&status, "Initialized")["status"], "True");
    }

    #[test]
    fn a_pod_that_is_done_is_completed_or_failed() {
        for (code, phase, reason) in [(0, "Succeeded", "PodCompleted"), (1, "Failed", "PodFailed")] {
            let mut machine = machine(json!({"restartPolicy": "Never", "containers": [{"name": "c"}]}));
            start(&mut machine, 0, "id");
            exit(&mut machine, "id", code);
            machine.step(Input::SandboxStopped, now());
            let status = json_of(&machine);
            assert_eq!((&status["phase"], &condition(&status, "Ready")["reason"]), (&json!(phase), &json!(reason)));
            assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], code);
        }
    }

    #[test]
    fn a_failed_pull_shows_its_reason() {
        let mut machine = machine(json!({"containers": [{"name": "c", "image": "x"}]}));
        machine.step(Input::StartFailed { container: 0, error: StartError::Pull, message: "boom".into() }, now());
        let status = json_of(&machine);
        assert_eq!(status["phase"], "Pending");
        assert_eq!(status["containerStatuses"][0]["state"]["waiting"], json!({"reason": "ErrImagePull", "message": "boom"}));
        assert_eq!(status["containerStatuses"][0]["image"], "x");
    }

    #[test]
    fn a_transition_time_stays_while_the_status_does() {
        let mut machine = machine(json!({"containers": [{"name": "c"}]}));
        let first = pod_status(&machine, None, HOST, "mock", now());
        start(&mut machine, 0, "id");
        let later = Timestamp::from_second(1_700_000_060).unwrap();
        let second = pod_status(&machine, Some(&first), HOST, "mock", later);
        let since = |status: &PodStatus, name: &str| {
            status.conditions.iter().flatten().find(|c| c.type_ == name).and_then(|c| c.last_transition_time.clone()).unwrap().0
        };
        assert_eq!(since(&second, "Initialized"), now());
        assert_eq!(since(&second, "Ready"), later);
    }

    #[test]
    fn a_readiness_gate_holds_back_ready_alone() {
        let mut machine = machine(json!({"readinessGates": [{"conditionType": "example.com/lb"}], "containers": [{"name": "c"}]}));
        start(&mut machine, 0, "id");
        let status = json_of(&machine);
        assert_eq!(condition(&status, "ContainersReady")["status"], "True");
        assert_eq!(condition(&status, "Ready")["reason"], "ReadinessGatesNotReady");
    }
}
