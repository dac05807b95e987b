//! Who asks. Authenticators stand in a chain; the first that knows the credential decides. A credential that is
//! malformed, expired or unknown is refused, never taken for anonymous.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::request::Parts;

use crate::request::User;

/// Puts an identity into a request that comes from inside the process; no request from a socket can carry it.
#[derive(Clone, Debug)]
pub struct InProcess(pub Arc<User>);

/// The certificates that the peer of a TLS connection showed, in DER, leaf first; put into the request by the listener.
#[derive(Clone, Debug, Default)]
pub struct PeerCertificates(pub Arc<Vec<Vec<u8>>>);

/// The answer of an authenticator that knows the credential.
#[derive(Clone, Debug)]
pub struct Authenticated {
    /// Who it is.
    pub user: Arc<User>,
    /// The audiences that the credential is good for, where it says.
    pub audiences: Vec<String>,
    /// Which authenticator said so, for the trace.
    pub by: &'static str,
}

/// Why a credential is no good. The client only hears "Unauthorized"; the reason goes to the trace and the log.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unauthenticated(pub String);

/// One way to know who asks.
pub trait Authenticator: Send + Sync {
    /// The name in the trace.
    fn name(&self) -> &'static str;
    /// `Ok(None)`: the request carries no credential of this sort.
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Option<Authenticated>, Unauthenticated>>;
}
