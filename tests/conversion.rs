//! Custom kinds with several versions: what is stored in one is read, listed, watched and written in another, by a webhook over TLS or by none;
//! what the webhook answers is checked; and a large list is compressed for who asks.

use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use usher::Server;

use crate::admission::server::{Reply, Webhooks};

const V1: &str = "/apis/conv.example.com/v1/namespaces/default/gauges";
const V2: &str = "/apis/conv.example.com/v2/namespaces/default/gauges";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn send(client: &kube::Client, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let response = client.send(request.body(kube::client::Body::from(bytes)).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned())))
}

/// Version v1 has `spec.host` and `spec.port`, version v2 `spec.address` with both.
fn definition(conversion: Value) -> Value {
    let version = |name: &str, storage: bool, fields: Value| {
        let spec = json!({"type": "object", "properties": fields});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
        json!({"name": name, "served": true, "storage": storage, "schema": schema})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gauges.conv.example.com"},
        "spec": {
            "group": "conv.example.com", "scope": "Namespaced", "names": {"plural": "gauges", "kind": "Gauge"}, "conversion": conversion,
            "versions": [
                version("v1", true, json!({"host": {"type": "string"}, "port": {"type": "string"}, "unit": {"type": "string", "default": "C"}})),
                version("v2", false, json!({"address": {"type": "string"}, "unit": {"type": "string", "default": "C"}})),
            ],
        },
    })
}

fn by_webhook(hooks: &Webhooks, path: &str) -> Value {
    let config = json!({"url": format!("https://127.0.0.1:{}{path}", hooks.port), "caBundle": hooks.ca_bundle});
    json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": config}})
}

/// A webhook that converts as a good one does.
fn convert(review: &Value) -> Reply {
    let desired = review["request"]["desiredAPIVersion"].as_str().unwrap().to_owned();
    let objects = review["request"]["objects"].as_array().unwrap().iter().map(|object| {
        let mut object = object.clone();
        let spec = object["spec"].as_object_mut().unwrap();
        if desired.ends_with("/v2") {
            let (host, port) = (spec.remove("host").unwrap_or_default(), spec.remove("port").unwrap_or_default());
            spec.insert("address".into(), json!(format!("{}:{}", host.as_str().unwrap_or(""), port.as_str().unwrap_or(""))));
        } else {
            let address = spec.remove("address").unwrap_or_default();
            let (host, port) = address.as_str().unwrap_or_default().split_once(':').unwrap_or_default();
            spec.insert("host".into(), json!(host));
            spec.insert("port".into(), json!(port));
        }
        object["apiVersion"] = json!(desired);
        object
    });
    let objects: Vec<Value> = objects.collect();
    answer(review, json!({"convertedObjects": objects, "result": {"status": "Success"}}))
}

fn answer(review: &Value, mut response: Value) -> Reply {
    if response.get("uid").is_none() {
        response["uid"] = review["request"]["uid"].clone();
    }
    let body = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response});
    Reply::Raw(200, "application/json", body.to_string())
}

fn gauge(version: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("conv.example.com/{version}"), "kind": "Gauge", "metadata": {"name": name}, "spec": spec})
}

async fn server_with(conversion: Value) -> Server {
    let server = crate::builder().start().await.unwrap();
    let (code, made) = send(&server.client(), "POST", DEFINITIONS, Some(definition(conversion))).await;
    assert_eq!(code, 201, "{made}");
    server
}

#[tokio::test]
async fn objects_are_read_written_and_listed_in_a_version_that_a_webhook_makes() {
    let hooks = Webhooks::start().await;
    hooks.on("/convert", convert);
    let server = server_with(by_webhook(&hooks, "/convert")).await;
    let client = server.client();
    let (code, one) = send(&client, "POST", V1, Some(gauge("v1", "one", json!({"host": "a", "port": "1"})))).await;
    assert_eq!((code, hooks.reviews.lock().len()), (201, 0), "what is stored as it came needs nobody: {one}");
    let (code, two) = send(&client, "POST", V2, Some(gauge("v2", "two", json!({"address": "b:2"})))).await;
    assert_eq!((code, &two["apiVersion"], &two["spec"]), (201, &json!("conv.example.com/v2"), &json!({"address": "b:2", "unit": "C"})));
    let (_, stored) = send(&client, "GET", &format!("{V1}/two"), None).await;
    assert_eq!(stored["spec"], json!({"host": "b", "port": "2", "unit": "C"}));
    let (_, read) = send(&client, "GET", &format!("{V2}/one"), None).await;
    assert_eq!((&read["apiVersion"], &read["spec"]["address"]), (&json!("conv.example.com/v2"), &json!("a:1")));
    assert_eq!(read["metadata"]["uid"], one["metadata"]["uid"]);
    let asked = hooks.reviews.lock().len();
    let (_, list) = send(&client, "GET", V2, None).await;
    let addresses: Vec<&str> = list["items"].as_array().unwrap().iter().filter_map(|item| item["spec"]["address"].as_str()).collect();
    assert_eq!((addresses, hooks.reviews.lock().len() - asked), (vec!["a:1", "b:2"], 1), "one question for the whole list");
    let (code, patched) = send(&client, "PATCH", &format!("{V2}/one"), Some(json!({"spec": {"address": "c:3"}}))).await;
    assert_eq!((code, &patched["spec"]["address"], &patched["metadata"]["generation"]), (200, &json!("c:3"), &json!(2)));
    let (_, stored) = send(&client, "GET", &format!("{V1}/one"), None).await;
    assert_eq!((&stored["spec"]["host"], &stored["spec"]["port"]), (&json!("c"), &json!("3")));
    let (code, unchanged) = send(&client, "PATCH", &format!("{V2}/one"), Some(json!({"spec": {"address": "c:3"}}))).await;
    assert_eq!((code, &unchanged["metadata"]["resourceVersion"]), (200, &patched["metadata"]["resourceVersion"]));
    let (code, _) = send(&client, "DELETE", &format!("{V2}/one"), None).await;
    assert_eq!(code, 200);
    server.stop().await;
}

#[tokio::test]
async fn who_owns_a_field_in_another_version_is_worked_out_with_what_the_webhook_says() {
    let hooks = Webhooks::start().await;
    hooks.on("/convert", convert);
    let server = server_with(by_webhook(&hooks, "/convert")).await;
    let client = server.client();
    let apply = async |path: &str, manager: &str, object: Value| {
        let request = Request::builder().method("PATCH").uri(format!("{path}?fieldManager={manager}"));
        let request = request.header("content-type", "application/apply-patch+yaml");
        let response = client.send(request.body(kube::client::Body::from(object.to_string().into_bytes())).unwrap()).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice::<Value>(&bytes).unwrap())
    };
    let (code, made) = apply(&format!("{V1}/one"), "old", gauge("v1", "one", json!({"host": "a", "port": "1"}))).await;
    assert_eq!(code, 201, "{made}");
    // The address is the host and the port that somebody else owns in v1.
    let (code, status) = apply(&format!("{V2}/one"), "new", gauge("v2", "one", json!({"address": "b:1"}))).await;
    let conflict = "Apply failed with 1 conflict: conflict with \"old\": .spec.host";
    assert_eq!((code, &status["message"]), (409, &json!(conflict)), "the port stays what it was");
    let (code, shared) = apply(&format!("{V2}/one"), "new", gauge("v2", "one", json!({"address": "a:1"}))).await;
    assert_eq!(code, 200, "{shared}");
    // An update in v2 takes the host, and only the host, from its owner in v1.
    let (code, _) = send(&client, "PATCH", &format!("{V2}/one?fieldManager=editor"), Some(json!({"spec": {"address": "c:1"}}))).await;
    assert_eq!(code, 200);
    let (_, object) = send(&client, "GET", &format!("{V1}/one"), None).await;
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let of = |manager: &str| entries.iter().find(|entry| entry["manager"] == manager).map(|entry| entry["fieldsV1"].clone());
    assert_eq!(of("old"), Some(json!({"f:spec": {"f:port": {}}})), "{entries:?}");
    assert_eq!(of("new"), None, "what it had is somebody else's now: {entries:?}");
    assert_eq!(of("editor"), Some(json!({"f:spec": {"f:address": {}}})));
    server.stop().await;
}

#[tokio::test]
async fn a_watch_tells_of_objects_in_its_own_version() {
    use futures::TryStreamExt;
    use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
    let hooks = Webhooks::start().await;
    hooks.on("/convert", convert);
    let server = server_with(by_webhook(&hooks, "/convert")).await;
    let client = server.client();
    send(&client, "POST", V1, Some(gauge("v1", "one", json!({"host": "a", "port": "1"})))).await;
    let kind = kube::core::GroupVersionKind::gvk("conv.example.com", "v2", "Gauge");
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), "default", &kube::core::ApiResource::from_gvk_with_plural(&kind, "gauges"));
    let stream = api.watch(&WatchParams::default(), "0").await.unwrap();
    let mut stream = std::pin::pin!(stream);
    send(&client, "POST", V1, Some(gauge("v1", "two", json!({"host": "b", "port": "2"})))).await;
    send(&client, "DELETE", &format!("{V1}/one"), None).await;
    let mut told = Vec::new();
    while told.len() < 3 {
        told.push(match stream.try_next().await.unwrap().unwrap() {
            WatchEvent::Added(object) => format!("added {}", object.data["spec"]["address"]),
            WatchEvent::Deleted(object) => format!("deleted {}", object.data["spec"]["address"]),
            // Where the state ends that the watch began with.
            WatchEvent::Bookmark(_) => continue,
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(told, ["added \"a:1\"", "added \"b:2\"", "deleted \"a:1\""]);
    server.stop().await;
}

#[tokio::test]
async fn a_conversion_that_fails_is_told_in_the_words_of_a_real_server() {
    let hooks = Webhooks::start().await;
    hooks.on("/refuse", |review| answer(review, json!({"result": {"status": "Failure", "message": "not today"}})));
    hooks.on("/lose", |review| answer(review, json!({"convertedObjects": [], "result": {"status": "Success"}})));
    hooks.on("/broken", |_| Reply::Raw(500, "text/plain", "boom".into()));
    hooks.on("/rename", |review| {
        let mut object = review["request"]["objects"][0].clone();
        object["apiVersion"] = review["request"]["desiredAPIVersion"].clone();
        object["metadata"]["name"] = json!("else");
        answer(review, json!({"convertedObjects": [object], "result": {"status": "Success"}}))
    });
    let server = server_with(by_webhook(&hooks, "/refuse")).await;
    let client = server.client();
    send(&client, "POST", V1, Some(gauge("v1", "one", json!({"host": "a"})))).await;
    let of = "conversion webhook for conv.example.com/v1, Kind=Gauge";
    let cases = [
        ("/refuse", format!("{of} failed: not today")),
        ("/lose", format!("{of} returned 0 objects, expected 1")),
        ("/broken", format!("{of} failed: an error on the server (\"boom\") has prevented the request from succeeding")),
        ("/rename", format!("{of} returned invalid object: must have the same name: one != else")),
        ("/nowhere", format!("{of} failed: the server could not find the requested resource")),
    ];
    for (path, message) in cases {
        let patch = json!({"spec": {"conversion": by_webhook(&hooks, path)}});
        let (code, _) = send(&client, "PATCH", &format!("{DEFINITIONS}/gauges.conv.example.com"), Some(patch)).await;
        assert_eq!(code, 200);
        let (code, status) = send(&client, "GET", &format!("{V2}/one"), None).await;
        assert_eq!((code, status["message"].as_str()), (500, Some(message.as_str())));
    }
    let (code, _) = send(&client, "GET", &format!("{V1}/one"), None).await;
    assert_eq!(code, 200, "the stored version needs no webhook");
    server.stop().await;
}

#[tokio::test]
async fn without_a_webhook_only_the_version_changes_also_after_the_stored_one_did() {
    let server = server_with(json!({"strategy": "None"})).await;
    let client = server.client();
    send(&client, "POST", V1, Some(gauge("v1", "old", json!({"unit": "K"})))).await;
    let (_, mut definition) = send(&client, "GET", &format!("{DEFINITIONS}/gauges.conv.example.com"), None).await;
    definition["spec"]["versions"][0]["storage"] = json!(false);
    definition["spec"]["versions"][1]["storage"] = json!(true);
    let (code, changed) = send(&client, "PUT", &format!("{DEFINITIONS}/gauges.conv.example.com"), Some(definition)).await;
    assert_eq!((code, &changed["status"]["storedVersions"]), (200, &json!(["v1", "v2"])));
    send(&client, "POST", V1, Some(gauge("v1", "new", json!({"unit": "K"})))).await;
    for (path, version) in [(V1, "conv.example.com/v1"), (V2, "conv.example.com/v2")] {
        let (_, list) = send(&client, "GET", path, None).await;
        let versions: Vec<&str> = list["items"].as_array().unwrap().iter().filter_map(|item| item["apiVersion"].as_str()).collect();
        assert_eq!(versions, [version, version]);
        let (_, old) = send(&client, "GET", &format!("{path}/old"), None).await;
        assert_eq!((&old["apiVersion"], &old["spec"]["unit"]), (&json!(version), &json!("K")));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_large_list_is_compressed_for_who_asks_and_says_its_length_to_who_does_not() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    for at in 0..4 {
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{at}")}, "data": {"k": "v".repeat(60_000)}});
        send(&client, "POST", "/api/v1/namespaces/default/configmaps", Some(map)).await;
    }
    let list = |encoding: &'static str, path: &'static str| {
        let request = Request::builder().uri(path).header("accept-encoding", encoding);
        client.send(request.body(kube::client::Body::empty()).unwrap())
    };
    let all = "/api/v1/namespaces/default/configmaps";
    let plain = list("identity", all).await.unwrap();
    assert!(plain.headers().get("content-encoding").is_none());
    let told = http_body::Body::size_hint(plain.body()).exact();
    let plain = plain.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(told, Some(plain.len() as u64));
    assert_eq!(serde_json::from_slice::<Value>(&plain).unwrap()["items"].as_array().unwrap().len(), 4);
    let zipped = list("gzip", all).await.unwrap();
    assert_eq!(
        (&zipped.headers()["content-encoding"], &zipped.headers()["vary"]),
        (&"gzip".parse().unwrap(), &"Accept-Encoding".parse().unwrap())
    );
    let bytes = zipped.into_body().collect().await.unwrap().to_bytes();
    assert!(bytes.len() < plain.len() / 10);
    let mut unzipped = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::MultiGzDecoder::new(&*bytes), &mut unzipped).unwrap();
    assert_eq!(unzipped, plain);
    for small in ["/api/v1/namespaces/default/configmaps/m0", "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1"] {
        assert!(list("gzip", small).await.unwrap().headers().get("content-encoding").is_none(), "{small}");
    }
    server.stop().await;
}
