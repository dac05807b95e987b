//! Hops 04 to 06 from outside: real webhook servers over TLS on loopback, and requests of a real client.

mod library;
mod manifests;
mod plugins;
mod policies;
mod reviews;
pub(crate) mod server;
mod trace;
mod webhooks;
