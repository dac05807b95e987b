//! Admission policies and their bindings: whom they are for, and whether their expressions compile.

use serde_json::Value;
use usher_cel::{Environment, Type};

use super::field::{Errors, Path, has, invalid, items, object, one_of, text};
use super::{names, selector, webhook};
use crate::admission::expression::{self, Site};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const NEITHER: &str = "validations or auditAnnotations must contain at least one item";
const REASONS: [&str; 4] = ["Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized"];

/// A ValidatingAdmissionPolicy.
pub fn validating(policy: &Value, errors: &mut Errors) {
    let spec = &policy["spec"];
    common(spec, errors);
    let (validations, annotations) = (items(spec, "validations"), items(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        errors.push(FieldError::required(SPEC.field("validations"), NEITHER));
        errors.push(FieldError::required(SPEC.field("auditAnnotations"), NEITHER));
    }
    let site = Site { params: has(spec, "paramKind"), authorizer: true, mutation: false };
    let environment = variables(spec, site, errors);
    let list = SPEC.field("validations");
    for (i, validation) in validations.iter().enumerate() {
        let path = list.index(i);
        required_expression(&environment, text(validation, "expression"), &path.field("expression"), &Type::Bool, "bool", errors);
        let message = text(validation, "message");
        if message.contains('\n') {
            errors.push(invalid(&path.field("message"), message, "message must not contain line breaks"));
        } else if !message.is_empty() && message.trim().is_empty() {
            errors.push(invalid(&path.field("message"), message, "message must be non-empty if specified"));
        }
        let source = text(validation, "messageExpression");
        if !source.is_empty() {
            compile(&environment, source, &path.field("messageExpression"), &Type::String, "string", errors);
        }
        one_of(errors, validation, &path, "reason", false, &REASONS);
    }
    let list = SPEC.field("auditAnnotations");
    for (i, annotation) in annotations.iter().enumerate() {
        let path = list.index(i);
        let key = text(annotation, "key");
        if key.is_empty() {
            errors.push(FieldError::required(path.field("key"), ""));
        } else if annotations[..i].iter().any(|a| text(a, "key") == key) {
            errors.push(FieldError::duplicate(path.field("key"), &key.into()));
        }
        let source = text(annotation, "valueExpression");
        if source.trim().is_empty() {
            errors.push(FieldError::required(path.field("valueExpression"), "valueExpression is required"));
        } else if let Err(error) = environment.compile(source) {
            errors.push(invalid(&path.field("valueExpression"), source, expression::compile_error(&error)));
        }
    }
}

/// A MutatingAdmissionPolicy.
pub fn mutating(policy: &Value, errors: &mut Errors) {
    let spec = &policy["spec"];
    common(spec, errors);
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
        let field = match kind {
            "ApplyConfiguration" => "applyConfiguration",
            "JSONPatch" => "jsonPatch",
            "" => {
                errors.push(FieldError::required(path.field("patchType"), ""));
                continue;
            }
            _ => {
                errors.push(FieldError::not_supported(path.field("patchType"), &kind.into(), &["ApplyConfiguration", "JSONPatch"]));
                continue;
            }
        };
        let at = path.field(field);
        let Some(patch) = object(mutation, field) else {
            errors.push(FieldError::required(at, format!("must be specified when patchType is {kind}")));
            continue;
        };
        let source = text(patch, "expression");
        if source.trim().is_empty() {
            errors.push(FieldError::required(at.field("expression"), "expression is not specified"));
        } else if let Err(error) = environment.compile(source) {
            errors.push(invalid(&at.field("expression"), source, expression::compile_error(&error)));
        }
    }
    one_of(errors, spec, &SPEC, "reinvocationPolicy", true, &["IfNeeded", "Never"]);
}

fn common(spec: &Value, errors: &mut Errors) {
    one_of(errors, spec, &SPEC, "failurePolicy", false, &["Fail", "Ignore"]);
    if let Some(kind) = object(spec, "paramKind") {
        let path = SPEC.field("paramKind");
        for name in ["apiVersion", "kind"] {
            if text(kind, name).is_empty() {
                errors.push(FieldError::required(path.field(name), ""));
            }
        }
    }
    match object(spec, "matchConstraints") {
        None => errors.push(FieldError::required(SPEC.field("matchConstraints"), "")),
        Some(constraints) => matching(constraints, &SPEC.field("matchConstraints"), true, errors),
    }
    let site = Site { params: has(spec, "paramKind"), authorizer: true, mutation: false };
    webhook::match_conditions(spec, &SPEC, site, errors);
}

fn matching(constraints: &Value, path: &Path<'_>, required: bool, errors: &mut Errors) {
    one_of(errors, constraints, path, "matchPolicy", false, &["Equivalent", "Exact"]);
    for name in ["namespaceSelector", "objectSelector"] {
        selector::label_selector(&constraints[name], &path.field(name), errors);
    }
    for name in ["resourceRules", "excludeResourceRules"] {
        let rules = items(constraints, name);
        let list = path.field(name);
        if required && name == "resourceRules" && rules.is_empty() {
            errors.push(FieldError::required(list, ""));
        }
        for (i, rule) in rules.iter().enumerate() {
            webhook::rule_with_operations(rule, &list.index(i), errors);
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
        if name.is_empty() {
            errors.push(FieldError::required(path.field("name"), "name is not specified"));
        } else if !identifier {
            errors.push(invalid(&path.field("name"), name, "name is not a valid CEL identifier"));
        } else if variables[..i].iter().any(|v| text(v, "name") == name) {
            errors.push(FieldError::duplicate(path.field("name"), &name.into()));
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
        let path = SPEC.field("paramRef");
        match (text(reference, "name").is_empty(), has(reference, "selector")) {
            (true, false) => errors.push(FieldError::required(path, "one of name or selector must be specified")),
            (false, true) => errors.push(FieldError::forbidden(path.field("name"), "name and selector are mutually exclusive")),
            _ => {}
        }
        selector::label_selector(&reference["selector"], &path.field("selector"), errors);
        one_of(errors, reference, &path, "parameterNotFoundAction", true, &["Allow", "Deny"]);
    }
    if let Some(resources) = object(spec, "matchResources") {
        matching(resources, &SPEC.field("matchResources"), false, errors);
    }
    if !validating {
        return;
    }
    let actions = items(spec, "validationActions");
    let path = SPEC.field("validationActions");
    if actions.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
    for (i, action) in actions.iter().enumerate() {
        if !action.as_str().is_some_and(|a| ACTIONS.contains(&a)) {
            errors.push(FieldError::not_supported(path, action, &ACTIONS));
        }
        if actions[..i].contains(action) {
            errors.push(FieldError::duplicate(path, action));
        }
    }
    if ["Deny", "Warn"].iter().all(|word| actions.iter().any(|a| a == word)) {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.push(FieldError::invalid(path, &Value::from(actions.to_vec()), why));
    }
}
