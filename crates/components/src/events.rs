//! Events: what a component has to say about an object, for `kubectl describe` and `kubectl get events`.
//!
//! Recording never waits and never fails: events go to a few workers of the recorder that write them one after the
//! other, and what they cannot keep up with is dropped. They are for people, and people read slowly: while a component of
//! this process works on something, they stand back for a moment. Repetitions are folded in the way Kubernetes' own recorders
//! do it: the same event again raises a count, many similar ones about one object become one that says so, and an
//! object that is the subject of too many gets no more for a while. The folding itself is in [`correlator`].

pub mod correlator;

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1 as core, events::v1 as events},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use core::ObjectReference;

use crate::{
    clock::{Clock, later},
    runtime::Object,
};
use correlator::{Correlator, Step, Subject};

/// How many workers a recorder has; events about one object always go to the same one.
const WORKERS: usize = 4;
/// How many events may wait for one worker.
const WAITING: usize = 4096;
/// How long an event stands back behind other work at most.
const PATIENCE: Duration = Duration::from_secs(3);

/// `Normal` or `Warning`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Something happened.
    Normal,
    /// Something went wrong.
    Warning,
}

impl EventType {
    /// The word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

/// One thing to say.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub source: Source,
    pub regarding: ObjectReference,
    pub related: Option<ObjectReference>,
    pub r#type: EventType,
    pub reason: String,
    pub action: Option<String>,
    pub message: String,
    /// When it happened, which may be a moment before it is written.
    pub at: Timestamp,
    /// Whether it is written without saying who reports it.
    pub anonymous: bool,
}

/// Who says it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    component: Arc<str>,
    host: Arc<str>,
}

/// A reference to an object, as events want it.
pub fn regarding<K: Object + k8s_openapi::Resource>(object: &K) -> ObjectReference {
    let meta = object.meta();
    ObjectReference {
        api_version: Some(K::API_VERSION.to_owned()),
        kind: Some(K::KIND.to_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    }
}

/// Records the events of one component.
#[derive(Clone)]
pub struct Recorder {
    source: Source,
    clock: Clock,
    /// Boxed, because a queue takes the room for some of them at once, and there are many recorders.
    workers: Arc<Vec<mpsc::Sender<Box<Record>>>>,
}

impl Recorder {
    /// A recorder for the component `source` on `host` (empty for what is not bound to one).
    pub fn new(client: Client, source: &str, host: &str, clock: Clock, stop: CancellationToken) -> Self {
        let names = Arc::new(AtomicI64::new(0));
        let workers = (0..WORKERS).map(|_| {
            let (sender, records) = mpsc::channel(WAITING);
            let sink = Sink { client: client.clone(), clock: clock.clone(), names: names.clone() };
            let stop = stop.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = sink.work(records) => {}
                }
            });
            sender
        });
        let workers = Arc::new(workers.collect());
        Recorder { source: Source { component: source.into(), host: host.into() }, clock, workers }
    }

    /// The same recorder, speaking for another host.
    #[must_use]
    pub fn on_host(&self, host: &str) -> Self {
        let source = Source { component: self.source.component.clone(), host: host.into() };
        Recorder { source, clock: self.clock.clone(), workers: self.workers.clone() }
    }

    /// Records an event of `v1`, as controllers and kubelets do.
    pub fn event(&self, regarding: &ObjectReference, r#type: EventType, reason: &str, message: impl Into<String>) {
        self.send(Record {
            source: self.source.clone(),
            regarding: regarding.clone(),
            related: None,
            r#type,
            reason: reason.to_owned(),
            action: None,
            message: message.into(),
            at: self.clock.now(),
            anonymous: false,
        });
    }

    /// Records an event of `events.k8s.io/v1`, as the scheduler does.
    pub fn eventf(
        &self,
        regarding: &ObjectReference,
        related: Option<&ObjectReference>,
        r#type: EventType,
        reason: &str,
        action: &str,
        note: impl Into<String>,
    ) {
        self.send(Record {
            source: self.source.clone(),
            regarding: regarding.clone(),
            related: related.cloned(),
            r#type,
            reason: reason.to_owned(),
            action: Some(action.to_owned()),
            message: note.into(),
            at: self.clock.now(),
            anonymous: false,
        });
    }

    fn send(&self, record: Record) {
        let mut hasher = DefaultHasher::new();
        record.regarding.uid.hash(&mut hasher);
        record.regarding.name.hash(&mut hasher);
        let worker = usize::try_from(hasher.finish() % WORKERS as u64).unwrap_or(0);
        if let Some(worker) = self.workers.get(worker)
            && worker.try_send(Box::new(record)).is_err()
        {
            tracing::debug!("an event was dropped");
        }
    }
}

/// Writes events.
struct Sink {
    client: Client,
    clock: Clock,
    names: Arc<AtomicI64>,
}

impl Sink {
    async fn work(self, mut records: mpsc::Receiver<Box<Record>>) {
        let mut correlator = Correlator::default();
        while let Some(mut record) = records.recv().await {
            self.clock.calm(later(record.at, PATIENCE)).await;
            let now = record.at;
            let subject = Subject::of(&record);
            let step = correlator.take(&record, now);
            let written = match step {
                Step::Skip => continue,
                Step::Create { message, combined } => {
                    // One that stands for many speaks for nobody in particular.
                    record.anonymous = combined;
                    self.create(&record, message, 1).await
                }
                Step::Repeat { name, message, count, first } => {
                    match self.repeat(&record, &name, &message, count).await {
                        // It has expired in the meantime: from the beginning, with the count so far.
                        Err(kube::Error::Api(status)) if status.code == 404 => self.create_at(&record, message, count, first).await,
                        Ok(()) => Ok(name),
                        Err(error) => Err(error),
                    }
                }
            };
            match written {
                Ok(name) => correlator.written(subject, name, now),
                Err(error) => {
                    tracing::debug!(%error, reason = %record.reason, "an event could not be written")
                }
            }
        }
    }

    async fn create(&self, record: &Record, message: String, count: i32) -> Result<String, kube::Error> {
        self.create_at(record, message, count, record.at).await
    }

    async fn create_at(&self, record: &Record, message: String, count: i32, first: Timestamp) -> Result<String, kube::Error> {
        let now = record.at;
        let name = format!(
            "{}.{:x}",
            record.regarding.name.as_deref().unwrap_or_default(),
            self.unique(i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX))
        );
        let namespace = namespace(record);
        let metadata = ObjectMeta { name: Some(name.clone()), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() };
        let parameters = PostParams::default();
        match &record.action {
            None => {
                let event = core::Event {
                    metadata,
                    involved_object: record.regarding.clone(),
                    reason: Some(record.reason.clone()),
                    message: Some(message),
                    type_: Some(record.r#type.as_str().to_owned()),
                    source: Some(core::EventSource {
                        component: Some(record.source.component.to_string()),
                        host: (!record.source.host.is_empty()).then(|| record.source.host.to_string()),
                    }),
                    reporting_component: Some(if record.anonymous { String::new() } else { record.source.component.to_string() }),
                    reporting_instance: Some(if record.anonymous { String::new() } else { record.source.host.to_string() }),
                    first_timestamp: Some(whole_seconds(first)),
                    last_timestamp: Some(whole_seconds(now)),
                    count: Some(count),
                    ..core::Event::default()
                };
                Api::<core::Event>::namespaced(self.client.clone(), namespace).create(&parameters, &event).await?;
            }
            Some(action) => {
                let event = events::Event {
                    metadata,
                    regarding: Some(record.regarding.clone()),
                    related: record.related.clone(),
                    reason: Some(record.reason.clone()),
                    action: Some(action.clone()),
                    note: Some(message),
                    type_: Some(record.r#type.as_str().to_owned()),
                    reporting_controller: Some(record.source.component.to_string()),
                    reporting_instance: Some(match &*record.source.host {
                        "" => record.source.component.to_string(),
                        host => format!("{}-{host}", record.source.component),
                    }),
                    event_time: Some(MicroTime(now)),
                    ..events::Event::default()
                };
                Api::<events::Event>::namespaced(self.client.clone(), namespace).create(&parameters, &event).await?;
            }
        }
        Ok(name)
    }

    async fn repeat(&self, record: &Record, name: &str, message: &str, count: i32) -> Result<(), kube::Error> {
        let now = record.at;
        let namespace = namespace(record);
        let parameters = PatchParams::default();
        if record.action.is_some() {
            let patch = json!({"series": {"count": count, "lastObservedTime": MicroTime(now)}});
            let api = Api::<events::Event>::namespaced(self.client.clone(), namespace);
            api.patch(name, &parameters, &Patch::Strategic(patch)).await?;
        } else {
            let patch = json!({"message": message, "count": count, "lastTimestamp": whole_seconds(now)});
            let api = Api::<core::Event>::namespaced(self.client.clone(), namespace);
            api.patch(name, &parameters, &Patch::Strategic(patch)).await?;
        }
        Ok(())
    }

    /// A number that has not been in a name yet; the time in nanoseconds if that is one.
    fn unique(&self, now: i64) -> i64 {
        let last = self.names.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(now.max(last.saturating_add(1))));
        last.map_or(now, |last| now.max(last.saturating_add(1)))
    }
}

fn namespace(record: &Record) -> &str {
    record.regarding.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default")
}

fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}
