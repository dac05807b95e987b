//! Nodes: their Pod ranges, their health, and what becomes of the Pods on those that are unwell.

pub mod ipam;
pub mod lifecycle;
pub mod taint_eviction;
pub mod ttl;

/// The service account of the controllers in this room.
const ACCOUNT: &str = "node-controller";
