//! Whether the schema of a custom resource is structural: every part of it has a type, and what the branches of `anyOf` and its like speak
//! of is defined outside of them. The mistakes are told in the order of their texts, as a real server tells them.

use serde_json::{Value, json};

use super::field::{Errors, Path, entries, has, invalid, items, object, text};
use crate::status::FieldError;

/// What a branch of `anyOf` and its like must leave to the schema around it, and what it must be there.
const OUTER: [(&str, &str); 13] = [
    ("type", "empty"),
    ("additionalProperties", "undefined"),
    ("default", "undefined"),
    ("title", "empty"),
    ("description", "empty"),
    ("nullable", "false"),
    ("x-kubernetes-preserve-unknown-fields", "false"),
    ("x-kubernetes-embedded-resource", "false"),
    ("x-kubernetes-int-or-string", "false"),
    ("x-kubernetes-list-map-keys", "empty"),
    ("x-kubernetes-list-type", "undefined"),
    ("x-kubernetes-map-type", "undefined"),
    ("x-kubernetes-validations", "empty"),
];

/// Where a schema stands in the whole.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Field,
    Item,
}

/// Checks a schema and everything in it.
pub fn check(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut found = Vec::new();
    invariants(schema, Level::Root, path, &mut found);
    complete(schema, Some(schema), path, path, &mut found);
    found.sort_by_key(ToString::to_string);
    errors.append(&mut found);
}

fn invariants(schema: &Value, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(schema, "type");
    let flag = |word: &str| schema[word] == true;
    let embedded = flag("x-kubernetes-embedded-resource");
    let (preserves, int_or_string) = (flag("x-kubernetes-preserve-unknown-fields"), flag("x-kubernetes-int-or-string"));
    match object(schema, "items") {
        Some(item) => invariants(item, Level::Item, &path.field("items"), errors),
        None if kind == "array" => errors.push(FieldError::required(path.field("items"), "must be specified")),
        None => {}
    }
    let properties = path.field("properties");
    for (name, property) in entries(schema, "properties") {
        invariants(property, Level::Field, &properties.key(name), errors);
    }
    if has(schema, "additionalProperties") {
        let at = path.field("additionalProperties");
        if level == Level::Root {
            errors.push(FieldError::forbidden(at, "must not be used at the root"));
        }
        if let Some(inner) = object(schema, "additionalProperties") {
            invariants(inner, Level::Field, &at, errors);
        }
        if embedded {
            errors.push(FieldError::forbidden(at, "must not be used if x-kubernetes-embedded-resource is set"));
        }
    }
    for word in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if int_or_string && flag(word) {
            let why = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(path.field(word), &json!(true), why));
        }
    }
    let first = items(schema, "allOf").first().is_some_and(is_int_or_string);
    values(schema, is_int_or_string(schema), first, path, errors);
    if embedded && kind != "object" {
        let (at, why) = (path.field("type"), "must be object if x-kubernetes-embedded-resource is true");
        errors.push(if kind.is_empty() { FieldError::required(at, why) } else { invalid(&at, kind, why) });
    } else if kind.is_empty() && !int_or_string && !preserves {
        let place = match level {
            Level::Root => "at the root",
            Level::Field => "for specified object fields",
            Level::Item => "for specified array items",
        };
        errors.push(FieldError::required(path.field("type"), format!("must not be empty {place}")));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(invalid(&path.field("type"), kind, "must be object at the root"));
    }
    metadata(schema, level, level == Level::Root || embedded, path, errors);
    if embedded && !preserves && entries(schema, "properties").next().is_none() {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(path.field("properties"), why));
    }
}

/// What every object has is known: a schema may say of it only what names it takes.
fn metadata(schema: &Value, level: Level, whole: bool, path: &Path<'_>, errors: &mut Errors) {
    let properties = path.field("properties");
    for (name, wanted) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        if let Some(property) = schema["properties"].get(name).filter(|property| whole && text(property, "type") != wanted) {
            errors.push(invalid(&properties.key(name).field("type"), text(property, "type"), format!("must be {wanted}")));
        }
    }
    let Some(given) = schema["properties"].get("metadata").filter(|_| level == Level::Root) else { return };
    let names = |name: &str| matches!(name, "name" | "generateName");
    let free = |(word, value): (&String, &Value)| match word.as_str() {
        "type" | "default" => true,
        "properties" => value.as_object().is_none_or(|fields| fields.keys().all(|name| names(name))),
        _ => crate::schema::is_zero(value) || value.is_null(),
    };
    if !given.as_object().is_none_or(|words| words.iter().all(free)) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.push(FieldError::forbidden(properties.key("metadata"), why));
    }
}

/// `anyOf: [{type: integer}, {type: string}]` is how an int-or-string was written once, in that order.
fn is_int_or_string(schema: &Value) -> bool {
    matches!(items(schema, "anyOf"), [one, other] if *one == json!({"type": "integer"}) && *other == json!({"type": "string"}))
}

fn values(schema: &Value, skip_any: bool, skip_first: bool, path: &Path<'_>, errors: &mut Errors) {
    for word in ["anyOf", "allOf", "oneOf"].into_iter().filter(|word| !(skip_any && *word == "anyOf")) {
        let list = path.field(word);
        for (i, branch) in items(schema, word).iter().enumerate() {
            nested(branch, word == "allOf" && skip_first && i == 0, &list.index(i), errors);
        }
    }
    if let Some(branch) = object(schema, "not") {
        nested(branch, false, &path.field("not"), errors);
    }
    let pattern = text(schema, "pattern");
    if let Err(error @ regex::Error::Syntax(_)) = regex::Regex::new(pattern) {
        let why = format!("must be a valid regular expression, but isn't: {}", go_regex_error(pattern, &error.to_string()));
        errors.push(invalid(&path.field("pattern"), pattern, why));
    }
}

fn nested(branch: &Value, skip_any: bool, path: &Path<'_>, errors: &mut Errors) {
    values(branch, skip_any, false, path, errors);
    if let Some(inner) = object(branch, "items") {
        nested(inner, false, &path.field("items"), errors);
    }
    let properties = path.field("properties");
    for (name, property) in entries(branch, "properties") {
        nested(property, false, &properties.key(name), errors);
    }
    let given = |word: &str, what: &str| match (word, what) {
        (_, "undefined") => has(branch, word),
        _ => branch.get(word).is_some_and(|value| !value.is_null() && !crate::schema::is_zero(value)),
    };
    for (word, what) in OUTER.into_iter().filter(|(word, what)| given(word, what)) {
        errors.push(FieldError::forbidden(path.field(word), format!("must be {what} to be structural")));
    }
    if branch["properties"].get("metadata").is_some() {
        errors.push(FieldError::forbidden(properties.key("metadata"), "must not be specified in a nested context"));
    }
}

/// What the branches speak of is defined by the schema around them.
fn complete(values: &Value, schema: Option<&Value>, at: &Path<'_>, path: &Path<'_>, errors: &mut Errors) {
    if let Some(branch) = object(values, "not") {
        complete_branch(branch, schema, at, &path.field("not"), errors);
    }
    for word in ["allOf", "anyOf", "oneOf"] {
        let list = path.field(word);
        for (i, branch) in items(values, word).iter().enumerate() {
            complete_branch(branch, schema, at, &list.index(i), errors);
        }
    }
}

fn complete_branch(branch: &Value, schema: Option<&Value>, at: &Path<'_>, path: &Path<'_>, errors: &mut Errors) {
    let Some(schema) = schema else {
        errors.push(FieldError::required(at, format!("because it is defined in {path}")));
        return;
    };
    complete(branch, Some(schema), at, path, errors);
    if let Some(inner) = object(branch, "items") {
        complete_branch(inner, object(schema, "items"), &at.field("items"), &path.field("items"), errors);
    }
    let (outside, inside) = (at.field("properties"), path.field("properties"));
    for (name, property) in entries(branch, "properties") {
        complete_branch(property, schema["properties"].get(name), &outside.key(name), &inside.key(name), errors);
    }
}

/// What Go says of an expression that cannot be parsed, for the usual mistakes.
fn go_regex_error(pattern: &str, why: &str) -> String {
    let says = |text: &str| why.contains(text);
    if says("unclosed group") {
        return format!("error parsing regexp: missing closing ): `{pattern}`");
    }
    if says("unopened group") {
        return format!("error parsing regexp: unexpected ): `{pattern}`");
    }
    if says("unclosed character class") {
        let at = pattern.find('[').unwrap_or(0);
        return format!("error parsing regexp: missing closing ]: `{}`", &pattern[at..]);
    }
    if says("repetition operator missing expression") {
        let at = pattern.find(['*', '+', '?']).unwrap_or(0);
        return format!("error parsing regexp: missing argument to repetition operator: `{}`", &pattern[at..=at]);
    }
    format!("error parsing regexp: {}", why.replace('\n', " "))
}
