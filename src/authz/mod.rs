//! May they. Authorisers stand in a chain; each says Allow, Deny or has no opinion, and the first that has one decides.
//!
//! One file per way of deciding. The room is told of changed objects and never reads the store; it decides about
//! requests, not about the content of objects.

pub mod always;
pub mod chain;
pub mod forbidden;
pub mod rbac;

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

impl Decision {
    /// Whether it is a yes.
    pub fn is_allow(&self) -> bool {
        matches!(self, Decision::Allow(_))
    }

    /// Why; may be empty.
    pub fn reason(&self) -> &str {
        match self {
            Decision::Allow(reason) | Decision::Deny(reason) | Decision::NoOpinion(reason) => reason,
        }
    }
}

/// One way to decide.
pub trait Authorizer: Send + Sync {
    /// The name in the trace.
    fn name(&self) -> &'static str;
    /// Decides.
    fn decide<'a>(&'a self, attributes: &'a Attributes) -> BoxFuture<'a, Decision>;
}

/// The 403 of a request that nobody allowed, in a real server's words.
pub fn forbidden(attributes: &Attributes, reason: &str) -> crate::status::Status {
    use crate::status::{Status, qualified};
    let (user, info) = (&attributes.user, &attributes.info);
    let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    if !info.is_resource {
        let text = format!("forbidden: User {:?} cannot {} path {:?}{because}", user.name, info.verb, info.path);
        let mut status = Status::new(403, "Forbidden", text);
        status.details = Some(Box::default());
        return status;
    }
    let resource = match info.subresource.is_empty() {
        true => info.resource.clone(),
        false => format!("{}/{}", info.resource, info.subresource),
    };
    let mut why = format!("User {:?} cannot {} resource {resource:?} in API group {:?}", user.name, info.verb, info.group);
    match info.namespace.is_empty() {
        true => why.push_str(" at the cluster scope"),
        false => why.push_str(&format!(" in the namespace {:?}", info.namespace)),
    }
    why.push_str(&because);
    let about = qualified(&info.group, &info.resource);
    let message = match info.name.is_empty() {
        true => format!("{about} is forbidden: {why}"),
        false => format!("{about} {:?} is forbidden: {why}", info.name),
    };
    Status::new(403, "Forbidden", message).about(&info.group, &info.resource, &info.name)
}
