//! The authority that the built-in signers sign with. Writes certificates byte by byte, because a subject must be taken
//! over exactly as the request wrote it (with several organisations, which are groups), and gives nothing that is not
//! asked for here: no request can make itself an authority.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::rsa::KeyPair as RsaKeyPair;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256};
use x509_parser::extensions::ParsedExtension;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::der::{BIT_STRING, ECDSA_SHA256, INTEGER, OCTET_STRING, OID, SEQUENCE, bits, element, pem};
use super::request::CertificateRequest;

/// A certificate authority: its certificate and its key.
pub struct CertificateAuthority {
    subject: Vec<u8>,
    key_id: Option<Vec<u8>>,
    /// When the authority's own certificate ends, in seconds since the epoch.
    pub until: i64,
    /// The longest that a certificate lives which it signs, in seconds; a year unless [`CertificateAuthority::lasting`] says otherwise.
    pub longest: i64,
    key: Key,
}

const YEAR: i64 = 365 * 24 * 3600;

enum Key {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

/// What a certificate may be used for: the words of the API, and what they are in a certificate.
const KEY_USAGES: &[(&str, u8)] = &[
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

const EXTENDED_KEY_USAGES: &[(&str, &[u8])] = &[
    ("any", &[0x55, 0x1d, 0x25, 0x00]),
    ("server auth", &[0x2b, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[0x2b, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[0x2b, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", &[0x2b, 6, 1, 5, 5, 7, 3, 4]),
    ("s/mime", &[0x2b, 6, 1, 5, 5, 7, 3, 4]),
    ("ipsec end system", &[0x2b, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[0x2b, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[0x2b, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[0x2b, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[0x2b, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 10, 3, 3]),
    ("netscape sgc", &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 4, 1]),
];

impl CertificateAuthority {
    /// Reads certificate and key, both PEM.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, String> {
        let block = Pem::iter_from_buffer(certificate).next().and_then(Result::ok).ok_or("the authority's certificate is not PEM")?;
        let (_, parsed) = X509Certificate::from_der(&block.contents).map_err(|_| "the authority's certificate is none")?;
        let key_id = parsed.iter_extensions().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        let block = Pem::iter_from_buffer(key).filter_map(Result::ok).find(|block| block.label.ends_with("PRIVATE KEY"));
        let block = block.ok_or("the authority's key is not PEM")?;
        let der = block.contents.as_slice();
        let ecdsa = |curve| match block.label.as_str() {
            "EC PRIVATE KEY" => EcdsaKeyPair::from_private_key_der(curve, der).ok(),
            _ => EcdsaKeyPair::from_pkcs8(curve, der).ok(),
        };
        let key = if let Some(key) = ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING) {
            Key::P256(key)
        } else if let Some(key) = ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING) {
            Key::P384(key)
        } else {
            let rsa = if block.label == "RSA PRIVATE KEY" { RsaKeyPair::from_der(der) } else { RsaKeyPair::from_pkcs8(der) };
            Key::Rsa(rsa.map_err(|_| "the authority's key is neither RSA nor ECDSA of P-256 or P-384")?)
        };
        Ok(CertificateAuthority {
            subject: parsed.subject().as_raw().to_vec(),
            key_id,
            until: parsed.validity().not_after.timestamp(),
            longest: YEAR,
            key,
        })
    }

    /// The same authority, for certificates that live no longer than this.
    pub fn lasting(self, longest: std::time::Duration) -> Self {
        CertificateAuthority { longest: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX), ..self }
    }

    /// A certificate in PEM for a request, good for these usages between two times (seconds since the epoch).
    pub fn issue(&self, request: &CertificateRequest, usages: &[String], from: i64, until: i64) -> Result<String, String> {
        let mut serial = [0u8; 16];
        SystemRandom::new().fill(&mut serial).map_err(|_| "no randomness")?;
        serial[0] = serial[0] & 0x7f | 0x40;
        let algorithm = self.key.algorithm();
        let mut body = vec![element(0xa0, &element(INTEGER, &[2])), element(INTEGER, &serial), algorithm.clone(), self.subject.clone()];
        body.push(element(SEQUENCE, &[time(from)?, time(until)?].concat()));
        body.push(request.subject.clone());
        body.push(request.public_key.clone());
        body.push(element(0xa3, &element(SEQUENCE, &self.extensions(request, usages)?)));
        let body = element(SEQUENCE, &body.concat());
        let signature = bits(&self.key.sign(&body)?);
        let certificate = element(SEQUENCE, &[body, algorithm, signature].concat());
        Ok(pem("CERTIFICATE", &certificate))
    }

    fn extensions(&self, request: &CertificateRequest, usages: &[String]) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        let mut add = |oid: &[u8], critical: bool, value: &[u8]| {
            let mut parts = vec![element(OID, oid)];
            if critical {
                parts.push(element(0x01, &[0xff]));
            }
            parts.push(element(OCTET_STRING, value));
            out.extend(element(SEQUENCE, &parts.concat()));
        };
        let mut usage_bits = 0u16;
        let mut extended: Vec<&[u8]> = Vec::new();
        for usage in usages {
            let usage = if usage == "signing" { "digital signature" } else { usage };
            if let Some((_, bit)) = KEY_USAGES.iter().find(|(name, _)| *name == usage) {
                usage_bits |= 0x8000 >> bit;
            } else if let Some((_, oid)) = EXTENDED_KEY_USAGES.iter().find(|(name, _)| *name == usage) {
                if !extended.contains(oid) {
                    extended.push(oid);
                }
            } else {
                return Err(format!("unrecognized key usage: {usage}"));
            }
        }
        if usage_bits != 0 {
            // As few bytes as hold the last bit that is set.
            let unused = u8::try_from(usage_bits.trailing_zeros() % 8).unwrap_or(0);
            let [first, second] = usage_bits.to_be_bytes();
            let bits = if second == 0 { vec![unused, first] } else { vec![unused, first, second] };
            add(&[0x55, 0x1d, 0x0f], true, &element(BIT_STRING, &bits));
        }
        if !extended.is_empty() {
            let list: Vec<u8> = extended.iter().flat_map(|oid| element(OID, oid)).collect();
            add(&[0x55, 0x1d, 0x25], false, &element(SEQUENCE, &list));
        }
        // Never an authority, whatever was asked for.
        add(&[0x55, 0x1d, 0x13], true, &element(SEQUENCE, &[]));
        let own = digest(&SHA1_FOR_LEGACY_USE_ONLY, &request.public_key);
        add(&[0x55, 0x1d, 0x0e], false, &element(OCTET_STRING, own.as_ref()));
        if let Some(id) = &self.key_id {
            add(&[0x55, 0x1d, 0x23], false, &element(SEQUENCE, &element(0x80, id)));
        }
        if let Some((critical, names)) = &request.alternative_names {
            add(&[0x55, 0x1d, 0x11], *critical, names);
        }
        Ok(out)
    }
}

impl Key {
    fn algorithm(&self) -> Vec<u8> {
        match self {
            Key::P256(_) => element(SEQUENCE, &element(OID, ECDSA_SHA256)),
            Key::P384(_) => element(SEQUENCE, &element(OID, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3])),
            Key::Rsa(_) => {
                let oid = element(OID, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11]);
                element(SEQUENCE, &[oid, element(0x05, &[])].concat())
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let random = SystemRandom::new();
        let failed = |_| "signing failed".to_owned();
        match self {
            Key::P256(key) | Key::P384(key) => Ok(key.sign(&random, message).map_err(failed)?.as_ref().to_vec()),
            Key::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(failed)?;
                Ok(signature)
            }
        }
    }
}

/// A time as certificates write it: two digits of the year before 2050, four after.
fn time(seconds: i64) -> Result<Vec<u8>, String> {
    let time = jiff::Timestamp::from_second(seconds).map_err(|e| e.to_string())?.to_zoned(jiff::tz::TimeZone::UTC);
    Ok(match time.year() {
        1950..=2049 => element(0x17, time.strftime("%y%m%d%H%M%SZ").to_string().as_bytes()),
        _ => element(0x18, time.strftime("%Y%m%d%H%M%SZ").to_string().as_bytes()),
    })
}

impl std::fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CertificateAuthority")
    }
}
