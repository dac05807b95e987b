//! The Node object of a kubelet: what it registers and what it reports. Pure; `heartbeat` does the writing.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time};

use super::NodeConfig;
use crate::cri::v1::{Image, VersionResponse};

/// How many images a node reports at most.
const IMAGES_REPORTED: usize = 50;
/// The namespace of the nodes' Leases.
pub const LEASE_NAMESPACE: &str = "kube-node-lease";
/// How long a Lease holds without renewal.
pub const LEASE_SECONDS: i32 = 40;

/// What a node knows of itself beside its configuration.
pub struct Facts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its address.
    pub ip: IpAddr,
    /// The port of its kubelet.
    pub port: u16,
    /// Its configuration.
    pub config: &'a NodeConfig,
    /// Its runtime.
    pub runtime: &'a VersionResponse,
    /// The images on it.
    pub images: &'a [Image],
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A UUID that follows from the node's name, so that a node is the same machine after a restart.
fn machine_uuid(name: &str, what: &str) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, name, what).hash(&mut hasher);
        hasher.finish()
    };
    let (a, b) = (half(0), half(1));
    format!("{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}", a >> 32, (a >> 16) & 0xffff, a & 0xfff, b >> 52, b & 0xffff_ffff_ffff)
}

fn quantities(config: &NodeConfig) -> BTreeMap<String, Quantity> {
    let mut list: BTreeMap<String, Quantity> = config.extended_resources.iter().map(|(k, v)| (k.clone(), Quantity(v.clone()))).collect();
    let basics = [
        ("cpu", config.cpu.clone()),
        ("ephemeral-storage", config.ephemeral_storage.clone()),
        ("hugepages-1Gi", "0".into()),
        ("hugepages-2Mi", "0".into()),
        ("memory", config.memory.clone()),
        ("pods", config.pods.to_string()),
    ];
    list.extend(basics.map(|(name, value)| (name.to_owned(), Quantity(value))));
    list
}

fn conditions(known: &[NodeCondition], now: Timestamp) -> Vec<NodeCondition> {
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
    .map(|(name, status, reason, message)| {
        let same = known.iter().find(|condition| condition.type_ == name && condition.status == status);
        NodeCondition {
            type_: name.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_heartbeat_time: Some(now.clone()),
            last_transition_time: Some(same.and_then(|condition| condition.last_transition_time.clone()).unwrap_or_else(|| now.clone())),
        }
    })
    .into()
}

/// The node's status.
#[must_use]
pub fn node_status(facts: &Facts<'_>, known: &[NodeCondition], now: Timestamp) -> NodeStatus {
    let address = |type_: &str, address: String| NodeAddress { type_: type_.into(), address };
    let mut images: Vec<&Image> = facts.images.iter().collect();
    images.sort_by_key(|image| std::cmp::Reverse(image.size));
    NodeStatus {
        addresses: Some(vec![address("InternalIP", facts.ip.to_string()), address("Hostname", facts.name.to_owned())]),
        allocatable: Some(quantities(facts.config)),
        capacity: Some(quantities(facts.config)),
        conditions: Some(conditions(known, now)),
        daemon_endpoints: Some(NodeDaemonEndpoints { kubelet_endpoint: Some(DaemonEndpoint { port: facts.port.into() }) }),
        images: Some(
            images
                .into_iter()
                .take(IMAGES_REPORTED)
                .map(|image| ContainerImage {
                    names: Some(image.repo_digests.iter().chain(&image.repo_tags).cloned().collect()),
                    size_bytes: i64::try_from(image.size).ok(),
                })
                .collect(),
        ),
        node_info: Some(NodeSystemInfo {
            architecture: architecture().into(),
            boot_id: machine_uuid(facts.name, "boot"),
            container_runtime_version: format!("{}://{}", facts.runtime.runtime_name, facts.runtime.runtime_version),
            kernel_version: "6.12.0".into(),
            kube_proxy_version: String::new(),
            kubelet_version: facts.config.kubelet_version.clone(),
            machine_id: machine_uuid(facts.name, "machine").replace('-', ""),
            operating_system: "linux".into(),
            os_image: "Usher".into(),
            system_uuid: machine_uuid(facts.name, "system"),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

/// The Node as it registers itself.
#[must_use]
pub fn node(facts: &Facts<'_>, now: Timestamp) -> Node {
    let mut labels = BTreeMap::from(
        [
            ("beta.kubernetes.io/arch", architecture()),
            ("beta.kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", architecture()),
            ("kubernetes.io/hostname", facts.name),
            ("kubernetes.io/os", "linux"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    labels.extend(facts.config.labels.clone());
    Node {
        metadata: ObjectMeta {
            name: Some(facts.name.to_owned()),
            labels: Some(labels),
            annotations: Some(BTreeMap::from([("volumes.kubernetes.io/controller-managed-attach-detach".into(), "true".into())])),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec { taints: (!facts.config.taints.is_empty()).then(|| facts.config.taints.clone()), ..NodeSpec::default() }),
        status: Some(node_status(facts, &[], now)),
    }
}

/// The Lease with which a node says that it is alive. Owned by the Node, once that is known.
#[must_use]
pub fn lease(name: &str, node_uid: Option<&str>, now: Timestamp) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(LEASE_NAMESPACE.into()),
            owner_references: node_uid.map(|uid| {
                vec![OwnerReference {
                    api_version: "v1".into(),
                    kind: "Node".into(),
                    name: name.to_owned(),
                    uid: uid.to_owned(),
                    ..OwnerReference::default()
                }]
            }),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: Some(LEASE_SECONDS),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_registers_ready_with_its_capacity_and_labels() {
        let config = NodeConfig { cpu: "8".into(), ..NodeConfig::default() };
        let runtime = VersionResponse { runtime_name: "mock".into(), runtime_version: "1".into(), ..VersionResponse::default() };
        let facts = Facts { name: "n1", ip: IpAddr::from([172, 18, 0, 2]), port: 10250, config: &config, runtime: &runtime, images: &[] };
        let node = node(&facts, Timestamp::UNIX_EPOCH);
        let status = node.status.unwrap();
        assert_eq!(status.allocatable.unwrap()["cpu"].0, "8");
        let ready = status.conditions.unwrap().into_iter().find(|c| c.type_ == "Ready").unwrap();
        assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("True", Some("KubeletReady")));
        assert_eq!(node.metadata.labels.unwrap()["kubernetes.io/hostname"], "n1");
        assert_eq!(status.node_info.unwrap().container_runtime_version, "mock://1");
    }

    #[test]
    fn the_transition_time_stays_when_the_condition_does() {
        let first = conditions(&[], Timestamp::UNIX_EPOCH);
        let later = conditions(&first, Timestamp::from_second(60).unwrap());
        assert_eq!(later[3].last_transition_time, first[3].last_transition_time);
        assert_ne!(later[3].last_heartbeat_time, first[3].last_heartbeat_time);
    }
}
