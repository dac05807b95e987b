//! Hops 04 to 06. A change on its way in is a [`Write`], not an HTTP request; it passes the write stack
//! ([`stack`]): mutating steps may change the object, validating ones may not, and the types say so.

pub mod stack;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::registry::Resource;
use crate::request::{SharedContext, User};
use crate::status::Status;

pub use stack::Stack;

/// What a write does, in the words of admission rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    /// The word in rules and reviews.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// One change on its way in: the request of the write stack.
#[derive(Clone, Debug)]
pub struct Write {
    /// The request that it came with.
    pub context: SharedContext,
    /// Who asks.
    pub user: Arc<User>,
    /// What is written.
    pub resource: Arc<Resource>,
    /// The subresource, or empty.
    pub subresource: String,
    /// The kind of `object` where it is not the resource's own (`Scale`, `Binding`, …): group, version, kind.
    pub kind: (Arc<str>, Arc<str>, Arc<str>),
    /// The namespace, or empty.
    pub namespace: String,
    /// The name; empty while a name is still to be generated.
    pub name: String,
    /// What is done.
    pub operation: Operation,
    /// The object after the write; `None` for a delete.
    pub object: Option<Value>,
    /// The object before the write; `None` for a create.
    pub old: Option<Arc<Value>>,
    /// The `CreateOptions`, `UpdateOptions`, `PatchOptions` or `DeleteOptions` that reviews show.
    pub options: Value,
    /// Whether nothing is to be kept.
    pub dry_run: bool,
}

/// A mutating step.
pub trait Mutate: Send + Sync {
    /// The plugin's name, as flags and the trace have it.
    fn name(&self) -> &'static str;
    /// Whether it has anything to say of such a write; asked before any work is done.
    fn handles(&self, write: &Write) -> bool;
    /// May change the object, or refuse.
    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>>;
}

/// A validating step.
pub trait Validate: Send + Sync {
    /// The plugin's name, as flags and the trace have it.
    fn name(&self) -> &'static str;
    /// Whether it has anything to say of such a write; asked before any work is done.
    fn handles(&self, write: &Write) -> bool;
    /// May refuse.
    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>>;
}

impl Write {
    /// The 403 of a plugin: `<resource> "<name>" is forbidden: <why>`.
    pub fn forbidden(&self, why: impl std::fmt::Display) -> Status {
        Status::forbidden(&self.resource.group, &self.resource.plural, &self.name, &why.to_string())
    }

    /// Whether this is about the resource itself, of the given group and plural, and not one of its subresources.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && &*self.resource.plural == plural && &*self.resource.group == group
    }
}
