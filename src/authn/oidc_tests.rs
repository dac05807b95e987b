use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::super::authentication_configuration::from_value;
use super::super::fixtures::{Clock, TlsServer};
use super::super::jws::SigningKey;
use super::super::keys::{ServiceAccountKeys, generate};
use super::*;

/// An issuer that runs on the loopback interface, whose keys the test can change.
struct Scene {
    server: TlsServer,
    key: SigningKey,
    served: Arc<Mutex<Value>>,
    clock: Clock,
    issuers: Issuers,
}

fn new_key() -> (SigningKey, Value) {
    let keys = ServiceAccountKeys::new(Some(generate().unwrap().as_bytes()), &[]).unwrap();
    let key = keys.load().signing.clone().unwrap();
    (key, keys.jwks())
}

async fn scene(change: impl Fn(&mut Value)) -> Scene {
    let (key, jwks) = new_key();
    let served = Arc::new(Mutex::new(jwks));
    let url = Arc::new(Mutex::new(String::new()));
    let (keys, own) = (served.clone(), url.clone());
    let server = TlsServer::start(move |path, _| match path {
        "/.well-known/openid-configuration" => {
            let url = own.lock().clone();
            (200, json!({"issuer": url, "jwks_uri": format!("{url}/keys")}).to_string())
        }
        "/keys" => (200, keys.lock().to_string()),
        _ => (404, String::new()),
    })
    .await;
    *url.lock() = server.url();
    let mut document = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": server.url(), "audiences": ["usher"], "certificateAuthority": server.ca},
            "claimMappings": {"username": {"claim": "sub", "prefix": "oidc:"}, "groups": {"claim": "groups", "prefix": ""}},
        }],
    });
    change(&mut document["jwt"][0]);
    let clock = Clock::at(1_000_000);
    let issuers = Issuers::new(clock.now());
    issuers.replace(from_value(&document, &[]).map_err(|e| panic!("{e}")).unwrap().issuers);
    Scene { server, key, served, clock, issuers }
}

impl Scene {
    fn claims(&self) -> Value {
        json!({"iss": self.server.url(), "aud": "usher", "sub": "alice", "exp": 1_003_600, "nbf": 1_000_000, "jti": "7", "groups": ["g"]})
    }

    async fn check(&self, token: &str) -> Result<Option<Arc<User>>, Unauthenticated> {
        self.issuers.authenticate_token(token, &[]).await.map(|known| known.map(|k| k.user))
    }

    async fn with(&self, change: impl Fn(&mut Value)) -> Result<Option<Arc<User>>, Unauthenticated> {
        let mut claims = self.claims();
        change(&mut claims);
        self.check(&self.key.sign(&claims).unwrap()).await
    }
}

#[tokio::test]
async fn a_token_of_an_issuer_on_the_network_names_its_user() {
    let scene = scene(|_| {}).await;
    for _ in 0..3 {
        let user = scene.with(|_| {}).await.unwrap().unwrap();
        assert_eq!((&*user.name, &*user.groups), ("oidc:alice", &["g".to_owned()][..]));
        assert_eq!(user.extra, [(CREDENTIAL_ID.to_owned(), vec!["JTI=7".to_owned()])]);
    }
    assert_eq!(scene.server.calls.load(Ordering::SeqCst), 2, "discovery and keys are fetched once");
}

#[tokio::test]
async fn wrong_audience_issuer_time_key_and_algorithm_are_refused() {
    let scene = scene(|_| {}).await;
    assert!(scene.with(|c| c["aud"] = "other".into()).await.is_err());
    assert!(scene.with(|c| c["aud"] = json!(["x", "usher"])).await.is_ok());
    assert!(scene.with(|c| c["aud"] = Value::Null).await.is_err());
    assert_eq!(scene.with(|c| c["iss"] = "https://elsewhere".into()).await, Ok(None));
    assert!(scene.with(|c| c["exp"] = 999_999.into()).await.is_err());
    assert!(scene.with(|c| c["exp"] = Value::Null).await.is_err());
    assert!(scene.with(|c| c["nbf"] = 1_000_400.into()).await.is_err());
    assert!(scene.with(|c| c["sub"] = Value::Null).await.is_err());
    assert!(scene.with(|c| c["groups"] = json!([1])).await.is_err());
    let (stranger, _) = new_key();
    assert!(scene.check(&stranger.sign(&scene.claims()).unwrap()).await.is_err());
    let good = scene.key.sign(&scene.claims()).unwrap();
    let unsigned = format!("eyJhbGciOiJub25lIn0.{}.", good.split('.').nth(1).unwrap());
    assert!(scene.check(&unsigned).await.is_err());
    assert!(scene.check(&good[..good.len() - 4]).await.is_err());
    assert_eq!(scene.check("garbage").await, Ok(None));
    scene.clock.advance(3601);
    assert!(scene.check(&good).await.is_err());
}

#[tokio::test]
async fn a_new_key_of_the_issuer_is_fetched_when_a_token_names_it() {
    let scene = scene(|_| {}).await;
    scene.with(|_| {}).await.unwrap().unwrap();
    let (next, jwks) = new_key();
    let token = next.sign(&scene.claims()).unwrap();
    assert!(scene.check(&token).await.is_err());
    *scene.served.lock() = jwks;
    assert!(scene.check(&token).await.unwrap().is_some());
    assert!(scene.with(|_| {}).await.is_err(), "the retired key is gone");
}

#[tokio::test]
async fn claims_are_validated_and_mapped_by_expressions() {
    let scene = scene(|jwt| {
        jwt["claimValidationRules"] = json!([
            {"claim": "hd", "requiredValue": "example.com"},
            {"expression": "claims.exp - claims.nbf <= 3600", "message": "too long"},
        ]);
        jwt["claimMappings"] = json!({
            "username": {"expression": "claims.sub + '@' + claims.hd"},
            "groups": {"expression": "claims.groups.map(g, 'x:' + g)"},
            "uid": {"claim": "sub"},
            "extra": [{"key": "example.com/tenant", "valueExpression": "claims.?tenant.orValue('')"}],
        });
        jwt["userValidationRules"] = json!([{"expression": "!user.username.startsWith('system:')", "message": "reserved"}]);
    })
    .await;
    let user = scene
        .with(|c| {
            c["hd"] = "example.com".into();
            c["tenant"] = "t1".into();
        })
        .await
        .unwrap()
        .unwrap();
    assert_eq!((&*user.name, &*user.uid, &*user.groups), ("alice@example.com", "alice", &["x:g".to_owned()][..]));
    assert_eq!(user.extra[0], ("example.com/tenant".to_owned(), vec!["t1".to_owned()]));
    let user = scene.with(|c| c["hd"] = "example.com".into()).await.unwrap().unwrap();
    assert_eq!(user.extra.len(), 1, "an empty extra value is left out");
    assert!(scene.with(|_| {}).await.unwrap_err().0.contains("required claim hd not present"));
    assert!(scene.with(|c| c["hd"] = "evil.com".into()).await.is_err());
    assert!(
        scene
            .with(|c| {
                c["hd"] = "example.com".into();
                c["exp"] = 1_009_999.into();
            })
            .await
            .unwrap_err()
            .0
            .contains("too long")
    );
    assert!(
        scene
            .with(|c| {
                c["hd"] = "example.com".into();
                c["sub"] = "system:x".into();
            })
            .await
            .unwrap_err()
            .0
            .contains("reserved")
    );
}

#[tokio::test]
async fn an_unverified_address_is_no_name() {
    let scene = scene(|jwt| jwt["claimMappings"]["username"]["claim"] = "email".into()).await;
    assert!(
        scene
            .with(|c| {
                c["email"] = "a@b".into();
                c["email_verified"] = false.into();
            })
            .await
            .is_err()
    );
    assert!(
        scene
            .with(|c| {
                c["email"] = "a@b".into();
                c["email_verified"] = true.into();
            })
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn an_unknown_key_id_another_algorithm_and_the_public_key_as_a_secret_are_refused() {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let scene = scene(|_| {}).await;
    let good = scene.key.sign(&scene.claims()).unwrap();
    let parts: Vec<&str> = good.split('.').collect();
    let header = |header: Value| URL_SAFE_NO_PAD.encode(header.to_string());
    let kid = scene.key.public.id.clone();
    for bad in [
        json!({"alg": "ES256", "kid": "unknown"}),
        json!({"alg": "RS256", "kid": kid}),
        json!({"alg": "HS256", "kid": kid}),
        json!({"alg": "none", "kid": kid}),
        json!({"alg": "ES256", "kid": kid, "crit": ["x"]}),
        json!({"kid": kid}),
    ] {
        let token = format!("{}.{}.{}", header(bad.clone()), parts[1], parts[2]);
        assert!(scene.check(&token).await.is_err(), "{bad}");
    }
    let message = format!("{}.{}", header(json!({"alg": "HS256", "kid": kid})), parts[1]);
    let jwks = scene.served.lock().clone();
    for secret in [jwks["keys"][0].to_string(), jwks.to_string()] {
        let secret = jsonwebtoken::EncodingKey::from_secret(secret.as_bytes());
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &secret, jsonwebtoken::Algorithm::HS256).unwrap();
        assert!(scene.check(&format!("{message}.{signature}")).await.is_err());
    }
    for end in 0..good.len() {
        assert!(!matches!(scene.check(&good[..end]).await, Ok(Some(_))), "cut at {end}");
    }
}
