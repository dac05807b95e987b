//! `usher audit what-if`: what an audit policy would have recorded of the requests that are kept.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;

use super::{Ask, Which, sentence};
use crate::audit::Policy;
use crate::audit::what_if::{Outcome, Volume};
use crate::cli::output::{self, Cell, Format, Ink, Screen, Table, bytes};

pub(super) const EXAMPLES: &str = "Examples:
  usher audit what-if --policy policy.yaml --since 1d   what a day would have had
  usher audit what-if --policy policy.yaml --user system:kube-scheduler -o json";

/// Tell what an audit policy would have recorded, and how much.
#[derive(Debug, Args)]
pub struct WhatIf {
    /// The audit policy
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Only requests of this user
    #[arg(long)]
    user: Option<String>,
    /// Not before: a time (2026-05-01T12:00:00Z) or so long ago (10m, 2d)
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,
    /// Before: a time, or so long ago
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<String>,
    #[command(flatten)]
    ask: Ask,
}

impl WhatIf {
    pub(super) async fn run(self) -> Result<(), String> {
        let path = self.policy.display();
        let text = std::fs::read(&self.policy).map_err(|e| format!("cannot read {path}: {e}"))?;
        // What is wrong with it is told without a server.
        if let Some(ignored) = Policy::parse(&text).map_err(|e| format!("{path}: {e}"))?.ignored() {
            output::note(&format!("warning: {path}: {}\n", output::harmless(&ignored)));
        }
        let client = self.ask.reach.client().await?;
        let which = Which { user: self.user.clone(), since: self.since.clone(), until: self.until.clone(), ..Which::default() };
        let request = http::Request::post(format!("/usher/v1/what-if?{}", which.query(&[])));
        let answer: serde_json::Value = client.request(request.body(text).map_err(|e| e.to_string())?).await.map_err(sentence)?;
        match self.ask.output {
            Format::Human => {
                let outcome: Outcome = output::told(answer)?;
                output::print(&render(&outcome, &Screen::stdout()))
            }
            format => format.write(&answer),
        }
    }
}

fn render(outcome: &Outcome, screen: &Screen) -> String {
    let mut out = String::new();
    let total = &outcome.total;
    let mut say = |text: &str| out.push_str(&output::hang(text, 0, screen));
    say(&format!("Of {} requests the policy would have recorded {} events, {}.", outcome.requests, total.events, bytes(total.bytes)));
    if let (Some(from), Some(to)) = (outcome.since, outcome.until) {
        let seconds = to.duration_since(from).as_secs_f64();
        // Less than a minute says nothing about a day.
        if seconds >= 60.0 {
            let day = 86_400.0 / seconds;
            let (events, size) = ((total.events as f64 * day) as u64, bytes((total.bytes as f64 * day) as u64));
            say(&format!("They came from {from:.0} to {to:.0}; a day like that has {events} events, {size}."));
        }
    }
    if outcome.missing_bodies > 0 {
        say(&format!("{} bodies that it wants were not kept: the volume is larger than that.", outcome.missing_bodies));
    }
    let mut rules = Table::new(&["RULE", "LEVEL", "REQUESTS", "EVENTS", "VOLUME"]);
    for (number, rule) in outcome.rules.iter().enumerate().filter(|(_, rule)| rule.requests > 0 || rule.volume.events > 0) {
        let name = Cell::ink(format!("rules[{number}]"), Ink::Name);
        let [requests, events, size] =
            [rule.requests.to_string(), rule.volume.events.to_string(), bytes(rule.volume.bytes)].map(Cell::number);
        rules.row([name, rule.level.as_str().into(), requests, events, size]);
    }
    if outcome.no_rule > 0 {
        rules.row(["(no rule)".into(), "None".into(), Cell::number(outcome.no_rule), Cell::number(0), Cell::number("0 B")]);
    }
    let _ = write!(out, "\n{}", rules.render(screen));
    for (title, volumes) in [("LEVEL", &outcome.levels), ("STAGE", &outcome.stages)] {
        let mut table = Table::new(if title == "LEVEL" { &["LEVEL", "EVENTS", "VOLUME"] } else { &["STAGE", "EVENTS", "VOLUME"] });
        for (name, Volume { events, bytes: size }) in volumes {
            table.row([name.as_str().into(), Cell::number(events), Cell::number(bytes(*size))]);
        }
        if !table.is_empty() {
            let _ = write!(out, "\n{}", table.render(screen));
        }
    }
    out
}
