//! `usher blame`: an object as YAML with, left of each field, who set it, when and in which request.

use std::collections::{BTreeSet, HashMap};

use clap::Args;
use serde_json::Value;

use super::ask::{Object, ask};
use super::client::{Reach, block_on};
use super::output::{Format, Ink, Screen, cut, harmless, length, note, pad, print, scalar, told};
use crate::audit::story::blame::{Attribution, Blame as Told, Source};

pub(super) const EXAMPLES: &str = "Examples:
  usher blame deploy/web                  who set each field: client, default, webhook, controller, …
  usher blame pod/web-0 -n team -o json

A ^ before the time says that the field may be older: what was before that revision is not kept.";

/// What to tell.
#[derive(Debug, Args)]
pub struct Blame {
    #[command(flatten)]
    object: Object,
    /// Show the values of a Secret too, and credentials in other objects
    #[arg(long)]
    show_secrets: bool,
    /// How the answer is written
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    reach: Reach,
}

impl Blame {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        block_on(async {
            let path = self.object.path(&self.reach, "blame", &[("showSecrets", &self.show_secrets.to_string())]).await?;
            let answer = ask(&self.reach, &path).await?;
            match self.output {
                Format::Human => {}
                // A field a line.
                Format::Jsonl => return Format::Jsonl.write(&answer["fields"]),
                format => return format.write(&answer),
            }
            if answer["deleted"] == true {
                note(&format!("{} is deleted; this is what it was last\n", harmless(answer["subject"].as_str().unwrap_or_default())));
            }
            let told: Told = told(answer)?;
            print(&render(&told, &Screen::stdout()))
        })
    }
}

/// A screen narrower than this has no room for everything.
const NARROW: usize = 110;

/// A line of YAML and, where it holds a field, whose it is.
struct Line<'a> {
    text: String,
    author: Option<&'a Attribution>,
}

fn render(told: &Told, screen: &Screen) -> String {
    let by_pointer: HashMap<&str, &Attribution> = told.fields.iter().map(|field| (field.pointer.as_str(), field)).collect();
    let mut lines = Vec::new();
    node(&told.object, 0, "", &mut String::new(), &by_pointer, &mut lines);
    // On a narrow screen, who and what they are share a column, and a day that is the same everywhere is not told.
    let narrow = screen.width.is_some_and(|width| width < NARROW);
    let days: BTreeSet<_> = told.fields.iter().filter_map(|field| field.at).map(|at| at.strftime("%m-%d").to_string()).collect();
    let time = if narrow && days.len() < 2 { "%H:%M:%S" } else { "%m-%d %H:%M:%S" };
    let columns = |field: &Attribution| -> [String; 4] {
        let mark = if field.boundary { "^" } else { "" };
        let at = field.at.map(|at| format!("{mark}{}", at.strftime(time))).unwrap_or_default();
        let id = field.audit_id.get(..8).unwrap_or(&field.audit_id).to_owned();
        match narrow {
            true => [String::new(), format!("{} {}", field.source.as_str(), who(field)).trim().to_owned(), at, id],
            false => [field.source.as_str().to_owned(), who(field), at, id],
        }
    };
    let shown: Vec<Option<[String; 4]>> = lines.iter().map(|line| line.author.map(columns)).collect();
    let mut widths = [0; 4];
    for row in shown.iter().flatten() {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = (*width).max(length(text));
        }
    }
    // The object is what the screen is for; its authors get a half of it.
    let gaps = if narrow { 6 } else { 8 };
    if let Some(width) = screen.width {
        let others = widths[0] + widths[2] + widths[3] + gaps;
        widths[1] = widths[1].min((width / 2).saturating_sub(others).max(12));
    }
    let mut out = String::new();
    for (line, row) in lines.iter().zip(shown) {
        let row = row.unwrap_or_default();
        let cells = row.iter().zip(widths).skip(usize::from(narrow));
        let cells: Vec<String> = cells.map(|(text, width)| pad(text, width)).collect();
        let ink = line.author.map_or(Ink::Faint, |field| ink(field.source));
        let used = widths.iter().sum::<usize>() + gaps;
        let text = screen.width.map_or(line.text.clone(), |width| cut(&line.text, width.saturating_sub(used).max(20)));
        let text = format!("{}  {text}", screen.paint(ink, &cells.join("  ")));
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

fn who(field: &Attribution) -> String {
    let mut text = match field.source {
        Source::Default => String::new(),
        _ => field.by.clone(),
    };
    if !field.manager.is_empty() && field.manager != field.by {
        text = format!("{text} ({})", field.manager);
    }
    if let Some(round) = field.round.filter(|round| *round > 0) {
        text = format!("{text} round {}", round + 1);
    }
    text
}

fn ink(source: Source) -> Ink {
    match source {
        Source::Client => Ink::Name,
        Source::Webhook | Source::Policy | Source::Plugin => Ink::Warning,
        Source::Controller | Source::Scheduler | Source::Kubelet => Ink::Good,
        Source::Default | Source::Server => Ink::Faint,
    }
}

/// Writes a value as YAML, line by line, as [`crate::api::yaml`] does it, with the pointer of every field at hand.
fn node<'a>(
    value: &Value,
    indent: usize,
    lead: &str,
    pointer: &mut String,
    fields: &HashMap<&str, &'a Attribution>,
    lines: &mut Vec<Line<'a>>,
) {
    let length = pointer.len();
    let pad = " ".repeat(indent);
    match value {
        Value::Object(map) => {
            for (index, (key, value)) in map.iter().enumerate() {
                let before = if index == 0 && !lead.is_empty() { lead } else { &pad };
                pointer.push_str(&format!("/{}", key.replace('~', "~0").replace('/', "~1")));
                let key = scalar(&Value::from(key.as_str()));
                match is_part(value) {
                    true => {
                        lines.push(Line { text: format!("{before}{key}:"), author: None });
                        let deeper = if value.is_array() { indent } else { indent + 2 };
                        node(value, deeper, "", pointer, fields, lines);
                    }
                    false => leaf(&format!("{before}{key}: "), value, indent, pointer, fields, lines),
                }
                pointer.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                pointer.push_str(&format!("/{index}"));
                match is_part(item) {
                    true => node(item, indent + 2, &format!("{pad}- "), pointer, fields, lines),
                    false => leaf(&format!("{pad}- "), item, indent, pointer, fields, lines),
                }
                pointer.truncate(length);
            }
        }
        other => leaf(&pad, other, indent, pointer, fields, lines),
    }
}

fn is_part(value: &Value) -> bool {
    value.as_object().is_some_and(|map| !map.is_empty()) || value.as_array().is_some_and(|items| !items.is_empty())
}

fn leaf<'a>(lead: &str, value: &Value, indent: usize, pointer: &str, fields: &HashMap<&str, &'a Attribution>, lines: &mut Vec<Line<'a>>) {
    let text = scalar(value);
    let mut parts = text.lines();
    let author = fields.get(pointer).copied();
    lines.push(Line { text: format!("{lead}{}", parts.next().unwrap_or_default()), author });
    lines.extend(parts.map(|part| Line { text: format!("{}{part}", " ".repeat(indent)), author: None }));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_narrow_screen_leaves_half_of_itself_to_the_object() {
        let at = "2026-05-01T12:00:00Z".parse().ok();
        let field = |pointer: &str, source, by: &str| Attribution {
            pointer: pointer.into(),
            source,
            by: by.into(),
            at,
            audit_id: "0123456789".into(),
            ..Attribution::default()
        };
        let told = Told {
            object: json!({"kind": "Deployment", "spec": {"terminationMessagePath": "/dev/termination-log"}}),
            fields: vec![
                field("/kind", Source::Client, "kubernetes-admin"),
                field("/spec/terminationMessagePath", Source::Controller, "some-controller"),
            ],
        };
        let text = render(&told, &Screen { width: Some(80), colour: false });
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.starts_with("client kubernetes…  12:00:00  01234567  kind: Deployment\n"), "{text}");
        assert!(text.contains("  terminationMessagePath: /dev/t"), "{text}");
    }

    #[test]
    fn the_yaml_is_whole_and_every_field_has_its_author_on_its_line() {
        let object = json!({"metadata": {"labels": {"a/b": "x"}, "name": "web"}, "spec": {"containers": [{"image": "i", "name": "c"}], "args": ["-v"]}});
        let field = |pointer: &str, source, by: &str, round| Attribution {
            pointer: pointer.into(),
            source,
            by: by.into(),
            round,
            ..Attribution::default()
        };
        let told = Told {
            object: object.clone(),
            fields: vec![
                field("/metadata/name", Source::Client, "jane", None),
                field("/metadata/labels/a~1b", Source::Webhook, "w", Some(1)),
                field("/spec/containers/0/image", Source::Default, "default", None),
            ],
        };
        let text = render(&told, &Screen { width: None, colour: false });
        let line = |what: &str| text.lines().find(|line| line.contains(what)).expect(what);
        assert!(line("name: web").starts_with("client") && line("name: web").contains("jane"), "{text}");
        assert!(line("a/b: x").contains("w round 2"), "{text}");
        assert!(line("- image: i").starts_with("default"), "{text}");
        let width = text.lines().find(|line| line.trim() == "metadata:").map(|line| line.find("metadata").unwrap_or(0)).expect("metadata");
        let yaml: String = text.lines().map(|line| line.chars().skip(width).collect::<String>() + "\n").collect();
        assert_eq!(yaml, crate::api::yaml::write(&object));
    }
}
