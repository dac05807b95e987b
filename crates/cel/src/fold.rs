//! The loops that macros stand for. The language defines them with an accumulator and a condition that are
//! expressions themselves; here they are plain loops that charge what those expressions would have cost.

use crate::ast::Macro;
use crate::cost::LIST_CREATE;
use crate::error::{EvalError, failed, no_such_overload};
use crate::eval::Evaluator;
use crate::json::show;
use crate::library::lists;
use crate::operations::Answer;
use crate::plan::{Fold, Kind};
use crate::value::{Entries, List, Map, Value};

/// Iterations between two looks at the clock.
const CHECK_FREQUENCY: u32 = 100;

/// What a loop has come to. A failure stays, but the loop goes on (and costs), as the language has it.
enum State<'a> {
    Bool(bool),
    Count(i64),
    List(Vec<Value<'a>>),
    Map(Entries<'a>),
    Failed(EvalError),
}

impl<'a, const TRACE: bool> Evaluator<'a, '_, TRACE> {
    pub fn fold(&mut self, fold: &'a Fold) -> Answer<'a> {
        let range = self.eval(&fold.range)?;
        if fold.kind == Macro::SortBy {
            return self.sort_by(fold, &range);
        }
        self.run_loop(fold, &range)
    }

    fn run_loop(&mut self, fold: &'a Fold, range: &Value<'a>) -> Answer<'a> {
        let mut state = match fold.kind {
            Macro::All => State::Bool(true),
            Macro::Exists => State::Bool(false),
            Macro::ExistsOne => State::Count(0),
            Macro::Map | Macro::Filter | Macro::SortBy => State::List(Vec::new()),
            Macro::TransformMap | Macro::TransformMapEntry => State::Map(Entries::default()),
        };
        let mut iterations = 0;
        match range {
            Value::List(list) => self.over_list(fold, list, &mut state, &mut iterations)?,
            Value::Map(map) if fold.two => {
                for (key, value) in map.iter() {
                    self.locals[fold.slot] = key;
                    self.locals[fold.slot + 1] = value;
                    if !self.iterate(fold, &mut state, &mut iterations)? {
                        break;
                    }
                }
            }
            Value::Map(map) => self.over_keys(fold, map, &mut state, &mut iterations)?,
            other => {
                let name = other.type_of();
                return Err(failed(if fold.two {
                    format!("unsupported comprehension range type: {}", name.name())
                } else {
                    format!("got '{}', expected iterable type", name.name())
                }));
            }
        }
        self.meter.charge(if fold.kind == Macro::ExistsOne { 2 } else { 1 })?;
        match state {
            State::Bool(b) => Ok(Value::Bool(b)),
            State::Count(n) => Ok(Value::Bool(n == 1)),
            State::List(values) => Ok(Value::list(values)),
            State::Map(entries) => Ok(Value::Map(entries.into())),
            State::Failed(error) => Err(error),
        }
    }

    fn over_list(&mut self, fold: &'a Fold, list: &List<'a>, state: &mut State<'a>, iterations: &mut u32) -> Result<(), EvalError> {
        for (i, item) in list.iter().enumerate() {
            if fold.two {
                self.locals[fold.slot] = Value::Int(i as i64);
                self.locals[fold.slot + 1] = item;
            } else {
                self.locals[fold.slot] = item;
            }
            if !self.iterate(fold, state, iterations)? {
                break;
            }
        }
        Ok(())
    }

    fn over_keys(&mut self, fold: &'a Fold, map: &Map<'a>, state: &mut State<'a>, iterations: &mut u32) -> Result<(), EvalError> {
        for key in map.keys() {
            self.locals[fold.slot] = key;
            if !self.iterate(fold, state, iterations)? {
                break;
            }
        }
        Ok(())
    }

    /// One round. False ends the loop.
    fn iterate(&mut self, fold: &'a Fold, state: &mut State<'a>, iterations: &mut u32) -> Result<bool, EvalError> {
        *iterations += 1;
        if iterations.is_multiple_of(CHECK_FREQUENCY) {
            self.meter.check_deadline()?;
        }
        match fold.kind {
            Macro::All | Macro::Exists => self.quantify(fold, state),
            Macro::ExistsOne => {
                match self.eval(&fold.body) {
                    Ok(Value::Bool(false)) => {}
                    Ok(Value::Bool(true)) => {
                        self.meter.charge(2)?;
                        if let State::Count(n) = state {
                            *n += 1;
                        }
                    }
                    other => fail(state, other)?,
                }
                Ok(true)
            }
            Macro::Filter => {
                if self.passes(Some(&fold.body), state)? {
                    self.meter.charge(2 + LIST_CREATE + 1)?;
                    if let State::List(values) = state {
                        values.push(self.locals[fold.slot].clone());
                    }
                }
                Ok(true)
            }
            Macro::Map | Macro::SortBy => {
                if self.passes(fold.filter.as_ref(), state)? {
                    self.append(fold, state)?;
                }
                Ok(true)
            }
            Macro::TransformMap | Macro::TransformMapEntry => {
                if self.passes(fold.filter.as_ref(), state)? {
                    self.insert(fold, state)?;
                }
                Ok(true)
            }
        }
    }

    /// `all` ends at the first false, `exists` at the first true; the round after it still asks for that.
    fn quantify(&mut self, fold: &'a Fold, state: &mut State<'a>) -> Result<bool, EvalError> {
        let exists = fold.kind == Macro::Exists;
        self.meter.charge(if exists { 3 } else { 2 })?;
        if matches!(state, State::Bool(decided) if *decided == exists) {
            return Ok(false);
        }
        self.meter.charge(1)?;
        match self.eval(&fold.body) {
            Ok(Value::Bool(found)) if found == exists => *state = State::Bool(found),
            Ok(Value::Bool(_)) => {}
            other => fail(state, other)?,
        }
        Ok(true)
    }

    /// Whether a filter lets the element through. A filter that fails makes the whole loop fail.
    fn passes(&mut self, filter: Option<&'a crate::plan::Node>, state: &mut State<'a>) -> Result<bool, EvalError> {
        let Some(filter) = filter else {
            return Ok(true);
        };
        match self.eval(filter) {
            Ok(Value::Bool(pass)) => Ok(pass),
            other => fail(state, other).map(|()| false),
        }
    }

    /// `accumulator + [body]`. A constant list in it costs nothing.
    fn append(&mut self, fold: &'a Fold, state: &mut State<'a>) -> Result<(), EvalError> {
        self.meter.charge(1)?;
        let answer = self.eval(&fold.body);
        let list = if matches!(fold.body.kind, Kind::Const(_)) { 0 } else { LIST_CREATE };
        match answer {
            Err(e) if e.is_cancelled() => return Err(e),
            Err(e) => set_failed(state, e),
            Ok(value) => {
                if let State::List(values) = state {
                    values.push(value);
                }
            }
        }
        self.meter.charge(list + 1)
    }

    fn insert(&mut self, fold: &'a Fold, state: &mut State<'a>) -> Result<(), EvalError> {
        self.meter.charge(1)?;
        let entry = fold.kind == Macro::TransformMapEntry;
        if !entry {
            // With three arguments, the first failure is the end of the call.
            if matches!(state, State::Failed(_)) {
                return Ok(());
            }
            self.meter.charge(1)?;
        }
        let answer = self.eval(&fold.body);
        if let Err(e) = &answer
            && e.is_cancelled()
        {
            return Err(e.clone());
        }
        self.meter.charge(1)?;
        let key = self.locals[fold.slot].clone();
        let State::Map(entries) = state else {
            return Ok(());
        };
        let failure = match answer {
            Err(e) => Some(e),
            Ok(Value::Map(map)) if entry => {
                let mut failure = None;
                for (key, value) in map.iter() {
                    if entries.contains(&key) {
                        failure = Some(exists_already(&key));
                        break;
                    }
                    entries.insert(key, value);
                }
                failure
            }
            Ok(_) if entry => Some(no_such_overload()),
            Ok(_) if entries.contains(&key) => Some(exists_already(&key)),
            Ok(value) => {
                entries.insert(key, value);
                None
            }
        };
        if let Some(failure) = failure {
            *state = State::Failed(failure);
        }
        Ok(())
    }

    /// The target is bound to a hidden variable, which is read twice: for the keys and for the sort.
    fn sort_by(&mut self, fold: &'a Fold, range: &Value<'a>) -> Answer<'a> {
        self.meter.charge(2)?;
        let keys = self.run_loop(fold, range);
        let args = [range.clone(), keys.clone().unwrap_or(Value::Null)];
        if let Err(e) = &keys
            && e.is_cancelled()
        {
            return keys;
        }
        let cost = fold.charge.cost(&mut self.meter, &args, None)?;
        self.meter.charge(cost)?;
        keys?;
        match &args {
            [Value::List(list), Value::List(keys)] => lists::sort_with(&mut self.meter, list, keys),
            _ => Err(no_such_overload()),
        }
    }
}

fn exists_already(key: &Value<'_>) -> EvalError {
    failed(format!("insert failed: key {} already exists", show(key)))
}

/// Turns what was no `bool` into a failure of the loop.
fn fail<'a>(state: &mut State<'a>, answer: Answer<'a>) -> Result<(), EvalError> {
    match answer {
        Err(e) if e.is_cancelled() => Err(e),
        Err(e) => {
            set_failed(state, e);
            Ok(())
        }
        Ok(_) => {
            set_failed(state, no_such_overload());
            Ok(())
        }
    }
}

fn set_failed(state: &mut State<'_>, error: EvalError) {
    if !matches!(state, State::Failed(_)) {
        *state = State::Failed(error);
    }
}
