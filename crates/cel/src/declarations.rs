//! Which functions and operators there are: their names, their overloads with the types they take and give, and
//! what to call. The libraries declare their own functions next to their code; the operators and the standard
//! functions are declared here. Signatures are written as text (`list(A).(A) -> bool`) and read once.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::library;
use crate::meter::Meter;
use crate::operations::Answer;
use crate::types::{Type, TypeVariable};
use crate::value::Value;

/// The code of a function.
pub(crate) type Native = for<'a> fn(&mut Meter, &[Value<'a>]) -> Answer<'a>;

/// An overload as a library writes it down.
pub(crate) struct Declaration {
    pub function: &'static str,
    pub id: &'static str,
    pub signature: &'static str,
    pub call: Native,
}

pub(crate) const fn declare(function: &'static str, id: &'static str, signature: &'static str, call: Native) -> Declaration {
    Declaration { function, id, signature, call }
}

/// An overload as the checker and the planner use it.
pub(crate) struct Overload {
    pub id: &'static str,
    pub member: bool,
    /// The target, if any, comes first.
    pub parameters: Vec<Type>,
    pub result: Type,
    /// The type variables in the signature.
    pub variables: Vec<char>,
    pub call: Native,
}

impl Overload {
    /// Whether values of these types can be passed, as far as that can be seen without looking inside them.
    pub fn accepts(&self, arguments: &[Value<'_>]) -> bool {
        self.parameters.len() == arguments.len()
            && self.parameters.iter().zip(arguments).all(|(parameter, argument)| accepts(parameter, argument))
    }
}

fn accepts(parameter: &Type, argument: &Value<'_>) -> bool {
    match (parameter, argument) {
        (Type::Dyn | Type::Variable(_), _)
        | (Type::Null, Value::Null)
        | (Type::Bool, Value::Bool(_))
        | (Type::Int, Value::Int(_))
        | (Type::Uint, Value::Uint(_))
        | (Type::Double, Value::Double(_))
        | (Type::String, Value::String(_))
        | (Type::Bytes, Value::Bytes(_))
        | (Type::Duration, Value::Duration(_))
        | (Type::Timestamp, Value::Timestamp(_))
        | (Type::List(_), Value::List(_))
        | (Type::Map(_), Value::Map(_))
        | (Type::Type(_), Value::Type(_)) => true,
        (Type::Opaque(name, _), Value::Optional(_)) => &**name == crate::types::OPTIONAL,
        (Type::Object(name) | Type::Opaque(name, _), Value::Opaque(value)) => **name == *value.type_name(),
        _ => false,
    }
}

/// A function with its overloads, in the order in which they are tried.
pub(crate) struct Function {
    pub name: &'static str,
    pub overloads: Vec<Overload>,
}

static FUNCTIONS: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(|| {
    let mut functions: HashMap<&'static str, Function> = HashMap::new();
    // The standard overloads stand before those that libraries add to them.
    for table in [OPERATORS, STANDARD].iter().chain(library::TABLES) {
        for declaration in *table {
            let function =
                functions.entry(declaration.function).or_insert_with(|| Function { name: declaration.function, overloads: Vec::new() });
            if let Some(overload) = read(declaration) {
                function.overloads.push(overload);
            }
        }
    }
    functions
});

/// Finds a function by its full name.
pub(crate) fn find(name: &str, jsonpatch: bool) -> Option<&'static Function> {
    if !jsonpatch && name.starts_with("jsonpatch.") {
        return None;
    }
    FUNCTIONS.get(name)
}

/// The names of all functions, for completion.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.keys().copied().filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
}

fn read(declaration: &Declaration) -> Option<Overload> {
    let (left, result) = declaration.signature.split_once(" -> ")?;
    let open = left.rfind(".(").map(|at| (at, at + 2)).or_else(|| left.strip_prefix('(').map(|_| (0, 1)))?;
    let member = open.1 - open.0 == 2;
    let mut parameters = Vec::new();
    if member {
        parameters.push(read_type(&left[..open.0])?);
    }
    for part in split_top(left[open.1..].strip_suffix(')')?) {
        parameters.push(read_type(part)?);
    }
    let result = read_type(result)?;
    let mut variables = Vec::new();
    for t in parameters.iter().chain([&result]) {
        collect_variables(t, &mut variables);
    }
    Some(Overload { id: declaration.id, member, parameters, result, variables, call: declaration.call })
}

fn collect_variables(t: &Type, found: &mut Vec<char>) {
    match t {
        Type::Variable(TypeVariable::Declared(name)) if !found.contains(name) => found.push(*name),
        Type::List(inner) | Type::Type(Some(inner)) => collect_variables(inner, found),
        Type::Map(entry) => {
            collect_variables(&entry.0, found);
            collect_variables(&entry.1, found);
        }
        Type::Opaque(_, parameters) => parameters.iter().for_each(|p| collect_variables(p, found)),
        _ => {}
    }
}

/// Splits at commas that stand outside parentheses.
fn split_top(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    if !text[start..].trim().is_empty() {
        parts.push(text[start..].trim());
    }
    parts
}

/// Reads a type as it is written in a declaration, or in the vector files.
pub(crate) fn read_type(text: &str) -> Option<Type> {
    let mut chars = text.chars();
    if let (Some(name @ 'A'..='Z'), None) = (chars.next(), chars.next()) {
        return Some(Type::Variable(TypeVariable::Declared(name)));
    }
    if let Some((name, rest)) = text.split_once('(') {
        let parameters: Option<Vec<Type>> = split_top(rest.strip_suffix(')')?).into_iter().map(read_type).collect();
        let parameters = parameters?;
        return Some(match (name, parameters.as_slice()) {
            ("list", [element]) => Type::list(element.clone()),
            ("map", [key, value]) => Type::map(key.clone(), value.clone()),
            ("type", [inner]) => Type::type_of(inner.clone()),
            _ => Type::Opaque(name.into(), parameters.into()),
        });
    }
    Some(match text {
        "dyn" | "any" => Type::Dyn,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "null" => Type::Null,
        name => match crate::types::named_type(name) {
            Some(t) => t,
            None if name.contains('.') => Type::object(name),
            None => return None,
        },
    })
}

/// Operators are evaluated by the evaluator itself; this is never reached.
fn operator<'a>(_: &mut Meter, _: &[Value<'a>]) -> Answer<'a> {
    Err(crate::error::no_such_overload())
}

const fn op(function: &'static str, id: &'static str, signature: &'static str) -> Declaration {
    declare(function, id, signature, operator)
}

#[rustfmt::skip]
const OPERATORS: &[Declaration] = &[
    op("_?_:_", "conditional", "(bool, A, A) -> A"),
    op("_&&_", "logical_and", "(bool, bool) -> bool"),
    op("_||_", "logical_or", "(bool, bool) -> bool"),
    op("!_", "logical_not", "(bool) -> bool"),
    op("_==_", "equals", "(A, A) -> bool"),
    op("_!=_", "not_equals", "(A, A) -> bool"),
    op("_+_", "add_bytes", "(bytes, bytes) -> bytes"),
    op("_+_", "add_double", "(double, double) -> double"),
    op("_+_", "add_duration_duration", "(duration, duration) -> duration"),
    op("_+_", "add_duration_timestamp", "(duration, timestamp) -> timestamp"),
    op("_+_", "add_timestamp_duration", "(timestamp, duration) -> timestamp"),
    op("_+_", "add_int64", "(int, int) -> int"),
    op("_+_", "add_list", "(list(A), list(A)) -> list(A)"),
    op("_+_", "add_string", "(string, string) -> string"),
    op("_+_", "add_uint64", "(uint, uint) -> uint"),
    op("_/_", "divide_double", "(double, double) -> double"),
    op("_/_", "divide_int64", "(int, int) -> int"),
    op("_/_", "divide_uint64", "(uint, uint) -> uint"),
    op("_%_", "modulo_int64", "(int, int) -> int"),
    op("_%_", "modulo_uint64", "(uint, uint) -> uint"),
    op("_*_", "multiply_double", "(double, double) -> double"),
    op("_*_", "multiply_int64", "(int, int) -> int"),
    op("_*_", "multiply_uint64", "(uint, uint) -> uint"),
    op("-_", "negate_double", "(double) -> double"),
    op("-_", "negate_int64", "(int) -> int"),
    op("_-_", "subtract_double", "(double, double) -> double"),
    op("_-_", "subtract_duration_duration", "(duration, duration) -> duration"),
    op("_-_", "subtract_int64", "(int, int) -> int"),
    op("_-_", "subtract_timestamp_duration", "(timestamp, duration) -> timestamp"),
    op("_-_", "subtract_timestamp_timestamp", "(timestamp, timestamp) -> duration"),
    op("_-_", "subtract_uint64", "(uint, uint) -> uint"),
    op("_<_", "less_bool", "(bool, bool) -> bool"),
    op("_<_", "less_int64", "(int, int) -> bool"),
    op("_<_", "less_int64_double", "(int, double) -> bool"),
    op("_<_", "less_int64_uint64", "(int, uint) -> bool"),
    op("_<_", "less_uint64", "(uint, uint) -> bool"),
    op("_<_", "less_uint64_double", "(uint, double) -> bool"),
    op("_<_", "less_uint64_int64", "(uint, int) -> bool"),
    op("_<_", "less_double", "(double, double) -> bool"),
    op("_<_", "less_double_int64", "(double, int) -> bool"),
    op("_<_", "less_double_uint64", "(double, uint) -> bool"),
    op("_<_", "less_string", "(string, string) -> bool"),
    op("_<_", "less_bytes", "(bytes, bytes) -> bool"),
    op("_<_", "less_timestamp", "(timestamp, timestamp) -> bool"),
    op("_<_", "less_duration", "(duration, duration) -> bool"),
    op("_<=_", "less_equals_bool", "(bool, bool) -> bool"),
    op("_<=_", "less_equals_int64", "(int, int) -> bool"),
    op("_<=_", "less_equals_int64_double", "(int, double) -> bool"),
    op("_<=_", "less_equals_int64_uint64", "(int, uint) -> bool"),
    op("_<=_", "less_equals_uint64", "(uint, uint) -> bool"),
    op("_<=_", "less_equals_uint64_double", "(uint, double) -> bool"),
    op("_<=_", "less_equals_uint64_int64", "(uint, int) -> bool"),
    op("_<=_", "less_equals_double", "(double, double) -> bool"),
    op("_<=_", "less_equals_double_int64", "(double, int) -> bool"),
    op("_<=_", "less_equals_double_uint64", "(double, uint) -> bool"),
    op("_<=_", "less_equals_string", "(string, string) -> bool"),
    op("_<=_", "less_equals_bytes", "(bytes, bytes) -> bool"),
    op("_<=_", "less_equals_timestamp", "(timestamp, timestamp) -> bool"),
    op("_<=_", "less_equals_duration", "(duration, duration) -> bool"),
    op("_>_", "greater_bool", "(bool, bool) -> bool"),
    op("_>_", "greater_int64", "(int, int) -> bool"),
    op("_>_", "greater_int64_double", "(int, double) -> bool"),
    op("_>_", "greater_int64_uint64", "(int, uint) -> bool"),
    op("_>_", "greater_uint64", "(uint, uint) -> bool"),
    op("_>_", "greater_uint64_double", "(uint, double) -> bool"),
    op("_>_", "greater_uint64_int64", "(uint, int) -> bool"),
    op("_>_", "greater_double", "(double, double) -> bool"),
    op("_>_", "greater_double_int64", "(double, int) -> bool"),
    op("_>_", "greater_double_uint64", "(double, uint) -> bool"),
    op("_>_", "greater_string", "(string, string) -> bool"),
    op("_>_", "greater_bytes", "(bytes, bytes) -> bool"),
    op("_>_", "greater_timestamp", "(timestamp, timestamp) -> bool"),
    op("_>_", "greater_duration", "(duration, duration) -> bool"),
    op("_>=_", "greater_equals_bool", "(bool, bool) -> bool"),
    op("_>=_", "greater_equals_int64", "(int, int) -> bool"),
    op("_>=_", "greater_equals_int64_double", "(int, double) -> bool"),
    op("_>=_", "greater_equals_int64_uint64", "(int, uint) -> bool"),
    op("_>=_", "greater_equals_uint64", "(uint, uint) -> bool"),
    op("_>=_", "greater_equals_uint64_double", "(uint, double) -> bool"),
    op("_>=_", "greater_equals_uint64_int64", "(uint, int) -> bool"),
    op("_>=_", "greater_equals_double", "(double, double) -> bool"),
    op("_>=_", "greater_equals_double_int64", "(double, int) -> bool"),
    op("_>=_", "greater_equals_double_uint64", "(double, uint) -> bool"),
    op("_>=_", "greater_equals_string", "(string, string) -> bool"),
    op("_>=_", "greater_equals_bytes", "(bytes, bytes) -> bool"),
    op("_>=_", "greater_equals_timestamp", "(timestamp, timestamp) -> bool"),
    op("_>=_", "greater_equals_duration", "(duration, duration) -> bool"),
    op("_[_]", "index_list", "(list(A), int) -> A"),
    op("_[_]", "index_map", "(map(A, B), A) -> B"),
    op("_[_]", "optional_list_index_int", "(optional_type(list(V)), int) -> optional_type(V)"),
    op("_[_]", "optional_map_index_value", "(optional_type(map(K, V)), K) -> optional_type(V)"),
    op("_[?_]", "list_optindex_optional_int", "(list(V), int) -> optional_type(V)"),
    op("_[?_]", "optional_list_optindex_optional_int", "(optional_type(list(V)), int) -> optional_type(V)"),
    op("_[?_]", "map_optindex_optional_value", "(map(K, V), K) -> optional_type(V)"),
    op("_[?_]", "optional_map_optindex_optional_value", "(optional_type(map(K, V)), K) -> optional_type(V)"),
    op("@in", "in_list", "(A, list(A)) -> bool"),
    op("@in", "in_map", "(A, map(A, B)) -> bool"),
];

#[rustfmt::skip]
const STANDARD: &[Declaration] = &[
    declare("size", "size_bytes", "(bytes) -> int", library::standard::size),
    declare("size", "bytes_size", "bytes.() -> int", library::standard::size),
    declare("size", "size_list", "(list(A)) -> int", library::standard::size),
    declare("size", "list_size", "list(A).() -> int", library::standard::size),
    declare("size", "size_map", "(map(A, B)) -> int", library::standard::size),
    declare("size", "map_size", "map(A, B).() -> int", library::standard::size),
    declare("size", "size_string", "(string) -> int", library::standard::size),
    declare("size", "string_size", "string.() -> int", library::standard::size),
    declare("type", "type", "(A) -> type(A)", library::standard::type_of),
    declare("bool", "bool_to_bool", "(bool) -> bool", library::standard::to_bool),
    declare("bool", "string_to_bool", "(string) -> bool", library::standard::to_bool),
    declare("bytes", "bytes_to_bytes", "(bytes) -> bytes", library::standard::to_bytes),
    declare("bytes", "string_to_bytes", "(string) -> bytes", library::standard::to_bytes),
    declare("double", "double_to_double", "(double) -> double", library::standard::to_double),
    declare("double", "int64_to_double", "(int) -> double", library::standard::to_double),
    declare("double", "string_to_double", "(string) -> double", library::standard::to_double),
    declare("double", "uint64_to_double", "(uint) -> double", library::standard::to_double),
    declare("duration", "duration_to_duration", "(duration) -> duration", library::standard::to_duration),
    declare("duration", "string_to_duration", "(string) -> duration", library::standard::to_duration),
    declare("dyn", "to_dyn", "(A) -> dyn", library::standard::identity),
    declare("int", "int64_to_int64", "(int) -> int", library::standard::to_int),
    declare("int", "double_to_int64", "(double) -> int", library::standard::to_int),
    declare("int", "duration_to_int64", "(duration) -> int", library::standard::to_int),
    declare("int", "string_to_int64", "(string) -> int", library::standard::to_int),
    declare("int", "timestamp_to_int64", "(timestamp) -> int", library::standard::to_int),
    declare("int", "uint64_to_int64", "(uint) -> int", library::standard::to_int),
    declare("string", "string_to_string", "(string) -> string", library::standard::to_string),
    declare("string", "bool_to_string", "(bool) -> string", library::standard::to_string),
    declare("string", "bytes_to_string", "(bytes) -> string", library::standard::to_string),
    declare("string", "double_to_string", "(double) -> string", library::standard::to_string),
    declare("string", "duration_to_string", "(duration) -> string", library::standard::to_string),
    declare("string", "int64_to_string", "(int) -> string", library::standard::to_string),
    declare("string", "timestamp_to_string", "(timestamp) -> string", library::standard::to_string),
    declare("string", "uint64_to_string", "(uint) -> string", library::standard::to_string),
    declare("timestamp", "timestamp_to_timestamp", "(timestamp) -> timestamp", library::standard::to_timestamp),
    declare("timestamp", "int64_to_timestamp", "(int) -> timestamp", library::standard::to_timestamp),
    declare("timestamp", "string_to_timestamp", "(string) -> timestamp", library::standard::to_timestamp),
    declare("uint", "uint64_to_uint64", "(uint) -> uint", library::standard::to_uint),
    declare("uint", "double_to_uint64", "(double) -> uint", library::standard::to_uint),
    declare("uint", "int64_to_uint64", "(int) -> uint", library::standard::to_uint),
    declare("uint", "string_to_uint64", "(string) -> uint", library::standard::to_uint),
    declare("contains", "contains_string", "string.(string) -> bool", library::standard::contains),
    declare("endsWith", "ends_with_string", "string.(string) -> bool", library::standard::ends_with),
    declare("startsWith", "starts_with_string", "string.(string) -> bool", library::standard::starts_with),
    declare("matches", "matches", "(string, string) -> bool", library::regex::matches),
    declare("matches", "matches_string", "string.(string) -> bool", library::regex::matches),
    declare("getFullYear", "timestamp_to_year", "timestamp.() -> int", library::timestamps::full_year),
    declare("getFullYear", "timestamp_to_year_with_tz", "timestamp.(string) -> int", library::timestamps::full_year),
    declare("getMonth", "timestamp_to_month", "timestamp.() -> int", library::timestamps::month),
    declare("getMonth", "timestamp_to_month_with_tz", "timestamp.(string) -> int", library::timestamps::month),
    declare("getDayOfYear", "timestamp_to_day_of_year", "timestamp.() -> int", library::timestamps::day_of_year),
    declare("getDayOfYear", "timestamp_to_day_of_year_with_tz", "timestamp.(string) -> int", library::timestamps::day_of_year),
    declare("getDayOfMonth", "timestamp_to_day_of_month", "timestamp.() -> int", library::timestamps::day_of_month),
    declare("getDayOfMonth", "timestamp_to_day_of_month_with_tz", "timestamp.(string) -> int", library::timestamps::day_of_month),
    declare("getDate", "timestamp_to_day_of_month_1_based", "timestamp.() -> int", library::timestamps::date),
    declare("getDate", "timestamp_to_day_of_month_1_based_with_tz", "timestamp.(string) -> int", library::timestamps::date),
    declare("getDayOfWeek", "timestamp_to_day_of_week", "timestamp.() -> int", library::timestamps::day_of_week),
    declare("getDayOfWeek", "timestamp_to_day_of_week_with_tz", "timestamp.(string) -> int", library::timestamps::day_of_week),
    declare("getHours", "timestamp_to_hours", "timestamp.() -> int", library::timestamps::hours),
    declare("getHours", "timestamp_to_hours_with_tz", "timestamp.(string) -> int", library::timestamps::hours),
    declare("getHours", "duration_to_hours", "duration.() -> int", library::timestamps::hours),
    declare("getMinutes", "timestamp_to_minutes", "timestamp.() -> int", library::timestamps::minutes),
    declare("getMinutes", "timestamp_to_minutes_with_tz", "timestamp.(string) -> int", library::timestamps::minutes),
    declare("getMinutes", "duration_to_minutes", "duration.() -> int", library::timestamps::minutes),
    declare("getSeconds", "timestamp_to_seconds", "timestamp.() -> int", library::timestamps::seconds),
    declare("getSeconds", "timestamp_to_seconds_tz", "timestamp.(string) -> int", library::timestamps::seconds),
    declare("getSeconds", "duration_to_seconds", "duration.() -> int", library::timestamps::seconds),
    declare("getMilliseconds", "timestamp_to_milliseconds", "timestamp.() -> int", library::timestamps::milliseconds),
    declare("getMilliseconds", "timestamp_to_milliseconds_with_tz", "timestamp.(string) -> int", library::timestamps::milliseconds),
    declare("getMilliseconds", "duration_to_milliseconds", "duration.() -> int", library::timestamps::milliseconds),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_declaration_can_be_read() {
        for table in [OPERATORS, STANDARD].iter().chain(library::TABLES) {
            for declaration in *table {
                assert!(read(declaration).is_some(), "{}", declaration.signature);
            }
        }
    }

    #[test]
    fn functions_that_kubernetes_lacks_are_not_there() {
        for name in ["math.greatest", "base64.encode", "cel.bind", "regex.replace", "strings.reverse"] {
            assert!(find(name, true).is_none(), "{name}");
        }
        assert!(find("jsonpatch.escapeKey", false).is_none());
        assert!(find("jsonpatch.escapeKey", true).is_some());
        assert!(find("reverse", false).is_some_and(|f| f.overloads.len() == 1));
    }
}
