//! The authorisers in order. The first that allows or denies decides; what each of them said can be asked for, so that a
//! trace can tell why. A chain is itself an authoriser, and can be replaced while in use (structured configuration).

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;

use crate::request::User;

use super::{Attributes, Authorizer, Decision, ResolvedRules};

/// What one authoriser said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opinion {
    /// Which one.
    pub by: &'static str,
    /// What it said.
    pub decision: Decision,
}

/// Authorisers in order.
pub struct Chain {
    authorizers: ArcSwap<Vec<Arc<dyn Authorizer>>>,
}

impl Chain {
    /// A chain in this order; `system:masters` is not added here.
    pub fn new(authorizers: Vec<Arc<dyn Authorizer>>) -> Self {
        Chain { authorizers: ArcSwap::from_pointee(authorizers) }
    }

    /// Puts another chain in force.
    pub fn replace(&self, authorizers: Vec<Arc<dyn Authorizer>>) {
        self.authorizers.store(Arc::new(authorizers));
    }

    /// Decides, and tells every opinion on the way there. The decision of a chain in which nobody had an opinion is
    /// NoOpinion, with all their reasons; it is to be taken for a no.
    pub async fn opinions(&self, attributes: &Attributes) -> (Decision, Vec<Opinion>) {
        let authorizers = self.authorizers.load_full();
        let mut opinions = Vec::with_capacity(authorizers.len());
        for authorizer in authorizers.iter() {
            let decision = authorizer.decide(attributes).await;
            let decided = !matches!(decision, Decision::NoOpinion(_));
            opinions.push(Opinion { by: authorizer.name(), decision });
            if decided {
                break;
            }
        }
        let decision = match opinions.last().map(|last| &last.decision) {
            Some(decided @ (Decision::Allow(_) | Decision::Deny(_))) => decided.clone(),
            _ => Decision::NoOpinion(reasons(&opinions).into()),
        };
        (decision, opinions)
    }
}

fn reasons(opinions: &[Opinion]) -> String {
    let said: Vec<&str> = opinions.iter().map(|o| o.decision.reason()).filter(|reason| !reason.is_empty()).collect();
    said.join("\n")
}

impl Authorizer for Chain {
    fn name(&self) -> &'static str {
        "chain"
    }

    fn decide<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            let authorizers = self.authorizers.load_full();
            let mut reasons = String::new();
            for authorizer in authorizers.iter() {
                match authorizer.decide(attributes).await {
                    Decision::NoOpinion(reason) if reason.is_empty() => {}
                    Decision::NoOpinion(reason) => {
                        if !reasons.is_empty() {
                            reasons.push('\n');
                        }
                        reasons.push_str(&reason);
                    }
                    decided => return decided,
                }
            }
            Decision::NoOpinion(reasons.into())
        })
    }

    fn rules_for(&self, user: &User, namespace: &str) -> ResolvedRules {
        let mut all = ResolvedRules::default();
        for authorizer in self.authorizers.load().iter() {
            let rules = authorizer.rules_for(user, namespace);
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
        f.debug_list().entries(self.authorizers.load().iter().map(|a| a.name())).finish()
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
    async fn the_first_opinion_decides_and_every_opinion_is_told() {
        let chain = Chain::new(vec![Arc::new(Masters), Arc::new(Never), Arc::new(AlwaysAllow)]);
        assert!(chain.decide(&ask(&["system:masters"])).await.is_allow());
        let (decision, opinions) = chain.opinions(&ask(&[])).await;
        assert_eq!(decision, Decision::Deny("never".into()));
        assert_eq!(opinions.iter().map(|o| o.by).collect::<Vec<_>>(), ["system:masters", "never"]);
    }

    #[tokio::test]
    async fn nobody_with_an_opinion_is_a_no_with_all_reasons() {
        let chain = Chain::new(vec![Arc::new(AlwaysDeny), Arc::new(Masters)]);
        assert_eq!(chain.decide(&ask(&[])).await, Decision::NoOpinion("Everything is forbidden.".into()));
        chain.replace(vec![Arc::new(AlwaysAllow)]);
        assert!(chain.decide(&ask(&[])).await.is_allow());
    }
}
