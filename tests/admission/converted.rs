//! `matchPolicy: Equivalent` and definitions with a conversion webhook: whoever asks about one version is shown that version as the
//! definition's own webhook makes it, and a patch goes the same way back.

use serde_json::{Value, json};
use usher::Server;

use super::server::*;

const GROUP: &str = "conv.example.com";

/// Version v1 calls it `x`, version v2 `renamed`.
fn convert(review: &Value) -> Reply {
    let request = &review["request"];
    let mut objects = request["objects"].as_array().unwrap().clone();
    for object in &mut objects {
        let spec = object["spec"].as_object_mut().unwrap();
        let (from, to) = if request["desiredAPIVersion"] == "conv.example.com/v1" { ("renamed", "x") } else { ("x", "renamed") };
        if let Some(value) = spec.remove(from) {
            spec.insert(to.into(), value);
        }
        object["apiVersion"] = request["desiredAPIVersion"].clone();
    }
    let response = json!({"uid": request["uid"], "convertedObjects": objects, "result": {"status": "Success"}});
    let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response});
    Reply::Raw(200, "application/json", review.to_string())
}

async fn server() -> (Server, kube::Client, Webhooks) {
    let server = Server::builder().in_memory().start().await.unwrap();
    let (client, hooks) = (server.client(), Webhooks::start().await);
    hooks.on("/convert", convert);
    let version = |name: &str, storage: bool, field: &str| {
        let spec =
            json!({"type": "object", "properties": {field: {"type": "integer"}, "d": {"type": "string", "default": format!("of-{name}")}}});
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let endpoint = json!({"url": format!("https://127.0.0.1:{}/convert", hooks.port), "caBundle": hooks.ca_bundle});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "wids.conv.example.com"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": {"plural": "wids", "kind": "Wid"},
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": endpoint}},
            "versions": [version("v1", true, "x"), version("v2", false, "renamed")]},
    });
    let definitions = api(&client, "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", None);
    create(&definitions, definition).await.unwrap();
    (server, client, hooks)
}

fn wid(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/{version}"), "kind": "Wid", "metadata": {"name": name}, "spec": spec})
}

/// A webhook that is asked about one version only.
fn entry(hooks: &Webhooks, path: &str, version: &str) -> Value {
    let mut entry = hooks.entry("wids", path);
    entry["rules"] = json!([{"operations": ["*"], "apiGroups": [GROUP], "apiVersions": [version], "resources": ["wids"]}]);
    entry["objectSelector"] = json!({});
    entry
}

#[tokio::test]
async fn a_webhook_sees_the_version_it_asks_about_and_its_patch_is_converted_back() {
    let (_server, client, hooks) = server().await;
    hooks.on("/see", |_| Reply::Response(json!({"allowed": true})));
    hooks.on("/change", |_| patched(json!([{"op": "replace", "path": "/spec/x", "value": 55}])));
    configure(&client, false, "see", vec![entry(&hooks, "/see", "v1")]).await;
    configure(&client, true, "change", vec![entry(&hooks, "/change", "v1")]).await;
    let v2 = api(&client, GROUP, "v2", "Wid", "wids", Some("default"));
    let made = create(&v2, wid("v2", "a", json!({"renamed": 1}))).await.unwrap();
    assert_eq!(made["spec"], json!({"renamed": 55, "d": "of-v2"}));
    let reviews = hooks.reviews.lock().clone();
    let of = |path: &str| reviews.iter().find(|(uri, _)| uri.starts_with(path)).unwrap().1["request"].clone();
    let (changed, seen) = (of("/change"), of("/see"));
    assert_eq!((&changed["object"]["spec"]["x"], &changed["object"]["apiVersion"]), (&json!(1), &json!("conv.example.com/v1")));
    assert_eq!((&seen["object"]["spec"]["x"], &seen["kind"]["version"]), (&json!(55), &json!("v1")));
    assert_eq!((&seen["requestKind"]["version"], &seen["requestResource"]["version"]), (&json!("v2"), &json!("v2")));
}

#[tokio::test]
async fn policies_judge_and_change_the_version_that_they_are_about() {
    let (_server, client, _hooks) = server().await;
    let registration = "admissionregistration.k8s.io";
    let rules = |operation: &str| json!({"resourceRules": [{"operations": [operation], "apiGroups": [GROUP], "apiVersions": ["v1"], "resources": ["wids"]}]});
    let judge = json!({"matchConstraints": rules("*"), "validations": [{"expression": "object.spec.x < 5", "messageExpression": "'x is ' + string(object.spec.x)"}]});
    let change = json!({"matchConstraints": rules("CREATE"), "reinvocationPolicy": "Never", "mutations": [{"patchType": "JSONPatch", "jsonPatch": {
        "expression": "[JSONPatch{op: 'replace', path: '/spec/x', value: object.spec.x + 1}]"}}]});
    for (sort, spec, mut binding) in [("Validating", judge, json!({"validationActions": ["Deny"]})), ("Mutating", change, json!({}))] {
        let of = |kind: String, spec: &Value| json!({"apiVersion": format!("{registration}/v1"), "kind": kind, "metadata": {"name": "p"}, "spec": spec});
        let (kind, lower) = (format!("{sort}AdmissionPolicy"), sort.to_lowercase());
        let policies = api(&client, registration, "v1", &kind, &format!("{lower}admissionpolicies"), None);
        create(&policies, of(kind.clone(), &spec)).await.unwrap();
        binding["policyName"] = json!("p");
        let bindings = api(&client, registration, "v1", &format!("{kind}Binding"), &format!("{lower}admissionpolicybindings"), None);
        create(&bindings, of(format!("{kind}Binding"), &binding)).await.unwrap();
    }
    let v2 = api(&client, GROUP, "v2", "Wid", "wids", Some("default"));
    assert_eq!(create(&v2, wid("v2", "a", json!({"renamed": 3}))).await.unwrap()["spec"]["renamed"], 4);
    let denied = create(&v2, wid("v2", "b", json!({"renamed": 4}))).await.unwrap_err();
    assert!(denied.message.ends_with("denied request: x is 5"), "{}", denied.message);
}

#[tokio::test]
async fn an_object_that_cannot_be_converted_is_nobodys_to_judge() {
    let (_server, client, hooks) = server().await;
    hooks.on("/convert", |_| Reply::Raw(500, "text/plain", "boom".into()));
    hooks.on("/see", |_| Reply::Response(json!({"allowed": true})));
    configure(&client, false, "see", vec![entry(&hooks, "/see", "v2")]).await;
    let v1 = api(&client, GROUP, "v1", "Wid", "wids", Some("default"));
    let failed = create(&v1, wid("v1", "a", json!({"x": 1}))).await.unwrap_err();
    let why = "conversion webhook for conv.example.com/v1, Kind=Wid failed: an error on the server (\"boom\") has prevented the request from succeeding";
    assert_eq!((failed.code, failed.message), (500, format!("Internal error occurred: {why}")));
    assert_eq!(hooks.count("/see"), 0);
}
