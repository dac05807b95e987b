//! What operators ask of the running server besides the Kubernetes API, under `/usher/v1/` and behind the same authentication and
//! authorisation: a snapshot of the store, the clock, the recorded requests ([`requests`]), what follows from them ([`advice`]), and what happened and why ([`explain`],
//! [`trace`], [`blame`], [`history`]).

mod advice;
pub mod blame;
pub mod explain;
pub mod history;
mod live;
mod records;
mod requests;
mod subject;
pub mod trace;

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::{Method, Request};
use serde_json::json;
use tokio::io::AsyncReadExt;

use self::subject::{Question, known_parameters, no_parameters};
use super::Gateway;
use super::layers::Refused;
use super::layers::deadline::parse_duration;
use super::router::page_not_found;
use crate::api::representation::{Representation, respond_value};
use crate::audit::event::ObjectReference;
use crate::request::{decode, query_value};
use crate::status::Status;

/// How much of a snapshot is read at once.
const PIECE: usize = 256 << 10;

/// Answers a request under `/usher/v1/`.
pub async fn serve(gateway: &Arc<Gateway>, request: Request<Body>) -> Result<Response, Refused> {
    let uri = request.uri().clone();
    let query = uri.query().unwrap_or_default();
    match (&request.method().clone(), uri.path()) {
        (&Method::GET, "/usher/v1/snapshot") => snapshot(gateway, Question::of(&request, "/usher/v1/snapshot", &[])?).await,
        (&Method::GET, "/usher/v1/clock") => {
            no_parameters(query)?;
            let clock = &gateway.api.clock;
            Ok(respond_value(200, &json!({"now": clock.now().to_string(), "virtual": clock.is_virtual()}), Representation::JSON)?)
        }
        (&Method::POST, "/usher/v1/clock/advance") => {
            known_parameters(query, &["by"])?;
            let by = query_value(query, "by").unwrap_or_default();
            let by = parse_duration(&by).ok_or_else(|| Status::bad_request(format!("by takes a duration such as 1h30m, not {by:?}")))?;
            let clock = &gateway.api.clock;
            if !clock.is_virtual() {
                return Err(Status::bad_request("the clock cannot be moved: the server was started without --virtual-clock").into());
            }
            clock.advance(by).await;
            Ok(respond_value(200, &json!({"now": clock.now().to_string(), "virtual": true}), Representation::JSON)?)
        }
        (&Method::GET, "/usher/v1/requests") => requests::list(gateway, query, request.headers()).await,
        (&Method::POST, "/usher/v1/requests") => requests::import(gateway, request).await,
        (&Method::GET, "/usher/v1/rbac") => advice::roles(gateway, query).await,
        (&Method::POST, "/usher/v1/what-if") => advice::what_if(gateway, request).await,
        (&Method::GET, "/usher/v1/stats") => requests::stats(gateway, query).await,
        (&Method::GET, path) if let Some(id) = path.strip_prefix("/usher/v1/requests/") => requests::get(gateway, &decode(id), query).await,
        (&Method::GET, path) if path.starts_with("/usher/v1/explain/") => explain::serve(gateway, request).await,
        (&Method::GET, path) if path.starts_with("/usher/v1/trace/") => trace::serve(gateway, request).await,
        (&Method::GET, path) if path.starts_with("/usher/v1/blame/") => blame::serve(gateway, request).await,
        (&Method::GET, path) if path.starts_with("/usher/v1/history/") => history::history(gateway, request).await,
        (&Method::GET, path) if path.starts_with("/usher/v1/objects/") => history::objects(gateway, request).await,
        (_, path) if is_known(path) => Err(Status::method_not_allowed().into()),
        _ => Ok(page_not_found()),
    }
}

/// Whether a path has another method than the one that was tried.
fn is_known(path: &str) -> bool {
    let Some(path) = path.strip_prefix("/usher/v1/") else { return false };
    let whole = ["snapshot", "clock", "clock/advance", "requests", "rbac", "what-if", "stats"];
    let below = ["requests/", "explain/", "trace/", "blame/", "history/", "objects/"];
    whole.contains(&path) || below.iter().any(|prefix| path.starts_with(prefix))
}

/// A consistent copy of the store, written to a file of its own first so that the store is not held while a client reads slowly.
/// It holds every object there is: whoever may ask the archive may not therefore have the Secrets.
async fn snapshot(gateway: &Arc<Gateway>, question: Question) -> Result<Response, Refused> {
    let everything = ObjectReference { api_group: "*".into(), resource: "*".into(), ..ObjectReference::default() };
    question.may(gateway, "list", &everything).await?;
    let failed = |error: &dyn std::fmt::Display| Refused(Status::internal(format!("the snapshot could not be made: {error}")));
    let path = std::env::temp_dir().join(format!("usher-snapshot-{}", uuid::Uuid::new_v4()));
    let made = gateway.api.state.store().snapshot(&path).await;
    let opened = match made {
        Ok(()) => tokio::fs::File::open(&path).await.map_err(|e| failed(&e)),
        Err(error) => Err(failed(&error)),
    };
    // The open file stays readable, and nothing stays behind however the request ends.
    let _ = tokio::fs::remove_file(&path).await;
    let stream = futures::stream::unfold(opened?, |mut file| async move {
        let mut piece = vec![0; PIECE];
        match file.read(&mut piece).await {
            Ok(0) => None,
            Ok(read) => {
                piece.truncate(read);
                Some((Ok(bytes::Bytes::from(piece)), file))
            }
            Err(error) => Some((Err(error), file)),
        }
    });
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/octet-stream"));
    Ok(response)
}
