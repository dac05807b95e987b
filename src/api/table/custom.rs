//! The row of a custom object: each column says by a JSON path what stands in it. Of the language of paths, this is the
//! part that definitions may use: fields, quoted fields, indexes, wildcards and simple filters.

use jiff::Timestamp;
use serde_json::{Number, Value};

use super::Cells;
use super::access::{since, text, time};
use crate::registry::{Column, Resource};

pub(super) fn cells(resource: &Resource, object: &Value, now: Timestamp) -> Cells {
    let cell = |column: &Column| match &column.json_path {
        Some(path) => cell(column, find(object, path), now),
        None => text(&object["metadata"]["name"]).into(),
    };
    resource.columns.iter().map(cell).collect()
}

fn cell(column: &Column, found: Vec<&Value>, now: Timestamp) -> Value {
    let Some(&value) = found.first().filter(|value| !value.is_null()) else { return Value::Null };
    match (&*column.kind, value) {
        ("string", value) => printed(value).into(),
        ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(number)) => (number as i64).into(),
            _ => Value::Null,
        },
        ("number", Value::Number(number)) => number.as_f64().and_then(Number::from_f64).map_or(Value::Null, Value::Number),
        ("boolean", Value::Bool(yes)) => (*yes).into(),
        ("date", Value::String(_)) if time(value).is_none() => "<invalid>".into(),
        ("date", Value::String(_)) => since(value, now).into(),
        _ => Value::Null,
    }
}

/// A value as text: scalars as they are, everything else as JSON.
fn printed(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Every value that a path leads to.
pub(super) fn find<'a>(object: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![object];
    for step in steps(path) {
        found = found.into_iter().flat_map(|value| step.follow(value)).collect();
    }
    found
}

/// One step of a path.
#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Every,
    /// `[?(@.type=="Ready")]`: those whose value at the path is, or is not, this text.
    Filter {
        path: String,
        equal: bool,
        text: String,
    },
    /// Something that is not understood leads nowhere.
    Nowhere,
}

impl Step {
    fn follow<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Step::Field(name) => value.get(name.as_str()).into_iter().collect(),
            Step::Index(index) => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let index = if *index < 0 { index + length } else { *index };
                usize::try_from(index).ok().and_then(|index| items.get(index)).into_iter().collect()
            }
            Step::Every => match value {
                Value::Array(items) => items.iter().collect(),
                Value::Object(fields) => fields.values().collect(),
                _ => Vec::new(),
            },
            Step::Filter { path, equal, text } => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let matches = |item: &&Value| find(item, path).first().is_some_and(|found| (printed(found) == *text) == *equal);
                items.iter().filter(matches).collect()
            }
            Step::Nowhere => Vec::new(),
        }
    }
}

fn steps(path: &str) -> Vec<Step> {
    let mut rest = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches(['$', '@']);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let Some((step, behind)) = bracket(inside) else {
                steps.push(Step::Nowhere);
                break;
            };
            steps.push(step);
            rest = behind;
            continue;
        }
        rest = rest.strip_prefix('.').unwrap_or(rest);
        let (mut name, mut escaped, mut end) = (String::new(), false, rest.len());
        for (at, letter) in rest.char_indices() {
            match letter {
                // `\.` is a point in a name.
                '\\' if !escaped => escaped = true,
                '.' | '[' if !escaped => {
                    end = at;
                    break;
                }
                _ => {
                    name.push(letter);
                    escaped = false;
                }
            }
        }
        match name.as_str() {
            "" => {}
            "*" => steps.push(Step::Every),
            _ => steps.push(Step::Field(name)),
        }
        if end == 0 && !rest.starts_with('[') {
            steps.push(Step::Nowhere);
            break;
        }
        rest = &rest[end..];
    }
    steps
}

/// What stands in brackets, and what follows them.
fn bracket(inside: &str) -> Option<(Step, &str)> {
    if let Some(filter) = inside.strip_prefix("?(") {
        let (condition, behind) = filter.split_once(")]")?;
        let (left, right, equal) = match condition.split_once("==") {
            Some((left, right)) => (left, right, true),
            None => condition.split_once("!=").map(|(left, right)| (left, right, false))?,
        };
        let text = right.trim().trim_matches(['"', '\'']).to_owned();
        return Some((Step::Filter { path: left.trim().to_owned(), equal, text }, behind));
    }
    if let Some(quote @ ('\'' | '"')) = inside.chars().next() {
        let (name, behind) = inside[1..].split_once(&format!("{quote}]"))?;
        return Some((Step::Field(name.to_owned()), behind));
    }
    let (index, behind) = inside.split_once(']')?;
    match index.trim() {
        "*" => Some((Step::Every, behind)),
        index => Some((Step::Index(index.parse().ok()?), behind)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_lead_through_fields_indexes_and_filters() {
        let object = json!({"spec": {"size": 3, "a.b": "dotted", "list": [{"n": 1}, {"n": 2}]}, "metadata": {"annotations": {"x/y.z": "v"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]}});
        for (path, value) in [
            (".spec.size", json!(3)),
            ("{.spec.size}", json!(3)),
            (r".spec.a\.b", json!("dotted")),
            (".spec.list[1].n", json!(2)),
            (".spec.list[-1].n", json!(2)),
            (".spec['a.b']", json!("dotted")),
            (".metadata.annotations['x/y.z']", json!("v")),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!("True")),
            (".status.conditions[?(@.type!='Ready')].status", json!("False")),
        ] {
            assert_eq!(find(&object, path), [&value], "{path}");
        }
        assert_eq!(find(&object, ".spec.list[*].n"), [&json!(1), &json!(2)]);
        for path in [".spec.none", "[", ".spec[", "..", ".a[?(", "{", ".spec.list[x]", "é[é"] {
            find(&object, path);
        }
    }
}
