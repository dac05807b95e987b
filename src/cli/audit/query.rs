//! `usher audit query`: the requests that are kept, written as they come: an answer of a million is held nowhere.

use clap::Args;
use futures::TryStreamExt;
use serde_json::Value;

use super::{Rows, Which, lines, parsed, row};
use crate::audit::Event;
use crate::cli::client::{Reach, sentence};
use crate::cli::output::{self, Screen};

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
        // One more than is shown: whoever sees a part of them is told so.
        let limit = if self.limit == 0 { 0 } else { self.limit.saturating_add(1) };
        let query = self.which.query(&[("limit", &limit.to_string()), ("order", order)]);
        let mut lines = lines(&client, &format!("/usher/v1/requests?{query}"), &[]).await.map_err(sentence)?;
        let screen = Screen::stdout();
        let mut told = 0;
        while let Some(text) = lines.try_next().await? {
            if told == self.limit && self.limit > 0 {
                self.end(told)?;
                output::note(&format!("usher: only the {order} {told} are shown; --limit says how many, 0 is all\n"));
                return Ok(());
            }
            self.show(&text, told, &screen)?;
            told += 1;
        }
        self.end(told)
    }

    /// Writes a request behind so many others.
    fn show(&self, text: &str, told: usize, screen: &Screen) -> Result<(), String> {
        let wide = self.output == Rows::Wide;
        match self.output {
            Rows::Jsonl => {
                // What is plainly an event need not be looked at.
                if !text.starts_with("{\"kind\":\"Event\"") {
                    parsed::<Value>(text)?;
                }
                output::line(text)
            }
            Rows::Human | Rows::Wide => {
                let event: Event = output::told(parsed(text)?)?;
                if told == 0 {
                    output::line(&row::heading(screen, wide))?;
                }
                output::line(&row::line(&event, screen, wide))
            }
            Rows::Yaml => {
                let separator = if told == 0 { "" } else { "---\n" };
                output::print(&format!("{separator}{}", crate::api::yaml::write(&parsed(text)?)))
            }
            Rows::Json => {
                let item = serde_json::to_string_pretty(&parsed::<Value>(text)?).map_err(|e| e.to_string())?;
                let before = if told == 0 { LIST_BEGINS } else { "," };
                output::print(&format!("{before}\n    {}", item.replace('\n', "\n    ")))
            }
        }
    }

    /// Writes what is behind all of them.
    fn end(&self, told: usize) -> Result<(), String> {
        match self.output {
            Rows::Json if told == 0 => output::line(&format!("{LIST_BEGINS}{LIST_ENDS}")),
            Rows::Json => output::line(&format!("\n  {LIST_ENDS}")),
            Rows::Human | Rows::Wide if told == 0 => {
                output::note("No requests found.\n");
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// What is before and behind the items of a list, as everything else is written in JSON.
const LIST_BEGINS: &str = "{\n  \"apiVersion\": \"audit.k8s.io/v1\",\n  \"items\": [";
const LIST_ENDS: &str = "],\n  \"kind\": \"EventList\",\n  \"metadata\": {}\n}";
