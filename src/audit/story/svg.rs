//! A sequence as an SVG picture that needs nothing but itself.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr;

use super::actor::Lane;
use super::draw::elapsed;
use super::sequence::{Arrow, Sequence};

const LANE: usize = 130;
const ROW: usize = 26;
const LEFT: usize = 100;
const TOP: usize = 60;
/// The room for texts at least, and what a letter takes of it.
const TEXT: usize = 560;
const LETTER: usize = 8;
/// A longer text is cut; whoever points at it is told the whole.
const LONGEST: usize = 160;

const STYLE: &str = "text{font:12px ui-monospace,Menlo,monospace;fill:#222}.h{font-weight:bold;text-anchor:middle}.t{fill:#777;text-anchor:end}\
                     .lane{stroke:#bbb}.call{stroke:#1f6feb}.watch{stroke:#8250df;stroke-dasharray:6 4}.persist{stroke:#1a7f37;stroke-width:3}\
                     .reconcile{stroke:#9a6700;stroke-dasharray:2 3}.refused{stroke:#cf222e}";

/// The colours of the arrows, as the style has them.
const COLOURS: [(&str, &str); 5] =
    [("call", "#1f6feb"), ("watch", "#8250df"), ("persist", "#1a7f37"), ("reconcile", "#9a6700"), ("refused", "#cf222e")];

/// The picture.
pub fn svg(sequence: &Sequence) -> String {
    let parties = sequence.lanes();
    let lanes = parties.len();
    let widest = sequence.messages.iter().map(|message| message.text.width().min(LONGEST) * LETTER + 20).max().unwrap_or(0);
    let (width, height) = (LEFT + lanes * LANE + widest.max(TEXT), TOP + (sequence.messages.len() + 2) * ROW);
    let centre = |lane: Lane| LEFT + parties.iter().position(|known| *known == lane).unwrap_or_default() * LANE + LANE / 2;
    let mut out = String::new();
    let _ =
        writeln!(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">");
    let _ = writeln!(out, "<title>{}</title><style>{STYLE}</style>", escape(&sequence.subject));
    // A head for each colour: not everything that draws pictures knows how to take that of the line.
    for (class, colour) in COLOURS {
        let _ = writeln!(
            out,
            "<defs><marker id=\"{class}\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"9\" markerHeight=\"9\" \
             markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"{colour}\"/></marker></defs>"
        );
    }
    let _ = writeln!(out, "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>");
    for lane in parties.iter().copied() {
        let x = centre(lane);
        let _ = writeln!(
            out,
            "<text class=\"h\" x=\"{x}\" y=\"30\">{}</text><line class=\"lane\" x1=\"{x}\" y1=\"40\" x2=\"{x}\" y2=\"{}\"/>",
            lane.title(),
            height - ROW
        );
    }
    for (index, message) in sequence.messages.iter().enumerate() {
        let y = TOP + index * ROW;
        let class = match message.arrow {
            _ if message.refused => "refused",
            Arrow::Call => "call",
            Arrow::Watch => "watch",
            Arrow::Persist => "persist",
            Arrow::Reconcile => "reconcile",
        };
        let (from, to) = (centre(message.from), centre(message.to));
        let path = match from == to {
            true => format!("M{from} {} h36 v10 h-34", y - 5),
            false => format!("M{from} {y} H{}", if to > from { to - 2 } else { to + 2 }),
        };
        let _ = writeln!(out, "<text class=\"t\" x=\"{}\" y=\"{}\">{}</text>", LEFT - 10, y + 4, elapsed(message.after));
        let _ = writeln!(out, "<path class=\"{class}\" fill=\"none\" marker-end=\"url(#{class})\" d=\"{path}\"/>");
        let _ = writeln!(out, "<text x=\"{}\" y=\"{}\">{}</text>", LEFT + lanes * LANE + 10, y + 4, said(&message.text));
    }
    let end = sequence.ending(elapsed);
    let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"{}\">{}</text>\n</svg>", height - ROW / 3, escape(&end));
    out
}

fn said(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => escape(text),
        Some((end, _)) => format!("{}…<title>{}</title>", escape(&text[..end]), escape(text)),
    }
}

fn escape(text: &str) -> String {
    // XML has no place for what is no letter, be it written as an entity.
    let text: String = text.chars().map(|c| if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') { ' ' } else { c }).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::sequence::tests::rollout;
    use super::*;

    #[test]
    fn there_is_an_arrow_for_every_message_and_every_tag_is_closed() {
        let mut told = rollout();
        told.messages[0].text = "<script>&\u{1b}\0".into();
        let picture = svg(&told);
        assert_eq!(picture.matches("marker-end").count(), told.messages.len());
        assert!(picture.contains("&lt;script&gt;&amp;  <") && !picture.contains("<script>"), "what a name says stays text");
        told.messages[0].text = "é".repeat(500);
        assert!(svg(&told).contains(&format!("{}…<title>", "é".repeat(LONGEST))), "a long text is cut between letters");
        assert_eq!(picture.matches("<text").count(), picture.matches("</text>").count());
        assert!(picture.ends_with("</svg>\n"));
        for (class, colour) in COLOURS {
            assert!(STYLE.contains(&format!(".{class}{{stroke:{colour}")), "the head of an arrow has the colour of its line");
        }
    }
}
