//! The text of an expression and the places in it: turning offsets into lines and columns, and printing an
//! issue the way Kubernetes prints it, with the source line and a caret. Not concerned with how the text is
//! parsed or checked.

use std::fmt::{self, Write as _};

/// How many issues are printed before the rest is only counted.
const MAX_ISSUES: usize = 100;
/// The longest source line that is repeated under an issue.
const MAX_SNIPPET: usize = 16_384;

/// A place in an expression. Lines start at 1, columns at 0 and count code points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// Line, starting at 1; `-1` when the issue has no place.
    pub line: i32,
    /// Column in code points, starting at 0; `-1` when the issue has no place.
    pub column: i32,
}

impl Location {
    /// The location of an issue that concerns the whole expression.
    pub const NONE: Location = Location { line: -1, column: -1 };
}

/// One thing that is wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Where it is.
    pub location: Location,
    /// What it is.
    pub message: String,
}

/// An issue whose place is not worked out yet: there can be many, and only the first hundred are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Nothing when it concerns the whole expression.
    pub offset: Option<u32>,
    pub message: String,
}

impl Finding {
    pub fn new(offset: u32, message: impl Into<String>) -> Self {
        Finding { offset: Some(offset), message: message.into() }
    }

    pub fn everywhere(message: impl Into<String>) -> Self {
        Finding { offset: None, message: message.into() }
    }
}

/// Everything that is wrong with an expression, in the order of the text. Beyond a hundred issues, the rest is only
/// counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issues {
    source: String,
    issues: Vec<Issue>,
    more: usize,
}

impl Issues {
    pub(crate) fn new(source: &str, mut findings: Vec<Finding>) -> Self {
        let more = findings.len().saturating_sub(MAX_ISSUES);
        findings.truncate(MAX_ISSUES);
        findings.sort_by_key(|f| f.offset);
        let issues = findings.into_iter().map(|finding| Issue {
            location: finding.offset.map_or(Location::NONE, |offset| locate(source, offset as usize)),
            message: finding.message,
        });
        Issues { source: source.to_owned(), issues: issues.collect(), more }
    }

    /// The issues, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = &Issue> {
        self.issues.iter()
    }
}

impl fmt::Display for Issues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, issue) in self.issues.iter().enumerate() {
            if i > 0 {
                f.write_char('\n')?;
            }
            write_issue(f, &self.source, issue)?;
        }
        if self.more > 0 {
            write!(f, "\n{} more errors were truncated", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for Issues {}

fn write_issue(f: &mut fmt::Formatter<'_>, source: &str, issue: &Issue) -> fmt::Result {
    let Location { line, column } = issue.location;
    write!(f, "ERROR: <input>:{line}:{}: {}", column + 1, issue.message)?;
    let Some(snippet) = usize::try_from(line - 1).ok().and_then(|n| source.split('\n').nth(n)) else {
        return Ok(());
    };
    if snippet.len() > MAX_SNIPPET {
        return Ok(());
    }
    write!(f, "\n | {}\n | ", snippet.replace('\t', " "))?;
    let mut chars = snippet.chars();
    for c in chars.by_ref().take(usize::try_from(column).unwrap_or(0)) {
        f.write_char(if c.len_utf8() > 1 { '\u{ff0e}' } else { '.' })?;
    }
    f.write_char(match chars.next() {
        Some(c) if c.len_utf8() > 1 => '\u{ff3e}',
        _ => '^',
    })
}

/// Turns a byte offset into a line and a column.
fn locate(source: &str, offset: usize) -> Location {
    let before = source.get(..offset).unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    Location { line: before.bytes().filter(|b| *b == b'\n').count() as i32 + 1, column: before[line_start..].chars().count() as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caret_counts_code_points_and_widens_under_wide_characters() {
        let source = "a\n'é' + x";
        let offset = source.find('x').unwrap() as u32;
        let issues = Issues::new(source, vec![Finding::new(offset, "bad")]);
        assert_eq!(issues.to_string(), "ERROR: <input>:2:7: bad\n | 'é' + x\n | .．....^");
    }

    #[test]
    fn issues_beyond_a_hundred_are_counted() {
        let text = Issues::new("x", vec![Finding::new(0, "m"); 103]).to_string();
        assert!(text.ends_with("3 more errors were truncated"), "{text}");
    }
}
