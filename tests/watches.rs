//! Lists, watches and deletions of collections as a real server was seen to answer them. The expected values are facts, in tables of our own.

use futures::StreamExt;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

async fn open(client: &kube::Client, method: &str, path: &str, accept: &str, body: &Value) -> http::Response<kube::client::Body> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("accept", accept).header("content-type", kind);
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    client.send(request.body(kube::client::Body::from(body)).unwrap()).await.unwrap()
}

async fn ask(client: &kube::Client, method: &str, path: &str, accept: &str, body: Value) -> (u16, HeaderMap, Value) {
    let response = open(client, method, path, accept, &body).await;
    let (code, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, headers, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn get(client: &kube::Client, path: &str) -> (u16, Value) {
    let (code, _, body) = ask(client, "GET", path, "application/json", Value::Null).await;
    (code, body)
}

/// The first events of a watch; the stream is left when they are there, or ends by itself.
async fn events(client: &kube::Client, path: &str, accept: &str, many: usize) -> Vec<Value> {
    let response = open(client, "GET", path, accept, &Value::Null).await;
    assert_eq!(response.status().as_u16(), 200, "{path}");
    let mut data = response.into_body().into_data_stream();
    let mut text = Vec::new();
    while text.iter().filter(|byte| **byte == b'\n').count() < many {
        let Some(piece) = data.next().await else { break };
        text.extend_from_slice(&piece.unwrap());
    }
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

fn map(name: &str, app: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": app}}})
}

/// The words of events and the names of their objects.
fn told(events: &[Value]) -> Vec<String> {
    let one = |e: &Value| format!("{} {}", e["type"].as_str().unwrap(), e["object"]["metadata"]["name"].as_str().unwrap_or("-"));
    events.iter().map(one).collect()
}

async fn create(client: &kube::Client, path: &str, object: Value) -> String {
    let (code, _, made) = ask(client, "POST", path, "application/json", object).await;
    assert_eq!(code, 201, "{made}");
    made["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn deleted_tells_the_state_that_was_kept_last() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let first = create(&client, MAPS, map("c", "a")).await;
    let name = format!("{MAPS}/c");
    for body in [json!({"metadata": {"finalizers": ["example.com/f"]}}), json!({"metadata": {"labels": {"app": "b"}}})] {
        assert_eq!(ask(&client, "PATCH", &name, "application/json", body).await.0, 200);
    }
    assert_eq!(ask(&client, "DELETE", &name, "application/json", Value::Null).await.0, 200);
    assert_eq!(ask(&client, "PATCH", &name, "application/json", json!({"metadata": {"finalizers": null}})).await.0, 200);
    create(&client, MAPS, map("d", "b")).await;
    assert_eq!(ask(&client, "DELETE", &format!("{MAPS}/d"), "application/json", Value::Null).await.0, 200);

    let seen = events(&client, &format!("{MAPS}?watch=1&resourceVersion={first}"), "application/json", 6).await;
    assert_eq!(told(&seen), ["MODIFIED c", "MODIFIED c", "MODIFIED c", "DELETED c", "ADDED d", "DELETED d"]);
    // The finalizer was still there in what was kept, and a deletion at once leaves no mark.
    let (waited, at_once) = (&seen[3]["object"]["metadata"], &seen[5]["object"]["metadata"]);
    assert_eq!(waited["finalizers"], json!(["example.com/f"]));
    assert!(waited["deletionTimestamp"].is_string());
    assert_eq!((&at_once["deletionTimestamp"], &at_once["deletionGracePeriodSeconds"]), (&Value::Null, &Value::Null));
    // By a selector, the object that leaves is told as it was while it belonged.
    let seen = events(&client, &format!("{MAPS}?watch=1&resourceVersion={first}&labelSelector=app%3Da"), "application/json", 2).await;
    assert_eq!(told(&seen), ["MODIFIED c", "DELETED c"]);
    assert_eq!(seen[1]["object"]["metadata"]["labels"]["app"], "a");
    server.stop().await;
}

#[tokio::test]
async fn a_pod_that_nobody_runs_is_marked_and_then_deleted() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    ask(&client, "POST", "/api/v1/namespaces/default/serviceaccounts", "application/json", json!({"metadata": {"name": "default"}})).await;
    let first = create(&client, PODS, json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})).await;
    assert_eq!(ask(&client, "DELETE", &format!("{PODS}/p"), "application/json", Value::Null).await.0, 200);
    let seen = events(&client, &format!("{PODS}?watch=1&resourceVersion={first}"), "application/json", 2).await;
    assert_eq!(told(&seen), ["MODIFIED p", "DELETED p"]);
    for event in &seen {
        assert_eq!(event["object"]["metadata"]["deletionGracePeriodSeconds"], 0);
    }
    assert_eq!(get(&client, &format!("{PODS}/p")).await.0, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_bookmark_is_an_object_of_its_kind_of_which_nothing_is_known() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let query = "watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&labelSelector=no%3Dsuch";
    for (path, fields) in [
        ("/api/v1/configmaps", json!({})),
        ("/api/v1/pods", json!({"spec": {"containers": null}, "status": {}})),
        ("/api/v1/services", json!({"spec": {}, "status": {"loadBalancer": {}}})),
        (
            "/api/v1/events",
            json!({"involvedObject": {}, "source": {}, "firstTimestamp": null, "lastTimestamp": null, "eventTime": null, "reportingComponent": "", "reportingInstance": ""}),
        ),
        (
            "/apis/events.k8s.io/v1/events",
            json!({"eventTime": null, "regarding": {}, "deprecatedSource": {}, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null}),
        ),
        (
            "/apis/apps/v1/deployments",
            json!({"spec": {"replicas": 0, "selector": null, "strategy": {}, "template": {"metadata": {}, "spec": {"containers": null}}}, "status": {}}),
        ),
        ("/apis/rbac.authorization.k8s.io/v1/rolebindings", json!({"roleRef": {"apiGroup": "", "kind": "", "name": ""}})),
        ("/apis/apiregistration.k8s.io/v1/apiservices", json!({"spec": {"groupPriorityMinimum": 0, "versionPriority": 0}, "status": {}})),
    ] {
        let seen = events(&client, &format!("{path}?{query}"), "application/json", 1).await;
        assert_eq!(seen[0]["type"], "BOOKMARK", "{path}");
        let mut object = seen[0]["object"].as_object().unwrap().clone();
        assert_eq!(object["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}), "{path}");
        object.retain(|name, _| !matches!(name.as_str(), "kind" | "apiVersion" | "metadata"));
        assert_eq!(Value::Object(object), fields, "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_table_is_headed_once_and_its_bookmarks_have_a_row_too() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    for name in ["a", "b"] {
        create(&client, MAPS, map(name, "x")).await;
    }
    let path = format!("{MAPS}?watch=1&allowWatchBookmarks=true&labelSelector=app%3Dx");
    let seen = events(&client, &path, TABLE, 3).await;
    let words: Vec<_> = seen.iter().map(|e| e["type"].as_str().unwrap()).collect();
    assert_eq!(words, ["ADDED", "ADDED", "BOOKMARK"]);
    let heads: Vec<_> = seen.iter().map(|e| e["object"]["columnDefinitions"].as_array().map(Vec::len)).collect();
    assert_eq!(heads, [Some(3), None, None]);
    let response = open(&client, "GET", &format!("{path}&pretty=true&timeoutSeconds=1"), TABLE, &Value::Null).await;
    let text = response.into_body().collect().await.unwrap().to_bytes();
    assert!(text.starts_with(b"{\"type\":\"ADDED\",\"object\":{"), "one line for each event, and its word first");
    let row = &seen[2]["object"]["rows"][0];
    assert_eq!(row["cells"], json!(["", 0, "<unknown>"]));
    assert_eq!(row["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    server.stop().await;
}

#[tokio::test]
async fn no_timeout_is_too_long_and_zero_is_the_servers_choice() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let first = create(&client, MAPS, map("a", "x")).await;
    // Those that overflow a real server's nanoseconds end at once there.
    for seconds in ["9223372036854775807", "-1", "9223372037"] {
        let path = format!("{MAPS}?watch=1&resourceVersion={first}&timeoutSeconds={seconds}");
        assert_eq!(events(&client, &path, "application/json", 1).await, Vec::<Value>::new(), "{seconds}");
    }
    for seconds in ["0", "9223372036"] {
        let path = format!("{MAPS}?watch=1&resourceVersion={first}&timeoutSeconds={seconds}");
        let name = format!("later-{seconds}");
        let response = open(&client, "GET", &path, "application/json", &Value::Null).await;
        create(&client, MAPS, map(&name, "x")).await;
        let mut data = response.into_body().into_data_stream();
        let mut text = String::new();
        while !text.contains(&format!("\"{name}\"")) {
            text.push_str(&String::from_utf8_lossy(&data.next().await.expect("the watch ended").unwrap()));
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn events_are_listed_as_without_a_cache() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    for name in ["a", "b"] {
        create(&client, MAPS, map(name, "x")).await;
        create(
            &client,
            EVENTS,
            json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default", "name": "x", "kind": "Pod"}}),
        )
        .await;
    }
    let token = |list: &Value| {
        use base64::Engine;
        let token = list["metadata"]["continue"].as_str().unwrap_or_default();
        String::from_utf8(base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token).unwrap()).unwrap()
    };
    let (_, cached) = get(&client, &format!("{MAPS}?limit=1&resourceVersion=0&labelSelector=app%3Dx")).await;
    assert_eq!((cached["items"].as_array().unwrap().len(), &cached["metadata"]["continue"]), (2, &Value::Null));
    let (_, uncached) = get(&client, &format!("{EVENTS}?limit=1&resourceVersion=0")).await;
    assert_eq!((uncached["items"].as_array().unwrap().len(), &uncached["metadata"]["remainingItemCount"]), (1, &json!(1)));
    let revision = uncached["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!(token(&uncached), format!(r#"{{"v":"meta.k8s.io/v1","rv":{revision},"start":"a\u0000"}}"#));
    let (_, paged) = get(&client, &format!("{MAPS}?limit=1&labelSelector=app%3Dx")).await;
    let revision = paged["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!(token(&paged), format!(r#"{{"v":"meta.k8s.io/v1","rv":{revision},"start":"/a\u0000"}}"#));
    let rest = format!("{EVENTS}?continue={}", uncached["metadata"]["continue"].as_str().unwrap());
    assert_eq!(get(&client, &rest).await.1["items"][0]["metadata"]["name"], "b");
    server.stop().await;
}

#[tokio::test]
async fn a_revision_that_is_still_to_come_is_a_timeout_in_the_answer_or_in_the_stream() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let future = "resourceVersion=99999999";
    let paths = [
        format!("{MAPS}?{future}"),
        format!("{EVENTS}?{future}"),
        format!("{MAPS}?{future}&watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
    ];
    let [list, events_list, watch] = paths.each_ref().map(|path| ask(&client, "GET", path, "application/json", Value::Null));
    let (list, events_list, watch) = futures::join!(list, events_list, watch);
    let causes = json!([{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]);
    assert_eq!((list.0, &list.2["details"]), (504, &json!({"causes": causes, "retryAfterSeconds": 1})));
    assert_eq!(list.1["retry-after"], "1");
    assert_eq!((events_list.0, &events_list.2["details"]), (504, &json!({"causes": causes})));
    assert!(events_list.1.get("retry-after").is_none());
    assert_eq!((watch.0, &watch.2["type"], &watch.2["object"]["code"]), (200, &json!("ERROR"), &json!(504)));
    assert!(watch.2["object"]["message"].as_str().unwrap().starts_with("Timeout: Too large resource version: 99999999, current: "));
    server.stop().await;
}

#[tokio::test]
async fn odd_selectors_and_switches_mean_what_they_mean_to_a_real_server() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    create(&client, MAPS, map("a", "x")).await;
    let own = "&labelSelector=app%3Dx";
    for (path, code, answer) in [
        (format!("{MAPS}?watch=FALSE{own}"), 200, json!("a")),
        (format!("{MAPS}?fieldSelector=%3D{own}"), 200, json!("a")),
        (format!("{MAPS}?resourceVersion=00&limit=1{own}"), 200, json!("a")),
        (format!("{MAPS}?resourceVersion=00&resourceVersionMatch=Exact{own}"), 200, json!("a")),
        (format!("{MAPS}?fieldSelector=metadata.name%3Da%2Fb"), 200, Value::Null),
        (format!("{MAPS}?fieldSelector=metadata.name%3D.."), 200, Value::Null),
        ("/api/v1/nodes?fieldSelector=metadata.namespace%3Dx".into(), 400, json!("field label not supported: metadata.namespace")),
        ("/api/v1/persistentvolumes?fieldSelector=metadata.namespace%3Dx".into(), 200, Value::Null),
        (
            "/api/v1/watch/namespaces/default/configmaps/a?fieldSelector=metadata.name%3Db".into(),
            400,
            json!("fieldSelector metadata.name doesn't match requested name"),
        ),
        ("/api/v1/watch/namespaces/default/pods/a/status".into(), 404, json!("the server could not find the requested resource")),
        (
            format!("{MAPS}/a?resourceVersion=18446744073709551616"),
            500,
            json!(
                "resourceVersion: Invalid value: \"18446744073709551616\": strconv.ParseUint: parsing \"18446744073709551616\": value out of range"
            ),
        ),
        (
            format!("{MAPS}?continue=eyJ2IjoxfQ"),
            400,
            json!(
                "invalid continue token: continue key is not valid: json: cannot unmarshal number into Go struct field continueToken.v of type string"
            ),
        ),
        (format!("{MAPS}?continue=ew"), 400, json!("invalid continue token: continue key is not valid: unexpected end of JSON input")),
    ] {
        let (status, body) = get(&client, &path).await;
        let told = if code == 200 { &body["items"][0]["metadata"]["name"] } else { &body["message"] };
        assert_eq!((status, told), (code, &answer), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_collection_is_deleted_in_pages_under_preconditions_and_told_in_every_form() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    for name in ["a", "b", "c"] {
        create(&client, MAPS, map(name, "x")).await;
    }
    let all = |path: String, accept: &'static str, body: Value| {
        let client = client.clone();
        async move { ask(&client, "DELETE", &path, accept, body).await }
    };
    let json_form = "application/json";
    // What a query says of uid and resourceVersion is a precondition of each deletion.
    let (code, _, body) = all(format!("{MAPS}?labelSelector=app%3Dx&resourceVersion=0"), json_form, Value::Null).await;
    assert_eq!((code, &body["reason"]), (409, &json!("Conflict")));
    assert!(body["message"].as_str().unwrap().contains("the ResourceVersion in the precondition (0)"), "{body}");
    let (code, _, body) = all(format!("{MAPS}/a?uid=other"), json_form, Value::Null).await;
    assert_eq!((code, &body["reason"]), (409, &json!("Conflict")));
    let (code, _, body) = all(format!("{MAPS}?labelSelector=app%3Dx&dryRun=All"), METADATA_LIST, Value::Null).await;
    assert_eq!((code, &body["kind"], body["items"].as_array().map(Vec::len)), (200, &json!("PartialObjectMetadataList"), Some(3)));
    let (code, _, body) = all(format!("{MAPS}?labelSelector=app%3Dx&limit=2"), json_form, json!({"propagationPolicy": "Background"})).await;
    let names: Vec<_> = body["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!((code, names), (200, vec!["a", "b"]));
    let token = body["metadata"]["continue"].as_str().unwrap();
    let (code, _, body) = all(format!("{MAPS}?labelSelector=app%3Dx&limit=2&continue={token}"), json_form, Value::Null).await;
    assert_eq!((code, &body["items"][0]["metadata"]["name"], &body["metadata"]["continue"]), (200, &json!("c"), &Value::Null));
    assert_eq!(get(&client, &format!("{MAPS}?labelSelector=app%3Dx")).await.1["items"], json!([]));
    // Nothing depends on an Event: there is nothing to orphan, and no finalizer to wait for.
    create(&client, EVENTS, json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": "default", "name": "x", "kind": "Pod"}}))
        .await;
    assert_eq!(all(format!("{EVENTS}?propagationPolicy=Orphan"), json_form, Value::Null).await.0, 200);
    assert_eq!(get(&client, &format!("{EVENTS}/e")).await.0, 404);
    server.stop().await;
}
