//! Webhooks: admission webhook configurations, and how a webhook is reached, which conversions share.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, items, object, one_of, text};
use super::{names, selector};
use crate::admission::expression::{self, Site};
use crate::status::FieldError;

const FORMAT: &str = "; desired format: https://host[/path]";

/// A configuration of mutating or validating webhooks.
pub fn configuration(configuration: &Value, errors: &mut Errors) {
    let list = Path::root("webhooks");
    let webhooks = items(configuration, "webhooks");
    for (i, webhook) in webhooks.iter().enumerate() {
        let path = list.index(i);
        let name = text(webhook, "name");
        if names::subdomain(name).is_empty() && name.split('.').count() < 3 {
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
        one_of(errors, webhook, &path, "failurePolicy", false, &["Fail", "Ignore"]);
        one_of(errors, webhook, &path, "matchPolicy", false, &["Equivalent", "Exact"]);
        one_of(errors, webhook, &path, "sideEffects", true, &["None", "NoneOnDryRun"]);
        one_of(errors, webhook, &path, "reinvocationPolicy", false, &["IfNeeded", "Never"]);
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
    for (i, _) in resources.iter().enumerate().filter(|(_, r)| r.as_str().is_none_or(str::is_empty)) {
        errors.push(FieldError::required(list.index(i), ""));
    }
    if resources.len() > 1 && resources.iter().any(|r| r == "*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(list, &Value::from(resources.to_vec()), why));
    }
    one_of(errors, rule, path, "scope", false, &["*", "Cluster", "Namespaced"]);
}

/// How a webhook is reached: by URL or by Service, never both.
pub fn client_config(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (has(config, "url"), object(config, "service")) {
        (true, None) => url(text(config, "url"), &path.field("url"), errors),
        (false, Some(service)) => {
            let path = path.field("service");
            for name in ["name", "namespace"] {
                if text(service, name).is_empty() {
                    errors.push(FieldError::required(path.field(name), format!("service {name} is required")));
                }
            }
            if has(service, "path") {
                service_path(text(service, "path"), &path.field("path"), errors);
            }
            if let Some(port) = field::number(service, "port").filter(|p| !(1..=65535).contains(p)) {
                let why = "port is not valid: must be between 1 and 65535, inclusive";
                errors.push(FieldError::invalid(path.field("port"), &port.into(), why));
            }
        }
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

fn service_path(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if !value.starts_with('/') {
        errors.push(invalid(path, value, "must start with a '/'"));
    } else if value != "/" {
        for (i, segment) in value.trim_start_matches('/').trim_end_matches('/').split('/').enumerate() {
            if segment.is_empty() {
                errors.push(invalid(path, value, format!("segment[{i}] may not be empty")));
            }
        }
    }
}

fn url(value: &str, path: &Path<'_>, errors: &mut Errors) {
    let Ok(uri) = value.parse::<http::Uri>() else {
        errors.push(FieldError::required(path, format!("url must be a valid URL: parse {value:?}: invalid URI{FORMAT}")));
        return;
    };
    let scheme = uri.scheme_str().unwrap_or_default();
    if scheme != "https" {
        errors.push(invalid(path, scheme, format!("'https' is the only allowed URL scheme{FORMAT}")));
    }
    if uri.host().is_none_or(str::is_empty) {
        errors.push(invalid(path, "", format!("host must be specified{FORMAT}")));
    }
    if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
        errors.push(invalid(path, value, "user information is not permitted in the URL"));
    }
    if value.contains('#') {
        errors.push(invalid(path, value, "fragments are not permitted in the URL"));
    }
    if uri.query().is_some() {
        errors.push(invalid(path, value, "query parameters are not permitted in the URL"));
    }
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
            expression_of_type(source, &usher_cel::Type::Bool, "bool", site, &path.field("expression"), errors);
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
        Ok(program) if program.output_type() == wanted || *program.output_type() == usher_cel::Type::Dyn => {}
        Ok(_) => errors.push(invalid(path, source, format!("must evaluate to {name}"))),
        Err(error) => errors.push(invalid(path, source, expression::compile_error(&error))),
    }
}
