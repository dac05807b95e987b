//! `usher audit tail`: requests as they end. A server that starts anew is waited for, and what it recorded meanwhile is shown first.

use std::time::{Duration, Instant};

use clap::Args;
use futures::TryStreamExt;
use serde_json::Value;

use super::{Lines, Rows, Which, document, lines, parsed, row};
use crate::audit::Event;
use crate::cli::client::{Reach, sentence};
use crate::cli::output::{self, Screen};

/// How long a server that went away is waited for, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(500);

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
        let mut live = self.follow(&client, &[]).await.map_err(sentence)?;
        let is_human = matches!(self.output, Rows::Human | Rows::Wide);
        if is_human && screen.width.is_some() {
            output::line(&row::heading(&screen, self.output == Rows::Wide))?;
        }
        if self.last > 0 {
            let query = self.which.query(&[("limit", &self.last.to_string())]);
            let last = lines(&client, &format!("/usher/v1/requests?{query}"), &[]).await.map_err(sentence)?;
            let mut last: Vec<String> = last.try_collect().await?;
            last.reverse();
            last.iter().try_for_each(|text| self.show(&parsed(text)?, text, &screen))?;
        }
        let (mut seen, mut waits) = (newest(&client).await, false);
        loop {
            let Ok(Some(text)) = live.try_next().await else {
                // A server that is about to stop may take a question and end it at once.
                if !std::mem::replace(&mut waits, true) {
                    output::note("usher: the server ended the stream; waiting for it\n");
                }
                live = self.again(&client, seen.as_deref()).await?;
                continue;
            };
            waits = false;
            let value: Value = parsed(&text)?;
            seen = id(&value).or(seen);
            self.show(&value, &text, &screen)?;
        }
    }

    async fn follow(&self, client: &kube::Client, headers: &[(&str, &str)]) -> Result<Lines, kube::Error> {
        lines(client, &format!("/usher/v1/requests?{}", self.which.query(&[("follow", "true")])), headers).await
    }

    /// Follows a server that went away, from behind what was seen of it; not one that is gone for long, and not one that refuses it.
    async fn again(&self, client: &kube::Client, seen: Option<&str>) -> Result<Lines, String> {
        let last = seen.map(|seen| ("last-event-id", seen));
        let end = Instant::now() + PATIENCE;
        loop {
            tokio::time::sleep(PAUSE).await;
            match self.follow(client, last.as_slice()).await {
                Ok(live) => return Ok(live),
                Err(error) if matches!(error, kube::Error::Api(_)) || Instant::now() > end => return Err(sentence(error)),
                Err(_) => {}
            }
        }
    }

    fn show(&self, value: &Value, text: &str, screen: &Screen) -> Result<(), String> {
        if let Some(lagged) = value.get("lagged") {
            match lagged["missed"].as_u64() {
                Some(missed) => output::note(&format!("{missed} requests were missed: they came faster than they could be shown\n")),
                None => output::note("some requests were missed: usher audit query shows them\n"),
            }
            return Ok(());
        }
        match self.output {
            Rows::Human | Rows::Wide => output::line(&row::line(&output::told::<Event>(value.clone())?, screen, self.output == Rows::Wide)),
            Rows::Yaml => output::print(&format!("---\n{}", crate::api::yaml::write(value))),
            Rows::Json | Rows::Jsonl => output::line(text),
        }
    }
}

/// What names an event in a stream; what a header cannot hold names none.
fn id(event: &Value) -> Option<String> {
    let id = format!("{}/{}", event["stage"].as_str()?, event["auditID"].as_str()?);
    http::HeaderValue::from_str(&id).is_ok().then_some(id)
}

/// The newest request of all: should the stream break before one is shown, what comes behind this was missed.
async fn newest(client: &kube::Client) -> Option<String> {
    let list = document(client, "/usher/v1/requests?limit=1&trace=false").await.ok()?;
    id(&list["items"][0])
}
