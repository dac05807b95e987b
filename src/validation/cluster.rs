//! Small kinds that keep a cluster: Nodes, Leases, PriorityClasses.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, items, non_negative, number, one_of, text};
use super::names;
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
/// The highest priority that is not the system's.
const HIGHEST: i64 = 1_000_000_000;

/// A Node.
pub fn node(node: &Value, errors: &mut Errors) {
    let list = SPEC.field("taints");
    let taints = items(&node["spec"], "taints");
    for (i, taint) in taints.iter().enumerate() {
        let path = list.index(i);
        let key = text(taint, "key");
        errors.extend(names::qualified(key).into_iter().map(|why| invalid(&path.field("key"), key, why)));
        let value = text(taint, "value");
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            errors.push(invalid(&path.field("value"), value, wrong.join(";")));
        }
        one_of(errors, taint, &path, "effect", true, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        if taints[..i].iter().any(|t| t["key"] == taint["key"] && t["effect"] == taint["effect"]) {
            errors.push(FieldError { detail: "taints must be unique by key and effect pair".into(), ..FieldError::duplicate(path, taint) });
        }
    }
    let list = SPEC.field("podCIDRs");
    for (i, cidr) in items(&node["spec"], "podCIDRs").iter().filter_map(Value::as_str).enumerate() {
        if !super::formats::is_cidr(cidr) {
            errors.push(invalid(&list.index(i), cidr, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"));
        }
    }
}

/// A changed Node.
pub fn update_node(new: &Value, old: &Value, errors: &mut Errors) {
    node(new, errors);
    for (name, why) in [("providerID", "node updates may not change providerID except from \"\" to valid")] {
        if !text(&old["spec"], name).is_empty() && text(&old["spec"], name) != text(&new["spec"], name) {
            errors.push(FieldError::forbidden(SPEC.field(name), why));
        }
    }
    let cidrs = |node: &Value| items(&node["spec"], "podCIDRs").to_vec();
    if !cidrs(old).is_empty() && cidrs(new) != cidrs(old) {
        errors.push(FieldError::forbidden(SPEC.field("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid"));
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
}

/// A PriorityClass.
pub fn priority_class(class: &Value, errors: &mut Errors) {
    let name = text(&class["metadata"], "name");
    let value = number(class, "value").unwrap_or(0);
    let known = [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
    if name.starts_with("system-") {
        if !known.contains(&(name, value)) {
            let why = "priority class names with 'system-' prefix are reserved for system use only";
            errors.push(FieldError::forbidden(Path::root("metadata").field("name"), why));
        }
    } else if value > HIGHEST {
        let why = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        errors.push(FieldError::forbidden("value", why));
    }
    one_of(errors, class, &Path::object(), "preemptionPolicy", false, &["Never", "PreemptLowerPriority"]);
}

/// A changed PriorityClass.
pub fn update_priority_class(new: &Value, old: &Value, errors: &mut Errors) {
    if number(new, "value").unwrap_or(0) != number(old, "value").unwrap_or(0) {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    if has(old, "preemptionPolicy") {
        field::immutable(errors, new, old, &Path::object(), "preemptionPolicy");
    }
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
    if version.is_empty() {
        errors.push(FieldError::required(SPEC.field("version"), ""));
    } else {
        errors.extend(names::label_1035(version).into_iter().map(|why| invalid(&SPEC.field("version"), version, why)));
    }
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
            errors.push(FieldError::invalid(SPEC.field("caBundle"), &spec["caBundle"], "local APIServices may not have a caBundle"));
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
    if insecure && !text(spec, "caBundle").is_empty() {
        errors.push(FieldError::invalid(path, &true.into(), "may not be true if caBundle is present"));
    }
}

/// A RuntimeClass.
pub fn runtime_class(class: &Value, errors: &mut Errors) {
    let handler = text(class, "handler");
    errors.extend(names::label(handler).into_iter().map(|why| invalid(&Path::root("handler"), handler, why)));
}

/// The handler of a RuntimeClass is settled.
pub fn update_runtime_class(new: &Value, old: &Value, errors: &mut Errors) {
    field::immutable(errors, new, old, &Path::object(), "handler");
}

/// A FlowSchema.
pub fn flow_schema(schema: &Value, errors: &mut Errors) {
    let spec = &schema["spec"];
    let precedence = number(spec, "matchingPrecedence").unwrap_or(0);
    let path = SPEC.field("matchingPrecedence");
    if precedence <= 0 {
        errors.push(FieldError::invalid(path, &precedence.into(), "must be a positive value"));
    } else if precedence > 10_000 {
        errors.push(FieldError::invalid(path, &precedence.into(), "must not be greater than 10000"));
    }
    if has(spec, "distinguisherMethod") {
        one_of(errors, &spec["distinguisherMethod"], &SPEC.field("distinguisherMethod"), "type", true, &["ByNamespace", "ByUser"]);
    }
    let path = SPEC.field("priorityLevelConfiguration");
    if text(&spec["priorityLevelConfiguration"], "name").is_empty() {
        errors.push(FieldError::required(path.field("name"), "must reference a priority level"));
    }
}
