use super::*;
use crate::authn::TokenAuthenticator;
use crate::authn::fixtures::{Clock, Map as ObjectMap, OneToken};
use crate::authn::keys::generate;
use crate::authn::service_account::ServiceAccounts;
use crate::authz::always::Masters;
use crate::authz::chain::Chain;
use crate::authz::rbac::Rbac;
use crate::authz::rbac::tests::{binding, role, user};

const ISSUER: &str = "https://kubernetes.default.svc";

struct Scene {
    reviews: Reviews,
    objects: Arc<ObjectMap>,
}

fn scene() -> Scene {
    let rbac = Rbac::default();
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]);
    rbac.put("roles", &role("default", "rolemaker", rules));
    rbac.put("rolebindings", &binding("default", "rolemaker", "Role", "rolemaker", user("bob")));
    let keys = Arc::new(ServiceAccountKeys::new(Some(generate().unwrap().as_bytes()), &[]).unwrap());
    let (objects, clock) = (Arc::new(ObjectMap::default()), Clock::at(1_794_787_302));
    objects.put("serviceaccounts", json!({"metadata": {"name": "default", "namespace": "default", "uid": "u1"}}));
    let pod =
        json!({"metadata": {"name": "p", "namespace": "default", "uid": "u2"}, "spec": {"serviceAccountName": "default", "nodeName": "n"}});
    objects.put("pods", pod);
    objects.put("nodes", json!({"metadata": {"name": "n", "uid": "u3"}}));
    let audiences = vec![ISSUER.to_owned()];
    let accounts = ServiceAccounts::new(audiences.clone(), keys.clone(), objects.clone(), clock.now());
    let tokens: Vec<Arc<dyn TokenAuthenticator>> = vec![Arc::new(OneToken("admintoken", "admin")), Arc::new(accounts)];
    let reviews = Reviews {
        authorizer: Arc::new(Chain::new(vec![Arc::new(Masters), Arc::new(rbac)])),
        tokens: Arc::new(Bearer::new(tokens, audiences.clone())),
        objects: objects.clone(),
        keys,
        issuer: ISSUER.into(),
        audiences,
        max_token_seconds: 0,
        now: clock.now(),
    };
    Scene { reviews, objects }
}

fn bob() -> Arc<User> {
    Arc::new(User::new("bob", &["devs", "system:authenticated"]))
}

#[tokio::test]
async fn self_subject_access_reviews_are_answered_as_recorded() {
    let reviews = scene().reviews;
    let body = json!({"spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "configmaps", "name": "a1"}}});
    let answered = reviews.self_subject_access_review(&bob(), body).await.unwrap();
    let reason = "RBAC: allowed by RoleBinding \"rolemaker/default\" of Role \"rolemaker\" to User \"bob\"";
    assert_eq!(answered["status"], json!({"allowed": true, "reason": reason}));
    assert_eq!(answered["metadata"], json!({}));
    let body = json!({"spec": {"resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"}}});
    assert_eq!(reviews.self_subject_access_review(&bob(), body).await.unwrap()["status"], json!({"allowed": false}));
    let body = json!({"spec": {"resourceAttributes": {"verb": "*", "resource": "*", "group": "*"}}});
    let admin = Arc::new(User::new("admin", &["system:masters"]));
    assert_eq!(reviews.self_subject_access_review(&admin, body).await.unwrap()["status"], json!({"allowed": true}));
}

#[tokio::test]
async fn a_review_must_ask_exactly_one_thing_about_somebody() {
    let reviews = scene().reviews;
    let refused = reviews.subject_access_review(json!({"spec": {}})).await.unwrap_err();
    assert_eq!(
        refused.message,
        ".authorization.k8s.io \"\" is invalid: [spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: \"\": at least one of user or group must be specified]"
    );
    let body = json!({"spec": {"user": "bob", "nonResourceAttributes": {"verb": "get", "path": "/metrics"}}});
    assert_eq!(reviews.subject_access_review(body).await.unwrap()["status"]["allowed"], false);
    let body = json!({"metadata": {"name": "x"}, "spec": {"user": "bob", "nonResourceAttributes": {"verb": "get", "path": "/"}}});
    assert_eq!(reviews.subject_access_review(body).await.unwrap_err().code, 422);
    let body = json!({"spec": {"user": "bob", "resourceAttributes": {"namespace": "other", "verb": "get", "resource": "configmaps"}}});
    assert_eq!(reviews.local_subject_access_review("default", body.clone()).await.unwrap_err().code, 422);
    let answered = reviews.local_subject_access_review("other", body).await.unwrap();
    assert_eq!(answered["status"], json!({"allowed": false}));
    let selector = json!({"requirements": [{"key": "a", "operator": "In", "values": []}]});
    let body = json!({"spec": {"user": "bob", "resourceAttributes": {"verb": "list", "resource": "pods", "labelSelector": selector}}});
    assert!(reviews.subject_access_review(body).await.unwrap_err().message.contains("must be specified when `operator`"));
}

#[tokio::test]
async fn rules_and_identity_of_oneself_are_told() {
    let reviews = scene().reviews;
    let answered = reviews.self_subject_rules_review(&bob(), json!({"spec": {"namespace": "default"}})).unwrap();
    let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]}]);
    assert_eq!(answered["status"], json!({"resourceRules": rules, "nonResourceRules": [], "incomplete": false}));
    assert_eq!(reviews.self_subject_rules_review(&bob(), json!({"spec": {}})).unwrap_err().code, 400);
    let me = reviews.self_subject_review(&bob(), "v1");
    assert_eq!(me["status"]["userInfo"]["username"], "bob");
}

#[tokio::test]
async fn a_token_is_issued_reviewed_and_dies_with_its_account() {
    let scene = scene();
    let reviews = &scene.reviews;
    let issued = reviews.token_request("default", "default", json!({"spec": {"expirationSeconds": 3600}})).unwrap();
    let review = issued.review;
    assert_eq!(review["spec"], json!({"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": null}));
    assert_eq!(review["status"]["expirationTimestamp"], "2026-11-16T01:01:42Z");
    assert_eq!(review["metadata"]["creationTimestamp"], "2026-11-16T00:01:42Z");
    let body = json!({"spec": {"token": review["status"]["token"]}});
    let answered = reviews.token_review(body.clone()).await.unwrap();
    assert_eq!(answered["status"]["authenticated"], true);
    assert_eq!(answered["status"]["audiences"], json!([ISSUER]));
    let user = &answered["status"]["user"];
    assert_eq!(user["groups"], json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]));
    let id = format!("JTI={}", issued.credential_id);
    assert_eq!(user["extra"], json!({"authentication.kubernetes.io/credential-id": [id]}));
    scene.objects.remove("serviceaccounts", "default", "default");
    assert_eq!(reviews.token_review(body).await.unwrap()["status"]["user"], json!({}));
}

#[tokio::test]
async fn refusals_of_tokens_and_token_requests_are_worded_as_recorded() {
    let scene = scene();
    let reviews = &scene.reviews;
    let status = |body: Value| async move { reviews.token_review(body).await.unwrap()["status"].clone() };
    assert_eq!(status(json!({"spec": {"token": "garbage"}})).await, json!({"user": {}, "error": "invalid bearer token"}));
    let other = json!({"spec": {"token": "admintoken", "audiences": ["other"]}});
    assert_eq!(status(other).await, json!({"user": {}, "error": "invalid bearer token"}));
    assert_eq!(status(json!({"spec": {"token": "admintoken"}})).await["authenticated"], true);
    let token = reviews.token_request("default", "default", json!({"spec": {}})).unwrap().review["status"]["token"].clone();
    let mut bad = token.as_str().unwrap().to_owned();
    bad.replace_range(bad.len() - 10.., "AAAAAAAAAA");
    let error = "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]";
    assert_eq!(status(json!({"spec": {"token": bad}})).await, json!({"user": {}, "error": error}));
    assert_eq!(reviews.token_review(json!({"spec": {}})).await.unwrap_err().code, 400);

    let ask = |body: Value| reviews.token_request("default", "default", body).map(|_| ()).unwrap_err();
    let short = ask(json!({"spec": {"expirationSeconds": 5}}));
    assert_eq!(
        short.message,
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes"
    );
    let missing = reviews.token_request("default", "tmp", json!({"spec": {}})).map(|_| ()).unwrap_err();
    assert_eq!((missing.code, &*missing.message), (404, "serviceaccounts \"tmp\" not found"));
    let unbound = ask(json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "nope"}}}));
    assert_eq!((unbound.code, &*unbound.message), (404, "pods \"nope\" not found"));
    let recreated = ask(json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "other"}}}));
    assert_eq!(recreated.code, 409);
    let unknown = ask(json!({"spec": {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "p"}}}));
    assert_eq!(unknown.message, "cannot bind token to object of type /v1, Kind=ConfigMap");
}

#[tokio::test]
async fn a_kubelets_token_names_pod_and_node_and_lives_on_with_a_warning() {
    let reviews = scene().reviews;
    let body =
        json!({"spec": {"expirationSeconds": 3607, "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u2"}}});
    let review = reviews.token_request("default", "default", body).unwrap().review;
    let token = review["status"]["token"].as_str().unwrap();
    let parsed = crate::authn::jws::Token::parse(token).unwrap();
    let claims = Value::Object(parsed.claims.clone());
    assert_eq!(claims["kubernetes.io"]["pod"], json!({"name": "p", "uid": "u2"}));
    assert_eq!(claims["kubernetes.io"]["node"], json!({"name": "n", "uid": "u3"}));
    let issued = claims["iat"].as_i64().unwrap();
    assert_eq!(claims["kubernetes.io"]["warnafter"], issued + 3607);
    assert_eq!(claims["exp"], issued + 365 * 24 * 3600);
    let known = reviews.token_review(json!({"spec": {"token": token}})).await.unwrap();
    assert_eq!(known["status"]["user"]["extra"]["authentication.kubernetes.io/pod-name"], json!(["p"]));
}

#[tokio::test]
async fn a_body_of_any_shape_is_refused_or_answered_and_never_a_panic() {
    let reviews = scene().reviews;
    let me = bob();
    for body in [
        json!(null),
        json!(1),
        json!("x"),
        json!([]),
        json!({}),
        json!({"spec": 1, "metadata": []}),
        json!({"spec": []}),
        json!({"status": "x", "spec": {"resourceAttributes": [], "token": 5}}),
    ] {
        let _ = reviews.subject_access_review(body.clone()).await;
        let _ = reviews.local_subject_access_review("ns", body.clone()).await;
        let _ = reviews.self_subject_access_review(&me, body.clone()).await;
        let _ = reviews.self_subject_rules_review(&me, body.clone());
        let _ = reviews.token_review(body.clone()).await;
        let _ = reviews.token_request("default", "default", body);
    }
}

#[tokio::test]
async fn what_a_review_says_of_selectors_that_nobody_understands_is_told() {
    let reviews = scene().reviews;
    let ask = async |fields: Value, labels: Value| {
        let attributes =
            json!({"verb": "list", "resource": "pods", "namespace": "default", "fieldSelector": fields, "labelSelector": labels});
        let answered = reviews.subject_access_review(json!({"spec": {"user": "bob", "resourceAttributes": attributes}})).await.unwrap();
        answered["status"]["evaluationError"].as_str().unwrap_or_default().to_owned()
    };
    let (known, unknown) =
        (json!({"key": "a", "operator": "In", "values": ["b"]}), json!({"key": "a", "operator": "Near", "values": ["b"]}));
    assert_eq!(ask(json!({"requirements": [known]}), json!({"rawSelector": "a=b"})).await, "");
    let partly = "spec.resourceAttributes.labelSelector partially ignored due to parse error";
    assert_eq!(ask(json!({"rawSelector": "a=b"}), json!({"requirements": [known, unknown]})).await, partly);
    let neither = "spec.resourceAttributes.fieldSelector ignored due to parse error; spec.resourceAttributes.labelSelector ignored due to parse error";
    assert_eq!(ask(json!({"rawSelector": "a"}), json!({"rawSelector": "a in ("})).await, neither);
}
