//! Any body as a write: read as JSON, YAML or protobuf, made whole, checked, patched and kept, all through the front door of a server in
//! memory. No panic, no hang, and never an answer without a `Status` to explain it. The first byte of the input says what it is and
//! what becomes of it; behind a byte of 0xff, which no text has, follows a patch for the object that the rest made.
#![no_main]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use serde_json::json;
use tower::ServiceExt;
use usher::Server;
use usher::authn::InProcess;
use usher::request::User;

/// Kinds with much to decode, default and validate, and one that a definition makes.
const COLLECTIONS: &[(&str, &str)] = &[
    ("/api/v1/namespaces/default/configmaps", "f"),
    ("/api/v1/namespaces/default/pods", "f"),
    ("/api/v1/namespaces/default/services", "f"),
    ("/apis/apps/v1/namespaces/default/deployments", "f"),
    ("/apis/batch/v1/namespaces/default/cronjobs", "f"),
    ("/apis/networking.k8s.io/v1/namespaces/default/ingresses", "f"),
    ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "fuzz.example.com"),
    ("/apis/fuzz.example.com/v1/namespaces/default/widgets", "f"),
];

const FORMS: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// A server keeps history; after so many inputs it is replaced by a fresh one.
const INPUTS: usize = 20_000;

struct Door {
    runtime: tokio::runtime::Runtime,
    server: Server,
    user: Arc<User>,
    inputs: usize,
}

impl Door {
    fn open() -> Door {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let server = runtime.block_on(Server::builder().in_memory().start()).expect("a server");
        let user = Arc::new(User::new("fuzz", &["system:masters", "system:authenticated"]));
        let door = Door { runtime, server, user, inputs: 0 };
        // Pods run as an account, and there is a custom kind.
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}).to_string();
        door.send("POST", "/api/v1/namespaces/default/serviceaccounts", FORMS[0], account.as_bytes());
        let spec = json!({"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
            "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 20},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "port": {"x-kubernetes-int-or-string": true},
            "items": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "string", "nullable": true}}}},
        }, "x-kubernetes-validations": [{"rule": "self.size < 9 || has(self.name)"}]});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.fuzz.example.com"},
            "spec": {"group": "fuzz.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
        });
        let code = door.send("POST", COLLECTIONS[6].0, FORMS[0], definition.to_string().as_bytes());
        assert_eq!(code, 201);
        door
    }

    fn close(self) {
        self.runtime.block_on(self.server.stop());
    }

    fn send(&self, method: &str, path: &str, media: &str, body: &[u8]) -> u16 {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", media)
            .extension(InProcess(self.user.clone()))
            .body(Body::from(Bytes::copy_from_slice(body)))
            .expect("a request");
        self.runtime.block_on(async {
            let response = self.server.router().oneshot(request).await.expect("infallible");
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await.expect("a body").to_bytes();
            let answer: serde_json::Value = serde_json::from_slice(&bytes).expect("every answer is JSON");
            assert!(code < 400 || answer["kind"] == "Status", "{code}: {answer}");
            // A panic inside the server is caught there and answered with this code and reason.
            let message = answer["message"].as_str().unwrap_or_default();
            assert!(!message.contains("caused apiserver to panic"), "{method} {path}: {message}");
            code
        })
    }
}

static DOOR: Mutex<Option<Door>> = Mutex::new(None);

fuzz_target!(|data: &[u8]| {
    let [choice, rest @ ..] = data else { return };
    let choice = usize::from(*choice);
    let (object, patch) = match rest.iter().position(|byte| *byte == 0xff) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let mut slot = DOOR.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if slot.as_ref().is_some_and(|door| door.inputs >= INPUTS) {
        slot.take().into_iter().for_each(Door::close);
    }
    let door = slot.get_or_insert_with(Door::open);
    door.inputs += 1;
    let (collection, name) = COLLECTIONS[choice % COLLECTIONS.len()];
    let start = Instant::now();
    let code = door.send("POST", collection, FORMS[choice / COLLECTIONS.len() % FORMS.len()], object);
    let one = format!("{collection}/{name}");
    if let Some(patch) = patch {
        for media in PATCHES {
            let force = if media.contains("apply") { "&force=true" } else { "" };
            door.send("PATCH", &format!("{one}?fieldManager=fuzz{force}"), media, patch);
        }
    }
    if code == 201 || patch.is_some() {
        door.send("DELETE", &one, "application/json", b"{\"gracePeriodSeconds\":0}");
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{} bytes took {:?}", data.len(), start.elapsed());
});
