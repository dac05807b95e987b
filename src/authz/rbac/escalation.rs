//! Nobody hands on more than they hold: who writes a Role or ClusterRole must hold its rules (or may `escalate`), who
//! writes a binding must hold the rules of the role it names (or may `bind`). Called on create and update with the
//! authorisation chain, before the object is stored.

use std::sync::Arc;

use serde_json::Value;

use crate::authn::MASTERS;
use crate::request::{RequestInfo, User};
use crate::status::Status;

use super::super::{Attributes, Authorizer, Decision};
use super::Rbac;
use super::index::GROUP;
use super::rule::{Rule, compacted, quoted, uncovered};

/// Both checks as one call, for whoever writes objects of any resource.
#[derive(Clone)]
pub struct Escalation {
    /// What roles and bindings say.
    pub rbac: Arc<Rbac>,
    /// Who knows whether somebody may `escalate` or `bind`.
    pub authorizer: Arc<dyn Authorizer>,
}

impl Escalation {
    /// Whether a user may write this object; resources other than roles and bindings are passed over. `old` is the object
    /// before an update.
    pub async fn check(&self, user: &Arc<User>, request: &RequestInfo, old: Option<&Value>, new: &Value) -> Result<(), Status> {
        match (request.group.as_str(), request.resource.as_str()) {
            (GROUP, plural @ ("roles" | "clusterroles")) => {
                may_write_role(&self.rbac, &*self.authorizer, user, plural, &request.name, old, new).await
            }
            (GROUP, plural @ ("rolebindings" | "clusterrolebindings")) => {
                may_write_binding(&self.rbac, &*self.authorizer, user, plural, old, new).await
            }
            _ => Ok(()),
        }
    }
}

/// Whether a user may write this Role or ClusterRole. `old` is the object before an update; `asked` the name in the request's path,
/// which a create has not: the right to `escalate` one role by name is none to make it.
pub async fn may_write_role(
    rbac: &Rbac,
    chain: &dyn Authorizer,
    user: &Arc<User>,
    plural: &str,
    asked: &str,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), Status> {
    let rules = Rule::list(new);
    let aggregates = |role: &Value| role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|s| !s.is_empty());
    if user.in_group(MASTERS) || old.is_some_and(|old| only_for_collection(old, new)) {
        return Ok(());
    }
    let (namespace, name) = (text(new, "namespace"), text(new, "name"));
    if allowed(chain, user, "escalate", plural, namespace, asked).await {
        return Ok(());
    }
    confirm(rbac, user, namespace, &rules).map_err(|why| Status::forbidden(GROUP, plural, name, &why))?;
    if aggregates(new) || old.is_some_and(aggregates) {
        // What an aggregation gathers is not known, so it takes the right to everything.
        let star = || vec!["*".to_owned()];
        let everything = [
            Rule { verbs: star(), api_groups: star(), resources: star(), ..Rule::default() },
            Rule { verbs: star(), non_resource_urls: star(), ..Rule::default() },
        ];
        let why = "must have cluster-admin privileges to use the aggregationRule";
        confirm(rbac, user, "", &everything).map_err(|_| Status::forbidden(GROUP, plural, name, why))?;
    }
    Ok(())
}

/// Whether a user may write this RoleBinding or ClusterRoleBinding. `old` is the object before an update.
pub async fn may_write_binding(
    rbac: &Rbac,
    chain: &dyn Authorizer,
    user: &Arc<User>,
    plural: &str,
    old: Option<&Value>,
    new: &Value,
) -> Result<(), Status> {
    if user.in_group(MASTERS) || old.is_some_and(|old| only_for_collection(old, new)) {
        return Ok(());
    }
    let (namespace, name) = (text(new, "namespace"), text(new, "name"));
    let role = new["roleRef"]["name"].as_str().unwrap_or_default();
    let (roles, role_namespace) = match new["roleRef"]["kind"].as_str() {
        Some("ClusterRole") => ("clusterroles", ""),
        Some("Role") => ("roles", namespace),
        other => return Err(Status::new(500, "", format!("unsupported role reference kind: {:?}", other.unwrap_or_default()))),
    };
    if allowed(chain, user, "bind", roles, namespace, role).await {
        return Ok(());
    }
    if roles == "roles" && namespace.is_empty() {
        return Err(Status::bad_request("Namespace parameter required."));
    }
    if role.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    // A real server looks the role up in the name of the binding's request, hence the plural.
    let found = rbac.role(role_namespace, role).ok_or_else(|| Status::not_found(GROUP, plural, role))?;
    confirm(rbac, user, namespace, &found.rules).map_err(|why| Status::forbidden(GROUP, plural, name, &why))
}

/// Whether a user holds all of these rules in a namespace; otherwise the sentence that says what is missing.
pub fn confirm(rbac: &Rbac, user: &User, namespace: &str, rules: &[Rule]) -> Result<(), String> {
    let held = rbac.rules_for(user, namespace);
    let missing = uncovered(&held.rules, rules);
    if missing.is_empty() {
        return Ok(());
    }
    let mut lines: Vec<String> = compacted(missing).iter().map(Rule::compact).collect();
    lines.sort();
    lines.dedup();
    let mut message = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        lines.join("\n")
    );
    if !held.errors.is_empty() {
        let errors = if held.errors.len() == 1 { held.errors[0].clone() } else { format!("[{}]", held.errors.join(", ")) };
        message.push_str(&format!("; resolution errors: [{errors}]"));
    }
    Err(message)
}

async fn allowed(chain: &dyn Authorizer, user: &Arc<User>, verb: &str, plural: &str, namespace: &str, name: &str) -> bool {
    let info = RequestInfo {
        is_resource: true,
        special_verb: verb.to_owned(),
        group: GROUP.to_owned(),
        version: "v1".to_owned(),
        namespace: namespace.to_owned(),
        resource: plural.to_owned(),
        name: name.to_owned(),
        ..RequestInfo::default()
    };
    matches!(chain.decide(&Attributes { user: user.clone(), info: Arc::new(info) }).await, Decision::Allow(_))
}

/// Whether a change is one that the garbage collector makes. Nothing else is let through unseen, not even a label: it may be what an
/// aggregation gathers by.
fn only_for_collection(old: &Value, new: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            for key in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                metadata.remove(key);
            }
        }
        object
    };
    without(old) == without(new)
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{binding, role, user};
    use super::*;

    fn bob() -> Arc<User> {
        Arc::new(User::new("bob", &["devs", "system:authenticated"]))
    }

    #[tokio::test]
    async fn a_role_with_more_than_its_writer_holds_is_refused_with_the_recorded_words() {
        let rbac = Rbac::default();
        let secrets = role("default", "esc", json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]));
        let refused = may_write_role(&rbac, &rbac, &bob(), "roles", "", None, &secrets).await.unwrap_err();
        assert_eq!(
            refused.message,
            "roles.rbac.authorization.k8s.io \"esc\" is forbidden: user \"bob\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\"]}"
        );
        // What the garbage collector changes takes no right to the rules, a label does.
        let mut touched = secrets.clone();
        touched["metadata"]["finalizers"] = json!(["example.com/x"]);
        may_write_role(&rbac, &rbac, &bob(), "roles", "esc", Some(&secrets), &touched).await.unwrap();
        touched["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-admin": "true"});
        assert!(may_write_role(&rbac, &rbac, &bob(), "roles", "esc", Some(&secrets), &touched).await.is_err());
        let masters = Arc::new(User::new("admin", &["system:masters"]));
        may_write_role(&rbac, &rbac, &masters, "roles", "", None, &secrets).await.unwrap();
        rbac.put("roles", &role("default", "held", json!([{"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}])));
        rbac.put("rolebindings", &binding("default", "held", "Role", "held", user("bob")));
        may_write_role(&rbac, &rbac, &bob(), "roles", "", None, &secrets).await.unwrap();
    }

    #[tokio::test]
    async fn the_verbs_escalate_and_bind_lift_the_check() {
        let rbac = Rbac::default();
        let rules = json!([{"apiGroups": [GROUP], "resources": ["roles", "clusterroles"], "verbs": ["escalate", "bind"]}]);
        rbac.put("clusterroles", &role("", "trusted", rules));
        rbac.put("clusterroles", &role("", "admin", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])));
        let bound = binding("a", "b", "ClusterRole", "admin", user("bob"));
        assert_eq!(may_write_binding(&rbac, &rbac, &bob(), "rolebindings", None, &bound).await.unwrap_err().code, 403);
        rbac.put("clusterrolebindings", &binding("", "trusted", "ClusterRole", "trusted", user("bob")));
        may_write_binding(&rbac, &rbac, &bob(), "rolebindings", None, &bound).await.unwrap();
        may_write_role(&rbac, &rbac, &bob(), "roles", "", None, &role("a", "x", json!([{"verbs": ["*"], "nonResourceURLs": ["*"]}])))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn a_binding_to_a_missing_role_is_not_found_in_the_name_of_the_binding() {
        let rbac = Rbac::default();
        let bound = binding("default", "esc", "Role", "nope", user("bob"));
        let refused = may_write_binding(&rbac, &rbac, &bob(), "rolebindings", None, &bound).await.unwrap_err();
        assert_eq!((refused.code, &*refused.message), (404, "rolebindings.rbac.authorization.k8s.io \"nope\" not found"));
    }

    #[tokio::test]
    async fn an_aggregation_takes_the_right_to_everything() {
        let rbac = Rbac::default();
        let mut gathers = role("", "gathers", json!([]));
        gathers["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
        let refused = may_write_role(&rbac, &rbac, &bob(), "clusterroles", "", None, &gathers).await.unwrap_err();
        assert!(refused.message.ends_with("must have cluster-admin privileges to use the aggregationRule"));
    }
}
