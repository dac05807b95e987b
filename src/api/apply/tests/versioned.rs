//! Managers who wrote in another version than the request's.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Server;
use crate::api::apply::{Context, ConversionError, Converted, Versions, apply, track_update};
use crate::schema::{Schema, custom};

/// `ex.com/v2` calls `size` what `ex.com/v1` calls `replicas`.
struct Renamed;

fn schema(field: &str) -> Arc<Schema> {
    let json = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        (field): {"type": "integer"}, "color": {"type": "string"}
    }}}});
    Arc::new(custom::compile(&json!({"schema": {"openAPIV3Schema": json}})))
}

impl Versions for Renamed {
    fn convert(&self, object: &Value, api_version: &str) -> Result<Converted, ConversionError> {
        let (from, to) = match api_version {
            "ex.com/v1" => ("size", "replicas"),
            "ex.com/v2" => ("replicas", "size"),
            _ => return Err(ConversionError::NoSuchVersion),
        };
        let mut object = object.clone();
        object["apiVersion"] = api_version.into();
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
            && let Some(value) = spec.remove(from)
        {
            spec.insert(to.into(), value);
        }
        Ok(Converted { object, schema: schema(to) })
    }
}

fn context<'c>(server: &'c Server, api_version: &'c str, manager: &'c str) -> Context<'c> {
    Context { api_version, manager, kind: "Wid", versions: &Renamed, ..server.context(manager, false) }
}

fn wid(api_version: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": "Wid", "metadata": {"name": "w"}, "spec": spec})
}

#[test]
fn a_conflict_is_found_in_the_version_of_its_owner() {
    let server = Server::config_map();
    let live = apply(None, &wid("ex.com/v1", json!({"replicas": 1})), &schema("replicas"), &context(&server, "ex.com/v1", "m"));
    let live = Renamed.convert(&live.expect("applied"), "ex.com/v2").expect("converted").object;
    let applied = wid("ex.com/v2", json!({"size": 2}));
    let error = apply(Some(&live), &applied, &schema("size"), &context(&server, "ex.com/v2", "other")).expect_err("a conflict");
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"m\": .spec.replicas");
}

#[test]
fn an_applier_may_go_on_in_another_version() {
    let server = Server::config_map();
    let applied = wid("ex.com/v1", json!({"replicas": 1, "color": "red"}));
    let live = apply(None, &applied, &schema("replicas"), &context(&server, "ex.com/v1", "m")).expect("applied");
    let live = Renamed.convert(&live, "ex.com/v2").expect("converted").object;
    let applied = wid("ex.com/v2", json!({"size": 2}));
    let live = apply(Some(&live), &applied, &schema("size"), &context(&server, "ex.com/v2", "m")).expect("applied");
    assert_eq!(live["spec"], json!({"size": 2}));
    let entries = live["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    assert_eq!((entries.len(), &entries[0]["apiVersion"]), (1, &json!("ex.com/v2")));
    assert_eq!(entries[0]["fieldsV1"], json!({"f:spec": {"f:size": {}}}));
}

#[test]
fn what_was_owned_in_a_version_that_is_gone_is_nobodys() {
    let server = Server::config_map();
    let mut live = wid("ex.com/v2", json!({"size": 1}));
    live["metadata"]["managedFields"] = json!([
        {"manager": "old", "operation": "Update", "apiVersion": "ex.com/v0", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:n": {}}}},
        {"manager": "m", "operation": "Update", "apiVersion": "ex.com/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    ]);
    let mut new = live.clone();
    new["spec"]["color"] = "red".into();
    track_update(Some(&live), &mut new, &schema("size"), &context(&server, "ex.com/v2", "u"));
    let names: Vec<&Value> = new["metadata"]["managedFields"].as_array().into_iter().flatten().map(|entry| &entry["manager"]).collect();
    assert_eq!(names, ["m", "u"]);
}

#[test]
fn replicas_are_seen_through_the_scale_and_come_back() {
    use crate::api::apply::scale::{to_parent, to_scale};
    let parent = json!([
        {"manager": "m", "operation": "Apply", "apiVersion": "apps/v1", "time": "2026-11-16T00:00:00Z", "fieldsType": "FieldsV1",
         "fieldsV1": {"f:spec": {"f:replicas": {}, "f:selector": {}}}},
        {"manager": "o", "operation": "Update", "apiVersion": "apps/v1", "time": "2026-11-16T00:00:00Z", "fieldsType": "FieldsV1",
         "fieldsV1": {"f:spec": {"f:paused": {}}}}
    ]);
    let paths = [("apps/v1", vec!["spec", "replicas"])];
    let scale = to_scale(&parent, &paths).expect("readable").expect("an owner");
    assert_eq!(
        scale,
        json!([{"manager": "m", "operation": "Apply", "apiVersion": "autoscaling/v1", "time": "2026-11-16T00:00:00Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:replicas": {}}}}])
    );
    assert_eq!(to_parent(&parent, &scale, "apps/v1", &paths), Ok(Some(parent.clone())));
    let taken = json!([{"manager": "kubectl", "operation": "Update", "apiVersion": "autoscaling/v1", "time": "2026-11-16T00:01:00Z",
                        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}, "subresource": "scale"}]);
    let back = to_parent(&parent, &taken, "apps/v1", &paths).expect("readable").expect("owners");
    assert_eq!(back[0]["fieldsV1"], json!({"f:spec": {"f:selector": {}}}));
    assert_eq!(
        back[1],
        json!({"manager": "kubectl", "operation": "Update", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
               "fieldsV1": {"f:spec": {"f:replicas": {}}}, "subresource": "scale"})
    );
}
