//! What admission adds to a request: a hundred policies that match it, a thousand that do not, whatever the reason, and one webhook on
//! loopback beside the time that the webhook itself takes.

use std::hint::black_box;
use std::sync::Arc;

use axum::{Json, Router, routing::post};
use base64::Engine;
use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use usher::admission::policy::Evaluator;
use usher::admission::policy::snapshot::Policies;
use usher::admission::policy::validating::ValidatingAdmissionPolicy;
use usher::admission::webhook::Caller;
use usher::admission::webhook::client::Clients;
use usher::admission::webhook::configuration::Hooks;
use usher::admission::webhook::validating::ValidatingAdmissionWebhook;
use usher::admission::{Cluster, Operation, Reinvocation, Validate, Write};
use usher::authz::always::AlwaysAllow;
use usher::gateway::pki::Pki;
use usher::gateway::{listener, tls};
use usher::registry::Registry;
use usher::request::{self, Context, User};
use usher::store::redb::RedbStore;
use usher::watch::{Settings, State};
use usher_components::clock::Clock;

/// A Pod of about six kilobytes.
fn pod() -> Value {
    let container = |i: usize| {
        let env: Vec<Value> =
            (0..10).map(|e| json!({"name": format!("VARIABLE_{e}"), "value": format!("the value of variable {e}")})).collect();
        json!({"name": format!("c{i}"), "image": "registry.k8s.io/pause:3.10", "env": env, "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
            "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}}})
    };
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "labels": {"team": "a", "app": "b"}},
        "spec": {"containers": (0..5).map(container).collect::<Vec<_>>()}})
}

fn write(registry: &Registry) -> Write {
    let resource = registry.lookup("", "v1", "pods").expect("pods");
    let info = request::parse("POST", "/api/v1/namespaces/default/pods", "");
    let kind = (resource.group.clone(), resource.version.clone(), resource.kind.clone());
    Write {
        context: Arc::new(Context::new(info, "", "id".into(), "bench")),
        user: Arc::new(User::new("admin", &["system:authenticated"])),
        resource,
        subresource: String::new(),
        kind,
        namespace: "default".into(),
        name: "p".into(),
        operation: Operation::Create,
        object: Some(pod()),
        old: None,
        options: json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
        dry_run: false,
        reinvocation: Reinvocation::default(),
    }
}

fn policies(count: usize, resource: &str, operations: &[&str]) -> Arc<Policies> {
    selecting(count, resource, operations, json!({}))
}

/// The same, for the objects that a selector selects.
fn selecting(count: usize, resource: &str, operations: &[&str], selector: Value) -> Arc<Policies> {
    made(count, resource, operations, |_| selector.clone())
}

/// Policies for Pods, each with a selector of its own.
fn each_another(count: usize) -> Arc<Policies> {
    made(count, "pods", &["CREATE"], |i| json!({"matchLabels": {"shard": i.to_string()}}))
}

fn made(count: usize, resource: &str, operations: &[&str], selector: impl Fn(usize) -> Value) -> Arc<Policies> {
    let policies = Policies::default();
    for i in 0..count {
        let name = format!("policy-{i:04}");
        let policy = json!({"kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": {
            "matchConstraints": {
                "objectSelector": selector(i),
                "resourceRules": [{"operations": operations, "apiGroups": ["*"], "apiVersions": ["*"], "resources": [resource]}],
            },
            "validations": [
                {"expression": "object.spec.containers.all(c, c.image.startsWith('registry.k8s.io/'))"},
                {"expression": "'team' in object.metadata.labels"},
            ],
        }});
        policies.replace_policy(&name, Some(&policy));
        let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
        policies.replace_binding(&name, Some(&binding));
    }
    Arc::new(policies)
}

fn admission(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let registry = Arc::new(Registry::new());
    let cluster = runtime.block_on(async {
        let store = RedbStore::in_memory().expect("a store");
        let state = State::over(store, Settings::default()).await.expect("a read side");
        Cluster::over(state, registry.clone(), Clock::system()).await.expect("a cluster")
    });
    let evaluator = Arc::new(Evaluator { cluster: cluster.clone(), authorizer: Arc::new(AlwaysAllow) });
    let cases = [
        ("100 policies that match", policies(100, "pods", &["CREATE", "UPDATE"])),
        ("1000 policies for other resources", policies(1000, "widgets", &["CREATE", "UPDATE"])),
        ("1000 policies for other operations", policies(1000, "pods", &["DELETE"])),
        ("1000 policies for other objects", selecting(1000, "pods", &["CREATE"], json!({"matchLabels": {"team": "other"}}))),
        ("1000 policies for each another object", each_another(1000)),
        // What the others are measured against: the request and its trace are made and dropped all the same.
        ("no policy at all", policies(0, "pods", &[])),
    ];
    for (name, policies) in cases {
        let step = ValidatingAdmissionPolicy { policies, evaluator: evaluator.clone() };
        criterion.bench_function(name, |bencher| {
            // A trace belongs to one request: each round has its own.
            bencher.iter_batched(
                || write(&registry),
                |write| black_box(runtime.block_on(step.validate(&write))),
                criterion::BatchSize::SmallInput,
            );
        });
    }

    let pki = Pki::open(None, &["127.0.0.1".into()]).expect("certificates");
    let port = runtime.block_on(async {
        let answer = |Json(review): Json<Value>| async move {
            Json(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {"uid": review["request"]["uid"], "allowed": true}}))
        };
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = socket.local_addr().expect("an address").port();
        let config = tls::server_config(pki.serving.as_bytes(), pki.serving_key.as_bytes()).expect("a configuration");
        tokio::spawn(listener::serve(socket, config, Router::new().route("/", post(answer)), CancellationToken::new()));
        port
    });
    let hooks = Hooks::default();
    let configuration = json!({"metadata": {"name": "w"}, "webhooks": [{
        "name": "w.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("https://127.0.0.1:{port}/"), "caBundle": base64::engine::general_purpose::STANDARD.encode(&pki.ca)},
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["pods"]}],
    }]});
    hooks.replace("w", Some(&configuration));
    let caller = Arc::new(Caller { cluster, authorizer: Arc::new(AlwaysAllow), clients: Clients::default() });
    let step = ValidatingAdmissionWebhook { hooks: Arc::new(hooks), caller };
    // The webhook's own time: the same review to the same server by a client that does nothing else.
    let review =
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "u", "object": pod()}}).to_string();
    let authority = reqwest::Certificate::from_pem(pki.ca.as_bytes()).expect("a certificate");
    let client = reqwest::Client::builder().tls_certs_only([authority]).tcp_nodelay(true).no_proxy().build().expect("a client");
    criterion.bench_function("the webhook's own time", |bencher| {
        bencher.iter(|| {
            runtime.block_on(async {
                let request = client.post(format!("https://127.0.0.1:{port}/")).header("content-type", "application/json");
                black_box(request.body(review.clone()).send().await.expect("an answer").bytes().await.expect("a body"))
            })
        });
    });
    criterion.bench_function("one webhook on loopback", |bencher| {
        bencher.iter_batched(
            || write(&registry),
            |write| black_box(runtime.block_on(step.validate(&write))),
            criterion::BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, admission);
criterion_main!(benches);
