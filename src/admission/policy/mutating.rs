//! `MutatingAdmissionPolicy`: one policy after the other, each under its bindings; what an expression makes is merged in as by
//! server-side apply, or applied as a JSON Patch. The object is read and defaulted anew after each. What goes wrong is collected and
//! told at the end, so that a client hears of all of it.

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use usher_cel::{Budget, RUNTIME_BUDGET};

use super::definition::{Binding, Mutation, Policy};
use super::snapshot::{Policies, Snapshot};
use super::{Applies, Denial, Evaluator, params, validating};
use crate::admission::matching::Surroundings;
use crate::admission::passed::Passed;
use crate::admission::review::Versioned;
use crate::admission::{Mutate, Operation, Write, diff, matching};
use crate::api::apply::typed::{Type, merge, validate};
use crate::api::patch::PatchError;
use crate::api::{conversion, patch};
use crate::object::meta;
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
            && !matching::is_servers_own(write)
            && matches!(write.operation, Operation::Create | Operation::Update | Operation::Connect)
    }

    fn is_compared(&self) -> bool {
        false
    }

    fn admit<'a>(&'a self, write: &'a mut Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let snapshot = self.policies.load();
            let mut run = Run { evaluator: &self.evaluator, errors: Vec::new() };
            // Who is asked is decided on the object as it came; what the first of them makes of it changes no other's mind.
            let invocations = run.invocations(&snapshot, write).await;
            let round = write.reinvocation.round;
            write.reinvocation.policies.begin(round, write.object.as_ref());
            for invocation in &invocations {
                run.invoke(invocation, write).await?;
            }
            write.reinvocation.policies.end(round, write.object.as_ref());
            run.finish(write)
        })
    }
}

/// One policy under one binding with one parameter.
struct Invocation<'s> {
    policy: &'s Policy,
    binding: &'s Binding,
    params: Option<Arc<Value>>,
    resource: Arc<Resource>,
}

impl Invocation<'_> {
    /// What tells it from all others when it comes to a second round.
    fn id(&self) -> Arc<str> {
        let params = self.params.as_deref().unwrap_or(&Value::Null);
        format!("{}/{}/{}/{}", self.policy.name, self.binding.name, meta(params, "namespace"), meta(params, "name")).into()
    }
}

/// One request on its way through all policies.
struct Run<'e> {
    evaluator: &'e Evaluator,
    errors: Vec<Denial>,
}

impl Run<'_> {
    /// A failure under the policy's failure policy: a note, or the end of the request once all have been asked.
    fn failed(&mut self, policy: &Policy, binding: Option<&Binding>, message: String, reason: &str, write: &Write) {
        let verdict = if policy.fails_open { "skipped" } else { "denied" };
        write.context.trace.step_with("mutate", policy.name.to_string(), verdict, Instant::now(), Some(json!({"because": message})));
        if !policy.fails_open {
            let binding = binding.map(|b| b.name.clone());
            self.errors.push(Denial { policy: policy.name.clone(), binding, message, reason: reason.to_owned() });
        }
    }

    /// Everything that a request is for.
    async fn invocations<'s>(&mut self, snapshot: &'s Snapshot, write: &Write) -> Vec<Invocation<'s>> {
        let around = Surroundings::new(&self.evaluator.cluster);
        let mut passed = Passed::new("mutate");
        let mut found = Vec::new();
        let is_exempt = matching::is_exempt(write);
        for bound in snapshot.candidates(write, &around, &mut passed) {
            let policy = &bound.policy;
            if is_exempt && !policy.is_static {
                continue;
            }
            let resource = match self.evaluator.applies(policy, write, &around, &mut passed) {
                Applies::No => continue,
                Applies::Yes(resource) => resource,
                Applies::Error(why) => {
                    self.failed(policy, None, format!("failed to configure policy: {why}"), "", write);
                    continue;
                }
            };
            for binding in &bound.bindings {
                let params = match self.evaluator.binds("mutate", policy, binding, write, &around) {
                    Ok(false) => continue,
                    Ok(true) => params::collect(policy, binding, write, &self.evaluator.cluster).await,
                    Err(why) => Err(why),
                };
                match params {
                    Ok(params) => {
                        found.extend(params.into_iter().map(|params| Invocation { policy, binding, params, resource: resource.clone() }));
                    }
                    Err(why) => self.failed(policy, Some(binding), format!("failed to configure binding: {why}"), "", write),
                }
            }
        }
        passed.tell("policies", write);
        found
    }

    /// Applies the mutations of one invocation, one after the other: one that fails leaves those before and after it as they are.
    async fn invoke(&mut self, invocation: &Invocation<'_>, write: &mut Write) -> Result<(), Status> {
        let since = Instant::now();
        let Invocation { policy, binding, resource, .. } = invocation;
        let params = policy.param_kind.as_ref().map(|_| invocation.params.as_deref().unwrap_or(&Value::Null));
        let versioned = match Versioned::of(write, resource, &self.evaluator.cluster).await {
            Ok(versioned) => versioned,
            Err(status) => {
                self.failed(policy, None, format!("failed to configure policy: {}", status.message), "", write);
                return Ok(());
            }
        };
        let holds = {
            let input = self.evaluator.input(write, resource, versioned.as_ref());
            self.evaluator.conditions("mutate", policy, &input, params, write)
        };
        match holds {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(why) => {
                self.failed(policy, Some(binding), why, "Invalid", write);
                return Ok(());
            }
        }
        let round = write.reinvocation.round;
        let id = invocation.id();
        if !write.reinvocation.policies.is_due(round, &id) {
            return Ok(());
        }
        let before = versioned.as_ref().map_or(write.object.as_ref(), |v| v.object.as_ref());
        let Some(mut object) = before.cloned() else { return Ok(()) };
        let (mut cost, mut failed) = (0, false);
        for mutation in &policy.mutations {
            // Every mutation sees what those before it made, and has a budget of its own.
            let mut budget = Budget::new(RUNTIME_BUDGET);
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
                validating::run(expression, &activation, &mut budget).and_then(|value| {
                    check_type_names(&value)?;
                    value.to_json().map_err(|e| e.to_string())
                })
            };
            cost += budget.used();
            match made.and_then(|made| mutated(mutation, &object, made, resource)) {
                Ok(Some(new)) if versioned.is_none() => object = reread(mutation, write, new)?,
                Ok(Some(new)) => object = new,
                Ok(None) => {}
                Err(why) => {
                    failed = true;
                    self.failed(policy, Some(binding), why, "Invalid", write);
                }
            }
        }
        if versioned.is_some() {
            if write.is_own_kind() {
                object = conversion::between(&self.evaluator.cluster, object, resource, &write.resource).await?;
            }
            object = write.redecode(object).map_err(Status::internal)?;
        }
        let changed = write.object.as_ref() != Some(&object);
        let mut detail = json!({"binding": &*binding.name, "cost": cost});
        if changed {
            let mut before = write.object.replace(object).unwrap_or_default();
            detail["patch"] = diff::shown(&write.resource.kind, diff::follow(&mut before, write.object()));
            write.reinvocation.policies.changed();
            write.reinvocation.wanted = true;
        }
        if changed || !failed {
            let verdict = if changed { "mutated" } else { "allowed" };
            write.context.trace.step_with("mutate", policy.name.to_string(), verdict, since, Some(detail));
        }
        if policy.reinvocable {
            write.reinvocation.policies.invoked(id);
        }
        Ok(())
    }

    /// All failures that count, in one answer: a 403 whose words are the first one's.
    fn finish(self, write: &Write) -> Result<(), Status> {
        let Some(first) = self.errors.first() else { return Ok(()) };
        let told = |denial: &Denial| match &denial.binding {
            Some(binding) => format!("policy '{}' with binding '{binding}' denied request: {}", denial.policy, denial.message),
            None => format!("policy \"{}\" denied request: {}", denial.policy, denial.message),
        };
        let mut status = write.forbidden("");
        status.message = told(first);
        if !first.reason.is_empty() {
            status.reason = first.reason.clone().into();
        }
        Err(self.errors.iter().fold(status, |status, denial| status.cause("", told(denial), "")))
    }
}

/// Whether the types that an expression names are those of the fields that they stand in: `Object.spec{…}` belongs into `spec`.
fn check_type_names(made: &usher_cel::Value<'_>) -> Result<(), String> {
    use usher_cel::Value::{List, Struct};
    fn check(value: &usher_cel::Value<'_>, expected: &str) -> Result<(), String> {
        match value {
            Struct(object) if *object.name != *expected => Err(format!(
                "type mismatch: unexpected type name {:?}, expected {expected:?}, which matches field name path from root Object type",
                object.name
            )),
            Struct(object) => object.fields.iter().try_for_each(|(name, value)| check(value, &format!("{expected}.{name}"))),
            List(items) => (0..items.len()).filter_map(|i| items.get(i)).try_for_each(|item| check(&item, expected)),
            _ => Ok(()),
        }
    }
    match made {
        Struct(object) => check(made, &object.name),
        // The operations of a JSON Patch: each value has a root of its own.
        List(operations) => (0..operations.len()).filter_map(|i| operations.get(i)).try_for_each(|operation| match &operation {
            Struct(operation) => match operation.get("value") {
                Some(value @ Struct(object)) => check(value, &object.name),
                _ => Ok(()),
            },
            _ => Ok(()),
        }),
        _ => Ok(()),
    }
}

/// What a mutation makes of an object; nothing where the test of a JSON Patch fails, which is how such a patch says "not here".
fn mutated(mutation: &Mutation, object: &Value, made: Value, resource: &Resource) -> Result<Option<Value>, String> {
    match mutation {
        Mutation::Apply(_) => apply(object.clone(), made, resource).map(Some),
        Mutation::JsonPatch(_) => {
            let mut patched = object.clone();
            match patch::json::apply(&mut patched, &made) {
                Ok(()) => Ok(Some(patched)),
                Err(PatchError::Rejected(why)) if why.ends_with("test failed") => Ok(None),
                Err(error) => Err(format!("JSON Patch: {error}")),
            }
        }
    }
}

/// The object as it is read after a mutation. What a JSON Patch makes is read strictly; nobody's failure policy excuses what it got wrong.
fn reread(mutation: &Mutation, write: &Write, object: Value) -> Result<Value, Status> {
    match mutation {
        Mutation::Apply(_) => write.redecode(object).map_err(Status::internal),
        Mutation::JsonPatch(_) => write.redecode_strictly(object).map_err(Status::internal),
    }
}

/// Merges an apply configuration into an object.
fn apply(mut object: Value, mut made: Value, resource: &Resource) -> Result<Value, String> {
    if !made.is_object() {
        return Err("unexpected non-object patch".into());
    }
    let schema = resource.schema();
    made["apiVersion"] = object["apiVersion"].clone();
    made["kind"] = object["kind"].clone();
    validate::validate(&made, &schema)
        .map_err(|error| format!("error applying patch: failed to convert patch object to typed object: {error}"))?;
    let mut atomics = Vec::new();
    atomic(&made, &Type::root(&schema), "", &mut atomics);
    if !atomics.is_empty() {
        let paths = atomics.join(", ");
        return Err(format!("error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {paths}"));
    }
    merge::merge(&mut object, &made, &schema);
    Ok(object)
}

/// The paths of the atomic lists and structs that a configuration sets; such a thing cannot be merged, only replaced.
fn atomic(value: &Value, of: &Type<'_>, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if !path.is_empty() && of.is_atomic() {
                found.push(path.to_owned());
            }
            for (name, value) in fields {
                if let Some(field) = of.field(name) {
                    atomic(value, &field.of, &format!("{path}.{name}"), found);
                }
            }
        }
        Value::Array(items) => {
            if of.is_atomic() {
                found.push(path.to_owned());
            }
            for (i, item) in items.iter().enumerate() {
                atomic(item, &of.items(), &format!("{path}[{i}]"), found);
            }
        }
        _ => {}
    }
}
