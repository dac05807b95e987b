//! Devices that Pods claim: claims and their templates, classes, and what devices are called. What nodes offer is in
//! `device_slices`. Rules that a real server has moved to its newer way of saying them are told behind the others.

use std::sync::LazyLock;

use serde_json::Value;
use usher_cel::{Environment, Type};

use super::field::{self, Errors, Path, has, invalid, items, number, object, one_of, text, wrong};
use super::{metadata, names, selector, volume};
use crate::admission::expression;
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
/// The most requests, constraints, configurations and selectors.
const MOST: usize = 32;
/// The longest expression, and the most bytes of opaque parameters.
const LONGEST: usize = 10 * 1024;
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
const REFERENCE: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| Environment::kubernetes().variable("device", Type::Dyn));

/// A ResourceClaim.
pub fn claim(claim: &Value, errors: &mut Errors) {
    let mut behind = claim_spec(&claim["spec"], &SPEC, errors);
    errors.append(&mut behind);
}

/// A ResourceClaimTemplate.
pub fn template(template: &Value, errors: &mut Errors) {
    let mut behind = template_spec(template, errors);
    errors.append(&mut behind);
}

/// What newer rules say of a template is given back, to be told last.
fn template_spec(template: &Value, errors: &mut Errors) -> Errors {
    let (spec, path) = (&template["spec"], SPEC.field("metadata"));
    metadata::of_template(&spec["metadata"], &path, errors);
    claim_spec(&spec["spec"], &SPEC.field("spec"), errors)
}

/// A DeviceClass.
pub fn class(class: &Value, errors: &mut Errors) {
    let spec = &class["spec"];
    let mut behind = Vec::new();
    selectors(spec, &SPEC, &mut behind, errors);
    let (configurations, list) = (items(spec, "config"), SPEC.field("config"));
    if fits(configurations, MOST, &list, &mut behind) {
        for (i, configuration) in configurations.iter().enumerate() {
            opaque(configuration, &list.index(i), &mut behind, errors);
        }
    }
    if has(spec, "extendedResourceName") {
        extended_resource(text(spec, "extendedResourceName"), &SPEC.field("extendedResourceName"), &mut behind);
    }
    errors.append(&mut behind);
}

/// A resource of somebody else's, under whose name a quota can count it.
fn extended_resource(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if !name.contains('/') {
        errors.push(invalid(path, name, "a name must be a domain-prefixed path, such as 'example.com/my-prop'"));
    } else if name.contains("kubernetes.io/") {
        errors.push(invalid(path, name, "must not have \"kubernetes.io/\" domain"));
    }
    if name.starts_with("requests.") {
        errors.push(invalid(path, name, "must not have \"requests.\" prefix"));
    }
    wrong(errors, path, name, names::qualified(&format!("requests.{name}")));
}

/// Whether a list is no longer than it may be. One that is is told of, and not looked into.
pub fn fits(list: &[Value], most: usize, path: &Path<'_>, errors: &mut Errors) -> bool {
    if list.len() > most {
        errors.push(FieldError::too_many(path, list.len(), most));
    }
    list.len() <= most
}

/// Tells of what a list of named things has twice.
fn twice(list: &[Value], key: &str, path: &Path<'_>, errors: &mut Errors) {
    for (i, item) in list.iter().enumerate() {
        if list[..i].iter().any(|other| text(other, key) == text(item, key)) {
            errors.push(FieldError::duplicate(path.index(i), &serde_json::json!({ key: text(item, key) })));
        }
    }
}

fn claim_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) -> Errors {
    let (claim, path) = (&spec["devices"], path.field("devices"));
    let mut behind = Vec::new();
    let (requests, list) = (items(claim, "requests"), path.field("requests"));
    if fits(requests, MOST, &list, &mut behind) {
        twice(requests, "name", &list, &mut behind);
        for (i, request) in requests.iter().enumerate() {
            self::request(request, &list.index(i), &mut behind, errors);
        }
    }
    let (constraints, list) = (items(claim, "constraints"), path.field("constraints"));
    if fits(constraints, MOST, &list, &mut behind) {
        for (i, constraint) in constraints.iter().enumerate() {
            self::constraint(constraint, requests, &list.index(i), &mut behind, errors);
        }
    }
    let (configurations, list) = (items(claim, "config"), path.field("config"));
    if fits(configurations, MOST, &list, &mut behind) {
        for (i, configuration) in configurations.iter().enumerate() {
            let path = list.index(i);
            references(configuration, requests, &path, &mut behind, errors);
            opaque(configuration, &path, &mut behind, errors);
        }
    }
    behind
}

fn request(request: &Value, path: &Path<'_>, behind: &mut Errors, errors: &mut Errors) {
    const ONE: &str = "exactly one of `exactly` or `firstAvailable` is required";
    let name = text(request, "name");
    wrong(errors, &path.field("name"), name, names::label(name));
    let alternatives = items(request, "firstAvailable");
    match (object(request, "exactly"), !alternatives.is_empty()) {
        (None, false) => errors.push(FieldError::required(path, ONE)),
        (Some(_), true) => {
            errors.push(FieldError::invalid(path, &Value::Null, format!("{ONE}, but multiple fields are set")));
        }
        (Some(exact), false) => {
            let path = path.field("exactly");
            class_name(exact, &path, errors);
            of_class(exact, &path, behind, errors);
        }
        (None, true) => {
            let list = path.field("firstAvailable");
            if fits(alternatives, 8, &list, behind) {
                twice(alternatives, "name", &list, behind);
                for (i, alternative) in alternatives.iter().enumerate() {
                    let path = list.index(i);
                    let name = text(alternative, "name");
                    wrong(errors, &path.field("name"), name, names::label(name));
                    class_name(alternative, &path, behind);
                    of_class(alternative, &path, behind, errors);
                }
            }
        }
    }
}

fn class_name(request: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, path) = (text(request, "deviceClassName"), path.field("deviceClassName"));
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else {
        wrong(errors, &path, name, names::subdomain(name));
    }
}

/// What a request and a subrequest have in common.
fn of_class(request: &Value, path: &Path<'_>, behind: &mut Errors, errors: &mut Errors) {
    selectors(request, path, behind, errors);
    let count = number(request, "count").unwrap_or_default();
    match text(request, "allocationMode") {
        "All" if count != 0 => {
            let why = "must not be specified when allocationMode is 'All'";
            errors.push(FieldError::invalid(path.field("count"), &count.into(), why));
        }
        "All" => {}
        "ExactCount" if count <= 0 => {
            errors.push(FieldError::invalid(path.field("count"), &count.into(), "must be greater than zero"));
        }
        "ExactCount" => {}
        _ => one_of(behind, request, path, "allocationMode", false, &["All", "ExactCount"]),
    }
    let list = path.field("tolerations");
    for (i, toleration) in items(request, "tolerations").iter().enumerate() {
        self::toleration(toleration, &list.index(i), behind, errors);
    }
}

fn toleration(toleration: &Value, path: &Path<'_>, behind: &mut Errors, errors: &mut Errors) {
    let (key, value) = (text(toleration, "key"), text(toleration, "value"));
    if !key.is_empty() {
        wrong(behind, &path.field("key"), key, names::qualified(key));
    }
    match text(toleration, "operator") {
        "Exists" if !value.is_empty() => errors.push(invalid(&path.field("value"), value, "must be empty for operator `Exists`")),
        "Exists" => {}
        "Equal" => wrong(errors, &path.field("value"), value, names::label_value(value)),
        _ => one_of(behind, toleration, path, "operator", true, &["Equal", "Exists"]),
    }
    one_of(behind, toleration, path, "effect", false, &EFFECTS);
}

/// A taint of a device.
pub fn taint(taint: &Value, path: &Path<'_>, behind: &mut Errors, errors: &mut Errors) {
    let (key, value) = (text(taint, "key"), text(taint, "value"));
    wrong(errors, &path.field("key"), key, names::qualified(key));
    if !value.is_empty() {
        wrong(errors, &path.field("value"), value, names::label_value(value));
    }
    one_of(behind, taint, path, "effect", true, &EFFECTS);
}

fn selectors(holder: &Value, path: &Path<'_>, behind: &mut Errors, errors: &mut Errors) {
    let (selectors, list) = (items(holder, "selectors"), path.field("selectors"));
    if !fits(selectors, MOST, &list, behind) {
        return;
    }
    for (i, selector) in selectors.iter().enumerate() {
        let path = list.index(i);
        let at = path.field("cel");
        let Some(cel) = object(selector, "cel") else {
            errors.push(FieldError::required(at, ""));
            continue;
        };
        let (source, at) = (text(cel, "expression"), at.field("expression"));
        if source.len() > LONGEST {
            errors.push(FieldError::too_long(at, LONGEST));
            continue;
        }
        match ENVIRONMENT.compile(source) {
            Ok(program) if matches!(program.output_type(), Type::Bool | Type::Dyn) => {}
            Ok(program) => {
                let why = format!("must evaluate to bool or the unknown type, not {}", program.output_type());
                errors.push(invalid(&at, source, why));
            }
            Err(error) => errors.push(invalid(&at, source, expression::compile_error(&error))),
        }
    }
}

fn constraint(constraint: &Value, requests: &[Value], path: &Path<'_>, behind: &mut Errors, errors: &mut Errors) {
    references(constraint, requests, path, behind, errors);
    let field = ["matchAttribute", "distinctAttribute"].into_iter().find(|field| has(constraint, field));
    match field {
        Some(field) => {
            let (name, path) = (text(constraint, field), path.field(field));
            attribute_name(name, &path, behind);
            if !name.contains('/') {
                behind.push(invalid(&path, name, "a fully qualified name must be a domain and a name separated by a slash"));
            }
        }
        None => errors.push(FieldError::required(
            path,
            "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
        )),
    }
}

/// The name of an attribute or a capacity: an identifier, with a domain where it is not the driver's own.
pub fn attribute_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, "name required"));
        return;
    }
    match name.split('/').collect::<Vec<_>>()[..] {
        [id] => identifier(id, path, errors),
        [domain, id] => {
            if domain.is_empty() {
                errors.push(invalid(path, "", "the domain must not be empty"));
            } else {
                volume::driver_name(domain, path, errors);
            }
            if id.is_empty() {
                errors.push(invalid(path, "", "the name must not be empty"));
            } else {
                identifier(id, path, errors);
            }
        }
        _ => {}
    }
}

fn identifier(id: &str, path: &Path<'_>, errors: &mut Errors) {
    if id.len() > MOST {
        errors.push(FieldError::too_long(path, MOST));
    }
    let right = id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !id.starts_with(|c: char| c.is_ascii_digit());
    if !right || id.is_empty() {
        let why = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";
        errors.push(invalid(path, id, why));
    }
}

fn references(holder: &Value, requests: &[Value], path: &Path<'_>, behind: &mut Errors, errors: &mut Errors) {
    let (names, list) = (items(holder, "requests"), path.field("requests"));
    if !fits(names, MOST, &list, behind) {
        return;
    }
    for (i, name) in names.iter().enumerate() {
        reference(name.as_str().unwrap_or_default(), requests, &list.index(i), errors);
        if names[..i].contains(name) {
            behind.push(FieldError::duplicate(list.index(i), name));
        }
    }
}

fn reference(name: &str, requests: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let parts: Vec<&str> = name.split('/').collect();
    if parts.len() > 2 {
        errors.push(invalid(path, name, REFERENCE));
        return;
    }
    for part in &parts {
        wrong(errors, path, part, names::label(part));
    }
    let found = requests.iter().find(|request| text(request, "name") == parts[0]).is_some_and(|request| {
        parts.get(1).is_none_or(|part| items(request, "firstAvailable").iter().any(|sub| text(sub, "name") == *part))
    });
    if !found {
        errors.push(invalid(path, name, REFERENCE));
    }
}

fn opaque(configuration: &Value, path: &Path<'_>, behind: &mut Errors, errors: &mut Errors) {
    let path = path.field("opaque");
    let Some(opaque) = object(configuration, "opaque") else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    volume::caseless_driver_name(text(opaque, "driver"), &path.field("driver"), behind);
    raw(opaque.get("parameters"), &path.field("parameters"), errors);
}

/// Something that only its reader understands: an object that is not too big.
fn raw(value: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    match value {
        None | Some(Value::Null) => errors.push(FieldError::required(path, "")),
        Some(value) if value.to_string().len() > LONGEST => errors.push(FieldError::too_long(path, LONGEST)),
        Some(Value::Object(_)) => {}
        Some(_) => errors.push(invalid(path, "<value omitted>", "must be a valid JSON object")),
    }
}

/// A changed claim: what it asks for stays as it is.
pub fn update_claim(new: &Value, old: &Value, errors: &mut Errors) {
    field::settled(errors, new, old, &Path::object(), "spec");
}

/// A changed template of claims, which is looked at once more before it is found to be settled.
pub fn update_template(new: &Value, old: &Value, errors: &mut Errors) {
    let mut behind = template_spec(new, errors);
    if new["spec"] != old["spec"] {
        let value = super::typed::show(&new["spec"], "ResourceClaimTemplateSpec").to_string();
        errors.push(FieldError { value, ..invalid(&SPEC, "", "field is immutable") });
    }
    errors.append(&mut behind);
}

/// The status of a claim: for whom it is reserved and what it was given.
pub fn claim_status(new: &Value, old: &Value, errors: &mut Errors) {
    let (status, path) = (&new["status"], Path::root("status"));
    let mut behind = Vec::new();
    let (reserved, list) = (items(status, "reservedFor"), path.field("reservedFor"));
    if fits(reserved, 256, &list, &mut behind) {
        for (i, consumer) in reserved.iter().enumerate() {
            field::required(errors, consumer, &list.index(i), &["resource", "name", "uid"]);
        }
        twice(reserved, "uid", &list, &mut behind);
    }
    if !reserved.is_empty() {
        let deleted = has(&new["metadata"], "deletionTimestamp");
        if !has(status, "allocation") {
            errors.push(FieldError::forbidden(list, "may not be specified when `allocated` is not set"));
        } else if deleted && reserved.iter().any(|consumer| !items(&old["status"], "reservedFor").contains(consumer)) {
            let why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.push(FieldError::forbidden(list, why));
        }
    }
    if let Some(allocation) = object(status, "allocation") {
        let path = path.field("allocation");
        if has(&old["status"], "allocation") {
            if old["status"]["allocation"] != *allocation {
                behind.push(FieldError::invalid(path, allocation, "field is immutable"));
            }
        } else {
            self::allocation(allocation, &new["spec"]["devices"], &path, &mut behind, errors);
        }
    }
    errors.append(&mut behind);
}

fn allocation(allocation: &Value, claim: &Value, path: &Path<'_>, behind: &mut Errors, errors: &mut Errors) {
    let devices = path.field("devices");
    let (results, list) = (items(&allocation["devices"], "results"), devices.field("results"));
    if fits(results, MOST, &list, behind) {
        for (i, result) in results.iter().enumerate() {
            let path = list.index(i);
            reference(text(result, "request"), items(claim, "requests"), &path.field("request"), errors);
            volume::driver_name(text(result, "driver"), &path.field("driver"), behind);
            pool_name(text(result, "pool"), &path.field("pool"), behind);
            let device = text(result, "device");
            wrong(errors, &path.field("device"), device, names::label(device));
        }
    }
    if let Some(nodes) = object(allocation, "nodeSelector") {
        selector::node_selector(nodes, &path.field("nodeSelector"), errors);
    }
}

/// The name of a pool of devices: subdomains between slashes.
pub fn pool_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if name.len() > 253 {
        errors.push(FieldError::too_long(path, 253));
    }
    for part in name.split('/') {
        wrong(errors, path, part, names::subdomain(part));
    }
}
