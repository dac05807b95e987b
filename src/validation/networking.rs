//! Ingresses, IngressClasses and NetworkPolicies.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, items, number, object, one_of, text};
use super::{formats, names, selector};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");

/// An Ingress.
pub fn ingress(ingress: &Value, errors: &mut Errors) {
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
        let paths = items(http, "paths");
        if paths.is_empty() {
            errors.push(FieldError::required(list, ""));
        }
        for (i, one) in paths.iter().enumerate() {
            http_path(one, &list.index(i), errors);
        }
    }
    let list = SPEC.field("tls");
    for (i, tls) in items(spec, "tls").iter().enumerate() {
        let path = list.index(i);
        let hosts = path.field("hosts");
        for (i, name) in items(tls, "hosts").iter().filter_map(Value::as_str).enumerate() {
            let check = if name.contains('*') { names::wildcard_subdomain } else { names::subdomain };
            errors.extend(check(name).into_iter().map(|why| invalid(&hosts.index(i), name, why)));
        }
    }
    let class = text(spec, "ingressClassName");
    if !class.is_empty() {
        errors.extend(names::subdomain(class).into_iter().map(|why| invalid(&SPEC.field("ingressClassName"), class, why)));
    }
}

fn host(host: &str, path: &Path<'_>, errors: &mut Errors) {
    if host.is_empty() {
        return;
    }
    if host.parse::<std::net::IpAddr>().is_ok() {
        errors.push(invalid(path, host, "must be a DNS name, not an IP address"));
    }
    let check = if host.contains('*') { names::wildcard_subdomain } else { names::subdomain };
    errors.extend(check(host).into_iter().map(|why| invalid(path, host, why)));
}

fn http_path(one: &Value, path: &Path<'_>, errors: &mut Errors) {
    let value = text(one, "path");
    let at = path.field("path");
    match text(one, "pathType") {
        "" => {
            errors.push(FieldError::required(path.field("pathType"), "pathType must be specified"));
            return;
        }
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
        "ImplementationSpecific" => {}
        other => {
            let supported = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.push(FieldError::not_supported(path.field("pathType"), &other.into(), &supported));
        }
    }
    backend(&one["backend"], &path.field("backend"), errors);
}

fn backend(backend: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (object(backend, "service"), object(backend, "resource")) {
        (Some(_), Some(_)) => errors.push(invalid(path, "", "cannot set both resource and service backends")),
        (None, None) => errors.push(FieldError::required(path, "resource or service backend is required")),
        (None, Some(resource)) => {
            let path = path.field("resource");
            for name in ["kind", "name"] {
                if text(resource, name).is_empty() {
                    errors.push(FieldError::required(path.field(name), ""));
                }
            }
        }
        (Some(service), None) => {
            let at = path.field("service");
            let name = text(service, "name");
            if name.is_empty() {
                errors.push(FieldError::required(at.field("name"), ""));
            } else {
                errors.extend(names::label_1035(name).into_iter().map(|why| invalid(&at.field("name"), name, why)));
            }
            let port_path = at.field("port");
            let port = &service["port"];
            match (text(port, "name"), number(port, "number").unwrap_or(0)) {
                ("", 0) => errors.push(FieldError::required(path, "port name or number is required")),
                ("", number) => field::port(errors, number, &port_path.field("number")),
                (name, 0) => errors.extend(names::port_name(name).into_iter().map(|why| invalid(&port_path.field("name"), name, why))),
                _ => errors.push(invalid(path, "", "cannot set both port name & port number")),
            }
        }
    }
}

/// An IngressClass.
pub fn ingress_class(class: &Value, errors: &mut Errors) {
    let controller = text(&class["spec"], "controller");
    let path = SPEC.field("controller");
    if controller.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !controller.contains('/') {
        errors.push(invalid(&path, controller, "must be a domain-prefixed path (such as \"acme.io/foo\")"));
    }
}

/// The controller of a class is settled.
pub fn update_ingress_class(new: &Value, old: &Value, errors: &mut Errors) {
    field::immutable(errors, &new["spec"], &old["spec"], &SPEC, "controller");
    ingress_class(new, errors);
}

/// A NetworkPolicy.
pub fn network_policy(policy: &Value, errors: &mut Errors) {
    let spec = &policy["spec"];
    selector::label_selector(&spec["podSelector"], &SPEC.field("podSelector"), errors);
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
                policy_peer(peer, &list.index(i), errors);
            }
        }
    }
    let types = items(spec, "policyTypes");
    let list = SPEC.field("policyTypes");
    if types.len() > 2 {
        errors.push(FieldError::invalid(list, &Value::from(types.to_vec()), "may not specify more than two policyTypes"));
        return;
    }
    for (i, kind) in types.iter().enumerate() {
        if !matches!(kind.as_str(), Some("Ingress" | "Egress")) {
            errors.push(FieldError::not_supported(list.index(i), kind, &["Ingress", "Egress"]));
        }
    }
}

fn policy_port(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    one_of(errors, port, path, "protocol", false, &["SCTP", "TCP", "UDP"]);
    match &port["port"] {
        Value::Null => {
            if has(port, "endPort") {
                errors.push(FieldError::required(path.field("port"), "must be specified if `endPort` is set"));
            }
        }
        value => {
            super::handler::port_or_name(value, &path.field("port"), errors);
            let Some(end) = number(port, "endPort") else { return };
            match value.as_i64() {
                None => errors.push(FieldError::forbidden(path.field("endPort"), "may not be specified when `port` is non-numeric")),
                Some(start) if end < start => {
                    let why = "must be greater than or equal to `port`";
                    errors.push(FieldError::invalid(path.field("endPort"), &end.into(), why));
                }
                Some(_) => field::port(errors, end, &path.field("endPort")),
            }
        }
    }
}

fn policy_peer(peer: &Value, path: &Path<'_>, errors: &mut Errors) {
    let selectors = ["podSelector", "namespaceSelector"];
    let selected = selectors.iter().filter(|name| has(peer, name)).count();
    for name in selectors {
        selector::label_selector(&peer[name], &path.field(name), errors);
    }
    let Some(block) = object(peer, "ipBlock") else {
        if selected == 0 {
            errors.push(FieldError::required(path, "must specify a peer"));
        }
        return;
    };
    let at = path.field("ipBlock");
    let cidr = text(block, "cidr");
    const WRONG: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    if cidr.is_empty() {
        errors.push(FieldError::required(at.field("cidr"), ""));
    } else if !formats::is_cidr(cidr) {
        errors.push(invalid(&at.field("cidr"), cidr, WRONG));
    }
    let list = at.field("except");
    for (i, except) in items(block, "except").iter().filter_map(Value::as_str).enumerate() {
        if !formats::is_cidr(except) {
            errors.push(invalid(&list.index(i), except, WRONG));
        }
    }
    if selected > 0 {
        errors.push(FieldError::forbidden(path, "may not specify both ipBlock and another peer"));
    }
}
