//! Follows one collection of an API server: a list, then a watch from where the list ended, for ever.
//!
//! This file knows HTTP and the framing of a watch. What the objects are, and where they go, is the [`Sink`]'s
//! business, so there is one copy of this code and not one per kind. A watch that breaks is taken up where it broke;
//! only when the server no longer has that point (410) everything is listed again.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::discovery::METADATA;
use crate::clock::Clock;

/// How long the server should keep one watch open. Long, because ending it buys nothing.
const WATCH_SECONDS: u32 = 590;
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// What to follow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Collection {
    /// The path of the collection over all namespaces, such as `/apis/apps/v1/deployments`.
    pub path: String,
    /// Whether only the metadata is wanted.
    pub metadata_only: bool,
    /// A selector for the server, such as `fieldSelector=spec.nodeName%3Da`, ready for a URL.
    pub query: String,
}

/// Where the followed objects go.
pub(crate) trait Sink: Send + Sync {
    /// Everything there is, as the body of a list.
    fn replace(&self, list: &[u8]) -> Result<String, serde_json::Error>;
    /// One object was added or changed.
    fn changed(&self, object: &[u8]) -> Result<String, serde_json::Error>;
    /// One object is gone; this is its last state.
    fn deleted(&self, object: &[u8]) -> Result<String, serde_json::Error>;
    /// Nothing happened up to this revision.
    fn bookmark(&self, resource_version: &str);
}

/// Why following stopped for the moment.
#[derive(Debug, thiserror::Error)]
enum Interrupted {
    #[error("{0}")]
    Client(#[from] kube::Error),
    #[error("the server answered {0}")]
    Refused(StatusCode),
    #[error("the watch can no longer be continued")]
    Gone,
    #[error("not understood: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0}")]
    Http(#[from] http::Error),
}

/// Follows `collection` until `stop`.
pub(crate) async fn follow(client: Client, collection: Collection, sink: Arc<dyn Sink>, clock: Clock, stop: CancellationToken) {
    let work = async {
        let mut from = None;
        let mut retry = FIRST_RETRY;
        loop {
            let outcome = match &mut from {
                None => list(&client, &collection, &*sink).await.map(|revision| from = Some(revision)),
                Some(revision) => watch(&client, &collection, revision, &*sink).await,
            };
            match outcome {
                Ok(()) => retry = FIRST_RETRY,
                Err(Interrupted::Gone) => {
                    tracing::debug!(path = %collection.path, "the watch is too old, listing again");
                    from = None;
                }
                Err(error) => {
                    tracing::debug!(path = %collection.path, %error, "the watch was interrupted");
                    clock.sleep(retry).await;
                    retry = (retry * 2).min(LAST_RETRY);
                }
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}

async fn list(client: &Client, collection: &Collection, sink: &dyn Sink) -> Result<String, Interrupted> {
    let accept = if collection.metadata_only { METADATA } else { "application/json" };
    let uri = with_query(&collection.path, &[&collection.query]);
    let body = open(client, uri, accept).await?;
    let bytes = body.collect().await?.to_bytes();
    Ok(sink.replace(&bytes)?)
}

async fn watch(client: &Client, collection: &Collection, revision: &mut String, sink: &dyn Sink) -> Result<(), Interrupted> {
    let accept = if collection.metadata_only {
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
    } else {
        "application/json"
    };
    let options = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={revision}");
    let uri = with_query(&collection.path, &[&options, &collection.query]);
    let mut body = open(client, uri, accept).await?;
    let mut lines = Lines::default();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        lines.push(data);
        while let Some(line) = lines.next() {
            deliver(&line, revision, sink)?;
        }
    }
    Ok(())
}

/// Hands one line of a watch to the sink, and moves the revision on.
fn deliver(line: &[u8], revision: &mut String, sink: &dyn Sink) -> Result<(), Interrupted> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(());
    }
    let (kind, object) = match split_event(line) {
        Some((kind, object)) => (kind.to_owned(), object.to_vec()),
        None => {
            #[derive(Deserialize)]
            struct Event {
                r#type: String,
                object: serde_json::Value,
            }
            let event: Event = serde_json::from_slice(line)?;
            (event.r#type, serde_json::to_vec(&event.object)?)
        }
    };
    match kind.as_str() {
        "ADDED" | "MODIFIED" => *revision = sink.changed(&object)?,
        "DELETED" => *revision = sink.deleted(&object)?,
        "BOOKMARK" => {
            let bookmark: Versioned = serde_json::from_slice(&object)?;
            sink.bookmark(&bookmark.metadata.resource_version);
            *revision = bookmark.metadata.resource_version;
        }
        _ => {
            let status: kube::core::Status = serde_json::from_slice(&object)?;
            tracing::debug!(code = status.code, message = %status.message, "the watch was ended by the server");
            return Err(Interrupted::Gone);
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Versioned {
    metadata: Version,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    resource_version: String,
}

/// Takes `{"type":"ADDED","object":{…}}` apart without parsing the object, if it is written exactly like that, as
/// every API server does.
fn split_event(line: &[u8]) -> Option<(&str, &[u8])> {
    let rest = line.strip_prefix(b"{\"type\":\"")?;
    let end = rest.iter().take(16).position(|b| *b == b'"')?;
    let kind = std::str::from_utf8(&rest[..end]).ok()?;
    let object = rest[end..].strip_prefix(b"\",\"object\":")?.strip_suffix(b"}")?;
    Some((kind, object))
}

/// Opens a stream, with the answers that mean something to a watcher told apart.
async fn open(client: &Client, uri: String, accept: &str) -> Result<Body, Interrupted> {
    let request = Request::get(uri).header(header::ACCEPT, accept).header(header::ACCEPT_ENCODING, "identity").body(Body::empty())?;
    let response = client.send(request).await?;
    match response.status() {
        StatusCode::GONE => Err(Interrupted::Gone),
        status if status.is_success() => Ok(response.into_body()),
        status => Err(Interrupted::Refused(status)),
    }
}

fn with_query(path: &str, parts: &[&str]) -> String {
    let mut uri = path.to_owned();
    let mut separator = '?';
    for part in parts.iter().filter(|part| !part.is_empty()) {
        uri.push(separator);
        uri.push_str(part);
        separator = '&';
    }
    uri
}

/// Cuts a stream of chunks into lines.
#[derive(Default)]
struct Lines {
    buffer: BytesMut,
    /// Up to where there is certainly no line end, so that a long line is not searched again for every chunk.
    searched: usize,
}

impl Lines {
    fn push(&mut self, chunk: Bytes) {
        self.buffer.extend_from_slice(&chunk);
    }

    fn next(&mut self) -> Option<BytesMut> {
        let Some(end) = self.buffer[self.searched..].iter().position(|b| *b == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + end + 1);
        self.searched = 0;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_across_chunks() {
        let mut lines = Lines::default();
        lines.push(Bytes::from_static(b"{\"a\":"));
        assert!(lines.next().is_none());
        lines.push(Bytes::from_static(b"1}\n{\"b\":2}\n{"));
        assert_eq!(&lines.next().unwrap()[..], b"{\"a\":1}\n");
        assert_eq!(&lines.next().unwrap()[..], b"{\"b\":2}\n");
        assert!(lines.next().is_none());
    }

    #[test]
    fn an_event_is_split_without_parsing_it() {
        let (kind, object) = split_event(br#"{"type":"ADDED","object":{"a":{}}}"#).unwrap();
        assert_eq!((kind, object), ("ADDED", &br#"{"a":{}}"#[..]));
        assert!(split_event(br#"{"object":{},"type":"ADDED"}"#).is_none());
    }
}
