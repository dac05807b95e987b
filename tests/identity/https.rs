//! What stands outside the server in these tests: an HTTPS server on loopback that answers by a function, keys and certificates
//! made on the spot.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{HeaderMap, Response, Uri};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use usher::authn::jws::SigningKey;
use usher::authn::keys::ServiceAccountKeys;
use usher::gateway::pki::Pki;
use usher::gateway::{listener, tls};

/// An HTTPS server.
pub struct Https {
    pub url: String,
    pub ca: String,
    calls: Arc<AtomicUsize>,
    stop: CancellationToken,
}

impl Drop for Https {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Https {
    /// Answers every request by a function of its path, its headers and its body.
    pub async fn start(answer: impl Fn(&str, &HeaderMap, Value) -> (u16, Value) + Send + Sync + 'static) -> Https {
        let pki = Pki::open(None, &["127.0.0.1".into()]).unwrap();
        let calls = Arc::new(AtomicUsize::new(0));
        let (answer, counted) = (Arc::new(answer), calls.clone());
        let handler = move |uri: Uri, headers: HeaderMap, body: Bytes| {
            counted.fetch_add(1, Ordering::SeqCst);
            let (code, body) = answer(uri.path(), &headers, serde_json::from_slice(&body).unwrap_or_default());
            let response = Response::builder().status(code).header("content-type", "application/json");
            std::future::ready(response.body(Body::from(body.to_string())).unwrap())
        };
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", socket.local_addr().unwrap());
        let config = tls::server_config(pki.serving.as_bytes(), pki.serving_key.as_bytes()).unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(listener::serve(socket, config, Router::new().fallback(handler), stop.clone()));
        Https { url, ca: pki.ca.clone(), calls, stop }
    }

    /// How often it was asked.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// A kubeconfig that points to it.
    pub fn kubeconfig(&self) -> String {
        let cluster = json!({"server": format!("{}/review", self.url), "certificate-authority-data": STANDARD.encode(&self.ca)});
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": cluster}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {"token": "server-token"}}],
        })
        .to_string()
    }
}

/// A key to sign with, and what everybody knows of it.
pub struct Key {
    pub signing: SigningKey,
    pub private_pem: String,
    pub public_pem: String,
    public_der: Vec<u8>,
}

impl Key {
    fn new(pair: rcgen::KeyPair) -> Key {
        use rcgen::PublicKeyData;
        let private_pem = pair.serialize_pem();
        let keys = ServiceAccountKeys::new(Some(private_pem.as_bytes()), &[]).unwrap();
        let signing = keys.load().signing.clone().unwrap();
        Key { signing, private_pem, public_pem: pair.public_key_pem(), public_der: pair.subject_public_key_info() }
    }

    pub fn ecdsa() -> Key {
        Key::new(rcgen::KeyPair::generate().unwrap())
    }

    pub fn rsa() -> Key {
        Key::new(rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap())
    }

    /// The key that a server signs service-account tokens with.
    pub fn read(pem: &str) -> Key {
        Key::new(rcgen::KeyPair::from_pem(pem).unwrap())
    }

    pub fn sign(&self, claims: &Value) -> String {
        self.signing.sign(claims).unwrap()
    }

    pub fn jwk(&self) -> Value {
        self.signing.public.jwk.clone()
    }
}

/// A token with any header, whose signature is that of a secret.
pub fn with_secret(header: Value, claims: &Value, secret: &[u8]) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(&header), part(claims));
    let key = jsonwebtoken::EncodingKey::from_secret(secret);
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, jsonwebtoken::Algorithm::HS256).unwrap();
    format!("{message}.{signature}")
}

/// A token with another header than the one it was signed with.
pub fn with_header(token: &str, header: Value) -> String {
    let rest = token.split_once('.').unwrap().1;
    format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header.to_string()))
}

/// What nobody may take for a good token, made from good claims and the key that would be right: unsigned, signed with what everybody
/// knows, signed by nobody known, cut, oversized, or no token at all.
pub fn forgeries(claims: &Value, key: &Key, stranger: &Key) -> Vec<(&'static str, String)> {
    let good = key.sign(claims);
    let (id, algorithm) = (&key.signing.public.id, key.signing.algorithm());
    let other_algorithm = if algorithm == "ES256" { "RS256" } else { "ES256" };
    let of_stranger = stranger.signing.algorithm();
    let unsigned = |token: String| format!("{}.", token.rsplit_once('.').unwrap().0);
    let mut other = claims.clone();
    other["sub"] = "somebody-else".into();
    let foreign_claims = URL_SAFE_NO_PAD.encode(other.to_string());
    let parts: Vec<&str> = good.split('.').collect();
    vec![
        ("alg none", unsigned(with_header(&good, json!({"alg": "none"})))),
        ("alg None with a signature", with_header(&good, json!({"alg": "None", "kid": id}))),
        ("no alg", with_header(&good, json!({"kid": id}))),
        ("HS256 with the public key in PEM", with_secret(json!({"alg": "HS256", "kid": id}), claims, key.public_pem.as_bytes())),
        ("HS256 with the public key in DER", with_secret(json!({"alg": "HS256", "kid": id}), claims, &key.public_der)),
        ("HS256 with the public key as JWK", with_secret(json!({"alg": "HS256"}), claims, key.jwk().to_string().as_bytes())),
        ("HS256 with an empty secret", with_secret(json!({"alg": "HS256", "kid": id}), claims, b"")),
        ("RS256 over ES256 or the reverse", with_header(&good, json!({"alg": other_algorithm, "kid": id}))),
        ("a critical extension", with_header(&good, json!({"alg": algorithm, "kid": id, "crit": ["exp"]}))),
        ("unknown kid", stranger.sign(claims)),
        ("the right kid but another key", with_header(&stranger.sign(claims), json!({"alg": of_stranger, "kid": id}))),
        ("no kid and another key", with_header(&stranger.sign(claims), json!({"alg": of_stranger}))),
        ("other claims under the same signature", format!("{}.{foreign_claims}.{}", parts[0], parts[2])),
        ("no signature", format!("{}.{}.", parts[0], parts[1])),
        ("two parts", format!("{}.{}", parts[0], parts[1])),
        ("four parts", format!("{good}.{}", parts[2])),
        ("a cut signature", good[..good.len() - 5].to_owned()),
        ("claims that are no object", format!("{}.{}.{}", parts[0], URL_SAFE_NO_PAD.encode("[1]"), parts[2])),
        ("a header that is no base64", format!("!!.{}.{}", parts[1], parts[2])),
        ("oversized", format!("{good}{}", "A".repeat(40_000))),
    ]
}

/// An authority for certificates.
pub struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: rcgen::Issuer::new(params, key), pem }
    }

    /// The authority's own key, in PEM.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A client certificate and its key, in PEM.
    pub fn client(&self, name: &str, group: &str) -> (String, String) {
        self.issue(name, group, rcgen::ExtendedKeyUsagePurpose::ClientAuth, -60, 3600)
    }

    /// A certificate that is good between two times, in seconds from now.
    pub fn issue(&self, name: &str, group: &str, usage: rcgen::ExtendedKeyUsagePurpose, from: i64, until: i64) -> (String, String) {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.distinguished_name.push(rcgen::DnType::OrganizationName, group);
        params.extended_key_usages = vec![usage];
        let now = std::time::SystemTime::now();
        let at = |seconds: i64| {
            let offset = std::time::Duration::from_secs(seconds.unsigned_abs());
            if seconds < 0 { now - offset } else { now + offset }
        };
        params.not_before = at(from).into();
        params.not_after = at(until).into();
        let key = rcgen::KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// The time in seconds.
pub fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}
