//! What admission has to say of a policy, a binding or a webhook configuration that somebody wants to write: some names are taken by
//! manifests, and a binding whose policy or parameters are not there is worth a warning. Whether the object itself is right, expressions
//! included, is validation's business.

use serde_json::json;

use super::params::resource_of;
use super::snapshot::Policies;
use crate::admission::manifest::SUFFIX;
use crate::admission::{Cluster, Write};
use crate::status::{FieldError, Status};

/// Checks a write of a policy, a binding or a webhook configuration.
pub fn definition(write: &Write, validating: &Policies, cluster: &Cluster) -> Result<(), Status> {
    let object = write.object();
    if object.is_null() {
        return Ok(());
    }
    if write.name.ends_with(SUFFIX) {
        let detail = format!("the suffix {SUFFIX:?} is reserved for configuration from manifests");
        let error = FieldError::invalid("metadata.name", &json!(write.name), detail);
        return Err(Status::invalid(&write.resource.group, &write.resource.kind, &write.name, vec![error]));
    }
    if &*write.resource.plural == "validatingadmissionpolicybindings" {
        warn_of_missing(write, validating, cluster);
    }
    Ok(())
}

fn warn_of_missing(write: &Write, policies: &Policies, cluster: &Cluster) {
    let spec = &write.object()["spec"];
    let name = spec["policyName"].as_str().unwrap_or_default();
    let Some(policy) = policies.policy(name) else {
        write.context.trace.warn(format!("the policy {name:?} does not exist: this binding has no effect until it does"));
        return;
    };
    let Some((api_version, kind)) = &policy.param_kind else { return };
    let Some(resource) = resource_of(api_version, kind, cluster) else {
        write.context.trace.warn(format!("the paramKind {api_version}, Kind={kind} of policy {name:?} is not served"));
        return;
    };
    let reference = &spec["paramRef"];
    let namespace = reference["namespace"].as_str().unwrap_or_default();
    if let Some(param) = reference["name"].as_str().filter(|n| !n.is_empty())
        && (!resource.namespaced || !namespace.is_empty())
        && cluster.state.loaded(&resource.storage).is_some()
        && cluster.peek(&resource.storage, namespace, param).is_none()
    {
        write.context.trace.warn(format!("the parameter {kind} {param:?} of this binding does not exist"));
    }
}
