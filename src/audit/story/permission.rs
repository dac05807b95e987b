//! What authorisation said of a request: the role and the binding that allowed it, or the rule that nobody granted.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::audit::Event;
use crate::audit::event::ObjectReference;

/// What authorisation said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Authorization {
    /// `allow` or `forbid`.
    pub decision: String,
    /// The reason, as noted.
    pub reason: String,
    /// The role that allowed it: `ClusterRole/view`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub role: String,
    /// The binding that gave the role: `RoleBinding/readers`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub binding: String,
    /// The rule that would have allowed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
}

/// What nobody granted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Missing {
    /// A PolicyRule that would allow the request.
    pub rule: Value,
    /// Where it has to be granted.
    pub scope: String,
    /// Whom it has to be granted to.
    pub subject: String,
}

/// What authorisation said, where it was reached.
pub fn authorization(event: &Event) -> Option<Authorization> {
    if let Some((verb, object)) = event.may_not_impersonate() {
        let reason = event.response_status.as_ref().map(|status| status.message.clone()).unwrap_or_default();
        let missing = Some(missing(event, Some(&object), &verb));
        return Some(Authorization { decision: "forbid".into(), reason, missing, ..Authorization::default() });
    }
    let decision = event.annotations.get("authorization.k8s.io/decision")?.clone();
    let reason = event.annotations.get("authorization.k8s.io/reason").cloned().unwrap_or_default();
    let mut found = Authorization { decision, reason, ..Authorization::default() };
    let steps = event.trace.as_ref().map(|story| story.steps.as_slice()).unwrap_or_default();
    // The first one is about the verb; one that comes later, about the right to create besides it.
    let by = steps.iter().find(|step| step.hop == "authorize").and_then(|step| step.detail.as_ref());
    let told = by.and_then(|by| Some((by["binding"].as_str()?.to_owned(), by["role"].as_str()?.to_owned())));
    if let Some((binding, role)) = told.or_else(|| granted(&found.reason)) {
        (found.binding, found.role) = (binding, role);
    }
    if found.decision == "forbid" {
        found.missing = Some(missing(event, event.object_ref.as_ref(), &event.verb));
    } else if event.may_not_create() {
        found.missing = Some(missing(event, event.object_ref.as_ref(), "create"));
    }
    Some(found)
}

/// The binding and the role in `RBAC: allowed by RoleBinding "b/ns" of Role "r" to User "u"`.
fn granted(reason: &str) -> Option<(String, String)> {
    let rest = reason.strip_prefix("RBAC: allowed by ")?;
    let (binding, rest) = rest.split_once(" of ")?;
    let (role, _) = rest.split_once(" to ")?;
    let short = |text: &str| {
        let (kind, name) = text.split_once(' ')?;
        Some(format!("{kind}/{}", name.trim_matches('"')))
    };
    Some((short(binding)?, short(role)?))
}

fn missing(event: &Event, object: Option<&ObjectReference>, verb: &str) -> Missing {
    let user = &event.effective_user().username;
    let subject = match user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':')) {
        Some((namespace, name)) => format!("ServiceAccount {namespace}/{name}"),
        None => format!("User {user}"),
    };
    let Some(object) = object.filter(|object| !object.resource.is_empty()) else {
        let path = event.request_uri.split('?').next().unwrap_or_default();
        let rule = json!({"nonResourceURLs": [path], "verbs": [verb]});
        return Missing { rule, scope: "a ClusterRole and a ClusterRoleBinding".into(), subject };
    };
    let resource = match object.subresource.is_empty() {
        true => object.resource.clone(),
        false => format!("{}/{}", object.resource, object.subresource),
    };
    let rule = json!({"apiGroups": [object.api_group], "resources": [resource], "verbs": [verb]});
    let scope = match object.namespace.as_str() {
        "" => "a ClusterRole and a ClusterRoleBinding".into(),
        namespace => format!("a Role and a RoleBinding in the namespace {namespace}"),
    };
    Missing { rule, scope, subject }
}
