//! Evaluates a plan. Every step charges what Kubernetes charges, in the same cases: an operator is charged even if
//! an operand failed, a call only if all its arguments were evaluated. Loops are in [`crate::fold`], selections in
//! [`crate::attribute`].

use std::sync::Arc;

use crate::activation::{Activation, Binding};
use crate::ast::ExprId;
use crate::cost::runtime;
use crate::cost::{LIST_CREATE, MAP_CREATE, STRUCT_CREATE};
use crate::error::{EvalError, failed, no_such_overload};
use crate::json::show;
use crate::library;
use crate::meter::{Budget, Meter};
use crate::operations::{self, Answer};
use crate::plan::{Binary, Call, Kind, MapEntry, Node, OptMap, Plan, StructField};
use crate::value::{Entries, Held, List, Map, Struct, Value};

/// The state of one evaluation. With `TRACE` it remembers the value of every step; without, that costs nothing.
pub(crate) struct Evaluator<'a, 'r, const TRACE: bool> {
    pub activation: &'r Activation<'a>,
    pub budget: &'r mut Budget,
    pub meter: Meter,
    pub plan: &'a Plan,
    pub variables: Vec<Option<Value<'a>>>,
    pub locals: Vec<Value<'a>>,
    /// What is to be paid when the variable of an `optMap` is first read.
    pub pending: Vec<u64>,
    pub trace: Vec<(ExprId, Result<Value<'a>, EvalError>)>,
}

impl<'a, 'r, const TRACE: bool> Evaluator<'a, 'r, TRACE> {
    pub fn new(plan: &'a Plan, activation: &'r Activation<'a>, budget: &'r mut Budget) -> Self {
        let variables = plan.variables.iter().map(|(name, schema)| {
            let schema = schema.as_deref();
            activation.find(name).map(|binding| match binding {
                Binding::Json(json) => Value::from_json(json, schema),
                Binding::OptionalJson(json) => Value::Optional(json.map(|json| Arc::new(Value::from_json(json, schema)))),
                Binding::Value(value) => value.clone(),
            })
        });
        Evaluator {
            meter: Meter::new(budget),
            variables: variables.collect(),
            locals: vec![Value::Null; plan.locals],
            pending: vec![0; plan.locals],
            trace: Vec::new(),
            activation,
            budget,
            plan,
        }
    }

    pub fn run(&mut self) -> Answer<'a> {
        let plan = self.plan;
        self.eval(&plan.root)
    }

    #[inline]
    pub fn eval(&mut self, node: &'a Node) -> Answer<'a> {
        let answer = self.step(node);
        if TRACE {
            self.trace.push((node.id, answer.clone()));
        }
        answer
    }

    fn step(&mut self, node: &'a Node) -> Answer<'a> {
        match &node.kind {
            Kind::Const(value) => Ok(borrow(value)),
            Kind::Attribute(attribute) => self.attribute(attribute),
            Kind::And(terms) => self.logical(terms, false),
            Kind::Or(terms) => self.logical(terms, true),
            Kind::Equal { operands, equals } => self.equality(operands, *equals),
            Kind::Binary { .. } => self.binary(node),
            Kind::Call(call) => self.call(call),
            Kind::Fold(fold) => self.fold(fold),
            Kind::Not(operand) => {
                let answer = self.eval(operand);
                self.meter.charge(1)?;
                match answer? {
                    Value::Bool(b) => Ok(Value::Bool(!b)),
                    _ => Err(no_such_overload()),
                }
            }
            Kind::Negate(operand) => {
                let answer = self.eval(operand);
                self.meter.charge(1)?;
                operations::negate(&answer?)
            }
            Kind::InConstants { item, set } => {
                let item = self.eval(item)?;
                Ok(Value::Bool(set.contains(&item)))
            }
            Kind::OptionalOr { operands, unwrap } => match self.eval(&operands[0])? {
                Value::Optional(Some(value)) if *unwrap => Ok((*value).clone()),
                found @ Value::Optional(Some(_)) => Ok(found),
                Value::Optional(None) => self.eval(&operands[1]),
                _ => Err(no_such_overload()),
            },
            Kind::List { items, optional } => self.list(items, optional),
            Kind::Map(entries) => self.map(entries),
            Kind::Struct { name, fields } => self.message(name, fields),
            Kind::OptMap(opt_map) => self.opt_map(opt_map),
        }
    }

    /// `&&` and `||`: one deciding term is enough, and makes up for any that failed.
    fn logical(&mut self, terms: &'a [Node], deciding: bool) -> Answer<'a> {
        let mut error = None;
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(b)) if b == deciding => return Ok(Value::Bool(deciding)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => error = error.or(Some(no_such_overload())),
                Err(e) if e.is_cancelled() => return Err(e),
                Err(e) => error = error.or(Some(e)),
            }
        }
        error.map_or(Ok(Value::Bool(!deciding)), Err)
    }

    fn equality(&mut self, operands: &'a [Node; 2], equals: bool) -> Answer<'a> {
        let (left, right) = (self.eval(&operands[0]), self.eval(&operands[1]));
        // What failed counts as a scalar.
        let cost = match (&left, &right) {
            (Ok(a), Ok(b)) => runtime::equality(a, b, equals),
            (Ok(a), Err(_)) => runtime::equality(a, &Value::Null, equals),
            (Err(_), Ok(b)) => runtime::equality(&Value::Null, b, equals),
            (Err(_), Err(_)) => 1,
        };
        self.meter.charge(cost)?;
        let same = operations::equal(&mut self.meter, &left?, &right?)?;
        Ok(Value::Bool(same == equals))
    }

    fn binary(&mut self, node: &'a Node) -> Answer<'a> {
        let Kind::Binary { operator, charge, operands } = &node.kind else {
            return Err(no_such_overload());
        };
        let (left, right) = (self.eval(&operands[0]), self.eval(&operands[1]));
        let (left, right) = match (left, right) {
            (Ok(left), Ok(right)) => (left, right),
            (Err(e), _) if e.is_cancelled() => return Err(e),
            (_, Err(e)) if e.is_cancelled() => return Err(e),
            (left, right) => {
                let sizes = [left.clone().unwrap_or(Value::Null), right.clone().unwrap_or(Value::Null)];
                let cost = charge.cost(&mut self.meter, &sizes, None)?;
                self.meter.charge(cost)?;
                left?;
                return right;
            }
        };
        let cost = match charge {
            runtime::Charge::Fixed(cost) => *cost,
            charge => {
                let args = [left.clone(), right.clone()];
                charge.cost(&mut self.meter, &args, None)?
            }
        };
        self.meter.charge(cost)?;
        match operator {
            Binary::Add => operations::add(&mut self.meter, &left, &right),
            Binary::Subtract => operations::subtract(&left, &right),
            Binary::Multiply => operations::multiply(&left, &right),
            Binary::Divide => operations::divide(&left, &right),
            Binary::Modulo => operations::modulo(&left, &right),
            Binary::Less => Ok(Value::Bool(operations::compare(&left, &right)?.is_lt())),
            Binary::LessEquals => Ok(Value::Bool(operations::compare(&left, &right)?.is_le())),
            Binary::Greater => Ok(Value::Bool(operations::compare(&left, &right)?.is_gt())),
            Binary::GreaterEquals => Ok(Value::Bool(operations::compare(&left, &right)?.is_ge())),
            Binary::In => self.is_in(&left, &right),
        }
    }

    fn is_in(&mut self, item: &Value<'a>, container: &Value<'a>) -> Answer<'a> {
        match container {
            Value::List(list) => operations::contains(&mut self.meter, list, item).map(Value::Bool),
            Value::Map(Map::Json(object, schema)) => Ok(Value::Bool(match item {
                Value::String(name) => object.contains_key(schema.map_or(&**name, |s| s.property(name).0)),
                _ => false,
            })),
            Value::Map(map) => Ok(Value::Bool(map.get(item).is_some())),
            _ => Err(no_such_overload()),
        }
    }

    fn call(&mut self, call: &'a Call) -> Answer<'a> {
        // Most calls have a target and an argument; a list of them on the stack is enough.
        match &call.args[..] {
            [only] => match self.eval(only) {
                Ok(value) => self.apply(call, &[value]),
                error => self.finish(call, [error]),
            },
            [first, second] => {
                let first = self.eval(first);
                if call.stops && first.is_err() {
                    return first;
                }
                match (first, self.eval(second)) {
                    (Ok(first), Ok(second)) => self.apply(call, &[first, second]),
                    (first, second) => self.finish(call, [first, second]),
                }
            }
            args => {
                let mut values = Vec::with_capacity(args.len());
                for (i, arg) in args.iter().enumerate() {
                    let answer = self.eval(arg);
                    if answer.is_err() && i + 1 < args.len() {
                        return answer;
                    }
                    values.push(answer);
                }
                self.finish(call, values)
            }
        }
    }

    /// Charges for a call of which an argument may have failed, and makes it if none has.
    #[inline(never)]
    fn finish(&mut self, call: &'a Call, answers: impl IntoIterator<Item = Answer<'a>>) -> Answer<'a> {
        let mut error = None;
        let mut args = Vec::new();
        for answer in answers {
            match answer {
                Ok(value) => args.push(value),
                Err(e) if e.is_cancelled() => return Err(e),
                Err(e) => {
                    error = error.or(Some(e));
                    args.push(Value::Null);
                }
            }
        }
        let Some(error) = error else {
            return self.apply(call, &args);
        };
        let cost = call.charge.cost(&mut self.meter, &args, None)?;
        self.meter.charge(cost)?;
        Err(error)
    }

    fn apply(&mut self, call: &'a Call, args: &[Value<'a>]) -> Answer<'a> {
        if call.charge.after() {
            let answer = self.invoke(call, args);
            let cost = call.charge.cost(&mut self.meter, args, answer.as_ref().ok())?;
            self.meter.charge(cost)?;
            return answer;
        }
        let cost = call.charge.cost(&mut self.meter, args, None)?;
        self.meter.charge(cost)?;
        self.invoke(call, args)
    }

    fn invoke(&mut self, call: &'a Call, args: &[Value<'a>]) -> Answer<'a> {
        if let Some(regex) = &call.regex {
            return library::regex::call_compiled(call.function, regex, args);
        }
        for overload in &call.overloads {
            if overload.accepts(args) {
                return (overload.call)(&mut self.meter, args);
            }
        }
        let types: Vec<String> = args.iter().map(|a| a.type_of().name().to_owned()).collect();
        Err(failed(format!("no such overload: {}({})", call.function, types.join(", "))))
    }

    fn list(&mut self, items: &'a [Node], optional: &'a [usize]) -> Answer<'a> {
        let mut values = Vec::with_capacity(items.len());
        let mut failure = None;
        for (i, item) in items.iter().enumerate() {
            match self.eval(item) {
                Ok(Value::Optional(value)) if optional.contains(&i) => values.extend(value.map(|v| (*v).clone())),
                Ok(other) if optional.contains(&i) => {
                    let text = format!("cannot initialize optional list element from non-optional value {}", show(&other));
                    failure = Some(failed(text));
                    break;
                }
                Ok(value) => values.push(value),
                Err(e) => {
                    failure = Some(e);
                    break;
                }
            }
        }
        self.made(LIST_CREATE, failure)?;
        Ok(Value::list(values))
    }

    /// Charges for something new, also if it could not be made.
    fn made(&mut self, cost: u64, failure: Option<EvalError>) -> Result<(), EvalError> {
        match failure {
            Some(e) if e.is_cancelled() => Err(e),
            failure => {
                self.meter.charge(cost)?;
                failure.map_or(Ok(()), Err)
            }
        }
    }

    fn map(&mut self, entries: &'a [MapEntry]) -> Answer<'a> {
        let mut map = Entries::default();
        let answer = self.fill_map(entries, &mut map);
        self.made(MAP_CREATE, answer.err())?;
        Ok(Value::Map(map.into()))
    }

    fn fill_map(&mut self, entries: &'a [MapEntry], map: &mut Entries<'a>) -> Result<(), EvalError> {
        for entry in entries {
            let key = self.eval(&entry.key)?;
            let value = self.eval(&entry.value)?;
            match optional(value, entry.optional).map_err(|value| bad_entry(&show(&key), &value))? {
                Some(value) => {
                    map.insert(key, value);
                }
                None => map.remove(&key),
            }
        }
        Ok(())
    }

    fn message(&mut self, name: &Arc<str>, fields: &'a [StructField]) -> Answer<'a> {
        let mut made = Vec::with_capacity(fields.len());
        let answer = self.fill_message(fields, &mut made);
        self.made(STRUCT_CREATE, answer.err())?;
        Ok(Value::Struct(Arc::new(Struct { name: name.clone(), fields: made })))
    }

    fn fill_message(&mut self, fields: &'a [StructField], made: &mut Vec<(Arc<str>, Value<'a>)>) -> Result<(), EvalError> {
        for field in fields {
            let value = self.eval(&field.value)?;
            let value = optional(value, field.optional).map_err(|value| bad_entry(&field.name, &value))?;
            made.retain(|(n, _)| *n != field.name);
            made.extend(value.map(|value| (field.name.clone(), value)));
        }
        Ok(())
    }

    /// Kubernetes evaluates the target twice, once to ask whether it has a value and once, when the variable is
    /// first read, for the value. Here it is evaluated once and paid for twice.
    fn opt_map(&mut self, opt_map: &'a OptMap) -> Answer<'a> {
        let before = self.meter.cost;
        let target = self.eval(&opt_map.target);
        let target_cost = self.meter.cost - before;
        if let Err(e) = &target
            && e.is_cancelled()
        {
            return target;
        }
        self.meter.charge(1)?;
        match target? {
            Value::Optional(Some(value)) => {
                self.locals[opt_map.slot] = (*value).clone();
                self.pending[opt_map.slot] = target_cost + 1;
                let answer = self.eval(&opt_map.body);
                self.pending[opt_map.slot] = 0;
                if opt_map.flat {
                    return answer;
                }
                match &answer {
                    Err(e) if e.is_cancelled() => return answer,
                    _ => self.meter.charge(1)?,
                }
                Ok(Value::Optional(Some(Arc::new(answer?))))
            }
            Value::Optional(None) => {
                self.meter.charge(1)?;
                Ok(Value::Optional(None))
            }
            other => Err(failed(format!("no such overload: hasValue({})", other.type_of().name()))),
        }
    }
}

/// A constant, borrowed from the program.
fn borrow<'a>(value: &'a Value<'static>) -> Value<'a> {
    match value {
        Value::String(text) => Value::String(Held::Borrowed(text)),
        Value::List(List::Values(items)) => Value::List(List::Values(Held::Borrowed(items))),
        Value::Map(Map::Entries(entries)) => Value::Map(Map::Entries(Held::Borrowed(entries))),
        other => other.clone(),
    }
}

/// What `?value` contributes. Gives the value back if it is not optional.
fn optional<'a>(value: Value<'a>, is_optional: bool) -> Result<Option<Value<'a>>, Value<'a>> {
    match value {
        value if !is_optional => Ok(Some(value)),
        Value::Optional(value) => Ok(value.map(|v| (*v).clone())),
        other => Err(other),
    }
}

fn bad_entry(key: &str, value: &Value<'_>) -> EvalError {
    failed(format!("cannot initialize optional entry '{key}' from non-optional value {}", show(value)))
}
