//! `usher clock`: the time of a server that was started with `--virtual-clock`.

use clap::Subcommand;

use super::client::{Reach, block_on};

pub(super) const EXAMPLES: &str =
    "Examples:\n  usher clock\n  usher clock advance 1h    CronJobs fire, leases are renewed, tokens expire, TTLs run out on the way";

/// What to do with it.
#[derive(Debug, Subcommand)]
pub enum Clock {
    /// Print the server's time
    Now {
        #[command(flatten)]
        reach: Reach,
    },
    /// Move the time forward
    Advance {
        /// By how much: 90s, 5m, 1h30m
        by: String,
        #[command(flatten)]
        reach: Reach,
    },
}

impl Clock {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        block_on(async {
            let (reach, request) = match &self {
                Clock::Now { reach } => (reach, http::Request::get("/usher/v1/clock")),
                Clock::Advance { by, reach } => (reach, http::Request::post(format!("/usher/v1/clock/advance?by={by}"))),
            };
            let request = request.body(Vec::new()).map_err(|e| e.to_string())?;
            let answer: serde_json::Value = reach.client().await?.request(request).await.map_err(|e| e.to_string())?;
            super::output::line(answer["now"].as_str().unwrap_or_default())
        })
    }
}
