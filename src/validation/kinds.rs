//! Which checks a built-in kind has. A kind that is not here is held to its metadata alone.

use serde_json::Value;

use super::field::Errors;
use super::{
    autoscaling, batch, certificates, cluster, config, definition, device_slices, devices, endpoints, event, flow_control, job, networking,
    pod, pod_update, policy, quota, rbac, service, storage, storage_classes, webhook, workload,
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
        ("", "endpoints") => endpoints::endpoints(object, errors),
        ("", "nodes") => cluster::node(object, errors),
        ("", "namespaces") => cluster::namespace(object, errors),
        ("" | "events.k8s.io", "events") => event::create(object, !resource.group.is_empty(), errors),
        ("", "replicationcontrollers") => workload::replication_controller(object, errors),
        ("", "persistentvolumeclaims") => storage::claim(object, errors),
        ("", "persistentvolumes") => storage::volume(object, errors),
        ("", "resourcequotas") => quota::quota(object, errors),
        ("", "limitranges") => quota::limit_range(object, errors),
        ("discovery.k8s.io", "endpointslices") => endpoints::slice(object, errors),
        ("storage.k8s.io", plural) => storage_kind(plural, object, errors),
        ("apps", "deployments") => workload::deployment(object, errors),
        ("apps", "replicasets") => workload::replica_set(object, errors),
        ("apps", "daemonsets") => workload::daemon_set(object, errors),
        ("apps", "statefulsets") => workload::stateful_set(object, true, errors),
        ("apps", "controllerrevisions") => workload::revision(object, errors),
        ("batch", "jobs") => job::job(object, errors),
        ("batch", "cronjobs") => batch::cron_job(object, errors),
        ("autoscaling", "horizontalpodautoscalers") => autoscaling::autoscaler(object, errors),
        ("policy", "poddisruptionbudgets") => autoscaling::disruption_budget(object, errors),
        ("networking.k8s.io", "ingresses") => networking::ingress(object, errors),
        ("networking.k8s.io", "ingressclasses") => networking::ingress_class(object, errors),
        ("networking.k8s.io", "networkpolicies") => networking::network_policy(object, errors),
        ("networking.k8s.io", "ipaddresses") => networking::ip_address(object, errors),
        ("networking.k8s.io", "servicecidrs") => networking::service_cidr(object, errors),
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => rbac::role(object, resource.namespaced, errors),
        ("rbac.authorization.k8s.io", _) => rbac::binding(object, resource.namespaced, errors),
        ("coordination.k8s.io", "leases") => cluster::lease(object, errors),
        ("scheduling.k8s.io", "priorityclasses") => cluster::priority_class(object, errors),
        ("certificates.k8s.io", "certificatesigningrequests") => certificates::create(object, errors),
        ("apiregistration.k8s.io", "apiservices") => cluster::api_service(object, errors),
        ("storagemigration.k8s.io", "storageversionmigrations") => cluster::migration(object, errors),
        ("node.k8s.io", "runtimeclasses") => cluster::runtime_class(object, errors),
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => flow_control::flow_schema(object, errors),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => flow_control::priority_level(object, errors),
        ("admissionregistration.k8s.io", plural) => admission(plural, object, errors),
        ("apiextensions.k8s.io", "customresourcedefinitions") => definition::create(object, errors),
        ("resource.k8s.io", plural) => device_kind(plural, object, errors),
        _ => {}
    }
}

fn storage_kind(plural: &str, object: &Value, errors: &mut Errors) {
    match plural {
        "storageclasses" => storage_classes::class(object, errors),
        "volumeattributesclasses" => storage_classes::attributes_class(object, errors),
        "csidrivers" => storage_classes::driver(object, errors),
        "csinodes" => storage_classes::node(object, errors),
        "volumeattachments" => storage_classes::attachment(object, errors),
        "csistoragecapacities" => storage::storage_capacity(object, errors),
        _ => {}
    }
}

fn device_kind(plural: &str, object: &Value, errors: &mut Errors) {
    match plural {
        "resourceclaims" => devices::claim(object, errors),
        "resourceclaimtemplates" => devices::template(object, errors),
        "deviceclasses" => devices::class(object, errors),
        "resourceslices" => device_slices::slice(object, None, errors),
        "devicetaintrules" => device_slices::taint_rule(object, errors),
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

/// A changed object. What is behind a subresource checks itself.
pub fn update(resource: &Resource, subresource: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let names = (&*resource.group, &*resource.plural);
    match (names, subresource) {
        (("apiextensions.k8s.io", "customresourcedefinitions"), _) => return definition::update(new, old, errors),
        (("certificates.k8s.io", "certificatesigningrequests"), _) => return certificates::update(new, old, subresource, errors),
        (_, "") => {}
        (("", "pods"), "ephemeralcontainers") => return pod_update::update_ephemeral_containers(new, old, errors),
        (("", "pods"), "resize") => return pod_update::resize(new, old, errors),
        (_, "status") => return status(names, new, old, errors),
        _ => return,
    }
    match names {
        ("", "pods") => pod_update::update(new, old, errors),
        ("", "configmaps") => config::update_config_map(new, old, errors),
        ("", "secrets") => config::update_secret(new, old, errors),
        ("", "services") => service::update(new, old, errors),
        ("", "nodes") => cluster::update_node(new, old, errors),
        ("", "namespaces") => {}
        ("" | "events.k8s.io", "events") => event::update(new, old, !resource.group.is_empty(), errors),
        ("", "persistentvolumeclaims") => storage::update_claim(new, old, errors),
        ("", "persistentvolumes") => storage::update_volume(new, old, errors),
        ("", "resourcequotas") => quota::update_quota(new, old, errors),
        ("discovery.k8s.io", "endpointslices") => endpoints::update_slice(new, old, errors),
        ("storage.k8s.io", plural) => update_storage_kind(plural, new, old, errors),
        ("apps", "daemonsets") => {
            workload::same_selector(new, old, errors);
            create(resource, new, errors);
        }
        ("apps", "deployments" | "replicasets") => {
            create(resource, new, errors);
            workload::same_selector(new, old, errors);
        }
        ("apps", "statefulsets") => {
            workload::stateful_set(new, false, errors);
            workload::same_stateful_set(new, old, errors);
        }
        ("apps", "controllerrevisions") => workload::update_revision(new, old, errors),
        ("batch", "jobs") => job::update(new, old, errors),
        ("batch", "cronjobs") => batch::update_cron_job(new, old, errors),
        ("networking.k8s.io", "ingresses") => networking::update_ingress(new, errors),
        ("networking.k8s.io", "ipaddresses") => networking::update_ip_address(new, old, errors),
        ("networking.k8s.io", "servicecidrs") => networking::update_service_cidr(new, old, errors),
        ("networking.k8s.io", "ingressclasses") => networking::update_ingress_class(new, old, errors),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            rbac::update_binding(new, old, resource.namespaced, errors);
        }
        ("storagemigration.k8s.io", "storageversionmigrations") => {
            cluster::migration(new, errors);
            super::field::immutable(errors, new, old, &super::field::Path::object(), "spec");
        }
        ("scheduling.k8s.io", "priorityclasses") => cluster::update_priority_class(new, old, errors),
        ("node.k8s.io", "runtimeclasses") => cluster::update_runtime_class(new, old, errors),
        ("resource.k8s.io", "resourceclaims") => devices::update_claim(new, old, errors),
        ("resource.k8s.io", "resourceclaimtemplates") => devices::update_template(new, old, errors),
        ("resource.k8s.io", "resourceslices") => device_slices::slice(new, Some(old), errors),
        // What has not changed was right when it was written, or was written before there was a rule.
        _ if same_but_metadata(new, old) => {}
        _ => create(resource, new, errors),
    }
}

fn update_storage_kind(plural: &str, new: &Value, old: &Value, errors: &mut Errors) {
    match plural {
        "storageclasses" => storage_classes::update_class(new, old, errors),
        "volumeattributesclasses" => storage_classes::update_attributes_class(new, old, errors),
        "csidrivers" => storage_classes::update_driver(new, old, errors),
        "csinodes" => storage_classes::update_node(new, old, errors),
        "volumeattachments" => storage_classes::update_attachment(new, old, errors),
        "csistoragecapacities" => storage::update_storage_capacity(new, old, errors),
        _ => {}
    }
}

/// A changed status.
fn status(names: (&str, &str), new: &Value, old: &Value, errors: &mut Errors) {
    match names {
        ("apps", plural) | ("", plural @ "replicationcontrollers") => workload::status(plural, new, old, errors),
        ("", "services") => {
            let kind = super::field::text(&new["spec"], "type");
            service::balancer_status(&new["status"], Some(kind), errors);
        }
        ("networking.k8s.io", "ingresses") => service::balancer_status(&new["status"], None, errors),
        ("", "persistentvolumeclaims") => storage::claim_status(new, errors),
        ("", "resourcequotas") => quota::status(&new["status"], errors),
        ("", "namespaces") => cluster::namespace_status(new, errors),
        ("", "nodes") => cluster::update_node(new, old, errors),
        ("flowcontrol.apiserver.k8s.io", _) => flow_control::conditions(&new["status"], errors),
        ("autoscaling", _) => autoscaling::autoscaler_status(&new["status"], errors),
        ("policy", _) => autoscaling::budget_status(&new["status"], errors),
        ("batch", "jobs") => job::status(new, old, errors),
        ("resource.k8s.io", "resourceclaims") => devices::claim_status(new, old, errors),
        _ => {}
    }
}

fn same_but_metadata(new: &Value, old: &Value) -> bool {
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else { return false };
    let ignored = |name: &str| matches!(name, "metadata" | "status" | "apiVersion" | "kind");
    new.iter().all(|(name, value)| ignored(name) || old.get(name) == Some(value))
        && old.keys().all(|name| ignored(name) || new.contains_key(name))
}
