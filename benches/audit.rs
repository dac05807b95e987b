//! What audit adds to a request: handing a request over to the recorder, making an event of it on the recorder's thread, and a whole
//! request with nothing but metadata recorded and with both bodies.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use criterion::{Criterion, criterion_group, criterion_main};
use http::Request;
use serde_json::Value;
use tower::ServiceExt;
use usher::Server;
use usher::audit::lists::Lists;
use usher::audit::policy::Scope;
use usher::audit::record::{Arrival, Bodies, Ending, Record, Told};
use usher::audit::{Archive, Audit, Json, Settings, Stage};
use usher::authn::InProcess;
use usher::request::{Context, User, parse};

struct NoBodies;

impl Bodies for NoBodies {
    fn request(&self, _: &Context, _: &str, _: &[u8]) -> Option<Json> {
        None
    }

    fn response(&self, _: &Context, _: &str, _: &[u8]) -> Option<Value> {
        None
    }
}

fn user() -> Arc<User> {
    Arc::new(User::new("kubernetes-admin", &["system:masters", "system:authenticated"]))
}

fn record() -> Record {
    let path = "/api/v1/namespaces/default/configmaps/c";
    let context = Context::new(parse("GET", path, ""), "", "0d7c3c9a-3c0f-4b1c-9d5b-0c3e2f6c9a11".into(), "kubectl/v1.37.0 (linux/amd64)");
    context.identify(user());
    context.trace.annotate("authorization.k8s.io/decision", "allow");
    context.trace.annotate("authorization.k8s.io/reason", "");
    context.trace.step("authenticate", "in-process", "matched", context.trace.start());
    context.trace.step("authorize", "RBAC", "allowed", context.trace.start());
    let arrival = Arrival {
        context: Arc::new(context),
        uri: path.parse().unwrap_or_default(),
        received: jiff::Timestamp::now(),
        peer: None,
        forwarded_for: None,
        real_ip: None,
        cause: None,
        accept: None,
        in_process: true,
        told: Told::default(),
    };
    Record {
        arrival: Arc::new(arrival),
        stage: Stage::ResponseComplete,
        at: jiff::Timestamp::now(),
        took: Duration::from_micros(30),
        ending: Ending::Code(200),
        scope: None,
        request: None,
        response: None,
        goes_on: false,
    }
}

fn parts(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let _guard = runtime.enter();
    let audit = Audit::start(&Settings::default(), Arc::new(Archive::default()), Arc::new(NoBodies)).expect("a recorder");
    criterion.bench_function("audit: hand a request over", |b| {
        b.iter_batched(record, |record| audit.record(record), criterion::BatchSize::SmallInput);
    });
    criterion.bench_function("audit: make an event", |b| {
        let make = |record: Record| black_box(record.into_event(Scope::default(), &NoBodies, &mut Lists::default()));
        b.iter_batched(record, make, criterion::BatchSize::SmallInput);
    });
}

fn requests(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    for level in ["None", "Metadata", "RequestResponse"] {
        let policy = directory.path().join(format!("{level}.yaml"));
        let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- level: {level}\n");
        std::fs::write(&policy, text).expect("a policy");
        let mut builder = Server::builder().in_memory();
        builder.audit.policy = Some(policy);
        let server = runtime.block_on(builder.start()).expect("a server");
        let router = server.router();
        criterion.bench_function(&format!("audit: get a namespace at level {level}"), |b| {
            b.iter(|| {
                runtime.block_on(async {
                    let mut request = Request::get("/api/v1/namespaces/default").body(Body::empty()).expect("a request");
                    request.extensions_mut().insert(InProcess(user()));
                    let response = router.clone().oneshot(request).await.expect("an answer");
                    black_box(http_body_util::BodyExt::collect(response.into_body()).await.is_ok())
                })
            });
        });
        runtime.block_on(server.stop());
    }
}

criterion_group!(benches, parts, requests);
criterion_main!(benches);
