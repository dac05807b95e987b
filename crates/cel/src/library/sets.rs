//! The sets library: lists taken as sets.

use crate::declarations::{Declaration, declare};
use crate::error::{EvalError, no_such_overload};
use crate::meter::Meter;
use crate::operations::{self, Answer};
use crate::value::{List, Value};

#[rustfmt::skip]
pub(crate) const DECLARATIONS: &[Declaration] = &[
    declare("sets.contains", "list_sets_contains_list", "(list(T), list(T)) -> bool", contains),
    declare("sets.equivalent", "list_sets_equivalent_list", "(list(T), list(T)) -> bool", equivalent),
    declare("sets.intersects", "list_sets_intersects_list", "(list(T), list(T)) -> bool", intersects),
];

fn contains_all(meter: &mut Meter, set: &List<'_>, subset: &List<'_>) -> Result<bool, EvalError> {
    for item in subset.iter() {
        if !operations::contains(meter, set, &item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn contains<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::List(set), Value::List(subset)] => contains_all(meter, set, subset).map(Value::Bool),
        _ => Err(no_such_overload()),
    }
}

fn equivalent<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::List(a), Value::List(b)] => Ok(Value::Bool(contains_all(meter, a, b)? && contains_all(meter, b, a)?)),
        _ => Err(no_such_overload()),
    }
}

fn intersects<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::List(a), Value::List(b)] = args else {
        return Err(no_such_overload());
    };
    for item in a.iter() {
        if operations::contains(meter, b, &item)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
