//! The write stack as a list. Both halves run in the order of their lists; what stands where, and why, is decided in
//! [`super::registry`], where the stack is put together.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::{Mutate, Validate, Write, diff};
use crate::status::Status;

/// The admission steps of a server.
#[derive(Default)]
pub struct Stack {
    /// Hop 04, in order.
    pub mutating: Vec<Arc<dyn Mutate>>,
    /// Hop 06, in order.
    pub validating: Vec<Arc<dyn Validate>>,
    /// The directory of manifests, followed as long as the stack lives.
    pub manifests: Option<super::manifest::Manifests>,
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
        let mut passed = Passed::default();
        let mut before: Option<Value> = None;
        for step in &self.mutating {
            if !step.handles(write) {
                passed.add(step.name());
                continue;
            }
            if step.is_compared() && before.is_none() {
                before = write.object.as_ref().map(diff::snapshot);
            }
            let since = Instant::now();
            let result = step.admit(write).await;
            let mut patch = Vec::new();
            if step.is_compared()
                && let (Some(old), Some(new)) = (&before, &write.object)
            {
                patch = diff::patch(old, new);
                if !patch.is_empty() {
                    before = Some(diff::snapshot(new));
                }
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
        passed.tell("mutate", "plugins", PASSED, write, began);
        Ok(())
    }

    /// Hop 06: every validating step that has something to say.
    pub async fn validate(&self, write: &Write) -> Result<(), Status> {
        let began = Instant::now();
        let mut passed = Passed::default();
        for step in &self.validating {
            if !step.handles(write) {
                passed.add(step.name());
                continue;
            }
            let since = Instant::now();
            let result = step.validate(write).await;
            write.context.trace.step("validate", step.name(), verdict(&result), since);
            result?;
        }
        passed.tell("validate", "plugins", PASSED, write, began);
        Ok(())
    }
}

const PASSED: &str = "not about such a request";

/// Those that a request was not for. They leave one step together: there may be a thousand of them.
#[derive(Default)]
pub struct Passed {
    count: usize,
    names: String,
}

impl Passed {
    /// So many, whose names nobody needs.
    pub fn of(count: usize) -> Passed {
        Passed { count, names: String::new() }
    }

    fn add(&mut self, name: &str) {
        if self.count > 0 {
            self.names.push_str(", ");
        }
        self.names.push_str(name);
        self.count += 1;
    }

    /// Leaves the step, if there is anything to tell.
    pub fn tell(self, hop: &'static str, what: &'static str, because: &str, write: &Write, since: Instant) {
        if self.count == 0 {
            return;
        }
        let mut detail = json!({"count": self.count, "because": because});
        if !self.names.is_empty() {
            detail["names"] = self.names.into();
        }
        write.context.trace.step_with(hop, what, "skipped", since, Some(detail));
    }
}

fn verdict(result: &Result<(), Status>) -> std::borrow::Cow<'static, str> {
    match result {
        Ok(()) => "admitted".into(),
        Err(status) => format!("denied: {}", status.message).into(),
    }
}
