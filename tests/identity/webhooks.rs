//! A webhook that knows tokens and a webhook that decides, run by the test over TLS, asked by a whole server.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};

use super::https::Https;
use super::{Door, eventually, token_header};

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

async fn token_webhook() -> Https {
    Https::start(|path, headers, review| {
        assert_eq!((path, headers["authorization"].to_str().unwrap()), ("/review", "Bearer server-token"));
        assert_eq!((&review["apiVersion"], &review["kind"]), (&json!("authentication.k8s.io/v1"), &json!("TokenReview")));
        assert_eq!(review["spec"]["audiences"], json!([ISSUER]));
        let good = json!({"username": "hooked", "uid": "7", "groups": ["g1"], "extra": {"example.com/k": ["v"]}});
        let status = match review["spec"]["token"].as_str().unwrap() {
            "good" => json!({"authenticated": true, "audiences": [ISSUER], "user": good}),
            "for-others" => json!({"authenticated": true, "audiences": ["vault"], "user": good}),
            "nameless" => json!({"authenticated": true, "audiences": [ISSUER], "user": {}}),
            "expired" => json!({"authenticated": false, "error": "the token has expired"}),
            "contradiction" => json!({"authenticated": false, "user": good}),
            "failing" => return (500, json!({})),
            "wrong-shape" => return (200, json!(["not", "a", "review"])),
            _ => json!({"authenticated": false}),
        };
        (200, json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status}))
    })
    .await
}

#[tokio::test]
async fn a_webhook_knows_tokens_and_whatever_else_it_says_is_401() {
    let webhook = token_webhook().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("webhook.kubeconfig");
    std::fs::write(&file, webhook.kubeconfig()).unwrap();
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.identity.authentication_token_webhook_config_file = Some(file);
    let door = Door::open(builder).await;
    let plain = door.client(None);
    let user = door.user(&plain, "good").await.unwrap();
    let expected = json!({"username": "hooked", "uid": "7", "groups": ["g1", "system:authenticated"], "extra": {"example.com/k": ["v"]}});
    assert_eq!(user, expected);
    let calls = webhook.calls();
    door.user(&plain, "good").await.unwrap();
    assert_eq!(webhook.calls(), calls, "an answer is remembered");
    for token in ["for-others", "nameless", "expired", "contradiction", "unknown", "wrong-shape"] {
        assert_eq!(door.user(&plain, token).await, Err(401), "{token}");
    }
    let calls = webhook.calls();
    assert_eq!(door.user(&plain, &"x".repeat(70_000)).await, Err(431));
    assert_eq!(webhook.calls(), calls, "nobody is asked about what cannot be a token");
    assert_eq!(door.user(&plain, &"x".repeat(40_000)).await, Err(401));
    // One that stopped answering, and one that is somebody else, know nobody; what was remembered still counts.
    drop(webhook);
    assert!(door.user(&plain, "good").await.is_ok());
}

#[tokio::test]
async fn a_token_webhook_that_is_somebody_else_is_not_believed() {
    let (webhook, other) = (token_webhook().await, token_webhook().await);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("webhook.kubeconfig");
    std::fs::write(&file, webhook.kubeconfig().replace(&webhook.url, &other.url)).unwrap();
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.identity.authentication_token_webhook_config_file = Some(file);
    let door = Door::open(builder).await;
    assert_eq!(door.user(&door.client(None), "good").await, Err(401));
    assert_eq!(other.calls(), 0);
}

/// A webhook that allows, denies, has no opinion or fails by the user's name, and remembers what it was asked.
async fn authorizer() -> (Https, Arc<Mutex<Vec<Value>>>) {
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let seen = asked.clone();
    let webhook = Https::start(move |_, headers, review| {
        assert_eq!(headers["authorization"].to_str().unwrap(), "Bearer server-token");
        assert_eq!((&review["apiVersion"], &review["kind"]), (&json!("authorization.k8s.io/v1"), &json!("SubjectAccessReview")));
        let user = review["spec"]["user"].as_str().unwrap().to_owned();
        seen.lock().push(review["spec"].clone());
        let status = match user.as_str() {
            "yes" => json!({"allowed": true, "reason": "the webhook says so"}),
            "no" => json!({"allowed": false, "denied": true, "reason": "the webhook says no"}),
            "both" => json!({"allowed": true, "denied": true}),
            "broken" => return (500, json!({})),
            "wrong-shape" => return (200, json!([1])),
            _ => json!({"allowed": false, "reason": "no idea"}),
        };
        (200, json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "status": status}))
    })
    .await;
    (webhook, asked)
}

fn configuration(kubeconfig: &Path, failure_policy: &str, rbac: bool) -> String {
    let webhook = json!({
        "timeout": "3s", "subjectAccessReviewVersion": "v1", "matchConditionSubjectAccessReviewVersion": "v1",
        "authorizedTTL": "5m", "unauthorizedTTL": "30s", "failurePolicy": failure_policy,
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
        "matchConditions": [
            {"expression": "has(request.resourceAttributes)"},
            {"expression": "request.resourceAttributes.namespace == 'guarded'"},
            {"expression": "!('system:serviceaccounts' in request.groups)"},
        ],
    });
    let mut authorizers = vec![json!({"type": "Node", "name": "node"}), json!({"type": "Webhook", "name": "hook", "webhook": webhook})];
    if rbac {
        authorizers.push(json!({"type": "RBAC", "name": "rbac"}));
    }
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": authorizers}).to_string()
}

#[tokio::test]
async fn a_webhook_decides_what_its_conditions_concern_and_roles_decide_the_rest() {
    let (webhook, asked) = authorizer().await;
    let directory = tempfile::tempdir().unwrap();
    let (kubeconfig, file) = (directory.path().join("webhook.kubeconfig"), directory.path().join("authorization.yaml"));
    std::fs::write(&kubeconfig, webhook.kubeconfig()).unwrap();
    std::fs::write(&file, configuration(&kubeconfig, "NoOpinion", true)).unwrap();
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.identity.authorization_config = Some(file.clone());
    let door = Door::open(builder).await;
    door.bind("system:aggregate-to-view", "no").await;
    door.bind("system:aggregate-to-view", "broken").await;
    let guarded = "/api/v1/namespaces/guarded/pods?labelSelector=a%3Db&fieldSelector=spec.nodeName%3Dn1";

    assert_eq!(door.get_as("yes", &["g"], guarded).await.0, 200);
    let expected = json!({
        "user": "yes", "groups": ["g", "system:authenticated"],
        "resourceAttributes": {
            "namespace": "guarded", "verb": "list", "version": "v1", "resource": "pods",
            "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]},
            "labelSelector": {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]},
        },
    });
    assert_eq!(*asked.lock(), [expected]);
    assert_eq!(door.get_as("yes", &["g"], guarded).await.0, 200);
    assert_eq!(webhook.calls(), 1, "a yes is remembered");

    // A no of the webhook stands, though a role would allow.
    let (code, body) = door.get_as("no", &[], guarded).await;
    assert_eq!(code, 403);
    assert!(body["message"].as_str().unwrap().ends_with("in the namespace \"guarded\": the webhook says no"), "{body}");
    let (code, body) = door.get_as("nobody", &[], guarded).await;
    assert!(code == 403 && body["message"].as_str().unwrap().ends_with("in the namespace \"guarded\": hook: no idea"), "{body}");
    // Where a condition does not hold, nobody asks it: another namespace, the whole cluster, a path, a service account.
    let calls = webhook.calls();
    assert_eq!(door.get_as("no", &[], "/api/v1/namespaces/default/pods").await.0, 200);
    assert_eq!(door.get_as("yes", &[], "/api/v1/pods").await.0, 403);
    assert_eq!(door.get_as("yes", &[], "/metrics").await.0, 403);
    assert_eq!(door.get_as("system:serviceaccount:guarded:yes", &[], guarded).await.0, 403);
    assert_eq!(webhook.calls(), calls);
    // It fails: the next authoriser decides, or nobody does, as configured; a change of the file counts without a restart.
    assert_eq!(door.get_as("broken", &[], guarded).await.0, 200);
    let (code, body) = door.get_as("wrong-shape", &[], guarded).await;
    assert_eq!(code, 500, "{body}");
    std::fs::write(&file, configuration(&kubeconfig, "Deny", true)).unwrap();
    eventually(async || door.get_as("broken", &[], guarded).await.0 == 500).await;
    let response = door.admin().get(format!("{}{guarded}", door.base)).header("impersonate-user", "both").send().await.unwrap();
    assert_eq!(response.status(), 500);
    assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(
        response.text().await.unwrap(),
        format!(
            "Internal Server Error: \"{}\": webhook subject access review returned both allow and deny response\n",
            guarded.replace('&', "&amp;")
        )
    );
    assert_eq!(door.get_as("yes", &["g"], guarded).await.0, 200);
    std::fs::write(&file, configuration(&kubeconfig, "Deny", false)).unwrap();
    eventually(async || door.get_as("no", &[], "/api/v1/namespaces/default/pods").await.0 == 403).await;
    // A file with a mistake changes nothing; `system:masters` cannot be configured away.
    std::fs::write(&file, configuration(&kubeconfig, "Perhaps", true)).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!(door.get_as("no", &[], "/api/v1/namespaces/default/pods").await.0, 403);
    assert_eq!(door.call(&door.admin(), Method::GET, guarded, &[], None).await.0, 200);
}

#[tokio::test]
async fn the_mode_webhook_asks_the_webhook_of_its_kubeconfig() {
    let (webhook, _) = authorizer().await;
    let directory = tempfile::tempdir().unwrap();
    let (kubeconfig, tokens) = (directory.path().join("webhook.kubeconfig"), directory.path().join("tokens.csv"));
    std::fs::write(&kubeconfig, webhook.kubeconfig()).unwrap();
    std::fs::write(&tokens, "t1,yes,1\nt2,no,2\n").unwrap();
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.identity.authorization_mode = vec!["Webhook".into()];
    builder.identity.authorization_webhook_config_file = Some(kubeconfig);
    builder.identity.token_auth_file = Some(tokens);
    let door = Door::open(builder).await;
    let plain = door.client(None);
    let ask =
        async |token: &str| door.call(&plain, Method::GET, "/api/v1/secrets", &[("authorization", &token_header(token))], None).await.0;
    assert_eq!((ask("t1").await, ask("t2").await), (200, 403));
}
