//! Pods, and the Pods that templates describe; and how little of a Pod can change once it is there. Its parts are in
//! [`super::container`], [`super::volume`] and [`super::scheduling`].

use serde_json::Value;

use super::container::{self, Role};
use super::field::{Errors, Path, invalid, items, number, object, one_of, text};
use super::{metadata, names, scheduling, volume};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const FIXED: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// A new Pod.
pub fn create(pod: &Value, errors: &mut Errors) {
    spec(&pod["spec"], &SPEC, errors);
}

/// The template of a workload.
pub fn template(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("metadata");
    metadata::labels(&template["metadata"], &at, errors);
    metadata::annotations(&template["metadata"], &at, errors);
    let path = path.field("spec");
    spec(&template["spec"], &path, errors);
    if !items(&template["spec"], "ephemeralContainers").is_empty() {
        errors.push(FieldError::forbidden(path.field("ephemeralContainers"), "ephemeral containers not allowed in pod template"));
    }
}

/// The spec of a Pod, in the order in which a real server looks at it.
fn spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    volume::volumes(spec, path, errors);
    let mut taken = Vec::new();
    container::containers(spec, path, "containers", Role::Main, &mut taken, errors);
    container::containers(spec, path, "initContainers", Role::Init, &mut taken, errors);
    container::containers(spec, path, "ephemeralContainers", Role::Ephemeral, &mut taken, errors);
    if let Some(resources) = object(spec, "resources") {
        container::resources(resources, &path.field("resources"), errors);
    }
    one_of(errors, spec, path, "restartPolicy", false, &["Always", "OnFailure", "Never"]);
    one_of(errors, spec, path, "dnsPolicy", false, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    metadata::label_map(spec, "nodeSelector", path, errors);
    security_context(spec, path, errors);
    let list = path.field("imagePullSecrets");
    for (i, _) in items(spec, "imagePullSecrets").iter().enumerate().filter(|(_, s)| text(s, "name").is_empty()) {
        errors.push(FieldError::required(list.index(i).field("name"), ""));
    }
    scheduling::affinity(spec, path, errors);
    dns(spec, path, errors);
    let list = path.field("readinessGates");
    for (i, gate) in items(spec, "readinessGates").iter().enumerate() {
        let kind = text(gate, "conditionType");
        let wrong = names::qualified(kind);
        errors.extend(wrong.into_iter().map(|why| invalid(&list.index(i).field("conditionType"), kind, why)));
    }
    scheduling::gates(spec, path, errors);
    scheduling::spread(spec, path, errors);
    let checks: [(&str, names::Check); 6] = [
        ("serviceAccountName", names::subdomain),
        ("nodeName", names::subdomain),
        ("hostname", names::label),
        ("subdomain", names::label),
        ("priorityClassName", names::subdomain),
        ("runtimeClassName", names::subdomain),
    ];
    for (name, check) in checks {
        let value = text(spec, name);
        if !value.is_empty() {
            errors.extend(check(value).into_iter().map(|why| invalid(&path.field(name), value, why)));
        }
    }
    if let Some(seconds) = number(spec, "activeDeadlineSeconds").filter(|s| !(1..=i64::from(i32::MAX)).contains(s)) {
        let why = "must be between 1 and 2147483647, inclusive";
        errors.push(FieldError::invalid(path.field("activeDeadlineSeconds"), &seconds.into(), why));
    }
    scheduling::tolerations(spec, path, errors);
    let list = path.field("hostAliases");
    for (i, alias) in items(spec, "hostAliases").iter().enumerate() {
        let path = list.index(i);
        let ip = text(alias, "ip");
        if ip.parse::<std::net::IpAddr>().is_err() {
            errors.push(invalid(&path.field("ip"), ip, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"));
        }
        for name in items(alias, "hostnames").iter().filter_map(Value::as_str) {
            errors.extend(names::subdomain(name).into_iter().map(|why| invalid(&path.field("hostnames"), name, why)));
        }
    }
    one_of(errors, spec, path, "preemptionPolicy", false, &["Never", "PreemptLowerPriority"]);
}

fn security_context(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(context) = object(spec, "securityContext") else { return };
    let path = path.field("securityContext");
    for name in ["fsGroup", "runAsUser", "runAsGroup"] {
        container::user(context, &path, name, errors);
    }
    let groups = path.field("supplementalGroups");
    for (i, group) in items(context, "supplementalGroups").iter().enumerate() {
        if !group.as_i64().is_some_and(|id| (0..=i64::from(i32::MAX)).contains(&id)) {
            errors.push(FieldError::invalid(groups.index(i), group, "must be between 0 and 2147483647, inclusive"));
        }
    }
    if spec["shareProcessNamespace"] == true && spec["hostPID"] == true {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid(path.field("shareProcessNamespace"), &true.into(), why));
    }
    one_of(errors, context, &path, "fsGroupChangePolicy", false, &["Always", "OnRootMismatch"]);
    container::seccomp(context, &path, errors);
    let list = path.field("sysctls");
    let sysctls = items(context, "sysctls");
    for (i, sysctl) in sysctls.iter().enumerate() {
        let name = text(sysctl, "name");
        if name.is_empty() {
            errors.push(FieldError::required(list.index(i).field("name"), ""));
        } else if sysctls[..i].iter().any(|s| text(s, "name") == name) {
            errors.push(FieldError::duplicate(list.index(i).field("name"), &name.into()));
        }
    }
}

fn dns(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let config = object(spec, "dnsConfig");
    let path = path.field("dnsConfig");
    let servers = config.map(|c| items(c, "nameservers")).unwrap_or_default();
    if text(spec, "dnsPolicy") == "None" && servers.is_empty() {
        let at = path.field("nameservers");
        errors.push(FieldError::required(
            if config.is_some() { at } else { path },
            "must provide at least one DNS nameserver when `dnsPolicy` is None",
        ));
    }
    if servers.len() > 3 {
        let list = Value::from(servers.to_vec());
        errors.push(FieldError::invalid(path.field("nameservers"), &list, "must not have more than 3 nameservers"));
    }
    let list = path.field("nameservers");
    for (i, server) in servers.iter().filter_map(Value::as_str).enumerate() {
        if server.parse::<std::net::IpAddr>().is_err() {
            errors.push(invalid(&list.index(i), server, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"));
        }
    }
}

/// A changed Pod.
pub fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let (new, old) = (&new["spec"], &old["spec"]);
    for (name, what) in [("containers", "containers"), ("initContainers", "init containers")] {
        if items(new, name).len() != items(old, name).len() {
            errors.push(FieldError::forbidden(SPEC.field(name), format!("pod updates may not add or remove {what}")));
            return;
        }
        let list = SPEC.field(name);
        for (i, container) in items(new, name).iter().enumerate() {
            let image = text(container, "image");
            if image.is_empty() {
                errors.push(FieldError::required(list.index(i).field("image"), ""));
            } else if image.trim() != image {
                errors.push(invalid(&list.index(i).field("image"), image, "must not have leading or trailing whitespace"));
            }
        }
    }
    deadline(new, old, errors);
    let tolerations = items(new, "tolerations");
    let kept = |toleration: &Value| {
        let mut without = toleration.clone();
        strip(&mut without, "tolerationSeconds");
        tolerations.iter().any(|t| {
            let mut other = t.clone();
            strip(&mut other, "tolerationSeconds");
            other == without
        })
    };
    if !items(old, "tolerations").iter().all(kept) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden(SPEC.field("tolerations"), why));
    }
    scheduling::tolerations(new, &SPEC, errors);
    let gates = items(old, "schedulingGates");
    for gate in items(new, "schedulingGates").iter().filter(|g| !gates.contains(g)) {
        let why = format!("only deletion is allowed, but found new scheduling gate '{}'", text(gate, "name"));
        errors.push(FieldError::forbidden(SPEC.field("schedulingGates"), why));
    }
    if new == old {
        return;
    }
    let gated = !gates.is_empty();
    let (mut new, mut old) = (comparable(new, gated), comparable(old, gated));
    if number(&old, "terminationGracePeriodSeconds").is_some_and(|s| s < 0) && number(&new, "terminationGracePeriodSeconds") == Some(1) {
        strip(&mut new, "terminationGracePeriodSeconds");
        strip(&mut old, "terminationGracePeriodSeconds");
    }
    if new != old {
        errors.push(FieldError::forbidden("spec", format!("{FIXED}\n{}", difference(&old, &new))));
    }
}

/// A Pod whose ephemeral containers were written: there may be more than before.
pub fn update_ephemeral_containers(new: &Value, old: &Value, errors: &mut Errors) {
    let (new_spec, old_spec) = (&new["spec"], &old["spec"]);
    if !old["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null() {
        errors.push(FieldError::forbidden("", "static pods do not support ephemeral containers"));
    }
    let name = "ephemeralContainers";
    let mut taken = Vec::new();
    let mut elsewhere = Vec::new();
    container::containers(new_spec, &SPEC, "containers", Role::Main, &mut taken, &mut elsewhere);
    container::containers(new_spec, &SPEC, "initContainers", Role::Init, &mut taken, &mut elsewhere);
    container::containers(new_spec, &SPEC, name, Role::Ephemeral, &mut taken, errors);
    let path = SPEC.field(name);
    for before in items(old_spec, name) {
        let called = text(before, "name");
        match items(new_spec, name).iter().find(|container| text(container, "name") == called) {
            None => errors.push(FieldError::forbidden(path, format!("existing ephemeral containers {called:?} may not be removed\n"))),
            Some(now) if now != before => {
                let why = format!("existing ephemeral containers {called:?} may not be changed\n{}", difference(before, now));
                errors.push(FieldError::forbidden(path, why));
            }
            Some(_) => {}
        }
    }
}

/// A Pod whose resources were written: cpu and memory may be other amounts, but must be there as they were, and the Pod stays in its class.
pub fn resize(new: &Value, old: &Value, errors: &mut Errors) {
    let (new_spec, old_spec) = (&new["spec"], &old["spec"]);
    if new_spec == old_spec {
        return;
    }
    spec(new_spec, &SPEC, errors);
    let mut others_change = false;
    for list in ["containers", "initContainers"] {
        for (i, (now, before)) in items(new_spec, list).iter().zip(items(old_spec, list)).enumerate() {
            let list = SPEC.field(list);
            let at = list.index(i);
            let at = at.field("resources");
            for kind in ["requests", "limits"] {
                let (now, before) = (&now["resources"][kind], &before["resources"][kind]);
                let names = |amounts: &Value| amounts.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
                let removed = |name: &String| matches!(name.as_str(), "cpu" | "memory") && now[name.as_str()].is_null();
                if names(before).iter().any(removed) {
                    errors.push(FieldError::forbidden(at.field(kind), format!("resource {kind} cannot be removed")));
                }
                let other = |name: &String| !matches!(name.as_str(), "cpu" | "memory") && now[name.as_str()] != before[name.as_str()];
                others_change |= names(before).iter().chain(&names(now)).any(other);
            }
            others_change |= now["resources"]["claims"] != before["resources"]["claims"];
        }
    }
    if others_change {
        errors.push(FieldError::forbidden("spec", "only cpu and memory resources are mutable"));
    }
    let class = crate::object::qos::class(new_spec);
    let stored = old["status"]["qosClass"].as_str().unwrap_or_else(|| crate::object::qos::class(old_spec));
    if class != stored {
        errors.push(FieldError::invalid("spec", &stored.into(), "Pod QOS Class may not change as a result of resizing"));
    }
}

fn deadline(new: &Value, old: &Value, errors: &mut Errors) {
    let path = SPEC.field("activeDeadlineSeconds");
    match (number(new, "activeDeadlineSeconds"), number(old, "activeDeadlineSeconds")) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            errors.push(FieldError::invalid(path, &seconds.into(), "must be between 0 and 2147483647, inclusive"));
        }
        (Some(new), Some(old)) if new > old => {
            let why = format!("must be less than or equal to previous value {old}");
            errors.push(FieldError::invalid(path, &new.into(), why));
        }
        (None, Some(_)) => errors.push(FieldError::invalid(path, &Value::Null, "must not update from a positive integer to nil value")),
        _ => {}
    }
}

/// The spec without what may change, and without what is there only in one way of writing nothing.
fn comparable(spec: &Value, gated: bool) -> Value {
    let mut spec = spec.clone();
    for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates", "ephemeralContainers"] {
        strip(&mut spec, name);
    }
    if gated {
        // A Pod that may not be scheduled yet may still be told where to go.
        for name in ["nodeSelector", "affinity"] {
            strip(&mut spec, name);
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

/// The lines that differ, with a little around them.
pub fn difference(old: &Value, new: &Value) -> String {
    let pretty = |value: &Value| {
        let mut text = Vec::new();
        let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
        let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
        match serde::Serialize::serialize(value, &mut serializer) {
            Ok(()) => String::from_utf8(text).unwrap_or_default() + "\n",
            Err(_) => String::new(),
        }
    };
    let (old, new) = (pretty(old), pretty(new));
    similar::TextDiff::from_lines(&old, &new).unified_diff().context_radius(3).to_string()
}
