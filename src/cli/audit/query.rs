//! `usher audit query`: the requests that are kept.

use clap::Args;
use futures::TryStreamExt;
use serde_json::{Value, json};

use super::{Rows, Which, lines, row};
use crate::audit::Event;
use crate::cli::client::Reach;
use crate::cli::output::{self, Format, Screen};

pub(super) const EXAMPLES: &str = "Examples:
  usher audit query --user jane --since 1h                        what somebody did
  usher audit query --resource pods --verb delete --name web-0    who deleted a Pod
  usher audit query --decision forbid -o wide                     what was refused, with Audit-IDs
  usher audit query --code 5xx --limit 0 -o jsonl > errors.jsonl  all that failed
  usher audit query --filter 'event.trace.took > 100000 && event.verb != \"watch\"'";

/// Show the requests that are kept, the newest first.
#[derive(Debug, Args)]
pub struct Query {
    /// At most so many; 0 for all
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// The oldest first
    #[arg(long)]
    oldest_first: bool,
    #[command(flatten)]
    reach: Reach,
    /// How to write them
    #[arg(long, short, value_enum, default_value_t)]
    output: Rows,
    #[command(flatten)]
    which: Which,
}

impl Query {
    pub(super) async fn run(self) -> Result<(), String> {
        let client = self.reach.client().await?;
        let order = if self.oldest_first { "oldest" } else { "newest" };
        let query = self.which.query(&[("limit", &self.limit.to_string()), ("order", order)]);
        let mut lines = std::pin::pin!(lines(&client, &format!("/usher/v1/requests?{query}")).await?);
        let screen = Screen::stdout();
        let wide = self.output == Rows::Wide;
        let mut items: Vec<Value> = Vec::new();
        let mut first = true;
        while let Some(text) = lines.try_next().await? {
            match self.output {
                Rows::Jsonl => output::line(&text)?,
                Rows::Human | Rows::Wide => {
                    let event: Event = output::told(parsed(&text)?)?;
                    if std::mem::take(&mut first) {
                        output::line(&row::heading(&screen, wide))?;
                    }
                    output::line(&row::line(&event, &screen, wide))?;
                }
                Rows::Yaml => {
                    let separator = if std::mem::take(&mut first) { "" } else { "---\n" };
                    output::print(&format!("{separator}{}", crate::api::yaml::write(&parsed(&text)?)))?;
                }
                Rows::Json => items.push(parsed(&text)?),
            }
        }
        match self.output {
            Rows::Json => {
                Format::Json.write(&json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": items}))
            }
            Rows::Human | Rows::Wide if first => {
                eprintln!("No requests found.");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// An event of a line.
pub(super) fn parsed<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| format!("the server answered something else: {e}"))
}
