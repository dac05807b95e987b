//! A custom resource against its schema: types, required fields, enumerations, bounds, patterns, formats, and the words that
//! combine schemas. An update is held only to what it changes: a value that was there before is not looked at again.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::RwLock;
use regex::Regex;
use serde_json::Value;

use super::field::{Errors, Path};
use super::formats;
use crate::schema::{Constraints, ListType, ObjectShape, Schema, SchemaRef, Shape};
use crate::status::{FieldError, FieldReason};

type Patterns = HashMap<Box<str>, Option<Arc<Regex>>>;

/// Patterns that have been compiled; `None` for one that cannot be, to which nothing is held.
static PATTERNS: LazyLock<RwLock<Patterns>> = LazyLock::new(RwLock::default);
/// When to begin anew: definitions come and go, and nobody counts the patterns that are still in use.
const MOST_PATTERNS: usize = 10_000;

/// Checks an object and, on an update, what is new in it.
pub fn validate(schema: &Schema, object: &Value, old: Option<&Value>, errors: &mut Errors) {
    walk(schema, object, old, &Path::object(), errors);
}

fn walk(schema: &Schema, value: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    if old == Some(value) || (value.is_null() && schema.nullable) {
        return;
    }
    if let Some(wanted) = wrong_type(&schema.shape, value) {
        match format_of(&schema.shape) {
            // A list passes for a text of some format, and what is no text is told by the format.
            Some(_) if value.is_array() && wanted == "string" => {}
            Some(format) if !(value.is_string() || value.is_array() || value.is_null()) => {
                errors.push(type_error(path, format, format_of_value(value)));
            }
            _ => errors.push(type_error(path, wanted, type_of(value))),
        }
        if let Some(constraints) = schema.constraints.as_ref().filter(|_| !value.is_null()) {
            combined(constraints, value, path, errors);
        }
        if let Some(constraints) = &schema.constraints {
            bounds(constraints, value, path, errors);
        }
        if let (Shape::Integer { format }, Value::Number(_)) = (&schema.shape, value) {
            errors.push(out_of_format(format.as_deref(), path));
        }
        return;
    }
    if let Shape::Integer { format: Some(format) } = &schema.shape
        && &**format == "int32"
        && value.as_f64().is_some_and(|number| number < f64::from(i32::MIN) || number > f64::from(i32::MAX))
    {
        errors.push(out_of_format(Some(format), path));
    }
    if let Some(constraints) = &schema.constraints {
        combined(constraints, value, path, errors);
    }
    if let (Shape::String { format: Some(format) }, Value::String(text)) = (&schema.shape, value)
        && !formats::is(format, text)
    {
        errors.push(type_error(path, format, text));
    }
    if let Some(constraints) = &schema.constraints {
        bounds(constraints, value, path, errors);
    }
    match (&schema.shape, value) {
        (Shape::Object(shape), Value::Object(map)) => {
            for (name, field) in map {
                // The metadata of a whole object is checked as metadata.
                if shape.embedded && name == "metadata" {
                    continue;
                }
                if let Some(reference) = shape.properties.get(name.as_str()).or(shape.additional.as_ref()) {
                    let before = old.and_then(|o| o.get(name));
                    with(reference, |schema| walk(schema, field, before, &path.field(name), errors));
                }
            }
            required(shape, value, path, errors);
        }
        (Shape::Array { items, list_type, .. }, Value::Array(list)) => {
            with(items, |schema| {
                for (i, item) in list.iter().enumerate() {
                    walk(schema, item, correlated(list_type, item, old), &path.index(i), errors);
                }
            });
        }
        _ => {}
    }
}

/// Runs on the schema behind a reference without counting it up, where it is inline.
fn with(reference: &SchemaRef, run: impl FnOnce(&Schema)) {
    match reference {
        SchemaRef::Inline(schema) => run(schema),
        SchemaRef::Named(_) => run(&reference.get()),
    }
}

/// The item that stood for this one before, which only lists with keys can tell.
pub fn correlated<'v>(list_type: &ListType, item: &Value, old: Option<&'v Value>) -> Option<&'v Value> {
    let ListType::Map(keys) = list_type else { return None };
    old?.as_array()?.iter().find(|before| keys.iter().all(|key| before.get(&**key) == item.get(&**key)))
}

fn required(shape: &ObjectShape, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    for name in shape.required.iter().filter(|name| value.get(&***name).is_none()) {
        errors.push(FieldError::required(path.field(name), ""));
    }
}

/// A number that is none of its format.
fn out_of_format(format: Option<&str>, path: &Path<'_>) -> FieldError {
    let which = format.map_or_else(|| "(default format)".to_owned(), |format| format!("with format {format}"));
    let detail = format!("Checked value must be of type integer {which} in {path}");
    FieldError { field: "<nil>".into(), reason: FieldReason::Invalid, value: "\"\"".into(), detail }
}

/// The format that a shape asks for, if it is one that is looked at.
fn format_of(shape: &Shape) -> Option<&str> {
    match shape {
        Shape::String { format } => format.as_deref().filter(|format| formats::is_known("string", format)),
        Shape::Integer { format } => format.as_deref().filter(|format| formats::is_known("integer", format)),
        _ => None,
    }
}

/// The format that a value is of by itself.
fn format_of_value(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        _ => "",
    }
}

fn type_error(path: &Path<'_>, wanted: &str, given: &str) -> FieldError {
    let given = Value::from(given).to_string();
    let detail = format!("{path} in body must be of type {wanted}: {given}");
    FieldError { field: path.into(), reason: FieldReason::TypeInvalid, value: given, detail }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_whole(value: &Value) -> bool {
    // Beyond this a number no longer tells one whole from the next.
    const MOST: f64 = 9_007_199_254_740_991.0;
    value.is_i64() || value.as_f64().is_some_and(|n| n.fract() == 0.0 && n.abs() <= MOST)
}

/// The type that the value should be of and is not.
fn wrong_type(shape: &Shape, value: &Value) -> Option<&'static str> {
    let (right, wanted) = match shape {
        Shape::Any => (true, ""),
        Shape::Object(_) => (value.is_object(), "object"),
        Shape::Array { .. } => (value.is_array(), "array"),
        Shape::String { .. } => (value.is_string(), "string"),
        Shape::Integer { .. } => (is_whole(value), "integer"),
        Shape::Number => (value.is_number(), "number"),
        Shape::Boolean => (value.is_boolean(), "boolean"),
        Shape::IntOrString => (value.is_string() || is_whole(value), "integer,string"),
    };
    (!right).then_some(wanted)
}

/// `allOf`, `anyOf`, `oneOf` and `not`. Of branches that all fail, the one that is nearest tells why.
fn combined(constraints: &Constraints, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    let unmet = |detail: &str| {
        let detail = format!("{:?} {detail}", path.to_string());
        FieldError { field: "<nil>".into(), reason: FieldReason::Invalid, value: "\"\"".into(), detail }
    };
    let tries = |branches: &[SchemaRef]| -> Vec<Errors> {
        let attempt = |branch: &SchemaRef| {
            let mut found = Vec::new();
            with(branch, |schema| walk(schema, value, None, path, &mut found));
            found
        };
        branches.iter().map(attempt).collect()
    };
    let nearest = |found: Vec<Errors>| found.into_iter().min_by_key(Vec::len).unwrap_or_default();
    if !constraints.any_of.is_empty() {
        let found = tries(&constraints.any_of);
        if !found.iter().any(Vec::is_empty) {
            errors.push(unmet("must validate at least one schema (anyOf)"));
            errors.extend(nearest(found));
        }
    }
    if !constraints.one_of.is_empty() {
        let found = tries(&constraints.one_of);
        match found.iter().filter(|f| f.is_empty()).count() {
            1 => {}
            0 => {
                errors.push(unmet("must validate one and only one schema (oneOf). Found none valid"));
                errors.extend(nearest(found));
            }
            valid => {
                errors.push(unmet(&format!("must validate one and only one schema (oneOf). Found {valid} valid alternatives")));
            }
        }
    }
    if !constraints.all_of.is_empty() {
        let found = tries(&constraints.all_of);
        let valid = found.iter().filter(|f| f.is_empty()).count();
        if valid < found.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            errors.extend(found.into_iter().flatten());
            errors.push(unmet(&format!("must validate all the schemas (allOf){none}")));
        }
    }
    if let Some(not) = &constraints.not {
        let mut found = Vec::new();
        with(not, |schema| walk(schema, value, None, path, &mut found));
        if found.is_empty() {
            errors.push(unmet("must not validate the schema (not)"));
        }
    }
}

fn bounds(c: &Constraints, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Of a whole number, only what is whole of the factor counts.
    if let Some(by) = c.multiple_of.map(f64::trunc).filter(|by| *by <= 0.0 && value.is_i64()) {
        let why = format!("factor MultipleOf declared for {path} must be positive: {by}");
        errors.push(FieldError::invalid(path, &Value::from(by as i64), why));
    }
    let mut wrong = |value: &Value, detail: String| errors.push(FieldError::invalid(path, value, format!("{path} in body {detail}")));
    match value {
        Value::String(text) => {
            let length = || text.chars().count() as u64;
            if let Some(max) = c.max_length.filter(|max| text.len() as u64 > *max && length() > *max) {
                errors.push(FieldError::too_long(path, usize::try_from(max).unwrap_or(usize::MAX)));
            } else if let Some(min) = c.min_length.filter(|min| length() < *min) {
                wrong(value, format!("should be at least {min} chars long"));
            } else if let Some(pattern) = &c.pattern
                && compiled(pattern).is_some_and(|regex| !regex.is_match(text))
            {
                let detail = format!("{path} in body should match '{pattern}'");
                errors.push(FieldError::invalid(path, value, detail));
            }
        }
        Value::Number(number) => {
            let whole = number.as_i64();
            let number = number.as_f64().unwrap_or_default();
            match (c.multiple_of, whole) {
                (Some(by), Some(number)) if by >= 1.0 && number.checked_rem(by.trunc() as i64) != Some(0) => {
                    wrong(value, format!("should be a multiple of {by}"))
                }
                (Some(by), None) if by > 0.0 && (number / by).fract() != 0.0 => wrong(value, format!("should be a multiple of {by}")),
                _ => {}
            }
            if let Some(max) = c.maximum.filter(|max| number > *max || (c.exclusive_maximum && number >= *max)) {
                wrong(value, format!("should be less than {}{max}", if c.exclusive_maximum { "" } else { "or equal to " }));
            }
            if let Some(min) = c.minimum.filter(|min| number < *min || (c.exclusive_minimum && number <= *min)) {
                wrong(value, format!("should be greater than {}{min}", if c.exclusive_minimum { "" } else { "or equal to " }));
            }
        }
        Value::Array(list) => {
            let size = list.len() as u64;
            if let Some(min) = c.min_items.filter(|min| size < *min) {
                wrong(&size.into(), format!("should have at least {min} items"));
            }
            if let Some(max) = c.max_items.filter(|max| size > *max) {
                errors.push(FieldError::too_many(path, list.len(), usize::try_from(max).unwrap_or(usize::MAX)));
            } else if c.unique_items && duplicates(list).next().is_some() {
                errors.push(FieldError::invalid(path, value, format!("{path} in body shouldn't contain duplicates")));
            }
        }
        Value::Object(map) => {
            let size = map.len() as u64;
            if let Some(min) = c.min_properties.filter(|min| size < *min) {
                wrong(&size.into(), format!("should have at least {min} properties"));
            }
            if let Some(max) = c.max_properties.filter(|max| size > *max) {
                errors.push(FieldError::too_many(path, map.len(), usize::try_from(max).unwrap_or(usize::MAX)));
            }
        }
        _ => {}
    }
    if !c.enumeration.is_empty() && !c.enumeration.contains(value) {
        let shown = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
        let supported: Vec<String> = c.enumeration.iter().map(shown).collect();
        let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path, value, &supported));
    }
}

fn compiled(pattern: &str) -> Option<Arc<Regex>> {
    if let Some(known) = PATTERNS.read().get(pattern) {
        return known.clone();
    }
    // Bounded repetitions of classes of Unicode grow large, and Go has no bound to compare with.
    let regex = regex::RegexBuilder::new(pattern).size_limit(64 << 20).build().ok().map(Arc::new);
    let mut patterns = PATTERNS.write();
    if patterns.len() >= MOST_PATTERNS {
        patterns.clear();
    }
    patterns.insert(pattern.into(), regex.clone());
    regex
}

/// The places of items that one earlier item equals; what is there more often is told once.
fn duplicates(list: &[Value]) -> impl Iterator<Item = usize> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    list.iter().enumerate().filter_map(move |(i, item)| {
        let times = seen.entry(item.to_string()).or_default();
        *times += 1;
        (*times == 2).then_some(i)
    })
}

/// Lists that are sets, or maps by keys, hold nothing twice. What was so before the update stays allowed.
pub fn list_types(schema: &Schema, value: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    if old == Some(value) {
        return;
    }
    match (&schema.shape, value) {
        (Shape::Object(shape), Value::Object(map)) => {
            for (name, field) in map {
                if let Some(SchemaRef::Inline(inner)) = shape.properties.get(name.as_str()).or(shape.additional.as_ref()) {
                    list_types(inner, field, old.and_then(|o| o.get(name)), &path.field(name), errors);
                }
            }
        }
        (Shape::Array { items, list_type, .. }, Value::Array(list)) => {
            match list_type {
                ListType::Set => errors.extend(duplicates(list).map(|i| FieldError::duplicate(path.index(i), &list[i]))),
                ListType::Map(keys) => {
                    for (i, item) in list.iter().enumerate().filter(|(_, item)| !item.is_object() && !item.is_null()) {
                        let why = "must be an object for an array of list-type map";
                        errors.push(FieldError::invalid(path.index(i), item, why));
                    }
                    if !list.iter().all(Value::is_object) {
                        return;
                    }
                    let key =
                        |item: &Value| -> Value { keys.iter().filter_map(|k| Some((k.to_string(), item.get(&**k)?.clone()))).collect() };
                    let named: Vec<Value> = list.iter().map(key).collect();
                    errors.extend(duplicates(&named).map(|i| FieldError::duplicate(path.index(i), &named[i])));
                }
                ListType::Atomic => {}
            }
            if let SchemaRef::Inline(inner) = items {
                for (i, item) in list.iter().enumerate() {
                    list_types(inner, item, correlated(list_type, item, old), &path.index(i), errors);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::custom::compile_schema;

    fn found(schema: Value, value: Value) -> Vec<String> {
        let mut errors = Vec::new();
        validate(&compile_schema(&schema), &value, None, &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_mistake_is_told_with_its_path() {
        let schema = json!({"type": "object", "required": ["b"], "properties": {
            "a": {"type": "array", "maxItems": 1, "items": {"type": "integer", "minimum": 0}},
            "c": {"type": "string", "pattern": "^x", "enum": ["xa", "xb"]}}});
        assert_eq!(
            found(schema, json!({"a": [-1, "s"], "c": "y"})),
            [
                "a: Too many: 2: must have at most 1 items",
                "a[0]: Invalid value: -1: a[0] in body should be greater than or equal to 0",
                "a[1]: Invalid value: \"string\": a[1] in body must be of type integer: \"string\"",
                "c: Invalid value: \"y\": c in body should match '^x'",
                "c: Unsupported value: \"y\": supported values: \"xa\", \"xb\"",
                "b: Required value",
            ]
        );
    }

    #[test]
    fn an_unchanged_value_is_not_held_to_a_new_schema() {
        let schema = compile_schema(&json!({"type": "object", "properties": {
            "a": {"type": "integer", "maximum": 1}, "b": {"type": "integer", "maximum": 1}}}));
        let mut errors = Vec::new();
        validate(&schema, &json!({"a": 5, "b": 6}), Some(&json!({"a": 5, "b": 5})), &mut errors);
        assert_eq!(errors.iter().map(|e| e.field.as_str()).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn sets_and_maps_hold_nothing_twice() {
        let schema = compile_schema(&json!({"type": "object", "properties": {
            "s": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}}));
        let mut errors = Vec::new();
        let object = json!({"s": ["a", "a"], "m": [{"k": "1"}, {"k": "2"}, {"k": "1"}]});
        list_types(&schema, &object, None, &Path::object(), &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["m[2]: Duplicate value: {\"k\":\"1\"}", "s[1]: Duplicate value: \"a\""]);
    }
}
