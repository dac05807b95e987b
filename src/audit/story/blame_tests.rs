//! Who is credited with what.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::audit::Story;
use crate::audit::event::UserInfo;

fn event(id: &str, user: &str, verb: &str, steps: Vec<Step>) -> Arc<Event> {
    Arc::new(Event {
        audit_id: id.into(),
        verb: verb.to_owned().into(),
        request_uri: "/apis/apps/v1/namespaces/default/deployments?fieldManager=kubectl-create".into(),
        user: UserInfo { username: user.into(), ..UserInfo::default() },
        trace: Some(Box::new(Story { steps, ..Story::default() })),
        ..Event::default()
    })
}

fn step(name: &'static str, detail: Value) -> Step {
    let (at, took) = (Duration::ZERO, Duration::ZERO);
    Step { hop: "mutate".into(), name: name.into(), verdict: "mutated".into(), detail: Some(detail), at, took }
}

fn kept(revision: u64, id: &str, object: Value) -> Kept {
    let time = Timestamp::from_second(1_800_000_000 + revision as i64).expect("a time");
    Kept { revision, time, audit_id: Some(id.into()), object }
}

fn told(kept: &[Kept], events: &[Arc<Event>]) -> HashMap<String, Attribution> {
    let schema = crate::schema::builtin::of_kind("apps", "v1", "Deployment").expect("Deployment");
    let find = |id: &str| events.iter().find(|event| event.audit_id == id).cloned();
    let is_default = |object: &Value, pointer: &str| pointer == "/spec/revisionHistoryLimit" && object.pointer(pointer) == Some(&json!(10));
    let blame = blame(kept, &Facts { schema: &schema, event: &find, is_default: &is_default });
    blame.fields.into_iter().map(|field| (field.path.clone(), field)).collect()
}

fn managed(manager: &str, operation: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "time": "2027-01-01T00:00:00Z", "fieldsV1": fields})
}

#[test]
fn client_default_plugin_policy_webhook_and_controller_are_told_apart() {
    let fields = json!({"f:spec": {"f:replicas": {}, "f:revisionHistoryLimit": {}, "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}}}}}});
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "x", "uid": "u", "labels": {"team": "a", "policy": "p"}, "annotations": {"by": "plugin"},
                     "managedFields": [managed("kubectl-create", "Update", fields)]},
        "spec": {"replicas": 3, "revisionHistoryLimit": 10, "template": {"spec": {"containers": [{"name": "a"}, {"name": "sidecar", "image": "s"}]}}},
    });
    let mut later = object.clone();
    later["status"] = json!({"replicas": 3});
    let controller = managed("kube-controller-manager", "Update", json!({"f:status": {"f:replicas": {}}}));
    later["metadata"]["managedFields"].as_array_mut().expect("a list").push(controller);
    let steps = vec![
        step("ServiceAccount", json!({"patch": [{"op": "add", "path": "/metadata/annotations", "value": {"by": "plugin"}}]})),
        step("labels", json!({"binding": "b", "diff": {"metadata": {"labels": {"policy": "p"}}}})),
        step("MutatingAdmissionPolicy", json!({})),
        step(
            "inject.example.com",
            json!({"configuration": "inject", "patch": [{"op": "add", "path": "/metadata/labels/team", "value": "other"}]}),
        ),
        step("MutatingAdmissionWebhook", json!({})),
        step(
            "inject.example.com",
            json!({"configuration": "inject", "patch": [
            {"op": "add", "path": "/metadata/labels/team", "value": "a"},
            {"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "sidecar", "image": "s"}}]}),
        ),
    ];
    let events =
        [event("one", "jane", "create", steps), event("two", "system:serviceaccount:kube-system:deployment-controller", "update", vec![])];
    let told = told(&[kept(5, "one", object), kept(6, "two", later)], &events);
    let of = |path: &str| {
        let field = &told[path];
        (field.source, field.by.as_str(), field.round)
    };
    assert_eq!(of("spec.replicas"), (Source::Client, "jane", None));
    assert_eq!(told["spec.replicas"].manager, "kubectl-create");
    assert_eq!(of("metadata.name"), (Source::Client, "jane", None));
    assert_eq!(of("metadata.uid"), (Source::Server, "API server", None));
    assert_eq!(of("spec.revisionHistoryLimit"), (Source::Default, "default", None));
    assert_eq!(of("metadata.annotations.by"), (Source::Plugin, "ServiceAccount", None));
    assert_eq!(of("metadata.labels.policy"), (Source::Policy, "labels", Some(0)));
    assert_eq!(of("metadata.labels.team"), (Source::Webhook, "inject.example.com (inject)", Some(1)));
    assert_eq!(of("spec.template.spec.containers[name=sidecar].image"), (Source::Webhook, "inject.example.com (inject)", Some(1)));
    assert_eq!(of("spec.template.spec.containers[name=a].name"), (Source::Client, "jane", None));
    assert_eq!(of("status.replicas"), (Source::Controller, "deployment-controller", None));
    assert_eq!((told["status.replicas"].revision, told["status.replicas"].audit_id.as_str()), (6, "two"));
    assert!(told.values().all(|field| !field.boundary));
}

#[test]
fn a_field_belongs_to_the_request_that_last_changed_it() {
    let object = |replicas: u32| {
        json!({"metadata": {"uid": "u", "managedFields": [managed("m", "Update", json!({"f:spec": {"f:replicas": {}, "f:paused": {}}}))]},
                                        "spec": {"replicas": replicas, "paused": true}})
    };
    let events = [event("one", "jane", "create", vec![]), event("two", "joe", "update", vec![]), event("three", "jim", "update", vec![])];
    let told = told(&[kept(1, "one", object(1)), kept(2, "two", object(2)), kept(3, "three", object(2))], &events);
    assert_eq!((told["spec.replicas"].by.as_str(), told["spec.paused"].by.as_str()), ("joe", "jane"));
}

#[test]
fn what_the_client_said_is_the_clients_even_if_it_is_what_the_default_says() {
    let mut object = json!({"metadata": {"uid": "u", "managedFields": [managed("m", "Update", json!({"f:spec": {"f:revisionHistoryLimit": {}}}))]},
                            "spec": {"revisionHistoryLimit": 10}});
    let events = [event("one", "jane", "create", vec![])];
    assert_eq!(told(&[kept(1, "one", object.clone())], &events)["spec.revisionHistoryLimit"].source, Source::Default);
    let body = Json::from(&json!({"spec": {"revisionHistoryLimit": 10}}));
    let recorded =
        |verb: &str| Arc::new(Event { verb: verb.to_owned().into(), request_object: Some(body.clone()), ..(*events[0]).clone() });
    let of = |verb: &str| told(&[kept(1, "one", object.clone())], &[recorded(verb)])["spec.revisionHistoryLimit"].source;
    assert_eq!((of("patch"), of("create")), (Source::Client, Source::Default), "a new object is recorded with its defaults");
    object["metadata"]["managedFields"][0]["operation"] = json!("Apply");
    assert_eq!(told(&[kept(1, "one", object)], &events)["spec.revisionHistoryLimit"].source, Source::Client);
}

#[test]
fn an_earlier_object_of_the_same_name_is_not_asked_and_an_old_beginning_is_marked() {
    let object = |uid: &str| json!({"metadata": {"uid": uid, "name": "x"}});
    let events = [event("two", "jane", "create", vec![]), event("old", "joe", "update", vec![])];
    let fields = told(&[kept(1, "one", object("a")), kept(2, "two", object("b"))], &events);
    assert_eq!((fields["metadata.name"].revision, fields["metadata.name"].boundary), (2, false));
    assert!(told(&[kept(7, "old", object("a"))], &events)["metadata.name"].boundary, "it was there before");
}

#[test]
fn what_a_binding_brings_is_the_schedulers_and_a_status_is_its_reporters_whatever_the_defaults_are() {
    let schema = crate::schema::builtin::of_kind("", "v1", "Pod").expect("Pod");
    let bind = Event {
        object_ref: Some(crate::audit::event::ObjectReference { subresource: "binding".into(), ..Default::default() }),
        ..(*event("b", "system:kube-scheduler", "create", Vec::new())).clone()
    };
    let events = [event("a", "jane", "create", Vec::new()), Arc::new(bind), event("c", "system:node:n1", "patch", Vec::new())];
    let made = json!({"kind": "Pod", "metadata": {"uid": "u"}});
    let mut bound = made.clone();
    bound["spec"] = json!({"nodeName": "n1"});
    let mut runs = bound.clone();
    runs["status"] = json!({"podIP": "10.0.0.1"});
    runs["metadata"]["managedFields"] = json!([managed("kubelet", "Update", json!({"f:status": {"f:podIP": {}}}))]);
    let find = |id: &str| events.iter().find(|event| event.audit_id == id).cloned();
    // An address that stands in podIPs is filled in as a default would be.
    let is_default = |_: &Value, pointer: &str| pointer == "/status/podIP";
    let kept = [kept(1, "a", made), kept(2, "b", bound), kept(3, "c", runs)];
    let blame = blame(&kept, &Facts { schema: &schema, event: &find, is_default: &is_default });
    let of = |path: &str| blame.fields.iter().find(|field| field.path == path).map(|field| (field.source, field.by.clone()));
    assert_eq!(of("spec.nodeName"), Some((Source::Scheduler, "kube-scheduler".into())));
    assert_eq!(of("status.podIP"), Some((Source::Kubelet, "n1".into())));
}

#[test]
fn a_generated_name_is_the_servers_and_a_recorded_body_stands_in_for_managed_fields() {
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x-abcde", "generateName": "x-", "uid": "u"},
        "spec": {"replicas": 3, "revisionHistoryLimit": 10, "paused": true}});
    let mut body = object.clone();
    body["spec"].as_object_mut().expect("a map").remove("paused");
    let create = |name: &str| {
        let mut event = Event::clone(&event("a", "jane", "create", Vec::new()));
        let reference = json!({"resource": "deployments", "apiGroup": "apps", "name": name});
        event.object_ref = serde_json::from_value(reference).expect("a reference");
        event.request_object = serde_json::from_value(body.clone()).expect("a body");
        Arc::new(event)
    };
    let sources = |fields: &HashMap<String, Attribution>| {
        let of = |path: &str| fields[path].source;
        ["metadata.name", "metadata.generateName", "spec.replicas", "spec.revisionHistoryLimit", "spec.paused"].map(of)
    };
    let generated = told(&[kept(1, "a", object.clone())], &[create("")]);
    assert_eq!(sources(&generated), [Source::Server, Source::Client, Source::Client, Source::Default, Source::Server]);
    // Whoever says both has named it.
    assert_eq!(sources(&told(&[kept(1, "a", object)], &[create("x-abcde")]))[0], Source::Client);
}

#[test]
fn where_neither_managed_fields_nor_a_body_are_known_a_change_is_the_work_of_who_made_the_request() {
    let made = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "uid": "u"},
        "spec": {"replicas": 3, "revisionHistoryLimit": 10}, "status": {"phase": "new"}});
    let mut reported = made.clone();
    reported["status"]["replicas"] = json!(3);
    let mut report = Event::clone(&event("two", "system:serviceaccount:kube-system:deployment-controller", "update", Vec::new()));
    report.object_ref = serde_json::from_value(json!({"resource": "deployments", "subresource": "status", "name": "x"})).ok();
    let events = [event("one", "jane", "patch", Vec::new()), Arc::new(report)];
    let fields = told(&[kept(1, "one", made), kept(2, "two", reported.clone())], &events);
    let of = |path: &str| (fields[path].source, fields[path].by.as_str());
    assert_eq!(of("spec.replicas"), (Source::Client, "jane"));
    assert_eq!(of("spec.revisionHistoryLimit"), (Source::Default, "default"));
    assert_eq!(of("status.phase"), (Source::Server, "API server"), "a client's write brings no status");
    assert_eq!(of("status.replicas"), (Source::Controller, "deployment-controller"));
    assert_eq!(told(&[kept(1, "gone", reported)], &[])["spec.replicas"].source, Source::Server, "whose request it was is not known");
}
