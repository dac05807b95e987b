//! What a real server records where one would guess otherwise, and the last sorts of event that its samples show. Expected values were
//! read off a kube-apiserver 1.37 that was sent the same requests.

use axum::body::Body;
use http::{HeaderValue, Method, Request};
use serde_json::{Value, json};
use usher::request::User;

use super::{Recorded, admin, events, expected, request, send, shape};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";

fn asked(method: Method, uri: &str, body: Option<Value>) -> Request<Body> {
    request(method, uri, &admin(), body)
}

fn with(mut request: Request<Body>, name: &'static str, value: &'static str) -> Request<Body> {
    request.headers_mut().insert(name, HeaderValue::from_static(value));
    request
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

fn about(name: &str) -> Value {
    let mut reference = json!({"resource": "configmaps", "namespace": "default", "name": name, "apiVersion": "v1"});
    reference.as_object_mut().unwrap().retain(|_, value| value != "");
    reference
}

#[tokio::test]
async fn a_name_that_the_server_makes_up_is_in_the_answer_and_not_in_the_reference() {
    let recorded = Recorded::everything().await;
    let event =
        recorded.ask(Method::POST, MAPS, Some(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "g-"}}))).await;
    assert_eq!(event["objectRef"], about(""));
    let name = event["responseObject"]["metadata"]["name"].as_str().unwrap();
    // The archive finds it by its name all the same.
    let filter = usher::audit::Filter { name: Some(name.into()), ..Default::default() };
    recorded.server.audit().flush().await;
    assert_eq!(recorded.server.audit().archive.query(&filter, 9)[0].audit_id, event["auditID"].as_str().unwrap());
}

#[tokio::test]
async fn an_answer_that_nothing_has_changed_has_no_object_and_its_line_can_be_read() {
    let recorded = Recorded::everything().await;
    let discovery = || {
        let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        with(asked(Method::GET, "/apis", None), "accept", aggregated)
    };
    let known = tower::ServiceExt::oneshot(recorded.server.router(), discovery()).await.unwrap().headers()["etag"].clone();
    let mut again = discovery();
    again.headers_mut().insert("if-none-match", known);
    let event = recorded.send(again).await.pop().unwrap();
    assert_eq!((event["responseStatus"]["code"].as_u64(), event.get("responseObject")), (Some(304), None), "{event}");
}

#[tokio::test]
async fn a_body_that_was_refused_unread_is_not_recorded() {
    let recorded = Recorded::everything().await;
    recorded.make(MAPS, map("c1")).await;
    let mut odd = map("odd");
    odd["bogus"] = json!(1);
    let one = format!("{MAPS}/c1");
    let patch = asked(Method::PATCH, &one, Some(json!({"data": {}})));
    for (request, code) in [
        (asked(Method::POST, &format!("{MAPS}?fieldValidation=Strict"), Some(odd)), 400),
        (with(patch, "content-type", "application/foo"), 415),
        (with(asked(Method::POST, MAPS, Some(map("text"))), "content-type", "text/plain"), 415),
    ] {
        let event = recorded.send(request).await.pop().unwrap();
        assert_eq!((event["responseStatus"]["code"].as_u64(), event.get("requestObject")), (Some(code), None), "{event}");
        assert_eq!(event["responseObject"]["kind"], "Status");
    }
}

#[tokio::test]
async fn whoever_takes_no_form_of_an_answer_is_recorded_with_nothing_but_the_code() {
    let recorded = Recorded::everything().await;
    let event = recorded.send(with(asked(Method::GET, MAPS, None), "accept", "text/html")).await.pop().unwrap();
    let wanted = json!({"verb": "list", "requestURI": MAPS, "objectRef": about(""), "responseStatus": {"metadata": {}, "code": 406}});
    assert_eq!(shape(event), expected(wanted));
}

#[tokio::test]
async fn requests_for_tokens_and_scales_are_spelled_out() {
    let recorded = Recorded::everything().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}});
    recorded.make("/api/v1/namespaces/default/serviceaccounts", account).await;
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["x"]}});
    let event = recorded.ask(Method::POST, "/api/v1/namespaces/default/serviceaccounts/s/token", Some(token)).await;
    let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
        "spec": {"audiences": ["x"], "expirationSeconds": 3600, "boundObjectRef": null}, "status": {"token": "", "expirationTimestamp": null}});
    assert_eq!(event["requestObject"], wanted);

    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    recorded.make("/apis/apps/v1/namespaces/default/deployments", deployment).await;
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", "namespace": "default"}, "spec": {"replicas": 2}});
    let event = recorded.ask(Method::PUT, "/apis/apps/v1/namespaces/default/deployments/d/scale", Some(scale)).await;
    assert_eq!(event["requestObject"]["status"], json!({"replicas": 0}));
    let ask = async |what: &str, method: Method, uri: &str, spec: Value| {
        let version = if what == "Scale" { "autoscaling/v1" } else { "authentication.k8s.io/v1" };
        let body = json!({"apiVersion": version, "kind": what, "metadata": {"name": "d", "namespace": "default"}, "spec": spec});
        recorded.ask(method, uri, Some(body)).await
    };
    let (scale, token) = ("/apis/apps/v1/namespaces/default/deployments/d/scale", "/api/v1/namespaces/default/serviceaccounts/s/token");
    assert_eq!(ask("Scale", Method::PUT, scale, json!({"replicas": 0})).await["requestObject"]["spec"], json!({}));
    // What cannot be read is not recorded as if it could.
    for event in [
        ask("Scale", Method::PUT, scale, json!({"replicas": "x"})).await,
        ask("TokenRequest", Method::POST, token, json!({"expirationSeconds": "x"})).await,
    ] {
        assert_eq!((&event["responseStatus"]["code"], event.get("requestObject")), (&json!(400), None), "{event}");
    }
}

#[tokio::test]
async fn methods_that_nobody_knows_profiles_and_empty_lists() {
    let recorded = Recorded::everything().await;
    let purge = || Method::from_bytes(b"PURGE").unwrap();
    assert_eq!(recorded.ask(purge(), "/api", None).await["verb"], "purge");
    assert_eq!(recorded.ask(purge(), MAPS, None).await["verb"], "");
    let stages: Vec<Value> =
        recorded.send(asked(Method::GET, "/debug/pprof/", None)).await.iter().map(|event| event["stage"].clone()).collect();
    assert_eq!(stages, ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
    let list = with(asked(Method::GET, &format!("{MAPS}?labelSelector=no"), None), "accept", "application/vnd.kubernetes.protobuf");
    assert_eq!(recorded.send(list).await.pop().unwrap()["responseObject"]["items"], json!([]));
    // What is not served is not deprecated.
    let endpoints = "/api/v1/namespaces/default/endpoints";
    let deprecated = |event: &Value| event["annotations"].get("k8s.io/deprecated").is_some();
    assert!(deprecated(&recorded.ask(Method::GET, endpoints, None).await));
    assert!(!deprecated(&recorded.ask(Method::GET, &format!("{endpoints}/e/status"), None).await));
    let unread = with(asked(Method::GET, endpoints, None), "accept", "application/xml");
    assert!(!deprecated(&recorded.send(unread).await.pop().unwrap()));
}

#[tokio::test]
async fn a_dry_run_without_a_kind_gets_one() {
    let recorded = Recorded::everything().await;
    let uri = format!("{MAPS}?dryRun=All");
    let event = recorded.ask(Method::POST, &uri, Some(json!({"metadata": {"name": "nokind"}}))).await;
    assert_eq!((&event["requestObject"]["kind"], &event["requestObject"]["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    let wanted = json!({"verb": "create", "requestURI": uri, "objectRef": about("nokind"), "responseStatus": {"metadata": {}, "code": 201},
        "requestObject": "ConfigMap", "responseObject": "ConfigMap"});
    assert_eq!(shape(event), expected(wanted));
}

#[tokio::test]
async fn policies_that_are_made_and_policies_that_are_refused() {
    let recorded = Recorded::everything().await;
    let about = |plural: &str, name: &str| json!({"resource": plural, "name": name, "apiGroup": "admissionregistration.k8s.io", "apiVersion": "v1"});
    let rules =
        json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]});
    let mutating = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "map1"}, "spec": {
        "matchConstraints": rules, "reinvocationPolicy": "Never", "failurePolicy": "Fail", "mutations": [{"patchType": "ApplyConfiguration",
            "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'added': 'yes'}}}"}}]}});
    let uri = format!("{ADMISSION}/mutatingadmissionpolicies");
    let event = recorded.ask(Method::POST, &uri, Some(mutating)).await;
    let wanted = json!({"verb": "create", "requestURI": uri, "objectRef": about("mutatingadmissionpolicies", "map1"),
        "responseStatus": {"metadata": {}, "code": 201}, "requestObject": "MutatingAdmissionPolicy", "responseObject": "MutatingAdmissionPolicy"});
    assert_eq!(shape(event), expected(wanted));

    let refused = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "bad"}, "spec": {
        "matchConstraints": rules, "validations": [{"expression": "1 + 1"}]}});
    let uri = format!("{ADMISSION}/validatingadmissionpolicies");
    let event = recorded.ask(Method::POST, &uri, Some(refused)).await;
    // What is wrong with an expression is told by whoever checks it, and said here as it was said to the client.
    let why = event["responseObject"]["details"]["causes"][0]["message"].as_str().unwrap().to_owned();
    assert!(why.starts_with("Invalid value: \"1 + 1\": must evaluate to bool"), "{why}");
    let field = "spec.validations[0].expression";
    let wanted = json!({"verb": "create", "requestURI": uri, "objectRef": about("validatingadmissionpolicies", "bad"),
        "responseStatus": {"metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422,
            "message": format!("ValidatingAdmissionPolicy.admissionregistration.k8s.io \"bad\" is invalid: {field}: {why}"),
            "details": {"name": "bad", "group": "admissionregistration.k8s.io", "kind": "ValidatingAdmissionPolicy",
                "causes": [{"reason": "FieldValueInvalid", "message": why, "field": field}]}},
        "requestObject": "ValidatingAdmissionPolicy", "responseObject": "Status"});
    assert_eq!(shape(event), expected(wanted));
}

#[tokio::test]
async fn what_the_server_asks_of_itself_is_recorded_as_the_servers() {
    let recorded = Recorded::everything().await;
    let itself = User { uid: "u".into(), ..User::new("system:apiserver", &["system:authenticated", "system:masters"]) };
    let level = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration", "metadata": {"name": "own"},
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}});
    let uri = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations?fieldManager=producer";
    let event = recorded.send(request(Method::POST, uri, &itself, Some(level))).await.pop().unwrap();
    let wanted = json!({"verb": "create", "requestURI": uri, "user": {"username": "system:apiserver", "uid": "u", "groups": ["system:authenticated", "system:masters"]},
        "objectRef": {"resource": "prioritylevelconfigurations", "name": "own", "apiGroup": "flowcontrol.apiserver.k8s.io", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 201}, "requestObject": "PriorityLevelConfiguration", "responseObject": "PriorityLevelConfiguration"});
    assert_eq!(shape(event), expected(wanted));
}

#[tokio::test]
async fn annotations_of_policies_are_json_as_go_writes_it() {
    let recorded = Recorded::everything().await;
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "noted"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "object.metadata.name.size() > 100"}]}});
    recorded.make(&format!("{ADMISSION}/validatingadmissionpolicies"), policy).await;
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "noted"},
        "spec": {"policyName": "noted", "validationActions": ["Audit"]}});
    recorded.make(&format!("{ADMISSION}/validatingadmissionpolicybindings"), binding).await;
    let event = recorded.ask(Method::POST, MAPS, Some(map("short"))).await;
    let text = event["annotations"]["validation.policy.admission.k8s.io/validation_failure"].as_str().unwrap();
    assert!(text.contains("failed expression: object.metadata.name.size() \\u003e 100"), "{text}");
    serde_json::from_str::<Value>(text).unwrap();
}

#[tokio::test]
async fn an_answer_that_is_compressed_is_recorded_as_what_it_says() {
    let recorded = Recorded::everything().await;
    for number in 0..3 {
        let text = format!("{number}").repeat(200_000);
        recorded
            .make(
                MAPS,
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("large-{number}")}, "data": {"text": text}}),
            )
            .await;
    }
    let answer = async |uri: &str, accept: &'static str, encoding: &'static str| {
        let mut asked = request(Method::GET, uri, &admin(), None);
        asked.headers_mut().insert("accept", accept.parse().unwrap());
        asked.headers_mut().insert("accept-encoding", encoding.parse().unwrap());
        let (code, id) = send(&recorded.server, asked).await;
        assert_eq!(code, 200);
        let event = events(&recorded.server, &id).await.pop().unwrap();
        event.response_object.expect("a body").value().unwrap()
    };
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    for (uri, accept) in [
        (MAPS.to_owned(), "application/json"),
        (format!("{MAPS}?includeObject=Object"), table),
        (format!("{MAPS}/large-1"), "application/json"),
    ] {
        let plain = answer(&uri, accept, "identity").await;
        assert_eq!(answer(&uri, accept, "gzip").await, plain, "{uri}");
        assert!(plain.to_string().contains(&"1".repeat(200_000)), "{uri}");
    }
}
