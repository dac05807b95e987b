//! Client certificates: the chain is verified against a bundle of authorities, the common name is the user and the
//! organisations are the groups. The listener accepts any certificate at the handshake; a bad one is refused here, with a
//! `Status`, as a real server does. What the front proxy's certificate is for stands in [`super::request_header`].

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use aws_lc_rs::digest::{SHA256, digest as sha256};
use futures::future::BoxFuture;
use http::request::Parts;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::oid_registry::{Oid, asn1_rs::oid};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::request::User;

use super::cache::{Cache, Digest, digest};
use super::{Authenticated, Authenticator, CREDENTIAL_ID, Now, PeerCertificates, Unauthenticated};

/// How long a verified chain is taken for verified before it is looked at again.
const TRUST_SECONDS: i64 = 60;

/// More certificates than any honest chain has.
const MAX_CHAIN: usize = 16;

/// The attribute of a subject that carries the user's uid.
const UID_ATTRIBUTE: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// A bundle of certificate authorities that verifies chains of client certificates, replaceable while in use.
pub struct Authorities {
    verifier: ArcSwapOption<Trust>,
    now: Now,
    verified: Cache<Verified>,
}

struct Trust {
    verifier: Arc<dyn ClientCertVerifier>,
}

#[derive(Clone)]
struct Verified {
    user: Arc<User>,
    at: i64,
    until: i64,
    by: std::sync::Weak<Trust>,
}

impl Authorities {
    /// No authorities yet: every certificate is of no interest until [`Authorities::replace`].
    pub fn new(now: Now) -> Self {
        Authorities { verifier: ArcSwapOption::empty(), now, verified: Cache::new(4096) }
    }

    /// Takes a new bundle in PEM; the old one stays in force if this one cannot be read.
    pub fn replace(&self, pem: &[u8]) -> Result<(), String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|e| format!("the bundle is not PEM: {e}"))?;
            roots.add(certificate).map_err(|e| format!("the bundle holds a certificate that is none: {e}"))?;
        }
        if roots.is_empty() {
            return Err("the bundle holds no certificate".into());
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(|e| e.to_string())?;
        self.verifier.store(Some(Arc::new(Trust { verifier })));
        self.verified.clear();
        Ok(())
    }

    /// Whether there are authorities at all.
    pub fn is_empty(&self) -> bool {
        self.verifier.load().is_none()
    }

    /// The subject of a chain that the bundle vouches for; `None` without bundle or without certificate.
    pub fn verify(&self, chain: &[Vec<u8>]) -> Result<Option<Arc<User>>, Unauthenticated> {
        let Some(leaf) = chain.first() else { return Ok(None) };
        let Some(trust) = self.verifier.load_full() else { return Ok(None) };
        let now = (self.now)().as_second();
        let key: Digest = digest(chain.iter().map(Vec::as_slice));
        if let Some(known) = self.verified.get(&key) {
            let fresh = (known.at..known.at + TRUST_SECONDS).contains(&now) && now <= known.until;
            if fresh && std::ptr::eq(known.by.as_ptr(), Arc::as_ptr(&trust)) {
                return Ok(Some(known.user));
            }
        }
        if chain.len() > MAX_CHAIN {
            return Err(Unauthenticated::because("x509: the client showed too many certificates"));
        }
        let certificate = CertificateDer::from(leaf.as_slice());
        let intermediates: Vec<_> = chain[1..].iter().map(|c| CertificateDer::from(c.as_slice())).collect();
        let time = UnixTime::since_unix_epoch(Duration::from_secs(now.max(0).unsigned_abs()));
        trust
            .verifier
            .verify_client_cert(&certificate, &intermediates, time)
            .map_err(|e| Unauthenticated(format!("x509: the client certificate is not valid: {e}")))?;
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| Unauthenticated::because("x509: malformed certificate"))?;
        let user = Arc::new(subject(&parsed, leaf)?);
        let until = parsed.validity().not_after.timestamp();
        self.verified.insert(key, Verified { user: user.clone(), at: now, until, by: Arc::downgrade(&trust) });
        Ok(Some(user))
    }
}

/// The user that a certificate's subject names.
fn subject(certificate: &X509Certificate<'_>, der: &[u8]) -> Result<User, Unauthenticated> {
    let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        attribute.as_str().map(str::to_owned).map_err(|_| Unauthenticated::because("x509: the subject is not text"))
    };
    let subject = certificate.subject();
    // With several common names the last one counts, as in Go's reading of a subject.
    let name = subject.iter_common_name().last().map(text).transpose()?.unwrap_or_default();
    if name.is_empty() {
        return Err(Unauthenticated::because("x509: the certificate names no user: its subject has no common name"));
    }
    let groups = subject.iter_organization().map(text).collect::<Result<Vec<_>, _>>()?;
    let mut uids = subject.iter_by_oid(&UID_ATTRIBUTE);
    let uid = uids.next().map(text).transpose()?.unwrap_or_default();
    if uids.next().is_some() {
        return Err(Unauthenticated::because("x509: expected 1 UID, but found multiple"));
    }
    let fingerprint: String = sha256(&SHA256, der).as_ref().iter().map(|b| format!("{b:02x}")).collect();
    let extra = vec![(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")])];
    Ok(User { name, uid, groups, extra })
}

/// The authenticator over a bundle.
#[derive(Clone)]
pub struct ClientCertificate(pub Arc<Authorities>);

impl Authenticator for ClientCertificate {
    fn name(&self) -> &'static str {
        "x509"
    }

    fn absent(&self) -> &'static str {
        "no client certificate"
    }

    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Option<Authenticated>, Unauthenticated>> {
        let found = match request.extensions.get::<PeerCertificates>() {
            Some(peer) => self.0.verify(&peer.0),
            None => Ok(None),
        };
        Box::pin(async move { Ok(found?.map(|user| Authenticated { user, audiences: Vec::new(), by: "x509" })) })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::ExtendedKeyUsagePurpose::ServerAuth;

    use super::super::fixtures::{Authority, Clock, Leaf};
    use super::*;

    fn authorities(authority: &Authority, clock: &Clock) -> Authorities {
        let authorities = Authorities::new(clock.now());
        authorities.replace(authority.pem.as_bytes()).unwrap();
        authorities
    }

    #[test]
    fn the_common_name_is_the_user_and_the_organisation_a_group() {
        let (ca, clock) = (Authority::new("ca"), Clock::system());
        let (der, _) = ca.issue(&Leaf::default());
        let known = authorities(&ca, &clock);
        for _ in 0..2 {
            let user = known.verify(std::slice::from_ref(&der)).unwrap().unwrap();
            assert_eq!((&*user.name, &*user.groups), ("alice", &["devs".to_owned()][..]));
            assert!(user.extra[0].1[0].starts_with("X509SHA256="));
        }
    }

    #[test]
    fn expired_future_foreign_misused_and_nameless_certificates_are_refused() {
        let (ca, clock) = (Authority::new("ca"), Clock::system());
        let known = authorities(&ca, &clock);
        let refused = |der: Vec<u8>| assert!(known.verify(&[der]).is_err());
        refused(ca.issue(&Leaf { from: -7200, until: -3600, ..Leaf::default() }).0);
        refused(ca.issue(&Leaf { from: 3600, until: 7200, ..Leaf::default() }).0);
        refused(ca.issue(&Leaf { usage: ServerAuth, ..Leaf::default() }).0);
        refused(ca.issue(&Leaf { cn: "", ..Leaf::default() }).0);
        refused(Authority::new("ca").issue(&Leaf::default()).0);
        refused(b"not a certificate".to_vec());
        refused(vec![]);
        let (der, _) = ca.issue(&Leaf::default());
        assert!(known.verify(&vec![der; 17]).is_err());
    }

    #[test]
    fn a_certificate_that_was_good_is_refused_once_it_has_expired() {
        let (ca, clock) = (Authority::new("ca"), Clock::system());
        let known = authorities(&ca, &clock);
        let chain = [ca.issue(&Leaf { until: 10, ..Leaf::default() }).0];
        assert!(known.verify(&chain).unwrap().is_some());
        clock.advance(11);
        assert!(known.verify(&chain).is_err());
    }

    #[test]
    fn a_new_bundle_counts_at_once_and_an_unreadable_one_does_not() {
        let (old, new, clock) = (Authority::new("old"), Authority::new("new"), Clock::system());
        let known = authorities(&old, &clock);
        let (a, b) = ([old.issue(&Leaf::default()).0], [new.issue(&Leaf::default()).0]);
        assert!(known.verify(&a).unwrap().is_some());
        assert!(known.replace(b"rubbish").is_err());
        assert!(known.verify(&a).unwrap().is_some());
        known.replace(new.pem.as_bytes()).unwrap();
        assert!(known.verify(&a).is_err());
        assert!(known.verify(&b).unwrap().is_some());
    }
}
