//! The small strategies: what a built-in kind does by code because no table can say it.

mod certificates;
pub(super) mod definitions;
mod jobs;
mod namespaces;
mod owned;
pub(super) mod pods;
pub mod services;

use serde_json::Value;

use super::Api;
use super::strategy::Phase;
use crate::registry::Resource;
use crate::request::User;
use crate::status::Status;

fn now(api: &Api) -> String {
    api.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Before a new object is validated.
pub async fn prepare_for_create(api: &Api, resource: &Resource, user: &User, object: &mut Value) -> Result<(), Status> {
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => pods::prepare_for_create(object, &now(api)),
        ("", "namespaces") => namespaces::prepare_for_create(object),
        ("certificates.k8s.io", "certificatesigningrequests") => certificates::prepare_for_create(object, user),
        ("batch", "jobs") => jobs::prepare_for_create(object),
        ("apps", "daemonsets") => owned::daemon_set(object, None),
        ("", "persistentvolumes") => owned::volume(object, &now(api)),
        ("", "persistentvolumeclaims") => owned::claim(object, None),
        ("", "serviceaccounts") => owned::service_account(object),
        ("", "limitranges") => owned::limit_range(object),
        ("discovery.k8s.io", "endpointslices") => owned::endpoint_slice(object),
        ("resource.k8s.io", "resourceslices" | "devicetaintrules") => owned::device_taints(object, &now(api)),
        ("apiregistration.k8s.io", "apiservices") if !object["spec"]["service"].is_object() => {
            object["status"] = crate::registry::bootstrap::local_status(&now(api));
        }
        ("", "services") => return services::prepare_for_create(api, object).await,
        ("apiextensions.k8s.io", "customresourcedefinitions") => definitions::prepare_for_create(api, object),
        _ => {}
    }
    Ok(())
}

/// Before a changed object is validated.
pub async fn prepare_for_update(api: &Api, resource: &Resource, phase: Phase, old: &Value, new: &mut Value) -> Result<(), Status> {
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => pods::prepare_for_update(phase, old, new),
        ("", "namespaces") => namespaces::prepare_for_update(phase, old, new),
        ("apiextensions.k8s.io", "customresourcedefinitions") => definitions::prepare_for_update(api, phase, new),
        ("certificates.k8s.io", "certificatesigningrequests") => certificates::prepare_for_update(api, phase, old, new),
        ("apps", "daemonsets") if phase == Phase::Main => owned::daemon_set(new, Some(old)),
        ("", "persistentvolumes") if phase == Phase::Status => owned::volume_phase(old, new, &now(api)),
        ("", "persistentvolumeclaims") if phase == Phase::Main => owned::claim(new, Some(old)),
        ("", "serviceaccounts") => owned::service_account(new),
        ("discovery.k8s.io", "endpointslices") if phase == Phase::Main => owned::endpoint_slice(new),
        ("resource.k8s.io", "resourceslices" | "devicetaintrules") if phase == Phase::Main => owned::device_taints(new, &now(api)),
        ("", "services") if phase == Phase::Main => return services::prepare_for_update(api, old, new).await,
        _ => {}
    }
    Ok(())
}

/// After a change was kept, or was not.
pub fn settle(api: &Api, resource: &Resource, old: &Value, new: &Value, kept: bool) {
    if resource.group.is_empty() && &*resource.plural == "services" {
        services::settle(api, old, new, kept);
    }
}

/// After an object is gone, or was never kept.
pub fn release(api: &Api, resource: &Resource, object: &Value) {
    if resource.group.is_empty() && &*resource.plural == "services" {
        services::release(api, object);
    }
}
