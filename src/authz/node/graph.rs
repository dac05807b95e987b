//! Which node needs which object: a Pod bound to a node brings everything it mentions (Secrets, ConfigMaps, claims, its
//! service account), a claim brings its volume and that volume's Secrets, and some objects name their node themselves.
//! Kept up to date change by change; a Pod that is deleted takes back exactly what it brought.

use std::collections::{HashMap, HashSet};

use parking_lot::RwLock;
use serde_json::Value;

/// What a node may need to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Kind {
    Pod,
    Secret,
    ConfigMap,
    PersistentVolumeClaim,
    PersistentVolume,
    ServiceAccount,
    ResourceClaim,
    VolumeAttachment,
    ResourceSlice,
    PodCertificateRequest,
}

type Name = (Kind, Box<str>, Box<str>);

/// Namespace and name.
type Namespaced = (Box<str>, Box<str>);

/// The graph. Reads take a short shared lock; only writes of the kinds above take it exclusively.
#[derive(Default)]
pub struct Graph {
    edges: RwLock<Edges>,
}

#[derive(Default)]
struct Edges {
    /// How many objects bring a node this one.
    needed: HashMap<Box<str>, HashMap<Name, u32>>,
    /// By the name of a volume: the claim it is bound to, and the Secrets it mentions.
    volumes: HashMap<Box<str>, Volume>,
    /// The volumes that mention a Secret.
    volume_secrets: HashMap<Namespaced, HashSet<Box<str>>>,
}

#[derive(Default)]
struct Volume {
    claim: Option<Namespaced>,
    secrets: Vec<Namespaced>,
}

impl Graph {
    /// Takes over a change of any object; kinds that bring nothing are passed over. In force on return.
    pub fn changed(&self, plural: &str, group: &str, old: Option<&Value>, new: Option<&Value>) {
        let own = match (group, plural) {
            ("", "pods") => {
                let (before, after) = (old.and_then(pod), new.and_then(pod));
                // Most writes of a Pod are of its status and change nothing here.
                if before != after {
                    let mut edges = self.edges.write();
                    edges.put(after, 1);
                    edges.put(before, -1);
                }
                return;
            }
            ("", "persistentvolumes") => return self.volume_changed(old, new),
            ("storage.k8s.io", "volumeattachments") => Kind::VolumeAttachment,
            ("resource.k8s.io", "resourceslices") => Kind::ResourceSlice,
            ("certificates.k8s.io", "podcertificaterequests") => Kind::PodCertificateRequest,
            _ => return,
        };
        let (before, after) = (old.and_then(|o| names_node(own, o)), new.and_then(|o| names_node(own, o)));
        if before != after {
            let mut edges = self.edges.write();
            edges.put(after, 1);
            edges.put(before, -1);
        }
    }

    /// Whether a node needs an object.
    pub fn needs(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let edges = self.edges.read();
        let Some(needed) = edges.needed.get(node) else { return false };
        let has = |kind: Kind, namespace: &str, name: &str| needed.contains_key(&(kind, namespace.into(), name.into()));
        let through_claim = |volume: &Volume| volume.claim.as_ref().is_some_and(|(ns, n)| has(Kind::PersistentVolumeClaim, ns, n));
        match kind {
            Kind::PersistentVolume => edges.volumes.get(name).is_some_and(through_claim),
            Kind::Secret if !has(kind, namespace, name) => {
                let volumes = edges.volume_secrets.get(&(namespace.into(), name.into()));
                volumes.into_iter().flatten().filter_map(|volume| edges.volumes.get(volume)).any(through_claim)
            }
            _ => has(kind, namespace, name),
        }
    }

    fn volume_changed(&self, old: Option<&Value>, new: Option<&Value>) {
        let Some(object) = new.or(old) else { return };
        let name: Box<str> = text(&object["metadata"], "name").into();
        let mut edges = self.edges.write();
        if let Some(former) = edges.volumes.remove(&name) {
            for secret in former.secrets {
                if let Some(volumes) = edges.volume_secrets.get_mut(&secret) {
                    volumes.remove(&name);
                    if volumes.is_empty() {
                        edges.volume_secrets.remove(&secret);
                    }
                }
            }
        }
        if let Some(new) = new {
            let volume = volume(new);
            for secret in &volume.secrets {
                edges.volume_secrets.entry(secret.clone()).or_default().insert(name.clone());
            }
            edges.volumes.insert(name, volume);
        }
    }
}

impl Edges {
    fn put(&mut self, brought: Option<(Box<str>, Vec<Name>)>, sign: i32) {
        let Some((node, names)) = brought else { return };
        let needed = self.needed.entry(node.clone()).or_default();
        for name in names {
            if sign > 0 {
                *needed.entry(name).or_default() += 1;
            } else if let Some(count) = needed.get_mut(&name) {
                *count -= 1;
                if *count == 0 {
                    needed.remove(&name);
                }
            }
        }
        if needed.is_empty() {
            self.needed.remove(&node);
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn names_node(kind: Kind, object: &Value) -> Option<(Box<str>, Vec<Name>)> {
    let node = text(&object["spec"], "nodeName");
    let metadata = &object["metadata"];
    (!node.is_empty()).then(|| (node.into(), vec![(kind, text(metadata, "namespace").into(), text(metadata, "name").into())]))
}

/// The node of a Pod and everything the Pod mentions.
fn pod(pod: &Value) -> Option<(Box<str>, Vec<Name>)> {
    let (node, mut names) = names_node(Kind::Pod, pod)?;
    // A mirror Pod was made by the node itself: it must not give the node anything.
    if pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null() {
        let namespace = text(&pod["metadata"], "namespace");
        names.extend(mentioned(pod).into_iter().map(|(kind, name)| (kind, namespace.into(), name.into())));
    }
    Some((node, names))
}

/// The objects of its own namespace that a Pod mentions, of whatever sort and wherever.
pub fn mentioned(pod: &Value) -> Vec<(Kind, String)> {
    let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
    let mut names = Vec::new();
    let mut add = |kind: Kind, name: &Value| {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            names.push((kind, name.to_owned()));
        }
    };
    add(Kind::ServiceAccount, &spec["serviceAccountName"]);
    for secret in list(&spec["imagePullSecrets"]) {
        add(Kind::Secret, &secret["name"]);
    }
    for containers in ["containers", "initContainers", "ephemeralContainers"] {
        for container in list(&spec[containers]) {
            for env in list(&container["env"]) {
                add(Kind::Secret, &env["valueFrom"]["secretKeyRef"]["name"]);
                add(Kind::ConfigMap, &env["valueFrom"]["configMapKeyRef"]["name"]);
            }
            for source in list(&container["envFrom"]) {
                add(Kind::Secret, &source["secretRef"]["name"]);
                add(Kind::ConfigMap, &source["configMapRef"]["name"]);
            }
        }
    }
    for volume in list(&spec["volumes"]) {
        add(Kind::Secret, &volume["secret"]["secretName"]);
        add(Kind::Secret, &volume["azureFile"]["secretName"]);
        add(Kind::Secret, &volume["csi"]["nodePublishSecretRef"]["name"]);
        for sort in ["cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"] {
            add(Kind::Secret, &volume[sort]["secretRef"]["name"]);
        }
        add(Kind::ConfigMap, &volume["configMap"]["name"]);
        add(Kind::PersistentVolumeClaim, &volume["persistentVolumeClaim"]["claimName"]);
        if volume["ephemeral"].is_object() {
            let claim = format!("{}-{}", text(metadata, "name"), text(volume, "name"));
            add(Kind::PersistentVolumeClaim, &claim.into());
        }
        for source in list(&volume["projected"]["sources"]) {
            add(Kind::Secret, &source["secret"]["name"]);
            add(Kind::ConfigMap, &source["configMap"]["name"]);
        }
    }
    for claim in list(&spec["resourceClaims"]) {
        add(Kind::ResourceClaim, &claim["resourceClaimName"]);
    }
    for claim in list(&pod["status"]["resourceClaimStatuses"]) {
        add(Kind::ResourceClaim, &claim["resourceClaimName"]);
    }
    add(Kind::ResourceClaim, &pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]);
    names
}

fn volume(object: &Value) -> Volume {
    let spec = &object["spec"];
    let claim = &spec["claimRef"];
    let claim_namespace = text(claim, "namespace");
    let mut secrets = Vec::new();
    let mut add = |reference: &Value| {
        let name = text(reference, "name");
        let namespace = reference["namespace"].as_str().filter(|ns| !ns.is_empty()).unwrap_or(claim_namespace);
        if !name.is_empty() {
            secrets.push((namespace.into(), name.into()));
        }
    };
    for key in
        ["controllerPublishSecretRef", "nodeStageSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef", "controllerExpandSecretRef"]
    {
        add(&spec["csi"][key]);
    }
    for sort in ["cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"] {
        add(&spec[sort]["secretRef"]);
    }
    let azure = &spec["azureFile"];
    add(&serde_json::json!({"name": azure["secretName"], "namespace": azure["secretNamespace"]}));
    let claim = claim.is_object().then(|| (claim_namespace.into(), text(claim, "name").into()));
    Volume { claim, secrets }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn example(node: &str) -> Value {
        json!({
            "metadata": {"namespace": "ns", "name": "p"},
            "spec": {
                "nodeName": node, "serviceAccountName": "bot", "imagePullSecrets": [{"name": "pull"}],
                "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "env"}}}], "envFrom": [{"configMapRef": {"name": "cm"}}]}],
                "initContainers": [{"envFrom": [{"secretRef": {"name": "init"}}]}],
                "volumes": [
                    {"secret": {"secretName": "vol"}}, {"persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "scratch", "ephemeral": {}}, {"projected": {"sources": [{"secret": {"name": "proj"}}, {"configMap": {"name": "ca"}}]}},
                ],
                "resourceClaims": [{"resourceClaimName": "gpu"}],
            },
        })
    }

    #[test]
    fn a_pod_brings_its_node_everything_it_mentions_and_takes_it_back() {
        let graph = Graph::default();
        let (bound, unbound) = (example("n1"), example(""));
        graph.changed("pods", "", None, Some(&unbound));
        assert!(!graph.needs("n1", Kind::Secret, "ns", "vol"));
        graph.changed("pods", "", Some(&unbound), Some(&bound));
        for secret in ["pull", "env", "init", "vol", "proj"] {
            assert!(graph.needs("n1", Kind::Secret, "ns", secret), "{secret}");
            assert!(!graph.needs("n2", Kind::Secret, "ns", secret));
            assert!(!graph.needs("n1", Kind::Secret, "other", secret));
        }
        for (kind, name) in [
            (Kind::Pod, "p"),
            (Kind::ConfigMap, "cm"),
            (Kind::ConfigMap, "ca"),
            (Kind::PersistentVolumeClaim, "data"),
            (Kind::PersistentVolumeClaim, "p-scratch"),
            (Kind::ServiceAccount, "bot"),
            (Kind::ResourceClaim, "gpu"),
        ] {
            assert!(graph.needs("n1", kind, "ns", name), "{name}");
        }
        graph.changed("pods", "", Some(&bound), None);
        assert!(!graph.needs("n1", Kind::Secret, "ns", "vol"));
        assert!(graph.edges.read().needed.is_empty());
    }

    #[test]
    fn a_secret_of_two_pods_stays_until_both_are_gone() {
        let graph = Graph::default();
        let one = example("n1");
        let mut two = one.clone();
        two["metadata"]["name"] = "q".into();
        graph.changed("pods", "", None, Some(&one));
        graph.changed("pods", "", None, Some(&two));
        graph.changed("pods", "", Some(&one), None);
        assert!(graph.needs("n1", Kind::Secret, "ns", "vol"));
        graph.changed("pods", "", Some(&two), None);
        assert!(!graph.needs("n1", Kind::Secret, "ns", "vol"));
    }

    #[test]
    fn a_claim_brings_its_volume_and_the_volumes_secrets() {
        let graph = Graph::default();
        let volume = json!({
            "metadata": {"name": "pv"},
            "spec": {"claimRef": {"namespace": "ns", "name": "data"}, "csi": {"nodeStageSecretRef": {"namespace": "csi", "name": "key"}}},
        });
        graph.changed("persistentvolumes", "", None, Some(&volume));
        assert!(!graph.needs("n1", Kind::PersistentVolume, "", "pv"));
        graph.changed("pods", "", None, Some(&example("n1")));
        assert!(graph.needs("n1", Kind::PersistentVolume, "", "pv"));
        assert!(graph.needs("n1", Kind::Secret, "csi", "key"));
        graph.changed("persistentvolumes", "", Some(&volume), None);
        assert!(!graph.needs("n1", Kind::Secret, "csi", "key"));
    }

    #[test]
    fn a_mirror_pod_gives_its_node_nothing() {
        let graph = Graph::default();
        let mut mirror = example("n1");
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        graph.changed("pods", "", None, Some(&mirror));
        assert!(graph.needs("n1", Kind::Pod, "ns", "p"));
        assert!(!graph.needs("n1", Kind::Secret, "ns", "vol"));
    }
}
