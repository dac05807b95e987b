//! Usher: a Kubernetes-compatible API server and admission gateway in one binary.

// It panics when the reader has gone; `cli::output` prints.
#![warn(clippy::print_stdout)]

pub mod admission;
pub mod aggregator;
pub mod api;
pub mod audit;
pub mod authn;
pub mod authz;
pub mod cli;
pub mod client;
pub mod gateway;
pub mod object;
pub mod registry;
pub mod request;
pub mod schema;
pub mod server;
pub mod status;
pub mod store;
pub mod validation;
pub mod version;
pub mod watch;

pub use server::Server;
