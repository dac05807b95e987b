//! `MutatingAdmissionWebhook`: one webhook after the other, by the name of the configuration; each sees what those before it made of
//! the object. After a patch the object is read and defaulted anew.

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::configuration::{Hook, Hooks};
use super::response::{Answer, PatchType, denial};
use super::{Caller, Failure, detail, failed_closed, take_notes};
use crate::admission::matching::Surroundings;
use crate::admission::passed::{NO_RULE, Passed};
use crate::admission::{Cluster, Mutate, Write, diff, matching};
use crate::api::{conversion, patch};
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
        !self.hooks.load().index.is_empty() && !matching::is_servers_own(write)
    }

    fn is_compared(&self) -> bool {
        false
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let round = write.reinvocation.round;
            write.reinvocation.webhooks.begin(round, write.object.as_ref());
            let snapshot = self.hooks.load();
            let around = Surroundings::new(&self.caller.cluster);
            let mut passed = Passed::new("mutate");
            let is_exempt = matching::is_exempt(write);
            let candidates = snapshot.index.about(&write.resource.plural, write.operation);
            passed.many(snapshot.hooks.len() - candidates.len(), NO_RULE);
            for position in candidates.into_iter().map(|position| position as usize) {
                let hook = &snapshot.hooks[position];
                if is_exempt && !hook.is_static {
                    continue;
                }
                let Some(resource) = self.caller.should_call(hook, write, &around, &mut passed)? else { continue };
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
            passed.tell("webhooks", write);
            write.reinvocation.webhooks.end(round, write.object.as_ref());
            Ok(())
        })
    }
}

impl MutatingAdmissionWebhook {
    /// Asks one webhook and applies its patch; answers whether the object changed. What came of it stands in the audit event however it
    /// ended.
    async fn invoke(&self, hook: &Hook, position: usize, resource: &Resource, write: &mut Write) -> Result<bool, Status> {
        let since = Instant::now();
        let place = format!("round_{}_index_{position}", write.reinvocation.round);
        let asked = self.ask(hook, &place, resource, write).await;
        annotate(write, hook, &place, matches!(asked, Ok(true)));
        let why = match asked {
            Ok(changed) => return Ok(changed),
            Err(Failure::Refused(status)) => return Err(status),
            Err(Failure::Call(why)) => why,
        };
        let verdict = if hook.fails_open { "failed open" } else { "failed closed" };
        write.context.trace.step_with("mutate", hook.name.to_string(), verdict, since, detail(hook, json!({"because": why})));
        if !hook.fails_open {
            return Err(failed_closed(hook, write, &why));
        }
        write.context.trace.annotate(format!("failed-open.mutation.webhook.admission.k8s.io/{place}"), &*hook.name);
        Ok(false)
    }

    async fn ask(&self, hook: &Hook, place: &str, resource: &Resource, write: &mut Write) -> Result<bool, Failure> {
        let since = Instant::now();
        let answer = self.caller.call(hook, write, resource, true).await?;
        take_notes(hook, write, &answer);
        if !answer.allowed {
            let status = denial(&hook.name, &answer.status);
            let told = detail(hook, json!({"message": status.message}));
            write.context.trace.step_with("mutate", hook.name.to_string(), "denied", since, told);
            return Err(Failure::Refused(status));
        }
        let before = (answer.patch_type == PatchType::Merge).then(|| write.object.clone()).flatten();
        let applied = apply(hook, &answer, resource, write, &self.caller.cluster).await?;
        let Some((patch, changed)) = applied else {
            write.context.trace.step_with("mutate", hook.name.to_string(), "allowed", since, detail(hook, json!({})));
            return Ok(false);
        };
        let kind = if answer.patch_type == PatchType::Merge { "MergePatch" } else { "JSONPatch" };
        let value = json!({"configuration": &*hook.configuration, "webhook": &*hook.name, "patch": &patch, "patchType": kind});
        write.context.trace.annotate(
            format!("patch.webhook.admission.k8s.io/{place}"),
            ordered(&value, &["configuration", "webhook", "patch", "patchType"]),
        );
        let verdict = if changed { "mutated" } else { "allowed" };
        let told = match (patch, before, &write.object) {
            _ if !changed => json!({}),
            // As it came, unless it is a merge patch or about what must not be told.
            (Value::Array(operations), ..) => json!({"patch": diff::shown(&write.resource.kind, operations)}),
            (_, Some(mut before), Some(after)) => json!({"patch": diff::shown(&write.resource.kind, diff::follow(&mut before, after))}),
            _ => json!({}),
        };
        write.context.trace.step_with("mutate", hook.name.to_string(), verdict, since, detail(hook, told));
        Ok(changed || is_stamped(write))
    }
}

/// Whether this write gives `managedFields` a new time. A real server has it to the nanosecond until a patch, any patch, makes it one to
/// the second, and takes the object for changed then; custom objects keep times as texts.
fn is_stamped(write: &Write) -> bool {
    let Some(object) = write.object.as_ref().filter(|_| write.resource.custom.is_none()) else { return false };
    let Some(old) = write.old.as_deref() else { return object["metadata"]["managedFields"].is_array() };
    let bare = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|key, _| !matches!(key.as_str(), "managedFields" | "resourceVersion" | "generation"));
        }
        object
    };
    object["metadata"]["managedFields"].is_array() && bare(object) != bare(old)
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

/// Applies the patch of an answer; gives back the patch, if there is one, and whether it changed anything.
async fn apply(
    hook: &Hook,
    answer: &Answer,
    resource: &Resource,
    write: &mut Write,
    cluster: &Cluster,
) -> Result<Option<(Value, bool)>, Failure> {
    let refused = |why: String| Failure::Refused(Status::internal(why));
    let unconverted = |status: Status| Failure::Refused(Status::internal(status.message));
    if answer.patch.is_empty() {
        return Ok(None);
    }
    let patch = decode(&answer.patch, &answer.patch_type)
        .map_err(|why| Failure::Call(format!("received undecodable patch in webhook response: {why}")))?;
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
        object = conversion::between(cluster, object, &write.resource, resource).await.map_err(unconverted)?;
    }
    match &answer.patch_type {
        PatchType::Json => patch::json::apply(&mut object, &patch).map_err(|e| refused(e.to_string()))?,
        PatchType::Merge => patch::merge::apply(&mut object, patch.clone()).map_err(|e| refused(e.to_string()))?,
        PatchType::Unknown(other) => return Err(Failure::Call(format!("unsupported patch type {other:?}"))),
    }
    if converted {
        object = conversion::between(cluster, object, resource, &write.resource).await.map_err(unconverted)?;
    }
    let object = write.redecode(object).map_err(refused)?;
    let changed = write.object.as_ref() != Some(&object);
    write.object = Some(object);
    Ok(Some((patch, changed)))
}

/// Reads a patch; what is wrong with it in Go's words.
fn decode(bytes: &[u8], patch_type: &PatchType) -> Result<Value, String> {
    let patch: Value = serde_json::from_slice(bytes).map_err(|_| crate::schema::syntax::explain(bytes))?;
    let word = |value: &Value| match value {
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        _ => "object",
    };
    let wrong = |value: &Value, of: &str| Err(format!("json: cannot unmarshal {} into Go value of type jsonpatch.{of}", word(value)));
    match &patch {
        _ if *patch_type == PatchType::Merge => Ok(patch),
        Value::Null => Ok(patch),
        Value::Array(operations) => match operations.iter().find(|operation| !operation.is_object() && !operation.is_null()) {
            Some(odd) => wrong(odd, "Operation"),
            None => Ok(operations.iter().map(without_oddities).collect()),
        },
        other => wrong(other, "Patch"),
    }
}

/// An operation without the members that are no text where they must be: those count as missing.
fn without_oddities(operation: &Value) -> Value {
    let mut operation = operation.clone();
    if let Some(fields) = operation.as_object_mut() {
        fields.retain(|name, value| !matches!(name.as_str(), "op" | "path" | "from") || value.is_string());
    }
    operation
}
