//! The REST interface: verbs on resources, discovery, and the forms of bodies. One generic implementation serves every
//! built-in and every custom kind; what differs is data ([`crate::registry`]) or a small strategy ([`kinds`]).

pub mod apply;
mod audited;
mod body;
pub mod compress;
mod connect;
pub mod conversion;
pub mod convert;
mod delete;
pub mod discovery;
mod dispatch;
mod fields;
pub mod kinds;
pub mod negotiate;
pub mod openapi;
pub mod options;
pub mod patch;
mod patch_verb;
mod placement;
pub mod protobuf;
pub mod read;
pub mod representation;
pub mod reviews;
mod scale;
pub mod strategy;
pub mod stream;
pub(crate) mod subresource;
pub mod table;
pub mod target;
pub mod token_requests;
mod transient;
mod watch;
pub mod write;
pub mod yaml;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use usher_components::clock::Clock;
use usher_components::kubelet::Nodes;

use crate::admission::Stack;
use crate::registry::Registry;
use crate::watch::State;

/// Everything that answering a request needs.
pub struct Api {
    /// What exists.
    pub registry: Arc<Registry>,
    /// The read side, and the store behind it.
    pub state: Arc<State>,
    /// Hops 04 and 06.
    pub admission: Stack,
    /// Asks conversion webhooks.
    pub converter: conversion::Converter,
    /// What time it is.
    pub clock: Clock,
    /// Nobody hands on more than they hold: asked on every write of roles and bindings.
    pub escalation: crate::authz::rbac::escalation::Escalation,
    /// Access, token and identity reviews.
    pub reviews: reviews::Reviews,
    /// The kubelets of this process, for logs.
    pub nodes: Nodes,
    /// Speaks to those of other processes.
    pub kubelets: stream::Kubelets,
    /// Cluster IPs and node ports.
    pub services: kinds::services::Allocator,
    /// Counted here, shown by `/metrics`.
    pub metrics: Metrics,
    /// Ends watches when the server stops.
    pub shutdown: tokio_util::sync::CancellationToken,
}

/// What the REST interface counts.
#[derive(Default)]
pub struct Metrics {
    /// Watchers that were cut off because they did not read.
    pub slow_watchers: AtomicU64,
}
