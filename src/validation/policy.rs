//! Admission policies and their bindings: whom they are for, and whether their expressions compile.

use serde_json::Value;
use usher_cel::{Environment, Type};

use super::field::{Errors, Path, has, invalid, items, object, one_of, text, word, wrong};
use super::{names, selector, webhook};
use crate::admission::expression::{self, Site};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const NEITHER: &str = "validations or auditAnnotations must contain at least one item";
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
/// What a policy that changes objects can be for: a deletion has nothing to change.
const MUTATING: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
/// Words that are no identifiers in an expression.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// A ValidatingAdmissionPolicy.
pub fn validating(policy: &Value, errors: &mut Errors) {
    let spec = &policy["spec"];
    common(spec, false, errors);
    let (validations, annotations) = (items(spec, "validations"), items(spec, "auditAnnotations"));
    let site = Site { params: has(spec, "paramKind"), authorizer: true, mutation: false };
    let environment = variables(spec, site, errors);
    if validations.is_empty() && annotations.is_empty() {
        errors.push(FieldError::required(SPEC.field("validations"), NEITHER));
        errors.push(FieldError::required(SPEC.field("auditAnnotations"), NEITHER));
    }
    let list = SPEC.field("validations");
    for (i, validation) in validations.iter().enumerate() {
        let path = list.index(i);
        required_expression(&environment, text(validation, "expression"), &path.field("expression"), &Type::Bool, "bool", errors);
        let source = text(validation, "messageExpression");
        if !source.trim().is_empty() {
            compile(&environment, source, &path.field("messageExpression"), &Type::String, "string", errors);
        } else if !source.is_empty() {
            errors.push(invalid(&path.field("messageExpression"), source, "must be non-empty if specified"));
        }
        let message = text(validation, "message");
        if !message.is_empty() && message.trim().is_empty() {
            errors.push(invalid(&path.field("message"), message, "must be non-empty if specified"));
        } else if message.trim().contains(['\n', '\r']) {
            errors.push(invalid(&path.field("message"), message, "must not contain line breaks"));
        }
        word(errors, validation, &path, "reason", &REASONS);
    }
    let list = SPEC.field("auditAnnotations");
    if annotations.len() > 20 {
        errors.push(FieldError::invalid(list, &spec["auditAnnotations"], "must not have more than 20 auditAnnotations"));
    }
    let name = text(&policy["metadata"], "name");
    for (i, annotation) in annotations.iter().enumerate() {
        let path = list.index(i);
        audit_annotation(annotation, name, &path, &environment, errors);
        if annotations[..i].iter().any(|a| text(a, "key") == text(annotation, "key")) {
            errors.push(FieldError::duplicate(path.field("key"), &text(annotation, "key").into()));
        }
    }
}

/// An annotation for the audit log. Its key is the second half of a name whose first is the policy's.
fn audit_annotation(annotation: &Value, policy: &str, path: &Path<'_>, environment: &Environment, errors: &mut Errors) {
    let key = text(annotation, "key");
    if policy.is_empty() {
        errors.push(invalid(&path.field("key"), key, "requires metadata.name be non-empty"));
    } else {
        let whole = format!("{policy}/{key}");
        wrong(errors, &path.field("key"), &whole, names::qualified(&whole));
    }
    let (source, path) = (text(annotation, "valueExpression"), path.field("valueExpression"));
    if source.trim().is_empty() {
        errors.push(FieldError::required(path, "valueExpression is not specified"));
    } else if source.trim().len() > 5 * 1024 {
        errors.push(FieldError::required(path, "must not exceed 5120 bytes in length"));
    } else {
        match environment.compile(source.trim()) {
            Ok(program) if matches!(program.output_type(), Type::String | Type::Null | Type::Dyn) => {}
            Ok(_) => errors.push(invalid(&path, source, "must evaluate to one of [string null_type]")),
            Err(error) => errors.push(invalid(&path, source, expression::compile_error(&error))),
        }
    }
}

/// A MutatingAdmissionPolicy.
pub fn mutating(policy: &Value, errors: &mut Errors) {
    let spec = &policy["spec"];
    common(spec, true, errors);
    let site = Site { params: has(spec, "paramKind"), authorizer: true, mutation: true };
    let environment = variables(spec, site, errors);
    let mutations = items(spec, "mutations");
    let list = SPEC.field("mutations");
    if mutations.is_empty() {
        errors.push(FieldError::required(list, "mutations must contain at least one item"));
    }
    for (i, mutation) in mutations.iter().enumerate() {
        let path = list.index(i);
        let kind = text(mutation, "patchType");
        let (field, other) = match kind {
            "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
            "JSONPatch" => ("jsonPatch", "applyConfiguration"),
            _ => {
                one_of(errors, mutation, &path, "patchType", true, &["ApplyConfiguration", "JSONPatch"]);
                continue;
            }
        };
        let at = path.field(field);
        match object(mutation, field).map(|patch| text(patch, "expression").trim()) {
            None => errors.push(FieldError::required(at, format!("must be specified when patchType is {kind}"))),
            Some("") => errors.push(FieldError::required(at.field("expression"), "")),
            Some(source) => {
                if let Err(error) = environment.compile(source) {
                    errors.push(invalid(&at.field("expression"), source, expression::compile_error(&error)));
                }
            }
        }
        if has(mutation, other) {
            let why = format!("must not be specified when patchType is {kind}");
            errors.push(invalid(&path.field(other), &format!("{{{other}}}"), why));
        }
    }
    one_of(errors, spec, &SPEC, "reinvocationPolicy", true, &["IfNeeded", "Never"]);
}

fn common(spec: &Value, mutating: bool, errors: &mut Errors) {
    word(errors, spec, &SPEC, "failurePolicy", &["Fail", "Ignore"]);
    if let Some(kind) = object(spec, "paramKind") {
        param_kind(kind, &SPEC.field("paramKind"), errors);
    }
    let path = SPEC.field("matchConstraints");
    match object(spec, "matchConstraints") {
        None => errors.push(FieldError::required(path, "")),
        Some(constraints) => {
            matching(constraints, &path, errors);
            if items(constraints, "resourceRules").is_empty() {
                errors.push(FieldError::required(path.field("resourceRules"), ""));
            }
            if mutating {
                mutating_operations(constraints, &path, errors);
            }
        }
    }
    let site = Site { params: has(spec, "paramKind"), authorizer: true, mutation: false };
    webhook::match_conditions(spec, &SPEC, site, errors);
}

fn mutating_operations(constraints: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (rules, operations) = (items(constraints, "resourceRules"), path.field("resourceRules"));
    for operation in rules.iter().flat_map(|rule| items(rule, "operations")) {
        if !operation.as_str().is_some_and(|o| MUTATING.contains(&o)) {
            errors.push(FieldError::not_supported(operations.field("operations"), operation, &MUTATING));
        }
    }
}

fn param_kind(kind: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (version, at) = (text(kind, "apiVersion"), path.field("apiVersion"));
    if version.is_empty() {
        errors.push(FieldError::required(at, ""));
    } else if version.matches('/').count() > 1 {
        errors.push(invalid(&at, version, format!("unexpected GroupVersion string: {version}")));
    } else {
        let (group, name) = version.split_once('/').unwrap_or(("", version));
        let bad = names::subdomain(group);
        if !group.is_empty() && !bad.is_empty() {
            errors.push(invalid(&at, group, bad.join(",")));
        }
        let bad = names::label_1035(name);
        if name.is_empty() {
            errors.push(invalid(&at, version, "version must be specified"));
        } else if !bad.is_empty() {
            errors.push(invalid(&at, name, bad.join(",")));
        }
    }
    let (name, at) = (text(kind, "kind"), path.field("kind"));
    let bad = names::label_1035(&name.to_lowercase());
    if name.is_empty() {
        errors.push(FieldError::required(at, ""));
    } else if !bad.is_empty() {
        errors.push(invalid(&at, name, format!("may have mixed case, but should otherwise match: {}", bad.join(","))));
    }
}

fn matching(constraints: &Value, path: &Path<'_>, errors: &mut Errors) {
    word(errors, constraints, path, "matchPolicy", &["Equivalent", "Exact"]);
    for name in ["namespaceSelector", "objectSelector"] {
        selector::label_selector(&constraints[name], &path.field(name), errors);
    }
    for name in ["resourceRules", "excludeResourceRules"] {
        let list = path.field(name);
        for (i, rule) in items(constraints, name).iter().enumerate() {
            let path = list.index(i);
            let (names, at) = (items(rule, "resourceNames"), path.field("resourceNames"));
            for (i, value) in names.iter().enumerate() {
                let name = value.as_str().unwrap_or_default();
                wrong(errors, &at.index(i), name, names::path_segment(name));
                if names[..i].contains(value) {
                    errors.push(FieldError::duplicate(at.index(i), value));
                }
            }
            webhook::rule_with_operations(rule, &path, errors);
        }
    }
}

/// Compiles the variables, each of which can refer to those before it, and gives what the expressions behind them can refer to.
fn variables(spec: &Value, site: Site, errors: &mut Errors) -> Environment {
    let mut environment = expression::environment(site).with_policy_variables();
    let list = SPEC.field("variables");
    let variables = items(spec, "variables");
    for (i, variable) in variables.iter().enumerate() {
        let path = list.index(i);
        let name = text(variable, "name");
        let identifier = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.starts_with(|c: char| c.is_ascii_digit());
        if name.trim().is_empty() {
            errors.push(FieldError::required(path.field("name"), "name is not specified"));
        } else if !identifier || RESERVED.contains(&name) {
            errors.push(invalid(&path.field("name"), name, "must be a valid CEL identifier"));
        }
        let source = text(variable, "expression");
        if source.trim().is_empty() {
            errors.push(FieldError::required(path.field("expression"), "expression is not specified"));
            continue;
        }
        let kind = match environment.compile(source) {
            Ok(program) => program.output_type().clone(),
            Err(error) => {
                errors.push(invalid(&path.field("expression"), source, expression::compile_error(&error)));
                Type::Dyn
            }
        };
        environment = environment.policy_variable(name, kind);
    }
    environment
}

fn required_expression(environment: &Environment, source: &str, path: &Path<'_>, wanted: &Type, name: &str, errors: &mut Errors) {
    if source.trim().is_empty() {
        errors.push(FieldError::required(path, "expression is not specified"));
    } else {
        compile(environment, source, path, wanted, name, errors);
    }
}

fn compile(environment: &Environment, source: &str, path: &Path<'_>, wanted: &Type, name: &str, errors: &mut Errors) {
    match environment.compile(source) {
        Ok(program) if program.output_type() == wanted || *program.output_type() == Type::Dyn => {}
        Ok(_) => errors.push(invalid(path, source, format!("must evaluate to {name}"))),
        Err(error) => errors.push(invalid(path, source, expression::compile_error(&error))),
    }
}

/// The binding of a policy of either sort.
pub fn binding(binding: &Value, validating: bool, errors: &mut Errors) {
    let spec = &binding["spec"];
    let name = text(spec, "policyName");
    if name.is_empty() {
        errors.push(FieldError::required(SPEC.field("policyName"), ""));
    } else {
        errors.extend(names::subdomain(name).into_iter().map(|why| invalid(&SPEC.field("policyName"), name, why)));
    }
    if let Some(reference) = object(spec, "paramRef") {
        param_reference(reference, &SPEC.field("paramRef"), errors);
    }
    if let Some(resources) = object(spec, "matchResources") {
        let path = SPEC.field("matchResources");
        matching(resources, &path, errors);
        if !validating {
            mutating_operations(resources, &path, errors);
        }
    }
    if validating {
        actions(spec, &SPEC.field("validationActions"), errors);
    }
}

fn param_reference(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    const BOTH: &str = "name and selector are mutually exclusive";
    let (name, selector) = (text(reference, "name"), object(reference, "selector"));
    let both = !name.is_empty() && selector.is_some();
    if !name.is_empty() {
        wrong(errors, &path.field("name"), name, names::path_segment(name));
    }
    if both {
        errors.push(FieldError::forbidden(path.field("name"), BOTH));
    }
    if let Some(selector) = selector {
        selector::label_selector(selector, &path.field("selector"), errors);
    }
    if both {
        errors.push(FieldError::forbidden(path.field("selector"), BOTH));
    }
    if name.is_empty() && selector.is_none() {
        errors.push(FieldError::required(path, "one of name or selector must be specified"));
    }
    one_of(errors, reference, path, "parameterNotFoundAction", true, &["Deny", "Allow"]);
}

fn actions(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
    let actions = items(spec, "validationActions");
    for (i, action) in actions.iter().enumerate() {
        if !action.as_str().is_some_and(|a| ACTIONS.contains(&a)) {
            errors.push(FieldError::not_supported(path.index(i), action, &ACTIONS));
        }
        if actions[..i].contains(action) {
            errors.push(FieldError::duplicate(path.index(i), action));
        }
    }
    if ["Deny", "Warn"].iter().all(|word| actions.iter().any(|a| a == word)) {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.push(FieldError::invalid(path, &Value::from(actions.to_vec()), why));
    }
    if actions.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
}
