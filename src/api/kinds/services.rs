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

const OUTSIDE: &str = "provided port is not in the valid range. The range of valid ports is 30000-32767";

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
        let (first, length) = self.network;
        let last = u32::from(first) | (u32::MAX >> length);
        if !self.contains(wanted) {
            return Err("the provided network does not match the current range".into());
        }
        // The first and the last address of a network are its own.
        if wanted == first || u32::from(wanted) == last {
            return Err(format!("the provided IP ({wanted}) is not in the valid range. The range of valid IPs is {first}/{length}"));
        }
        match self.taken.lock().addresses.insert(wanted) {
            true => Ok(()),
            false => Err("provided IP is already allocated".into()),
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
            return Err(OUTSIDE);
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

/// The ports of nodes that a Service has, the one that balancers ask for its health among them.
fn node_ports(service: &Value) -> impl Iterator<Item = u16> + '_ {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
    ports
        .chain([&spec["healthCheckNodePort"]])
        .filter_map(Value::as_u64)
        .filter_map(|port| u16::try_from(port).ok())
        .filter(|port| *port != 0)
}

fn kind(spec: &Value) -> &str {
    spec["type"].as_str().unwrap_or("ClusterIP")
}

fn has_address(spec: &Value) -> bool {
    kind(spec) != "ExternalName"
}

/// Whether its ports get ports of the nodes without asking.
fn gets_node_ports(spec: &Value) -> bool {
    match kind(spec) {
        "NodePort" => true,
        "LoadBalancer" => spec["allocateLoadBalancerNodePorts"].as_bool().unwrap_or(true),
        _ => false,
    }
}

fn may_have_node_ports(spec: &Value) -> bool {
    matches!(kind(spec), "NodePort" | "LoadBalancer")
}

fn is_absent(spec: &Value, name: &str) -> bool {
    spec.get(name).is_none_or(crate::schema::is_zero)
}

fn remove(spec: &mut Value, names: &[&str]) {
    if let Some(map) = spec.as_object_mut() {
        names.iter().for_each(|name| drop(map.remove(*name)));
    }
}

pub(super) async fn prepare_for_create(api: &Api, service: &mut Value) -> Result<(), Status> {
    service["status"] = json!({"loadBalancer": {}});
    let spec = &mut service["spec"];
    if !is_absent(spec, "clusterIP") && is_absent(spec, "clusterIPs") {
        spec["clusterIPs"] = json!([spec["clusterIP"]]);
    }
    allocate(api, service, None)
}

pub(super) async fn prepare_for_update(api: &Api, old: &Value, new: &mut Value) -> Result<(), Status> {
    let (before, spec) = (&old["spec"], &mut new["spec"]);
    let same = |spec: &Value, names: &[&str]| names.iter().all(|name| spec.get(*name) == before.get(*name));
    // The single address and the list follow each other, whichever the client changed.
    if is_absent(spec, "clusterIPs") && spec.get("clusterIP") == before.get("clusterIP") && !is_absent(before, "clusterIPs") {
        spec["clusterIPs"] = before["clusterIPs"].clone();
    }
    if spec.get("clusterIP") != before.get("clusterIP") && same(spec, &["clusterIPs"]) {
        match is_absent(spec, "clusterIP") {
            true => remove(spec, &["clusterIPs"]),
            false => spec["clusterIPs"] = json!([spec["clusterIP"]]),
        }
    }
    // What the server gave, and the client left out, stays.
    if has_address(before) && has_address(spec) {
        for name in ["clusterIP", "clusterIPs"] {
            if is_absent(spec, name) && !is_absent(before, name) {
                spec[name] = before[name].clone();
            }
        }
    }
    keep_node_ports(before, spec);
    let checks = crate::validation::needs_health_check;
    if checks(before) && checks(spec) && is_absent(spec, "healthCheckNodePort") {
        spec["healthCheckNodePort"] = before["healthCheckNodePort"].clone();
    }
    // What belongs to the type that it was, and the client did not touch, goes with the type.
    if has_address(before) && !has_address(spec) {
        if same(spec, &["clusterIP", "clusterIPs"]) {
            remove(spec, &["clusterIP", "clusterIPs"]);
        }
        for name in ["ipFamilies", "ipFamilyPolicy"].iter().filter(|name| same(spec, &[name])).copied().collect::<Vec<_>>() {
            remove(spec, &[name]);
        }
    }
    let ports = |spec: &Value| spec["ports"].as_array().into_iter().flatten().map(|p| p["nodePort"].clone()).collect::<Vec<_>>();
    if may_have_node_ports(before) && !may_have_node_ports(spec) && ports(before) == ports(spec) {
        for port in spec["ports"].as_array_mut().into_iter().flatten() {
            remove(port, &["nodePort"]);
        }
    }
    if checks(before) && !checks(spec) && same(spec, &["healthCheckNodePort"]) {
        remove(spec, &["healthCheckNodePort"]);
    }
    if kind(before) == "LoadBalancer" && kind(spec) != "LoadBalancer" {
        for name in
            ["allocateLoadBalancerNodePorts", "loadBalancerClass"].iter().filter(|name| same(spec, &[name])).copied().collect::<Vec<_>>()
        {
            remove(spec, &[name]);
        }
    }
    let external = |spec: &Value| may_have_node_ports(spec) || (kind(spec) == "ClusterIP" && !is_absent(spec, "externalIPs"));
    if external(before) && !external(spec) && same(spec, &["externalTrafficPolicy"]) {
        remove(spec, &["externalTrafficPolicy"]);
    }
    if kind(spec) != "LoadBalancer" {
        new["status"] = json!({"loadBalancer": {}});
    }
    allocate(api, new, Some(old))
}

/// A port that had a node port keeps it where the client does not say another.
fn keep_node_ports(before: &Value, spec: &mut Value) {
    if !gets_node_ports(before) || !gets_node_ports(spec) {
        return;
    }
    let list = |spec: &Value| spec["ports"].as_array().cloned().unwrap_or_default();
    let (had, now) = (list(before), list(spec));
    let used = |number: &Value| now.iter().any(|port| port["nodePort"] == *number);
    for port in spec["ports"].as_array_mut().into_iter().flatten().filter(|port| is_absent(port, "nodePort")) {
        let same = had.iter().rfind(|p| p["name"].as_str().unwrap_or_default() == port["name"].as_str().unwrap_or_default());
        if let Some(number) = same.map(|p| &p["nodePort"]).filter(|number| !number.is_null() && !used(number)) {
            port["nodePort"] = number.clone();
        }
    }
}

fn allocate(api: &Api, service: &mut Value, old: Option<&Value>) -> Result<(), Status> {
    let mut drawn = Drawn { allocator: &api.services, addresses: Vec::new(), ports: Vec::new() };
    let name = crate::object::meta(service, "name").to_owned();
    let result = families(&mut service["spec"], old, &name)
        .and_then(|()| address(&mut service["spec"], old, &name, &mut drawn))
        .and_then(|()| ports(&mut service["spec"], old, &name, &mut drawn));
    if result.is_err() {
        drawn.give_back();
    }
    result
}

/// What one write has drawn so far.
struct Drawn<'a> {
    allocator: &'a Allocator,
    addresses: Vec<Ipv4Addr>,
    ports: Vec<u16>,
}

impl Drawn<'_> {
    fn give_back(&self) {
        let mut taken = self.allocator.taken.lock();
        for address in &self.addresses {
            taken.addresses.remove(address);
        }
        for port in &self.ports {
            taken.ports.remove(port);
        }
    }

    fn port(&mut self, wanted: u16) -> Result<(), &'static str> {
        self.allocator.claim_port(wanted)?;
        self.ports.push(wanted);
        Ok(())
    }

    fn any_port(&mut self) -> Option<u16> {
        let port = self.allocator.next_port()?;
        self.ports.push(port);
        Some(port)
    }
}

fn invalid(name: &str, errors: Vec<FieldError>) -> Status {
    Status::invalid("", "Service", name, errors)
}

/// The families of its addresses, of which this server has one.
fn families(spec: &mut Value, old: Option<&Value>, name: &str) -> Result<(), Status> {
    if !has_address(spec) {
        return Ok(());
    }
    let unselected = spec["clusterIP"] == "None" && is_absent(spec, "selector");
    if is_absent(spec, "ipFamilyPolicy") {
        let before = old.map(|old| &old["spec"]["ipFamilyPolicy"]).filter(|policy| policy.is_string());
        let policy = if unselected { "RequireDualStack" } else { "SingleStack" };
        spec["ipFamilyPolicy"] = before.cloned().unwrap_or_else(|| policy.into());
    }
    if let Some(old) = old.filter(|_| is_absent(spec, "ipFamilies"))
        && !is_absent(&old["spec"], "ipFamilies")
        && spec.get("clusterIPs") == old["spec"].get("clusterIPs")
    {
        spec["ipFamilies"] = old["spec"]["ipFamilies"].clone();
    }
    let errors = crate::validation::cluster_ips(spec, old);
    if !errors.is_empty() {
        return Err(invalid(name, errors));
    }
    let mut errors = Vec::new();
    let list = |spec: &Value, name: &str| spec[name].as_array().cloned().unwrap_or_default();
    let policy = spec["ipFamilyPolicy"].clone();
    let single = policy == "SingleStack";
    let mut wrong = |field: &str, value: &Value, why: &str| errors.push(FieldError::invalid(field, value, why));
    if single {
        const BOTH: &str = "must be 'RequireDualStack' or 'PreferDualStack' when multiple";
        if list(spec, "clusterIPs").len() == 2 {
            wrong("spec.ipFamilyPolicy", &policy, &format!("{BOTH} cluster IPs are specified"));
        }
        if list(spec, "ipFamilies").len() == 2 {
            wrong("spec.ipFamilyPolicy", &policy, &format!("{BOTH} IP families are specified"));
        }
    }
    let mut families = list(spec, "ipFamilies");
    for (i, ip) in list(spec, "clusterIPs").iter().enumerate().take_while(|(_, ip)| *ip != "None") {
        if i >= families.len() {
            match ip.as_str().is_some_and(|ip| ip.contains(':')) {
                true => wrong(&format!("spec.clusterIPs[{i}]"), &spec["clusterIPs"], "IPv6 is not configured on this cluster"),
                false => families.push(json!("IPv4")),
            }
        }
    }
    if !errors.is_empty() {
        return Err(invalid(name, errors));
    }
    if families.is_empty() {
        families.push(json!("IPv4"));
    }
    if unselected {
        if families.len() < 2 && !single {
            let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
            families.push(json!(other));
        }
    } else {
        let mut wrong = |field: &str, value: &Value, why: &str| errors.push(FieldError::invalid(field, value, why));
        if policy == "RequireDualStack" {
            wrong("spec.ipFamilyPolicy", &policy, "this cluster is not configured for dual-stack services");
        }
        for (i, family) in families.iter().enumerate().filter(|(_, family)| *family != "IPv4") {
            wrong(&format!("spec.ipFamilies[{i}]"), family, "not configured on this cluster");
        }
        if !errors.is_empty() {
            return Err(invalid(name, errors));
        }
    }
    spec["ipFamilies"] = families.into();
    Ok(())
}

fn address(spec: &mut Value, old: Option<&Value>, name: &str, drawn: &mut Drawn<'_>) -> Result<(), Status> {
    if !has_address(spec) || spec["clusterIP"] == "None" {
        return Ok(());
    }
    let given: Vec<Ipv4Addr> = addresses(&json!({"spec": {"clusterIPs": spec["clusterIPs"]}})).collect();
    let held: Vec<Ipv4Addr> = old.map(|old| addresses(old).collect()).unwrap_or_default();
    for wanted in given.iter().filter(|address| !held.contains(address)) {
        let refused = |why| {
            let why = format!("failed to allocate IP {wanted}: {why}");
            invalid(name, vec![FieldError::invalid("spec.clusterIPs", &spec["clusterIPs"], why)])
        };
        drawn.allocator.claim_address(*wanted).map_err(refused)?;
        drawn.addresses.push(*wanted);
    }
    if given.is_empty() {
        let Some(address) = drawn.allocator.next_address() else {
            return Err(Status::internal(format!("failed to allocate a serviceIP for Service {name:?}: range is full")));
        };
        drawn.addresses.push(address);
        spec["clusterIP"] = json!(address.to_string());
        spec["clusterIPs"] = json!([address.to_string()]);
    }
    Ok(())
}

fn ports(spec: &mut Value, old: Option<&Value>, name: &str, drawn: &mut Drawn<'_>) -> Result<(), Status> {
    let held: Vec<u16> = old.map(|old| node_ports(old).collect()).unwrap_or_default();
    let (gets, may_have) = (gets_node_ports(spec), may_have_node_ports(spec));
    let number = |port: &Value| port["nodePort"].as_i64().unwrap_or(0);
    let all = spec["ports"].as_array().cloned().unwrap_or_default();
    let mut given: Vec<(Value, i64)> = Vec::new();
    for (i, port) in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten().enumerate().filter(|_| may_have) {
        let mut wanted = number(port);
        if wanted == 0 && !gets {
            continue;
        }
        // One port of several protocols has one port of the nodes.
        let same = given.iter().find(|(other, _)| *other == port["port"]).map(|(_, number)| *number);
        if wanted == 0 && old.is_none() {
            let asked = all.iter().filter(|other| other["port"] == port["port"]).map(number).find(|number| *number != 0);
            wanted = same.or(asked).unwrap_or(0);
        }
        if wanted == 0 {
            let Some(drawn) = drawn.any_port() else { return Err(Status::internal("failed to allocate a nodePort: range is full")) };
            wanted = drawn.into();
        } else if same != Some(wanted) {
            let refused = |why: &str| invalid(name, vec![FieldError::invalid(format!("spec.ports[{i}].nodePort"), &wanted.into(), why)]);
            let Ok(exact) = u16::try_from(wanted) else { return Err(refused(OUTSIDE)) };
            if !held.contains(&exact) && !drawn.ports.contains(&exact) {
                drawn.port(exact).map_err(refused)?;
            }
        }
        port["nodePort"] = json!(wanted);
        given.push((port["port"].clone(), wanted));
    }
    let checks = crate::validation::needs_health_check;
    if checks(spec) && !old.is_some_and(|old| checks(&old["spec"])) {
        match spec["healthCheckNodePort"].as_i64().unwrap_or(0) {
            0 => {
                let Some(port) = drawn.any_port() else {
                    return Err(Status::internal("failed to allocate a HealthCheck NodePort 0: range is full"));
                };
                spec["healthCheckNodePort"] = json!(port);
            }
            wanted => {
                let refused = |why: &str| Status::internal(format!("failed to allocate requested HealthCheck NodePort {wanted}: {why}"));
                let Ok(exact) = u16::try_from(wanted) else { return Err(refused(OUTSIDE)) };
                drawn.port(exact).map_err(refused)?;
            }
        }
    }
    Ok(())
}

/// After a change was kept, what the Service no longer has goes back; after one that was not, what was drawn for it.
pub(super) fn settle(api: &Api, old: &Value, new: &Value, kept: bool) {
    let (gone, stays) = if kept { (old, new) } else { (new, old) };
    let stays: (Vec<_>, Vec<_>) = (addresses(stays).collect(), node_ports(stays).collect());
    let mut taken = api.services.taken.lock();
    for address in addresses(gone).filter(|address| !stays.0.contains(address)) {
        taken.addresses.remove(&address);
    }
    for port in node_ports(gone).filter(|port| !stays.1.contains(port)) {
        taken.ports.remove(&port);
    }
}

/// A Service is gone, or was never kept.
pub fn release(api: &Api, service: &Value) {
    api.services.give_back(service);
}
