//! Telling what happened and why, from a server with everything in it: trace, blame, explain, history, objects as they were, and the
//! traces that go elsewhere.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, ResourceQuota, Secret, Service, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use usher::Server;
use usher::request::User;

use crate::admission::server::{Webhooks, configmap, configmaps, configure, create, patched};

/// Asks under `/usher/v1/`.
pub async fn ask(client: &Client, path: &str) -> Result<Value, kube::core::Status> {
    let request = http::Request::get(format!("/usher/v1/{path}")).body(Vec::new()).unwrap();
    match client.request(request).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => Err(*status),
        Err(other) => panic!("{path}: {other}"),
    }
}

async fn text(client: &Client, path: &str) -> String {
    let request = http::Request::get(format!("/usher/v1/{path}")).body(Vec::new()).unwrap();
    client.request_text(request).await.unwrap()
}

fn takes_pods(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    ready && node.spec.as_ref().is_none_or(|spec| spec.taints.as_ref().is_none_or(Vec::is_empty))
}

/// A server with controllers, scheduler and a node.
async fn cluster() -> (Server, Client) {
    let mut builder = crate::builder();
    builder.components = "all".into();
    builder.nodes = 1;
    let server = builder.start().await.unwrap();
    let client = server.client();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    wait(|| async { accounts.get_opt("default").await.unwrap().is_some() }).await;
    // A Pod that comes before its node can take it is first told that it does not fit: another story than the one asked for here.
    let nodes: Api<Node> = Api::all(client.clone());
    wait(|| async { nodes.list(&Default::default()).await.unwrap().items.iter().any(takes_pods) }).await;
    (server, client)
}

async fn wait<F: Future<Output = bool>>(done: impl Fn() -> F) {
    for _ in 0..3000 {
        if done().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never happened");
}

async fn deploy(client: &Client, name: &str) -> Api<Deployment> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "default");
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}},
    });
    deployments.patch(name, &PatchParams::apply("the-test"), &Patch::Apply(object)).await.unwrap();
    deployments
}

async fn ready(deployments: &Api<Deployment>, name: &str) {
    wait(|| async { deployments.get(name).await.unwrap().status.and_then(|status| status.available_replicas) == Some(1) }).await;
}

#[tokio::test]
async fn a_deployment_is_traced_from_apply_to_ready_in_causal_order() {
    let (server, client) = cluster().await;
    let deployments = deploy(&client, "web").await;
    ready(&deployments, "web").await;
    let told = ask(&client, "trace/deploy/web").await.unwrap();
    let messages = told["messages"].as_array().unwrap();
    let at = |arrow: &str, from: &str, to: &str, text: &str| {
        let found = messages.iter().position(|message| {
            let is = |field: &str, wanted: &str| message[field] == wanted;
            is("arrow", arrow) && is("from", from) && is("to", to) && message["text"].as_str().unwrap().contains(text)
        });
        found.unwrap_or_else(|| panic!("no {arrow} from {from} to {to} with {text:?} in {told:#}"))
    };
    let order = [
        at("call", "Client", "API server", "patch deployments/web"),
        at("persist", "API server", "store", "Deployment web"),
        at("watch", "API server", "controllers", "ADDED Deployment web"),
        at("reconcile", "controllers", "controllers", "deployment-controller"),
        at("call", "controllers", "API server", "create replicasets/web-"),
        at("watch", "API server", "controllers", "ADDED ReplicaSet web-"),
        at("call", "controllers", "API server", "create pods/web-"),
        at("watch", "API server", "scheduler", "ADDED Pod web-"),
        at("call", "scheduler", "API server", "bind pods/web-"),
        at("watch", "API server", "kubelet", "MODIFIED Pod web-"),
        at("call", "kubelet", "CRI", "StartContainer web"),
        at("call", "kubelet", "API server", "Running, Ready"),
        at("call", "controllers", "API server", "deployments/web/status: 1/1 available"),
    ];
    assert!(order.is_sorted(), "{order:?} in {told:#}");
    assert!(told["readyAfter"].as_i64().is_some_and(|after| after > 0), "{told:#}");
    // Times do not run backwards, and every message of a request leads to that request.
    assert!(messages.windows(2).all(|pair| pair[0]["after"].as_i64() <= pair[1]["after"].as_i64()));
    let id = messages[order[0]]["auditID"].as_str().unwrap();
    let explained = ask(&client, &format!("explain/{id}")).await.unwrap();
    assert_eq!((&explained["verdict"], &explained["wrote"]["kind"]), (&json!("allowed"), &json!("Deployment")));

    let explained = ask(&client, &format!("explain/{}", &id[..8])).await.unwrap();
    assert_eq!(explained["auditID"], id, "the beginning of an Audit-ID will do");
    assert!(ask(&client, "explain/ffffffff-ffff").await.is_err_and(|status| status.code == 404));
    let pod = order.iter().find_map(|at| messages[*at]["text"].as_str().unwrap().strip_prefix("create pods/")).unwrap();
    let told = ask(&client, &format!("blame/pod/{pod}")).await.unwrap();
    let source = |path: &str| told["fields"].as_array().unwrap().iter().find(|field| field["path"] == path).map(|field| &field["source"]);
    assert_eq!(source("spec.nodeName"), Some(&json!("scheduler")), "{told:#}");
    assert_eq!(source("status.podIP"), Some(&json!("kubelet")), "{told:#}");

    let drawn = text(&client, "trace/deploy/web?format=text").await;
    for wanted in ["Client", "API server", "store", "controllers", "scheduler", "kubelet", "CRI", "─►", "-►", "═►", "·►", "is ready after"]
    {
        assert!(drawn.contains(wanted), "no {wanted:?} in\n{drawn}");
    }
    assert!(text(&client, "trace/deploy/web?format=mermaid").await.starts_with("sequenceDiagram\n"));
    assert!(text(&client, "trace/deploy/web?format=svg").await.starts_with("<svg "));
    server.components.shutdown().await;
}

#[tokio::test]
async fn a_service_is_traced_to_its_endpoints_and_a_pod_without_a_node_says_why() {
    let (server, client) = cluster().await;
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    services.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let deployments = deploy(&client, "web").await;
    ready(&deployments, "web").await;
    wait(|| async { ask(&client, "trace/svc/web").await.is_ok_and(|told| told["readyAfter"].is_i64()) }).await;
    let told = ask(&client, "trace/svc/web").await.unwrap();
    let texts: Vec<&str> = told["messages"].as_array().unwrap().iter().map(|message| message["text"].as_str().unwrap()).collect();
    let at = |text: &str| texts.iter().position(|told| told.starts_with(text)).unwrap_or_else(|| panic!("no {text} in {texts:#?}"));
    let order = [at("create services/web"), at("ADDED Service web"), at("create endpointslices/web-"), at("MODIFIED Pod web-")];
    assert!(order.is_sorted() && texts.last().unwrap().contains("EndpointSlice web-"), "{texts:#?}");

    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stuck"},
        "spec": {"nodeSelector": {"no": "such"}, "containers": [{"name": "c", "image": "i"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let told = async || text(&client, "trace/pod/stuck?format=text").await;
    wait(|| async { told().await.contains("Pending, Unschedulable: 0/1 nodes are available") }).await;
    let drawn = told().await;
    assert!(drawn.contains("ADDED Pod stuck") && drawn.contains("kube-scheduler reconciles"), "{drawn}");
    pods.delete("stuck", &DeleteParams::default().grace_period(0)).await.unwrap();
    wait(|| async { pods.get_opt("stuck").await.unwrap().is_none() }).await;
    assert!(told().await.ends_with("pods/stuck is deleted\n"), "{}", told().await);
    server.components.shutdown().await;
}

#[tokio::test]
async fn blame_tells_client_default_webhook_controller_and_server_apart() {
    let (server, client) = cluster().await;
    let hooks = Webhooks::start().await;
    hooks.on("/label", |_| patched(json!([{"op": "add", "path": "/metadata/labels", "value": {"team": "a"}}])));
    let mut entry = hooks.entry("labels", "/label");
    entry["objectSelector"] = json!({});
    entry["rules"] = json!([{"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}]);
    configure(&client, true, "labels", vec![entry]).await;
    let deployments = deploy(&client, "web").await;
    ready(&deployments, "web").await;
    let told = ask(&client, "blame/deployments.apps/web").await.unwrap();
    let of = |path: &str| {
        let field = told["fields"].as_array().unwrap().iter().find(|field| field["path"] == path);
        field.unwrap_or_else(|| panic!("no {path} in {told:#}")).clone()
    };
    let source = |path: &str| of(path)["source"].as_str().unwrap().to_owned();
    assert_eq!(source("spec.replicas"), "client");
    assert_eq!((&of("spec.replicas")["by"], &of("spec.replicas")["manager"]), (&json!("kubernetes-admin"), &json!("the-test")));
    assert_eq!(source("spec.template.spec.containers[name=web].image"), "client");
    assert_eq!(source("spec.template.spec.containers[name=web].imagePullPolicy"), "default");
    assert_eq!(source("spec.revisionHistoryLimit"), "default");
    assert_eq!(source("spec.strategy.rollingUpdate.maxSurge"), "default");
    assert_eq!(source("metadata.uid"), "server");
    let label = of("metadata.labels.team");
    assert_eq!((&label["source"], &label["by"], &label["round"]), (&json!("webhook"), &json!("labels.example.com (labels)"), &json!(0)));
    assert_eq!(label["auditID"], of("spec.replicas")["auditID"], "in one request");
    let available = of("status.availableReplicas");
    assert_eq!((&available["source"], &available["by"]), (&json!("controller"), &json!("deployment-controller")));
    assert!(available["revision"].as_u64() > of("spec.replicas")["revision"].as_u64());
    assert!(told["fields"].as_array().unwrap().iter().all(|field| field.get("boundary").is_none()), "nothing is older than what is kept");
    server.components.shutdown().await;
}

#[tokio::test]
async fn a_denial_names_the_policy_and_its_expression_and_a_refusal_the_missing_rule() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "short"}, "spec": {
        "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "size(object.data) > 0 && object.metadata.name.size() <= 5"},
            {"expression": "object.metadata.name != 'too-long'", "message": "not that one"}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "short-b"},
        "spec": {"policyName": "short", "validationActions": ["Deny"]}});
    let group = "admissionregistration.k8s.io";
    let api = |kind: &str, plural: &str| crate::admission::server::api(&client, group, "v1", kind, plural, None);
    create(&api("ValidatingAdmissionPolicy", "validatingadmissionpolicies"), policy).await.unwrap();
    create(&api("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"), binding).await.unwrap();
    create(&configmaps(&client), configmap("too-long", "x")).await.unwrap_err();
    let told = ask(&client, "explain/cm/too-long").await.unwrap();
    assert_eq!(told["verdict"], "denied");
    let hops = told["hops"].as_array().unwrap();
    let steps: Vec<&Value> = hops.iter().flat_map(|hop| hop["steps"].as_array().unwrap()).collect();
    let policy = steps.iter().find(|step| step["name"] == "short" && step["verdict"] == "denied").unwrap_or_else(|| panic!("{told:#}"));
    assert_eq!((&policy["kind"], &policy["detail"]["binding"]), (&json!("policy"), &json!("short-b")));
    let parts = json!(["object.metadata.name.size() <= 5", "object.metadata.name != 'too-long'"]);
    assert_eq!(policy["false"], parts, "the part that was false, and not the part that held; and so of every expression");
    let further = &policy["detail"]["further"][0];
    assert_eq!((&further["because"], &further["expression"]), (&json!("not that one"), &json!("object.metadata.name != 'too-long'")));
    let values = policy["detail"]["values"].as_array().unwrap_or_else(|| panic!("{policy:#}"));
    assert!(values.contains(&json!({"expression": "object.metadata.name.size()", "value": 8})), "{policy:#}");
    assert!(told["summary"].as_str().unwrap().starts_with("policy short said no in validating admission"), "{told:#}");
    assert!(steps.iter().any(|step| step["kind"] == "authenticator"), "{told:#}");
    let whole = serde_json::to_string(&told).unwrap();
    assert!(whole.contains("\"took\":"), "{told:#}");

    // Somebody without a role.
    let bob = server.client_as(User::new("bob", &["system:authenticated"]));
    let request = http::Request::post("/api/v1/namespaces/default/configmaps").header("audit-id", "bobs-request");
    let request = request.header("content-type", "application/json").body(configmap("x", "x").to_string().into_bytes()).unwrap();
    bob.request_text(request).await.unwrap_err();
    let told = ask(&client, "explain/bobs-request").await.unwrap();
    assert_eq!(told["verdict"], "denied");
    let missing = &told["authorization"]["missing"];
    assert_eq!(missing["rule"], json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}));
    assert_eq!(missing["subject"], "User bob");
    assert_eq!(ask(&client, "explain/nobodys-request").await.unwrap_err().code, 404);
}

/// Lets bob use these endpoints and read ConfigMaps, and nothing else.
async fn reader(client: &Client) {
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": [
        {"nonResourceURLs": ["/usher/v1/*"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}]});
    let api = |kind: &str, plural: &str| crate::admission::server::api(client, "rbac.authorization.k8s.io", "v1", kind, plural, None);
    create(&api("ClusterRole", "clusterroles"), role).await.unwrap();
    create(&api("ClusterRoleBinding", "clusterrolebindings"), binding).await.unwrap();
}

#[tokio::test]
async fn who_may_not_get_an_object_learns_nothing_of_its_past() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    reader(&client).await;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let secret = serde_json::from_value(json!({"metadata": {"name": "db"}, "stringData": {"password": "planted"}})).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    create(&configmaps(&client), configmap("open", "x")).await.unwrap();
    let bob = server.client_as(User::new("bob", &["system:authenticated"]));
    for path in ["history/cm/open", "blame/cm/open", "explain/cm/open", "trace/cm/open", "objects/cm/open"] {
        ask(&bob, path).await.unwrap_or_else(|status| panic!("{path}: {}", status.message));
    }
    let id = ask(&client, "explain/secret/db").await.unwrap()["auditID"].as_str().unwrap().to_owned();
    let hidden = ["history/secret/db", "blame/secret/db", "explain/secret/db", "trace/secret/db", "objects/secret/db", "objects/secrets"];
    for path in hidden.into_iter().map(str::to_owned).chain([format!("explain/{id}"), "objects/cm".into()]) {
        let refused = ask(&bob, &path).await.unwrap_err();
        assert_eq!((refused.code, refused.reason.as_str()), (403, "Forbidden"), "{path}");
    }
    // The administrator may, and still sees values only where they are asked for.
    for path in ["history/secret/db", "blame/secret/db", "explain/secret/db"] {
        let told = ask(&client, path).await.unwrap().to_string();
        assert!(!told.contains("cGxhbnRlZA") && !told.contains("planted"), "{path}: {told}");
    }
    assert!(ask(&client, "history/secret/db?showSecrets=true").await.unwrap().to_string().contains("cGxhbnRlZA"));
    assert!(ask(&client, "objects/secret/db").await.unwrap().to_string().contains("cGxhbnRlZA"), "as kubectl get would show it");
    // The same of a Secret that another object holds.
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held"}, "data": {"s": "kind: Secret\nstringData: {password: planted}\n"}});
    create(&configmaps(&client), serde_json::from_value(held).unwrap()).await.unwrap();
    for path in ["history/cm/held", "blame/cm/held"] {
        let told = ask(&client, path).await.unwrap().to_string();
        assert!(!told.contains("planted") && told.contains("<redacted #"), "{path}: {told}");
        assert!(ask(&client, &format!("{path}?showSecrets=true")).await.unwrap().to_string().contains("planted"));
    }
}

#[tokio::test]
async fn every_revision_is_told_with_its_author_and_can_be_had_back() {
    let server = crate::builder().start().await.unwrap();
    let admin = server.client();
    reader(&admin).await;
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "default");
    let first = create(&configmaps(&admin), configmap("settings", "x")).await.unwrap();
    let jane = server.client_as(User::new("jane", &["system:masters", "system:authenticated"]));
    let hers: Api<ConfigMap> = Api::namespaced(jane, "default");
    let patch = Patch::Merge(json!({"data": {"k": "w", "new": "1"}}));
    let second =
        hers.patch("settings", &PatchParams { field_manager: Some("edit".into()), ..PatchParams::default() }, &patch).await.unwrap();
    maps.delete("settings", &DeleteParams::default()).await.unwrap();
    let told = ask(&admin, "history/configmap/settings").await.unwrap();
    let revisions = told["revisions"].as_array().unwrap();
    let operations: Vec<_> = revisions.iter().map(|kept| (kept["operation"].as_str().unwrap(), kept["user"].as_str().unwrap())).collect();
    assert_eq!(operations, [("created", "kubernetes-admin"), ("updated", "jane"), ("deleted", "kubernetes-admin")]);
    assert_eq!(ask(&admin, "history/configmap/settings?limit=1").await.unwrap()["leftOut"], 2, "what is kept and not told is counted");
    assert_eq!((&revisions[1]["manager"], &revisions[1]["verb"]), (&json!("edit"), &json!("patch")));
    assert_eq!(revisions[1]["changes"], json!([{"path": "data.k", "from": "v", "to": "w"}, {"path": "data.new", "to": "1"}]));

    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let then = ask(&admin, &format!("objects/cm/settings?at={version}")).await.unwrap();
    assert_eq!((&then["data"], &then["metadata"]["resourceVersion"]), (&json!({"k": "v"}), &json!(version)));
    let all = ask(&admin, &format!("objects/cm?at={}", second.resource_version().unwrap())).await.unwrap();
    assert!(all["items"].as_array().unwrap().iter().any(|item| item["data"] == json!({"k": "w", "new": "1"})), "{all:#}");
    let time = revisions[1]["time"].as_str().unwrap();
    assert_eq!(ask(&admin, &format!("objects/cm/settings?at={time}")).await.unwrap()["data"]["k"], "w");
    assert_eq!(ask(&admin, "objects/cm/settings").await.unwrap_err().code, 404, "it is gone now");
    assert_eq!(ask(&admin, "objects/cm/settings?at=yesterday").await.unwrap_err().code, 400);
    // One that a client would be asked to try again, it would ask for ever.
    assert_eq!(ask(&admin, "objects/cm/settings?at=99999999").await.unwrap_err().code, 400);
    assert_eq!(ask(&admin, "objects/cm?at=99999999").await.unwrap_err().code, 400);
    assert_eq!(ask(&admin, "history/nonsense/settings").await.unwrap_err().code, 404);
}

#[tokio::test]
async fn a_trace_is_adopted_handed_on_to_webhooks_and_exported() {
    // A collector that keeps what it is sent.
    let collected: Arc<Mutex<Vec<Value>>> = Arc::default();
    let seen = collected.clone();
    let collector = axum::Router::new().fallback(move |body: bytes::Bytes| {
        let seen = seen.clone();
        async move {
            seen.lock().push(serde_json::from_slice(&body).unwrap());
            "{}"
        }
    });
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut builder = crate::builder();
    builder.audit.otlp_endpoint = Some(format!("http://{}", socket.local_addr().unwrap()));
    tokio::spawn(async move { axum::serve(socket, collector).await });
    let server = builder.start().await.unwrap();
    let client = server.client();
    let hooks = Webhooks::start().await;
    hooks.on("/allow", |_| crate::admission::server::Reply::Response(json!({"allowed": true})));
    configure(&client, false, "traced", vec![hooks.entry("traced", "/allow")]).await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let request = http::Request::post("/api/v1/namespaces/default/configmaps").header("content-type", "application/json");
    let request = request.header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01")).header("audit-id", "traced-request");
    client.request_text(request.body(configmap("x", "traced").to_string().into_bytes()).unwrap()).await.unwrap();
    assert_eq!(hooks.count("/allow"), 1);
    let spans = || -> Vec<Value> {
        let documents = collected.lock();
        let found =
            documents.iter().flat_map(|document| document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone());
        found.filter(|span| span["traceId"] == trace).collect()
    };
    wait(|| async { !spans().is_empty() }).await;
    let spans = spans();
    let root = spans.iter().find(|span| span["parentSpanId"] == "00f067aa0ba902b7").unwrap();
    assert_eq!((&root["name"], &root["kind"]), (&json!("create configmaps"), &json!(2)));
    let hook = spans.iter().find(|span| span["name"] == "validate traced.example.com").unwrap();
    assert_eq!((&hook["parentSpanId"], &hook["kind"]), (&root["spanId"], &json!(3)));
    let handed_on = hooks.headers.lock().iter().find_map(|headers| headers.get("traceparent").cloned()).unwrap();
    assert_eq!(handed_on, format!("00-{trace}-{}-01", root["spanId"].as_str().unwrap()).as_str());
    assert_eq!(ask(&client, "explain/traced-request").await.unwrap()["traceID"], trace);
}

#[tokio::test]
async fn a_trace_tells_what_was_refused_also_of_an_object_that_never_was() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let bob = server.client_as(User::new("bob", &["system:authenticated"]));
    let texts = |told: &Value| {
        let messages = told["messages"].as_array().unwrap().iter().filter(|message| message["arrow"] == "call");
        messages.map(|message| (message["text"].as_str().unwrap().to_owned(), message["refused"] == true)).collect::<Vec<_>>()
    };
    // A create that authorisation refuses has no name: its body is not read. An apply has one.
    let apply = async || {
        let wish = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "wish"}});
        configmaps(&bob).patch("wish", &PatchParams::apply("bob"), &Patch::Apply(wish)).await.unwrap_err();
    };
    assert_eq!(ask(&client, "trace/cm/wish").await.unwrap_err().code, 404);
    // What is not there cannot be found to be deleted: that is no refusal to tell of.
    configmaps(&client).delete("wish", &DeleteParams::default()).await.unwrap_err();
    assert_eq!(ask(&client, "trace/cm/wish").await.unwrap_err().code, 404);
    apply().await;
    let told = ask(&client, "trace/cm/wish").await.unwrap();
    let found = texts(&told);
    assert_eq!(found.len(), 1, "{told}");
    assert!(found[0].0.starts_with("patch configmaps/wish ✗ 403 ") && found[0].1, "{told}");
    assert!(text(&client, "trace/cm/wish?format=text").await.contains("configmaps/wish was refused"));

    create(&configmaps(&client), configmap("wish", "x")).await.unwrap();
    configmaps(&client).delete("wish", &DeleteParams::default()).await.unwrap();
    apply().await;
    let told = ask(&client, "trace/cm/wish").await.unwrap();
    assert_eq!(texts(&told).iter().map(|(_, refused)| *refused).collect::<Vec<_>>(), [false, true], "{told}");
    assert_eq!(told["deleted"], true);
}

#[tokio::test]
async fn a_conflict_is_part_of_a_trace_and_what_holds_an_object_up_is_its_end() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    let apply = async |manager: &str, value: &str| {
        let wish = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": {"k": value}});
        configmaps(&client).patch("shared", &PatchParams::apply(manager), &Patch::Apply(wish)).await
    };
    apply("alice", "1").await.unwrap();
    apply("bob", "2").await.unwrap_err();
    let drawn = text(&client, "trace/cm/shared?all=true&format=text").await;
    assert!(drawn.contains("patch configmaps/shared ✗ 409 Apply failed with 1 conflict"), "{drawn}");
    let hold = Patch::Merge(json!({"metadata": {"finalizers": ["example.com/hold"]}}));
    configmaps(&client).patch("shared", &PatchParams::default(), &hold).await.unwrap();
    configmaps(&client).delete("shared", &DeleteParams::default()).await.unwrap();
    let drawn = text(&client, "trace/cm/shared?format=text").await;
    assert!(drawn.ends_with("configmaps/shared is not ready: it is being deleted, and waits for example.com/hold\n"), "{drawn}");
    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    configmaps(&client).patch("shared", &PatchParams::default(), &release).await.unwrap();
    let drawn = text(&client, "trace/cm/shared?all=true&format=text").await;
    assert!(drawn.contains(": ConfigMap shared removed\n") && drawn.ends_with("configmaps/shared is deleted\n"), "{drawn}");
}

#[tokio::test]
async fn a_rollout_that_is_refused_says_why_and_not_a_hundred_times() {
    let (server, client) = cluster().await;
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), "default");
    let none = serde_json::from_value(json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})).unwrap();
    quotas.create(&PostParams::default(), &none).await.unwrap();
    let deployments = deploy(&client, "web").await;
    wait(|| async { ask(&client, "trace/deploy/web").await.is_ok_and(|told| told["leftOut"].as_u64() > Some(2)) }).await;
    let told = ask(&client, "trace/deploy/web").await.unwrap();
    let refused = |told: &Value| told["messages"].as_array().unwrap().iter().filter(|message| message["refused"] == true).count();
    assert_eq!(refused(&told), 3, "{told:#}");
    wait(|| async { ask(&client, "trace/deploy/web").await.unwrap()["standing"].as_str().unwrap_or_default().contains("exceeded quota") })
        .await;
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    ready(&deployments, "web").await;
    let told = ask(&client, "trace/deploy/web").await.unwrap();
    assert!(told["readyAfter"].is_i64() && told["standing"].is_null(), "{told:#}");
    assert_eq!(refused(&told), 3, "what was refused on the way to Ready is part of it: {told:#}");
    server.components.shutdown().await;
}

#[tokio::test]
async fn what_was_removed_with_others_or_evicted_says_so() {
    let server = crate::builder().start().await.unwrap();
    let client = server.client();
    for name in ["one", "two"] {
        let mut object = configmap("x", name);
        object["metadata"] = json!({"name": name, "labels": {"group": "both"}});
        create(&configmaps(&client), object).await.unwrap();
    }
    let both = ListParams::default().labels("group=both");
    configmaps(&client).delete_collection(&DeleteParams::default(), &both).await.unwrap();
    for name in ["one", "two"] {
        let told = ask(&client, &format!("explain/cm/{name}")).await.unwrap();
        assert_eq!(told["verb"], "deletecollection", "{told:#}");
        let drawn = text(&client, &format!("trace/cm/{name}?format=text")).await;
        assert!(drawn.contains(&format!("deletecollection configmaps/{name}\n")), "{drawn}");
        assert!(drawn.contains(&format!("ConfigMap {name} removed\n")), "{drawn}");
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "default", "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "i"}]}});
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}})).unwrap();
    let _ = accounts.create(&PostParams::default(), &account).await;
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    pods.evict("p", &Default::default()).await.unwrap();
    let drawn = text(&client, "trace/pod/p?format=text").await;
    assert!(drawn.lines().nth(1).is_some_and(|first| first.ends_with("create pods/p/eviction")), "{drawn}");
}
