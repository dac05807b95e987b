//! A server that stops: whatever it has answered is recorded, also to its own components, and to whom it answers while it stops.

use std::collections::BTreeSet;

use axum::body::{Body, Bytes};
use http::{Method, Request};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use usher::audit::sink::log;

use super::{Recorded, admin, request, send};

/// The ids of the requests that ended, as a log tells them.
fn told(log: &std::path::Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(log).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["stage"] == "ResponseComplete").map(|event| event["auditID"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_components_were_answered_before_a_server_stopped_is_in_the_archive_and_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let (data, log) = (directory.path().join("data"), directory.path().join("audit.log"));
    let mut builder = usher::Server::builder().data_dir(&data);
    (builder.components, builder.nodes) = ("all".into(), 1);
    builder.audit.log = Some(log::Settings::new(&log));
    let server = builder.start().await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let deployments: Api<Deployment> = Api::default_namespaced(server.client());
    let container = json!({"name": "c", "image": "i"});
    let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 60, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}}});
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    // In the midst of their work.
    while pods.list(&Default::default()).await.unwrap().items.len() < 20 {
        tokio::task::yield_now().await;
    }
    server.stop().await;

    let told = told(&log);
    let server = usher::Server::builder().data_dir(&data).start().await.unwrap();
    let ask = async |path: String| -> Value { server.client().request(Request::get(path).body(Vec::new()).unwrap()).await.unwrap() };
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    for pod in pods.list(&Default::default()).await.unwrap() {
        let name = pod.metadata.name.unwrap();
        let history = ask(format!("/usher/v1/history/pods/{name}")).await;
        for revision in history["revisions"].as_array().unwrap() {
            let id = revision["auditID"].as_str().unwrap();
            assert!(told.contains(id), "{name}, revision {}: not in the log", revision["revision"]);
            assert!(revision["user"].as_str().is_some_and(|user| !user.is_empty()), "{name}: not in the archive: {revision}");
        }
    }
}

#[tokio::test]
async fn a_request_that_is_answered_while_the_server_stops_is_recorded_and_one_that_comes_later_is_refused() {
    let Recorded { server, log, .. } = Recorded::everything().await;
    let (sender, receiver) = tokio::sync::oneshot::channel::<Bytes>();
    let body = Body::from_stream(futures::stream::once(receiver));
    let asked = request(Method::POST, "/api/v1/namespaces/default/configmaps", &admin(), None).map(|_| body);
    let mut asking = Box::pin(send(&server, asked));
    assert!(futures::poll!(&mut asking).is_pending());
    let mut ending = Box::pin(server.audit().stop());
    assert!(futures::poll!(&mut ending).is_pending());
    // It has begun to stop before the body is there.
    sender.send(json!({"metadata": {"name": "late"}}).to_string().into()).unwrap();
    let ((code, id), ()) = tokio::join!(asking, ending);
    assert_eq!(code, 201);
    assert!(told(&log).contains(&id));
    let (code, _) = send(&server, request(Method::GET, "/version", &admin(), None)).await;
    assert_eq!(code, 503, "nobody would tell it");
}
