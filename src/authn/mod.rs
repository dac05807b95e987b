//! Who asks. Authenticators stand in a chain; the first that knows the credential decides. A credential that is
//! malformed, expired or unknown is refused, never taken for anonymous.
//!
//! One file per way of knowing somebody. The room reads objects only through [`Objects`] and the time only through
//! [`Now`]; it never touches the store and never decides what anybody may do.

pub mod anonymous;
pub mod authentication_configuration;
pub mod bearer;
pub mod bootstrap_token;
pub mod cache;
pub mod chain;
pub mod expression;
pub mod issuer_keys;
pub mod jws;
pub mod keys;
pub mod oidc;
pub mod reload;
pub mod request_header;
pub mod service_account;
pub mod token_file;
pub mod token_request;
pub mod trust;
pub mod webhook;
pub mod webhook_client;
pub mod x509;

#[cfg(test)]
pub(crate) mod fixtures;

use std::sync::Arc;

use futures::future::BoxFuture;
use http::request::Parts;
use serde_json::Value;

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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unauthenticated(pub String);

impl Unauthenticated {
    /// A refusal with its reason; the reason must not contain the credential.
    pub fn because(why: impl std::fmt::Display) -> Self {
        Unauthenticated(why.to_string())
    }
}

/// One way to know who asks.
pub trait Authenticator: Send + Sync {
    /// The name in the trace.
    fn name(&self) -> &'static str;
    /// What a request lacks for this one to say anything, for the trace.
    fn absent(&self) -> &'static str {
        "no such credential"
    }
    /// Whether a header is what this one reads; whoever stands behind authentication must not see it, nor mistake it for the truth.
    fn reads(&self, _header: &str) -> bool {
        false
    }
    /// `Ok(None)`: the request carries no credential of this sort.
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Option<Authenticated>, Unauthenticated>>;
}

/// One way to know who a bearer token belongs to. Reviews ask it too, with audiences of their own.
pub trait TokenAuthenticator: Send + Sync {
    /// The name in the trace.
    fn name(&self) -> &'static str;
    /// `Ok(None)`: the token is not of this sort. `audiences` are those that the asker identifies with.
    fn authenticate_token<'a>(
        &'a self,
        token: &'a str,
        audiences: &'a [String],
    ) -> BoxFuture<'a, Result<Option<Authenticated>, Unauthenticated>>;
}

/// The objects that identity depends on (service accounts, secrets, pods, nodes), as they are now. Implemented over the
/// read side, so that a deleted object counts as gone for the very next request.
pub trait Objects: Send + Sync {
    /// One object of the core group by plural, namespace (empty for nodes) and name.
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>>;
}

/// The server's clock, as far as this room needs it.
pub type Now = Arc<dyn Fn() -> jiff::Timestamp + Send + Sync>;

/// The extra key that names the single credential in the audit log.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The group of everybody whom an authenticator knows.
pub const ALL_AUTHENTICATED: &str = "system:authenticated";

/// The group of everybody else.
pub const ALL_UNAUTHENTICATED: &str = "system:unauthenticated";

/// The user name of somebody who shows no credential.
pub const ANONYMOUS: &str = "system:anonymous";

/// The group that authorisation does not apply to.
pub const MASTERS: &str = "system:masters";
