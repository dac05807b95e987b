//! `usher trace`: what really happened from apply to Ready, as a sequence diagram.

use clap::{Args, ValueEnum};

use super::ask::{Object, ask};
use super::client::{Reach, block_on};
use super::output::{Format, Ink, Screen, print, told};
use crate::audit::story::sequence::Sequence;
use crate::audit::story::{draw, mermaid, svg};

pub(super) const EXAMPLES: &str = "Examples:
  usher trace deploy/web                    from the last apply to Ready
  usher trace job/once --all                from the first write
  usher trace deploy/web -o svg > web.svg

Arrows: ──► request, --► watch event, ══► persisted change, ···► reconcile";

/// How the story is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Drawn {
    /// A diagram in the terminal
    #[default]
    #[value(alias = "human")]
    Text,
    /// The source of a Mermaid diagram
    Mermaid,
    /// A picture
    Svg,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
    /// One message a line, as JSON
    Jsonl,
}

/// What to tell.
#[derive(Debug, Args)]
pub struct Trace {
    #[command(flatten)]
    object: Object,
    /// From the first recorded write, and not from the last that somebody asked for
    #[arg(long)]
    all: bool,
    /// How many objects of one kind and owner are told
    #[arg(long, value_name = "N", default_value_t = 3)]
    alike: usize,
    /// How the answer is written
    #[arg(short, long, value_enum, default_value_t)]
    output: Drawn,
    #[command(flatten)]
    reach: Reach,
}

impl Trace {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        block_on(async {
            let (all, alike) = (self.all.to_string(), self.alike.to_string());
            let path = self.object.path(&self.reach, "trace", &[("all", &all), ("alike", &alike)]).await?;
            let answer = ask(&self.reach, &path).await?;
            let screen = Screen::stdout();
            let told = || told::<Sequence>(answer.clone());
            match self.output {
                Drawn::Json => Format::Json.write(&answer),
                Drawn::Yaml => Format::Yaml.write(&answer),
                Drawn::Jsonl => Format::Jsonl.write(&answer["messages"]),
                Drawn::Mermaid => print(&mermaid::mermaid(&told()?)),
                Drawn::Svg => print(&svg::svg(&told()?)),
                Drawn::Text => print(&coloured(&draw::draw(&told()?, screen.width), &screen)),
            }
        })
    }
}

/// The colour of a line is that of its arrow.
fn coloured(text: &str, screen: &Screen) -> String {
    let paint = |line: &str| {
        let ink = match line {
            line if line.contains('✗') => Ink::Bad,
            line if line.contains('═') => Ink::Good,
            line if line.contains("--") => Ink::Name,
            line if line.contains("··") => Ink::Warning,
            _ => Ink::Plain,
        };
        screen.paint(ink, line) + "\n"
    };
    text.lines().map(paint).collect()
}
