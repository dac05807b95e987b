//! A sequence as text: a lane for each party, an arrow for each message, what it says to the right.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar;

use super::actor::Lane;
use super::sequence::{Arrow, Message, Sequence};

/// The columns of the time.
const TIME: usize = 11;
/// The narrowest and the widest lane.
const LANE: (usize, usize) = (6, 13);
/// A screen narrower than this has lanes that are narrower still.
const NARROW: usize = 64;
/// What the texts should get at least.
const TEXT: usize = 44;

/// Draws a sequence; texts that do not fit into `width` columns, where that is given, go on in the next line.
pub fn draw(sequence: &Sequence, width: Option<usize>) -> String {
    let lanes = sequence.lanes();
    let lane = width.map_or(LANE.1, |width| {
        (width.saturating_sub(TIME + TEXT) / lanes.len().max(1)).clamp(LANE.0 - usize::from(width < NARROW), LANE.1)
    });
    let mut out = String::new();
    let mut head = " ".repeat(TIME);
    for title in lanes.iter().map(|party| short_title(*party, lane)) {
        let _ = write!(head, "{title:^lane$}");
    }
    let _ = writeln!(out, "{}", head.trim_end());
    for message in &sequence.messages {
        let room = width.map_or(usize::MAX, |width| width.saturating_sub(TIME + lane * lanes.len() + 2).max(8));
        let mut before = format!("{:>9}  {}", elapsed(message.after), row(Some(message), &lanes, lane));
        for part in wrapped(&message.text, room) {
            let _ = writeln!(out, "{}", format!("{before}  {part}").trim_end());
            before = format!("{:TIME$}{}", "", row(None, &lanes, lane));
        }
    }
    if sequence.left_out > 0 {
        let _ = writeln!(out, "{:TIME$}… and {} more requests about objects alike", "", sequence.left_out);
    }
    let end = sequence.ending(elapsed);
    for part in wrapped(&end, width.map_or(usize::MAX, |width| width.saturating_sub(TIME).max(8))) {
        let _ = writeln!(out, "{:TIME$}{part}", "");
    }
    out
}

/// A heading that fits.
fn short_title(lane: Lane, width: usize) -> &'static str {
    match (lane, lane.title().len() < width) {
        (_, true) => lane.title(),
        (Lane::Client, _) => "cli",
        (Lane::ApiServer, _) => "API",
        (Lane::Controllers, _) => "ctrl",
        (Lane::Scheduler, _) if width > 5 => "sched",
        (Lane::Scheduler, _) => "schd",
        (Lane::Kubelet, _) => "klet",
        (Lane::Store, _) => "stor",
        (Lane::Cri, _) => "CRI",
    }
}

/// The lanes with the message's arrow in them.
fn row(message: Option<&Message>, lanes: &[Lane], lane: usize) -> String {
    let centre = |party: Lane| lanes.iter().position(|known| *known == party).unwrap_or_default() * lane + lane / 2;
    let mut cells: Vec<char> = vec![' '; lane * lanes.len()];
    for party in lanes {
        cells[centre(*party)] = '│';
    }
    let Some(message) = message else { return cells.into_iter().collect() };
    let line = match message.arrow {
        Arrow::Call => '─',
        Arrow::Watch => '-',
        Arrow::Persist => '═',
        Arrow::Reconcile => '·',
    };
    let (from, to) = (centre(message.from), centre(message.to));
    if from == to {
        // A party's own work: an arrow that comes back to its lane.
        // It stays within its lane, which has room for it on the right.
        let end = from + (lane - lane / 2 - 1).min(4);
        cells[from + 1..end].fill(line);
        cells[end] = '►';
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
        600_000_000..3_600_000_000 => format!("+{}m{:02}s", micros / 60_000_000, micros / 1_000_000 % 60),
        _ => format!("+{}h{:02}m", micros / 3_600_000_000, micros / 60_000_000 % 60),
    }
}

/// A text in lines of so many characters, broken between words or behind a slash where that leaves no line half empty; one line at least.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest: Vec<char> = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    while fitting(&rest, room) < rest.len() {
        // How many characters fit; some of them are two columns wide.
        let fits = fitting(&rest, room);
        let space = rest[..=fits].iter().rposition(|c| *c == ' ');
        let slash = rest[..fits].iter().rposition(|c| *c == '/').map(|at| at + 1);
        let end = [space, slash].into_iter().flatten().max().filter(|end| *end > fits / 2);
        let behind = rest.split_off(end.unwrap_or(fits));
        lines.push(rest.into_iter().collect());
        rest = behind.into_iter().skip_while(|c| *c == ' ').collect();
    }
    lines.push(rest.into_iter().collect());
    lines
}

/// How many of these characters have room in so many columns; one at least.
fn fitting(text: &[char], room: usize) -> usize {
    let mut used = 0;
    let fits = text.iter().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= room
    });
    fits.count().max(1)
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
    fn a_narrow_terminal_gets_narrow_lanes_and_texts_of_several_lines() {
        let mut told = rollout();
        told.messages[0].text = "create deployments/web: a sentence that is long and goes on".into();
        let text = draw(&told, Some(60));
        assert!(text.lines().all(|line| line.chars().count() <= 60) && text.contains(" schd "), "{text}");
        let text = draw(&told, Some(80));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("sched") && !text.contains('…'), "{text}");
        assert!(text.contains("  create deployments/web: a\n") && text.contains("│    sentence that is long and\n"), "{text}");
    }

    #[test]
    fn whoever_had_no_part_in_it_gets_no_lane() {
        let mut told = rollout();
        told.messages.retain(|message| message.to != Lane::Cri && message.from != Lane::Cri);
        assert!(!draw(&told, None).contains("CRI"));
    }

    #[test]
    fn times_are_told_in_the_unit_that_fits() {
        assert_eq!([0, 1_500, 2_500_000, 1_207_000_000, 7_260_000_000].map(elapsed), ["+0 µs", "+1.5 ms", "+2.50 s", "+20m07s", "+2h01m"]);
    }
}
