//! What holds for any writes by anybody.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Server;
use crate::api::apply::FieldSet;
use crate::api::apply::typed::compare::compare;
use crate::api::apply::typed::fields::field_set;

/// A configuration with maps, sets, lists by key and an atomic part.
fn configuration() -> impl Strategy<Value = Value> {
    let labels = prop::collection::btree_map("[a-c]", "[0-2]", 0..3);
    let finalizers = prop::collection::btree_set("x/[a-d]", 0..3);
    let env = prop::collection::btree_map("[A-C]", "[0-2]", 0..3);
    let container = (proptest::option::of("[i-k]"), env);
    let containers = prop::collection::btree_map("[a-c]", container, 0..3);
    let selector = proptest::option::of("[0-2]");
    (labels, finalizers, containers, selector)
        .prop_map(|(labels, finalizers, containers, selector)| object(labels, finalizers, containers, selector))
}

type Containers = BTreeMap<String, (Option<String>, BTreeMap<String, String>)>;

fn object(labels: BTreeMap<String, String>, finalizers: BTreeSet<String>, containers: Containers, selector: Option<String>) -> Value {
    let mut object = json!({});
    if !labels.is_empty() {
        object["metadata"]["labels"] = json!(labels);
    }
    if !finalizers.is_empty() {
        object["metadata"]["finalizers"] = json!(finalizers);
    }
    if let Some(selector) = selector {
        object["spec"]["selector"] = json!({"matchLabels": {"app": selector}});
    }
    let containers: Vec<Value> = containers
        .into_iter()
        .map(|(name, (image, env))| {
            let mut container = json!({"name": name});
            if let Some(image) = image {
                container["image"] = image.into();
            }
            if !env.is_empty() {
                container["env"] = env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
            }
            container
        })
        .collect();
    if !containers.is_empty() {
        object["spec"]["template"]["spec"]["containers"] = containers.into();
    }
    object
}

#[derive(Clone, Debug)]
enum Action {
    Apply(&'static str, Value),
    Update(&'static str, Value),
}

fn action() -> impl Strategy<Value = Action> {
    let manager = prop_oneof![Just("m1"), Just("m2"), Just("m3")];
    (manager, configuration(), any::<bool>()).prop_map(|(manager, configuration, apply)| match apply {
        true => Action::Apply(manager, configuration),
        false => Action::Update(manager, configuration),
    })
}

fn deployment() -> Server {
    Server::of("apps/v1", "Deployment")
}

fn run(server: &mut Server, action: &Action, force: bool) -> bool {
    match action {
        Action::Apply(manager, configuration) => server.try_apply(manager, configuration.clone(), force).is_ok(),
        Action::Update(manager, configuration) => {
            server.update(manager, configuration.clone());
            true
        }
    }
}

/// What an applier owns.
fn owned(server: &Server, manager: &str) -> FieldSet {
    FieldSet::from_fields_v1(&server.fields(manager, "Apply")).expect("readable")
}

/// Every list sorted and times left out, to compare what has no order.
fn settled(value: &Value) -> Value {
    match value {
        Value::Array(items) => {
            let mut items: Vec<Value> = items.iter().map(settled).collect();
            items.sort_by_key(Value::to_string);
            Value::Array(items)
        }
        Value::Object(fields) => {
            Value::Object(fields.iter().filter(|(name, _)| *name != "time").map(|(name, value)| (name.clone(), settled(value))).collect())
        }
        scalar => scalar.clone(),
    }
}

/// Values with the names that a Deployment has, of any shape.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(null)), Just(json!(1)), Just(json!("a")), Just(json!(true)), Just(json!({})), Just(json!([]))];
    let names = "spec|template|containers|ports|env|name|metadata|labels|finalizers|selector|x";
    let values = leaf.prop_recursive(6, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(names, inner, 0..4).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    });
    values.prop_map(|value| if value.is_object() { value } else { json!({"spec": value}) })
}

fn fields_v1() -> impl Strategy<Value = Value> {
    let names = "[.]|f:spec|f:template|f:metadata|f:labels|f:containers|f:x|k:[{]\"name\":\"a\"[}]|v:1|i:1|z:z|f|k:x";
    Just(json!({})).prop_recursive(5, 24, 3, move |inner| prop::collection::btree_map(names, inner, 0..3).prop_map(|fields| json!(fields)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_write_panics(live in anything(), written in anything(), owned in prop::collection::vec(fields_v1(), 0..3)) {
        let mut server = deployment();
        let entry = |(i, fields)| json!({
            "manager": format!("m{i}"), "operation": if i == 1 { "Apply" } else { "Update" },
            "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields
        });
        let entries: Vec<Value> = owned.into_iter().enumerate().map(entry).collect();
        let mut live = live;
        live["apiVersion"] = "apps/v1".into();
        if live["metadata"].is_object() {
            live["metadata"]["managedFields"] = entries.into();
        }
        let mut applied = written.clone();
        applied["apiVersion"] = "apps/v1".into();
        applied["kind"] = "Deployment".into();
        for force in [false, true] {
            let _ = crate::api::apply::apply(Some(&live), &applied, &server.schema, &server.context("m1", force));
        }
        server.live = Some(live);
        let mut new = written;
        crate::api::apply::track_update(server.live.as_ref(), &mut new, &server.schema, &server.context("m0", false));
    }

    #[test]
    fn applying_twice_is_applying_once(actions in prop::collection::vec(action(), 0..5), configuration in configuration()) {
        let mut server = deployment();
        actions.iter().for_each(|action| { run(&mut server, action, true); });
        server.try_apply("m1", configuration.clone(), true).expect("forced");
        let once = server.live().clone();
        server.at(30).try_apply("m1", configuration, false).expect("its own");
        prop_assert_eq!(&once, server.live());
    }

    #[test]
    fn an_apply_without_force_never_changes_what_another_applier_owns(actions in prop::collection::vec(action(), 1..8)) {
        let mut server = deployment();
        for action in &actions {
            let before = server.live.clone();
            let Action::Apply(writer, _) = action else { run(&mut server, action, false); continue };
            let others: Vec<(&str, FieldSet)> = match &before {
                Some(_) => ["m1", "m2", "m3"].into_iter().filter(|other| other != writer).map(|other| (other, owned(&server, other))).collect(),
                None => Vec::new(),
            };
            if !run(&mut server, action, false) {
                prop_assert_eq!(before, server.live.clone(), "a conflict changes nothing");
                continue;
            }
            let Some(before) = before else { continue };
            let comparison = compare(&before, server.live(), &server.schema);
            for (other, fields) in others {
                prop_assert!(!fields.intersects(&comparison.modified) && !fields.intersects(&comparison.removed), "{} lost a field", other);
                prop_assert_eq!(&fields, &owned(&server, other));
            }
        }
    }

    #[test]
    fn who_applies_owns_exactly_what_it_applies(actions in prop::collection::vec(action(), 0..5), configuration in configuration()) {
        let mut server = deployment();
        actions.iter().for_each(|action| { run(&mut server, action, true); });
        server.try_apply("m1", configuration.clone(), true).expect("forced");
        prop_assert_eq!(owned(&server, "m1"), field_set(&configuration, &server.schema));
        // And it is all there.
        let there = field_set(server.live(), &server.schema);
        prop_assert!(owned(&server, "m1").is_subset_of(&there));
    }

    #[test]
    fn nothing_is_owned_that_is_not_there(actions in prop::collection::vec(action(), 1..8)) {
        let mut server = deployment();
        for action in &actions {
            run(&mut server, action, true);
            let entries = server.live.as_ref().map(|_| server.managed().clone()).unwrap_or_default();
            let there = field_set(server.live(), &server.schema).with_named_fields(&crate::api::apply::typed::Type::root(&server.schema));
            for entry in entries.as_array().into_iter().flatten() {
                let set = FieldSet::from_fields_v1(&entry["fieldsV1"]).expect("readable");
                prop_assert!(set.is_subset_of(&there), "{} of {}", entry, server.live());
                prop_assert!(!set.is_empty());
            }
        }
    }

    #[test]
    fn appliers_of_different_things_may_come_in_any_order(labels in prop::collection::btree_map("[a-c]", "[0-2]", 1..3), containers in prop::collection::btree_map("[a-c]", (Just(Some("i".to_owned())), Just(BTreeMap::new())), 1..3)) {
        let one = object(labels, BTreeSet::new(), BTreeMap::new(), None);
        let other = object(BTreeMap::new(), BTreeSet::from(["x/z".to_owned()]), containers, Some("1".into()));
        let (mut forth, mut back) = (deployment(), deployment());
        forth.apply("m1", one.clone());
        forth.apply("m2", other.clone());
        back.apply("m2", other);
        back.apply("m1", one);
        prop_assert_eq!(settled(forth.live()), settled(back.live()));
    }

    #[test]
    fn applying_nothing_gives_everything_back(configuration in configuration(), theirs in configuration()) {
        let mut server = deployment();
        server.apply("m2", theirs.clone());
        let before = server.live().clone();
        if server.try_apply("m1", configuration, false).is_ok() {
            server.apply("m1", json!({}));
            prop_assert_eq!(settled(server.live()), settled(&before));
        }
    }

    #[test]
    fn fields_v1_survives_reading_and_writing(configuration in configuration()) {
        let server = deployment();
        let set = field_set(&configuration, &server.schema);
        prop_assert_eq!(FieldSet::from_fields_v1(&set.to_fields_v1()).expect("readable"), set.clone());
        let text: Value = serde_json::from_str(&set.to_fields_v1_text()).expect("JSON");
        prop_assert_eq!(text, set.to_fields_v1());
    }
}
