//! Being taken for somebody else: `Impersonate-User`, `-Group`, `-Uid` and `-Extra-*`. There are several ways to be allowed to.
//! The constrained ones take two rights: to do what the request does while impersonating in that way
//! (`impersonate-on:<mode>:<verb>`), and to be taken for that user in that way (`impersonate:<mode>`, for the user, the uid, each
//! group and each extra value). The old one takes only the latter, with the verb `impersonate`, and then allows everything.
//! Reads headers only; putting the result into the request is the gateway's work.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};

use crate::authn::cache::{Cache, digest};
use crate::authn::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS, MASTERS};
use crate::request::{RequestInfo, User, decode};
use crate::status::Status;
use crate::validation::names;

use super::{Attributes, Authorizer, forbidden};

const EXTRA_PREFIX: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// From this many groups or extra values on, the right to all of them is asked for first.
const MANY: usize = 4;

/// Whether a header is one of impersonation, and therefore to be dropped once it has been honoured.
pub fn is_header(name: &str) -> bool {
    name.get(..12).is_some_and(|head| head.eq_ignore_ascii_case("impersonate-"))
}

/// A way to be taken for somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// A service account, for the node that it runs on.
    AssociatedNode,
    /// For any node.
    ArbitraryNode,
    /// For a service account.
    ServiceAccount,
    /// For anybody else.
    UserInfo,
    /// The old way.
    Legacy,
}

const MODES: [Mode; 5] = [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

/// Who was allowed to be taken for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonated {
    /// For whom.
    pub user: Arc<User>,
    /// The verb that allowed it, where it was one of the constrained ones; an audit event shows it.
    pub constraint: Option<&'static str>,
}

/// Decides on impersonation, and remembers which way worked last for whom: it is tried first, and if none works, what is
/// missing for that one is told.
pub struct Impersonation {
    last: Cache<Mode>,
}

impl Default for Impersonation {
    fn default() -> Self {
        Impersonation { last: Cache::new(10_000) }
    }
}

impl Impersonation {
    /// Whom the request asks to be taken for: `None` if nobody, an error if the user who asks may not.
    pub async fn decide(
        &self,
        headers: &HeaderMap,
        asking: &Arc<User>,
        request: &RequestInfo,
        authorizer: &dyn Authorizer,
    ) -> Result<Option<Impersonated>, Status> {
        let Some(wanted) = wanted(headers)? else { return Ok(None) };
        let key = digest([asking.name.as_bytes()]);
        let last = self.last.get(&key);
        let others = MODES.into_iter().filter(|mode| Some(*mode) != last);
        let mut refusal = None;
        for mode in last.into_iter().chain(others) {
            if !mode.is_for(&wanted, asking) {
                continue;
            }
            match (Question { mode, asking, authorizer }).put(&wanted, request).await {
                Ok(user) => {
                    if Some(mode) != last {
                        self.last.insert(key, mode);
                    }
                    return Ok(Some(Impersonated { user: Arc::new(user), constraint: mode.constraint() }));
                }
                Err(status) => refusal = refusal.or(Some(status)),
            }
        }
        Err(refusal.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
    }
}

impl std::fmt::Debug for Impersonation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Impersonation")
    }
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Legacy => "",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "impersonate:associated-node",
            Mode::ArbitraryNode => "impersonate:arbitrary-node",
            Mode::ServiceAccount => "impersonate:serviceaccount",
            Mode::UserInfo => "impersonate:user-info",
            Mode::Legacy => "impersonate",
        }
    }

    fn constraint(self) -> Option<&'static str> {
        (self != Mode::Legacy).then(|| self.verb())
    }

    /// Whether this is a way to be taken for such a user at all.
    fn is_for(self, wanted: &User, asking: &User) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let node = node(&wanted.name);
        match self {
            Mode::AssociatedNode => {
                let own = asking.extra.iter().find(|(key, _)| key == NODE_NAME).and_then(|(_, names)| match names.as_slice() {
                    [one] => Some(one.as_str()),
                    _ => None,
                });
                only_name && node.is_some() && service_account(&asking.name).is_some() && own == node
            }
            Mode::ArbitraryNode => only_name && node.is_some(),
            Mode::ServiceAccount => only_name && service_account(&wanted.name).is_some(),
            Mode::UserInfo => node.is_none() && service_account(&wanted.name).is_none(),
            Mode::Legacy => true,
        }
    }
}

/// What must be allowed for one way of impersonation.
struct Question<'a> {
    mode: Mode,
    asking: &'a Arc<User>,
    authorizer: &'a dyn Authorizer,
}

impl Question<'_> {
    /// Asks everything; the user that the request goes on as.
    async fn put(&self, wanted: &User, request: &RequestInfo) -> Result<User, Status> {
        if self.mode != Mode::Legacy {
            let verb = format!("impersonate-on:{}:{}", self.mode.name(), request.verb());
            self.ask(RequestInfo { special_verb: verb, ..request.clone() }).await?;
        }
        let mut user = wanted.clone();
        let (account, node) = (service_account(&wanted.name), node(&wanted.name).filter(|_| self.mode != Mode::Legacy));
        let named = match (account, node) {
            (Some((namespace, name)), _) => {
                if user.groups.is_empty() {
                    user.groups = vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")];
                }
                RequestInfo { namespace: namespace.to_owned(), ..self.about("serviceaccounts", name) }
            }
            (None, Some(node)) => {
                user.groups = vec!["system:nodes".into()];
                self.about("nodes", if self.mode == Mode::AssociatedNode { "*" } else { node })
            }
            (None, None) => self.about("users", &wanted.name),
        };
        self.ask(named).await?;
        if !wanted.uid.is_empty() {
            self.ask(RequestInfo { group: AUTHENTICATION.to_owned(), ..self.about("uids", &wanted.uid) }).await?;
        }
        self.ask_groups(&wanted.groups).await?;
        self.ask_extra(&wanted.extra).await?;
        let has = |group: &str| user.groups.iter().any(|g| g == group);
        if user.name == ANONYMOUS {
            if !has(ALL_UNAUTHENTICATED) {
                user.groups.push(ALL_UNAUTHENTICATED.into());
            }
        } else if !has(ALL_AUTHENTICATED) && !has(ALL_UNAUTHENTICATED) {
            user.groups.push(ALL_AUTHENTICATED.into());
        }
        Ok(user)
    }

    async fn ask_groups(&self, groups: &[String]) -> Result<(), Status> {
        if self.mode != Mode::Legacy {
            if groups.iter().any(String::is_empty) {
                return Err(self.refuse(self.about("groups", ""), "impersonating the empty string group is not allowed"));
            }
            if groups.iter().any(|group| group == MASTERS) {
                return Err(self.refuse(self.about("groups", MASTERS), "impersonating the system:masters group is not allowed"));
            }
            if groups.len() >= MANY && self.ask(self.about("groups", "*")).await.is_ok() {
                return Ok(());
            }
        }
        for group in groups {
            self.ask(self.about("groups", group)).await?;
        }
        Ok(())
    }

    async fn ask_extra(&self, extra: &[(String, Vec<String>)]) -> Result<(), Status> {
        let about = |key: &str, value: &str| RequestInfo {
            group: AUTHENTICATION.to_owned(),
            subresource: key.to_owned(),
            ..self.about("userextras", value)
        };
        if self.mode != Mode::Legacy {
            if let Some(why) = extra.iter().find_map(|(key, values)| wrong_extra(key, values)) {
                return Err(self.refuse(about("", ""), &why));
            }
            let many = extra.len() >= MANY || extra.iter().map(|(_, values)| values.len()).sum::<usize>() >= MANY;
            if many && self.ask(about("*", "*")).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.ask(about(key, value)).await?;
            }
        }
        Ok(())
    }

    fn about(&self, resource: &str, name: &str) -> RequestInfo {
        RequestInfo {
            is_resource: true,
            special_verb: self.mode.verb().to_owned(),
            group: if self.mode == Mode::Legacy { String::new() } else { AUTHENTICATION.to_owned() },
            version: "v1".to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..RequestInfo::default()
        }
    }

    async fn ask(&self, info: RequestInfo) -> Result<(), Status> {
        let attributes = self.attributes(info);
        let decision = self.authorizer.decide(&attributes).await;
        if decision.is_allow() { Ok(()) } else { Err(forbidden(&attributes, decision.reason())) }
    }

    fn refuse(&self, info: RequestInfo, why: &str) -> Status {
        forbidden(&self.attributes(info), why)
    }

    fn attributes(&self, info: RequestInfo) -> Attributes {
        let user = match self.mode {
            // Which node it is has been seen to; a rule is about all of them.
            Mode::AssociatedNode => {
                let mut keys: Vec<String> = self.asking.extra.iter().map(|(key, _)| key.clone()).collect();
                keys.sort();
                let extra = vec![("authentication.kubernetes.io/associated-node-keys".to_owned(), keys)];
                Arc::new(User { extra, ..User::clone(self.asking) })
            }
            _ => self.asking.clone(),
        };
        Attributes { user, info: Arc::new(info) }
    }
}

/// What is wrong with an extra value that a constrained way is asked for.
fn wrong_extra(key: &str, values: &[String]) -> Option<String> {
    let (domain, path) = key.split_once('/').unwrap_or((key, ""));
    if key.is_empty() {
        return Some("impersonating the empty string key in extra is not allowed".into());
    }
    let wrong = |part: &str, why: &str| {
        Some(format!("impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {part:?}: {why}"))
    };
    if domain.is_empty() || path.is_empty() {
        return wrong(key, "must be a domain-prefixed path (such as \"acme.io/foo\")");
    }
    if let Some(why) = names::subdomain(domain).first() {
        return wrong(domain, why);
    }
    if key != key.to_lowercase() {
        return Some(format!("impersonating a non-lowercase key in extra is not allowed: {key:?}"));
    }
    let empty = values.iter().any(String::is_empty);
    empty.then(|| "impersonating the empty string value in extra is not allowed".to_owned())
}

/// What the headers ask for, as it is written there.
fn wanted(headers: &HeaderMap) -> Result<Option<User>, Status> {
    let first = |name: &str| headers.get(name).map(text).transpose().map(Option::unwrap_or_default);
    let mut user = User { name: first("impersonate-user")?, uid: first("impersonate-uid")?, ..User::default() };
    for value in headers.get_all("impersonate-group") {
        user.groups.push(text(value)?);
    }
    for (header, value) in headers {
        let Some(key) = header.as_str().strip_prefix(EXTRA_PREFIX) else { continue };
        let (key, value) = (decode(key), text(value)?);
        match user.extra.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => user.extra.push((key, vec![value])),
        }
    }
    if !user.name.is_empty() {
        return Ok(Some(user));
    }
    if user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty() {
        return Ok(None);
    }
    Err(Status::bad_request(format!("requested {} without impersonating a user name", as_go_prints(&user))))
}

/// The wish in the form that the message of a real server has it.
fn as_go_prints(user: &User) -> String {
    let list = |items: &[String]| match items {
        [] => "[]string(nil)".to_owned(),
        items => format!("[]string{{{}}}", items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>().join(", ")),
    };
    let mut extra: Vec<String> = user.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
    extra.sort();
    let extra =
        if extra.is_empty() { "map[string][]string(nil)".to_owned() } else { format!("map[string][]string{{{}}}", extra.join(", ")) };
    format!("&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{}, Extra:{extra}}}", user.name, user.uid, list(&user.groups))
}

fn text(value: &HeaderValue) -> Result<String, Status> {
    std::str::from_utf8(value.as_bytes()).map(str::to_owned).map_err(|_| Status::bad_request("an Impersonate header is not text"))
}

/// The namespace and name in `system:serviceaccount:<namespace>:<name>`.
pub fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (names::label(namespace).is_empty() && names::subdomain(name).is_empty()).then_some((namespace, name))
}

/// The node in `system:node:<name>`.
fn node(user: &str) -> Option<&str> {
    user.strip_prefix("system:node:").filter(|name| names::subdomain(name).is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::always::{AlwaysAllow, AlwaysDeny};
    use super::super::rbac::Rbac;
    use super::super::rbac::tests::{binding, role, user};
    use super::*;
    use crate::authn::fixtures::request;
    use crate::request::parse;

    fn bob() -> Arc<User> {
        Arc::new(User::new("bob", &[]))
    }

    fn listing() -> RequestInfo {
        parse("GET", "/api/v1/namespaces/a/pods", "")
    }

    async fn ask(headers: &[(&'static str, &str)], authorizer: &dyn Authorizer) -> Result<Option<Impersonated>, Status> {
        Impersonation::default().decide(&request("/", headers).headers, &bob(), &listing(), authorizer).await
    }

    async fn allowed(headers: &[(&'static str, &str)]) -> Arc<User> {
        ask(headers, &AlwaysAllow).await.unwrap().unwrap().user
    }

    fn bobs(rules: Value) -> Rbac {
        let rbac = Rbac::default();
        rbac.put("clusterroles", &role("", "imp", rules));
        rbac.put("clusterrolebindings", &binding("", "imp", "ClusterRole", "imp", user("bob")));
        rbac
    }

    #[tokio::test]
    async fn user_groups_uid_and_extra_are_taken_over() {
        let headers = [
            ("impersonate-user", "alice"),
            ("impersonate-group", "g1"),
            ("impersonate-uid", "7"),
            ("impersonate-extra-acme.com%2fscope", "a"),
            ("impersonate-extra-acme.com%2fscope", "b"),
        ];
        let alice = allowed(&headers).await;
        assert_eq!((&*alice.name, &*alice.uid), ("alice", "7"));
        assert_eq!(alice.groups, ["g1", "system:authenticated"]);
        assert_eq!(alice.extra, [("acme.com/scope".to_owned(), vec!["a".to_owned(), "b".to_owned()])]);
        assert_eq!(ask(&[("accept", "x")], &AlwaysDeny).await.unwrap(), None);
    }

    #[tokio::test]
    async fn accounts_and_nodes_bring_their_groups_and_anonymous_is_not_authenticated() {
        let account = allowed(&[("impersonate-user", "system:serviceaccount:ns:bot")]).await;
        assert_eq!(account.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
        let node = allowed(&[("impersonate-user", "system:node:n1")]).await;
        assert_eq!(node.groups, ["system:nodes", "system:authenticated"]);
        let nobody = allowed(&[("impersonate-user", "system:anonymous")]).await;
        assert_eq!(nobody.groups, ["system:unauthenticated"]);
    }

    #[tokio::test]
    async fn each_part_is_authorised_on_its_own() {
        let rbac = bobs(json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["alice"]}]));
        let old = Impersonation::default();
        let ask = async |headers: &[(&'static str, &str)]| old.decide(&request("/", headers).headers, &bob(), &listing(), &rbac).await;
        // Before anything worked, what the first way lacks is told; afterwards, what the way that worked lacks.
        let refused = ask(&[("impersonate-user", "eve")]).await.unwrap_err();
        let message = "pods is forbidden: User \"bob\" cannot impersonate-on:user-info:list resource \"pods\" in API group \"\" in the namespace \"a\"";
        assert_eq!((refused.code, &*refused.message), (403, message));
        let alice = ask(&[("impersonate-user", "alice")]).await.unwrap().unwrap();
        assert_eq!(alice.constraint, None);
        let refused = ask(&[("impersonate-user", "eve")]).await.unwrap_err();
        let message =
            "users \"eve\" is forbidden: User \"bob\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope";
        assert_eq!((refused.code, &*refused.message), (403, message));
        let refused = ask(&[("impersonate-user", "alice"), ("impersonate-group", "system:masters")]).await.unwrap_err();
        assert!(refused.message.starts_with("groups \"system:masters\" is forbidden"));
        let refused = ask(&[("impersonate-user", "alice"), ("impersonate-extra-scopes", "x")]).await.unwrap_err();
        assert!(refused.message.contains("resource \"userextras/scopes\" in API group \"authentication.k8s.io\""));
    }

    #[tokio::test]
    async fn a_constrained_right_allows_what_it_names_and_no_more() {
        let rbac = bobs(json!([
            {"verbs": ["impersonate:user-info"], "apiGroups": [AUTHENTICATION], "resources": ["users"], "resourceNames": ["alice"]},
            {"verbs": ["impersonate:serviceaccount"], "apiGroups": [AUTHENTICATION], "resources": ["serviceaccounts"]},
            {"verbs": ["impersonate-on:user-info:list", "impersonate-on:serviceaccount:list"], "apiGroups": [""], "resources": ["pods"]},
        ]));
        let alice = ask(&[("impersonate-user", "alice")], &rbac).await.unwrap().unwrap();
        assert_eq!(alice.constraint, Some("impersonate:user-info"));
        let account = ask(&[("impersonate-user", "system:serviceaccount:ns:bot")], &rbac).await.unwrap().unwrap();
        assert_eq!(account.constraint, Some("impersonate:serviceaccount"));
        let refused = ask(&[("impersonate-user", "eve")], &rbac).await.unwrap_err();
        let message = "users.authentication.k8s.io \"eve\" is forbidden: User \"bob\" cannot impersonate:user-info resource \"users\" in API group \"authentication.k8s.io\" at the cluster scope";
        assert_eq!(refused.message, message);
        let masters = [("impersonate-user", "alice"), ("impersonate-group", "system:masters")];
        assert!(ask(&masters, &rbac).await.unwrap_err().message.ends_with("impersonating the system:masters group is not allowed"));
        // An account with groups of its own choice is not one that this way knows.
        let with_group = [("impersonate-user", "system:serviceaccount:ns:bot"), ("impersonate-group", "g")];
        assert!(ask(&with_group, &rbac).await.unwrap_err().message.contains("cannot impersonate resource \"serviceaccounts\""));
        let delete = parse("DELETE", "/api/v1/namespaces/a/pods/x", "");
        let headers = request("/", &[("impersonate-user", "alice")]).headers;
        assert_eq!(Impersonation::default().decide(&headers, &bob(), &delete, &rbac).await.unwrap_err().code, 403);
    }

    #[tokio::test]
    async fn a_service_account_is_taken_for_its_own_node_only() {
        let rbac = Rbac::default();
        let rules = json!([
            {"verbs": ["impersonate:associated-node"], "apiGroups": [AUTHENTICATION], "resources": ["nodes"]},
            {"verbs": ["impersonate-on:associated-node:list"], "apiGroups": [""], "resources": ["pods"]},
        ]);
        rbac.put("clusterroles", &role("", "imp", rules));
        let name = "system:serviceaccount:ns:agent";
        rbac.put("clusterrolebindings", &binding("", "imp", "ClusterRole", "imp", user(name)));
        let agent = Arc::new(User { extra: vec![(NODE_NAME.into(), vec!["n1".into()])], ..User::new(name, &[]) });
        let ask = async |node: &str| {
            let headers = request("/", &[("impersonate-user", node)]).headers;
            Impersonation::default().decide(&headers, &agent, &listing(), &rbac).await
        };
        let own = ask("system:node:n1").await.unwrap().unwrap();
        assert_eq!((&*own.user.name, own.constraint), ("system:node:n1", Some("impersonate:associated-node")));
        assert_eq!(ask("system:node:n2").await.unwrap_err().code, 403);
    }

    #[tokio::test]
    async fn groups_without_a_user_are_an_error() {
        let refused = ask(&[("impersonate-group", "g"), ("impersonate-extra-k", "v")], &AlwaysAllow).await.unwrap_err();
        let message = "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"g\"}, Extra:map[string][]string{\"k\":[]string{\"v\"}}} without impersonating a user name";
        assert_eq!((refused.code, &*refused.message), (400, message));
    }
}
