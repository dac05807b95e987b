//! Services: cluster IPs and node ports, drawn from their ranges and given back. What is taken is read off the Services
//! themselves when the server starts, so nothing else has to be kept or repaired.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::api::Api;
use crate::status::{FieldError, Status};

/// The addresses and ports that Services have taken.
pub struct Allocator {
    /// The first address of the range, and how many bits are its own.
    network: (Ipv4Addr, u32),
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    addresses: HashSet<Ipv4Addr>,
    ports: HashSet<u16>,
    last_address: u32,
    last_port: u16,
}

/// Node ports are drawn from here.
const NODE_PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

impl Default for Allocator {
    fn default() -> Self {
        Allocator { network: (Ipv4Addr::new(10, 96, 0, 0), 12), taken: Mutex::default() }
    }
}

impl Allocator {
    /// Marks what an existing Service has.
    pub fn take(&self, service: &Value) {
        let mut taken = self.taken.lock();
        taken.addresses.extend(addresses(service));
        taken.ports.extend(node_ports(service));
    }

    /// Gives back what a Service had.
    pub fn give_back(&self, service: &Value) {
        let mut taken = self.taken.lock();
        for address in addresses(service) {
            taken.addresses.remove(&address);
        }
        for port in node_ports(service) {
            taken.ports.remove(&port);
        }
    }

    fn contains(&self, address: Ipv4Addr) -> bool {
        let mask = u32::MAX << (32 - self.network.1);
        u32::from(address) & mask == u32::from(self.network.0) & mask
    }

    fn claim_address(&self, wanted: Ipv4Addr) -> Result<(), String> {
        if !self.contains(wanted) {
            return Err(format!("failed to allocate IP {wanted}: the provided network does not match the current range"));
        }
        match self.taken.lock().addresses.insert(wanted) {
            true => Ok(()),
            false => Err(format!("failed to allocate IP {wanted}: provided IP is already allocated")),
        }
    }

    fn next_address(&self) -> Option<Ipv4Addr> {
        let size = 1u32 << (32 - self.network.1);
        let mut taken = self.taken.lock();
        // The first 256 are left for Services that ask for an address of their own, as a real server does.
        for _ in 0..size {
            taken.last_address = if taken.last_address < 256 || taken.last_address + 2 >= size { 256 } else { taken.last_address + 1 };
            let address = Ipv4Addr::from(u32::from(self.network.0) + taken.last_address);
            if taken.addresses.insert(address) {
                return Some(address);
            }
        }
        None
    }

    fn next_port(&self) -> Option<u16> {
        let mut taken = self.taken.lock();
        for _ in NODE_PORTS {
            taken.last_port = if NODE_PORTS.contains(&(taken.last_port + 1)) { taken.last_port + 1 } else { *NODE_PORTS.start() };
            let port = taken.last_port;
            if taken.ports.insert(port) {
                return Some(port);
            }
        }
        None
    }

    fn claim_port(&self, wanted: u16) -> Result<(), &'static str> {
        if !NODE_PORTS.contains(&wanted) {
            return Err("provided port is not in the valid range. The range of valid ports is 30000-32767");
        }
        match self.taken.lock().ports.insert(wanted) {
            true => Ok(()),
            false => Err("provided port is already allocated"),
        }
    }
}

fn addresses(service: &Value) -> impl Iterator<Item = Ipv4Addr> + '_ {
    service["spec"]["clusterIPs"].as_array().into_iter().flatten().filter_map(|ip| ip.as_str()?.parse().ok())
}

fn node_ports(service: &Value) -> impl Iterator<Item = u16> + '_ {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports.filter_map(|port| port["nodePort"].as_u64()).filter(|port| *port != 0).map(|port| port as u16)
}

fn kind(spec: &Value) -> &str {
    spec["type"].as_str().unwrap_or("ClusterIP")
}

pub(super) async fn prepare_for_create(api: &Api, service: &mut Value) -> Result<(), Status> {
    service["status"] = json!({"loadBalancer": {}});
    allocate(api, service, None)
}

pub(super) async fn prepare_for_update(api: &Api, old: &Value, new: &mut Value) -> Result<(), Status> {
    // What the client left out of an update stays as it was, unless the type no longer has it.
    if kind(&new["spec"]) != "ExternalName" && kind(&old["spec"]) != "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort"] {
            if new["spec"].get(field).is_none_or(|v| v.is_null() || v == "")
                && let Some(value) = old["spec"].get(field)
            {
                new["spec"][field] = value.clone();
            }
        }
    }
    keep_node_ports(old, new);
    allocate(api, new, Some(old))
}

/// A port that had a node port keeps it where the client does not say another.
fn keep_node_ports(old: &Value, new: &mut Value) {
    if !matches!(kind(&new["spec"]), "NodePort" | "LoadBalancer") {
        return;
    }
    let had: Vec<Value> = old["spec"]["ports"].as_array().cloned().unwrap_or_default();
    for port in new["spec"]["ports"].as_array_mut().into_iter().flatten() {
        if port["nodePort"].as_u64().unwrap_or(0) == 0 {
            let same = had.iter().find(|p| p["port"] == port["port"] && p["protocol"] == port["protocol"]);
            if let Some(number) = same.and_then(|p| p.get("nodePort")) {
                port["nodePort"] = number.clone();
            }
        }
    }
}

fn allocate(api: &Api, service: &mut Value, old: Option<&Value>) -> Result<(), Status> {
    let name = crate::object::meta(service, "name").to_owned();
    let invalid = |error: FieldError| Status::invalid("", "Service", &name, vec![error]);
    let allocator = &api.services;
    let mut held = Taken::default();
    if let Some(old) = old {
        held.addresses.extend(addresses(old));
        held.ports.extend(node_ports(old));
    }
    let spec = &mut service["spec"];
    if kind(spec) == "ExternalName" {
        if let Some(map) = spec.as_object_mut() {
            for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"] {
                map.remove(field);
            }
        }
    } else {
        let wanted = spec["clusterIP"].as_str().filter(|ip| !ip.is_empty()).or_else(|| spec["clusterIPs"][0].as_str()).map(str::to_owned);
        let address = match wanted.as_deref() {
            Some("None") => "None".to_owned(),
            Some(text) => {
                if let Ok(address) = text.parse::<Ipv4Addr>()
                    && !held.addresses.contains(&address)
                {
                    allocator.claim_address(address).map_err(|why| invalid(FieldError::invalid("spec.clusterIPs", &json!([text]), why)))?;
                }
                text.to_owned()
            }
            None => match allocator.next_address() {
                Some(address) => address.to_string(),
                None => return Err(Status::internal("failed to allocate a serviceIP: range is full")),
            },
        };
        spec["clusterIP"] = json!(address);
        if spec["clusterIPs"].as_array().is_none_or(Vec::is_empty) {
            spec["clusterIPs"] = json!([address]);
        }
        if spec["ipFamilies"].as_array().is_none_or(Vec::is_empty) {
            spec["ipFamilies"] = json!(["IPv4"]);
        }
        if spec["ipFamilyPolicy"].as_str().is_none_or(str::is_empty) {
            spec["ipFamilyPolicy"] = json!("SingleStack");
        }
    }
    let wants_ports = match kind(spec) {
        "NodePort" => true,
        "LoadBalancer" => spec["allocateLoadBalancerNodePorts"].as_bool().unwrap_or(true),
        _ => false,
    };
    let has_ports = matches!(kind(spec), "NodePort" | "LoadBalancer");
    for (i, port) in spec["ports"].as_array_mut().into_iter().flatten().enumerate() {
        match port["nodePort"].as_u64().unwrap_or(0) as u16 {
            0 if wants_ports => match allocator.next_port() {
                Some(number) => port["nodePort"] = json!(number),
                None => return Err(Status::internal("failed to allocate a nodePort: range is full")),
            },
            0 => {}
            _ if !has_ports && old.is_some() => {
                // The type no longer has node ports.
                if let Some(map) = port.as_object_mut() {
                    map.remove("nodePort");
                }
            }
            number if !held.ports.contains(&number) && has_ports => {
                let field = format!("spec.ports[{i}].nodePort");
                allocator.claim_port(number).map_err(|why| invalid(FieldError::invalid(field, &json!(number), why)))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// A Service is gone, or was never kept.
pub fn release(api: &Api, service: &Value) {
    api.services.give_back(service);
}
