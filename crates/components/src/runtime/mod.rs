//! The run loop: one watch and one cache per kind, queues of keys, and services that work on them.
//!
//! Nothing in here knows what a Deployment is. A component says which kinds concern it and brings one key at a time
//! to its desired state; everything else (watching, caching, de-duplication, back-off, deadlines, concurrency,
//! leadership, starting and stopping) happens here.

pub mod cause;
mod client;
mod component;
pub mod discovery;
mod driver;
mod informer;
mod key;
mod leader;
mod metrics;
mod object;
mod queue;
mod selection;
mod start;
mod watch;
mod watches;
mod writer;

pub use client::{ClientFor, Identity};
pub use component::{Component, Error, Outcome, Requeue, Source};
pub use driver::run;
pub use informer::{Change, Informer, Subscription};
pub use key::Key;
pub use leader::{Candidate, LeaderElection};
pub use metrics::{Counters, Metrics};
pub use object::{Object, Partial, controller_of, revision_of};
pub use queue::Queue;
pub use selection::{Selectable, Selection, Unknown};
pub use start::{Context, Entry, Handle, start};
pub use watch::Collection;
pub use watches::{MetadataFeed, MetadataHandler, Watches, collection_path};
pub use writer::{Propagation, Writer, object_path};
