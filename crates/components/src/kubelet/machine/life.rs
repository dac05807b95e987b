//! The transitions of [`PodMachine`].

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::container::{ContainerMachine, Kind, State, Terminated, Verdict};
use super::{Action, Input, PodEvent, PodMachine, ProbeKind, Stage, StartError, restart_policy};
use crate::clock::later;
use crate::events::EventType;

/// How long a failed pull is shown as such before it counts as a back-off.
const PULL_ERROR_SHOWN: Duration = Duration::from_secs(1);
/// How long after a failed start it is tried again.
const START_RETRY: Duration = Duration::from_secs(10);
/// How long the containers of a Pod have to stop if nobody said.
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// A delay as Go prints it: `10s`, `2m40s`.
fn go_duration(delay: Duration) -> String {
    match (delay.as_secs() / 60, delay.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}

impl PodMachine {
    /// Takes one input and says what is to be done about it.
    pub fn step(&mut self, input: Input, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        match input {
            Input::Wake => {}
            Input::Updated(pod) => {
                self.take_over_images(&pod, &mut actions);
                self.pod = pod;
            }
            Input::Gone => self.gone = true,
            Input::SandboxReady(sandbox) => {
                self.sandbox = Some(sandbox);
                if self.stage == Stage::SandboxStarting {
                    self.stage = Stage::Up;
                }
            }
            Input::SandboxFailed(message) => {
                let delay = self.sandbox_backoff.next(now, now);
                self.sandbox_retry_at = Some(later(now, delay.min(START_RETRY)));
                actions.push(Action::Event(PodEvent {
                    r#type: EventType::Warning,
                    reason: "FailedCreatePodSandBox",
                    message: format!("Failed to create pod sandbox: {message}"),
                    field_path: None,
                }));
            }
            Input::SandboxStopped => {
                if self.stage == Stage::StoppingSandbox {
                    self.stage = Stage::Stopped;
                }
            }
            Input::Started { container, id, image, image_id, at, ready_after } => {
                if let Some(machine) = self.containers.get_mut(container) {
                    started(machine, container, id, (image, image_id), at, ready_after, &mut actions);
                }
            }
            Input::StartFailed { container, error, message } => {
                if let Some(machine) = self.containers.get_mut(container) {
                    start_failed(machine, error, message, now, &mut actions);
                }
            }
            Input::Exited(terminated) => self.exited(terminated),
            Input::Probed { container, id, kind, result } => self.probed(container, &id, kind, result, &mut actions),
        }
        self.advance(now, &mut actions);
        actions
    }

    /// The image is what may change in a running Pod: the container is restarted with the new one.
    fn take_over_images(&mut self, pod: &Pod, actions: &mut Vec<Action>) {
        let grace = self.default_grace();
        for wanted in pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers)) {
            let known = self.containers.iter_mut().enumerate().find(|(_, known)| known.name == wanted.name);
            let Some((index, container)) = known.filter(|(_, known)| known.spec.image != wanted.image) else { continue };
            container.spec.image.clone_from(&wanted.image);
            if let State::Running { id, stopping, .. } = &mut container.state
                && !std::mem::replace(stopping, true)
            {
                let id = id.clone();
                let message = format!("Container {} definition changed, will be restarted", container.name);
                actions.push(Action::Event(PodEvent::of(container, EventType::Normal, "Killing", message)));
                actions.push(Action::Kill { container: index, id, grace });
            }
        }
    }

    fn exited(&mut self, terminated: Terminated) {
        let Some(container) = self.containers.iter_mut().find(|container| container.running_id() == Some(&terminated.id)) else { return };
        container.state = State::Exited;
        container.ready = false;
        container.started = false;
        container.ready_at = None;
        container.terminated = Some(terminated);
    }

    fn probed(&mut self, index: usize, id: &str, kind: ProbeKind, result: Result<(), String>, actions: &mut Vec<Action>) {
        let grace = self.default_grace();
        let Some(container) = self.containers.get_mut(index).filter(|container| container.running_id() == Some(id)) else { return };
        let Some(probe) = container.probe(kind).cloned() else { return };
        if let State::Running { stopping: true, .. } = container.state {
            return;
        }
        if let Err(output) = &result {
            let message = format!("{} probe failed: {output}", kind.as_str());
            actions.push(Action::Event(PodEvent::of(container, EventType::Warning, "Unhealthy", message)));
        }
        let verdict = container.probes.entry(kind).or_default().count(&probe, result.is_ok());
        let mut again = Some(seconds(probe.period_seconds.unwrap_or(10).into()));
        match (kind, verdict) {
            (_, Verdict::Same) => {}
            (ProbeKind::Readiness, verdict) => container.ready = verdict == Verdict::Passed,
            (ProbeKind::Liveness, Verdict::Passed) => {}
            (ProbeKind::Startup, Verdict::Passed) => {
                container.started = true;
                again = None;
                container.ready = container.probe(ProbeKind::Readiness).is_none() && container.ready_at.is_none();
                first_probes(container, index, id, &[ProbeKind::Liveness, ProbeKind::Readiness], actions);
            }
            (ProbeKind::Liveness | ProbeKind::Startup, Verdict::Failed) => {
                let word = if kind == ProbeKind::Liveness { "liveness" } else { "startup" };
                let message = format!("Container {} failed {word} probe, will be restarted", container.name);
                actions.push(Action::Event(PodEvent::of(container, EventType::Normal, "Killing", message)));
                let grace = probe.termination_grace_period_seconds.map_or(grace, seconds);
                if let State::Running { stopping, .. } = &mut container.state {
                    *stopping = true;
                }
                container.ready = false;
                actions.push(Action::Kill { container: index, id: id.to_owned(), grace });
                again = None;
            }
        }
        if let Some(after) = again {
            actions.push(Action::Probe { container: index, id: id.to_owned(), kind, after });
        }
    }

    fn default_grace(&self) -> Duration {
        let seconds_given = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        seconds_given.map_or(DEFAULT_GRACE, seconds)
    }

    /// Does whatever can be done now.
    fn advance(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        if self.is_deleting() {
            let asked = self.pod.metadata.deletion_grace_period_seconds.map(seconds);
            self.grace = Some(if self.gone { Duration::ZERO } else { asked.unwrap_or_else(|| self.default_grace()) });
            self.finish();
        } else if self.failure.is_none()
            && !matches!(self.stage, Stage::Finishing | Stage::StoppingSandbox | Stage::Stopped)
            && self.active_deadline().is_some_and(|deadline| deadline <= now)
        {
            let message = "Pod was active on the node longer than the specified deadline".to_owned();
            actions.push(Action::Event(PodEvent {
                r#type: EventType::Normal,
                reason: "DeadlineExceeded",
                message: message.clone(),
                field_path: None,
            }));
            self.failure = Some(("DeadlineExceeded", message));
            self.finish();
        }
        match self.stage {
            Stage::New => self.run_sandbox(actions),
            Stage::SandboxStarting if self.sandbox_retry_at.is_some_and(|at| at <= now) => self.run_sandbox(actions),
            Stage::Up => self.advance_containers(now, actions),
            _ => {}
        }
        if self.stage == Stage::Finishing {
            self.advance_finish(actions);
        }
    }

    fn finish(&mut self) {
        if matches!(self.stage, Stage::New | Stage::SandboxStarting | Stage::Up) {
            self.stage = Stage::Finishing;
            self.sandbox_retry_at = None;
        }
    }

    fn run_sandbox(&mut self, actions: &mut Vec<Action>) {
        self.stage = Stage::SandboxStarting;
        self.sandbox_retry_at = None;
        actions.push(Action::RunSandbox { attempt: self.sandbox_attempts });
        self.sandbox_attempts += 1;
    }

    fn advance_containers(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let policy = restart_policy(&self.pod).to_owned();
        let display = self.display();
        let (mut blocked, mut failed) = (false, false);
        for (index, container) in self.containers.iter_mut().enumerate() {
            if container.ready_at.is_some_and(|at| at <= now) && container.running_id().is_some() {
                container.ready_at = None;
                container.ready = container.started;
            }
            match container.kind {
                Kind::Init if self.initialized || blocked => {}
                Kind::Init if container.has_succeeded() => {}
                Kind::Init => {
                    if container.state == State::Exited && policy == "Never" {
                        failed = true;
                        break;
                    }
                    try_start(container, index, &display, true, now, actions);
                    blocked = true;
                }
                Kind::Sidecar if blocked && !self.initialized => {}
                Kind::Sidecar => {
                    try_start(container, index, &display, true, now, actions);
                    blocked |= !container.started && !self.initialized;
                }
                Kind::Main if blocked => {}
                Kind::Main => {
                    self.initialized = true;
                    let again = restarts(container, &policy);
                    try_start(container, index, &display, again, now, actions);
                }
            }
        }
        let mut mains = self.containers.iter().filter(|container| container.kind == Kind::Main).peekable();
        let any = mains.peek().is_some();
        if failed || any && mains.all(|container| container.state == State::Exited && !restarts(container, &policy)) {
            self.finish();
        }
    }

    /// Stops what runs: main and init containers together, then the sidecars, last one first.
    fn advance_finish(&mut self, actions: &mut Vec<Action>) {
        let grace = self.grace.unwrap_or_else(|| self.default_grace());
        let mut running = false;
        for (index, container) in self.containers.iter_mut().enumerate().filter(|(_, container)| container.kind != Kind::Sidecar) {
            running |= kill(container, index, grace, actions);
        }
        if running {
            return;
        }
        for (index, container) in self.containers.iter_mut().enumerate().rev().filter(|(_, container)| container.kind == Kind::Sidecar) {
            if kill(container, index, grace, actions) {
                return;
            }
        }
        self.stage = match &self.sandbox {
            Some(sandbox) => {
                actions.push(Action::StopSandbox { id: sandbox.id.clone() });
                Stage::StoppingSandbox
            }
            None => Stage::Stopped,
        };
    }
}

/// Sees to it that a container ends, and says whether it still runs.
fn kill(container: &mut ContainerMachine, index: usize, grace: Duration, actions: &mut Vec<Action>) -> bool {
    // What has not started yet never will: a start that still succeeds is stopped right away.
    if container.state == State::Starting {
        container.state = if container.terminated.is_some() { State::Exited } else { State::Waiting };
    }
    let State::Running { id, stopping, .. } = &mut container.state else { return false };
    if !std::mem::replace(stopping, true) {
        let id = id.clone();
        let message = format!("Stopping container {}", container.name);
        actions.push(Action::Event(PodEvent::of(container, EventType::Normal, "Killing", message)));
        actions.push(Action::Kill { container: index, id, grace });
    }
    true
}

/// Whether a container that has ended is to be started again.
fn restarts(container: &ContainerMachine, policy: &str) -> bool {
    match container.spec.restart_policy.as_deref().unwrap_or(policy) {
        "Never" => false,
        "OnFailure" => !container.has_succeeded(),
        _ => true,
    }
}

fn started(
    container: &mut ContainerMachine,
    index: usize,
    id: String,
    (image, image_id): (String, String),
    at: Timestamp,
    ready_after: Duration,
    actions: &mut Vec<Action>,
) {
    if container.terminated.is_some() {
        container.last = container.terminated.take();
    }
    container.state = State::Running { id: id.clone(), since: at, stopping: false };
    container.shown = None;
    (container.image, container.image_id) = (image, image_id);
    container.probes.clear();
    container.ready_at = (!ready_after.is_zero() && container.kind != Kind::Init).then(|| later(at, ready_after));
    container.started = container.probe(ProbeKind::Startup).is_none();
    container.ready = container.kind != Kind::Init
        && container.started
        && container.probe(ProbeKind::Readiness).is_none()
        && container.ready_at.is_none();
    if container.probe(ProbeKind::Readiness).is_some() {
        // The probe says when.
        container.ready_at = None;
    }
    if container.started {
        first_probes(container, index, &id, &[ProbeKind::Liveness, ProbeKind::Readiness], actions);
    } else {
        first_probes(container, index, &id, &[ProbeKind::Startup], actions);
    }
}

fn first_probes(container: &ContainerMachine, index: usize, id: &str, kinds: &[ProbeKind], actions: &mut Vec<Action>) {
    for kind in kinds {
        if let Some(probe) = container.probe(*kind) {
            let after = seconds(probe.initial_delay_seconds.unwrap_or_default().into());
            actions.push(Action::Probe { container: index, id: id.to_owned(), kind: *kind, after });
        }
    }
}

fn start_failed(container: &mut ContainerMachine, error: StartError, message: String, now: Timestamp, actions: &mut Vec<Action>) {
    if container.state != State::Starting {
        return;
    }
    let image = container.spec.image.clone().unwrap_or_default();
    let mut event = |container: &ContainerMachine, message: String| {
        actions.push(Action::Event(PodEvent::of(container, EventType::Warning, "Failed", message)));
    };
    match error {
        StartError::Pull => {
            event(container, format!("Failed to pull image \"{image}\": {message}"));
            event(container, "Error: ErrImagePull".into());
            let delay = container.pull_backoff.next(now, now);
            container.state = State::PullFailed { shown_until: later(now, PULL_ERROR_SHOWN), retry_at: later(now, delay) };
        }
        StartError::InvalidImageName => {
            actions.push(Action::Event(PodEvent::of(container, EventType::Warning, "InspectFailed", message.clone())));
            actions.push(Action::Event(PodEvent::of(container, EventType::Warning, "Failed", "Error: InvalidImageName".into())));
            container.state = State::StartFailed { retry_at: None };
        }
        StartError::NeverPull => {
            actions.push(Action::Event(PodEvent::of(container, EventType::Warning, "ErrImageNeverPull", message.clone())));
            actions.push(Action::Event(PodEvent::of(container, EventType::Warning, "Failed", "Error: ErrImageNeverPull".into())));
            container.state = State::StartFailed { retry_at: Some(later(now, START_RETRY)) };
        }
        StartError::Config | StartError::Create | StartError::Run => {
            event(container, format!("Error: {message}"));
            container.state = State::StartFailed { retry_at: Some(later(now, START_RETRY)) };
        }
    }
    container.shown = Some((error.reason(), message));
}

/// Starts a container if it is time to. `again` says whether one that has ended is to be started again.
fn try_start(container: &mut ContainerMachine, index: usize, pod: &str, again: bool, now: Timestamp, actions: &mut Vec<Action>) {
    let go = match &container.state {
        State::Waiting => true,
        State::PullFailed { shown_until, retry_at } if *shown_until <= now => {
            let retry_at = *retry_at;
            let image = container.spec.image.clone().unwrap_or_default();
            let message = format!("Back-off pulling image \"{image}\"");
            actions.push(Action::Event(PodEvent::of(container, EventType::Normal, "BackOff", message.clone())));
            actions.push(Action::Event(PodEvent::of(container, EventType::Warning, "Failed", "Error: ImagePullBackOff".into())));
            let cause = container.shown.take().map(|(reason, cause)| format!(": {reason}: {cause}")).unwrap_or_default();
            container.shown = Some(("ImagePullBackOff", format!("{message}{cause}")));
            container.state = State::PullBackOff { retry_at };
            false
        }
        State::PullBackOff { retry_at } => *retry_at <= now,
        State::StartFailed { retry_at } => retry_at.is_some_and(|at| at <= now),
        State::Exited if again => {
            let finished = container.terminated.as_ref().map_or(now, |terminated| terminated.finished_at);
            match container.backoff.until(finished, now) {
                Some((until, delay)) => {
                    let message = format!("Back-off restarting failed container {} in pod {pod}", container.name);
                    actions.push(Action::Event(PodEvent::of(container, EventType::Warning, "BackOff", message)));
                    let message = format!("back-off {} restarting failed container={} pod={pod}", go_duration(delay), container.name);
                    container.shown = Some(("CrashLoopBackOff", message));
                    container.state = State::CrashBackOff { until, delay };
                    false
                }
                None => {
                    container.backoff.next(finished, now);
                    container.restart_count += 1;
                    true
                }
            }
        }
        State::CrashBackOff { until, .. } if *until <= now => {
            let finished = container.terminated.as_ref().map_or(now, |terminated| terminated.finished_at);
            container.backoff.next(finished, now);
            container.restart_count += 1;
            true
        }
        _ => false,
    };
    if go {
        container.state = State::Starting;
        actions.push(Action::Start { container: index });
    }
}
