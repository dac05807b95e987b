//! A PKCS#10 certificate request: read and checked, that its signature proves possession of the key, and what subject and
//! names it asks for; and made, for a new client. Nothing is decided here.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1,
    ED25519, EcdsaKeyPair, KeyPair, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, UnparsedPublicKey,
    VerificationAlgorithm,
};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use super::der::{ECDSA_SHA256, INTEGER, OID, SEQUENCE, SET, UTF8_STRING, bits, element, pem};

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The subject's common name.
    pub common_name: String,
    /// The subject's organisations.
    pub organizations: Vec<String>,
    /// Names of hosts.
    pub dns_names: Vec<String>,
    /// Addresses, as many bytes as they have.
    pub ip_addresses: Vec<Vec<u8>>,
    /// Addresses of mail.
    pub email_addresses: Vec<String>,
    /// URIs.
    pub uris: Vec<String>,
    /// The subject as it is written.
    pub subject: Vec<u8>,
    /// The public key as it is written.
    pub public_key: Vec<u8>,
    /// The subject alternative names as they are written, with whether they are critical.
    pub alternative_names: Option<(bool, Vec<u8>)>,
}

impl CertificateRequest {
    /// Reads PEM, and checks the signature.
    pub fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let block = Pem::iter_from_buffer(pem).next().and_then(Result::ok);
        let block = block.filter(|block| block.label == "CERTIFICATE REQUEST").ok_or("PEM block type must be CERTIFICATE REQUEST")?;
        Self::from_der(&block.contents)
    }

    fn from_der(der: &[u8]) -> Result<Self, String> {
        let (rest, parsed) = X509CertificationRequest::from_der(der).map_err(|_| "asn1: structure error: not a certificate request")?;
        if !rest.is_empty() {
            return Err("asn1: syntax error: trailing data".into());
        }
        check_signature(&parsed)?;
        let info = &parsed.certification_request_info;
        let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            attribute.as_str().map(str::to_owned).map_err(|_| "the subject is not text".to_owned())
        };
        let mut request = CertificateRequest {
            common_name: info.subject.iter_common_name().last().map(text).transpose()?.unwrap_or_default(),
            organizations: info.subject.iter_organization().map(text).collect::<Result<_, _>>()?,
            subject: info.subject.as_raw().to_vec(),
            public_key: info.subject_pki.raw.to_vec(),
            ..CertificateRequest::default()
        };
        for attribute in info.attributes() {
            let x509_parser::cri_attributes::ParsedCriAttribute::ExtensionRequest(requested) = attribute.parsed_attribute() else {
                continue;
            };
            for extension in &requested.extensions {
                if let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() {
                    request.alternative_names = Some((extension.critical, extension.value.to_vec()));
                    for name in &names.general_names {
                        match name {
                            GeneralName::DNSName(name) => request.dns_names.push((*name).to_owned()),
                            GeneralName::IPAddress(address) => request.ip_addresses.push(address.to_vec()),
                            GeneralName::RFC822Name(name) => request.email_addresses.push((*name).to_owned()),
                            GeneralName::URI(uri) => request.uris.push((*uri).to_owned()),
                            _ => return Err("the request asks for an alternative name of an unknown sort".into()),
                        }
                    }
                }
            }
        }
        Ok(request)
    }
}

fn check_signature(request: &X509CertificationRequest<'_>) -> Result<(), String> {
    let key = &request.certification_request_info.subject_pki;
    let bits = key.subject_public_key.data.as_ref();
    let algorithms: &[&'static dyn VerificationAlgorithm] = match request.signature_algorithm.algorithm.to_id_string().as_str() {
        "1.2.840.113549.1.1.11" => &[&RSA_PKCS1_2048_8192_SHA256],
        "1.2.840.113549.1.1.12" => &[&RSA_PKCS1_2048_8192_SHA384],
        "1.2.840.113549.1.1.13" => &[&RSA_PKCS1_2048_8192_SHA512],
        "1.2.840.10045.4.3.2" => &[&ECDSA_P256_SHA256_ASN1, &ECDSA_P384_SHA256_ASN1],
        "1.2.840.10045.4.3.3" => &[&ECDSA_P384_SHA384_ASN1, &ECDSA_P256_SHA384_ASN1],
        "1.3.101.112" => &[&ED25519],
        _ => return Err("x509: cannot verify signature: algorithm unimplemented".into()),
    };
    let signed = request.certification_request_info.raw;
    let signature = request.signature_value.data.as_ref();
    let proven = algorithms.iter().any(|algorithm| UnparsedPublicKey::new(*algorithm, bits).verify(signed, signature).is_ok());
    if proven { Ok(()) } else { Err("x509: the request's signature does not fit its key".into()) }
}

/// A request of a new client with a key made for it: both in PEM, request first. Every group is an organisation of its own,
/// in the order given, as a real API server reads them.
pub fn make(user: &str, groups: &[String]) -> Result<(String, String), String> {
    let failed = |_| "cannot make a key".to_owned();
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).map_err(failed)?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key.as_ref()).map_err(|_| "cannot make a key")?;
    let organization = |group: &String| attribute(10, group);
    let subject: Vec<u8> = groups.iter().flat_map(organization).chain(attribute(3, user)).collect();
    // id-ecPublicKey on prime256v1.
    let algorithm = [element(OID, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1]), element(OID, &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7])];
    let public = element(SEQUENCE, &[element(SEQUENCE, &algorithm.concat()), bits(pair.public_key().as_ref())].concat());
    let parts = [element(INTEGER, &[0]), element(SEQUENCE, &subject), public, element(0xa0, &[])];
    let info = element(SEQUENCE, &parts.concat());
    let signature = pair.sign(&random, &info).map_err(failed)?;
    let request = [info, element(SEQUENCE, &element(OID, ECDSA_SHA256)), bits(signature.as_ref())];
    Ok((pem("CERTIFICATE REQUEST", &element(SEQUENCE, &request.concat())), pem("PRIVATE KEY", key.as_ref())))
}

/// A part of a subject: an attribute `2.5.4.<kind>`.
fn attribute(kind: u8, value: &str) -> Vec<u8> {
    let pair = [element(OID, &[0x55, 4, kind]), element(UTF8_STRING, value.as_bytes())];
    element(SET, &element(SEQUENCE, &pair.concat()))
}
