//! How much a namespace may have: ResourceQuotas and LimitRanges.

use serde_json::Value;

use super::field::{self, Errors, Path, entries, invalid, items, map, text, wrong};
use super::names;
use super::resources::{self, quantity};
use crate::schema::quantity::Quantity;
use crate::status::{FieldError, FieldReason};

const SPEC: Path<'static> = Path::root("spec");
const SCOPES: [&str; 7] =
    ["BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating", "VolumeAttributesClass"];

/// A ResourceQuota.
pub fn quota(quota: &Value, errors: &mut Errors) {
    spec(&quota["spec"], errors);
    status(&quota["status"], errors);
}

/// The status of a quota.
pub fn status(status: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    for name in ["hard", "used"] {
        amounts(status, name, &path, errors);
    }
}

fn amounts(value: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field(name);
    for (name, amount) in entries(value, name) {
        resources::quota_name(name, &path.key(name), errors);
        resources::amount(name, amount, &path.key(name), errors);
    }
}

/// Whether a scope can be said of a resource that quotas know.
fn scope_fits(scope: &str, resource: &str) -> bool {
    let mut wrong = Vec::new();
    resources::quota_name(resource, &SPEC, &mut wrong);
    if !wrong.is_empty() || resource.contains('/') {
        return true;
    }
    let computed = matches!(resource, "cpu" | "memory" | "limits.cpu" | "limits.memory" | "requests.cpu" | "requests.memory");
    match scope {
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            resource == "pods" || computed
        }
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => matches!(resource, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

fn conflicting(scopes: &[&str]) -> usize {
    let pairs = [["BestEffort", "NotBestEffort"], ["NotTerminating", "Terminating"]];
    pairs.iter().filter(|pair| pair.iter().all(|scope| scopes.contains(scope))).count()
}

fn spec(spec: &Value, errors: &mut Errors) {
    amounts(spec, "hard", &SPEC, errors);
    let hard: Vec<&String> = entries(spec, "hard").map(|(name, _)| name).collect();
    let scopes: Vec<&str> = items(spec, "scopes").iter().filter_map(Value::as_str).collect();
    let path = SPEC.field("scopes");
    let mut tell = |why: &str| errors.push(FieldError::invalid(path, &spec["scopes"], why));
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            tell("unsupported scope");
        }
        for _ in hard.iter().filter(|resource| !scope_fits(scope, resource)) {
            tell("unsupported scope applied to resource");
        }
    }
    for _ in 0..conflicting(&scopes) {
        tell("conflicting scopes");
    }
    if spec["scopeSelector"].is_object() {
        scope_selector(spec, &hard, errors);
    }
}

fn scope_selector(spec: &Value, hard: &[&String], errors: &mut Errors) {
    use super::internal::{Field, show};
    const REQUIREMENT: &[Field] =
        &[Field::text("ScopeName", "scopeName"), Field::text("Operator", "operator"), Field::plain("Values", "values")];
    const SELECTOR: &[Field] = &[Field::list("MatchExpressions", "matchExpressions", REQUIREMENT)];
    let path = SPEC.field("scopeSelector");
    let path = path.field("matchExpressions");
    let expressions = items(&spec["scopeSelector"], "matchExpressions");
    for expression in expressions {
        let (scope, operator, values) = (text(expression, "scopeName"), text(expression, "operator"), items(expression, "values"));
        if !SCOPES.contains(&scope) {
            errors.push(invalid(&path.field("scopeName"), scope, "unsupported scope"));
        }
        for _ in hard.iter().filter(|resource| !scope_fits(scope, resource)) {
            let value = show(&spec["scopeSelector"], SELECTOR);
            errors.push(FieldError { value, ..invalid(&path, "", "unsupported scope applied to resource") });
        }
        let plain = matches!(scope, "BestEffort" | "NotBestEffort" | "Terminating" | "NotTerminating" | "CrossNamespacePodAffinity");
        if plain && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(invalid(&path.field("operator"), operator, why));
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(FieldError::required(path.field("values"), why));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(FieldError::invalid(path.field("values"), &expression["values"], why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(invalid(&path.field("operator"), operator, "not a valid selector operator")),
        }
    }
    let scopes: Vec<&str> = expressions.iter().map(|e| text(e, "scopeName")).collect();
    for _ in 0..conflicting(&scopes) {
        let shown = spec.get("scopes").cloned().unwrap_or(Value::Null);
        errors.push(FieldError::invalid(path, &shown, "conflicting scopes"));
    }
}

/// A changed quota keeps its scopes.
pub fn update_quota(new: &Value, old: &Value, errors: &mut Errors) {
    spec(&new["spec"], errors);
    let sorted = |quota: &Value| {
        let mut scopes: Vec<String> = items(&quota["spec"], "scopes").iter().filter_map(|s| s.as_str().map(str::to_owned)).collect();
        scopes.sort();
        scopes.dedup();
        scopes
    };
    if sorted(new) != sorted(old) {
        field::immutable(errors, &new["spec"], &old["spec"], &SPEC, "scopes");
    }
}

/// A LimitRange: its bounds must not contradict each other.
pub fn limit_range(range: &Value, errors: &mut Errors) {
    let list = SPEC.field("limits");
    let limits = items(&range["spec"], "limits");
    for (i, limit) in limits.iter().enumerate() {
        let path = list.index(i);
        let kind = text(limit, "type");
        let why = names::qualified(kind);
        if why.is_empty() && !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") {
            errors.push(invalid(&path.field("type"), kind, "must be a standard limit type or fully qualified"));
        }
        wrong(errors, &path.field("type"), kind, why);
        if limits[..i].iter().any(|l| text(l, "type") == kind) {
            errors.push(FieldError::duplicate(path.field("type"), &kind.into()));
        }
        let names_of = |list: &str, errors: &mut Errors| {
            let at = path.field(list);
            for (name, _) in entries(limit, list) {
                match kind {
                    "Pod" | "Container" => resources::container_name(name, &at.key(name), errors),
                    _ => drop(resources::name(name, &at.key(name), errors)),
                }
            }
        };
        names_of("max", errors);
        names_of("min", errors);
        let is_pod = kind == "Pod";
        for list in ["default", "defaultRequest"] {
            if !is_pod {
                names_of(list, errors);
            } else if map(limit, list).is_some_and(|m| !m.is_empty()) {
                errors.push(FieldError::forbidden(path.field(list), "may not be specified when `type` is 'Pod'"));
            }
        }
        if kind == "PersistentVolumeClaim" && limit["min"].get("storage").is_none() && limit["max"].get("storage").is_none() {
            let why = "either minimum or maximum storage value is required, but neither was provided";
            errors.push(FieldError::required(path.field("limits"), why));
        }
        names_of("maxLimitRequestRatio", errors);
        let lists: &[&str] = if is_pod { &["max", "min"] } else { &["max", "min", "default", "defaultRequest"] };
        let mut keys: Vec<&String> =
            lists.iter().chain(&["maxLimitRequestRatio"]).flat_map(|list| entries(limit, list).map(|(key, _)| key)).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            bounds(limit, key, is_pod, &path, errors);
        }
    }
}

/// What contradicts what of one resource.
fn bounds(limit: &Value, key: &str, is_pod: bool, path: &Path<'_>, errors: &mut Errors) {
    let of = |list: &str| limit[list].get(key).and_then(quantity).filter(|_| !(is_pod && list.starts_with("default")));
    let (min, max, default, request) = (of("min"), of("max"), of("default"), of("defaultRequest"));
    let mut wrong = |list: &str, shown: Quantity, why: String| {
        let at = path.field(list);
        let field = at.key(key).to_string();
        errors.push(FieldError { field, reason: FieldReason::Invalid, value: format!("{:?}", shown.to_string()), detail: why });
    };
    // A real server shows the bound in some and the value in others.
    type Told = (&'static str, Option<Quantity>, &'static str, Option<Quantity>, &'static str, bool);
    let pairs: [Told; 6] = [
        ("min", min, "min", max, "max", true),
        ("defaultRequest", min, "min", request, "default request", false),
        ("defaultRequest", request, "default request", max, "max", true),
        ("defaultRequest", request, "default request", default, "default limit", true),
        ("default", min, "min", default, "default", true),
        ("default", default, "default", max, "max", false),
    ];
    for (list, low, low_name, high, high_name, shows_low) in pairs {
        if let (Some(low), Some(high)) = (low, high)
            && low > high
        {
            let shown = if shows_low { low } else { high };
            wrong(list, shown, format!("{low_name} value {low} is greater than {high_name} value {high}"));
        }
    }
    if let Some(ratio) = of("maxLimitRequestRatio") {
        if ratio.nanos() < 1_000_000_000 {
            wrong("maxLimitRequestRatio", ratio, format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (min, max) {
            let most = max.milli() as f64 / min.milli() as f64;
            if ratio.milli() as f64 / 1000.0 > most {
                wrong("maxLimitRequestRatio", ratio, format!("ratio {ratio} is greater than max/min = {most:.6}"));
            }
        }
    }
    let overcommits = !key.starts_with("hugepages-") && (!key.contains('/') || key.contains("kubernetes.io/"));
    if let (false, Some(default), Some(request)) = (overcommits, default, request)
        && default.nanos() != request.nanos()
    {
        wrong("defaultRequest", request, format!("default value {default} must equal to defaultRequest value {request} in {key}"));
    }
}
