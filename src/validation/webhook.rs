//! Webhooks: admission webhook configurations, and how a webhook is reached, which conversions share.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, items, object, text, word};
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
        qualified_name(name, &path.field("name"), errors);
        let rules = path.field("rules");
        for (i, rule) in items(webhook, "rules").iter().enumerate() {
            rule_with_operations(rule, &rules.index(i), errors);
        }
        word(errors, webhook, &path, "failurePolicy", &["Fail", "Ignore"]);
        word(errors, webhook, &path, "matchPolicy", &["Equivalent", "Exact"]);
        if has(webhook, "sideEffects") {
            word(errors, webhook, &path, "sideEffects", &["None", "NoneOnDryRun"]);
        } else {
            errors.push(FieldError::required(path.field("sideEffects"), "must specify one of None, NoneOnDryRun"));
        }
        if let Some(seconds) = field::number(webhook, "timeoutSeconds").filter(|s| !(1..=30).contains(s)) {
            let why = "the timeout value must be between 1 and 30 seconds";
            errors.push(FieldError::invalid(path.field("timeoutSeconds"), &seconds.into(), why));
        }
        for name in ["namespaceSelector", "objectSelector"] {
            selector::label_selector(&webhook[name], &path.field(name), errors);
        }
        word(errors, webhook, &path, "reinvocationPolicy", &["IfNeeded", "Never"]);
        client_config(object(webhook, "clientConfig").unwrap_or(&Value::Null), &path.field("clientConfig"), errors);
        match_conditions(webhook, &path, Site { authorizer: true, ..Site::default() }, errors);
        review_versions(webhook, &path, errors);
        if !name.is_empty() && webhooks[..i].iter().any(|w| text(w, "name") == name) {
            errors.push(FieldError::duplicate(path.field("name"), &name.into()));
        }
    }
}

fn qualified_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let wrong = names::subdomain(name);
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !wrong.is_empty() {
        errors.push(invalid(path, name, wrong.join(",")));
    } else if name.split('.').count() < 3 {
        errors.push(invalid(path, name, "should be a domain with at least three segments separated by dots"));
    }
}

fn review_versions(webhook: &Value, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("admissionReviewVersions");
    let versions = items(webhook, "admissionReviewVersions");
    if versions.is_empty() {
        errors.push(FieldError::required(list, "must specify one of v1, v1beta1"));
        return;
    }
    for (i, version) in versions.iter().enumerate() {
        let name = version.as_str().unwrap_or_default();
        if versions[..i].contains(version) {
            errors.push(invalid(&list.index(i), name, "duplicate version"));
            continue;
        }
        field::wrong(errors, &list.index(i), name, names::label_1035(name));
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
    resources(rule, &path.field("resources"), errors);
    word(errors, rule, path, "scope", &["*", "Cluster", "Namespaced"]);
}

/// The resources of a rule. What a wildcard covers must not be said again behind it.
fn resources(rule: &Value, list: &Path<'_>, errors: &mut Errors) {
    let resources = items(rule, "resources");
    if resources.is_empty() {
        errors.push(FieldError::required(list, ""));
    }
    let (mut whole, mut everywhere) = (Vec::new(), Vec::new());
    let mut plain = false;
    for (i, resource) in resources.iter().enumerate() {
        let both = resource.as_str().unwrap_or_default();
        if both.is_empty() {
            errors.push(FieldError::required(list.index(i), ""));
            continue;
        }
        let Some((name, part)) = both.split_once('/') else {
            plain = both != "*";
            continue;
        };
        if whole.contains(&name) {
            errors.push(invalid(&list.index(i), both, format!("if '{name}/*' is present, must not specify {both}")));
        }
        if everywhere.contains(&part) {
            errors.push(invalid(&list.index(i), both, format!("if '*/{part}' is present, must not specify {both}")));
        }
        if part == "*" {
            whole.push(name);
        }
        if name == "*" {
            everywhere.push(part);
        }
    }
    if resources.len() > 1 && resources.iter().any(|r| r == "*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(list, &Value::from(resources.to_vec()), why));
    }
    if plain && resources.iter().any(|r| r == "*") {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(list, &Value::from(resources.to_vec()), why));
    }
}

/// How a webhook is reached: by URL or by Service, never both.
pub fn client_config(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (has(config, "url"), object(config, "service")) {
        (true, None) => url(text(config, "url"), &path.field("url"), errors),
        (false, Some(service)) => service_reference(service, &path.field("service"), errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

fn service_reference(service: &Value, path: &Path<'_>, errors: &mut Errors) {
    // A real server hands the two over in the wrong order, so each is told under the other's name.
    for (field, told) in [("namespace", "name"), ("name", "namespace")] {
        if text(service, field).is_empty() {
            errors.push(FieldError::required(path.field(told), ""));
        }
    }
    let port = field::number(service, "port").unwrap_or_default();
    if !(1..=65535).contains(&port) {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(path.field("port"), &port.into(), why));
    }
    service_path(text(service, "path"), &path.field("path"), errors);
}

fn service_path(value: &str, path: &Path<'_>, errors: &mut Errors) {
    if matches!(value, "" | "/") {
        return;
    }
    if !value.starts_with('/') {
        errors.push(invalid(path, value, "must start with a '/'"));
    }
    let mut rest = value.chars();
    rest.next();
    let rest = rest.as_str();
    for (i, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            errors.push(invalid(path, value, format!("segment[{i}] may not be empty")));
            continue;
        }
        let wrong = names::subdomain(segment);
        errors.extend(wrong.into_iter().map(|why| invalid(path, value, format!("segment[{i}]: {why}"))));
    }
}

/// A webhook's address. Each part that may not be there is told by itself.
fn url(value: &str, path: &Path<'_>, errors: &mut Errors) {
    let (rest, fragment) = value.split_once('#').unwrap_or((value, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if rest.contains(|c: char| c.is_ascii_control()) {
        let why = "net/url: invalid control character in URL";
        errors.push(FieldError::required(path, format!("url must be a valid URL: parse {value:?}: {why}{FORMAT}")));
        return;
    }
    let scheme =
        rest.split_once(':').map(|(scheme, _)| scheme).filter(|s| s.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)));
    if scheme == Some("") || (scheme.is_none() && rest.split('/').next().is_some_and(|first| first.contains(':'))) {
        let why = if scheme.is_some() { "missing protocol scheme" } else { "first path segment in URL cannot contain colon" };
        errors.push(FieldError::required(path, format!("url must be a valid URL: parse {value:?}: {why}{FORMAT}")));
        return;
    }
    let rest = scheme.map_or(rest, |scheme| &rest[scheme.len() + 1..]);
    let authority = rest.strip_prefix("//").map_or("", |rest| rest.split('/').next().unwrap_or_default());
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let scheme = scheme.unwrap_or_default().to_ascii_lowercase();
    if scheme != "https" {
        errors.push(invalid(path, &scheme, format!("'https' is the only allowed URL scheme{FORMAT}")));
    }
    if host.is_empty() {
        errors.push(invalid(path, "", format!("host must be specified{FORMAT}")));
    }
    if let Some(user) = user {
        errors.push(invalid(path, user, "user information is not permitted in the URL"));
    }
    for (part, why) in [(fragment, "fragments are not permitted in the URL"), (query, "query parameters are not permitted in the URL")] {
        if !part.is_empty() {
            errors.push(invalid(path, part, why));
        }
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
        Ok(program) if program.output_type() == wanted || *program.output_type() == usher_cel::Type::Dyn => {}
        Ok(_) => errors.push(invalid(path, source, format!("must evaluate to {name}"))),
        Err(error) => errors.push(invalid(path, source, expression::compile_error(&error))),
    }
}
