//! Events last an hour from their last write, by the server's own clock, and only their series changes.

use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use usher_components::clock::Clock;

async fn send(client: &kube::Client, method: &str, path: &str, body: Value) -> (u16, Value) {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let response = client.send(request.body(kube::client::Body::from(bytes)).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

const CORE: &str = "/api/v1/namespaces/default/events";
const NEW: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

fn event(name: &str) -> Value {
    json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name}, "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal",
        "reason": "Testing", "action": "Test", "reportingController": "example.com/test", "reportingInstance": "one", "regarding": {"kind": "Pod", "namespace": "default", "name": "p"}})
}

async fn names(client: &kube::Client) -> Vec<String> {
    let (_, list) = send(client, "GET", CORE, Value::Null).await;
    list["items"].as_array().unwrap().iter().map(|event| event["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_event_is_gone_an_hour_after_its_last_write() {
    let mut builder = crate::builder();
    let clock = Clock::virtual_clock();
    builder.clock = clock.clone();
    let server = builder.start().await.unwrap();
    let client = server.client();
    assert_eq!(send(&client, "POST", NEW, event("once")).await.0, 201);
    assert_eq!(send(&client, "POST", NEW, event("again")).await.0, 201);
    clock.advance(Duration::from_secs(40 * 60)).await;
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}});
    let (code, changed) = send(&client, "PATCH", &format!("{NEW}/again"), series).await;
    assert_eq!((code, &changed["series"]["count"]), (200, &json!(2)));
    assert_eq!(names(&client).await, ["again", "once"]);
    clock.advance(Duration::from_secs(25 * 60)).await;
    until(&client, &["again"]).await;
    clock.advance(Duration::from_secs(60 * 60)).await;
    until(&client, &[]).await;
    // The task sleeps without an end now; the next Event wakes it.
    assert_eq!(send(&client, "POST", NEW, event("late")).await.0, 201);
    clock.advance(Duration::from_secs(65 * 60)).await;
    until(&client, &[]).await;
    server.stop().await;
}

/// Waits until these Events are left and no others.
async fn until(client: &kube::Client, wanted: &[&str]) {
    crate::until(&format!("{wanted:?} are left"), async || names(client).await == wanted).await;
}

#[tokio::test]
async fn an_event_of_the_new_group_changes_in_nothing_but_its_series() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    send(&client, "POST", NEW, event("e")).await;
    let (code, status) = send(&client, "PATCH", &format!("{NEW}/e"), json!({"note": "other"})).await;
    assert_eq!((code, status["details"]["causes"][0]["field"].as_str()), (422, Some("message")), "{status}");
    let (code, _) = send(&client, "PATCH", &format!("{CORE}/e"), json!({"message": "other"})).await;
    assert_eq!(code, 200, "old clients may");
    let mut wrong = event("f");
    wrong["reportingInstance"] = json!("");
    let (code, status) = send(&client, "POST", NEW, wrong).await;
    assert_eq!((code, status["message"].as_str()), (422, Some("Event \"f\" is invalid: reportingInstance: Required value")));
    server.stop().await;
}
