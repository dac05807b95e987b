//! The type checker: gives every node a type, finds the overloads that each call can mean, and reports what does
//! not fit in Kubernetes' words. What can only be seen in literals is checked in
//! [`crate::validate`].

use std::sync::Arc;

use crate::ast::{Ast, Comprehension, Entry, Expr, ExprId, Literal, Macro, operators};
use crate::declarations::{self, Function, Overload};
use crate::environment::Environment;
use crate::source::Finding;
use crate::types::{Type, named_type, signature};
use crate::unify::{Substitution, instantiate, most_general};

/// What a name or a call stands for.
#[derive(Clone, Default)]
pub(crate) enum Reference {
    #[default]
    None,
    /// A variable of the environment.
    Variable(Arc<str>),
    /// The name of a type.
    Type(Type),
    /// A function.
    Function {
        name: &'static str,
        /// Whether what looks like a target is a part of the function's name.
        namespaced: bool,
        overloads: Vec<&'static Overload>,
    },
}

/// A checked expression.
pub(crate) struct Checked {
    pub ast: Ast,
    pub types: Vec<Type>,
    pub references: Vec<Reference>,
}

impl Checked {
    pub fn type_of(&self, id: ExprId) -> &Type {
        &self.types[id as usize]
    }

    pub fn reference(&self, id: ExprId) -> &Reference {
        &self.references[id as usize]
    }

    /// What a call node calls.
    pub fn function(&self, id: ExprId) -> Option<Called<'_>> {
        let Expr::Call { function, target, args } = self.ast.expr(id) else {
            return None;
        };
        Some(match self.reference(id) {
            Reference::Function { name, namespaced, overloads } => {
                Called { function: name, target: target.filter(|_| !namespaced), args, overloads }
            }
            _ => Called { function, target: *target, args, overloads: &[] },
        })
    }
}

/// A call: the full name of the function, its target if it has one, its arguments and what it can mean.
pub(crate) struct Called<'c> {
    pub function: &'c str,
    pub target: Option<ExprId>,
    pub args: &'c [ExprId],
    pub overloads: &'c [&'static Overload],
}

pub(crate) fn check(ast: Ast, environment: &Environment) -> Result<Checked, Vec<Finding>> {
    let count = ast.nodes.len();
    let mut checker = Checker {
        ast: &ast,
        environment,
        types: vec![Type::Error; count],
        references: vec![Reference::None; count],
        substitution: Substitution::default(),
        locals: Vec::new(),
        issues: Vec::new(),
    };
    checker.check(ast.root);
    let Checker { mut types, references, substitution, issues, .. } = checker;
    if !issues.is_empty() {
        return Err(issues);
    }
    for t in &mut types {
        *t = substitution.resolve(t, true);
    }
    Ok(Checked { ast, types, references })
}

struct Checker<'c> {
    ast: &'c Ast,
    environment: &'c Environment,
    types: Vec<Type>,
    references: Vec<Reference>,
    substitution: Substitution,
    locals: Vec<(Arc<str>, Type)>,
    issues: Vec<Finding>,
}

impl Checker<'_> {
    fn report(&mut self, offset: u32, message: String) {
        self.issues.push(Finding::new(offset, message));
    }

    fn report_at(&mut self, id: ExprId, message: String) {
        self.report(self.ast.offsets[id as usize], message);
    }

    fn mismatch(&mut self, id: ExprId, expected: &Type, found: &Type) {
        let message = format!("expected type '{}' but found '{}'", expected.in_messages(), found.in_messages());
        self.report_at(id, message);
    }

    fn undeclared(&mut self, id: ExprId, name: &str) -> Type {
        self.report_at(id, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    fn known(&self, id: ExprId) -> Type {
        self.types[id as usize].clone()
    }

    fn resolved(&self, t: &Type) -> Type {
        self.substitution.resolve(t, false)
    }

    /// Checks a node and gives its type. Recurses no deeper than the parser allows expressions to be.
    fn check(&mut self, id: ExprId) -> Type {
        let ast = self.ast;
        let t = match ast.expr(id) {
            Expr::Literal(literal) => match literal {
                Literal::Null => Type::Null,
                Literal::Bool(_) => Type::Bool,
                Literal::Int(_) => Type::Int,
                Literal::Uint(_) => Type::Uint,
                Literal::Double(_) => Type::Double,
                Literal::String(_) => Type::String,
                Literal::Bytes(_) => Type::Bytes,
            },
            Expr::Ident(name) => self.ident(id, name),
            Expr::Select { operand, field, test } => self.select(id, *operand, field, *test),
            Expr::Call { function, target, args } => self.call(id, function, *target, args),
            Expr::List { items, optional } => self.list(items, optional),
            Expr::Map(entries) => self.map(entries),
            Expr::Struct { name, fields } => self.message(id, name, fields),
            Expr::Comprehension(comprehension) => self.comprehension(id, comprehension),
            Expr::OptMap { target, var, body, flat } => self.opt_map(id, *target, var, *body, *flat),
        };
        self.types[id as usize] = t.clone();
        t
    }

    fn local(&self, name: &str) -> Option<&Type> {
        self.locals.iter().rev().find(|(n, _)| **n == *name).map(|(_, t)| t)
    }

    fn resolve_name(&mut self, id: ExprId, name: &str) -> Option<Type> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some((name, t)) = self.environment.find_variable(name) {
            self.references[id as usize] = Reference::Variable(name);
            return Some(t);
        }
        let named = named_type(name).or_else(|| self.environment.has_object(name).then(|| Type::object(name)));
        named.map(|t| {
            self.references[id as usize] = Reference::Type(t.clone());
            match t {
                Type::Type(None) => Type::type_of(Type::Type(None)),
                t => Type::type_of(t),
            }
        })
    }

    fn ident(&mut self, id: ExprId, name: &str) -> Type {
        if let Some(t) = self.local(name) {
            return t.clone();
        }
        match self.resolve_name(id, name) {
            Some(t) => t,
            None => self.undeclared(id, name),
        }
    }

    fn select(&mut self, id: ExprId, operand: ExprId, field: &str, test: bool) -> Type {
        if !test
            && let Some(name) = self.ast.qualified_name(id)
            && self.local(name.split('.').next().unwrap_or("")).is_none()
            && let Some(t) = self.resolve_name(id, &name)
        {
            return t;
        }
        let t = self.select_field(id, operand, field, false);
        if test { Type::Bool } else { self.resolved(&t) }
    }

    fn select_field(&mut self, id: ExprId, operand: ExprId, field: &str, optional: bool) -> Type {
        let operand_type = self.check(operand);
        let operand_type = self.resolved(&operand_type);
        let (target, is_optional) = match operand_type.unwrap_optional() {
            Some(inner) => (inner.clone(), true),
            None => (operand_type, false),
        };
        let result = match &target {
            Type::Map(entry) => entry.1.clone(),
            Type::Object(name) => self.field_type(self.ast.offsets[id as usize], name, field),
            Type::Variable(_) => {
                self.substitution.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                let message = format!("type '{}' does not support field selection", other.in_messages());
                self.report_at(id, message);
                Type::Dyn
            }
        };
        if is_optional || optional { Type::optional(result) } else { result }
    }

    fn field_type(&mut self, offset: u32, object: &str, field: &str) -> Type {
        match self.environment.field_type(object, field) {
            Some(t) => t,
            None => {
                self.report(offset, format!("undefined field '{field}'"));
                Type::Error
            }
        }
    }

    fn call(&mut self, id: ExprId, function: &str, target: Option<ExprId>, args: &[ExprId]) -> Type {
        if function == operators::OPT_SELECT {
            let Expr::Literal(Literal::String(field)) = self.ast.expr(args[1]) else {
                return Type::Error;
            };
            self.types[args[1] as usize] = Type::String;
            let t = self.select_field(id, args[0], field, true);
            return self.resolved(&t);
        }
        for arg in args {
            self.check(*arg);
        }
        let jsonpatch = self.environment.has_jsonpatch();
        let Some(target) = target else {
            let name = function.strip_prefix('.').unwrap_or(function);
            return match declarations::find(name, jsonpatch) {
                Some(found) => self.resolve_call(id, found, None, args, false),
                None => self.undeclared(id, function),
            };
        };
        if let Some(prefix) = self.ast.qualified_name(target)
            && let Some(found) = declarations::find(&format!("{}.{function}", prefix.trim_start_matches('.')), jsonpatch)
        {
            return self.resolve_call(id, found, None, args, true);
        }
        self.check(target);
        match declarations::find(function, jsonpatch) {
            Some(found) => self.resolve_call(id, found, Some(target), args, false),
            None => self.undeclared(id, function),
        }
    }

    fn resolve_call(&mut self, id: ExprId, function: &'static Function, target: Option<ExprId>, args: &[ExprId], namespaced: bool) -> Type {
        let arguments: Vec<Type> = target.iter().chain(args).map(|a| self.known(*a)).collect();
        if matches!(function.name, operators::AND | operators::OR) {
            return self.logical(id, function, args, &arguments);
        }
        match self.resolve_overloads(function, target.is_some(), &arguments) {
            Some((t, overloads)) => {
                self.references[id as usize] = Reference::Function { name: function.name, namespaced, overloads };
                t
            }
            None => self.no_overload(id, function.name, target.is_some(), &arguments),
        }
    }

    fn no_overload(&mut self, id: ExprId, function: &str, member: bool, arguments: &[Type]) -> Type {
        let arguments: Vec<Type> = arguments.iter().map(|t| self.substitution.resolve(t, true)).collect();
        let message = format!("found no matching overload for '{function}' applied to '{}'", signature(member, &arguments));
        self.report_at(id, message);
        Type::Error
    }

    fn logical(&mut self, id: ExprId, function: &'static Function, args: &[ExprId], arguments: &[Type]) -> Type {
        let mut fits = true;
        for (arg, t) in args.iter().zip(arguments) {
            if !self.substitution.assignable(t, &Type::Bool) {
                self.mismatch(*arg, &Type::Bool, t);
                fits = false;
            }
        }
        if !fits {
            return Type::Error;
        }
        self.references[id as usize] =
            Reference::Function { name: function.name, namespaced: false, overloads: function.overloads.iter().collect() };
        Type::Bool
    }

    fn resolve_overloads(
        &mut self,
        function: &'static Function,
        member: bool,
        arguments: &[Type],
    ) -> Option<(Type, Vec<&'static Overload>)> {
        let mut result: Option<Type> = None;
        let mut found = Vec::new();
        for overload in function.overloads.iter().filter(|o| o.member == member) {
            if overload.parameters.len() != arguments.len() {
                continue;
            }
            let (fits, t) = if overload.variables.is_empty() {
                let fits = self.substitution.assignable_all(arguments, overload.parameters.iter());
                (fits, overload.result.clone())
            } else {
                let variables: Vec<(char, Type)> = overload.variables.iter().map(|name| (*name, self.substitution.fresh())).collect();
                let parameters: Vec<Type> = overload.parameters.iter().map(|p| instantiate(p, &variables)).collect();
                let fits = self.substitution.assignable_all(arguments, parameters.iter());
                (fits, instantiate(&overload.result, &variables))
            };
            if !fits {
                continue;
            }
            found.push(overload);
            let t = self.resolved(&t);
            result = Some(match result {
                None => t,
                Some(earlier) if earlier.is_dyn() || earlier == t => earlier,
                Some(_) => Type::Dyn,
            });
        }
        result.map(|t| (t, found))
    }

    /// The type that covers both. Literals that mix types are found later, because `format` may have them.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else {
            return current;
        };
        if self.substitution.assignable(&previous, &current) {
            return most_general(&previous, &current).clone();
        }
        Type::Dyn
    }

    /// The type inside `?value`, which has to be optional.
    fn unwrap(&mut self, id: ExprId, t: Type) -> Type {
        let t = self.resolved(&t);
        match t.unwrap_optional() {
            Some(inner) => inner.clone(),
            None => {
                if !t.is_dyn_or_error() {
                    self.mismatch(id, &Type::optional(t.clone()), &t);
                }
                t
            }
        }
    }

    fn list(&mut self, items: &[ExprId], optional: &[usize]) -> Type {
        let mut element = None;
        for (i, item) in items.iter().enumerate() {
            let mut t = self.check(*item);
            if optional.contains(&i) {
                t = self.unwrap(*item, t);
            }
            element = Some(self.join(element, t));
        }
        Type::list(element.unwrap_or_else(|| self.substitution.fresh()))
    }

    fn map(&mut self, entries: &[Entry<ExprId>]) -> Type {
        let (mut key, mut value) = (None, None);
        for entry in entries {
            let t = self.check(entry.key);
            key = Some(self.join(key, t));
            let mut t = self.check(entry.value);
            if entry.optional {
                t = self.unwrap(entry.value, t);
            }
            value = Some(self.join(value, t));
        }
        let key = key.unwrap_or_else(|| self.substitution.fresh());
        let value = value.unwrap_or_else(|| self.substitution.fresh());
        Type::map(key, value)
    }

    fn message(&mut self, id: ExprId, name: &str, fields: &[Entry<Arc<str>>]) -> Type {
        let name = name.strip_prefix('.').unwrap_or(name);
        if !self.environment.has_object(name) {
            if named_type(name).is_some() {
                self.report_at(id, format!("'{name}' is not a message type"));
                return Type::Error;
            }
            return self.undeclared(id, name);
        }
        for field in fields {
            let mut t = self.check(field.value);
            if field.optional {
                t = self.unwrap(field.value, t);
            }
            let expected = self.field_type(field.offset, name, &field.key);
            if !self.substitution.assignable(&expected, &t) {
                let message = format!(
                    "expected type of field '{}' is '{}' but provided type is '{}'",
                    field.key,
                    expected.in_messages(),
                    t.in_messages()
                );
                self.report(field.offset, message);
            }
        }
        Type::object(name)
    }

    /// The types of one or two loop variables.
    fn loop_variables(&mut self, range: ExprId, two: bool) -> (Type, Type) {
        let range_type = self.check(range);
        let range_type = self.resolved(&range_type);
        match &range_type {
            Type::List(element) if two => (Type::Int, (**element).clone()),
            Type::List(element) => ((**element).clone(), Type::Error),
            Type::Map(entry) => (entry.0.clone(), entry.1.clone()),
            Type::Dyn | Type::Error | Type::Variable(_) => {
                self.substitution.assignable(&Type::Dyn, &range_type);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    other.in_messages()
                );
                self.report_at(range, message);
                (Type::Error, Type::Error)
            }
        }
    }

    fn comprehension(&mut self, id: ExprId, c: &Comprehension) -> Type {
        let (first, second) = self.loop_variables(c.range, c.var2.is_some());
        let outer = self.locals.len();
        self.locals.push((c.var.clone(), first.clone()));
        if let Some(var2) = &c.var2 {
            self.locals.push((var2.clone(), second));
        }
        if let Some(filter) = c.filter {
            self.check(filter);
        }
        let body = self.check(c.body);
        self.locals.truncate(outer);
        match c.kind {
            Macro::All | Macro::Exists => {
                if !self.substitution.assignable(&body, &Type::Bool) {
                    self.mismatch(c.body, &Type::Bool, &body);
                }
                Type::Bool
            }
            Macro::ExistsOne => {
                self.condition(id, body, Type::Int);
                Type::Bool
            }
            Macro::Filter => {
                let list = Type::list(first);
                self.condition(id, body, list.clone());
                self.resolved(&list)
            }
            Macro::Map => {
                let list = Type::list(body);
                self.filter(id, c.filter, &list);
                self.resolved(&list)
            }
            Macro::TransformMap => {
                let map = Type::map(first, body);
                self.filter(id, c.filter, &map);
                self.resolved(&map)
            }
            Macro::TransformMapEntry => {
                let entry = Type::map(self.substitution.fresh(), self.substitution.fresh());
                if !self.substitution.assignable(&body, &entry) {
                    return self.no_overload(id, "cel.@mapInsert", false, &[entry, body]);
                }
                self.filter(id, c.filter, &entry);
                self.resolved(&entry)
            }
            Macro::SortBy => self.sort_by(id, c.range, body),
        }
    }

    fn filter(&mut self, id: ExprId, filter: Option<ExprId>, result: &Type) {
        if let Some(filter) = filter {
            let t = self.known(filter);
            self.condition(id, t, result.clone());
        }
    }

    /// Reports a condition that is not `bool` as the ternary operator that the macro stands for would.
    fn condition(&mut self, id: ExprId, condition: Type, result: Type) {
        if !self.substitution.assignable(&condition, &Type::Bool) {
            self.no_overload(id, operators::CONDITIONAL, false, &[condition, result.clone(), result]);
        }
    }

    fn sort_by(&mut self, id: ExprId, range: ExprId, key: Type) -> Type {
        let name = "@sortByAssociatedKeys";
        let arguments = [self.known(range), Type::list(key)];
        let resolved = declarations::find(name, false).and_then(|f| self.resolve_overloads(f, true, &arguments));
        match resolved {
            Some((t, overloads)) => {
                self.references[id as usize] = Reference::Function { name: "@sortByAssociatedKeys", namespaced: false, overloads };
                t
            }
            None => self.no_overload(id, name, true, &arguments),
        }
    }

    fn opt_map(&mut self, id: ExprId, target: ExprId, var: &Arc<str>, body: ExprId, flat: bool) -> Type {
        let target_type = self.check(target);
        let inner = self.substitution.fresh();
        if !self.substitution.assignable(&target_type, &Type::optional(inner.clone())) {
            return self.no_overload(id, "hasValue", true, &[target_type]);
        }
        self.locals.push((var.clone(), self.resolved(&inner)));
        let body_type = self.check(body);
        self.locals.pop();
        if !flat {
            return Type::optional(body_type);
        }
        let none = Type::optional(self.substitution.fresh());
        if !self.substitution.assignable(&body_type, &none) {
            return self.no_overload(id, operators::CONDITIONAL, false, &[Type::Bool, body_type, none]);
        }
        self.resolved(most_general(&body_type, &none))
    }
}
