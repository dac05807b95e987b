//! Patches of built-in kinds; those with a status are recorded.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema::builtin;
use crate::status::Status;

fn patched(kind: &str, document: Value, patch: Value) -> Result<Value, PatchError> {
    let group = if kind == "Deployment" { "apps" } else { "" };
    let group = if kind == "PodDisruptionBudget" { "policy" } else { group };
    let schema = builtin::of_kind(group, "v1", kind).expect("a built-in kind");
    let mut document = document;
    apply(&mut document, patch, &schema).map(|()| document)
}

fn pod(spec: Value) -> Value {
    json!({"spec": spec})
}

#[test]
fn items_are_merged_by_their_key() {
    let live =
        pod(json!({"containers": [{"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "b:1"}]}));
    let patch =
        pod(json!({"containers": [{"name": "a", "image": "a:2", "env": [{"name": "Y", "value": "2"}]}, {"name": "c", "image": "c:1"}]}));
    let containers = json!([
        {"name": "a", "image": "a:2", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]},
        {"name": "c", "image": "c:1"},
        {"name": "b", "image": "b:1"}
    ]);
    assert_eq!(patched("Pod", live, patch), Ok(pod(json!({"containers": containers}))));
}

#[test]
fn items_can_be_deleted_and_lists_replaced() {
    let live = || pod(json!({"containers": [{"name": "a"}, {"name": "b"}]}));
    let delete = pod(json!({"containers": [{"name": "a", "$patch": "delete"}]}));
    assert_eq!(patched("Pod", live(), delete), Ok(pod(json!({"containers": [{"name": "b"}]}))));
    let replace = pod(json!({"containers": [{"$patch": "replace"}, {"name": "c"}]}));
    assert_eq!(patched("Pod", live(), replace), Ok(pod(json!({"containers": [{"name": "c"}]}))));
}

#[test]
fn objects_can_be_replaced_and_emptied() {
    let live = || json!({"data": {"a": "1", "b": "2"}});
    assert_eq!(patched("ConfigMap", live(), json!({"data": {"$patch": "replace", "c": "3"}})), Ok(json!({"data": {"c": "3"}})));
    assert_eq!(patched("ConfigMap", live(), json!({"data": {"$patch": "delete"}})), Ok(json!({"data": {}})));
    assert_eq!(patched("ConfigMap", live(), json!({"data": {"a": null, "z": null}})), Ok(json!({"data": {"b": "2"}})));
    assert_eq!(patched("ConfigMap", live(), json!({"data": null})), Ok(json!({})));
}

#[test]
fn lists_without_a_strategy_are_replaced_and_sets_are_merged() {
    let live = pod(json!({"tolerations": [{"key": "a"}]}));
    assert_eq!(patched("Pod", live, pod(json!({"tolerations": [{"key": "b"}]}))), Ok(pod(json!({"tolerations": [{"key": "b"}]}))));
    let live = json!({"metadata": {"finalizers": ["a", "b"]}});
    let patch = json!({"metadata": {"finalizers": ["c", "a"]}});
    assert_eq!(patched("Pod", live.clone(), patch), Ok(json!({"metadata": {"finalizers": ["c", "a", "b"]}})));
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
    assert_eq!(patched("Pod", live, patch), Ok(json!({"metadata": {"finalizers": ["b"]}})));
}

#[test]
fn the_order_of_items_can_be_set() {
    let live = pod(json!({"containers": [{"name": "a"}, {"name": "b"}, {"name": "server"}, {"name": "c"}]}));
    let patch = pod(json!({
        "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}],
        "containers": [{"name": "a", "image": "x"}]
    }));
    let containers = json!([{"name": "server"}, {"name": "c"}, {"name": "a", "image": "x"}, {"name": "b"}]);
    assert_eq!(patched("Pod", live.clone(), patch), Ok(pod(json!({"containers": containers}))));
    let patch = pod(json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "z"}]}));
    let error = patched("Pod", live, patch).expect_err("refused").to_string();
    assert!(error.starts_with("The order in patch list:\n[map[name:z]]\n doesn't match $setElementOrder list:\n"), "{error}");
}

#[test]
fn only_the_retained_keys_stay() {
    let live = json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
    let patch = json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}});
    assert_eq!(patched("Deployment", live.clone(), patch), Ok(json!({"spec": {"strategy": {"type": "Recreate"}}})));
    let patch = json!({"spec": {"strategy": {"$retainKeys": [], "type": "Recreate"}}});
    assert_eq!(patched("Deployment", live, patch), Err(PatchError::BadRequest("invalid patch format of retainKeys".into())));
}

#[test]
fn an_object_that_is_replaced_is_not_merged_into() {
    let live = json!({"spec": {"selector": {"matchLabels": {"a": "1"}}}});
    let patch = json!({"spec": {"selector": {"matchLabels": {"b": "1"}}}});
    assert_eq!(patched("PodDisruptionBudget", live, patch.clone()), Ok(patch));
}

#[test]
fn what_is_new_carries_neither_nulls_nor_directives() {
    let patch = pod(json!({"securityContext": {"runAsUser": null, "seLinuxOptions": {"$patch": "delete"}, "fsGroup": 1}}));
    assert_eq!(patched("Pod", pod(json!({})), patch), Ok(pod(json!({"securityContext": {"fsGroup": 1}}))));
}

#[test]
fn an_item_without_its_key_is_refused() {
    let live = pod(json!({"containers": [{"name": "a"}]}));
    let error = patched("Pod", live, pod(json!({"containers": [{"image": "x"}]}))).expect_err("refused");
    assert_eq!(error.to_string(), "map: map[image:x] does not contain declared merge key: name");
    assert_eq!(Status::from(error).code, 500);
}

#[test]
fn an_unknown_directive_is_an_unclassified_failure() {
    let error = patched("ConfigMap", json!({"data": {}}), json!({"data": {"$patch": "nope"}})).expect_err("refused");
    let status = Status::from(error).to_json();
    assert_eq!(status["message"], "unknown patch type: nope in map: map[$patch:nope]");
    assert_eq!((status["code"].as_u64(), status.get("reason")), (Some(500), None));
}

#[test]
fn malformed_directives_are_bad_requests() {
    let live = || json!({"metadata": {"finalizers": ["a"]}});
    for (patch, message) in [
        (json!({"metadata": {"$deleteFromPrimitiveList": ["a"]}}), "invalid patch format of primitive list"),
        (json!({"metadata": {"$setElementOrder": ["a"]}}), "invalid patch format of setElementOrder list"),
        (json!({"metadata": {"$retainKeys": "a"}}), "invalid patch format of retainKeys"),
        (json!([]), "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ] {
        assert_eq!(patched("Pod", live(), patch), Err(PatchError::BadRequest(message.into())));
    }
}

#[test]
fn a_value_of_another_kind_takes_the_place_and_is_left_to_decoding() {
    assert_eq!(patched("ConfigMap", json!({"data": {"a": "1"}}), json!({"data": 5})), Ok(json!({"data": 5})));
}

fn container() -> impl Strategy<Value = Value> {
    let env = prop::collection::btree_map("[A-D]", "[0-9]", 0..4)
        .prop_map(|env| env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect::<Vec<_>>());
    ("[a-d]", proptest::option::of("[x-z]"), env).prop_map(|(name, image, env)| match image {
        Some(image) => json!({"name": name, "image": image, "env": env}),
        None => json!({"name": name, "env": env}),
    })
}

fn spec() -> impl Strategy<Value = Value> {
    let containers = prop::collection::vec(container(), 0..4).prop_map(|mut containers| {
        containers.sort_by_key(|container| container["name"].to_string());
        containers.dedup_by_key(|container| container["name"].to_string());
        containers
    });
    let finalizers = prop::collection::btree_set("[a-e]", 0..4);
    let labels = prop::collection::btree_map("[a-c]", "[0-9]", 0..3);
    (containers, finalizers, labels)
        .prop_map(|(containers, finalizers, labels)| json!({"metadata": {"finalizers": finalizers, "labels": labels}, "spec": {"containers": containers}}))
}

/// Every list sorted, to compare what has no order.
fn sorted(mut value: Value) -> Value {
    match &mut value {
        Value::Array(items) => {
            *items = items.drain(..).map(sorted).collect();
            items.sort_by_key(Value::to_string);
        }
        Value::Object(fields) => *fields = std::mem::take(fields).into_iter().map(|(name, value)| (name, sorted(value))).collect(),
        _ => {}
    }
    value
}

/// Values with the names that a Pod and a patch have, of any shape.
fn anything() -> impl Strategy<Value = Value> {
    let leaf =
        prop_oneof![Just(json!(null)), Just(json!(1)), Just(json!("a")), Just(json!("delete")), Just(json!("replace")), Just(json!({}))];
    let names = "spec|containers|env|name|metadata|finalizers|[$]patch|[$]retainKeys|[$]setElementOrder/containers|[$]deleteFromPrimitiveList/finalizers";
    leaf.prop_recursive(5, 32, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(names, inner, 0..4).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_patch_panics(document in anything(), patch in anything()) {
        let _ = patched("Pod", document, patch);
    }

    #[test]
    fn patching_twice_is_patching_once(live in spec(), patch in spec()) {
        let once = patched("Pod", live, patch.clone()).expect("patched");
        let twice = patched("Pod", once.clone(), patch).expect("patched");
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn patches_of_different_things_may_come_in_any_order(live in spec(), one in "[e-g]", other in "[h-k]") {
        let one = json!({"metadata": {"labels": {"one": "1"}}, "spec": {"containers": [{"name": one, "image": "i"}]}});
        let other = json!({"metadata": {"labels": {"other": "1"}}, "spec": {"containers": [{"name": other, "image": "j"}]}});
        let forth = patched("Pod", patched("Pod", live.clone(), one.clone()).expect("patched"), other.clone()).expect("patched");
        let back = patched("Pod", patched("Pod", live, other).expect("patched"), one).expect("patched");
        prop_assert_eq!(sorted(forth), sorted(back));
    }

    #[test]
    fn what_a_patch_does_not_name_stays(live in spec()) {
        let patch = json!({"spec": {"containers": [{"name": "z", "image": "i"}]}, "metadata": {"labels": {"z": "1"}}});
        let mut found = patched("Pod", live.clone(), patch).expect("patched");
        if let Some(containers) = found["spec"]["containers"].as_array_mut() {
            containers.retain(|container| container["name"] != "z");
        }
        if let Some(labels) = found["metadata"]["labels"].as_object_mut() {
            labels.remove("z");
        }
        prop_assert_eq!(found, live);
    }
}
