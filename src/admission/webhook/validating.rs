//! `ValidatingAdmissionWebhook`: all webhooks that a request is for are asked at the same time; the first of them, in the order of their
//! configurations, that refuses decides what the client hears.

use std::sync::Arc;
use std::time::Instant;

use futures::future::{BoxFuture, join_all};
use serde_json::json;

use super::configuration::{Hook, Hooks};
use super::response::denial;
use super::{Caller, Failure, detail, failed_closed, take_notes};
use crate::admission::matching::Surroundings;
use crate::admission::passed::{NO_RULE, Passed};
use crate::admission::{Validate, Write, matching};
use crate::registry::Resource;
use crate::status::Status;

/// The plugin.
pub struct ValidatingAdmissionWebhook {
    /// The webhooks in force.
    pub hooks: Arc<Hooks>,
    /// How they are asked.
    pub caller: Arc<Caller>,
}

impl Validate for ValidatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    fn handles(&self, write: &Write) -> bool {
        !self.hooks.load().index.is_empty() && !matching::is_servers_own(write)
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let snapshot = self.hooks.load();
            let mut called = Vec::new();
            let around = Surroundings::new(&self.caller.cluster);
            let mut passed = Passed::new("validate");
            let is_exempt = matching::is_exempt(write);
            let candidates = snapshot.index.about(&write.resource.plural, write.operation);
            passed.many(snapshot.hooks.len() - candidates.len(), NO_RULE);
            for position in candidates {
                let hook = &snapshot.hooks[position as usize];
                if is_exempt && !hook.is_static {
                    continue;
                }
                if let Some(resource) = self.caller.should_call(hook, write, &around, &mut passed)? {
                    called.push((hook.clone(), resource));
                }
            }
            passed.tell("webhooks", write);
            let calls = called.iter().enumerate().map(|(index, (hook, resource))| self.invoke(hook, index, resource, write));
            join_all(calls).await.into_iter().collect()
        })
    }
}

impl ValidatingAdmissionWebhook {
    async fn invoke(&self, hook: &Hook, index: usize, resource: &Resource, write: &Write) -> Result<(), Status> {
        let since = Instant::now();
        let trace = &write.context.trace;
        match self.caller.call(hook, write, resource, false).await {
            Ok(answer) => {
                take_notes(hook, write, &answer);
                if answer.allowed {
                    trace.step_with("validate", hook.name.to_string(), "allowed", since, detail(hook, json!({})));
                    return Ok(());
                }
                let status = denial(&hook.name, &answer.status);
                trace.step_with("validate", hook.name.to_string(), "denied", since, detail(hook, json!({"message": status.message})));
                Err(status)
            }
            Err(Failure::Refused(status)) => Err(status),
            Err(Failure::Call(why)) if hook.fails_open => {
                trace.step_with("validate", hook.name.to_string(), "failed open", since, detail(hook, json!({"because": why})));
                trace.annotate(format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}"), &*hook.name);
                Ok(())
            }
            Err(Failure::Call(why)) => {
                trace.step_with("validate", hook.name.to_string(), "failed closed", since, detail(hook, json!({"because": why})));
                Err(failed_closed(hook, write, &why))
            }
        }
    }
}
