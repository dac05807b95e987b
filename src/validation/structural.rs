//! The schema of a custom resource as it is written: whether it is structural, what it must not use, whether its defaults are
//! right, and whether its rules compile and are cheap enough.

use serde_json::{Value, json};
use usher_cel::{CompileError, STATIC_ESTIMATED_COST_LIMIT, STATIC_ESTIMATED_CRD_COST_LIMIT, Type};

use super::field::{Errors, Path, entries, has, invalid, items, object, text};
use super::rules;
use crate::status::{FieldError, FieldReason};

/// Words of JSON Schema that custom resources do without, and what is said about them.
const FORBIDDEN: [(&str, &str); 7] = [
    ("$ref", "$ref is not supported"),
    ("definitions", "definitions is not supported"),
    ("dependencies", "dependencies is not supported"),
    ("patternProperties", "patternProperties is not supported"),
    ("additionalItems", "additionalItems is not supported"),
    ("id", "id is not supported"),
    ("$schema", "$schema is not supported"),
];
/// What a branch of `anyOf` and its like must leave to the schema around it.
const OUTER: [&str; 10] = [
    "additionalProperties",
    "type",
    "title",
    "description",
    "default",
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
];
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// How many of the most expensive rules are named when all together cost too much.
const MOST_EXPENSIVE: usize = 4;
const CHEAPER: &str =
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";

/// Where a schema stands in the whole.
#[derive(Clone, Copy)]
enum Place {
    Root,
    Field,
    Item,
}

struct Costs {
    total: u64,
    rules: Vec<(u64, String)>,
}

/// Checks the schema of a version.
pub fn validate(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let before = errors.len();
    structure(schema, path, Place::Root, errors);
    if errors.len() > before {
        return;
    }
    defaults(schema, path, errors);
    let mut costs = Costs { total: 0, rules: Vec::new() };
    expressions(schema, path, true, Some(1), None, &mut costs, errors);
    if costs.total > STATIC_ESTIMATED_CRD_COST_LIMIT {
        costs.rules.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        for (_, rule) in costs.rules.iter().take(MOST_EXPENSIVE) {
            let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(FieldError::forbidden(rule.as_str(), why));
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path, too_expensive(name, costs.total, STATIC_ESTIMATED_CRD_COST_LIMIT)));
    }
}

fn structure(schema: &Value, path: &Path<'_>, place: Place, errors: &mut Errors) {
    for (word, why) in FORBIDDEN {
        if has(schema, word) {
            errors.push(FieldError::forbidden(path.field(word), why));
        }
    }
    if schema["uniqueItems"] == true {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(path.field("uniqueItems"), why));
    }
    let kind = text(schema, "type");
    let preserves = schema["x-kubernetes-preserve-unknown-fields"] == true;
    let int_or_string = schema["x-kubernetes-int-or-string"] == true;
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let at = path.field("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(at, &json!(false), "must be true or undefined"));
    }
    if kind.is_empty() && !has(schema, "$ref") {
        if !int_or_string && (!preserves || matches!(place, Place::Root)) {
            let where_ = match place {
                Place::Root => "at the root",
                Place::Field => "for specified object fields",
                Place::Item => "for specified array items",
            };
            errors.push(FieldError::required(path.field("type"), format!("must not be empty {where_}")));
        }
    } else if kind.is_empty() {
    } else if !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(path.field("type"), &kind.into(), &TYPES));
    } else if matches!(place, Place::Root) && kind != "object" {
        errors.push(invalid(&path.field("type"), kind, "must be object at the root"));
    }
    if preserves && kind != "object" && !kind.is_empty() {
        errors.push(invalid(&path.field("type"), kind, "must be object if x-kubernetes-preserve-unknown-fields is true"));
    }
    let embedded = schema["x-kubernetes-embedded-resource"] == true;
    if embedded && !preserves && entries(schema, "properties").next().is_none() {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(path.field("properties"), why));
    }
    if embedded || matches!(place, Place::Root) {
        let properties = path.field("properties");
        for (name, wanted) in [("apiVersion", "string"), ("kind", "string"), ("metadata", "object")] {
            let property = &schema["properties"][name];
            let given = text(property, "type");
            if !given.is_empty() && given != wanted {
                errors.push(invalid(&properties.key(name).field("type"), given, format!("must be {wanted}")));
            }
            if matches!(place, Place::Root) && has(property, "default") {
                errors.push(FieldError::forbidden(properties.key(name).field("default"), format!("must not be set in top-level {name}")));
            }
        }
    }
    if embedded && kind != "object" {
        errors.push(invalid(&path.field("type"), kind, "must be object if x-kubernetes-embedded-resource is true"));
    }
    let pattern = text(schema, "pattern");
    if let Err(error @ regex::Error::Syntax(_)) = regex::Regex::new(pattern) {
        let why = format!("must be a valid regular expression, but isn't: {}", go_regex_error(pattern, &error.to_string()));
        errors.push(invalid(&path.field("pattern"), pattern, why));
    }
    lists(schema, path, errors);
    inner(schema, path, place, errors);
    for word in ["allOf", "anyOf", "oneOf"] {
        let path = path.field(word);
        for (i, branch) in items(schema, word).iter().enumerate() {
            // `anyOf: [{type: integer}, {type: string}]` is how an int-or-string was written once, in that order.
            let branches = items(schema, word);
            let pair = branches.len() == 2 && branches[0] == json!({"type": "integer"}) && branches[1] == json!({"type": "string"});
            nested(branch, &path.index(i), int_or_string && (word != "anyOf" || pair), errors);
        }
    }
    if let Some(not) = object(schema, "not") {
        nested(not, &path.field("not"), false, errors);
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

/// Defaults are values of their own schemas; looked at only once the schema is known to be structural.
fn defaults(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(default) = schema.get("default") {
        let mut found = Vec::new();
        super::schema::validate(&crate::schema::custom::compile_schema(schema), default, None, &mut found);
        let at = path.field("default").to_string();
        for mut error in found {
            // The walk began at the default, and does not know where that stands.
            let dot = if error.field.is_empty() || error.field.starts_with('[') { "" } else { "." };
            let place = format!("{at}{dot}{}", error.field);
            error.field = place;
            errors.push(error);
        }
        let mut pruned = default.clone();
        crate::schema::prune::prune(&mut pruned, &crate::schema::custom::compile_schema(schema));
        if pruned != *default {
            errors.push(FieldError::invalid(path.field("default"), default, "must not have unknown fields"));
        }
    }
    let properties = path.field("properties");
    for (name, property) in entries(schema, "properties") {
        defaults(property, &properties.key(name), errors);
    }
    for word in ["additionalProperties", "items"] {
        if let Some(inner) = object(schema, word) {
            defaults(inner, &path.field(word), errors);
        }
    }
}

fn lists(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(schema, "type");
    let list_type = text(schema, "x-kubernetes-list-type");
    if !list_type.is_empty() {
        if kind != "array" {
            let why = "must be array if x-kubernetes-list-type is specified";
            errors.push(invalid(&path.field("type"), kind, why));
        }
        if !["atomic", "map", "set"].contains(&list_type) {
            let supported = ["atomic", "set", "map"];
            errors.push(FieldError::not_supported(path.field("x-kubernetes-list-type"), &list_type.into(), &supported));
        }
    }
    let keys = items(schema, "x-kubernetes-list-map-keys");
    if list_type == "map" {
        if keys.is_empty() {
            let why = "must not be empty if x-kubernetes-list-type is map";
            errors.push(FieldError::required(path.field("x-kubernetes-list-map-keys"), why));
        }
        if object(schema, "items").is_none() {
            errors.push(FieldError::required(path.field("items"), "must have a schema if x-kubernetes-list-type is map"));
        } else if text(&schema["items"], "type") != "object" {
            let why = "must be object if parent array's x-kubernetes-list-type is map";
            errors.push(invalid(&path.field("items").field("type"), text(&schema["items"], "type"), why));
        }
        let duplicate = keys.iter().enumerate().any(|(i, key)| keys[..i].contains(key));
        let properties = &schema["items"]["properties"];
        let required = items(&schema["items"], "required");
        let items_path = path.field("items");
        let properties_path = items_path.field("properties");
        let shown = Value::from(keys.to_vec());
        for key in keys.iter().filter_map(Value::as_str).filter(|_| properties.is_object()) {
            let Some(property) = properties.get(key) else {
                let why = "entries must all be names of item properties";
                errors.push(FieldError::invalid(path.field("x-kubernetes-list-map-keys"), &shown, why));
                continue;
            };
            let kind = text(property, "type");
            if matches!(kind, "array" | "object") {
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(invalid(&properties_path.key(key).field("type"), kind, why));
            }
            if !required.iter().any(|r| r == key) && !has(property, "default") {
                let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                errors.push(FieldError::required(properties_path.key(key).field("default"), why));
            }
        }
        if duplicate {
            errors.push(FieldError::invalid(path.field("x-kubernetes-list-map-keys"), &shown, "must not contain duplicate entries"));
        }
    } else if !keys.is_empty() {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        let at = path.field("x-kubernetes-list-type");
        errors.push(if list_type.is_empty() { FieldError::required(at, why) } else { invalid(&at, list_type, why) });
    }
    let item = &schema["items"];
    if list_type == "set" && text(item, "type") == "object" && text(item, "x-kubernetes-map-type") != "atomic" {
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let given = item.get("x-kubernetes-map-type").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(path.field("items").field("x-kubernetes-map-type"), given, why));
    }
    if list_type == "set" && text(item, "type") == "array" && text(item, "x-kubernetes-list-type") != "atomic" {
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let given = item.get("x-kubernetes-list-type").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(path.field("items").field("x-kubernetes-list-type"), given, why));
    }
    let map_type = text(schema, "x-kubernetes-map-type");
    if !map_type.is_empty() {
        if kind != "object" {
            errors.push(invalid(&path.field("type"), kind, "must be object if x-kubernetes-map-type is specified"));
        }
        if !["atomic", "granular"].contains(&map_type) {
            errors.push(FieldError::not_supported(path.field("x-kubernetes-map-type"), &map_type.into(), &["atomic", "granular"]));
        }
    }
}

fn inner(schema: &Value, path: &Path<'_>, place: Place, errors: &mut Errors) {
    let has_properties = entries(schema, "properties").next().is_some();
    match schema.get("additionalProperties") {
        None | Some(Value::Null | Value::Bool(_)) => {}
        Some(_) if has_properties => {
            let why = "additionalProperties and properties are mutual exclusive";
            errors.push(FieldError::forbidden(path.field("additionalProperties"), why));
        }
        Some(_) if matches!(place, Place::Root) => {
            errors.push(FieldError::forbidden(path.field("additionalProperties"), "must not be used at the root"));
        }
        Some(Value::Object(_)) => {
            structure(&schema["additionalProperties"], &path.field("additionalProperties"), Place::Field, errors);
        }
        Some(_) => {}
    }
    let properties = path.field("properties");
    for (name, property) in entries(schema, "properties") {
        let path = properties.key(name);
        if matches!(place, Place::Root) && name == "metadata" {
            let known = |name: &String| matches!(name.as_str(), "name" | "generateName");
            if entries(property, "properties").any(|(name, _)| !known(name)) {
                let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
                errors.push(FieldError::forbidden(path, why));
            }
        }
        structure(property, &path, Place::Field, errors);
    }
    match schema.get("items") {
        Some(Value::Object(_)) => structure(&schema["items"], &path.field("items"), Place::Item, errors),
        Some(Value::Array(_)) => {
            errors.push(FieldError::forbidden(path.field("items"), "items must be a schema object and not an array"));
        }
        _ if text(schema, "type") == "array" => errors.push(FieldError::required(path.field("items"), "must be specified")),
        _ => {}
    }
}

fn nested(branch: &Value, path: &Path<'_>, int_or_string: bool, errors: &mut Errors) {
    for word in OUTER {
        if has(branch, word) && !(int_or_string && word == "type") {
            let why = match word {
                "additionalProperties" | "default" | "x-kubernetes-list-type" => "must be undefined to be structural",
                "nullable" | "x-kubernetes-preserve-unknown-fields" | "x-kubernetes-embedded-resource" | "x-kubernetes-int-or-string" => {
                    "must be false to be structural"
                }
                _ => "must be empty to be structural",
            };
            errors.push(FieldError::forbidden(path.field(word), why));
        }
    }
    let properties = path.field("properties");
    for (name, property) in entries(branch, "properties") {
        nested(property, &properties.key(name), false, errors);
    }
    if let Some(inner) = object(branch, "items") {
        nested(inner, &path.field("items"), false, errors);
    }
    for word in ["allOf", "anyOf", "oneOf"] {
        let path = path.field(word);
        for (i, inner) in items(branch, word).iter().enumerate() {
            nested(inner, &path.index(i), false, errors);
        }
    }
}

/// Compiles the rules of a schema and of those inside it. `times` is how often the schema can occur in one object, if it is
/// bounded; `uncorrelatable` the place above which old and new values cannot be brought together.
fn expressions(
    schema: &Value,
    path: &Path<'_>,
    root: bool,
    times: Option<u64>,
    uncorrelatable: Option<&str>,
    costs: &mut Costs,
    errors: &mut Errors,
) {
    let whole = root || schema["x-kubernetes-embedded-resource"] == true;
    let properties = path.field("properties");
    for (name, property) in entries(schema, "properties").filter(|(name, _)| !(whole && *name == "metadata")) {
        expressions(property, &properties.key(name), false, times, uncorrelatable, costs, errors);
    }
    let bounded = |word: &str| times.zip(schema.get(word).and_then(Value::as_u64)).map(|(times, max)| times.saturating_mul(max));
    if let Some(inner) = object(schema, "additionalProperties") {
        expressions(inner, &path.field("additionalProperties"), false, bounded("maxProperties"), uncorrelatable, costs, errors);
    }
    if let Some(inner) = object(schema, "items") {
        let own = path.to_string();
        let uncorrelatable = match text(schema, "x-kubernetes-list-type") {
            "map" => uncorrelatable,
            _ => uncorrelatable.or(Some(&own)),
        };
        expressions(inner, &path.field("items"), false, bounded("maxItems"), uncorrelatable, costs, errors);
    }
    // The rules of what is inside are looked at first.
    let list = path.field("x-kubernetes-validations");
    for (i, rule) in items(schema, "x-kubernetes-validations").iter().enumerate() {
        expression(schema, whole, rule, &list.index(i), times, uncorrelatable, costs, errors);
    }
}

#[allow(clippy::too_many_arguments)] // One rule has this much around it; a struct of it would be made and taken apart here.
fn expression(
    schema: &Value,
    whole: bool,
    rule: &Value,
    path: &Path<'_>,
    times: Option<u64>,
    uncorrelatable: Option<&str>,
    costs: &mut Costs,
    errors: &mut Errors,
) {
    let source = text(rule, "rule");
    let at = path.field("rule");
    if source.trim().is_empty() {
        errors.push(FieldError::required(at, "rule is not specified"));
        return;
    }
    let message = text(rule, "message");
    if !message.is_empty() && message.trim().is_empty() {
        errors.push(invalid(&path.field("message"), message, "must be non-empty if specified"));
    } else if message.trim().contains('\n') {
        errors.push(invalid(&path.field("message"), message, "must not contain line breaks"));
    } else if message.is_empty() && source.contains('\n') && !has(rule, "messageExpression") {
        errors.push(FieldError::required(path.field("message"), "message must be specified if rule contains line breaks"));
    }
    const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    let reason = text(rule, "reason");
    if !reason.is_empty() && !REASONS.contains(&reason) {
        errors.push(FieldError::not_supported(path.field("reason"), &reason.into(), &REASONS));
    }
    let field_path = text(rule, "fieldPath");
    if !field_path.is_empty() {
        let at = path.field("fieldPath");
        if field_path.trim().is_empty() {
            errors.push(invalid(&at, field_path, "must be non-empty if specified"));
        }
        if field_path.contains('\n') {
            errors.push(invalid(&at, field_path, "must not contain line breaks"));
        }
        if !field_path.starts_with(['.', '[']) || !names_a_field(schema, field_path) {
            errors.push(invalid(&at, field_path, "must be a valid path"));
        }
    }
    if !text(rule, "messageExpression").is_empty() && text(rule, "messageExpression").trim().is_empty() {
        errors.push(FieldError::required(path.field("messageExpression"), "messageExpression must be non-empty if specified"));
    }
    let Some((environment, cel_schema)) = rules::environment(schema, whole, rule["optionalOldSelf"] == true) else {
        return;
    };
    let compiled = environment.compile(source);
    let program = match &compiled {
        Ok(program) if *program.output_type() == Type::Bool => program,
        Ok(_) => return errors.push(about(&at, rule, "cel expression must evaluate to a bool")),
        Err(CompileError::Issues(issues)) => return errors.push(about(&at, rule, &format!("compilation failed: {issues}"))),
        Err(error) => return errors.push(about(&at, rule, &format!("program instantiation failed: {error}"))),
    };
    if rule["optionalOldSelf"] == true && !program.variables().any(|v| v == "oldSelf") {
        let why = "may not be set if oldSelf is not used in rule";
        errors.push(FieldError::invalid(path.field("optionalOldSelf"), &json!(true), why));
    }
    if let Some(within) = uncorrelatable.filter(|_| program.variables().any(|v| v == "oldSelf")) {
        let why = format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {within}");
        errors.push(invalid(&at, source, why));
    }
    let often = times.unwrap_or_else(|| cel_schema.max_cardinality());
    let cost = program.cost_estimate().max.saturating_mul(often);
    if cost > STATIC_ESTIMATED_COST_LIMIT {
        errors.push(FieldError::forbidden(at, too_expensive("estimated rule cost", cost, STATIC_ESTIMATED_COST_LIMIT)));
    }
    costs.total = costs.total.saturating_add(cost);
    costs.rules.push((cost, at.to_string()));
    let source = text(rule, "messageExpression");
    if source.trim().is_empty() {
        return;
    }
    let at = path.field("messageExpression");
    match environment.compile(source) {
        Ok(program) if *program.output_type() == Type::String => {
            let cost = program.cost_estimate().max.saturating_mul(often);
            if cost > STATIC_ESTIMATED_COST_LIMIT {
                let why = too_expensive("estimated messageExpression cost", cost, STATIC_ESTIMATED_COST_LIMIT);
                errors.push(FieldError::forbidden(at, why));
            }
            costs.total = costs.total.saturating_add(cost);
            costs.rules.push((cost, at.to_string()));
        }
        Ok(_) => errors.push(about(&at, rule, "messageExpression must evaluate to a string")),
        Err(error) => errors.push(about(&at, rule, &format!("messageExpression compilation failed: {error}"))),
    }
}

/// Whether a `fieldPath` names a field that the schema has.
fn names_a_field(schema: &Value, path: &str) -> bool {
    let mut at = schema;
    for name in path.replace("['", ".").replace("']", "").trim_start_matches('.').split('.') {
        at = match at["properties"].get(name).or_else(|| object(at, "additionalProperties")) {
            Some(inner) => inner,
            None => return false,
        };
    }
    true
}

/// A mistake about a rule shows the rule as the server holds it.
fn about(path: &Path<'_>, rule: &Value, detail: &str) -> FieldError {
    let of = |name: &str| Value::from(text(rule, name)).to_string();
    let optional = |name: &str| rule.get(name).unwrap_or(&json!(null)).to_string();
    let value = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        of("rule"),
        of("message"),
        of("messageExpression"),
        optional("reason"),
        of("fieldPath"),
        optional("optionalOldSelf")
    );
    let value = value.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e");
    FieldError { field: path.into(), reason: FieldReason::Invalid, value, detail: detail.to_owned() }
}

fn too_expensive(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        f if f > 100.0 => "more than 100x".to_owned(),
        f if f < 1.5 => format!("{f:.6}x"),
        f => format!("{f:.1}x"),
    };
    format!("{what} exceeds budget by factor of {factor} {CHEAPER}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(schema: Value) -> Vec<String> {
        let mut errors = Vec::new();
        validate(&schema, &Path::root("s"), &mut errors);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_field_has_a_type() {
        let schema = json!({"type": "object", "properties": {"a": {}, "b": {"type": "array", "items": {}}, "c": {"x-kubernetes-int-or-string": true}}});
        assert_eq!(
            found(schema),
            [
                "s.properties[a].type: Required value: must not be empty for specified object fields",
                "s.properties[b].items.type: Required value: must not be empty for specified array items",
            ]
        );
    }

    #[test]
    fn a_default_of_another_type_is_told_where_it_stands() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}});
        assert_eq!(found(schema), ["s.properties[a].default: Invalid value: \"string\":  in body must be of type integer: \"string\""]);
    }

    #[test]
    fn a_rule_that_does_not_compile_is_shown_as_the_server_holds_it() {
        let rule = json!([{"rule": "self.b > 1"}]);
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "x-kubernetes-validations": rule});
        let told = found(schema);
        assert!(
            told[0].starts_with("s.x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self.b \\u003e 1\",\"Message\":\"\","),
            "{told:?}"
        );
        assert!(told[0].ends_with("compilation failed: ERROR: <input>:1:5: undefined field 'b'\n | self.b > 1\n | ....^"), "{told:?}");
    }
}
