//! What a client hears when authorisation says no: the 403 of a real server, word for word.

use crate::status::Status;

use super::{Attributes, Decision};

/// A decision as whoever asked for it in the middle of a request passes it on.
pub fn verdict(attributes: &Attributes, decision: &Decision) -> Result<(), Status> {
    match decision.error() {
        _ if decision.is_allow() => Ok(()),
        Some(error) => Err(Status::internal(error)),
        None => Err(forbidden(attributes, decision.reason())),
    }
}

/// The `Status` of a refused request. `reason` is what the authorisers had to say; it may be empty.
pub fn forbidden(attributes: &Attributes, reason: &str) -> Status {
    let info = &attributes.info;
    // A name that a client made up must not look like markup to a browser.
    let mut why = sentence(attributes).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    let group = if info.is_resource { info.group.as_str() } else { "" };
    let plural = if info.is_resource { info.resource.as_str() } else { "" };
    Status::forbidden(group, plural, if info.is_resource { &info.name } else { "" }, &why)
}

fn sentence(attributes: &Attributes) -> String {
    let info = &attributes.info;
    let user = &attributes.user.name;
    let verb = info.verb();
    if !info.is_resource {
        return format!("User {user:?} cannot {verb} path {:?}", info.path);
    }
    let resource = if info.subresource.is_empty() { info.resource.clone() } else { format!("{}/{}", info.resource, info.subresource) };
    let scope =
        if info.namespace.is_empty() { "at the cluster scope".to_owned() } else { format!("in the namespace {:?}", info.namespace) };
    format!("User {user:?} cannot {verb} resource {resource:?} in API group {:?} {scope}", info.group)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::request::{User, parse};

    fn refused(method: &str, path: &str, reason: &str) -> serde_json::Value {
        let attributes = Attributes { user: Arc::new(User::new("bob", &[])), info: Arc::new(parse(method, path, "")) };
        forbidden(&attributes, reason).to_json()
    }

    #[test]
    fn refusals_are_worded_as_recorded() {
        let body = refused("GET", "/api/v1/namespaces/default/pods/x/log", "");
        let message =
            "pods \"x\" is forbidden: User \"bob\" cannot get resource \"pods/log\" in API group \"\" in the namespace \"default\"";
        assert_eq!(body["message"], message);
        assert_eq!(body["details"], json!({"name": "x", "kind": "pods"}));
        let body = refused("POST", "/apis/apps/v1/namespaces/default/deployments", "");
        let message = "deployments.apps is forbidden: User \"bob\" cannot create resource \"deployments\" in API group \"apps\" in the namespace \"default\"";
        assert_eq!(body["message"], message);
        assert_eq!(body["details"], json!({"group": "apps", "kind": "deployments"}));
        let body = refused("GET", "/api/v1/namespaces/<b>&c/pods", "");
        assert!(body["message"].as_str().unwrap().ends_with("in the namespace \"&lt;b&gt;&amp;c\""));
        let body = refused("GET", "/", "");
        assert_eq!((&body["message"], &body["details"]), (&json!("forbidden: User \"bob\" cannot get path \"/\""), &json!({})));
        let body = refused("GET", "/api/v1/nodes", "why");
        assert_eq!(
            body["message"],
            "nodes is forbidden: User \"bob\" cannot list resource \"nodes\" in API group \"\" at the cluster scope: why"
        );
    }
}
