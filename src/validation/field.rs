//! Where a field is, and what is in it. Paths are chains on the stack that become text only when a mistake is told, so that
//! a right object costs no allocation. Reading never fails: what is absent or of another type reads as empty.

use std::fmt;

use serde_json::{Map, Value};

use crate::status::{FieldError, FieldReason};

/// Everything that was found.
pub type Errors = Vec<FieldError>;

/// The path of a field, as `field.Path` writes it.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    part: Part<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// A field of the object itself.
    pub const fn root(name: &'a str) -> Path<'a> {
        Path { parent: None, part: Part::Field(name) }
    }

    /// The object itself, which has no name in messages.
    pub const fn object() -> Path<'static> {
        Path { parent: None, part: Part::Field("") }
    }

    /// A field of this one.
    pub const fn field(&'a self, name: &'a str) -> Path<'a> {
        Path { parent: Some(self), part: Part::Field(name) }
    }

    fn is_object(&self) -> bool {
        self.parent.is_none() && matches!(self.part, Part::Field(""))
    }

    /// An item of this list.
    pub const fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), part: Part::Index(index) }
    }

    /// A value of this map.
    pub const fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), part: Part::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.part {
            Part::Field(name) if self.parent.is_none_or(Path::is_object) => f.write_str(name),
            Part::Field(name) => write!(f, ".{name}"),
            Part::Index(index) => write!(f, "[{index}]"),
            Part::Key(key) => write!(f, "[{key}]"),
        }
    }
}

impl From<&Path<'_>> for String {
    fn from(path: &Path<'_>) -> String {
        path.to_string()
    }
}

impl From<Path<'_>> for String {
    fn from(path: Path<'_>) -> String {
        path.to_string()
    }
}

/// The text of a field, or nothing.
pub fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The whole number of a field.
pub fn number(value: &Value, field: &str) -> Option<i64> {
    value.get(field).and_then(Value::as_i64)
}

/// The items of a list.
pub fn items<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The entries of a map or object.
pub fn entries<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = (&'v String, &'v Value)> {
    value.get(field).and_then(Value::as_object).into_iter().flatten()
}

/// The object in a field, where it is one.
pub fn object<'v>(value: &'v Value, field: &str) -> Option<&'v Value> {
    value.get(field).filter(|v| v.is_object())
}

/// Whether a field is set to anything.
pub fn has(value: &Value, field: &str) -> bool {
    value.get(field).is_some_and(|v| !v.is_null())
}

/// A wrong text.
pub fn invalid(path: &Path<'_>, value: &str, detail: impl Into<String>) -> FieldError {
    FieldError::invalid(path, &Value::from(value), detail)
}

/// Everything that is wrong with the shape of a text.
pub fn wrong(errors: &mut Errors, path: &Path<'_>, value: &str, why: Vec<String>) {
    errors.extend(why.into_iter().map(|why| invalid(path, value, why)));
}

/// The shape of a text, where it is there.
pub fn shaped(errors: &mut Errors, value: &Value, path: &Path<'_>, field: &str, check: super::names::Check) {
    let text = text(value, field);
    if !text.is_empty() {
        wrong(errors, &path.field(field), text, check(text));
    }
}

/// The shape of a text that must be there.
pub fn required_shape(errors: &mut Errors, value: &Value, path: &Path<'_>, field: &str, check: super::names::Check) {
    required(errors, value, path, &[field]);
    shaped(errors, value, path, field, check);
}

/// Fields that must not be empty.
pub fn required(errors: &mut Errors, value: &Value, path: &Path<'_>, fields: &[&str]) {
    for field in fields.iter().filter(|field| value.get(**field).is_none_or(crate::schema::is_zero)) {
        errors.push(FieldError::required(path.field(field), ""));
    }
}

/// `example.com/path`, as classes and controllers are named; each half is told by itself.
pub fn domain_prefixed_path(errors: &mut Errors, value: &Value, path: &Path<'_>, field: &str) {
    let (whole, path) = (text(value, field), path.field(field));
    if whole.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let Some((host, rest)) = whole.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty()) else {
        errors.push(invalid(&path, whole, "must be a domain-prefixed path (such as \"acme.io/foo\")"));
        return;
    };
    wrong(errors, &path, host, super::names::subdomain(host));
    if !rest.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b)) {
        let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.push(invalid(&path, rest, why));
    }
}

/// Whether a flag is set.
pub fn flag(value: &Value, field: &str) -> bool {
    value.get(field) == Some(&Value::Bool(true))
}

/// A mistake that shows no value, as a real server tells one about an object as a whole.
pub fn invalid_unshown(field: impl Into<String>, detail: &str) -> FieldError {
    FieldError { field: field.into(), reason: FieldReason::Invalid, value: detail.to_owned(), detail: String::new() }
}

/// A field that must be one of a few words; an absent one is `Required value` where it has to be there.
pub fn one_of(errors: &mut Errors, value: &Value, path: &Path<'_>, field: &str, required: bool, supported: &[&str]) {
    let word = text(value, field);
    if word.is_empty() {
        if required {
            errors.push(FieldError::required(path.field(field), ""));
        }
    } else if !supported.contains(&word) {
        errors.push(FieldError::not_supported(path.field(field), &Value::from(word), supported));
    }
}

/// A number that must not be below zero, where it is there.
pub fn non_negative(errors: &mut Errors, value: &Value, path: &Path<'_>, field: &str) {
    at_least(errors, value, path, field, 0);
}

/// A number with a lower bound, where it is there.
pub fn at_least(errors: &mut Errors, value: &Value, path: &Path<'_>, field: &str, least: i64) {
    if let Some(n) = number(value, field).filter(|n| *n < least) {
        errors.push(FieldError::invalid(path.field(field), &n.into(), format!("must be greater than or equal to {least}")));
    }
}

/// A number between two bounds, where it is there.
pub fn between(errors: &mut Errors, value: &Value, path: &Path<'_>, field: &str, least: i64, most: i64) {
    if let Some(n) = number(value, field).filter(|n| !(least..=most).contains(n)) {
        errors.push(FieldError::invalid(path.field(field), &n.into(), format!("must be between {least} and {most}, inclusive")));
    }
}

/// A field that must be one of a few words where it is there at all; an empty one is as wrong as any other.
pub fn word(errors: &mut Errors, value: &Value, path: &Path<'_>, field: &str, supported: &[&str]) {
    if has(value, field) && !supported.contains(&text(value, field)) {
        errors.push(FieldError::not_supported(path.field(field), &value[field], supported));
    }
}

/// A port number.
pub fn port(errors: &mut Errors, port: i64, path: &Path<'_>) {
    if !(1..=65535).contains(&port) {
        errors.push(FieldError::invalid(path, &port.into(), "must be between 1 and 65535, inclusive"));
    }
}

/// A field that cannot change once it is there.
pub fn immutable(errors: &mut Errors, new: &Value, old: &Value, path: &Path<'_>, field: &str) {
    let (new, old) = (new.get(field).unwrap_or(&Value::Null), old.get(field).unwrap_or(&Value::Null));
    if new != old {
        errors.push(FieldError::invalid(path.field(field), new, "field is immutable"));
    }
}

/// A field that cannot change once it is there, by newer rules: they do not say to what.
pub fn settled(errors: &mut Errors, new: &Value, old: &Value, path: &Path<'_>, field: &str) {
    let content = |value: &Value| value.get(field).filter(|v| !v.is_null()).cloned();
    if content(new) != content(old) {
        errors.push(FieldError::invalid(path.field(field), &Value::Null, "field is immutable"));
    }
}

/// A map that reads as empty where there is none.
pub fn map<'v>(value: &'v Value, field: &str) -> Option<&'v Map<String, Value>> {
    value.get(field).and_then(Value::as_object)
}
