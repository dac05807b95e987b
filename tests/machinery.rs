//! What a real server was seen to answer to the odd requests: patches, apply, scale, deletion, lists, paths, custom kinds. The expected values
//! are facts, in tables of our own.

use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS: &str = "/apis/g.example.com/v1/namespaces/default/gadgets";

struct Answer {
    code: u16,
    headers: HeaderMap,
    body: Value,
    text: String,
}

impl Answer {
    fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

async fn ask(client: &kube::Client, method: &str, path: &str, headers: &[(&str, &str)], body: String) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = client.send(request.body(kube::client::Body::from(body.into_bytes())).unwrap()).await.unwrap();
    let (code, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Answer { code, headers, body: serde_json::from_slice(&bytes).unwrap_or_default(), text }
}

async fn send(client: &kube::Client, method: &str, path: &str, content_type: &str, body: impl ToString) -> Answer {
    ask(client, method, path, &[("content-type", content_type)], body.to_string()).await
}

async fn get(client: &kube::Client, path: &str) -> Answer {
    ask(client, "GET", path, &[], String::new()).await
}

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

#[tokio::test]
async fn a_patch_cannot_turn_an_object_into_one_of_another_kind() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    send(&client, "POST", MAPS, JSON, map("c", json!({"k": "v"}))).await;
    let one = format!("{MAPS}/c");
    for (patch, ending) in [
        (json!([{"op": "replace", "path": "/kind", "value": "Secret"}]), "converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
        (
            json!([{"op": "replace", "path": "/apiVersion", "value": "v2"}]),
            "no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        ),
    ] {
        let answer = send(&client, "PATCH", &one, JSON_PATCH, patch).await;
        assert!(answer.code == 422 && answer.message().ends_with(ending), "{}", answer.message());
    }
    let answer = send(&client, "PATCH", &one, MERGE, json!({"kind": null})).await;
    assert_eq!((answer.code, &answer.body["kind"]), (200, &json!("ConfigMap")), "whoever takes the kind away leaves it as it is");
    assert_eq!(get(&client, &one).await.body["kind"], "ConfigMap");
    let answer = send(&client, "PATCH", &one, MERGE, json!({"metadata": {"managedFields": []}})).await;
    assert!(answer.body["metadata"].get("managedFields").is_none(), "an empty list takes everybody's ownership away: {}", answer.text);
    let mut object = map("d", json!({"k": "v"}));
    assert!(send(&client, "POST", MAPS, JSON, object.clone()).await.body["metadata"]["managedFields"].is_array());
    object["metadata"]["managedFields"] = json!([]);
    let answer = send(&client, "PUT", &format!("{MAPS}/d"), JSON, object).await;
    assert!(answer.code == 200 && answer.body["metadata"].get("managedFields").is_none(), "an update does so, too: {}", answer.text);
    server.stop().await;
}

#[tokio::test]
async fn a_patch_that_is_no_patch_is_told_so() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    send(&client, "POST", MAPS, JSON, map("c", json!({"k": "v"}))).await;
    let one = format!("{MAPS}/c?fieldManager=m");
    let not_a_map = |word: &str| {
        format!(
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"
        )
    };
    let undeterminable = "the name of the object (c based on URL) was undeterminable: name must be provided".to_owned();
    for (media, body, message) in [
        (JSON_PATCH, "{", "invalid JSON patch".to_owned()),
        (MERGE, "", "invalid JSON patch".to_owned()),
        (MERGE, "[]", "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}".to_owned()),
        (STRATEGIC, "{} x", "invalid JSON patch".to_owned()),
        (APPLY, "[]", not_a_map("array")),
        (APPLY, "\"x\"", not_a_map("string")),
        (APPLY, "{}", "invalid object type: /, Kind=".to_owned()),
        (STRATEGIC, "{\"$patch\":\"delete\"}", undeterminable),
    ] {
        let answer = send(&client, "PATCH", &one, media, body).await;
        assert_eq!((answer.code, answer.message()), (400, message.as_str()), "{media} {body}");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_a_patch_says_twice_is_told_or_refused() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    send(&client, "POST", MAPS, JSON, map("c", json!({}))).await;
    let twice = "{\"data\":{\"x\":\"1\"},\"data\":{\"x\":\"2\"}}";
    for media in [MERGE, STRATEGIC] {
        let answer = send(&client, "PATCH", &format!("{MAPS}/c?fieldValidation=Strict"), media, twice).await;
        assert!(
            answer.code == 422 && answer.message().ends_with("strict decoding error: duplicate field \"data\""),
            "{}",
            answer.message()
        );
        let answer = send(&client, "PATCH", &format!("{MAPS}/c"), media, twice).await;
        assert_eq!((answer.code, answer.header("warning")), (200, "299 - \"duplicate field \\\"data\\\"\""));
    }
    let twice = "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\"},\"data\":{\"y\":\"1\",\"y\":\"2\"}}";
    let answer = send(&client, "PATCH", &format!("{MAPS}/c?fieldManager=m&fieldValidation=Strict"), APPLY, twice).await;
    let lines =
        "error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  line 1: key \"y\" already set in map";
    assert_eq!((answer.code, answer.message()), (400, lines));
    let answer = send(&client, "PATCH", &format!("{MAPS}/c?fieldManager=m"), APPLY, twice).await;
    assert_eq!((answer.code, answer.header("warning")), (200, "299 - \"line 1: key \\\"y\\\" already set in map\""));
    server.stop().await;
}

#[tokio::test]
async fn an_apply_keeps_nothing_that_its_type_leaves_out() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let mut applied = deployment();
    applied["spec"]["template"]["metadata"]["annotations"] = Value::Null;
    applied["spec"]["template"]["spec"]["volumes"] = json!([]);
    applied["spec"]["template"]["spec"]["containers"][0]["args"] = json!([]);
    let answer = send(&client, "PATCH", &format!("{DEPLOYMENTS}/d?fieldManager=m"), APPLY, &applied).await;
    assert_eq!(answer.code, 201, "{}", answer.text);
    let template = &answer.body["spec"]["template"];
    assert!(template["metadata"].get("annotations").is_none() && template["spec"].get("volumes").is_none(), "{template}");
    assert!(template["spec"]["containers"][0].get("args").is_none(), "{template}");
    let gone = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "gone", "uid": "5"}});
    let answer = send(&client, "PATCH", &format!("{MAPS}/gone?fieldManager=m"), APPLY, gone).await;
    let message = "Operation cannot be fulfilled on configmaps \"gone\": uid mismatch: the provided object specified uid 5, and no existing object was found";
    assert_eq!((answer.code, answer.message()), (409, message));
    server.stop().await;
}

#[tokio::test]
async fn a_manager_in_another_version_owns_what_it_wrote_there() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let (v1, v2) = (
        "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/h?fieldManager=m",
        "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/h?fieldManager=m",
    );
    let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
    let metadata = json!({"name": "h"});
    let old = json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": metadata,
        "spec": {"maxReplicas": 5, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 50}});
    assert_eq!(send(&client, "PATCH", v1, APPLY, old).await.code, 201);
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}});
    let new = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata,
        "spec": {"maxReplicas": 5, "scaleTargetRef": target, "metrics": [cpu]}});
    let answer = send(&client, "PATCH", v2, APPLY, new).await;
    assert_eq!((answer.code, &answer.body["spec"]["metrics"]), (200, &json!([cpu])), "{}", answer.text);
    assert!(answer.body["spec"].get("targetCPUUtilizationPercentage").is_none(), "{}", answer.text);
    server.stop().await;
}

#[tokio::test]
async fn a_scale_is_written_as_strictly_as_an_object_and_knows_who_set_it() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    send(&client, "POST", &format!("{DEPLOYMENTS}?fieldManager=maker"), JSON, deployment()).await;
    let scale = format!("{DEPLOYMENTS}/d/scale");
    let body = |metadata: Value| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": 5}});
    let answer = send(&client, "PUT", &scale, JSON, body(json!({"name": "e"}))).await;
    assert_eq!((answer.code, answer.message()), (400, "the name of the object (e) does not match the name on the URL (d)"));
    let answer = send(&client, "PUT", &scale, JSON, body(json!({}))).await;
    assert_eq!((answer.code, answer.message()), (400, "the name of the object (d based on URL) was undeterminable: name must be provided"));
    let answer = send(&client, "PUT", &scale, JSON, body(json!({"name": "d", "uid": "x"}))).await;
    assert!(answer.code == 409 && answer.message().contains("Precondition failed: UID in precondition: x"), "{}", answer.message());
    let answer = send(&client, "PATCH", &scale, JSON_PATCH, json!([{"op": "replace", "path": "/spec/replicas", "value": "x"}])).await;
    let ending = "json: cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32";
    assert!(answer.code == 422 && answer.message().ends_with(ending), "{}", answer.message());
    let answer = send(&client, "PATCH", &format!("{scale}?fieldValidation=Strict"), MERGE, json!({"spec": {"replicaz": 1}})).await;
    assert!(
        answer.code == 422 && answer.message().ends_with("strict decoding error: unknown field \"spec.replicaz\""),
        "{}",
        answer.message()
    );
    let answer = send(&client, "PATCH", &format!("{scale}?fieldManager=hpa"), MERGE, json!({"spec": {"replicas": 4}})).await;
    assert_eq!((answer.code, &answer.body["spec"]["replicas"]), (200, &json!(4)));
    let object = get(&client, &format!("{DEPLOYMENTS}/d")).await.body;
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let expected = json!({"manager": "hpa", "operation": "Update", "apiVersion": "apps/v1", "subresource": "scale", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}}});
    assert!(entries.contains(&expected), "{entries:?}");
    let maker = entries.iter().find(|entry| entry["manager"] == "maker").unwrap();
    assert!(maker["fieldsV1"]["f:spec"].get("f:replicas").is_none(), "the number was taken over: {maker}");
    let applied = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 7}});
    let answer = send(&client, "PATCH", &format!("{scale}?fieldManager=other"), APPLY, &applied).await;
    let conflict = "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\" using autoscaling/v1: .spec.replicas";
    assert_eq!((answer.code, answer.message()), (409, conflict));
    let answer = send(&client, "PATCH", &format!("{scale}?fieldManager=other&force=true"), APPLY, applied).await;
    assert_eq!((answer.code, &answer.body["spec"]["replicas"]), (200, &json!(7)), "{}", answer.text);
    server.stop().await;
}

#[tokio::test]
async fn a_service_without_ports_has_none_and_not_null() {
    let server = crate::builder().start().await.unwrap();
    let body =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "a.b"}});
    let made = send(&server.client(), "POST", "/api/v1/namespaces/default/services", JSON, body).await;
    assert_eq!(made.body["spec"], json!({"type": "ExternalName", "externalName": "a.b", "sessionAffinity": "None"}));
}

#[tokio::test]
async fn the_status_of_a_deployment_takes_no_labels_along() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let mut object = deployment();
    object["metadata"]["labels"] = json!({"x": "y"});
    send(&client, "POST", DEPLOYMENTS, JSON, object).await;
    let patch = json!({"metadata": {"labels": {"x": "z", "q": "r"}}, "status": {"replicas": 3}, "spec": {"replicas": 9}});
    let answer = send(&client, "PATCH", &format!("{DEPLOYMENTS}/d/status"), MERGE, patch).await;
    assert_eq!((&answer.body["metadata"]["labels"], &answer.body["status"]["replicas"]), (&json!({"x": "y"}), &json!(3)));
    assert_eq!(answer.body["spec"]["replicas"], 1);
    server.stop().await;
}

#[tokio::test]
async fn the_body_of_a_deletion_is_typed_and_is_all_that_counts() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    send(&client, "POST", MAPS, JSON, map("c", json!({}))).await;
    let one = format!("{MAPS}/c");
    let type_meta = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
    for (body, code, message) in [
        ("{", 400, "couldn't get version/kind; json parse error: unexpected end of JSON input".to_owned()),
        ("[]", 400, format!("couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type {type_meta}")),
        (
            "{\"gracePeriodSeconds\":\"x\"}",
            400,
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64".to_owned(),
        ),
        (
            "{\"kind\":\"Foo\",\"apiVersion\":\"v1\"}",
            400,
            "no kind \"Foo\" is registered for version \"v1\" in scheme \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\""
                .to_owned(),
        ),
        (
            "{\"ignoreStoreReadErrorWithClusterBreakingPotential\":true,\"gracePeriodSeconds\":0}",
            422,
            "DeleteOptions.meta.k8s.io \"\" is invalid: ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: cannot be set together with .gracePeriodSeconds"
                .to_owned(),
        ),
    ] {
        let answer = send(&client, "DELETE", &one, JSON, body).await;
        assert_eq!((answer.code, answer.message()), (code, message.as_str()), "{body}");
    }
    assert_eq!(send(&client, "DELETE", &format!("{one}?dryRun=All"), JSON, "").await.code, 200);
    assert_eq!(get(&client, &one).await.code, 200, "that was a dry run");
    assert_eq!(
        send(&client, "DELETE", &format!("{one}?dryRun=All"), JSON, "{\"kind\":\"DeleteOptions\",\"apiVersion\":\"v1\"}").await.code,
        200
    );
    assert_eq!(get(&client, &one).await.code, 404, "the body said nothing of a dry run");
    assert_eq!(send(&client, "DELETE", "/api/v1/configmaps", JSON, "").await.code, 405, "nobody deletes from all namespaces at once");
    server.stop().await;
}

#[tokio::test]
async fn options_of_lists_that_contradict_each_other_are_all_told() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    const UNLESS: &str = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
    const CONTINUE: &str = "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided";
    const FOR_WATCH: &str =
        "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
    const REQUIRES: &str = "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    const ONLY: &str = "resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"";
    for (query, errors) in [
        ("resourceVersionMatch=Exact&continue=abc", vec![UNLESS, CONTINUE]),
        ("watch=1&resourceVersionMatch=Exact", vec![FOR_WATCH, ONLY]),
        ("watch=1&resourceVersionMatch=Exact&sendInitialEvents=true", vec![REQUIRES, ONLY]),
        ("watch=1&continue=abc", vec![CONTINUE]),
        ("sendInitialEvents=true", vec!["sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"]),
    ] {
        let joined = if let [one] = errors.as_slice() { (*one).to_owned() } else { format!("[{}]", errors.join(", ")) };
        let expected = format!("ListOptions.meta.k8s.io \"\" is invalid: {joined}");
        let answer = get(&client, &format!("{MAPS}?{query}")).await;
        assert_eq!((answer.code, answer.message()), (422, expected.as_str()), "{query}");
    }
    for (query, message) in [
        ("limit=", "strconv.ParseInt: parsing \"\": invalid syntax"),
        ("limit=99999999999999999999", "strconv.ParseInt: parsing \"99999999999999999999\": value out of range"),
        ("labelSelector=g%3D1%2C", "found '', expected: identifier after ','"),
        ("labelSelector=/a", "unable to parse requirement: <nil>: Invalid value: \"/a\": prefix part must be non-empty"),
        ("fieldSelector=foo%3Dbar", "\"foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
        ("fieldSelector=a%3Db%3Dc", "invalid field selector: unescaped character in value: 61"),
        ("fieldSelector=metadata.name%3D%5C", "invalid field selector: invalid escape sequence: \\"),
    ] {
        let answer = get(&client, &format!("{MAPS}?{query}")).await;
        assert_eq!((answer.code, answer.message()), (400, message), "{query}");
    }
    let pods = get(&client, "/api/v1/pods?fieldSelector=spec.x%3D1").await;
    assert_eq!((pods.code, pods.message()), (400, "field label not supported: spec.x"), "a kind with fields of its own has other words");
    server.stop().await;
}

#[tokio::test]
async fn a_watch_that_names_no_revision_says_where_the_state_ends() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    send(&client, "POST", MAPS, JSON, map("c", json!({}))).await;
    let answer = get(&client, &format!("{MAPS}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true")).await;
    let events: Vec<Value> = answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.iter().map(|event| event["type"].as_str().unwrap()).collect::<Vec<_>>(), ["ADDED", "BOOKMARK"]);
    assert_eq!(events[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    let named = get(&client, &format!("{MAPS}/c?watch=1")).await;
    assert_eq!(named.body["kind"], "ConfigMap", "a name is read, not watched");
    server.stop().await;
}

#[tokio::test]
async fn paths_that_look_like_a_resource_and_are_none() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let none = "the server could not find the requested resource";
    for (method, path, code, message) in [
        ("GET", "/api/v1/configmaps/c", 404, none),
        ("GET", "/api/v1/namespaces/default//configmaps", 404, none),
        ("GET", "/apis/apps/v1/deployments/x", 404, none),
        ("GET", "/api/v1/namespaces/default/configmaps/a%2Fb", 404, none),
        ("POST", "/api/v1/configmaps", 405, "the server does not allow this method on the requested resource"),
        ("DELETE", "/api/v1/configmaps", 405, "the server does not allow this method on the requested resource"),
        ("DELETE", "/api/v1", 405, "the server does not allow this method on the requested resource"),
        ("POST", "/version", 405, "the server does not allow this method on the requested resource"),
        (
            "GET",
            "/api/v1/namespaces/default/configmaps/c?export=true",
            400,
            "the export parameter, deprecated since v1.14, is no longer supported",
        ),
    ] {
        let answer = ask(&client, method, path, &[], String::new()).await;
        assert_eq!((answer.code, answer.message()), (code, message), "{method} {path}");
    }
    let defined = definition(json!({"type": "object"}));
    send(&client, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", JSON, defined).await;
    for (method, path) in [("POST", ""), ("DELETE", ""), ("GET", "/x"), ("PUT", "/x")] {
        let answer = ask(&client, method, &format!("/apis/g.example.com/v1/gadgets{path}"), &[], String::new()).await;
        assert_eq!((answer.code, answer.text.as_str()), (404, "404 page not found\n"), "{method} {path}");
    }
    for path in ["/healthz", "/apis", "/apis/apps", "/openapi/v3"] {
        assert_eq!(ask(&client, "POST", path, &[], String::new()).await.code, 200, "any method reads {path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn every_answer_says_to_which_flow_it_belonged() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    const FLOWS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
    let uid = |list: &Value, name: &str| {
        let items = list["items"].as_array().unwrap();
        items.iter().find(|item| item["metadata"]["name"] == name).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let (schemas, levels) =
        (get(&client, &format!("{FLOWS}/flowschemas")).await, get(&client, &format!("{FLOWS}/prioritylevelconfigurations")).await);
    let marks = |answer: &Answer| {
        (answer.header("x-kubernetes-pf-flowschema-uid").to_owned(), answer.header("x-kubernetes-pf-prioritylevel-uid").to_owned())
    };
    let exempt = (uid(&schemas.body, "exempt"), uid(&levels.body, "exempt"));
    assert_eq!(marks(&schemas), exempt, "an administrator is never held up");
    assert_eq!(marks(&get(&client, &format!("{MAPS}/nope")).await), exempt, "nor is an answer that is an error left without");
    let bob = server.client_as(usher::request::User::new("bob", &["devs", "system:authenticated"]));
    let refused = get(&bob, MAPS).await;
    assert_eq!(refused.code, 403);
    assert_eq!(marks(&refused), (uid(&schemas.body, "global-default"), uid(&levels.body, "global-default")));
    // A schema of one's own counts for the very next request.
    let own = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "bobs"}, "spec": {
        "matchingPrecedence": 10, "priorityLevelConfiguration": {"name": "workload-low"},
        "rules": [{"subjects": [{"kind": "User", "user": {"name": "bob"}}],
            "resourceRules": [{"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"], "namespaces": ["*"]}]}]}});
    let made = send(&client, "POST", &format!("{FLOWS}/flowschemas"), JSON, own).await;
    assert_eq!(made.code, 201, "{}", made.text);
    let bobs = made.body["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(marks(&get(&bob, MAPS).await), (bobs, uid(&levels.body, "workload-low")));
    server.stop().await;
}

#[tokio::test]
async fn connections_fail_as_they_do_where_there_is_no_kubelet() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let pods = "/api/v1/namespaces/default/pods";
    send(&client, "POST", "/api/v1/namespaces/default/serviceaccounts", JSON, json!({"metadata": {"name": "default"}})).await;
    let pod = |name: &str, node: &str, containers: &[&str]| {
        let containers: Vec<Value> = containers.iter().map(|name| json!({"name": name, "image": "i"})).collect();
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, "nodeName": node,
            "initContainers": [{"name": "i1", "image": "i"}]}})
    };
    for (name, node, containers) in [("free", "", &["c"][..]), ("two", "", &["c1", "c2"]), ("lost", "n1", &["c"]), ("here", "n2", &["c"])] {
        let made = send(&client, "POST", pods, JSON, pod(name, node, containers)).await;
        assert_eq!(made.code, 201, "{}", made.text);
    }
    send(&client, "POST", "/api/v1/nodes", JSON, json!({"metadata": {"name": "n2"}})).await;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}});
    send(&client, "PATCH", "/api/v1/nodes/n2/status", MERGE, status).await;
    let upgrade = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
    let refused = "dial tcp 127.0.0.1:1: connect: connection refused";
    for (path, headers, code, message) in [
        ("pods/nope/exec", &[][..], 404, "pods \"nope\" not found".to_owned()),
        ("pods/free/exec", &[], 400, "pod free does not have a host assigned".to_owned()),
        ("pods/two/exec", &[], 400, "a container name must be specified for pod two, choose one of: [i1 c1 c2]".to_owned()),
        ("pods/free/attach?container=zz", &[], 400, "container zz is not valid for pod free".to_owned()),
        (
            "pods/free/portforward?ports=x",
            &[],
            400,
            "cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax".to_owned(),
        ),
        ("pods/lost/exec", &[], 404, "pods \"n1\" not found".to_owned()),
        ("pods/here/exec", &[], 400, "Upgrade request required".to_owned()),
        ("pods/here/exec", &upgrade, 500, format!("error dialing backend: {refused}")),
        ("pods/here/log", &[], 500, format!("Get \"https://127.0.0.1:1/containerLogs/default/here/c\": {refused}")),
        (
            "pods/here/log?tailLines=-1",
            &[],
            422,
            "PodLogOptions \"here\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0".to_owned(),
        ),
        ("pods/here/proxy/", &[], 400, "address not allowed".to_owned()),
        ("services/s/proxy/", &[], 503, "no endpoints available for service \"s\"".to_owned()),
        ("services/s:80/proxy/", &[], 404, "services \"s\" not found".to_owned()),
        ("services/a:b:c:d/proxy/", &[], 400, "invalid service request \"a:b:c:d\"".to_owned()),
    ] {
        let answer = ask(&client, "GET", &format!("/api/v1/namespaces/default/{path}"), headers, String::new()).await;
        assert_eq!((answer.code, answer.message()), (code, message.as_str()), "{path}");
    }
    let node = get(&client, "/api/v1/nodes/n2/proxy/healthz").await;
    assert_eq!((node.code, node.message()), (400, "address not allowed"));
    server.stop().await;
}

fn definition(schema: Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gadgets.g.example.com"}, "spec": {
        "group": "g.example.com", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}}}]}})
}

fn gadget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "g.example.com/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn schemas_that_are_not_structural_are_refused_in_a_real_servers_words() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let list = |items: Value, extra: Value| {
        let mut schema = json!({"type": "array", "items": items});
        schema.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        schema
    };
    let keyed = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}});
    for (schema, expected) in [
        (json!({"$ref": "#/x"}), "S.$ref: Forbidden: $ref is not supported"),
        (
            json!({"type": "string", "pattern": "("}),
            "S.pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`",
        ),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false}),
            "S.x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined",
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            "S.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ),
        (
            list(keyed.clone(), json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["z"]})),
            "S.x-kubernetes-list-map-keys: Invalid value: [\"z\"]: entries must all be names of item properties",
        ),
        (
            list(keyed.clone(), json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "k"]})),
            "S.x-kubernetes-list-map-keys: Invalid value: [\"k\",\"k\"]: must not contain duplicate entries",
        ),
        (
            list(keyed, json!({"x-kubernetes-list-map-keys": ["k"]})),
            "S.x-kubernetes-list-type: Required value: must be map if x-kubernetes-list-map-keys is non-empty",
        ),
        (
            list(json!({"type": "object"}), json!({"x-kubernetes-list-type": "set"})),
            "S.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "object", "default": {"zz": 1}, "properties": {"b": {"type": "string"}}}}}),
            "S.properties[a].default: Invalid value: {\"zz\":1}: must not have unknown fields",
        ),
        (
            json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self>1", "optionalOldSelf": true}]}),
            "S.x-kubernetes-validations[0].optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
        ),
        (
            json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self>1", "reason": "Foo"}]}),
            "S.x-kubernetes-validations[0].reason: Unsupported value: \"Foo\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
        ),
    ] {
        let answer = send(&client, "POST", &format!("{DEFINITIONS}?dryRun=All"), JSON, definition(schema.clone())).await;
        let expected = expected.replace("S.", "spec.validation.openAPIV3Schema.properties[spec].");
        let expected = format!("CustomResourceDefinition.apiextensions.k8s.io \"gadgets.g.example.com\" is invalid: {expected}");
        assert_eq!((answer.code, answer.message()), (422, expected.as_str()), "{schema}");
    }
    // Neither a boolean beside properties nor a type beside int-or-string makes a schema unstructural.
    for schema in [
        json!({"type": "object", "additionalProperties": true, "properties": {"a": {"type": "string"}}}),
        json!({"type": "string", "x-kubernetes-int-or-string": true}),
    ] {
        let answer = send(&client, "POST", &format!("{DEFINITIONS}?dryRun=All"), JSON, definition(schema.clone())).await;
        assert_eq!(answer.code, 201, "{schema}: {}", answer.message());
    }
    server.stop().await;
}

#[tokio::test]
async fn custom_objects_are_held_to_their_kind_and_to_branches_of_required_fields() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let pair = json!({"a": {"type": "string"}, "b": {"type": "string"}});
    let branches = json!([{"required": ["a"]}, {"required": ["b"]}]);
    let schema = json!({"type": "object", "properties": {
        "any": {"type": "object", "properties": pair, "anyOf": branches},
        "one": {"type": "object", "properties": pair, "oneOf": branches},
        "i": {"type": "integer", "format": "int32"},
    }});
    assert_eq!(send(&client, "POST", DEFINITIONS, JSON, definition(schema)).await.code, 201);
    for (spec, part) in [
        (
            json!({"any": {}}),
            "<nil>: Invalid value: \"\": \"spec.any\" must validate at least one schema (anyOf), spec.any.a: Required value",
        ),
        (
            json!({"one": {}}),
            "<nil>: Invalid value: \"\": \"spec.one\" must validate one and only one schema (oneOf). Found none valid, spec.one.a: Required value",
        ),
        (json!({"i": 3_000_000_000_u64}), "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.i"),
    ] {
        let answer = send(&client, "POST", GADGETS, JSON, gadget("g", spec)).await;
        assert!(answer.code == 422 && answer.message().contains(part), "{}", answer.message());
    }
    let mut other = gadget("g", json!({}));
    other["kind"] = json!("Foo");
    let answer = send(&client, "POST", GADGETS, JSON, other).await;
    assert_eq!((answer.code, answer.message()), (422, "Foo.g.example.com \"g\" is invalid: kind: Invalid value: \"Foo\": must be Gadget"));
    assert_eq!(send(&client, "POST", GADGETS, JSON, gadget("g", json!({"any": {"a": "x"}}))).await.code, 201);
    let answer = send(&client, "PATCH", &format!("{GADGETS}/g"), MERGE, json!({"kind": "Foo"})).await;
    assert_eq!((answer.code, answer.message()), (422, "Foo.g.example.com \"g\" is invalid: kind: Invalid value: \"Foo\": must be Gadget"));
    let answer = send(&client, "DELETE", &format!("{GADGETS}/g/status"), JSON, "").await;
    assert_eq!(answer.code, 404, "there is no status here");
    server.stop().await;
}

#[tokio::test]
async fn a_custom_object_is_shown_by_the_schema_of_today() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let old = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
    assert_eq!(send(&client, "POST", DEFINITIONS, JSON, definition(old)).await.code, 201);
    assert_eq!(send(&client, "POST", GADGETS, JSON, gadget("g", json!({"a": "1", "b": "2"}))).await.code, 201);
    // One field goes, another comes with a default: objects that nobody touches are shown so all the same.
    let new = definition(json!({"type": "object", "properties": {"a": {"type": "string"}, "size": {"type": "integer", "default": 3}}}));
    let patch = json!({"spec": {"versions": new["spec"]["versions"]}});
    assert_eq!(send(&client, "PATCH", &format!("{DEFINITIONS}/gadgets.g.example.com"), MERGE, patch).await.code, 200);
    let expected = json!({"a": "1", "size": 3});
    assert_eq!(get(&client, &format!("{GADGETS}/g")).await.body["spec"], expected);
    assert_eq!(get(&client, GADGETS).await.body["items"][0]["spec"], expected);
    let watched = get(&client, &format!("{GADGETS}?watch=1&timeoutSeconds=1")).await;
    let event: Value = serde_json::from_str(watched.text.lines().next().unwrap()).unwrap();
    assert_eq!(event["object"]["spec"], expected);
    server.stop().await;
}
