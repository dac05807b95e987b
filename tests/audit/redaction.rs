//! Planted secrets are looked for wherever something is written down: the archive, the sinks, the log of the server.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use axum::body::{Body, Bytes};
use http::{HeaderValue, Method};
use parking_lot::Mutex;
use serde_json::{Value, json};
use usher::audit::Filter;

use super::sinks::{Collector, eventually};
use super::{Recorded, admin, request, send};
use crate::admission::server::{Webhooks, configure};

/// All of them are also looked for in base64. No two tests plant the same.
const PLANTED: &[&str] = &[
    "planted-data-4711",
    "planted-stringdata-4711",
    "planted-patch-4711",
    "planted-jsonpatch-4711",
    "planted-applied-4711",
    "planted-bearer-4711",
    "planted-review-4711",
    "planted-query-4711",
    "planted-webhook-4711",
    "planted-broken-4711",
    "planted-policy-4711",
    "planted-key-4711",
    "planted-apply-4711",
    "planted-list-4711",
    "planted-binary-4711",
    "planted-protobuf-4711",
    "planted-annotation-4711",
    "planted-basic-4711",
    "planted-metadata-4711",
];

fn needles() -> &'static [String] {
    use base64::Engine;
    static NEEDLES: OnceLock<Vec<String>> = OnceLock::new();
    NEEDLES.get_or_init(|| {
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        PLANTED.iter().flat_map(|text| [(*text).to_owned(), encode(text)]).collect()
    })
}

/// The log of the process, of which nothing is kept but how often something was found in it.
struct Searched;

static FOUND: AtomicUsize = AtomicUsize::new(0);
static LINES: AtomicUsize = AtomicUsize::new(0);

impl io::Write for Searched {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        LINES.fetch_add(1, Ordering::SeqCst);
        if needles().iter().any(|needle| text.contains(needle)) {
            FOUND.fetch_add(1, Ordering::SeqCst);
            eprintln!("a planted secret in the log: {text}");
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn encoded(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[tokio::test]
async fn a_planted_secret_is_nowhere_to_be_found() {
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_ansi(false).with_writer(|| Searched).finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    tracing::debug!("the log is being read");
    // Every way out of the process that a record can take.
    let collector = Collector::start().await;
    let spans: Arc<Mutex<Vec<Bytes>>> = Arc::default();
    let seen = spans.clone();
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", socket.local_addr().unwrap());
    let router = axum::Router::new().fallback(move |body: Bytes| {
        seen.lock().push(body);
        async { "{}" }
    });
    tokio::spawn(async move { axum::serve(socket, router).await });
    let directory = tempfile::tempdir().unwrap();
    let mut builder = usher::Server::builder().data_dir(directory.path().join("data"));
    builder.audit.webhook = Some(collector.settings(directory.path()));
    builder.audit.otlp_endpoint = Some(endpoint);
    let rules = "rules:\n- level: Metadata\n  namespaces: [quiet]\n- level: RequestResponse\n";
    let recorded = Recorded::with(builder, directory, rules).await;
    let hooks = Webhooks::start().await;
    hooks.on("/plant", |_| {
        crate::admission::server::patched(json!([{"op": "add", "path": "/data/added", "value": encoded("planted-webhook-4711")}]))
    });
    let mut entry = hooks.entry("plant", "/plant");
    entry["rules"][0]["operations"] = json!(["CREATE", "UPDATE"]);
    entry["rules"][0]["resources"] = json!(["secrets"]);
    configure(&recorded.server.client(), true, "plant", vec![entry]).await;
    let base = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "tells"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["secrets"]}]},
        "validations": [
            {"expression": "!has(object.data) || !('bad' in object.data)", "messageExpression": "'I was told ' + object.data['bad']"},
            {"expression": "!has(object.metadata.labels) || !('tell' in object.metadata.labels)", "messageExpression": "'it was ' + object.data['p'] + ', now ' + object.data['added']"},
            {"expression": "!has(object.metadata.labels) || !('quote' in object.metadata.labels)", "messageExpression": "'there was ' + oldObject.data['p'] + ' and ' + object.data['added']"}],
        "auditAnnotations": [{"key": "loud", "valueExpression": "has(object.data) && 'bad' in object.data ? 'it says ' + string(object.data['bad']) : ''"}]}});
    recorded.make(&format!("{base}/validatingadmissionpolicies"), policy).await;
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "tells"},
        "spec": {"policyName": "tells", "validationActions": ["Deny", "Audit"]}});
    recorded.make(&format!("{base}/validatingadmissionpolicybindings"), binding).await;

    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "labels": {"wh": "plant"}, "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{\"stringData\":{\"p\":\"planted-applied-4711\"}}"}},
        "data": {"p": encoded("planted-data-4711")}, "stringData": {"q": "planted-stringdata-4711"}});
    let ask = async |method: Method, uri: &str, body: Option<Value>| send(&recorded.server, request(method, uri, &admin(), body)).await.0;
    let one = format!("{secrets}/s");
    assert_eq!(ask(Method::POST, secrets, Some(secret)).await, 201);
    assert_eq!(ask(Method::GET, &one, None).await, 200);
    assert_eq!(ask(Method::GET, secrets, None).await, 200);
    assert_eq!(ask(Method::PATCH, &one, Some(json!({"stringData": {"r": "planted-patch-4711"}}))).await, 200);
    let operations = json!([{"op": "add", "path": "/data/t", "value": encoded("planted-jsonpatch-4711")}]);
    let mut patch = request(Method::PATCH, &one, &admin(), Some(operations));
    patch.headers_mut().insert("content-type", HeaderValue::from_static("application/json-patch+json"));
    assert_eq!(send(&recorded.server, patch).await.0, 200);
    // A patch whose refusal quotes the whole object.
    assert_eq!(ask(Method::PATCH, &one, Some(json!({"data": {"u": {"planted-patch-4711": 1}}}))).await / 100, 4);
    let refused =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "refused"}, "data": {"bad": encoded("planted-policy-4711")}});
    assert_eq!(ask(Method::POST, secrets, Some(refused)).await, 422);
    let mut broken = request(Method::POST, secrets, &admin(), None);
    *broken.body_mut() = Body::from("{\"apiVersion\":\"v1\",\"data\":{\"a\":\"planted-broken-4711\"");
    assert_eq!(send(&recorded.server, broken).await.0, 400);
    let pem = |what: &str| format!("-----BEGIN PRIVATE KEY-----\n{what}\n-----END PRIVATE KEY-----");
    let keys = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "k"}, "data": {
        "tls.key": pem("planted-key-4711"), "open": "a ConfigMap is no secret"}, "binaryData": {"p12": encoded(&pem("planted-binary-4711"))}});
    assert_eq!(ask(Method::POST, "/api/v1/namespaces/default/configmaps", Some(keys)).await, 201);
    let applied = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {applied: planted-apply-4711}\n";
    let mut apply = request(Method::PATCH, &format!("{one}?fieldManager=a&force=true"), &admin(), None);
    apply.headers_mut().insert("content-type", HeaderValue::from_static("application/apply-patch+yaml"));
    *apply.body_mut() = Body::from(applied);
    assert_eq!(send(&recorded.server, apply).await.0, 200);
    let noted = json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{\"data\":\"planted-annotation-4711\"}"}}});
    assert_eq!(ask(Method::PATCH, &one, Some(noted)).await, 200);
    // Secrets where no Secret is expected, in a form that is not JSON, and in a request of which only metadata is recorded.
    let item = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "l"}, "stringData": {"p": "planted-list-4711"}});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [item]});
    assert_eq!(ask(Method::POST, secrets, Some(list.clone())).await, 400);
    assert_eq!(ask(Method::POST, "/api/v1/namespaces/default/configmaps", Some(list)).await, 400);
    let secret = |name: &str, value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": {"wh": "plant"}}, "data": {"p": encoded(value)}});
    let mut proto = request(Method::POST, secrets, &admin(), None);
    proto.headers_mut().insert("content-type", HeaderValue::from_static("application/vnd.kubernetes.protobuf"));
    *proto.body_mut() = Body::from(usher::api::protobuf::encode(&secret("proto", "planted-protobuf-4711"), "v1", "Secret").unwrap());
    assert_eq!(send(&recorded.server, proto).await.0, 201);
    recorded.make("/api/v1/namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quiet"}})).await;
    let mut quoted = secret("quoted", "planted-metadata-4711");
    quoted["metadata"]["labels"]["tell"] = json!("added");
    // The policy quotes what the webhook added, and of this request nobody records the patch.
    assert_eq!(ask(Method::POST, "/api/v1/namespaces/quiet/secrets", Some(quoted)).await, 422);
    let mut basic = request(Method::GET, "/api/v1/pods", &admin(), None);
    basic.extensions_mut().clear();
    let header = format!("Basic {}", encoded("jane:planted-basic-4711"));
    basic.headers_mut().insert("authorization", HeaderValue::from_str(&header).unwrap());
    send(&recorded.server, basic).await;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "planted-review-4711"}});
    assert_eq!(ask(Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", Some(review)).await, 201);
    assert_eq!(ask(Method::GET, "/version?access_token=planted-query-4711", None).await, 200);
    let mut bearer = request(Method::GET, "/api/v1/pods", &admin(), None);
    bearer.extensions_mut().clear();
    bearer.headers_mut().insert("authorization", HeaderValue::from_static("Bearer planted-bearer-4711"));
    assert_eq!(send(&recorded.server, bearer).await.0, 401);
    // A real token, made and used.
    recorded
        .make(
            "/api/v1/namespaces/default/serviceaccounts",
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}),
        )
        .await;
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let asked = request(Method::POST, "/api/v1/namespaces/default/serviceaccounts/a/token", &admin(), Some(token));
    let answer = tower::ServiceExt::oneshot(recorded.server.router(), asked).await.unwrap();
    let bytes = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
    let token = serde_json::from_slice::<Value>(&bytes).unwrap()["status"]["token"].as_str().unwrap().to_owned();
    assert_eq!(ask(Method::DELETE, &one, None).await, 200);

    recorded.server.audit().flush_sinks().await;
    let kept = recorded.server.audit().archive.query(&Filter::default(), 100_000);
    let archive: String = kept.iter().map(|event| serde_json::to_string(&**event).unwrap()).collect();
    let log = std::fs::read_to_string(&recorded.log).unwrap();
    assert!(log.contains("[redacted]") && archive.contains("[redacted]"));
    let last = kept.last().unwrap().audit_id.clone();
    eventually(|| collector.batches.lock().iter().any(|batch| batch.to_string().contains(&last))).await;
    let webhook: String = collector.batches.lock().iter().map(Value::to_string).collect();
    eventually(|| spans.lock().iter().any(|body| String::from_utf8_lossy(body).contains(&last))).await;
    let otlp: String = spans.lock().iter().map(|body| String::from_utf8_lossy(body).into_owned()).collect();
    for (place, text) in [("the archive", &archive), ("the log", &log), ("the webhook's body", &webhook)] {
        assert!(text.contains("a ConfigMap is no secret"), "{place}");
    }
    for needle in needles().iter().chain([&token]) {
        for (place, text) in [("the archive", &archive), ("the log", &log), ("the webhook's body", &webhook), ("the spans", &otlp)] {
            if let Some(at) = text.find(needle.as_str()) {
                panic!("{needle} is in {place}: …{}", &text[at.saturating_sub(400)..(at + 100).min(text.len())]);
            }
        }
    }
    // Nor in any file but the store, which is there to keep it.
    let Recorded { server, directory, .. } = recorded;
    server.stop().await;
    let mut folders = vec![directory.path().to_owned()];
    let mut searched = 0;
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with(usher::store::redb::FILE) {
                let bytes = std::fs::read(&path).unwrap();
                searched += 1;
                for needle in needles().iter().chain([&token]) {
                    assert!(memchr::memmem::find(&bytes, needle.as_bytes()).is_none(), "{needle} is in {}", path.display());
                }
            }
        }
    }
    assert!(searched > 1);
    assert_eq!(FOUND.load(Ordering::SeqCst), 0);
    assert!(LINES.load(Ordering::SeqCst) > 0, "the log was read");
}
