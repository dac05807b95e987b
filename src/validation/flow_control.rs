//! FlowSchemas and PriorityLevelConfigurations.

use serde_json::Value;

use super::field::{Errors, Path, between, has, invalid, items, number, object, required, required_shape, shaped, text, word};
use super::internal::{Field, show};
use super::names;
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const VERBS: [&str; 9] = ["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];
const METHOD: &[Field] = &[Field::text("Type", "type")];

/// A FlowSchema.
pub fn flow_schema(schema: &Value, errors: &mut Errors) {
    let spec = &schema["spec"];
    let precedence = number(spec, "matchingPrecedence").unwrap_or(0);
    let path = SPEC.field("matchingPrecedence");
    let mut wrong = |why: &str| errors.push(FieldError::invalid(path, &precedence.into(), why));
    if precedence <= 0 {
        wrong("must be a positive value");
    }
    if precedence > 10_000 {
        wrong("must not be greater than 10000");
    }
    if precedence == 1 && text(&schema["metadata"], "name") != "exempt" {
        wrong("only the schema named 'exempt' may have matchingPrecedence 1");
    }
    if let Some(method) = object(spec, "distinguisherMethod")
        && !matches!(text(method, "type"), "ByNamespace" | "ByUser")
    {
        let path = SPEC.field("distinguisherMethod");
        let error = FieldError::not_supported(path.field("type"), &Value::Null, &["ByNamespace", "ByUser"]);
        errors.push(FieldError { value: show(method, METHOD), ..error });
    }
    let path = SPEC.field("priorityLevelConfiguration");
    match text(&spec["priorityLevelConfiguration"], "name") {
        "" => errors.push(FieldError::required(path.field("name"), "must reference a priority level")),
        _ => shaped(errors, &spec["priorityLevelConfiguration"], &path, "name", names::subdomain),
    }
    let list = SPEC.field("rules");
    for (i, rule) in items(spec, "rules").iter().enumerate() {
        policy_rules(rule, &list.index(i), errors);
    }
    conditions(&schema["status"], errors);
}

/// Conditions of either kind: a type each, and no type twice.
pub fn conditions(status: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let (list, conditions) = (path.field("conditions"), items(status, "conditions"));
    for (i, condition) in conditions.iter().enumerate() {
        let path = list.index(i);
        let kind = text(condition, "type");
        if conditions[..i].iter().any(|c| text(c, "type") == kind) {
            errors.push(FieldError::duplicate(path.field("type"), &kind.into()));
        }
        required(errors, condition, &path, &["type"]);
    }
}

fn policy_rules(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (subjects, list) = (items(rule, "subjects"), path.field("subjects"));
    if subjects.is_empty() {
        errors.push(FieldError::required(list, "subjects must contain at least one value"));
    }
    for (i, subject) in subjects.iter().enumerate() {
        self::subject(subject, &list.index(i), errors);
    }
    let (resources, others) = (items(rule, "resourceRules"), items(rule, "nonResourceRules"));
    if resources.is_empty() && others.is_empty() {
        errors.push(FieldError::required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"));
    }
    let list = path.field("resourceRules");
    for (i, rule) in resources.iter().enumerate() {
        resource_rule(rule, &list.index(i), errors);
    }
    let list = path.field("nonResourceRules");
    for (i, rule) in others.iter().enumerate() {
        let path = list.index(i);
        verbs(rule, &path, errors);
        let urls = path.field("nonResourceURLs");
        if several(rule, "nonResourceURLs", "nonResourceURLs must contain at least one value", "non-resource URLs", &path, errors) {
            for (i, url) in items(rule, "nonResourceURLs").iter().filter_map(Value::as_str).enumerate() {
                url_path(url, &urls.index(i), errors);
            }
        }
    }
}

/// A list that must not be empty, and where `*` stands alone. Gives true where its items are to be looked at.
fn several(rule: &Value, name: &str, empty: &str, others: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let (list, path) = (items(rule, name), path.field(name));
    if list.is_empty() {
        if !empty.is_empty() {
            errors.push(FieldError::required(path, empty));
        }
        return false;
    }
    let any = list.iter().any(|item| item == "*");
    if any && list.len() > 1 {
        errors.push(FieldError::invalid(path, &rule[name], format!("if '*' is present, must not specify other {others}")));
    }
    !any
}

fn verbs(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    if several(rule, "verbs", "verbs must contain at least one value", "verbs", path, errors)
        && !items(rule, "verbs").iter().all(|verb| verb.as_str().is_some_and(|verb| VERBS.contains(&verb)))
    {
        errors.push(FieldError::not_supported(path.field("verbs"), &rule["verbs"], &VERBS));
    }
}

fn resource_rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    verbs(rule, path, errors);
    several(rule, "apiGroups", "resource rules must supply at least one api group", "api groups", path, errors);
    several(rule, "resources", "resource rules must supply at least one resource", "resources", path, errors);
    let needed = match super::field::flag(rule, "clusterScope") {
        true => "",
        false => "resource rules that are not cluster scoped must supply at least one namespace",
    };
    if several(rule, "namespaces", needed, "namespaces", path, errors) {
        let list = path.field("namespaces");
        for (i, name) in items(rule, "namespaces").iter().filter_map(Value::as_str).enumerate() {
            let why = |why: String| format!("each member of this list must be '*' or a DNS-1123 label; {why}");
            super::field::wrong(errors, &list.index(i), name, names::label(name).into_iter().map(why).collect());
        }
    }
}

fn subject(subject: &Value, path: &Path<'_>, errors: &mut Errors) {
    const KINDS: [(&str, &str); 3] = [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = text(subject, "kind");
    let Some((_, field)) = KINDS.iter().find(|(name, _)| *name == kind) else {
        errors.push(FieldError::not_supported(path.field("kind"), &kind.into(), &["Group", "ServiceAccount", "User"]));
        return;
    };
    let at = path.field(field);
    match object(subject, field) {
        None => errors.push(FieldError::required(at, format!("{field} is required when subject kind is '{kind}'"))),
        Some(who) if kind == "ServiceAccount" => {
            match text(who, "name") {
                "*" => {}
                _ => required_shape(errors, who, &at, "name", names::subdomain),
            }
            match text(who, "namespace") {
                "" => errors.push(FieldError::required(at.field("namespace"), "must specify namespace for service account")),
                _ => shaped(errors, who, &at, "namespace", names::label),
            }
        }
        Some(who) => required(errors, who, &at, &["name"]),
    }
    let order = if kind == "ServiceAccount" { ["user", "group", ""] } else { ["serviceAccount", "user", "group"] };
    for other in order.iter().filter(|other| **other != *field && has(subject, other)) {
        let name = KINDS.iter().find(|(_, name)| name == other).map_or("", |(name, _)| name);
        errors.push(FieldError::forbidden(path.field(other), format!("{other} is forbidden when subject kind is not '{name}'")));
    }
}

fn url_path(url: &str, path: &Path<'_>, errors: &mut Errors) {
    let why = if url.is_empty() {
        "must not be empty"
    } else if url == "/" {
        return;
    } else if !url.starts_with('/') {
        "must start with slash"
    } else if url.contains(' ') {
        "must not contain white-space"
    } else if url.contains("//") {
        "must not contain double slash"
    } else if url.matches('*').count() > 1 || (url.contains('*') && !url.ends_with("/*")) {
        "wildcard can only do suffix matching"
    } else {
        return;
    };
    errors.push(invalid(path, url, why));
}

/// A PriorityLevelConfiguration.
pub fn priority_level(level: &Value, errors: &mut Errors) {
    const KEPT: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
    if has(&level["metadata"]["annotations"], KEPT) {
        errors.push(FieldError::forbidden("metadata.annotations", format!("annotation '{KEPT}' is forbidden")));
    }
    let spec = &level["spec"];
    let kind = text(spec, "type");
    if (text(&level["metadata"], "name") == "exempt") != (kind == "Exempt") {
        errors.push(invalid(&SPEC.field("type"), kind, "must be 'Exempt' if and only if `name` is 'exempt'"));
    }
    // What newer rules say comes behind.
    let mut behind = Vec::new();
    match kind {
        "Exempt" => {
            if let Some(exempt) = object(spec, "exempt") {
                let path = SPEC.field("exempt");
                shares(exempt, &path, errors);
                between(errors, exempt, &path, "lendablePercent", 0, 100);
            }
        }
        "Limited" => {
            if let Some(limited) = object(spec, "limited") {
                self::limited(limited, &mut behind, errors);
            } else {
                behind.push(FieldError::required(SPEC.field("limited"), ""));
            }
            if has(spec, "exempt") {
                behind.push(FieldError::forbidden(SPEC.field("exempt"), ""));
            }
        }
        "" => behind.push(FieldError::required(SPEC.field("type"), "")),
        _ => word(errors, spec, &SPEC, "type", &["Exempt", "Limited"]),
    }
    if kind != "Limited" && has(spec, "limited") {
        behind.push(FieldError::forbidden(SPEC.field("limited"), ""));
    }
    conditions(&level["status"], errors);
    errors.append(&mut behind);
}

fn shares(holder: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(shares) = number(holder, "nominalConcurrencyShares").filter(|n| *n < 0) {
        errors.push(FieldError::invalid(path.field("nominalConcurrencyShares"), &shares.into(), "must be a non-negative integer"));
    }
}

fn limited(limited: &Value, behind: &mut Errors, errors: &mut Errors) {
    let path = SPEC.field("limited");
    shares(limited, &path, errors);
    let (response, at) = (&limited["limitResponse"], path.field("limitResponse"));
    match text(response, "type") {
        "Reject" => {}
        "Queue" => match object(response, "queuing") {
            Some(queuing) => self::queuing(queuing, &at.field("queuing"), errors),
            None => behind.push(FieldError::required(at.field("queuing"), "")),
        },
        "" => behind.push(FieldError::required(at.field("type"), "")),
        _ => word(errors, response, &at, "type", &["Queue", "Reject"]),
    }
    if text(response, "type") != "Queue" && has(response, "queuing") {
        behind.push(FieldError::forbidden(at.field("queuing"), ""));
    }
    between(errors, limited, &path, "lendablePercent", 0, 100);
    if let Some(percent) = number(limited, "borrowingLimitPercent").filter(|p| *p < 0) {
        let why = "if specified, must be a non-negative integer";
        errors.push(FieldError::invalid(path.field("borrowingLimitPercent"), &percent.into(), why));
    }
}

fn queuing(queuing: &Value, path: &Path<'_>, errors: &mut Errors) {
    let of = |name: &str| number(queuing, name).unwrap_or(0);
    let (queues, hand) = (of("queues"), of("handSize"));
    let mut wrong = |name: &str, value: i64, why: String| errors.push(FieldError::invalid(path.field(name), &value.into(), why));
    if of("queueLengthLimit") <= 0 {
        wrong("queueLengthLimit", of("queueLengthLimit"), "must be positive".into());
    }
    if queues <= 0 {
        wrong("queues", queues, "must be positive".into());
    } else if queues > 10_000_000 {
        wrong("queues", queues, "must not be greater than 10000000".into());
    }
    if hand <= 0 {
        wrong("handSize", hand, "must be positive".into());
    } else if hand > queues {
        wrong("handSize", hand, format!("should not be greater than queues ({queues})"));
    } else if (0..hand.min(64)).map(|i| ((queues - i) as f64).log2()).sum::<f64>().ceil() > 60.0 {
        let why = format!("required entropy bits of deckSize {queues} and handSize {hand} should not be greater than 60");
        wrong("handSize", hand, why);
    }
}
