//! What is recorded of requests: the shapes that a real server writes, at every level and stage, in the archive and in the sinks.

mod admitted;
mod core;
mod elsewhere;
mod ending;
mod hostile;
mod observed;
mod policies;
mod redaction;
mod shapes;
mod sinks;

use std::path::PathBuf;

use axum::body::Body;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;
use usher::Server;
use usher::audit::sink::log;
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
    let body = response.into_body().collect().await;
    if code >= 500 {
        // For whoever looks at a failed test.
        println!("{code}: {:?}", body.map(|body| body.to_bytes()));
    }
    (code, id)
}

/// Everything that the archive has of a request, oldest first.
pub async fn events(server: &Server, audit_id: &str) -> Vec<Event> {
    server.audit().flush().await;
    let filter = Filter { audit_id: Some(audit_id.into()), ..Filter::default() };
    server.audit().archive.query(&filter, 100).iter().map(|event| (**event).clone()).collect()
}

/// A server with an audit policy and a log.
pub struct Recorded {
    pub server: Server,
    pub directory: TempDir,
    pub log: PathBuf,
}

impl Recorded {
    /// With these rules.
    pub async fn start(rules: &str) -> Recorded {
        Recorded::with(crate::builder(), tempfile::tempdir().unwrap(), rules).await
    }

    /// The same, made of a builder that knows more.
    pub async fn with(mut builder: usher::server::Builder, directory: TempDir, rules: &str) -> Recorded {
        let (policy, log) = (directory.path().join("policy.yaml"), directory.path().join("audit.log"));
        std::fs::write(&policy, format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}")).unwrap();
        builder.audit.policy = Some(policy);
        builder.audit.log = Some(log::Settings::new(&log));
        Recorded { server: builder.start().await.unwrap(), directory, log }
    }

    /// With everything recorded.
    pub async fn everything() -> Recorded {
        Recorded::start("rules:\n- level: RequestResponse\n").await
    }

    /// What the log has of a request.
    pub async fn of(&self, audit_id: &str) -> Vec<Value> {
        self.server.audit().flush_sinks().await;
        let text = std::fs::read_to_string(&self.log).unwrap();
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["auditID"] == audit_id).collect()
    }

    /// Sends a request; what the log has of it.
    pub async fn send(&self, request: Request<Body>) -> Vec<Value> {
        let (_, id) = send(&self.server, request).await;
        self.of(&id).await
    }

    /// As the administrator; the last event.
    pub async fn ask(&self, method: Method, uri: &str, body: Option<Value>) -> Value {
        self.send(request(method, uri, &admin(), body)).await.pop().unwrap()
    }

    /// The same, where it must succeed.
    pub async fn make(&self, uri: &str, body: Value) {
        let event = self.ask(Method::POST, uri, Some(body)).await;
        assert_eq!(event["responseStatus"]["code"], 201, "{event}");
    }
}

/// The shape of an event: what changes from one run to the next is checked and taken away, objects are told by their kind.
pub fn shape(mut event: Value) -> Value {
    let map = event.as_object_mut().unwrap();
    let id = map.remove("auditID").unwrap();
    assert_eq!(id.as_str().unwrap().len(), 36, "{id}");
    for time in ["requestReceivedTimestamp", "stageTimestamp"] {
        let text = map.remove(time).unwrap();
        // 2026-11-16T00:01:40.713093Z
        assert_eq!(text.as_str().unwrap().len(), 27, "{text}");
        text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    }
    assert!(map.remove("trace").is_none(), "a sink gets no story");
    // On a busy machine any request may take so long that it says where its time went.
    if let Some(annotations) = map.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| !key.starts_with("apiserver.latency.k8s.io/"));
        if annotations.is_empty() {
            map.remove("annotations");
        }
    }
    for object in ["requestObject", "responseObject"] {
        if let Some(value) = map.get_mut(object) {
            let kind = value["kind"].as_str().map(str::to_owned);
            *value = kind.map_or_else(|| value.take(), Value::from);
        }
    }
    event
}

/// An event as the administrator's request leaves it, with more or other members.
pub fn expected(members: Value) -> Value {
    let mut event = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "RequestResponse", "stage": "ResponseComplete",
        "user": {"username": "admin", "uid": "admin-uid", "groups": ["system:masters", "system:authenticated"]},
        "sourceIPs": ["127.0.0.1"], "userAgent": "facts",
        "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
    });
    for (key, value) in members.as_object().unwrap() {
        match (key.as_str(), event.get_mut(key)) {
            ("annotations", Some(annotations)) if value.is_object() => {
                annotations.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
            }
            (key, _) => event[key] = value.clone(),
        }
    }
    event.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    event
}
