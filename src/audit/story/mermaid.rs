//! A sequence as a Mermaid diagram, for documents.

use std::fmt::Write as _;

use super::actor::Lane;
use super::draw::elapsed;
use super::sequence::{Arrow, Sequence};

/// The diagram's source.
pub fn mermaid(sequence: &Sequence) -> String {
    let mut out = String::from("sequenceDiagram\n");
    let lanes = sequence.lanes();
    for lane in lanes.iter().copied() {
        let _ = writeln!(out, "    participant {} as {}", id(lane), lane.title());
    }
    for message in &sequence.messages {
        let arrow = match message.arrow {
            _ if message.refused => "-x",
            Arrow::Call => "->>",
            Arrow::Watch => "-->>",
            Arrow::Persist => "-)",
            Arrow::Reconcile => "--)",
        };
        let _ = writeln!(out, "    {}{arrow}{}: {} {}", id(message.from), id(message.to), elapsed(message.after), escape(&message.text));
    }
    if let (Some(first), Some(last)) = (lanes.first(), lanes.last()) {
        let over = if first == last { id(*first).to_owned() } else { format!("{},{}", id(*first), id(*last)) };
        let _ = writeln!(out, "    Note over {over}: {}", escape(&sequence.ending(elapsed)));
    }
    out
}

fn id(lane: Lane) -> &'static str {
    match lane {
        Lane::ApiServer => "API",
        other => other.title(),
    }
}

/// What ends a statement, or begins an entity, a directive or a tag, is written as an entity.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '#' | ';' | '%' | '<' | '>' => {
                let _ = write!(out, "#{};", u32::from(c));
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::sequence::tests::rollout;
    use super::*;

    #[test]
    fn every_message_is_a_line_between_declared_participants() {
        let text = mermaid(&rollout());
        assert!(text.contains("participant API as API server"));
        assert!(text.contains("    Client->>API: +0 µs create deployments/web\n"), "{text}");
        assert!(text.contains("API-->>controllers: +400 µs ADDED Deployment web"), "{text}");
        assert!(text.contains("Note over Client,CRI: deployments/web is ready after +7.4 ms"));
        let mut refused = rollout();
        refused.messages.truncate(1);
        refused.messages[0].refused = true;
        let text = mermaid(&refused);
        assert!(text.contains("    Client-xAPI: +0 µs create deployments/web\n"), "{text}");
        assert!(!text.contains("participant CRI") && text.contains("Note over Client,API: "), "who had no part gets no lane: {text}");
    }

    #[test]
    fn a_text_cannot_end_its_statement() {
        assert_eq!(escape("a;b #1\nc"), "a#59;b #35;1 c");
        assert_eq!(escape("%%{init}%% <b>"), "#37;#37;{init}#37;#37; #60;b#62;");
    }
}
