//! A webhook server for tests: TLS on loopback, one function per path, and a record of every review.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use base64::Engine;
use http::{Response, StatusCode, Uri};
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use usher::gateway::pki::Pki;
use usher::gateway::{listener, tls};

type Answer = Arc<dyn Fn(&Value) -> Reply + Send + Sync>;

/// What a path answers.
pub enum Reply {
    /// `response` of the review, to which the uid is added if it has none.
    Response(Value),
    /// Anything else: code, content type, body.
    Raw(u16, &'static str, String),
    /// The same with headers: code, headers, body.
    With(u16, Vec<(&'static str, String)>, String),
    /// Nothing, for as long as this.
    Hang(std::time::Duration),
}

/// A webhook server on loopback.
pub struct Webhooks {
    pub port: u16,
    pub ca_bundle: String,
    answers: Arc<Mutex<HashMap<String, Answer>>>,
    pub reviews: Arc<Mutex<Vec<(String, Value)>>>,
    pub headers: Arc<Mutex<Vec<http::HeaderMap>>>,
    stop: CancellationToken,
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Webhooks {
    pub async fn start() -> Webhooks {
        let pki = Pki::open(None, &["127.0.0.1".into(), "hook.apps.svc".into()]).unwrap();
        let answers: Arc<Mutex<HashMap<String, Answer>>> = Arc::default();
        let reviews: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let headers: Arc<Mutex<Vec<http::HeaderMap>>> = Arc::default();
        let (known, seen, kept) = (answers.clone(), reviews.clone(), headers.clone());
        let handler = move |uri: Uri, carried: http::HeaderMap, body: Bytes| {
            kept.lock().push(carried);
            let (known, seen) = (known.clone(), seen.clone());
            async move {
                let review: Value = serde_json::from_slice(&body).unwrap();
                let path = uri.path().to_owned();
                let shown = uri.path_and_query().map(ToString::to_string).unwrap_or_default();
                seen.lock().push((shown, review.clone()));
                let answer = known.lock().get(&path).cloned();
                let reply = answer.map_or_else(|| Reply::Raw(404, "text/plain", "404 page not found".into()), |answer| answer(&review));
                let response = |code: u16, media: &str, body: String| {
                    Response::builder()
                        .status(StatusCode::from_u16(code).unwrap())
                        .header("content-type", media)
                        .body(Body::from(body))
                        .unwrap()
                };
                match reply {
                    Reply::Raw(code, media, body) => response(code, media, body),
                    Reply::With(code, headers, body) => {
                        let mut response = response(code, "text/plain", body);
                        for (name, value) in headers {
                            response.headers_mut().insert(name, value.parse().unwrap());
                        }
                        response
                    }
                    Reply::Hang(time) => {
                        tokio::time::sleep(time).await;
                        response(200, "application/json", "{}".into())
                    }
                    Reply::Response(mut answer) => {
                        if answer.get("uid").is_none() {
                            answer["uid"] = review["request"]["uid"].clone();
                        }
                        let body = json!({"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": answer});
                        response(200, "application/json", body.to_string())
                    }
                }
            }
        };
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let config = tls::server_config(pki.serving.as_bytes(), pki.serving_key.as_bytes()).unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(listener::serve(socket, config, Router::new().fallback(handler), stop.clone()));
        let ca_bundle = base64::engine::general_purpose::STANDARD.encode(&pki.ca);
        Webhooks { port, ca_bundle, answers, reviews, headers, stop }
    }

    /// Has a path answer.
    pub fn on(&self, path: &str, answer: impl Fn(&Value) -> Reply + Send + Sync + 'static) {
        self.answers.lock().insert(path.to_owned(), Arc::new(answer));
    }

    /// One entry of `webhooks` that asks a path about ConfigMaps with the label `wh: <name>`.
    pub fn entry(&self, name: &str, path: &str) -> Value {
        json!({
            "name": format!("{name}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 5,
            "clientConfig": {"url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": self.ca_bundle},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            "objectSelector": {"matchLabels": {"wh": name}},
        })
    }

    /// How often a path was asked.
    pub fn count(&self, path: &str) -> usize {
        self.reviews.lock().iter().filter(|(uri, _)| uri.split('?').next() == Some(path)).count()
    }
}

/// A JSON patch as a response.
pub fn patched(patch: Value) -> Reply {
    let encoded = base64::engine::general_purpose::STANDARD.encode(patch.to_string());
    Reply::Response(json!({"allowed": true, "patchType": "JSONPatch", "patch": encoded}))
}

/// Objects of any kind.
pub fn api(client: &kube::Client, group: &str, version: &str, kind: &str, plural: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Creates an object from JSON.
pub async fn create(api: &Api<DynamicObject>, object: Value) -> Result<Value, kube::core::Status> {
    create_with(api, object, false).await
}

/// The same, as a dry run or not.
pub async fn create_with(api: &Api<DynamicObject>, object: Value, dry_run: bool) -> Result<Value, kube::core::Status> {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let parameters = PostParams { dry_run, ..PostParams::default() };
    match api.create(&parameters, &object).await {
        Ok(object) => Ok(serde_json::to_value(object).unwrap()),
        Err(kube::Error::Api(status)) => Err(*status),
        Err(other) => panic!("{other}"),
    }
}

/// A webhook configuration.
pub async fn configure(client: &kube::Client, mutating: bool, name: &str, webhooks: Vec<Value>) {
    let (kind, plural) = match mutating {
        true => ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        false => ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
    };
    let api = api(client, "admissionregistration.k8s.io", "v1", kind, plural, None);
    let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": webhooks});
    create(&api, object).await.unwrap();
}

/// ConfigMaps in `default`.
pub fn configmaps(client: &kube::Client) -> Api<DynamicObject> {
    api(client, "", "v1", "ConfigMap", "configmaps", Some("default"))
}

/// A ConfigMap with the label that a test's webhook selects.
pub fn configmap(name: &str, label: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"wh": label}}, "data": {"k": "v"}})
}

/// A server that takes the request, and hangs up. Gives its port and its authority.
pub async fn closing() -> (u16, String) {
    let pki = Pki::open(None, &["127.0.0.1".into()]).unwrap();
    let config = tls::server_config(pki.serving.as_bytes(), pki.serving_key.as_bytes()).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = socket.accept().await {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let mut some = [0; 64];
                let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut some).await;
            }
        }
    });
    (port, base64::engine::general_purpose::STANDARD.encode(&pki.ca))
}
