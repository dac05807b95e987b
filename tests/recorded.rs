//! What a real server answered to requests that are wrong, told again: each request of the table is sent to an embedded
//! server, in order, and its answer compared with the recorded one — code, reason, message, details and every cause.

use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use usher::Server;

/// One request and its answer per line; lines whose code is a success only prepare for the ones behind them.
const RECORDS: &str = include_str!("recorded.jsonl");

/// Records that are answered otherwise in part, and why.
const DIFFERENT: &[(u64, &str)] = &[
    (169, "the difference behind the first line is of Go's internal structs, with every field that is not set"),
    (188, "the difference behind the first line is of Go's internal structs, with every field that is not set"),
    (261, "a real server walks properties in no order; here they come by name"),
];

async fn answer(client: &kube::Client, record: &Value) -> Value {
    let content_type = record["contentType"].as_str().unwrap_or("application/json");
    let body = match record.get("body") {
        Some(body) => serde_json::to_vec(body).unwrap(),
        None => Vec::new(),
    };
    let request = Request::builder()
        .method(record["method"].as_str().unwrap())
        .uri(record["path"].as_str().unwrap())
        .header("content-type", content_type)
        .body(kube::client::Body::from(body))
        .unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let mut answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    answer["code"] = json!(code);
    answer
}

/// What is compared: everything, or of the records that differ what does not depend on the difference.
fn compared(record: &Value, status: &Value) -> Value {
    let causes = |status: &Value| -> Vec<Value> { status["details"]["causes"].as_array().cloned().unwrap_or_default() };
    let first_line = |text: &Value| text.as_str().unwrap_or_default().lines().next().unwrap_or_default().to_owned();
    match record["record"].as_u64() {
        Some(261) => {
            let mut causes = causes(status);
            causes.sort_by_key(Value::to_string);
            json!({"reason": status["reason"], "causes": causes})
        }
        Some(169 | 188) => json!({"reason": status["reason"], "message": first_line(&status["message"])}),
        _ => json!({"reason": status["reason"], "message": status["message"], "details": status["details"]}),
    }
}

/// Waits until a new kind is served.
async fn is_served(client: &kube::Client, path: &str) {
    let record = json!({"method": "GET", "path": path});
    for _ in 0..100 {
        if answer(client, &record).await["code"] == 200 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn wrong_objects_are_refused_in_the_words_of_a_real_server() {
    let server = Server::builder().in_memory().start().await.unwrap();
    let client = server.client();
    let mut wrong = Vec::new();
    // Without controllers nobody makes the account that Pods run as; with them somebody may have been quicker.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    answer(&client, &json!({"method": "POST", "path": "/api/v1/namespaces/default/serviceaccounts", "body": account})).await;
    for line in RECORDS.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let answer = answer(&client, &record).await;
        let name = format!("{} {}", record["record"], record["name"]);
        if record["record"] == 258 {
            is_served(&client, "/apis/ex.com/v1/namespaces/default/wids").await;
        }
        if answer["code"] != record["code"] {
            wrong.push(format!("{name}: code {} instead of {}: {}", answer["code"], record["code"], answer["message"]));
        } else if record["status"].is_object() {
            let (is, should) = (compared(&record, &answer), compared(&record, &record["status"]));
            if is != should {
                wrong.push(format!("{name}:\n  is     {is}\n  should {should}"));
            }
        }
    }
    assert!(DIFFERENT.len() == 3 && wrong.is_empty(), "{} records differ:\n{}", wrong.len(), wrong.join("\n"));
    server.stop().await;
}

#[tokio::test]
async fn an_object_that_is_too_long_is_refused() {
    let server = Server::builder().in_memory().start().await.unwrap();
    let client = server.client();
    let refused = |body: Value, field: &'static str, most: u64| {
        let record = json!({"method": "POST", "path": "/api/v1/namespaces/default/configmaps", "body": body});
        let client = client.clone();
        async move {
            let answer = answer(&client, &record).await;
            let message = format!("ConfigMap \"big\" is invalid: {field}: Too long: may not be more than {most} bytes");
            assert_eq!((answer["code"].as_u64(), answer["message"].as_str()), (Some(422), Some(message.as_str())));
            assert_eq!(answer["details"]["causes"][0]["field"], field);
        }
    };
    let data = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"k": "x".repeat(1_100_000)}});
    refused(data, "[]", 1_048_576).await;
    let annotations = json!({"a": "x".repeat(300_000)});
    let annotated = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big", "annotations": annotations}});
    refused(annotated, "metadata.annotations", 262_144).await;
    server.stop().await;
}
