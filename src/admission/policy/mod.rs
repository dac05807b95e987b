//! Policies in CEL: `ValidatingAdmissionPolicy`, `MutatingAdmissionPolicy` and their bindings. Each is compiled when it is written
//! ([`definition`]), kept in a snapshot that requests read lock-free ([`snapshot`]), and in force when that write is acknowledged.
//! [`validating`] and [`mutating`] are the two admission steps; [`params`] finds what a binding parameterises its policy with;
//! [`check`] is what there is to say of a policy that somebody writes, [`type_check`] what its expressions may get wrong.

pub mod check;
pub mod definition;
pub mod mutating;
pub mod params;
pub mod snapshot;
pub mod type_check;
pub mod validating;

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::expression::{Input, Verdict};
use super::matching::{Match, Surroundings};
use super::passed::{NO_RULE, Passed};
use super::review::Versioned;
use super::{Cluster, Write};
use crate::authz;
use crate::registry::Resource;
use crate::status::Status;
use definition::{Binding, Policy};

/// What both steps need to evaluate policies.
pub struct Evaluator {
    /// The cluster, for selectors, namespaces and params.
    pub cluster: Cluster,
    /// Who answers `authorizer`.
    pub authorizer: Arc<dyn authz::Authorizer>,
}

/// A policy that could not be evaluated, or said no.
#[derive(Clone, Debug)]
pub struct Denial {
    /// The policy.
    pub policy: Arc<str>,
    /// The binding, unless the policy itself is at fault.
    pub binding: Option<Arc<str>>,
    /// Why.
    pub message: String,
    /// The `reason` of the validation; empty is `Invalid`.
    pub reason: String,
}

impl Denial {
    /// The error that the client gets: it says "is forbidden", and is 422 unless the validation has a reason of its own.
    pub fn into_status(self, write: &Write, subject: &str) -> Status {
        let binding = self.binding.as_ref().map(|b| format!(" with binding '{b}'")).unwrap_or_default();
        let message = format!("{subject} '{}'{binding} denied request: {}", self.policy, self.message);
        let mut status = write.forbidden(&message);
        let (reason, code) = match self.reason.as_str() {
            "Forbidden" => ("Forbidden", 403),
            "Unauthorized" => ("Unauthorized", 401),
            "RequestEntityTooLarge" => ("RequestEntityTooLarge", 413),
            _ => ("Invalid", 422),
        };
        (status.reason, status.code) = (reason.into(), code);
        status.cause("", message, "")
    }
}

/// A policy that a request is for: the resource in the version that its rules mean.
pub enum Applies {
    /// It is.
    Yes(Arc<Resource>),
    /// It is not.
    No,
    /// That could not be decided.
    Error(String),
}

impl Evaluator {
    /// Whether a policy's `matchConstraints` are about a write.
    pub fn applies(&self, policy: &Policy, write: &Write, around: &Surroundings<'_>, passed: &mut Passed) -> Applies {
        let since = Instant::now();
        match policy.criteria.matches(write, around) {
            Ok(Match::Yes(resource)) => match params::unknown_kind(policy, &self.cluster) {
                Some(why) => Applies::Error(why),
                None => Applies::Yes(resource),
            },
            Ok(Match::Elsewhere) => {
                passed.many(1, NO_RULE);
                Applies::No
            }
            Ok(Match::No(why)) => {
                passed.one(write, &policy.name, why, since, |_| {});
                Applies::No
            }
            Err(status) => Applies::Error(status.message),
        }
    }

    /// Whether a binding's `matchResources` are about a write.
    pub fn binds(
        &self,
        hop: &'static str,
        policy: &Policy,
        binding: &Binding,
        write: &Write,
        around: &Surroundings<'_>,
    ) -> Result<bool, String> {
        let Some(criteria) = &binding.criteria else { return Ok(true) };
        let since = Instant::now();
        match criteria.matches(write, around) {
            Ok(Match::Yes(_)) => Ok(true),
            Ok(Match::Elsewhere) => {
                skipped(hop, write, &policy.name, Some(&binding.name), NO_RULE, since);
                Ok(false)
            }
            Ok(Match::No(why)) => {
                skipped(hop, write, &policy.name, Some(&binding.name), &why, since);
                Ok(false)
            }
            Err(status) => Err(status.message),
        }
    }

    /// What expressions see of a write.
    pub fn input<'a>(&self, write: &'a Write, resource: &Resource, versioned: Option<&'a Versioned>) -> Input<'a> {
        let mut input = Input::of(write, resource, &self.cluster, &self.authorizer);
        if let Some(versioned) = versioned {
            input.object = versioned.object.as_ref().unwrap_or(&Value::Null);
            input.old = versioned.old.as_ref().unwrap_or(&Value::Null);
        }
        input
    }

    /// Whether the `matchConditions` hold; an error is one only where the failure policy says so.
    pub fn conditions(
        &self,
        hop: &'static str,
        policy: &Policy,
        input: &Input<'_>,
        params: Option<&Value>,
        write: &Write,
    ) -> Result<bool, String> {
        if policy.conditions.is_empty() {
            return Ok(true);
        }
        let since = Instant::now();
        match policy.conditions.evaluate(input, params) {
            Verdict::Holds => Ok(true),
            Verdict::Fails(name) => {
                skipped(hop, write, &policy.name, None, &format!("the match condition {name:?} is false"), since);
                Ok(false)
            }
            Verdict::Errors(why) if policy.fails_open => {
                skipped(hop, write, &policy.name, None, &why, since);
                Ok(false)
            }
            Verdict::Errors(why) => Err(why),
        }
    }
}

fn skipped(hop: &'static str, write: &Write, policy: &str, binding: Option<&str>, why: &str, since: Instant) {
    let mut detail = json!({"because": why});
    if let Some(binding) = binding {
        detail["binding"] = json!(binding);
    }
    write.context.trace.step_with(hop, policy.to_owned(), "skipped", since, Some(detail));
}
