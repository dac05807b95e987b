//! The smallest roles that allow what somebody did: read off audit events, written as Roles and ClusterRoles with their bindings. Pure.
//!
//! A Role for each namespace, a ClusterRole for what has no namespace or was asked across all of them. Names of objects are kept where
//! a rule can have them: never with `create` and `deletecollection`, and with `list` and `watch` only where the request itself named
//! one object (a field selector on `metadata.name`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Event;
use crate::request::parse;

/// The group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// A group and a resource, with its subresource, of it.
type Target = (String, String);
/// How a resource was used: its group, the verbs, the names.
type Use = (String, Vec<String>, Option<Vec<String>>);
/// The names that a verb was used with; `None` once it was used without one.
type Names = Option<BTreeSet<String>>;

/// What is taken into account.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Leave object names out.
    pub any_name: bool,
    /// Leave out what was forbidden.
    pub only_allowed: bool,
    /// Take in what every authenticated user may do anyway: discovery, health, reviews of oneself.
    pub include_default: bool,
}

/// What a user was seen to do.
#[derive(Clone, Debug)]
pub struct Usage {
    user: String,
    options: Options,
    /// By namespace; the empty one is the cluster.
    scopes: BTreeMap<String, BTreeMap<Target, BTreeMap<String, Names>>>,
    /// Other paths, with their verbs.
    paths: BTreeMap<String, BTreeSet<String>>,
    /// The groups that the user was seen with.
    pub groups: BTreeSet<String>,
}

impl Usage {
    /// Nothing seen yet.
    pub fn of(user: &str, options: Options) -> Usage {
        Usage { user: user.to_owned(), options, scopes: BTreeMap::new(), paths: BTreeMap::new(), groups: BTreeSet::new() }
    }

    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        self.scopes.is_empty() && self.paths.is_empty()
    }

    /// Takes an event in; one of another user says nothing.
    pub fn see(&mut self, event: &Event) {
        // Whoever is not known needs no role.
        if event.code() == 401 {
            return;
        }
        let impersonation = event.may_not_impersonate();
        let denied = event.decision() == "forbid" || event.may_not_create();
        if self.options.only_allowed && denied {
            return;
        }
        // Whoever may not be somebody else asked for nothing of their own.
        if let Some((verb, object)) = impersonation {
            if event.user.username == self.user {
                self.groups.extend(event.user.groups.iter().cloned());
                let name = Some(object.name).filter(|name| !name.is_empty());
                self.used(&object.namespace, (object.api_group, object.resource), &verb, name);
            }
            return;
        }
        if event.user.username == self.user
            && let Some(other) = &event.impersonated_user
        {
            self.groups.extend(event.user.groups.iter().cloned());
            self.impersonation(other);
        }
        let acting = event.effective_user();
        // A star in a path is part of a name nowhere; in a rule it would give everything to whoever tried it.
        if acting.username != self.user || has_star(event) {
            return;
        }
        self.groups.extend(acting.groups.iter().cloned());
        // A method that Kubernetes has no verb for is no more than an attempt.
        if event.verb.is_empty() {
            return;
        }
        let Some(object) = event.object_ref.as_ref().filter(|object| !object.resource.is_empty()) else {
            let path = event.request_uri.split('?').next().unwrap_or_default();
            if self.options.include_default || !is_default_path(path, &event.verb, &acting.groups) {
                self.paths.entry(path.to_owned()).or_default().insert(event.verb.to_string());
            }
            return;
        };
        let resource = event.resource();
        if !self.options.include_default && !is_stranger(&acting.groups) && is_default_review(&object.api_group, &resource) {
            return;
        }
        // A Namespace lies in no namespace, though its requests name one.
        let namespace = if object.resource == "namespaces" { "" } else { object.namespace.as_str() };
        let name = match &*event.verb {
            "create" | "deletecollection" => None,
            "list" | "watch" => named(&event.request_uri).filter(|name| *name == object.name || object.name.is_empty()),
            _ => Some(object.name.clone()).filter(|name| !name.is_empty()),
        };
        let target = (object.api_group.clone(), resource);
        self.used(namespace, target.clone(), &event.verb, name);
        if event.creates_too() {
            self.used(namespace, target, "create", None);
        }
    }

    fn impersonation(&mut self, other: &super::event::UserInfo) {
        const AUTHENTICATION: &str = "authentication.k8s.io";
        let account = other.username.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
        match account {
            Some((namespace, name)) => {
                self.used(namespace, (String::new(), "serviceaccounts".into()), "impersonate", Some(name.to_owned()));
            }
            None => self.used("", (String::new(), "users".into()), "impersonate", Some(other.username.clone())),
        }
        // Some groups are added by the server, and not asked for.
        let is_given = |group: &&String| match (group.as_str(), account) {
            ("system:authenticated", _) => false,
            ("system:unauthenticated", _) => other.username != "system:anonymous",
            (group, Some((namespace, _))) => {
                let of = group.strip_prefix("system:serviceaccounts");
                !of.is_some_and(|of| of.is_empty() || of.strip_prefix(':') == Some(namespace))
            }
            _ => true,
        };
        for group in other.groups.iter().filter(is_given) {
            self.used("", (String::new(), "groups".into()), "impersonate", Some(group.clone()));
        }
        if !other.uid.is_empty() {
            self.used("", (AUTHENTICATION.into(), "uids".into()), "impersonate", Some(other.uid.clone()));
        }
        for (key, values) in &other.extra {
            for value in values {
                let target = (AUTHENTICATION.into(), format!("userextras/{key}"));
                self.used("", target, "impersonate", Some(value.clone()));
            }
        }
    }

    fn used(&mut self, namespace: &str, target: Target, verb: &str, name: Option<String>) {
        let verbs = self.scopes.entry(namespace.to_owned()).or_default().entry(target).or_default();
        let names = verbs.entry(verb.to_owned()).or_insert_with(|| Some(BTreeSet::new()));
        match (names.as_mut(), name.filter(|_| !self.options.any_name)) {
            (Some(known), Some(name)) => drop(known.insert(name)),
            _ => *names = None,
        }
    }

    /// What was done that needs more than a rule with its verb, which is nobody's to give unasked.
    pub fn notes(&self) -> Vec<&'static str> {
        let wrote = |group: &str, resources: &[&str]| {
            self.scopes.values().flatten().any(|((of, resource), verbs)| {
                of == group
                    && resources.contains(&resource.as_str())
                    && ["create", "update", "patch"].iter().any(|verb| verbs.contains_key(*verb))
            })
        };
        let mut notes = Vec::new();
        if wrote(RBAC, &["roles", "clusterroles"]) {
            notes.push("who writes roles must hold what they grant, or have the verb escalate on them; these roles give neither");
        }
        if wrote(RBAC, &["rolebindings", "clusterrolebindings"]) {
            notes.push("who binds a role must hold what it grants, or have the verb bind on it; these roles give neither");
        }
        if wrote("certificates.k8s.io", &["certificatesigningrequests/approval", "certificatesigningrequests/status"]) {
            notes.push("who approves or signs certificates must have the verb approve or sign on the signer; these roles do not give it");
        }
        notes
    }

    /// What remains of a scope once what the cluster's role allows is taken away.
    fn rest(&self, namespace: &str) -> BTreeMap<Target, BTreeMap<String, Names>> {
        let mut rest = self.scopes.get(namespace).cloned().unwrap_or_default();
        let Some(everywhere) = self.scopes.get("").filter(|_| !namespace.is_empty()) else { return rest };
        for (target, verbs) in &mut rest {
            let wide = everywhere.get(target);
            verbs.retain(|verb, _| wide.and_then(|wide| wide.get(verb)) != Some(&None));
        }
        rest.retain(|_, verbs| !verbs.is_empty());
        rest
    }

    /// Roles, ClusterRoles and their bindings; `name` is what they are called.
    pub fn roles(&self, name: &str) -> Vec<Value> {
        let mut objects = Vec::new();
        let mut cluster = rules(&self.rest(""));
        cluster.extend(path_rules(&self.paths));
        if !cluster.is_empty() {
            objects.push(json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": cluster}));
            objects.push(self.binding("ClusterRole", name, ""));
        }
        for namespace in self.scopes.keys().filter(|namespace| !namespace.is_empty()) {
            let rules = rules(&self.rest(namespace));
            if !rules.is_empty() {
                let metadata = json!({"name": name, "namespace": namespace});
                objects.push(json!({"apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": metadata, "rules": rules}));
                objects.push(self.binding("Role", name, namespace));
            }
        }
        objects
    }

    fn binding(&self, kind: &str, name: &str, namespace: &str) -> Value {
        let account = self.user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':'));
        let subject = match account {
            Some((namespace, name)) => json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}),
            None => json!({"kind": "User", "apiGroup": RBAC, "name": self.user}),
        };
        let mut metadata = json!({"name": name});
        if !namespace.is_empty() {
            metadata["namespace"] = json!(namespace);
        }
        json!({"apiVersion": format!("{RBAC}/v1"), "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name}, "subjects": [subject]})
    }
}

/// The rules of a scope: verbs that were used with the same names stand together, and so do resources of a group that were used alike.
fn rules(targets: &BTreeMap<Target, BTreeMap<String, Names>>) -> Vec<Value> {
    let mut alike: BTreeMap<Use, Vec<String>> = BTreeMap::new();
    for ((group, resource), verbs) in targets {
        let mut by_names: BTreeMap<Option<Vec<String>>, Vec<String>> = BTreeMap::new();
        for (verb, names) in verbs {
            let names = names.as_ref().map(|names| names.iter().cloned().collect());
            by_names.entry(names).or_default().push(verb.clone());
        }
        for (names, verbs) in by_names {
            alike.entry((group.clone(), verbs, names)).or_default().push(resource.clone());
        }
    }
    let mut rules: Vec<Value> = alike
        .into_iter()
        .map(|((group, verbs, names), resources)| {
            let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
            if let Some(names) = names {
                rule["resourceNames"] = json!(names);
            }
            rule
        })
        .collect();
    let texts = |rule: &Value, key: &str| rule[key].as_array().into_iter().flatten().map(Value::to_string).collect::<Vec<_>>();
    rules.sort_by_key(|rule| (texts(rule, "apiGroups"), texts(rule, "resources"), texts(rule, "verbs")));
    rules
}

fn path_rules(paths: &BTreeMap<String, BTreeSet<String>>) -> Vec<Value> {
    let mut alike: BTreeMap<&BTreeSet<String>, Vec<&str>> = BTreeMap::new();
    for (path, verbs) in paths {
        alike.entry(verbs).or_default().push(path);
    }
    alike.into_iter().map(|(verbs, paths)| json!({"nonResourceURLs": paths, "verbs": verbs})).collect()
}

/// The one object that a list or a watch was about: by its selector, or by the old path of a watch.
fn named(uri: &str) -> Option<String> {
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    Some(parse("GET", path, query).name).filter(|name| !name.is_empty())
}

/// What `system:public-info-viewer` gives to everybody, `system:discovery` to who is known, and the issuer's discovery to service
/// accounts.
fn is_default_path(path: &str, verb: &str, groups: &[String]) -> bool {
    let is_public = ["/healthz", "/livez", "/readyz", "/version", "/version/"].contains(&path);
    let is_discovery = ["/api", "/apis", "/openapi"].iter().any(|root| {
        let below = path.strip_prefix(root);
        below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
    });
    let is_issuer = path == "/openid/v1/jwks" || path.starts_with("/.well-known/openid-configuration");
    let is_account = groups.iter().any(|group| group == "system:serviceaccounts");
    verb == "get" && (is_public || (is_discovery && !is_stranger(groups)) || (is_issuer && is_account))
}

/// Whether these are the groups of somebody who is not known.
fn is_stranger(groups: &[String]) -> bool {
    groups.iter().any(|group| group == "system:unauthenticated")
}

/// Whether a rule made of this request would have a wildcard where the request had a word.
fn has_star(event: &Event) -> bool {
    let object = event.object_ref.as_ref().filter(|object| !object.resource.is_empty());
    match object {
        None => event.request_uri.split('?').next().unwrap_or_default().contains('*'),
        Some(object) => [&object.api_group, &object.resource, &object.subresource, &object.namespace].iter().any(|part| part.contains('*')),
    }
}

/// What `system:basic-user` gives to everybody who is known.
fn is_default_review(group: &str, resource: &str) -> bool {
    matches!(
        (group, resource),
        ("authorization.k8s.io", "selfsubjectaccessreviews" | "selfsubjectrulesreviews") | ("authentication.k8s.io", "selfsubjectreviews")
    )
}

/// A name for roles made of a user's: what a DNS label can hold, and none of a role that every cluster has, which would be written
/// over and then bound.
pub fn role_name(user: &str) -> String {
    let user = user.strip_prefix("system:serviceaccount:").unwrap_or(user);
    let letters = user.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    let name: String = letters.take(63).collect();
    let name = name.trim_matches('-');
    match name {
        "" => "audited".into(),
        "admin" | "cluster-admin" | "edit" | "view" => format!("audited-{name}"),
        name => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::permissions::{granted, permissions};
    use super::*;

    fn event(verb: &str, uri: &str, code: u16) -> Event {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let info = parse("GET", path, query);
        let object = info.is_resource.then(|| {
            json!({"resource": info.resource, "namespace": info.namespace, "name": info.name, "apiGroup": info.group,
                "subresource": info.subresource, "apiVersion": info.version})
        });
        let mut event = json!({"auditID": "a", "verb": verb, "requestURI": uri, "user": {"username": "jane", "groups": ["dev"]},
            "responseStatus": {"metadata": {}, "code": code}});
        if let Some(object) = object {
            event["objectRef"] = object;
        }
        serde_json::from_value(event).unwrap()
    }

    fn lines(options: Options, events: &[(&str, &str, u16)]) -> Vec<String> {
        let mut usage = Usage::of("jane", options);
        events.iter().for_each(|(verb, uri, code)| usage.see(&event(verb, uri, *code)));
        permissions(&usage.roles("jane")).into_iter().collect()
    }

    #[test]
    fn names_are_kept_where_a_rule_can_have_them() {
        let found = lines(
            Options::default(),
            &[
                ("get", "/api/v1/namespaces/default/pods/web", 200),
                ("create", "/api/v1/namespaces/default/pods", 201),
                ("list", "/api/v1/namespaces/default/secrets?limit=500", 200),
                ("watch", "/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3Dca", 200),
                ("watch", "/api/v1/watch/namespaces/default/secrets/tls", 200),
                ("deletecollection", "/api/v1/namespaces/default/events", 200),
                ("create", "/api/v1/namespaces/default/pods/web/exec", 101),
                ("get", "/api/v1/namespaces/default/pods/web/log", 200),
            ],
        );
        assert_eq!(
            found,
            [
                "namespace default: create pods",
                "namespace default: create pods/exec",
                "namespace default: deletecollection events",
                "namespace default: get pods web",
                "namespace default: get pods/log web",
                "namespace default: list secrets",
                "namespace default: watch configmaps ca",
                "namespace default: watch secrets tls",
            ]
        );
    }

    #[test]
    fn who_acts_for_others_may_use_each_of_their_attributes_that_the_server_does_not_add() {
        let mut usage = Usage::of("jane", Options::default());
        for other in [
            json!({"username": "joe", "uid": "u1", "groups": ["g", "system:authenticated"], "extra": {"scopes": ["s"]}}),
            json!({"username": "system:serviceaccount:a:b", "groups": ["system:serviceaccounts", "system:serviceaccounts:a", "h"]}),
            json!({"username": "system:anonymous", "groups": ["system:unauthenticated"]}),
        ] {
            let mut event = event("get", "/version", 200);
            event.impersonated_user = Some(serde_json::from_value(other).unwrap());
            usage.see(&event);
        }
        // A method without a verb is no use of anything.
        usage.see(&event("", "/api/v1/namespaces/default/pods/p", 405));
        assert_eq!(
            permissions(&usage.roles("jane")).into_iter().collect::<Vec<_>>(),
            [
                "cluster: impersonate groups g",
                "cluster: impersonate groups h",
                "cluster: impersonate uids.authentication.k8s.io u1",
                "cluster: impersonate userextras/scopes.authentication.k8s.io s",
                "cluster: impersonate users joe",
                "cluster: impersonate users system:anonymous",
                "namespace a: impersonate serviceaccounts b",
            ]
        );
        assert!(usage.notes().is_empty());
        usage.see(&event("create", "/apis/rbac.authorization.k8s.io/v1/namespaces/a/roles", 201));
        assert_eq!(usage.notes().len(), 1);
    }

    #[test]
    fn what_is_not_of_a_namespace_needs_a_cluster_role() {
        let found = lines(
            Options::default(),
            &[
                ("list", "/api/v1/pods", 200),
                ("list", "/api/v1/namespaces/default/pods", 200),
                ("get", "/api/v1/namespaces/team", 200),
                ("get", "/api/v1/nodes/n1", 404),
                ("get", "/metrics", 200),
                ("get", "/apis", 200),
            ],
        );
        assert_eq!(found, ["cluster: get /metrics", "cluster: get namespaces team", "cluster: get nodes n1", "cluster: list pods"]);
    }

    #[test]
    fn an_apply_that_made_the_object_needs_create_too() {
        let found = lines(Options::default(), &[("patch", "/apis/apps/v1/namespaces/default/deployments/web?fieldManager=x", 201)]);
        assert_eq!(found, ["namespace default: create deployments.apps", "namespace default: patch deployments.apps web"]);
        let found = lines(Options { any_name: true, ..Options::default() }, &[("get", "/api/v1/namespaces/default/pods/web", 200)]);
        assert_eq!(found, ["namespace default: get pods"]);
    }

    #[test]
    fn a_stream_that_was_asked_for_by_get_needs_create_too() {
        let found = lines(Options::default(), &[("get", "/api/v1/namespaces/default/pods/web/exec?command=ls", 101)]);
        assert_eq!(found, ["namespace default: create pods/exec", "namespace default: get pods/exec web"]);
    }

    #[test]
    fn a_star_that_somebody_tried_gives_nothing_and_what_only_some_have_by_default_is_told() {
        let tried = ["/api/v1/*", "/apis/*/v1/*", "/*", "/usher/*", "/api/v1/namespaces/*/pods", "/api/v1/namespaces/a/pods/x/*"];
        let tried: Vec<_> = tried.iter().map(|uri| ("list", *uri, 403)).collect();
        assert_eq!(lines(Options::default(), &tried), Vec::<String>::new());
        let of = |groups: &[&str]| {
            let mut usage = Usage::of("jane", Options::default());
            let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
            let asked = [("get", "/apis"), ("get", "/version"), ("get", "/apisx"), ("create", review)];
            for (verb, uri) in asked.into_iter().chain([("get", "/.well-known/openid-configuration")]) {
                let mut event = event(verb, uri, 200);
                event.user.groups = groups.iter().map(|group| group.to_string()).collect();
                usage.see(&event);
            }
            permissions(&usage.roles("x")).into_iter().collect::<Vec<_>>()
        };
        let issuer = "cluster: get /.well-known/openid-configuration";
        assert_eq!(of(&["system:authenticated"]), [issuer, "cluster: get /apisx"]);
        assert_eq!(of(&["system:serviceaccounts", "system:authenticated"]), ["cluster: get /apisx"]);
        let review = "cluster: create selfsubjectaccessreviews.authorization.k8s.io";
        assert_eq!(of(&["system:unauthenticated"]), [review, issuer, "cluster: get /apis", "cluster: get /apisx"]);
    }

    #[test]
    fn verbs_with_the_same_names_and_resources_used_alike_share_a_rule() {
        let mut usage = Usage::of("system:serviceaccount:ops:bot", Options::default());
        for (verb, uri) in [
            ("list", "/api/v1/namespaces/default/pods"),
            ("watch", "/api/v1/namespaces/default/pods?watch=1"),
            ("list", "/api/v1/namespaces/default/services"),
            ("watch", "/api/v1/namespaces/default/services?watch=1"),
            ("get", "/api/v1/namespaces/default/pods/a"),
            ("delete", "/api/v1/namespaces/default/pods/a"),
        ] {
            let mut event = event(verb, uri, 200);
            event.user.username = "system:serviceaccount:ops:bot".into();
            usage.see(&event);
        }
        let roles = usage.roles("bot");
        assert_eq!(
            roles[0]["rules"],
            json!([
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete", "get"], "resourceNames": ["a"]},
                {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["list", "watch"]},
            ])
        );
        assert_eq!(roles[1]["subjects"], json!([{"kind": "ServiceAccount", "name": "bot", "namespace": "ops"}]));
        assert_eq!(roles[1]["roleRef"]["kind"], "Role");
    }

    #[test]
    fn whoever_impersonates_needs_that_and_not_what_the_other_does() {
        let mut event = event("get", "/api/v1/namespaces/default/pods/web", 200);
        event.impersonated_user = Some(super::super::event::UserInfo {
            username: "joe".into(),
            groups: vec!["dev".into(), "system:authenticated".into()],
            ..Default::default()
        });
        let of = |user: &str| {
            let mut usage = Usage::of(user, Options::default());
            usage.see(&event);
            permissions(&usage.roles("x")).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(of("jane"), ["cluster: impersonate groups dev", "cluster: impersonate users joe"]);
        assert_eq!(of("joe"), ["namespace default: get pods web"]);
        assert!(of("ann").is_empty());
    }

    #[test]
    fn whoever_may_not_be_somebody_else_needs_that_and_nothing_of_what_was_asked() {
        let mut event = event("list", "/api/v1/namespaces/default/pods", 403);
        let told = "users \"bob\" is forbidden: User \"jane\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope";
        if let Some(status) = &mut event.response_status {
            (status.message, status.details) = (told.into(), Some(json!({"name": "bob", "kind": "users"})));
        }
        let of = |user: &str, only_allowed: bool| {
            let mut usage = Usage::of(user, Options { only_allowed, ..Options::default() });
            usage.see(&event);
            permissions(&usage.roles("x")).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(of("jane", false), ["cluster: impersonate users bob"]);
        assert!(of("jane", true).is_empty() && of("bob", false).is_empty());
    }

    #[test]
    fn the_role_of_somebody_is_never_one_that_every_cluster_has() {
        for (user, name) in [("admin", "audited-admin"), ("View", "audited-view"), ("jane@x", "jane-x"), ("::", "audited")] {
            assert_eq!(role_name(user), name);
        }
    }

    #[test]
    fn what_somebody_has_now_is_found_by_user_group_and_account() {
        let role = |kind: &str, name: &str, namespace: Option<&str>, verb: &str| {
            json!({"kind": kind, "metadata": {"name": name, "namespace": namespace},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]})
        };
        let binding = |kind: &str, namespace: Option<&str>, role: (&str, &str), subject: Value| json!({"kind": kind, "metadata": {"name": "b", "namespace": namespace}, "roleRef": {"kind": role.0, "name": role.1}, "subjects": [subject]});
        let objects = [
            role("ClusterRole", "view", None, "get"),
            role("Role", "edit", Some("a"), "update"),
            role("Role", "edit", Some("b"), "delete"),
            binding("RoleBinding", Some("a"), ("ClusterRole", "view"), json!({"kind": "Group", "name": "dev"})),
            binding("RoleBinding", Some("a"), ("Role", "edit"), json!({"kind": "User", "name": "jane"})),
            binding("RoleBinding", Some("b"), ("Role", "edit"), json!({"kind": "User", "name": "joe"})),
            binding(
                "ClusterRoleBinding",
                None,
                ("ClusterRole", "view"),
                json!({"kind": "ServiceAccount", "name": "jane", "namespace": "x"}),
            ),
        ];
        let groups = BTreeSet::from(["dev".to_owned()]);
        let found: Vec<_> = permissions(&granted("jane", &groups, &objects)).into_iter().collect();
        assert_eq!(found, ["namespace a: get pods", "namespace a: update pods"]);
        let found: Vec<_> = permissions(&granted("system:serviceaccount:x:jane", &BTreeSet::new(), &objects)).into_iter().collect();
        assert_eq!(found, ["cluster: get pods"]);
    }
}
