//! What admission is asked about where a request is not simply the write of an object: bindings, evictions, scales, collections.

use serde_json::{Value, json};
use usher::Server;

use super::server::*;

/// A server, and a webhook that is asked about everything and allows it.
async fn recording() -> (Server, kube::Client, Webhooks) {
    let server = Server::builder().in_memory().start().await.unwrap();
    let client = server.client();
    let hooks = Webhooks::start().await;
    hooks.on("/v", |_| Reply::Response(json!({"allowed": true})));
    let mut entry = hooks.entry("all", "/v");
    entry["rules"] = json!([{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]);
    entry["objectSelector"] = json!({});
    entry["namespaceSelector"] = json!({"matchLabels": {"kubernetes.io/metadata.name": "default"}});
    configure(&client, false, "all", vec![entry]).await;
    (server, client, hooks)
}

async fn send(client: &kube::Client, method: &str, path: &str, body: Value) -> Result<Value, kube::core::Status> {
    let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", media).body(body).unwrap();
    match client.request::<Value>(request).await {
        Ok(value) => Ok(value),
        Err(kube::Error::Api(status)) => Err(*status),
        Err(other) => panic!("{other}"),
    }
}

/// What was asked since the last look: operation, resource with subresource, kind, name, kinds of object and old object.
fn asked(hooks: &Webhooks) -> Vec<Value> {
    let reviews = std::mem::take(&mut *hooks.reviews.lock());
    let told = |(_, review): &(String, Value)| {
        let request = &review["request"];
        let subresource = request["subResource"].as_str().map(|s| format!("/{s}")).unwrap_or_default();
        json!([
            request["operation"],
            format!("{}{subresource}", request["resource"]["resource"].as_str().unwrap()),
            request["kind"]["kind"],
            request.get("name").cloned().unwrap_or_default(),
            request["object"]["kind"],
            request["oldObject"]["kind"],
        ])
    };
    reviews.iter().map(told).collect()
}

const PODS: &str = "/api/v1/namespaces/default/pods";

async fn pod(client: &kube::Client, name: &str) {
    let _ = send(client, "POST", "/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "default"}})).await;
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    send(client, "POST", PODS, pod).await.unwrap();
}

#[tokio::test]
async fn a_binding_and_an_eviction_are_admitted_as_what_they_are_and_nothing_else_is_asked() {
    let (_server, client, hooks) = recording().await;
    pod(&client, "p").await;
    asked(&hooks);
    let binding = json!({"metadata": {"name": "p", "annotations": {"a": "b"}}, "target": {"kind": "Node", "name": "n"}});
    send(&client, "POST", &format!("{PODS}/p/binding"), binding.clone()).await.unwrap();
    assert_eq!(asked(&hooks), [json!(["CREATE", "pods/binding", "Binding", "p", "Binding", null])]);
    let bound = send(&client, "GET", &format!("{PODS}/p"), Value::Null).await.unwrap();
    assert_eq!((&bound["spec"]["nodeName"], &bound["metadata"]["annotations"]["a"]), (&json!("n"), &json!("b")));
    let refused = send(&client, "POST", &format!("{PODS}/p/binding"), binding).await.unwrap_err();
    assert_eq!(refused.message, "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\"");
    asked(&hooks);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    send(&client, "POST", &format!("{PODS}/p/eviction"), eviction).await.unwrap();
    assert_eq!(asked(&hooks), [json!(["CREATE", "pods/eviction", "Eviction", "p", "Eviction", null])]);
    let gone = send(&client, "GET", &format!("{PODS}/p"), Value::Null).await.unwrap();
    assert!(gone["metadata"]["deletionTimestamp"].is_string(), "the node must still let it go");
    let condition = gone["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "DisruptionTarget").unwrap();
    assert_eq!(condition["reason"], "EvictionByEvictionAPI");
}

#[tokio::test]
async fn bindings_and_evictions_must_be_about_the_pod_in_the_path() {
    let (_server, client, _hooks) = recording().await;
    pod(&client, "p").await;
    for (subresource, body, why) in [
        ("binding", json!({"metadata": {"name": "q"}, "target": {"name": "n"}}), "name in URL does not match name in Binding object"),
        ("binding", json!({"metadata": {"name": "p"}, "target": {}}), "target.name: Required value"),
        (
            "binding",
            json!({"metadata": {"name": "p"}, "target": {"kind": "Foo", "name": "n"}}),
            "target.kind: Unsupported value: \"Foo\": supported values: \"Node\", \"<empty>\"",
        ),
        (
            "binding",
            json!({"metadata": {"name": "p", "namespace": "other"}, "target": {"name": "n"}}),
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        ("eviction", json!({"metadata": {}}), "name in URL does not match name in Eviction object"),
    ] {
        let refused = send(&client, "POST", &format!("{PODS}/p/{subresource}"), body).await.unwrap_err();
        assert_eq!(refused.message, why);
    }
}

#[tokio::test]
async fn the_collection_of_bindings_is_asked_about_under_its_own_name() {
    let (_server, client, hooks) = recording().await;
    pod(&client, "p").await;
    asked(&hooks);
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
    send(&client, "POST", "/api/v1/namespaces/default/bindings", binding).await.unwrap();
    assert_eq!(asked(&hooks), [json!(["CREATE", "bindings", "Binding", "p", "Binding", null])]);
}

#[tokio::test]
async fn a_scale_is_admitted_as_a_scale_before_and_after() {
    let (_server, client, hooks) = recording().await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    send(&client, "POST", path, deployment).await.unwrap();
    asked(&hooks);
    let scaled = send(&client, "PATCH", &format!("{path}/d/scale"), json!({"spec": {"replicas": 3}})).await.unwrap();
    assert_eq!(scaled["spec"]["replicas"], 3);
    let reviews = hooks.reviews.lock().clone();
    let request = &reviews[0].1["request"];
    assert_eq!((&request["object"]["spec"]["replicas"], &request["oldObject"]["spec"]["replicas"]), (&json!(3), &json!(1)));
    assert_eq!(asked(&hooks), [json!(["UPDATE", "deployments/scale", "Scale", "d", "Scale", "Scale"])]);
    let scale = json!({"metadata": {"name": "d"}, "spec": {"replicas": 5}});
    send(&client, "PUT", &format!("{path}/d/scale"), scale).await.unwrap();
    let deployment = send(&client, "GET", &format!("{path}/d"), Value::Null).await.unwrap();
    assert_eq!(deployment["spec"]["replicas"], 5);
}

#[tokio::test]
async fn what_a_webhook_makes_of_a_scale_counts() {
    let server = Server::builder().in_memory().start().await.unwrap();
    let (client, hooks) = (server.client(), Webhooks::start().await);
    hooks.on("/cap", |_| patched(json!([{"op": "replace", "path": "/spec/replicas", "value": 2}])));
    let mut entry = hooks.entry("cap", "/cap");
    entry["rules"] = json!([{"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments/scale"]}]);
    entry["objectSelector"] = json!({});
    configure(&client, true, "cap", vec![entry]).await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    send(&client, "POST", path, deployment).await.unwrap();
    let scaled = send(&client, "PATCH", &format!("{path}/d/scale"), json!({"spec": {"replicas": 30}})).await.unwrap();
    assert_eq!(scaled["spec"]["replicas"], 2);
}

#[tokio::test]
async fn a_collection_is_deleted_object_by_object_and_names_none() {
    let (_server, client, hooks) = recording().await;
    for name in ["a", "b"] {
        let object = json!({"metadata": {"name": name, "labels": {"x": "y"}}});
        send(&client, "POST", "/api/v1/namespaces/default/configmaps", object).await.unwrap();
    }
    asked(&hooks);
    send(&client, "DELETE", "/api/v1/namespaces/default/configmaps?labelSelector=x%3Dy", Value::Null).await.unwrap();
    let one = json!(["DELETE", "configmaps", "ConfigMap", null, null, "ConfigMap"]);
    assert_eq!(asked(&hooks), [one.clone(), one]);
}

#[tokio::test]
async fn a_review_of_rights_or_of_a_token_reaches_no_webhook() {
    let (_server, client, hooks) = recording().await;
    asked(&hooks);
    let spec = json!({"spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}});
    send(&client, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", spec).await.unwrap();
    let mut local = json!({"metadata": {"namespace": "default"}, "spec": {"user": "x"}});
    local["spec"]["resourceAttributes"] = json!({"namespace": "default", "verb": "get", "resource": "pods"});
    send(&client, "POST", "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews", local).await.unwrap();
    assert_eq!(asked(&hooks), Vec::<Value>::new());
}

#[tokio::test]
async fn a_pod_learns_the_zone_of_the_node_that_it_is_bound_to() {
    let (_server, client, _hooks) = recording().await;
    let node = json!({"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "x"}}});
    send(&client, "POST", "/api/v1/nodes", node).await.unwrap();
    pod(&client, "p").await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
    send(&client, "POST", &format!("{PODS}/p/binding"), binding).await.unwrap();
    let bound = send(&client, "GET", &format!("{PODS}/p"), Value::Null).await.unwrap();
    assert_eq!(bound["metadata"]["labels"], json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}));
}
