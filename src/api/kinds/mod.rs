//! The small strategies: what a built-in kind does by code because no table can say it.

mod certificates;
mod daemonsets;
pub(super) mod definitions;
mod jobs;
mod namespaces;
pub(super) mod pods;
pub mod services;

use serde_json::Value;

use super::Api;
use super::strategy::Phase;
use crate::registry::Resource;
use crate::request::User;
use crate::status::Status;

/// Before a new object is validated.
pub async fn prepare_for_create(api: &Api, resource: &Resource, user: &User, object: &mut Value) -> Result<(), Status> {
    let now = || api.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    match (&*resource.group, &*resource.plural) {
        ("", "pods") => pods::prepare_for_create(object, &now()),
        ("apps", "daemonsets") => daemonsets::prepare_for_create(object),
        ("", "namespaces") => namespaces::prepare_for_create(object),
        ("certificates.k8s.io", "certificatesigningrequests") => certificates::prepare_for_create(object, user),
        ("batch", "jobs") => jobs::prepare_for_create(object),
        ("apiregistration.k8s.io", "apiservices") if !object["spec"]["service"].is_object() => {
            object["status"] = crate::registry::bootstrap::local_status(&now());
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
        ("apps", "daemonsets") => daemonsets::prepare_for_update(old, new),
        ("", "namespaces") => namespaces::prepare_for_update(phase, old, new),
        ("apiextensions.k8s.io", "customresourcedefinitions") => definitions::prepare_for_update(api, phase, new),
        ("certificates.k8s.io", "certificatesigningrequests") => certificates::prepare_for_update(api, phase, old, new),
        ("", "services") if phase == Phase::Main => return services::prepare_for_update(api, old, new).await,
        _ => {}
    }
    Ok(())
}

/// After an object is gone, or was never kept.
pub fn release(api: &Api, resource: &Resource, object: &Value) {
    if resource.group.is_empty() && &*resource.plural == "services" {
        services::release(api, object);
    }
}
