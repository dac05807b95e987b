//! Where a request goes that may go: health, version, metrics, discovery, OpenAPI, and everything else to the REST interface.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::{HeaderValue, Request, StatusCode, header};

use super::layers::{Refused, context};
use super::{Gateway, documents, operations};
use crate::api::negotiate;
use crate::api::representation::{Representation, header_text, respond_value};
use crate::status::Status;

/// The routes.
pub fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/livez", any(probe))
        .route("/readyz", any(probe))
        .route("/healthz", any(probe))
        .route("/livez/{*check}", any(single_probe))
        .route("/readyz/{*check}", any(single_probe))
        .route("/healthz/{*check}", any(single_probe))
        .route("/version", any(version))
        .route("/version/", any(version))
        .route("/metrics", any(metrics))
        .fallback(resources)
        .with_state(gateway)
}

async fn probe(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Response {
    let store = store_answers(&gateway).await;
    let uri = request.uri();
    let (code, text) = gateway.health.probe(uri.path().trim_matches('/'), None, uri.query().unwrap_or_default(), store);
    plain(code, text)
}

/// Whether the store says in good time where it stands; an etcd may be out of reach.
async fn store_answers(gateway: &Gateway) -> bool {
    let asked = gateway.api.state.store().revision();
    matches!(tokio::time::timeout(std::time::Duration::from_secs(2), asked).await, Ok(Ok(_)))
}

async fn single_probe(State(gateway): State<Arc<Gateway>>, Path(check): Path<String>, request: Request<Body>) -> Response {
    let kind = request.uri().path().split('/').nth(1).unwrap_or_default();
    let (code, text) = gateway.health.probe(kind, Some(&check), "", store_answers(&gateway).await);
    plain(code, text)
}

async fn version(request: Request<Body>) -> Result<Response, Refused> {
    if request.method() != http::Method::GET {
        return Err(Status::method_not_allowed().into());
    }
    negotiate::accept_json(header_text(request.headers(), header::ACCEPT)).map_err(Status::from)?;
    Ok(respond_value(200, &crate::version::info(), Representation::JSON)?)
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    let mut response = plain(200, gateway.metrics.text(&gateway.api) + &gateway.audit.metrics());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    response
}

async fn resources(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Result<Response, Refused> {
    let context = context(&request)?;
    if request.uri().path().starts_with("/usher/v1/") {
        return operations::serve(&gateway, request).await;
    }
    if !is_readable(request.uri().path()) {
        let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
        return Ok((StatusCode::BAD_REQUEST, headers, "400 Bad Request").into_response());
    }
    let table = gateway.api.registry.table();
    if let Some(remote) = gateway.aggregator.find(request.uri().path(), &table) {
        return Ok(gateway.aggregator.forward(&remote, &context, request).await);
    }
    if !context.info.is_resource {
        return documents::serve(&gateway, &request);
    }
    // A group that nobody serves is an unknown path; a resource that a known group lacks is a Status.
    if table.group(&context.info.group).is_none() {
        return Ok(page_not_found());
    }
    // Of a group that definitions alone make up, also the resources that nobody defined are unknown paths, and so are those that are
    // defined for the other scope: of all namespaces at once, objects are only listed and watched.
    let info = &context.info;
    let is_unknown = match table.lookup(&info.group, &info.version, &info.resource) {
        None => table.resources.iter().filter(|r| *r.group == *info.group).all(|r| r.custom.is_some()),
        Some(resource) if resource.custom.is_none() => false,
        Some(resource) if resource.namespaced => info.namespace.is_empty() && !matches!(info.verb, "list" | "watch"),
        Some(_) => !info.namespace.is_empty(),
    };
    if is_unknown {
        return Ok(page_not_found());
    }
    Ok(gateway.api.clone().serve(context, request).await?)
}

/// A path whose escapes mean nothing is no path.
fn is_readable(path: &str) -> bool {
    let bytes = path.as_bytes();
    let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    bytes.iter().enumerate().all(|(at, byte)| *byte != b'%' || (hex(at + 1) && hex(at + 2)))
}

/// The plain text that a real server gives for a path it does not know.
pub fn page_not_found() -> Response {
    plain(404, "404 page not found\n".into())
}

fn plain(code: u16, text: String) -> Response {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache, private"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (status, headers, text).into_response()
}
