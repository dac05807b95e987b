//! Secrets and credentials that other objects hold, as a text, in a field of their own or in what a webhook makes of them: a value is planted
//! in each, and looked for in everything that is kept. What is harmless beside it stays.

use http::{HeaderValue, Method};
use serde_json::{Value, json};

use super::hostile::{is_nowhere, kept, value};
use super::{Recorded, admin, request};
use crate::admission::server::{Webhooks, configure, patched};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn encoded(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Base64 as mail has it.
fn in_lines(text: &str) -> String {
    encoded(text).as_bytes().chunks(76).map(|line| format!("{}\n", String::from_utf8_lossy(line))).collect()
}

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

#[tokio::test]
async fn a_secret_that_another_object_holds_as_a_text_is_not_told() {
    let recorded = Recorded::everything().await;
    let (yaml, json) = (
        |value: &str| format!("apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\nstringData:\n  password: {value}\n"),
        |value: &str| json!({"apiVersion": "v1", "kind": "Secret", "data": {"p": encoded(value)}}).to_string(),
    );
    let texts: Vec<String> = vec![
        yaml(&value(0)),
        yaml(&encoded(&value(1))).replace("stringData", "data"),
        format!("---\nkind: ConfigMap\n---\n{}", yaml(&value(2))),
        format!("[{}]", json(&value(3))),
        Value::from(json(&value(4))).to_string(),
        encoded(&yaml(&value(5))),
        encoded(&json(&value(6))),
    ];
    for (index, text) in texts.iter().enumerate() {
        let name = format!("m{index}");
        let event = recorded.ask(Method::POST, MAPS, Some(map(&name, json!({"held": text, "a": "a Secret: no"})))).await;
        let masked = json!({"held": "[redacted]", "a": "a Secret: no"});
        assert_eq!((&event["requestObject"]["data"], &event["responseObject"]["data"]), (&masked, &masked), "{text}");
        recorded.ask(Method::PATCH, &format!("{MAPS}/{name}"), Some(json!({"data": {"again": text}}))).await;
        recorded.ask(Method::GET, &format!("{MAPS}/{name}"), None).await;
    }
    recorded.ask(Method::GET, MAPS, None).await;
    let kept = kept(&recorded).await;
    (0..texts.len()).for_each(|index| is_nowhere(&kept, &value(index), &texts[index]));
}

#[tokio::test]
async fn a_token_and_a_private_key_are_found_in_base64_in_lines() {
    const TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0.cGxhbnRlZC1zaWduYXR1cmU";
    let recorded = Recorded::everything().await;
    for before in 0..57 {
        let pem = "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n";
        let texts = [format!("{}{TOKEN}", "-".repeat(before)), format!("{}{pem}", "-".repeat(before))].map(|text| in_lines(&text));
        let held = json!({"token": format!("it is\n{}", texts[0]), "key": texts[1], "open": in_lines(&"nothing to hide ".repeat(20))});
        let event = recorded.ask(Method::POST, MAPS, Some(map(&format!("m{before}"), held.clone()))).await;
        for body in ["requestObject", "responseObject"] {
            let told = &event[body]["data"];
            assert_eq!(told["open"], held["open"]);
            assert_eq!((&told["token"], &told["key"]), (&json!("it is\n[redacted]\n"), &json!("[redacted]")), "{before}");
        }
    }
}

#[tokio::test]
async fn what_a_webhook_copies_from_a_secret_is_not_told_by_its_patch() {
    let recorded = Recorded::everything().await;
    let hooks = Webhooks::start().await;
    hooks.on("/copy", |review| {
        let annotations =
            json!({"copied": review["request"]["object"]["data"]["p"], "said": format!("it is {}", value(20)), "open": "<b>"});
        patched(json!([{"op": "add", "path": "/metadata/annotations", "value": annotations}]))
    });
    let pem = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----";
    hooks.on("/inject", move |_| {
        let held = json!({"apiVersion": "v1", "kind": "Secret", "data": {"p": encoded(&value(21))}}).to_string();
        patched(json!([{"op": "add", "path": "/data", "value": {"held": held, "key": pem, "open": "told"}}]))
    });
    for (name, resource) in [("copy", "secrets"), ("inject", "configmaps")] {
        let mut entry = hooks.entry(name, &format!("/{name}"));
        entry["rules"][0]["operations"] = json!(["CREATE"]);
        entry["rules"][0]["resources"] = json!([resource]);
        configure(&recorded.server.client(), true, name, vec![entry]).await;
    }
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "labels": {"wh": "copy"}}, "data": {"p": encoded(&value(20))}});
    let event = recorded.ask(Method::POST, "/api/v1/namespaces/default/secrets", Some(secret)).await;
    let patch = |event: &Value| {
        let annotations = event["annotations"].as_object().unwrap();
        let (_, text) = annotations.iter().find(|(key, _)| key.starts_with("patch.webhook.admission.k8s.io/")).unwrap();
        let text = text.as_str().unwrap();
        serde_json::from_str::<Value>(text).unwrap()["patch"][0]["value"].clone()
    };
    assert_eq!(patch(&event), json!({"copied": "[redacted]", "said": "it is [redacted]", "open": "<b>"}));
    let mut held = map("m", json!({}));
    held["metadata"]["labels"] = json!({"wh": "inject"});
    let event = recorded.ask(Method::POST, MAPS, Some(held)).await;
    assert_eq!(patch(&event), json!({"held": "[redacted]", "key": "[redacted]", "open": "told"}));
    let kept = kept(&recorded).await;
    is_nowhere(&kept, &value(20), "a Secret that a webhook copies");
    is_nowhere(&kept, &value(21), "a Secret that a webhook adds");
    assert!(!kept.contains("begin private key"));
}

#[tokio::test]
async fn a_patch_that_reaches_into_a_secret_within_another_object_does_not_tell_it() {
    let recorded = Recorded::everything().await;
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "vaults.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "vaults", "kind": "Vault"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    recorded.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    let vaults = "/apis/example.com/v1/namespaces/default/vaults";
    let template = json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "YQ=="}, "stringData": {}});
    recorded
        .make(vaults, json!({"apiVersion": "example.com/v1", "kind": "Vault", "metadata": {"name": "v"}, "spec": {"template": template}}))
        .await;
    let one = format!("{vaults}/v");
    let merge = json!({"spec": {"open": "told", "template": {"data": {"p": encoded(&value(30))}, "stringData": {"q": value(31)}}}});
    let event = recorded.ask(Method::PATCH, &one, Some(merge)).await;
    assert_eq!(
        event["requestObject"]["spec"],
        json!({"open": "told", "template": {"data": {"p": "[redacted]"}, "stringData": {"q": "[redacted]"}}})
    );
    let operations = json!([{"op": "add", "path": "/spec/template/data/r", "value": encoded(&value(32))},
        {"op": "add", "path": "/spec/template/stringData/s", "value": value(33)}]);
    let mut patch = request(Method::PATCH, &one, &admin(), Some(operations));
    patch.headers_mut().insert("content-type", HeaderValue::from_static("application/json-patch+json"));
    let event = recorded.send(patch).await.pop().unwrap();
    assert_eq!(event["responseStatus"]["code"], 200, "{event}");
    let kept = kept(&recorded).await;
    (30..34).for_each(|index| is_nowhere(&kept, &value(index), "a patch"));
}

#[tokio::test]
async fn a_header_of_a_probe_an_extra_of_a_review_and_the_password_of_a_url_are_not_told() {
    for level in ["Metadata", "RequestResponse"] {
        let recorded = Recorded::start(&format!("rules:\n- level: {level}\n")).await;
        let headers =
            json!([{"name": "Authorization", "value": format!("Bearer {}", value(40))}, {"name": "Accept", "value": "text/html"}]);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i",
            "livenessProbe": {"httpGet": {"port": 80, "httpHeaders": headers}}}]}});
        let event = recorded.ask(Method::POST, "/api/v1/namespaces/default/pods", Some(pod)).await;
        if level == "RequestResponse" {
            let told = &event["requestObject"]["spec"]["containers"][0]["livenessProbe"]["httpGet"]["httpHeaders"];
            assert_eq!(*told, json!([{"name": "Authorization", "value": "[redacted]"}, {"name": "Accept", "value": "text/html"}]));
        }
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "u",
            "extra": {"token": [value(41)], "note": [format!("Bearer {}", value(42))]}, "resourceAttributes": {"verb": "get", "resource": "pods"}}});
        let event = recorded.ask(Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews", Some(review)).await;
        assert_eq!(event["responseStatus"]["code"], 201, "{event}");
        let hooks = |url: String| {
            json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "w"}, "webhooks": [
                {"name": "a.b.c", "clientConfig": {"url": url}, "sideEffects": "None", "admissionReviewVersions": ["v1"]}]})
        };
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
        for (url, why) in [
            (format!("https://user:{}@127.0.0.1/x", value(43)), "\"[redacted]\": user information is not permitted in the URL"),
            (format!("https://127.0.0.1/x?token={}", value(44)), "\"[redacted]\": query parameters are not permitted in the URL"),
            (format!("https://user:{}@127.0.0.1:port/x", value(45)), "url must be a valid URL: parse \"[redacted]\""),
        ] {
            let event = recorded.ask(Method::POST, path, Some(hooks(url))).await;
            assert_eq!(event["responseStatus"]["code"], 422);
            assert!(event["responseStatus"]["message"].as_str().unwrap().contains(why), "{event}");
        }
        let kept = kept(&recorded).await;
        (40..46).for_each(|index| is_nowhere(&kept, &value(index), "a field"));
    }
}

#[tokio::test]
async fn a_token_that_stands_for_a_user_a_group_or_a_name_is_not_told_by_the_steps_of_its_request_either() {
    const TOKEN: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0.cGxhbnRlZC1zaWduYXR1cmU";
    let recorded = Recorded::everything().await;
    let nobody = usher::request::User::new("nobody", &["system:authenticated"]);
    let paths = [
        "/api/v1/pods".to_owned(),
        format!("/api/v1/namespaces/{TOKEN}/pods/{TOKEN}"),
        format!("/apis/{TOKEN}/v1/{TOKEN}"),
        format!("/{TOKEN}"),
    ];
    for (user, impersonates) in [(admin(), true), (nobody.clone(), true), (nobody, false)] {
        for path in &paths {
            let mut get = request(Method::GET, path, &user, None);
            if impersonates {
                get.headers_mut().insert("impersonate-user", HeaderValue::from_str(&format!("u-{TOKEN}")).unwrap());
                get.headers_mut().insert("impersonate-group", HeaderValue::from_static(TOKEN));
            }
            recorded.send(get).await;
        }
    }
    let kept = kept(&recorded).await;
    assert!(kept.contains("\"hop\":\"impersonate\"") && kept.contains("\"needed\""));
    let signature = TOKEN.rsplit('.').next().unwrap().to_lowercase();
    let told = kept.find(&signature).map(|at| &kept[at.saturating_sub(300)..at]);
    assert_eq!(told, None);
}
