//! The keys of service-account tokens: one to sign with, several to verify with (so that keys can be rotated), read from
//! PEM in any of the forms that OpenSSL writes; and the two documents by which others learn of them, the JWKS and the
//! OpenID configuration.

use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::KeyPair as RsaKeyPair;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};
use usher_components::controllers::certificates::pem;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::jws::{PublicKey, SigningKey};

/// The keys in force.
#[derive(Debug, Default)]
pub struct KeySet {
    /// What new tokens are signed with.
    pub signing: Option<SigningKey>,
    /// What tokens may be signed with, each key once.
    pub verification: Vec<PublicKey>,
}

/// The keys in force, replaceable while in use.
#[derive(Debug, Default)]
pub struct ServiceAccountKeys {
    set: ArcSwap<KeySet>,
}

impl ServiceAccountKeys {
    /// Reads a signing key and further verification keys, all PEM. The signing key also verifies.
    pub fn new(signing_pem: Option<&[u8]>, verification_pems: &[&[u8]]) -> Result<Self, String> {
        let keys = ServiceAccountKeys::default();
        keys.replace(signing_pem, verification_pems)?;
        Ok(keys)
    }

    /// Takes new keys; the former stay in force if one cannot be read.
    pub fn replace(&self, signing_pem: Option<&[u8]>, verification_pems: &[&[u8]]) -> Result<(), String> {
        let signing = signing_pem.map(signing_key).transpose()?;
        let mut verification: Vec<PublicKey> = signing.iter().map(|key| key.public.clone()).collect();
        for pem in verification_pems {
            for key in public_keys(pem)? {
                if !verification.iter().any(|known| known.id == key.id) {
                    verification.push(key);
                }
            }
        }
        self.set.store(Arc::new(KeySet { signing, verification }));
        Ok(())
    }

    /// The keys as they are now.
    pub fn load(&self) -> Arc<KeySet> {
        self.set.load_full()
    }

    /// What `/openid/v1/jwks` answers, as `application/jwk-set+json`.
    pub fn jwks(&self) -> Value {
        json!({"keys": self.load().verification.iter().map(|key| key.jwk.clone()).collect::<Vec<_>>()})
    }

    /// What `/.well-known/openid-configuration` answers.
    pub fn openid_configuration(&self, issuer: &str, jwks_uri: &str) -> Value {
        let mut algorithms: Vec<String> = Vec::new();
        for key in &self.load().verification {
            let algorithm = key.jwk["alg"].as_str().unwrap_or_default().to_owned();
            if !algorithms.contains(&algorithm) {
                algorithms.push(algorithm);
            }
        }
        algorithms.sort();
        json!({
            "issuer": issuer,
            "jwks_uri": jwks_uri,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": algorithms,
        })
    }
}

/// A new key in PEM, for a server that starts for the first time. ECDSA, because it is made in microseconds.
pub fn generate() -> Result<String, String> {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| "cannot make a key")?;
    let der = key.to_pkcs8v1().map_err(|_| "cannot write a key")?;
    Ok(pem("PRIVATE KEY", der.as_ref()))
}

fn blocks(pem: &[u8]) -> Result<Vec<Pem>, String> {
    let blocks: Result<Vec<_>, _> = Pem::iter_from_buffer(pem).collect();
    let blocks = blocks.map_err(|_| "not PEM")?;
    if blocks.is_empty() { Err("holds no key".into()) } else { Ok(blocks) }
}

fn signing_key(pem: &[u8]) -> Result<SigningKey, String> {
    let blocks = blocks(pem)?;
    let private = blocks.iter().find_map(|block| private_key(block).transpose());
    private.ok_or("holds no private key")?
}

fn private_key(block: &Pem) -> Result<Option<SigningKey>, String> {
    let der = block.contents.as_slice();
    match block.label.as_str() {
        "RSA PRIVATE KEY" => rsa(RsaKeyPair::from_der(der)).map(Some),
        "EC PRIVATE KEY" => ecdsa(|curve| EcdsaKeyPair::from_private_key_der(curve, der).ok()).map(Some),
        "PRIVATE KEY" => match RsaKeyPair::from_pkcs8(der) {
            Ok(key) => rsa(Ok(key)).map(Some),
            Err(_) => ecdsa(|curve| EcdsaKeyPair::from_pkcs8(curve, der).ok()).map(Some),
        },
        _ => Ok(None),
    }
}

fn rsa(key: Result<RsaKeyPair, aws_lc_rs::error::KeyRejected>) -> Result<SigningKey, String> {
    let key = key.map_err(|e| format!("not a usable RSA key: {e}"))?;
    let spki: PublicKeyX509Der<'_> = key.public_key().as_der().map_err(|_| "cannot write a public key")?;
    let pkcs8: Pkcs8V1Der<'_> = key.as_der().map_err(|_| "cannot write a key")?;
    // The signer wants the key as PKCS#1, which is the innermost part of PKCS#8.
    let (_, info) = pkcs8_inner(pkcs8.as_ref()).ok_or("cannot write a key")?;
    SigningKey::new(Algorithm::RS256, EncodingKey::from_rsa_der(info), spki.as_ref())
}

fn ecdsa(read: impl Fn(&'static aws_lc_rs::signature::EcdsaSigningAlgorithm) -> Option<EcdsaKeyPair>) -> Result<SigningKey, String> {
    let curves = [(Algorithm::ES256, &ECDSA_P256_SHA256_FIXED_SIGNING), (Algorithm::ES384, &ECDSA_P384_SHA384_FIXED_SIGNING)];
    let found = curves.into_iter().find_map(|(algorithm, curve)| Some((algorithm, read(curve)?)));
    let (algorithm, key) = found.ok_or("neither an RSA key nor an ECDSA key of P-256 or P-384")?;
    let pkcs8 = key.to_pkcs8v1().map_err(|_| "cannot write a key")?;
    let spki: PublicKeyX509Der<'_> = key.public_key().as_der().map_err(|_| "cannot write a public key")?;
    SigningKey::new(algorithm, EncodingKey::from_ec_der(pkcs8.as_ref()), spki.as_ref())
}

/// The algorithm and the key inside a PrivateKeyInfo.
fn pkcs8_inner(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, sequence) = element(der)?;
    let (rest, _version) = element(sequence)?;
    let (rest, algorithm) = element(rest)?;
    let (_, key) = element(rest)?;
    Some((algorithm, key))
}

/// One DER element: what follows it, and its content.
fn element(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&_tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
        (bytes.iter().take(8).fold(0, |n, b| n << 8 | usize::from(*b)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((rest, content))
}

/// Every public key of a PEM file, be they written as such, in certificates, or as part of private keys.
pub fn public_keys(pem: &[u8]) -> Result<Vec<PublicKey>, String> {
    let mut keys = Vec::new();
    for block in blocks(pem)? {
        match block.label.as_str() {
            "PUBLIC KEY" => keys.push(PublicKey::from_spki(&block.contents)?),
            "CERTIFICATE" => {
                let (_, certificate) = X509Certificate::from_der(&block.contents).map_err(|_| "not a certificate")?;
                keys.push(PublicKey::from_spki(certificate.public_key().raw)?);
            }
            _ => keys.extend(private_key(&block)?.map(|key| key.public)),
        }
    }
    if keys.is_empty() { Err("holds no public key".into()) } else { Ok(keys) }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::rsa::KeySize;

    use super::super::jws::Token;
    use super::*;

    fn rsa_pem() -> String {
        let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let der: Pkcs8V1Der<'_> = key.as_der().unwrap();
        pem("PRIVATE KEY", der.as_ref())
    }

    #[test]
    fn keys_of_both_sorts_sign_and_verify_and_are_told_in_the_jwks() {
        for (text, algorithm) in [(generate().unwrap(), "ES256"), (rsa_pem(), "RS256")] {
            let keys = ServiceAccountKeys::new(Some(text.as_bytes()), &[]).unwrap();
            let set = keys.load();
            let token = set.signing.as_ref().unwrap().sign(&json!({"a": 1})).unwrap();
            let parsed = Token::parse(&token).unwrap();
            assert_eq!(parsed.verify(set.verification.iter()), Ok(()));
            let jwks = keys.jwks();
            assert_eq!(jwks["keys"][0]["alg"], algorithm);
            assert_eq!(jwks["keys"][0]["kid"], set.verification[0].id);
            // What the JWKS says is enough for others to verify with.
            let public = PublicKey::from_jwk(&jwks["keys"][0]).unwrap();
            assert_eq!(parsed.verify([public].iter()), Ok(()));
        }
    }

    #[test]
    fn a_key_is_read_from_pkcs1_and_its_id_is_the_digest_of_its_public_half() {
        let pkcs8 = rsa_pem();
        let block = blocks(pkcs8.as_bytes()).unwrap().remove(0);
        let pkcs1 = pem("RSA PRIVATE KEY", pkcs8_inner(&block.contents).unwrap().1);
        let a = signing_key(pkcs8.as_bytes()).unwrap();
        let b = signing_key(pkcs1.as_bytes()).unwrap();
        assert_eq!(a.public.id, b.public.id);
        assert_eq!(a.public.id.len(), 43);
    }

    #[test]
    fn further_keys_verify_but_do_not_sign_and_bad_files_change_nothing() {
        let (old, new) = (generate().unwrap(), generate().unwrap());
        let keys = ServiceAccountKeys::new(Some(new.as_bytes()), &[old.as_bytes(), new.as_bytes()]).unwrap();
        assert_eq!(keys.load().verification.len(), 2);
        assert!(keys.replace(Some(b"rubbish"), &[]).is_err());
        assert!(keys.replace(None, &[b"-----BEGIN X-----\nAAAA\n-----END X-----\n"]).is_err());
        assert_eq!(keys.load().verification.len(), 2);
        assert!(!format!("{keys:?}").contains("EncodingKey"));
    }
}
