//! What the variables of an expression stand for in one evaluation.

use std::cell::RefCell;

use serde_json::Value as Json;

use crate::error::EvalError;
use crate::library::authorizer::{Authorization, Authorizer, CheckAttributes};
use crate::program::Program;
use crate::value::Value;

/// The values of variables. Documents are borrowed, not copied.
///
/// Programs must outlive the activation they are evaluated with: compile first, then bind.
#[derive(Default)]
pub struct Activation<'a> {
    bindings: Vec<(&'a str, Binding<'a>)>,
    policy_variables: Vec<(&'a str, &'a Program)>,
    memo: RefCell<Vec<Memo<'a>>>,
}

#[derive(Clone)]
pub(crate) enum Binding<'a> {
    Json(&'a Json),
    OptionalJson(Option<&'a Json>),
    Value(Value<'a>),
}

/// The state of a policy variable.
#[derive(Clone)]
enum Memo<'a> {
    Unknown,
    /// On its way; asking for it again would never end.
    Evaluating,
    Known(Result<Value<'a>, EvalError>),
}

impl<'a> Activation<'a> {
    /// An activation without variables.
    pub fn new() -> Self {
        Activation::default()
    }

    fn set(mut self, name: &'a str, binding: Binding<'a>) -> Self {
        self.bindings.retain(|(n, _)| *n != name);
        self.bindings.push((name, binding));
        self
    }

    /// Binds a document.
    pub fn bind(self, name: &'a str, json: &'a Json) -> Self {
        self.set(name, Binding::Json(json))
    }

    /// Binds a document that may be missing to a variable of optional type.
    pub fn bind_optional(self, name: &'a str, json: Option<&'a Json>) -> Self {
        self.set(name, Binding::OptionalJson(json))
    }

    /// Binds any value.
    pub fn bind_value(self, name: &'a str, value: Value<'a>) -> Self {
        self.set(name, Binding::Value(value))
    }

    /// Binds `authorizer`, and `authorizer.requestResource` if the request is for a resource.
    pub fn bind_authorizer(self, authorizer: &'a dyn Authorizer, request_resource: Option<CheckAttributes>) -> Self {
        let activation = self.bind_value("authorizer", Authorization::value(authorizer));
        match request_resource {
            Some(attributes) => {
                activation.bind_value("authorizer.requestResource", Authorization::request_resource(authorizer, attributes))
            }
            None => activation,
        }
    }

    /// Adds `variables.name`. The program runs when an expression first asks for it, once; its cost is taken from
    /// the budget of that evaluation, not from its per-call limit.
    pub fn policy_variable(mut self, name: &'a str, program: &'a Program) -> Self {
        self.policy_variables.push((name, program));
        self.memo.get_mut().push(Memo::Unknown);
        self
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Binding<'a>> {
        self.bindings.iter().find(|(n, _)| *n == name).map(|(_, b)| b)
    }

    /// The value of a policy variable; `run` evaluates its program.
    pub(crate) fn variable(
        &self,
        name: &str,
        run: impl FnOnce(&'a Program) -> Result<Value<'a>, EvalError>,
    ) -> Option<Result<Value<'a>, EvalError>> {
        let at = self.policy_variables.iter().position(|(n, _)| *n == name)?;
        let known = std::mem::replace(self.memo.borrow_mut().get_mut(at)?, Memo::Evaluating);
        let result = match known {
            Memo::Known(result) => result,
            Memo::Evaluating => Err(crate::error::failed(format!("variables.{name} refers to itself"))),
            Memo::Unknown => run(self.policy_variables[at].1),
        };
        if let Some(memo) = self.memo.borrow_mut().get_mut(at) {
            *memo = Memo::Known(result.clone());
        }
        Some(result)
    }
}
