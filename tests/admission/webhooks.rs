//! What webhooks see, what they can do, and every way in which they can fail.

use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::{Value, json};
use usher::Server;

use super::server::*;

async fn server() -> (Server, kube::Client, Webhooks) {
    let server = Server::builder().in_memory().start().await.unwrap();
    let client = server.client();
    (server, client, Webhooks::start().await)
}

fn allow() -> Reply {
    Reply::Response(json!({"allowed": true}))
}

#[tokio::test]
async fn a_denial_is_told_with_the_webhooks_code_and_words() {
    let (_server, client, hooks) = server().await;
    hooks.on("/deny", |_| Reply::Response(json!({"allowed": false, "status": {"code": 403, "message": "nope, not today"}})));
    hooks.on("/nomsg", |_| Reply::Response(json!({"allowed": false})));
    hooks.on("/teapot", |_| Reply::Response(json!({"allowed": false, "status": {"code": 418, "reason": "Gone", "message": "teapot"}})));
    for (name, path) in [("vdeny", "/deny"), ("vnomsg", "/nomsg"), ("vteapot", "/teapot")] {
        configure(&client, false, name, vec![hooks.entry(name, path)]).await;
    }
    let denied = create(&configmaps(&client), configmap("w", "vdeny")).await.unwrap_err();
    assert_eq!(denied.message, "admission webhook \"vdeny.example.com\" denied the request: nope, not today");
    assert_eq!((denied.code, denied.reason.as_str()), (403, ""));
    let denied = create(&configmaps(&client), configmap("w", "vnomsg")).await.unwrap_err();
    assert_eq!(
        (denied.code, denied.message.as_str()),
        (400, "admission webhook \"vnomsg.example.com\" denied the request without explanation")
    );
    let denied = create(&configmaps(&client), configmap("w", "vteapot")).await.unwrap_err();
    assert_eq!((denied.code, denied.reason.as_str()), (418, "Gone"));
    assert!(create(&configmaps(&client), configmap("w", "none")).await.is_ok());
}

#[tokio::test]
async fn a_review_has_the_form_that_was_recorded() {
    let (_server, client, hooks) = server().await;
    hooks.on("/v", |_| allow());
    hooks.on("/m", |_| allow());
    configure(&client, false, "v", vec![hooks.entry("both", "/v")]).await;
    configure(&client, true, "m", vec![hooks.entry("both", "/m")]).await;
    create(&configmaps(&client), configmap("w", "both")).await.unwrap();
    let reviews = hooks.reviews.lock().clone();
    let (uri, review) = &reviews[1];
    assert_eq!(uri, "/v?timeout=5s");
    assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
    let request = review["request"].as_object().unwrap();
    let mut keys: Vec<&str> = request.keys().map(String::as_str).collect();
    keys.sort_unstable();
    let mut expected = vec![
        "uid",
        "kind",
        "resource",
        "requestKind",
        "requestResource",
        "name",
        "namespace",
        "operation",
        "userInfo",
        "object",
        "oldObject",
        "dryRun",
        "options",
    ];
    expected.sort_unstable();
    assert_eq!(keys, expected);
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "ConfigMap"}));
    assert_eq!(request["resource"], json!({"group": "", "version": "v1", "resource": "configmaps"}));
    assert_eq!((&request["operation"], &request["oldObject"], &request["dryRun"]), (&json!("CREATE"), &Value::Null, &json!(false)));
    assert_eq!(request["options"]["kind"], "CreateOptions");
    assert!(request["object"]["metadata"]["uid"].is_string(), "a validating webhook sees the uid");
    assert!(reviews[0].1["request"]["object"]["metadata"].get("uid").is_none(), "a mutating one comes before there is one");
    let deleted = configmaps(&client).delete("w", &Default::default()).await;
    assert!(deleted.is_ok());
    let last = hooks.reviews.lock().last().unwrap().1["request"].clone();
    assert_eq!((&last["operation"], &last["object"]), (&json!("DELETE"), &Value::Null));
    assert_eq!(last["oldObject"]["metadata"]["name"], "w");
    assert_eq!(last["options"]["kind"], "DeleteOptions");
}

#[tokio::test]
async fn every_way_to_fail_has_the_words_of_a_real_server() {
    let (_server, client, hooks) = server().await;
    hooks.on("/slow", |_| Reply::Hang(Duration::from_secs(3)));
    hooks.on("/uid", |_| Reply::Response(json!({"uid": "wrong", "allowed": true})));
    const STRING: &str = "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
    // As observed: name, code, media type, body, what is told.
    let answers: [(&str, u16, &str, &str, &str); 12] = [
        ("e500", 500, "text/plain", "boom", "an error on the server (\"boom\") has prevented the request from succeeding"),
        ("e503", 503, "text/plain", "busy", "the server is currently unable to handle the request"),
        ("e404", 404, "text/plain", "404 page not found", "the server could not find the requested resource"),
        ("html", 200, "text/html; charset=utf-8", "<html></html>", STRING),
        ("garbage", 200, "application/json", "garbage", STRING),
        ("cut", 200, "application/json", "{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        ("empty", 200, "application/json", "", "0-length response with status code: 200 and content type: application/json"),
        ("nowhere", 302, "text/plain", "", "the server responded with the status code 302 but did not return more information"),
        (
            "kind",
            200,
            "application/json",
            "{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}",
            "no kind \"Pod\" is registered for version \"v1\" in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:74\"",
        ),
        (
            "version",
            200,
            "application/json",
            "{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1beta1\",\"response\":{\"allowed\":true}}",
            "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion",
        ),
        (
            "type",
            200,
            "application/json",
            "{\"kind\":\"AdmissionReview\",\"apiVersion\":\"admission.k8s.io/v1\",\"response\":{\"allowed\":\"yes\"}}",
            "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool",
        ),
        (
            "status",
            403,
            "application/json",
            "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"message\":\"own words\"}",
            "own words",
        ),
    ];
    let mut slow = hooks.entry("slow", "/slow");
    slow["timeoutSeconds"] = json!(1);
    let port = hooks.port;
    let mut cases =
        vec![(slow, format!("failed to call webhook: Post \"https://127.0.0.1:{port}/slow?timeout=1s\": context deadline exceeded"))];
    for (name, code, media, body, words) in answers {
        let path = format!("/{name}");
        hooks.on(&path, move |_| Reply::Raw(code, media, body.to_owned()));
        cases.push((hooks.entry(name, &path), format!("failed to call webhook: {words}")));
    }
    for (entry, words) in cases {
        let name = entry["name"].as_str().unwrap().trim_end_matches(".example.com").to_owned();
        configure(&client, false, &name, vec![entry]).await;
        let since = Instant::now();
        let failed = create(&configmaps(&client), configmap("w", &name)).await.unwrap_err();
        assert_eq!(failed.message, format!("Internal error occurred: failed calling webhook \"{name}.example.com\": {words}"));
        assert_eq!((failed.code, failed.reason.as_str()), (500, "InternalError"));
        assert!(since.elapsed() < Duration::from_millis(2500), "never longer than its timeout");
    }
    configure(&client, false, "uid", vec![hooks.entry("uid", "/uid")]).await;
    let failed = create(&configmaps(&client), configmap("w", "uid")).await.unwrap_err();
    assert!(failed.message.contains("received invalid webhook response: expected response.uid=\""), "{}", failed.message);
    assert!(failed.message.ends_with("\", got \"wrong\""), "{}", failed.message);
}

#[tokio::test]
async fn transport_failures_are_told_in_a_real_servers_words_and_can_be_ignored() {
    let (_server, client, hooks) = server().await;
    let mut refused = hooks.entry("refused", "/x");
    refused["clientConfig"]["url"] = json!("https://127.0.0.1:1/x");
    configure(&client, false, "refused", vec![refused.clone()]).await;
    let failed = create(&configmaps(&client), configmap("w", "refused")).await.unwrap_err();
    assert_eq!(
        failed.message,
        "Internal error occurred: failed calling webhook \"refused.example.com\": failed to call webhook: Post \"https://127.0.0.1:1/x?timeout=5s\": dial tcp 127.0.0.1:1: connect: connection refused"
    );
    let other = Webhooks::start().await;
    let mut untrusted = hooks.entry("untrusted", "/x");
    untrusted["clientConfig"]["caBundle"] = json!(other.ca_bundle);
    configure(&client, false, "untrusted", vec![untrusted]).await;
    let failed = create(&configmaps(&client), configmap("w", "untrusted")).await.unwrap_err();
    assert!(
        failed.message.contains("tls: failed to verify certificate: x509: certificate signed by unknown authority"),
        "{}",
        failed.message
    );
    refused["name"] = json!("open.example.com");
    refused["objectSelector"] = json!({"matchLabels": {"wh": "open"}});
    refused["failurePolicy"] = json!("Ignore");
    configure(&client, true, "open", vec![refused]).await;
    assert!(create(&configmaps(&client), configmap("w", "open")).await.is_ok(), "fails open");
    let mut missing = hooks.entry("missing", "/x");
    missing["clientConfig"] = json!({"service": {"namespace": "default", "name": "nobody"}});
    configure(&client, false, "missing", vec![missing]).await;
    let failed = create(&configmaps(&client), configmap("w2", "missing")).await.unwrap_err();
    assert!(
        failed.message.ends_with("Post \"https://nobody.default.svc:443/?timeout=5s\": service \"nobody\" not found"),
        "{}",
        failed.message
    );
}

#[tokio::test]
async fn a_patch_that_cannot_be_read_is_a_failed_call_and_one_that_does_not_fit_is_an_internal_error() {
    let (_server, client, hooks) = server().await;
    let encoded = |patch: &str| base64::engine::general_purpose::STANDARD.encode(patch);
    // As observed: the patch, what is told, and whether the failure policy can excuse it.
    for (name, patch, words, excusable) in [
        (
            "garbage",
            "garbage",
            "received undecodable patch in webhook response: invalid character 'g' looking for beginning of value",
            true,
        ),
        (
            "object",
            "{}",
            "received undecodable patch in webhook response: json: cannot unmarshal object into Go value of type jsonpatch.Patch",
            true,
        ),
        (
            "element",
            "[5]",
            "received undecodable patch in webhook response: json: cannot unmarshal number into Go value of type jsonpatch.Operation",
            true,
        ),
        (
            "missing",
            r#"[{"op":"remove","path":"/data/nope"}]"#,
            "error in remove for path: '/data/nope': Unable to remove nonexistent key: nope: missing value",
            false,
        ),
        ("op", r#"[{"op":5,"path":"/data"}]"#, "Unexpected kind: unknown", false),
        (
            "kind",
            r#"[{"op":"replace","path":"/kind","value":"Nope"}]"#,
            "no kind \"Nope\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            false,
        ),
    ] {
        let answer = encoded(patch);
        let path = format!("/{name}");
        hooks.on(&path, move |_| Reply::Response(json!({"allowed": true, "patchType": "JSONPatch", "patch": answer})));
        let open = format!("{name}-open");
        let mut lenient = hooks.entry(&open, &path);
        lenient["failurePolicy"] = json!("Ignore");
        configure(&client, true, name, vec![hooks.entry(name, &path), lenient]).await;
        let failed = create(&configmaps(&client), configmap("w", name)).await.unwrap_err();
        let call = if excusable { format!("failed calling webhook \"{name}.example.com\": ") } else { String::new() };
        assert_eq!(failed.message, format!("Internal error occurred: {call}{words}"));
        assert_eq!(create(&configmaps(&client), configmap(&open, &open)).await.is_ok(), excusable, "{name}");
    }
}

#[tokio::test]
async fn a_redirect_is_followed_and_a_webhook_that_asks_for_patience_gets_it_within_its_timeout() {
    let (_server, client, hooks) = server().await;
    hooks.on("/there", |_| allow());
    let target = format!("https://127.0.0.1:{}/there", hooks.port);
    hooks.on("/moved", move |_| Reply::With(307, vec![("location", target.clone())], String::new()));
    configure(&client, false, "moved", vec![hooks.entry("moved", "/moved")]).await;
    assert!(create(&configmaps(&client), configmap("w", "moved")).await.is_ok());
    assert_eq!(hooks.count("/there"), 1);
    // What goes wrong is told with the place where it did.
    let cases = [
        ("round", "/round", "Post \"/round\": stopped after 10 redirects"),
        ("away", "https://127.0.0.1:1/x", "Post \"https://127.0.0.1:1/x\": dial tcp 127.0.0.1:1: connect: connection refused"),
    ];
    for (name, place, words) in cases {
        let path = format!("/{name}");
        hooks.on(&path, move |_| Reply::With(307, vec![("location", place.into())], String::new()));
        configure(&client, false, name, vec![hooks.entry(name, &path)]).await;
        let failed = create(&configmaps(&client), configmap("w", name)).await.unwrap_err();
        assert!(failed.message.ends_with(&format!("failed to call webhook: {words}")), "{}", failed.message);
    }
    assert_eq!(hooks.count("/round"), 10);
    hooks.on("/busy", |_| Reply::With(429, vec![("retry-after", "1".into())], "busy".into()));
    let mut busy = hooks.entry("busy", "/busy");
    busy["timeoutSeconds"] = json!(2);
    configure(&client, false, "busy", vec![busy]).await;
    let failed = create(&configmaps(&client), configmap("x", "busy")).await.unwrap_err();
    assert!(failed.message.ends_with("context deadline exceeded"), "{}", failed.message);
    assert_eq!(hooks.count("/busy"), 2);
}

#[tokio::test]
async fn a_patch_moves_no_object_to_another_namespace_and_gives_it_no_revision() {
    let (_server, client, hooks) = server().await;
    for (name, patch, words) in [
        (
            "elsewhere",
            json!([{"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}]),
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "revision",
            json!([{"op": "add", "path": "/metadata/resourceVersion", "value": "5"}]),
            "resourceVersion should not be set on objects to be created",
        ),
    ] {
        let path = format!("/{name}");
        hooks.on(&path, move |_| patched(patch.clone()));
        configure(&client, true, name, vec![hooks.entry(name, &path)]).await;
        assert_eq!(create(&configmaps(&client), configmap("w", name)).await.unwrap_err().message, words);
    }
}

#[tokio::test]
async fn patches_are_applied_in_order_and_the_object_is_defaulted_again() {
    let (_server, client, hooks) = server().await;
    hooks.on("/first", |_| patched(json!([{"op": "add", "path": "/data/first", "value": "1"}])));
    hooks.on("/second", |review| {
        let seen = review["request"]["object"]["data"]["first"].clone();
        patched(json!([{"op": "add", "path": "/data/second", "value": format!("after {}", seen.as_str().unwrap())}]))
    });
    configure(&client, true, "a", vec![hooks.entry("order", "/first")]).await;
    let mut second = hooks.entry("order", "/second");
    second["name"] = json!("second.example.com");
    configure(&client, true, "b", vec![second]).await;
    let made = create(&configmaps(&client), configmap("w", "order")).await.unwrap();
    assert_eq!(made["data"], json!({"k": "v", "first": "1", "second": "after 1"}));

    hooks.on("/bad", |_| patched(json!([{"op": "remove", "path": "/nope"}])));
    configure(&client, true, "bad", vec![hooks.entry("bad", "/bad")]).await;
    let failed = create(&configmaps(&client), configmap("w2", "bad")).await.unwrap_err();
    assert_eq!(
        failed.message,
        "Internal error occurred: error in remove for path: '/nope': Unable to remove nonexistent key: nope: missing value"
    );

    hooks.on("/types", |_| patched(json!([{"op": "replace", "path": "/data/k", "value": 5}])));
    configure(&client, true, "types", vec![hooks.entry("types", "/types")]).await;
    let failed = create(&configmaps(&client), configmap("w3", "types")).await.unwrap_err();
    assert_eq!(failed.code, 500);
    assert!(failed.message.contains("cannot unmarshal number into Go struct field"), "{}", failed.message);

    hooks.on("/rename", |_| patched(json!([{"op": "add", "path": "/metadata/name", "value": "fixedname"}])));
    configure(&client, true, "rename", vec![hooks.entry("rename", "/rename")]).await;
    let mut generated = configmap("", "rename");
    generated["metadata"] = json!({"generateName": "gen-", "labels": {"wh": "rename"}});
    let made = create(&configmaps(&client), generated).await.unwrap();
    assert_eq!(made["metadata"]["name"], "fixedname");
}

#[tokio::test]
async fn a_dry_run_asks_webhooks_without_side_effects_and_says_so() {
    let (_server, client, hooks) = server().await;
    hooks.on("/v", |_| allow());
    configure(&client, false, "none", vec![hooks.entry("none", "/v")]).await;
    assert!(create_with(&configmaps(&client), configmap("w", "none"), true).await.is_ok());
    assert_eq!(hooks.reviews.lock().last().unwrap().1["request"]["dryRun"], true);
}

#[tokio::test]
async fn two_that_fight_are_asked_twice_and_no_more() {
    let (_server, client, hooks) = server().await;
    for (path, value) in [("/red", "red"), ("/blue", "blue")] {
        hooks.on(path, move |_| patched(json!([{"op": "add", "path": "/data/colour", "value": value}])));
    }
    let mut red = hooks.entry("fight", "/red");
    red["reinvocationPolicy"] = json!("IfNeeded");
    let mut blue = hooks.entry("fight", "/blue");
    blue["name"] = json!("blue.example.com");
    blue["reinvocationPolicy"] = json!("IfNeeded");
    configure(&client, true, "a-red", vec![red]).await;
    configure(&client, true, "b-blue", vec![blue]).await;
    let made = create(&configmaps(&client), configmap("w", "fight")).await.unwrap();
    assert_eq!((hooks.count("/red"), hooks.count("/blue")), (2, 2));
    assert_eq!(made["data"]["colour"], "blue");
}

#[tokio::test]
async fn fifty_webhooks_on_one_request_are_asked_at_the_same_time() {
    let (_server, client, hooks) = server().await;
    hooks.on("/v", |_| allow());
    let entries = (0..50).map(|i| {
        let mut entry = hooks.entry("many", "/v");
        entry["name"] = json!(format!("w{i}.example.com"));
        entry
    });
    configure(&client, false, "many", entries.collect()).await;
    create(&configmaps(&client), configmap("w", "many")).await.unwrap();
    assert_eq!(hooks.count("/v"), 50);
}

#[tokio::test]
async fn match_conditions_select_and_fail_closed_on_errors() {
    let (_server, client, hooks) = server().await;
    hooks.on("/v", |_| Reply::Response(json!({"allowed": false, "status": {"message": "no"}})));
    let mut entry = hooks.entry("cel", "/v");
    entry["matchConditions"] = json!([{"name": "only-x", "expression": "object.data.k == 'x'"}]);
    configure(&client, false, "cel", vec![entry.clone()]).await;
    assert!(create(&configmaps(&client), configmap("w", "cel")).await.is_ok(), "the condition is false");
    entry["name"] = json!("err.example.com");
    entry["objectSelector"] = json!({"matchLabels": {"wh": "err"}});
    entry["matchConditions"] = json!([{"name": "broken", "expression": "object.data.missing == 'x'"}]);
    configure(&client, false, "err", vec![entry]).await;
    let refused = create(&configmaps(&client), configmap("w2", "err")).await.unwrap_err();
    assert_eq!(
        refused.message,
        "configmaps \"w2\" is forbidden: expression 'object.data.missing == 'x'' resulted in error: no such key: missing"
    );
}

#[tokio::test]
async fn a_service_is_reached_through_the_service_map() {
    let hooks = Webhooks::start().await;
    hooks.on("/check", |_| Reply::Response(json!({"allowed": false, "status": {"message": "from the map"}})));
    let mut builder = Server::builder().in_memory();
    let target = format!("127.0.0.1:{}", hooks.port);
    builder.admission.services = std::sync::Arc::new(usher::admission::webhook::endpoint::ServiceMap::new([("apps/hook".into(), target)]));
    let server = builder.start().await.unwrap();
    let client = server.client();
    let mut entry = hooks.entry("svc", "/check");
    entry["clientConfig"] =
        json!({"service": {"namespace": "apps", "name": "hook", "path": "/check", "port": 8443}, "caBundle": hooks.ca_bundle});
    configure(&client, false, "svc", vec![entry]).await;
    let denied = create(&configmaps(&client), configmap("w", "svc")).await.unwrap_err();
    assert_eq!(denied.message, "admission webhook \"svc.example.com\" denied the request: from the map");
}

#[tokio::test]
async fn a_webhook_that_must_admit_what_serves_it_is_told_in_words() {
    use tower::ServiceExt;
    let (server, client, hooks) = server().await;
    let namespaces = api(&client, "", "v1", "Namespace", "namespaces", None);
    create(&namespaces, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "apps"}})).await.unwrap();
    let services = api(&client, "", "v1", "Service", "services", Some("apps"));
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook"}, "spec": {"selector": {"app": "hook"}, "ports": [{"port": 443}]}});
    create(&services, service).await.unwrap();
    let mut entry = hooks.entry("own", "/x");
    entry["clientConfig"] = json!({"service": {"namespace": "apps", "name": "hook"}, "caBundle": hooks.ca_bundle});
    entry["rules"][0] = json!({"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]});
    entry["objectSelector"] = json!({});
    configure(&client, false, "own", vec![entry]).await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "hook"}, "spec": {
        "selector": {"matchLabels": {"app": "hook"}},
        "template": {"metadata": {"labels": {"app": "hook"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    let mut request = http::Request::post("/apis/apps/v1/namespaces/apps/deployments")
        .header("content-type", "application/json")
        .body(axum::body::Body::from(deployment.to_string()))
        .unwrap();
    let admin = usher::request::User::new("admin", &["system:masters", "system:authenticated"]);
    request.extensions_mut().insert(usher::authn::InProcess(std::sync::Arc::new(admin)));
    let response = server.router().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 500);
    let warning = response.headers().get("warning").unwrap().to_str().unwrap();
    assert!(warning.contains("must itself admit what is created there"), "{warning}");
}

#[tokio::test]
async fn a_webhook_that_closes_or_answers_too_much_is_told_so_and_can_be_ignored() {
    let (_server, client, hooks) = server().await;
    hooks.on("/flood", |_| Reply::Raw(200, "application/json", " ".repeat(9 * 1024 * 1024)));
    configure(&client, false, "flood", vec![hooks.entry("flood", "/flood")]).await;
    let failed = create(&configmaps(&client), configmap("w", "flood")).await.unwrap_err();
    assert!(failed.message.contains("the response is larger than 8388608 bytes"), "{}", failed.message);

    let (port, ca_bundle) = closing().await;
    let mut closes = hooks.entry("closes", "/x");
    closes["clientConfig"] = json!({"url": format!("https://127.0.0.1:{port}/x"), "caBundle": ca_bundle});
    configure(&client, false, "closes", vec![closes.clone()]).await;
    let failed = create(&configmaps(&client), configmap("w", "closes")).await.unwrap_err();
    assert_eq!(
        failed.message,
        format!(
            "Internal error occurred: failed calling webhook \"closes.example.com\": failed to call webhook: Post \"https://127.0.0.1:{port}/x?timeout=5s\": EOF"
        )
    );
    for mutating in [false, true] {
        closes["name"] = json!(format!("open{mutating}.example.com"));
        closes["failurePolicy"] = json!("Ignore");
        closes["objectSelector"] = json!({"matchLabels": {"wh": "open"}});
        configure(&client, mutating, &format!("open{mutating}"), vec![closes.clone()]).await;
    }
    create(&configmaps(&client), configmap("w", "open")).await.unwrap();
}

#[tokio::test]
async fn a_webhook_of_the_old_review_version_is_asked_in_it_and_may_leave_out_what_it_did_not_have() {
    let (_server, client, hooks) = server().await;
    let patch = base64::engine::general_purpose::STANDARD.encode(r#"[{"op":"add","path":"/data/old","value":"yes"}]"#);
    hooks.on("/old", move |_| {
        let review =
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "response": {"allowed": true, "patch": patch}});
        Reply::Raw(200, "application/json", review.to_string())
    });
    let mut entry = hooks.entry("old", "/old");
    entry["admissionReviewVersions"] = json!(["v0", "v1beta1", "v1"]);
    configure(&client, true, "old", vec![entry.clone()]).await;
    let made = create(&configmaps(&client), configmap("w", "old")).await.unwrap();
    assert_eq!(made["data"]["old"], "yes");
    assert_eq!(hooks.reviews.lock()[0].1["apiVersion"], "admission.k8s.io/v1beta1");

    // Whoever was asked in v1 cannot answer in a version that checks less.
    entry["name"] = json!("downgrade.example.com");
    entry["admissionReviewVersions"] = json!(["v1"]);
    entry["objectSelector"] = json!({"matchLabels": {"wh": "downgrade"}});
    configure(&client, true, "downgrade", vec![entry]).await;
    let failed = create(&configmaps(&client), configmap("w2", "downgrade")).await.unwrap_err();
    assert_eq!(
        failed.message,
        "Internal error occurred: failed calling webhook \"downgrade.example.com\": failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion"
    );
}

#[tokio::test]
async fn a_merge_patch_counts_where_a_webhook_says_that_it_sends_one() {
    let (_server, client, hooks) = server().await;
    let encode = |patch: Value| base64::engine::general_purpose::STANDARD.encode(patch.to_string());
    let merge = encode(json!({"data": {"k": null, "m": "1"}}));
    hooks.on("/merge", move |_| Reply::Response(json!({"allowed": true, "patchType": "MergePatch", "patch": merge})));
    configure(&client, true, "merge", vec![hooks.entry("merge", "/merge")]).await;
    let made = create(&configmaps(&client), configmap("w", "merge")).await.unwrap();
    assert_eq!(made["data"], json!({"m": "1"}));
    let other = encode(json!([{"op": "add", "path": "/data/x", "value": "1"}]));
    hooks.on("/other", move |_| Reply::Response(json!({"allowed": true, "patchType": "Strategic", "patch": other})));
    configure(&client, true, "other", vec![hooks.entry("other", "/other")]).await;
    let failed = create(&configmaps(&client), configmap("w2", "other")).await.unwrap_err();
    assert!(failed.message.contains("unsupported patch type \"Strategic\""), "{}", failed.message);
}

#[tokio::test]
async fn an_equivalent_version_is_converted_for_the_webhook_and_its_patch_back() {
    let (_server, client, hooks) = server().await;
    hooks.on("/hpa", |review| {
        assert_eq!(review["request"]["object"]["spec"]["targetCPUUtilizationPercentage"], 50);
        patched(json!([{"op": "replace", "path": "/spec/targetCPUUtilizationPercentage", "value": 60}]))
    });
    hooks.on("/exact", |_| Reply::Response(json!({"allowed": false})));
    let rule =
        json!([{"operations": ["CREATE"], "apiGroups": ["autoscaling"], "apiVersions": ["v1"], "resources": ["horizontalpodautoscalers"]}]);
    let mut entry = hooks.entry("hpa", "/hpa");
    entry["rules"] = rule.clone();
    let mut exact = hooks.entry("hpa", "/exact");
    exact["name"] = json!("exact.example.com");
    exact["rules"] = rule;
    exact["matchPolicy"] = json!("Exact");
    configure(&client, true, "hpa", vec![entry, exact]).await;
    let autoscalers = api(&client, "autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", Some("default"));
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    let object = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h", "labels": {"wh": "hpa"}},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "metrics": [cpu]},
    });
    let made = create(&autoscalers, object).await.unwrap();
    assert_eq!(made["apiVersion"], "autoscaling/v2");
    assert_eq!(made["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 60);
    let request = hooks.reviews.lock()[0].1["request"].clone();
    assert_eq!((&request["kind"]["version"], &request["requestKind"]["version"]), (&json!("v1"), &json!("v2")));
    assert_eq!((&request["resource"]["version"], &request["requestResource"]["version"]), (&json!("v1"), &json!("v2")));
    assert_eq!(hooks.count("/exact"), 0);
}

#[tokio::test]
async fn an_object_that_a_patch_made_invalid_is_refused_by_validation_not_by_the_webhook() {
    let (_server, client, hooks) = server().await;
    hooks.on("/invalid", |_| patched(json!([{"op": "add", "path": "/data/a~1b", "value": "not a key"}])));
    configure(&client, true, "invalid", vec![hooks.entry("invalid", "/invalid")]).await;
    let refused = create(&configmaps(&client), configmap("w", "invalid")).await.unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    assert!(refused.message.contains("data[a/b]: Invalid value"), "{}", refused.message);
}

#[tokio::test]
async fn fifty_mutating_webhooks_each_see_what_those_before_them_made() {
    let (_server, client, hooks) = server().await;
    hooks.on("/count", |review| {
        let n: u32 = review["request"]["object"]["data"]["n"].as_str().unwrap_or("0").parse().unwrap();
        patched(json!([{"op": "add", "path": "/data/n", "value": (n + 1).to_string()}]))
    });
    let entries = (0..50).map(|i| {
        let mut entry = hooks.entry("chain", "/count");
        entry["name"] = json!(format!("w{i}.example.com"));
        entry
    });
    configure(&client, true, "chain", entries.collect()).await;
    let made = create(&configmaps(&client), configmap("w", "chain")).await.unwrap();
    assert_eq!(made["data"]["n"], "50");
}

#[tokio::test]
async fn a_hanging_webhook_costs_its_timeout_and_hanging_ones_together_no_more() {
    let (_server, client, hooks) = server().await;
    hooks.on("/hang", |_| Reply::Hang(Duration::from_secs(20)));
    let entries = (0..10).map(|i| {
        let mut entry = hooks.entry("hang", "/hang");
        entry["name"] = json!(format!("w{i}.example.com"));
        entry["timeoutSeconds"] = json!(1);
        entry["failurePolicy"] = json!("Ignore");
        entry
    });
    configure(&client, false, "hang", entries.collect()).await;
    let since = Instant::now();
    create(&configmaps(&client), configmap("w", "hang")).await.unwrap();
    assert!(since.elapsed() < Duration::from_millis(2500), "{:?}", since.elapsed());
}

#[tokio::test]
async fn a_connection_is_admitted_like_a_write_before_anybody_is_connected() {
    use tower::ServiceExt;
    let (server, client, hooks) = server().await;
    hooks.on("/exec", |review| {
        let allowed = review["request"]["object"]["command"] != json!(["rm", "-rf", "/"]);
        Reply::Response(
            json!({"allowed": allowed, "status": {"message": "not with that command", "code": 403, "reason": "DangerousCommand"}}),
        )
    });
    let mut entry = hooks.entry("exec", "/exec");
    entry["rules"] =
        json!([{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/exec", "pods/portforward"]}]);
    entry["objectSelector"] = json!({});
    configure(&client, false, "exec", vec![entry]).await;
    let policies = api(&client, "admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", None);
    create(&policies, json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-attach"},
        "spec": {
            "matchConstraints": {"resourceRules": [{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/attach"]}]},
            "validations": [{"expression": "object.container != 'main' && request.operation == 'CONNECT'", "message": "main is not for you"}],
        },
    })).await.unwrap();
    let bindings =
        api(&client, "admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", None);
    create(
        &bindings,
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "no-attach"},
            "spec": {"policyName": "no-attach", "validationActions": ["Deny"]},
        }),
    )
    .await
    .unwrap();
    let connect = |path: &str| {
        let mut request = http::Request::post(format!("/api/v1/namespaces/default/pods/p/{path}")).body(axum::body::Body::empty()).unwrap();
        let admin = usher::request::User::new("admin", &["system:masters", "system:authenticated"]);
        request.extensions_mut().insert(usher::authn::InProcess(std::sync::Arc::new(admin)));
        let router = server.router();
        async move {
            let response = router.oneshot(request).await.unwrap();
            let code = response.status().as_u16();
            let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
            (code, serde_json::from_slice::<Value>(&bytes).unwrap_or_default())
        }
    };
    let (code, body) = connect("exec?command=rm&command=-rf&command=/&container=main&stdin=true").await;
    assert_eq!((code, &body["reason"]), (403, &json!("DangerousCommand")), "{body}");
    assert_eq!(body["message"], "admission webhook \"exec.example.com\" denied the request: not with that command");
    let request = hooks.reviews.lock()[0].1["request"].clone();
    assert_eq!((&request["operation"], &request["subResource"], &request["name"]), (&json!("CONNECT"), &json!("exec"), &json!("p")));
    assert_eq!(request["kind"], json!({"group": "", "version": "v1", "kind": "PodExecOptions"}));
    assert_eq!(request["object"]["stdin"], true);
    let (code, _) = connect("exec?command=ls").await;
    assert_ne!(code, 403, "admitted, and then whatever a connection comes to");
    connect("portforward?ports=80").await;
    assert_eq!(hooks.reviews.lock().last().unwrap().1["request"]["object"]["ports"], json!([80]));
    let (code, body) = connect("attach?container=main").await;
    assert_eq!(code, 422, "{body}");
    assert!(body["message"].as_str().unwrap().contains("main is not for you"), "{body}");
}
