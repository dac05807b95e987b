//! The life of a Pod, transition by transition.

use super::*;
use crate::clock::later;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::sync::Arc;

struct Bench {
    machine: PodMachine,
    now: Timestamp,
    ids: usize,
}

fn pod(spec: Value) -> Arc<Pod> {
    Arc::new(serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec})).unwrap())
}

impl Bench {
    fn new(spec: Value) -> Self {
        let now = Timestamp::from_second(1_000_000).unwrap();
        Self { machine: PodMachine::new(pod(spec), now), now, ids: 0 }
    }

    fn up(spec: Value) -> (Self, Vec<Action>) {
        let mut bench = Self::new(spec);
        assert_eq!(bench.step(Input::Wake), [Action::RunSandbox { attempt: 0 }]);
        let actions = bench.step(Input::SandboxReady(Sandbox { id: "s".into(), ips: Vec::new() }));
        (bench, actions)
    }

    fn step(&mut self, input: Input) -> Vec<Action> {
        self.machine.step(input, self.now)
    }

    fn wait(&mut self, time: u64) -> Vec<Action> {
        self.now = later(self.now, Duration::from_secs(time));
        self.step(Input::Wake)
    }

    fn started(&mut self, container: usize) -> Vec<Action> {
        self.ids += 1;
        let id = format!("{container}-{}", self.ids);
        self.step(Input::Started { container, id, image: "i".into(), image_id: "d".into(), at: self.now, ready_after: Duration::ZERO })
    }

    fn exited(&mut self, container: usize, exit_code: i32) -> Vec<Action> {
        let id = self.machine.containers[container].running_id().unwrap().to_owned();
        self.step(Input::Exited(Terminated {
            id,
            exit_code,
            reason: "Error".into(),
            message: String::new(),
            started_at: self.now,
            finished_at: self.now,
        }))
    }

    fn state(&self, container: usize) -> &State {
        &self.machine.containers[container].state
    }
}

fn starts(actions: &[Action]) -> Vec<usize> {
    actions.iter().filter_map(|action| if let Action::Start { container } = action { Some(*container) } else { None }).collect()
}

fn kills(actions: &[Action]) -> Vec<(usize, u64)> {
    let kill =
        |action: &Action| if let Action::Kill { container, grace, .. } = action { Some((*container, grace.as_secs())) } else { None };
    actions.iter().filter_map(kill).collect()
}

fn events(actions: &[Action]) -> Vec<String> {
    let event =
        |action: &Action| if let Action::Event(event) = action { Some(format!("{} {}", event.reason, event.message)) } else { None };
    actions.iter().filter_map(event).collect()
}

#[test]
fn main_containers_start_together_once_the_sandbox_is_ready() {
    let (mut bench, actions) = Bench::up(json!({"containers": [{"name": "a"}, {"name": "b"}]}));
    assert_eq!(starts(&actions), [0, 1]);
    bench.started(0);
    assert!(bench.machine.containers[0].ready);
}

#[test]
fn init_containers_run_one_after_the_other_before_the_main_ones() {
    let (mut bench, actions) = Bench::up(json!({"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}]}));
    assert_eq!(starts(&actions), [0]);
    assert!(starts(&bench.started(0)).is_empty());
    assert_eq!(starts(&bench.exited(0, 0)), [1]);
    bench.started(1);
    assert_eq!(starts(&bench.exited(1, 0)), [2]);
    assert!(bench.machine.initialized);
}

#[test]
fn a_failed_init_container_fails_a_pod_that_never_restarts() {
    let (mut bench, _) = Bench::up(json!({"restartPolicy": "Never", "initContainers": [{"name": "i"}], "containers": [{"name": "a"}]}));
    bench.started(0);
    assert_eq!(bench.exited(0, 1), [Action::StopSandbox { id: "s".into() }]);
    bench.step(Input::SandboxStopped);
    assert!(bench.machine.is_stopped());
}

#[test]
fn a_sidecar_lets_the_next_start_once_it_has_started_and_is_stopped_last() {
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [{"name": "s", "restartPolicy": "Always", "startupProbe": {}}],
        "containers": [{"name": "a"}],
    });
    let (mut bench, actions) = Bench::up(spec);
    assert_eq!(starts(&actions), [0]);
    assert!(starts(&bench.started(0)).is_empty(), "the startup probe has not passed");
    let id = bench.machine.containers[0].running_id().unwrap().to_owned();
    assert_eq!(starts(&bench.step(Input::Probed { container: 0, id, kind: ProbeKind::Startup, result: Ok(()) })), [1]);
    bench.started(1);
    assert_eq!(kills(&bench.exited(1, 0)), [(0, 30)], "the sidecar goes when the main container is done");
    assert_eq!(bench.exited(0, 0), [Action::StopSandbox { id: "s".into() }]);
}

#[test]
fn a_crashing_container_is_restarted_once_at_once_and_then_with_a_doubling_back_off() {
    let (mut bench, _) = Bench::up(json!({"containers": [{"name": "a"}]}));
    bench.started(0);
    assert_eq!(starts(&bench.exited(0, 1)), [0]);
    bench.started(0);
    let actions = bench.exited(0, 1);
    assert_eq!(events(&actions), ["BackOff Back-off restarting failed container a in pod p_ns(u)"]);
    assert!(matches!(bench.state(0), State::CrashBackOff { delay, .. } if delay.as_secs() == 10));
    assert_eq!(bench.machine.containers[0].shown.as_ref().unwrap().1, "back-off 10s restarting failed container=a pod=p_ns(u)");
    assert!(starts(&bench.wait(9)).is_empty());
    assert_eq!(starts(&bench.wait(1)), [0]);
    bench.started(0);
    bench.exited(0, 1);
    assert!(matches!(bench.state(0), State::CrashBackOff { delay, .. } if delay.as_secs() == 20));
    assert_eq!(bench.machine.containers[0].restart_count, 2);
    assert_eq!(bench.machine.deadline(), Some(later(bench.now, Duration::from_secs(20))));
}

#[test]
fn restart_policies_decide_whether_the_pod_is_done() {
    for (policy, code, again) in [
        ("Always", 0, true),
        ("Always", 1, true),
        ("OnFailure", 0, false),
        ("OnFailure", 1, true),
        ("Never", 0, false),
        ("Never", 1, false),
    ] {
        let (mut bench, _) = Bench::up(json!({"restartPolicy": policy, "containers": [{"name": "a"}]}));
        bench.started(0);
        let actions = bench.exited(0, code);
        assert_eq!(starts(&actions) == [0], again, "{policy} {code}");
        assert_eq!(actions.contains(&Action::StopSandbox { id: "s".into() }), !again, "{policy} {code}");
    }
}

#[test]
fn a_failed_pull_is_shown_then_backed_off_then_tried_again() {
    let (mut bench, _) = Bench::up(json!({"containers": [{"name": "a", "image": "x"}]}));
    let fail = || Input::StartFailed { container: 0, error: StartError::Pull, message: "no such host".into() };
    let actions = bench.step(fail());
    assert_eq!(events(&actions), ["Failed Failed to pull image \"x\": no such host", "Failed Error: ErrImagePull"]);
    assert_eq!(bench.machine.containers[0].shown.as_ref().unwrap().0, "ErrImagePull");
    let actions = bench.wait(1);
    assert_eq!(events(&actions), ["BackOff Back-off pulling image \"x\"", "Failed Error: ImagePullBackOff"]);
    assert_eq!(
        bench.machine.containers[0].shown.clone().unwrap(),
        ("ImagePullBackOff", "Back-off pulling image \"x\": ErrImagePull: no such host".to_owned())
    );
    assert!(starts(&bench.wait(8)).is_empty());
    assert_eq!(starts(&bench.wait(1)), [0]);
    bench.step(fail());
    bench.wait(10);
    assert_eq!(starts(&bench.wait(10)), [0], "the second back-off is twenty seconds");
}

#[test]
fn deletion_kills_with_the_grace_period_and_then_stops_the_sandbox() {
    let (mut bench, _) = Bench::up(json!({"containers": [{"name": "a"}, {"name": "b"}]}));
    bench.started(0);
    let mut deleted = (*bench.machine.pod).clone();
    deleted.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(bench.now));
    deleted.metadata.deletion_grace_period_seconds = Some(7);
    let actions = bench.step(Input::Updated(Arc::new(deleted)));
    assert_eq!(events(&actions), ["Killing Stopping container a"]);
    assert_eq!(kills(&actions), [(0, 7)]);
    // A start that was under way when the deletion came is undone.
    assert_eq!(kills(&bench.started(1)), [(1, 7)]);
    bench.exited(0, 0);
    assert_eq!(bench.exited(1, 0), [Action::StopSandbox { id: "s".into() }]);
    bench.step(Input::SandboxStopped);
    assert!(bench.machine.is_stopped() && bench.machine.is_deleting());
}

#[test]
fn a_failed_liveness_probe_kills_and_restarts_the_container() {
    let (mut bench, _) = Bench::up(json!({"containers": [{"name": "a", "livenessProbe": {"failureThreshold": 2, "periodSeconds": 5}}]}));
    let actions = bench.started(0);
    let id = bench.machine.containers[0].running_id().unwrap().to_owned();
    assert_eq!(actions, [Action::Probe { container: 0, id: id.clone(), kind: ProbeKind::Liveness, after: Duration::ZERO }]);
    let fail = || Input::Probed { container: 0, id: id.clone(), kind: ProbeKind::Liveness, result: Err("bad".into()) };
    let actions = bench.step(fail());
    assert_eq!(events(&actions), ["Unhealthy Liveness probe failed: bad"]);
    let actions = bench.step(fail());
    assert_eq!(events(&actions), ["Unhealthy Liveness probe failed: bad", "Killing Container a failed liveness probe, will be restarted"]);
    assert_eq!(kills(&actions), [(0, 30)]);
    assert_eq!(starts(&bench.exited(0, 137)), [0]);
}

#[test]
fn a_changed_image_restarts_the_container() {
    let (mut bench, _) = Bench::up(json!({"containers": [{"name": "a", "image": "x:1"}]}));
    bench.started(0);
    let actions = bench.step(Input::Updated(pod(json!({"containers": [{"name": "a", "image": "x:2"}]}))));
    assert_eq!(events(&actions), ["Killing Container a definition changed, will be restarted"]);
    assert_eq!(kills(&actions), [(0, 30)]);
    assert_eq!(starts(&bench.exited(0, 0)), [0]);
    assert_eq!(bench.machine.containers[0].spec.image.as_deref(), Some("x:2"));
}

#[test]
fn readiness_follows_its_probe() {
    let (mut bench, _) = Bench::up(json!({"containers": [{"name": "a", "readinessProbe": {"failureThreshold": 1}}]}));
    bench.started(0);
    assert!(!bench.machine.containers[0].ready);
    let id = bench.machine.containers[0].running_id().unwrap().to_owned();
    let mut probe = |result: Result<(), String>| {
        bench.step(Input::Probed { container: 0, id: id.clone(), kind: ProbeKind::Readiness, result });
        bench.machine.containers[0].ready
    };
    assert!(probe(Ok(())));
    assert!(!probe(Err("no".into())));
}

#[test]
fn a_pod_that_outlives_its_deadline_fails() {
    let (mut bench, _) = Bench::up(json!({"activeDeadlineSeconds": 60, "containers": [{"name": "a"}]}));
    bench.started(0);
    assert_eq!(bench.machine.deadline(), Some(later(bench.now, Duration::from_secs(60))));
    assert_eq!(kills(&bench.wait(60)), [(0, 30)]);
    assert_eq!(bench.machine.failure.as_ref().unwrap().0, "DeadlineExceeded");
}

#[test]
fn a_sandbox_that_cannot_be_made_is_tried_again() {
    let mut bench = Bench::new(json!({"containers": [{"name": "a"}]}));
    bench.step(Input::Wake);
    let actions = bench.step(Input::SandboxFailed("no addresses".into()));
    assert_eq!(events(&actions), ["FailedCreatePodSandBox Failed to create pod sandbox: no addresses"]);
    assert_eq!(bench.wait(10), [Action::RunSandbox { attempt: 1 }]);
}

#[test]
fn a_pod_that_has_finished_before_is_not_run_again() {
    let mut pod = (*pod(json!({"containers": [{"name": "a"}]}))).clone();
    pod.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
    let now = Timestamp::UNIX_EPOCH;
    let mut machine = PodMachine::new(Arc::new(pod), now);
    assert!(machine.step(Input::Wake, now).is_empty());
}
