//! Admission policies and their bindings: whom they are for, and whether their expressions compile.

use serde_json::Value;
use usher_cel::{Environment, Type, is_reserved};

use super::field::{Errors, Path, has, invalid, items, object, one_of, text, word};
use super::{names, selector, webhook};
use crate::admission::expression::{self, Site};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const NEITHER: &str = "validations or auditAnnotations must contain at least one item";
/// What a refusal may be called.
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
/// The most annotations of a policy, and the longest expression of one.
const MAX_ANNOTATIONS: usize = 20;
const MAX_ANNOTATION_BYTES: usize = 5 * 1024;

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
    let (environment, messages) = variables(spec, site, errors);
    let list = SPEC.field("validations");
    for (i, validation) in validations.iter().enumerate() {
        let path = list.index(i);
        required_expression(&environment, text(validation, "expression"), &path.field("expression"), &Type::Bool, "bool", errors);
        let source = text(validation, "messageExpression");
        if !source.is_empty() && source.trim().is_empty() {
            errors.push(invalid(&path.field("messageExpression"), source, "must be non-empty if specified"));
        } else if !source.is_empty() {
            compile(&messages, source, &path.field("messageExpression"), &Type::String, "string", errors);
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
    if annotations.len() > MAX_ANNOTATIONS {
        let why = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        errors.push(FieldError::invalid(list, &Value::from(annotations.to_vec()), why));
    }
    let policy_name = crate::object::meta(policy, "name");
    for (i, annotation) in annotations.iter().enumerate() {
        let path = list.index(i);
        let key = text(annotation, "key");
        // The key of the annotation is the policy's name and this one.
        let full = format!("{policy_name}/{key}");
        match policy_name.is_empty() {
            true => errors.push(invalid(&path.field("key"), key, "requires metadata.name be non-empty")),
            false => errors.extend(names::qualified(&full).into_iter().map(|why| invalid(&path.field("key"), &full, why))),
        }
        let source = text(annotation, "valueExpression");
        let at = path.field("valueExpression");
        if source.trim().is_empty() {
            errors.push(FieldError::required(at, "valueExpression is not specified"));
        } else if source.trim().len() > MAX_ANNOTATION_BYTES {
            errors.push(FieldError::required(at, format!("must not exceed {MAX_ANNOTATION_BYTES} bytes in length")));
        } else {
            match environment.compile(source.trim()) {
                Ok(program) if matches!(program.output_type(), Type::String | Type::Null) => {}
                Ok(program) => {
                    let why = format!("must evaluate to one of [string null_type] but got {}", program.output_type());
                    errors.push(invalid(&at, source, why));
                }
                Err(error) => errors.push(webhook::uncompiled(&at, source, &error)),
            }
        }
        if annotations[..i].iter().any(|a| text(a, "key") == key) {
            errors.push(FieldError::duplicate(path.field("key"), &key.into()));
        }
    }
}

/// A MutatingAdmissionPolicy.
pub fn mutating(policy: &Value, errors: &mut Errors) {
    let spec = &policy["spec"];
    common(spec, errors);
    mutable_operations(&spec["matchConstraints"], &SPEC.field("matchConstraints"), errors);
    // What is made for a mutation can only be made in one.
    let site = Site { params: has(spec, "paramKind"), authorizer: true, mutation: false };
    let environment = variables(spec, site, errors).0.with_policy_variables().with_mutation_types().with_jsonpatch();
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
        let (wanted, word) = match kind {
            "JSONPatch" => (Type::list(Type::object("JSONPatch")), "list(JSONPatch)"),
            _ => (Type::object("Object"), "Object"),
        };
        match object(mutation, field).map(|patch| text(patch, "expression").trim()) {
            None => errors.push(FieldError::required(at, format!("must be specified when patchType is {kind}"))),
            Some("") => errors.push(FieldError::required(at.field("expression"), "")),
            Some(source) => compile(&environment, source, &at.field("expression"), &wanted, word, errors),
        }
        let other = if field == "jsonPatch" { "applyConfiguration" } else { "jsonPatch" };
        if has(mutation, other) {
            let why = format!("must not be specified when patchType is {kind}");
            errors.push(invalid(&path.field(other), &format!("{{{other}}}"), why));
        }
    }
    one_of(errors, spec, &SPEC, "reinvocationPolicy", true, &["IfNeeded", "Never"]);
}

/// What is deleted cannot be mutated.
fn mutable_operations(constraints: &Value, path: &Path<'_>, errors: &mut Errors) {
    const OPERATIONS: [&str; 4] = ["*", "CONNECT", "CREATE", "UPDATE"];
    let rules = path.field("resourceRules");
    for rule in items(constraints, "resourceRules") {
        for operation in items(rule, "operations").iter().filter(|o| !o.as_str().is_some_and(|o| OPERATIONS.contains(&o))) {
            errors.push(FieldError::not_supported(rules.field("operations"), operation, &OPERATIONS));
        }
    }
}

fn common(spec: &Value, errors: &mut Errors) {
    word(errors, spec, &SPEC, "failurePolicy", &["Fail", "Ignore"]);
    if let Some(kind) = object(spec, "paramKind") {
        let path = SPEC.field("paramKind");
        param_kind(text(kind, "apiVersion"), text(kind, "kind"), &path, errors);
    }
    match object(spec, "matchConstraints") {
        None => errors.push(FieldError::required(SPEC.field("matchConstraints"), "")),
        Some(constraints) => matching(constraints, &SPEC.field("matchConstraints"), true, errors),
    }
    let site = Site { params: has(spec, "paramKind"), authorizer: true, mutation: false };
    webhook::match_conditions(spec, &SPEC, site, errors);
}

fn param_kind(api_version: &str, kind: &str, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("apiVersion");
    match (api_version.is_empty() || api_version == "/", api_version.matches('/').count()) {
        (true, 0) => errors.push(FieldError::required(at, "")),
        (true, _) => errors.push(invalid(&at, api_version, "version must be specified")),
        (false, 0 | 1) => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            if !group.is_empty() && !names::subdomain(group).is_empty() {
                errors.push(invalid(&at, group, names::subdomain(group).join(",")));
            }
            if version.is_empty() {
                errors.push(invalid(&at, api_version, "version must be specified"));
            } else if !names::label_1035(version).is_empty() {
                errors.push(invalid(&at, version, names::label_1035(version).join(",")));
            }
        }
        _ => errors.push(invalid(&at, api_version, format!("unexpected GroupVersion string: {api_version}"))),
    }
    let at = path.field("kind");
    let wrong = names::label_1035(&kind.to_lowercase());
    if kind.is_empty() {
        errors.push(FieldError::required(at, ""));
    } else if !wrong.is_empty() {
        errors.push(invalid(&at, kind, format!("may have mixed case, but should otherwise match: {}", wrong.join(","))));
    }
}

fn matching(constraints: &Value, path: &Path<'_>, required: bool, errors: &mut Errors) {
    word(errors, constraints, path, "matchPolicy", &["Equivalent", "Exact"]);
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
            let path = list.index(i);
            let named = items(rule, "resourceNames");
            let at = path.field("resourceNames");
            for (j, name) in named.iter().enumerate() {
                let name = name.as_str().unwrap_or_default();
                errors.extend(names::path_segment(name).into_iter().map(|why| invalid(&at.index(j), name, why)));
                if named[..j].iter().any(|other| other == name) {
                    errors.push(FieldError::duplicate(at.index(j), &name.into()));
                }
            }
            webhook::rule_with_operations(rule, &path, errors);
        }
    }
}

/// Compiles the variables, each of which can refer to those before it, and gives what the expressions behind them can refer to, and what
/// those of messages can. Where there are none, nobody knows the word `variables` either.
fn variables(spec: &Value, site: Site, errors: &mut Errors) -> (Environment, Environment) {
    let (mut environment, mut messages) = (expression::environment(site), expression::environment(Site { authorizer: false, ..site }));
    let list = SPEC.field("variables");
    let variables = items(spec, "variables");
    if !variables.is_empty() {
        (environment, messages) = (environment.with_policy_variables(), messages.with_policy_variables());
    }
    for (i, variable) in variables.iter().enumerate() {
        let path = list.index(i);
        let name = text(variable, "name");
        let identifier = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && !is_reserved(name);
        if name.trim().is_empty() {
            errors.push(FieldError::required(path.field("name"), "name is not specified"));
        } else if !identifier {
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
                errors.push(webhook::uncompiled(&path.field("expression"), source, &error));
                Type::Dyn
            }
        };
        messages = messages.policy_variable(name, kind.clone());
        environment = environment.policy_variable(name, kind);
    }
    (environment, messages)
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
        Ok(program) if program.output_type() == wanted => {}
        Ok(program) => errors.push(invalid(path, source, format!("must evaluate to {name} but got {}", program.output_type()))),
        Err(error) => errors.push(webhook::uncompiled(path, source, &error)),
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
        const EXCLUSIVE: &str = "name and selector are mutually exclusive";
        let name = text(reference, "name");
        let (is_named, selects) = (!name.is_empty(), has(reference, "selector"));
        if is_named {
            errors.extend(names::path_segment(name).into_iter().map(|why| invalid(&path.field("name"), name, why)));
        }
        if is_named && selects {
            errors.push(FieldError::forbidden(path.field("name"), EXCLUSIVE));
        }
        selector::label_selector(&reference["selector"], &path.field("selector"), errors);
        match (is_named, selects) {
            (true, true) => errors.push(FieldError::forbidden(path.field("selector"), EXCLUSIVE)),
            (false, false) => errors.push(FieldError::required(path, "one of name or selector must be specified")),
            _ => {}
        }
        one_of(errors, reference, &path, "parameterNotFoundAction", true, &["Deny", "Allow"]);
    }
    if let Some(resources) = object(spec, "matchResources") {
        matching(resources, &SPEC.field("matchResources"), false, errors);
        if !validating {
            mutable_operations(resources, &SPEC.field("matchResources"), errors);
        }
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
}
