//! Pods, and the Pods that templates describe; and how little of a Pod can change once it is there. Its parts are in
//! [`super::container`], [`super::volume`], [`super::security`] and [`super::scheduling`].

use serde_json::Value;

use super::container::{self, Around};
use super::field::{Errors, Path, between, flag, has, invalid, items, non_negative, number, object, one_of, shaped, text, wrong};
use super::{address, metadata, names, resources, scheduling, security, volume};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const METADATA: Path<'static> = Path::root("metadata");
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A new Pod.
pub fn create(pod: &Value, errors: &mut Errors) {
    whole(pod, errors);
    if !items(&pod["spec"], "ephemeralContainers").is_empty() {
        errors.push(FieldError::forbidden(SPEC.field("ephemeralContainers"), "cannot be set on create"));
    }
    if !text(&pod["spec"], "nodeName").is_empty() && !items(&pod["spec"], "schedulingGates").is_empty() {
        let why = "cannot be set until all schedulingGates have been cleared";
        errors.push(FieldError::forbidden(SPEC.field("nodeName"), why));
    }
    security::annotations_match(pod, &SPEC, errors);
}

/// What holds for a Pod at any time.
pub(super) fn whole(pod: &Value, errors: &mut Errors) {
    annotations(pod, &METADATA.field("annotations"), errors);
    let spec = &pod["spec"];
    self::spec(spec, Some(pod), &SPEC, errors);
    let list = SPEC.field("volumes");
    for (i, volume) in items(spec, "volumes").iter().enumerate().filter(|_| text(spec, "serviceAccountName").is_empty()) {
        let path = list.index(i);
        let path = path.field("projected");
        let list = path.field("sources");
        for (i, _) in items(&volume["projected"], "sources").iter().enumerate().filter(|(_, s)| has(s, "serviceAccountToken")) {
            let why = "must not be specified when serviceAccountName is not set";
            errors.push(FieldError::forbidden(list.index(i).field("serviceAccountToken"), why));
        }
    }
    non_negative(errors, spec, &SPEC, "terminationGracePeriodSeconds");
    for name in ["containers", "initContainers"] {
        let list = SPEC.field(name);
        for (i, container) in items(spec, name).iter().enumerate() {
            container::padded_image(container, &list.index(i), errors);
        }
    }
}

/// The annotations of a template that mean something to its Pods.
pub fn template_annotations(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    annotations(template, &path.field("annotations"), errors);
}

/// Annotations that mean something to a Pod.
pub(super) fn annotations(pod: &Value, path: &Path<'_>, errors: &mut Errors) {
    let given = &pod["metadata"]["annotations"];
    if let Some(value) = given[MIRROR].as_str()
        && text(&pod["spec"], "nodeName").is_empty()
    {
        errors.push(invalid(&path.key(MIRROR), value, "must set spec.nodeName if mirror pod annotation is set"));
    }
    const COST: &str = "controller.kubernetes.io/pod-deletion-cost";
    let is_cost = |value: &str| {
        let digits = value.strip_prefix('-').unwrap_or(value);
        value.parse::<i32>().is_ok() && !value.starts_with('+') && (digits == "0" || !digits.starts_with('0')) && value != "-0"
    };
    if let Some(value) = given[COST].as_str().filter(|value| !is_cost(value)) {
        errors.push(invalid(&path.key(COST), value, "must be a 32bit integer"));
    }
    security::annotations(pod, path, errors);
}

/// The template of a workload.
pub fn template(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    metadata::labels(&template["metadata"], path, errors);
    metadata::annotations(&template["metadata"], path, errors);
    template_annotations(template, path, errors);
    let path = path.field("spec");
    spec(&template["spec"], None, &path, errors);
    security::annotations_match(template, &path, errors);
    if !items(&template["spec"], "ephemeralContainers").is_empty() {
        errors.push(FieldError::forbidden(path.field("ephemeralContainers"), "ephemeral containers not allowed in pod template"));
    }
}

/// The spec of a Pod, in the order in which a real server looks at it. `pod` is the Pod itself, where it is not a template.
fn spec(spec: &Value, pod: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    if !has(spec, "terminationGracePeriodSeconds") {
        errors.push(FieldError::required(path.field("terminationGracePeriodSeconds"), ""));
    }
    let volumes = volume::volumes(spec, pod.map(|pod| text(&pod["metadata"], "name")), path, errors);
    let mirror = pod.is_some_and(|pod| !pod["metadata"]["annotations"][MIRROR].is_null());
    container::resource_claims(spec, path, mirror, errors);
    let around = Around { spec, volumes: &volumes };
    container::containers(around, path, errors);
    container::init_containers(around, path, errors);
    container::ephemeral_containers(around, path, errors);
    resources::pod(spec, path, errors);
    host_network(spec, pod.is_some(), path, errors);
    one_of(errors, spec, path, "restartPolicy", true, &["Always", "OnFailure", "Never"]);
    one_of(errors, spec, path, "dnsPolicy", true, &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    metadata::label_map(spec, "nodeSelector", path, errors);
    security::pod(spec, path, errors);
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let why = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid(path.field("shareProcessNamespace"), &true.into(), why));
    }
    scheduling::affinity(spec, path, errors);
    dns(spec, path, errors);
    let list = path.field("readinessGates");
    for (i, gate) in items(spec, "readinessGates").iter().enumerate() {
        let kind = text(gate, "conditionType");
        wrong(errors, &list.index(i).field("conditionType"), kind, names::qualified(kind));
    }
    scheduling::gates(spec, path, errors);
    scheduling::spread(spec, path, errors);
    security::host_processes(spec, path, errors);
    security::host_users(spec, path, errors);
    hostname_override(spec, path, errors);
    shaped(errors, spec, path, "serviceAccountName", names::subdomain);
    shaped(errors, spec, path, "nodeName", names::subdomain);
    between(errors, spec, path, "activeDeadlineSeconds", 1, i64::from(i32::MAX));
    shaped(errors, spec, path, "hostname", names::label);
    shaped(errors, spec, path, "subdomain", names::label);
    scheduling::tolerations(spec, path, errors);
    let list = path.field("hostAliases");
    for (i, alias) in items(spec, "hostAliases").iter().enumerate() {
        let path = list.index(i);
        address::ip(errors, &path.field("ip"), text(alias, "ip"));
        let list = path.field("hostnames");
        for (i, name) in items(alias, "hostnames").iter().filter_map(Value::as_str).enumerate() {
            wrong(errors, &list.index(i), name, names::subdomain(name));
        }
    }
    shaped(errors, spec, path, "priorityClassName", names::subdomain);
    if has(spec, "runtimeClassName") {
        let class = text(spec, "runtimeClassName");
        wrong(errors, &path.field("runtimeClassName"), class, names::subdomain(class));
    }
    if has(spec, "preemptionPolicy") {
        one_of(errors, spec, path, "preemptionPolicy", true, &["PreemptLowerPriority", "Never"]);
    }
    if let Some(overhead) = object(spec, "overhead") {
        let limits = serde_json::json!({"limits": overhead});
        resources::container(&Value::Null, &limits, &path.field("overhead"), errors);
    }
    security::operating_system(spec, path, errors);
    for (list, i, container) in container::all(spec) {
        for (j, variable) in items(container, "env").iter().enumerate() {
            let Some(reference) = object(&variable["valueFrom"], "fileKeyRef") else { continue };
            let name = text(reference, "volumeName");
            let field = format!("{path}.{list}[{i}].env[{j}].valueFrom.fileKeyRef.volumeName");
            match items(spec, "volumes").iter().rfind(|v| text(v, "name") == name) {
                None => errors.push(FieldError::not_found(field, &name.into())),
                Some(volume) if !has(volume, "emptyDir") => {
                    errors.push(FieldError::invalid(field, &name.into(), "referenced volume must be of type emptyDir"));
                }
                Some(_) => {}
            }
        }
    }
}

/// On the host's network, a port is the host's.
fn host_network(spec: &Value, is_pod: bool, path: &Path<'_>, errors: &mut Errors) {
    let list = path.field("containers");
    for (i, container) in items(spec, "containers").iter().enumerate().filter(|_| flag(spec, "hostNetwork")) {
        let path = list.index(i);
        let ports = path.field("ports");
        for (j, port) in items(container, "ports").iter().enumerate() {
            let (host, own) = (number(port, "hostPort").unwrap_or(0), number(port, "containerPort").unwrap_or(0));
            if (is_pod || host != 0) && host != own {
                let why = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(ports.index(j).field("hostPort"), &host.into(), why));
            }
        }
    }
}

fn hostname_override(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !has(spec, "hostnameOverride") {
        return;
    }
    let (name, path) = (text(spec, "hostnameOverride"), path.field("hostnameOverride"));
    for (other, shown) in [("setHostnameAsFQDN", "setHostnameAsFQDN"), ("hostNetwork", "hostNetwork")] {
        if flag(spec, other) {
            errors.push(FieldError::forbidden(path, format!("may not be specified when {shown} is true")));
        }
    }
    if name.len() > 64 {
        errors.push(FieldError::too_long(path, 64));
    }
    wrong(errors, &path, name, names::subdomain(name));
}

fn dns(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.field("dnsConfig");
    let list = path.field("nameservers");
    let is_none = text(spec, "dnsPolicy") == "None";
    let Some(config) = object(spec, "dnsConfig") else {
        if is_none {
            errors.push(FieldError::required(path, "must provide `dnsConfig` when `dnsPolicy` is None"));
        }
        return;
    };
    let servers = items(config, "nameservers");
    if is_none && servers.is_empty() {
        errors.push(FieldError::required(list, "must provide at least one DNS nameserver when `dnsPolicy` is None"));
        return;
    }
    if servers.len() > 3 {
        errors.push(FieldError::invalid(list, &config["nameservers"], "must not have more than 3 nameservers"));
    }
    for (i, server) in servers.iter().filter_map(Value::as_str).enumerate() {
        address::ip(errors, &list.index(i), server);
    }
    let searches = items(config, "searches");
    let list = path.field("searches");
    if searches.len() > 32 {
        errors.push(FieldError::invalid(list, &config["searches"], "must not have more than 32 search paths"));
    }
    let length: usize = searches.iter().filter_map(Value::as_str).map(|s| s.len() + 1).sum();
    if length > 2048 + 1 {
        let why = "must not have more than 2048 characters (including spaces) in the search list";
        errors.push(FieldError::invalid(list, &config["searches"], why));
    }
    for (i, search) in searches.iter().filter_map(Value::as_str).enumerate().filter(|(_, search)| *search != ".") {
        let search = search.strip_suffix('.').unwrap_or(search);
        wrong(errors, &list.index(i), search, names::subdomain_with_underscore(search));
    }
    let list = path.field("options");
    for (i, _) in items(config, "options").iter().enumerate().filter(|(_, option)| text(option, "name").is_empty()) {
        errors.push(FieldError::required(list.index(i), "must not be empty"));
    }
}
