//! What is not wise in a Pod or the template of one: names that hide or overlap each other, selectors that match nothing, addresses in
//! unusual forms. Deprecated fields are with the other deprecations, in [`super::warnings`].

use std::collections::HashMap;

use serde_json::Value;

use super::address;
use super::container;
use super::field::{Path, has, items, text};

/// Ports of one Pod that are the same, that overlap, or that have one name.
pub fn ports(at: &Path<'_>, spec: &Value, found: &mut Vec<String>) {
    struct Port<'v> {
        key: (i64, &'v str),
        host: (i64, &'v str),
        place: String,
    }
    let mut seen: Vec<Port<'_>> = Vec::new();
    for (list, i, container) in container::all(spec) {
        for (j, port) in items(container, "ports").iter().enumerate() {
            let place = at.field(list).index(i).field("ports").index(j).to_string();
            let number = |field: &str| port[field].as_i64().unwrap_or(0);
            let (host_port, host_ip) = (number("hostPort"), text(port, "hostIP"));
            let key = (number("containerPort"), text(port, "protocol"));
            if !host_ip.is_empty() && host_port == 0 {
                found.push(format!(
                    "{place}: hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} HostIP:{host_ip}}}",
                    text(port, "name"),
                    key.0,
                    key.1
                ));
            }
            for other in seen.iter().filter(|other| other.key == key) {
                let told = if other.host == (host_port, host_ip) {
                    "duplicate"
                } else if host_port == 0 || other.host.0 == 0 {
                    "overlapping"
                } else if host_port == other.host.0 && host_ip.is_empty() != other.host.1.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                found.push(format!("{place}: {told} port definition with {}", other.place));
            }
            seen.push(Port { key, host: (host_port, host_ip), place });
        }
    }
    let mut names: HashMap<&str, String> = HashMap::new();
    for (list, i, container) in container::all(spec) {
        for (j, port) in items(container, "ports").iter().enumerate() {
            let (name, place) = (text(port, "name"), at.field(list).index(i).field("ports").index(j).to_string());
            match names.get(name).filter(|_| !name.is_empty()) {
                Some(other) => found.push(format!(
                    "{place}: duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
                )),
                None => drop(names.insert(name, place)),
            }
        }
    }
}

/// Terms without a selector, which match no Pod.
pub fn affinity(at: &Path<'_>, spec: &Value, found: &mut Vec<String>) {
    const WHY: &str = "a null labelSelector results in matching no pod";
    let at = at.field("affinity");
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (terms, at) = (&spec["affinity"][kind], at.field(kind));
        let list = at.field("requiredDuringSchedulingIgnoredDuringExecution");
        for (i, _) in
            items(terms, "requiredDuringSchedulingIgnoredDuringExecution").iter().enumerate().filter(|(_, t)| !has(t, "labelSelector"))
        {
            found.push(format!("{}: {WHY}", list.index(i).field("labelSelector")));
        }
        let list = at.field("preferredDuringSchedulingIgnoredDuringExecution");
        for (i, term) in items(terms, "preferredDuringSchedulingIgnoredDuringExecution").iter().enumerate() {
            if !has(&term["podAffinityTerm"], "labelSelector") {
                found.push(format!("{}: {WHY}", list.index(i).field("podAffinityTerm").field("labelSelector")));
            }
        }
    }
}

/// Addresses in unusual forms.
pub fn addresses(at: &Path<'_>, spec: &Value, found: &mut Vec<String>) {
    let config = at.field("dnsConfig");
    let list = config.field("nameservers");
    for (i, server) in items(&spec["dnsConfig"], "nameservers").iter().filter_map(Value::as_str).enumerate() {
        found.extend(address::ip_warning(&list.index(i), server));
    }
    let list = at.field("hostAliases");
    for (i, alias) in items(spec, "hostAliases").iter().enumerate() {
        found.extend(address::ip_warning(&list.index(i).field("ip"), text(alias, "ip")));
    }
}

/// A file of a volume: its path, and what it is made of where that is not the volume itself.
struct File<'v> {
    path: &'v str,
    source: String,
}

impl std::fmt::Display for File<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.source.is_empty() {
            true => write!(f, "{:?}", self.path),
            false => write!(f, "{:?} ({})", self.path, self.source),
        }
    }
}

fn files<'v>(source: &'v Value, name: &str) -> Vec<File<'v>> {
    items(source, "items").iter().map(|item| File { path: text(item, "path"), source: name.to_owned() }).collect()
}

/// Files of one volume that are, or are inside, each other.
pub fn files_overlap(spec: &Value, found: &mut Vec<String>) {
    for volume in items(spec, "volumes") {
        let name = text(volume, "name");
        let mut tell = |what: &str, files: Vec<File<'_>>| {
            let mut seen: Vec<File<'_>> = Vec::new();
            for mut file in files {
                file.path = file.path.trim_end_matches('/');
                let inside = |a: &str, b: &str| format!("{a}/").starts_with(&format!("{b}/"));
                for other in seen.iter().filter(|o| !file.path.is_empty() && !o.path.is_empty()) {
                    if inside(file.path, other.path) || inside(other.path, file.path) {
                        found.push(format!("volume {name:?} ({what}): overlapping paths: {file} with {other}"));
                    }
                }
                seen.push(file);
            }
        };
        let config = &volume["configMap"];
        tell(&format!("ConfigMap {:?}", text(config, "name")), files(config, ""));
        let secret = &volume["secret"];
        tell(&format!("Secret {:?}", text(secret, "secretName")), files(secret, ""));
        tell("DownwardAPI", files(&volume["downwardAPI"], ""));
        let sources = items(&volume["projected"], "sources");
        tell("Projected", sources.iter().flat_map(projected).collect());
        for _ in sources.iter().filter(|source| source.as_object().is_none_or(serde_json::Map::is_empty)) {
            found.push(format!("volume {name:?} (Projected) has no sources provided"));
        }
    }
}

fn projected(source: &Value) -> Vec<File<'_>> {
    if has(&source["configMap"], "items") {
        files(&source["configMap"], &format!("ConfigMap {:?}", text(&source["configMap"], "name")))
    } else if has(&source["secret"], "items") {
        files(&source["secret"], &format!("Secret {:?}", text(&source["secret"], "name")))
    } else if has(&source["downwardAPI"], "items") {
        files(&source["downwardAPI"], "DownwardAPI")
    } else if has(source, "serviceAccountToken") {
        vec![File { path: text(&source["serviceAccountToken"], "path"), source: "ServiceAccountToken".into() }]
    } else if has(source, "clusterTrustBundle") {
        let bundle = &source["clusterTrustBundle"];
        let name = if has(bundle, "name") { text(bundle, "name") } else { text(bundle, "signerName") };
        vec![File { path: text(bundle, "path"), source: format!("ClusterTrustBundle {name:?}") }]
    } else if has(source, "podCertificate") {
        let parts = [("certificateChainPath", "chain"), ("keyPath", "key"), ("credentialBundlePath", "credential bundle")];
        let certificate = &source["podCertificate"];
        let file = |(field, what): (&str, &str)| File { path: text(certificate, field), source: format!("PodCertificate {what}") };
        parts.into_iter().map(file).filter(|file| !file.path.is_empty()).collect()
    } else {
        Vec::new()
    }
}
