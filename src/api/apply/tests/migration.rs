//! From client-side to server-side apply and back.

use serde_json::json;

use super::Server;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn after_client_side_apply() -> Server {
    let mut server = Server::config_map();
    let last = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a1"}, "data": {"a": "1", "b": "1"}});
    let mut object = json!({"data": {"a": "1", "b": "1"}, "metadata": {"annotations": {}}});
    object["metadata"]["annotations"][ANNOTATION] = last.to_string().into();
    server.update("kubectl-client-side-apply", object);
    server
}

#[test]
fn kubectl_takes_over_what_it_applied_from_the_client_without_a_conflict() {
    let mut server = after_client_side_apply();
    server.apply("kubectl", json!({"data": {"a": "2", "b": "1"}}));
    assert_eq!(server.live()["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(server.fields("kubectl", "Apply"), json!({"f:data": {"f:a": {}, "f:b": {}}}));
}

#[test]
fn the_annotation_follows_what_kubectl_applies() {
    let mut server = after_client_side_apply();
    server.apply("kubectl", json!({"data": {"a": "<1>", "b": "1"}}));
    let text = server.live()["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default();
    let wanted =
        "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"\\u003c1\\u003e\",\"b\":\"1\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a1\"}}\n";
    assert_eq!(text, wanted);
}

#[test]
fn what_somebody_changed_in_between_is_still_a_conflict() {
    let mut server = after_client_side_apply();
    server.update("other", json!({"data": {"b": "9"}}));
    let error = server.try_apply("kubectl", json!({"data": {"a": "2", "b": "2"}}), false).expect_err("a conflict");
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"other\" using v1: .data.b");
}

#[test]
fn other_managers_have_no_such_right() {
    let mut server = after_client_side_apply();
    assert!(server.try_apply("m", json!({"data": {"a": "2"}}), false).is_err());
    server.apply("m", json!({"data": {"c": "2"}}));
    assert!(!server.live()["metadata"]["annotations"][ANNOTATION].as_str().unwrap_or_default().contains("\"c\""));
}
