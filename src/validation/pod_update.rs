//! How little of a Pod can change once it is there, and what each of its subresources may change.

use serde_json::Value;

use super::field::{Errors, Path, has, invalid, items, number, text};
use super::{container, scheduling, security, typed};
use crate::status::FieldError;

const MIRROR: &str = "kubernetes.io/config.mirror";
const SPEC: Path<'static> = Path::root("spec");
const FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// A changed Pod.
pub fn update(new: &Value, old: &Value, errors: &mut Errors) {
    super::pod::whole(new, errors);
    annotations(new, old, errors);
    let (new, old) = (&new["spec"], &old["spec"]);
    for name in ["containers", "initContainers"] {
        let list = SPEC.field(name);
        if items(new, name).len() != items(old, name).len() {
            errors.push(FieldError::forbidden(list, "pod updates may not add or remove containers"));
            return;
        }
        for (i, container) in items(new, name).iter().enumerate() {
            if text(container, "image").is_empty() {
                errors.push(FieldError::required(list.index(i).field("image"), ""));
            }
            container::padded_image(container, &list.index(i), errors);
        }
    }
    if !deadline(new, old, errors) {
        return;
    }
    let tolerations = items(new, "tolerations");
    let kept = |toleration: &Value| {
        let without = stripped(toleration, "tolerationSeconds");
        tolerations.iter().any(|t| stripped(t, "tolerationSeconds") == without)
    };
    if items(old, "tolerations").iter().all(kept) {
        scheduling::tolerations(new, &SPEC, errors);
    } else {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden(SPEC.field("tolerations"), why));
    }
    let gates = items(old, "schedulingGates");
    let list = SPEC.field("schedulingGates");
    for (i, gate) in items(new, "schedulingGates").iter().enumerate().filter(|(_, g)| !gates.contains(g)) {
        let why = format!("only deletion is allowed, but found new scheduling gate '{}'", text(gate, "name"));
        errors.push(FieldError::forbidden(list.index(i).field("name"), why));
    }
    if new == old {
        return;
    }
    let gated = !gates.is_empty();
    if gated {
        scheduling::narrowed(new, old, &SPEC, errors);
    }
    let (mut after, mut before) = (comparable(new, gated), comparable(old, gated));
    let grace = "terminationGracePeriodSeconds";
    if number(&before, grace).is_some_and(|s| s < 0) && number(&after, grace) == Some(1) {
        strip(&mut after, grace);
        strip(&mut before, grace);
    }
    if after != before {
        let shown = typed::difference(old, &with_allowed(new, old, gated), "PodSpec");
        errors.push(FieldError::forbidden("spec", format!("{FIXED}\n{shown}")));
    }
}

fn annotations(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("metadata");
    let path = path.field("annotations");
    security::annotation_updates(new, old, &path, errors);
    super::pod::annotations(new, &path, errors);
}

/// A Pod whose ephemeral containers were written: there may be more than before.
pub fn update_ephemeral_containers(new: &Value, old: &Value, errors: &mut Errors) {
    super::pod::whole(new, errors);
    annotations(new, old, errors);
    if !old["metadata"]["annotations"][MIRROR].is_null() {
        *errors = vec![FieldError::forbidden("", "static pods do not support ephemeral containers")];
        return;
    }
    let name = "ephemeralContainers";
    let (new, old, path) = (&new["spec"], &old["spec"], SPEC.field(name));
    for before in items(old, name) {
        let called = text(before, "name");
        match items(new, name).iter().find(|container| text(container, "name") == called) {
            None => errors.push(FieldError::forbidden(path, format!("existing ephemeral containers {called:?} may not be removed\n"))),
            Some(now) if now != before => {
                let why = format!(
                    "existing ephemeral containers {called:?} may not be changed\n{}",
                    typed::difference(before, now, "EphemeralContainer")
                );
                errors.push(FieldError::forbidden(path, why));
            }
            Some(_) => {}
        }
    }
}

/// A Pod whose resources were written: cpu and memory may be other amounts, but must be there as they were, and the Pod stays in its class.
pub fn resize(new: &Value, old: &Value, errors: &mut Errors) {
    super::pod::whole(new, errors);
    let never = if !old["metadata"]["annotations"][MIRROR].is_null() {
        "static pods cannot be resized"
    } else if text(&old["spec"]["os"], "name") == "windows" {
        "windows pods cannot be resized"
    } else {
        ""
    };
    if !never.is_empty() {
        *errors = vec![FieldError::forbidden("", never)];
        return;
    }
    let (new_spec, old_spec) = (&new["spec"], &old["spec"]);
    let stored = old["status"]["qosClass"].as_str().unwrap_or_else(|| crate::object::qos::class(old_spec));
    if crate::object::qos::class(new_spec) != stored {
        errors.push(invalid(&SPEC, text(&new["status"], "qosClass"), "Pod QOS Class may not change as a result of resizing"));
    }
    let running = items(&old["status"], "containerStatuses").iter().find(|status| has(&status["state"], "running"));
    if running.is_some_and(|status| !has(status, "resources")) {
        errors.push(FieldError::forbidden(SPEC, "Pod running on node without support for resize"));
    }
    resize_pod(new_spec, old_spec, errors);
    let mut reordered = false;
    for name in ["containers", "initContainers"] {
        let (after, before, list) = (items(new_spec, name), items(old_spec, name), SPEC.field(name));
        if after.len() != before.len() {
            errors.push(FieldError::forbidden(list, format!("{name} may not be added or removed on resize")));
            reordered = true;
            continue;
        }
        for (i, _) in after.iter().zip(before).enumerate().filter(|(_, (now, then))| text(now, "name") != text(then, "name")) {
            errors.push(FieldError::forbidden(list.index(i).field("name"), format!("{name} may not be renamed or reordered on resize")));
            reordered = true;
        }
    }
    if reordered {
        return;
    }
    for name in ["initContainers", "containers"] {
        let list = SPEC.field(name);
        for (i, (now, before)) in items(new_spec, name).iter().zip(items(old_spec, name)).enumerate() {
            let at = list.index(i);
            let at = at.field("resources");
            for kind in ["requests", "limits"].into_iter().filter(|kind| is_removed(now, before, kind)) {
                errors.push(FieldError::forbidden(at.field(kind), format!("resource {kind} cannot be removed")));
            }
        }
    }
    for (now, before) in items(new_spec, "containers").iter().zip(items(old_spec, "containers")) {
        if masked(now) != masked(before) {
            errors.push(FieldError::forbidden(SPEC, "only cpu and memory resources are mutable"));
        }
    }
    let list = SPEC.field("initContainers");
    for (i, (now, before)) in items(new_spec, "initContainers").iter().zip(items(old_spec, "initContainers")).enumerate() {
        if masked(now) != masked(before) {
            let why = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.push(FieldError::forbidden(list.index(i), why));
        }
        let restarts = items(now, "resizePolicy").iter().filter(|policy| text(policy, "restartPolicy") == "RestartContainer");
        if now != before && text(now, "restartPolicy") != "Always" {
            let why = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
            errors.extend(restarts.map(|_| FieldError::forbidden(list.index(i), why)));
        }
    }
}

fn resize_pod(new: &Value, old: &Value, errors: &mut Errors) {
    let path = SPEC.field("resources");
    if !has(new, "resources") && has(old, "resources") {
        errors.push(FieldError::forbidden(path, "pod-level resources cannot be removed"));
        return;
    }
    for kind in ["requests", "limits"].into_iter().filter(|kind| is_removed(new, old, kind)) {
        errors.push(FieldError::forbidden(path.field(kind), format!("pod-level resource {kind} cannot be removed")));
    }
    if masked(new)["resources"] != masked(old)["resources"] {
        errors.push(FieldError::forbidden(SPEC, "only cpu and memory resources are mutable at pod-level"));
    }
}

/// Whether an amount that was there is no longer.
fn is_removed(new: &Value, old: &Value, kind: &str) -> bool {
    let amounts = |of: &Value| of["resources"].get(kind).and_then(Value::as_object).cloned().unwrap_or_default();
    let after = amounts(new);
    amounts(old).keys().any(|name| !after.contains_key(name))
}

/// Something with resources, without the amounts that can be resized and the policy of doing it.
fn masked(holder: &Value) -> Value {
    let mut holder = stripped(holder, "resizePolicy");
    for kind in ["requests", "limits"] {
        let empty = match holder.get_mut("resources").and_then(|r| r.get_mut(kind)).and_then(Value::as_object_mut) {
            None => false,
            Some(amounts) => {
                amounts.retain(|name, _| !matches!(name.as_str(), "cpu" | "memory"));
                amounts.is_empty()
            }
        };
        if empty && let Some(resources) = holder.get_mut("resources").and_then(Value::as_object_mut) {
            resources.remove(kind);
        }
    }
    if holder.get("resources").is_some_and(|r| r.as_object().is_some_and(serde_json::Map::is_empty)) {
        strip(&mut holder, "resources");
    }
    holder
}

/// Gives false where nothing more is looked at.
fn deadline(new: &Value, old: &Value, errors: &mut Errors) -> bool {
    let path = SPEC.field("activeDeadlineSeconds");
    match (number(new, "activeDeadlineSeconds"), number(old, "activeDeadlineSeconds")) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            errors.push(FieldError::invalid(path, &seconds.into(), "must be between 0 and 2147483647, inclusive"));
            return false;
        }
        (Some(new), Some(old)) if new > old => {
            errors.push(FieldError::invalid(path, &new.into(), "must be less than or equal to previous value"));
            return false;
        }
        (None, Some(_)) => errors.push(FieldError::invalid(path, &Value::Null, "must not update from a positive integer to nil value")),
        _ => {}
    }
    true
}

/// The spec without what may change, and without what is there only in one way of writing nothing.
fn comparable(spec: &Value, gated: bool) -> Value {
    let mut spec = spec.clone();
    for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates", "ephemeralContainers"] {
        strip(&mut spec, name);
    }
    if gated {
        // What a Pod that waits may still be told is checked apart.
        strip(&mut spec, "nodeSelector");
        if let Some(affinity) = spec.get_mut("affinity") {
            strip(affinity, "nodeAffinity");
            if affinity.as_object().is_some_and(serde_json::Map::is_empty) {
                strip(&mut spec, "affinity");
            }
        }
    }
    for name in ["containers", "initContainers"] {
        for container in spec.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten() {
            strip(container, "image");
        }
    }
    without_empty(&mut spec);
    spec
}

/// The new spec with the old one's values of what may change, so that a difference shows only what may not.
fn with_allowed(new: &Value, old: &Value, gated: bool) -> Value {
    let mut new = new.clone();
    let put = |new: &mut Value, old: &Value, name: &str| match (new.as_object_mut(), old.get(name)) {
        (Some(map), Some(value)) => drop(map.insert(name.to_owned(), value.clone())),
        (Some(map), None) => drop(map.remove(name)),
        _ => {}
    };
    let allowed = ["activeDeadlineSeconds", "tolerations", "schedulingGates", "ephemeralContainers"];
    allowed.iter().for_each(|name| put(&mut new, old, name));
    if gated {
        put(&mut new, old, "nodeSelector");
        if let Some(affinity) = new.get_mut("affinity") {
            put(affinity, &old["affinity"], "nodeAffinity");
        }
    }
    for name in ["containers", "initContainers"] {
        let containers = new.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten();
        containers.zip(items(old, name)).for_each(|(container, before)| put(container, before, "image"));
    }
    new
}

fn stripped(value: &Value, name: &str) -> Value {
    let mut value = value.clone();
    strip(&mut value, name);
    value
}

fn strip(value: &mut Value, name: &str) {
    if let Some(map) = value.as_object_mut() {
        map.remove(name);
    }
}

fn without_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(without_empty);
            map.retain(|_, v| match v {
                Value::Null => false,
                Value::Array(list) => !list.is_empty(),
                _ => true,
            });
        }
        Value::Array(list) => list.iter_mut().for_each(without_empty),
        _ => {}
    }
}
