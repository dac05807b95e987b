//! A sequence as text: a lane for each party, an arrow for each message, what it says to the right.

use std::fmt::Write as _;

use super::actor::Lane;
use super::sequence::{Arrow, Message, Sequence};

/// The columns of the time.
const TIME: usize = 11;
/// The narrowest and the widest lane.
const LANE: (usize, usize) = (8, 13);
/// What the texts should get at least.
const TEXT: usize = 44;

/// Draws a sequence; texts are cut at `width` columns where one is given.
pub fn draw(sequence: &Sequence, width: Option<usize>) -> String {
    let lane = width.map_or(LANE.1, |width| (width.saturating_sub(TIME + TEXT) / Lane::ALL.len()).clamp(LANE.0, LANE.1));
    let mut out = String::new();
    let mut head = " ".repeat(TIME);
    for title in Lane::ALL.map(|party| short_title(party, lane)) {
        let _ = write!(head, "{title:^lane$}");
    }
    let _ = writeln!(out, "{}", head.trim_end());
    for message in &sequence.messages {
        let line = format!("{:>9}  {}  {}", elapsed(message.after), row(message, lane), message.text);
        let _ = writeln!(out, "{}", cut(&line, width));
    }
    if sequence.left_out > 0 {
        let _ = writeln!(out, "{:TIME$}… and {} more requests about objects alike", "", sequence.left_out);
    }
    match sequence.ready_after {
        Some(after) => writeln!(out, "{:TIME$}{} is ready after {}", "", sequence.subject, elapsed(after)),
        None => writeln!(out, "{:TIME$}{} is not ready", "", sequence.subject),
    }
    .unwrap_or_default();
    out
}

/// A heading that fits.
fn short_title(lane: Lane, width: usize) -> &'static str {
    match (lane, lane.title().len() < width) {
        (_, true) => lane.title(),
        (Lane::ApiServer, _) => "API",
        (Lane::Controllers, _) => "ctrl",
        (Lane::Scheduler, _) => "sched",
        (other, _) => other.title(),
    }
}

/// The lanes with the message's arrow in them.
fn row(message: &Message, lane: usize) -> String {
    let centre = |party: Lane| party.position() * lane + lane / 2;
    let mut cells: Vec<char> = vec![' '; lane * Lane::ALL.len()];
    for party in Lane::ALL {
        cells[centre(party)] = '│';
    }
    let line = match message.arrow {
        Arrow::Call => '─',
        Arrow::Watch => '-',
        Arrow::Persist => '═',
        Arrow::Reconcile => '·',
    };
    let (from, to) = (centre(message.from), centre(message.to));
    if from == to {
        // A party's own work: an arrow that comes back to its lane.
        for cell in &mut cells[from + 1..from + 4] {
            *cell = line;
        }
        cells[from + 4 - usize::from(lane < 9)] = '►';
    } else if from < to {
        cells[from + 1..to - 1].fill(line);
        cells[to - 1] = '►';
    } else {
        cells[to + 2..from].fill(line);
        cells[to + 1] = '◄';
    }
    cells.into_iter().collect()
}

/// A time for people: `+1.234 ms`.
pub fn elapsed(micros: i64) -> String {
    match micros {
        ..1_000 => format!("+{micros} µs"),
        1_000..1_000_000 => format!("+{:.1} ms", micros as f64 / 1e3),
        1_000_000..600_000_000 => format!("+{:.2} s", micros as f64 / 1e6),
        _ => format!("+{} min", micros / 60_000_000),
    }
}

fn cut(line: &str, width: Option<usize>) -> String {
    match width {
        Some(width) if line.chars().count() > width => line.chars().take(width.saturating_sub(1)).chain(['…']).collect(),
        _ => line.trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sequence::tests::rollout;
    use super::*;

    #[test]
    fn each_kind_of_message_has_its_arrow_between_its_lanes() {
        let text = draw(&rollout(), None);
        let line = |what: &str| text.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no {what:?} in\n{text}"));
        assert!(text.lines().next().is_some_and(|head| Lane::ALL.iter().all(|lane| head.contains(lane.title()))), "{text}");
        assert!(line("create deployments/web").contains("│───────────►│"), "{text}");
        assert!(line("revision 10").contains("│═══════════►│"), "{text}");
        assert!(line("ADDED Deployment web").contains("│------"), "{text}");
        assert!(line("deployment-controller reconciles").contains("│···►"), "{text}");
        assert!(line("create replicasets/web-a").contains("│◄───────"), "{text}");
        assert!(text.ends_with("deployments/web is ready after +7.4 ms\n"), "{text}");
    }

    #[test]
    fn a_narrow_terminal_gets_narrow_lanes_and_cut_texts() {
        let text = draw(&rollout(), Some(80));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("sched") && text.contains('…'), "{text}");
    }

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        assert_eq!([0, 1_500, 2_500_000, 1_200_000_000].map(elapsed), ["+0 µs", "+1.5 ms", "+2.50 s", "+20 min"]);
    }
}
