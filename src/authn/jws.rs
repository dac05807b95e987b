//! Signed tokens as such: the three parts of a compact JWS, which algorithm goes with which key, signing, and verifying
//! against several keys. What the claims mean is told elsewhere ([`super::service_account`], [`super::oidc`]).

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey};
use serde_json::{Map, Value, json};
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;

use super::Unauthenticated;

/// What a real server says of a signature that does not fit.
pub const BAD_SIGNATURE: &str = "go-jose/go-jose: error in cryptographic primitive";

/// A key that signatures are verified with. It goes with exactly one algorithm, so that a token cannot choose another.
#[derive(Clone)]
pub struct PublicKey {
    /// The key id; for service accounts the digest of the key, for an issuer what its JWKS says.
    pub id: String,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
    /// The key as a JWKS shows it.
    pub jwk: Value,
}

/// A key that tokens are signed with.
#[derive(Clone)]
pub struct SigningKey {
    algorithm: Algorithm,
    key: EncodingKey,
    /// What its signatures are verified with.
    pub public: PublicKey,
}

/// A token taken apart; nothing in it is to be believed before [`Token::verify`].
pub struct Token<'a> {
    /// None that is allowed: `none`, whatever is signed with a secret, or a header that asks for more than is understood here.
    algorithm: Option<Algorithm>,
    /// The key id that the token claims.
    pub key_id: Option<String>,
    /// The claims.
    pub claims: Map<String, Value>,
    message: &'a str,
    signature: &'a str,
}

impl<'a> Token<'a> {
    /// Takes a token apart; `None` if it is no JWS at all. One that must not be accepted, such as `alg: none`, is found out when it is
    /// verified.
    pub fn parse(token: &'a str) -> Option<Self> {
        let (message, signature) = token.rsplit_once('.')?;
        let (header, payload) = message.split_once('.')?;
        let (header, claims) = (object(header)?, object(payload)?);
        let algorithm = match header.get("alg").and_then(Value::as_str) {
            Some("RS256") => Some(Algorithm::RS256),
            Some("RS384") => Some(Algorithm::RS384),
            Some("RS512") => Some(Algorithm::RS512),
            Some("PS256") => Some(Algorithm::PS256),
            Some("PS384") => Some(Algorithm::PS384),
            Some("PS512") => Some(Algorithm::PS512),
            Some("ES256") => Some(Algorithm::ES256),
            Some("ES384") => Some(Algorithm::ES384),
            _ => None,
        };
        let algorithm = algorithm.filter(|_| !header.contains_key("crit"));
        let key_id = header.get("kid").and_then(Value::as_str).map(str::to_owned);
        Some(Token { algorithm, key_id, claims, message, signature })
    }

    /// The issuer that the token claims.
    pub fn issuer(&self) -> Option<&str> {
        self.claims.get("iss").and_then(Value::as_str)
    }

    /// Whether one of the keys made the signature. A token with a key id is held against that key only.
    pub fn verify<'k>(&self, keys: impl Iterator<Item = &'k PublicKey>) -> Result<(), Unauthenticated> {
        let Some(algorithm) = self.algorithm else { return Err(Unauthenticated::because(BAD_SIGNATURE)) };
        let mut refusal = "invalid signature, no keys found";
        for key in keys {
            if self.key_id.as_ref().is_some_and(|id| *id != key.id) {
                continue;
            }
            refusal = BAD_SIGNATURE;
            let fits = key.algorithms.contains(&algorithm);
            if fits && matches!(jsonwebtoken::crypto::verify(self.signature, self.message.as_bytes(), &key.key, algorithm), Ok(true)) {
                return Ok(());
            }
        }
        Err(Unauthenticated::because(refusal))
    }

    /// Checks `exp` and `nbf` with the leeway of a minute that a real server gives.
    pub fn in_time(&self, now: i64) -> Result<(), Unauthenticated> {
        let Some(expires) = number(self.claims.get("exp")) else { return Err(Unauthenticated::because("the token says no expiry")) };
        if now > expires.saturating_add(LEEWAY) {
            return Err(Unauthenticated::because("the token has expired"));
        }
        if number(self.claims.get("nbf")).is_some_and(|from| now.saturating_add(LEEWAY) < from) {
            return Err(Unauthenticated::because("the token is not valid yet"));
        }
        Ok(())
    }

    /// The audiences: one text or a list of them.
    pub fn audiences(&self) -> Vec<String> {
        match self.claims.get("aud") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    }
}

/// Clocks differ; a minute is what go-jose allows.
pub const LEEWAY: i64 = 60;

/// A NumericDate, which may have a fraction.
pub fn number(value: Option<&Value>) -> Option<i64> {
    let value = value?;
    value.as_i64().or_else(|| value.as_f64().filter(|f| f.abs() < 1e15).map(|f| f as i64))
}

fn object(part: &str) -> Option<Map<String, Value>> {
    let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
    serde_json::from_slice(&bytes).ok()
}

impl PublicKey {
    /// A key from its SubjectPublicKeyInfo, with the key id that Kubernetes computes: the digest of that DER.
    pub fn from_spki(der: &[u8]) -> Result<Self, String> {
        let (_, info) = SubjectPublicKeyInfo::from_der(der).map_err(|_| "not a public key")?;
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, der));
        let bits = info.subject_public_key.data.as_ref();
        match info.parsed().map_err(|_| "a public key of an unknown sort")? {
            x509_parser::public_key::PublicKey::RSA(rsa) => {
                let trim = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(&bytes[bytes.iter().take_while(|b| **b == 0).count()..]);
                let (n, e) = (trim(rsa.modulus), trim(rsa.exponent));
                let jwk = json!({"use": "sig", "kty": "RSA", "kid": id, "alg": "RS256", "n": n, "e": e});
                Ok(PublicKey { id, algorithms: vec![Algorithm::RS256], key: DecodingKey::from_rsa_der(bits), jwk })
            }
            x509_parser::public_key::PublicKey::EC(_) => {
                let (algorithm, name, curve) = match bits.len() {
                    65 => (Algorithm::ES256, "ES256", "P-256"),
                    97 => (Algorithm::ES384, "ES384", "P-384"),
                    _ => return Err("an elliptic curve other than P-256 and P-384".into()),
                };
                let (x, y) = bits[1..].split_at(bits.len() / 2);
                let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
                let jwk = json!({"use": "sig", "kty": "EC", "kid": id, "crv": curve, "alg": name, "x": x, "y": y});
                Ok(PublicKey { id, algorithms: vec![algorithm], key: DecodingKey::from_ec_der(bits), jwk })
            }
            _ => Err("a key that is neither RSA nor ECDSA".into()),
        }
    }

    /// A key of an issuer's JWKS; `None` if it is not one to verify signatures with, or of a sort that is not known.
    pub fn from_jwk(jwk: &Value) -> Option<Self> {
        if jwk["use"].as_str().is_some_and(|u| u != "sig") {
            return None;
        }
        let text = |key: &str| jwk[key].as_str();
        let (family, key): (&[Algorithm], _) = match (text("kty")?, text("crv")) {
            ("RSA", _) => (
                &[Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512],
                DecodingKey::from_rsa_components(text("n")?, text("e")?).ok()?,
            ),
            ("EC", Some("P-256")) => (&[Algorithm::ES256], DecodingKey::from_ec_components(text("x")?, text("y")?).ok()?),
            ("EC", Some("P-384")) => (&[Algorithm::ES384], DecodingKey::from_ec_components(text("x")?, text("y")?).ok()?),
            _ => return None,
        };
        let algorithms: Vec<_> = match text("alg") {
            Some(alg) => family.iter().copied().filter(|a| format!("{a:?}") == alg).collect(),
            None => family.to_vec(),
        };
        Some(PublicKey { id: text("kid").unwrap_or_default().to_owned(), algorithms, key, jwk: jwk.clone() })
    }
}

impl SigningKey {
    pub(super) fn new(algorithm: Algorithm, key: EncodingKey, spki: &[u8]) -> Result<Self, String> {
        Ok(SigningKey { algorithm, key, public: PublicKey::from_spki(spki)? })
    }

    /// The algorithm's name.
    pub fn algorithm(&self) -> String {
        format!("{:?}", self.algorithm)
    }

    /// The compact form of signed claims.
    pub fn sign(&self, claims: &Value) -> Result<String, String> {
        let header = json!({"alg": self.algorithm(), "kid": self.public.id});
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &self.key, self.algorithm).map_err(|e| e.to_string())?;
        Ok(format!("{message}.{signature}"))
    }
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PublicKey({})", self.id)
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SigningKey({}, {})", self.algorithm(), self.public.id)
    }
}
