//! The jsonpatch library, which only mutating policies have.

use crate::declarations::{Declaration, declare};
use crate::error::no_such_overload;
use crate::meter::Meter;
use crate::operations::Answer;
use crate::value::Value;

pub(crate) const DECLARATIONS: &[Declaration] =
    &[declare("jsonpatch.escapeKey", "string_jsonpatch_escapeKey_string", "(string) -> string", escape_key)];

fn escape_key<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(key)] => Ok(Value::string(key.replace('~', "~0").replace('/', "~1"))),
        _ => Err(no_such_overload()),
    }
}
