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
use super::{Api, protobuf};
use crate::object::Object;
use crate::registry::Resource;
use crate::request::Context;
use crate::status::Status;
use crate::store::{Error, Revision};
use crate::watch::{EventKind, Item, Lagged, Start, Watcher};

/// How often a watcher that wants bookmarks hears of the newest revision.
const BOOKMARK: Duration = Duration::from_secs(60);

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
        let topic = self.state.topic(&resource.storage).await.map_err(store_error)?;
        let filter = self.filter(context, resource, &options);
        let stream_end = options.send_initial_events == Some(true);
        let start = match (options.version, options.send_initial_events) {
            (_, Some(true)) => Start::Current,
            (VersionMatch::Unset | VersionMatch::Any, Some(false)) => Start::After(self.state.revision()),
            (VersionMatch::Unset | VersionMatch::Any, None) => Start::Current,
            (VersionMatch::NotOlderThan(revision) | VersionMatch::Exact(revision), _) => Start::After(revision),
        };
        if stream_end && let VersionMatch::NotOlderThan(revision) = options.version {
            self.reach(revision).await?;
        }
        let framer = Framer { api: self.clone(), resource: resource.clone(), form };
        let content_type = form.format.stream_media_type().unwrap_or("application/json");
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
        let deadline = now + Duration::from_secs(seconds);
        let next_bookmark = now + BOOKMARK.min(Duration::from_secs(seconds.saturating_sub(2).max(1)));
        let running = Running {
            watcher,
            framer,
            stream_end: stream_end && options.bookmarks,
            deadline,
            next_bookmark: options.bookmarks.then_some(next_bookmark),
            alarm: Box::pin(sleep_until(if options.bookmarks { next_bookmark.min(deadline) } else { deadline })),
            told: 0,
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
    shutdown: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Running {
    /// The next piece of the body: whatever there is to tell, as soon as there is something.
    async fn piece(mut self) -> Option<(Result<Bytes, std::convert::Infallible>, Self)> {
        loop {
            let seen = self.framer.api.state.revision();
            let Ok(out) = self.take() else {
                // The ring has left this reader behind; it comes back with its last revision and the store fills the gap.
                self.framer.api.metrics.slow_watchers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                return None;
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

impl Running {
    /// The frames of what there is to tell now.
    fn take(&mut self) -> Result<Vec<u8>, Lagged> {
        if self.framer.is_plain() && !self.watcher.has_backlog() {
            return self.watcher.take_frames(PIECE);
        }
        let mut out = Vec::new();
        for item in self.watcher.take()? {
            match item {
                Item::Initial(object) => out.extend_from_slice(&self.framer.object(EventKind::Added, &object)),
                Item::Event(kind, event) if self.framer.is_plain() => out.extend_from_slice(event.frame(kind)),
                Item::Event(kind, event) => out.extend_from_slice(&self.framer.object(kind, event.object_for(kind))),
                Item::InitialEnd(revision) if self.stream_end => out.extend_from_slice(&self.framer.bookmark(revision, true)),
                Item::InitialEnd(_) => {}
            }
        }
        Ok(out)
    }
}

/// Writes events in the form that a client wants.
struct Framer {
    api: Arc<Api>,
    resource: Arc<Resource>,
    form: Representation,
}

impl Framer {
    fn is_plain(&self) -> bool {
        self.form.is_stored_form(&self.resource)
    }

    fn object(&self, kind: EventKind, object: &Object) -> Bytes {
        if self.is_plain() {
            return crate::watch::frame(kind, &object.json);
        }
        let value = self.api.in_version(object, &self.resource);
        let shown = self.api.shaped(&value, object.revision, &self.resource, self.form);
        self.frame(kind.as_str(), shown)
    }

    fn bookmark(&self, revision: Revision, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let shown = match self.form.shape {
            Shape::Whole => json!({"kind": &*self.resource.kind, "apiVersion": self.resource.group_version(), "metadata": metadata}),
            Shape::Metadata => json!({"kind": "PartialObjectMetadata", "apiVersion": self.form.meta_version, "metadata": metadata}),
            Shape::Table => {
                let object = json!({"kind": "PartialObjectMetadata", "apiVersion": self.form.meta_version, "metadata": metadata});
                json!({
                    "kind": "Table", "apiVersion": self.form.meta_version,
                    "metadata": {"resourceVersion": revision.to_string()}, "columnDefinitions": [],
                    "rows": [{"cells": [], "object": object}],
                })
            }
        };
        self.frame("BOOKMARK", shown)
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
        let mut out = json!({"type": kind, "object": object}).to_string().into_bytes();
        out.push(b'\n');
        out.into()
    }
}
