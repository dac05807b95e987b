//! Being taken for somebody else: `Impersonate-User`, `-Group`, `-Uid` and `-Extra-*`. Every single thing that is asked
//! for (the user, each group, the uid, each extra value) is authorised on its own, with the verb `impersonate`, for the
//! user who really asks. Reads headers only; putting the result into the request is the gateway's work.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};

use crate::authn::{ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ANONYMOUS};
use crate::request::{RequestInfo, User, decode};
use crate::status::Status;

use super::{Attributes, Authorizer, forbidden};

const EXTRA_PREFIX: &str = "impersonate-extra-";

/// Whether a header is one of impersonation, and therefore to be dropped once it has been honoured.
pub fn is_header(name: &str) -> bool {
    name.get(..12).is_some_and(|head| head.eq_ignore_ascii_case("impersonate-"))
}

/// Whom the request asks to be taken for: `None` if nobody, an error if the user who asks may not.
pub async fn impersonate(headers: &HeaderMap, user: &Arc<User>, authorizer: &dyn Authorizer) -> Result<Option<Arc<User>>, Status> {
    if !headers.keys().any(|name| is_header(name.as_str())) {
        return Ok(None);
    }
    let Some(wanted) = wanted(headers)? else { return Ok(None) };
    for info in wanted.questions {
        let attributes = Attributes { user: user.clone(), info: Arc::new(info) };
        let decision = authorizer.decide(&attributes).await;
        if !decision.is_allow() {
            return Err(forbidden(&attributes, decision.reason()));
        }
    }
    Ok(Some(Arc::new(wanted.user)))
}

struct Wanted {
    user: User,
    questions: Vec<RequestInfo>,
}

fn wanted(headers: &HeaderMap) -> Result<Option<Wanted>, Status> {
    let mut user = User::default();
    let mut questions = Vec::new();
    let name = headers.get("impersonate-user").map(text).transpose()?.unwrap_or_default();
    let account = service_account(&name);
    if let Some((namespace, account)) = account {
        questions.push(RequestInfo { namespace: namespace.to_owned(), ..question("", "serviceaccounts", account) });
    } else if !name.is_empty() {
        questions.push(question("", "users", &name));
    }
    for value in headers.get_all("impersonate-group") {
        let group = text(value)?;
        questions.push(question("", "groups", &group));
        user.groups.push(group);
    }
    for (header, value) in headers {
        let Some(key) = header.as_str().strip_prefix(EXTRA_PREFIX) else { continue };
        let (key, value) = (decode(key), text(value)?);
        questions.push(RequestInfo { subresource: key.clone(), ..question("authentication.k8s.io", "userextras", &value) });
        match user.extra.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => user.extra.push((key, vec![value])),
        }
    }
    if let Some(uid) = headers.get("impersonate-uid") {
        user.uid = text(uid)?;
        if !user.uid.is_empty() {
            questions.push(question("authentication.k8s.io", "uids", &user.uid));
        }
    }
    if name.is_empty() {
        return match questions.is_empty() {
            true => Ok(None),
            false => Err(Status::internal("requested impersonation of groups, a uid or extra values without impersonating a user")),
        };
    }
    if let Some((namespace, _)) = account
        && user.groups.is_empty()
    {
        user.groups = vec!["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")];
    }
    let has = |group: &str| user.groups.iter().any(|g| g == group);
    if name == ANONYMOUS {
        if !has(ALL_UNAUTHENTICATED) {
            user.groups.push(ALL_UNAUTHENTICATED.into());
        }
    } else if !has(ALL_AUTHENTICATED) && !has(ALL_UNAUTHENTICATED) {
        user.groups.push(ALL_AUTHENTICATED.into());
    }
    user.name = name;
    Ok(Some(Wanted { user, questions }))
}

fn text(value: &HeaderValue) -> Result<String, Status> {
    std::str::from_utf8(value.as_bytes()).map(str::to_owned).map_err(|_| Status::bad_request("an Impersonate header is not text"))
}

/// The namespace and name in `system:serviceaccount:<namespace>:<name>`.
pub fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

pub(super) fn question(group: &str, resource: &str, name: &str) -> RequestInfo {
    RequestInfo {
        is_resource: true,
        special_verb: "impersonate".to_owned(),
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        name: name.to_owned(),
        ..RequestInfo::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::always::{AlwaysAllow, AlwaysDeny};
    use super::super::rbac::Rbac;
    use super::super::rbac::tests::{binding, role, user};
    use super::*;
    use crate::authn::fixtures::request;

    fn bob() -> Arc<User> {
        Arc::new(User::new("bob", &[]))
    }

    async fn ask(headers: &[(&'static str, &str)], authorizer: &dyn Authorizer) -> Result<Option<Arc<User>>, Status> {
        impersonate(&request("/", headers).headers, &bob(), authorizer).await
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
        let alice = ask(&headers, &AlwaysAllow).await.unwrap().unwrap();
        assert_eq!((&*alice.name, &*alice.uid), ("alice", "7"));
        assert_eq!(alice.groups, ["g1", "system:authenticated"]);
        assert_eq!(alice.extra, [("acme.com/scope".to_owned(), vec!["a".to_owned(), "b".to_owned()])]);
        assert_eq!(ask(&[("accept", "x")], &AlwaysDeny).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_service_account_brings_its_groups_and_anonymous_is_not_authenticated() {
        let account = ask(&[("impersonate-user", "system:serviceaccount:ns:bot")], &AlwaysAllow).await.unwrap().unwrap();
        assert_eq!(account.groups, ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
        let nobody = ask(&[("impersonate-user", "system:anonymous")], &AlwaysAllow).await.unwrap().unwrap();
        assert_eq!(nobody.groups, ["system:unauthenticated"]);
    }

    #[tokio::test]
    async fn each_part_is_authorised_on_its_own() {
        let rbac = Rbac::default();
        let rules = json!([{"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["alice"]}]);
        rbac.put("clusterroles", &role("", "imp", rules));
        rbac.put("clusterrolebindings", &binding("", "imp", "ClusterRole", "imp", user("bob")));
        assert!(ask(&[("impersonate-user", "alice")], &rbac).await.unwrap().is_some());
        let refused = ask(&[("impersonate-user", "eve")], &rbac).await.unwrap_err();
        let message =
            "users \"eve\" is forbidden: User \"bob\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope";
        assert_eq!((refused.code, &*refused.message), (403, message));
        let refused = ask(&[("impersonate-user", "alice"), ("impersonate-group", "system:masters")], &rbac).await.unwrap_err();
        assert!(refused.message.starts_with("groups \"system:masters\" is forbidden"));
        let refused = ask(&[("impersonate-user", "alice"), ("impersonate-extra-scopes", "x")], &rbac).await.unwrap_err();
        assert!(refused.message.contains("resource \"userextras/scopes\" in API group \"authentication.k8s.io\""));
    }

    #[tokio::test]
    async fn groups_without_a_user_are_an_error() {
        assert_eq!(ask(&[("impersonate-group", "g")], &AlwaysAllow).await.unwrap_err().code, 500);
    }
}
