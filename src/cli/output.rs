//! What subcommands print: tables that fit the terminal, colour only where somebody looks at it, and the same as JSON, YAML or JSON
//! lines for machines. Where the output is no terminal a table is not cut, so that `grep` sees everything.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};

use anstyle::{AnsiColor, Style};
use clap::ValueEnum;
use serde_json::Value;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// How the answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Human,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
    /// One JSON document a line
    Jsonl,
}

impl Format {
    /// Writes a document; JSON lines of a list are its items. Not for [`Format::Human`], which is written by whoever knows the subject.
    pub fn write(self, value: &Value) -> Result<(), String> {
        match self {
            Format::Human | Format::Json => line(&serde_json::to_string_pretty(value).map_err(|e| e.to_string())?),
            Format::Yaml => print(&crate::api::yaml::write(value)),
            Format::Jsonl => match value.as_array().or_else(|| value.get("items").and_then(Value::as_array)) {
                Some(items) => items.iter().try_for_each(|item| line(&item.to_string())),
                None => line(&value.to_string()),
            },
        }
    }
}

/// Prints text. A reader that has seen enough (`| head`) ends the program quietly, as it ends every other tool.
pub fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.map_err(|e| format!("cannot write: {e}")),
    }
}

/// Prints a line.
pub fn line(text: &str) -> Result<(), String> {
    print(&format!("{text}\n"))
}

/// Prints a line for whoever listens. A server serves on if nobody does.
pub fn tell(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// The same beside the output proper, as text without an end of its own.
pub fn note(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// What the output can show.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// How many columns there are; `None` where nobody counts them.
    pub width: Option<usize>,
    /// Whether colour is wanted.
    pub colour: bool,
}

impl Screen {
    /// Standard output as it is: colour on a terminal, unless `NO_COLOR` is set or the terminal is dumb.
    pub fn stdout() -> Self {
        let terminal = std::io::stdout().is_terminal();
        let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()) || std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        let width = terminal.then(|| terminal_size::terminal_size().map_or(80, |(width, _)| width.0.max(20) as usize));
        Screen { width, colour: terminal && !refused }
    }

    /// Text in a colour, or as it is.
    pub fn paint(&self, ink: Ink, text: &str) -> String {
        match (self.colour, ink.style()) {
            (true, Some(style)) => format!("{style}{text}{style:#}"),
            _ => text.to_owned(),
        }
    }
}

/// What a colour stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ink {
    /// Nothing in particular.
    #[default]
    Plain,
    /// It went well, it was allowed, it was added.
    Good,
    /// It took long, it was warned of.
    Warning,
    /// It failed, it was denied, it was removed.
    Bad,
    /// A heading.
    Heading,
    /// What matters less.
    Faint,
    /// What everything else is about.
    Name,
}

impl Ink {
    fn style(self) -> Option<Style> {
        Some(match self {
            Ink::Plain => return None,
            Ink::Good => AnsiColor::Green.on_default(),
            Ink::Warning => AnsiColor::Yellow.on_default(),
            Ink::Bad => AnsiColor::Red.on_default(),
            Ink::Heading => Style::new().bold(),
            Ink::Faint => Style::new().dimmed(),
            Ink::Name => AnsiColor::Cyan.on_default(),
        })
    }

    /// The colour of an HTTP status.
    pub fn of_code(code: u16) -> Ink {
        match code {
            0..=299 => Ink::Good,
            300..=399 => Ink::Plain,
            _ => Ink::Bad,
        }
    }
}

/// A cell of a table.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    ink: Ink,
    right: bool,
}

impl Cell {
    /// In a colour.
    pub fn ink(text: impl ToString, ink: Ink) -> Cell {
        Cell { text: text.to_string(), ink, right: false }
    }

    /// A number: at the right edge of its column.
    pub fn number(number: impl ToString) -> Cell {
        Cell { text: number.to_string(), ink: Ink::Plain, right: true }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }
}

/// Rows under headings.
#[derive(Clone, Debug)]
pub struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    whole: Option<usize>,
}

/// What stands between two columns.
const GAP: usize = 2;
/// No column is made narrower than this.
const NARROWEST: usize = 6;

impl Table {
    /// An empty table.
    pub fn new(headings: &[&'static str]) -> Table {
        Table { headings: headings.to_vec(), rows: Vec::new(), whole: None }
    }

    /// The same with a column that does not give way: half of what it shows would be of no use.
    pub fn whole(self, column: usize) -> Table {
        Table { whole: Some(column), ..self }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text for a screen: the widest columns give way until a line fits.
    pub fn render(&self, screen: &Screen) -> String {
        let widths = self.widths(screen.width);
        let mut out = String::new();
        let headings: Vec<Cell> = self.headings.iter().map(|h| Cell::ink(h, Ink::Heading)).collect();
        if self.headings.iter().any(|h| !h.is_empty()) {
            write_row(&mut out, &headings, &widths, screen);
        }
        for row in &self.rows {
            write_row(&mut out, row, &widths, screen);
        }
        out
    }

    fn widths(&self, screen: Option<usize>) -> Vec<usize> {
        let mut widths: Vec<usize> = self.headings.iter().map(|h| length(h)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(length(&cell.text));
            }
        }
        if let Some(screen) = screen {
            let gaps = GAP * widths.len().saturating_sub(1);
            while widths.iter().sum::<usize>() + gaps > screen {
                let yielding = widths.iter_mut().enumerate().filter(|(column, _)| Some(*column) != self.whole);
                match yielding.map(|(_, width)| width).max() {
                    Some(widest) if *widest > NARROWEST => *widest -= 1,
                    _ => break,
                }
            }
        }
        widths
    }
}

/// How many columns a text takes: some characters take two, some none.
pub fn length(text: &str) -> usize {
    match text.is_ascii() {
        true => text.len(),
        false => text.width(),
    }
}

/// How many columns a character takes.
fn columns(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// Text cut to a width and filled up to it.
pub fn pad(text: &str, width: usize) -> String {
    let mut text = cut(text, width);
    text.extend(std::iter::repeat_n(' ', width.saturating_sub(length(&text))));
    text
}

fn write_row(out: &mut String, row: &[Cell], widths: &[usize], screen: &Screen) {
    let last = row.len().min(widths.len()).saturating_sub(1);
    for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
        let text = cut(&cell.text, *width);
        let pad = " ".repeat(width - length(&text).min(*width));
        let painted = screen.paint(cell.ink, &text);
        let _ = match cell.right {
            true => write!(out, "{pad}{painted}"),
            false if at == last => write!(out, "{painted}"),
            false => write!(out, "{painted}{pad}"),
        };
        if at < last {
            out.push_str(&" ".repeat(GAP));
        }
    }
    while out.ends_with(' ') {
        out.pop();
    }
    out.push('\n');
}

/// Text on one line, cut to a width, with `…` where something is missing. Control characters never reach the terminal.
pub fn cut(text: &str, width: usize) -> String {
    let clean = |c: char| if matches!(c, '\n' | '\t') { ' ' } else { tame(c) };
    let whole: String = text.chars().map(clean).collect();
    if length(&whole) <= width {
        return whole;
    }
    let mut used = 1;
    let fits = whole.chars().take_while(|c| {
        used += columns(*c);
        used <= width
    });
    fits.chain(['…']).collect()
}

/// A paragraph: what does not fit on the screen goes on in the next line, broken between words, and every line but the first begins
/// with so many blanks. Colours take no room.
pub fn hang(text: &str, indent: usize, screen: &Screen) -> String {
    let blanks = " ".repeat(indent);
    let width = screen.width.unwrap_or(usize::MAX).max(indent + NARROWEST);
    let mut out = String::new();
    for (number, line) in text.lines().enumerate() {
        let mut used = if number > 0 { indent } else { 0 };
        out.push_str(&blanks[..used]);
        for (at, word) in line.split(' ').enumerate() {
            let long = visible(word);
            if at > 0 && used + 1 + long > width && used > indent {
                out.push('\n');
                out.push_str(&blanks);
                used = indent;
            } else if at > 0 {
                out.push(' ');
                used += 1;
            }
            used = push_word(&mut out, word, used, width, &blanks);
        }
        out.push('\n');
    }
    out
}

/// Adds a word, in pieces where no line has room for it; answers how much of the line is used then.
fn push_word(out: &mut String, word: &str, mut used: usize, width: usize, blanks: &str) -> usize {
    let mut in_colour = false;
    for c in word.chars() {
        in_colour |= c == '\u{1b}';
        if !in_colour {
            if used + columns(c) > width && used > blanks.len() {
                out.push('\n');
                out.push_str(blanks);
                used = blanks.len();
            }
            used += columns(c);
        }
        out.push(c);
        in_colour &= c != 'm';
    }
    used
}

/// How many columns a text takes, colours apart.
fn visible(text: &str) -> usize {
    let mut in_colour = false;
    let shown = |c: &char| {
        in_colour |= *c == '\u{1b}';
        let shown = !in_colour;
        in_colour &= *c != 'm';
        shown
    };
    text.chars().filter(shown).map(columns).sum()
}

/// A character that a terminal shows and does not obey. Names, messages and user agents are whatever a client made them: one that
/// moves the cursor, rings the bell or turns the line around becomes a picture of itself. Line breaks and tabs stay.
fn tame(c: char) -> char {
    match c {
        '\n' | '\t' => c,
        '\0'..='\x1f' => char::from_u32(0x2400 + c as u32).unwrap_or(' '),
        '\x7f' => '␡',
        '\u{80}'..='\u{9f}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        _ => c,
    }
}

/// Text that can be shown on a terminal.
pub fn harmless(text: &str) -> String {
    text.chars().map(tame).collect()
}

/// What a server told, for people: typed, and with nothing in it that a terminal would obey.
pub fn told<T: serde::de::DeserializeOwned>(mut answer: Value) -> Result<T, String> {
    fn clean(value: &mut Value) {
        match value {
            Value::String(text) => *text = harmless(text),
            Value::Array(items) => items.iter_mut().for_each(clean),
            Value::Object(map) => {
                map.values_mut().for_each(clean);
                if map.keys().any(|key| key.chars().any(|c| tame(c) != c)) {
                    *map = std::mem::take(map).into_iter().map(|(key, value)| (harmless(&key), value)).collect();
                }
            }
            _ => {}
        }
    }
    clean(&mut answer);
    serde_json::from_value(answer).map_err(|e| format!("the server answered something else: {e}"))
}

/// A value as YAML without its last line break.
pub fn scalar(value: &Value) -> String {
    crate::api::yaml::write(value).trim_end().to_owned()
}

/// A time span as people say it: `850µs`, `12ms`, `3.4s`, `2m5s`.
pub fn span(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros}µs"),
        1_000..10_000 => format!("{:.1}ms", micros as f64 / 1e3),
        10_000..1_000_000 => format!("{}ms", micros / 1_000),
        1_000_000..60_000_000 => format!("{:.1}s", micros as f64 / 1e6),
        _ => format!("{}m{}s", micros / 60_000_000, micros / 1_000_000 % 60),
    }
}

/// An amount of bytes as people say it.
pub fn bytes(amount: u64) -> String {
    match amount {
        0..1_024 => format!("{amount} B"),
        1_024..1_048_576 => format!("{:.1} KiB", amount as f64 / 1_024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", amount as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", amount as f64 / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["USER", "VERB", "CODE"]);
        table.row(["system:serviceaccount:kube-system:deployment-controller".into(), "get".into(), Cell::number(200)]);
        table.row(["jane".into(), "create".into(), Cell::number(403)]);
        table
    }

    #[test]
    fn a_column_that_is_of_no_use_in_part_stays_whole() {
        let mut table = Table::new(&["WHAT", "AUDIT-ID"]).whole(1);
        table.row(["a long text that gives way".into(), "0d1fb1f4-70cc-4a2e-ae08-b39b0d5d2bbc".into()]);
        let text = table.render(&Screen { width: Some(50), colour: false });
        assert!(text.contains("a long text…  0d1fb1f4-70cc-4a2e-ae08-b39b0d5d2bbc\n"), "{text}");
    }

    #[test]
    fn a_paragraph_hangs_under_its_first_line_and_colours_take_no_room() {
        let screen = |width| Screen { width: Some(width), colour: true };
        assert_eq!(hang("name  one two three four", 6, &screen(15)), "name  one two\n      three\n      four\n");
        let red = format!("name  {} two", screen(15).paint(Ink::Bad, "onetwo"));
        assert_eq!(hang(&red, 6, &screen(16)), format!("{red}\n"));
        assert_eq!(hang("ab 0123456789012345", 3, &screen(13)), "ab 0123456789\n   012345\n");
        assert_eq!(hang("a\nb", 2, &Screen { width: None, colour: false }), "a\n  b\n");
    }

    #[test]
    fn nothing_that_a_client_called_itself_is_obeyed_by_a_terminal() {
        let name = "a\x1b[31mred\x07\x7f\u{9b}2J\u{202e}\r\nb";
        assert_eq!(harmless(name), "a␛[31mred␇␡\u{fffd}2J\u{fffd}␍\nb");
        assert_eq!(cut(name, 100), "a␛[31mred␇␡\u{fffd}2J\u{fffd}␍ b");
        let answer: Value = told(serde_json::json!({name: [name, {"x": name}], "n": 1})).unwrap_or_default();
        assert!(!answer.to_string().contains("\\u001b"), "{answer}");
        assert_eq!(answer["n"], 1);
    }

    #[test]
    fn characters_that_take_two_columns_are_counted_as_two() {
        let mut table = Table::new(&["USER", "VERB"]);
        table.row(["ユーザー名前".into(), "get".into()]);
        table.row(["jane".into(), "list".into()]);
        let text = table.render(&Screen { width: Some(80), colour: false });
        assert_eq!(text, "USER          VERB\nユーザー名前  get\njane          list\n");
        assert_eq!((cut("日本語", 5).as_str(), cut("日本語", 6).as_str(), pad("日本語", 8).as_str()), ("日本…", "日本語", "日本語  "));
        assert_eq!(hang("ab 日本語日本語", 3, &Screen { width: Some(10), colour: false }), "ab 日本語\n   日本語\n");
    }

    #[test]
    fn a_table_fits_the_terminal_and_the_widest_column_gives_way() {
        let text = table().render(&Screen { width: Some(30), colour: false });
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
        assert!(text.contains("system:service") && text.contains('…') && text.contains("create"), "{text}");
    }

    #[test]
    fn without_a_terminal_nothing_is_cut_and_nothing_is_coloured() {
        let text = table().render(&Screen { width: None, colour: false });
        assert!(text.contains("deployment-controller  get") && !text.contains('\u{1b}'), "{text}");
        assert!(text.lines().all(|line| !line.ends_with(' ')));
    }

    #[test]
    fn colour_is_ended_where_it_began_and_does_not_count_as_width() {
        let mut table = Table::new(&["CODE", "X"]);
        table.row([Cell::ink("403", Ink::Bad), "y".into()]);
        let text = table.render(&Screen { width: Some(40), colour: true });
        assert!(text.lines().nth(1).unwrap().starts_with("\u{1b}[31m403\u{1b}[0m   y"), "{text:?}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(cut("a\u{1b}[31mb\n", 20), "a␛[31mb ");
        assert_eq!(cut("abcdef", 4), "abc…");
    }

    #[test]
    fn spans_and_sizes_are_short() {
        assert_eq!([span(850), span(1_234), span(12_345), span(3_400_000), span(125_000_000)], ["850µs", "1.2ms", "12ms", "3.4s", "2m5s"]);
        assert_eq!([bytes(5), bytes(2_048), bytes(5 << 20)], ["5 B", "2.0 KiB", "5.0 MiB"]);
    }
}
