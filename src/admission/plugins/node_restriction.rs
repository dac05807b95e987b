//! `NodeRestriction`: a kubelet may change its own Node, and of Pods those that run on it; nothing else.

use futures::future::BoxFuture;
use serde_json::Value;

use super::pod::is_mirror;
use crate::admission::{Cluster, Mutate, Operation, Write};
use crate::object::meta;
use crate::request::User;
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
pub struct NodeRestriction(pub Cluster);

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
            let result = match (&*write.resource.group, &*write.resource.plural, write.subresource.as_str()) {
                ("", "pods", "") => self.pod(write, &node),
                ("", "pods", "status") => status_of_pod(write, &node),
                ("", "pods", "eviction") => self.bound_pod(write, &node, "evict"),
                ("", "nodes", _) => own_node(write, &node),
                ("", "serviceaccounts", "token") => self.token(write, &node),
                ("coordination.k8s.io", "leases", _) => lease(write, &node),
                ("storage.k8s.io", "csinodes", _) if name_of(write) != node => {
                    Err("can only access CSINode with the same name as the requesting node".into())
                }
                ("resource.k8s.io", "resourceslices", _) => slice(write, &node),
                ("", "persistentvolumeclaims", sub) if sub != "status" => Err(format!("node {node:?} can only update PVC status")),
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

impl NodeRestriction {
    fn pod(&self, write: &Write, node: &str) -> Result<(), String> {
        match write.operation {
            Operation::Create => {
                let pod = write.object();
                if !is_mirror(pod) {
                    return Err(format!(
                        "pod does not have \"kubernetes.io/config.mirror\" annotation, node {node:?} can only create mirror pods"
                    ));
                }
                if !runs_on(pod, node) {
                    return Err(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
                }
                let owners = pod["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
                let is_owner = |o: &Value| o["apiVersion"] == "v1" && o["kind"] == "Node" && o["name"] == node;
                if owners.len() > 1 {
                    return Err(format!("node {node:?} can only create pods with a single owner reference set to itself"));
                }
                if owners.iter().any(|o| !is_owner(o)) {
                    return Err(format!("node {node:?} can only create pods with an owner reference set to itself"));
                }
                let spec = &pod["spec"];
                if spec["serviceAccountName"].as_str().is_some_and(|name| !name.is_empty()) {
                    return Err(format!("node {node:?} can not create pods that reference a service account"));
                }
                for (field, what) in
                    [("secret", "secrets"), ("configMap", "configmaps"), ("persistentVolumeClaim", "persistentvolumeclaims")]
                {
                    if spec["volumes"].as_array().into_iter().flatten().any(|v| !v[field].is_null()) {
                        return Err(format!("node {node:?} can not create pods that reference {what}"));
                    }
                }
                Ok(())
            }
            Operation::Delete => match runs_on(write.old(), node) {
                true => Ok(()),
                false => Err(format!("node {node:?} can only delete pods with spec.nodeName set to itself")),
            },
            _ => Err(format!("unexpected operation {:?}, node {node:?} can only create and delete mirror pods", write.operation.as_str())),
        }
    }

    fn bound_pod(&self, write: &Write, node: &str, verb: &str) -> Result<(), String> {
        match self.0.peek("pods", &write.namespace, name_of(write)) {
            Some(pod) if !runs_on(pod.value(), node) => Err(format!("node {node} can only {verb} pods with spec.nodeName set to itself")),
            _ => Ok(()),
        }
    }

    fn token(&self, write: &Write, node: &str) -> Result<(), String> {
        let bound = &write.object()["spec"]["boundObjectRef"];
        if bound["kind"] != "Pod" || bound["name"].as_str().is_none_or(str::is_empty) {
            return Err("node requested token not bound to a pod".into());
        }
        let uid = bound["uid"].as_str().unwrap_or_default();
        if uid.is_empty() {
            return Err("node requested token with a pod binding without a uid".into());
        }
        let pod = self.0.peek("pods", &write.namespace, bound["name"].as_str().unwrap_or_default());
        let pod = pod.ok_or_else(|| format!("pod \"{}\" not found", bound["name"].as_str().unwrap_or_default()))?;
        if meta(pod.value(), "uid") != uid {
            return Err(format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then recreated"
            ));
        }
        if !runs_on(pod.value(), node) {
            return Err("node requested token bound to a pod scheduled on a different node".into());
        }
        Ok(())
    }
}

fn status_of_pod(write: &Write, node: &str) -> Result<(), String> {
    if write.operation != Operation::Update {
        return Err(format!("unexpected operation {:?}, node {node:?} can only update pod status", write.operation.as_str()));
    }
    if !runs_on(write.old(), node) {
        return Err(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"));
    }
    if write.old()["metadata"]["labels"] != write.object()["metadata"]["labels"] {
        return Err(format!("node {node:?} cannot update labels through pod status"));
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
            if write.operation == Operation::Update && old["spec"]["taints"] != new["spec"]["taints"] {
                return Err(format!("node {node:?} is not allowed to modify taints"));
            }
            let owners = |o: &Value| o["metadata"]["ownerReferences"].clone();
            if write.operation == Operation::Update && owners(old) != owners(new) {
                return Err(format!("node {node:?} is not allowed to modify ownerReferences"));
            }
            let forbidden = forbidden_labels(&old["metadata"]["labels"], &new["metadata"]["labels"]);
            if !forbidden.is_empty() {
                let verb = if write.operation == Operation::Create { "set" } else { "modify" };
                return Err(format!("node {node:?} is not allowed to {verb} the following labels: {}", forbidden.join(", ")));
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
        false => Err("can only delete ResourceSlice with the same NodeName as the requesting node".into()),
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
