//! Role-based access control: what Roles and ClusterRoles allow to whom RoleBindings and ClusterRoleBindings bind them.
//! The rules of a user (for reviews), the decision on a request, and the reason for it. Aggregating ClusterRoles is a
//! controller's work; who may write a role or a binding stands in [`escalation`].

pub mod compiled;
pub mod escalation;
pub mod index;
pub mod rule;

use std::borrow::Cow;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Map;

use crate::request::User;

use super::{Attributes, Authorizer, Decision, Explained, ResolvedRules};
use compiled::{Compiled, Hint};
use index::{GROUP, Grant, Index};
use rule::Rule;

/// The authoriser over an index.
#[derive(Clone, Debug, Default)]
pub struct Rbac {
    index: Arc<Index>,
}

/// What a user may do in a namespace.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Every rule, those of the cluster first.
    pub rules: Vec<Rule>,
    /// Bindings that point to roles which do not exist.
    pub errors: Vec<String>,
}

impl Rbac {
    /// An authoriser over an index that others keep up to date.
    pub fn new(index: Arc<Index>) -> Self {
        Rbac { index }
    }

    /// The index, to be told of changes.
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// Decides at once.
    pub fn decide_now(&self, attributes: &Attributes) -> Decision {
        self.decide_with(attributes, |_, _| ())
    }

    /// Decides, and hands on the grant and the rule that allow.
    fn decide_with(&self, attributes: &Attributes, mut found: impl FnMut(&Grant, &Rule)) -> Decision {
        let info = &*attributes.info;
        let verb = info.verb();
        let hint = Hint::of_question(info, verb);
        let mut missing: Vec<String> = Vec::new();
        let mut source = None;
        let namespace = if info.is_resource { info.namespace.as_str() } else { "" };
        self.index.visit(&attributes.user, namespace, &mut |grant| {
            if grant.repeated {
                return false;
            }
            let rules = grant.role.rules.load();
            let Some(rules) = rules.as_deref() else {
                note(&mut missing, not_found(grant));
                return false;
            };
            let Some(rule) = rules.allowing(info, verb, hint) else { return false };
            source = Some(grant.source.clone());
            found(grant, rule);
            true
        });
        match source {
            Some(source) => Decision::Allow(Cow::Owned(["RBAC: allowed by ", &source].concat())),
            None if missing.is_empty() => Decision::NoOpinion(Cow::Borrowed("")),
            None if missing.len() == 1 => Decision::NoOpinion(Cow::Owned(format!("RBAC: {}", missing[0]))),
            None => Decision::NoOpinion(Cow::Owned(format!("RBAC: [{}]", missing.join(", ")))),
        }
    }

    /// Everything a user may do in a namespace (empty: in the whole cluster).
    pub fn rules_for(&self, user: &User, namespace: &str) -> Rules {
        let mut found = Rules::default();
        self.index.visit(user, namespace, &mut |grant| {
            match grant.role.rules.load_full() {
                _ if grant.repeated => {}
                Some(role) => found.rules.extend(role.rules.iter().cloned()),
                None => note(&mut found.errors, not_found(grant)),
            }
            false
        });
        found
    }

    /// The rules of a role, if there is one; `namespace` empty for a ClusterRole.
    pub fn role(&self, namespace: &str, name: &str) -> Option<Arc<Compiled>> {
        self.index.role(namespace, name)
    }
}

fn note(list: &mut Vec<String>, text: String) {
    if !list.contains(&text) {
        list.push(text);
    }
}

fn not_found(grant: &Grant) -> String {
    let kind = if grant.role.namespace.is_empty() { "clusterrole" } else { "role" };
    format!("{kind}.{GROUP} {:?} not found", grant.role.name)
}

impl Authorizer for Rbac {
    fn name(&self) -> &'static str {
        "RBAC"
    }

    fn decide<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Decision> {
        Box::pin(std::future::ready(self.decide_now(attributes)))
    }

    fn explain<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Explained> {
        let mut detail = Map::new();
        let decision = self.decide_with(attributes, |grant, rule| {
            detail.insert("binding".to_owned(), grant.binding().into());
            detail.insert("role".to_owned(), grant.role.reference().into());
            let rule = if attributes.info.is_resource { rule.resource_rule() } else { rule.non_resource_rule() };
            detail.insert("rule".to_owned(), rule.unwrap_or_default());
        });
        Box::pin(std::future::ready(Explained { decision, by: self.name(), detail }))
    }

    fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        let found = Rbac::rules_for(self, user, namespace);
        ResolvedRules {
            resource: found.rules.iter().filter_map(Rule::resource_rule).collect(),
            non_resource: found.rules.iter().filter_map(Rule::non_resource_rule).collect(),
            incomplete: !found.errors.is_empty(),
            errors: found.errors,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::request::parse;

    pub(crate) fn role(namespace: &str, name: &str, rules: Value) -> Value {
        let mut metadata = json!({"name": name});
        if !namespace.is_empty() {
            metadata["namespace"] = namespace.into();
        }
        json!({"metadata": metadata, "rules": rules})
    }

    pub(crate) fn binding(namespace: &str, name: &str, kind: &str, role: &str, subjects: Value) -> Value {
        let mut metadata = json!({"name": name});
        if !namespace.is_empty() {
            metadata["namespace"] = namespace.into();
        }
        json!({"metadata": metadata, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}, "subjects": subjects})
    }

    pub(crate) fn user(name: &str) -> Value {
        json!([{"kind": "User", "name": name}])
    }

    pub(crate) fn ask(user: User, method: &str, path: &str) -> Attributes {
        Attributes { user: Arc::new(user), info: Arc::new(parse(method, path, "")) }
    }

    impl Rbac {
        pub(crate) fn put(&self, plural: &str, object: &Value) {
            self.index.changed(plural, GROUP, None, Some(object));
        }
    }

    fn allowed(rbac: &Rbac, user: User, method: &str, path: &str) -> bool {
        matches!(rbac.decide_now(&ask(user, method, path)), Decision::Allow(_))
    }

    fn bob() -> User {
        User::new("bob", &["devs", "system:authenticated"])
    }

    #[test]
    fn a_cluster_binding_counts_everywhere_and_its_reason_is_told() {
        let rbac = Rbac::default();
        rbac.put("clusterroles", &role("", "view", json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])));
        rbac.put("clusterrolebindings", &binding("", "devs-view", "ClusterRole", "view", json!([{"kind": "Group", "name": "devs"}])));
        let decision = rbac.decide_now(&ask(bob(), "GET", "/api/v1/namespaces/a/pods/x"));
        let reason = r#"RBAC: allowed by ClusterRoleBinding "devs-view" of ClusterRole "view" to Group "devs""#;
        assert_eq!(decision, Decision::Allow(reason.into()));
        assert!(!allowed(&rbac, User::new("eve", &[]), "GET", "/api/v1/namespaces/a/pods/x"));
        assert!(!allowed(&rbac, bob(), "DELETE", "/api/v1/namespaces/a/pods/x"));
    }

    #[tokio::test]
    async fn an_explanation_names_the_role_the_binding_and_the_rule() {
        let rbac = Rbac::default();
        let rules = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}, {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]);
        rbac.put("clusterroles", &role("", "view", rules));
        rbac.put("rolebindings", &binding("a", "rb", "ClusterRole", "view", user("bob")));
        let explained = rbac.explain(&ask(bob(), "GET", "/api/v1/namespaces/a/pods/x")).await;
        assert!(explained.decision.is_allow());
        let rule = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]});
        let expected = json!({"binding": "RoleBinding/a/rb", "role": "ClusterRole/view", "rule": rule});
        assert_eq!(Value::Object(explained.detail), expected);
        assert!(rbac.explain(&ask(bob(), "GET", "/api/v1/namespaces/b/pods/x")).await.detail.is_empty());
    }

    #[test]
    fn a_role_binding_counts_in_its_namespace_only_and_grants_no_paths() {
        let rbac = Rbac::default();
        let everything = json!([
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]},
        ]);
        rbac.put("clusterroles", &role("", "admin", everything));
        let subjects = json!([{"kind": "ServiceAccount", "name": "bot", "namespace": "ci"}]);
        rbac.put("rolebindings", &binding("a", "rb", "ClusterRole", "admin", subjects));
        let bot = || User::new("system:serviceaccount:ci:bot", &[]);
        let decision = rbac.decide_now(&ask(bot(), "GET", "/api/v1/namespaces/a/secrets/x"));
        let reason = r#"RBAC: allowed by RoleBinding "rb/a" of ClusterRole "admin" to ServiceAccount "bot/ci""#;
        assert_eq!(decision, Decision::Allow(reason.into()));
        assert!(!allowed(&rbac, bot(), "GET", "/api/v1/namespaces/b/secrets/x"));
        assert!(!allowed(&rbac, bot(), "GET", "/api/v1/secrets"));
        assert!(!allowed(&rbac, bot(), "GET", "/metrics"));
    }

    #[test]
    fn a_changed_role_or_binding_counts_for_the_very_next_decision() {
        let rbac = Rbac::default();
        let get = "/api/v1/namespaces/a/pods/x";
        let bound = binding("a", "rb", "Role", "r", user("bob"));
        rbac.put("rolebindings", &bound);
        let decision = rbac.decide_now(&ask(bob(), "GET", get));
        assert_eq!(decision, Decision::NoOpinion(r#"RBAC: role.rbac.authorization.k8s.io "r" not found"#.into()));

        let reader = role("a", "r", json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]));
        rbac.put("roles", &reader);
        assert!(allowed(&rbac, bob(), "GET", get));

        let other = binding("a", "rb", "Role", "r", user("eve"));
        rbac.index.changed("rolebindings", GROUP, Some(&bound), Some(&other));
        assert!(!allowed(&rbac, bob(), "GET", get) && allowed(&rbac, User::new("eve", &[]), "GET", get));

        rbac.index.changed("roles", GROUP, Some(&reader), None);
        assert!(!allowed(&rbac, User::new("eve", &[]), "GET", get));
        rbac.put("roles", &reader);
        rbac.index.changed("rolebindings", GROUP, Some(&other), None);
        assert!(!allowed(&rbac, User::new("eve", &[]), "GET", get));
    }

    #[test]
    fn the_same_subject_twice_in_a_binding_or_in_two_bindings_is_removed_one_by_one() {
        let rbac = Rbac::default();
        rbac.put("clusterroles", &role("", "view", json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])));
        let twice = json!([{"kind": "User", "name": "bob"}, {"kind": "User", "name": "bob"}]);
        let (one, two) = (binding("", "one", "ClusterRole", "view", twice), binding("", "two", "ClusterRole", "view", user("bob")));
        rbac.put("clusterrolebindings", &one);
        rbac.put("clusterrolebindings", &two);
        rbac.index.changed("clusterrolebindings", GROUP, Some(&one), None);
        assert!(allowed(&rbac, bob(), "GET", "/api/v1/pods/x"));
        rbac.index.changed("clusterrolebindings", GROUP, Some(&two), None);
        assert!(!allowed(&rbac, bob(), "GET", "/api/v1/pods/x"));
    }

    #[test]
    fn rules_of_a_user_are_those_of_the_cluster_and_of_the_namespace() {
        let rbac = Rbac::default();
        rbac.put("clusterroles", &role("", "c", json!([{"verbs": ["get"], "nonResourceURLs": ["/livez"]}])));
        rbac.put("roles", &role("a", "r", json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])));
        rbac.put("clusterrolebindings", &binding("", "c", "ClusterRole", "c", user("bob")));
        rbac.put("rolebindings", &binding("a", "r", "Role", "r", user("bob")));
        rbac.put("rolebindings", &binding("a", "gone", "Role", "gone", user("bob")));
        let rules = rbac.rules_for(&bob(), "a");
        assert_eq!((rules.rules.len(), rules.errors.len()), (2, 1));
        assert_eq!(rbac.rules_for(&bob(), "b").rules.len(), 1);
        assert_eq!(rbac.rules_for(&User::new("eve", &[]), "a").rules.len(), 0);
    }
}
