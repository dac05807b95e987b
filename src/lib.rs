//! Usher: a Kubernetes-compatible API server and admission gateway in one binary.

pub mod admission;
pub mod authn;
pub mod authz;
pub mod object;
pub mod registry;
pub mod request;
pub mod schema;
pub mod status;
pub mod store;
pub mod watch;
