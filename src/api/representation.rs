//! In which form a client wants an answer: the media type and the shape, read off its `Accept` header as a real server
//! reads it; and how an object, a list or an error is written in that form.

use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use serde_json::{Value, json};

use super::{Api, table};
use crate::object::Object;
use crate::registry::Resource;
use crate::status::Status;
use crate::store::Revision;
use crate::watch::Snapshot;

/// How many bytes of a list go into one piece of the body.
const PIECE: usize = 128 << 10;

/// The encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Media {
    Json,
    Yaml,
    Protobuf,
}

impl Media {
    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Media::Json => "application/json",
            Media::Yaml => "application/yaml",
            Media::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// The shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The object itself.
    Whole,
    /// A Table with a row for each object.
    Table,
    /// The metadata alone.
    Metadata,
}

/// What the client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Representation {
    /// The encoding.
    pub media: Media,
    /// The shape.
    pub shape: Shape,
}

impl Representation {
    /// Plain JSON.
    pub const JSON: Representation = Representation { media: Media::Json, shape: Shape::Whole };

    /// The first form of the `Accept` header that can be served.
    pub fn negotiate(headers: &HeaderMap, custom: bool) -> Result<Self, Status> {
        let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or("*/*");
        for clause in accept.split(',') {
            let mut parts = clause.split(';').map(str::trim);
            let media = match parts.next() {
                Some("application/json" | "*/*" | "application/*" | "") => Media::Json,
                Some("application/yaml") => Media::Yaml,
                Some("application/vnd.kubernetes.protobuf") if !custom => Media::Protobuf,
                _ => continue,
            };
            let parameters: Vec<(&str, &str)> = parts.filter_map(|p| p.split_once('=')).collect();
            let get = |key: &str| parameters.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
            let shape = match (get("as"), get("g"), get("v")) {
                (None, ..) => Shape::Whole,
                (Some("Table"), Some("meta.k8s.io"), Some("v1" | "v1beta1")) => Shape::Table,
                (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("meta.k8s.io"), Some("v1" | "v1beta1")) => {
                    Shape::Metadata
                }
                _ => continue,
            };
            return Ok(Representation { media, shape });
        }
        let text = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
        Err(Status::new(406, "NotAcceptable", text))
    }
}

impl Api {
    /// One object, in the form that was asked for.
    pub fn respond_object(&self, code: u16, object: &Object, resource: &Resource, form: Representation) -> Result<Response<Body>, Status> {
        if form == Representation::JSON && !resource.is_stored_otherwise() {
            return Ok(respond(code, Media::Json, Body::from(object.json.clone())));
        }
        let value = self.in_version(object, resource);
        let value = match form.shape {
            Shape::Whole => (*value).clone(),
            Shape::Metadata => metadata_only(&value),
            Shape::Table => {
                let meta = json!({"resourceVersion": object.revision.to_string()});
                table::document(resource, std::iter::once(&*value), meta, self.clock.now(), true)
            }
        };
        respond_value(code, &value, form.media)
    }

    /// The object as a value in the version of the resource that was asked for.
    pub fn in_version(&self, object: &Object, resource: &Resource) -> Arc<Value> {
        match resource.is_stored_otherwise() {
            true => Arc::new(super::convert::to_version(object.to_value(), resource)),
            false => object.value().clone(),
        }
    }

    /// A list, in the form that was asked for.
    pub fn respond_list(
        &self,
        snapshot: Snapshot,
        next: Option<String>,
        counted: bool,
        resource: &Resource,
        form: Representation,
    ) -> Result<Response<Body>, Status> {
        let meta = list_meta(snapshot.revision, next, counted.then_some(snapshot.remaining).filter(|n| *n > 0));
        if form == Representation::JSON && !resource.is_stored_otherwise() {
            return Ok(respond(200, Media::Json, list_body(snapshot, &meta, resource)));
        }
        let values = snapshot.objects.iter().map(|object| match resource.is_stored_otherwise() {
            true => super::convert::to_version(object.to_value(), resource),
            false => object.to_value(),
        });
        let document = match form.shape {
            Shape::Table => {
                let values: Vec<Value> = values.collect();
                table::document(resource, values.iter(), meta, self.clock.now(), true)
            }
            Shape::Metadata => json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta,
                "items": values.map(|v| metadata_only(&v)).collect::<Vec<_>>(),
            }),
            Shape::Whole => {
                let strip = resource.custom.is_none();
                let items = values.map(|mut value| {
                    if let (true, Some(map)) = (strip, value.as_object_mut()) {
                        map.remove("apiVersion");
                        map.remove("kind");
                    }
                    value
                });
                json!({"kind": &*resource.list_kind, "apiVersion": resource.group_version(), "metadata": meta, "items": items.collect::<Vec<_>>()})
            }
        };
        respond_value(200, &document, form.media)
    }
}

fn list_meta(revision: Revision, next: Option<String>, remaining: Option<usize>) -> Value {
    let mut meta = json!({"resourceVersion": revision.to_string()});
    if let Some(token) = next {
        meta["continue"] = token.into();
        if let Some(remaining) = remaining {
            meta["remainingItemCount"] = remaining.into();
        }
    }
    meta
}

/// A list as a stream of pieces, each a concatenation of stored bytes: a long list is never in memory twice.
fn list_body(snapshot: Snapshot, meta: &Value, resource: &Resource) -> Body {
    let head =
        format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"items\":[", resource.list_kind, resource.group_version());
    let whole = resource.custom.is_some();
    let total: usize = snapshot.objects.iter().map(|o| o.json.len() + 2).sum();
    let mut objects = snapshot.objects.into_iter().enumerate();
    let mut piece = move |mut out: Vec<u8>| -> (Vec<u8>, bool) {
        for (i, object) in objects.by_ref() {
            if i > 0 {
                out.push(b',');
            }
            if whole {
                out.extend_from_slice(&object.json);
            } else {
                out.push(b'{');
                out.extend_from_slice(object.item());
            }
            if out.len() >= PIECE {
                return (out, false);
            }
        }
        out.extend_from_slice(b"]}\n");
        (out, true)
    };
    if total <= PIECE {
        return Body::from(piece(head.into_bytes()).0);
    }
    let (mut first, mut done) = (Some(head.into_bytes()), false);
    let pieces = std::iter::from_fn(move || {
        if done {
            return None;
        }
        let (out, last) = piece(first.take().unwrap_or_else(|| Vec::with_capacity(PIECE + 4096)));
        done = last;
        Some(Ok::<_, std::convert::Infallible>(Bytes::from(out)))
    });
    Body::from_stream(futures::stream::iter(pieces))
}

/// `PartialObjectMetadata` of an object.
pub fn metadata_only(value: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value.get("metadata").cloned().unwrap_or_else(|| json!({}))})
}

/// A value in an encoding.
pub fn respond_value(code: u16, value: &Value, media: Media) -> Result<Response<Body>, Status> {
    let bytes = encode(value, media)?;
    Ok(respond(code, media, Body::from(bytes)))
}

/// The bytes of a value in an encoding.
pub fn encode(value: &Value, media: Media) -> Result<Vec<u8>, Status> {
    match media {
        Media::Json => {
            let mut out = serde_json::to_vec(value).map_err(Status::internal)?;
            out.push(b'\n');
            Ok(out)
        }
        Media::Yaml => Err(Status::new(406, "NotAcceptable", "yaml")),
        Media::Protobuf => Err(Status::new(406, "NotAcceptable", "protobuf")),
    }
}

/// A response with the headers that every API answer carries.
pub fn respond(code: u16, media: Media, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media.content_type()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
