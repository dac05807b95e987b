//! `usher controllers`, `usher scheduler`, `usher kubelet`: components in a process of their own, against any API server.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use usher_components::kubelet::Nodes;
use usher_components::{Clock, Options, Selection};

use super::client::Reach;

/// Which server.
#[derive(Debug, Args)]
pub struct Component {
    #[command(flatten)]
    reach: Reach,
    /// Which controllers: all, or a list such as *,-job-controller (`usher controllers` only)
    #[arg(long, value_name = "LIST", default_value = "*")]
    controllers: String,
    /// How many nodes on the mock runtime (`usher kubelet` only)
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: usize,
}

impl Component {
    /// Runs `names` until a signal comes.
    pub fn run(self, names: &[&str]) -> Result<(), String> {
        super::up::log_to_stderr();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| e.to_string())?;
        runtime.block_on(async {
            let client = self.reach.client().await?;
            let selection: Selection = match names {
                [] => format!("{},-scheduler,-kubelet", self.controllers).parse().map_err(|e| format!("--controllers: {e}"))?,
                names => Selection::only(names),
            };
            let options = Options { nodes: Nodes::mock(self.nodes), ..Options::default() };
            let running = usher_components::start(&selection, Arc::new(client), Clock::system(), options).map_err(|e| e.to_string())?;
            println!("running {}", running.running().join(", "));
            super::up::wait_for_signal().await
        })?;
        runtime.shutdown_timeout(Duration::from_secs(2));
        Ok(())
    }
}
