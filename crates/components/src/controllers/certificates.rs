//! CertificateSigningRequests: the controllers that approve, sign and tidy them up, and what they need: reading a
//! request ([`request`]), the rules of the built-in signers ([`signer`]), and writing certificates ([`authority`]).

pub mod approving;
pub mod authority;
pub mod cleaner;
mod der;
pub mod request;
pub mod signer;
pub mod signing;

pub use authority::CertificateAuthority;
pub use der::pem;
pub use request::CertificateRequest;

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};

/// The identity of all three, as in a kube-controller-manager.
const SERVICE_ACCOUNT: &str = "certificate-controller";

/// The condition of a type, if the request has it.
fn condition<'a>(request: &'a CertificateSigningRequest, kind: &str) -> Option<&'a CertificateSigningRequestCondition> {
    request.status.as_ref()?.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

fn is_issued(request: &CertificateSigningRequest) -> bool {
    request.status.as_ref().and_then(|status| status.certificate.as_ref()).is_some_and(|certificate| !certificate.0.is_empty())
}

#[cfg(test)]
mod tests;
