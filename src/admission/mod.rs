//! Hops 04 to 06. A change on its way in is a [`Write`], not an HTTP request; it passes the write stack
//! ([`stack`]): mutating steps may change the object, validating ones may not, and the types say so.
//!
//! The steps: Kubernetes' built-in plugins ([`plugins`], one file each), admission webhooks ([`webhook`]) and policies in CEL
//! ([`policy`]). Which of them run, and in which order, is [`registry`]. Webhooks and policies choose their requests by the same
//! criteria ([`matching`]) and show the same request to their code ([`review`], [`expression`]).

pub mod cluster;
pub mod configuration;
pub mod diff;
pub mod expression;
pub mod index;
pub mod manifest;
pub mod matching;
pub mod passed;
pub mod plugins;
pub mod policy;
pub mod registry;
pub mod reinvocation;
pub mod review;
pub mod stack;
pub mod webhook;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::object::meta;
use crate::registry::Resource;
use crate::request::{SharedContext, User};
use crate::schema::decode::{Expected, FieldValidation, conform};
use crate::schema::default;
use crate::status::Status;

pub use cluster::Cluster;
pub use reinvocation::Reinvocation;
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
    /// All of them.
    pub const ALL: [Operation; 4] = [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];

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
    /// Who is to be asked again because somebody later changed the object.
    pub reinvocation: Reinvocation,
}

/// A mutating step.
pub trait Mutate: Send + Sync {
    /// The plugin's name, as flags and the trace have it.
    fn name(&self) -> &'static str;
    /// Whether it has anything to say of such a write; asked before any work is done.
    fn handles(&self, write: &Write) -> bool;
    /// Whether the trace shall tell what it changed; not of those that only refuse, nor of those that tell it themselves.
    fn is_compared(&self) -> bool {
        true
    }
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
        let object = self.object();
        let name = [self.asked_name(), meta(object, "name"), meta(object, "generateName"), "Unknown"];
        let name = name.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        Status::forbidden(&self.resource.group, &self.resource.plural, name, &why.to_string())
    }

    /// The name that the request is about: none of a deletion that names nothing.
    pub fn asked_name(&self) -> &str {
        match self.operation == Operation::Delete && self.context.info.verb == "deletecollection" {
            true => "",
            false => &self.name,
        }
    }

    /// Whether this is about the resource itself, of the given group and plural, and not one of its subresources.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && self.is_of(group, plural)
    }

    /// Whether this is about a resource of the given group and plural, or one of its subresources.
    pub fn is_of(&self, group: &str, plural: &str) -> bool {
        &*self.resource.plural == plural && &*self.resource.group == group
    }

    /// Whether it creates such a resource, and not a subresource.
    pub fn creates(&self, group: &str, plural: &str) -> bool {
        self.operation == Operation::Create && self.is(group, plural)
    }

    /// The namespace as admission has it: that of a Namespace is the Namespace itself.
    pub fn request_namespace(&self) -> &str {
        match self.is_of("", "namespaces") {
            true if !self.name.is_empty() => &self.name,
            true => self.object.as_ref().map_or("", |object| meta(object, "name")),
            false => &self.namespace,
        }
    }

    /// The object of a write that has one.
    pub fn object_mut(&mut self) -> &mut Value {
        self.object.get_or_insert_with(Value::default)
    }

    /// The object, or null.
    pub fn object(&self) -> &Value {
        self.object.as_ref().unwrap_or(&Value::Null)
    }

    /// The object before, or null.
    pub fn old(&self) -> &Value {
        self.old.as_deref().unwrap_or(&Value::Null)
    }

    /// Whether the object is of the resource's own kind, and not a `Scale` or a `Binding`.
    pub fn is_own_kind(&self) -> bool {
        self.object.as_ref().is_none_or(|object| object["kind"] == *self.resource.kind)
    }

    /// Reads an object anew after somebody outside changed it: types are checked, unknown fields dropped, defaults filled in.
    ///
    /// # Errors
    /// What is wrong with its types.
    pub fn redecode(&self, object: Value) -> Result<Value, String> {
        self.decoded(object, FieldValidation::Ignore)
    }

    /// The same where unknown fields are errors.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn redecode_strictly(&self, object: Value) -> Result<Value, String> {
        self.decoded(object, FieldValidation::Strict)
    }

    fn decoded(&self, mut object: Value, validation: FieldValidation) -> Result<Value, String> {
        if !self.is_own_kind() {
            return Ok(object);
        }
        let resource = &self.resource;
        // What the object is cannot change; left out, it is what it was.
        let (kind, version) = (resource.kind.to_string(), resource.group_version());
        for (field, is) in [("kind", &kind), ("apiVersion", &version)] {
            if object[field].as_str().is_none_or(str::is_empty) && object.is_object() {
                object[field] = is.clone().into();
            }
        }
        if object["kind"] != kind || object["apiVersion"] != version {
            let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
            return Err(format!(
                "no kind {:?} is registered for version {:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
                text("kind"),
                text("apiVersion")
            ));
        }
        let schema = resource.schema();
        let expected = Expected {
            group: &resource.group,
            version: &resource.version,
            kind: &resource.kind,
            schema: &schema,
            custom: resource.custom.is_some(),
        };
        let (mut object, _) = conform(object, expected, validation).map_err(|error| error.to_string())?;
        default::apply_defaults(&mut object, resource);
        Ok(object)
    }
}
