//! What a policy asks for is what the sinks get, also after it has changed; the archive keeps the trace of everything.

use std::time::Duration;

use http::{HeaderValue, Method};
use serde_json::{Value, json};
use usher::audit::Level;

use super::{Recorded, admin, events, request, send};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

#[tokio::test]
async fn level_none_leaves_the_trace_alone() {
    let recorded = Recorded::start("rules:\n- {level: None, verbs: [get]}\n- {level: Metadata, omitStages: [RequestReceived]}\n").await;
    let (_, id) = send(&recorded.server, request(Method::GET, "/version", &admin(), None)).await;
    assert!(recorded.of(&id).await.is_empty());
    let kept = events(&recorded.server, &id).await;
    assert_eq!((kept.len(), kept[0].level, kept[0].code()), (1, Level::None, 200));
    assert!(!kept[0].trace.as_ref().unwrap().steps.is_empty());
    let events = recorded.send(request(Method::POST, MAPS, &admin(), Some(map("a")))).await;
    assert_eq!((events.len(), &events[0]["stage"], events[0].get("requestObject")), (1, &json!("ResponseComplete"), None));
    let metrics = String::from_utf8(body(&recorded, "/metrics").await).unwrap();
    for line in [
        "apiserver_audit_level_total{level=\"None\"} ",
        "apiserver_audit_event_total ",
        "usher_audit_dropped_total{sink=\"log\"} 0",
        "apiserver_audit_error_total{plugin=\"log\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

async fn body(recorded: &Recorded, path: &str) -> Vec<u8> {
    use http_body_util::BodyExt;
    let response = tower::ServiceExt::oneshot(recorded.server.router(), request(Method::GET, path, &admin(), None)).await.unwrap();
    response.into_body().collect().await.unwrap().to_bytes().to_vec()
}

#[tokio::test]
async fn the_body_of_a_request_comes_with_level_request_and_managed_fields_go_where_they_are_omitted() {
    let rules = "rules:\n- {level: Request, verbs: [create]}\n- {level: RequestResponse, omitManagedFields: true}\n";
    let recorded = Recorded::start(rules).await;
    let created = recorded.ask(Method::POST, MAPS, Some(map("a"))).await;
    assert_eq!((created["requestObject"]["data"]["k"].as_str(), created.get("responseObject")), (Some("v"), None));
    let read = recorded.ask(Method::GET, &format!("{MAPS}/a"), None).await;
    assert_eq!(read["responseObject"]["metadata"]["name"], "a");
    assert!(read["responseObject"]["metadata"].get("managedFields").is_none());
    let list = recorded.ask(Method::GET, MAPS, None).await;
    assert!(list["responseObject"]["items"].as_array().unwrap().iter().all(|item| item["metadata"].get("managedFields").is_none()));
}

#[tokio::test]
async fn a_body_that_is_too_large_is_left_out_and_the_event_says_so() {
    let recorded = Recorded::everything().await;
    let mut large = map("large");
    large["data"]["k"] = json!("x".repeat(900_000));
    recorded.make(MAPS, large.clone()).await;
    large["metadata"]["name"] = json!("larger");
    recorded.make(MAPS, large).await;
    let list = recorded.ask(Method::GET, MAPS, None).await;
    assert_eq!((list.get("responseObject"), &list["annotations"]["audit.k8s.io/truncated"]), (None, &json!("true")));
}

#[tokio::test]
async fn of_an_answer_that_breaks_off_a_list_is_recorded_whole_and_what_was_half_compressed_is_not() {
    use http_body_util::BodyExt;
    let recorded = Recorded::everything().await;
    // Nothing that becomes small by compression.
    let mut number = 1_u64;
    let noise = std::iter::repeat_with(|| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{number:x}")
    });
    let mut large = map("large");
    large["data"]["k"] = json!(noise.take(20_000).collect::<String>());
    recorded.make(MAPS, large).await;
    let begun = async |accept: &'static str, encoding: &'static str| {
        let mut asked = request(Method::GET, &format!("{MAPS}?includeObject=Object"), &admin(), None);
        asked.headers_mut().insert("accept", accept.parse().unwrap());
        asked.headers_mut().insert("accept-encoding", encoding.parse().unwrap());
        let response = tower::ServiceExt::oneshot(recorded.server.router(), asked).await.unwrap();
        let id = response.headers()["audit-id"].to_str().unwrap().to_owned();
        let mut body = response.into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(serde_json::from_slice::<Value>(&first).is_err(), "that was all of it");
        drop(body);
        let event = recorded.of(&id).await.pop().unwrap();
        assert_eq!((&event["stage"], &event["responseStatus"]["code"]), (&json!("ResponseComplete"), &json!(200)));
        let kept = events(&recorded.server, &id).await[0].response_object.as_ref().map(|object| object.value().unwrap());
        assert_eq!(event.get("responseObject"), kept.as_ref());
        kept
    };
    let list = begun("application/json", "gzip").await.expect("it was answered, whoever read it");
    assert_eq!((&list["kind"], list["items"].as_array().map(Vec::len)), (&json!("ConfigMapList"), Some(1)));
    assert_eq!(begun("application/json;as=Table;v=v1;g=meta.k8s.io", "gzip").await, None);
}

#[tokio::test]
async fn a_policy_counts_anew_when_its_file_changes_and_a_broken_one_does_not() {
    let recorded = Recorded::start("rules:\n- level: None\n").await;
    let file = recorded.directory.path().join("policy.yaml");
    let recorded_now = async || !recorded.send(request(Method::GET, "/version", &admin(), None)).await.is_empty();
    assert!(!recorded_now().await);
    std::fs::write(&file, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n").unwrap();
    let end = std::time::Instant::now() + Duration::from_secs(10);
    while !recorded_now().await {
        assert!(std::time::Instant::now() < end, "the policy was not reloaded");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::fs::write(&file, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Everything\n").unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(recorded_now().await, "the last good policy stays in force");
    recorded.server.stop().await;

    let mut builder = crate::builder();
    builder.audit.policy = Some(file);
    let error = builder.start().await.err().unwrap().to_string();
    assert!(error.contains("rules[0].level: Unsupported value: \"Everything\""), "{error}");
}

#[tokio::test]
async fn only_a_component_is_believed_about_its_cause() {
    let door = crate::builder().listen("127.0.0.1:0".parse().unwrap()).start().await.unwrap();
    let identity = reqwest::Identity::from_pem(format!("{}\n{}", door.pki().admin, door.pki().admin_key).as_bytes()).unwrap();
    let ca = reqwest::Certificate::from_pem(door.pki().ca.as_bytes()).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().identity(identity).build().unwrap();
    let url = format!("https://{}/version", door.address().unwrap());
    let answer = client.get(url).header("usher-cause", "9").header("x-forwarded-for", "203.0.113.7").send().await.unwrap();
    let id = answer.headers()["audit-id"].to_str().unwrap();
    let event = &events(&door, id).await[0];
    assert_eq!(event.trace.as_ref().unwrap().cause, None);
    assert_eq!(event.source_ips, ["203.0.113.7", "127.0.0.1"]);
    let mut asked = request(Method::GET, "/version", &admin(), None);
    asked.headers_mut().insert("usher-cause", HeaderValue::from_static("9"));
    let (_, id) = send(&door, asked).await;
    assert_eq!(events(&door, &id).await[0].trace.as_ref().unwrap().cause, Some(9));
}

#[tokio::test]
async fn a_policy_that_is_wrong_at_the_start_is_refused_in_a_real_servers_words() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.yaml");
    for (rules, why) in [
        (
            "rules: [{level: Foo}]",
            "rules[0].level: Unsupported value: \"Foo\": supported values: \"None\", \"Metadata\", \"Request\", \"RequestResponse\"",
        ),
        ("rules: [{users: [a]}]", "rules[0].level: Required value"),
        ("rules: []", "loaded illegal policy with 0 rules"),
        ("rules: foo", "failed decoding: json: cannot unmarshal string into Go struct field Policy.rules of type []v1.PolicyRule"),
    ] {
        std::fs::write(&path, format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}\n")).unwrap();
        let mut builder = crate::builder();
        builder.audit.policy = Some(path.clone());
        let refused = builder.start().await.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(refused, format!("loading audit policy file: {why}: from file {}", path.display()));
    }
}
