//! One container of a Pod: where it is in its life, and what its probes have found.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Probe};

use super::super::backoff::Backoff;
use crate::cri::ProbeKind;

/// What a container is to its Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Runs to its end before the next one starts.
    Init,
    /// Starts in its turn among the init containers and keeps running.
    Sidecar,
    /// What the Pod is for.
    Main,
}

/// How a run of a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terminated {
    /// The runtime's id of the container.
    pub id: String,
    /// Its exit code.
    pub exit_code: i32,
    /// Why, in a word.
    pub reason: String,
    /// Why, in words.
    pub message: String,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Timestamp,
}

/// Where a container is. See the table in the module above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It is not its turn yet.
    Waiting,
    /// The image is being fetched, the container made and started.
    Starting,
    /// Fetching the image failed a moment ago.
    PullFailed {
        /// When it becomes a back-off.
        shown_until: Timestamp,
        /// When it is tried again.
        retry_at: Timestamp,
    },
    /// Fetching the image failed; it will be tried again.
    PullBackOff {
        /// When.
        retry_at: Timestamp,
    },
    /// Making or starting the container failed; it will be tried again, unless the reason can only go away with the Pod.
    StartFailed {
        /// When.
        retry_at: Option<Timestamp>,
    },
    /// It runs.
    Running {
        /// The runtime's id.
        id: String,
        /// Since when.
        since: Timestamp,
        /// Whether it is being stopped.
        stopping: bool,
    },
    /// It has ended.
    Exited,
    /// It has ended too often; it will be started again.
    CrashBackOff {
        /// When.
        until: Timestamp,
        /// How long it is held off altogether.
        delay: Duration,
    },
}

/// What a probe has found so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounter {
    passed: bool,
    run: i32,
    last: Option<bool>,
}

/// What follows from a probe's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing changes.
    Same,
    /// It counts as passed from now on.
    Passed,
    /// It counts as failed from now on.
    Failed,
}

impl ProbeCounter {
    /// Counts a result against the thresholds.
    pub fn count(&mut self, probe: &Probe, success: bool) -> Verdict {
        self.run = if self.last == Some(success) { self.run.saturating_add(1) } else { 1 };
        self.last = Some(success);
        let threshold = if success { probe.success_threshold.unwrap_or(1) } else { probe.failure_threshold.unwrap_or(3) };
        if self.run < threshold {
            return Verdict::Same;
        }
        match (success, self.passed) {
            (true, false) => {
                self.passed = true;
                Verdict::Passed
            }
            (true, true) => Verdict::Same,
            // Told again and again: whoever kills the container because of it does so once.
            (false, _) => {
                self.passed = false;
                Verdict::Failed
            }
        }
    }
}

/// One container of a Pod.
#[derive(Clone, Debug)]
pub struct ContainerMachine {
    /// Its name.
    pub name: String,
    /// What it is to the Pod.
    pub kind: Kind,
    /// Its specification.
    pub spec: Container,
    /// Where it is.
    pub state: State,
    /// What to show while it waits: reason and message.
    pub shown: Option<(&'static str, String)>,
    /// How often it has been started again.
    pub restart_count: i32,
    /// How its latest run ended.
    pub terminated: Option<Terminated>,
    /// How the run before that ended.
    pub last: Option<Terminated>,
    /// The image as the runtime names it.
    pub image: String,
    /// The image's digest.
    pub image_id: String,
    /// Whether it has started, as far as the startup probe can tell.
    pub started: bool,
    /// Whether it is ready, as far as the readiness probe can tell.
    pub ready: bool,
    /// When it becomes ready by itself, without a probe.
    pub ready_at: Option<Timestamp>,
    /// Its restarts' back-off.
    pub backoff: Backoff,
    /// Its image's back-off.
    pub pull_backoff: Backoff,
    /// Its probes' results.
    pub probes: BTreeMap<ProbeKind, ProbeCounter>,
}

impl ContainerMachine {
    /// A container whose turn has not come.
    #[must_use]
    pub fn new(spec: &Container, kind: Kind) -> Self {
        Self {
            name: spec.name.clone(),
            kind,
            spec: spec.clone(),
            state: State::Waiting,
            shown: None,
            restart_count: 0,
            terminated: None,
            last: None,
            image: String::new(),
            image_id: String::new(),
            started: false,
            ready: false,
            ready_at: None,
            backoff: Backoff::default(),
            pull_backoff: Backoff::default(),
            probes: BTreeMap::new(),
        }
    }

    /// The id of the running container, if it runs.
    #[must_use]
    pub fn running_id(&self) -> Option<&str> {
        match &self.state {
            State::Running { id, .. } => Some(id),
            _ => None,
        }
    }

    /// Whether it has ended with code 0.
    #[must_use]
    pub fn has_succeeded(&self) -> bool {
        self.state == State::Exited && self.terminated.as_ref().is_some_and(|terminated| terminated.exit_code == 0)
    }

    /// The probe of a kind, if it has one. Init containers have none.
    #[must_use]
    pub fn probe(&self, kind: ProbeKind) -> Option<&Probe> {
        if self.kind == Kind::Init {
            return None;
        }
        match kind {
            ProbeKind::Startup => self.spec.startup_probe.as_ref(),
            ProbeKind::Liveness => self.spec.liveness_probe.as_ref(),
            ProbeKind::Readiness => self.spec.readiness_probe.as_ref(),
        }
    }

    /// The start of the next deadline this container waits for.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        match &self.state {
            State::PullFailed { shown_until, .. } => Some(*shown_until),
            State::PullBackOff { retry_at } => Some(*retry_at),
            State::StartFailed { retry_at } => *retry_at,
            State::CrashBackOff { until, .. } => Some(*until),
            State::Running { .. } => self.ready_at,
            State::Waiting | State::Starting | State::Exited => None,
        }
    }

    /// The path of the container inside its Pod, as events name it.
    #[must_use]
    pub fn field_path(&self) -> String {
        let list = if self.kind == Kind::Main { "containers" } else { "initContainers" };
        format!("spec.{list}{{{}}}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_changes_its_mind_only_at_the_threshold() {
        let probe = Probe { failure_threshold: Some(2), success_threshold: Some(1), ..Probe::default() };
        let mut counter = ProbeCounter::default();
        assert_eq!(counter.count(&probe, true), Verdict::Passed);
        assert_eq!(counter.count(&probe, false), Verdict::Same);
        assert_eq!(counter.count(&probe, true), Verdict::Same);
        assert_eq!(counter.count(&probe, false), Verdict::Same);
        assert_eq!(counter.count(&probe, false), Verdict::Failed);
    }
}
