//! Which checks a built-in kind has. A kind that is not here is held to its metadata alone.

use serde_json::Value;

use super::field::Errors;
use super::{
    autoscaling, batch, certificates, cluster, config, definition, event, networking, pod, policy, rbac, service, storage, webhook,
    workload,
};
use crate::registry::Resource;

/// A new object.
pub fn create(resource: &Resource, object: &Value, errors: &mut Errors) {
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => pod::create(object, errors),
        ("", "podtemplates") => pod::template(&object["template"], &super::field::Path::root("template"), errors),
        ("", "configmaps") => config::config_map(object, errors),
        ("", "secrets") => config::secret(object, errors),
        ("", "services") => service::service(object, errors),
        ("", "endpoints") => service::endpoints(object, errors),
        ("discovery.k8s.io", "endpointslices") => service::endpoint_slice(object, errors),
        ("", "nodes") => cluster::node(object, errors),
        ("" | "events.k8s.io", "events") => event::create(object, !resource.group.is_empty(), errors),
        ("", "replicationcontrollers") => workload::replication_controller(object, errors),
        ("", "persistentvolumeclaims") => storage::claim(object, errors),
        ("", "persistentvolumes") => storage::volume(object, errors),
        ("", "resourcequotas") => storage::quota(object, errors),
        ("", "limitranges") => storage::limit_range(object, errors),
        ("storage.k8s.io", "storageclasses") => storage::class(object, errors),
        ("apps", "deployments") => workload::deployment(object, errors),
        ("apps", "replicasets") => workload::replica_set(object, errors),
        ("apps", "daemonsets") => workload::daemon_set(object, errors),
        ("apps", "statefulsets") => workload::stateful_set(object, errors),
        ("batch", "jobs") => batch::job(object, errors),
        ("batch", "cronjobs") => batch::cron_job(object, errors),
        ("autoscaling", "horizontalpodautoscalers") => autoscaling::autoscaler(object, errors),
        ("policy", "poddisruptionbudgets") => autoscaling::disruption_budget(object, errors),
        ("networking.k8s.io", "ingresses") => networking::ingress(object, errors),
        ("networking.k8s.io", "ingressclasses") => networking::ingress_class(object, errors),
        ("networking.k8s.io", "networkpolicies") => networking::network_policy(object, errors),
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => rbac::role(object, resource.namespaced, errors),
        ("rbac.authorization.k8s.io", _) => rbac::binding(object, resource.namespaced, errors),
        ("coordination.k8s.io", "leases") => cluster::lease(object, errors),
        ("scheduling.k8s.io", "priorityclasses") => cluster::priority_class(object, errors),
        ("certificates.k8s.io", "certificatesigningrequests") => certificates::create(object, errors),
        ("apiregistration.k8s.io", "apiservices") => cluster::api_service(object, errors),
        ("node.k8s.io", "runtimeclasses") => cluster::runtime_class(object, errors),
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => cluster::flow_schema(object, errors),
        ("admissionregistration.k8s.io", plural) => admission(plural, object, errors),
        ("apiextensions.k8s.io", "customresourcedefinitions") => definition::create(object, errors),
        _ => {}
    }
}

fn admission(plural: &str, object: &Value, errors: &mut Errors) {
    match plural {
        "validatingwebhookconfigurations" | "mutatingwebhookconfigurations" => webhook::configuration(object, errors),
        "validatingadmissionpolicies" => policy::validating(object, errors),
        "mutatingadmissionpolicies" => policy::mutating(object, errors),
        "validatingadmissionpolicybindings" => policy::binding(object, true, errors),
        "mutatingadmissionpolicybindings" => policy::binding(object, false, errors),
        _ => {}
    }
}

/// A changed object. What is behind a subresource checks itself; a status is taken as it comes.
pub fn update(resource: &Resource, subresource: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let names = (&*resource.group, &*resource.plural);
    if names == ("apiextensions.k8s.io", "customresourcedefinitions") {
        return definition::update(new, old, errors);
    }
    if names == ("certificates.k8s.io", "certificatesigningrequests") {
        return certificates::update(new, old, subresource, errors);
    }
    match (names, subresource) {
        (_, "") => {}
        (("", "pods"), "ephemeralcontainers") => return pod::update_ephemeral_containers(new, old, errors),
        (("", "pods"), "resize") => return pod::resize(new, old, errors),
        _ => return,
    }
    match names {
        ("", "pods") => pod::update(new, old, errors),
        ("", "configmaps") => config::update_config_map(new, old, errors),
        ("", "secrets") => config::update_secret(new, old, errors),
        ("", "services") => service::update(new, old, errors),
        ("", "nodes") => cluster::update_node(new, old, errors),
        ("" | "events.k8s.io", "events") => event::update(new, old, !resource.group.is_empty(), errors),
        ("", "persistentvolumeclaims") => storage::update_claim(new, old, errors),
        ("", "persistentvolumes") => storage::update_volume(new, old, errors),
        ("", "resourcequotas") => storage::update_quota(new, old, errors),
        ("storage.k8s.io", "storageclasses") => storage::update_class(new, old, errors),
        ("apps", "deployments" | "replicasets" | "daemonsets") => {
            if new["spec"] != old["spec"] {
                create(resource, new, errors);
            }
            workload::same_selector(new, old, errors);
        }
        ("apps", "statefulsets") => {
            if new["spec"] != old["spec"] {
                create(resource, new, errors);
            }
            workload::same_stateful_set(new, old, errors);
        }
        ("batch", "jobs") => batch::same_job(new, old, errors),
        ("batch", "cronjobs") => batch::same_cron_job(new, errors),
        ("networking.k8s.io", "ingressclasses") => networking::update_ingress_class(new, old, errors),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            rbac::update_binding(new, old, resource.namespaced, errors);
        }
        ("scheduling.k8s.io", "priorityclasses") => cluster::update_priority_class(new, old, errors),
        ("node.k8s.io", "runtimeclasses") => cluster::update_runtime_class(new, old, errors),
        // What has not changed was right when it was written, or was written before there was a rule.
        _ if same_but_metadata(new, old) => {}
        _ => create(resource, new, errors),
    }
}

fn same_but_metadata(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return false };
    let ignored = |name: &str| matches!(name, "metadata" | "status" | "apiVersion" | "kind");
    new.iter().all(|(name, value)| ignored(name) || old.get(name) == Some(value))
        && old.keys().all(|name| ignored(name) || new.contains_key(name))
}
