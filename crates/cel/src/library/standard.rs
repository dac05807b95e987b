//! The standard functions on strings, sizes and types. Conversions are in [`crate::convert`], dates in
//! [`super::timestamps`], regular expressions in [`super::regex`].

use std::sync::Arc;

use crate::convert;
use crate::error::no_such_overload;
use crate::meter::Meter;
use crate::operations::{self, Answer};
use crate::value::Value;

pub(crate) fn identity<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    args.first().cloned().ok_or_else(no_such_overload)
}

pub(crate) fn size<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::Opaque(_)] => Err(no_such_overload()),
        [value] => operations::size(value).map(|n| Value::Int(n as i64)).ok_or_else(no_such_overload),
        _ => Err(no_such_overload()),
    }
}

pub(crate) fn type_of<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [value] => Ok(Value::Type(Arc::new(value.type_of()))),
        _ => Err(no_such_overload()),
    }
}

macro_rules! conversions {
    ($($name:ident),*) => {$(
        pub(crate) fn $name<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
            match args {
                [value] => convert::$name(value),
                _ => Err(no_such_overload()),
            }
        }
    )*};
}

conversions!(to_bool, to_bytes, to_double, to_duration, to_int, to_string, to_timestamp, to_uint);

pub(crate) fn contains<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(text.contains(&**part))),
        _ => Err(no_such_overload()),
    }
}

pub(crate) fn starts_with<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text), Value::String(prefix)] => Ok(Value::Bool(text.starts_with(&**prefix))),
        _ => Err(no_such_overload()),
    }
}

pub(crate) fn ends_with<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text), Value::String(suffix)] => Ok(Value::Bool(text.ends_with(&**suffix))),
        _ => Err(no_such_overload()),
    }
}
