//! The Node authoriser: what a kubelet (`system:node:<name>` in `system:nodes`) may do. It reads only the objects that
//! the Pods of its own node need, and writes only what the NodeRestriction admission plugin then narrows to its own. For
//! anybody else it has no opinion.

pub mod graph;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;

use crate::request::{RequestInfo, User};

use super::rbac::rule::Rule;
use super::{Attributes, Authorizer, Decision, ResolvedRules};
use graph::{Graph, Kind};

/// The authoriser over a graph.
#[derive(Clone, Default)]
pub struct NodeAuthorizer {
    graph: Arc<Graph>,
}

impl NodeAuthorizer {
    /// An authoriser over a graph that others keep up to date.
    pub fn new(graph: Arc<Graph>) -> Self {
        NodeAuthorizer { graph }
    }

    /// The graph, to be told of changes.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// Decides at once.
    pub fn decide_now(&self, attributes: &Attributes) -> Decision {
        let Some(node) = node_name(&attributes.user) else { return no("") };
        if node.is_empty() {
            return Decision::NoOpinion(format!("unknown node for user {:?}", attributes.user.name).into());
        }
        let info = &*attributes.info;
        if !info.is_resource {
            return no("");
        }
        match (info.group.as_str(), info.resource.as_str()) {
            ("", "secrets") => self.read_namespaced(node, Kind::Secret, info),
            ("", "configmaps") => self.read_namespaced(node, Kind::ConfigMap, info),
            ("", "persistentvolumeclaims") if info.subresource == "status" => match info.verb() {
                "update" | "patch" => self.related(node, Kind::PersistentVolumeClaim, info),
                _ => no("can only get/update/patch this type"),
            },
            ("", "persistentvolumeclaims") => self.get(node, Kind::PersistentVolumeClaim, info),
            ("", "persistentvolumes") => self.get(node, Kind::PersistentVolume, info),
            ("resource.k8s.io", "resourceclaims") => self.get(node, Kind::ResourceClaim, info),
            ("storage.k8s.io", "volumeattachments") => self.get(node, Kind::VolumeAttachment, info),
            ("", "serviceaccounts") => match (info.verb(), info.subresource.as_str()) {
                ("get", "") => self.read_namespaced(node, Kind::ServiceAccount, info),
                ("create", "token") if !info.name.is_empty() => self.related(node, Kind::ServiceAccount, info),
                ("create", _) if !info.name.is_empty() => no("can only create token subresource of serviceaccount"),
                _ => no("can only create tokens for individual service accounts"),
            },
            ("coordination.k8s.io", "leases") => lease(node, info),
            ("storage.k8s.io", "csinodes") => csi_node(node, info),
            ("resource.k8s.io", "resourceslices") => self.resource_slice(node, info),
            ("certificates.k8s.io", "podcertificaterequests") => self.pod_certificate_request(node, info),
            ("", "nodes") => own_node(node, info),
            ("", "pods") => self.pods(node, info),
            _ => static_rules(info),
        }
    }

    fn read_namespaced(&self, node: &str, kind: Kind, info: &RequestInfo) -> Decision {
        match info.verb() {
            "get" | "list" | "watch" => {}
            _ => return no("can only read resources of this type"),
        }
        if !info.subresource.is_empty() {
            return no("cannot read subresource");
        }
        if info.namespace.is_empty() {
            return no("can only read namespaced object of this type");
        }
        self.related(node, kind, info)
    }

    fn get(&self, node: &str, kind: Kind, info: &RequestInfo) -> Decision {
        if info.verb() != "get" {
            return no("can only get individual resources of this type");
        }
        if !info.subresource.is_empty() {
            return no("cannot get subresource");
        }
        self.related(node, kind, info)
    }

    fn related(&self, node: &str, kind: Kind, info: &RequestInfo) -> Decision {
        if info.name.is_empty() {
            return no("No Object name found");
        }
        if self.graph.needs(node, kind, &info.namespace, &info.name) {
            return yes();
        }
        Decision::NoOpinion(format!("no relationship found between node '{node}' and this object").into())
    }

    /// A slice names its node: it is made freely (admission looks at the name), read and changed only if it names this one.
    fn resource_slice(&self, node: &str, info: &RequestInfo) -> Decision {
        if !info.subresource.is_empty() {
            return no("cannot authorize ResourceSlice subresources");
        }
        match info.verb() {
            "create" => yes(),
            "get" | "update" | "patch" | "delete" => self.related(node, Kind::ResourceSlice, info),
            "list" | "watch" | "deletecollection" if selects(&info.field_selector, "spec.nodeName", node) => yes(),
            "list" | "watch" | "deletecollection" => no("can only list/watch/deletecollection resourceslices with nodeName field selector"),
            _ => no(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    /// The same for a request for a Pod's certificate, which nobody changes once it is made.
    fn pod_certificate_request(&self, node: &str, info: &RequestInfo) -> Decision {
        if !info.subresource.is_empty() {
            return no("nodes may not access the status subresource of PodCertificateRequests");
        }
        match info.verb() {
            "create" => yes(),
            "get" => self.related(node, Kind::PodCertificateRequest, info),
            "list" | "watch" if selects(&info.field_selector, "spec.nodeName", node) => yes(),
            "list" | "watch" => no("can only list/watch podcertificaterequests with nodeName field selector"),
            verb => Decision::NoOpinion(format!("nodes may not {verb} podcertificaterequests").into()),
        }
    }

    fn pods(&self, node: &str, info: &RequestInfo) -> Decision {
        match (info.subresource.as_str(), info.verb()) {
            ("", "get") => self.get(node, Kind::Pod, info),
            ("", "list" | "watch") if selects(&info.field_selector, "spec.nodeName", node) => yes(),
            ("", "list" | "watch") if !info.name.is_empty() => self.related(node, Kind::Pod, info),
            ("", "list" | "watch") => no("can only list/watch pods with spec.nodeName field selector"),
            // NodeRestriction narrows these to the node's own Pods.
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => yes(),
            _ => no(""),
        }
    }
}

/// The node that a user is; `None` if it is none.
pub fn node_name(user: &User) -> Option<&str> {
    user.name.strip_prefix("system:node:").filter(|_| user.in_group("system:nodes"))
}

fn yes() -> Decision {
    Decision::Allow(Cow::Borrowed(""))
}

fn no(why: &'static str) -> Decision {
    Decision::NoOpinion(Cow::Borrowed(why))
}

fn selects(selector: &str, field: &str, value: &str) -> bool {
    selector.split(',').any(|term| {
        let term = term.trim();
        let rest = term.strip_prefix(field).and_then(|rest| rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')));
        rest == Some(value)
    })
}

fn lease(node: &str, info: &RequestInfo) -> Decision {
    if !matches!(info.verb(), "get" | "create" | "update" | "patch" | "delete") {
        return no("can only get, create, update, patch, or delete a node lease");
    }
    if info.namespace != "kube-node-lease" {
        return no("can only access leases in the \"kube-node-lease\" system namespace");
    }
    // A name is not known before the object is read; admission checks it on create.
    if info.verb() != "create" && info.name != node {
        return no("can only access node lease with the same name as the requesting node");
    }
    yes()
}

fn csi_node(node: &str, info: &RequestInfo) -> Decision {
    match (info.subresource.as_str(), info.verb()) {
        ("", "get" | "create" | "update" | "patch" | "delete") => {}
        ("", _) => return no("can only get, create, update, patch, or delete a CSINode"),
        ("status", _) => return no("CSINode status access requires CSIVolumeHealth feature"),
        _ => return no("cannot authorize CSINode subresources"),
    }
    if info.verb() != "create" && info.name != node {
        return no("can only access CSINode with the same name as the requesting node");
    }
    yes()
}

fn own_node(node: &str, info: &RequestInfo) -> Decision {
    match (info.subresource.as_str(), info.verb()) {
        ("", "create" | "update" | "patch") | ("status", "update" | "patch") => yes(),
        ("", "get" | "list" | "watch") if info.name == node => yes(),
        ("", "get" | "list" | "watch") if info.name.is_empty() => {
            Decision::NoOpinion(format!("node '{node}' cannot read all nodes, only its own Node object").into())
        }
        ("", "get" | "list" | "watch") => {
            Decision::NoOpinion(format!("node '{node}' cannot read '{}', only its own Node object", info.name).into())
        }
        _ => no(""),
    }
}

/// What every node may do with objects that belong to no node.
static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let table: &[(&[&str], &[&str], &[&str])] = &[
        (&["create"], &["authentication.k8s.io"], &["tokenreviews"]),
        (&["create"], &["authorization.k8s.io"], &["localsubjectaccessreviews", "subjectaccessreviews"]),
        (&["get", "list", "watch"], &[""], &["services"]),
        (&["create", "patch", "update"], &["", "events.k8s.io"], &["events"]),
        (&["get"], &[""], &["endpoints"]),
        (&["create", "get", "list", "watch"], &["certificates.k8s.io"], &["certificatesigningrequests"]),
        (&["get", "list", "watch"], &["storage.k8s.io"], &["csidrivers"]),
        (&["get", "list", "watch"], &["node.k8s.io"], &["runtimeclasses"]),
        (&["get", "list", "watch"], &["certificates.k8s.io"], &["clustertrustbundles"]),
    ];
    let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect();
    let rule = |(verbs, groups, resources): &(&[&str], &[&str], &[&str])| Rule {
        verbs: list(verbs),
        api_groups: list(groups),
        resources: list(resources),
        ..Rule::default()
    };
    table.iter().map(rule).collect()
});

fn static_rules(info: &RequestInfo) -> Decision {
    let allows = |rule: &Rule| rule.allows_resource(info.verb(), &info.group, &info.resource, &info.subresource, &info.name);
    if RULES.iter().any(allows) { yes() } else { no("") }
}

impl Authorizer for NodeAuthorizer {
    fn name(&self) -> &'static str {
        "Node"
    }

    fn decide<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Decision> {
        Box::pin(std::future::ready(self.decide_now(attributes)))
    }

    fn rules_for(&self, user: &User, _: &str) -> ResolvedRules {
        let mut rules = ResolvedRules::default();
        if node_name(user).is_some() {
            rules.incomplete = true;
            rules.errors.push("node authorizer does not support user rule resolution".into());
        }
        rules
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::request::parse;

    fn authorizer() -> NodeAuthorizer {
        let authorizer = NodeAuthorizer::default();
        for (node, pod, secret) in [("n1", "p1", "s1"), ("n2", "p2", "s2")] {
            let object = json!({
                "metadata": {"namespace": "ns", "name": pod},
                "spec": {"nodeName": node, "serviceAccountName": "bot", "volumes": [{"secret": {"secretName": secret}}]},
            });
            authorizer.graph.changed("pods", "", None, Some(&object));
        }
        authorizer
    }

    fn ask(user: User, method: &str, url: &str) -> Decision {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        authorizer().decide_now(&Attributes { user: Arc::new(user), info: Arc::new(parse(method, path, query)) })
    }

    fn n1(method: &str, url: &str) -> Decision {
        ask(User::new("system:node:n1", &["system:nodes"]), method, url)
    }

    #[test]
    fn a_node_reads_what_its_own_pods_need_and_nothing_of_another_node() {
        assert!(n1("GET", "/api/v1/namespaces/ns/secrets/s1").is_allow());
        let refused = n1("GET", "/api/v1/namespaces/ns/secrets/s2");
        assert_eq!(refused, Decision::NoOpinion("no relationship found between node 'n1' and this object".into()));
        assert!(n1("GET", "/api/v1/namespaces/ns/secrets?fieldSelector=metadata.name%3Ds1&watch=1").is_allow());
        assert!(!n1("GET", "/api/v1/namespaces/ns/secrets").is_allow());
        assert!(!n1("GET", "/api/v1/secrets").is_allow());
        assert!(!n1("PUT", "/api/v1/namespaces/ns/secrets/s1").is_allow());
        assert!(n1("GET", "/api/v1/namespaces/ns/pods/p1").is_allow());
        assert!(!n1("GET", "/api/v1/namespaces/ns/pods/p2").is_allow());
        assert!(n1("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&watch=1").is_allow());
        assert!(!n1("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn2&watch=1").is_allow());
        assert!(!n1("GET", "/api/v1/pods").is_allow());
        assert!(n1("POST", "/api/v1/namespaces/ns/serviceaccounts/bot/token").is_allow());
        assert!(!n1("POST", "/api/v1/namespaces/kube-system/serviceaccounts/admin/token").is_allow());
    }

    #[test]
    fn a_node_keeps_to_its_own_node_lease_and_csinode() {
        assert!(n1("GET", "/api/v1/nodes/n1").is_allow());
        assert!(!n1("GET", "/api/v1/nodes/n2").is_allow());
        assert!(!n1("GET", "/api/v1/nodes").is_allow());
        assert!(n1("GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dn1&watch=1").is_allow());
        assert!(!n1("DELETE", "/api/v1/nodes/n1").is_allow());
        assert!(n1("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1").is_allow());
        assert!(!n1("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n2").is_allow());
        assert!(!n1("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/n1").is_allow());
        assert!(n1("GET", "/apis/storage.k8s.io/v1/csinodes/n1").is_allow());
        assert!(!n1("GET", "/apis/storage.k8s.io/v1/csinodes/n2").is_allow());
    }

    #[test]
    fn what_belongs_to_no_node_is_read_by_all_and_the_rest_by_none() {
        assert!(n1("GET", "/api/v1/services?watch=1").is_allow());
        assert!(n1("POST", "/api/v1/namespaces/ns/events").is_allow());
        assert!(!n1("GET", "/apis/apps/v1/deployments").is_allow());
        assert!(!n1("GET", "/metrics").is_allow());
        let no_node = ask(User::new("system:node:n1", &[]), "GET", "/api/v1/namespaces/ns/secrets/s1");
        assert_eq!(no_node, Decision::NoOpinion("".into()));
    }
}
