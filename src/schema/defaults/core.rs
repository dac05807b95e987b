//! Defaults of the core group: Pods and their containers and volumes, Services, Namespaces, Nodes, LimitRanges.

use base64::Engine;
use serde_json::{Value, json};

use super::{Fields, is_absent, objects, part, set, text};
use crate::schema::quantity::Quantity;

/// A Pod itself, not a template of one: limits stand in for requests, and ports of the host's network are the host's.
pub(super) fn pod(fields: &mut Fields) {
    let Some(spec) = part(fields, "spec") else { return };
    if spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".into(), 1.into());
    }
    let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["containers", "initContainers"] {
        for container in objects(spec, list) {
            if let Some(Value::Object(resources)) = container.get_mut("resources") {
                requests_from_limits(resources);
            }
            if host_network {
                for port in objects(container, "ports") {
                    let number = port.get("containerPort").cloned().unwrap_or_else(|| 0.into());
                    super::set_nonzero(port, "hostPort", number);
                }
            }
        }
    }
    set(spec, "enableServiceLinks", true);
}

fn requests_from_limits(resources: &mut Fields) {
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    let Some(requests) = part(resources, "requests") else { return };
    for (name, limit) in limits {
        requests.entry(name).or_insert(limit);
    }
}

/// The old and the new name of the service account always agree.
pub(super) fn pod_spec(fields: &mut Fields) {
    let name = match text(fields, "serviceAccountName") {
        "" => text(fields, "serviceAccount").to_owned(),
        name => name.to_owned(),
    };
    if !name.is_empty() {
        fields.insert("serviceAccountName".into(), name.as_str().into());
        fields.insert("serviceAccount".into(), name.into());
    }
}

/// The single address and the first of all addresses always agree.
pub(super) fn pod_status(fields: &mut Fields) {
    let single = text(fields, "podIP").to_owned();
    let first = fields.get("podIPs").and_then(|ips| ips.pointer("/0/ip")).and_then(Value::as_str).unwrap_or_default().to_owned();
    if single.is_empty() && !first.is_empty() {
        fields.insert("podIP".into(), first.into());
    } else if !single.is_empty() && single != first {
        fields.insert("podIPs".into(), json!([{"ip": single}]));
    }
}

/// The single range of a node's Pods and the first of all ranges always agree.
pub(super) fn node_spec(fields: &mut Fields) {
    let single = text(fields, "podCIDR").to_owned();
    let first = fields.get("podCIDRs").and_then(|ranges| ranges[0].as_str()).unwrap_or_default().to_owned();
    if single.is_empty() && !first.is_empty() {
        fields.insert("podCIDR".into(), first.into());
    } else if !single.is_empty() && single != first {
        fields.insert("podCIDRs".into(), json!([single]));
    }
}

pub(super) fn container(fields: &mut Fields) {
    if text(fields, "imagePullPolicy").is_empty() {
        let policy = pull_policy(text(fields, "image"));
        fields.insert("imagePullPolicy".into(), policy.into());
    }
}

/// What may change under its name is always pulled.
fn pull_policy(image: &str) -> &'static str {
    if is_latest(image) { "Always" } else { "IfNotPresent" }
}

/// Whether an image is named by the tag `latest`, or by neither tag nor digest. What is no name of an image at all is not.
fn is_latest(image: &str) -> bool {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let at = name.rfind('/').map_or(0, |at| at + 1);
    let (path, tag) = match name[at..].split_once(':') {
        Some((last, tag)) => (&name[..at + last.len()], Some(tag)),
        None => (name, None),
    };
    // A first part with a dot or a port in it, or `localhost`, is a registry.
    let rest = match path.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => {
            if !is_registry(host) {
                return false;
            }
            rest
        }
        _ => path,
    };
    let well_formed = path.len() <= 255 && rest.split('/').all(is_image_part);
    match (tag, digest) {
        (Some(tag), _) => well_formed && tag == "latest",
        (None, digest) => well_formed && digest.is_none(),
    }
}

/// The host of a registry, perhaps with a port.
fn is_registry(host: &str) -> bool {
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    let word = |word: &str| {
        let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = word.as_bytes();
        edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    name.split('.').all(word) && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

/// A part of a name of an image: words of small letters and digits, with `.`, `_`, `__` or dashes between them.
fn is_image_part(part: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = part.as_bytes();
    let known = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(b);
    let doubled = ["..", "___", "._", "_.", "-.", ".-", "-_", "_-"];
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(known) && !doubled.iter().any(|wrong| part.contains(wrong))
}

/// Amounts finer than a thousandth are rounded up.
pub(super) fn resource_requirements(fields: &mut Fields) {
    for list in ["limits", "requests"] {
        let Some(Value::Object(amounts)) = fields.get_mut(list) else { continue };
        for amount in amounts.values_mut() {
            if let Value::String(text) = amount
                && text.ends_with(['n', 'u'])
                && let Ok(quantity) = Quantity::parse(text)
            {
                *text = quantity.rounded_to_milli().to_string();
            }
        }
    }
}

/// A volume of no kind is an empty directory.
pub(super) fn volume(fields: &mut Fields) {
    if fields.iter().all(|(name, value)| name == "name" || value.is_null()) {
        fields.insert("emptyDir".into(), json!({}));
    }
    if let Some(Value::Object(image)) = fields.get_mut("image")
        && text(image, "pullPolicy").is_empty()
    {
        let policy = pull_policy(text(image, "reference"));
        image.insert("pullPolicy".into(), policy.into());
    }
}

pub(super) fn service(fields: &mut Fields) {
    let Some(spec) = part(fields, "spec") else { return };
    let kind = match text(spec, "type") {
        "" => "ClusterIP".to_owned(),
        kind => kind.to_owned(),
    };
    match text(spec, "sessionAffinity") {
        "" | "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let timeout = spec.get("sessionAffinityConfig").and_then(|c| c.pointer("/clientIP/timeoutSeconds"));
            if timeout.is_none_or(Value::is_null) {
                spec.insert("sessionAffinityConfig".into(), json!({"clientIP": {"timeoutSeconds": 10800}}));
            }
        }
        _ => {}
    }
    for port in objects(spec, "ports") {
        let target = port.get("targetPort").is_none_or(crate::schema::is_zero);
        if let Some(number) = port.get("port").cloned().filter(|_| target) {
            port.insert("targetPort".into(), number);
        }
    }
    let has_external_ips = spec.get("externalIPs").and_then(Value::as_array).is_some_and(|ips| !ips.is_empty());
    let external = matches!(kind.as_str(), "NodePort" | "LoadBalancer") || (kind == "ClusterIP" && has_external_ips);
    if external && text(spec, "externalTrafficPolicy").is_empty() {
        spec.insert("externalTrafficPolicy".into(), "Cluster".into());
    }
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        set(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true);
        let status = fields.get_mut("status").and_then(|s| s.get_mut("loadBalancer")).and_then(Value::as_object_mut);
        for ingress in status.into_iter().flat_map(|status| objects(status, "ingress")) {
            if !text(ingress, "ip").is_empty() {
                set(ingress, "ipMode", "VIP");
            }
        }
    }
}

/// What was given as text is kept as bytes.
pub(super) fn secret(fields: &mut Fields) {
    let Some(Value::Object(texts)) = fields.remove("stringData") else { return };
    let Some(data) = part(fields, "data") else { return };
    for (key, value) in texts {
        let bytes = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
        data.insert(key, bytes.into());
    }
}

/// Every Namespace can be selected by its name.
pub(super) fn namespace(fields: &mut Fields) {
    let Some(Value::Object(metadata)) = fields.get_mut("metadata") else { return };
    let name = text(metadata, "name").to_owned();
    if name.is_empty() {
        return;
    }
    if let Some(labels) = part(metadata, "labels") {
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
    }
}

pub(super) fn node_status(fields: &mut Fields) {
    if is_absent(fields, "allocatable")
        && let Some(capacity) = fields.get("capacity").cloned()
    {
        fields.insert("allocatable".into(), capacity);
    }
}

/// A container's limits stand in for its defaults, and those for its default requests.
pub(super) fn limit_range_item(fields: &mut Fields) {
    if text(fields, "type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let Some(Value::Object(amounts)) = fields.get(from).cloned() else { continue };
        let Some(target) = part(fields, to) else { continue };
        for (name, amount) in amounts {
            target.entry(name).or_insert(amount);
        }
    }
}

/// The template's labels stand in for selector and labels.
pub(super) fn replication_controller(fields: &mut Fields) {
    let labels = fields.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels")).cloned();
    let Some(labels) = labels.filter(|labels| !crate::schema::is_zero(labels)) else { return };
    if let Some(spec) = part(fields, "spec") {
        super::set_nonzero(spec, "selector", labels.clone());
    }
    if let Some(metadata) = part(fields, "metadata") {
        super::set_nonzero(metadata, "labels", labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_images_that_may_change_are_always_pulled() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.25", "IfNotPresent"),
            ("registry:5000/team/app", "Always"),
            ("registry:5000/team/app:v1", "IfNotPresent"),
            ("nginx@sha256:0123", "IfNotPresent"),
            ("", "IfNotPresent"),
            ("Nginx", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }
}
