//! May they. Authorisers stand in a chain; each says Allow, Deny or has no opinion, and the first that has one decides.

use std::borrow::Cow;
use std::sync::Arc;

use futures::future::BoxFuture;

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
}

/// One way to decide.
pub trait Authorizer: Send + Sync {
    /// The name in the trace.
    fn name(&self) -> &'static str;
    /// Decides.
    fn decide<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Decision>;
}
