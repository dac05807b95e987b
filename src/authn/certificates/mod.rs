//! CertificateSigningRequests: what such an object must look like, who approves and signs, and the certificate that the
//! built-in signers make of it. Pure functions; storing objects and watching for approved ones is others' work.

pub mod authority;
pub mod request;
pub mod signer;
pub mod validation;

pub use authority::CertificateAuthority;
pub use request::CertificateRequest;
pub use signer::{Outcome, sign};
