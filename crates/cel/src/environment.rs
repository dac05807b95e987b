//! What an expression can refer to: variables, types with fields, and the libraries that not every use site has.
//! Compiles expressions. Nothing here is evaluated.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::check::{self, Checked};
use crate::cost;
use crate::error::CompileError;
use crate::parser;
use crate::plan;
use crate::program::Program;
use crate::schema::Schema;
use crate::source::Issues;
use crate::types::Type;
use crate::validate;

/// What expressions of one use site can refer to.
///
/// ```
/// use serde_json::json;
/// use usher_cel::{Activation, Budget, Environment, Type};
///
/// let environment = Environment::kubernetes().variable("object", Type::Dyn);
/// let program = environment.compile("object.spec.replicas <= 5").unwrap();
///
/// let object = json!({"spec": {"replicas": 3}});
/// let activation = Activation::new().bind("object", &object);
/// let evaluation = program.evaluate(&activation, &mut Budget::default()).unwrap();
/// assert_eq!(evaluation.value.as_bool(), Some(true));
/// assert_eq!(evaluation.cost, 4);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: HashMap<Arc<str>, Variable>,
    objects: HashMap<Arc<str>, BTreeMap<Arc<str>, Type>>,
    /// The object types that are open: any field, of any type.
    mutation: bool,
    jsonpatch: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub cel_type: Type,
    pub schema: Option<Arc<Schema>>,
}

const AUTHORIZER: &str = "authorizer";
const REQUEST_RESOURCE: &str = "authorizer.requestResource";
/// The variable whose fields are the named expressions of a policy.
pub(crate) const VARIABLES: &str = "variables";
const VARIABLES_TYPE: &str = "kubernetes.variables";

impl Environment {
    /// The functions and types of Kubernetes 1.37, and no variables.
    pub fn kubernetes() -> Self {
        Environment::default()
    }

    /// Declares a variable. The name may be dotted.
    pub fn variable(mut self, name: &str, cel_type: Type) -> Self {
        let variable = Variable { cel_type, schema: None };
        self.variables.insert(name.into(), variable);
        self
    }

    /// Declares a variable that is JSON of a schema: `self` of a custom resource's rule.
    pub fn schema_variable(mut self, name: &str, schema: Arc<Schema>) -> Self {
        self.declare_schema(&schema);
        let variable = Variable { cel_type: schema.cel_type(), schema: Some(schema) };
        self.variables.insert(name.into(), variable);
        self
    }

    /// As [`schema_variable`](Self::schema_variable), but optional: `oldSelf` with `optionalOldSelf`.
    pub fn optional_schema_variable(mut self, name: &str, schema: Arc<Schema>) -> Self {
        self.declare_schema(&schema);
        let variable = Variable { cel_type: Type::optional(schema.cel_type()), schema: Some(schema) };
        self.variables.insert(name.into(), variable);
        self
    }

    fn declare_schema(&mut self, schema: &Schema) {
        schema.each_object(&mut |name, fields| {
            self.objects.insert(name.clone(), fields.clone());
        });
    }

    /// Declares a type with fields, such as `kubernetes.AdmissionRequest`.
    pub fn object_type<'f>(mut self, name: &str, fields: impl IntoIterator<Item = (&'f str, Type)>) -> Self {
        let fields = fields.into_iter().map(|(name, t)| (name.into(), t)).collect();
        self.objects.insert(name.into(), fields);
        self
    }

    /// Adds a field to `variables`, with the type of the expression that it stands for. Declares `variables` itself.
    pub fn policy_variable(mut self, name: &str, cel_type: Type) -> Self {
        self = self.with_policy_variables();
        self.objects.entry(VARIABLES_TYPE.into()).or_default().insert(name.into(), cel_type);
        self
    }

    /// Declares `variables`, without any fields yet.
    pub fn with_policy_variables(mut self) -> Self {
        self.objects.entry(VARIABLES_TYPE.into()).or_default();
        self.variable(VARIABLES, Type::object(VARIABLES_TYPE))
    }

    /// Declares `authorizer` and `authorizer.requestResource`.
    pub fn with_authorizer(self) -> Self {
        self.variable(AUTHORIZER, Type::object("kubernetes.authorization.Authorizer"))
            .variable(REQUEST_RESOURCE, Type::object("kubernetes.authorization.ResourceCheck"))
    }

    /// Declares the type `JSONPatch` and `jsonpatch.escapeKey`.
    pub fn with_jsonpatch(mut self) -> Self {
        self.jsonpatch = true;
        self.object_type("JSONPatch", [("op", Type::String), ("path", Type::String), ("from", Type::String), ("value", Type::Dyn)])
    }

    /// Declares the types `Object`, `Object.spec` and so on, which mutating policies write.
    pub fn with_mutation_types(mut self) -> Self {
        self.mutation = true;
        self
    }

    pub(crate) fn has_jsonpatch(&self) -> bool {
        self.jsonpatch
    }

    pub(crate) fn find_variable(&self, name: &str) -> Option<(Arc<str>, Type)> {
        self.variables.get_key_value(name).map(|(name, v)| (name.clone(), v.cel_type.clone()))
    }

    pub(crate) fn find_schema(&self, name: &str) -> Option<&Arc<Schema>> {
        self.variables.get(name)?.schema.as_ref()
    }

    fn is_mutation_type(&self, name: &str) -> bool {
        self.mutation && (name == "Object" || name.starts_with("Object."))
    }

    pub(crate) fn has_object(&self, name: &str) -> bool {
        self.objects.contains_key(name) || self.is_mutation_type(name)
    }

    pub(crate) fn field_type(&self, object: &str, field: &str) -> Option<Type> {
        if self.is_mutation_type(object) {
            return Some(Type::Dyn);
        }
        self.objects.get(object)?.get(field).cloned()
    }

    /// The names that can start an expression or follow a dot, for completion.
    pub fn completions(&self) -> Vec<String> {
        let mut names: Vec<String> = self.variables.keys().map(|n| n.to_string()).collect();
        names.extend(crate::declarations::names().filter(|n| self.jsonpatch || !n.starts_with("jsonpatch")).map(str::to_owned));
        names.sort();
        names
    }

    fn check(&self, source: &str) -> Result<Checked, CompileError> {
        let issues = |issues| CompileError::Issues(Issues::new(source, issues));
        let ast = parser::parse(source).map_err(issues)?;
        let checked = check::check(ast, self).map_err(issues)?;
        let found = validate::validate(&checked);
        if found.is_empty() { Ok(checked) } else { Err(issues(found)) }
    }

    /// Parses, checks and plans an expression.
    ///
    /// ```
    /// use usher_cel::Environment;
    ///
    /// let error = Environment::kubernetes().compile("foo == 1").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo == 1\n | ^"
    /// );
    /// ```
    pub fn compile(&self, source: &str) -> Result<Program, CompileError> {
        let checked = self.check(source)?;
        let cost = cost::estimate(&checked, self);
        let output_type = checked.type_of(checked.ast.root).clone();
        match plan::plan(&checked, self) {
            Ok(plan) => Ok(Program::new(source, &checked, plan, output_type, cost)),
            Err(error) => Err(CompileError::Program { message: error.to_string(), output_type, cost }),
        }
    }
}
