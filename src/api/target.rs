//! What a write is about, and how the steps of the write stack are told of it.

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use super::fields;
use super::options::WriteOptions;
use crate::admission::{Operation, Write};
use crate::registry::Resource;
use crate::request::{SharedContext, User};
use crate::status::{FieldError, Status};
use crate::validation;

/// What a write is about; everything but the object.
#[derive(Clone)]
pub struct Target {
    /// The request.
    pub context: SharedContext,
    /// Who asks.
    pub user: Arc<User>,
    /// What is written.
    pub resource: Arc<Resource>,
    /// The namespace, or empty.
    pub namespace: String,
    /// The name, or empty while it is to be generated.
    pub name: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The options.
    pub options: WriteOptions,
    /// What a webhook has converted so that owners of fields in other versions are known.
    pub conversions: Arc<fields::Conversions>,
}

impl Target {
    /// The write stack's view of it.
    pub fn operation(&self, operation: Operation, object: Option<Value>, old: Option<Arc<Value>>) -> Write {
        let kind = match self.resource.subresource(&self.subresource) {
            Some(sub) => (sub.group.clone(), sub.version.clone(), sub.kind.clone()),
            None => (self.resource.group.clone(), self.resource.version.clone(), self.resource.kind.clone()),
        };
        // A policy may quote what is stored: audit has to know what it must not repeat.
        if let Some(old) = old.as_ref().filter(|_| self.is_secret()) {
            self.context.guard(old.clone());
        }
        Write {
            context: self.context.clone(),
            user: self.user.clone(),
            resource: self.resource.clone(),
            subresource: self.subresource.clone(),
            kind,
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            operation,
            object,
            old,
            options: self.options_of(operation),
            dry_run: self.options.dry_run,
            reinvocation: crate::admission::Reinvocation::default(),
        }
    }

    fn is_secret(&self) -> bool {
        &*self.resource.plural == "secrets" && self.resource.group.is_empty()
    }

    /// The object as mutating admission left it: a policy behind it may quote that too.
    pub(super) fn mutated(&self, write: &mut Write) -> Value {
        let object = write.object.take().unwrap_or_default();
        if self.is_secret() {
            self.context.guard(Arc::new(object.clone()));
        }
        object
    }

    /// The options as reviews show them. A patch is a create or an update by then, and has the options of one.
    fn options_of(&self, operation: Operation) -> Value {
        let mut shown = self.options.shown.clone();
        let kind = match operation {
            Operation::Create => "CreateOptions",
            _ => "UpdateOptions",
        };
        if let (true, Some(fields)) = (shown["kind"] == "PatchOptions", shown.as_object_mut()) {
            fields.insert("kind".into(), kind.into());
            fields.remove("force");
        }
        shown
    }

    /// Hop 05 ends: the object was held against schema and rules. What they found is in the answer, and with a rule the values that
    /// made it false.
    pub(super) fn validated(&self, object: &Value, old: Option<&Value>, errors: &[FieldError], since: Instant) {
        let trace = &self.context.trace;
        if errors.is_empty() {
            return trace.step("schema", "validation", "valid", since);
        }
        let mut broken = validation::broken_rules(&self.resource, object, old, errors);
        let detail = (!broken.is_empty()).then(|| {
            let mut first = broken.remove(0);
            if !broken.is_empty() {
                first["further"] = broken.into();
            }
            first
        });
        trace.step_with("schema", "validation", "refused", since, detail);
    }

    /// The error of an object that is not there.
    pub(super) fn not_found(&self) -> Status {
        Status::not_found(&self.resource.group, &self.resource.plural, &self.name)
    }

    /// The error of an object that breaks rules.
    pub(super) fn invalid(&self, name: &str, errors: Vec<FieldError>) -> Status {
        Status::invalid(self.resource.kind_group(), &self.resource.kind, name, errors)
    }
}
