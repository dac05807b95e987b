//! `usher audit stats`: counts, and the latency of requests as a plot.

use std::fmt::Write;

use clap::Args;

use super::{Ask, Which, document};
use crate::audit::archive::{Count, Judged, Latency, Missed, Stats as Counted};
use crate::cli::output::{self, Cell, Format, Ink, Screen, Table, bytes, span};

pub(super) const EXAMPLES: &str = "Examples:
  usher audit stats --since 10m          who asks most, what is denied, what is slow
  usher audit stats --user jane --top 3  the same of one user
  usher audit stats --policy no-latest   how often a policy said what";

/// Count the requests that are kept.
#[derive(Debug, Args)]
pub struct Stats {
    /// How many of everything are named
    #[arg(long, default_value_t = 10)]
    top: usize,
    #[command(flatten)]
    ask: Ask,
    #[command(flatten)]
    which: Which,
}

impl Stats {
    pub(super) async fn run(self) -> Result<(), String> {
        let client = self.ask.reach.client().await?;
        let query = self.which.query(&[("top", &self.top.to_string())]);
        let answer = document(&client, &format!("/usher/v1/stats?{query}")).await?;
        match self.ask.output {
            Format::Human => output::print(&render(&output::told(answer)?, &Screen::stdout())),
            format => format.write(&answer),
        }
    }
}

fn render(stats: &Counted, screen: &Screen) -> String {
    let mut out = String::new();
    let window = match (stats.since, stats.until) {
        (Some(since), Some(until)) => format!(" from {since:.0} to {until:.0}"),
        _ => String::new(),
    };
    out.push_str(&output::hang(&format!("{} requests{window}", stats.requests), 2, screen));
    let kept = &stats.archive;
    let lost = if kept.lost > 0 { format!(", {} lost", kept.lost) } else { String::new() };
    let _ = writeln!(out, "The archive has {} records, {}{lost}.", kept.records, bytes(kept.bytes));
    stats.sinks.iter().filter_map(missed).for_each(|text| out.push_str(&output::hang(&text, 2, screen)));
    let mut section = |title: &str, text: String| {
        if !text.is_empty() {
            let _ = write!(out, "\n{}\n{text}", screen.paint(Ink::Heading, title));
        }
    };
    section("Users", counts(&["", "REQUESTS", "DENIED"], &stats.users, screen));
    section("Verbs", counts(&["", "REQUESTS", "DENIED"], &stats.verbs, screen));
    section("Resources", counts(&["", "REQUESTS", "DENIED"], &stats.resources, screen));
    section("Codes", counts(&["", "REQUESTS", "DENIED"], &stats.codes, screen));
    let mut denied = Table::new(&["TIMES", "USER", "VERB", "RESOURCE", "NAMESPACE"]);
    for denial in &stats.denied {
        let name = Cell::ink(&denial.user, Ink::Name);
        denied.row([
            Cell::number(denial.requests),
            name,
            denial.verb.as_str().into(),
            denial.resource.as_str().into(),
            denial.namespace.as_str().into(),
        ]);
    }
    section("Denied", if denied.is_empty() { String::new() } else { denied.render(screen) });
    // Where there is no room for whole Audit-IDs their beginning will do.
    let is_narrow = screen.width.is_some_and(|width| width < 100);
    let mut slow = Table::new(&["TOOK", "CODE", "USER", "VERB", "WHAT", "AUDIT-ID"]).whole(5);
    for request in &stats.slow {
        let code = Cell::ink(request.code, Ink::of_code(request.code));
        let (user, verb) = (Cell::ink(&request.user, Ink::Name), request.verb.as_str().into());
        slow.row([
            Cell::number(span(request.took)),
            code,
            user,
            verb,
            request.request_uri.as_str().into(),
            if is_narrow { request.audit_id.get(..8).unwrap_or(&request.audit_id).into() } else { request.audit_id.as_str().into() },
        ]);
    }
    section("Slow", if slow.is_empty() { String::new() } else { slow.render(screen) });
    section("Latency (watches and connections to Pods apart)", plot(&stats.latency, screen));
    section("Policies", judged(&stats.policies, screen));
    section("Webhooks", judged(&stats.webhooks, screen));
    out
}

/// What a sink has missed, if it has.
fn missed(sink: &Missed) -> Option<String> {
    let parts = [(sink.dropped, "dropped because it was too slow"), (sink.failed, "that it could not write")];
    let told: Vec<String> = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    (!told.is_empty()).then(|| format!("The {} has missed events since the server was started: {}.", sink.name, told.join(", ")))
}

fn counts(headings: &[&'static str], counts: &[Count], screen: &Screen) -> String {
    let mut table = Table::new(headings);
    for count in counts {
        let denied = match count.denied {
            0 => Cell::number(""),
            denied => Cell::number(denied),
        };
        let name = if count.name.is_empty() { "(none)" } else { &count.name };
        table.row([Cell::ink(name, Ink::Name), Cell::number(count.requests), denied]);
    }
    if table.is_empty() { String::new() } else { table.render(screen) }
}

fn judged(judged: &[Judged], screen: &Screen) -> String {
    let mut table = Table::new(&["", "TIMES", "VERDICTS"]);
    for judged in judged {
        let verdicts: Vec<String> = judged.verdicts.iter().map(|(verdict, count)| format!("{verdict} {count}")).collect();
        table.row([Cell::ink(&judged.name, Ink::Name), Cell::number(judged.requests), verdicts.join(", ").into()]);
    }
    if table.is_empty() { String::new() } else { table.render(screen) }
}

/// The histogram: a bar for each bucket between the first and the last that have something.
fn plot(latency: &Latency, screen: &Screen) -> String {
    let used = |bucket: &&crate::audit::archive::Bucket| bucket.requests > 0;
    let (Some(first), Some(last)) = (latency.buckets.iter().position(|b| used(&b)), latency.buckets.iter().rposition(|b| used(&b))) else {
        return String::new();
    };
    let most = latency.buckets.iter().map(|bucket| bucket.requests).max().unwrap_or(1).max(1);
    let digits = most.to_string().len();
    let room = screen.width.unwrap_or(80).saturating_sub(digits + 11).clamp(10, 60) as u64;
    let mut out = String::new();
    for (at, bucket) in latency.buckets.iter().enumerate().take(last + 1).skip(first) {
        let label = match bucket.up_to {
            Some(end) => format!("≤ {}", round(end)),
            None => format!("> {}", round(latency.buckets[at - 1].up_to.unwrap_or_default())),
        };
        // Eighths of a character, and at least one of them for anything at all.
        let eighths = (bucket.requests * room * 8).div_ceil(most);
        let full = "█".repeat((eighths / 8) as usize);
        let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][(eighths % 8) as usize];
        let _ = writeln!(out, "{label:>8} {:>digits$} {}", bucket.requests, screen.paint(Ink::Name, &format!("{full}{part}")));
    }
    let [p50, p90, p99, max] = [latency.p50, latency.p90, latency.p99, latency.max].map(span);
    let _ = writeln!(out, "p50 {p50}, p90 {p90}, p99 {p99}, longest {max}");
    out
}

/// The end of a bucket, without digits that say nothing.
fn round(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros}µs"),
        1_000..1_000_000 => format!("{}ms", micros as f64 / 1e3),
        _ => format!("{}s", micros as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::archive::Bucket;

    #[test]
    fn the_plot_shows_the_buckets_between_the_first_and_the_last() {
        let bucket = |up_to, requests| Bucket { up_to, requests };
        let latency = Latency {
            p50: 400,
            p90: 900,
            p99: 990,
            max: 6_000_000,
            buckets: vec![bucket(Some(100), 0), bucket(Some(250), 8), bucket(Some(2_500), 0), bucket(None, 1)],
        };
        let text = plot(&latency, &Screen { width: Some(22), colour: false });
        assert_eq!(text, " ≤ 250µs 8 ██████████\n ≤ 2.5ms 0 \n > 2.5ms 1 █▎\np50 400µs, p90 900µs, p99 990µs, longest 6.0s\n");
        assert_eq!(plot(&Latency::default(), &Screen { width: None, colour: false }), "");
    }

    #[test]
    fn a_summary_fits_the_screen() {
        let mut stats = Counted { requests: 3, ..Counted::default() };
        stats.users = vec![Count { name: "system:serviceaccount:kube-system:generic-garbage-collector".into(), requests: 2, denied: 1 }];
        stats.policies = vec![Judged { name: "p".into(), requests: 3, verdicts: [("denied".to_owned(), 3)].into() }];
        stats.sinks = vec![Missed { name: "log".into(), ..Missed::default() }, Missed { name: "webhook".into(), dropped: 7, failed: 2 }];
        let text = render(&stats, &Screen { width: Some(60), colour: false });
        assert!(!text.contains("The log") && text.contains("The webhook has missed events") && text.contains("7 dropped"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(text.contains("denied 3") && !text.contains("Slow"), "{text}");
    }
}
