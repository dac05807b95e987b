//! Semantic versions, strict or (with `true`) normalised: a leading `v`, missing parts and leading zeros are
//! then forgiven.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::declarations::{Declaration, declare};
use crate::error::{EvalError, failed, no_such_overload};
use crate::library::Opaque;
use crate::meter::Meter;
use crate::operations::Answer;
use crate::value::Value;

#[rustfmt::skip]
pub(crate) const DECLARATIONS: &[Declaration] = &[
    declare("semver", "string_to_semver", "(string) -> kubernetes.Semver", semver),
    declare("semver", "string_bool_to_semver", "(string, bool) -> kubernetes.Semver", semver),
    declare("isSemver", "is_semver_string", "(string) -> bool", is_semver),
    declare("isSemver", "is_semver_string_bool", "(string, bool) -> bool", is_semver),
    declare("isGreaterThan", "semver_is_greater_than", "kubernetes.Semver.(kubernetes.Semver) -> bool", is_greater_than),
    declare("isLessThan", "semver_is_less_than", "kubernetes.Semver.(kubernetes.Semver) -> bool", is_less_than),
    declare("compareTo", "semver_compare_to", "kubernetes.Semver.(kubernetes.Semver) -> int", compare_to),
    declare("major", "semver_major", "kubernetes.Semver.() -> int", major),
    declare("minor", "semver_minor", "kubernetes.Semver.() -> int", minor),
    declare("patch", "semver_patch", "kubernetes.Semver.() -> int", patch),
];

/// A semantic version.
#[derive(Debug, Clone)]
pub struct Semver {
    numbers: [u64; 3],
    pre: Vec<Identifier>,
    build: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier {
    // Numbers come before words.
    Number(u64),
    Word(String),
}

impl PartialEq for Semver {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other) == Ordering::Equal
    }
}

impl Semver {
    pub(crate) fn parse(text: &str) -> Result<Semver, String> {
        if text.is_empty() {
            return Err("Version string empty".into());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts[..] else {
            return Err("No Major.Minor.Patch elements found".into());
        };
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(r, b)| (r, Some(b)));
        let (patch, pre) = rest.split_once('-').map_or((rest, None), |(r, p)| (r, Some(p)));
        let numbers = [number("Major", major)?, number("Minor", minor)?, number("Patch", patch)?];
        let pre = pre.map_or(Ok(Vec::new()), |pre| pre.split('.').map(identifier).collect())?;
        let build = build.map_or(Ok(Vec::new()), |build| build.split('.').map(build_identifier).collect())?;
        Ok(Semver { numbers, pre, build })
    }

    fn parse_normalised(text: &str) -> Result<Semver, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in parts.iter_mut().filter(|p| p.len() > 1) {
            let trimmed = part.trim_start_matches('0');
            let zero = if trimmed.starts_with(|c: char| c.is_ascii_digit()) { "" } else { "0" };
            *part = format!("{zero}{trimmed}");
        }
        if parts.len() < 3 {
            if parts.last().is_some_and(|p| p.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data".into());
            }
            parts.resize(3, "0".into());
        }
        Semver::parse(&parts.join("."))
    }

    fn compare(&self, other: &Semver) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            _ => self.pre.cmp(&other.pre),
        })
    }
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    let lower = name.to_ascii_lowercase();
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {lower} number {text:?}"));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{name} number must not contain leading zeroes {text:?}"));
    }
    text.parse().map_err(|_| format!("strconv.ParseUint: parsing {text:?}: invalid syntax"))
}

fn allowed(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn identifier(text: &str) -> Result<Identifier, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".into());
    }
    if text.bytes().all(|b| b.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {text:?}"));
        }
        return text.parse().map(Identifier::Number).map_err(|_| format!("strconv.ParseUint: parsing {text:?}: value out of range"));
    }
    if !allowed(text) {
        return Err(format!("Invalid character(s) found in prerelease {text:?}"));
    }
    Ok(Identifier::Word(text.to_owned()))
}

fn build_identifier(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("Build meta data is empty".into());
    }
    if !allowed(text) {
        return Err(format!("Invalid character(s) found in build meta data {text:?}"));
    }
    Ok(text.to_owned())
}

impl fmt::Display for Semver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        for (i, identifier) in self.pre.iter().enumerate() {
            f.write_str(if i == 0 { "-" } else { "." })?;
            match identifier {
                Identifier::Number(n) => write!(f, "{n}")?,
                Identifier::Word(w) => f.write_str(w)?,
            }
        }
        for (i, identifier) in self.build.iter().enumerate() {
            write!(f, "{}{identifier}", if i == 0 { "+" } else { "." })?;
        }
        Ok(())
    }
}

fn read(args: &[Value<'_>]) -> Result<Result<Semver, String>, EvalError> {
    match args {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => Ok(Semver::parse(text)),
        [Value::String(text), Value::Bool(true)] => Ok(Semver::parse_normalised(text)),
        _ => Err(no_such_overload()),
    }
}

fn semver<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    read(args)?.map(|v| Value::Opaque(Opaque::Semver(Arc::new(v)))).map_err(failed)
}

fn is_semver<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Bool(read(args)?.is_ok()))
}

fn target<'v>(args: &'v [Value<'_>]) -> Result<&'v Semver, EvalError> {
    match args {
        [Value::Opaque(Opaque::Semver(version)), ..] => Ok(version),
        _ => Err(no_such_overload()),
    }
}

fn ordering(args: &[Value<'_>]) -> Result<Ordering, EvalError> {
    match args {
        [_, Value::Opaque(Opaque::Semver(other))] => Ok(target(args)?.compare(other)),
        _ => Err(no_such_overload()),
    }
}

fn is_greater_than<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Bool(ordering(args)? == Ordering::Greater))
}

fn is_less_than<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Bool(ordering(args)? == Ordering::Less))
}

fn compare_to<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Int(ordering(args)? as i64))
}

fn major<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Int(target(args)?.numbers[0] as i64))
}

fn minor<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Int(target(args)?.numbers[1] as i64))
}

fn patch<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Int(target(args)?.numbers[2] as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_the_specification() {
        let order = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0"];
        for pair in order.windows(2) {
            let (a, b) = (Semver::parse(pair[0]).unwrap(), Semver::parse(pair[1]).unwrap());
            assert_eq!(a.compare(&b), Ordering::Less, "{pair:?}");
        }
        assert!(Semver::parse("1.0.0+a").unwrap() == Semver::parse("1.0.0+b").unwrap());
        assert_eq!(Semver::parse("1.2.3-rc.1+b.2").unwrap().to_string(), "1.2.3-rc.1+b.2");
    }

    #[test]
    fn normalising_forgives_what_strictness_refuses() {
        for text in ["v1.0", "1", "01.02.03", "v1.2.3"] {
            assert!(Semver::parse(text).is_err(), "{text}");
            assert!(Semver::parse_normalised(text).is_ok(), "{text}");
        }
        assert!(Semver::parse_normalised("1.2-rc").is_err());
        assert_eq!(Semver::parse("v1.0").unwrap_err(), "No Major.Minor.Patch elements found");
    }
}
