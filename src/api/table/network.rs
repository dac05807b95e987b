//! The rows of Services, what is behind them and what is before them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use super::Cells;
use super::access::{age, first_of, items, labels, name, number, or, selector, text};

pub(super) fn service(object: &Value, now: Timestamp) -> Cells {
    let spec = &object["spec"];
    let cluster_ip = or(spec.pointer("/clusterIPs/0").unwrap_or(&Value::Null), "<none>");
    let ports =
        items(&spec["ports"]).iter().map(|port| match (number(&port["port"]), number(&port["nodePort"]), text(&port["protocol"])) {
            (port, 0, protocol) => format!("{port}/{protocol}"),
            (port, node_port, protocol) => format!("{port}:{node_port}/{protocol}"),
        });
    let ports = ports.collect::<Vec<_>>().join(",");
    vec![
        name(object),
        text(&spec["type"]).into(),
        cluster_ip,
        external_ip(object).into(),
        if ports.is_empty() { "<none>".into() } else { ports.into() },
        age(object, now),
        labels(&spec["selector"]).into(),
    ]
}

fn external_ip(object: &Value) -> String {
    let spec = &object["spec"];
    let mut external: Vec<String> = items(&spec["externalIPs"]).iter().map(|ip| text(ip).to_owned()).collect();
    match text(&spec["type"]) {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external.join(","),
        "LoadBalancer" => {
            let mut all = load_balancer(object);
            all.append(&mut external);
            if all.is_empty() { "<pending>".to_owned() } else { all.join(",") }
        }
        "ExternalName" => text(&spec["externalName"]).to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The addresses of a load balancer, by IP where there is one.
fn load_balancer(object: &Value) -> Vec<String> {
    let ingress = items(&object["status"]["loadBalancer"]["ingress"]).iter();
    let addresses: BTreeSet<&str> = ingress
        .map(|ingress| match text(&ingress["ip"]) {
            "" => text(&ingress["hostname"]),
            ip => ip,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().map(str::to_owned).collect()
}

pub(super) fn endpoints(object: &Value, now: Timestamp) -> Cells {
    let subsets = items(&object["subsets"]);
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = || items(&subset["addresses"]).iter().map(|address| text(&address["ip"]));
        match items(&subset["ports"]) {
            [] => all.extend(addresses().map(str::to_owned)),
            ports => {
                for port in ports {
                    all.extend(addresses().map(|ip| host_and_port(ip, number(&port["port"]))));
                }
            }
        }
    }
    let told = if subsets.is_empty() { "<none>".to_owned() } else { first_of(&all, 3, ",") };
    vec![name(object), told.into(), age(object, now)]
}

fn host_and_port(ip: &str, port: i64) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

pub(super) fn endpoint_slice(object: &Value, now: Timestamp) -> Cells {
    let ports = items(&object["ports"]).iter().map(|port| match (port["port"].as_i64(), &port["name"]) {
        (Some(port), _) => port.to_string(),
        (None, Value::String(name)) => name.clone(),
        _ => "*".to_owned(),
    });
    let addresses = items(&object["endpoints"]).iter().flat_map(|endpoint| items(&endpoint["addresses"])).map(|ip| text(ip).to_owned());
    let told = |all: Vec<String>| match first_of(&all, 3, ",") {
        none if none.is_empty() => "<unset>".to_owned(),
        told => told,
    };
    vec![
        name(object),
        text(&object["addressType"]).into(),
        told(ports.collect()).into(),
        told(addresses.collect()).into(),
        age(object, now),
    ]
}

pub(super) fn ingress(object: &Value, now: Timestamp) -> Cells {
    let spec = &object["spec"];
    let rules = items(&spec["rules"]);
    let hosts: Vec<&str> = rules.iter().map(|rule| text(&rule["host"])).filter(|host| !host.is_empty()).collect();
    let hosts = match hosts.len() {
        0 => "*".to_owned(),
        1..=3 => hosts.join(","),
        _ => format!("{} + {} more...", hosts[..3].join(","), rules.len() - 3),
    };
    let ports = if items(&spec["tls"]).is_empty() { "80" } else { "80, 443" };
    let address = load_balancer(object).join(",");
    vec![name(object), or(&spec["ingressClassName"], "<none>"), hosts.into(), address.into(), ports.into(), age(object, now)]
}

pub(super) fn ingress_class(object: &Value, now: Timestamp) -> Cells {
    let mut name = text(&object["metadata"]["name"]).to_owned();
    if object["metadata"]["annotations"]["ingressclass.kubernetes.io/is-default-class"] == "true" {
        name.push_str(" (default)");
    }
    let parameters = &object["spec"]["parameters"];
    let told = match (parameters.is_object(), text(&parameters["apiGroup"])) {
        (false, _) => "<none>".to_owned(),
        (true, "") => format!("{}/{}", text(&parameters["kind"]), text(&parameters["name"])),
        (true, group) => format!("{}.{group}/{}", text(&parameters["kind"]), text(&parameters["name"])),
    };
    vec![name.into(), text(&object["spec"]["controller"]).into(), told.into(), age(object, now)]
}

pub(super) fn network_policy(object: &Value, now: Timestamp) -> Cells {
    vec![name(object), selector(&object["spec"]["podSelector"], "<none>").into(), age(object, now)]
}

pub(super) fn service_cidr(object: &Value, now: Timestamp) -> Cells {
    let cidrs: Vec<&str> = items(&object["spec"]["cidrs"]).iter().map(text).collect();
    vec![name(object), cidrs.join(",").into(), age(object, now)]
}

pub(super) fn ip_address(object: &Value) -> Cells {
    let parent = &object["spec"]["parentRef"];
    let told = if parent.is_object() {
        let resource = crate::status::qualified(text(&parent["group"]), text(&parent["resource"])).to_lowercase();
        let parts = [resource.as_str(), text(&parent["namespace"]), text(&parent["name"])];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
    } else {
        "<none>".to_owned()
    };
    vec![name(object), told.into()]
}
