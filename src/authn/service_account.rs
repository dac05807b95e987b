//! Service-account tokens: the signature, the times, the audience, and then, for every single request, whether the
//! service account and the object that the token is bound to are still the ones it was issued for. Only the signature is
//! remembered, so a deleted Pod, Secret, Node or service account revokes its tokens at once.

use std::sync::{Arc, Weak};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::request::User;

use super::cache::{Cache, digest};
use super::jws::{LEEWAY, Token, number};
use super::keys::{KeySet, ServiceAccountKeys};
use super::token_request::{Reference, username};
use super::{Authenticated, CREDENTIAL_ID, Now, Objects, TokenAuthenticator, Unauthenticated};

/// The issuer of tokens that live in Secrets.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// The authenticator.
pub struct ServiceAccounts {
    issuers: Vec<String>,
    keys: Arc<ServiceAccountKeys>,
    objects: Arc<dyn Objects>,
    now: Now,
    signatures: Cache<Signed>,
}

#[derive(Clone)]
struct Signed {
    claims: Arc<Claims>,
    by: Weak<KeySet>,
}

/// What a token with a good signature says.
#[derive(Clone, Debug)]
struct Claims {
    namespace: String,
    account: Reference,
    subject: String,
    audiences: Vec<String>,
    expires: Option<i64>,
    not_before: Option<i64>,
    id: String,
    pod: Option<Reference>,
    secret: Option<Reference>,
    node: Option<Reference>,
    legacy: bool,
}

impl ServiceAccounts {
    /// Accepts tokens of any of `issuers` (the first is the one that issues) signed with any key of `keys`.
    pub fn new(issuers: Vec<String>, keys: Arc<ServiceAccountKeys>, objects: Arc<dyn Objects>, now: Now) -> Self {
        ServiceAccounts { issuers, keys, objects, now, signatures: Cache::new(16_384) }
    }

    fn check(&self, token: &str, audiences: &[String]) -> Result<Option<Authenticated>, Unauthenticated> {
        let keys = self.keys.load();
        let key = digest([token.as_bytes()]);
        let known = self.signatures.get(&key).filter(|signed| std::ptr::eq(signed.by.as_ptr(), Arc::as_ptr(&keys)));
        let claims = match known {
            Some(signed) => signed.claims,
            None => {
                let Some(parsed) = Token::parse(token) else { return Ok(None) };
                let legacy = match parsed.issuer() {
                    Some(LEGACY_ISSUER) => true,
                    Some(issuer) if self.issuers.iter().any(|i| i == issuer) => false,
                    _ => return Ok(None),
                };
                parsed.verify(keys.verification.iter())?;
                let claims = Arc::new(if legacy { legacy_claims(&parsed) } else { bound_claims(&parsed) }?);
                self.signatures.insert(key, Signed { claims: claims.clone(), by: Arc::downgrade(&keys) });
                claims
            }
        };
        let shared: Vec<String> =
            if claims.legacy { Vec::new() } else { claims.audiences.iter().filter(|a| audiences.contains(a)).cloned().collect() };
        if shared.is_empty() && !claims.legacy {
            let quoted = |list: &[String]| list.iter().map(|audience| format!("{audience:?}")).collect::<Vec<_>>().join(" ");
            return Err(Unauthenticated(format!(
                "token audiences [{}] is invalid for the target audiences [{}]",
                quoted(&claims.audiences),
                quoted(audiences)
            )));
        }
        self.alive(&claims, token)?;
        Ok(Some(Authenticated { user: Arc::new(user(&claims)), audiences: shared, by: "service-account" }))
    }

    /// Whether the token is in time and everything it depends on is still there and the same.
    fn alive(&self, claims: &Claims, token: &str) -> Result<(), Unauthenticated> {
        let now = (self.now)().as_second();
        if claims.expires.is_some_and(|at| now > at.saturating_add(LEEWAY)) {
            return Err(Unauthenticated::because("service account token has expired"));
        }
        if claims.not_before.is_some_and(|at| now.saturating_add(LEEWAY) < at) {
            return Err(Unauthenticated::because("service account token is not valid yet"));
        }
        if claims.subject != username(&claims.namespace, &claims.account.name) {
            return Err(Unauthenticated::because("the token's subject is not its service account"));
        }
        let still = |resource: &str, namespace: &str, reference: &Reference| {
            let object = self.objects.get(resource, namespace, &reference.name);
            let object = object.ok_or_else(|| Unauthenticated(format!("{resource} \"{}\" not found", reference.name)))?;
            let metadata = &object["metadata"];
            let uid = metadata["uid"].as_str().unwrap_or_default();
            if uid != reference.uid {
                return Err(Unauthenticated(format!(
                    "the UID of {resource} \"{}\" ({uid}) does not match claim ({})",
                    reference.name, reference.uid
                )));
            }
            let deleted = metadata["deletionTimestamp"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
            if deleted.is_some_and(|at| at.as_second() < now - LEEWAY) {
                return Err(Unauthenticated(format!("{resource} \"{}\" has been deleted", reference.name)));
            }
            Ok(object)
        };
        still("serviceaccounts", &claims.namespace, &claims.account)?;
        if claims.legacy {
            return self.legacy_secret(claims, token);
        }
        if let Some(secret) = &claims.secret {
            still("secrets", &claims.namespace, secret)?;
        }
        match (&claims.pod, &claims.node) {
            // The node of a Pod's token is only told; the token lives as long as the Pod.
            (Some(pod), _) => drop(still("pods", &claims.namespace, pod)?),
            (None, Some(node)) => drop(still("nodes", "", node)?),
            (None, None) => {}
        }
        Ok(())
    }

    /// A token in a Secret is good as long as that Secret still holds exactly this token.
    fn legacy_secret(&self, claims: &Claims, token: &str) -> Result<(), Unauthenticated> {
        let gone = || Unauthenticated::because("the token's secret is gone or holds another token");
        let name = &claims.secret.as_ref().ok_or_else(gone)?.name;
        let secret = self.objects.get("secrets", &claims.namespace, name).ok_or_else(gone)?;
        let metadata = &secret["metadata"];
        if metadata["deletionTimestamp"].is_string() || metadata["labels"]["kubernetes.io/legacy-token-invalid-since"].is_string() {
            return Err(Unauthenticated::because("the token's secret has been invalidated"));
        }
        let held = secret["data"]["token"].as_str().and_then(|t| STANDARD.decode(t).ok()).ok_or_else(gone)?;
        verify_slices_are_equal(&held, token.as_bytes()).map_err(|_| gone())
    }
}

fn text(map: &Map<String, Value>, key: &str) -> String {
    map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn bound_claims(token: &Token<'_>) -> Result<Claims, Unauthenticated> {
    let malformed = || Unauthenticated::because("the token lacks the claims of a service account");
    let private = token.claims.get("kubernetes.io").ok_or_else(malformed)?;
    let account = Reference::from_claim(&private["serviceaccount"]).ok_or_else(malformed)?;
    let namespace = private["namespace"].as_str().unwrap_or_default().to_owned();
    if namespace.is_empty() || account.name.is_empty() || account.uid.is_empty() {
        return Err(malformed());
    }
    Ok(Claims {
        namespace,
        account,
        subject: text(&token.claims, "sub"),
        audiences: token.audiences(),
        expires: Some(number(token.claims.get("exp")).ok_or_else(malformed)?),
        not_before: number(token.claims.get("nbf")),
        id: text(&token.claims, "jti"),
        pod: Reference::from_claim(&private["pod"]),
        secret: Reference::from_claim(&private["secret"]),
        node: Reference::from_claim(&private["node"]),
        legacy: false,
    })
}

fn legacy_claims(token: &Token<'_>) -> Result<Claims, Unauthenticated> {
    let claim = |key: &str| text(&token.claims, &format!("kubernetes.io/serviceaccount/{key}"));
    let claims = Claims {
        namespace: claim("namespace"),
        account: Reference { name: claim("service-account.name"), uid: claim("service-account.uid") },
        subject: text(&token.claims, "sub"),
        audiences: Vec::new(),
        expires: number(token.claims.get("exp")),
        not_before: number(token.claims.get("nbf")),
        id: String::new(),
        pod: None,
        secret: Some(Reference { name: claim("secret.name"), uid: String::new() }),
        node: None,
        legacy: true,
    };
    if claims.namespace.is_empty() || claims.account.name.is_empty() || claims.account.uid.is_empty() {
        return Err(Unauthenticated::because("the token lacks the claims of a service account"));
    }
    Ok(claims)
}

fn user(claims: &Claims) -> User {
    let mut extra = Vec::new();
    let mut tell = |key: &str, value: &str| {
        if !value.is_empty() {
            extra.push((format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]));
        }
    };
    if let Some(node) = &claims.node {
        tell("node-name", &node.name);
        tell("node-uid", &node.uid);
    }
    if let Some(pod) = &claims.pod {
        tell("pod-name", &pod.name);
        tell("pod-uid", &pod.uid);
    }
    if !claims.id.is_empty() {
        extra.insert(0, (CREDENTIAL_ID.to_owned(), vec![format!("JTI={}", claims.id)]));
    }
    User {
        name: claims.subject.clone(),
        uid: claims.account.uid.clone(),
        groups: vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{}", claims.namespace)],
        extra,
    }
}

impl TokenAuthenticator for ServiceAccounts {
    fn name(&self) -> &'static str {
        "service-account"
    }

    fn authenticate_token<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [String],
    ) -> BoxFuture<'a, Result<Option<Authenticated>, Unauthenticated>> {
        let found = self.check(token, audiences);
        Box::pin(async move { found })
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::json;

    use super::super::fixtures::{Clock, Map as ObjectMap};
    use super::super::jws::SigningKey;
    use super::super::keys::generate;
    use super::super::token_request::{Bound, Request, legacy_claims};
    use super::*;

    const ISSUER: &str = "https://kubernetes.default.svc";

    struct Scene {
        accounts: ServiceAccounts,
        keys: Arc<ServiceAccountKeys>,
        objects: Arc<ObjectMap>,
        clock: Clock,
        audiences: Vec<String>,
    }

    fn object(namespace: &str, name: &str, uid: &str) -> Value {
        json!({"metadata": {"namespace": namespace, "name": name, "uid": uid}})
    }

    fn scene() -> Scene {
        let keys = Arc::new(ServiceAccountKeys::new(Some(generate().unwrap().as_bytes()), &[]).unwrap());
        let (objects, clock) = (Arc::new(ObjectMap::default()), Clock::at(1_000_000));
        objects.put("serviceaccounts", object("ns", "bot", "u1"));
        objects.put("pods", object("ns", "p", "u2"));
        objects.put("nodes", object("", "n", "u3"));
        objects.put("secrets", object("ns", "s", "u4"));
        let accounts = ServiceAccounts::new(vec![ISSUER.into()], keys.clone(), objects.clone(), clock.now());
        Scene { accounts, keys, objects, clock, audiences: vec![ISSUER.into()] }
    }

    fn reference(name: &str, uid: &str) -> Reference {
        Reference { name: name.into(), uid: uid.into() }
    }

    impl Scene {
        fn claims(&self, bound: Bound) -> Value {
            let request = Request {
                issuer: ISSUER,
                audiences: &self.audiences,
                namespace: "ns",
                service_account: reference("bot", "u1"),
                bound,
                now: (self.clock.now())().as_second(),
                seconds: 3600,
                warn_after: None,
                id: "jti-1",
            };
            request.claims()
        }

        fn key(&self) -> SigningKey {
            self.keys.load().signing.clone().unwrap()
        }

        fn token(&self, bound: Bound) -> String {
            self.key().sign(&self.claims(bound)).unwrap()
        }

        fn check(&self, token: &str) -> Result<Option<Arc<User>>, Unauthenticated> {
            self.accounts.check(token, &self.audiences).map(|known| known.map(|k| k.user))
        }

        fn good(&self, token: &str) -> Arc<User> {
            self.check(token).unwrap().unwrap()
        }
    }

    #[test]
    fn a_token_names_its_service_account_its_groups_and_itself() {
        let scene = scene();
        let user = scene.good(&scene.token(Bound::Pod(reference("p", "u2"), Some(reference("n", "u3")))));
        assert_eq!((&*user.name, &*user.uid), ("system:serviceaccount:ns:bot", "u1"));
        assert_eq!(user.groups, ["system:serviceaccounts", "system:serviceaccounts:ns"]);
        let extra: Vec<_> = user.extra.iter().map(|(k, v)| (k.rsplit('/').next().unwrap(), v[0].as_str())).collect();
        let expected = [("credential-id", "JTI=jti-1"), ("node-name", "n"), ("node-uid", "u3"), ("pod-name", "p"), ("pod-uid", "u2")];
        assert_eq!(extra, expected);
    }

    #[test]
    fn a_token_is_good_only_in_its_time() {
        let scene = scene();
        let token = scene.token(Bound::Nothing);
        scene.good(&token);
        scene.clock.advance(-120);
        assert!(scene.check(&token).is_err(), "not yet valid");
        scene.clock.advance(120 + 3600 + 61);
        assert!(scene.check(&token).is_err(), "expired, though its signature is remembered");
    }

    #[test]
    fn a_token_dies_with_its_account_and_with_what_it_is_bound_to() {
        let bounds = [
            (Bound::Nothing, "serviceaccounts", "ns", "bot"),
            (Bound::Pod(reference("p", "u2"), None), "pods", "ns", "p"),
            (Bound::Node(reference("n", "u3")), "nodes", "", "n"),
            (Bound::Secret(reference("s", "u4")), "secrets", "ns", "s"),
        ];
        for (bound, resource, namespace, name) in bounds {
            let scene = scene();
            let token = scene.token(bound);
            scene.good(&token);
            scene.objects.remove(resource, namespace, name);
            assert!(scene.check(&token).is_err(), "{resource} gone");
            scene.objects.put(resource, object(namespace, name, "another"));
            assert!(scene.check(&token).is_err(), "{resource} made anew");
        }
    }

    #[test]
    fn forged_and_foreign_tokens_are_refused() {
        let scene = scene();
        let stranger = ServiceAccountKeys::new(Some(generate().unwrap().as_bytes()), &[]).unwrap().load().signing.clone().unwrap();
        let claims = scene.claims(Bound::Nothing);
        assert!(scene.check(&stranger.sign(&claims).unwrap()).is_err(), "unknown key id");

        let good = scene.token(Bound::Nothing);
        let (message, signature) = good.rsplit_once('.').unwrap();
        let payload = message.split_once('.').unwrap().1;
        let header = |header: Value| URL_SAFE_NO_PAD.encode(header.to_string());
        for bad in [
            json!({"alg": "none"}),
            json!({"alg": "HS256", "kid": scene.key().public.id}),
            json!({"alg": "RS256", "kid": scene.key().public.id}),
            json!({"alg": "ES256", "kid": scene.key().public.id, "crit": ["x"]}),
            json!({"alg": "ES256", "kid": "unknown"}),
            json!({}),
        ] {
            assert!(scene.check(&format!("{}.{payload}.{signature}", header(bad.clone()))).is_err(), "{bad}");
        }
        assert!(scene.check(&format!("{}.{payload}.", header(json!({"alg": "none"})))).is_err());
        let mut other = claims.clone();
        other["sub"] = "system:serviceaccount:kube-system:admin".into();
        let forged = URL_SAFE_NO_PAD.encode(other.to_string());
        let head = message.split_once('.').unwrap().0;
        assert!(scene.check(&format!("{head}.{forged}.{signature}")).is_err(), "changed claims");
        assert!(scene.check(&scene.key().sign(&other).unwrap()).is_err(), "subject of another account");
        for garbage in ["", "a", "a.b", "a.b.c", "..", "e30.e30.", "e30..e30"] {
            assert!(!matches!(scene.check(garbage), Ok(Some(_))), "{garbage:?}");
        }
    }

    #[test]
    fn the_public_key_is_no_secret_to_sign_with() {
        let scene = scene();
        let jwk = scene.keys.jwks()["keys"][0].to_string();
        let header = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": scene.key().public.id}).to_string());
        let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(scene.claims(Bound::Nothing).to_string()));
        let secret = jsonwebtoken::EncodingKey::from_secret(jwk.as_bytes());
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &secret, jsonwebtoken::Algorithm::HS256).unwrap();
        assert!(scene.check(&format!("{message}.{signature}")).is_err());
    }

    #[test]
    fn a_token_of_another_issuer_is_not_ours_and_one_for_another_audience_is_refused() {
        let scene = scene();
        let mut claims = scene.claims(Bound::Nothing);
        claims["iss"] = "https://elsewhere".into();
        assert_eq!(scene.check(&scene.key().sign(&claims).unwrap()), Ok(None));
        let mut claims = scene.claims(Bound::Nothing);
        claims["aud"] = json!(["vault"]);
        let token = scene.key().sign(&claims).unwrap();
        assert!(scene.check(&token).is_err());
        let known = scene.accounts.check(&token, &["vault".into(), "x".into()]).unwrap().unwrap();
        assert_eq!(known.audiences, ["vault"]);
    }

    #[test]
    fn a_retired_key_stops_counting_even_for_remembered_tokens() {
        let scene = scene();
        let token = scene.token(Bound::Nothing);
        scene.good(&token);
        let (old, new) = (scene.key(), generate().unwrap());
        scene.keys.replace(Some(new.as_bytes()), &[]).unwrap();
        assert!(scene.check(&token).is_err());
        drop(old);
    }

    #[test]
    fn a_token_in_a_secret_is_good_while_the_secret_holds_it() {
        let scene = scene();
        let token = scene.key().sign(&legacy_claims("ns", &reference("bot", "u1"), "legacy")).unwrap();
        assert!(scene.check(&token).is_err());
        let mut secret = object("ns", "legacy", "u9");
        secret["data"] = json!({"token": STANDARD.encode(&token)});
        scene.objects.put("secrets", secret.clone());
        assert_eq!(scene.good(&token).name, "system:serviceaccount:ns:bot");
        secret["data"]["token"] = STANDARD.encode("another").into();
        scene.objects.put("secrets", secret);
        assert!(scene.check(&token).is_err());
    }
}
