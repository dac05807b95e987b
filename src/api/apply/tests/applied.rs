//! Apply by several managers.

use serde_json::{Value, json};

use super::Server;
use crate::api::apply::{ApplyError, FieldSet, ResetFields, apply};

#[test]
fn a_field_that_is_no_longer_applied_goes() {
    let mut server = Server::config_map();
    server.apply("m", json!({"metadata": {"labels": {"l": "1"}}, "data": {"a": "1", "b": "2"}}));
    server.apply("m", json!({"data": {"a": "1"}}));
    assert_eq!(server.live()["data"], json!({"a": "1"}));
    assert_eq!(server.live()["metadata"].get("labels"), None);
    assert_eq!(server.fields("m", "Apply"), json!({"f:data": {"f:a": {}}}));
}

#[test]
fn a_field_that_somebody_else_owns_stays_when_it_is_no_longer_applied() {
    let mut server = Server::config_map();
    server.apply("m", json!({"data": {"a": "1", "b": "2"}}));
    server.apply("other", json!({"data": {"b": "2"}}));
    assert_eq!(server.fields("m", "Apply"), json!({"f:data": {"f:a": {}, "f:b": {}}}));
    server.apply("m", json!({"data": {"a": "1"}}));
    assert_eq!(server.live()["data"], json!({"a": "1", "b": "2"}));
    assert_eq!(server.fields("other", "Apply"), json!({"f:data": {"f:b": {}}}));
}

#[test]
fn a_field_that_nobody_applied_stays() {
    let mut server = Server::config_map();
    server.update("u", json!({"data": {"a": "1", "b": "2"}}));
    server.apply("m", json!({"data": {"c": "3"}}));
    server.apply("m", json!({}));
    assert_eq!(server.live()["data"], json!({"a": "1", "b": "2"}));
}

#[test]
fn whoever_owns_the_same_value_shares_it_and_the_entry_has_no_time_until_something_changes() {
    let mut server = Server::config_map();
    server.apply("m", json!({"data": {"a": "1"}}));
    server.at(1).apply("other", json!({"data": {"a": "1"}}));
    assert_eq!(server.fields("other", "Apply"), json!({"f:data": {"f:a": {}}}));
    assert_eq!((server.time("m"), server.time("other")), (json!("2026-11-16T00:00:00Z"), Value::Null));
}

#[test]
fn force_takes_the_field_from_its_manager() {
    let mut server = Server::config_map();
    server.apply("m", json!({"data": {"a": "1", "b": "1"}}));
    assert!(matches!(server.try_apply("other", json!({"data": {"a": "2"}}), false), Err(ApplyError::Conflict(_))));
    server.try_apply("other", json!({"data": {"a": "2"}}), true).expect("forced");
    assert_eq!(server.live()["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(server.fields("m", "Apply"), json!({"f:data": {"f:b": {}}}));
}

#[test]
fn a_manager_that_loses_everything_is_gone() {
    let mut server = Server::config_map();
    server.apply("m", json!({"data": {"a": "1"}}));
    server.try_apply("other", json!({"data": {"a": "2"}}), true).expect("forced");
    assert_eq!(server.managed().as_array().map(Vec::len), Some(1));
    server.apply("other", json!({}));
    assert_eq!(server.live()["metadata"].get("managedFields"), None);
}

#[test]
fn an_update_takes_fields_from_appliers_without_asking() {
    let mut server = Server::config_map();
    server.apply("m", json!({"data": {"a": "1", "b": "1"}}));
    server.update("u", json!({"data": {"a": "2"}}));
    assert_eq!(server.fields("m", "Apply"), json!({"f:data": {"f:b": {}}}));
    assert_eq!(server.fields("u", "Update"), json!({"f:data": {"f:a": {}}}));
    // Not applied any more, but not m's any more either.
    server.apply("m", json!({"data": {"b": "1"}}));
    assert_eq!(server.live()["data"], json!({"a": "2", "b": "1"}));
}

fn containers(server: &Server) -> Vec<String> {
    let containers = server.live()["spec"]["template"]["spec"]["containers"].as_array();
    containers.into_iter().flatten().map(|c| c["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn with_containers(containers: Value) -> Value {
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}

#[test]
fn items_of_a_list_by_key_belong_to_whoever_applies_them() {
    let mut server = Server::of("apps/v1", "Deployment");
    server.apply("m", with_containers(json!([{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}])));
    server.apply("sidecars", with_containers(json!([{"name": "proxy", "image": "p:1"}, {"name": "a", "stdin": true}])));
    assert_eq!(containers(&server), ["proxy", "a", "b"]);
    server.apply("m", with_containers(json!([{"name": "b", "image": "b:2"}])));
    assert_eq!(containers(&server), ["proxy", "a", "b"]);
    let a = &server.live()["spec"]["template"]["spec"]["containers"][1];
    assert_eq!(a, &json!({"name": "a", "stdin": true}));
    server.apply("sidecars", json!({}));
    assert_eq!(containers(&server), ["b"]);
}

#[test]
fn ports_without_a_protocol_are_told_apart_by_its_default() {
    let mut server = Server::of("v1", "Service");
    server.apply("m", json!({"spec": {"ports": [{"port": 53, "name": "tcp"}, {"port": 53, "protocol": "UDP", "name": "udp"}]}}));
    let fields = server.fields("m", "Apply");
    let ports = fields["f:spec"]["f:ports"].as_object().expect("ports");
    let keys: Vec<&String> = ports.keys().collect();
    assert_eq!(keys, ["k:{\"port\":53,\"protocol\":\"TCP\"}", "k:{\"port\":53,\"protocol\":\"UDP\"}"]);
    server.apply("m", json!({"spec": {"ports": [{"port": 53, "protocol": "TCP", "name": "tcp"}]}}));
    assert_eq!(server.live()["spec"]["ports"].as_array().map(Vec::len), Some(1));
}

#[test]
fn two_items_with_one_key_cannot_be_applied() {
    let mut server = Server::of("apps/v1", "Deployment");
    let error = server.try_apply("m", with_containers(json!([{"name": "a"}, {"name": "a"}])), false).expect_err("refused");
    let message = ".spec.template.spec.containers: duplicate entries for key [name=\"a\"]";
    assert!(error.to_string().ends_with(message), "{error}");
    let error = server.try_apply("m", json!({"metadata": {"finalizers": ["x/y", "x/y"]}}), false).expect_err("refused");
    assert!(error.to_string().ends_with(".metadata.finalizers: duplicate entries for key [=\"x/y\"]"), "{error}");
}

#[test]
fn duplicates_that_are_there_are_owned_as_one_and_replaced_by_what_is_applied() {
    let mut server = Server::of("v1", "Pod");
    let env = |env: Value| json!({"spec": {"containers": [{"name": "c", "env": env}]}});
    server.update("u", env(json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}])));
    let fields = server.fields("u", "Update");
    assert_eq!(fields["f:spec"]["f:containers"]["k:{\"name\":\"c\"}"]["f:env"], json!({".": {}, "k:{\"name\":\"A\"}": {}}));
    server.try_apply("m", env(json!([{"name": "A", "value": "3"}])), true).expect("applied");
    assert_eq!(server.live()["spec"]["containers"][0]["env"], json!([{"name": "A", "value": "3"}]));
}

#[test]
fn an_atomic_part_has_one_owner() {
    let mut server = Server::of("apps/v1", "Deployment");
    server.apply("m", json!({"spec": {"selector": {"matchLabels": {"a": "1"}}, "template": {"spec": {"nodeSelector": {"x": "1"}}}}}));
    assert_eq!(server.fields("m", "Apply")["f:spec"], json!({"f:selector": {}, "f:template": {"f:spec": {"f:nodeSelector": {}}}}));
    let error = server.try_apply("o", json!({"spec": {"selector": {"matchLabels": {"b": "1"}}}}), false).expect_err("a conflict");
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"m\": .spec.selector");
    server.apply("m", json!({"spec": {"selector": {"matchLabels": {"a": "1"}}, "template": {"spec": {"nodeSelector": {"y": "1"}}}}}));
    assert_eq!(server.live()["spec"]["template"]["spec"]["nodeSelector"], json!({"y": "1"}));
}

#[test]
fn a_set_keeps_what_others_put_in() {
    let mut server = Server::config_map();
    server.apply("m", json!({"metadata": {"finalizers": ["x/a", "x/b"]}}));
    server.apply("o", json!({"metadata": {"finalizers": ["x/c"]}}));
    assert_eq!(server.live()["metadata"]["finalizers"], json!(["x/a", "x/b", "x/c"]));
    assert_eq!(server.fields("o", "Apply"), json!({"f:metadata": {"f:finalizers": {"v:\"x/c\"": {}}}}));
    server.apply("m", json!({"metadata": {"finalizers": ["x/b"]}}));
    assert_eq!(server.live()["metadata"]["finalizers"], json!(["x/b", "x/c"]));
}

#[test]
fn what_was_there_before_anybody_tracked_belongs_to_before_first_apply() {
    let mut server = Server::config_map();
    server.live = Some(server.object(json!({"metadata": {"uid": "u"}, "data": {"a": "1"}})));
    server.update("u", json!({"data": {"b": "2"}}));
    assert_eq!(server.live()["metadata"].get("managedFields"), None, "not tracked until applied");
    server.apply("m", json!({"data": {"a": "1"}}));
    assert_eq!(server.fields("before-first-apply", "Update"), json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}}));
    let error = server.try_apply("m", json!({"data": {"a": "2"}}), false).expect_err("a conflict");
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.a");
}

#[test]
fn apply_through_the_resource_does_not_own_its_status() {
    let mut server = Server::of("apps/v1", "Deployment");
    server.reset = Some(ResetFields::Reset(FieldSet::of_fields(&[&["status"]])));
    server.apply("m", json!({"spec": {"replicas": 1}, "status": {"replicas": 7}}));
    assert_eq!(server.fields("m", "Apply"), json!({"f:spec": {"f:replicas": {}}}));
    server.subresource = "status";
    server.reset = Some(ResetFields::AllBut(FieldSet::of_fields(&[&["status"]])));
    server.apply("m", json!({"spec": {"replicas": 9}, "status": {"replicas": 1}}));
    let entries = server.managed().as_array().cloned().unwrap_or_default();
    let status = entries.iter().find(|entry| entry["subresource"] == "status").expect("an entry of its own");
    assert_eq!(status["fieldsV1"], json!({"f:status": {"f:replicas": {}}}));
}

#[test]
fn conflicts_with_a_subresource_say_so() {
    let mut server = Server::of("apps/v1", "Deployment");
    server.update("u", json!({"spec": {"replicas": 1}}));
    server.subresource = "scale";
    server.update("kubectl", json!({"spec": {"replicas": 2}}));
    server.subresource = "";
    let error = server.try_apply("m", json!({"spec": {"replicas": 3}}), false).expect_err("a conflict");
    let message = "Apply failed with 1 conflict: conflict with \"kubectl\" with subresource \"scale\" using apps/v1: .spec.replicas";
    assert_eq!(error.to_string(), message);
}

#[test]
fn a_custom_resource_without_a_schema_is_merged_by_its_values() {
    let mut server = Server::config_map();
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = crate::schema::custom::compile(&json!({"schema": {"openAPIV3Schema": any}}));
    server.schema = std::sync::Arc::new(schema);
    server.update("u", json!({"spec": {"a": {"b": 1}, "list": [1, {"x": 1}]}}));
    assert_eq!(server.fields("u", "Update"), json!({"f:spec": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:list": {}}}));
    server.apply("m", json!({"spec": {"a": {"c": 2}}}));
    assert_eq!(server.live()["spec"]["a"], json!({"b": 1, "c": 2}));
    // A scalar that becomes an object.
    server.try_apply("m", json!({"spec": {"a": {"b": {"d": 1}}}}), true).expect("forced");
    assert_eq!(server.live()["spec"]["a"], json!({"b": {"d": 1}}));
}

#[test]
fn hostile_managed_fields_do_not_harm() {
    let server = Server::config_map();
    for entries in [json!([1]), json!([{"operation": "Apply"}]), json!([{"operation": "Apply", "apiVersion": "v1", "fieldsType": "X"}])] {
        let live = server.object(json!({"metadata": {"managedFields": entries}}));
        let error = apply(Some(&live), &server.object(json!({})), &server.schema, &server.context("m", false)).expect_err("unreadable");
        assert!(error.to_string().starts_with("failed to decode managed fields: "), "{error}");
    }
}

#[test]
fn an_object_that_somebody_else_applies_stays_when_its_last_field_goes() {
    let mut server = Server::of("v1", "Pod");
    let volume = |volume: Value| json!({"spec": {"volumes": [{"name": "v", "emptyDir": volume}]}});
    server.apply("m", volume(json!({"medium": "Memory"})));
    server.apply("o", volume(json!({})));
    server.apply("m", json!({}));
    assert_eq!(server.live()["spec"]["volumes"], json!([{"name": "v", "emptyDir": {}}]));
    server.apply("o", json!({"spec": {"volumes": [{"name": "v"}]}}));
    assert_eq!(server.live()["spec"]["volumes"], json!([{"name": "v"}]));
}
