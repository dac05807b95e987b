//! `usher audit tail`: requests as they end.

use clap::Args;
use futures::TryStreamExt;
use serde_json::Value;

use super::query::parsed;
use super::{Rows, Which, lines, row};
use crate::audit::Event;
use crate::cli::client::Reach;
use crate::cli::output::{self, Screen};

pub(super) const EXAMPLES: &str = "Examples:
  usher audit tail                                      everything, as it happens
  usher audit tail --last 20 --decision forbid          what is refused, the last twenty first
  usher audit tail --policy no-latest -o jsonl | jq .   what a policy had a say in, for programs";

/// Show requests as they end, until interrupted.
#[derive(Debug, Args)]
pub struct Tail {
    /// Begin with so many of the last ones
    #[arg(long, default_value_t = 0)]
    last: usize,
    #[command(flatten)]
    reach: Reach,
    /// How to write them
    #[arg(long, short, value_enum, default_value_t)]
    output: Rows,
    #[command(flatten)]
    which: Which,
}

impl Tail {
    pub(super) async fn run(self) -> Result<(), String> {
        let client = self.reach.client().await?;
        let screen = Screen::stdout();
        // Followed first, so that nothing is missed between the two.
        let mut live = std::pin::pin!(lines(&client, &format!("/usher/v1/requests?{}", self.which.query(&[("follow", "true")]))).await?);
        let is_human = matches!(self.output, Rows::Human | Rows::Wide);
        if is_human && screen.width.is_some() {
            output::line(&row::heading(&screen, self.output == Rows::Wide))?;
        }
        if self.last > 0 {
            let query = self.which.query(&[("limit", &self.last.to_string())]);
            let mut last: Vec<String> = lines(&client, &format!("/usher/v1/requests?{query}")).await?.try_collect().await?;
            last.reverse();
            last.iter().try_for_each(|text| self.show(text, &screen))?;
        }
        while let Some(text) = live.try_next().await? {
            self.show(&text, &screen)?;
        }
        Err("the server ended the stream".into())
    }

    fn show(&self, text: &str, screen: &Screen) -> Result<(), String> {
        let value: Value = parsed(text)?;
        if let Some(missed) = value["lagged"]["missed"].as_u64() {
            eprintln!("{missed} requests were missed: they came faster than they could be shown");
            return Ok(());
        }
        match self.output {
            Rows::Human | Rows::Wide => output::line(&row::line(&output::told::<Event>(value)?, screen, self.output == Rows::Wide)),
            Rows::Yaml => output::print(&format!("---\n{}", crate::api::yaml::write(&value))),
            Rows::Json | Rows::Jsonl => output::line(text),
        }
    }
}
