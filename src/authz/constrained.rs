//! Constrained impersonation: the verbs that allow being taken for somebody else in one way and for one purpose only. Says which of
//! them, if any, covers an impersonation, which is what an audit event shows; whether it is allowed at all is decided in
//! [`super::impersonation`].

use std::sync::Arc;

use super::impersonation::{self, service_account};
use super::{Attributes, Authorizer};
use crate::request::{RequestInfo, User};

const GROUP: &str = "authentication.k8s.io";

/// The constraint by which `asking` may be taken for `wanted` in a request, or `None` if only the old verb `impersonate` allows it.
pub async fn constraint(asking: &Arc<User>, wanted: &User, request: &RequestInfo, authorizer: &dyn Authorizer) -> Option<&'static str> {
    let (verb, mode) = mode(&wanted.name);
    let mut questions = vec![match (service_account(&wanted.name), wanted.name.strip_prefix("system:node:")) {
        (Some((namespace, name)), _) => RequestInfo { namespace: namespace.to_owned(), ..question(verb, "serviceaccounts", name) },
        (_, Some(node)) => question(verb, "nodes", node),
        _ => question(verb, "users", &wanted.name),
    }];
    if mode == "user-info" {
        // `system:authenticated` comes of itself.
        let asked = wanted.groups.iter().filter(|group| *group != crate::authn::ALL_AUTHENTICATED);
        questions.extend(asked.map(|group| question(verb, "groups", group)));
        questions.extend(Some(&wanted.uid).filter(|uid| !uid.is_empty()).map(|uid| question(verb, "uids", uid)));
    }
    questions.push(RequestInfo { special_verb: format!("impersonate-on:{mode}:{}", request.verb()), ..request.clone() });
    for info in questions {
        let attributes = Attributes { user: asking.clone(), info: Arc::new(info) };
        if !authorizer.decide(&attributes).await.is_allow() {
            return None;
        }
    }
    Some(verb)
}

fn mode(name: &str) -> (&'static str, &'static str) {
    match name {
        name if service_account(name).is_some() => ("impersonate:serviceaccount", "serviceaccount"),
        name if name.starts_with("system:node:") => ("impersonate:arbitrary-node", "arbitrary-node"),
        _ => ("impersonate:user-info", "user-info"),
    }
}

fn question(verb: &str, resource: &str, name: &str) -> RequestInfo {
    RequestInfo { special_verb: verb.to_owned(), ..impersonation::question(GROUP, resource, name) }
}

#[cfg(test)]
mod tests {
    use super::super::always::{AlwaysAllow, AlwaysDeny};
    use super::*;

    #[tokio::test]
    async fn the_constraint_is_that_of_the_sort_of_user_and_only_where_it_is_granted() {
        let (asking, request) = (Arc::new(User::new("admin", &[])), crate::request::parse("GET", "/api/v1/pods", ""));
        let of = async |name: &str| constraint(&asking, &User::new(name, &["g"]), &request, &AlwaysAllow).await;
        assert_eq!(of("alice").await, Some("impersonate:user-info"));
        assert_eq!(of("system:node:n1").await, Some("impersonate:arbitrary-node"));
        assert_eq!(of("system:serviceaccount:a:b").await, Some("impersonate:serviceaccount"));
        assert_eq!(constraint(&asking, &User::new("alice", &[]), &request, &AlwaysDeny).await, None);
    }
}
