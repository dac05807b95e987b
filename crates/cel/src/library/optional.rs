//! Functions on optional values. `or` and `orValue` evaluate their argument only when it is needed, so the
//! evaluator has them; `optMap` and `optFlatMap` are macros.

use std::sync::Arc;

use crate::declarations::{Declaration, declare};
use crate::error::{failed, no_such_overload};
use crate::meter::Meter;
use crate::operations::{self, Answer};
use crate::value::Value;

#[rustfmt::skip]
pub(crate) const DECLARATIONS: &[Declaration] = &[
    declare("optional.of", "optional_of", "(V) -> optional_type(V)", of),
    declare("optional.ofNonZeroValue", "optional_ofNonZeroValue", "(V) -> optional_type(V)", of_non_zero_value),
    declare("optional.none", "optional_none", "() -> optional_type(V)", none),
    declare("value", "optional_value", "optional_type(V).() -> V", value),
    declare("hasValue", "optional_hasValue", "optional_type(V).() -> bool", has_value),
    declare("or", "optional_or_optional", "optional_type(V).(optional_type(V)) -> optional_type(V)", lazy),
    declare("orValue", "optional_orValue_value", "optional_type(V).(V) -> V", lazy),
    declare("last", "list_last", "list(V).() -> optional_type(V)", last),
    declare("first", "list_first", "list(V).() -> optional_type(V)", first),
    declare("optional.unwrap", "optional_unwrap", "(list(optional_type(V))) -> list(V)", unwrap),
    declare("unwrapOpt", "optional_unwrapOpt", "list(optional_type(V)).() -> list(V)", unwrap),
];

fn some(value: Value<'_>) -> Value<'_> {
    Value::Optional(Some(Arc::new(value)))
}

fn lazy<'a>(_: &mut Meter, _: &[Value<'a>]) -> Answer<'a> {
    Err(no_such_overload())
}

fn of<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    args.first().cloned().map(some).ok_or_else(no_such_overload)
}

fn of_non_zero_value<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [value] if operations::is_zero(value) => Ok(Value::Optional(None)),
        [value] => Ok(some(value.clone())),
        _ => Err(no_such_overload()),
    }
}

fn none<'a>(_: &mut Meter, _: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Optional(None))
}

fn value<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => Err(failed("optional.none() dereference")),
        _ => Err(no_such_overload()),
    }
}

fn has_value<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => Err(no_such_overload()),
    }
}

fn first<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::List(list)] => Ok(Value::Optional(list.get(0).map(Arc::new))),
        _ => Err(no_such_overload()),
    }
}

fn last<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::List(list)] => Ok(Value::Optional(list.len().checked_sub(1).and_then(|i| list.get(i)).map(Arc::new))),
        _ => Err(no_such_overload()),
    }
}

fn unwrap<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::List(list)] = args else {
        return Err(no_such_overload());
    };
    let mut values = Vec::new();
    for item in list.iter() {
        meter.work(1)?;
        match item {
            Value::Optional(Some(value)) => values.push((*value).clone()),
            Value::Optional(None) => {}
            other => {
                return Err(failed(format!("value {} is not optional", crate::json::show(&other))));
            }
        }
    }
    Ok(Value::list(values))
}
