//! `MutatingAdmissionWebhook`: one webhook after the other, by the name of the configuration; each sees what those before it made of
//! the object. After a patch the object is read and defaulted anew.

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::configuration::{Hook, Hooks};
use super::response::{Answer, PatchType, denial};
use super::{Caller, Failure, NO_RULE, detail, failed_closed, take_notes};
use crate::admission::stack::Passed;
use crate::admission::{Mutate, Write, diff, matching};
use crate::api::{convert, patch};
use crate::registry::Resource;
use crate::status::Status;

/// The plugin.
pub struct MutatingAdmissionWebhook {
    /// The webhooks in force.
    pub hooks: Arc<Hooks>,
    /// How they are asked.
    pub caller: Arc<Caller>,
}

impl Mutate for MutatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "MutatingAdmissionWebhook"
    }

    fn handles(&self, write: &Write) -> bool {
        !self.hooks.load().index.is_empty() && !matching::is_exempt(write) && !matching::is_servers_own(write)
    }

    fn is_compared(&self) -> bool {
        false
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let round = write.reinvocation.round;
            write.reinvocation.webhooks.begin(round, write.object.as_ref());
            let snapshot = self.hooks.load();
            let (plural, since) = (write.resource.plural.clone(), Instant::now());
            let mut elsewhere = snapshot.hooks.len() - snapshot.index.candidates(&plural).count();
            for position in snapshot.index.candidates(&plural) {
                let hook = &snapshot.hooks[position];
                let Some(resource) = self.caller.should_call("mutate", hook, write, &mut elsewhere)? else { continue };
                if !write.reinvocation.webhooks.is_due(round, &hook.id) {
                    let because = json!({"because": "nothing changed that it has not seen"});
                    write.context.trace.step_with("mutate", hook.name.to_string(), "skipped", Instant::now(), detail(hook, because));
                    continue;
                }
                let changed = self.invoke(hook, position, &resource, write).await?;
                if changed {
                    write.reinvocation.webhooks.changed();
                    write.reinvocation.wanted = true;
                }
                if hook.reinvocable {
                    write.reinvocation.webhooks.invoked(hook.id.clone());
                }
            }
            Passed::of(elsewhere).tell("mutate", "webhooks", NO_RULE, write, since);
            write.reinvocation.webhooks.end(round, write.object.as_ref());
            Ok(())
        })
    }
}

impl MutatingAdmissionWebhook {
    /// Asks one webhook and applies its patch; answers whether the object changed.
    async fn invoke(&self, hook: &Hook, position: usize, resource: &Resource, write: &mut Write) -> Result<bool, Status> {
        let since = Instant::now();
        let place = format!("round_{}_index_{position}", write.reinvocation.round);
        let called = self.caller.call(hook, write, resource, true).await;
        let answer = match called {
            Ok(answer) => answer,
            Err(Failure::Refused(status)) => return Err(status),
            Err(Failure::Call(why)) => {
                let verdict = if hook.fails_open { "failed open" } else { "failed closed" };
                write.context.trace.step_with("mutate", hook.name.to_string(), verdict, since, detail(hook, json!({"because": why})));
                if !hook.fails_open {
                    return Err(failed_closed(hook, write, &why));
                }
                write.context.trace.annotate(format!("failed-open.mutation.webhook.admission.k8s.io/{place}"), &*hook.name);
                return Ok(false);
            }
        };
        take_notes(hook, write, &answer);
        if !answer.allowed {
            let status = denial(&hook.name, &answer.status);
            write.context.trace.step_with(
                "mutate",
                hook.name.to_string(),
                "denied",
                since,
                detail(hook, json!({"message": status.message})),
            );
            annotate(write, hook, &place, false);
            return Err(status);
        }
        let before = (answer.patch_type == PatchType::Merge).then(|| write.object.clone()).flatten();
        let changed = match apply(hook, &answer, resource, write) {
            Ok(changed) => changed,
            Err(Failure::Refused(status)) => return Err(status),
            Err(Failure::Call(why)) if hook.fails_open => {
                write.context.trace.step_with("mutate", hook.name.to_string(), "failed open", since, detail(hook, json!({"because": why})));
                write.context.trace.annotate(format!("failed-open.mutation.webhook.admission.k8s.io/{place}"), &*hook.name);
                return Ok(false);
            }
            Err(Failure::Call(why)) => {
                write.context.trace.step_with(
                    "mutate",
                    hook.name.to_string(),
                    "failed closed",
                    since,
                    detail(hook, json!({"because": why})),
                );
                return Err(failed_closed(hook, write, &why));
            }
        };
        annotate(write, hook, &place, changed.is_some());
        if let Some(patch) = &changed {
            let kind = if answer.patch_type == PatchType::Merge { "MergePatch" } else { "JSONPatch" };
            let value = json!({"configuration": &*hook.configuration, "webhook": &*hook.name, "patch": patch, "patchType": kind});
            write.context.trace.annotate(
                format!("patch.webhook.admission.k8s.io/{place}"),
                ordered(&value, &["configuration", "webhook", "patch", "patchType"]),
            );
        }
        let verdict = if changed.is_some() { "mutated" } else { "allowed" };
        let told = match (&changed, &before, &write.object) {
            // As it came, unless it is a merge patch or about what must not be told.
            (Some(Value::Array(operations)), ..) => json!({"patch": diff::shown(&write.resource.kind, operations.clone())}),
            (Some(_), Some(before), Some(after)) => json!({"patch": diff::shown(&write.resource.kind, diff::patch(before, after))}),
            _ => json!({}),
        };
        write.context.trace.step_with("mutate", hook.name.to_string(), verdict, since, detail(hook, told));
        Ok(changed.is_some())
    }
}

fn annotate(write: &Write, hook: &Hook, place: &str, mutated: bool) {
    let value = format!("{{\"configuration\":{:?},\"webhook\":{:?},\"mutated\":{mutated}}}", &*hook.configuration, &*hook.name);
    write.context.trace.annotate(format!("mutation.webhook.admission.k8s.io/{place}"), value);
}

/// An object's text with its members in a given order.
fn ordered(value: &Value, keys: &[&str]) -> String {
    let members: Vec<String> = keys.iter().map(|key| format!("{key:?}:{}", value[*key])).collect();
    format!("{{{}}}", members.join(","))
}

/// Applies the patch of an answer; gives it back if it changed anything.
fn apply(hook: &Hook, answer: &Answer, resource: &Resource, write: &mut Write) -> Result<Option<Value>, Failure> {
    let refused = |why: String| Failure::Refused(Status::internal(why));
    if answer.patch.is_empty() {
        return Ok(None);
    }
    let patch: Value = serde_json::from_slice(&answer.patch).map_err(|_| refused(crate::schema::syntax::explain(&answer.patch)))?;
    let is_empty =
        patch.as_array().is_some_and(Vec::is_empty) || patch.as_object().is_some_and(serde_json::Map::is_empty) || patch.is_null();
    if is_empty {
        return Ok(None);
    }
    let Some(before) = write.object.as_ref() else {
        let text = format!("admission webhook {:?} attempted to modify the object, which is not supported for this operation", hook.name);
        return Err(refused(text));
    };
    let mut object = before.clone();
    // The patch is about what the webhook saw.
    let other_version = resource.version != write.resource.version || resource.group != write.resource.group;
    let converted = other_version && write.is_own_kind();
    if converted {
        object = convert::between(object, &write.resource, resource);
    }
    match &answer.patch_type {
        PatchType::Json => patch::json::apply(&mut object, &patch).map_err(|e| refused(e.to_string()))?,
        PatchType::Merge => patch::merge::apply(&mut object, patch.clone()).map_err(|e| refused(e.to_string()))?,
        PatchType::Unknown(other) => return Err(Failure::Call(format!("unsupported patch type {other:?}"))),
    }
    if converted {
        object = convert::between(object, resource, &write.resource);
    }
    let object = write.redecode(object).map_err(refused)?;
    if write.object.as_ref() == Some(&object) {
        return Ok(None);
    }
    write.object = Some(object);
    Ok(Some(patch))
}
