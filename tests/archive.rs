//! Asking the audit archive of a running server: imports, filters, live streams, statistics, derived roles, and the commands.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::process::{Command, Output};
use std::sync::Arc;

use axum::body::Body;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use usher::Server;
use usher::audit::Event;
use usher::audit::rbac::{Options, Usage};
use usher::request::User;

use crate::audit::Recorded;

pub(crate) fn admin() -> User {
    User::new("kubernetes-admin", &["system:masters", "system:authenticated"])
}

/// Sends a request through the whole stack as some user.
pub(crate) async fn send(server: &Server, user: &User, request: http::request::Builder, body: impl Into<Body>) -> Response<Body> {
    let mut request: Request<Body> = request.body(body.into()).unwrap();
    request.extensions_mut().insert(usher::authn::InProcess(Arc::new(user.clone())));
    server.router().oneshot(request).await.unwrap()
}

pub(crate) async fn text(response: Response<Body>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

pub(crate) async fn get(server: &Server, user: &User, uri: &str) -> (u16, Value) {
    let response = send(server, user, Request::get(uri), Body::empty()).await;
    let code = response.status().as_u16();
    (code, serde_json::from_str(&text(response).await).unwrap_or_default())
}

pub(crate) async fn import(server: &Server, lines: String) -> Value {
    let response = send(server, &admin(), Request::post("/usher/v1/requests"), lines).await;
    assert_eq!(response.status(), 200);
    serde_json::from_str(&text(response).await).unwrap()
}

/// An event of another cluster: verb, path and query, status.
pub(crate) fn event(number: usize, user: &str, verb: &str, uri: &str, code: u16) -> Value {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let info = usher::request::parse("GET", path, query);
    let mut event = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": format!("imported-{number}"),
        "stage": "ResponseComplete", "requestURI": uri, "verb": verb, "user": {"username": user, "groups": ["system:authenticated"]},
        "sourceIPs": ["10.0.0.1"], "responseStatus": {"metadata": {}, "code": code},
        "requestReceivedTimestamp": format!("2026-05-01T12:00:{:02}.000000Z", number % 60),
        "stageTimestamp": format!("2026-05-01T12:00:{:02}.250000Z", number % 60),
        "annotations": {"authorization.k8s.io/decision": if code == 403 { "forbid" } else { "allow" }},
    });
    if info.is_resource {
        event["objectRef"] = json!({"resource": info.resource, "namespace": info.namespace, "name": info.name,
            "apiGroup": info.group, "apiVersion": info.version, "subresource": info.subresource});
    }
    event
}

fn some_events() -> Vec<Value> {
    vec![
        event(0, "imported-jane", "get", "/api/v1/namespaces/default/pods/web", 200),
        event(1, "imported-jane", "delete", "/api/v1/namespaces/default/pods/web", 403),
        event(2, "imported-joe", "list", "/apis/apps/v1/deployments", 200),
    ]
}

pub(crate) fn lines(events: &[Value]) -> String {
    events.iter().map(|event| format!("{event}\n")).collect()
}

#[tokio::test]
async fn imported_requests_are_filtered_listed_and_counted() {
    let server = crate::builder().start().await.unwrap();
    let answer = import(&server, format!("{}nonsense\n", lines(&some_events()))).await;
    assert_eq!((&answer["imported"], &answer["refused"]), (&json!(3), &json!(1)));
    assert!(answer["errors"][0].as_str().unwrap().starts_with("line 4: not JSON"), "{answer}");

    let (code, list) = get(&server, &admin(), "/usher/v1/requests?user=imported-jane").await;
    assert_eq!((code, &list["kind"]), (200, &json!("EventList")));
    let ids =
        |list: &Value| list["items"].as_array().unwrap().iter().map(|e| e["auditID"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(ids(&list), ["imported-1", "imported-0"]);
    let (_, list) = get(&server, &admin(), "/usher/v1/requests?user=imported-jane&order=oldest&limit=1").await;
    assert_eq!(ids(&list), ["imported-0"]);
    let (_, list) =
        get(&server, &admin(), "/usher/v1/requests?filter=event.auditID.startsWith('imported')%20%26%26%20event.verb%3D%3D'list'").await;
    assert_eq!(ids(&list), ["imported-2"]);

    let request = Request::get("/usher/v1/requests?user=imported-joe").header("accept", "application/x-ndjson");
    let response = send(&server, &admin(), request, Body::empty()).await;
    assert_eq!(response.headers()["content-type"], "application/x-ndjson");
    let text = text(response).await;
    let event: Event = serde_json::from_str(text.trim_end()).unwrap();
    assert_eq!(event.audit_id, "imported-2");

    let (code, event) = get(&server, &admin(), "/usher/v1/requests/imported-1").await;
    assert_eq!((code, &event["verb"]), (200, &json!("delete")));
    let (code, status) = get(&server, &admin(), "/usher/v1/requests/nothing").await;
    assert_eq!((code, &status["reason"]), (404, &json!("NotFound")));
    for (query, told) in [
        ("code=4x", "code takes 403, 4xx or 400-499"),
        ("filter=event.", "filter: ERROR"),
        ("nonsense=1", "unknown parameter"),
        ("limit=many", "limit takes a number"),
        ("follow=true", "text/event-stream"),
    ] {
        let (code, status) = get(&server, &admin(), &format!("/usher/v1/requests?{query}")).await;
        assert_eq!(code, 400, "{query}");
        assert!(status["message"].as_str().unwrap().contains(told), "{status}");
    }

    let (_, stats) = get(&server, &admin(), "/usher/v1/stats?user=imported-jane").await;
    assert_eq!((&stats["requests"], &stats["denied"][0]["verb"]), (&json!(2), &json!("delete")));
    assert_eq!(stats["slow"][0]["took"], 250_000);
}

#[tokio::test]
async fn an_import_is_larger_than_any_other_body_and_does_not_run_out_of_time() {
    let server = crate::builder().start().await.unwrap();
    let large: Vec<Value> = (0..20_000).map(|number| event(number, "bulk", "get", "/api/v1/namespaces/default/pods/web", 200)).collect();
    let lines = lines(&large);
    // The largest body that is taken anywhere else.
    assert!(lines.len() > 3 << 20);
    assert_eq!(import(&server, lines).await["imported"], 20_000);
    let (_, stats) = get(&server, &admin(), "/usher/v1/stats?user=bulk").await;
    assert_eq!(stats["requests"], 20_000);
}

#[tokio::test]
async fn who_may_not_ask_is_refused() {
    let server = crate::builder().start().await.unwrap();
    let jane = User::new("jane", &["system:authenticated"]);
    for uri in ["/usher/v1/requests", "/usher/v1/requests/x", "/usher/v1/stats"] {
        assert_eq!(get(&server, &jane, uri).await.0, 403, "{uri}");
    }
    let response = send(&server, &jane, Request::post("/usher/v1/requests"), "").await;
    assert_eq!(response.status(), 403);
}

#[tokio::test]
async fn whoever_may_ask_the_archive_may_not_therefore_have_the_store() {
    let server = crate::builder().start().await.unwrap();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let auditor = User::new("auditor", &["system:authenticated"]);
    for (plural, object) in [
        (
            "clusterroles",
            json!({"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "auditor"},
            "rules": [{"nonResourceURLs": ["/usher/v1/*"], "verbs": ["*"]}]}),
        ),
        (
            "clusterrolebindings",
            json!({"kind": "ClusterRoleBinding", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "auditor"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "auditor"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "auditor"}]}),
        ),
    ] {
        let request = Request::post(format!("{rbac}/{plural}")).header("content-type", "application/json");
        assert_eq!(send(&server, &admin(), request, object.to_string()).await.status(), 201);
    }
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}});
    let request =
        Request::post("/api/v1/namespaces/default/secrets").header("content-type", "application/json").header("audit-id", "secret-1");
    assert_eq!(send(&server, &admin(), request, secret.to_string()).await.status(), 201);
    assert_eq!(get(&server, &auditor, "/usher/v1/stats").await.0, 200);
    for path in [
        "snapshot",
        "explain/secret-1",
        "explain/secret/s",
        "trace/secret/s",
        "blame/secret/s",
        "history/secret/s",
        "objects/secret/s",
        "objects/secret",
    ] {
        let (code, status) = get(&server, &auditor, &format!("/usher/v1/{path}")).await;
        assert_eq!((code, &status["reason"]), (403, &json!("Forbidden")), "{path}: {status}");
    }
    assert_eq!(send(&server, &admin(), Request::get("/usher/v1/snapshot"), Body::empty()).await.status(), 200);
}

#[tokio::test]
async fn roles_and_what_a_policy_would_record_are_made_where_the_records_are() {
    let server = crate::builder().start().await.unwrap();
    import(&server, lines(&some_events())).await;
    let (code, answer) = get(&server, &admin(), "/usher/v1/rbac?user=imported-jane").await;
    assert_eq!((code, &answer["groups"]), (200, &json!(["system:authenticated"])));
    let role = answer["items"].as_array().unwrap().iter().find(|item| item["kind"] == "Role").unwrap();
    assert_eq!(role["rules"], json!([{"apiGroups": [""], "resources": ["pods"], "resourceNames": ["web"], "verbs": ["delete", "get"]}]));
    let (_, answer) = get(&server, &admin(), "/usher/v1/rbac?user=imported-jane&onlyAllowed=true&anyName=true&roleName=x").await;
    assert_eq!(answer["items"][0]["rules"], json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]));
    assert_eq!(answer["items"][0]["metadata"]["name"], "x");
    assert_eq!(get(&server, &admin(), "/usher/v1/rbac?user=nobody").await.0, 404);
    assert_eq!(get(&server, &admin(), "/usher/v1/rbac").await.0, 400);
    let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, omitStages: [RequestReceived], rules: [{level: None, verbs: [delete]}, {level: Metadata}]}";
    let response = send(&server, &admin(), Request::post("/usher/v1/what-if?user=imported-jane"), policy).await;
    let answer: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!((&answer["requests"], &answer["total"]["events"], &answer["rules"][0]["requests"]), (&json!(2), &json!(1), &json!(1)));
    assert_eq!((&answer["since"], &answer["until"]), (&json!("2026-05-01T12:00:00Z"), &json!("2026-05-01T12:00:01Z")));
    let response = send(&server, &admin(), Request::post("/usher/v1/what-if"), "rules: []").await;
    assert_eq!(response.status(), 400);
}

#[tokio::test]
async fn live_requests_are_streamed_as_server_sent_events() {
    let server = crate::builder().start().await.unwrap();
    let request = Request::get("/usher/v1/requests?follow=true&user=imported-joe").header("accept", "text/event-stream");
    let response = send(&server, &admin(), request, Body::empty()).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut stream = response.into_body().into_data_stream();
    import(&server, lines(&some_events())).await;
    let piece = stream.next().await.unwrap().unwrap();
    let text = std::str::from_utf8(&piece).unwrap();
    let data =
        text.strip_prefix("id: ResponseComplete/imported-2\nevent: request\ndata: ").and_then(|text| text.strip_suffix("\n\n")).unwrap();
    assert_eq!(serde_json::from_str::<Event>(data).unwrap().audit_id, "imported-2");
    server.stop().await;
    assert!(stream.next().await.is_none(), "a stopping server ends the stream");
}

/// Method, path and query, and whether it was among what was done.
const DONE: [(&str, &str, bool); 17] = [
    ("GET", "/api/v1/namespaces/default/configmaps/mine", true),
    ("GET", "/api/v1/namespaces/default/configmaps/other", false),
    ("GET", "/api/v1/namespaces/default/configmaps", false),
    ("GET", "/api/v1/namespaces/default/secrets", true),
    ("GET", "/api/v1/namespaces/default/secrets/s", false),
    ("GET", "/api/v1/namespaces/kube-system/secrets", false),
    ("GET", "/api/v1/namespaces/default/services?fieldSelector=metadata.name%3Dkubernetes", true),
    ("GET", "/api/v1/namespaces/default/services", false),
    ("GET", "/apis/apps/v1/deployments", true),
    ("GET", "/apis/apps/v1/namespaces/default/deployments", true),
    ("GET", "/apis/apps/v1/deployments?watch=true", false),
    ("GET", "/api/v1/namespaces/default", true),
    ("GET", "/api/v1/namespaces/kube-system", false),
    ("GET", "/api/v1/namespaces/default/pods/web/log", true),
    ("GET", "/api/v1/namespaces/default/pods/web", false),
    ("GET", "/metrics", true),
    ("GET", "/usher/v1/clock", false),
];

#[tokio::test]
async fn derived_roles_allow_exactly_what_was_done() {
    let server = crate::builder().start().await.unwrap();
    let jane = User::new("jane", &["system:authenticated"]);
    let map = json!({"metadata": {"name": "new"}}).to_string();
    let create = |namespace: &str| {
        let uri = format!("/api/v1/namespaces/{namespace}/configmaps");
        send(&server, &jane, Request::post(uri).header("content-type", "application/json"), map.clone())
    };
    for (_, uri, _) in DONE.iter().filter(|(.., done)| *done) {
        assert_eq!(get(&server, &jane, uri).await.0, 403, "{uri} is allowed before there is a role");
    }
    assert_eq!(create("default").await.status(), 403);
    let (_, kept) = get(&server, &admin(), "/usher/v1/requests?user=jane").await;
    let mut usage = Usage::of("jane", Options::default());
    for event in kept["items"].as_array().unwrap() {
        usage.see(&serde_json::from_value(event.clone()).unwrap());
    }
    for role in usage.roles("jane") {
        let namespace = role["metadata"]["namespace"].as_str().map(|n| format!("namespaces/{n}/")).unwrap_or_default();
        let plural = format!("{}s", role["kind"].as_str().unwrap().to_lowercase());
        let request =
            Request::post(format!("/apis/rbac.authorization.k8s.io/v1/{namespace}{plural}")).header("content-type", "application/json");
        let response = send(&server, &admin(), request, role.to_string()).await;
        let code = response.status();
        assert_eq!(code, 201, "{role}: {}", text(response).await);
    }
    for (_, uri, done) in DONE {
        let (code, answer) = get(&server, &jane, uri).await;
        assert_eq!(code != 403, done, "{uri}: {code} {answer}");
    }
    assert_eq!(create("default").await.status(), 201);
    assert_eq!(create("kube-system").await.status(), 403);
}

#[tokio::test]
async fn what_the_policy_in_force_would_have_recorded_is_what_it_recorded() {
    const RULES: &str = "rules:
- level: None
  verbs: [list]
- level: RequestResponse
  resources: [{group: '', resources: [configmaps]}]
  omitStages: [RequestReceived]
- level: Metadata
";
    let recorded = Recorded::start(RULES).await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}});
    recorded.make("/api/v1/namespaces/default/configmaps", object.clone()).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}});
    recorded.make("/api/v1/namespaces/default/secrets", secret).await;
    for uri in ["/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/configmaps/none", "/version", "/nowhere"] {
        get(&recorded.server, &admin(), uri).await;
    }
    assert_eq!(get(&recorded.server, &User::new("nobody", &[]), "/api/v1/namespaces/default/secrets/s").await.0, 403);
    let as_jane = Request::get("/api/v1/namespaces/default/secrets/s").header("impersonate-user", "jane");
    assert_eq!(send(&recorded.server, &admin(), as_jane, Body::empty()).await.status(), 403);
    // One watch under way, and one that is over.
    let watch = |timeout: u32| Request::get(format!("/api/v1/namespaces/default/services?watch=true&timeoutSeconds={timeout}"));
    let under_way = send(&recorded.server, &admin(), watch(600), Body::empty()).await;
    text(send(&recorded.server, &admin(), watch(1), Body::empty()).await).await;

    recorded.server.audit().flush_sinks().await;
    let log = std::fs::read_to_string(&recorded.log).unwrap();
    let policy = std::fs::read(recorded.directory.path().join("policy.yaml")).unwrap();
    let answer = text(send(&recorded.server, &admin(), Request::post("/usher/v1/what-if"), policy).await).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let mut stages: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let stage = stages.entry(event["stage"].as_str().unwrap().to_owned()).or_default();
        *stage = (stage.0 + 1, stage.1 + line.len() as u64 + 1);
    }
    let told = |(name, volume): (&String, &Value)| (name.clone(), (volume["events"].as_u64().unwrap(), volume["bytes"].as_u64().unwrap()));
    let told: BTreeMap<String, (u64, u64)> = answer["stages"].as_object().unwrap().iter().map(told).collect();
    assert_eq!(told, stages, "{log}");
    assert_eq!(answer["missingBodies"], 0);
    drop(under_way);
}

#[tokio::test]
async fn an_imported_object_has_a_trace_a_history_and_authors() {
    let server = crate::builder().start().await.unwrap();
    let webhook = |what: &str| json!({"configuration": "c", "webhook": "w.example.com"}).to_string().replace('}', &format!(",{what}}}"));
    let object = |kind: &str, name: &str, revision: u64, more: Value| {
        let mut object = json!({"kind": kind, "apiVersion": "apps/v1", "metadata": {"name": name, "namespace": "prod", "uid": format!("u-{name}"),
            "resourceVersion": revision.to_string()}});
        for (field, value) in more.as_object().unwrap() {
            match field.as_str() {
                "spec" | "status" => object[field] = value.clone(),
                _ => object["metadata"][field] = value.clone(),
            }
        }
        object
    };
    let path = "/apis/apps/v1/namespaces/prod/deployments";
    let mut events = vec![
        event(0, "dan", "create", path, 201),
        event(1, "system:serviceaccount:kube-system:deployment-controller", "create", "/apis/apps/v1/namespaces/prod/replicasets", 201),
        event(2, "eve", "patch", &format!("{path}/shop"), 200),
    ];
    events[0]["objectRef"]["name"] = json!("shop");
    events[0]["responseObject"] = object("Deployment", "shop", 70, json!({"spec": {"replicas": 1}, "labels": {"by": "webhook"}}));
    let patch = "\"patch\":[{\"op\":\"add\",\"path\":\"/metadata/labels\",\"value\":{\"by\":\"webhook\"}}]";
    events[0]["annotations"]["patch.webhook.admission.k8s.io/round_0_index_0"] = json!(webhook(patch));
    events[1]["responseObject"] = object("ReplicaSet", "shop-1", 71, json!({"ownerReferences": [{"uid": "u-shop"}]}));
    events[2]["responseObject"] = object("Deployment", "shop", 72, json!({"spec": {"replicas": 3}, "labels": {"by": "webhook"}}));
    // One bad item in the middle of a list loses nothing else.
    events.insert(1, json!({"kind": "Event", "apiVersion": "v1"}));
    let answer = import(&server, json!({"kind": "EventList", "items": events}).to_string()).await;
    assert_eq!((&answer["imported"], &answer["refused"]), (&json!(3), &json!(1)));
    assert_eq!(answer["errors"], json!(["line 1: items[1]: an Event of v1, not of audit.k8s.io"]));

    let (code, told) = get(&server, &admin(), "/usher/v1/trace/deploy/shop?namespace=prod&all=true").await;
    assert_eq!(code, 200, "{told}");
    let texts: Vec<_> = told["messages"].as_array().unwrap().iter().filter(|m| m["arrow"] == "call").map(|m| &m["text"]).collect();
    assert_eq!(texts, ["create deployments/shop", "create replicasets/shop-1", "patch deployments/shop"]);
    let (_, told) = get(&server, &admin(), "/usher/v1/history/deploy/shop?namespace=prod").await;
    assert_eq!(
        (&told["revisions"][1]["user"], &told["revisions"][1]["changes"]),
        (&json!("eve"), &json!([{"path": "spec.replicas", "from": 1, "to": 3}]))
    );
    let (_, told) = get(&server, &admin(), "/usher/v1/blame/deploy/shop?namespace=prod").await;
    let label = told["fields"].as_array().unwrap().iter().find(|field| field["path"] == "metadata.labels.by");
    assert_eq!(label.map(|field| (&field["source"], &field["by"])), Some((&json!("webhook"), &json!("w.example.com (c)"))), "{told}");
    let (_, told) = get(&server, &admin(), "/usher/v1/explain/imported-0").await;
    assert_eq!(told["hops"][0]["steps"][0]["changes"], json!(["+ /metadata/labels: {\"by\":\"webhook\"}"]), "{told}");
    let (code, told) = get(&server, &admin(), "/usher/v1/trace/deploy/nope?namespace=prod").await;
    assert_eq!((code, &told["message"]), (404, &json!("deployments.apps \"nope\" not found in the namespace \"prod\"")));
}

/// Runs `usher` and gives what it printed.
async fn usher(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_usher"));
    command.args(arguments).env_remove("KUBECONFIG");
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_import_query_count_and_derive_roles() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::builder().data_dir(directory.path()).listen(([127, 0, 0, 1], 0).into()).start().await.unwrap();
    let data_dir = directory.path().to_str().unwrap();
    let address = format!("https://{}", server.address().unwrap());
    let config = usher(&["kubeconfig", "--data-dir", data_dir, "--server", &address]).await;
    let kubeconfig = directory.path().join("admin.yaml");
    std::fs::write(&kubeconfig, config.stdout).unwrap();
    let kubeconfig = kubeconfig.to_str().unwrap();
    let ask = async |arguments: &[&str]| {
        let output = usher(&[&["audit"], arguments, &["--kubeconfig", kubeconfig]].concat()).await;
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };

    let file = directory.path().join("audit.log");
    std::fs::write(&file, format!("{}\nnonsense\n", lines(&some_events()))).unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(ask(&["import", file]).await, "imported 3 events, 1 in the file is no audit event\n");

    // A log of the server itself begins with an arrival, which is nowhere else.
    let mut arrival = event(0, "imported-ann", "get", "/version", 200);
    arrival["stage"] = json!("RequestReceived");
    let again = directory.path().join("again.log");
    std::fs::write(&again, lines(&[arrival, event(0, "imported-ann", "get", "/version", 200)])).unwrap();
    let twice = usher(&["audit", "import", again.to_str().unwrap(), "--kubeconfig", kubeconfig]).await;
    assert!(String::from_utf8_lossy(&twice.stderr).contains("is there twice now"), "{twice:?}");

    let found = ask(&["query", "--user", "imported-jane", "-o", "jsonl"]).await;
    let first: Value = serde_json::from_str(found.lines().next().unwrap()).unwrap();
    assert_eq!((found.lines().count(), &first["auditID"]), (2, &json!("imported-1")));
    let found = ask(&["query", "--user", "imported-jane", "--resource", "po", "--since", "2026-05-01", "-o", "wide"]).await;
    assert!(found.contains(" AUDIT-ID ") && found.contains(" imported-0 "), "{found}");
    let refused = usher(&["audit", "query", "--filter", "event.vreb == 'get'", "--kubeconfig", kubeconfig]).await;
    assert!(String::from_utf8_lossy(&refused.stderr).contains("an event has no field vreb"), "{refused:?}");
    let human = ask(&["query", "--code", "403", "--user", "imported-jane"]).await;
    assert!(human.starts_with("TIME") && human.contains("pods default/web") && !human.contains('\u{1b}'), "{human}");
    let stats = ask(&["stats", "--user", "imported-jane"]).await;
    assert!(stats.contains("2 requests") && stats.contains("≤ 250ms 2 █"), "{stats}");
    let roles = ask(&["rbac", "--user", "imported-jane"]).await;
    assert!(roles.contains("# + namespace default: delete pods web\n") && roles.contains("kind: RoleBinding\n"), "{roles}");

    let policy = directory.path().join("policy.yaml");
    let rules = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None, verbs: [get]}, {level: Metadata}]}";
    std::fs::write(&policy, rules).unwrap();
    let answer = ask(&["what-if", "--policy", policy.to_str().unwrap(), "--user", "imported-jane", "-o", "json"]).await;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        (&answer["requests"], &answer["total"]["events"], &answer["rules"][0]["requests"]),
        (&json!(2), &json!(2), &json!(1)),
        "{answer}"
    );

    // Tail begins with the last one; once that is shown, it follows.
    let mut tail = Command::new(env!("CARGO_BIN_EXE_usher"));
    tail.args(["audit", "tail", "--user", "imported-jane", "--last", "1", "-o", "jsonl", "--kubeconfig", kubeconfig]);
    let mut tail = tail.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let shown = std::io::BufReader::new(tail.stdout.take().unwrap()).lines();
    let (sender, mut lines_shown) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || shown.map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let id = |line: Option<String>| serde_json::from_str::<Event>(&line.unwrap()).unwrap().audit_id;
    assert_eq!(id(lines_shown.recv().await), "imported-1");
    import(&server, lines(&[event(7, "imported-joe", "get", "/version", 200), event(8, "imported-jane", "get", "/version", 200)])).await;
    assert_eq!(id(lines_shown.recv().await), "imported-8");
    tail.kill().unwrap();
    tail.wait().unwrap();

    // What a client calls itself is shown, and not obeyed.
    let evil = "e\u{1b}[2Jvil\u{7}";
    import(&server, lines(&[event(9, evil, "get", "/api/v1/namespaces/default/pods/web", 403)])).await;
    for format in ["human", "json", "yaml", "jsonl"] {
        let shown = ask(&["query", "--user", evil, "-o", format]).await;
        assert!(shown.contains("vil") && !shown.contains(['\u{1b}', '\u{7}']), "{format}: {shown:?}");
    }
    assert!(ask(&["stats", "--user", evil]).await.contains("e␛[2Jvil␇"));

    // Whoever sees a part is told so, in every form; and a list is one document however long it is.
    let part = usher(&["audit", "query", "--user", "imported-jane", "--limit", "1", "-o", "json", "--kubeconfig", kubeconfig]).await;
    assert_eq!(String::from_utf8_lossy(&part.stderr), "usher: only the newest 1 are shown; --limit says how many, 0 is all\n");
    for (user, limit, count) in [("imported-jane", "1", 1), ("imported-jane", "0", 3), ("imported-jane", "3", 3), ("nobody", "0", 0)] {
        let list = ask(&["query", "--user", user, "--limit", limit, "-o", "json"]).await;
        let value: Value = serde_json::from_str(&list).unwrap();
        assert_eq!((&value["kind"], value["items"].as_array().unwrap().len()), (&json!("EventList"), count), "{list}");
        assert_eq!(list, format!("{value:#}\n"), "as everything else is written");
    }

    // An empty KUBECONFIG is none.
    let mut unset = Command::new(env!("CARGO_BIN_EXE_usher"));
    let unset = unset.args(["audit", "query"]).env("KUBECONFIG", "").current_dir(directory.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&unset.stderr).contains("cannot use the kubeconfig usher-data/kubeconfig"), "{unset:?}");

    let bad = usher(&["audit", "query", "--code", "x", "--kubeconfig", kubeconfig]).await;
    assert_eq!(String::from_utf8_lossy(&bad.stderr), "usher: code takes 403, 4xx or 400-499, not \"x\"\n");
    server.stop().await;
    let gone = usher(&["audit", "query", "--kubeconfig", kubeconfig]).await;
    assert!(String::from_utf8_lossy(&gone.stderr).starts_with("usher: cannot reach the server: Connection refused"), "{gone:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tail_goes_on_where_it_was_when_the_server_starts_anew() {
    let directory = tempfile::tempdir().unwrap();
    let start = async |address| Server::builder().data_dir(directory.path()).listen(address).start().await.unwrap();
    let server = start(([127, 0, 0, 1], 0).into()).await;
    let address = server.address().unwrap();
    let config = usher(&["kubeconfig", "--data-dir", directory.path().to_str().unwrap(), "--server", &format!("https://{address}")]).await;
    let kubeconfig = directory.path().join("admin.yaml");
    std::fs::write(&kubeconfig, config.stdout).unwrap();

    let mut tail = Command::new(env!("CARGO_BIN_EXE_usher"));
    tail.args(["audit", "tail", "--user", "bulk", "-o", "jsonl", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    let mut tail = tail.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let (sender, mut shown) = tokio::sync::mpsc::unbounded_channel();
    let (out, said) = (tail.stdout.take().unwrap(), tail.stderr.take().unwrap());
    let heard = sender.clone();
    std::thread::spawn(move || std::io::BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    std::thread::spawn(move || std::io::BufReader::new(said).lines().map_while(Result::ok).try_for_each(|line| heard.send(line)));
    // It follows once it has asked for the newest one.
    let asked = "/usher/v1/requests?limit=1&trace=false";
    loop {
        let (_, list) =
            get(&server, &admin(), "/usher/v1/requests?limit=5&filter=event.requestURI.contains('limit=1%26trace=false')").await;
        if list["items"].as_array().unwrap().iter().any(|item| item["requestURI"] == asked) {
            break;
        }
    }
    server.stop().await;
    assert_eq!(shown.recv().await.unwrap(), "usher: the server ended the stream; waiting for it");
    let server = start(address).await;
    import(&server, lines(&[event(0, "bulk", "get", "/version", 200)])).await;
    let id = |line: Option<String>| serde_json::from_str::<Event>(line.as_deref().unwrap()).map_err(|_| line).unwrap().audit_id;
    assert_eq!(id(shown.recv().await), "imported-0", "whether it was there by then or not");
    import(&server, lines(&[event(1, "bulk", "get", "/version", 200)])).await;
    assert_eq!(id(shown.recv().await), "imported-1");
    tail.kill().unwrap();
    tail.wait().unwrap();
    server.stop().await;
}
