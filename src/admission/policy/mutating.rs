//! `MutatingAdmissionPolicy`: one policy after the other, each under its bindings; what an expression makes is merged in as by
//! server-side apply, or applied as a JSON Patch. The object is read and defaulted anew after each.

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use usher_cel::{Budget, RUNTIME_BUDGET};

use super::definition::{Binding, Mutation, Policy};
use super::snapshot::Policies;
use super::{Applies, Denial, Evaluator, NO_RULE, params, validating};
use crate::admission::review::Versioned;
use crate::admission::stack::Passed;
use crate::admission::{Mutate, Operation, Write, diff, matching};
use crate::api::apply::typed::{Type, merge, validate};
use crate::api::{convert, patch};
use crate::registry::Resource;
use crate::status::Status;

/// The plugin.
pub struct MutatingAdmissionPolicy {
    /// The policies in force.
    pub policies: Arc<Policies>,
    /// What they are evaluated with.
    pub evaluator: Arc<Evaluator>,
}

impl Mutate for MutatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "MutatingAdmissionPolicy"
    }

    fn handles(&self, write: &Write) -> bool {
        !self.policies.load().index.is_empty()
            && !matching::is_exempt(write)
            && !matching::is_servers_own(write)
            && matches!(write.operation, Operation::Create | Operation::Update | Operation::Connect)
    }

    fn is_compared(&self) -> bool {
        false
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let round = write.reinvocation.round;
            write.reinvocation.policies.begin(round, write.object.as_ref());
            let snapshot = self.policies.load();
            let (plural, since) = (write.resource.plural.clone(), Instant::now());
            let mut elsewhere = snapshot.bound.len();
            for position in snapshot.index.candidates(&plural) {
                let bound = &snapshot.bound[position];
                let policy = &bound.policy;
                let applies = self.evaluator.applies("mutate", policy, write);
                elsewhere -= usize::from(!matches!(applies, Applies::Elsewhere));
                let resource = match applies {
                    Applies::Elsewhere | Applies::No => continue,
                    Applies::Yes(resource) => resource,
                    Applies::Error(why) => {
                        failed(policy, None, format!("failed to configure policy: {why}"), write)?;
                        continue;
                    }
                };
                for binding in &bound.bindings {
                    self.binding(policy, binding, &resource, write).await?;
                }
            }
            Passed::of(elsewhere).tell("mutate", "policies", NO_RULE, write, since);
            write.reinvocation.policies.end(round, write.object.as_ref());
            Ok(())
        })
    }
}

/// A failure under the policy's failure policy: nothing, or the end of the request.
fn failed(policy: &Policy, binding: Option<&Binding>, message: String, write: &Write) -> Result<(), Status> {
    let verdict = if policy.fails_open { "skipped" } else { "denied" };
    write.context.trace.step_with("mutate", policy.name.to_string(), verdict, Instant::now(), Some(json!({"because": message})));
    if policy.fails_open {
        return Ok(());
    }
    let denial = Denial { policy: policy.name.clone(), binding: binding.map(|b| b.name.clone()), message, reason: String::new() };
    Err(denial.into_status(write, "policy"))
}

impl MutatingAdmissionPolicy {
    async fn binding(&self, policy: &Policy, binding: &Binding, resource: &Arc<Resource>, write: &mut Write) -> Result<(), Status> {
        match self.evaluator.binds("mutate", policy, binding, write) {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(why) => return failed(policy, Some(binding), format!("failed to configure binding: {why}"), write),
        }
        let found = match params::collect(policy, binding, write, &self.evaluator.cluster).await {
            Ok(found) => found,
            Err(why) => return failed(policy, Some(binding), format!("failed to configure binding: {why}"), write),
        };
        let round = write.reinvocation.round;
        for (index, params) in found.into_iter().enumerate() {
            let id: Arc<str> = format!("{}/{}/{index}", policy.name, binding.name).into();
            if !write.reinvocation.policies.is_due(round, &id) {
                continue;
            }
            let since = Instant::now();
            match self.mutated(policy, params.as_deref(), resource, write) {
                Ok(None) => continue,
                Ok(Some((object, cost))) => {
                    let changed = write.object.as_ref() != Some(&object);
                    let mut detail = json!({"binding": &*binding.name, "cost": cost});
                    if changed {
                        detail["patch"] = diff::shown(&write.resource.kind, diff::patch(write.object(), &object));
                        write.object = Some(object);
                        write.reinvocation.policies.changed();
                        write.reinvocation.wanted = true;
                    }
                    let verdict = if changed { "mutated" } else { "allowed" };
                    write.context.trace.step_with("mutate", policy.name.to_string(), verdict, since, Some(detail));
                }
                Err(why) => failed(policy, Some(binding), why, write)?,
            }
            if policy.reinvocable {
                write.reinvocation.policies.invoked(id);
            }
        }
        Ok(())
    }

    /// The object with all mutations of a policy on it, and their cost; nothing where the conditions do not hold.
    fn mutated(&self, policy: &Policy, params: Option<&Value>, resource: &Resource, write: &Write) -> Result<Option<(Value, u64)>, String> {
        let params = policy.param_kind.as_ref().map(|_| params.unwrap_or(&Value::Null));
        let versioned = Versioned::of(write, resource);
        {
            let input = self.evaluator.input(write, resource, versioned.as_ref());
            if !self.evaluator.conditions("mutate", policy, &input, params, write)? {
                return Ok(None);
            }
        }
        let mut budget = Budget::new(RUNTIME_BUDGET);
        let mut object = versioned.as_ref().map_or(write.object.as_ref(), |v| v.object.as_ref()).cloned().unwrap_or_default();
        for mutation in &policy.mutations {
            // Every mutation sees what those before it made.
            let made = {
                let mut input = self.evaluator.input(write, resource, versioned.as_ref());
                input.object = &object;
                let mut activation = input.activation(params);
                for (name, variable) in &policy.variables {
                    if let Ok(program) = &variable.program {
                        activation = activation.policy_variable(name, program);
                    }
                }
                let (Mutation::Apply(expression) | Mutation::JsonPatch(expression)) = mutation;
                validating::run(expression, &activation, &mut budget)?.to_json().map_err(|e| e.to_string())?
            };
            object = match mutation {
                Mutation::Apply(_) => apply(object, made, resource)?,
                Mutation::JsonPatch(_) => {
                    let mut patched = object;
                    patch::json::apply(&mut patched, &made).map_err(|error| format!("JSON Patch: {error}"))?;
                    patched
                }
            };
        }
        if versioned.is_some() && write.is_own_kind() {
            object = convert::between(object, resource, &write.resource);
        }
        Ok(Some((write.redecode(object)?, budget.used())))
    }
}

/// Merges an apply configuration into an object.
fn apply(mut object: Value, mut made: Value, resource: &Resource) -> Result<Value, String> {
    if !made.is_object() {
        return Err("unexpected non-object patch".into());
    }
    let schema = resource.schema();
    if let Some(path) = atomic(&made, &Type::root(&schema), "") {
        return Err(format!("error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {path}"));
    }
    made["apiVersion"] = object["apiVersion"].clone();
    made["kind"] = object["kind"].clone();
    validate::validate(&made, &schema).map_err(|error| format!("error applying patch: {error}"))?;
    merge::merge(&mut object, &made, &schema);
    Ok(object)
}

/// The path of the first atomic list or struct that a configuration sets; such a thing cannot be merged, only replaced.
fn atomic(value: &Value, of: &Type<'_>, path: &str) -> Option<String> {
    match value {
        Value::Object(fields) => {
            if !path.is_empty() && of.is_atomic() {
                return Some(path.to_owned());
            }
            fields.iter().find_map(|(name, value)| atomic(value, &of.field(name)?.of, &format!("{path}.{name}")))
        }
        Value::Array(items) => {
            if of.is_atomic() {
                return Some(path.to_owned());
            }
            items.iter().enumerate().find_map(|(i, item)| atomic(item, &of.items(), &format!("{path}[{i}]")))
        }
        _ => None,
    }
}
