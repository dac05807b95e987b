//! From a request's body to an object: JSON or YAML is read, checked against the schema field by field, and what the
//! schema does not know is dropped. Errors and warnings have the words that a real server has for them. Defaults are not
//! applied here, nor is anything validated beyond types; Kubernetes' protobuf is decoded elsewhere.

mod typed;
mod untyped;

use std::borrow::Cow;

use serde_json::Value;

use super::{Schema, builtin, prune, syntax, yaml};
use crate::registry::{Resource, api_version};
use crate::status::Status;

/// What happens to fields that are unknown or there twice (`?fieldValidation=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped in silence.
    Ignore,
    /// They are dropped, and the client is told.
    #[default]
    Warn,
    /// They are an error.
    Strict,
}

/// Why a body is not an object of its kind.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// A value is of the wrong type, or no value of its type.
    #[error("{0}")]
    Type(String),
    /// Unknown and duplicate fields, each as a sentence.
    #[error("strict decoding error: {}", .0.join(", "))]
    Strict(Vec<String>),
}

/// What a body must be.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The group of the kind.
    pub group: &'a str,
    /// Its version.
    pub version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// Its schema.
    pub schema: &'a Schema,
    /// Whether it is a custom kind, which is read without types.
    pub custom: bool,
}

/// Reads an object of a resource. The second part of the result are warnings for the client.
///
/// # Errors
/// 400 with a real server's message, if the body is not such an object.
pub fn decode(body: &[u8], content_type: &str, resource: &Resource, validation: FieldValidation) -> Result<(Value, Vec<String>), Status> {
    let schema = resource.schema();
    let custom = resource.custom.is_some();
    let expected = Expected { group: &resource.group, version: &resource.version, kind: &resource.kind, schema: &schema, custom };
    decode_as(body, content_type, expected, validation)
}

/// Reads an object of a kind, such as the Scale or the Eviction that a subresource takes.
///
/// # Errors
/// 400 with a real server's message, if the body is not such an object.
pub fn decode_as(
    body: &[u8],
    content_type: &str,
    expected: Expected<'_>,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), Status> {
    let kind = expected.kind;
    let unrecognized = |why: String| {
        let shown = summary(body);
        Status::bad_request(format!("the object provided is unrecognized (must be of type {kind}): {why} ({shown})"))
    };
    let body = utf8(body);
    let document = if is_yaml(content_type) { Some(yaml::parse(&body).map_err(&unrecognized)?) } else { None };
    let found = match &document {
        Some(document) => Found::in_value(&document.value),
        None => Found::in_text(&body),
    };
    let found = found.map_err(|why| unrecognized(format!("couldn't get version/kind; json parse error: {why}")))?;
    if expected.custom {
        for (field, value) in [("Kind", &found.kind), ("apiVersion", &found.api_version)] {
            if value.is_empty() {
                return Err(unrecognized(format!("Object '{field}' is missing in '{}'", body.trim_end())));
            }
        }
    }
    let told = if found.kind.is_empty() { kind } else { &found.kind };
    let version = found.version().unwrap_or(expected.version);
    let cannot = |why: String| Status::bad_request(format!("{told} in version {version:?} cannot be handled as a {kind}: {why}"));

    let mut noted = Vec::new();
    let read = match document {
        Some(document) => {
            // The lines come as one error of several lines, and as a warning each.
            if !document.duplicates.is_empty() && validation == FieldValidation::Strict {
                noted.push(format!("yaml: unmarshal errors:\n  {}", document.duplicates.join("\n  ")));
            } else {
                noted.extend(document.duplicates);
            }
            read(document.value, expected, &mut noted).map_err(|why| cannot(why.to_string()))?
        }
        None => {
            let mut reader = serde_json::Deserializer::from_str(&body);
            read(&mut reader, expected, &mut noted).map_err(|why| match why {
                ReadError::Type(why) => cannot(why),
                ReadError::Syntax => {
                    unrecognized(format!("couldn't get version/kind; json parse error: {}", syntax::explain(body.as_bytes())))
                }
            })?
        }
    };
    let mut object = read;
    check_kind(&found, expected, &cannot)?;
    if !expected.custom {
        object["apiVersion"] = api_version(expected.group, expected.version).into();
        object["kind"] = kind.into();
    }
    match (validation, noted.is_empty()) {
        (FieldValidation::Strict, false) => Err(cannot(DecodeError::Strict(noted).to_string())),
        (FieldValidation::Warn, _) => Ok((object, noted)),
        _ => Ok((object, Vec::new())),
    }
}

/// Reads an object from a value that is already there, as after a patch: same checks, same dropping, same notes.
///
/// # Errors
/// If a value is of the wrong type, or if `validation` is strict and something is to be noted.
pub fn conform(value: Value, expected: Expected<'_>, validation: FieldValidation) -> Result<(Value, Vec<String>), DecodeError> {
    let mut noted = Vec::new();
    let object = read(value, expected, &mut noted).map_err(|why| DecodeError::Type(why.to_string()))?;
    match validation {
        FieldValidation::Strict if !noted.is_empty() => Err(DecodeError::Strict(noted)),
        FieldValidation::Warn => Ok((object, noted)),
        _ => Ok((object, Vec::new())),
    }
}

/// Reads any JSON, and notes what is there twice.
///
/// # Errors
/// If it is no JSON.
pub fn read_noting(text: &str) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut noted = Vec::new();
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = untyped::read_plain(&mut reader, &mut noted)?;
    reader.end()?;
    Ok((value, noted))
}

/// Why an object that says of itself what it is cannot be one of the expected kind, if it cannot. A custom object of another kind is
/// invalid, which others find out.
pub fn is_of_kind(object: &Value, expected: Expected<'_>) -> Result<(), String> {
    let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let found = Found { api_version: text("apiVersion"), kind: text("kind") };
    let told = |why: String| Status::bad_request(why);
    check_kind(&found, expected, &told).map_err(|status| status.message)
}

/// Whether a value can say of itself what it is.
///
/// # Errors
/// In Go's words, if it is no object or says it in no text.
pub fn type_meta(value: &Value) -> Result<(), String> {
    Found::in_value(value).map(drop)
}

/// What stops the reading.
#[derive(Debug)]
enum ReadError {
    /// It is no JSON.
    Syntax,
    /// A value is of the wrong type.
    Type(String),
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ReadError::Syntax => "exceeded max depth",
            ReadError::Type(why) => why,
        })
    }
}

fn read<'de, D: serde::Deserializer<'de>>(from: D, expected: Expected<'_>, noted: &mut Vec<String>) -> Result<Value, ReadError> {
    if expected.custom {
        let (mut value, error) = untyped::read(from, noted).map_err(|_| ReadError::Syntax)?;
        if let Some(error) = error {
            return Err(ReadError::Type(error));
        }
        prune::prune_noting(&mut value, expected.schema, noted);
        return match untyped::coerce_embedded(&mut value, expected.schema, &mut String::new()) {
            Some(error) => Err(ReadError::Type(error)),
            None => Ok(value),
        };
    }
    let (value, error) = typed::read(from, expected.schema, noted).map_err(|_| ReadError::Syntax)?;
    match error {
        Some(error) => Err(ReadError::Type(error)),
        None => Ok(value),
    }
}

/// What a body says of itself.
#[derive(Debug, Default)]
struct Found {
    api_version: String,
    kind: String,
}

impl Found {
    fn in_value(value: &Value) -> Result<Self, String> {
        let Some(object) = value.as_object() else {
            return match value {
                Value::Null => Ok(Self::default()),
                other => Err(not_an_object(crate::object::json_kind(other))),
            };
        };
        let text = |field: &str| match object.get(field) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => {
                Err(format!("json: cannot unmarshal {} into Go struct field .{field} of type string", crate::object::json_kind(other)))
            }
        };
        Ok(Self { api_version: text("apiVersion")?, kind: text("kind")? })
    }

    fn in_text(text: &str) -> Result<Self, String> {
        /// Only two fields are kept; the rest is skipped without being built.
        #[derive(serde::Deserialize)]
        struct TypeMeta {
            #[serde(default, rename = "apiVersion")]
            api_version: Value,
            #[serde(default)]
            kind: Value,
        }
        if text.trim_start().starts_with('{')
            && let Ok(meta) = serde_json::from_str::<TypeMeta>(text)
        {
            return Self::in_value(&serde_json::json!({"apiVersion": meta.api_version, "kind": meta.kind}));
        }
        // Not an object, a field twice (of which the last counts), or no JSON at all.
        match serde_json::from_str::<Value>(text) {
            Ok(value) => Self::in_value(&value),
            Err(_) => Err(syntax::explain(text.as_bytes())),
        }
    }

    fn version(&self) -> Option<&str> {
        let version = self.api_version.rsplit('/').next().unwrap_or_default();
        (!version.is_empty()).then_some(version)
    }

    fn group(&self) -> &str {
        self.api_version.rsplit_once('/').map_or("", |(group, _)| group)
    }
}

fn not_an_object(kind: &str) -> String {
    let into = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    format!("json: cannot unmarshal {kind} into Go value of type {into}")
}

fn check_kind(found: &Found, expected: Expected<'_>, cannot: &dyn Fn(String) -> Status) -> Result<(), Status> {
    // A custom object of the wrong kind is invalid, not unreadable.
    let same_kind = found.kind.is_empty() || found.kind == expected.kind;
    let right = api_version(expected.group, expected.version);
    let same_version = found.api_version.is_empty() || found.api_version == right;
    if same_version && (same_kind || expected.custom) {
        return Ok(());
    }
    let mismatch = format!("the API version in the data ({}) does not match the expected API version ({right})", found.api_version);
    if expected.custom {
        return Err(Status::bad_request(mismatch));
    }
    let (kind, version) = (if found.kind.is_empty() { expected.kind } else { &found.kind }, found.version().unwrap_or(expected.version));
    let group = if found.api_version.is_empty() { expected.group } else { found.group() };
    if builtin::of_kind(group, version, kind).is_none() {
        let version = api_version(group, version);
        return Err(cannot(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        )));
    }
    if same_kind && group == expected.group {
        return Err(Status::bad_request(mismatch));
    }
    let package = if expected.group.is_empty() { "core" } else { expected.group.split('.').next().unwrap_or_default() };
    Err(cannot(format!("converting ({version}.{kind}) to ({package}.{}): unknown conversion", expected.kind)))
}

fn is_yaml(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("application/yaml") || media_type.eq_ignore_ascii_case("application/apply-patch+yaml")
}

/// Bytes that are not UTF-8 are read as the replacement character, and so is an escape that is half of a pair.
fn utf8(body: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(body);
    if !["\\ud", "\\uD"].iter().any(|half| text.contains(half)) {
        return text;
    }
    let code = |at: usize| text.get(at..at + 6)?.strip_prefix("\\u").and_then(|hex| u16::from_str_radix(hex, 16).ok());
    let (mut out, mut at) = (String::with_capacity(text.len()), 0);
    while let Some(found) = text[at..].find('\\') {
        let escape = at + found;
        out.push_str(&text[at..escape]);
        let (kept, length) = match (code(escape), code(escape + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (true, 12),
            (Some(0xd800..=0xdfff), _) => (false, 6),
            _ => (true, 1 + text[escape + 1..].chars().next().map_or(0, char::len_utf8)),
        };
        out.push_str(if kept { &text[escape..escape + length] } else { "\\ufffd" });
        at = escape + length;
    }
    out.push_str(&text[at..]);
    Cow::Owned(out)
}

/// The beginning of a body, for a message.
pub fn summary(body: &[u8]) -> String {
    const MOST: usize = 30;
    let shown = &body[..body.len().min(MOST)];
    let text = match body.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > MOST { format!("{text} ...") } else { text }
}

#[cfg(test)]
#[path = "decode/tests.rs"]
mod tests;
