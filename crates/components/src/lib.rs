//! Controllers, scheduler and kubelet: clients of any Kubernetes API server.
//!
//! This crate knows `kube::Client` and nothing of a server. The [`runtime`] is the run loop that all components share;
//! [`start`] runs those that a [`Selection`](runtime::Selection) names, in the server's process or in one of its own:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use usher_components::{Clock, Options};
//!
//! let client = kube::Client::try_default().await?;
//! let running = usher_components::start(&"*".parse()?, Arc::new(client), Clock::system(), Options::default())?;
//! running.stop("job-controller").await?;
//! # Ok(())
//! # }
//! ```

pub mod clock;
pub mod controllers;
pub mod cri;
pub mod events;
pub mod kubelet;
mod options;
pub mod runtime;
pub mod scheduler;

use std::sync::Arc;

pub use clock::Clock;
pub use options::{Options, TokenSigner};
pub use runtime::{ClientFor, Handle, Identity, Selection};

use runtime::{Entry, Unknown};

/// Every component there is, in the order in which they start.
pub fn entries() -> Vec<Entry> {
    let mut entries = controllers::entries();
    entries.push(scheduler::entry());
    entries.push(kubelet::entry());
    entries
}

/// Starts the components that `selection` names. See [`runtime::start`].
pub fn start(selection: &Selection, clients: Arc<dyn ClientFor>, clock: Clock, options: Options) -> Result<Handle, Unknown> {
    runtime::start(entries(), selection, clients, clock, options)
}
