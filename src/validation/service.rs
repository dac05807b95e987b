//! Services: ports, types, addresses, session affinity. Allocation of addresses and ports is the API's.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, items, number, one_of, text};
use super::{metadata, names};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// A new or changed Service.
pub fn service(service: &Value, errors: &mut Errors) {
    let spec = &service["spec"];
    let kind = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    let ports = items(spec, "ports");
    let list = SPEC.field("ports");
    if ports.is_empty() && !headless && kind != "ExternalName" {
        errors.push(FieldError::required(list, ""));
    }
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            let why = format!("may not be set to 'None' for {kind} services");
            errors.push(FieldError::invalid(SPEC.field("clusterIPs").index(0), &"None".into(), why));
        }
        "ExternalName" => external_name(spec, errors),
        _ => {}
    }
    for (i, port) in ports.iter().enumerate() {
        service_port(port, &list.index(i), ports.len() > 1, headless, errors);
        let name = text(port, "name");
        if !name.is_empty() && ports[..i].iter().any(|p| text(p, "name") == name) {
            errors.push(FieldError::duplicate(list.index(i).field("name"), &name.into()));
        }
    }
    metadata::label_map(spec, "selector", &SPEC, errors);
    session_affinity(spec, errors);
    addresses(spec, errors);
    one_of(errors, spec, &SPEC, "type", false, &TYPES);
    node_ports(spec, kind, errors);
    for (i, port) in ports.iter().enumerate() {
        let same = |p: &Value| p["port"] == port["port"] && p["protocol"] == port["protocol"];
        if ports[..i].iter().any(same) {
            let shown = serde_json::json!({"protocol": port["protocol"], "port": port["port"]});
            errors.push(FieldError::duplicate(list.index(i), &shown));
        }
    }
    traffic(spec, kind, errors);
}

fn external_name(spec: &Value, errors: &mut Errors) {
    let name = text(spec, "externalName");
    for field in ["clusterIPs", "ipFamilies"] {
        if !items(spec, field).is_empty() {
            errors.push(FieldError::forbidden(SPEC.field(field), "may not be set for ExternalName services"));
        }
    }
    let bare = name.strip_suffix('.').unwrap_or(name);
    if bare.is_empty() {
        errors.push(FieldError::required(SPEC.field("externalName"), ""));
    } else {
        errors.extend(names::subdomain(bare).into_iter().map(|why| invalid(&SPEC.field("externalName"), bare, why)));
    }
}

fn service_port(port: &Value, path: &Path<'_>, named: bool, headless: bool, errors: &mut Errors) {
    let name = text(port, "name");
    if !name.is_empty() {
        errors.extend(names::label(name).into_iter().map(|why| invalid(&path.field("name"), name, why)));
    } else if named {
        errors.push(FieldError::required(path.field("name"), ""));
    }
    field::port(errors, number(port, "port").unwrap_or(0), &path.field("port"));
    one_of(errors, port, path, "protocol", true, &["SCTP", "TCP", "UDP"]);
    match &port["targetPort"] {
        // A headless Service's port leads nowhere but to itself.
        Value::Null if headless => {}
        Value::Null => {}
        target => super::container::port_or_name(target, &path.field("targetPort"), errors),
    }
    let protocol = text(port, "appProtocol");
    if !protocol.is_empty() {
        errors.extend(names::qualified(protocol).into_iter().map(|why| invalid(&path.field("appProtocol"), protocol, why)));
    }
}

fn session_affinity(spec: &Value, errors: &mut Errors) {
    one_of(errors, spec, &SPEC, "sessionAffinity", true, &["ClientIP", "None"]);
    let path = SPEC.field("sessionAffinityConfig");
    match text(spec, "sessionAffinity") {
        "ClientIP" => {
            let timeout = spec["sessionAffinityConfig"]["clientIP"].get("timeoutSeconds");
            let at = path.field("clientIP");
            match timeout.and_then(Value::as_i64) {
                Some(seconds) if !(1..=86400).contains(&seconds) => {
                    let why = "must be greater than 0 and less than 86400";
                    errors.push(FieldError::invalid(at.field("timeoutSeconds"), &seconds.into(), why));
                }
                _ => {}
            }
        }
        "None" if has(spec, "sessionAffinityConfig") => {
            let why = "must not be set when session affinity is None";
            errors.push(FieldError::forbidden(path, why));
        }
        _ => {}
    }
}

fn addresses(spec: &Value, errors: &mut Errors) {
    let list = SPEC.field("externalIPs");
    for (i, ip) in items(spec, "externalIPs").iter().filter_map(Value::as_str).enumerate() {
        if ip.parse::<std::net::IpAddr>().is_err() {
            errors.push(invalid(&list.index(i), ip, IP));
        }
    }
    let list = SPEC.field("clusterIPs");
    let ips = items(spec, "clusterIPs");
    let first = text(spec, "clusterIP");
    if let Some(ip) = ips.first()
        && !first.is_empty()
        && ip != first
    {
        errors.push(invalid(&list.index(0), ip.as_str().unwrap_or_default(), "first value must match `clusterIP`"));
    }
    for (i, ip) in ips.iter().filter_map(Value::as_str).enumerate().filter(|(_, ip)| !ip.is_empty() && *ip != "None") {
        if ip.parse::<std::net::IpAddr>().is_err() {
            errors.push(invalid(&list.index(i), ip, IP));
        }
    }
    if ips.len() > 2 {
        errors.push(FieldError::invalid(list, &Value::from(ips.to_vec()), "may only hold up to 2 values"));
    }
    let list = SPEC.field("ipFamilies");
    for (i, family) in items(spec, "ipFamilies").iter().enumerate() {
        if !matches!(family.as_str(), Some("IPv4" | "IPv6")) {
            errors.push(FieldError::not_supported(list.index(i), family, &["IPv4", "IPv6"]));
        }
    }
    one_of(errors, spec, &SPEC, "ipFamilyPolicy", false, &["PreferDualStack", "RequireDualStack", "SingleStack"]);
    if !items(spec, "loadBalancerSourceRanges").is_empty() {
        let path = SPEC.field("loadBalancerSourceRanges");
        if text(spec, "type") != "LoadBalancer" {
            errors.push(FieldError::forbidden(path, "may only be used when `type` is 'LoadBalancer'"));
        }
        for (i, range) in items(spec, "loadBalancerSourceRanges").iter().filter_map(Value::as_str).enumerate() {
            if !super::formats::is_cidr(range.trim()) {
                let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
                errors.push(invalid(&path.index(i), range, why));
            }
        }
    }
}

fn node_ports(spec: &Value, kind: &str, errors: &mut Errors) {
    let list = SPEC.field("ports");
    let ports = items(spec, "ports");
    for (i, port) in ports.iter().enumerate() {
        let Some(node_port) = number(port, "nodePort").filter(|p| *p != 0) else { continue };
        let path = list.index(i);
        if kind == "ClusterIP" {
            errors.push(FieldError::forbidden(path.field("nodePort"), "may not be used when `type` is 'ClusterIP'"));
        }
        let same = |p: &Value| number(p, "nodePort") == Some(node_port) && p["protocol"] == port["protocol"];
        if ports[..i].iter().any(same) {
            errors.push(FieldError::duplicate(path.field("nodePort"), &node_port.into()));
        }
    }
}

fn traffic(spec: &Value, kind: &str, errors: &mut Errors) {
    if has(spec, "externalTrafficPolicy") && kind == "ClusterIP" && items(spec, "externalIPs").is_empty() {
        let value = &spec["externalTrafficPolicy"];
        errors.push(FieldError::invalid(SPEC.field("externalTrafficPolicy"), value, "may only be set for externally-accessible services"));
    } else {
        one_of(errors, spec, &SPEC, "externalTrafficPolicy", false, &["Cluster", "Local"]);
    }
    if let Some(port) = number(spec, "healthCheckNodePort").filter(|p| *p != 0)
        && !(kind == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local")
    {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.push(FieldError::invalid(SPEC.field("healthCheckNodePort"), &port.into(), why));
    }
    one_of(errors, spec, &SPEC, "internalTrafficPolicy", false, &["Cluster", "Local"]);
    one_of(errors, spec, &SPEC, "trafficDistribution", false, &["PreferClose", "PreferSameNode", "PreferSameZone"]);
    if has(spec, "allocateLoadBalancerNodePorts") && kind != "LoadBalancer" {
        errors.push(FieldError::forbidden(SPEC.field("allocateLoadBalancerNodePorts"), "may only be used when `type` is 'LoadBalancer'"));
    }
    if has(spec, "loadBalancerClass") && kind != "LoadBalancer" {
        errors.push(FieldError::forbidden(SPEC.field("loadBalancerClass"), "may only be used when `type` is 'LoadBalancer'"));
    }
}

/// The address of a Service stays.
pub fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let (new_spec, old_spec) = (&new["spec"], &old["spec"]);
    if text(new_spec, "type") != "ExternalName" && text(old_spec, "type") != "ExternalName" {
        let (ips, before) = (items(new_spec, "clusterIPs"), items(old_spec, "clusterIPs"));
        let list = SPEC.field("clusterIPs");
        if before.first().is_some_and(|ip| ip.as_str().is_some_and(|ip| !ip.is_empty()) && ips.first() != Some(ip)) {
            errors.push(FieldError::invalid(list.index(0), &Value::from(ips.to_vec()), "may not change once set"));
        }
    }
    service(new, errors);
}

/// Endpoints: addresses and ports.
pub fn endpoints(endpoints: &Value, errors: &mut Errors) {
    let list = Path::root("subsets");
    for (i, subset) in items(endpoints, "subsets").iter().enumerate() {
        let path = list.index(i);
        if items(subset, "addresses").is_empty() && items(subset, "notReadyAddresses").is_empty() {
            errors.push(FieldError::required(path, "must specify `addresses` or `notReadyAddresses`"));
        }
        for name in ["addresses", "notReadyAddresses"] {
            let list = path.field(name);
            for (i, address) in items(subset, name).iter().enumerate() {
                let ip = text(address, "ip");
                if ip.parse::<std::net::IpAddr>().is_err() {
                    errors.push(invalid(&list.index(i).field("ip"), ip, IP));
                }
            }
        }
        let list = path.field("ports");
        let ports = items(subset, "ports");
        for (i, port) in ports.iter().enumerate() {
            let path = list.index(i);
            if ports.len() > 1 && text(port, "name").is_empty() {
                errors.push(FieldError::required(path.field("name"), ""));
            }
            field::port(errors, number(port, "port").unwrap_or(0), &path.field("port"));
            one_of(errors, port, &path, "protocol", true, &["SCTP", "TCP", "UDP"]);
        }
    }
}

/// An EndpointSlice.
pub fn endpoint_slice(slice: &Value, errors: &mut Errors) {
    let kind = text(slice, "addressType");
    let root = Path::object();
    one_of(errors, slice, &root, "addressType", true, &["FQDN", "IPv4", "IPv6"]);
    let endpoints = items(slice, "endpoints");
    let list = Path::root("endpoints");
    if endpoints.len() > 1000 {
        errors.push(FieldError::too_many(list, endpoints.len(), 1000));
    }
    for (i, endpoint) in endpoints.iter().enumerate() {
        let path = list.index(i);
        let path = path.field("addresses");
        let addresses = items(endpoint, "addresses");
        if addresses.is_empty() {
            errors.push(FieldError::required(path, "must contain at least 1 address"));
        }
        for (i, address) in addresses.iter().filter_map(Value::as_str).enumerate() {
            let right = match kind {
                "IPv4" => address.parse::<std::net::Ipv4Addr>().is_ok(),
                "IPv6" => address.parse::<std::net::Ipv6Addr>().is_ok(),
                _ => true,
            };
            if !right {
                errors.push(invalid(&path.index(i), address, format!("must be a valid {kind} address")));
            }
        }
    }
    let list = Path::root("ports");
    let ports = items(slice, "ports");
    for (i, port) in ports.iter().enumerate() {
        let name = text(port, "name");
        if ports[..i].iter().any(|p| text(p, "name") == name) {
            errors.push(FieldError::duplicate(list.index(i).field("name"), &name.into()));
        }
    }
}
