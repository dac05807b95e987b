//! What a binding parameterises its policy with: one object by its name, or all that a selector selects; built-in kinds and custom ones.

use std::sync::Arc;

use serde_json::Value;

use super::definition::{Binding, Policy};
use crate::admission::{Cluster, Write};
use crate::registry::Resource;

/// The parameters of a binding for one request; `None` stands for "no parameters", an empty list for "none found, nothing to do".
///
/// # Errors
/// What is wrong with the configuration, in the words of a real server.
pub async fn collect(policy: &Policy, binding: &Binding, write: &Write, cluster: &Cluster) -> Result<Vec<Option<Arc<Value>>>, String> {
    let (Some((api_version, kind)), Some(reference)) = (&policy.param_kind, &binding.param_ref) else { return Ok(vec![None]) };
    let resource = resource_of(api_version, kind, cluster).ok_or_else(|| not_found(api_version, kind))?;
    let namespace = match (&reference.namespace, resource.namespaced) {
        (Some(_), false) => return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into()),
        (None, false) => String::new(),
        (Some(namespace), true) => namespace.clone(),
        (None, true) if write.request_namespace().is_empty() => {
            return Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources".into());
        }
        (None, true) => write.request_namespace().to_owned(),
    };
    let failed = |status: crate::status::Status| status.message;
    let found: Vec<Option<Arc<Value>>> = match (&reference.name, &reference.selector) {
        (Some(name), _) => {
            let object = cluster.get(&resource.storage, &namespace, name).await.map_err(failed)?;
            object.into_iter().map(|object| Some(object.value().clone())).collect()
        }
        (None, Some(selector)) => {
            let all = cluster.list(&resource.storage, &namespace).await.map_err(failed)?;
            all.iter().filter(|object| selector.matches_object(object)).map(|object| Some(object.value().clone())).collect()
        }
        (None, None) => return Err("one of name or selector must be provided".into()),
    };
    if found.is_empty() && reference.deny_if_missing {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
    }
    // What a policy says of them must not be told by audit, whatever the request is about.
    if resource.group.is_empty() && &*resource.plural == "secrets" {
        found.iter().flatten().for_each(|secret| write.context.guard(secret.clone()));
    }
    Ok(found)
}

/// Why a policy cannot be used at all: nobody knows the kind of its parameters.
pub fn unknown_kind(policy: &Policy, cluster: &Cluster) -> Option<String> {
    let (api_version, kind) = policy.param_kind.as_ref()?;
    resource_of(api_version, kind, cluster).is_none().then(|| not_found(api_version, kind))
}

fn not_found(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'")
}

/// The resource whose objects are of a kind.
pub fn resource_of(api_version: &str, kind: &str, cluster: &Cluster) -> Option<Arc<Resource>> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    cluster.registry.by_kind(group, version, kind)
}
