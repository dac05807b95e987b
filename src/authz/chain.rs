//! The authorisers in order, each under a name: the mode's, or the one that a configuration gives it. The first that allows or
//! denies decides; who that was and by what can be asked for, so that a trace can tell why. Where nobody does, the reason says
//! by name what each of them had to say. A chain is itself an authoriser, and can be replaced while in use.

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use serde_json::Map;

use crate::request::User;

use super::{Attributes, Authorizer, Decision, Explained, ResolvedRules};

/// An authoriser and the name that it goes by in reasons.
#[derive(Clone)]
pub struct Named {
    /// The name.
    pub name: String,
    /// The authoriser.
    pub authorizer: Arc<dyn Authorizer>,
}

impl Named {
    /// An authoriser under the name of its mode.
    pub fn by_mode(authorizer: Arc<dyn Authorizer>) -> Self {
        Named { name: authorizer.name().to_lowercase(), authorizer }
    }
}

/// Authorisers in order.
pub struct Chain {
    authorizers: ArcSwap<Vec<Named>>,
}

impl Chain {
    /// A chain in this order, each under the name of its mode; `system:masters` is not added here.
    pub fn new(authorizers: Vec<Arc<dyn Authorizer>>) -> Self {
        Chain { authorizers: ArcSwap::from_pointee(authorizers.into_iter().map(Named::by_mode).collect()) }
    }

    /// Puts another chain in force.
    pub fn replace(&self, authorizers: Vec<Named>) {
        self.authorizers.store(Arc::new(authorizers));
    }
}

/// Adds to the reasons what one of the chain had to say.
fn note(reasons: &mut String, name: &str, reason: &str) {
    if !reason.is_empty() {
        let end = if reasons.is_empty() { "" } else { "\n" };
        reasons.extend([end, name, ": ", reason]);
    }
}

impl Authorizer for Chain {
    fn name(&self) -> &'static str {
        "chain"
    }

    fn decide<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            let authorizers = self.authorizers.load_full();
            let mut reasons = String::new();
            for Named { name, authorizer } in authorizers.iter() {
                match authorizer.decide(attributes).await {
                    Decision::NoOpinion(reason) => note(&mut reasons, name, &reason),
                    decided => return decided,
                }
            }
            Decision::NoOpinion(reasons.into())
        })
    }

    /// Who decided, and by what; where nobody did, what each of them had to say.
    fn explain<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Explained> {
        Box::pin(async move {
            let authorizers = self.authorizers.load_full();
            let mut reasons = String::new();
            let mut opinions = Map::new();
            for Named { name, authorizer } in authorizers.iter() {
                let explained = authorizer.explain(attributes).await;
                let Decision::NoOpinion(reason) = &explained.decision else { return explained };
                note(&mut reasons, name, reason);
                if !reason.is_empty() {
                    opinions.insert(explained.by.to_owned(), reason.to_string().into());
                }
            }
            let mut detail = Map::new();
            if !opinions.is_empty() {
                detail.insert("opinions".to_owned(), opinions.into());
            }
            Explained { decision: Decision::NoOpinion(reasons.into()), by: self.name(), detail }
        })
    }

    fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        let mut all = ResolvedRules::default();
        for named in self.authorizers.load().iter() {
            let rules = named.authorizer.rules_for(user, namespace);
            all.resource.extend(rules.resource);
            all.non_resource.extend(rules.non_resource);
            all.incomplete |= rules.incomplete;
            all.errors.extend(rules.errors);
        }
        all
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.authorizers.load().iter().map(|named| &named.name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::always::{AlwaysAllow, AlwaysDeny, Masters};
    use super::*;
    use crate::request::parse;

    struct Never;

    impl Authorizer for Never {
        fn name(&self) -> &'static str {
            "never"
        }

        fn decide<'a>(&'a self, _: &'a Attributes) -> BoxFuture<'a, Decision> {
            Box::pin(std::future::ready(Decision::Deny("never".into())))
        }
    }

    fn ask(groups: &[&str]) -> Attributes {
        Attributes { user: Arc::new(User::new("u", groups)), info: Arc::new(parse("GET", "/api/v1/pods", "")) }
    }

    #[tokio::test]
    async fn the_first_opinion_decides_and_who_had_it_is_told() {
        let chain = Chain::new(vec![Arc::new(Masters), Arc::new(Never), Arc::new(AlwaysAllow)]);
        assert!(chain.decide(&ask(&["system:masters"])).await.is_allow());
        let explained = chain.explain(&ask(&[])).await;
        assert_eq!((explained.decision, explained.by), (Decision::Deny("never".into()), "never"));
    }

    #[tokio::test]
    async fn nobody_with_an_opinion_is_a_no_with_all_reasons() {
        let chain = Chain::new(vec![Arc::new(AlwaysDeny), Arc::new(Masters)]);
        assert_eq!(chain.decide(&ask(&[])).await, Decision::NoOpinion("alwaysdeny: Everything is forbidden.".into()));
        let explained = chain.explain(&ask(&[])).await;
        assert_eq!(explained.by, "chain");
        assert_eq!(explained.detail["opinions"]["AlwaysDeny"], "Everything is forbidden.");
        chain.replace(vec![Named::by_mode(Arc::new(AlwaysAllow))]);
        assert!(chain.decide(&ask(&[])).await.is_allow());
    }
}
