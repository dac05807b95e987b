//! The write stack as a list. Both halves run in the order of their lists; what stands where, and why, is decided in
//! [`crate::server`], where the stack is put together.

use std::sync::Arc;
use std::time::Instant;

use super::{Mutate, Validate, Write};
use crate::status::Status;

/// The admission steps of a server.
#[derive(Default)]
pub struct Stack {
    /// Hop 04, in order.
    pub mutating: Vec<Arc<dyn Mutate>>,
    /// Hop 06, in order.
    pub validating: Vec<Arc<dyn Validate>>,
}

impl Stack {
    /// Hop 04: every mutating step that has something to say. Defaults are the caller's: they are applied again after it.
    pub async fn mutate(&self, write: &mut Write) -> Result<(), Status> {
        for step in &self.mutating {
            if !step.handles(write) {
                continue;
            }
            let since = Instant::now();
            let result = step.admit(write).await;
            write.context.trace.step("mutate", step.name(), verdict(&result), since);
            result?;
        }
        Ok(())
    }

    /// Hop 06: every validating step that has something to say.
    pub async fn validate(&self, write: &Write) -> Result<(), Status> {
        for step in &self.validating {
            if !step.handles(write) {
                continue;
            }
            let since = Instant::now();
            let result = step.validate(write).await;
            write.context.trace.step("validate", step.name(), verdict(&result), since);
            result?;
        }
        Ok(())
    }
}

fn verdict(result: &Result<(), Status>) -> String {
    match result {
        Ok(()) => "admitted".to_owned(),
        Err(status) => format!("denied: {}", status.message),
    }
}
