//! Secrets where nobody expects them: in patches that no Secret has a field for, in bodies that nobody can read, in what webhooks and
//! policies say in other letters. A value is planted in each request and looked for, in every form, in everything that is kept of it.

use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Method};
use serde_json::{Value, json};
use usher::audit::Filter;

use super::{Recorded, admin, request, send};
use crate::admission::server::{Reply, Webhooks, configure};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const OPERATIONS: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// What is sent: to the collection of Secrets or of TokenReviews, or, a patch, to a Secret. `PLAIN` and `CODED` stand for the value
/// and for its base64.
const SENT: &[(&str, &str, &str)] = &[
    (SECRETS, JSON, r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"p":"PLAIN!"}}"#),
    (SECRETS, JSON, r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"},"stringData":{"p":{"x":"PLAIN"}}}"#),
    (SECRETS, JSON, r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"c"},"stringDat":{"p":"PLAIN"},"Data":{"p":"CODED"}}"#),
    (SECRETS, JSON, r#"{"metadata":{"name":"Not A Name"},"data":{"p":"CODED"}}"#),
    (SECRETS, JSON, r#"["PLAIN"]"#),
    (SECRETS, JSON, r#"{"kind":"PLAIN"#),
    (SECRETS, YAML, "data: {p: PLAIN\n"),
    (SECRETS, YAML, "apiVersion: v1\nkind: Secret\nmetadata: {name: y}\nstringData:\n  f: |\n    a line\n    PLAIN\n"),
    (SECRETS, PROTOBUF, "PLAIN"),
    (SECRETS, "application/cbor", "PLAIN"),
    (SECRETS, "text/plain", "PLAIN"),
    (SECRETS, MERGE, r#"{"stringDat":{"p":"PLAIN"},"Data":"CODED"}"#),
    (SECRETS, MERGE, r#"{"data":{"p":["PLAIN"]}}"#),
    (SECRETS, MERGE, r#"{"data":{"p":"PLAIN"#),
    (SECRETS, MERGE, r#"["PLAIN"]"#),
    (SECRETS, MERGE, r#""PLAIN""#),
    (SECRETS, STRATEGIC, r#"{"$patch":"PLAIN","data":{"x":"CODED"}}"#),
    (SECRETS, STRATEGIC, r#"{"data":{"$patch":"replace","x":"CODED"}}"#),
    (SECRETS, OPERATIONS, r#"[{"op":"add","path":"data/p","value":"CODED"}]"#),
    (SECRETS, OPERATIONS, r#"[{"op":"add","path":"/Data/p","value":"CODED"}]"#),
    (SECRETS, OPERATIONS, r#"[{"op":"add","value":"CODED"},{"op":"PLAIN","path":7,"value":"CODED","note":"PLAIN"}]"#),
    (SECRETS, OPERATIONS, r#"[{"Op":"add","Path":"/data/p","Value":"CODED"},"PLAIN",["CODED"]]"#),
    (SECRETS, OPERATIONS, r#"{"op":"add","path":"/data/p","value":"CODED"}"#),
    (
        SECRETS,
        OPERATIONS,
        r#"[{"op":"add","path":"/data/p","value":"CODED"},{"op":"add","path":"/metadata/annotations","value":{}},{"op":"copy","from":"/data/p","path":"/metadata/annotations/a"}]"#,
    ),
    (SECRETS, APPLY, "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringDat: {p: PLAIN}\n"),
    (SECRETS, APPLY, "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {p: [PLAIN]}\n"),
    (REVIEWS, JSON, r#"{"spec":{"token":["PLAIN"]}}"#),
    (
        REVIEWS,
        JSON,
        r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"spec\":{\"token\":\"PLAIN\"}}"}},"spec":{"token":"CODED"}}"#,
    ),
    (REVIEWS, JSON, r#"PLAIN"#),
    (REVIEWS, YAML, "PLAIN: [\n"),
    (REVIEWS, PROTOBUF, "PLAIN"),
];

pub fn value(index: usize) -> String {
    format!("Planted-{index:03}-Value")
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// A value in small letters, in base64 wherever that begins, and in hexadecimal digits.
fn forms(value: &str) -> Vec<String> {
    let inner = |before: &str| STANDARD.encode(format!("{before}{value}")).to_lowercase();
    vec![value.to_lowercase(), inner("")[..20].to_owned(), inner("a")[2..20].to_owned(), inner("ab")[3..20].to_owned(), hex(value)]
}

/// What is kept of everything, in small letters; base64 is long enough to be told even so.
pub async fn kept(recorded: &Recorded) -> String {
    recorded.server.audit().flush_sinks().await;
    let events = recorded.server.audit().archive.query(&Filter::default(), 100_000);
    let mut kept: String = events.iter().map(|event| serde_json::to_string(&**event).unwrap()).collect();
    kept.push_str(&std::fs::read_to_string(&recorded.log).unwrap());
    kept.make_ascii_lowercase();
    kept
}

pub fn is_nowhere(kept: &str, value: &str, what: &str) {
    for form in forms(value) {
        if let Some(at) = kept.find(&form) {
            panic!("{form} of {what} was kept: …{}…", &kept[at.saturating_sub(300)..(at + 100).min(kept.len())]);
        }
    }
}

fn secret(name: &str, labels: Value, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}, "data": {"p": STANDARD.encode(value)}})
}

#[tokio::test]
async fn nothing_of_a_body_that_is_about_secrets_is_kept_however_wrong_it_is() {
    for level in ["Metadata", "RequestResponse"] {
        let recorded = Recorded::start(&format!("rules:\n- level: {level}\n")).await;
        recorded.make(SECRETS, secret("s", json!({}), "harmless")).await;
        for (index, (path, content_type, body)) in SENT.iter().enumerate() {
            let body = body.replace("PLAIN", &value(index)).replace("CODED", &STANDARD.encode(value(index)));
            let (method, uri) = match content_type.contains("patch") {
                true if *content_type == APPLY => (Method::PATCH, format!("{path}/s?fieldManager=a&force=true")),
                true => (Method::PATCH, format!("{path}/s")),
                false => (Method::POST, (*path).to_owned()),
            };
            let mut sent = request(method, &uri, &admin(), None);
            sent.headers_mut().insert("content-type", HeaderValue::from_static(content_type));
            *sent.body_mut() = Body::from(body);
            let events = recorded.send(sent).await;
            assert!(!events.is_empty(), "a record of {content_type} to {path}");
        }
        // What was copied to an annotation is shown, and recorded, with the Secret that it comes from.
        recorded.ask(Method::GET, &format!("{SECRETS}/s"), None).await;
        let kept = kept(&recorded).await;
        for (index, (path, content_type, body)) in SENT.iter().enumerate() {
            is_nowhere(&kept, &value(index), &format!("{content_type} to {path} at {level}: {body}"));
        }
    }
}

#[tokio::test]
async fn what_a_webhook_says_of_a_secret_is_kept_in_no_form() {
    let recorded = Recorded::everything().await;
    let hooks = Webhooks::start().await;
    hooks.on("/tell", |review| {
        let object = &review["request"]["object"];
        let plain = String::from_utf8(STANDARD.decode(object["data"]["p"].as_str().unwrap()).unwrap()).unwrap();
        let decimal: Vec<String> = plain.bytes().map(|byte| byte.to_string()).collect();
        let url: String = plain.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let told = [
            format!("in hex {}", hex(&plain)),
            format!("in decimal [{}]", decimal.join(" ")),
            format!("in a URL {url}"),
            format!("loudly {}", plain.to_uppercase()),
            format!("cut {}…", &plain[..plain.len() - 3]),
            format!("twice {}", STANDARD.encode(STANDARD.encode(&plain))),
            format!("among others {}", STANDARD.encode(format!("x{plain}x")).trim_end_matches('=')),
            object.to_string(),
        ];
        let allowed = object["metadata"]["labels"]["fate"] == "good";
        let mut annotations: serde_json::Map<_, _> =
            told.iter().enumerate().map(|(n, text)| (format!("n{n}"), Value::from(text.clone()))).collect();
        annotations.insert(format!("key-{plain}"), "".into());
        Reply::Response(json!({"allowed": allowed, "status": {"code": 418, "message": told.join(", "), "reason": plain}, "warnings": told,
            "auditAnnotations": annotations}))
    });
    let mut entry = hooks.entry("tell", "/tell");
    entry["rules"][0]["resources"] = json!(["secrets"]);
    configure(&recorded.server.client(), false, "tell", vec![entry]).await;
    for (name, fate) in [("g", "good"), ("b", "bad")] {
        let event = recorded.ask(Method::POST, SECRETS, Some(secret(name, json!({"wh": "tell", "fate": fate}), &value(900)))).await;
        assert_eq!(event["responseStatus"]["code"], if fate == "good" { 201 } else { 418 }, "{event}");
        assert_eq!(event["annotations"]["tell.example.com/n0"], "in hex [redacted]");
        assert_eq!(event["annotations"]["tell.example.com/n4"], "cut [redacted]…");
    }
    let kept = kept(&recorded).await;
    is_nowhere(&kept, &value(900), "what the webhook said");
    assert!(!kept.contains(&STANDARD.encode(STANDARD.encode(value(900))).to_lowercase()[..20]));
    assert!(!kept.contains("80 108 97 110 116"), "nor in decimal");
}

#[tokio::test]
async fn a_secret_that_a_policy_is_given_is_not_told_in_requests_about_other_things() {
    let recorded = Recorded::everything().await;
    recorded.make(SECRETS, secret("given", json!({}), &value(901))).await;
    let base = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"}, "spec": {
        "paramKind": {"apiVersion": "v1", "kind": "Secret"},
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "object.data.x == string(params.data.p)", "messageExpression": "'not ' + string(params.data.p)"}],
        "auditAnnotations": [{"key": "k", "valueExpression": "'not ' + string(params.data.p)"}]}});
    recorded.make(&format!("{base}/validatingadmissionpolicies"), policy).await;
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "p"},
        "spec": {"policyName": "p", "validationActions": ["Deny"], "paramRef": {"name": "given", "namespace": "default", "parameterNotFoundAction": "Deny"}}});
    recorded.make(&format!("{base}/validatingadmissionpolicybindings"), binding).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"x": "y"}});
    let (code, id) = send(&recorded.server, request(Method::POST, "/api/v1/namespaces/default/configmaps", &admin(), Some(map))).await;
    assert_eq!(code, 422);
    let event = recorded.of(&id).await.pop().unwrap();
    assert_eq!(event["annotations"]["p/k"], "not [redacted]", "{event}");
    assert!(event["responseStatus"]["message"].as_str().unwrap().ends_with("denied request: not [redacted]"), "{event}");
    is_nowhere(&kept(&recorded).await, &value(901), "the parameters of a policy");
}

#[tokio::test]
async fn secrets_of_another_group_are_recorded_as_they_are() {
    let recorded = Recorded::everything().await;
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "secrets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "secrets", "singular": "secret", "kind": "Secret", "listKind": "SecretList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    recorded.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    let path = "/apis/example.com/v1/namespaces/default/secrets";
    let pem = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----";
    let object = json!({"apiVersion": "example.com/v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"open": "told", "key": pem}});
    let event = recorded.ask(Method::POST, path, Some(object)).await;
    for body in ["requestObject", "responseObject"] {
        assert_eq!(event[body]["data"], json!({"open": "told", "key": "[redacted]"}), "{event}");
    }
    let event = recorded.ask(Method::GET, path, None).await;
    assert_eq!(event["responseObject"]["items"][0]["data"]["open"], "told", "{event}");
}

#[tokio::test]
async fn a_token_is_told_neither_in_a_kubeconfig_nor_by_a_refusal_nor_in_the_name_of_a_client() {
    const TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0.cGxhbnRlZC1zaWduYXR1cmU";
    let recorded = Recorded::everything().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let kubeconfig = format!("users: [{{name: a, user: {{token: {TOKEN}}}}}]");
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubeconfig"}, "data": {"config": kubeconfig, "a": "b"}});
    let event = recorded.ask(Method::POST, maps, Some(map.clone())).await;
    let masked = json!({"config": "users: [{name: a, user: {token: [redacted]}}]", "a": "b"});
    assert_eq!((&event["requestObject"]["data"], &event["responseObject"]["data"]), (&masked, &masked));
    recorded.ask(Method::PATCH, &format!("{maps}/kubeconfig"), Some(json!({"data": {"config": kubeconfig}}))).await;
    let refused = recorded.ask(Method::GET, &format!("{maps}?labelSelector=a={TOKEN}"), None).await;
    assert_eq!(refused["responseStatus"]["code"], 400);
    assert!(refused["responseStatus"]["message"].as_str().unwrap().contains("\"[redacted]\""), "{refused}");
    let mut get = request(Method::GET, maps, &admin(), None);
    get.headers_mut().insert("user-agent", HeaderValue::from_str(&format!("client/1 {TOKEN}")).unwrap());
    assert_eq!(recorded.send(get).await.pop().unwrap()["userAgent"], "client/1 [redacted]");
    let signature = TOKEN.rsplit('.').next().unwrap();
    assert!(!std::fs::read_to_string(&recorded.log).unwrap().contains(signature));
    let kept = recorded.server.audit().archive.query(&Filter::default(), 100);
    assert!(
        kept.len() >= 4
            && !serde_json::to_string(&kept.iter().map(|event| (**event).clone()).collect::<Vec<_>>()).unwrap().contains(signature)
    );
}

#[tokio::test]
async fn a_secret_that_is_called_like_the_user_in_it_keeps_its_name_in_the_record() {
    let recorded = Recorded::everything().await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {"name": "postgres", "labels": {"app": "postgres"}},
        "stringData": {"username": "postgres", "database": "default", "sort": "Opaque", "password": "planted-postgres"}});
    for code in [201, 409] {
        let event = recorded.ask(Method::POST, SECRETS, Some(secret.clone())).await;
        assert_eq!(event["responseStatus"]["code"], code);
        let sent = &event["requestObject"];
        assert_eq!((&sent["kind"], &sent["type"]), (&json!("Secret"), &json!("Opaque")));
        assert_eq!((&sent["metadata"]["name"], &sent["metadata"]["labels"]["app"]), (&json!("postgres"), &json!("postgres")));
        assert_eq!(sent["data"]["username"], "[redacted]");
        match code {
            201 => assert_eq!(event["responseObject"]["metadata"]["namespace"], "default"),
            _ => assert_eq!(event["responseStatus"]["message"], "secrets \"postgres\" already exists"),
        }
    }
    assert!(!std::fs::read_to_string(&recorded.log).unwrap().contains("planted-postgres"));
}
