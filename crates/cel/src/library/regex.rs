//! Regular expressions: `matches`, `find` and `findAll`. The syntax is RE2's, which differs from that of the
//! `regex` crate in a few places: classes such as `\d` and `\b` are ASCII, `\Q…\E` quotes, `\C` is not there.
//! Matching takes linear time; the size of what is compiled is bounded.

use regex::{Regex, RegexBuilder};

use crate::declarations::{Declaration, declare};
use crate::error::{EvalError, failed, no_such_overload};
use crate::meter::Meter;
use crate::operations::Answer;
use crate::value::Value;

#[rustfmt::skip]
pub(crate) const DECLARATIONS: &[Declaration] = &[
    declare("find", "string_find_string", "string.(string) -> string", find),
    declare("findAll", "string_find_all_string", "string.(string) -> list(string)", find_all),
    declare("findAll", "string_find_all_string_int", "string.(string, int) -> list(string)", find_all),
];

/// The most memory that a compiled expression may take: one that is compiled once, and one that is only known
/// when it is used.
const MAX_COMPILED: usize = 1 << 20;
const MAX_COMPILED_LATE: usize = 1 << 18;
/// Steps to count for compiling an expression while evaluating, and for one that small text can make large.
const COMPILE_WORK: u64 = 20_000;
const COMPILE_LARGE_WORK: u64 = 500_000;
/// How many expressions an evaluation remembers.
const REMEMBERED: usize = 8;
/// The largest number in `x{n}`.
const MAX_REPEAT: u32 = 1_000;

/// Compiles an expression.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    compile_within(pattern, MAX_COMPILED)
}

fn compile_within(pattern: &str, size: usize) -> Result<Regex, String> {
    let translated = translate(pattern)?;
    RegexBuilder::new(&translated).size_limit(size).dfa_size_limit(MAX_COMPILED).nest_limit(250).build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            format!("error parsing regexp: expression too large: `{pattern}`")
        }
        other => {
            let text = other.to_string();
            let reason = text.lines().last().unwrap_or("invalid").trim_start_matches("error: ").to_owned();
            format!("error parsing regexp: {reason}: `{pattern}`")
        }
    })
}

/// Rewrites RE2 syntax into that of the `regex` crate.
fn translate(pattern: &str) -> Result<String, String> {
    let invalid = |reason: &str, at: &str| Err(format!("error parsing regexp: {reason}: `{at}`"));
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(c) = rest.chars().next() {
        match c {
            '\\' => {
                let Some(escaped) = rest[1..].chars().next() else {
                    return invalid("trailing backslash at end of expression", "");
                };
                let after = &rest[1 + escaped.len_utf8()..];
                rest = after;
                match escaped {
                    'Q' if !in_class => {
                        let (quoted, after) = after.split_once("\\E").unwrap_or((after, ""));
                        out.push_str(&regex::escape(quoted));
                        rest = after;
                    }
                    'd' => out.push_str(if in_class { "0-9" } else { "[0-9]" }),
                    'w' => out.push_str(if in_class { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                    's' => out.push_str(if in_class { "\\t\\n\\f\\r\\x20" } else { "[\\t\\n\\f\\r\\x20]" }),
                    'D' => out.push_str("[^0-9]"),
                    'W' => out.push_str("[^0-9A-Za-z_]"),
                    'S' => out.push_str("[^\\t\\n\\f\\r\\x20]"),
                    'b' if !in_class => out.push_str("(?-u:\\b)"),
                    'B' if !in_class => out.push_str("\\B"),
                    'z' | 'A' if !in_class => {
                        out.push('\\');
                        out.push(escaped);
                    }
                    // A short octal number or a control character that Rust writes differently.
                    '0'..='7' => {
                        let digits: String = rest.chars().take(2).take_while(|c| ('0'..='7').contains(c)).collect();
                        if escaped != '0' && digits.is_empty() {
                            return invalid("invalid escape sequence", &format!("\\{escaped}"));
                        }
                        rest = &rest[digits.len()..];
                        let value = u32::from_str_radix(&format!("{escaped}{digits}"), 8).unwrap_or(0);
                        out.push_str(&format!("\\x{{{value:x}}}"));
                    }
                    'p' | 'P' | 'x' | 'a' | 'f' | 't' | 'n' | 'r' | 'v' => {
                        out.push('\\');
                        out.push(escaped);
                    }
                    c if c.is_ascii_punctuation() => {
                        out.push('\\');
                        out.push(c);
                    }
                    other => return invalid("invalid escape sequence", &format!("\\{other}")),
                }
            }
            '[' if in_class => {
                rest = &rest[1..];
                // A named class such as [:alpha:] stays; any other bracket is only a character here.
                if rest.starts_with(':') && rest.contains(":]") {
                    out.push('[');
                    let end = rest.find(":]").map_or(rest.len(), |at| at + 2);
                    out.push_str(&rest[..end]);
                    rest = &rest[end..];
                } else {
                    out.push_str("\\[");
                }
            }
            '[' => {
                in_class = true;
                out.push('[');
                rest = &rest[1..];
                if let Some(after) = rest.strip_prefix('^') {
                    out.push('^');
                    rest = after;
                }
                if let Some(after) = rest.strip_prefix(']') {
                    out.push_str("\\]");
                    rest = after;
                }
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
                rest = &rest[1..];
            }
            // Set operations of the `regex` crate that RE2 does not have.
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
                rest = &rest[1..];
            }
            '-' if in_class && rest.starts_with("--") => {
                out.push_str("\\-");
                rest = &rest[1..];
            }
            '{' if !in_class => {
                rest = repetition(rest, &mut out)?;
            }
            '(' if !in_class && rest.starts_with("(?") => {
                let flags = &rest[2..];
                if flags.starts_with('=') || flags.starts_with('!') || flags.starts_with("<=") || flags.starts_with("<!") {
                    return invalid("invalid or unsupported Perl syntax", &rest[..rest.len().min(4)]);
                }
                out.push_str("(?");
                rest = flags;
            }
            c => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    Ok(out)
}

/// `{n}`, `{n,}` or `{n,m}`; anything else is only characters.
fn repetition<'p>(rest: &'p str, out: &mut String) -> Result<&'p str, String> {
    let body_end = rest.find('}');
    let body = body_end.map(|end| &rest[1..end]);
    let (low, high) = body.map_or(("", None), |body| match body.split_once(',') {
        Some((low, high)) => (low, Some(high)),
        None => (body, None),
    });
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u32>().ok()).flatten();
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if body.is_none() || !is_digits(low) || high.is_some_and(|h| !h.is_empty() && !is_digits(h)) {
        out.push_str("\\{");
        return Ok(&rest[1..]);
    }
    let end = body_end.map_or(rest.len(), |end| end + 1);
    let too_many = |n: Option<u32>| n.is_none_or(|n| n > MAX_REPEAT);
    let reversed = high.filter(|h| !h.is_empty()).is_some_and(|h| number(h) < number(low));
    if too_many(number(low)) || high.filter(|h| !h.is_empty()).is_some_and(|h| too_many(number(h))) || reversed {
        return Err(format!("error parsing regexp: invalid repeat count: `{}`", &rest[..end]));
    }
    out.push_str(&rest[..end]);
    Ok(&rest[end..])
}

/// Compiles an expression that is only known when the call is made, unless the evaluation has used it before.
fn compile_late(meter: &mut Meter, pattern: &str) -> Result<Regex, EvalError> {
    if let Some((_, regex)) = meter.regexes.iter().find(|(p, _)| p == pattern) {
        return Ok(regex.clone());
    }
    let large = pattern.contains('{') || pattern.contains("\\p") || pattern.contains("\\P");
    meter.work(if large { COMPILE_LARGE_WORK } else { COMPILE_WORK } + pattern.len() as u64 * 100)?;
    let regex = compile_within(pattern, MAX_COMPILED_LATE).map_err(failed)?;
    if meter.regexes.len() == REMEMBERED {
        meter.regexes.remove(0);
    }
    meter.regexes.push((pattern.to_owned(), regex.clone()));
    Ok(regex)
}

pub(crate) fn matches<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text), Value::String(pattern)] => Ok(Value::Bool(compile_late(meter, pattern)?.is_match(text))),
        _ => Err(no_such_overload()),
    }
}

fn illegal(error: EvalError) -> EvalError {
    match error {
        EvalError::Failed(text) => failed(format!("Illegal regex: {text}")),
        other => other,
    }
}

fn find<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text), Value::String(pattern)] => {
            let regex = compile_late(meter, pattern).map_err(illegal)?;
            find_with(&regex, args, text)
        }
        _ => Err(no_such_overload()),
    }
}

fn find_all<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text), Value::String(pattern), ..] => {
            let regex = compile_late(meter, pattern).map_err(illegal)?;
            find_all_with(&regex, args, text)
        }
        _ => Err(no_such_overload()),
    }
}

fn find_with<'a>(regex: &Regex, _: &[Value<'a>], text: &str) -> Answer<'a> {
    Ok(Value::string(regex.find(text).map_or("", |m| m.as_str())))
}

fn find_all_with<'a>(regex: &Regex, args: &[Value<'a>], text: &str) -> Answer<'a> {
    let limit = match args.get(2) {
        None => usize::MAX,
        Some(Value::Int(n)) => usize::try_from(*n).unwrap_or(usize::MAX),
        Some(_) => return Err(no_such_overload()),
    };
    Ok(Value::list(regex.find_iter(text).take(limit).map(|m| Value::string(m.as_str())).collect()))
}

/// A call whose expression is constant, compiled once.
pub(crate) fn call_compiled<'a>(function: &str, regex: &Regex, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text), ..] = args else {
        return Err(no_such_overload());
    };
    match function {
        "matches" => Ok(Value::Bool(regex.is_match(text))),
        "find" => find_with(regex, args, text),
        _ => find_all_with(regex, args, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(pattern: &str, text: &str) -> bool {
        compile(pattern).unwrap().is_match(text)
    }

    #[test]
    fn classes_are_ascii() {
        assert!(!is_match(r"^\d$", "٣"));
        assert!(!is_match(r"^\w$", "é"));
        assert!(is_match(r"^[\d\w]+$", "a1"));
        assert!(is_match(r"^\pL$", "é"));
        assert!(is_match(r"^[\W]$", "é"));
        assert!(is_match(r"\bfoo\b", "a foo b"));
        assert!(is_match(r"^.$", "é"));
    }

    #[test]
    fn quoting_and_literal_brackets_work_as_in_re2() {
        assert!(is_match(r"^\Qa.b\E$", "a.b"));
        assert!(!is_match(r"^\Qa.b\E$", "axb"));
        assert!(is_match("^[[]$", "["));
        assert!(is_match("^[]a]$", "]"));
        assert!(is_match("^[a&&b]$", "&"));
        assert!(is_match("^[[:alpha:]]$", "x"));
        assert!(is_match("^a{,2}$", "a{,2}"));
        assert!(is_match(r"^\060$", "0"));
    }

    #[test]
    fn what_re2_lacks_is_refused() {
        for pattern in [r"(?=a)", r"(?<!a)b", r"\C", r"(a)\1", "a{1001}", "a{2,1}", "(", "\\", "(((((((((a{100}){100}){100}){100})))))"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
