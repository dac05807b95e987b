//! The strings library, version 2. Positions count code points. `format` is in [`super::string_format`].

use crate::declarations::{Declaration, declare};
use crate::error::{EvalError, failed, no_such_overload};
use crate::library::string_format;
use crate::meter::Meter;
use crate::operations::Answer;
use crate::value::Value;

#[rustfmt::skip]
pub(crate) const DECLARATIONS: &[Declaration] = &[
    declare("charAt", "string_char_at_int", "string.(int) -> string", char_at),
    declare("indexOf", "string_index_of_string", "string.(string) -> int", index_of),
    declare("indexOf", "string_index_of_string_int", "string.(string, int) -> int", index_of),
    declare("lastIndexOf", "string_last_index_of_string", "string.(string) -> int", last_index_of),
    declare("lastIndexOf", "string_last_index_of_string_int", "string.(string, int) -> int", last_index_of),
    declare("lowerAscii", "string_lower_ascii", "string.() -> string", lower_ascii),
    declare("replace", "string_replace_string_string", "string.(string, string) -> string", replace),
    declare("replace", "string_replace_string_string_int", "string.(string, string, int) -> string", replace),
    declare("split", "string_split_string", "string.(string) -> list(string)", split),
    declare("split", "string_split_string_int", "string.(string, int) -> list(string)", split),
    declare("substring", "string_substring_int", "string.(int) -> string", substring),
    declare("substring", "string_substring_int_int", "string.(int, int) -> string", substring),
    declare("trim", "string_trim", "string.() -> string", trim),
    declare("upperAscii", "string_upper_ascii", "string.() -> string", upper_ascii),
    declare("format", "string_format", "string.(list(dyn)) -> string", string_format::format),
    declare("strings.quote", "strings_quote", "(string) -> string", quote),
    declare("join", "list_join", "list(string).() -> string", join),
    declare("join", "list_join_string", "list(string).(string) -> string", join),
];

fn out_of_range(index: i64) -> EvalError {
    failed(format!("index out of range: {index}"))
}

/// The byte position of a code point; the end of the text counts as one.
fn byte_position(text: &str, index: i64) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    if text.is_ascii() {
        return (index <= text.len()).then_some(index);
    }
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(index)
}

fn char_at<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text), Value::Int(index)] = args else {
        return Err(no_such_overload());
    };
    let at = byte_position(text, *index).ok_or_else(|| out_of_range(*index))?;
    Ok(Value::string(text[at..].chars().next().map(String::from).unwrap_or_default()))
}

fn index_of<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let (text, part, offset) = match args {
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(offset)] => (text, part, *offset),
        _ => return Err(no_such_overload()),
    };
    if offset < 0 {
        return Err(out_of_range(offset));
    }
    let Some(start) = byte_position(text, offset) else {
        let length = text.chars().count() as i64;
        return Ok(Value::Int(if part.is_empty() { length } else { -1 }));
    };
    Ok(Value::Int(match text[start..].find(&**part) {
        Some(at) => text[..start + at].chars().count() as i64,
        None => -1,
    }))
}

fn last_index_of<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let (text, part, offset) = match args {
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(offset)] => (text, part, Some(*offset)),
        _ => return Err(no_such_overload()),
    };
    if let Some(offset) = offset.filter(|o| *o < 0) {
        return Err(out_of_range(offset));
    }
    let length = text.chars().count() as i64;
    if part.is_empty() {
        return Ok(Value::Int(offset.map_or(length, |o| o.min(length))));
    }
    let offset = match offset {
        Some(offset) if offset >= length => return Ok(Value::Int(-1)),
        Some(offset) => offset,
        None => length,
    };
    // The match may begin at the offset at the latest, so it may end that much after it.
    let end = byte_position(text, offset.min(length)).unwrap_or(text.len()).saturating_add(part.len()).min(text.len());
    let mut end = end;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Ok(Value::Int(match text[..end].rfind(&**part) {
        Some(at) => text[..at].chars().count() as i64,
        None => -1,
    }))
}

fn lower_ascii<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text)] => Ok(Value::string(text.to_ascii_lowercase())),
        _ => Err(no_such_overload()),
    }
}

fn upper_ascii<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text)] => Ok(Value::string(text.to_ascii_uppercase())),
        _ => Err(no_such_overload()),
    }
}

fn trim<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text)] => Ok(Value::string(text.trim())),
        _ => Err(no_such_overload()),
    }
}

fn replace<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let (text, from, to, limit) = match args {
        [Value::String(text), Value::String(from), Value::String(to)] => (text, from, to, usize::MAX),
        [Value::String(text), Value::String(from), Value::String(to), Value::Int(n)] => {
            (text, from, to, usize::try_from(*n).unwrap_or(usize::MAX))
        }
        _ => return Err(no_such_overload()),
    };
    // The cost of a call does not depend on the size of its result, so the size is bounded here.
    let most = text.matches(&**from).take(limit).count();
    meter.check_string(text.len().saturating_add(most.saturating_mul(to.len())))?;
    Ok(Value::string(text.replacen(&**from, to, limit)))
}

fn split<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let (text, separator, limit) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(n)] => (text, separator, *n),
        _ => return Err(no_such_overload()),
    };
    let limit = match limit {
        0 => return Ok(Value::list(Vec::new())),
        n => usize::try_from(n).unwrap_or(usize::MAX),
    };
    let parts: Vec<Value<'a>> = if separator.is_empty() {
        let mut parts = Vec::new();
        let mut rest = &**text;
        while let Some(c) = rest.chars().next() {
            let cut = if parts.len() + 1 == limit { rest.len() } else { c.len_utf8() };
            parts.push(Value::string(&rest[..cut]));
            rest = &rest[cut..];
        }
        parts
    } else {
        text.splitn(limit, &**separator).map(Value::string).collect()
    };
    Ok(Value::list(parts))
}

fn substring<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let (text, start, end) = match args {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(no_such_overload()),
    };
    if let Some(end) = end.filter(|end| start > *end) {
        return Err(failed(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let from = byte_position(text, start).ok_or_else(|| out_of_range(start))?;
    let to = match end {
        Some(end) => byte_position(text, end).ok_or_else(|| out_of_range(end))?,
        None => text.len(),
    };
    Ok(Value::string(&text[from..to]))
}

fn quote<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::String(text)] = args else {
        return Err(no_such_overload());
    };
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    Ok(Value::string(quoted))
}

fn join<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return Err(no_such_overload()),
    };
    let mut joined = String::new();
    for (i, item) in list.iter().enumerate() {
        let Value::String(item) = &item else {
            return Err(failed(format!("join: invalid input: {}", crate::json::show(&item))));
        };
        meter.work(1)?;
        meter.check_string(joined.len() + separator.len() + item.len())?;
        if i > 0 {
            joined.push_str(separator);
        }
        joined.push_str(item);
    }
    Ok(Value::string(joined))
}
