//! The server's own tokens through the socket: service accounts, bootstrap tokens, static tokens; each good, bad, out of its time
//! and forged.

use base64::Engine;
use reqwest::Method;
use serde_json::{Value, json};

use super::https::{Key, forgeries, now};
use super::{Door, door, eventually};

const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

async fn account(door: &Door, name: &str) -> Value {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    door.make("/api/v1/namespaces/default/serviceaccounts", account).await
}

fn claims(account: &Value) -> Value {
    let (name, uid) = (&account["metadata"]["name"], &account["metadata"]["uid"]);
    json!({
        "aud": [ISSUER], "exp": now() + 600, "iat": now(), "iss": ISSUER, "jti": "j", "nbf": now() - 5,
        "kubernetes.io": {"namespace": "default", "serviceaccount": {"name": name, "uid": uid}},
        "sub": format!("system:serviceaccount:default:{}", name.as_str().unwrap()),
    })
}

#[tokio::test]
async fn a_service_account_token_out_of_its_time_or_for_others_or_forged_is_401() {
    let door = door().await;
    let account = account(&door, "bot").await;
    let key = Key::read(&door.server.pki().service_account_key);
    let plain = door.client(None);
    let good = claims(&account);
    let user = door.user(&plain, &key.sign(&good)).await.unwrap();
    let groups = json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
    assert_eq!((&user["username"], &user["groups"]), (&json!("system:serviceaccount:default:bot"), &groups));
    let private = "kubernetes.io";
    type Change<'a> = Box<dyn Fn(&mut Value) + 'a>;
    let changes: [(&str, Change<'_>); 14] = [
        ("expired", Box::new(|c| c["exp"] = (now() - 120).into())),
        ("no expiry", Box::new(|c| drop(c.as_object_mut().unwrap().remove("exp")))),
        ("not yet valid", Box::new(|c| c["nbf"] = (now() + 300).into())),
        ("another audience", Box::new(|c| c["aud"] = json!(["vault"]))),
        ("another issuer", Box::new(|c| c["iss"] = "https://elsewhere".into())),
        ("no issuer", Box::new(|c| c["iss"] = Value::Null)),
        ("another subject", Box::new(|c| c["sub"] = "system:serviceaccount:kube-system:admin".into())),
        ("another namespace", Box::new(|c| c[private]["namespace"] = "kube-system".into())),
        ("another uid", Box::new(|c| c[private]["serviceaccount"]["uid"] = "x".into())),
        ("another account", Box::new(|c| c[private]["serviceaccount"]["name"] = "default".into())),
        ("no account", Box::new(|c| c[private] = json!({}))),
        ("a Pod that is not", Box::new(|c| c[private]["pod"] = json!({"name": "p", "uid": "x"}))),
        ("a Secret that is not", Box::new(|c| c[private]["secret"] = json!({"name": "s", "uid": "x"}))),
        ("a node that is not", Box::new(|c| c[private]["node"] = json!({"name": "n", "uid": "x"}))),
    ];
    for (what, change) in changes {
        let mut changed = good.clone();
        change(&mut changed);
        assert_eq!(door.user(&plain, &key.sign(&changed)).await, Err(401), "{what}");
    }
    for (what, token) in forgeries(&good, &key, &Key::ecdsa()) {
        assert_eq!(door.user(&plain, &token).await, Err(401), "{what}");
    }
}

#[tokio::test]
async fn keys_are_replaced_while_the_server_runs_and_old_tokens_count_as_long_as_their_key_does() {
    let (old, new) = (Key::rsa(), Key::ecdsa());
    let directory = tempfile::tempdir().unwrap();
    let (signing, verifying) = (directory.path().join("sa.key"), directory.path().join("sa.pub"));
    std::fs::write(&signing, &old.private_pem).unwrap();
    std::fs::write(&verifying, &old.public_pem).unwrap();
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.identity.service_account_signing_key_file = Some(signing.clone());
    builder.identity.service_account_key_files = vec![verifying.clone()];
    builder.identity.service_account_issuers = vec!["https://new.example".into(), ISSUER.into()];
    let door = Door::open(builder).await;
    let plain = door.client(None);
    let account = account(&door, "bot").await;
    let issue = async || {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let issued = door.make("/api/v1/namespaces/default/serviceaccounts/bot/token", request).await;
        issued["status"]["token"].as_str().unwrap().to_owned()
    };
    let part = |token: &str, i: usize| -> Value {
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token.split('.').nth(i).unwrap()).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    };
    let first = issue().await;
    assert_eq!(part(&first, 0)["alg"], "RS256");
    assert_eq!(
        (&part(&first, 1)["iss"], &part(&first, 1)["aud"]),
        (&json!("https://new.example"), &json!(["https://new.example", ISSUER]))
    );
    assert!(door.user(&plain, &first).await.is_ok());
    assert!(door.user(&plain, &old.sign(&claims(&account))).await.is_ok(), "tokens of the former issuer are known");
    let (_, document) = door.call(&door.admin(), Method::GET, "/.well-known/openid-configuration", &[], None).await;
    assert_eq!(
        (&document["issuer"], &document["id_token_signing_alg_values_supported"]),
        (&json!("https://new.example"), &json!(["RS256"]))
    );
    // The new key signs, both verify; then only the new one does.
    std::fs::write(&signing, &new.private_pem).unwrap();
    eventually(async || part(&issue().await, 0)["alg"] == "ES256").await;
    let second = issue().await;
    assert!(door.user(&plain, &first).await.is_ok() && door.user(&plain, &second).await.is_ok());
    let (_, keys) = door.call(&door.admin(), Method::GET, "/openid/v1/jwks", &[], None).await;
    assert_eq!(keys, json!({"keys": [new.jwk(), old.jwk()]}));
    std::fs::write(&verifying, &new.public_pem).unwrap();
    eventually(async || door.user(&plain, &first).await == Err(401)).await;
    assert!(door.user(&plain, &second).await.is_ok());
}

#[tokio::test]
async fn a_bootstrap_token_is_good_while_its_secret_says_so() {
    let door = door().await;
    let plain = door.client(None);
    let path = "/api/v1/namespaces/kube-system/secrets";
    let secret = |change: &dyn Fn(&mut Value)| {
        let mut data = json!({
            "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:workers", "expiration": "2999-01-01T00:00:00Z",
        });
        change(&mut data);
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token", "stringData": data})
    };
    let token = "abcdef.0123456789abcdef";
    assert_eq!(door.user(&plain, token).await, Err(401));
    door.make(path, secret(&|_| {})).await;
    let user = door.user(&plain, token).await.unwrap();
    let groups = json!(["system:bootstrappers", "system:bootstrappers:workers", "system:authenticated"]);
    assert_eq!((&user["username"], &user["groups"]), (&json!("system:bootstrap:abcdef"), &groups));
    for bad in
        ["abcdef.0123456789abcdee", "abcdeg.0123456789abcdef", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcde", "abcdef.", "abcdef"]
    {
        assert_eq!(door.user(&plain, bad).await, Err(401), "{bad}");
    }
    type Change<'a> = &'a dyn Fn(&mut Value);
    let changes: [(&str, Change<'_>); 5] = [
        ("expired", &|d| d["expiration"] = "2001-01-01T00:00:00Z".into()),
        ("an expiry that is none", &|d| d["expiration"] = "soon".into()),
        ("not for authentication", &|d| d["usage-bootstrap-authentication"] = "false".into()),
        ("another id", &|d| d["token-id"] = "ghijkl".into()),
        ("a group it cannot have", &|d| d["auth-extra-groups"] = "system:masters".into()),
    ];
    for (what, change) in changes {
        door.remove(&format!("{path}/bootstrap-token-abcdef")).await;
        assert_eq!(door.user(&plain, token).await, Err(401), "gone with its secret");
        door.make(path, secret(change)).await;
        assert_eq!(door.user(&plain, token).await, Err(401), "{what}");
    }
}

#[tokio::test]
async fn without_anonymous_access_every_path_needs_a_credential() {
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.identity.no_anonymous = true;
    let door = Door::open(builder).await;
    let plain = door.client(None);
    for path in ["/healthz", "/livez", "/version", "/api", "/openid/v1/jwks", "/api/v1/pods", "/nowhere"] {
        assert_eq!(door.call(&plain, Method::GET, path, &[], None).await.0, 401, "{path}");
        assert_ne!(door.call(&door.admin(), Method::GET, path, &[], None).await.0, 401, "{path}");
    }
}

#[tokio::test]
async fn policies_of_a_file_decide_and_are_read_anew_and_masters_need_none() {
    let directory = tempfile::tempdir().unwrap();
    let (policies, tokens) = (directory.path().join("abac.jsonl"), directory.path().join("tokens.csv"));
    let policy = |user: &str| {
        let spec = json!({"user": user, "namespace": "*", "resource": "pods", "apiGroup": "*", "readonly": true});
        json!({"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": spec}).to_string()
    };
    std::fs::write(&policies, policy("bob")).unwrap();
    std::fs::write(&tokens, "t1,bob,1\nt2,eve,2\nt3,root,3,system:masters\n").unwrap();
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.identity.authorization_mode = vec!["ABAC".into(), "AlwaysDeny".into()];
    builder.identity.authorization_policy_file = Some(policies.clone());
    builder.identity.token_auth_file = Some(tokens);
    let door = Door::open(builder).await;
    let plain = door.client(None);
    let ask = async |token: &str, method: Method, path: &str| {
        door.call(&plain, method, path, &[("authorization", &super::token_header(token))], None).await
    };
    assert_eq!(ask("t1", Method::GET, "/api/v1/pods").await.0, 200);
    let (code, body) = ask("t1", Method::DELETE, "/api/v1/namespaces/default/pods/x").await;
    assert_eq!(code, 403);
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .ends_with("in the namespace \"default\": abac: No policy matched.\nalwaysdeny: Everything is forbidden."),
        "{body}"
    );
    assert_eq!(ask("t1", Method::GET, "/api/v1/secrets").await.0, 403);
    assert_eq!(ask("t2", Method::GET, "/api/v1/pods").await.0, 403);
    assert_eq!(ask("t3", Method::GET, "/api/v1/secrets").await.0, 200);
    std::fs::write(&policies, policy("eve")).unwrap();
    eventually(async || ask("t2", Method::GET, "/api/v1/pods").await.0 == 200).await;
    assert_eq!(ask("t1", Method::GET, "/api/v1/pods").await.0, 403);
}

#[tokio::test]
async fn a_secret_for_the_token_of_an_account_gets_one_that_works_and_goes_with_the_account() {
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.components = "serviceaccount-token".into();
    let door = Door::open(builder).await;
    let secret = |name: &str, of: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
               "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": of}}})
    };
    let (secrets, path) = ("/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/secrets/bot-token");
    let account = account(&door, "bot").await;
    door.make(secrets, secret("bot-token", "bot")).await;
    let admin = door.admin();
    let get = async |path: &str| door.call(&admin, Method::GET, path, &[], None).await;
    eventually(async || get(path).await.1["data"]["token"].is_string()).await;
    let (_, filled) = get(path).await;
    let plain = |key: &str| {
        let text = filled["data"][key].as_str().unwrap_or_default();
        String::from_utf8(base64::engine::general_purpose::STANDARD.decode(text).unwrap()).unwrap()
    };
    assert_eq!(filled["metadata"]["annotations"]["kubernetes.io/service-account.uid"], account["metadata"]["uid"]);
    assert_eq!((plain("namespace").as_str(), plain("ca.crt").as_str()), ("default", door.server.pki().ca.as_str()));
    let stranger = door.client(None);
    let token = plain("token");
    assert_eq!(door.user(&stranger, &token).await.unwrap()["username"], "system:serviceaccount:default:bot");
    // What somebody has taken away comes back.
    let less = json!({"data": {"namespace": null}});
    let merge = [("content-type", "application/merge-patch+json")];
    assert_eq!(door.call(&admin, Method::PATCH, path, &merge, Some(less)).await.0, 200);
    eventually(async || get(path).await.1["data"]["namespace"] == filled["data"]["namespace"]).await;
    door.remove("/api/v1/namespaces/default/serviceaccounts/bot").await;
    eventually(async || get(path).await.0 == 404).await;
    assert_eq!(door.user(&stranger, &token).await, Err(401));
    door.make(secrets, secret("of-nobody", "nobody")).await;
    eventually(async || get("/api/v1/namespaces/default/secrets/of-nobody").await.0 == 404).await;
}
