//! When the certificate of a server that this one calls is believed: when an authority of the bundle that was given for it (`caBundle`,
//! `certificate-authority`) has signed it, and also when it is itself in the bundle.
//! The certificate that `openssl req -x509` makes is authority and server in one; libraries for TLS refuse such a one as a server's, Go
//! does not, and many webhooks are developed with one.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};

/// What is said of a certificate that says its name where nobody looks any more.
pub const LEGACY_NAME: &str = "certificate relies on legacy Common Name field, use SANs instead";

/// The certificates of a bundle in PEM.
///
/// # Errors
/// If there are none in it.
pub fn bundle(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let unreadable = "unable to parse bytes as PEM block";
    let bundle: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|_| unreadable)?;
    if bundle.is_empty() { Err(unreadable.into()) } else { Ok(bundle) }
}

/// How TLS is spoken with a server whose certificates the bundle vouches for; `identity` is one's own certificate and key in PEM.
///
/// # Errors
/// What is wrong with the bundle or the identity.
pub fn config(bundle: &[CertificateDer<'static>], identity: Option<&[u8]>) -> Result<rustls::ClientConfig, String> {
    let config = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trust::new(bundle)?));
    let mut config = match identity {
        None => config.with_no_client_auth(),
        Some(pem) => {
            let key = PrivateKeyDer::from_pem_slice(pem).map_err(|e| format!("the client's key: {e}"))?;
            config.with_client_auth_cert(self::bundle(pem)?, key).map_err(|e| format!("the client's certificate: {e}"))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

#[derive(Debug)]
struct Trust {
    chain: Arc<WebPkiServerVerifier>,
    bundle: Vec<CertificateDer<'static>>,
}

impl Trust {
    fn new(bundle: &[CertificateDer<'static>]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in bundle {
            roots.add(certificate.clone()).map_err(|e| e.to_string())?;
        }
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build().map_err(|e| e.to_string())?;
        Ok(Trust { chain, bundle: bundle.to_vec() })
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let why = match self.chain.verify_server_cert(certificate, others, name, ocsp, now) {
            Err(Error::InvalidCertificate(why)) => why,
            judged => return judged,
        };
        // As in Go: first whether it is of today, then whose it is, then who vouches for it.
        let is_of_today = !matches!(
            why,
            CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. }
        );
        if is_of_today {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name).map_err(|error| {
                match is_named_the_old_way(certificate, name) {
                    true => CertificateError::Other(OtherError(Arc::new(LegacyCommonName))).into(),
                    false => error,
                }
            })?;
        }
        if why.to_string().contains("CaUsedAsEndEntity") {
            return match self.bundle.iter().any(|known| known == certificate) {
                true => Ok(ServerCertVerified::assertion()),
                false => Err(CertificateError::UnknownIssuer.into()),
            };
        }
        Err(why.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}

/// A certificate that says its name where nobody looks any more.
#[derive(Debug)]
pub struct LegacyCommonName;

impl std::error::Error for LegacyCommonName {}

impl std::fmt::Display for LegacyCommonName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(LEGACY_NAME)
    }
}

/// Whether a certificate has no names but its subject's, and that would be the right one.
fn is_named_the_old_way(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else { return false };
    let has_names = !matches!(parsed.subject_alternative_name(), Ok(None));
    let mut common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let wanted = name.to_str();
    let is_right = |given: &str| {
        let rest = wanted.split_once('.').map_or("", |(_, rest)| rest);
        given.eq_ignore_ascii_case(&wanted) || given.strip_prefix("*.").is_some_and(|given| given.eq_ignore_ascii_case(rest))
    };
    !has_names && common.any(is_right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(name: &str) -> CertificateDer<'static> {
        let mut asked = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        asked.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        asked.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn a_certificate_that_is_authority_and_server_in_one_is_believed_if_it_is_in_the_bundle_and_of_that_name() {
        let (own, stranger) = (authority("hook.example.com"), authority("hook.example.com"));
        let trust = Trust::new(std::slice::from_ref(&own)).unwrap();
        let ask = |certificate: &CertificateDer<'_>, name: &str, now: UnixTime| {
            let name = ServerName::try_from(name.to_owned()).unwrap();
            trust.verify_server_cert(certificate, &[], &name, &[], now).map(|_| ())
        };
        assert_eq!(ask(&own, "hook.example.com", UnixTime::now()), Ok(()));
        assert!(ask(&own, "other.example.com", UnixTime::now()).is_err());
        assert!(ask(&stranger, "hook.example.com", UnixTime::now()).is_err());
        let never = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1));
        assert!(ask(&own, "hook.example.com", never).is_err());
    }
}
