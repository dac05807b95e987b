//! Usher: a Kubernetes-compatible API server and admission gateway in one binary.

pub mod api;
pub mod registry;
pub mod schema;
pub mod store;
