//! How an object, a list or an error is written in the form that was agreed upon ([`super::negotiate`]). Plain JSON of a
//! stored version is handed out as it is stored; every other form is made of the parsed object.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::{Frame, SizeHint};
use serde_json::{Value, json};

use super::negotiate::{self, As, Endpoint, Format, Refusal};
use super::{Api, convert, protobuf, table, yaml};
use crate::object::Object;
use crate::object::list::List;
use crate::registry::Resource;
use crate::status::{Details, Status};
use crate::store::Revision;
use crate::watch::Snapshot;

/// How many bytes of a list go into one piece of the body.
const PIECE: usize = 128 << 10;

/// The shape of an answer.
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
    pub format: Format,
    /// The shape.
    pub shape: Shape,
    /// The version of the shape's kind: `meta.k8s.io/v1`.
    pub meta_version: &'static str,
    /// Whether rows of a Table carry no object, its metadata, or all of it.
    pub include: Include,
    /// Whether a reader at a terminal asks.
    pub pretty: bool,
}

/// `includeObject` of a Table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Include {
    None,
    Metadata,
    Object,
}

impl Representation {
    /// Plain JSON.
    pub const JSON: Representation = Representation {
        format: Format::Json,
        shape: Shape::Whole,
        meta_version: "meta.k8s.io/v1",
        include: Include::Metadata,
        pretty: false,
    };

    /// What the `Accept` header and the query ask for.
    pub fn negotiate(headers: &HeaderMap, query: &str, resource: &Resource, verb: &str) -> Result<Self, Status> {
        let watch = verb == "watch";
        let collection = matches!(verb, "list" | "watch" | "deletecollection");
        let endpoint = match (resource.custom.is_some(), watch || verb == "list") {
            (true, _) => Endpoint::Custom,
            (false, true) => Endpoint::Collection,
            (false, false) => Endpoint::Object,
        };
        let accept = header_text(headers, header::ACCEPT);
        let accepted = if watch { negotiate::accept_stream(accept, endpoint) } else { negotiate::accept(accept, endpoint) }?;
        let include = match crate::request::query_value(query, "includeObject").as_deref() {
            Some("None") => Include::None,
            Some("Object") => Include::Object,
            None | Some("" | "Metadata") => Include::Metadata,
            Some(other) => {
                let text = format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
                );
                return Err(Status::bad_request(text));
            }
        };
        // Metadata comes alone or as a list, as what it is the metadata of.
        let type_of = |suffix: &str| match resource.custom.is_some() {
            true => format!("*unstructured.Unstructured{suffix}"),
            false => format!("*{}.{}{suffix}", package(&resource.group), resource.kind),
        };
        let mismatch = |text: String| Err(Status::new(406, "NotAcceptable", text));
        match accepted.transform {
            Some((As::PartialObjectMetadata, _)) if collection && !watch => {
                return mismatch(format!("you requested PartialObjectMetadata, but the requested object is a list ({})", type_of("List")));
            }
            Some((As::PartialObjectMetadataList, _)) if !collection => {
                return mismatch(format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                    type_of("")
                ));
            }
            _ => {}
        }
        let (shape, meta_version) = match accepted.transform {
            None => (Shape::Whole, "meta.k8s.io/v1"),
            Some((As::Table, version)) => (Shape::Table, version),
            Some((_, version)) => (Shape::Metadata, version),
        };
        let pretty = accepted.pretty || is_for_a_reader(headers, query);
        Ok(Representation { format: accepted.format, shape, meta_version, include, pretty })
    }

    /// Whether stored bytes can be handed out as they are.
    pub fn is_stored_form(&self, resource: &Resource) -> bool {
        self.format == Format::Json && self.shape == Shape::Whole && !self.pretty && !resource.is_stored_otherwise()
    }
}

/// Whether JSON is to be indented, by what the query says or who asks.
pub fn is_for_a_reader(headers: &HeaderMap, query: &str) -> bool {
    let asked = crate::request::query_value(query, "pretty");
    negotiate::wants_pretty(asked.as_deref(), header_text(headers, header::USER_AGENT))
}

/// The package that a real server has the types of a group in.
fn package(group: &str) -> &str {
    match group {
        "" | "events.k8s.io" => "core",
        "internal.apiserver.k8s.io" => "apiserverinternal",
        group => group.split('.').next().unwrap_or_default(),
    }
}

/// A header as text; empty where it is missing or not text.
pub fn header_text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let mut status = Status::new(refusal.code, refusal.reason, refusal.message);
        status.details = refusal.empty_details.then(Box::<Details>::default);
        status
    }
}

impl Api {
    /// One object, in the form that was asked for.
    pub fn respond_object(&self, code: u16, object: &Object, resource: &Resource, form: Representation) -> Result<Response<Body>, Status> {
        if form.is_stored_form(resource) {
            return Ok(respond(code, Format::Json, Body::from(object.json.clone())));
        }
        let value = self.in_version(object, resource);
        respond_value(code, &self.shaped(&value, object.revision, resource, form), form)
    }

    /// An object in a shape.
    pub fn shaped(&self, value: &Value, revision: Revision, resource: &Resource, form: Representation) -> Value {
        match form.shape {
            Shape::Whole => value.clone(),
            Shape::Metadata => metadata_only(value, form.meta_version),
            Shape::Table => {
                let meta = json!({"resourceVersion": revision.to_string()});
                table::document(resource, std::iter::once(value), meta, self.clock.now(), form)
            }
        }
    }

    /// The object as a value in the version of the resource that was asked for.
    pub fn in_version(&self, object: &Object, resource: &Resource) -> Arc<Value> {
        match resource.is_stored_otherwise() {
            true => Arc::new(convert::to_version(object.to_value(), resource)),
            // Not kept with the object: writes look at many objects once, and the parsed form is several times as large.
            false => Arc::new(object.to_value()),
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
        let mut meta = list_meta(snapshot.revision, next, counted.then_some(snapshot.remaining).filter(|n| *n > 0));
        // Lists of custom objects always say whether they go on.
        if resource.custom.is_some() && form.shape == Shape::Whole && meta.get("continue").is_none() {
            meta["continue"] = json!("");
        }
        if form.is_stored_form(resource) {
            return Ok(respond_stored(snapshot, &meta, resource));
        }
        let values = snapshot.objects.iter().map(|object| match resource.is_stored_otherwise() {
            true => convert::to_version(object.to_value(), resource),
            false => object.to_value(),
        });
        let document = match form.shape {
            Shape::Table => {
                let values: Vec<Value> = values.collect();
                table::document(resource, values.iter(), meta, self.clock.now(), form)
            }
            Shape::Metadata => json!({
                "kind": "PartialObjectMetadataList", "apiVersion": form.meta_version, "metadata": meta,
                // A list of nothing is none here.
                "items": Some(values.map(|v| metadata_only(&v, form.meta_version)).collect::<Vec<_>>()).filter(|all| !all.is_empty()),
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
        respond_value(200, &document, form)
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

/// A list of what is stored. It is in the extensions too: for audit, which need not keep what is sent, nor read what is compressed.
fn respond_stored(snapshot: Snapshot, meta: &Value, resource: &Resource) -> Response<Body> {
    let head =
        format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{meta},\"items\":[", resource.list_kind, resource.group_version());
    let list = Arc::new(List::new(head, snapshot.objects, resource.custom.is_some()));
    let body = match list.length() <= PIECE {
        true => Body::from(list.text()),
        false => {
            let pieces = list.clone().pieces(PIECE).map(Ok::<_, std::convert::Infallible>);
            Body::new(KnownLength { body: Body::from_stream(futures::stream::iter(pieces)), left: list.length() as u64 })
        }
    };
    let mut response = respond(200, Format::Json, body);
    response.extensions_mut().insert(list);
    response
}

/// A stream of pieces whose length is known, so that whoever sends it can say it, or decide that it is worth compressing.
struct KnownLength {
    body: Body,
    left: u64,
}

impl http_body::Body for KnownLength {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            self.left = self.left.saturating_sub(data.len() as u64);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// `PartialObjectMetadata` of an object.
pub fn metadata_only(value: &Value, version: &str) -> Value {
    let metadata = value.get("metadata").cloned().unwrap_or_else(|| json!({}));
    json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata})
}

/// In the extensions of a response that is a `Status`: for audit, which tells of it without reading the body.
#[derive(Clone, Debug)]
pub struct Answered(pub Arc<Value>);

/// A value in the encoding of a form.
pub fn respond_value(code: u16, value: &Value, form: Representation) -> Result<Response<Body>, Status> {
    let bytes = match (form.format, form.pretty) {
        (Format::Json, true) => {
            let mut out = serde_json::to_vec_pretty(value).map_err(Status::internal)?;
            out.push(b'\n');
            out
        }
        (format, _) => encode(value, format)?,
    };
    let mut response = respond(code, form.format, Body::from(bytes));
    if value.get("kind").is_some_and(|kind| kind == "Status") {
        response.extensions_mut().insert(Answered(Arc::new(value.clone())));
    }
    Ok(response)
}

/// The bytes of a value in an encoding.
pub fn encode(value: &Value, format: Format) -> Result<Vec<u8>, Status> {
    match format {
        Format::Json => {
            let mut out = serde_json::to_vec(value).map_err(Status::internal)?;
            out.push(b'\n');
            Ok(out)
        }
        Format::Yaml => Ok(yaml::write(value).into_bytes()),
        Format::Protobuf => {
            let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
            protobuf::encode(value, text("apiVersion"), text("kind")).map_err(Status::internal)
        }
    }
}

/// A response with the headers that every API answer carries.
pub fn respond(code: u16, format: Format, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}
