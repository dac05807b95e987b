//! The objects that a new cluster has before anybody makes one: namespaces, the Service of the API itself, roles and
//! bindings, priority classes, flow control, and an APIService for each group version. As values, to be created where
//! they are missing; who creates them and as whom is decided elsewhere.

mod flow_control;
mod roles;

use serde_json::{Value, json};

use super::{Table, api_version};

/// What differs between clusters.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The range of Service addresses.
    pub service_cidr: String,
    /// The address of the Service `kubernetes`, the first of the range.
    pub service_ip: String,
    /// Where this server is reached.
    pub advertise_address: String,
    /// See `advertise_address`.
    pub port: u16,
    /// The authority of client certificates, as PEM.
    pub client_ca: String,
    /// The authority that front proxies are known by, as PEM.
    pub front_proxy_ca: String,
    /// The time that conditions carry, in RFC 3339.
    pub now: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            service_cidr: "10.96.0.0/12".into(),
            service_ip: "10.96.0.1".into(),
            advertise_address: "127.0.0.1".into(),
            port: 6443,
            client_ca: String::new(),
            front_proxy_ca: String::new(),
            now: "1970-01-01T00:00:00Z".into(),
        }
    }
}

/// Every object of a new cluster, complete but for what a server fills in itself (uid, creationTimestamp, …). An object
/// comes behind those that it needs.
pub fn objects(settings: &Settings, table: &Table) -> Vec<Value> {
    let mut all: Vec<Value> = ["default", "kube-node-lease", "kube-public", "kube-system"].map(namespace).to_vec();
    all.extend(rbac());
    all.extend(priority_classes());
    all.extend(flow_control::objects(&settings.now));
    all.extend(kubernetes_service(settings));
    all.push(token_tracking(settings));
    all.push(extension_authentication(settings));
    all.extend(api_services(table, &settings.now));
    all
}

/// The roles and bindings alone, which are brought back when they are changed (`rbac.authorization.kubernetes.io/autoupdate`).
pub fn rbac() -> Vec<Value> {
    roles::objects()
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}})
}

fn priority_classes() -> [Value; 2] {
    let class = |name: &str, value: i64, description: &str| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name, "generation": 1},
            "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority"})
    };
    [
        class("system-node-critical", 2_000_001_000, "Used for system critical pods that must not be moved from their current node."),
        class(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ]
}

/// How Pods reach the API: the Service, its address, and what is behind it.
fn kubernetes_service(settings: &Settings) -> [Value; 5] {
    let Settings { service_cidr, service_ip, advertise_address, port, now, .. } = settings;
    let address_type = if advertise_address.contains(':') { "IPv6" } else { "IPv4" };
    let family = if service_ip.contains(':') { "IPv6" } else { "IPv4" };
    [
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"}, "spec": {"cidrs": [service_cidr]},
            "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now, "reason": "",
                "message": "Kubernetes default Service CIDR is ready"}]}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": service_ip, "labels": {
            "ipaddress.kubernetes.io/ip-family": family, "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}},
            "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}], "clusterIP": service_ip,
                "clusterIPs": [service_ip], "type": "ClusterIP", "sessionAffinity": "None", "ipFamilies": [family],
                "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster"},
            "status": {"loadBalancer": {}}}),
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": [{"addresses": [{"ip": advertise_address}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}]}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "kubernetes", "namespace": "default",
            "generation": 1, "labels": {"kubernetes.io/service-name": "kubernetes"}}, "addressType": address_type,
            "endpoints": [{"addresses": [advertise_address], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "protocol": "TCP", "port": port}]}),
    ]
}

/// Since when it is known which of the old, never-ending service account tokens are used.
fn token_tracking(settings: &Settings) -> Value {
    let since = settings.now.split('T').next().unwrap_or_default();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"since": since},
        "metadata": {"name": "kube-apiserver-legacy-service-account-token-tracking", "namespace": "kube-system"}})
}

/// By what extension servers know this one and its clients.
fn extension_authentication(settings: &Settings) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
    "data": {
        "client-ca-file": settings.client_ca,
        "requestheader-allowed-names": "[\"front-proxy-client\"]",
        "requestheader-client-ca-file": settings.front_proxy_ca,
        "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]",
        "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]",
    }})
}

/// One for each version of each built-in group; they say that this server itself answers.
fn api_services(table: &Table, now: &str) -> Vec<Value> {
    let mut all = Vec::new();
    for group in &table.groups {
        for version in &group.versions {
            let builtin = table.of_version(&group.name, version).any(|resource| resource.custom.is_none());
            // The group of APIServices itself has none.
            if builtin && *group.name != *"apiregistration.k8s.io" {
                all.push(api_service(&group.name, version, "onstart", priorities(&group.name, version), now));
            }
        }
    }
    all
}

/// An APIService that this server itself answers for. Those of custom groups are `true` instead of `onstart`.
pub fn api_service(group: &str, version: &str, automanaged: &str, (group_priority, version_priority): (u32, u32), now: &str) -> Value {
    let mut spec = json!({"version": version, "groupPriorityMinimum": group_priority, "versionPriority": version_priority});
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    json!({"apiVersion": api_version("apiregistration.k8s.io", "v1"), "kind": "APIService",
        "metadata": {"name": format!("{version}.{group}"), "labels": {"kube-aggregator.kubernetes.io/automanaged": automanaged}},
        "spec": spec,
        "status": local_status(now)})
}

/// What the status of an APIService says that this server itself answers for.
pub fn local_status(now: &str) -> Value {
    json!({"conditions": [{"type": "Available", "status": "True", "lastTransitionTime": now, "reason": "Local",
        "message": "Local APIServices are always available"}]})
}

/// Where discovery puts a group, and a version within it; custom groups come behind all others.
pub fn priorities(group: &str, version: &str) -> (u32, u32) {
    let group_priority = match group {
        "" => return (18_000, 1),
        "apiregistration.k8s.io" => 18_000,
        "apps" => 17_800,
        "events.k8s.io" => 17_750,
        "authentication.k8s.io" => 17_700,
        "authorization.k8s.io" => 17_600,
        "autoscaling" => 17_500,
        "batch" => 17_400,
        "certificates.k8s.io" => 17_300,
        "networking.k8s.io" => 17_200,
        "policy" => 17_100,
        "rbac.authorization.k8s.io" => 17_000,
        "storage.k8s.io" => 16_800,
        "admissionregistration.k8s.io" | "apiextensions.k8s.io" => 16_700,
        "scheduling.k8s.io" => 16_600,
        "coordination.k8s.io" => 16_500,
        "node.k8s.io" => 16_300,
        "discovery.k8s.io" | "resource.k8s.io" => 16_200,
        "flowcontrol.apiserver.k8s.io" => 16_100,
        "storagemigration.k8s.io" => 15_800,
        _ => return (1_000, 100),
    };
    let version_priority = match (group, version) {
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io", _) => 21,
        _ => 15,
    };
    (group_priority, version_priority)
}

/// `User:name`, `Group:name` and `ServiceAccount:namespace/name`, as both tables write subjects.
fn subject(word: &str) -> Option<(&str, &str, &str)> {
    let (kind, name) = word.split_once(':')?;
    match kind {
        "ServiceAccount" => name.split_once('/').map(|(namespace, name)| (kind, namespace, name)),
        _ => Some((kind, "", name)),
    }
}

/// The words of a list; the core group is written as a word.
fn words(list: &str) -> Value {
    list.trim().split(',').map(|word| Value::from(if word == "core" { "" } else { word })).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::registry::Registry;
    use crate::schema::decode::{FieldValidation, decode};

    #[test]
    fn every_object_is_one_of_its_kind_and_there_once() {
        let registry = Registry::new();
        let mut seen = HashSet::new();
        for object in objects(&Settings::default(), &registry.table()) {
            let api_version = object["apiVersion"].as_str().expect("apiVersion");
            let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
            let kind = object["kind"].as_str().expect("kind");
            let resource = registry.by_kind(group, version, kind).expect("resource");
            let (mut read, _) =
                decode(object.to_string().as_bytes(), "application/json", &resource, FieldValidation::Strict).expect("strict");
            crate::schema::apply_defaults(&mut read, &resource);
            assert_eq!(read, object, "nothing is left to be filled in");
            let metadata = &object["metadata"];
            assert_eq!(resource.namespaced, metadata["namespace"].is_string(), "{kind} {}", metadata["name"]);
            assert!(seen.insert(format!("{kind}/{}/{}", metadata["namespace"], metadata["name"])), "{kind} {}", metadata["name"]);
        }
        let count = |kind: &str| seen.iter().filter(|key| key.split('/').next() == Some(kind)).count();
        assert_eq!((count("ClusterRole"), count("ClusterRoleBinding"), count("Role"), count("RoleBinding")), (73, 54, 7, 7));
        assert_eq!((count("FlowSchema"), count("PriorityLevelConfiguration"), count("APIService")), (11, 8, 22));
    }

    #[test]
    fn the_api_is_found_under_its_service() {
        let all = objects(&Settings { port: 16443, ..Settings::default() }, &Registry::new().table());
        let service = all.iter().find(|o| o["kind"] == "Service").expect("service");
        assert_eq!((&service["spec"]["clusterIP"], &service["spec"]["ports"][0]["targetPort"]), (&json!("10.96.0.1"), &json!(16443)));
    }
}
