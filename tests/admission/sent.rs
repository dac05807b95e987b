//! Mutating admission sees an update as it was sent, and validating admission what will be kept; requests that are not simply objects are
//! shown in full. All of it as observed on a real server.

use serde_json::{Value, json};
use usher::Server;

use super::server::*;

/// A server with a mutating (`/m`) and a validating (`/v`) webhook that are asked about everything and allow it.
async fn recording() -> (Server, kube::Client, Webhooks) {
    let server = Server::builder().in_memory().start().await.unwrap();
    let (client, hooks) = (server.client(), Webhooks::start().await);
    for (path, mutating) in [("/m", true), ("/v", false)] {
        hooks.on(path, |_| Reply::Response(json!({"allowed": true})));
        let mut entry = hooks.entry("all", path);
        entry["rules"] = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
        entry["objectSelector"] = json!({});
        configure(&client, mutating, "all", vec![entry]).await;
    }
    (server, client, hooks)
}

/// Sends a request; gives the answer, and what the two webhooks were shown of it.
async fn shown(client: &kube::Client, hooks: &Webhooks, method: &str, path: &str, body: Value) -> (Value, Value, Value) {
    hooks.reviews.lock().clear();
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", media).body(body).unwrap();
    let answer = client.request::<Value>(request).await.unwrap();
    let reviews = hooks.reviews.lock().clone();
    let of = |path: &str| {
        let mut found = reviews.iter().filter(|(uri, _)| uri.starts_with(path)).map(|(_, review)| review["request"].clone());
        (found.next().unwrap_or_default(), found.count())
    };
    let ((mutating, more), (validating, others)) = (of("/m?"), of("/v?"));
    assert_eq!((more, others), (0, 0), "each is asked once");
    (answer, mutating, validating)
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment() -> Value {
    json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

#[tokio::test]
async fn an_update_is_shown_as_it_was_sent_and_then_as_it_will_be_kept() {
    let (_server, client, hooks) = recording().await;
    shown(&client, &hooks, "POST", MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    let put = json!({"metadata": {"name": "a"}, "data": {"k": "w"}});
    let (_, mutating, validating) = shown(&client, &hooks, "PUT", &format!("{MAPS}/a"), put).await;
    let sent = &mutating["object"]["metadata"];
    assert!(sent.get("uid").is_none() && sent.get("creationTimestamp").is_none(), "the client said neither: {sent}");
    assert_eq!(validating["object"]["metadata"]["uid"], validating["oldObject"]["metadata"]["uid"]);
    assert!(validating["object"]["metadata"]["creationTimestamp"].is_string());
}

#[tokio::test]
async fn a_status_comes_with_the_spec_that_was_sent_and_a_spec_with_the_status() {
    let (_server, client, hooks) = recording().await;
    shown(&client, &hooks, "POST", DEPLOYMENTS, deployment()).await;
    let patch = json!({"spec": {"replicas": 8}, "status": {"replicas": 4}, "metadata": {"labels": {"n": "m"}}});
    let (kept, mutating, validating) = shown(&client, &hooks, "PATCH", &format!("{DEPLOYMENTS}/d/status"), patch).await;
    assert_eq!((&mutating["object"]["spec"]["replicas"], &mutating["object"]["metadata"]["labels"]), (&json!(8), &json!({"n": "m"})));
    assert_eq!((&validating["object"]["spec"]["replicas"], &validating["object"]["status"]["replicas"]), (&json!(1), &json!(4)));
    assert_eq!((&kept["spec"]["replicas"], &kept["metadata"]["labels"]), (&json!(1), &Value::Null));
    let mut put = deployment();
    put["status"] = json!({"replicas": 33});
    let (kept, mutating, validating) = shown(&client, &hooks, "PUT", &format!("{DEPLOYMENTS}/d"), put).await;
    assert_eq!(mutating["object"]["status"]["replicas"], 33);
    assert_eq!((&validating["object"]["status"]["replicas"], &kept["status"]["replicas"]), (&json!(4), &json!(4)));
}

#[tokio::test]
async fn a_webhook_that_changes_what_nobody_may_change_is_told_by_validation() {
    let server = Server::builder().in_memory().start().await.unwrap();
    let (client, hooks) = (server.client(), Webhooks::start().await);
    create(&configmaps(&client), configmap("w", "nobody")).await.unwrap();
    hooks.on("/uid", |_| patched(json!([{"op": "add", "path": "/metadata/uid", "value": "other"}])));
    hooks.on("/generation", |_| patched(json!([{"op": "add", "path": "/metadata/generation", "value": 7}])));
    configure(&client, true, "uid", vec![hooks.entry("uid", "/uid")]).await;
    configure(&client, true, "generation", vec![hooks.entry("generation", "/generation")]).await;
    let replaced = async |label: &str| {
        let object = serde_json::from_value(configmap("w", label)).unwrap();
        configmaps(&client).replace("w", &Default::default(), &object).await
    };
    let refused = replaced("uid").await.unwrap_err();
    assert!(refused.to_string().contains("metadata.uid: Invalid value: \"other\": field is immutable"), "{refused}");
    let kept = replaced("generation").await.unwrap();
    assert_eq!(kept.metadata.generation, None, "put right without a word");
}

#[tokio::test]
async fn a_token_request_is_shown_with_its_defaults_and_then_with_its_account() {
    let (_server, client, hooks) = recording().await;
    shown(&client, &hooks, "POST", "/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let (_, mutating, validating) = shown(&client, &hooks, "POST", path, json!({})).await;
    let metadata = &mutating["object"]["metadata"];
    assert_eq!((&metadata["namespace"], metadata.get("name"), metadata.get("uid")), (&json!("default"), None, None));
    assert_eq!(metadata["managedFields"][0]["subresource"], "token");
    assert_eq!(mutating["object"]["spec"], json!({"audiences": null, "expirationSeconds": 3600, "boundObjectRef": null}));
    assert_eq!(mutating["object"]["status"], json!({"token": "", "expirationTimestamp": null}));
    let metadata = &validating["object"]["metadata"];
    assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!("robot"), &json!("default")));
    assert!(metadata["uid"].is_string() && metadata["creationTimestamp"].is_string());
    assert_eq!(validating["object"]["spec"]["audiences"].as_array().unwrap().len(), 1, "whom a token is for by itself");
}

#[tokio::test]
async fn a_scale_that_is_put_is_shown_bare_and_then_in_full() {
    let (_server, client, hooks) = recording().await;
    shown(&client, &hooks, "POST", DEPLOYMENTS, deployment()).await;
    let scale = json!({"metadata": {"name": "d", "namespace": "default"}, "spec": {"replicas": 2}});
    let (_, mutating, validating) = shown(&client, &hooks, "PUT", &format!("{DEPLOYMENTS}/d/scale"), scale).await;
    assert!(mutating["object"]["metadata"].get("uid").is_none());
    assert_eq!(validating["object"]["status"], json!({"replicas": 0, "selector": "a=b"}));
    assert!(validating["object"]["metadata"]["uid"].is_string());
}

#[tokio::test]
async fn a_deletion_is_shown_with_what_the_server_makes_of_its_options() {
    let (_server, client, hooks) = recording().await;
    let (made, ..) = shown(&client, &hooks, "POST", "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    let (_, mutating, _) = shown(&client, &hooks, "DELETE", "/api/v1/namespaces/n", Value::Null).await;
    assert_eq!(mutating["options"]["preconditions"], json!({"uid": made["metadata"]["uid"]}));
    shown(&client, &hooks, "POST", "/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "default"}})).await;
    for (node, seconds) in [(Value::Null, 0), (json!("somewhere"), 30)] {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        if !node.is_null() {
            pod["spec"]["nodeName"] = node;
        }
        shown(&client, &hooks, "POST", "/api/v1/namespaces/default/pods", pod).await;
        let (_, _, validating) = shown(&client, &hooks, "DELETE", "/api/v1/namespaces/default/pods/p", Value::Null).await;
        assert_eq!(validating["options"]["gracePeriodSeconds"], seconds, "nobody has to end a Pod that runs nowhere");
    }
    for (query, seconds) in [("", None), ("?gracePeriodSeconds=60", None), ("?gracePeriodSeconds=5", Some(5))] {
        let path = format!("/api/v1/namespaces/default/pods/p{query}");
        let (_, _, validating) = shown(&client, &hooks, "DELETE", &path, Value::Null).await;
        let told = validating["options"]["gracePeriodSeconds"].as_i64();
        assert_eq!(told, seconds, "who gives a Pod no less time than it has changes nothing, and nobody is asked");
    }
}
