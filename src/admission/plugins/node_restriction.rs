//! `NodeRestriction`: a kubelet may change its own Node, and of Pods those that run on it; nothing else.

use std::sync::Arc;

use base64::Engine;
use futures::future::BoxFuture;
use serde_json::Value;
use usher_components::controllers::certificates::{CertificateRequest, signer};

use super::pod::is_mirror;
use crate::admission::{Cluster, Mutate, Operation, Write};
use crate::authz::node::graph::{Kind, mentioned};
use crate::authz::{Attributes, Authorizer};
use crate::object::meta;
use crate::request::{RequestInfo, User};
use crate::status::Status;

/// Labels under `kubernetes.io` and `k8s.io` that a kubelet may set on its own Node.
const KUBELET_LABELS: &[&str] = &[
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
];

/// The plugin.
pub struct NodeRestriction {
    /// Pods, nodes, volumes and their drivers.
    pub cluster: Cluster,
    /// Who knows whether a node may have tokens for audiences that none of its Pods asks for.
    pub authorizer: Arc<dyn Authorizer>,
}

/// The node that a user is, if it is one; `Err` for a user in the group whose name says nothing.
fn node_of(user: &User) -> Option<Result<&str, ()>> {
    if !user.in_group("system:nodes") {
        return None;
    }
    Some(user.name.strip_prefix("system:node:").filter(|name| !name.is_empty()).ok_or(()))
}

impl Mutate for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn handles(&self, write: &Write) -> bool {
        node_of(&write.user).is_some()
    }

    fn is_compared(&self) -> bool {
        false
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let node = match node_of(&write.user) {
                None => return Ok(()),
                Some(Err(())) => return Err(write.forbidden(format!("could not determine node from user {:?}", write.user.name))),
                Some(Ok(node)) => node.to_owned(),
            };
            let refused = |why: String| Err(write.forbidden(why));
            if (&*write.resource.group, &*write.resource.plural, write.subresource.as_str()) == ("", "serviceaccounts", "token") {
                return self.token(write, &node).await;
            }
            let result = match (&*write.resource.group, &*write.resource.plural, write.subresource.as_str()) {
                ("", "pods", "") if write.operation == Operation::Create => return self.mirror_pod(write, &node),
                ("", "pods", "") => pod(write, &node),
                ("", "pods", "status") => status_of_pod(write, &node),
                ("", "pods", "eviction") => self.bound_pod(write, &node, "evict"),
                ("", "pods", other) => {
                    return refused(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"));
                }
                ("", "nodes", _) => own_node(write, &node),
                ("coordination.k8s.io", "leases", _) => lease(write, &node),
                ("storage.k8s.io", "csinodes", _) if name_of(write) != node => {
                    Err("can only access CSINode with the same name as the requesting node".into())
                }
                ("resource.k8s.io", "resourceslices", _) => slice(write, &node),
                ("", "persistentvolumeclaims", "status") => status_of_claim(write, &node),
                ("", "persistentvolumeclaims", _) => Err("may only update PVC status".into()),
                ("certificates.k8s.io", "certificatesigningrequests", "") => signing_request(write, &node),
                _ => Ok(()),
            };
            result.map_err(|why| write.forbidden(why))
        })
    }
}

fn name_of(write: &Write) -> &str {
    if write.name.is_empty() { meta(write.object(), "name") } else { &write.name }
}

fn runs_on(pod: &Value, node: &str) -> bool {
    pod["spec"]["nodeName"] == node
}

fn pod(write: &Write, node: &str) -> Result<(), String> {
    match write.operation {
        Operation::Delete if runs_on(write.old(), node) => Ok(()),
        Operation::Delete => Err(format!("node {node:?} can only delete pods with spec.nodeName set to itself")),
        _ => Err(format!("unexpected operation {:?}, node {node:?} can only create and delete mirror pods", write.operation.as_str())),
    }
}

impl NodeRestriction {
    /// A Pod that a node makes is the image of one that it runs already: of this node, owned by it, and in need of nothing.
    fn mirror_pod(&self, write: &Write, node: &str) -> Result<(), Status> {
        let pod = write.object();
        let refused = |why: String| Err(write.forbidden(why));
        if !is_mirror(pod) {
            return refused(format!(
                "pod does not have \"kubernetes.io/config.mirror\" annotation, node {node:?} can only create mirror pods"
            ));
        }
        if !runs_on(pod, node) {
            return refused(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
        }
        let owner = match pod["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default() {
            [owner] if owner["apiVersion"] == "v1" && owner["kind"] == "Node" && owner["name"] == node => owner,
            [] | [_] => return refused(format!("node {node:?} can only create pods with an owner reference set to itself")),
            _ => return refused(format!("node {node:?} can only create pods with a single owner reference set to itself")),
        };
        if owner["controller"] != true {
            return refused(format!("node {node:?} can only create pods with a controller owner reference set to itself"));
        }
        if owner["blockOwnerDeletion"] == true {
            return refused(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
        }
        let own = self.cluster.peek("nodes", "", node).ok_or_else(|| Status::not_found("", "nodes", node))?;
        let (claimed, uid) = (owner["uid"].as_str().unwrap_or_default(), meta(own.value(), "uid"));
        if claimed != uid {
            return refused(format!("node {node} UID mismatch: expected {claimed} got {uid}"));
        }
        match reference(pod) {
            Some(what) => refused(format!("node {node:?} can not create pods that reference {what}")),
            None => Ok(()),
        }
    }

    fn bound_pod(&self, write: &Write, node: &str, verb: &str) -> Result<(), String> {
        match self.cluster.peek("pods", &write.namespace, name_of(write)) {
            Some(pod) if !runs_on(pod.value(), node) => Err(format!("node {node} can only {verb} pods with spec.nodeName set to itself")),
            _ => Ok(()),
        }
    }

    async fn token(&self, write: &Write, node: &str) -> Result<(), Status> {
        let refused = |why: &str| Err(write.forbidden(why));
        let spec = &write.object()["spec"];
        let bound = &spec["boundObjectRef"];
        let name = bound["name"].as_str().unwrap_or_default();
        if bound["apiVersion"] != "v1" || bound["kind"] != "Pod" || name.is_empty() {
            return refused("node requested token not bound to a pod");
        }
        let uid = bound["uid"].as_str().unwrap_or_default();
        if uid.is_empty() {
            return refused("node requested token with a pod binding without a uid");
        }
        let pod = self.cluster.peek("pods", &write.namespace, name).ok_or_else(|| Status::not_found("", "pods", name))?;
        if meta(pod.value(), "uid") != uid {
            return refused(&format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            ));
        }
        if !runs_on(pod.value(), node) {
            return refused("node requested token bound to a pod scheduled on a different node");
        }
        let audience = match spec["audiences"].as_array().map(Vec::as_slice).unwrap_or_default() {
            [] => "",
            [one] => one.as_str().unwrap_or_default(),
            _ => return refused("node may only request 0 or 1 audiences"),
        };
        if self.wants(pod.value(), &write.namespace, audience).await? {
            return Ok(());
        }
        let info = RequestInfo {
            is_resource: true,
            special_verb: "request-serviceaccounts-token-audience".into(),
            version: "v1".into(),
            namespace: write.namespace.clone(),
            resource: audience.to_owned(),
            name: name_of(write).to_owned(),
            ..RequestInfo::default()
        };
        match self.authorizer.decide(&Attributes { user: write.user.clone(), info: Arc::new(info) }).await.is_allow() {
            true => Ok(()),
            false => refused(&format!("{} is not authorized to request tokens for audience {audience:?}", write.user.name)),
        }
    }

    /// Whether one of a Pod's volumes brings tokens for an audience: a projected one, or the driver of one.
    async fn wants(&self, pod: &Value, namespace: &str, audience: &str) -> Result<bool, Status> {
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let same = |of: &Value| of.as_str().unwrap_or_default() == audience;
        for volume in volumes {
            let mut sources = volume["projected"]["sources"].as_array().into_iter().flatten();
            if sources.any(|source| source["serviceAccountToken"].is_object() && same(&source["serviceAccountToken"]["audience"])) {
                return Ok(true);
            }
            let driver = match () {
                () if volume["csi"].is_object() => text(&volume["csi"]["driver"]),
                () if volume["ephemeral"].is_object() => {
                    self.driver_of(namespace, &format!("{}-{}", meta(pod, "name"), text(&volume["name"]))).await?
                }
                () => self.driver_of(namespace, &text(&volume["persistentVolumeClaim"]["claimName"])).await?,
            };
            let driver = if driver.is_empty() { None } else { self.cluster.get("csidrivers", "", &driver).await? };
            let asks = |driver: &Value| driver["spec"]["tokenRequests"].as_array().into_iter().flatten().any(|t| same(&t["audience"]));
            if driver.is_some_and(|driver| asks(driver.value())) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The driver of the volume that a claim is bound to, or nothing.
    async fn driver_of(&self, namespace: &str, claim: &str) -> Result<String, Status> {
        if claim.is_empty() {
            return Ok(String::new());
        }
        let Some(claim) = self.cluster.get("persistentvolumeclaims", namespace, claim).await? else { return Ok(String::new()) };
        let name = claim.value()["spec"]["volumeName"].as_str().unwrap_or_default().to_owned();
        let volume = if name.is_empty() { None } else { self.cluster.get("persistentvolumes", "", &name).await? };
        let driver = volume.and_then(|volume| volume.value()["spec"]["csi"]["driver"].as_str().map(str::to_owned));
        Ok(driver.unwrap_or_default())
    }
}

/// What of the API a Pod mentions that a node could read through it.
fn reference(pod: &Value) -> Option<&'static str> {
    let mentioned = mentioned(pod);
    let has = |kind: Kind| mentioned.iter().any(|(of, _)| *of == kind);
    let spec = &pod["spec"];
    let volumes = || spec["volumes"].as_array().into_iter().flatten();
    let sources = || volumes().flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
    let any = |field: &str| volumes().any(|volume| volume[field].is_object());
    let projects = |field: &str| sources().any(|source| source[field].is_object());
    let claims = spec["resourceClaims"].as_array().is_some_and(|claims| !claims.is_empty());
    [
        (has(Kind::ServiceAccount), "serviceaccounts"),
        (has(Kind::Secret), "secrets"),
        (has(Kind::ConfigMap), "configmaps"),
        (claims, "resourceclaims"),
        (any("csi"), "csidrivers (via CSI volumes)"),
        (any("glusterfs"), "endpoints (via glusterFS volumes)"),
        (any("persistentVolumeClaim"), "persistentvolumeclaims"),
        (any("ephemeral"), "persistentvolumeclaims (via ephemeral volumes)"),
        (projects("serviceAccountToken"), "serviceaccounts (via projected volumes)"),
        (projects("clusterTrustBundle"), "clustertrustbundles"),
        (projects("podCertificate"), "podcertificates"),
    ]
    .into_iter()
    .find_map(|(found, what)| found.then_some(what))
}

/// Of a claim, a node reports how large it is and how it fares.
fn status_of_claim(write: &Write, node: &str) -> Result<(), String> {
    if write.operation != Operation::Update {
        return Err(format!("unexpected operation {:?}", write.operation.as_str()));
    }
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        for (part, keys) in [
            ("metadata", &["resourceVersion", "managedFields"][..]),
            ("status", &["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"]),
        ] {
            if let Some(map) = claim[part].as_object_mut() {
                keys.iter().for_each(|key| drop(map.remove(*key)));
            }
        }
        claim
    };
    let (before, after) = (rest(write.old()), rest(write.object()));
    if before == after {
        return Ok(());
    }
    let pretty = |value: &Value| serde_json::to_string_pretty(value).unwrap_or_default();
    let (before, after) = (pretty(&before), pretty(&after));
    let changes = similar::TextDiff::from_lines(&before, &after).unified_diff().to_string();
    Err(format!("node {node:?} is not allowed to update fields other than status.quantity and status.conditions: {changes}"))
}

/// A node asks for certificates in its own name only.
fn signing_request(write: &Write, node: &str) -> Result<(), String> {
    let spec = &write.object()["spec"];
    let of_kubelets = [signer::KUBELET_SERVING, signer::KUBE_APISERVER_CLIENT_KUBELET].iter().any(|name| spec["signerName"] == *name);
    if write.operation != Operation::Create || !of_kubelets {
        return Ok(());
    }
    let pem = base64::engine::general_purpose::STANDARD.decode(spec["request"].as_str().unwrap_or_default()).unwrap_or_default();
    let request = CertificateRequest::from_pem(&pem).map_err(|why| format!("unable to parse csr: {why}"))?;
    match request.common_name == format!("system:node:{node}") {
        true => Ok(()),
        false => Err(format!("can only create a node CSR with CN=system:node:{node}")),
    }
}

fn status_of_pod(write: &Write, node: &str) -> Result<(), String> {
    if write.operation != Operation::Update {
        return Err(format!("unexpected operation {:?}", write.operation.as_str()));
    }
    if !runs_on(write.old(), node) {
        return Err(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"));
    }
    if write.old()["metadata"]["labels"] != write.object()["metadata"]["labels"] {
        return Err(format!("node {node:?} cannot update labels through pod status"));
    }
    for (field, what) in [
        ("resourceClaimStatuses", "resource claim statues"),
        ("extendedResourceClaimStatus", "extended resource claim status"),
        ("nodeAllocatableResourceClaimStatuses", "node allocatable resource claim statuses"),
    ] {
        if write.old()["status"][field] != write.object()["status"][field] {
            return Err(format!("node {node:?} cannot update {what}"));
        }
    }
    Ok(())
}

fn own_node(write: &Write, node: &str) -> Result<(), String> {
    let requested = name_of(write);
    if requested != node {
        return Err(format!("node {node:?} is not allowed to modify node {requested:?}"));
    }
    let (old, new) = (write.old(), write.object());
    match write.operation {
        Operation::Create | Operation::Update => {
            let source = &new["spec"]["configSource"];
            if write.operation == Operation::Create && !source.is_null() {
                return Err(format!("node {node:?} is not allowed to create pods with a non-nil configSource"));
            }
            if write.operation == Operation::Update && !source.is_null() && *source != old["spec"]["configSource"] {
                return Err(format!("node {node:?} is not allowed to update configSource to a new non-nil configSource"));
            }
            if write.operation == Operation::Update && old["spec"]["taints"] != new["spec"]["taints"] {
                return Err(format!("node {node:?} is not allowed to modify taints"));
            }
            let owners = |o: &Value| o["metadata"]["ownerReferences"].clone();
            if write.operation == Operation::Update && owners(old) != owners(new) {
                return Err(format!("node {node:?} is not allowed to modify ownerReferences"));
            }
            let forbidden = forbidden_labels(&old["metadata"]["labels"], &new["metadata"]["labels"]);
            if !forbidden.is_empty() {
                let labels = forbidden.join(", ");
                return Err(match write.operation {
                    Operation::Create => format!("node {node:?} is not allowed to set the following labels: {labels}"),
                    _ => format!("is not allowed to modify labels: {labels}"),
                });
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Changed labels that are not a kubelet's to set.
fn forbidden_labels(old: &Value, new: &Value) -> Vec<String> {
    let keys =
        |labels: &Value| labels.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect::<std::collections::BTreeSet<_>>();
    let all: std::collections::BTreeSet<String> = keys(old).union(&keys(new)).cloned().collect();
    let changed = all.into_iter().filter(|key| old.get(key) != new.get(key));
    changed.filter(|key| is_forbidden(key)).collect()
}

fn is_forbidden(label: &str) -> bool {
    let Some((domain, _)) = label.split_once('/') else { return false };
    let under = |suffix: &str| domain == suffix || domain.ends_with(&format!(".{suffix}"));
    if under("node-restriction.kubernetes.io") {
        return true;
    }
    if !under("kubernetes.io") && !under("k8s.io") {
        return false;
    }
    !(KUBELET_LABELS.contains(&label) || under("kubelet.kubernetes.io") || under("node.kubernetes.io"))
}

fn lease(write: &Write, node: &str) -> Result<(), String> {
    if write.namespace != "kube-node-lease" {
        return Err("can only access leases in the \"kube-node-lease\" system namespace".into());
    }
    if name_of(write) != node {
        return Err("can only access node lease with the same name as the requesting node".into());
    }
    Ok(())
}

fn slice(write: &Write, node: &str) -> Result<(), String> {
    let shown = if write.operation == Operation::Delete { write.old() } else { write.object() };
    match shown["spec"]["nodeName"] == node {
        true => Ok(()),
        false if write.operation == Operation::Create => {
            Err("can only create ResourceSlice with the same NodeName as the requesting node".into())
        }
        false if write.operation == Operation::Delete => {
            Err("can only delete ResourceSlice with the same NodeName as the requesting node".into())
        }
        // Whether it may be changed is told by what it was before, which the authoriser looks at.
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_kubelet_sets_its_own_labels_and_no_others() {
        assert!(!is_forbidden("example.com/team") && !is_forbidden("plain"));
        assert!(!is_forbidden("kubernetes.io/hostname") && !is_forbidden("node.kubernetes.io/anything"));
        assert!(is_forbidden("node-restriction.kubernetes.io/tier") && is_forbidden("other.k8s.io/x"));
        let (old, new) = (json!({"a": "1"}), json!({"a": "2", "kubernetes.io/custom": "x"}));
        assert_eq!(forbidden_labels(&old, &new), ["kubernetes.io/custom"]);
    }
}
