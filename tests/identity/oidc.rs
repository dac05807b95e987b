//! Outside issuers, run by the test: several in one AuthenticationConfiguration, rules and mappings in CEL, keys that are
//! replaced, and every token that must not pass, through the socket of a whole server.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use reqwest::Client;
use serde_json::{Value, json};

use super::https::{Https, Key, forgeries, now};
use super::{Door, eventually};

/// An issuer whose keys the test can replace.
struct Issuer {
    server: Https,
    served: Arc<Mutex<Vec<Value>>>,
}

impl Issuer {
    async fn start(key: &Key) -> Issuer {
        let served = Arc::new(Mutex::new(vec![key.jwk()]));
        let (keys, url) = (served.clone(), Arc::new(Mutex::new(String::new())));
        let own = url.clone();
        let server = Https::start(move |path, _, _| match path {
            "/.well-known/openid-configuration" => {
                let url = own.lock().clone();
                (200, json!({"issuer": url, "jwks_uri": format!("{url}/keys")}))
            }
            "/keys" => (200, json!({"keys": *keys.lock()})),
            _ => (404, json!({})),
        })
        .await;
        *url.lock() = server.url.clone();
        Issuer { server, served }
    }

    fn claims(&self) -> Value {
        json!({"iss": self.server.url, "aud": "usher", "sub": "alice", "hd": "example.com", "groups": ["devs"], "exp": now() + 600, "nbf": now() - 5, "jti": "t1"})
    }
}

/// A server that knows two issuers: one by rules and mappings in CEL, one by plain claims.
struct Scene {
    door: Door,
    plain: Client,
    first: (Key, Issuer),
    second: (Key, Issuer),
    file: PathBuf,
    _directory: tempfile::TempDir,
}

fn configuration(jwt: &[Value]) -> String {
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": jwt}).to_string()
}

fn by_rules(issuer: &Issuer) -> Value {
    json!({
        "issuer": {"url": issuer.server.url, "audiences": ["usher", "other"], "audienceMatchPolicy": "MatchAny", "certificateAuthority": issuer.server.ca},
        "claimValidationRules": [
            {"claim": "hd", "requiredValue": "example.com"},
            {"expression": "claims.exp - claims.nbf <= 3600", "message": "lives too long"},
        ],
        "claimMappings": {
            "username": {"expression": "claims.sub + '@' + claims.hd"},
            "groups": {"expression": "claims.groups.map(g, 'x:' + g)"},
            "uid": {"claim": "sub"},
            "extra": [{"key": "example.com/tenant", "valueExpression": "claims.?tenant.orValue('')"}],
        },
        "userValidationRules": [{"expression": "!user.username.startsWith('system:')", "message": "reserved"}],
    })
}

fn by_claims(issuer: &Issuer) -> Value {
    json!({
        "issuer": {"url": issuer.server.url, "audiences": ["usher"], "certificateAuthority": issuer.server.ca},
        "claimMappings": {"username": {"claim": "sub", "prefix": "second:"}, "groups": {"claim": "groups", "prefix": ""}},
    })
}

async fn scene() -> Scene {
    let keys = (Key::ecdsa(), Key::rsa());
    let (first, second) = (Issuer::start(&keys.0).await, Issuer::start(&keys.1).await);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("authentication.yaml");
    std::fs::write(&file, configuration(&[by_rules(&first), by_claims(&second)])).unwrap();
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.identity.authentication_config = Some(file.clone());
    let door = Door::open(builder).await;
    let plain = door.client(None);
    Scene { door, plain, first: (keys.0, first), second: (keys.1, second), file, _directory: directory }
}

impl Scene {
    async fn user(&self, token: &str) -> Result<Value, u16> {
        self.door.user(&self.plain, token).await
    }

    /// What becomes of the first issuer's claims with a change.
    async fn with(&self, change: impl Fn(&mut Value)) -> Result<Value, u16> {
        let mut claims = self.first.1.claims();
        change(&mut claims);
        self.user(&self.first.0.sign(&claims)).await
    }
}

#[tokio::test]
async fn tokens_of_several_issuers_name_their_users() {
    let scene = scene().await;
    let user = scene.with(|claims| claims["tenant"] = "t1".into()).await.unwrap();
    let extra = json!({"authentication.kubernetes.io/credential-id": ["JTI=t1"], "example.com/tenant": ["t1"]});
    let expected = json!({"username": "alice@example.com", "uid": "alice", "groups": ["x:devs", "system:authenticated"], "extra": extra});
    assert_eq!(user, expected);
    let user = scene.user(&scene.second.0.sign(&scene.second.1.claims())).await.unwrap();
    assert_eq!((&user["username"], &user["groups"]), (&json!("second:alice"), &json!(["devs", "system:authenticated"])));
    // Both keys and both documents were fetched once each, however many tokens came.
    scene.with(|_| {}).await.unwrap();
    assert_eq!((scene.first.1.server.calls(), scene.second.1.server.calls()), (2, 2));
    let (code, body) = scene
        .door
        .call(
            &scene.plain,
            reqwest::Method::GET,
            "/api/v1/pods",
            &[("authorization", &format!("Bearer {}", scene.first.0.sign(&scene.first.1.claims())))],
            None,
        )
        .await;
    assert_eq!(code, 403, "known, and allowed nothing");
    assert!(body["message"].as_str().unwrap().contains("User \"alice@example.com\" cannot list"));
}

#[tokio::test]
async fn a_token_out_of_its_time_or_for_others_or_against_a_rule_is_401() {
    let scene = scene().await;
    scene.with(|_| {}).await.unwrap();
    type Change = Box<dyn Fn(&mut Value)>;
    let changes: [(&str, Change); 15] = [
        ("expired", Box::new(|c| (c["exp"], c["nbf"]) = ((now() - 120).into(), (now() - 600).into()))),
        ("no expiry", Box::new(|c| c["exp"] = Value::Null)),
        ("an expiry that is no number", Box::new(|c| c["exp"] = "tomorrow".into())),
        ("not yet valid", Box::new(|c| (c["exp"], c["nbf"]) = ((now() + 3000).into(), (now() + 1000).into()))),
        ("another audience", Box::new(|c| c["aud"] = "vault".into())),
        ("audiences of others", Box::new(|c| c["aud"] = json!(["vault", "consul"]))),
        ("no audience", Box::new(|c| c["aud"] = Value::Null)),
        ("another issuer", Box::new(|c| c["iss"] = "https://elsewhere.example".into())),
        ("no issuer", Box::new(|c| c["iss"] = Value::Null)),
        ("a claim that must be another", Box::new(|c| c["hd"] = "evil.example".into())),
        ("a claim that must be there", Box::new(|c| drop(c.as_object_mut().unwrap().remove("hd")))),
        ("a rule that does not hold", Box::new(|c| c["exp"] = (now() + 100_000).into())),
        ("a rule that cannot be evaluated", Box::new(|c| c["nbf"] = "x".into())),
        ("no subject", Box::new(|c| drop(c.as_object_mut().unwrap().remove("sub")))),
        ("a user that must not be", Box::new(|c| c["sub"] = "system:admin".into())),
    ];
    for (what, change) in changes {
        assert_eq!(scene.with(change).await, Err(401), "{what}");
    }
    assert!(scene.with(|c| c["aud"] = json!(["vault", "other"])).await.is_ok(), "one of its audiences is enough");
    // The other issuer's name under this one's signature, and the reverse.
    let mut claims = scene.first.1.claims();
    claims["iss"] = scene.second.1.server.url.clone().into();
    assert_eq!(scene.user(&scene.first.0.sign(&claims)).await, Err(401));
    assert_eq!(scene.user(&scene.second.0.sign(&scene.first.1.claims())).await, Err(401));
}

#[tokio::test]
async fn a_forged_token_of_either_sort_of_key_is_401() {
    let scene = scene().await;
    for (key, issuer, stranger) in [(&scene.first.0, &scene.first.1, Key::ecdsa()), (&scene.second.0, &scene.second.1, Key::rsa())] {
        scene.user(&key.sign(&issuer.claims())).await.unwrap();
        for (what, token) in forgeries(&issuer.claims(), key, &stranger) {
            assert_eq!(scene.user(&token).await, Err(401), "{what}");
        }
        let token = key.sign(&issuer.claims());
        for end in (0..token.len()).step_by(7) {
            assert_eq!(scene.user(&token[..end]).await, Err(401), "cut at {end}");
        }
    }
}

#[tokio::test]
async fn a_key_that_an_issuer_takes_anew_is_fetched_when_a_token_names_it() {
    let scene = scene().await;
    let (old, issuer) = &scene.first;
    scene.user(&old.sign(&issuer.claims())).await.unwrap();
    let new = Key::ecdsa();
    assert_eq!(scene.user(&new.sign(&issuer.claims())).await, Err(401), "nobody knows this key yet");
    // While both are served, both count; then only the new one.
    *issuer.served.lock() = vec![old.jwk(), new.jwk()];
    scene.user(&new.sign(&issuer.claims())).await.unwrap();
    scene.user(&old.sign(&issuer.claims())).await.unwrap();
    let newest = Key::rsa();
    *issuer.served.lock() = vec![newest.jwk()];
    scene.user(&newest.sign(&issuer.claims())).await.unwrap();
    assert_eq!(scene.user(&old.sign(&issuer.claims())).await, Err(401));
    assert_eq!(scene.user(&new.sign(&issuer.claims())).await, Err(401));
}

#[tokio::test]
async fn issuers_and_rules_count_anew_when_the_configuration_changes_and_a_mistake_changes_nothing() {
    let scene = scene().await;
    let (first, second) = (scene.first.0.sign(&scene.first.1.claims()), scene.second.0.sign(&scene.second.1.claims()));
    assert!(scene.user(&first).await.is_ok() && scene.user(&second).await.is_ok());
    let mut stricter = by_rules(&scene.first.1);
    stricter["claimValidationRules"][0]["requiredValue"] = "example.org".into();
    std::fs::write(&scene.file, configuration(&[stricter])).unwrap();
    eventually(async || scene.user(&first).await == Err(401) && scene.user(&second).await == Err(401)).await;
    assert!(scene.with(|claims| claims["hd"] = "example.org".into()).await.is_ok());
    std::fs::write(&scene.file, configuration(&[by_claims(&scene.second.1), by_claims(&scene.first.1)])).unwrap();
    eventually(async || scene.user(&first).await.is_ok()).await;
    // A file that cannot be read, and one whose expression does not compile, leave what is in force.
    let mut wrong = by_rules(&scene.first.1);
    wrong["claimMappings"]["username"]["expression"] = "claims.".into();
    for bad in ["{".to_owned(), configuration(&[wrong])] {
        std::fs::write(&scene.file, bad).unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        assert!(scene.user(&first).await.is_ok() && scene.user(&second).await.is_ok());
    }
}

#[tokio::test]
async fn an_issuer_out_of_reach_or_with_another_name_vouches_for_nobody() {
    let key = Key::ecdsa();
    let impostor =
        Https::start(|_, _, _| (200, json!({"issuer": "https://somebody.example", "jwks_uri": "https://127.0.0.1:1/keys"}))).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("authentication.yaml");
    let entry = |url: &str, ca: &str| json!({"issuer": {"url": url, "audiences": ["usher"], "certificateAuthority": ca}, "claimMappings": {"username": {"claim": "sub", "prefix": ""}}});
    let other = Https::start(|_, _, _| (200, json!({}))).await;
    std::fs::write(
        &file,
        configuration(&[entry(&impostor.url, &impostor.ca), entry("https://127.0.0.1:1", &impostor.ca), entry(&other.url, &impostor.ca)]),
    )
    .unwrap();
    let mut builder = crate::builder().listen("127.0.0.1:0".parse().unwrap());
    builder.identity.authentication_config = Some(file);
    let door = Door::open(builder).await;
    let plain = door.client(None);
    for url in [&impostor.url, "https://127.0.0.1:1", &other.url] {
        let claims = json!({"iss": url, "aud": "usher", "sub": "alice", "exp": now() + 600});
        assert_eq!(door.user(&plain, &key.sign(&claims)).await, Err(401), "{url}");
    }
    assert_eq!(other.calls(), 0, "the certificate of another authority ends the call before it is made");
}
