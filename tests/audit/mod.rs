//! What is recorded of requests: the shapes that a real server writes, at every level and stage, in the archive and in the sinks.

mod core;

use axum::body::Body;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;
use usher::Server;
use usher::audit::{Event, Filter};
use usher::request::User;

/// A request from inside the process, as some user.
pub fn request(method: Method, uri: &str, user: &User, body: Option<Value>) -> Request<Body> {
    let content_type = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let builder = Request::builder().method(method).uri(uri).header("user-agent", "facts").header("content-type", content_type);
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let mut request = builder.body(body).unwrap();
    request.extensions_mut().insert(usher::authn::InProcess(std::sync::Arc::new(user.clone())));
    request
}

pub fn admin() -> User {
    User { uid: "admin-uid".into(), ..User::new("admin", &["system:masters", "system:authenticated"]) }
}

/// Sends a request through the whole stack, reads the answer to its end, and gives its Audit-ID with the code.
pub async fn send(server: &Server, request: Request<Body>) -> (u16, String) {
    let response: Response<Body> = server.router().oneshot(request).await.unwrap();
    let id = response.headers()["audit-id"].to_str().unwrap().to_owned();
    let code = response.status().as_u16();
    let _ = response.into_body().collect().await;
    (code, id)
}

/// Everything that the archive has of a request, oldest first.
pub async fn events(server: &Server, audit_id: &str) -> Vec<Event> {
    server.audit().flush().await;
    let filter = Filter { audit_id: Some(audit_id.into()), ..Filter::default() };
    server.audit().archive.query(&filter, 100).iter().map(|event| (**event).clone()).collect()
}
