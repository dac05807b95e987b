//! Hops 04 to 06 from outside: real webhook servers over TLS on loopback, and requests of a real client.

mod configured;
mod converted;
mod library;
mod manifests;
mod plugins;
mod policies;
mod reviews;
mod sent;
pub(crate) mod server;
mod trace;
mod transport;
mod webhooks;
