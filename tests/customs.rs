//! Custom kinds as a real server was seen to judge them: definitions whose schemas are wrong in several ways at once, objects whose mistakes do
//! not hide each other, whole objects inside of others, versions that know different fields. And who may make what is not there.

use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS: &str = "/apis/g.example.com/v1/namespaces/default/gadgets";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

struct Answer {
    code: u16,
    warnings: Vec<String>,
    body: Value,
}

impl Answer {
    fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// The message without the sentence that says whose it is.
    fn mistakes(&self) -> &str {
        self.message().split_once(" is invalid: ").map_or(self.message(), |(_, mistakes)| mistakes)
    }
}

async fn send_as(client: &kube::Client, user: &str, method: &str, path: &str, content_type: &str, body: &Value) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("content-type", content_type);
    if !user.is_empty() {
        request = request.header("impersonate-user", user);
    }
    let response = client.send(request.body(kube::client::Body::from(body.to_string().into_bytes())).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter().map(|w| w.to_str().unwrap().to_owned()).collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    Answer { code, warnings, body: serde_json::from_slice(&bytes).unwrap_or_default() }
}

async fn send(client: &kube::Client, method: &str, path: &str, content_type: &str, body: &Value) -> Answer {
    send_as(client, "", method, path, content_type, body).await
}

async fn post(client: &kube::Client, path: &str, body: &Value) -> Answer {
    send(client, "POST", path, "application/json", body).await
}

fn version(name: &str, storage: bool, spec: Value) -> Value {
    let schema =
        json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object", "properties": {"n": {"type": "integer"}}}}});
    json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": schema}})
}

fn definition(versions: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gadgets.g.example.com"}, "spec": {
        "group": "g.example.com", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"}, "versions": versions}})
}

fn gadget(version: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("g.example.com/{version}"), "kind": "Gadget", "metadata": {"name": "g"}, "spec": spec})
}

#[tokio::test]
async fn every_pass_over_a_schema_tells_its_own_mistakes() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    for (schema, expected) in [
        (
            json!({"type": "null"}),
            "[S.type: Unsupported value: \"null\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\", S.type: Forbidden: type cannot be set to null, use nullable as an alternative]",
        ),
        (
            json!({"type": "integer", "x-kubernetes-list-type": ""}),
            "[S.type: Invalid value: \"integer\": must be array if x-kubernetes-list-type is specified, S.x-kubernetes-list-type: Unsupported value: \"\": supported values: \"atomic\", \"set\", \"map\"]",
        ),
        (
            json!({"type": "object", "not": {"type": "string", "nullable": true}}),
            "[S.not.nullable: Forbidden: must be false to be structural, S.not.type: Forbidden: must be empty to be structural]",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-int-or-string": true}),
            "[S.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields, S.x-kubernetes-embedded-resource: Invalid value: true: must be false if x-kubernetes-int-or-string is true]",
        ),
        (
            json!({"type": "string", "enum": ["a"], "default": 5}),
            "[S.default: Invalid value: \"integer\":  in body must be of type string: \"integer\", S.default: Unsupported value: 5: supported values: \"a\"]",
        ),
        (
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "nullable": true}}),
            "S.items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set",
        ),
        (
            json!({"$schema": "x", "type": "object"}),
            "spec.validation.openAPIV3Schema: Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported",
        ),
        (
            json!({"type": "object", "x-kubernetes-validations": [{"rule": " "}, {"rule": "true", "message": "a\nb"}, {"rule": "true\n", "fieldPath": "x"}]}),
            "[S.x-kubernetes-validations[0].rule: Required value: rule is not specified, S.x-kubernetes-validations[1].message: Invalid value: \"a\\nb\": must not contain line breaks, S.x-kubernetes-validations[2].fieldPath: Invalid value: \"x\": must be a valid path]",
        ),
    ] {
        let answer = post(&client, &format!("{DEFINITIONS}?dryRun=All"), &definition(json!([version("v1", true, schema.clone())]))).await;
        let expected = expected.replace("S.", "spec.validation.openAPIV3Schema.properties[spec].");
        assert_eq!((answer.code, answer.mistakes()), (422, expected.as_str()), "{schema}");
    }
    let mut wrong = definition(json!([version("v1", true, json!({"type": "object"}))]));
    wrong["spec"]["names"] = json!({});
    let answer = post(&client, DEFINITIONS, &wrong).await;
    assert_eq!(
        answer.mistakes(),
        "[metadata.name: Invalid value: \"gadgets.g.example.com\": must be spec.names.plural+\".\"+spec.group, spec.names.plural: Required value, spec.names.singular: Required value, spec.names.kind: Required value, spec.names.listKind: Required value]"
    );
    let answer = post(
        &client,
        DEFINITIONS,
        &definition(json!([{"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}}])),
    )
    .await;
    assert_eq!(
        answer.mistakes(),
        "[spec.versions: Invalid value: [{\"Name\":\"v1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,\"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}]: must have exactly one version marked as storage version, status.storedVersions: Invalid value: null: must have at least one stored version]"
    );
    let odd = json!({"type": "string", "format": "odd"});
    let answer = post(&client, &format!("{DEFINITIONS}?dryRun=All"), &definition(json!([version("v1", true, odd)]))).await;
    assert_eq!((answer.code, &*answer.warnings), (201, &["299 - \"unrecognized format \\\"odd\\\"\"".to_owned()][..]));
    server.stop().await;
}

#[tokio::test]
async fn mistakes_of_a_custom_object_do_not_hide_each_other() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let spec = json!({"type": "object", "properties": {
        "word": {"type": "string", "enum": ["x", "y"]}, "when": {"type": "string", "format": "date-time"}, "small": {"type": "integer", "format": "int32"},
        "number": {"type": "integer", "minimum": 3}, "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}},
        "whole": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}}});
    let mut versions = json!([version("v1", true, spec)]);
    versions[0]["subresources"] = json!({"status": {}});
    post(&client, DEFINITIONS, &definition(versions)).await;
    let whole = |metadata: Value| json!({"whole": {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}});
    for (spec, code, expected) in [
        (
            json!({"word": 5}),
            422,
            "[spec.word: Invalid value: \"integer\": spec.word in body must be of type string: \"integer\", spec.word: Unsupported value: 5: supported values: \"x\", \"y\"]",
        ),
        (json!({"when": {}}), 422, "spec.when: Invalid value: \"\": spec.when in body must be of type date-time: \"\""),
        (
            json!({"small": 1.5}),
            422,
            "[spec.small: Invalid value: \"float64\": spec.small in body must be of type int32: \"float64\", <nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.small]",
        ),
        (
            json!({"number": 1.5}),
            422,
            "[spec.number: Invalid value: \"number\": spec.number in body must be of type integer: \"number\", spec.number: Invalid value: 1.5: spec.number in body should be greater than or equal to 3, <nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.number]",
        ),
        (json!({"set": ["a", "a", "a"]}), 422, "spec.set[1]: Duplicate value: \"a\""),
        (
            json!({"keyed": ["a"]}),
            422,
            "[spec.keyed[0]: Invalid value: \"string\": spec.keyed[0] in body must be of type object: \"string\", spec.keyed[0]: Invalid value: \"a\": must be an object for an array of list-type map]",
        ),
        (
            json!({"whole": {"apiVersion": "a/b/c", "kind": ""}}),
            422,
            "[spec.whole.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c, spec.whole.kind: Invalid value: \"\": must not be empty]",
        ),
        (json!({"whole": {}}), 422, "[spec.whole.apiVersion: Required value, spec.whole.kind: Required value]"),
        (whole(json!({"name": "a/b"})), 422, "spec.whole.metadata.name: Invalid value: \"a/b\": may not contain '/'"),
        (
            whole(json!({"labels": {"a": 5}})),
            400,
            "Gadget in version \"v1\" cannot be handled as a Gadget: spec.whole.metadata: Invalid value: {\"labels\":{\"a\":5}}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
        ),
    ] {
        let answer = post(&client, &format!("{GADGETS}?dryRun=All"), &gadget("v1", spec.clone())).await;
        assert_eq!((answer.code, answer.mistakes()), (code, expected), "{spec}");
    }
    // Metadata inside is typed: what says nothing goes.
    let mut made = gadget("v1", whole(json!({"name": "", "labels": null, "annotations": {"a": "b"}})));
    made["metadata"]["finalizers"] = json!(["mine"]);
    let answer = post(&client, GADGETS, &made).await;
    assert_eq!(answer.body["spec"]["whole"]["metadata"], json!({"annotations": {"a": "b"}}));
    let told = "299 - \"metadata.finalizers: \\\"mine\\\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers\"";
    assert_eq!(answer.warnings, [told]);
    let answer = send(&client, "PATCH", &format!("{GADGETS}/g/status"), MERGE, &json!({"status": {"n": "x"}})).await;
    assert_eq!(answer.mistakes(), "status.n: Invalid value: \"string\": n in body must be of type integer: \"string\"");
    server.stop().await;
}

#[tokio::test]
async fn a_version_shows_and_keeps_what_its_schema_knows() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let fields = |names: &[&str]| -> Value {
        let fields: serde_json::Map<String, Value> =
            names.iter().map(|n| ((*n).to_owned(), json!({"type": "string", "default": *n}))).collect();
        json!({"type": "object", "properties": fields})
    };
    let versions = json!([version("v1", true, fields(&["both", "new"])), version("v1beta1", false, fields(&["both", "old"]))]);
    post(&client, DEFINITIONS, &definition(versions)).await;
    let answer = post(&client, GADGETS, &gadget("v1", json!({"both": "b", "new": "n"}))).await;
    assert_eq!(answer.code, 201, "{}", answer.message());
    let old = format!("{}/g", GADGETS.replace("/v1/", "/v1beta1/"));
    let read = send(&client, "GET", &old, MERGE, &Value::Null).await;
    assert_eq!(read.body["spec"], json!({"both": "b"}), "neither a field that it does not know nor a default that nobody stored");
    let written = send(&client, "PATCH", &old, MERGE, &json!({"spec": {"old": "o"}})).await;
    assert_eq!((written.code, &written.body["spec"]), (200, &json!({"both": "b"})), "what is stored does not know it");
    let read = send(&client, "GET", &format!("{GADGETS}/g"), MERGE, &Value::Null).await;
    assert_eq!(read.body["spec"], json!({"both": "b", "new": "new"}), "the stored version has its own defaults");
    server.stop().await;
}

#[tokio::test]
async fn who_may_change_but_not_create_makes_nothing_by_a_change() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "patch", "update"]}]);
    post(&client, &format!("{rbac}/clusterroles"), &json!({"metadata": {"name": "changes"}, "rules": rules})).await;
    let subject = json!({"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"});
    let role = json!({"kind": "ClusterRole", "name": "changes", "apiGroup": "rbac.authorization.k8s.io"});
    post(
        &client,
        &format!("{rbac}/clusterrolebindings"),
        &json!({"metadata": {"name": "changes"}, "roleRef": role, "subjects": [subject]}),
    )
    .await;
    let map = "/api/v1/namespaces/default/configmaps/m";
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    let answer = send_as(&client, "eve", "PATCH", &format!("{map}?fieldManager=m"), APPLY, &applied).await;
    let denied =
        "configmaps \"m\" is forbidden: User \"eve\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert_eq!((answer.code, answer.message()), (403, denied));
    let answer = send_as(&client, "eve", "PUT", lease, "application/json", &json!({"metadata": {"name": "l"}})).await;
    assert_eq!(answer.code, 403, "{}", answer.message());
    assert_eq!(send(&client, "GET", map, MERGE, &Value::Null).await.code, 404);
    // Somebody who may: an update makes a Lease, but no ConfigMap.
    let answer = send(&client, "PUT", lease, "application/json", &json!({"metadata": {"name": "l", "resourceVersion": "5"}})).await;
    assert_eq!(answer.code, 201, "{}", answer.message());
    let answer = send_as(&client, "eve", "PUT", lease, "application/json", &json!({"metadata": {"name": "l"}})).await;
    let wanted = "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    assert_eq!((answer.code, answer.message()), (422, wanted));
    let answer = send(&client, "PUT", map, "application/json", &applied).await;
    assert_eq!((answer.code, answer.message()), (404, "configmaps \"m\" not found"));
    // What is answered and not kept says whose its fields are, too.
    let review = json!({"spec": {"user": "eve", "nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let answer = post(&client, "/apis/authorization.k8s.io/v1/subjectaccessreviews", &review).await;
    let fields = json!({"f:spec": {"f:nonResourceAttributes": {".": {}, "f:path": {}, "f:verb": {}}, "f:user": {}}});
    assert_eq!(answer.body["metadata"]["managedFields"][0]["fieldsV1"], fields);
    server.stop().await;
}
