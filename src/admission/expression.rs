//! CEL as admission uses it: what expressions of webhooks and policies can refer to, and what those variables stand for in one
//! request. The language itself is the crate `usher-cel`.

use std::sync::Arc;

use futures::FutureExt;
use serde_json::Value;
use usher_cel::{Activation, Budget, CheckAttributes, CompileError, Decision, Environment, MATCH_CONDITIONS_BUDGET, Program, Type};

use super::{Cluster, Write, review};
use crate::authz::{self, Attributes};
use crate::registry::Resource;
use crate::request::{RequestInfo, User};

/// What a use site declares beyond the request and its objects.
#[derive(Clone, Copy, Debug, Default)]
pub struct Site {
    /// `params`, where a policy has a `paramKind`.
    pub params: bool,
    /// `authorizer`; everywhere but in message expressions.
    pub authorizer: bool,
    /// The types `Object` and `JSONPatch` of mutating policies.
    pub mutation: bool,
}

/// The variables and types that a site declares.
pub fn environment(site: Site) -> Environment {
    let text_map = || Type::map(Type::String, Type::String);
    let mut environment = Environment::kubernetes()
        .object_type("kubernetes.GroupVersionKind", [("group", Type::String), ("version", Type::String), ("kind", Type::String)])
        .object_type("kubernetes.GroupVersionResource", [("group", Type::String), ("version", Type::String), ("resource", Type::String)])
        .object_type(
            "kubernetes.UserInfo",
            [
                ("username", Type::String),
                ("uid", Type::String),
                ("groups", Type::list(Type::String)),
                ("extra", Type::map(Type::String, Type::list(Type::String))),
            ],
        )
        .object_type(
            "kubernetes.AdmissionRequest",
            [
                ("kind", Type::object("kubernetes.GroupVersionKind")),
                ("resource", Type::object("kubernetes.GroupVersionResource")),
                ("subResource", Type::String),
                ("requestKind", Type::object("kubernetes.GroupVersionKind")),
                ("requestResource", Type::object("kubernetes.GroupVersionResource")),
                ("requestSubResource", Type::String),
                ("name", Type::String),
                ("namespace", Type::String),
                ("operation", Type::String),
                ("userInfo", Type::object("kubernetes.UserInfo")),
                ("dryRun", Type::Bool),
                ("options", Type::Dyn),
            ],
        )
        .object_type(
            "kubernetes.NamespaceMetadata",
            [
                ("name", Type::String),
                ("generateName", Type::String),
                ("namespace", Type::String),
                ("labels", text_map()),
                ("annotations", text_map()),
                ("UID", Type::String),
                ("uid", Type::String),
                ("creationTimestamp", Type::Timestamp),
                ("deletionGracePeriodSeconds", Type::Int),
                ("deletionTimestamp", Type::Timestamp),
                ("generation", Type::Int),
                ("resourceVersion", Type::String),
                ("finalizers", Type::list(Type::String)),
            ],
        )
        .object_type("kubernetes.NamespaceSpec", [("finalizers", Type::list(Type::String))])
        .object_type("kubernetes.NamespaceStatus", [("phase", Type::String), ("conditions", Type::list(Type::Dyn))])
        .object_type(
            "kubernetes.Namespace",
            [
                ("metadata", Type::object("kubernetes.NamespaceMetadata")),
                ("spec", Type::object("kubernetes.NamespaceSpec")),
                ("status", Type::object("kubernetes.NamespaceStatus")),
            ],
        )
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .variable("request", Type::object("kubernetes.AdmissionRequest"))
        .variable("namespaceObject", Type::object("kubernetes.Namespace"));
    if site.params {
        environment = environment.variable("params", Type::Dyn);
    }
    if site.authorizer {
        environment = environment.with_authorizer();
    }
    if site.mutation {
        environment = environment.with_mutation_types().with_jsonpatch();
    }
    environment
}

/// Why an expression could not be compiled, as field errors tell it.
pub fn compile_error(error: &CompileError) -> String {
    match error {
        CompileError::Issues(issues) => format!("compilation failed: {issues}"),
        CompileError::Program { message, .. } => format!("program instantiation failed: {message}"),
    }
}

/// A failed evaluation as a real server words it.
pub fn failure(source: &str, error: &usher_cel::EvalError) -> String {
    match error {
        usher_cel::EvalError::BudgetExhausted => error.to_string(),
        _ => format!("expression '{source}' resulted in error: {error}"),
    }
}

/// What the variables stand for in one request.
pub struct Input<'a> {
    /// `object`.
    pub object: &'a Value,
    /// `oldObject`.
    pub old: &'a Value,
    /// `request`.
    pub request: Value,
    /// `namespaceObject`.
    pub namespace: Arc<Value>,
    /// `authorizer`.
    pub authorizer: RequestAuthorizer,
    resource_check: CheckAttributes,
}

impl<'a> Input<'a> {
    /// The variables of a write whose rule meant `resource`.
    pub fn of(write: &'a Write, resource: &Resource, cluster: &Cluster, authorizer: &Arc<dyn authz::Authorizer>) -> Input<'a> {
        let namespace = match write.resource.namespaced {
            true => cluster.namespace(&write.namespace).map(|n| n.value().clone()).unwrap_or_default(),
            false => Arc::new(Value::Null),
        };
        Input {
            object: write.object(),
            old: write.old(),
            request: review::variable(write, resource),
            namespace,
            authorizer: RequestAuthorizer { chain: authorizer.clone(), user: write.user.clone() },
            resource_check: CheckAttributes {
                group: write.resource.group.to_string(),
                resource: write.resource.plural.to_string(),
                subresource: write.subresource.clone(),
                namespace: write.request_namespace().to_owned(),
                name: write.asked_name().to_owned(),
                ..CheckAttributes::default()
            },
        }
    }

    /// The activation of an expression; `params` where the policy has some.
    pub fn activation(&'a self, params: Option<&'a Value>) -> Activation<'a> {
        let activation = Activation::new()
            .bind("object", self.object)
            .bind("oldObject", self.old)
            .bind("request", &self.request)
            .bind("namespaceObject", &self.namespace)
            .bind_authorizer(&self.authorizer, Some(self.resource_check.clone()));
        match params {
            Some(params) => activation.bind("params", params),
            None => activation,
        }
    }
}

/// The server's authorisers as `authorizer` asks them, on behalf of the request's user.
pub struct RequestAuthorizer {
    chain: Arc<dyn authz::Authorizer>,
    user: Arc<User>,
}

impl usher_cel::Authorizer for RequestAuthorizer {
    fn check(&self, attributes: &CheckAttributes) -> Decision {
        let user = match &attributes.service_account {
            None => self.user.clone(),
            Some((namespace, name)) => {
                let all = format!("system:serviceaccounts:{namespace}");
                let groups = ["system:serviceaccounts", &all, "system:authenticated"];
                Arc::new(User::new(format!("system:serviceaccount:{namespace}:{name}"), &groups))
            }
        };
        let info = RequestInfo {
            is_resource: attributes.path.is_none(),
            path: attributes.path.clone().unwrap_or_default(),
            special_verb: attributes.verb.clone(),
            group: attributes.group.clone(),
            version: "*".into(),
            namespace: attributes.namespace.clone(),
            resource: attributes.resource.clone(),
            subresource: attributes.subresource.clone(),
            name: attributes.name.clone(),
            label_selector: attributes.label_selector.clone().unwrap_or_default(),
            field_selector: attributes.field_selector.clone().unwrap_or_default(),
            ..RequestInfo::default()
        };
        let attributes = Attributes { user, info: Arc::new(info) };
        // Expressions are evaluated in one go: an authoriser that has to ask somebody else first cannot take part.
        match self.chain.decide(&attributes).now_or_never() {
            Some(decision) => {
                Decision { allowed: decision.is_allow(), reason: decision.reason().to_owned(), error: decision.error().map(str::to_owned) }
            }
            None => Decision { allowed: false, reason: String::new(), error: Some("the authorizer did not answer at once".into()) },
        }
    }
}

/// The `matchConditions` of a webhook or a policy.
#[derive(Debug, Default)]
pub struct Conditions(Vec<Condition>);

#[derive(Debug)]
struct Condition {
    name: String,
    source: String,
    program: Result<Program, String>,
}

/// What the conditions said.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All hold.
    Holds,
    /// This one does not.
    Fails(String),
    /// None is false, and some could not be evaluated.
    Errors(String),
}

impl Conditions {
    /// Compiles conditions.
    pub fn compile(list: &Value, environment: &Environment) -> Conditions {
        let compile = |condition: &Value| {
            let source = condition["expression"].as_str().unwrap_or_default().to_owned();
            let program = environment.compile(&source).map_err(|error| compile_error(&error));
            Condition { name: condition["name"].as_str().unwrap_or_default().to_owned(), source, program }
        };
        Conditions(list.as_array().into_iter().flatten().map(compile).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Evaluates them all: one that is false decides, whatever others ran into.
    pub fn evaluate(&self, input: &Input<'_>, params: Option<&Value>) -> Verdict {
        let mut budget = Budget::new(MATCH_CONDITIONS_BUDGET);
        let activation = input.activation(params);
        let mut errors = Vec::new();
        for condition in &self.0 {
            let program = match &condition.program {
                Ok(program) => program,
                Err(error) => {
                    errors.push(error.clone());
                    continue;
                }
            };
            match program.evaluate(&activation, &mut budget) {
                Ok(evaluation) if evaluation.value.as_bool() == Some(false) => return Verdict::Fails(condition.name.clone()),
                Ok(_) => {}
                Err(error) => errors.push(failure(&condition.source, &error)),
            }
        }
        match errors.len() {
            0 => Verdict::Holds,
            1 => Verdict::Errors(errors.remove(0)),
            _ => Verdict::Errors(format!("[{}]", errors.join(", "))),
        }
    }
}
