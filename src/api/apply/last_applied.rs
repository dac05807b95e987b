//! The way from client-side apply: what `kubectl apply` keeps in an annotation lets `kubectl apply --server-side` take the
//! same fields over without a conflict, and is kept up to date, so that the way back is open, too.

use serde_json::Value;

use super::Context;
use super::fieldset::FieldSet;
use super::typed::compare::compare;
use super::typed::fields::field_set;
use super::typed::validate::validate;
use crate::schema::Schema;

/// The manager that this is for.
pub const KUBECTL: &str = "kubectl";

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// All annotations of an object together may have this many bytes.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// The fields that client-side apply has set and that still are what it set them to.
pub(super) fn allowed_conflicts(live: &Value, schema: &Schema, context: &Context<'_>) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last.get("apiVersion").and_then(Value::as_str) != Some(context.api_version) {
        return None;
    }
    validate(&last, schema).ok()?;
    let mut fields = field_set(&last, schema);
    let comparison = compare(&last, live, schema);
    fields.subtract(&comparison.modified);
    fields.subtract(&comparison.added);
    fields.subtract(&comparison.removed);
    Some(fields)
}

/// Writes what was applied into the annotation, if the object has one.
pub(super) fn update_annotation(object: &mut Value, applied: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut applied = applied.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(ANNOTATION);
    }
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    annotations.insert(ANNOTATION.into(), escaped(&applied.to_string()).into());
    let size: usize = annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATION_BYTES {
        annotations.remove(ANNOTATION);
    }
}

fn annotation(object: &Value) -> Option<&str> {
    object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str().filter(|text| !text.is_empty())
}

/// JSON as Go's encoder writes it: safe inside of HTML, and a line of its own.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out.push('\n');
    out
}
