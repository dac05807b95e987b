//! WATCH: a stream of events, framed as the client wants them. Plain JSON frames are made once per event and shared by all
//! watchers; the other forms are made per watcher.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::negotiate::Format;
use super::options::{ListOptions, VersionMatch};
use super::read::store_error;
use super::representation::{Representation, Shape, respond};
use super::{Api, conversion, protobuf};
use crate::object::Object;
use crate::registry::Resource;
use crate::request::Context;
use crate::status::Status;
use crate::store::{Error, Revision};
use crate::watch::{EventKind, Item, Lagged, Start, Watcher};

/// How often a watcher that wants bookmarks hears of the newest revision.
const BOOKMARK: Duration = Duration::from_secs(60);

/// The longest time that a watch is given, in seconds.
const LONGEST: u64 = 365 * 24 * 3600;

/// About how many bytes of frames are put together into one piece of the body.
const PIECE: usize = 64 << 10;

impl Api {
    /// Opens a watch and answers with its stream.
    pub async fn watch(
        self: &Arc<Self>,
        context: &Context,
        resource: &Arc<Resource>,
        options: ListOptions,
        form: Representation,
    ) -> Result<Response<Body>, Status> {
        // A frame is one line, whoever reads it.
        let form = Representation { pretty: false, ..form };
        let topic = self.state.topic(&resource.storage).await.map_err(store_error)?;
        let filter = self.filter(context, resource, &options);
        let stream_end = options.send_initial_events == Some(true);
        let start = match (options.version, options.send_initial_events) {
            (_, Some(true)) => Start::Current,
            (VersionMatch::Unset | VersionMatch::Any, Some(false)) => Start::After(self.state.revision()),
            (VersionMatch::Unset | VersionMatch::Any, None) => Start::Current,
            (VersionMatch::NotOlderThan(revision) | VersionMatch::Exact(revision), _) => Start::After(revision),
        };
        let framer = Framer { api: self.clone(), resource: resource.clone(), form, is_headed: false };
        let content_type = form.format.stream_media_type().unwrap_or("application/json");
        if stream_end
            && let VersionMatch::NotOlderThan(revision) = options.version
            && let Err(status) = self.reach(revision).await
        {
            return Ok(stream_response(content_type, Body::from(framer.error(&status))));
        }
        let watcher = match Watcher::open(&self.state, &topic, filter, start).await {
            Ok(watcher) => watcher,
            Err(Error::Compacted { floor }) => {
                let after = match start {
                    Start::After(revision) => revision,
                    Start::Current => 0,
                };
                let status = Status::expired(match &*resource.storage {
                    // A real server keeps no cache of events, and etcd has words of its own.
                    "events" => "The resourceVersion for the provided watch is too old.".to_owned(),
                    _ => format!("too old resource version: {after} ({floor})"),
                });
                return Ok(stream_response(content_type, Body::from(framer.error(&status))));
            }
            Err(other) => return Err(store_error(other)),
        };
        // A real server picks a random end between 30 and 60 minutes, so that clients do not all come back at once.
        let seconds = options.timeout_seconds.unwrap_or_else(|| 1800 + u64::from(uuid::Uuid::new_v4().as_bytes()[0]) * 7);
        let now = Instant::now();
        // Nobody waits longer than a year, and no clock counts to the end of 64 bits.
        let deadline = now + Duration::from_secs(seconds.min(LONGEST));
        let next_bookmark = now + BOOKMARK.min(Duration::from_secs(seconds.saturating_sub(2).max(1)));
        let running = Running {
            watcher,
            framer,
            stream_end: stream_end && options.bookmarks,
            deadline,
            next_bookmark: options.bookmarks.then_some(next_bookmark),
            alarm: Box::pin(sleep_until(if options.bookmarks { next_bookmark.min(deadline) } else { deadline })),
            told: 0,
            failed: false,
            shutdown: Box::pin(self.shutdown.clone().cancelled_owned()),
        };
        Ok(stream_response(content_type, Body::from_stream(futures::stream::unfold(running, Running::piece))))
    }
}

fn stream_response(content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = respond(200, Format::Json, body);
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    response
}

/// A watch that is being served.
struct Running {
    watcher: Watcher,
    framer: Framer,
    stream_end: bool,
    deadline: Instant,
    next_bookmark: Option<Instant>,
    /// Rings for the bookmark or the deadline, whichever is first. Kept, as the next one is, because a watcher is woken for every
    /// event and a timer that is made anew each time would cost more than the event.
    alarm: Pin<Box<Sleep>>,
    /// Everything up to this revision has been told.
    told: Revision,
    /// An error was the last thing to tell.
    failed: bool,
    shutdown: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Running {
    /// The next piece of the body: whatever there is to tell, as soon as there is something.
    async fn piece(mut self) -> Option<(Result<Bytes, std::convert::Infallible>, Self)> {
        if self.failed {
            return None;
        }
        loop {
            let seen = self.framer.api.state.revision();
            let out = match self.take().await {
                Ok(out) => out,
                // The ring has left this reader behind; it comes back with its last revision and the store fills the gap.
                Err(Stopped::Lagged) => return None,
                Err(Stopped::Failed(status)) => {
                    let frame = self.framer.error(&status);
                    self.failed = true;
                    return Some((Ok(frame), self));
                }
            };
            if !out.is_empty() {
                return Some((Ok(out.into()), self));
            }
            // Nothing was left to tell after this revision was seen.
            self.told = seen;
            tokio::select! {
                () = self.watcher.changed() => {}
                () = &mut self.shutdown => return None,
                () = &mut self.alarm => {
                    let next = self.next_bookmark.filter(|next| *next < self.deadline)?;
                    self.next_bookmark = Some(next + BOOKMARK);
                    self.alarm.as_mut().reset((next + BOOKMARK).min(self.deadline));
                    let frame = self.framer.bookmark(self.told, false);
                    return Some((Ok(frame), self));
                }
            }
        }
    }
}

impl Drop for Running {
    /// A reader that takes nothing is not heard of until its connection is given up; either way it is counted here.
    fn drop(&mut self) {
        if self.watcher.is_left_behind() {
            self.framer.api.metrics.slow_watchers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
}

/// Why a watch ends before its time.
enum Stopped {
    /// The ring has left the reader behind.
    Lagged,
    /// An object could not be converted.
    Failed(Status),
}

impl From<Lagged> for Stopped {
    fn from(_: Lagged) -> Self {
        Stopped::Lagged
    }
}

impl Running {
    /// The frames of what there is to tell now.
    async fn take(&mut self) -> Result<Vec<u8>, Stopped> {
        let has_versions = conversion::has_versions(&self.framer.resource);
        if self.framer.is_plain() && !has_versions && !self.watcher.has_backlog() {
            return Ok(self.watcher.take_frames(PIECE)?);
        }
        let items = self.watcher.take()?;
        let mut others = match self.framer.resource.custom.is_some() {
            true => self.framer.convert(&items).await.map_err(Stopped::Failed)?,
            false => Vec::new(),
        }
        .into_iter();
        let mut out = Vec::new();
        for item in items {
            match (&item, told(&item)) {
                (_, Some((kind, object))) if self.framer.is_other(object) => {
                    if let Some(object) = others.next() {
                        out.extend_from_slice(&self.framer.object(kind, &object));
                    }
                }
                (Item::Event(kind, event), _) if self.framer.is_plain() => out.extend_from_slice(event.frame(*kind)),
                (_, Some((kind, object))) => out.extend_from_slice(&self.framer.object(kind, object)),
                (Item::InitialEnd(revision), _) if self.stream_end => out.extend_from_slice(&self.framer.bookmark(*revision, true)),
                _ => {}
            }
        }
        Ok(out)
    }
}

/// What an item is about, and what happened to it.
fn told(item: &Item) -> Option<(EventKind, &Arc<Object>)> {
    match item {
        Item::Initial(object) => Some((EventKind::Added, object)),
        Item::Event(kind, event) => Some((*kind, event.object_for(*kind))),
        Item::InitialEnd(_) => None,
    }
}

/// Writes events in the form that a client wants.
struct Framer {
    api: Arc<Api>,
    resource: Arc<Resource>,
    form: Representation,
    /// Whether the heads of a Table's columns have been told; they come with the first event only.
    is_headed: bool,
}

impl Framer {
    /// Whether an object is stored in another version than this watch is of.
    fn is_other(&self, object: &Object) -> bool {
        conversion::is_other(object, &self.resource)
    }

    /// Those objects that are stored in another version, in the version of this watch: all at once, since a webhook may have to be asked.
    async fn convert(&self, items: &[Item]) -> Result<Vec<Arc<Object>>, Status> {
        let objects = items.iter().filter_map(told).map(|(_, object)| object);
        let others: Vec<Arc<Object>> = objects.filter(|object| self.is_other(object)).cloned().collect();
        self.api.converted(others, &self.resource, false).await
    }

    fn is_plain(&self) -> bool {
        self.form.is_stored_form(&self.resource)
    }

    fn object(&mut self, kind: EventKind, object: &Object) -> Bytes {
        if self.is_plain() {
            return crate::watch::frame(kind, &object.json);
        }
        let value = self.api.in_version(object, &self.resource);
        self.shown(kind.as_str(), &value, object.revision)
    }

    fn shown(&mut self, kind: &str, value: &Value, revision: Revision) -> Bytes {
        let mut shown = self.api.shaped(value, revision, &self.resource, self.form);
        if self.form.shape == Shape::Table && std::mem::replace(&mut self.is_headed, true) {
            shown["columnDefinitions"] = Value::Null;
        }
        self.frame(kind, shown)
    }

    fn bookmark(&mut self, revision: Revision, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let mut object = json!({"kind": &*self.resource.kind, "apiVersion": self.resource.group_version(), "metadata": metadata});
        if let Value::Object(fields) = &mut object {
            fields.extend(crate::schema::blank(&self.resource));
        }
        self.shown("BOOKMARK", &object, revision)
    }

    fn error(&self, status: &Status) -> Bytes {
        self.frame("ERROR", status.to_json())
    }

    fn frame(&self, kind: &str, object: Value) -> Bytes {
        if self.form.format == Format::Protobuf {
            let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
            match protobuf::watch_event(kind, &object, text("apiVersion"), text("kind")) {
                Ok(frame) => return frame.into(),
                Err(error) => tracing::error!(%error, kind = text("kind"), "an object has no protobuf form"),
            }
        }
        // The word comes first, as in the frames that are shared.
        format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into()
    }
}
