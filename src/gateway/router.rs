//! Where a request goes that may go: health, version, metrics, discovery, OpenAPI, and everything else to the REST interface.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{HeaderValue, Request, StatusCode, header};

use super::layers::{Refused, context};
use super::{Gateway, documents, operations};
use crate::api::representation::{Representation, respond_value};

/// The routes.
pub fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/livez", get(probe))
        .route("/readyz", get(probe))
        .route("/healthz", get(probe))
        .route("/{probe}/{check}", get(single_probe))
        .route("/version", get(version))
        .route("/metrics", get(metrics))
        .fallback(resources)
        .with_state(gateway)
}

async fn probe(State(gateway): State<Arc<Gateway>>, request: Request<Body>) -> Response {
    let (code, text) = gateway.health.probe(request.uri().path().trim_matches('/'), None, request.uri().query().unwrap_or_default());
    plain(code, text)
}

async fn single_probe(
    State(gateway): State<Arc<Gateway>>,
    Path((kind, check)): Path<(String, String)>,
    request: Request<Body>,
) -> Result<Response, Refused> {
    if !matches!(kind.as_str(), "livez" | "readyz" | "healthz") {
        return resources(State(gateway), request).await;
    }
    let (code, text) = gateway.health.probe(&kind, Some(&check), "");
    Ok(plain(code, text))
}

async fn version() -> Result<Response, Refused> {
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
    let table = gateway.api.registry.table();
    if let Some(remote) = gateway.aggregator.find(request.uri().path(), &table) {
        return Ok(gateway.aggregator.forward(&remote, &context, request).await);
    }
    if !context.info.is_resource {
        return match *request.method() {
            http::Method::GET => documents::serve(&gateway, &request),
            _ => Ok(page_not_found()),
        };
    }
    // A group that nobody serves is an unknown path; a resource that a known group lacks is a Status.
    if table.group(&context.info.group).is_none() {
        return Ok(page_not_found());
    }
    // Of a group that definitions alone make up, also the resources that nobody defined are unknown paths.
    let info = &context.info;
    if table.lookup(&info.group, &info.version, &info.resource).is_none()
        && table.resources.iter().filter(|r| *r.group == *info.group).all(|r| r.custom.is_some())
    {
        return Ok(page_not_found());
    }
    Ok(gateway.api.clone().serve(context, request).await?)
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
