//! The words of a custom resource's schema: those that custom resources do without, and those of Kubernetes' own, which belong together.
//! Said of a schema whether it is structural or not.

use serde_json::{Value, json};

use super::field::{Errors, Path, entries, has, invalid, items, object, text};
use super::rules;
use crate::status::FieldError;

/// Words of JSON Schema that custom resources do without.
const FORBIDDEN: [&str; 6] = ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// What stands around a schema.
#[derive(Clone, Default)]
pub struct Around {
    root: bool,
    inside_metadata: bool,
    no_default: Option<String>,
}

impl Around {
    /// Nothing: the schema of an object.
    pub fn nothing() -> Self {
        Around { root: true, ..Around::default() }
    }

    fn inner(&self) -> Self {
        Around { root: false, ..self.clone() }
    }
}

/// Checks the words of a schema and of everything in it.
pub fn check(schema: &Value, path: &Path<'_>, around: &Around, errors: &mut Errors) {
    standard(schema, path, around, errors);
    if schema["uniqueItems"] == true {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(path.field("uniqueItems"), why));
    }
    inner(schema, path, around, errors);
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let at = path.field("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(at, &json!(false), "must be true or undefined"));
    }
    lists_and_maps(schema, path, errors);
    keys(schema, path, errors);
    let list = path.field("x-kubernetes-validations");
    for (i, rule) in items(schema, "x-kubernetes-validations").iter().enumerate() {
        rule_words(schema, rule, &list.index(i), errors);
    }
}

fn standard(schema: &Value, path: &Path<'_>, around: &Around, errors: &mut Errors) {
    let kind = text(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(path.field("type"), &kind.into(), &TYPES));
    }
    if let Some(place) = around.no_default.as_deref().filter(|_| has(schema, "default")) {
        errors.push(FieldError::forbidden(path.field("default"), format!("must not be set {place}")));
    }
    for word in FORBIDDEN {
        let given = match word {
            "id" | "patternProperties" | "definitions" => schema.get(word).is_some_and(|v| !crate::schema::is_zero(v) && !v.is_null()),
            _ => has(schema, word),
        };
        if given {
            errors.push(FieldError::forbidden(path.field(word), format!("{word} is not supported")));
        }
    }
    if kind == "null" {
        errors.push(FieldError::forbidden(path.field("type"), "type cannot be set to null, use nullable as an alternative"));
    }
    if schema["items"].is_array() {
        errors.push(FieldError::forbidden(path.field("items"), "items must be a schema object and not an array"));
    }
    if around.inside_metadata && schema["x-kubernetes-embedded-resource"] == true {
        errors.push(FieldError::forbidden(path.field("x-kubernetes-embedded-resource"), "must not be used inside of resource meta"));
    }
}

fn inner(schema: &Value, path: &Path<'_>, around: &Around, errors: &mut Errors) {
    let has_properties = entries(schema, "properties").next().is_some();
    let whole = around.root || schema["x-kubernetes-embedded-resource"] == true;
    if let Some(additional) = schema.get("additionalProperties").filter(|v| !v.is_null()) {
        let at = path.field("additionalProperties");
        if has_properties && *additional != Value::Bool(true) {
            errors.push(FieldError::forbidden(at, "additionalProperties and properties are mutual exclusive"));
        }
        if additional.is_object() {
            let mut around = around.inner();
            if around.inside_metadata {
                around.no_default = Some("inside additionalProperties applying to object metadata".into());
            }
            check(additional, &at, &around, errors);
        }
    }
    let properties = path.field("properties");
    for (name, property) in entries(schema, "properties") {
        let mut inner = around.inner();
        if whole && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            inner.inside_metadata = true;
            if around.root {
                inner.no_default = Some(format!("in top-level {name}"));
            }
        }
        check(property, &properties.key(name), &inner, errors);
    }
    if let Some(branch) = object(schema, "not") {
        check(branch, &path.field("not"), &around.inner(), errors);
    }
    for word in ["allOf", "oneOf", "anyOf"] {
        let list = path.field(word);
        for (i, branch) in items(schema, word).iter().enumerate() {
            check(branch, &list.index(i), &around.inner(), errors);
        }
    }
    if let Some(item) = object(schema, "items") {
        check(item, &path.field("items"), &around.inner(), errors);
    }
}

fn lists_and_maps(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(schema, "type");
    let typed = |wanted: &str, word: &str| {
        let (at, why) = (path.field("type"), format!("must be {wanted} if {word} is specified"));
        if kind.is_empty() { FieldError::required(at, why) } else { invalid(&at, kind, why) }
    };
    let (map, list) = ("x-kubernetes-map-type", "x-kubernetes-list-type");
    if has(schema, map) {
        if kind != "object" {
            errors.push(typed("object", map));
        }
        if !matches!(text(schema, map), "atomic" | "granular") {
            errors.push(FieldError::not_supported(path.field(map), &schema[map], &["atomic", "granular"]));
        }
    }
    let (list_type, item) = (text(schema, list), &schema["items"]);
    if !has(schema, list) {
        return;
    }
    let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let given = item.get(list).unwrap_or(&Value::Null);
    if kind != "array" {
        errors.push(typed("array", list));
    } else if list_type == "set" && text(item, "type") == "array" && has(item, list) && text(item, list) != "atomic" {
        errors.push(FieldError::invalid(path.field("items").field(list), given, why));
    } else if list_type == "set" && text(item, "type") == "object" && text(item, map) != "atomic" {
        errors.push(FieldError::invalid(path.field("items").field(map), given, why));
    }
    if !matches!(list_type, "atomic" | "set" | "map") {
        errors.push(FieldError::not_supported(path.field(list), &list_type.into(), &["atomic", "set", "map"]));
    }
}

/// What the items of a list are told apart by.
fn keys(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (list, words) = (text(schema, "x-kubernetes-list-type"), path.field("x-kubernetes-list-map-keys"));
    let keys = items(schema, "x-kubernetes-list-map-keys");
    if !keys.is_empty() && list != "map" {
        let (at, why) = (path.field("x-kubernetes-list-type"), "must be map if x-kubernetes-list-map-keys is non-empty");
        errors.push(if has(schema, "x-kubernetes-list-type") { invalid(&at, list, why) } else { FieldError::required(at, why) });
    }
    let (item, at) = (object(schema, "items"), path.field("items"));
    let properties_at = at.field("properties");
    if list == "map" {
        if keys.is_empty() {
            errors.push(FieldError::required(words, "must not be empty if x-kubernetes-list-type is map"));
        }
        if !has(schema, "items") {
            errors.push(FieldError::required(at, "must have a schema if x-kubernetes-list-type is map"));
        }
        let kind = item.map(|item| text(item, "type"));
        if let Some(kind) = kind.filter(|kind| *kind != "object") {
            errors.push(invalid(&at.field("type"), kind, "must be object if parent array's x-kubernetes-list-type is map"));
        }
        let shown = Value::from(keys.to_vec());
        for (i, key) in keys.iter().enumerate().filter(|_| kind == Some("object")) {
            let name = key.as_str().unwrap_or_default();
            match item.and_then(|item| item["properties"].get(name)) {
                Some(property) if matches!(text(property, "type"), "array" | "object") => {
                    let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    errors.push(invalid(&properties_at.key(name).field("type"), kind.unwrap_or_default(), why));
                }
                Some(_) => {}
                None => errors.push(FieldError::invalid(words, &shown, "entries must all be names of item properties")),
            }
            if keys[..i].contains(key) {
                errors.push(FieldError::invalid(words, &shown, "must not contain duplicate entries"));
            }
        }
    }
    let Some(item) = item.filter(|_| matches!(list, "set" | "map")) else { return };
    if item["nullable"] == true {
        errors.push(FieldError::forbidden(at.field("nullable"), format!("cannot be nullable when x-kubernetes-list-type is {list}")));
    }
    for name in keys.iter().filter_map(Value::as_str).filter(|_| list == "map") {
        let Some(property) = item["properties"].get(name) else { continue };
        let at = properties_at.key(name);
        if !items(item, "required").iter().any(|r| r == name) && !has(property, "default") {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            errors.push(FieldError::required(at.field("default"), why));
        }
        if property["nullable"] == true {
            errors.push(FieldError::forbidden(
                at.field("nullable"),
                "this property is in x-kubernetes-list-map-keys, so it cannot be nullable",
            ));
        }
    }
}

/// What of a rule can be told without reading it.
fn rule_words(schema: &Value, rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (source, message) = (text(rule, "rule").trim(), text(rule, "message"));
    if source.is_empty() {
        errors.push(FieldError::required(path.field("rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(invalid(&path.field("message"), message, "must be non-empty if specified"));
    } else if message.trim().contains('\n') {
        errors.push(invalid(&path.field("message"), message, "must not contain line breaks"));
    } else if source.contains('\n') && message.is_empty() {
        errors.push(FieldError::required(path.field("message"), "message must be specified if rule contains line breaks"));
    }
    let expression = text(rule, "messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        errors.push(FieldError::required(path.field("messageExpression"), "messageExpression must be non-empty if specified"));
    }
    const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let reason = text(rule, "reason");
    if has(rule, "reason") && !REASONS.contains(&reason) {
        errors.push(FieldError::not_supported(path.field("reason"), &reason.into(), &REASONS));
    }
    let (field_path, at) = (text(rule, "fieldPath"), path.field("fieldPath"));
    if field_path.is_empty() {
        return;
    }
    if field_path.trim().is_empty() {
        errors.push(invalid(&at, field_path, "must be non-empty if specified"));
    }
    if field_path.contains('\n') {
        errors.push(invalid(&at, field_path, "must not contain line breaks"));
    }
    if !field_path.starts_with(['.', '[']) || !rules::names_a_field(schema, field_path) {
        errors.push(invalid(&at, field_path, "must be a valid path"));
    }
}
