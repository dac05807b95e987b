//! What happened: every request leaves an audit event as Kubernetes defines it, with the trace of its way through the server.
//!
//! One stream, many readers: the layer `gateway::layers::audit` hands a finished request to the recorder, which writes the event
//! (at the level that the policy asks for) to the sinks and the event with its trace to the [`archive`]. The archive answers
//! `usher audit`, `usher explain`, `usher trace` and everything under `/usher/v1/`.

pub mod archive;
pub mod event;
pub mod expression;
pub mod facets;
pub mod filter;
mod identity;
pub mod import;
mod in_order;
mod json;
mod known_fields;
pub mod latency;
mod lines;
pub mod lists;
mod manifests;
mod named;
mod notation;
pub mod otlp;
mod patches;
pub mod permissions;
pub mod policy;
mod queue;
pub mod quoted;
pub mod rbac;
pub mod record;
pub mod recorder;
pub mod redact;
mod signs;
pub mod sink;
mod source;
pub mod story;
pub mod under_way;
mod web_tokens;
pub mod what_if;

pub use archive::Archive;
pub use event::{Event, Level, Stage, Story};
pub use filter::Filter;
pub use json::Json;
pub use policy::Policy;
pub use recorder::{Audit, Settings};
