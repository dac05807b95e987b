//! What admission has to say of a policy, a binding or a webhook configuration that somebody wants to write: some names are taken by
//! manifests, and a binding whose policy or parameters are not there is worth a warning. Whether the object itself is right, expressions
//! included, is validation's business.

use serde_json::{Value, json};

use super::params::resource_of;
use super::snapshot::Policies;
use crate::admission::manifest::SUFFIX;
use crate::admission::{Cluster, Write};
use crate::status::{FieldError, Status};

/// Reviews never reach a webhook or a policy: one that refused them would shut everybody out.
const EXCLUDED: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Checks a write of a policy, a binding or a webhook configuration.
pub fn definition(write: &Write, validating: &Policies, cluster: &Cluster) -> Result<(), Status> {
    let object = write.object();
    if object.is_null() {
        return Ok(());
    }
    if write.name.ends_with(SUFFIX) {
        let detail =
            format!("names ending with {SUFFIX:?} are reserved for static manifest-based configurations and cannot be managed via the API");
        let error = FieldError::invalid("metadata.name", &json!(write.name), detail);
        return Err(Status::invalid(&write.resource.group, &write.resource.kind, &write.name, vec![error]));
    }
    match &*write.resource.plural {
        "validatingadmissionpolicybindings" => warn_of_missing(write, validating, cluster),
        "validatingwebhookconfigurations" | "mutatingwebhookconfigurations" => warn_of_excluded(write),
        _ => {}
    }
    Ok(())
}

/// Rules about what no webhook is ever asked about.
fn warn_of_excluded(write: &Write) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for (i, webhook) in list(&write.object()["webhooks"]).iter().enumerate() {
        for (j, rule) in list(&webhook["rules"]).iter().enumerate() {
            let names = |field: &str, word: &str| rule[field].as_array().into_iter().flatten().any(|value| value == word);
            // A wildcard may mean others.
            if names("apiGroups", "*") || names("resources", "*") {
                continue;
            }
            for (group, resource) in EXCLUDED {
                if names("apiGroups", group) && names("resources", resource) {
                    write.context.trace.warn(format!(
                        "webhooks[{i}].rules[{j}]: {resource}.{group} is excluded from admission webhooks; this rule will have no effect"
                    ));
                }
            }
        }
    }
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
