//! Amounts of resources: how they are named, which names go where, and how requests and limits belong together.

use std::collections::BTreeMap;

use serde_json::Value;

use super::field::{Errors, Path, entries, has, invalid, items, map, text, wrong};
use super::names;
use crate::schema::quantity::Quantity;
use crate::status::FieldError;

/// Names that mean something without a domain.
const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];
/// Those that are counted in whole numbers.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const PAGES: &str = "hugepages-";

/// The amount that a field holds.
pub fn quantity(amount: &Value) -> Option<Quantity> {
    match amount {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

/// An amount that is not below zero.
pub fn non_negative_quantity(amount: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(amount) = quantity(amount).filter(|q| q.nanos() < 0) {
        errors.push(invalid(path, &amount.to_string(), "must be greater than or equal to 0"));
    }
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified(&format!("requests.{name}")).is_empty()
}

fn may_overcommit(name: &str) -> bool {
    is_native(name) && !name.starts_with(PAGES)
}

/// A name of any resource.
pub fn name(name: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let why = names::qualified(name);
    let right = why.is_empty();
    wrong(errors, path, name, why);
    if right && !name.contains('/') && !STANDARD.contains(&name) && !name.starts_with(PAGES) && !name.starts_with("requests.hugepages-") {
        errors.push(invalid(path, name, "must be a standard resource type or fully qualified"));
        return false;
    }
    right
}

/// A name of something that a container can have.
pub fn container_name(resource: &str, path: &Path<'_>, errors: &mut Errors) {
    name(resource, path, errors);
    if !resource.contains('/') {
        if !matches!(resource, "cpu" | "memory" | "ephemeral-storage") && !resource.starts_with(PAGES) {
            errors.push(invalid(path, resource, "must be a standard resource for containers"));
        }
    } else if !is_native(resource) && !is_extended(resource) {
        errors.push(invalid(path, resource, "doesn't follow extended resource name standard"));
    }
}

fn pod_name(resource: &str, path: &Path<'_>, errors: &mut Errors) {
    if name(resource, path, errors) && !matches!(resource, "cpu" | "memory") && !resource.starts_with(PAGES) {
        errors.push(FieldError::not_supported(path, &resource.into(), &["cpu", "hugepages-", "memory"]));
    }
}

/// A name that a quota can count.
pub fn quota_name(resource: &str, path: &Path<'_>, errors: &mut Errors) {
    name(resource, path, errors);
    let known = STANDARD.contains(&resource) && resource != "storage";
    if !resource.contains('/') && !known && !resource.starts_with(PAGES) && !resource.starts_with("requests.hugepages-") {
        errors.push(invalid(path, resource, "must be a standard resource for quota"));
    }
}

/// An amount of a resource: not below zero, and whole where it is counted.
pub fn amount(resource: &str, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    non_negative_quantity(value, path, errors);
    if (COUNTED.contains(&resource) || is_extended(resource))
        && let Some(amount) = quantity(value).filter(|q| q.milli() % 1000 != 0)
    {
        errors.push(invalid(path, &amount.to_string(), "must be an integer"));
    }
}

/// Whether huge pages come in whole ones.
fn pages(resource: &str, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (Some(size), Some(amount)) = (resource.strip_prefix(PAGES), quantity(value)) else { return };
    let size = Quantity::parse(size).ok().filter(|size| size.nanos() > 0 && size.milli() % 1000 == 0);
    if size.is_none_or(|size| amount.units() % size.units() != 0) {
        let why = format!("{amount} is not positive integer multiple of {resource}");
        errors.push(invalid(path, &amount.to_string(), why));
    }
}

/// Limits and requests of a container of a Pod's spec.
pub fn container(spec: &Value, resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    requirements(spec, resources, path, container_name, errors);
}

fn requirements(spec: &Value, resources: &Value, path: &Path<'_>, named: fn(&str, &Path<'_>, &mut Errors), errors: &mut Errors) {
    let limits = path.field("limits");
    for (resource, value) in entries(resources, "limits") {
        let at = limits.key(resource);
        named(resource, &at, errors);
        amount(resource, value, &at, errors);
        pages(resource, value, &at, errors);
    }
    let requests = path.field("requests");
    for (resource, value) in entries(resources, "requests") {
        let at = requests.key(resource);
        named(resource, &at, errors);
        amount(resource, value, &at, errors);
        match resources["limits"].get(resource) {
            Some(limit) => {
                if let (Some(request), Some(most)) = (quantity(value), quantity(limit)) {
                    if !may_overcommit(resource) && request.nanos() != most.nanos() {
                        errors.push(invalid(&requests, &request.to_string(), format!("must be equal to {resource} limit of {most}")));
                    } else if request > most {
                        let why = format!("must be less than or equal to {resource} limit of {most}");
                        errors.push(invalid(&requests, &request.to_string(), why));
                    }
                }
            }
            None if !may_overcommit(resource) => {
                errors.push(FieldError::required(limits, "Limit must be set for non overcommitable resources"));
            }
            None => {}
        }
        pages(resource, value, &at, errors);
    }
    let any = |wanted: fn(&str) -> bool| ["limits", "requests"].iter().any(|list| entries(resources, list).any(|(name, _)| wanted(name)));
    if any(|name| name.starts_with(PAGES)) && !any(|name| matches!(name, "cpu" | "memory")) {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
    claims(spec, resources, &path.field("claims"), errors);
}

fn claims(spec: &Value, resources: &Value, list: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<String> = Vec::new();
    for (i, claim) in items(resources, "claims").iter().enumerate() {
        let (name, request, at) = (text(claim, "name"), text(claim, "request"), list.index(i));
        if name.is_empty() {
            errors.push(FieldError::required(at, ""));
            continue;
        }
        if seen.iter().any(|key| key == name) {
            errors.push(FieldError::duplicate(at, &name.into()));
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                wrong(errors, &at.field("request"), request, names::label(request));
                key = format!("{name}/{request}");
            }
            if seen.contains(&key) {
                errors.push(FieldError::duplicate(at, &key.clone().into()));
            } else if request.is_empty() {
                let overlaps = seen.iter().filter(|key| key.split_once('/').is_some_and(|(claim, _)| claim == name)).count();
                errors.extend((0..overlaps).map(|_| FieldError::duplicate(at, &name.into())));
            }
            seen.push(key);
        }
        let mut known: Vec<&str> = items(spec, "resourceClaims").iter().map(|c| text(c, "name")).filter(|n| !n.is_empty()).collect();
        if !known.contains(&name) {
            known.sort_unstable();
            known.dedup();
            let rest = if known.is_empty() { " which is empty".to_owned() } else { format!(": {}", known.join(", ")) };
            let detail = format!("must be one of the names in pod.spec.resourceClaims{rest}");
            errors.push(FieldError { detail, ..FieldError::not_found(at, &name.into()) });
        }
    }
}

/// `resources` of a Pod as a whole, which its containers share.
pub fn pod(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(resources) = spec.get("resources").filter(|r| r.is_object()) else { return };
    let path = path.field("resources");
    if text(&spec["os"], "name") == "windows" {
        errors.push(FieldError::forbidden(path, "may not be set for a windows pod"));
        return;
    }
    if has(resources, "claims") {
        errors.push(FieldError::forbidden(path.field("claims"), "claims may not be set for Resources at pod-level"));
    }
    requirements(spec, resources, &path, pod_name, errors);
    let (requests, limits) = (path.field("requests"), path.field("limits"));
    for (resource, total) in aggregate(spec, "requests") {
        if let Some(whole) = resources["requests"].get(&resource).and_then(quantity).filter(|whole| total > *whole) {
            let why = format!("must be greater than or equal to aggregate container requests of {total}");
            errors.push(invalid(&requests.key(&resource), &whole.to_string(), why));
        }
    }
    for (resource, total) in aggregate(spec, "limits").into_iter().filter(|(name, _)| name.starts_with(PAGES)) {
        if let Some(whole) = resources["limits"].get(&resource).and_then(quantity).filter(|whole| total > *whole) {
            let why = format!("must be greater than or equal to aggregate container limits of {total}");
            errors.push(invalid(&limits.key(&resource), &whole.to_string(), why));
        }
    }
    let list = path.field("containers");
    for (i, container) in items(spec, "containers").iter().enumerate() {
        for (resource, limit) in map(&container["resources"], "limits").into_iter().flatten() {
            let whole = resources["limits"].get(resource).and_then(quantity);
            if let (Some(limit), Some(whole)) = (quantity(limit), whole)
                && limit > whole
            {
                let at = list.index(i);
                let at = at.key(resource);
                let why = format!("must be less than or equal to pod limits of {whole}");
                errors.push(invalid(&at.field("limits"), &limit.to_string(), why));
            }
        }
    }
}

/// What all containers need together: the running ones at once, those that initialise one after another beside their sidecars.
fn aggregate(spec: &Value, list: &str) -> BTreeMap<String, Quantity> {
    type Amounts = BTreeMap<String, Quantity>;
    let add = |to: &mut Amounts, from: &Amounts| {
        for (name, amount) in from {
            let sum = to.get(name).map_or(*amount, |had| had.plus(*amount));
            to.insert(name.clone(), sum);
        }
    };
    let largest = |to: &mut Amounts, from: &Amounts| {
        for (name, amount) in from {
            if to.get(name).is_none_or(|had| amount > had) {
                to.insert(name.clone(), *amount);
            }
        }
    };
    let of = |container: &Value| -> Amounts {
        let amounts = map(&container["resources"], list).into_iter().flatten();
        amounts.filter_map(|(name, amount)| Some((name.clone(), quantity(amount)?))).collect()
    };
    let (mut total, mut sidecars, mut initial) = (Amounts::new(), Amounts::new(), Amounts::new());
    items(spec, "containers").iter().for_each(|container| add(&mut total, &of(container)));
    for container in items(spec, "initContainers") {
        let mut needed = of(container);
        if text(container, "restartPolicy") == "Always" {
            add(&mut total, &needed);
            add(&mut sidecars, &needed);
            needed = sidecars.clone();
        } else {
            add(&mut needed, &sidecars);
        }
        largest(&mut initial, &needed);
    }
    largest(&mut total, &initial);
    total
}
