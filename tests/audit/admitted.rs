//! What admission leaves in an event: webhooks that change, refuse or cannot be reached, policies, Pod security; and requests that take
//! too long or panic.

use std::time::Duration;

use axum::body::Body;
use http::Method;
use serde_json::{Value, json};

use super::{Recorded, admin, expected, request, shape};
use crate::admission::server::{Reply, Webhooks, configmap, configure};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn created(name: &str, members: Value) -> Value {
    let mut event = json!({"verb": "create", "requestURI": MAPS, "requestObject": "ConfigMap", "responseObject": "ConfigMap",
        "objectRef": {"resource": "configmaps", "namespace": "default", "name": name, "apiVersion": "v1"}, "responseStatus": {"metadata": {}, "code": 201}});
    event.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    expected(event)
}

#[tokio::test]
async fn webhooks_are_told_in_annotations() {
    let recorded = Recorded::everything().await;
    let hooks = Webhooks::start().await;
    hooks.on("/mutate", |_| {
        let patch = json!([{"op": "add", "path": "/metadata/labels/mutated", "value": "yes"}]);
        let Reply::Response(mut answer) = crate::admission::server::patched(patch) else { unreachable!() };
        answer["auditAnnotations"] = json!({"why": "because"});
        Reply::Response(answer)
    });
    hooks.on("/deny", |_| Reply::Response(json!({"allowed": false, "status": {"message": "nope, not today", "code": 403}})));
    let client = recorded.server.client();
    configure(&client, true, "mmutate", vec![hooks.entry("mmutate", "/mutate")]).await;
    configure(&client, false, "vdeny", vec![hooks.entry("vdeny", "/deny")]).await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (name, policy) in [("vignore", "Ignore"), ("vrefused", "Fail")] {
        let mut entry = hooks.entry(name, "/x");
        entry["failurePolicy"] = json!(policy);
        entry["clientConfig"]["url"] = json!(format!("https://{closed}/x"));
        configure(&client, false, name, vec![entry]).await;
    }
    let ask = async |name: &str, label: &str| shape(recorded.ask(Method::POST, MAPS, Some(configmap(name, label))).await);
    let mutated = created(
        "wmut",
        json!({"annotations": {"mmutate.example.com/why": "because",
        "mutation.webhook.admission.k8s.io/round_0_index_0": "{\"configuration\":\"mmutate\",\"webhook\":\"mmutate.example.com\",\"mutated\":true}",
        "patch.webhook.admission.k8s.io/round_0_index_0": "{\"configuration\":\"mmutate\",\"webhook\":\"mmutate.example.com\",\"patch\":[{\"op\":\"add\",\"path\":\"/metadata/labels/mutated\",\"value\":\"yes\"}],\"patchType\":\"JSONPatch\"}"}}),
    );
    assert_eq!(ask("wmut", "mmutate").await, mutated);
    // A patch that changes nothing is told as a change all the same: a real server compares times more finely than a patch leaves them.
    let mut same = configmap("wsame", "mmutate");
    same["metadata"]["labels"]["mutated"] = json!("yes");
    let event = recorded.ask(Method::POST, MAPS, Some(same)).await;
    let annotation = event["annotations"]["mutation.webhook.admission.k8s.io/round_0_index_0"].as_str().unwrap();
    assert!(annotation.ends_with("\"mutated\":true}"), "{event}");
    let denied = created(
        "w",
        json!({"responseObject": "Status", "responseStatus": {"metadata": {}, "status": "Failure", "code": 403,
        "message": "admission webhook \"vdeny.example.com\" denied the request: nope, not today"}}),
    );
    assert_eq!(ask("w", "vdeny").await, denied);
    let open = ask("wign", "vignore").await;
    let failed_open: Vec<_> = open["annotations"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, _)| key.starts_with("failed-open.validating.webhook.admission.k8s.io/round_0_index_"))
        .collect();
    assert_eq!(failed_open.iter().map(|(_, value)| value.as_str().unwrap()).collect::<Vec<_>>(), ["vignore.example.com"]);
    let closed = ask("w", "vrefused").await;
    let status = &closed["responseStatus"];
    assert_eq!((status["code"].as_u64(), status["reason"].as_str()), (Some(500), Some("InternalError")));
    let text = "failed calling webhook \"vrefused.example.com\": failed to call webhook: Post ";
    assert!(status["message"].as_str().unwrap().starts_with(&format!("Internal error occurred: {text}")), "{status}");
    assert!(status["details"]["causes"][0]["message"].as_str().unwrap().starts_with(text), "{status}");
}

#[tokio::test]
async fn policies_and_pod_security_are_told_in_annotations() {
    let recorded = Recorded::everything().await;
    let base = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "v3"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "object.metadata.name != 'wv3'", "messageExpression": "'bad name ' + object.metadata.name"}],
        "auditAnnotations": [{"key": "nm", "valueExpression": "'name=' + object.metadata.name"}]}});
    recorded.make(&format!("{base}/validatingadmissionpolicies"), policy).await;
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "v3-b"},
        "spec": {"policyName": "v3", "validationActions": ["Warn", "Audit"]}});
    recorded.make(&format!("{base}/validatingadmissionpolicybindings"), binding).await;
    let event = recorded.ask(Method::POST, MAPS, Some(configmap("wv3", "none"))).await;
    let wanted = created(
        "wv3",
        json!({"annotations": {"v3/nm": "name=wv3",
        "validation.policy.admission.k8s.io/validation_failure": "[{\"message\":\"bad name wv3\",\"policy\":\"v3\",\"binding\":\"v3-b\",\"expressionIndex\":0,\"validationActions\":[\"Warn\",\"Audit\"]}]"}}),
    );
    assert_eq!(shape(event), wanted);

    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "q", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    recorded.make("/api/v1/namespaces", namespace).await;
    recorded
        .make(
            "/api/v1/namespaces/q/serviceaccounts",
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}),
        )
        .await;
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}});
    let event = recorded.ask(Method::POST, "/api/v1/namespaces/q/pods", Some(pod)).await;
    assert_eq!(event["responseStatus"]["details"], json!({"name": "x", "kind": "pods"}), "{event}");
    assert_eq!(event["annotations"]["pod-security.kubernetes.io/enforce-policy"], "restricted:latest");
    // Where everything is allowed that is told of every update, also of one that Pod security does not look at.
    let open = "/api/v1/namespaces/default";
    recorded.make(&format!("{open}/serviceaccounts"), json!({"metadata": {"name": "default"}})).await;
    let free = json!({"metadata": {"name": "free"}, "spec": {"containers": [{"name": "c", "image": "busybox"}]}});
    recorded.make(&format!("{open}/pods"), free).await;
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let labelled = recorded.ask(Method::PATCH, &format!("{open}/pods/free"), Some(labels)).await;
    assert_eq!(labelled["annotations"]["pod-security.kubernetes.io/enforce-policy"], "privileged:latest", "{labelled}");
    // The body as the server understood it: with its defaults.
    assert_eq!(event["requestObject"]["spec"]["containers"][0]["terminationMessagePolicy"], "File");
}

#[tokio::test]
async fn a_request_that_takes_too_long_tells_where_its_time_went() {
    let recorded = Recorded::everything().await;
    let hooks = Webhooks::start().await;
    hooks.on("/slow", |_| Reply::Hang(Duration::from_secs(5)));
    hooks.on("/slowish", |review| {
        std::thread::sleep(Duration::from_millis(600));
        Reply::Response(json!({"uid": review["request"]["uid"], "allowed": true}))
    });
    let client = recorded.server.client();
    configure(&client, false, "vslow", vec![hooks.entry("vslow", "/slow")]).await;
    configure(&client, false, "vslowish", vec![hooks.entry("vslowish", "/slowish")]).await;
    let event = recorded.ask(Method::POST, &format!("{MAPS}?timeout=600ms"), Some(configmap("w", "vslow"))).await;
    let status = json!({"metadata": {}, "status": "Failure", "reason": "Timeout", "details": {}, "code": 504,
        "message": "Timeout: request did not complete within requested timeout - context deadline exceeded"});
    assert_eq!((&event["responseStatus"], &event["objectRef"]["name"]), (&status, &json!("w")));
    let latency = |event: &Value, key: &str| event["annotations"][format!("apiserver.latency.k8s.io/{key}")].as_str().map(str::to_owned);
    assert!(latency(&event, "total").unwrap().ends_with("ms") && latency(&event, "authorization").is_some(), "{event}");
    let event = recorded.ask(Method::POST, MAPS, Some(configmap("w", "vslowish"))).await;
    assert!(latency(&event, "validating-webhook").is_some() && latency(&event, "etcd").is_some(), "{event}");
    let quick = recorded.ask(Method::GET, &format!("{MAPS}/w"), None).await;
    let at = |key: &str| quick[key].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let took = at("stageTimestamp").duration_since(at("requestReceivedTimestamp"));
    assert!(latency(&quick, "total").is_none() || took.as_millis() >= 500, "{quick}");
}

#[tokio::test]
async fn a_panic_is_recorded_as_one_and_the_client_gets_a_500() {
    let recorded = Recorded::everything().await;
    let mut asked = request(Method::POST, MAPS, &admin(), None);
    // A body that breaks whoever reads it.
    *asked.body_mut() = Body::from_stream(futures::stream::poll_fn(|_| -> std::task::Poll<Option<Result<bytes::Bytes, std::io::Error>>> {
        panic!("a bug in the server")
    }));
    let (code, id) = super::send(&recorded.server, asked).await;
    assert_eq!(code, 500);
    let event = recorded.of(&id).await.pop().unwrap();
    assert_eq!(event["stage"], "Panic");
    let status = json!({"metadata": {}, "status": "Failure", "message": "APIServer panic'd: a bug in the server", "reason": "InternalError", "code": 500});
    assert_eq!(event["responseStatus"], status);
}
