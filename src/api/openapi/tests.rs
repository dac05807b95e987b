use std::collections::BTreeMap;

use super::*;
use crate::registry::{Registry, resources_of_definition};

fn document(path: &str) -> Value {
    let table = Registry::new().table();
    let document = Documents::default().v3(&table, path).expect("document");
    serde_json::from_slice(&document.body).expect("json")
}

#[test]
fn every_document_of_the_index_can_be_had_at_its_address() {
    let table = Registry::new().table();
    let documents = Documents::default();
    let index: Value = serde_json::from_slice(&documents.index(&table, BTreeMap::new()).body).expect("json");
    let paths = index["paths"].as_object().expect("paths");
    assert_eq!(paths.len(), 49);
    for (path, entry) in paths {
        let hash = documents.hash_of(&table, path).expect("hash");
        assert_eq!(entry["serverRelativeURL"], format!("/openapi/v3/{path}?hash={hash}"));
    }
    assert!(documents.v3(&table, "apis/nope/v1").is_none());
}

#[test]
fn schemas_are_published_with_defaults_and_extensions() {
    let apps = document("apis/apps/v1");
    let spec = &apps["components"]["schemas"]["io.k8s.api.apps.v1.DeploymentSpec"];
    assert_eq!(spec["required"], json!(["selector", "template"]));
    assert_eq!(spec["properties"]["strategy"]["x-kubernetes-patch-strategy"], "retainKeys");
    assert_eq!(spec["properties"]["strategy"]["default"], json!({}));
    let container = &apps["components"]["schemas"]["io.k8s.api.core.v1.Container"]["properties"];
    assert_eq!(container["ports"]["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
    assert_eq!(container["imagePullPolicy"]["enum"], json!(["Always", "IfNotPresent", "Never"]));
    let kind = &apps["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"]["x-kubernetes-group-version-kind"];
    assert_eq!(kind, &json!([{"group": "apps", "kind": "Deployment", "version": "v1"}]));
}

#[test]
fn every_reference_leads_somewhere() {
    let table = Registry::new().table();
    for path in v3::paths(&table) {
        let document = v3::document(&table, &path);
        let mut found = Vec::new();
        schemas::references(&document, &mut found);
        for name in found {
            assert!(document["components"]["schemas"].get(&name).is_some(), "{path}: {name}");
        }
    }
}

#[test]
fn a_patch_says_that_it_can_be_tried_and_validated() {
    let apps = document("apis/apps/v1");
    let item = &apps["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"];
    let names: Vec<&str> = item["patch"]["parameters"].as_array().expect("parameters").iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let shared: Vec<&str> = item["parameters"].as_array().expect("parameters").iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(shared, ["name", "namespace", "pretty"]);
}

#[test]
fn custom_kinds_are_published_under_their_reversed_group() {
    let definition = json!({"spec": {"group": "ex.com", "scope": "Namespaced", "names": {"plural": "wids", "kind": "Wid"}, "versions": [
        {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": {}}, "schema": {"openAPIV3Schema": {"type": "object", "description": "A wid.",
            "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer", "nullable": true}, "port": {"x-kubernetes-int-or-string": true}}}}}}}]}});
    let registry = Registry::new();
    let documents = Documents::default();
    let before = documents.v2(&registry.table(), &[], Encoding::Json);
    registry.replace_custom(resources_of_definition(&definition));
    let table = registry.table();
    let document: Value = serde_json::from_slice(&documents.v3(&table, "apis/ex.com/v1").expect("document").body).expect("json");
    let wid = &document["components"]["schemas"]["com.ex.v1.Wid"];
    assert_eq!((&wid["description"], &wid["properties"]["spec"]["properties"]["size"]["type"]), (&json!("A wid."), &json!("integer")));
    assert!(wid["properties"]["metadata"]["allOf"][0]["$ref"].as_str().is_some_and(|r| r.ends_with(".ObjectMeta")));
    assert!(document["components"]["schemas"].get("com.ex.v1.WidList").is_some());
    assert!(document["paths"].get("/apis/ex.com/v1/namespaces/{namespace}/wids/{name}/scale").is_some());
    let after = documents.v2(&table, &[], Encoding::Json);
    assert_ne!(before.etag, after.etag);
    let v2: Value = serde_json::from_slice(&after.body).expect("json");
    let spec = &v2["definitions"]["com.ex.v1.Wid"]["properties"]["spec"]["properties"];
    assert_eq!((spec["size"].get("type"), &spec["port"]), (None, &json!({"x-kubernetes-int-or-string": true})));
}

#[test]
fn v2_is_one_document_for_all_and_the_same_in_both_encodings() {
    let table = Registry::new().table();
    let documents = Documents::default();
    let json: Value = serde_json::from_slice(&documents.v2(&table, &[], Encoding::Json).body).expect("json");
    assert_eq!(json["swagger"], "2.0");
    let template = &json["definitions"]["io.k8s.api.apps.v1.DeploymentSpec"]["properties"]["template"];
    assert_eq!(template["$ref"], "#/definitions/io.k8s.api.core.v1.PodTemplateSpec");
    let list = &json["paths"]["/api/v1/namespaces/{namespace}/pods"]["get"];
    assert_eq!(list["responses"]["200"]["schema"]["$ref"], "#/definitions/io.k8s.api.core.v1.PodList");
    let protobuf = documents.v2(&table, &[], Encoding::Protobuf);
    // The first field is the version, then the title: enough to know that the framing is right.
    assert_eq!(&protobuf.body[..8], b"\x0a\x032.0\x12\x15\x0a");
    let contains = |needle: &str| protobuf.body.windows(needle.len()).any(|window| window == needle.as_bytes());
    assert!(contains("io.k8s.api.core.v1.PodTemplateSpec") && contains("x-kubernetes-group-version-kind"));
}
