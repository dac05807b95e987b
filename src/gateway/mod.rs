//! The front door: listener and TLS, the HTTP stack as a list of layers, and the router behind it. Everything that
//! comes in, from a socket or from inside the process, takes the same way through [`stack`].

pub mod cork;
pub mod documents;
pub mod flow;
pub mod health;
pub mod layers;
pub mod listener;
pub mod metrics;
pub mod operations;
pub mod pki;
pub mod router;
pub mod stack;
mod stall;
pub mod tls;

use std::sync::Arc;

use crate::api::Api;
use crate::audit::Audit;
use crate::authn::chain::Chain;
use crate::authz::Authorizer;

/// What the layers of the HTTP stack share.
pub struct Gateway {
    /// The REST interface.
    pub api: Arc<Api>,
    /// Hop 02.
    pub authenticator: Arc<Chain>,
    /// Hop 03.
    pub authorizer: Arc<dyn Authorizer>,
    /// Who may be taken for whom.
    pub impersonation: crate::authz::impersonation::Impersonation,
    /// To which flow a request belongs.
    pub flows: Arc<flow::Flows>,
    /// How many requests may be under way.
    pub limits: layers::limits::Limits,
    /// What happened.
    pub audit: Arc<Audit>,
    /// What is counted.
    pub metrics: metrics::Metrics,
    /// How the server is.
    pub health: health::Health,
    /// Extension servers, and what they serve.
    pub aggregator: Arc<crate::aggregator::Aggregator>,
    /// OpenAPI documents that were asked for.
    pub documents: crate::api::openapi::Documents,
    /// Where it listens.
    pub address: std::sync::OnceLock<std::net::SocketAddr>,
    /// How long a request that is not long-running may take.
    pub deadline: std::time::Duration,
}
