//! Ingresses, IngressClasses, NetworkPolicies, and the addresses that Services are given.

use serde_json::Value;

use super::field::{
    self, Errors, Path, domain_prefixed_path, has, invalid, items, number, object, required, required_shape, shaped, text, word, wrong,
};
use super::{address, names, selector};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");

/// A new Ingress.
pub fn ingress(ingress: &Value, errors: &mut Errors) {
    update_ingress(ingress, errors);
    const CLASS: &str = "kubernetes.io/ingress.class";
    if let (Some(old), Some(class)) = (ingress["metadata"]["annotations"][CLASS].as_str(), ingress["spec"]["ingressClassName"].as_str())
        && old != class
    {
        let why = "must match `ingressClassName` when both are specified";
        errors.push(FieldError::invalid(format!("annotations.{CLASS}"), &old.into(), why));
    }
}

/// An Ingress at any time.
pub fn update_ingress(ingress: &Value, errors: &mut Errors) {
    let spec = &ingress["spec"];
    let rules = items(spec, "rules");
    if rules.is_empty() && !has(spec, "defaultBackend") {
        let shown = spec.get("rules").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(SPEC, shown, "either `defaultBackend` or `rules` must be specified"));
    }
    if let Some(backend) = object(spec, "defaultBackend") {
        self::backend(backend, &SPEC.field("defaultBackend"), errors);
    }
    let list = SPEC.field("rules");
    for (i, rule) in rules.iter().enumerate() {
        let path = list.index(i);
        host(text(rule, "host"), &path.field("host"), errors);
        let Some(http) = object(rule, "http") else { continue };
        let path = path.field("http");
        let list = path.field("paths");
        required(errors, http, &path, &["paths"]);
        for (i, one) in items(http, "paths").iter().enumerate() {
            http_path(one, &list.index(i), errors);
        }
    }
    let list = SPEC.field("tls");
    for (i, tls) in items(spec, "tls").iter().enumerate() {
        let path = list.index(i);
        let hosts = path.field("hosts");
        for (i, name) in items(tls, "hosts").iter().filter_map(Value::as_str).enumerate() {
            wrong(errors, &hosts.index(i), name, domain(name));
        }
        shaped(errors, tls, &path, "secretName", names::subdomain);
    }
    if has(spec, "ingressClassName") {
        let class = text(spec, "ingressClassName");
        wrong(errors, &SPEC.field("ingressClassName"), class, names::subdomain(class));
    }
}

fn domain(name: &str) -> names::Wrong {
    if name.contains('*') { names::wildcard_subdomain(name) } else { names::subdomain(name) }
}

fn host(host: &str, path: &Path<'_>, errors: &mut Errors) {
    if host.is_empty() {
        return;
    }
    if address::sloppy(host).is_some() {
        errors.push(invalid(path, host, "must be a DNS name, not an IP address"));
    }
    wrong(errors, path, host, domain(host));
}

fn http_path(one: &Value, path: &Path<'_>, errors: &mut Errors) {
    let value = text(one, "path");
    let at = path.field("path");
    if !has(one, "pathType") {
        errors.push(FieldError::required(path.field("pathType"), "pathType must be specified"));
        return;
    }
    match text(one, "pathType") {
        "Exact" | "Prefix" => {
            if !value.starts_with('/') {
                errors.push(invalid(&at, value, "must be an absolute path"));
            }
            for sequence in ["//", "/./", "/../", "%2f", "%2F"].iter().filter(|s| value.contains(**s)) {
                errors.push(invalid(&at, value, format!("must not contain '{sequence}'")));
            }
            for suffix in ["/..", "/."].iter().filter(|s| value.ends_with(**s)) {
                errors.push(invalid(&at, value, format!("cannot end with '{suffix}'")));
            }
        }
        "ImplementationSpecific" if !value.is_empty() && !value.starts_with('/') => {
            errors.push(invalid(&at, value, "must be an absolute path"));
        }
        _ => word(errors, one, path, "pathType", &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    backend(&one["backend"], &path.field("backend"), errors);
}

/// An object of any kind that something refers to.
fn reference(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    if has(reference, "apiGroup") {
        let group = text(reference, "apiGroup");
        wrong(errors, &path.field("apiGroup"), group, names::subdomain(group));
    }
    for name in ["kind", "name"] {
        required_shape(errors, reference, path, name, names::path_segment);
    }
}

fn backend(backend: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (object(backend, "service"), object(backend, "resource")) {
        (Some(_), Some(_)) => errors.push(invalid(path, "", "cannot set both resource and service backends")),
        (None, None) => errors.push(invalid(path, "", "resource or service backend is required")),
        (None, Some(resource)) => reference(resource, &path.field("resource"), errors),
        (Some(service), None) => {
            let at = path.field("service");
            required_shape(errors, service, &at, "name", names::label);
            let port_path = at.field("port");
            let port = &service["port"];
            match (text(port, "name"), number(port, "number").unwrap_or(0)) {
                ("", 0) => errors.push(FieldError::required(path, "port name or number is required")),
                ("", number) => field::port(errors, number, &port_path.field("number")),
                (name, 0) => wrong(errors, &port_path.field("name"), name, names::port_name(name)),
                _ => errors.push(invalid(path, "", "cannot set both port name & port number")),
            }
        }
    }
}

/// An IngressClass.
pub fn ingress_class(class: &Value, errors: &mut Errors) {
    let spec = &class["spec"];
    if text(spec, "controller").len() > 250 {
        errors.push(FieldError::too_long(SPEC.field("controller"), 250));
    }
    domain_prefixed_path(errors, spec, &SPEC, "controller");
    let Some(parameters) = object(spec, "parameters") else { return };
    let path = SPEC.field("parameters");
    if has(parameters, "apiGroup") {
        let group = text(parameters, "apiGroup");
        wrong(errors, &path.field("apiGroup"), group, names::subdomain(group));
    }
    for name in ["kind", "name"] {
        shaped(errors, parameters, &path, name, names::path_segment);
    }
    let at = path.field("namespace");
    match (text(parameters, "scope"), has(parameters, "namespace")) {
        _ if !has(parameters, "scope") => errors.push(FieldError::required(path.field("scope"), "")),
        ("Namespace", false) => errors.push(FieldError::required(at, "`parameters.scope` is set to 'Namespace'")),
        ("Namespace", true) => {
            let namespace = text(parameters, "namespace");
            wrong(errors, &at, namespace, names::label(namespace));
        }
        ("Cluster", true) => errors.push(FieldError::forbidden(at, "`parameters.scope` is set to 'Cluster'")),
        ("Cluster", false) => {}
        _ => word(errors, parameters, &path, "scope", &["Cluster", "Namespace"]),
    }
    // By newer rules, told last.
    required(errors, parameters, &path, &["kind", "name"]);
}

/// The controller of a class is settled.
pub fn update_ingress_class(new: &Value, old: &Value, errors: &mut Errors) {
    let controller = |class: &Value| text(&class["spec"], "controller").to_owned();
    if controller(new) != controller(old) {
        errors.push(invalid(&SPEC.field("controller"), &controller(new), "field is immutable"));
    }
    ingress_class(new, errors);
}

/// A NetworkPolicy.
pub fn network_policy(policy: &Value, errors: &mut Errors) {
    let spec = &policy["spec"];
    selector::label_selector(&spec["podSelector"], &SPEC.field("podSelector"), errors);
    let mut unnamed = Vec::new();
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        let list = SPEC.field(rules);
        for (i, rule) in items(spec, rules).iter().enumerate() {
            let path = list.index(i);
            let ports = path.field("ports");
            for (i, port) in items(rule, "ports").iter().enumerate() {
                policy_port(port, &ports.index(i), errors);
            }
            let list = path.field(peers);
            for (i, peer) in items(rule, peers).iter().enumerate() {
                policy_peer(peer, &list.index(i), &mut unnamed, errors);
            }
        }
    }
    let types = items(spec, "policyTypes");
    let list = SPEC.field("policyTypes");
    if types.len() > 2 {
        errors.push(FieldError::invalid(list, &spec["policyTypes"], "may not specify more than two policyTypes"));
    } else {
        for (i, kind) in types.iter().enumerate() {
            if !matches!(kind.as_str(), Some("Ingress" | "Egress")) {
                errors.push(FieldError::not_supported(list.index(i), kind, &["Ingress", "Egress"]));
            }
        }
    }
    errors.append(&mut unnamed);
}

fn policy_port(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    word(errors, port, path, "protocol", &["TCP", "UDP", "SCTP"]);
    let (end, at) = (number(port, "endPort"), path.field("endPort"));
    match &port["port"] {
        Value::Null => {
            if let Some(end) = end {
                errors.push(FieldError::invalid(at, &end.into(), "may not be specified when `port` is not specified"));
            }
        }
        Value::String(name) => {
            if let Some(end) = end {
                errors.push(FieldError::invalid(at, &end.into(), "may not be specified when `port` is non-numeric"));
            }
            wrong(errors, &path.field("port"), name, names::port_name(name));
        }
        value => {
            let start = value.as_i64().unwrap_or(0);
            field::port(errors, start, &path.field("port"));
            if let Some(end) = end {
                if end < start {
                    errors.push(FieldError::invalid(at, &end.into(), "must be greater than or equal to `port`"));
                }
                field::port(errors, end, &at);
            }
        }
    }
}

fn policy_peer(peer: &Value, path: &Path<'_>, unnamed: &mut Errors, errors: &mut Errors) {
    let kinds = ["podSelector", "namespaceSelector", "ipBlock"];
    for name in &kinds[..2] {
        selector::label_selector(&peer[*name], &path.field(name), errors);
    }
    if let Some(block) = object(peer, "ipBlock") {
        ip_block(block, &path.field("ipBlock"), unnamed, errors);
    }
    match kinds.iter().filter(|name| has(peer, name)).count() {
        0 => errors.push(FieldError::required(path, "must specify a peer")),
        count if count > 1 && has(peer, "ipBlock") => {
            errors.push(FieldError::forbidden(path, "may not specify both ipBlock and another peer"));
        }
        _ => {}
    }
}

fn ip_block(block: &Value, path: &Path<'_>, unnamed: &mut Errors, errors: &mut Errors) {
    let cidr = text(block, "cidr");
    if cidr.is_empty() {
        unnamed.push(FieldError::required(path.field("cidr"), ""));
        return;
    }
    address::cidr(errors, &path.field("cidr"), cidr);
    let Some((_, first, length)) = address::block(cidr) else { return };
    let list = path.field("except");
    for (i, except) in items(block, "except").iter().filter_map(Value::as_str).enumerate() {
        address::cidr(errors, &list.index(i), except);
        let Some((inner, _, inner_length)) = address::block(except) else { continue };
        let inside = address::block(&format!("{inner}/{length}")).is_some_and(|(_, outer, _)| outer == first);
        if inner.is_ipv4() != first.is_ipv4() || !inside || length >= inner_length {
            errors.push(invalid(&list.index(i), except, "must be a strict subset of `cidr`"));
        }
    }
}

/// An IPAddress: what it belongs to.
pub fn ip_address(address: &Value, errors: &mut Errors) {
    let path = SPEC.field("parentRef");
    let Some(parent) = object(&address["spec"], "parentRef") else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    shaped(errors, parent, &path, "group", names::subdomain);
    for name in ["resource", "name", "namespace"] {
        shaped(errors, parent, &path, name, names::path_segment);
    }
    required(errors, parent, &path, &["resource", "name"]);
}

/// A changed IPAddress.
pub fn update_ip_address(new: &Value, old: &Value, errors: &mut Errors) {
    ip_address(new, errors);
    field::settled(errors, &new["spec"], &old["spec"], &SPEC, "parentRef");
}

/// The blocks that addresses of Services are drawn from.
pub fn service_cidr(object: &Value, errors: &mut Errors) {
    let (cidrs, path) = (items(&object["spec"], "cidrs"), SPEC.field("cidrs"));
    if cidrs.is_empty() {
        errors.push(FieldError::required(path, "at least one CIDR required"));
        return;
    }
    if cidrs.len() > 2 {
        let value = format!("{{\"CIDRs\":{}}}", object["spec"]["cidrs"]);
        errors.push(FieldError { value, ..invalid(&path, "", "may only hold up to 2 values") });
        return;
    }
    for (i, cidr) in cidrs.iter().filter_map(Value::as_str).enumerate() {
        address::strict_cidr(errors, &path.index(i), cidr);
    }
    let family = |cidr: &Value| cidr.as_str().and_then(address::block).map(|(ip, _, _)| ip.is_ipv4());
    if let [one, other] = cidrs
        && family(one).is_some()
        && family(one) == family(other)
    {
        let why = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        errors.push(FieldError::invalid(path, &object["spec"]["cidrs"], why));
    }
}

/// Changed blocks: one of the other family may come.
pub fn update_service_cidr(new: &Value, old: &Value, errors: &mut Errors) {
    let (after, before, path) = (items(&new["spec"], "cidrs"), items(&old["spec"], "cidrs"), SPEC.field("cidrs"));
    const FIXED: &str = "field is immutable";
    if after.len() == before.len() || (before.len() == 1 && after.len() == 2) {
        for (i, (now, _)) in after.iter().zip(before).enumerate().filter(|(_, (now, then))| now != then) {
            errors.push(FieldError::invalid(path.index(i), now, FIXED));
        }
        if after.len() != before.len() {
            service_cidr(new, errors);
        }
    } else {
        errors.push(FieldError::invalid(path, &after.to_vec().into(), FIXED));
    }
}
