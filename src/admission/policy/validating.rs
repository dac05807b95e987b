//! `ValidatingAdmissionPolicy`: evaluates every policy that a request is for, under each of its bindings and with each of their
//! parameters, and denies, warns or notes as the binding says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use usher_cel::{Activation, Budget, EvalError, RUNTIME_BUDGET};

use super::definition::{Binding, Expression, Policy, Validation};
use super::snapshot::Policies;
use super::{Applies, Denial, Evaluator, check, params};
use crate::admission::expression::{Input, failure};
use crate::admission::matching::Surroundings;
use crate::admission::passed::Passed;
use crate::admission::review::Versioned;
use crate::admission::{Validate, Write, matching};
use crate::registry::Resource;
use crate::status::Status;

/// The most bytes of a computed message.
const MAX_MESSAGE_BYTES: usize = 5120;
/// The most bytes of an audit annotation; what is longer is cut.
const MAX_ANNOTATION_BYTES: usize = 10 * 1024;

/// How many failures the audit event tells of.
const MAX_FAILURES: usize = 50;

/// How many failures of one policy its step tells of besides the first.
const MAX_FURTHER: usize = 9;

/// How many parts of a failed expression are told, and how long their values may be.
const MAX_VALUES: usize = 40;
const MAX_VALUE_BYTES: usize = 512;

/// The plugin.
pub struct ValidatingAdmissionPolicy {
    /// The policies in force.
    pub policies: Arc<Policies>,
    /// What they are evaluated with.
    pub evaluator: Arc<Evaluator>,
}

impl Validate for ValidatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn handles(&self, write: &Write) -> bool {
        match matching::is_exempt(write) {
            true => write.subresource.is_empty(),
            false => !self.policies.load().index.is_empty() && !matching::is_servers_own(write),
        }
    }

    fn validate<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let is_exempt = matching::is_exempt(write);
            if is_exempt {
                check::definition(write, &self.policies, &self.evaluator.cluster)?;
            }
            let snapshot = self.policies.load();
            // The variables are the same for every policy that means the same version of the resource.
            let mut inputs: Vec<(Arc<Resource>, Option<Versioned>)> = Vec::new();
            let mut jobs = Vec::new();
            let around = Surroundings::new(&self.evaluator.cluster);
            let mut passed = Passed::new("validate");
            for bound in snapshot.candidates(write, &around, &mut passed) {
                let policy = &*bound.policy;
                if is_exempt && !policy.is_static {
                    continue;
                }
                let at = match self.evaluator.applies(policy, write, &around, &mut passed) {
                    Applies::No => continue,
                    Applies::Error(why) => {
                        jobs.push(Job::Misconfigured(policy, None, why));
                        continue;
                    }
                    Applies::Yes(resource) => match inputs.iter().position(|(r, _)| Arc::ptr_eq(r, &resource)) {
                        Some(at) => at,
                        None => match Versioned::of(write, &resource, &self.evaluator.cluster).await {
                            Ok(versioned) => {
                                inputs.push((resource, versioned));
                                inputs.len() - 1
                            }
                            Err(status) => {
                                let why = format!("failed to convert object version: {}", status.message);
                                jobs.extend(bound.bindings.iter().map(|binding| Job::Misconfigured(policy, Some(binding), why.clone())));
                                continue;
                            }
                        },
                    },
                };
                for binding in &bound.bindings {
                    let params = match self.evaluator.binds("validate", policy, binding, write, &around) {
                        Ok(false) => continue,
                        Ok(true) => params::collect(policy, binding, write, &self.evaluator.cluster).await,
                        Err(why) => Err(why),
                    };
                    jobs.push(match params {
                        Ok(params) => Job::Evaluate(policy, binding, params, at),
                        Err(why) => Job::Misconfigured(policy, Some(binding), why),
                    });
                }
            }
            passed.tell("policies", write);
            if jobs.is_empty() {
                return Ok(());
            }
            let mut run = Run { write, step: self, denials: Vec::new(), failures: Vec::new(), annotations: BTreeMap::new() };
            run.evaluate(&inputs, &jobs);
            run.finish()
        })
    }
}

/// What there is to do, in the order of the policies and their bindings.
enum Job<'a> {
    Evaluate(&'a Policy, &'a Binding, Vec<Option<Arc<Value>>>, usize),
    Misconfigured(&'a Policy, Option<&'a Binding>, String),
}

/// One request on its way through all policies.
struct Run<'a> {
    write: &'a Write,
    step: &'a ValidatingAdmissionPolicy,
    denials: Vec<Denial>,
    /// What bindings with the action `Audit` say.
    failures: Vec<String>,
    annotations: BTreeMap<String, Vec<String>>,
}

impl Run<'_> {
    fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        let what = if binding.is_some() { "binding" } else { "policy" };
        let message = format!("failed to configure {what}: {why}");
        let verdict = if policy.fails_open { "skipped" } else { "denied" };
        self.write.context.trace.step_with("validate", policy.name.to_string(), verdict, Instant::now(), Some(json!({"because": message})));
        if !policy.fails_open {
            let denial = Denial { policy: policy.name.clone(), binding: binding.map(|b| b.name.clone()), message, reason: String::new() };
            self.denials.push(denial);
        }
    }

    fn evaluate(&mut self, inputs: &[(Arc<Resource>, Option<Versioned>)], jobs: &[Job<'_>]) {
        let write = self.write;
        let inputs: Vec<Input<'_>> =
            inputs.iter().map(|(resource, versioned)| self.step.evaluator.input(write, resource, versioned.as_ref())).collect();
        for job in jobs {
            match job {
                Job::Misconfigured(policy, binding, why) => self.misconfigured(policy, *binding, why),
                Job::Evaluate(policy, binding, params, at) => {
                    for params in params {
                        self.one(policy, binding, params.as_deref(), &inputs[*at]);
                    }
                }
            }
        }
    }

    /// One policy under one binding with one parameter.
    fn one(&mut self, policy: &Policy, binding: &Binding, params: Option<&Value>, input: &Input<'_>) {
        let since = Instant::now();
        let write = self.write;
        let params = match (&policy.param_kind, params) {
            (None, _) => None,
            (Some(_), given) => Some(given.unwrap_or(&Value::Null)),
        };
        match self.step.evaluator.conditions("validate", policy, input, params, write) {
            Ok(true) => {}
            Ok(false) => return,
            Err(why) => return self.deny(policy, binding, 0, why, ""),
        }
        let mut activation = input.activation(params);
        for (name, variable) in &policy.variables {
            if let Ok(program) = &variable.program {
                activation = activation.policy_variable(name, program);
            }
        }
        let mut budget = Budget::new(RUNTIME_BUDGET);
        let before = self.denials.len();
        let mut failed = Vec::new();
        for (index, validation) in policy.validations.iter().enumerate() {
            match evaluate(&validation.expression, &activation, &mut budget) {
                Ok(Some(true)) => {}
                Ok(_) => failed.push((index, None)),
                Err(Evaluation::OutOfBudget(why)) => {
                    // Nothing more can be said, and what was said before does not count any more.
                    failed = vec![(0, Some(why))];
                    break;
                }
                Err(Evaluation::Failed(why)) => failed.push((index, Some(why))),
            }
        }
        let cost = budget.used();
        let mut said = None;
        let indices: Vec<usize> = failed.iter().map(|(index, _)| *index).collect();
        let mut messages = Vec::with_capacity(indices.len());
        for (index, error) in failed {
            let validation = &policy.validations[index];
            let (message, reason) = match error {
                Some(why) if policy.fails_open => {
                    said.get_or_insert_with(|| why.clone());
                    messages.push(why);
                    continue;
                }
                Some(why) => (why, ""),
                None => (message(validation, &activation, &mut budget), validation.reason.as_str()),
            };
            said.get_or_insert_with(|| message.clone());
            messages.push(message.clone());
            self.deny(policy, binding, index, message, reason);
        }
        self.annotate(policy, binding, &activation);
        let mut detail = json!({"binding": &*binding.name, "cost": cost});
        let said = said.or_else(|| self.denials.get(before).map(|denial| denial.message.clone()));
        if let Some(message) = said {
            detail["because"] = json!(message);
            detail["message"] = json!(message);
        }
        let tell = |detail: &mut Value, index: usize| {
            let expression = &policy.validations[index].expression;
            detail["expression"] = json!(expression.source);
            // What a Secret holds stays in it.
            if &*write.resource.kind != "Secret" {
                detail["values"] = values(expression, &activation);
            }
        };
        if let Some(index) = indices.first() {
            tell(&mut detail, *index);
        }
        // The answer has room for one failure; the others are as true.
        let further = indices.iter().zip(messages).skip(1).take(MAX_FURTHER).map(|(index, message)| {
            let mut part = json!({"because": message});
            tell(&mut part, *index);
            part
        });
        let further: Vec<Value> = further.collect();
        if !further.is_empty() {
            detail["further"] = further.into();
        }
        let verdict = match (self.denials.len() > before, indices.is_empty()) {
            (true, _) => "denied",
            (false, true) => "allowed",
            (false, false) if policy.fails_open && !binding.actions.iter().any(|action| action != "Deny") => "failed open",
            (false, false) => "noted",
        };
        write.context.trace.step_with("validate", policy.name.to_string(), verdict, since, Some(detail));
    }

    /// A validation failed: what the binding wants to come of it.
    fn deny(&mut self, policy: &Policy, binding: &Binding, index: usize, message: String, reason: &str) {
        let trace = &self.write.context.trace;
        for action in &binding.actions {
            match action.as_str() {
                "Deny" => self.denials.push(Denial {
                    policy: policy.name.clone(),
                    binding: Some(binding.name.clone()),
                    message: message.clone(),
                    reason: reason.to_owned(),
                }),
                "Warn" => trace.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                    policy.name, binding.name
                )),
                "Audit" if self.failures.len() < MAX_FAILURES => self.failures.push(format!(
                    "{{\"message\":{},\"policy\":{},\"binding\":{},\"expressionIndex\":{index},\"validationActions\":{}}}",
                    go_json(&message),
                    go_json(&policy.name),
                    go_json(&binding.name),
                    json!(binding.actions)
                )),
                _ => {}
            }
        }
    }

    fn annotate<'p>(&mut self, policy: &'p Policy, binding: &Binding, activation: &Activation<'p>) {
        let mut budget = Budget::new(RUNTIME_BUDGET);
        for (key, expression) in &policy.audit_annotations {
            let value = run(expression, activation, &mut budget).map(|value| match value {
                usher_cel::Value::String(text) => Some(text.trim().to_owned()),
                _ => None,
            });
            match value {
                Ok(Some(mut text)) if !text.is_empty() => {
                    if text.len() > MAX_ANNOTATION_BYTES {
                        let cut = (0..=MAX_ANNOTATION_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
                        text.truncate(cut);
                    }
                    let values = self.annotations.entry(format!("{}/{key}", policy.name)).or_default();
                    if !values.contains(&text) {
                        values.push(text);
                    }
                }
                Ok(_) => {}
                Err(_) if policy.fails_open => {}
                Err(why) => self.denials.push(Denial {
                    policy: policy.name.clone(),
                    binding: Some(binding.name.clone()),
                    message: why,
                    reason: String::new(),
                }),
            }
        }
    }

    fn finish(self) -> Result<(), Status> {
        for (key, values) in self.annotations {
            self.write.context.trace.annotate(key, values.join(", "));
        }
        if !self.failures.is_empty() {
            let all = format!("[{}]", self.failures.join(","));
            self.write.context.trace.annotate("validation.policy.admission.k8s.io/validation_failure", all);
        }
        match self.denials.into_iter().next() {
            Some(denial) => Err(denial.into_status(self.write, "ValidatingAdmissionPolicy")),
            None => Ok(()),
        }
    }
}

/// A text as Go's encoder writes it: what could be markup is escaped.
fn go_json(text: &str) -> String {
    let text = json!(text).to_string();
    text.replace('&', "\\u0026")
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Why an expression gave nothing.
enum Evaluation {
    Failed(String),
    OutOfBudget(String),
}

/// Evaluates an expression; errors in the words of a real server.
pub fn run<'a>(expression: &'a Expression, activation: &Activation<'a>, budget: &mut Budget) -> Result<usher_cel::Value<'a>, String> {
    let program = expression.program.as_ref().map_err(Clone::clone)?;
    program.evaluate(activation, budget).map(|evaluation| evaluation.value).map_err(|error| failure(&expression.source, &error))
}

fn evaluate<'a>(expression: &'a Expression, activation: &Activation<'a>, budget: &mut Budget) -> Result<Option<bool>, Evaluation> {
    let program = expression.program.as_ref().map_err(|error| Evaluation::Failed(error.clone()))?;
    match program.evaluate(activation, budget) {
        Ok(evaluation) => Ok(evaluation.value.as_bool()),
        Err(EvalError::BudgetExhausted) => Err(Evaluation::OutOfBudget(EvalError::BudgetExhausted.to_string())),
        Err(error) => Err(Evaluation::Failed(failure(&expression.source, &error))),
    }
}

/// The values of the parts of an expression that came out wrong, for whoever asks why. Evaluated anew: it is only worth it then.
fn values<'a>(expression: &'a Expression, activation: &Activation<'a>) -> Value {
    let Ok(program) = &expression.program else { return Value::Null };
    program.explain(activation, &mut Budget::new(RUNTIME_BUDGET)).told(MAX_VALUES, MAX_VALUE_BYTES).into()
}

/// What a failed validation says: what its expression computes, what it was given, or the expression itself.
fn message<'a>(validation: &'a Validation, activation: &Activation<'a>, budget: &mut Budget) -> String {
    let computed = validation.message_expression.as_ref().and_then(|expression| run(expression, activation, budget).ok());
    let computed = computed.as_ref().and_then(|value| value.as_str()).map(str::trim).unwrap_or_default();
    if !computed.is_empty() && computed.len() <= MAX_MESSAGE_BYTES && !computed.contains('\n') {
        return computed.to_owned();
    }
    match validation.message.is_empty() {
        false => validation.message.clone(),
        true => format!("failed expression: {}", validation.expression.source.trim()),
    }
}
