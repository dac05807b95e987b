//! `usher history`: every kept revision of an object, with what it changed and who changed it.

use clap::Args;
use serde_json::Value;

use super::ask::{Object, ask};
use super::client::{Reach, block_on};
use super::output::{Format, Ink, Screen, hang, print, scalar, told};
use crate::audit::story::fields::Difference;
use crate::gateway::operations::history::{History as Told, Kept};

pub(super) const EXAMPLES: &str = "Examples:
  usher history deploy/web               every kept revision, oldest first
  usher history secret/db -n team        what changed; values stay hidden
  usher history cm/settings --last 1     the last change";

/// What to tell.
#[derive(Debug, Args)]
pub struct History {
    #[command(flatten)]
    object: Object,
    /// Only the last so many revisions
    #[arg(long, value_name = "N", default_value_t = 100)]
    last: usize,
    /// Show the values of a Secret too, and credentials in other objects
    #[arg(long)]
    show_secrets: bool,
    /// How the answer is written
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    reach: Reach,
}

impl History {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        block_on(async {
            let (limit, secrets) = (self.last.to_string(), self.show_secrets.to_string());
            let path = self.object.path(&self.reach, "history", &[("limit", &limit), ("showSecrets", &secrets)]).await?;
            let answer = ask(&self.reach, &path).await?;
            match self.output {
                Format::Human => {}
                // A revision a line.
                Format::Jsonl => return Format::Jsonl.write(&answer["revisions"]),
                format => return format.write(&answer),
            }
            let told: Told = told(answer)?;
            print(&render(&told, &Screen::stdout()))
        })
    }
}

fn render(told: &Told, screen: &Screen) -> String {
    let mut out = String::new();
    if told.left_out > 0 {
        let text = format!("… {} older revisions; --last N tells of more", told.left_out);
        out.push_str(&hang(&screen.paint(Ink::Faint, &text), 4, screen));
    }
    for kept in &told.revisions {
        let ink = match kept.operation.as_str() {
            "created" => Ink::Good,
            "deleted" => Ink::Bad,
            _ => Ink::Name,
        };
        // A deletion that was imported has no revision.
        let number = if kept.revision == 0 { String::new() } else { format!("revision {} ", kept.revision) };
        let head = screen.paint(ink, &format!("{number}{}", kept.operation));
        out.push_str(&hang(&format!("{head}  {}", screen.paint(Ink::Faint, &author(kept))), 4, screen));
        if kept.operation == "deleted" && kept.changes.is_empty() {
            continue;
        }
        for change in &kept.changes {
            difference(&mut out, change, screen);
        }
    }
    out
}

fn author(kept: &Kept) -> String {
    let time = kept.time.map(|time| time.strftime("%Y-%m-%d %H:%M:%S").to_string()).unwrap_or_default();
    let user = if kept.user.is_empty() { "(request not kept)" } else { &kept.user };
    let mut parts = vec![time, user.to_owned()];
    if !kept.manager.is_empty() {
        parts.push(format!("as {}", kept.manager));
    }
    if !kept.verb.is_empty() {
        parts.push(format!("by {}", kept.verb));
    }
    parts.push(kept.audit_id.clone());
    parts.retain(|part| !part.is_empty());
    parts.join("  ")
}

/// One change: a line, or the YAML of a part that is new or gone.
pub(super) fn difference(out: &mut String, change: &Difference, screen: &Screen) {
    let is_part = |value: &Value| value.as_object().is_some_and(|v| !v.is_empty()) || value.as_array().is_some_and(|v| !v.is_empty());
    let (sign, ink) = match (&change.from, &change.to) {
        (None, _) => ('+', Ink::Good),
        (_, None) => ('-', Ink::Bad),
        _ => ('~', Ink::Warning),
    };
    let mut line = |sign: char, ink: Ink, text: &str| {
        out.push_str(&hang(&screen.paint(ink, &format!("    {sign} {text}")), 8, screen));
    };
    match (&change.from, &change.to) {
        (Some(from), Some(to)) if !is_part(from) && !is_part(to) => {
            line(sign, ink, &format!("{}: {} → {}", change.path, scalar(from), scalar(to)))
        }
        (from, to) => {
            let sides = [(from, '-', Ink::Bad), (to, '+', Ink::Good)];
            for (value, sign, ink) in sides.into_iter().filter_map(|(value, sign, ink)| Some((value.as_ref()?, sign, ink))) {
                match is_part(value) {
                    false => line(sign, ink, &format!("{}: {}", change.path, scalar(value))),
                    true => {
                        line(sign, ink, &format!("{}:", change.path));
                        crate::api::yaml::write(value).lines().for_each(|text| line(sign, ink, &format!("  {text}")));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_are_lines_and_new_parts_are_yaml() {
        let screen = Screen { width: None, colour: false };
        let told = Told {
            subject: "deployments.apps/web".into(),
            left_out: 0,
            revisions: vec![Kept {
                revision: 7,
                operation: "updated".into(),
                user: "jane".into(),
                manager: "kubectl".into(),
                changes: vec![
                    Difference { path: "spec.replicas".into(), from: Some(json!(1)), to: Some(json!(3)) },
                    Difference { path: "metadata.labels".into(), from: None, to: Some(json!({"a": "b"})) },
                    Difference { path: "spec.paused".into(), from: Some(json!(true)), to: None },
                ],
                ..Kept::default()
            }],
        };
        let cut = render(&Told { left_out: 6, ..told.clone() }, &screen);
        assert!(cut.starts_with("… 6 older revisions; --last N tells of more\nrevision 7"), "what is not told is counted: {cut}");
        let text = render(&told, &screen);
        let wanted = "revision 7 updated  jane  as kubectl\n    ~ spec.replicas: 1 → 3\n    + metadata.labels:\n    +   a: b\n    - spec.paused: true\n";
        assert_eq!(text, wanted);
    }
}
