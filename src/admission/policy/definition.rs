//! A policy and a binding, compiled: criteria, conditions, lazy variables, and either validations or mutations. What does not compile
//! is kept as its error, since a policy written before may outlive what it was checked against.

use std::sync::Arc;

use serde_json::Value;
use usher_cel::{Environment, Program};

use crate::admission::expression::{Conditions, Site, compile_error, environment};
use crate::admission::matching::Criteria;
use crate::object::meta;

/// A compiled expression with its text.
#[derive(Debug)]
pub struct Expression {
    /// The text.
    pub source: String,
    /// What it compiled to.
    pub program: Result<Program, String>,
}

impl Expression {
    fn compile(source: &str, environment: &Environment) -> Expression {
        Expression { source: source.to_owned(), program: environment.compile(source).map_err(|error| compile_error(&error)) }
    }
}

/// One entry of `validations`.
#[derive(Debug)]
pub struct Validation {
    /// What must be true.
    pub expression: Expression,
    /// The words where it is not.
    pub message: String,
    /// The same, computed.
    pub message_expression: Option<Expression>,
    /// The reason of the denial; empty is `Invalid`.
    pub reason: String,
}

/// One entry of `mutations`.
#[derive(Debug)]
pub enum Mutation {
    /// An object to be merged in, as by server-side apply.
    Apply(Expression),
    /// Operations of a JSON Patch.
    JsonPatch(Expression),
}

/// A policy of either sort.
#[derive(Debug)]
pub struct Policy {
    /// Its name.
    pub name: Arc<str>,
    /// `matchConstraints`.
    pub criteria: Criteria,
    /// `matchConditions`.
    pub conditions: Conditions,
    /// `variables`, in order; evaluated when first asked for.
    pub variables: Vec<(String, Expression)>,
    /// Of a validating policy.
    pub validations: Vec<Validation>,
    /// Of a validating policy: keys and values.
    pub audit_annotations: Vec<(String, Expression)>,
    /// Of a mutating policy.
    pub mutations: Vec<Mutation>,
    /// Whether `failurePolicy` is `Ignore`.
    pub fails_open: bool,
    /// Whether `reinvocationPolicy` is `IfNeeded`.
    pub reinvocable: bool,
    /// The apiVersion and kind of its parameters.
    pub param_kind: Option<(String, String)>,
    /// Whether it comes from a manifest: such a policy guards also what the API can configure.
    pub is_static: bool,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Policy {
    /// Compiles a policy of either sort.
    pub fn compile(object: &Value) -> Policy {
        let spec = &object["spec"];
        let is_mutating = object["kind"] == "MutatingAdmissionPolicy";
        let param_kind = spec["paramKind"]
            .as_object()
            .map(|_| (text(&spec["paramKind"]["apiVersion"]).to_owned(), text(&spec["paramKind"]["kind"]).to_owned()));
        let site = Site { params: param_kind.is_some(), authorizer: true, mutation: is_mutating };
        // Conditions come before variables and cannot refer to them.
        let plain = environment(site);
        let conditions = Conditions::compile(&spec["matchConditions"], &plain);
        let (mut full, mut messages) =
            (plain.with_policy_variables(), environment(Site { authorizer: false, ..site }).with_policy_variables());
        let mut variables = Vec::new();
        for variable in spec["variables"].as_array().into_iter().flatten() {
            let name = text(&variable["name"]);
            let expression = Expression::compile(text(&variable["expression"]), &full);
            if let Ok(program) = &expression.program {
                full = full.policy_variable(name, program.output_type().clone());
                messages = messages.policy_variable(name, program.output_type().clone());
            }
            variables.push((name.to_owned(), expression));
        }
        let validation = |validation: &Value| Validation {
            expression: Expression::compile(text(&validation["expression"]), &full),
            message: text(&validation["message"]).trim().to_owned(),
            message_expression: validation["messageExpression"]
                .as_str()
                .filter(|m| !m.is_empty())
                .map(|m| Expression::compile(m, &messages)),
            reason: text(&validation["reason"]).to_owned(),
        };
        let annotation =
            |annotation: &Value| (text(&annotation["key"]).to_owned(), Expression::compile(text(&annotation["valueExpression"]), &full));
        let mutation = |mutation: &Value| match mutation["patchType"].as_str() {
            Some("JSONPatch") => Mutation::JsonPatch(Expression::compile(text(&mutation["jsonPatch"]["expression"]), &full)),
            _ => Mutation::Apply(Expression::compile(text(&mutation["applyConfiguration"]["expression"]), &full)),
        };
        let list = |field: &str| spec[field].as_array().into_iter().flatten();
        Policy {
            name: meta(object, "name").into(),
            criteria: Criteria::from_value(&spec["matchConstraints"]),
            conditions,
            variables,
            validations: list("validations").map(validation).collect(),
            audit_annotations: list("auditAnnotations").map(annotation).collect(),
            mutations: list("mutations").map(mutation).collect(),
            fails_open: spec["failurePolicy"] == "Ignore",
            reinvocable: spec["reinvocationPolicy"] == "IfNeeded",
            param_kind,
            is_static: meta(object, "name").ends_with(crate::admission::manifest::SUFFIX),
        }
    }
}

/// A binding: where a policy is in force, with what parameters and what consequences.
#[derive(Debug)]
pub struct Binding {
    /// Its name.
    pub name: Arc<str>,
    /// The policy that it binds.
    pub policy: Arc<str>,
    /// `matchResources`; nothing is no restriction.
    pub criteria: Option<Criteria>,
    /// `paramRef`.
    pub param_ref: Option<ParamRef>,
    /// `validationActions`, in order.
    pub actions: Vec<String>,
}

/// Which objects parameterise a policy.
#[derive(Clone, Debug)]
pub struct ParamRef {
    /// One by its name.
    pub name: Option<String>,
    /// In that namespace, or that of the request.
    pub namespace: Option<String>,
    /// Or all that a selector selects.
    pub selector: Option<crate::object::selector::LabelSelector>,
    /// Whether none is a denial.
    pub deny_if_missing: bool,
}

impl Binding {
    /// Compiles a binding of either sort.
    pub fn compile(object: &Value) -> Binding {
        let spec = &object["spec"];
        let reference = &spec["paramRef"];
        let given = |field: &str| reference[field].as_str().filter(|t| !t.is_empty()).map(str::to_owned);
        Binding {
            name: meta(object, "name").into(),
            policy: text(&spec["policyName"]).into(),
            criteria: spec["matchResources"].is_object().then(|| Criteria::of_binding(&spec["matchResources"])),
            param_ref: reference.is_object().then(|| ParamRef {
                name: given("name"),
                namespace: given("namespace"),
                selector: crate::object::selector::LabelSelector::from_value(&reference["selector"]),
                deny_if_missing: reference["parameterNotFoundAction"] == "Deny",
            }),
            actions: spec["validationActions"].as_array().into_iter().flatten().map(|a| text(a).to_owned()).collect(),
        }
    }
}
