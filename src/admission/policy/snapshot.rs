//! The policies in force: every policy that at least one binding binds, with its bindings, in the order of their names. Replaced as a
//! whole when a policy or a binding changes, before that write is acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::Value;

use super::definition::{Binding, Policy};
use crate::admission::Write;
use crate::admission::index::{Candidates, Index};
use crate::admission::matching::{Need, Surroundings};
use crate::admission::passed::{NO_RULE, Passed};
use crate::object::Object;
use crate::watch::Observer;

/// One policy with its bindings.
#[derive(Debug)]
pub struct Bound {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Its bindings, by name.
    pub bindings: Vec<Arc<Binding>>,
}

/// What is in force at one moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// By the name of the policy.
    pub bound: Vec<Bound>,
    /// Which could be about a resource.
    pub index: Index,
}

impl Bound {
    /// The labels of which a request must have one for the policy to be evaluated; none if it may be without.
    fn needs(&self) -> Vec<Need<'_>> {
        match self.policy.criteria.need() {
            Some(need) => vec![need],
            // A kind of parameters that is not there is an error of the policy, under whatever binding.
            None if self.policy.param_kind.is_some() => Vec::new(),
            None => self.bindings.iter().map(|binding| binding.criteria.as_ref()?.need()).collect::<Option<_>>().unwrap_or_default(),
        }
    }
}

impl Snapshot {
    /// Those that could be about a write; of all others `passed` is told how many there are.
    pub fn candidates<'s>(
        &'s self,
        write: &Write,
        around: &Surroundings<'_>,
        passed: &mut Passed,
    ) -> impl Iterator<Item = &'s Bound> + use<'s> {
        let Candidates { positions, unselected } = self.index.candidates(write, around);
        passed.many(unselected, "the selectors ask for other labels");
        passed.many(self.bound.len() - positions.len() - unselected, NO_RULE);
        positions.into_iter().map(|position| &self.bound[position as usize])
    }
}

/// Policies of one sort and their bindings.
#[derive(Debug, Default)]
pub struct Policies {
    known: Mutex<Known>,
    snapshot: ArcSwap<Snapshot>,
}

#[derive(Debug, Default)]
struct Known {
    policies: BTreeMap<String, Arc<Policy>>,
    bindings: BTreeMap<String, Arc<Binding>>,
}

impl Policies {
    /// What is in force now.
    pub fn load(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Puts a policy in force, or takes it out.
    pub fn replace_policy(&self, key: &str, policy: Option<&Value>) {
        let compiled = policy.map(|policy| Arc::new(Policy::compile(policy)));
        let mut known = self.known.lock();
        match compiled {
            Some(policy) => known.policies.insert(key.to_owned(), policy),
            None => known.policies.remove(key),
        };
        self.publish(&known);
    }

    /// Puts a binding in force, or takes it out.
    pub fn replace_binding(&self, key: &str, binding: Option<&Value>) {
        let compiled = binding.map(|binding| Arc::new(Binding::compile(binding)));
        let mut known = self.known.lock();
        match compiled {
            Some(binding) => known.bindings.insert(key.to_owned(), binding),
            None => known.bindings.remove(key),
        };
        self.publish(&known);
    }

    /// A policy by its name, bound or not.
    pub fn policy(&self, name: &str) -> Option<Arc<Policy>> {
        self.known.lock().policies.values().find(|policy| *policy.name == *name).cloned()
    }

    fn publish(&self, known: &Known) {
        let mut by_policy: BTreeMap<&str, Vec<Arc<Binding>>> = BTreeMap::new();
        for binding in known.bindings.values() {
            by_policy.entry(&binding.policy).or_default().push(binding.clone());
        }
        let bound = known
            .policies
            .values()
            .filter_map(|policy| Some(Bound { policy: policy.clone(), bindings: by_policy.get(&*policy.name)?.clone() }));
        let bound: Vec<Bound> = bound.collect();
        let index = Index::with_needs(bound.iter().map(|bound| (&bound.policy.criteria, bound.needs())));
        self.snapshot.store(Arc::new(Snapshot { bound, index }));
    }
}

/// Follows the policies of one sort.
pub struct FollowPolicies(pub Arc<Policies>);

impl Observer for FollowPolicies {
    fn changed(&self, old: Option<&Arc<Object>>, new: Option<&Arc<Object>>) {
        // A change of the status is none of the policy.
        if let (Some(old), Some(new)) = (old, new)
            && old.value()["spec"] == new.value()["spec"]
        {
            return;
        }
        if let Some(object) = new.or(old) {
            self.0.replace_policy(object.name(), new.map(|object| &**object.value()));
        }
    }
}

/// Follows the bindings of one sort.
pub struct FollowBindings(pub Arc<Policies>);

impl Observer for FollowBindings {
    fn changed(&self, old: Option<&Arc<Object>>, new: Option<&Arc<Object>>) {
        if let Some(object) = new.or(old) {
            self.0.replace_binding(object.name(), new.map(|object| &**object.value()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_policy_is_in_force_when_both_halves_are_there() {
        let policies = Policies::default();
        let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p"}});
        policies.replace_binding("b", Some(&binding));
        assert!(policies.load().bound.is_empty());
        policies.replace_policy("p", Some(&json!({"metadata": {"name": "p"}, "spec": {}})));
        assert_eq!(policies.load().bound.len(), 1);
        policies.replace_binding("b", None);
        assert!(policies.load().bound.is_empty());
    }
}
