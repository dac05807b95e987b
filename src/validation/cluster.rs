//! Small kinds that keep a cluster: Nodes, Leases, PriorityClasses.

use base64::Engine;
use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, items, non_negative, number, one_of, text};
use super::{address, names, resources};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
/// The highest priority that is not the system's.
const HIGHEST: i64 = 1_000_000_000;

/// A Node.
pub fn node(node: &Value, errors: &mut Errors) {
    taints(node, errors);
    node_resources(node, errors);
    cidrs(node, errors);
}

/// The blocks of addresses of a Node: one of each family.
fn cidrs(node: &Value, errors: &mut Errors) {
    let (cidrs, list) = (items(&node["spec"], "podCIDRs"), SPEC.field("podCIDRs"));
    for (i, cidr) in cidrs.iter().filter_map(Value::as_str).enumerate() {
        address::cidr(errors, &list.index(i), cidr);
    }
    if cidrs.len() > 1 {
        let addresses = cidrs.iter().filter_map(Value::as_str).map(|cidr| cidr.split('/').next().unwrap_or_default());
        if address::is_dual_stack(addresses) != Ok(true) || cidrs.len() > 2 {
            let why = "may specify no more than one CIDR for each IP family";
            errors.push(FieldError::invalid(list, &node["spec"]["podCIDRs"], why));
        }
    }
}

/// What a real server says of taints, it says of a field of the metadata.
fn taints(node: &Value, errors: &mut Errors) {
    use super::internal::{Field, show};
    const TAINT: &[Field] = &[
        Field::text("Key", "key"),
        Field::text("Value", "value"),
        Field::text("Effect", "effect"),
        Field::plain("TimeAdded", "timeAdded"),
    ];
    let list = Path::root("metadata");
    let list = list.field("taints");
    let taints = items(&node["spec"], "taints");
    for (i, taint) in taints.iter().enumerate() {
        let path = list.index(i);
        let (key, value) = (text(taint, "key"), text(taint, "value"));
        field::wrong(errors, &path.field("key"), key, names::qualified(key));
        let why = names::label_value(value);
        if !why.is_empty() {
            errors.push(invalid(&path.field("value"), value, why.join(";")));
        }
        one_of(errors, taint, &path, "effect", true, &super::scheduling::EFFECTS);
        if taints[..i].iter().any(|t| text(t, "key") == key && text(t, "effect") == text(taint, "effect")) {
            let detail = "taints must be unique by key and effect pair".into();
            errors.push(FieldError { detail, value: show(taint, TAINT), ..FieldError::duplicate(path, &Value::Null) });
        }
    }
}

fn node_resources(node: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    for name in ["capacity", "allocatable"] {
        let path = path.field(name);
        for (resource, amount) in field::entries(&node["status"], name) {
            resources::amount(resource, amount, &path.field(resource), errors);
        }
    }
}

/// A changed Node, or its status.
pub fn update_node(new: &Value, old: &Value, errors: &mut Errors) {
    node_resources(new, errors);
    let (addresses, list) = (items(&new["status"], "addresses"), Path::root("status"));
    let list = list.field("addresses");
    for (i, address) in addresses.iter().enumerate().filter(|(i, address)| addresses[..*i].contains(address)) {
        let (kind, place) = (Value::from(text(address, "type")), Value::from(text(address, "address")));
        let value = format!("{{\"Type\":{kind},\"Address\":{place}}}");
        errors.push(FieldError { value, ..FieldError::duplicate(list.index(i), &Value::Null) });
    }
    cidrs(new, errors);
    let given = |node: &Value| items(&node["spec"], "podCIDRs").to_vec();
    let (after, before) = (given(new), given(old));
    if !before.is_empty() {
        let changed = if after.len() == before.len() { after.iter().zip(&before).filter(|(a, b)| a != b).count() } else { 1 };
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.extend((0..changed).map(|_| FieldError::forbidden(SPEC.field("podCIDRs"), why)));
    }
    let provider = |node: &Value| text(&node["spec"], "providerID").to_owned();
    if !provider(old).is_empty() && provider(new) != provider(old) {
        let what = if provider(new).is_empty() { "cleared" } else { "modified" };
        errors.push(FieldError::invalid(SPEC.field("providerID"), &Value::Null, format!("field cannot be {what} once set")));
    }
    taints(new, errors);
    if text(&new["spec"], "externalID") != text(&old["spec"], "externalID") {
        errors.push(FieldError::forbidden(SPEC.field("externalID"), "may not be updated"));
    }
}

/// A Namespace.
pub fn namespace(namespace: &Value, errors: &mut Errors) {
    let path = SPEC.field("finalizers");
    for finalizer in items(&namespace["spec"], "finalizers").iter().filter_map(Value::as_str) {
        super::metadata::finalizer(finalizer, &path, errors);
    }
}

/// The status of a Namespace says what its deletion says.
pub fn namespace_status(namespace: &Value, errors: &mut Errors) {
    let phase = text(&namespace["status"], "phase");
    let (wanted, when) = match has(&namespace["metadata"], "deletionTimestamp") {
        true => ("Terminating", "is not empty"),
        false => ("Active", "is empty"),
    };
    if phase != wanted {
        let why = format!("may only be '{wanted}' if `deletionTimestamp` {when}");
        errors.push(FieldError::invalid("status.Phase", &phase.into(), why));
    }
}

/// A Lease.
pub fn lease(lease: &Value, errors: &mut Errors) {
    let spec = &lease["spec"];
    if let Some(seconds) = number(spec, "leaseDurationSeconds").filter(|s| *s <= 0) {
        errors.push(FieldError::invalid(SPEC.field("leaseDurationSeconds"), &seconds.into(), "must be greater than 0"));
    }
    non_negative(errors, spec, &SPEC, "leaseTransitions");
    let strategy = text(spec, "strategy");
    let path = SPEC.field("strategy");
    let at = path.field("strategy");
    if has(spec, "strategy") && !strategy.contains('/') && strategy != "OldestEmulationVersion" {
        errors.push(FieldError::not_supported(at, &strategy.into(), &["OldestEmulationVersion"]));
    } else if strategy.contains('/') {
        field::wrong(errors, &at, strategy, names::qualified(strategy));
    }
    if !text(spec, "preferredHolder").is_empty() && strategy.is_empty() {
        let why = "may only be specified if `strategy` is defined";
        errors.push(FieldError::forbidden(SPEC.field("preferredHolder"), why));
    }
}

/// A PriorityClass.
pub fn priority_class(class: &Value, errors: &mut Errors) {
    let name = text(&class["metadata"], "name");
    let value = number(class, "value").unwrap_or(0);
    let known = [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
    if name.starts_with("system-") {
        let why = match known.iter().find(|(known, _)| *known == name) {
            None => format!("{name} is not a known system priority class"),
            Some((_, wanted)) if *wanted != value => format!("value of {name} PriorityClass must be {wanted}"),
            Some(_) if field::flag(class, "globalDefault") => format!("globalDefault of {name} PriorityClass must be false"),
            Some(_) => String::new(),
        };
        if !why.is_empty() {
            let why = format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}");
            errors.push(FieldError::forbidden(Path::root("metadata").field("name"), why));
        }
    } else if value > HIGHEST {
        let why = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        errors.push(FieldError::forbidden("value", why));
    }
    if has(class, "preemptionPolicy") {
        one_of(errors, class, &Path::object(), "preemptionPolicy", true, &["PreemptLowerPriority", "Never"]);
    }
}

/// A changed PriorityClass.
pub fn update_priority_class(new: &Value, old: &Value, errors: &mut Errors) {
    if number(new, "value").unwrap_or(0) != number(old, "value").unwrap_or(0) {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    field::immutable(errors, new, old, &Path::object(), "preemptionPolicy");
}

/// An APIService; one without a Service is answered by this server itself.
pub fn api_service(service: &Value, errors: &mut Errors) {
    let spec = &service["spec"];
    let (name, group, version) = (text(&service["metadata"], "name"), text(spec, "group"), text(spec, "version"));
    let wanted = format!("{version}.{group}");
    if name != wanted && !(group.is_empty() && name == format!("{version}.")) {
        let why = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        errors.push(invalid(&Path::root("metadata").field("name"), name, why));
    }
    if group.is_empty() && version != "v1" {
        errors.push(FieldError::required(SPEC.field("group"), "only v1 may have an empty group and it better be legacy kube"));
    }
    if !group.is_empty() {
        field::wrong(errors, &SPEC.field("group"), group, names::subdomain(group));
    }
    field::wrong(errors, &SPEC.field("version"), version, names::label_1035(version));
    for (name, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        let value = number(spec, name).unwrap_or(0);
        if !(1..=most).contains(&value) {
            errors.push(FieldError::invalid(SPEC.field(name), &value.into(), format!("must be positive and less than {most}")));
        }
    }
    let insecure = spec["insecureSkipTLSVerify"] == true;
    let path = SPEC.field("insecureSkipTLSVerify");
    if !has(spec, "service") {
        if has(spec, "caBundle") && !text(spec, "caBundle").is_empty() {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text(spec, "caBundle")).unwrap_or_default().len();
            errors.push(invalid(&SPEC.field("caBundle"), &format!("{bytes} bytes"), "local APIServices may not have a caBundle"));
        }
        if insecure {
            errors.push(FieldError::invalid(path, &true.into(), "local APIServices may not have insecureSkipTLSVerify"));
        }
        return;
    }
    let at = SPEC.field("service");
    for name in ["namespace", "name"] {
        if text(&spec["service"], name).is_empty() {
            errors.push(FieldError::required(at.field(name), ""));
        }
    }
    let port = number(&spec["service"], "port").unwrap_or_default();
    if !(1..=65535).contains(&port) {
        let why = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(at.field("port"), &port.into(), why));
    }
    if insecure && !text(spec, "caBundle").is_empty() {
        errors.push(FieldError::invalid(path, &true.into(), "may not be true if caBundle is present"));
    }
}

/// A migration of stored objects.
pub fn migration(migration: &Value, errors: &mut Errors) {
    let path = SPEC.field("resource");
    let target = &migration["spec"]["resource"];
    let (name, group) = (text(target, "resource"), text(target, "group"));
    let bad = names::label_1035(name);
    if name.is_empty() {
        errors.push(FieldError::required(path.field("resource"), "resource is required to be set"));
    } else if !bad.is_empty() {
        errors.push(invalid(&path.field("resource"), name, bad.join(",")));
    }
    let bad = names::subdomain(group);
    if !group.is_empty() && !bad.is_empty() {
        errors.push(invalid(&path.field("group"), group, bad.join(",")));
    }
}

/// A RuntimeClass.
pub fn runtime_class(class: &Value, errors: &mut Errors) {
    if let Some(fixed) = class["overhead"].get("podFixed") {
        let limits = serde_json::json!({"limits": fixed});
        resources::container(&Value::Null, &limits, &Path::root("overhead"), errors);
    }
    if has(class, "scheduling") {
        let (scheduling, path) = (&class["scheduling"], Path::root("scheduling"));
        super::metadata::label_map(scheduling, "nodeSelector", &path, errors);
        super::scheduling::tolerations(scheduling, &path, errors);
        let (tolerations, list) = (items(scheduling, "tolerations"), path.field("tolerations"));
        let key = |t: &Value| ["key", "operator", "value", "effect"].map(|name| text(t, name).to_owned());
        for (i, toleration) in tolerations.iter().enumerate() {
            if tolerations[..i].iter().any(|t| key(t) == key(toleration)) {
                let [name, operator, value, effect] = key(toleration).map(|text| Value::from(text).to_string());
                let seconds = toleration.get("tolerationSeconds").unwrap_or(&Value::Null);
                let value = format!(
                    "{{\"Key\":{name},\"Operator\":{operator},\"Value\":{value},\"Effect\":{effect},\"TolerationSeconds\":{seconds}}}"
                );
                errors.push(FieldError { value, ..FieldError::duplicate(list.index(i), &Value::Null) });
            }
        }
    }
    // By newer rules, told last.
    field::required_shape(errors, class, &Path::object(), "handler", names::label_in_bytes);
}

/// The handler of a RuntimeClass is settled.
pub fn update_runtime_class(new: &Value, old: &Value, errors: &mut Errors) {
    field::settled(errors, new, old, &Path::object(), "handler");
}
