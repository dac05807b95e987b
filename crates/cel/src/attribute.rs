//! Reads variables and selects from them: `a.b[0].?c`. Each selection costs one, and so does reading the chain as
//! a whole; asking whether a field is there costs nothing more than the way to it.

use std::sync::Arc;

use crate::cost::SELECT_AND_IDENT;
use crate::error::{EvalError, failed};
use crate::eval::Evaluator;
use crate::json::show;
use crate::operations::Answer;
use crate::plan::{Attribute, Key, Qualifier, Root};
use crate::value::{List, Map, Value};

impl<'a, const TRACE: bool> Evaluator<'a, '_, TRACE> {
    pub fn attribute(&mut self, attribute: &'a Attribute) -> Answer<'a> {
        if !TRACE
            && let Some(fields) = &attribute.fields
            && let Some(value) = self.fields(attribute, fields)
        {
            let reading = u64::from(attribute.charged && !attribute.test);
            self.meter.charge(fields.len() as u64 + reading)?;
            return Ok(value);
        }
        let answer = self.resolve(attribute);
        if let Err(e) = &answer
            && e.is_cancelled()
        {
            return answer;
        }
        if attribute.charged && !attribute.test {
            self.meter.charge(SELECT_AND_IDENT)?;
        }
        answer
    }

    /// The usual case, without detours: fields of objects of a document that has no schema, all of them there.
    fn fields(&self, attribute: &Attribute, fields: &[Arc<str>]) -> Option<Value<'a>> {
        let root = match attribute.root {
            Root::Variable(slot) => self.variables[slot].as_ref()?,
            Root::Local(slot) => &self.locals[slot],
            _ => return None,
        };
        let Some((last, path)) = fields.split_last() else {
            return Some(root.clone());
        };
        let Value::Map(Map::Json(object, None)) = root else {
            return None;
        };
        let mut object = *object;
        for name in path {
            object = object.get(&**name)?.as_object()?;
        }
        if attribute.test {
            return Some(Value::Bool(object.contains_key(&**last)));
        }
        object.get(&**last).map(|json| Value::from_json(json, None))
    }

    fn resolve(&mut self, attribute: &'a Attribute) -> Answer<'a> {
        let value = match &attribute.root {
            Root::Variable(slot) => match &self.variables[*slot] {
                Some(value) => value.clone(),
                None => {
                    return Err(failed(format!("no such attribute(s): {}", self.plan.variables[*slot].0)));
                }
            },
            Root::Local(slot) => self.locals[*slot].clone(),
            Root::Lazy(slot) => {
                let pending = std::mem::take(&mut self.pending[*slot]);
                self.meter.charge(pending)?;
                self.locals[*slot].clone()
            }
            Root::Operand(node) => self.eval(node)?,
            Root::Conditional(branches) => match self.eval(&branches[0])? {
                Value::Bool(true) => self.eval(&branches[1])?,
                Value::Bool(false) => self.eval(&branches[2])?,
                _ => return Err(crate::error::no_such_overload()),
            },
            Root::PolicyVariable(name) => {
                self.meter.charge(SELECT_AND_IDENT)?;
                if attribute.test && attribute.qualifiers.is_empty() {
                    return Ok(Value::Bool(true));
                }
                self.policy_variable(name)?
            }
        };
        if attribute.qualifiers.is_empty() {
            return Ok(value);
        }
        self.qualify(attribute, value)
    }

    /// Runs the expression behind `variables.name`, unless that has been done before.
    fn policy_variable(&mut self, name: &str) -> Answer<'a> {
        let (activation, budget) = (self.activation, &mut *self.budget);
        let found = activation.variable(name, |program| match program.evaluate(activation, budget) {
            Ok(evaluation) => Ok(evaluation.value),
            Err(EvalError::Failed(why)) => Err(failed(format!("composited variable \"{name}\" fails to evaluate: {why}"))),
            Err(stopped) => Err(stopped),
        });
        found.unwrap_or_else(|| Err(failed(format!("no such key: {name}"))))
    }

    fn qualify(&mut self, attribute: &'a Attribute, value: Value<'a>) -> Answer<'a> {
        let (mut value, mut optional) = match value {
            Value::Optional(None) if attribute.test => return Ok(Value::Bool(false)),
            none @ Value::Optional(None) => return Ok(none),
            Value::Optional(Some(inner)) => ((*inner).clone(), true),
            value => (value, false),
        };
        let last = attribute.qualifiers.len() - 1;
        for (i, qualifier) in attribute.qualifiers.iter().enumerate() {
            optional |= qualifier.optional;
            let test = attribute.test && i == last;
            let found = self.select(&value, qualifier);
            if TRACE && !test {
                let step = match &found {
                    Ok(found) => found.clone().ok_or_else(|| self.missing(&value, qualifier)),
                    Err(e) => Err(e.clone()),
                };
                self.trace.push((qualifier.id, step));
            }
            let present = matches!(found, Ok(Some(_)));
            // A selection that may fail is only charged if it does not.
            if !optional || present {
                self.meter.charge(SELECT_AND_IDENT)?;
            }
            match found? {
                _ if test => return Ok(Value::Bool(present)),
                Some(found) => value = found,
                None if optional && attribute.test => return Ok(Value::Bool(false)),
                None if optional => return Ok(Value::Optional(None)),
                None => return Err(self.missing(&value, qualifier)),
            }
        }
        Ok(if optional { Value::Optional(Some(Arc::new(value))) } else { value })
    }

    fn missing(&mut self, value: &Value<'a>, qualifier: &'a Qualifier) -> EvalError {
        let key = match &qualifier.key {
            Key::Field(name) => name.to_string(),
            Key::Const(key) => show(key),
            // Evaluated before, without an effect but its cost.
            Key::Computed(node) => {
                let cost = self.meter.cost;
                let key = self.eval(node).map(|key| show(&key)).unwrap_or_default();
                self.meter.cost = cost;
                key
            }
        };
        match value {
            Value::List(_) => failed(format!("index out of bounds: {key}")),
            _ => failed(format!("no such key: {key}")),
        }
    }

    /// One selection; nothing if there is nothing there.
    fn select(&mut self, value: &Value<'a>, qualifier: &'a Qualifier) -> Result<Option<Value<'a>>, EvalError> {
        match &qualifier.key {
            Key::Field(name) => match value {
                Value::Map(map) => Ok(map.get_str(name)),
                Value::Struct(message) => Ok(message.get(name).cloned()),
                Value::List(_) => Err(bad_index(&Value::borrowed(name))),
                _ => Ok(None),
            },
            Key::Const(key) => index(value, key),
            Key::Computed(node) => {
                let key = self.eval(node)?;
                match key {
                    Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Bool(_) | Value::String(_) => index(value, &key),
                    other => Err(failed(format!("invalid qualifier type: {}", other.type_of()))),
                }
            }
        }
    }
}

fn bad_index(key: &Value<'_>) -> EvalError {
    failed(format!("unsupported index type '{}' in list", key.type_of().name()))
}

fn index<'a>(value: &Value<'a>, key: &Value<'_>) -> Result<Option<Value<'a>>, EvalError> {
    match value {
        Value::List(list) => element(list, key),
        Value::Map(map) => Ok(map.get(key)),
        Value::Struct(message) => Ok(key.as_str().and_then(|name| message.get(name).cloned())),
        _ => Ok(None),
    }
}

fn element<'a>(list: &List<'a>, key: &Value<'_>) -> Result<Option<Value<'a>>, EvalError> {
    let unsupported = || failed(format!("unsupported index value {} in list", show(key)));
    let index = match key {
        Value::Int(i) => *i,
        Value::Uint(u) => i64::try_from(*u).map_err(|_| unsupported())?,
        Value::Double(d) if d.fract() == 0.0 && d.abs() < 9.2e18 => *d as i64,
        Value::Double(_) => return Err(unsupported()),
        other => return Err(bad_index(other)),
    };
    Ok(usize::try_from(index).ok().and_then(|i| list.get(i)))
}
