//! Where the Pods of a Service are: Endpoints and EndpointSlices.

use serde_json::Value;

use super::field::{self, Errors, Path, has, invalid, items, map, number, one_of, required, shaped, text, wrong};
use super::{address, metadata, names};
use crate::status::FieldError;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// Whether they are those of this server itself, which may listen where nobody else can reach it.
fn is_own(object: &Value) -> bool {
    let metadata = &object["metadata"];
    text(metadata, "name") == "kubernetes" && text(metadata, "namespace") == "default"
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
            for (i, place) in items(subset, name).iter().enumerate() {
                let path = list.index(i);
                let ip = text(place, "ip");
                address::ip(errors, &path.field("ip"), ip);
                shaped(errors, place, &path, "hostname", names::label);
                if has(place, "nodeName") {
                    wrong(errors, &path.field("nodeName"), text(place, "nodeName"), names::subdomain(text(place, "nodeName")));
                }
                if !is_own(endpoints) {
                    address::endpoint(errors, &path.field("ip"), ip);
                }
            }
        }
        let list = path.field("ports");
        let ports = items(subset, "ports");
        for (i, port) in ports.iter().enumerate() {
            let path = list.index(i);
            if ports.len() > 1 {
                required(errors, port, &path, &["name"]);
            }
            shaped(errors, port, &path, "name", names::label);
            field::port(errors, number(port, "port").unwrap_or(0), &path.field("port"));
            one_of(errors, port, &path, "protocol", true, &PROTOCOLS);
            app_protocol(port, &path, errors);
        }
    }
}

fn app_protocol(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    if has(port, "appProtocol") {
        let protocol = text(port, "appProtocol");
        wrong(errors, &path.field("appProtocol"), protocol, names::qualified(protocol));
    }
}

/// An EndpointSlice. What newer servers say by rules of their own comes behind what they always said.
pub fn slice(slice: &Value, errors: &mut Errors) {
    slice_ports(slice, errors);
    slice_endpoints(slice, errors);
    one_of(errors, slice, &Path::object(), "addressType", true, &["FQDN", "IPv4", "IPv6"]);
    let list = Path::root("endpoints");
    for (i, endpoint) in items(slice, "endpoints").iter().enumerate().filter(|_| items(slice, "endpoints").len() <= 1000) {
        let path = list.index(i);
        required(errors, endpoint, &path, &["addresses"]);
        let count = items(endpoint, "addresses").len();
        if count > 100 {
            errors.push(FieldError::too_many(path.field("addresses"), count, 100));
        }
    }
}

/// A changed EndpointSlice.
pub fn update_slice(new: &Value, old: &Value, errors: &mut Errors) {
    slice(new, errors);
    field::settled(errors, new, old, &Path::object(), "addressType");
}

fn slice_endpoints(slice: &Value, errors: &mut Errors) {
    let endpoints = items(slice, "endpoints");
    let list = Path::root("endpoints");
    if endpoints.len() > 1000 {
        errors.push(FieldError::too_many(list, endpoints.len(), 1000));
        return;
    }
    for (i, endpoint) in endpoints.iter().enumerate() {
        let path = list.index(i);
        let at = path.field("addresses");
        for (i, text) in items(endpoint, "addresses").iter().filter_map(Value::as_str).enumerate() {
            let one = at.index(i);
            match self::text(slice, "addressType") {
                "IPv4" => {
                    if let Some(ip) = address::ip(errors, &one, text) {
                        if !ip.is_ipv4() {
                            errors.push(invalid(&at, text, "must be an IPv4 address"));
                        }
                        if !is_own(slice) {
                            address::endpoint(errors, &one, text);
                        }
                    }
                }
                "IPv6" => {
                    if let Some(ip) = address::strict_ip(errors, &one, text) {
                        if !ip.is_ipv6() {
                            errors.push(invalid(&at, text, "must be an IPv6 address"));
                        }
                        if !is_own(slice) {
                            address::endpoint(errors, &one, text);
                        }
                    }
                }
                "FQDN" => domain_name(text, &one, errors),
                _ => {}
            }
        }
        if has(endpoint, "nodeName") {
            let node = self::text(endpoint, "nodeName");
            wrong(errors, &path.field("nodeName"), node, names::subdomain(node));
        }
        let topology = map(endpoint, "deprecatedTopology").map_or(0, serde_json::Map::len);
        if topology > 16 {
            errors.push(FieldError::too_many(path.field("deprecatedTopology"), topology, 16));
        }
        metadata::label_map(endpoint, "deprecatedTopology", &path, errors);
        if has(endpoint, "hostname") {
            let host = self::text(endpoint, "hostname");
            wrong(errors, &path.field("hostname"), host, names::label(host));
        }
        hints(&endpoint["hints"], &path.field("hints"), errors);
    }
}

fn domain_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let why = names::subdomain(name);
    let right = why.is_empty();
    wrong(errors, path, name, why);
    if !right {
        return;
    }
    if name.split('.').count() < 2 {
        errors.push(invalid(path, name, "should be a domain with at least two segments separated by dots"));
        return;
    }
    for label in name.split('.') {
        let why = names::label(label);
        if !why.is_empty() {
            wrong(errors, path, label, why);
        }
    }
}

fn hints(hints: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (list, check) in [("forZones", names::label_value as names::Check), ("forNodes", names::subdomain)] {
        let (places, at) = (items(hints, list), path.field(list));
        if places.len() > 8 {
            errors.push(FieldError::too_many(at, places.len(), 8));
            return;
        }
        for (i, place) in places.iter().enumerate() {
            let (name, path) = (text(place, "name"), at.index(i));
            let path = path.field("name");
            if places[..i].iter().any(|p| text(p, "name") == name) {
                errors.push(FieldError::duplicate(path, &name.into()));
            }
            wrong(errors, &path, name, check(name));
        }
    }
}

fn slice_ports(slice: &Value, errors: &mut Errors) {
    let (list, ports) = (Path::root("ports"), items(slice, "ports"));
    if ports.len() > 20000 {
        errors.push(FieldError::too_many(list, ports.len(), 20000));
        return;
    }
    for (i, port) in ports.iter().enumerate() {
        let (name, path) = (text(port, "name"), list.index(i));
        shaped(errors, port, &path, "name", names::label);
        if ports[..i].iter().any(|p| text(p, "name") == name) {
            errors.push(FieldError::duplicate(path.field("name"), &name.into()));
        }
        match has(port, "protocol") {
            true => field::word(errors, port, &path, "protocol", &PROTOCOLS),
            false => errors.push(FieldError::required(path.field("protocol"), "")),
        }
        app_protocol(port, &path, errors);
    }
}
