//! The authorisers that need no thought: AlwaysAllow and AlwaysDeny, for tests, and the group that authorisation does
//! not apply to.

use futures::future::BoxFuture;
use serde_json::json;

use crate::authn::MASTERS;
use crate::request::User;

use super::{Attributes, Authorizer, Decision, ResolvedRules};

/// Everybody may do everything.
#[derive(Clone, Copy, Debug)]
pub struct AlwaysAllow;

/// Nobody may do anything, unless an earlier authoriser says so.
#[derive(Clone, Copy, Debug)]
pub struct AlwaysDeny;

/// Members of `system:masters` may do everything, whatever is configured; it stands first in every chain.
#[derive(Clone, Copy, Debug)]
pub struct Masters;

impl Authorizer for AlwaysAllow {
    fn name(&self) -> &'static str {
        "AlwaysAllow"
    }

    fn decide<'a>(&'a self, _: &'a Attributes) -> BoxFuture<'a, Decision> {
        Box::pin(std::future::ready(Decision::Allow("".into())))
    }

    fn rules_for(&self, _: &User, _: &str) -> ResolvedRules {
        let star = ["*"];
        ResolvedRules {
            resource: vec![json!({"verbs": star, "apiGroups": star, "resources": star})],
            non_resource: vec![json!({"verbs": star, "nonResourceURLs": star})],
            ..ResolvedRules::default()
        }
    }
}

impl Authorizer for AlwaysDeny {
    fn name(&self) -> &'static str {
        "AlwaysDeny"
    }

    fn decide<'a>(&'a self, _: &'a Attributes) -> BoxFuture<'a, Decision> {
        // A real server's AlwaysDeny has no opinion either; it is the end of the chain that refuses.
        Box::pin(std::future::ready(Decision::NoOpinion("Everything is forbidden.".into())))
    }
}

impl Authorizer for Masters {
    fn name(&self) -> &'static str {
        "system:masters"
    }

    fn decide<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Decision> {
        let is_master = attributes.user.in_group(MASTERS);
        let decision = if is_master { Decision::Allow("".into()) } else { Decision::NoOpinion("".into()) };
        Box::pin(std::future::ready(decision))
    }
}
