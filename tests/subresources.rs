//! What subresources and patches take, and what they refuse: strict decoding everywhere, ephemeral containers that are only added, a resize that
//! changes amounts and nothing else.

use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use usher::Server;

const PODS: &str = "/api/v1/namespaces/default/pods";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

async fn send(client: &kube::Client, method: &str, path: &str, content_type: &str, body: impl Into<Vec<u8>>) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let response = client.send(request.body(kube::client::Body::from(body.into())).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

/// A server with one Pod of the class Burstable.
async fn with_pod() -> Server {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    send(&client, "POST", "/api/v1/namespaces/default/serviceaccounts", JSON, account.to_string()).await;
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}});
    let (code, made) = send(&client, "POST", PODS, JSON, pod.to_string()).await;
    assert_eq!(code, 201, "{made}");
    server
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn ephemeral_containers_are_added_and_never_taken_away_or_changed() {
    let server = with_pod().await;
    let client = server.client();
    let path = format!("{PODS}/p/ephemeralcontainers");
    let add = json!({"metadata": {"labels": {"sneaky": "yes"}}, "spec": {"hostNetwork": true, "ephemeralContainers": [{"name": "debug", "image": "busybox"}]}});
    let (code, pod) = send(&client, "PATCH", &path, STRATEGIC, add.to_string()).await;
    assert_eq!((code, &pod["spec"]["ephemeralContainers"][0]["name"]), (200, &json!("debug")), "{pod}");
    assert_eq!((&pod["spec"]["hostNetwork"], &pod["metadata"]["labels"]), (&Value::Null, &Value::Null), "nothing else is written");
    assert_eq!(pod["metadata"]["generation"], 2);
    let (code, status) = send(&client, "PATCH", &path, MERGE, json!({"spec": {"ephemeralContainers": []}}).to_string()).await;
    let removed = "Pod \"p\" is invalid: spec.ephemeralContainers: Forbidden: existing ephemeral containers \"debug\" may not be removed\n";
    assert_eq!((code, message(&status)), (422, removed));
    let change = json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "other"}]}});
    let (code, status) = send(&client, "PATCH", &path, STRATEGIC, change.to_string()).await;
    assert!(code == 422 && message(&status).contains("existing ephemeral containers \"debug\" may not be changed\n"), "{status}");
    let taken = json!({"spec": {"ephemeralContainers": [{"name": "c", "image": "i"}]}});
    let (code, status) = send(&client, "PATCH", &path, STRATEGIC, taken.to_string()).await;
    assert!(code == 422 && message(&status).contains("spec.ephemeralContainers"), "the name is taken: {status}");
    server.stop().await;
}

#[tokio::test]
async fn a_resize_changes_amounts_of_cpu_and_memory_and_nothing_else() {
    let server = with_pod().await;
    let client = server.client();
    let path = format!("{PODS}/p/resize");
    let resize = |resources: Value| {
        let patch = json!({"spec": {"containers": [{"name": "c", "image": "other", "resources": resources}]}}).to_string();
        let (client, path) = (client.clone(), path.clone());
        async move { send(&client, "PATCH", &path, STRATEGIC, patch).await }
    };
    let (code, pod) = resize(json!({"requests": {"cpu": "200m"}})).await;
    assert_eq!((code, &pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]), (200, &json!("200m")), "{pod}");
    assert_eq!(pod["spec"]["containers"][0]["image"], "i", "a resize is no update");
    let cases = [
        (json!({"limits": {"cpu": null}}), "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"),
        (json!({"requests": {"ephemeral-storage": "1Gi"}}), "spec: Forbidden: only cpu and memory resources are mutable"),
        (
            json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}),
            "spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
        ),
        (
            json!({"requests": {"cpu": "2"}}),
            "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
        ),
    ];
    for (resources, wanted) in cases {
        let (code, status) = resize(resources).await;
        assert_eq!((code, message(&status)), (422, format!("Pod \"p\" is invalid: {wanted}").as_str()));
    }
    server.stop().await;
}

#[tokio::test]
async fn objects_of_subresources_are_decoded_as_strictly_as_others() {
    let server = with_pod().await;
    let client = server.client();
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    send(&client, "POST", "/apis/apps/v1/namespaces/default/deployments", JSON, deployment.to_string()).await;
    let scale = "/apis/apps/v1/namespaces/default/deployments/d/scale";
    let body = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", "namespace": "default"}, "spec": {"replicas": 2, "bogus": 1}});
    let (code, status) = send(&client, "PUT", &format!("{scale}?fieldValidation=Strict"), JSON, body.to_string()).await;
    let strict = "Scale in version \"v1\" cannot be handled as a Scale: strict decoding error: unknown field \"spec.bogus\"";
    assert_eq!((code, message(&status)), (400, strict));
    let (code, scaled) = send(&client, "PUT", scale, JSON, body.to_string()).await;
    assert_eq!((code, &scaled["spec"]["replicas"]), (200, &json!(2)));
    let mut typed = body.clone();
    typed["spec"]["replicas"] = json!("two");
    let (code, status) = send(&client, "PUT", scale, JSON, typed.to_string()).await;
    assert!(
        code == 400 && message(&status).contains("cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32"),
        "{status}"
    );
    let binding =
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n", "bogus": 1}});
    let (code, status) = send(&client, "POST", &format!("{PODS}/p/binding?fieldValidation=Strict"), JSON, binding.to_string()).await;
    assert_eq!(
        (code, message(&status)),
        (400, "Binding in version \"v1\" cannot be handled as a Binding: strict decoding error: unknown field \"target.bogus\"")
    );
    let (code, _) = send(&client, "POST", &format!("{PODS}/p/binding"), JSON, binding.to_string()).await;
    assert_eq!(code, 201);
    server.stop().await;
}

#[tokio::test]
async fn a_json_patch_with_fields_that_no_operation_has_is_refused_when_asked_to_be_strict() {
    let server = with_pod().await;
    let client = server.client();
    let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}, "bogus": 1}]).to_string();
    let path = format!("{PODS}/p?fieldValidation=Strict");
    let (code, status) = send(&client, "PATCH", &path, "application/json-patch+json", patch.clone()).await;
    assert_eq!(code, 422);
    assert!(message(&status).ends_with("strict decoding error: json patch unknown field \"[0].bogus\""), "{status}");
    let both = json!([{"op": "add", "path": "/spec/odd", "value": 1, "bogus": 1}]).to_string();
    let (_, status) = send(&client, "PATCH", &path, "application/json-patch+json", both).await;
    assert!(
        message(&status).ends_with("strict decoding error: json patch unknown field \"[0].bogus\", unknown field \"spec.odd\""),
        "{status}"
    );
    let (code, _) = send(&client, "PATCH", &format!("{PODS}/p"), "application/json-patch+json", patch).await;
    assert_eq!(code, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_custom_object_has_no_protobuf_form() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "foos.pb.example.com"},
        "spec": {"group": "pb.example.com", "scope": "Cluster", "names": {"plural": "foos", "kind": "Foo"}, "versions": [version]},
    });
    send(&client, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", JSON, definition.to_string()).await;
    let (code, status) =
        send(&client, "POST", "/apis/pb.example.com/v1/foos", "application/vnd.kubernetes.protobuf", b"k8s\0".to_vec()).await;
    let wanted = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml";
    assert_eq!((code, message(&status), status["reason"].as_str()), (415, wanted, Some("UnsupportedMediaType")));
    server.stop().await;
}
