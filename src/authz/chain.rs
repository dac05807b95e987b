//! The authorisers in order, each under a name: the mode's, or the one that a configuration gives it. The first that allows or
//! denies decides; who that was and by what can be asked for, so that a trace can tell why. Where nobody does, the reason says
//! by name what each of them had to say, unless one of them failed: it might have allowed, so that is an error. A chain is itself an authoriser, and can be replaced while in use.

use std::borrow::Cow;
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

/// What those had to say who did not decide.
#[derive(Default)]
struct Undecided {
    reasons: String,
    errors: Vec<Cow<'static, str>>,
}

impl Undecided {
    /// Takes note of a decision that leaves it to the next; gives back one that does not.
    fn note(&mut self, name: &str, decision: Decision) -> Option<Decision> {
        match decision {
            Decision::NoOpinion(reason) if reason.is_empty() => None,
            Decision::NoOpinion(reason) => {
                let end = if self.reasons.is_empty() { "" } else { "\n" };
                self.reasons.extend([end, name, ": ", &*reason]);
                None
            }
            Decision::Failed { error, denies: false } => {
                self.errors.push(error);
                None
            }
            decided => Some(decided),
        }
    }

    fn into_decision(mut self) -> Decision {
        match self.errors.len() {
            0 => Decision::NoOpinion(self.reasons.into()),
            1 => Decision::Failed { error: self.errors.remove(0), denies: false },
            _ => Decision::Failed { error: format!("[{}]", self.errors.join(", ")).into(), denies: false },
        }
    }
}

impl Authorizer for Chain {
    fn name(&self) -> &'static str {
        "chain"
    }

    fn decide<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            let authorizers = self.authorizers.load_full();
            let mut undecided = Undecided::default();
            for Named { name, authorizer } in authorizers.iter() {
                if let Some(decided) = undecided.note(name, authorizer.decide(attributes).await) {
                    return decided;
                }
            }
            undecided.into_decision()
        })
    }

    /// Who decided, and by what; where nobody did, what each of them had to say.
    fn explain<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Explained> {
        Box::pin(async move {
            let authorizers = self.authorizers.load_full();
            let mut undecided = Undecided::default();
            let mut passed = Map::new();
            for Named { name, authorizer } in authorizers.iter() {
                let Explained { decision, by, mut detail } = authorizer.explain(attributes).await;
                let said = decision.error().unwrap_or(decision.reason()).to_owned();
                if let Some(decision) = undecided.note(name, decision) {
                    if !passed.is_empty() {
                        detail.insert("passed".to_owned(), passed.into());
                    }
                    return Explained { decision, by, detail };
                }
                passed.insert(by.to_owned(), if said.is_empty() { "no opinion".into() } else { said.into() });
            }
            let detail = Map::from_iter([("opinions".to_owned(), passed.into())]);
            Explained { decision: undecided.into_decision(), by: self.name(), detail }
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
        assert_eq!(explained.detail["passed"], serde_json::json!({"system:masters": "no opinion"}), "and who had none");
    }

    struct Failing {
        denies: bool,
    }

    impl Authorizer for Failing {
        fn name(&self) -> &'static str {
            "Failing"
        }

        fn decide<'a>(&'a self, _: &'a Attributes) -> BoxFuture<'a, Decision> {
            Box::pin(std::future::ready(Decision::Failed { error: "out of order".into(), denies: self.denies }))
        }
    }

    #[tokio::test]
    async fn a_failure_is_an_error_unless_somebody_else_decides() {
        let open = || -> Arc<dyn Authorizer> { Arc::new(Failing { denies: false }) };
        let decide = async |authorizers| Chain::new(authorizers).decide(&ask(&[])).await;
        assert!(decide(vec![open(), Arc::new(AlwaysAllow)]).await.is_allow());
        assert_eq!(decide(vec![open(), Arc::new(Never)]).await, Decision::Deny("never".into()));
        assert_eq!(decide(vec![open(), Arc::new(AlwaysDeny)]).await.error(), Some("out of order"));
        assert_eq!(decide(vec![open(), open()]).await.error(), Some("[out of order, out of order]"));
        let closed = decide(vec![Arc::new(Failing { denies: true }), Arc::new(AlwaysAllow)]).await;
        assert!(closed.denies() && closed.error().is_some());
    }

    #[tokio::test]
    async fn nobody_with_an_opinion_is_a_no_with_all_reasons() {
        let chain = Chain::new(vec![Arc::new(AlwaysDeny), Arc::new(Masters)]);
        assert_eq!(chain.decide(&ask(&[])).await, Decision::NoOpinion("alwaysdeny: Everything is forbidden.".into()));
        let explained = chain.explain(&ask(&[])).await;
        assert_eq!(explained.by, "chain");
        assert_eq!(
            explained.detail["opinions"],
            serde_json::json!({"AlwaysDeny": "Everything is forbidden.", "system:masters": "no opinion"})
        );
        chain.replace(vec![Named::by_mode(Arc::new(AlwaysAllow))]);
        assert!(chain.decide(&ask(&[])).await.is_allow());
    }
}
