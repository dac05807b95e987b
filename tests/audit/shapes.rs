//! Every sort of event that a real server writes: what is sent, and the event that must come of it, member by member.

use axum::body::Body;
use http::{HeaderValue, Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use usher::request::User;

use super::{Recorded, admin, expected, request, shape};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": "v"}})
}

fn reference(name: &str) -> Value {
    let mut reference = json!({"resource": "configmaps", "namespace": "default", "apiVersion": "v1"});
    if !name.is_empty() {
        reference["name"] = json!(name);
    }
    reference
}

fn ok(code: u16) -> Value {
    json!({"metadata": {}, "code": code})
}

fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
    request
}

fn asked(method: Method, uri: &str, body: Option<Value>) -> Request<Body> {
    request(method, uri, &admin(), body)
}

#[tokio::test]
async fn verbs_on_an_object() {
    let recorded = Recorded::everything().await;
    recorded.make(MAPS, map("c1")).await;
    let one = format!("{MAPS}/c1");
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let dry = format!("{MAPS}?dryRun=All");
    let patch = json!({"metadata": {"labels": {"vap": "v3"}}});
    let many = format!("{MAPS}?labelSelector=vap%3Dv3");
    let cases = [
        (
            asked(Method::GET, &one, None),
            json!({"verb": "get", "requestURI": one, "objectRef": reference("c1"), "responseStatus": ok(200), "responseObject": "ConfigMap"}),
        ),
        (
            with(asked(Method::GET, "/api/v1/configmaps?limit=500", None), "accept", table),
            json!({"verb": "list", "requestURI": "/api/v1/configmaps?limit=500", "objectRef": {"resource": "configmaps", "apiVersion": "v1"}, "responseStatus": ok(200), "responseObject": "Table"}),
        ),
        (
            with(asked(Method::POST, &dry, Some(map("tt"))), "accept", table),
            json!({"verb": "create", "requestURI": dry, "objectRef": reference("tt"), "responseStatus": ok(201), "requestObject": "ConfigMap", "responseObject": "Table"}),
        ),
        (
            asked(Method::PUT, &one, Some(map("c1"))),
            json!({"verb": "update", "requestURI": one, "objectRef": reference("c1"), "responseStatus": ok(200), "requestObject": "ConfigMap", "responseObject": "ConfigMap"}),
        ),
        (
            asked(Method::PATCH, &one, Some(patch.clone())),
            json!({"verb": "patch", "requestURI": one, "objectRef": reference("c1"), "responseStatus": ok(200), "requestObject": patch, "responseObject": "ConfigMap"}),
        ),
        (
            asked(Method::DELETE, &one, Some(json!({"propagationPolicy": "Foreground"}))),
            json!({"verb": "delete", "requestURI": one, "objectRef": reference("c1"), "responseStatus": ok(200), "requestObject": "DeleteOptions", "responseObject": "ConfigMap"}),
        ),
        (
            asked(Method::DELETE, &many, None),
            json!({"verb": "deletecollection", "requestURI": many, "objectRef": reference(""), "responseStatus": ok(200), "responseObject": "ConfigMapList"}),
        ),
    ];
    for (request, members) in cases {
        let events = recorded.send(request).await;
        let [received, complete] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(shape(complete.clone()), expected(members.clone()));
        if complete["verb"] == "delete" {
            assert_eq!(
                complete["requestObject"],
                json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal", "propagationPolicy": "Foreground"})
            );
        }
        // Of its arrival nothing is known yet but who, from where and what the path says.
        let mut arrival = expected(json!({"stage": "RequestReceived", "annotations": null}));
        for key in ["verb", "requestURI", "objectRef"] {
            arrival[key] = members[key].clone();
        }
        if complete["verb"] == "create" {
            arrival["objectRef"].as_object_mut().unwrap().remove("name");
        }
        assert_eq!(received["stageTimestamp"], received["requestReceivedTimestamp"]);
        assert_eq!(shape(received.clone()), arrival);
    }
}

#[tokio::test]
async fn refusals() {
    let recorded = Recorded::everything().await;
    recorded.make(MAPS, map("c1")).await;
    let one = format!("{MAPS}/c1");
    let anonymous = User::new("system:anonymous", &["system:unauthenticated"]);
    let nobody = json!({"username": "system:anonymous", "groups": ["system:unauthenticated"]});
    let forbid = json!({"authorization.k8s.io/decision": "forbid", "authorization.k8s.io/reason": ""});
    let failure = |code: u16, reason: &str, message: &str, details: Value| {
        let mut status =
            json!({"metadata": {}, "status": "Failure", "message": message, "reason": reason, "details": details, "code": code});
        status.as_object_mut().unwrap().retain(|_, value| !value.is_null() && value != "");
        status
    };
    let pods = json!({"resource": "pods", "namespace": "default", "apiVersion": "v1"});
    let list = "/api/v1/namespaces/default/pods";
    let cannot = |user: &str| {
        format!("pods is forbidden: User \"{user}\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"")
    };
    let mut stale = map("c1");
    stale["metadata"]["resourceVersion"] = json!("1");
    let mut stale_reference = reference("c1");
    stale_reference["resourceVersion"] = json!("1");
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"x": "y"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let mismatch = "Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`";
    let mut broken = asked(Method::POST, MAPS, None);
    *broken.body_mut() = Body::from("{\"apiVersion\":\"v1\",");
    let unreadable = "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({\"apiVersion\":\"v1\",)";
    let mut unknown = asked(Method::GET, list, None);
    unknown.extensions_mut().clear();
    let unknown = with(unknown, "authorization", "Bearer nobody-knows-it");
    let impersonated = with(asked(Method::GET, list, None), "impersonate-user", "alice");
    let cases = [
        (
            unknown,
            json!({"stage": "ResponseStarted", "verb": "list", "requestURI": list, "user": {}, "objectRef": pods, "annotations": null,
            "responseStatus": failure(401, "Unauthorized", "Unauthorized", Value::Null), "responseObject": "Status"}),
        ),
        (
            request(Method::GET, list, &anonymous, None),
            json!({"verb": "list", "requestURI": list, "user": nobody, "objectRef": pods, "annotations": forbid,
            "responseStatus": failure(403, "Forbidden", &cannot("system:anonymous"), json!({"kind": "pods"})), "responseObject": "Status"}),
        ),
        (
            request(Method::GET, "/", &anonymous, None),
            json!({"verb": "get", "requestURI": "/", "user": nobody, "annotations": forbid,
            "responseStatus": failure(403, "Forbidden", "forbidden: User \"system:anonymous\" cannot get path \"/\"", json!({})), "responseObject": "Status"}),
        ),
        (
            with(impersonated, "impersonate-group", "g1"),
            json!({"verb": "list", "requestURI": list, "objectRef": pods, "annotations": forbid,
            "impersonatedUser": {"username": "alice", "groups": ["g1", "system:authenticated"]}, "authenticationMetadata": {"impersonationConstraint": "impersonate:user-info"},
            "responseStatus": failure(403, "Forbidden", &cannot("alice"), json!({"kind": "pods"})), "responseObject": "Status"}),
        ),
        (
            asked(Method::PUT, &one, Some(stale)),
            json!({"verb": "update", "requestURI": one, "objectRef": stale_reference, "requestObject": "ConfigMap", "responseObject": "Status",
            "responseStatus": failure(409, "Conflict", "Operation cannot be fulfilled on configmaps \"c1\": the object has been modified; please apply your changes to the latest version and try again", json!({"name": "c1", "kind": "configmaps"}))}),
        ),
        (
            asked(Method::POST, "/apis/apps/v1/namespaces/default/deployments", Some(deployment)),
            json!({"verb": "create", "requestURI": "/apis/apps/v1/namespaces/default/deployments",
            "objectRef": {"resource": "deployments", "namespace": "default", "name": "d", "apiGroup": "apps", "apiVersion": "v1"}, "requestObject": "Deployment", "responseObject": "Status",
            "responseStatus": failure(422, "Invalid", &format!("Deployment.apps \"d\" is invalid: spec.template.metadata.labels: {mismatch}"),
                json!({"name": "d", "group": "apps", "kind": "Deployment", "causes": [{"reason": "FieldValueInvalid", "message": mismatch, "field": "spec.template.metadata.labels"}]}))}),
        ),
        (
            broken,
            json!({"verb": "create", "requestURI": MAPS, "objectRef": reference(""), "responseStatus": failure(400, "BadRequest", unreadable, Value::Null), "responseObject": "Status"}),
        ),
        (asked(Method::GET, "/nope", None), json!({"verb": "get", "requestURI": "/nope", "responseStatus": ok(404)})),
    ];
    for (request, members) in cases {
        let events = recorded.send(request).await;
        assert_eq!(shape(events.last().unwrap().clone()), expected(members.clone()));
        // A client that nobody knows leaves this one event and no other.
        assert_eq!(events.len(), if members["stage"] == "ResponseStarted" { 1 } else { 2 });
    }
}

#[tokio::test]
async fn subresources_reviews_and_paths() {
    let recorded = Recorded::everything().await;
    let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"a": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    recorded
        .make(
            "/api/v1/namespaces/default/serviceaccounts",
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}),
        )
        .await;
    recorded.make("/api/v1/namespaces/default/pods", pod("p1")).await;
    recorded
        .make(
            "/api/v1/namespaces/default/resourcequotas",
            json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "rq"}, "spec": {"hard": {"pods": "9"}}}),
        )
        .await;
    recorded.make("/apis/apps/v1/namespaces/default/deployments", json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d1"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})).await;
    let about = |resource: &str, group: &str, name: &str, subresource: &str| {
        let mut reference = json!({"resource": resource, "namespace": "default", "name": name, "apiGroup": group, "apiVersion": "v1", "subresource": subresource});
        reference.as_object_mut().unwrap().retain(|_, value| value != "");
        reference
    };
    let status = json!({"status": {"hard": {"pods": "9"}, "used": {"pods": "1"}}});
    let quota = "/api/v1/namespaces/default/resourcequotas/rq/status";
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p1"}, "target": {"kind": "Node", "name": "n1"}});
    let scale = "/apis/apps/v1/namespaces/default/deployments/d1/scale";
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let cases = [
        (
            asked(Method::PATCH, quota, Some(status.clone())),
            json!({"verb": "patch", "requestURI": quota, "objectRef": about("resourcequotas", "", "rq", "status"),
            "responseStatus": ok(200), "requestObject": status, "responseObject": "ResourceQuota"}),
        ),
        (
            asked(Method::POST, "/api/v1/namespaces/default/pods/p1/binding", Some(binding)),
            json!({"verb": "create", "requestURI": "/api/v1/namespaces/default/pods/p1/binding",
            "objectRef": about("pods", "", "p1", "binding"), "responseStatus": {"metadata": {}, "status": "Success", "code": 201}, "requestObject": "Binding", "responseObject": "Status"}),
        ),
        (
            asked(Method::GET, scale, None),
            json!({"verb": "get", "requestURI": scale, "objectRef": about("deployments", "apps", "d1", "scale"), "responseStatus": ok(200), "responseObject": "Scale"}),
        ),
        (
            with(asked(Method::GET, "/api", None), "accept", aggregated),
            json!({"verb": "get", "requestURI": "/api", "responseStatus": ok(200), "responseObject": "APIGroupDiscoveryList"}),
        ),
        (
            asked(Method::GET, "/api/v1/componentstatuses?limit=500", None),
            json!({"verb": "list", "requestURI": "/api/v1/componentstatuses?limit=500",
            "objectRef": {"resource": "componentstatuses", "apiVersion": "v1"}, "responseStatus": ok(200), "responseObject": "ComponentStatusList", "annotations": {"k8s.io/deprecated": "true"}}),
        ),
    ];
    for (request, members) in cases {
        let events = recorded.send(request).await;
        assert_eq!(shape(events.last().unwrap().clone()), expected(members));
    }

    let bob = User::new("bob", &["system:authenticated"]);
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let event = recorded.send(request(Method::POST, path, &bob, Some(review))).await.pop().unwrap();
    let why =
        "RBAC: allowed by ClusterRoleBinding \"system:basic-user\" of ClusterRole \"system:basic-user\" to Group \"system:authenticated\"";
    let wanted = json!({"verb": "create", "requestURI": path, "user": {"username": "bob", "groups": ["system:authenticated"]},
        "objectRef": {"resource": "selfsubjectaccessreviews", "apiGroup": "authorization.k8s.io", "apiVersion": "v1"}, "responseStatus": ok(201),
        "requestObject": "SelfSubjectAccessReview", "responseObject": "SelfSubjectAccessReview", "annotations": {"authorization.k8s.io/reason": why}});
    assert_eq!(shape(event), expected(wanted));

    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}});
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let answer = recorded.server.router().oneshot(asked(Method::POST, path, Some(token))).await.unwrap();
    let id = answer.headers()["audit-id"].to_str().unwrap().to_owned();
    let answer: Value = serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let event = recorded.of(&id).await.pop().unwrap();
    assert_eq!((&event["responseStatus"], &event["responseObject"]["status"]["token"]), (&ok(201), &json!("[redacted]")));
    let credential = &event["annotations"]["authentication.kubernetes.io/issued-credential-id"];
    assert!(credential.as_str().unwrap().starts_with("JTI="));
    assert_eq!(event["objectRef"], about("serviceaccounts", "", "default", "token"));

    // The token in use: the event says which one it was, and not what it is.
    let list = "/api/v1/namespaces/default/pods";
    let mut used = asked(Method::GET, list, None);
    used.extensions_mut().clear();
    let used = with(used, "authorization", &format!("Bearer {}", answer["status"]["token"].as_str().unwrap()));
    let event = shape(recorded.send(used).await.pop().unwrap());
    assert_eq!(event["user"]["username"], "system:serviceaccount:default:default");
    assert_eq!(event["user"]["groups"], json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]));
    assert_eq!(event["user"]["extra"]["authentication.kubernetes.io/credential-id"], json!([credential]));
    assert_eq!((&event["responseStatus"]["code"], &event["annotations"]["authorization.k8s.io/decision"]), (&json!(403), &json!("forbid")));

    // An eviction that a budget forbids.
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "pdb"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "p1"}}}});
    recorded.make("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget).await;
    let counted =
        json!({"status": {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
    recorded.ask(Method::PATCH, "/apis/policy/v1/namespaces/default/poddisruptionbudgets/pdb/status", Some(counted)).await;
    recorded
        .ask(
            Method::PATCH,
            "/api/v1/namespaces/default/pods/p1/status",
            Some(json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})),
        )
        .await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p1"}});
    let path = "/api/v1/namespaces/default/pods/p1/eviction";
    let wanted = json!({"verb": "create", "requestURI": path, "objectRef": about("pods", "", "p1", "eviction"), "requestObject": "Eviction", "responseObject": "Status",
        "responseStatus": {"metadata": {}, "status": "Failure", "message": "Cannot evict pod as it would violate the pod's disruption budget.", "reason": "TooManyRequests",
            "details": {"causes": [{"reason": "DisruptionBudget", "message": "The disruption budget pdb needs 1 healthy pods and has 1 currently"}]}, "code": 429}});
    assert_eq!(shape(recorded.ask(Method::POST, path, Some(eviction)).await), expected(wanted));

    // Meant to take long: told when it starts and when it ends, also where it fails.
    let events = recorded.send(asked(Method::POST, "/api/v1/namespaces/default/pods/p1/exec?command=ls", None)).await;
    let stages: Vec<_> = events.iter().map(|event| event["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
    let started = shape(events[1].clone());
    assert_eq!((&started["responseStatus"]["status"], &started["objectRef"]), (&json!("Failure"), &about("pods", "", "p1", "exec")));
    assert_eq!(started["responseObject"], "Status");
}

#[tokio::test]
async fn an_apply_a_custom_object_and_a_watch() {
    let recorded = Recorded::everything().await;
    let uri = format!("{MAPS}/a1?fieldManager=m1");
    let mut apply = asked(Method::PATCH, &uri, None);
    *apply.body_mut() = Body::from("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a1}\ndata: {k: v}\n");
    let event = recorded.send(with(apply, "content-type", "application/apply-patch+yaml")).await.pop().unwrap();
    assert_eq!(event["requestObject"], json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a1"}, "data": {"k": "v"}}));
    let wanted = json!({"verb": "patch", "requestURI": uri, "objectRef": reference("a1"), "responseStatus": ok(201), "requestObject": "ConfigMap", "responseObject": "ConfigMap"});
    assert_eq!(shape(event), expected(wanted));

    // As JSON, whatever the wire format is: a protobuf request that is answered in protobuf.
    let body = usher::api::protobuf::encode(&map("pb"), "v1", "ConfigMap").unwrap();
    let mut proto = asked(Method::POST, MAPS, None);
    *proto.body_mut() = Body::from(body);
    let media = "application/vnd.kubernetes.protobuf";
    let event = recorded.send(with(with(proto, "content-type", media), "accept", media)).await.pop().unwrap();
    assert_eq!((&event["requestObject"]["data"], &event["responseObject"]["data"]), (&json!({"k": "v"}), &json!({"k": "v"})), "{event}");
    let yaml = with(asked(Method::GET, &format!("{MAPS}/pb"), None), "accept", "application/yaml");
    assert_eq!(recorded.send(yaml).await.pop().unwrap()["responseObject"]["data"], json!({"k": "v"}));

    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "wids.ex.com"}, "spec": {
        "group": "ex.com", "scope": "Namespaced", "names": {"plural": "wids", "singular": "wid", "kind": "Wid", "listKind": "WidList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    recorded.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await;
    let wid = json!({"apiVersion": "ex.com/v1", "kind": "Wid", "metadata": {"name": "w1"}, "spec": {"color": "red"}});
    let event = recorded.ask(Method::POST, "/apis/ex.com/v1/namespaces/default/wids", Some(wid)).await;
    let wanted = json!({"verb": "create", "requestURI": "/apis/ex.com/v1/namespaces/default/wids", "responseStatus": ok(201), "requestObject": "Wid", "responseObject": "Wid",
        "objectRef": {"resource": "wids", "namespace": "default", "name": "w1", "apiGroup": "ex.com", "apiVersion": "v1"}});
    assert_eq!(shape(event), expected(wanted));

    let uri = format!("{MAPS}?watch=true&allowWatchBookmarks=true&timeoutSeconds=1");
    let events = recorded.send(asked(Method::GET, &uri, None)).await;
    let members = json!({"verb": "watch", "requestURI": uri, "objectRef": reference(""), "responseStatus": ok(200)});
    let mut started = expected(members.clone());
    started["stage"] = json!("ResponseStarted");
    // A watch that took a second says nothing of latency.
    assert_eq!(events[1..].iter().cloned().map(shape).collect::<Vec<_>>(), [started, expected(members)]);
}

#[tokio::test]
async fn what_nobody_read_is_not_in_the_event() {
    let recorded = Recorded::everything().await;
    recorded.make(MAPS, map("c1")).await;
    let one = format!("{MAPS}/c1");
    let pod = "/api/v1/namespaces/default/pods/p";
    let apply = with(asked(Method::PATCH, &one, Some(map("c1"))), "content-type", "application/apply-patch+yaml");
    let mut large = asked(Method::POST, MAPS, None);
    *large.body_mut() = Body::from(vec![b' '; 4 << 20]);
    for (request, code, why) in [
        (apply, 422, "an apply needs a manager"),
        (asked(Method::PATCH, &format!("{one}?dryRun=Some"), Some(json!({}))), 422, "no such dry run"),
        (asked(Method::PATCH, &format!("{one}?force=true"), Some(json!({}))), 422, "only an apply has force"),
        (large, 413, "too large"),
        (asked(Method::POST, &format!("{pod}/exec?command=ls"), Some(json!({"a": 1}))), 404, "what goes to a Pod is no object"),
        (asked(Method::POST, &format!("{pod}/eviction"), Some(json!({"kind": "Foo"}))), 400, "another kind"),
        (asked(Method::DELETE, &one, Some(json!({"kind": "ConfigMap"}))), 400, "no options of a deletion"),
    ] {
        let event = recorded.send(request).await.pop().unwrap();
        assert_eq!(event["responseStatus"]["code"], code, "{why}: {event}");
        assert!(event["requestObject"].is_null() && event["annotations"]["audit.k8s.io/truncated"].is_null(), "{why}: {event}");
    }
    // What was read is told as it was understood: without fields that there are not, with those that are always there.
    let event = recorded.ask(Method::DELETE, &format!("{MAPS}/none"), Some(json!({"foo": 1, "gracePeriodSeconds": 0}))).await;
    let options = json!({"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal", "gracePeriodSeconds": 0});
    assert_eq!(event["requestObject"], options);
    let event = recorded.ask(Method::POST, &format!("{pod}/binding"), Some(json!({"foo": 1}))).await;
    assert_eq!(event["requestObject"], json!({"kind": "Binding", "apiVersion": "v1", "metadata": {}, "target": {}}));
}

#[tokio::test]
async fn an_error_that_the_client_takes_in_no_form_leaves_its_code_alone() {
    let recorded = Recorded::everything().await;
    let missing = format!("{MAPS}/none");
    let transformed = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
    for (accept, code, told) in [
        ("image/png", 406, false),
        (transformed, 404, false),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json", 404, true),
        ("application/vnd.kubernetes.protobuf", 404, true),
    ] {
        let event = recorded.send(with(asked(Method::GET, &missing, None), "accept", accept)).await.pop().unwrap();
        let status = &event["responseStatus"];
        assert_eq!((status["code"].as_u64(), status["message"].is_string()), (Some(code), told), "{accept}: {event}");
        assert_eq!(event["responseObject"]["kind"] == "Status", told, "{accept}: {event}");
    }
}

#[tokio::test]
async fn a_client_calls_its_request_and_itself_what_it_likes() {
    let recorded = Recorded::everything().await;
    let long = "a".repeat(500);
    for id in ["\u{fc}ml<a>ut", long.as_str(), "with space"] {
        let mut request = asked(Method::GET, "/version", None);
        request.headers_mut().insert("audit-id", HeaderValue::from_bytes(id.as_bytes()).unwrap());
        request.headers_mut().insert("user-agent", HeaderValue::from_bytes("b\u{f6}t/1 <x>".as_bytes()).unwrap());
        let response = recorded.server.router().oneshot(request).await.unwrap();
        assert_eq!(response.headers()["audit-id"].as_bytes(), id.as_bytes());
        drop(response.into_body().collect().await);
        let event = recorded.of(id).await.pop().unwrap();
        assert_eq!(event["userAgent"], "b\u{f6}t/1 <x>");
    }
}
