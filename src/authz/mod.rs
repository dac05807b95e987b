//! May they. Authorisers stand in a chain; each says Allow, Deny or has no opinion, and the first that has one decides.
//!
//! One file per way of deciding. The room is told of changed objects and never reads the store; it decides about
//! requests, not about the content of objects.

pub mod abac;
pub mod always;
pub mod chain;
pub mod configuration;
pub mod forbidden;
pub mod impersonation;
pub mod node;
pub mod rbac;
pub mod webhook;

pub use forbidden::{forbidden, verdict};

use std::borrow::Cow;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use crate::request::{RequestInfo, User};

/// What is asked: who wants to do what with what. Made of a request, of a review, or of a CEL `authorizer` call.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Who.
    pub user: Arc<User>,
    /// What, in the terms of the request; `is_resource` tells which fields count.
    pub info: Arc<RequestInfo>,
}

/// What an authoriser says, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Yes.
    Allow(Cow<'static, str>),
    /// No, whatever others say.
    Deny(Cow<'static, str>),
    /// Nothing to say; the reason goes to the trace.
    NoOpinion(Cow<'static, str>),
    /// It could not be found out.
    Failed {
        /// What went wrong.
        error: Cow<'static, str>,
        /// Whether that is a no, whatever others say.
        denies: bool,
    },
}

impl Decision {
    /// Whether it is a yes.
    pub fn is_allow(&self) -> bool {
        matches!(self, Decision::Allow(_))
    }

    /// Why; may be empty.
    pub fn reason(&self) -> &str {
        match self {
            Decision::Allow(reason) | Decision::Deny(reason) | Decision::NoOpinion(reason) => reason,
            Decision::Failed { .. } => "",
        }
    }

    /// What kept it from being found out.
    pub fn error(&self) -> Option<&str> {
        match self {
            Decision::Failed { error, .. } => Some(error),
            _ => None,
        }
    }

    /// Whether it is a no, whatever others say.
    pub fn denies(&self) -> bool {
        matches!(self, Decision::Deny(_) | Decision::Failed { denies: true, .. })
    }
}

/// A decision with what stands behind it, for whoever wants to know why.
#[derive(Clone, Debug)]
pub struct Explained {
    /// What was decided.
    pub decision: Decision,
    /// Which authoriser decided; that of a chain in which nobody had an opinion is the chain itself.
    pub by: &'static str,
    /// By what: the role, the binding and the rule, or what each authoriser had to say.
    pub detail: Map<String, Value>,
}

/// What a user may do, in the form of SelfSubjectRulesReview.
#[derive(Clone, Debug, Default)]
pub struct ResolvedRules {
    /// `ResourceRule`s.
    pub resource: Vec<Value>,
    /// `NonResourceRule`s.
    pub non_resource: Vec<Value>,
    /// Whether there may be more than is told.
    pub incomplete: bool,
    /// What could not be found out.
    pub errors: Vec<String>,
}

/// One way to decide.
pub trait Authorizer: Send + Sync {
    /// The name in the trace.
    fn name(&self) -> &'static str;
    /// Decides.
    fn decide<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Decision>;
    /// Decides, and says by what.
    fn explain<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Explained> {
        Box::pin(async move { Explained { decision: self.decide(attributes).await, by: self.name(), detail: Map::new() } })
    }
    /// Everything that a user may do in a namespace, as far as this authoriser can tell; for reviews.
    fn rules_for(&self, _user: &User, _namespace: &str) -> ResolvedRules {
        ResolvedRules::default()
    }
}
