//! Webhooks: admission webhook configurations, and how a webhook is reached, which conversions share.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, items, object, text, word};
use super::{names, selector};
use crate::admission::expression::{self, Site};
use crate::status::{FieldError, FieldReason};

const FORMAT: &str = "; desired format: https://host[/path]";

/// A configuration of mutating or validating webhooks.
pub fn configuration(configuration: &Value, errors: &mut Errors) {
    let list = Path::root("webhooks");
    let webhooks = items(configuration, "webhooks");
    for (i, webhook) in webhooks.iter().enumerate() {
        let path = list.index(i);
        let name = text(webhook, "name");
        if name.is_empty() {
            errors.push(FieldError::required(path.field("name"), ""));
        } else if names::subdomain(name).is_empty() && name.split('.').count() < 3 {
            errors.push(invalid(&path.field("name"), name, "should be a domain with at least three segments separated by dots"));
        } else {
            errors.extend(names::subdomain(name).into_iter().map(|why| invalid(&path.field("name"), name, why)));
        }
        if webhooks[..i].iter().any(|w| text(w, "name") == name) {
            errors.push(FieldError::duplicate(path.field("name"), &name.into()));
        }
        review_versions(webhook, &path, errors);
        let rules = path.field("rules");
        for (i, rule) in items(webhook, "rules").iter().enumerate() {
            rule_with_operations(rule, &rules.index(i), errors);
        }
        word(errors, webhook, &path, "failurePolicy", &["Fail", "Ignore"]);
        word(errors, webhook, &path, "matchPolicy", &["Equivalent", "Exact"]);
        match has(webhook, "sideEffects") {
            false => errors.push(FieldError::required(path.field("sideEffects"), "must specify one of None, NoneOnDryRun")),
            true => word(errors, webhook, &path, "sideEffects", &["None", "NoneOnDryRun"]),
        }
        word(errors, webhook, &path, "reinvocationPolicy", &["IfNeeded", "Never"]);
        if let Some(seconds) = field::number(webhook, "timeoutSeconds").filter(|s| !(1..=30).contains(s)) {
            let why = "the timeout value must be between 1 and 30 seconds";
            errors.push(FieldError::invalid(path.field("timeoutSeconds"), &seconds.into(), why));
        }
        for name in ["namespaceSelector", "objectSelector"] {
            selector::label_selector(&webhook[name], &path.field(name), errors);
        }
        match object(webhook, "clientConfig") {
            Some(config) => client_config(config, &path.field("clientConfig"), errors),
            None => client_config(&Value::Null, &path.field("clientConfig"), errors),
        }
        match_conditions(webhook, &path, Site { authorizer: true, ..Site::default() }, errors);
    }
}

fn review_versions(webhook: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("admissionReviewVersions");
    let versions = items(webhook, "admissionReviewVersions");
    if versions.is_empty() {
        let why = "must specify one of v1, v1beta1";
        errors.push(FieldError::required(list, why));
        return;
    }
    for (i, version) in versions.iter().enumerate() {
        let name = version.as_str().unwrap_or_default();
        if versions[..i].contains(version) {
            errors.push(FieldError { detail: "duplicate version".into(), ..FieldError::invalid(list.index(i), version, "") });
        }
        let wrong = names::label_1035(name);
        errors.extend(wrong.into_iter().map(|why| invalid(&list.index(i), name, why)));
    }
    if !versions.iter().any(|v| matches!(v.as_str(), Some("v1" | "v1beta1"))) {
        let why = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(list, &Value::from(versions.to_vec()), why));
    }
}

/// A rule of a webhook or of a policy: which writes of which resources are meant.
pub fn rule_with_operations(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let operations = items(rule, "operations");
    let list = path.field("operations");
    if operations.is_empty() {
        errors.push(FieldError::required(list, ""));
    }
    if operations.len() > 1 && operations.iter().any(|o| o == "*") {
        let why = "if '*' is present, must not specify other operations";
        errors.push(FieldError::invalid(list, &Value::from(operations.to_vec()), why));
    }
    const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    for (i, operation) in operations.iter().enumerate() {
        if !operation.as_str().is_some_and(|o| OPERATIONS.contains(&o)) {
            errors.push(FieldError::not_supported(list.index(i), operation, &OPERATIONS));
        }
    }
    for (name, what) in [("apiGroups", "groups"), ("apiVersions", "versions")] {
        let list = items(rule, name);
        if list.is_empty() {
            errors.push(FieldError::required(path.field(name), ""));
        }
        if list.len() > 1 && list.iter().any(|v| v == "*") {
            let why = format!("if '*' is present, must not specify other API {what}");
            errors.push(FieldError::invalid(path.field(name), &Value::from(list.to_vec()), why));
        }
        if name == "apiVersions" {
            let path = path.field(name);
            for (i, _) in list.iter().enumerate().filter(|(_, v)| v.as_str().is_none_or(str::is_empty)) {
                errors.push(FieldError::required(path.index(i), ""));
            }
        }
    }
    let resources = items(rule, "resources");
    let list = path.field("resources");
    if resources.is_empty() {
        errors.push(FieldError::required(list, ""));
    }
    let words: Vec<&str> = resources.iter().map(|r| r.as_str().unwrap_or_default()).collect();
    for (i, word) in words.iter().enumerate() {
        if word.is_empty() {
            errors.push(FieldError::required(list.index(i), ""));
        }
        let Some((resource, subresource)) = word.split_once('/') else { continue };
        // Only what was said before makes a later one superfluous.
        for wide in [format!("{resource}/*"), format!("*/{subresource}")] {
            if words[..i].contains(&wide.as_str()) {
                errors.push(invalid(&list.index(i), word, format!("if '{wide}' is present, must not specify {word}")));
            }
        }
    }
    if resources.len() > 1 && words.contains(&"*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(list, &Value::from(resources.to_vec()), why));
    }
    // As a real server has it, the last resource without a subresource decides.
    let plain = words.iter().rev().find(|word| !word.is_empty() && !word.contains('/'));
    if words.contains(&"*") && plain.is_some_and(|word| *word != "*") {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(list, &Value::from(resources.to_vec()), why));
    }
    word(errors, rule, path, "scope", &["*", "Cluster", "Namespaced"]);
}

/// How a webhook is reached: by URL or by Service, never both.
pub fn client_config(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (has(config, "url"), object(config, "service")) {
        (true, None) => url(text(config, "url"), &path.field("url"), errors),
        (false, Some(service)) => {
            let path = path.field("service");
            // A real server complains of the one where the other is missing.
            for (told, name) in [("name", "namespace"), ("namespace", "name")] {
                if text(service, name).is_empty() {
                    errors.push(FieldError::required(path.field(told), ""));
                }
            }
            if let Some(port) = field::number(service, "port").filter(|p| !(1..=65535).contains(p)) {
                let why = "port is not valid: must be between 1 and 65535, inclusive";
                errors.push(FieldError::invalid(path.field("port"), &port.into(), why));
            }
            if has(service, "path") {
                service_path(text(service, "path"), &path.field("path"), errors);
            }
        }
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

fn service_path(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if matches!(value, "" | "/") {
        return;
    }
    if value == "//" {
        errors.push(invalid(path, value, "segment[0] may not be empty"));
        return;
    }
    if !value.starts_with('/') {
        errors.push(invalid(path, value, "must start with a '/'"));
    }
    // The first character is taken for the slash, whatever it is.
    let rest = value.char_indices().nth(1).map_or("", |(at, _)| &value[at..]);
    for (i, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            errors.push(invalid(path, value, format!("segment[{i}] may not be empty")));
            continue;
        }
        errors.extend(names::subdomain(segment).into_iter().map(|why| invalid(path, value, format!("segment[{i}]: {why}"))));
    }
}

fn url(value: &str, path: &Path<'_>, errors: &mut Errors) {
    let parts = match Parts::of(value) {
        Ok(parts) => parts,
        Err(why) => {
            errors.push(FieldError::required(path, format!("url must be a valid URL: parse {value:?}: {why}{FORMAT}")));
            return;
        }
    };
    if parts.scheme != "https" {
        errors.push(invalid(path, parts.scheme, format!("'https' is the only allowed URL scheme{FORMAT}")));
    }
    if parts.host.is_empty() {
        errors.push(invalid(path, parts.host, format!("host must be specified{FORMAT}")));
    }
    if !parts.user.is_empty() {
        errors.push(invalid(path, parts.user, "user information is not permitted in the URL"));
    }
    if !parts.fragment.is_empty() {
        errors.push(invalid(path, parts.fragment, "fragments are not permitted in the URL"));
    }
    if !parts.query.is_empty() {
        errors.push(invalid(path, parts.query, "query parameters are not permitted in the URL"));
    }
}

/// The parts of a URL, taken apart as leniently as a real server does.
struct Parts<'a> {
    scheme: &'a str,
    user: &'a str,
    host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl<'a> Parts<'a> {
    fn of(value: &'a str) -> Result<Parts<'a>, String> {
        if value.chars().any(|c| c.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".into());
        }
        let (rest, fragment) = value.split_once('#').unwrap_or((value, ""));
        let (scheme, rest) = match rest.split_once(':') {
            Some(("", _)) => return Err("missing protocol scheme".into()),
            Some((scheme, rest)) if is_scheme(scheme) => (scheme, rest),
            Some((first, _)) if !first.contains(['/', '?']) => return Err("first path segment in URL cannot contain colon".into()),
            _ => ("", rest),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = rest.strip_prefix("//").map_or("", |rest| rest.split('/').next().unwrap_or_default());
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        if let Some(odd) = host.chars().find(|c| matches!(c, ' ' | '"' | '<' | '>')) {
            return Err(format!("invalid character {:?} in host name", odd.to_string()));
        }
        let port = match host.rsplit_once(']') {
            Some((_, port)) => port.strip_prefix(':').unwrap_or_default(),
            None => host.rsplit_once(':').map_or("", |(_, port)| port),
        };
        if !port.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!("invalid port \":{port}\" after host"));
        }
        Ok(Parts { scheme, user, host, query, fragment })
    }
}

fn is_scheme(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

/// The conditions of a webhook or policy: names and expressions.
pub fn match_conditions(value: &Value, path: &Path<'_>, site: Site, errors: &mut Errors) {
    let list = path.field("matchConditions");
    let conditions = items(value, "matchConditions");
    if conditions.len() > 64 {
        errors.push(FieldError::too_many(list, conditions.len(), 64));
    }
    for (i, condition) in conditions.iter().enumerate() {
        let path = list.index(i);
        let source = text(condition, "expression");
        if source.trim().is_empty() {
            errors.push(FieldError::required(path.field("expression"), ""));
        } else {
            expression_of_type(source.trim(), &usher_cel::Type::Bool, "bool", site, &path.field("expression"), errors);
        }
        let name = text(condition, "name");
        if name.is_empty() {
            errors.push(FieldError::required(path.field("name"), ""));
        } else {
            errors.extend(names::qualified(name).into_iter().map(|why| invalid(&path.field("name"), name, why)));
            if conditions[..i].iter().any(|c| text(c, "name") == name) {
                errors.push(FieldError::duplicate(path.field("name"), &name.into()));
            }
        }
    }
}

/// An expression that must compile to a type.
pub fn expression_of_type(source: &str, wanted: &usher_cel::Type, name: &str, site: Site, path: &Path<'_>, errors: &mut Errors) {
    match expression::environment(site).compile(source) {
        Ok(program) if program.output_type() == wanted => {}
        Ok(program) => errors.push(invalid(path, source, format!("must evaluate to {name} but got {}", program.output_type()))),
        Err(error) => errors.push(uncompiled(path, source, &error)),
    }
}

/// What is said of an expression that does not compile: one that is right and cannot be made to run is nobody's mistake.
pub fn uncompiled(path: &Path<'_>, source: &str, error: &usher_cel::CompileError) -> FieldError {
    let why = expression::compile_error(error);
    match error {
        usher_cel::CompileError::Issues(_) => invalid(path, source, why),
        usher_cel::CompileError::Program { .. } => {
            FieldError { field: path.into(), reason: FieldReason::Internal, value: String::new(), detail: why }
        }
    }
}
