//! The write stack as a list. Both halves run in the order of their lists; what stands where, and why, is decided in
//! [`super::registry`], where the stack is put together.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::{Mutate, Validate, Write, diff, passed};
use crate::status::Status;

/// The admission steps of a server.
#[derive(Default)]
pub struct Stack {
    /// Hop 04, in order.
    pub mutating: Vec<Arc<dyn Mutate>>,
    /// Hop 06, in order.
    pub validating: Vec<Arc<dyn Validate>>,
    /// The directories of manifests, followed as long as the stack lives.
    pub manifests: Vec<super::manifest::Manifests>,
}

impl Stack {
    /// Hop 04: every mutating step that has something to say. Defaults are the caller's: they are applied again after it.
    ///
    /// Where a webhook or a policy changed the object after somebody who wants to see that, all of it runs a second time, and
    /// only a second time: two that fight do not keep a request for ever.
    pub async fn mutate(&self, write: &mut Write) -> Result<(), Status> {
        self.round(write).await?;
        if write.reinvocation.wanted {
            write.reinvocation.round = 1;
            self.round(write).await?;
        }
        Ok(())
    }

    async fn round(&self, write: &mut Write) -> Result<(), Status> {
        let began = Instant::now();
        let mut idle = String::new();
        let mut before: Option<Value> = None;
        for step in &self.mutating {
            if !step.handles(write) {
                passed::enumerate(&mut idle, step.name());
                continue;
            }
            if step.is_compared() && before.is_none() {
                before = write.object.as_ref().map(diff::snapshot);
            }
            let since = Instant::now();
            let result = step.admit(write).await;
            let mut patch = Vec::new();
            if step.is_compared()
                && let (Some(old), Some(new)) = (&mut before, &write.object)
            {
                patch = diff::follow(old, new);
            }
            match patch.is_empty() || result.is_err() {
                true => write.context.trace.step("mutate", step.name(), verdict(&result), since),
                false => {
                    let detail = json!({"patch": diff::shown(&write.resource.kind, patch)});
                    write.context.trace.step_with("mutate", step.name(), "mutated", since, Some(detail));
                }
            }
            result?;
        }
        passed::tell_idle("mutate", idle, write, began);
        Ok(())
    }

    /// Hop 06: every validating step that has something to say.
    pub async fn validate(&self, write: &Write) -> Result<(), Status> {
        let began = Instant::now();
        let mut idle = String::new();
        for step in &self.validating {
            if !step.handles(write) {
                passed::enumerate(&mut idle, step.name());
                continue;
            }
            let since = Instant::now();
            let result = step.validate(write).await;
            write.context.trace.step("validate", step.name(), verdict(&result), since);
            result?;
        }
        passed::tell_idle("validate", idle, write, began);
        Ok(())
    }
}

fn verdict(result: &Result<(), Status>) -> std::borrow::Cow<'static, str> {
    match result {
        Ok(()) => "admitted".into(),
        Err(status) => format!("denied: {}", status.message).into(),
    }
}
