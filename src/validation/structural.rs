//! The schema of a custom resource as it is written: whether it is structural, what it must not use, whether its defaults are
//! right, and whether its rules compile and are cheap enough.

use serde_json::{Value, json};
use usher_cel::{CompileError, STATIC_ESTIMATED_COST_LIMIT, STATIC_ESTIMATED_CRD_COST_LIMIT, Type};

use super::field::{Errors, Path, entries, invalid, items, object, text};
use super::{rules, schema_words, structure, typed};
use crate::status::{FieldError, FieldReason};

/// How many of the most expensive rules are named when all together cost too much.
const MOST_EXPENSIVE: usize = 4;
const CHEAPER: &str =
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";

struct Costs {
    total: u64,
    rules: Vec<(u64, String)>,
    /// Where the schema is wrong: rules around it are not looked at.
    broken: Vec<String>,
}

impl Costs {
    fn tell(mut self, path: &Path<'_>, errors: &mut Errors) {
        if self.total <= STATIC_ESTIMATED_CRD_COST_LIMIT {
            return;
        }
        self.rules.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        for (_, rule) in self.rules.iter().take(MOST_EXPENSIVE) {
            let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(FieldError::forbidden(rule.as_str(), why));
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(path, too_expensive(name, self.total, STATIC_ESTIMATED_CRD_COST_LIMIT)));
    }
}

/// Checks the schema of a version. With a status of its own, little may be said at the root.
pub fn validate(schema: &Value, has_status: bool, path: &Path<'_>, errors: &mut Errors) {
    let before = errors.len();
    if has_status {
        root_of_status(schema, path, errors);
    }
    if schema["nullable"] == true {
        errors.push(FieldError::forbidden(path.field("nullable"), "nullable cannot be true at the root"));
    }
    let unreadable = unreadable(schema);
    let structural = unreadable.is_none() && {
        let before = errors.len();
        structure::check(schema, path, errors);
        if errors.len() == before {
            defaults(schema, path, errors);
        }
        errors.len() == before
    };
    let mut words = Vec::new();
    schema_words::check(schema, path, &schema_words::Around::nothing(), &mut words);
    let broken: Vec<String> = words.iter().map(|error| error.field.clone()).collect();
    errors.append(&mut words);
    if let Some(why) = unreadable.filter(|_| errors.len() == before) {
        errors.push(invalid(path, "", why));
    }
    if structural {
        let mut costs = Costs { total: 0, rules: Vec::new(), broken };
        expressions(schema, path, true, Some(1), None, &mut costs, errors);
        costs.tell(path, errors);
    }
}

/// The root of a schema with a status must leave everything to the status' own schema that would be lost for it.
fn root_of_status(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(schema, "type");
    if !kind.is_empty() && kind != "object" {
        let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        errors.push(invalid(&path.field("type"), kind, why));
        return;
    }
    const LOST: [&str; 14] = [
        "id",
        "$schema",
        "$ref",
        "nullable",
        "default",
        "enum",
        "maxProperties",
        "minProperties",
        "allOf",
        "oneOf",
        "anyOf",
        "not",
        "additionalProperties",
        "patternProperties",
    ];
    const LOST_TOO: [&str; 8] = [
        "dependencies",
        "additionalItems",
        "definitions",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    ];
    let given = |word: &&str| schema.get(*word).is_some_and(|v| !v.is_null() && *v != Value::Bool(false) && v != "");
    if LOST.iter().chain(&LOST_TOO).any(given) {
        let why = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled";
        let value = go_text(&typed::show(&in_go(schema), "JSONSchemaProps"));
        errors.push(FieldError { value, ..invalid(path, "", why) });
    }
}

/// Why a schema cannot be looked at as a structural one, if it cannot.
fn unreadable(schema: &Value) -> Option<String> {
    const WORDS: [(&str, &str); 7] = [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("additionalItems", "additionalItems"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("definitions", "definitions"),
    ];
    let given = |word: &str| schema.get(word).is_some_and(|v| !v.is_null() && !crate::schema::is_zero(v));
    if let Some((_, name)) = WORDS.iter().find(|(word, _)| given(word)) {
        return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        return Some("internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined".into());
    }
    if schema["items"].is_array() {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".into());
    }
    let parts = ["items", "additionalProperties", "not"].into_iter().filter_map(|word| object(schema, word));
    let branches = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|word| items(schema, word));
    let properties = entries(schema, "properties").map(|(_, property)| property);
    parts.chain(branches).chain(properties).find_map(unreadable)
}

/// A schema in the form that a real server holds it in, for its types to be shown by.
pub fn in_go(schema: &Value) -> Value {
    let Some(words) = schema.as_object() else { return schema.clone() };
    let shown = words.iter().map(|(word, value)| {
        let value = match (word.as_str(), value) {
            ("items", Value::Object(_)) => json!({"schema": in_go(value)}),
            ("additionalProperties", Value::Bool(allows)) => json!({"allows": allows}),
            ("additionalProperties", Value::Object(_)) => json!({"allows": true, "schema": in_go(value)}),
            ("not", _) => in_go(value),
            ("allOf" | "anyOf" | "oneOf", Value::Array(all)) => all.iter().map(in_go).collect(),
            ("properties", Value::Object(all)) => all.iter().map(|(name, value)| (name.clone(), in_go(value))).collect(),
            _ => value.clone(),
        };
        (word.clone(), value)
    });
    Value::Object(shown.collect())
}

/// JSON as Go writes it, which keeps it from being read as HTML.
pub fn go_text(shown: &typed::Shown) -> String {
    shown.to_string().replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

/// Defaults are values of their own schemas; looked at only once the schema is known to be structural.
fn defaults(schema: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        let compiled = crate::schema::custom::compile_schema(schema);
        let mut pruned = default.clone();
        crate::schema::prune::prune(&mut pruned, &compiled);
        if pruned != *default {
            errors.push(FieldError::invalid(path.field("default"), default, "must not have unknown fields"));
        }
        let mut found = Vec::new();
        super::schema::validate(&compiled, default, None, &mut found);
        let at = path.field("default").to_string();
        for mut error in found {
            // The walk began at the default, and does not know where that stands.
            let dot = if error.field.is_empty() || error.field.starts_with('[') { "" } else { "." };
            let place = format!("{at}{dot}{}", error.field);
            error.field = place;
            errors.push(error);
        }
    }
    if let Some(inner) = object(schema, "items") {
        defaults(inner, &path.field("items"), errors);
    }
    let properties = path.field("properties");
    for (name, property) in entries(schema, "properties") {
        defaults(property, &properties.key(name), errors);
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
    let own = path.to_string();
    if costs.broken.iter().any(|place| place.strip_prefix(&own).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))) {
        return;
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
    if let Some(given) = rule.get("optionalOldSelf").filter(|v| !v.is_null() && !program.variables().any(|v| v == "oldSelf")) {
        errors.push(FieldError::invalid(path.field("optionalOldSelf"), given, "may not be set if oldSelf is not used in rule"));
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
        validate(&schema, false, &Path::root("s"), &mut errors);
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
