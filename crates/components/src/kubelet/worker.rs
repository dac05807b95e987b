//! The worker of one Pod: carries out what its machine asks for, writes its status, sends its events, deletes it when it is done.
//!
//! Everything that is ready at once is done before the status is written, so that a Pod whose containers start at once goes from
//! bound to Running with a single write. Events follow the status: they are for people, and people read slowly.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::json;
use tokio::sync::mpsc;

use super::agent::{Agent, LeftBehind};
use super::api::{self, ApiError};
use super::jobs::Job;
use super::machine::{Action, Input, PodEvent, PodMachine, Terminated};
use super::status::pod_status;
use crate::clock::later;
use crate::cri::v1::RemoveContainerRequest;
use crate::events::regarding;
use crate::runtime::{cause, revision_of};

/// How long after a failed request it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// How long a status stands back at most while the scheduler of this process still gives other Pods their nodes. The nodes of a cluster
/// do not take the time for their work from the scheduler; those that share its machine should not either.
const PATIENCE: Duration = Duration::from_secs(1);

/// News from outside.
#[derive(Debug)]
pub(super) enum Mail {
    Updated(Arc<Pod>),
    Gone,
    Exited(Terminated),
    /// A static Pod's mirror has just been made and knows nothing yet.
    Mirrored,
}

/// What a job reports.
enum Report {
    Input(Input),
    Written(Box<PodStatus>, Result<u64, ApiError>),
    Deleted(Result<(), ApiError>),
    Removed,
}

pub(super) struct Worker {
    agent: Arc<Agent>,
    machine: PodMachine,
    mail: mpsc::UnboundedReceiver<Mail>,
    jobs: FuturesUnordered<BoxFuture<'static, Report>>,
    events: Arc<parking_lot::Mutex<Vec<PodEvent>>>,
    /// A static Pod has a mirror in the API, which others make and delete.
    is_static: bool,
    written: Option<PodStatus>,
    /// The revision that the latest write made.
    revision: u64,
    writing: bool,
    deleting: bool,
    removing: bool,
    retry_at: Option<Timestamp>,
}

impl Worker {
    pub(super) fn new(
        agent: Arc<Agent>,
        pod: Arc<Pod>,
        mail: mpsc::UnboundedReceiver<Mail>,
        is_static: bool,
        left_behind: Option<LeftBehind>,
    ) -> Self {
        if let Some(status) = pod.status.as_ref().filter(|status| status.container_statuses.is_some()) {
            agent.know(&pod, status);
        }
        let mut machine = PodMachine::new(pod, agent.clock.now());
        if let Some(LeftBehind { sandbox, containers }) = left_behind {
            machine.adopt(sandbox, containers);
        }
        Self {
            agent,
            machine,
            mail,
            jobs: FuturesUnordered::new(),
            events: Arc::default(),
            is_static,
            written: None,
            revision: 0,
            writing: false,
            deleting: false,
            removing: false,
            retry_at: None,
        }
    }

    /// Works until the Pod is gone from the API and from the node.
    pub(super) async fn work(mut self) {
        let mut done = self.step(Input::Wake);
        while !done {
            // Whatever is ready goes first.
            if let Ok(mail) = self.mail.try_recv() {
                done = self.read(mail);
                continue;
            }
            if let Some(Some(report)) = self.jobs.next().now_or_never() {
                done = self.take(report);
                continue;
            }
            self.settle();
            let deadline = self.machine.deadline().into_iter().chain(self.retry_at).min();
            tokio::select! {
                mail = self.mail.recv() => match mail {
                    Some(mail) => done = self.read(mail),
                    None => done = true,
                },
                Some(report) = self.jobs.next(), if !self.jobs.is_empty() => done = self.take(report),
                () = self.agent.clock.sleep_until(deadline.unwrap_or(Timestamp::MAX)), if deadline.is_some() => {
                    self.retry_at = self.retry_at.filter(|at| *at > self.agent.clock.now());
                    done = self.step(Input::Wake);
                }
            }
        }
        self.agent.forget(&self.machine.pod);
    }

    fn read(&mut self, mail: Mail) -> bool {
        match mail {
            // A copy from the cache may come after news from the watch.
            Mail::Updated(pod) if revision_of(&pod.metadata) < revision_of(&self.machine.pod.metadata) => false,
            Mail::Updated(pod) => {
                // Somebody else has changed what only the kubelet knows, such as a controller that took the node for dead.
                if revision_of(&pod.metadata) > self.revision && self.written.as_ref().is_some_and(|written| contradicts(&pod, written)) {
                    self.written = None;
                }
                self.step(Input::Updated(pod))
            }
            Mail::Gone => self.step(Input::Gone),
            Mail::Exited(run) => self.step(Input::Exited(run)),
            Mail::Mirrored => {
                self.written = None;
                false
            }
        }
    }

    fn take(&mut self, report: Report) -> bool {
        match report {
            Report::Input(input) => return self.step(input),
            Report::Written(status, result) => {
                self.writing = false;
                match result {
                    Ok(revision) => {
                        self.written = Some(*status);
                        self.revision = revision;
                    }
                    // Deleted meanwhile: the watch will tell.
                    Err(error) if error.is(StatusCode::NOT_FOUND) => self.written = Some(*status),
                    Err(error) => {
                        tracing::warn!(pod = %self.machine.display(), %error, "the Pod's status could not be written");
                        self.retry_at = Some(later(self.agent.clock.now(), RETRY));
                    }
                }
            }
            Report::Deleted(result) => match result {
                Ok(()) => {}
                Err(error) if error.is(StatusCode::NOT_FOUND) => {}
                Err(error) => {
                    tracing::warn!(pod = %self.machine.display(), %error, "the Pod could not be deleted");
                    self.deleting = false;
                    self.retry_at = Some(later(self.agent.clock.now(), RETRY));
                }
            },
            Report::Removed => return true,
        }
        false
    }

    /// Feeds the machine and sets going what it asks for. Says whether the worker's work is over.
    fn step(&mut self, input: Input) -> bool {
        let _busy = self.agent.clock.busy();
        let superseded = match &input {
            Input::Started { container, .. } => {
                self.machine.containers.get(*container).and_then(|c| c.last.as_ref()).map(|run| run.id.clone())
            }
            _ => None,
        };
        for action in self.machine.step(input, self.agent.clock.now()) {
            self.carry_out(action);
        }
        // Of each container the latest run and the one before are kept, for their logs.
        if let Some(id) = superseded {
            let agent = self.agent.clone();
            tokio::spawn(async move {
                let _ = agent.runtime.remove_container(RemoveContainerRequest { container_id: id }).await;
            });
        }
        if self.machine.gone && self.machine.is_stopped() && !self.removing {
            self.removing = true;
            let (agent, pod) = (self.agent.clone(), self.machine.pod.clone());
            self.jobs.push(Box::pin(async move {
                agent.remove_sandboxes(&pod).await;
                Report::Removed
            }));
        }
        false
    }

    fn carry_out(&mut self, action: Action) {
        let job = Job { agent: self.agent.clone(), pod: self.machine.pod.clone(), events: self.events.clone() };
        let container = |index: usize| self.machine.containers.get(index).cloned();
        let sandbox = self.machine.sandbox.clone().unwrap_or_default();
        let pod_ip = sandbox.ips.first().map(ToString::to_string).unwrap_or_default();
        let work: Option<BoxFuture<'static, Input>> = match action {
            Action::Event(event) => {
                self.events.lock().push(event);
                None
            }
            Action::RunSandbox { attempt } => Some(job.run_sandbox(attempt).boxed()),
            Action::StopSandbox { id } => Some(job.stop_sandbox(id).boxed()),
            Action::Start { container: index } => container(index).map(|machine| job.start(index, machine, sandbox).boxed()),
            Action::Kill { container: index, id, grace } => container(index).map(|machine| job.kill(machine, id, pod_ip, grace).boxed()),
            Action::Probe { container: index, id, kind, after } => {
                container(index).map(|machine| job.probe(index, machine, id, pod_ip, kind, after).boxed())
            }
        };
        if let Some(work) = work {
            self.jobs.push(work.map(Report::Input).boxed());
        }
    }

    /// Nothing is left to do at once: writes the status if it has changed, then sends the events, then deletes what is done.
    fn settle(&mut self) {
        if self.retry_at.is_some() || self.machine.gone {
            self.send_events();
            return;
        }
        if self.writing {
            return;
        }
        // A Pod that had finished before this kubelet came keeps the status it has.
        let finished_before =
            self.machine.is_stopped() && self.machine.sandbox.is_none() && self.written.is_none() && !started_here(&self.machine);
        if !finished_before {
            let runtime = self.agent.runtime_name.lock().clone();
            let status = pod_status(&self.machine, self.written.as_ref(), self.agent.host_ip, &runtime, self.agent.clock.now());
            if self.written.as_ref() != Some(&status) {
                self.agent.know(&self.machine.pod, &status);
                self.write(status);
                return;
            }
        }
        self.send_events();
        if self.machine.is_stopped() && self.machine.is_deleting() && !self.deleting && !self.is_static {
            self.deleting = true;
            let (agent, pod) = (self.agent.clone(), self.machine.pod.clone());
            self.jobs.push(Box::pin(async move {
                let meta = &pod.metadata;
                let text = |field: &Option<String>| field.clone().unwrap_or_default();
                let _busy = agent.clock.busy();
                let (namespace, name, uid) = (text(&meta.namespace), text(&meta.name), text(&meta.uid));
                Report::Deleted(cause::because(revision_of(meta), api::delete_pod(&agent.client, &namespace, &name, &uid)).await)
            }));
        }
    }

    fn write(&mut self, status: PodStatus) {
        self.writing = true;
        let agent = self.agent.clone();
        let meta = &self.machine.pod.metadata;
        let path =
            format!("{}/status", api::pod_path(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default()));
        let seen = revision_of(meta);
        let mut patch = json!({"status": status});
        if !self.is_static {
            patch["metadata"] = json!({"uid": meta.uid});
        }
        self.jobs.push(Box::pin(async move {
            let _busy = agent.clock.busy();
            let deadline = later(agent.clock.now(), PATIENCE);
            // Never closed, so there is always a turn to come.
            let _turn = agent.status_writes.acquire().await;
            agent.clock.placed(deadline).await;
            let result = cause::because(seen, api::patch(&agent.client, &path, &patch)).await;
            Report::Written(Box::new(status), result)
        }));
    }

    fn send_events(&self) {
        let events = std::mem::take(&mut *self.events.lock());
        if events.is_empty() {
            return;
        }
        let about = regarding(&*self.machine.pod);
        for event in events {
            let mut about = about.clone();
            about.field_path = event.field_path;
            self.agent.recorder.event(&about, event.r#type, event.reason, event.message);
        }
    }
}

/// Whether the Pod's status in the API differs from what was written in what other components act upon.
fn contradicts(pod: &Pod, written: &PodStatus) -> bool {
    let Some(status) = &pod.status else { return true };
    let verdict = |status: &PodStatus, name: &str| -> Option<String> {
        status.conditions.iter().flatten().find(|condition| condition.type_ == name).map(|condition| condition.status.clone())
    };
    status.phase != written.phase || ["Ready", "ContainersReady"].iter().any(|name| verdict(status, name) != verdict(written, name))
}

fn started_here(machine: &PodMachine) -> bool {
    machine.containers.iter().any(|container| container.terminated.is_some()) || machine.failure.is_some()
}
