//! Attribute-based access control: the legacy policy file, one JSON object a line. The first policy that fits allows;
//! there is nothing in such a file that denies.

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::request::{RequestInfo, User};

use super::{Attributes, Authorizer, Decision};

/// The policies as last read.
#[derive(Default)]
pub struct Abac {
    policies: ArcSwap<Vec<Policy>>,
}

#[derive(Clone, Debug, Default)]
struct Policy {
    user: String,
    group: String,
    readonly: bool,
    api_group: String,
    namespace: String,
    resource: String,
    non_resource_path: String,
}

impl Abac {
    /// Takes the new content of the file; the old one stays in force if this one cannot be read.
    pub fn replace(&self, text: &str) -> Result<(), String> {
        let mut policies = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let value: Value = serde_json::from_str(line).map_err(|e| format!("error reading policy line {}: {e}", i + 1))?;
            policies.push(policy(&value).map_err(|e| format!("error reading policy line {}: {e}", i + 1))?);
        }
        self.policies.store(Arc::new(policies));
        Ok(())
    }
}

fn policy(value: &Value) -> Result<Policy, String> {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let read = |spec: &Value| Policy {
        user: text(spec, "user"),
        group: text(spec, "group"),
        readonly: spec["readonly"] == true,
        api_group: text(spec, "apiGroup"),
        namespace: text(spec, "namespace"),
        resource: text(spec, "resource"),
        non_resource_path: text(spec, "nonResourcePath"),
    };
    let mut policy = match (value["apiVersion"].as_str(), value["kind"].as_str()) {
        (Some("abac.authorization.kubernetes.io/v1beta1"), Some("Policy")) => read(&value["spec"]),
        (None, None) => {
            // The form before versions: what is not said there means everything.
            let mut policy = read(value);
            policy.non_resource_path = if policy.resource.is_empty() && policy.namespace.is_empty() { "*".into() } else { String::new() };
            if policy.user.is_empty() && policy.group.is_empty() {
                policy.user = "*".into();
            }
            for field in [&mut policy.namespace, &mut policy.resource] {
                if field.is_empty() {
                    *field = "*".into();
                }
            }
            policy.api_group = "*".into();
            policy
        }
        _ => return Err("unknown version or kind".into()),
    };
    // Everybody is everybody who has said who they are.
    if policy.user == "*" || policy.group == "*" {
        (policy.user, policy.group) = (String::new(), "system:authenticated".into());
    }
    Ok(policy)
}

impl Policy {
    fn fits(&self, user: &User, info: &RequestInfo) -> bool {
        self.is_about(user) && (!self.readonly || matches!(info.verb(), "get" | "list" | "watch")) && self.covers(info)
    }

    fn is_about(&self, user: &User) -> bool {
        let user_fits = self.user.is_empty() || self.user == user.name;
        let group_fits = self.group.is_empty() || user.in_group(&self.group);
        user_fits && group_fits && !(self.user.is_empty() && self.group.is_empty())
    }

    fn covers(&self, info: &RequestInfo) -> bool {
        let fits = |pattern: &str, value: &str| pattern == "*" || pattern == value;
        if info.is_resource {
            return fits(&self.namespace, &info.namespace) && fits(&self.resource, &info.resource) && fits(&self.api_group, &info.group);
        }
        let path = &self.non_resource_path;
        fits(path, &info.path) || (path.ends_with('*') && info.path.starts_with(path.trim_end_matches('*')))
    }
}

impl Authorizer for Abac {
    fn name(&self) -> &'static str {
        "ABAC"
    }

    fn decide<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Decision> {
        let fits = self.policies.load().iter().any(|policy| policy.fits(&attributes.user, &attributes.info));
        let decision = if fits { Decision::Allow("".into()) } else { Decision::NoOpinion("No policy matched.".into()) };
        Box::pin(std::future::ready(decision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::parse;

    const FILE: &str = r#"
# comment
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","namespace":"*","resource":"*","apiGroup":"*"}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"devs","namespace":"a","resource":"pods","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"system:authenticated","nonResourcePath":"/version*","readonly":true}}
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"*","namespace":"open","resource":"pods"}}
{"user":"old"}
"#;

    async fn allows(abac: &Abac, user: User, method: &str, path: &str) -> bool {
        abac.decide(&Attributes { user: Arc::new(user), info: Arc::new(parse(method, path, "")) }).await.is_allow()
    }

    #[tokio::test]
    async fn a_policy_allows_whom_and_what_it_names() {
        let abac = Abac::default();
        abac.replace(FILE).unwrap();
        assert!(allows(&abac, User::new("alice", &[]), "DELETE", "/apis/apps/v1/namespaces/x/deployments/d").await);
        assert!(!allows(&abac, User::new("alice", &[]), "GET", "/metrics").await);
        let dev = || User::new("bob", &["devs"]);
        assert!(allows(&abac, dev(), "GET", "/api/v1/namespaces/a/pods").await);
        assert!(!allows(&abac, dev(), "DELETE", "/api/v1/namespaces/a/pods/x").await);
        assert!(!allows(&abac, dev(), "GET", "/api/v1/namespaces/b/pods").await);
        assert!(allows(&abac, User::new("x", &["system:authenticated"]), "GET", "/version/").await);
        assert!(allows(&abac, User::new("old", &[]), "GET", "/metrics").await);
        let open = "/api/v1/namespaces/open/pods";
        assert!(allows(&abac, User::new("x", &["system:authenticated"]), "POST", open).await);
        assert!(!allows(&abac, User::new("system:anonymous", &["system:unauthenticated"]), "GET", open).await, "everybody but nobody");
        assert!(!allows(&abac, User::new("nobody", &[]), "GET", "/api/v1/pods").await);
    }

    #[tokio::test]
    async fn a_malformed_file_changes_nothing() {
        let abac = Abac::default();
        abac.replace(FILE).unwrap();
        assert!(abac.replace("{").is_err());
        assert!(abac.replace(r#"{"apiVersion":"v1","kind":"Pod"}"#).is_err());
        assert!(allows(&abac, User::new("alice", &[]), "GET", "/api/v1/pods").await);
    }
}
