//! Services: ports, types, addresses, session affinity. Allocation of addresses and ports is the API's.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, items, number, one_of, required, shaped, text, word, wrong};
use super::{address, metadata, names};
use crate::status::FieldError;

const SPEC: Path<'static> = Path::root("spec");
const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// Whether it has no address at all.
pub fn is_headless(spec: &Value) -> bool {
    matches!(items(spec, "clusterIPs"), [only] if only == "None")
}

/// A new Service.
pub fn service(service: &Value, errors: &mut Errors) {
    whole(service, None, errors);
}

fn whole(service: &Value, old: Option<&Value>, errors: &mut Errors) {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    const MODE: &str = "service.kubernetes.io/topology-mode";
    let given = &service["metadata"]["annotations"];
    if let (Some(hints), Some(mode)) = (given[HINTS].as_str(), given[MODE].as_str())
        && hints != mode
    {
        let why = format!("must match annotations[{HINTS}] when both are specified");
        errors.push(FieldError::invalid(format!("metadata.annotations[{MODE}]"), &mode.into(), why));
    }
    let spec = &service["spec"];
    let kind = text(spec, "type");
    let headless = is_headless(spec);
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
        let path = list.index(i);
        service_port(port, &path, ports.len() > 1, &ports[..i], errors);
    }
    metadata::label_map(spec, "selector", &SPEC, errors);
    one_of(errors, spec, &SPEC, "sessionAffinity", true, &["ClientIP", "None"]);
    affinity(spec, errors);
    cluster_ips(spec, old, errors);
    let list = SPEC.field("externalIPs");
    for (i, ip) in items(spec, "externalIPs").iter().filter_map(Value::as_str).enumerate() {
        let kept = old.is_some_and(|old| items(&old["spec"], "externalIPs").iter().any(|other| other == ip));
        if kept || address::ip(errors, &list.index(i), ip).is_some() {
            address::endpoint(errors, &list.index(i), ip);
        }
    }
    one_of(errors, spec, &SPEC, "type", true, &TYPES);
    port_uses(spec, kind, errors);
    source_ranges(service, kind, old, errors);
    if has(spec, "allocateLoadBalancerNodePorts") && kind != "LoadBalancer" {
        errors.push(FieldError::forbidden(SPEC.field("allocateLoadBalancerNodePorts"), BALANCER_ONLY));
    }
    if kind == "LoadBalancer" && !has(spec, "allocateLoadBalancerNodePorts") {
        errors.push(FieldError::required("allocateLoadBalancerNodePorts", ""));
    }
    balancer_class(spec, kind, errors);
    traffic(spec, kind, errors);
}

fn external_name(spec: &Value, errors: &mut Errors) {
    for name in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let set = if name == "ipFamilyPolicy" { has(spec, name) } else { !items(spec, name).is_empty() };
        if set {
            errors.push(FieldError::forbidden(SPEC.field(name), "may not be set for ExternalName services"));
        }
    }
    let (name, path) = (text(spec, "externalName"), SPEC.field("externalName"));
    match name.strip_suffix('.').unwrap_or(name) {
        "" => errors.push(FieldError::required(path, "")),
        name => wrong(errors, &path, name, names::subdomain(name)),
    }
}

fn service_port(port: &Value, path: &Path<'_>, needs_name: bool, before: &[Value], errors: &mut Errors) {
    let name = text(port, "name");
    if needs_name {
        required(errors, port, path, &["name"]);
    }
    shaped(errors, port, path, "name", names::label);
    if !name.is_empty() && before.iter().any(|p| text(p, "name") == name) {
        errors.push(FieldError::duplicate(path.field("name"), &name.into()));
    }
    field::port(errors, number(port, "port").unwrap_or(0), &path.field("port"));
    one_of(errors, port, path, "protocol", true, &["SCTP", "TCP", "UDP"]);
    super::handler::port_or_name(&port["targetPort"], &path.field("targetPort"), errors);
    if has(port, "appProtocol") {
        let protocol = text(port, "appProtocol");
        wrong(errors, &path.field("appProtocol"), protocol, names::qualified(protocol));
    }
}

fn affinity(spec: &Value, errors: &mut Errors) {
    let path = SPEC.field("sessionAffinityConfig");
    let config = &spec["sessionAffinityConfig"];
    match text(spec, "sessionAffinity") {
        "ClientIP" => {
            const WHEN: &str = "when session affinity type is ClientIP";
            let at = path.field("clientIP");
            let timeout = at.field("timeoutSeconds");
            if !config.is_object() {
                errors.push(FieldError::required(path, WHEN));
            } else if !config["clientIP"].is_object() {
                errors.push(FieldError::required(at, WHEN));
            } else if let Some(seconds) = number(&config["clientIP"], "timeoutSeconds") {
                if !(1..=86400).contains(&seconds) {
                    errors.push(FieldError::invalid(timeout, &seconds.into(), "must be greater than 0 and less than 86400"));
                }
            } else {
                errors.push(FieldError::required(timeout, WHEN));
            }
        }
        "None" if config.is_object() => {
            errors.push(FieldError::forbidden(path, "must not be set when session affinity is None"));
        }
        _ => {}
    }
}

/// Addresses and their families. Also asked before addresses are drawn, since what is wrong cannot be drawn for.
pub fn cluster_ips(spec: &Value, old: Option<&Value>, errors: &mut Errors) {
    if text(spec, "type") == "ExternalName" {
        return;
    }
    let (first, all, list) = (text(spec, "clusterIP"), items(spec, "clusterIPs"), SPEC.field("clusterIPs"));
    let shown = spec.get("clusterIPs").unwrap_or(&Value::Null);
    if first.is_empty() {
        if !all.is_empty() {
            errors.push(FieldError::invalid(list, shown, "must be empty when `clusterIP` is not specified"));
        }
    } else if all.is_empty() {
        errors.push(FieldError::required(list, ""));
    } else if all[0] != first {
        errors.push(FieldError::invalid(list, shown, "first value must match `clusterIP`"));
    }
    let families = items(spec, "ipFamilies");
    let path = SPEC.field("ipFamilies");
    for (i, family) in families.iter().enumerate() {
        if !matches!(family.as_str(), Some("IPv4" | "IPv6")) {
            errors.push(FieldError::not_supported(path.index(i), family, &["IPv4", "IPv6"]));
        }
        if families[..i].contains(family) {
            errors.push(FieldError::duplicate(path.index(i), family));
        }
    }
    word(errors, spec, &SPEC, "ipFamilyPolicy", &["PreferDualStack", "RequireDualStack", "SingleStack"]);
    let mut any_wrong = false;
    for (i, ip) in all.iter().filter_map(Value::as_str).enumerate() {
        if i == 0 && ip == "None" {
            if all.len() > 1 {
                any_wrong = true;
                errors.push(FieldError::invalid(list, shown, "'None' must be the first and only value"));
            }
            continue;
        }
        let kept = old.is_some_and(|old| items(&old["spec"], "clusterIPs").iter().any(|other| other == ip));
        any_wrong |= !kept && address::ip(errors, &list.index(i), ip).is_none();
    }
    if all.len() > 2 {
        errors.push(FieldError::invalid(list, shown, "may only hold up to 2 values"));
    }
    if any_wrong {
        return;
    }
    if all.len() > 1 && address::is_dual_stack(all.iter().filter_map(Value::as_str)) != Ok(true) {
        errors.push(FieldError::invalid(list, shown, "may specify no more than one IP for each IP family"));
    }
    for (i, (ip, family)) in all.iter().zip(families).enumerate().filter(|_| !is_headless(spec)) {
        let is_six = ip.as_str().and_then(address::sloppy).is_some_and(|ip| ip.is_ipv6());
        let family = family.as_str().unwrap_or_default();
        if (family == "IPv4" && is_six) || (family == "IPv6" && !is_six) {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{i}]`");
            errors.push(FieldError::invalid(list.index(i), ip, why));
        }
    }
}

/// What ports of nodes and of the Service itself are used for.
fn port_uses(spec: &Value, kind: &str, errors: &mut Errors) {
    let ports = items(spec, "ports");
    let list = SPEC.field("ports");
    let node_port = |port: &Value| number(port, "nodePort").unwrap_or(0);
    for (i, _) in ports.iter().enumerate().filter(|(_, port)| kind == "ClusterIP" && node_port(port) != 0) {
        errors.push(FieldError::forbidden(list.index(i).field("nodePort"), "may not be used when `type` is 'ClusterIP'"));
    }
    for (i, port) in ports.iter().enumerate().filter(|(_, port)| node_port(port) != 0) {
        if ports[..i].iter().any(|p| node_port(p) == node_port(port) && text(p, "protocol") == text(port, "protocol")) {
            errors.push(FieldError::duplicate(list.index(i).field("nodePort"), &node_port(port).into()));
        }
    }
    for (i, port) in ports.iter().enumerate() {
        let (number, protocol) = (number(port, "port").unwrap_or(0), text(port, "protocol"));
        if ports[..i].iter().any(|p| p["port"] == port["port"] && text(p, "protocol") == protocol) {
            let value = format!(
                "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{number},\"TargetPort\":0,\"NodePort\":0}}",
                Value::from(protocol)
            );
            errors.push(FieldError { value, ..FieldError::duplicate(list.index(i), &Value::Null) });
        }
    }
}

fn source_ranges(service: &Value, kind: &str, old: Option<&Value>, errors: &mut Errors) {
    let ranges = items(&service["spec"], "loadBalancerSourceRanges");
    let annotation = &service["metadata"]["annotations"][RANGES];
    if !ranges.is_empty() {
        let list = SPEC.field("LoadBalancerSourceRanges");
        if kind != "LoadBalancer" {
            errors.push(FieldError::forbidden(list, BALANCER_ONLY));
        }
        for (i, range) in ranges.iter().filter_map(Value::as_str).map(str::trim).enumerate() {
            let before = old.map(|old| items(&old["spec"], "loadBalancerSourceRanges")).unwrap_or_default();
            if !before.iter().any(|other| other.as_str().map(str::trim) == Some(range)) {
                address::cidr(errors, &list.index(i), range);
            }
        }
    } else if let Some(text) = annotation.as_str() {
        let path = Path::root("metadata");
        let path = path.field("annotations");
        let path = path.key(RANGES);
        if kind != "LoadBalancer" {
            errors.push(FieldError::forbidden(path, BALANCER_ONLY));
        }
        if old.is_none_or(|old| old["metadata"]["annotations"][RANGES] != *annotation) && !text.trim().is_empty() {
            for range in text.trim().split(',') {
                address::cidr(errors, &path, range.trim());
            }
        }
    }
}

fn balancer_class(spec: &Value, kind: &str, errors: &mut Errors) {
    if !has(spec, "loadBalancerClass") {
        return;
    }
    let (class, path) = (text(spec, "loadBalancerClass"), SPEC.field("loadBalancerClass"));
    match kind {
        "LoadBalancer" => wrong(errors, &path, class, names::qualified(class)),
        _ => errors.push(FieldError::forbidden(path, BALANCER_ONLY)),
    }
}

/// Whether a balancer asks nodes for their health.
pub fn needs_health_check(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

fn traffic(spec: &Value, kind: &str, errors: &mut Errors) {
    let policy = text(spec, "externalTrafficPolicy");
    let at = SPEC.field("externalTrafficPolicy");
    let external = matches!(kind, "LoadBalancer" | "NodePort") || (kind == "ClusterIP" && !items(spec, "externalIPs").is_empty());
    if external {
        one_of(errors, spec, &SPEC, "externalTrafficPolicy", true, &["Cluster", "Local"]);
    } else if !policy.is_empty() {
        errors.push(invalid(&at, policy, "may only be set for externally-accessible services"));
    }
    let (port, at) = (number(spec, "healthCheckNodePort").unwrap_or(0), SPEC.field("healthCheckNodePort"));
    match (needs_health_check(spec), port) {
        (true, 0) => errors.push(FieldError::required(at, "")),
        (true, port) => field::port(errors, port, &at),
        (false, 0) => {}
        (false, port) => {
            let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
            errors.push(FieldError::invalid(at, &port.into(), why));
        }
    }
    if !has(spec, "internalTrafficPolicy") && matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") {
        errors.push(FieldError::required(SPEC.field("internalTrafficPolicy"), ""));
    }
    word(errors, spec, &SPEC, "internalTrafficPolicy", &["Cluster", "Local"]);
    word(errors, spec, &SPEC, "trafficDistribution", &["PreferClose", "PreferSameZone", "PreferSameNode"]);
}

/// A changed Service: its addresses, families and class stay.
pub fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let (after, before) = (&new["spec"], &old["spec"]);
    if text(after, "type") != "ExternalName" && text(before, "type") != "ExternalName" {
        same_ips(after, before, errors);
        same_families(after, before, errors);
    }
    let kind = text(after, "type");
    if kind == "LoadBalancer" && text(before, "type") == "LoadBalancer" && after.get("loadBalancerClass") != before.get("loadBalancerClass")
    {
        let shown = after.get("loadBalancerClass").unwrap_or(&Value::Null);
        errors.push(FieldError::invalid(SPEC.field("loadBalancerClass"), shown, "may not change once set"));
    }
    balancer_class(after, kind, errors);
    if needs_health_check(before)
        && needs_health_check(after)
        && number(after, "healthCheckNodePort") != number(before, "healthCheckNodePort")
    {
        errors.push(FieldError::forbidden(SPEC.field("healthCheckNodePort"), "field is immutable"));
    }
    whole(new, Some(old), errors);
}

fn same_ips(after: &Value, before: &Value, errors: &mut Errors) {
    if is_headless(after) && is_headless(before) {
        return;
    }
    let (ips, had, list) = (items(after, "clusterIPs"), items(before, "clusterIPs"), SPEC.field("clusterIPs"));
    let shown = after.get("clusterIPs").unwrap_or(&Value::Null);
    const FIXED: &str = "may not change once set";
    if ips.len() == had.len() {
        for (i, _) in ips.iter().zip(had).enumerate().filter(|(_, (now, then))| now != then) {
            errors.push(FieldError::invalid(list.index(i), shown, FIXED));
        }
        return;
    }
    if had.len() > ips.len() && ips.is_empty() {
        errors.push(FieldError::invalid(list.index(0), shown, "primary clusterIP can not be unset"));
    }
    if let (Some(now), Some(then)) = (ips.first(), had.first())
        && now != then
    {
        errors.push(FieldError::invalid(list.index(0), shown, FIXED));
    }
    if had.len() > ips.len() && ips.len() == 1 {
        single(after, "clusterIP", errors);
    }
}

fn single(spec: &Value, what: &str, errors: &mut Errors) {
    if text(spec, "ipFamilyPolicy") != "SingleStack" {
        let shown = spec.get("ipFamilyPolicy").unwrap_or(&Value::Null);
        let why = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        errors.push(FieldError::invalid(SPEC.field("ipFamilyPolicy"), shown, why));
    }
}

fn same_families(after: &Value, before: &Value, errors: &mut Errors) {
    if is_headless(after) || is_headless(before) {
        return;
    }
    let (families, had, list) = (items(after, "ipFamilies"), items(before, "ipFamilies"), SPEC.field("ipFamilies"));
    let shown = after.get("ipFamilies").unwrap_or(&Value::Null);
    let ips = after.get("clusterIPs").unwrap_or(&Value::Null);
    const FIXED: &str = "may not change once set";
    if families.len() == had.len() {
        for _ in families.iter().zip(had).filter(|(now, then)| now != then) {
            errors.push(FieldError::invalid(list.index(0), shown, FIXED));
        }
        return;
    }
    if had.len() > families.len() && items(after, "clusterIPs").is_empty() {
        errors.push(FieldError::invalid(list.index(0), shown, "primary ipFamily can not be unset"));
    }
    if let (Some(now), Some(then)) = (families.first(), had.first())
        && now != then
    {
        errors.push(FieldError::invalid(list.index(0), ips, FIXED));
    }
    if had.len() > families.len() && families.len() == 1 {
        single(after, "ipFamily", errors);
    }
}

/// The status of a balancer: where it can be reached. `kind` is the Service's type; an Ingress has none.
pub fn balancer_status(status: &Value, kind: Option<&str>, errors: &mut Errors) {
    let path = Path::root("status");
    let path = path.field("loadBalancer");
    let list = path.field("ingress");
    let ingress = items(&status["loadBalancer"], "ingress");
    if kind.is_some_and(|kind| kind != "LoadBalancer") && !ingress.is_empty() {
        errors.push(FieldError::forbidden(list, "may only be used when `spec.type` is 'LoadBalancer'"));
        return;
    }
    for (i, place) in ingress.iter().enumerate() {
        let path = list.index(i);
        let (ip, host) = (text(place, "ip"), text(place, "hostname"));
        if !ip.is_empty() {
            address::ip(errors, &path.field("ip"), ip);
        }
        if kind.is_some() {
            let at = path.field("ipMode");
            match (has(place, "ipMode"), ip.is_empty()) {
                (false, false) => errors.push(FieldError::required(at, "must be specified when `ip` is set")),
                (true, true) => errors.push(FieldError::forbidden(at, "may not be specified when `ip` is not set")),
                (true, false) => word(errors, place, &path, "ipMode", &["Proxy", "VIP"]),
                (false, true) => {}
            }
        }
        if !host.is_empty() {
            wrong(errors, &path.field("hostname"), host, names::subdomain(host));
            if address::sloppy(host).is_some() {
                errors.push(invalid(&path.field("hostname"), host, "must be a DNS name, not an IP address"));
            }
        }
    }
}
