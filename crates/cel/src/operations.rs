//! Equality, order, arithmetic and size of values, as the language defines them across types, with its error
//! texts. Deep comparisons count their steps so that shared structure cannot make them run away.

use std::cmp::Ordering;

use crate::error::{EvalError, failed, no_such_overload};
use crate::library::Opaque;
use crate::meter::Meter;
use crate::schema::ListType;
use crate::time::Timestamp;
use crate::value::{List, Map, Struct, Text, Value};

pub(crate) type Answer<'a> = Result<Value<'a>, EvalError>;

/// Whether two values are equal. Values of different types are not, except numbers.
pub(crate) fn equal(meter: &mut Meter, a: &Value<'_>, b: &Value<'_>) -> Result<bool, EvalError> {
    Ok(match (a, b) {
        (Value::String(a), Value::String(b)) => **a == **b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Null, Value::Null) => true,
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            compare_numbers(a, b) == Some(Ordering::Equal)
        }
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Type(a), Value::Type(b)) => a.name() == b.name(),
        (Value::List(a), Value::List(b)) => equal_lists(meter, a, b)?,
        (Value::Map(a), Value::Map(b)) => equal_maps(meter, a, b)?,
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => equal(meter, a, b)?,
        (Value::Struct(a), Value::Struct(b)) => equal_structs(meter, a, b)?,
        (Value::Opaque(a), Value::Opaque(b)) => a == b,
        _ => false,
    })
}

fn equal_lists(meter: &mut Meter, a: &List<'_>, b: &List<'_>) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    match (list_type(a), list_type(b)) {
        (Some(ListType::Set), _) | (_, Some(ListType::Set)) => contains_all(meter, a, b),
        (Some(ListType::Map(keys)), _) | (_, Some(ListType::Map(keys))) => equal_by_keys(meter, a, b, keys),
        _ => {
            for (x, y) in a.iter().zip(b.iter()) {
                meter.work(1)?;
                if !equal(meter, &x, &y)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
    }
}

fn list_type<'l>(list: &'l List<'_>) -> Option<&'l ListType> {
    match list {
        List::Json(_, Some(schema)) => schema.list_type().filter(|t| **t != ListType::Atomic),
        _ => None,
    }
}

fn contains_all(meter: &mut Meter, a: &List<'_>, b: &List<'_>) -> Result<bool, EvalError> {
    for x in a.iter() {
        if !contains(meter, b, &x)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn same_keys(meter: &mut Meter, a: &Value<'_>, b: &Value<'_>, keys: &[String]) -> Result<bool, EvalError> {
    let (Value::Map(a), Value::Map(b)) = (a, b) else {
        return Ok(false);
    };
    for key in keys {
        meter.work(1)?;
        let same = match (a.get_str(key), b.get_str(key)) {
            (Some(a), Some(b)) => equal(meter, &a, &b)?,
            (a, b) => a.is_none() && b.is_none(),
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_by_keys(meter: &mut Meter, a: &List<'_>, b: &List<'_>, keys: &[String]) -> Result<bool, EvalError> {
    for x in a.iter() {
        let mut found = false;
        for y in b.iter() {
            if same_keys(meter, &x, &y, keys)? {
                found = equal(meter, &x, &y)?;
                break;
            }
        }
        if !found {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps(meter: &mut Meter, a: &Map<'_>, b: &Map<'_>) -> Result<bool, EvalError> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (key, x) in a.iter() {
        meter.work(1)?;
        let y = match (b, &key) {
            // By the name in the document: an expression's name for it would be escaped.
            (Map::Json(object, schema), Value::String(name)) => {
                object.get(&**name).map(|value| Value::from_json(value, schema.and_then(|s| s.property_by_json_name(name))))
            }
            _ => b.get(&key),
        };
        match y {
            Some(y) if equal(meter, &x, &y)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn equal_structs(meter: &mut Meter, a: &Struct<'_>, b: &Struct<'_>) -> Result<bool, EvalError> {
    if a.name != b.name || a.fields.len() != b.fields.len() {
        return Ok(false);
    }
    for (name, x) in &a.fields {
        meter.work(1)?;
        match b.get(name) {
            Some(y) if equal(meter, x, y)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Whether a list has an element.
pub(crate) fn contains(meter: &mut Meter, list: &List<'_>, item: &Value<'_>) -> Result<bool, EvalError> {
    for element in list.iter() {
        meter.work(1)?;
        if equal(meter, &element, item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn compare_numbers(a: &Value<'_>, b: &Value<'_>) -> Option<Ordering> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Double(a), Value::Int(b)) => compare_double(*a, i128::from(*b)),
        (Value::Double(a), Value::Uint(b)) => compare_double(*a, i128::from(*b)),
        (Value::Int(a), Value::Double(b)) => compare_double(*b, i128::from(*a)).map(Ordering::reverse),
        (Value::Uint(a), Value::Double(b)) => compare_double(*b, i128::from(*a)).map(Ordering::reverse),
        _ => None,
    }
}

/// Compares as doubles, as Kubernetes does: large integers are rounded first.
fn compare_double(double: f64, integer: i128) -> Option<Ordering> {
    double.partial_cmp(&(integer as f64))
}

/// Compares for `<`, `min` and the like.
pub(crate) fn compare(a: &Value<'_>, b: &Value<'_>) -> Result<Ordering, EvalError> {
    match (a, b) {
        (Value::String(a), Value::String(b)) => Ok((**a).cmp(&**b)),
        (Value::Bytes(a), Value::Bytes(b)) => Ok(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
        (Value::Duration(a), Value::Duration(b)) => Ok(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => Ok(a.cmp(b)),
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), Value::Int(_) | Value::Uint(_) | Value::Double(_)) => {
            compare_numbers(a, b).ok_or_else(|| failed("NaN values cannot be ordered"))
        }
        _ => Err(no_such_overload()),
    }
}

fn int_overflow() -> EvalError {
    failed("integer overflow")
}

fn uint_overflow() -> EvalError {
    failed("unsigned integer overflow")
}

fn timestamp(nanos: i128) -> Answer<'static> {
    Timestamp::from_nanos(nanos).map(Value::Timestamp).ok_or_else(|| failed("timestamp overflow"))
}

/// `a + b`
pub(crate) fn add<'a>(meter: &mut Meter, a: &Value<'a>, b: &Value<'a>) -> Answer<'a> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.checked_add(*b).map(Value::Int).ok_or_else(int_overflow),
        (Value::Uint(a), Value::Uint(b)) => a.checked_add(*b).map(Value::Uint).ok_or_else(uint_overflow),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => {
            meter.check_string(a.len() + b.len())?;
            let mut sum = String::with_capacity(a.len() + b.len());
            sum.push_str(a);
            sum.push_str(b);
            Ok(Value::String(Text::Shared(sum.into())))
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            meter.check_string(a.len() + b.len())?;
            Ok(Value::Bytes(a.iter().chain(b.iter()).copied().collect()))
        }
        (Value::List(a), Value::List(b)) => add_lists(meter, a, b).map(Value::List),
        (Value::Duration(a), Value::Duration(b)) => a.checked_add(*b).map(Value::Duration).ok_or_else(|| failed("duration overflow")),
        (Value::Timestamp(t), Value::Duration(d)) | (Value::Duration(d), Value::Timestamp(t)) => timestamp(t.nanos() + i128::from(*d)),
        _ => Err(operator_error("_+_", a, is_adder(a))),
    }
}

fn is_adder(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::List(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
    )
}

/// The error of an operator: it names itself only if the left side knows nothing of it.
fn operator_error(operator: &str, _left: &Value<'_>, known: bool) -> EvalError {
    if known { no_such_overload() } else { failed(format!("no such overload: {operator}")) }
}

/// Lists of type set and map add by what they contain; others one after the other.
fn add_lists<'a>(meter: &mut Meter, a: &List<'a>, b: &List<'a>) -> Result<List<'a>, EvalError> {
    let keys = match list_type(a) {
        None => return Ok(a.concat(b)),
        Some(ListType::Map(keys)) => Some(keys),
        Some(_) => None,
    };
    let mut sum: Vec<Value<'a>> = a.iter().collect();
    for item in b.iter() {
        let mut at = None;
        for (i, existing) in sum.iter().enumerate() {
            meter.work(1)?;
            let same = match keys {
                Some(keys) => same_keys(meter, existing, &item, keys)?,
                None => equal(meter, existing, &item)?,
            };
            if same {
                at = Some(i);
                break;
            }
        }
        match at {
            Some(i) => sum[i] = item,
            None => sum.push(item),
        }
    }
    Ok(sum.into())
}

/// `a - b`
pub(crate) fn subtract<'a>(a: &Value<'a>, b: &Value<'a>) -> Answer<'a> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.checked_sub(*b).map(Value::Int).ok_or_else(int_overflow),
        (Value::Uint(a), Value::Uint(b)) => a.checked_sub(*b).map(Value::Uint).ok_or_else(uint_overflow),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => a.checked_sub(*b).map(Value::Duration).ok_or_else(|| failed("duration overflow")),
        (Value::Timestamp(t), Value::Duration(d)) => timestamp(t.nanos() - i128::from(*d)),
        (Value::Timestamp(a), Value::Timestamp(b)) => i64::try_from(a.nanos() - b.nanos()).map(Value::Duration).map_err(|_| int_overflow()),
        _ => {
            let known = is_adder(a) && !matches!(a, Value::String(_) | Value::Bytes(_) | Value::List(_));
            Err(operator_error("_-_", a, known))
        }
    }
}

/// `a * b`
pub(crate) fn multiply<'a>(a: &Value<'a>, b: &Value<'a>) -> Answer<'a> {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.checked_mul(*b).map(Value::Int).ok_or_else(int_overflow),
        (Value::Uint(a), Value::Uint(b)) => a.checked_mul(*b).map(Value::Uint).ok_or_else(uint_overflow),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        _ => Err(operator_error("_*_", a, is_number(a))),
    }
}

fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

/// `a / b`
pub(crate) fn divide<'a>(a: &Value<'a>, b: &Value<'a>) -> Answer<'a> {
    let by_zero = || failed("division by zero");
    match (a, b) {
        (Value::Int(_), Value::Int(0)) => Err(by_zero()),
        (Value::Int(a), Value::Int(b)) => a.checked_div(*b).map(Value::Int).ok_or_else(int_overflow),
        (Value::Uint(a), Value::Uint(b)) => a.checked_div(*b).map(Value::Uint).ok_or_else(by_zero),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        _ => Err(operator_error("_/_", a, is_number(a))),
    }
}

/// `a % b`
pub(crate) fn modulo<'a>(a: &Value<'a>, b: &Value<'a>) -> Answer<'a> {
    let by_zero = || failed("modulus by zero");
    match (a, b) {
        (Value::Int(_), Value::Int(0)) => Err(by_zero()),
        (Value::Int(a), Value::Int(b)) => a.checked_rem(*b).map(Value::Int).ok_or_else(int_overflow),
        (Value::Uint(a), Value::Uint(b)) => a.checked_rem(*b).map(Value::Uint).ok_or_else(by_zero),
        _ => Err(operator_error("_%_", a, matches!(a, Value::Int(_) | Value::Uint(_)))),
    }
}

/// `-a`
pub(crate) fn negate<'a>(a: &Value<'a>) -> Answer<'a> {
    match a {
        Value::Int(a) => a.checked_neg().map(Value::Int).ok_or_else(int_overflow),
        Value::Double(a) => Ok(Value::Double(-a)),
        Value::Duration(a) => a.checked_neg().map(Value::Duration).ok_or_else(|| failed("duration overflow")),
        other => Err(operator_error("-_", other, matches!(other, Value::Bool(_)))),
    }
}

/// What `size()` gives, for the types that have it.
pub(crate) fn size(value: &Value<'_>) -> Option<u64> {
    Some(match value {
        Value::String(s) => code_points(s),
        Value::Bytes(b) => b.len() as u64,
        Value::List(l) => l.len() as u64,
        Value::Map(m) => m.len() as u64,
        Value::Opaque(Opaque::Ip(ip)) => ip.size(),
        Value::Opaque(Opaque::Cidr(cidr)) => cidr.size(),
        _ => return None,
    })
}

/// The number of code points of a string.
pub(crate) fn code_points(text: &str) -> u64 {
    if text.is_ascii() { text.len() as u64 } else { text.chars().count() as u64 }
}

/// Whether `optional.ofNonZeroValue` would give nothing.
pub(crate) fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Int(i) => *i == 0,
        Value::Uint(u) => *u == 0,
        Value::Double(d) => *d == 0.0,
        Value::String(s) => s.is_empty(),
        Value::Bytes(b) => b.is_empty(),
        Value::Duration(d) => *d == 0,
        Value::Timestamp(t) => t.seconds() == -62_135_596_800,
        Value::List(l) => l.is_empty(),
        Value::Map(m) => m.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;
    use serde_json::json;

    fn same(a: &Value<'_>, b: &Value<'_>) -> bool {
        equal(&mut Meter::for_constants(), a, b).unwrap()
    }

    #[test]
    fn numbers_compare_across_types() {
        assert!(same(&Value::Int(i64::MAX), &Value::Double(9_223_372_036_854_775_808.0)));
        assert_eq!(compare(&Value::Uint(u64::MAX), &Value::Int(-1)), Ok(Ordering::Greater));
        assert_eq!(compare(&Value::Int(1), &Value::Double(1.5)), Ok(Ordering::Less));
        assert_eq!(compare(&Value::Int(-1), &Value::Double(-1.5)), Ok(Ordering::Greater));
        assert_eq!(compare(&Value::Int(1), &Value::Double(f64::INFINITY)), Ok(Ordering::Less));
        assert!(compare(&Value::Double(f64::NAN), &Value::Int(1)).is_err());
        assert!(!same(&Value::Double(f64::NAN), &Value::Double(f64::NAN)));
        assert!(!same(&Value::Int(1), &Value::string("1")));
    }

    #[test]
    fn arithmetic_does_not_wrap() {
        let texts = [
            add(&mut Meter::for_constants(), &Value::Int(i64::MAX), &Value::Int(1)),
            subtract(&Value::Uint(0), &Value::Uint(1)),
            divide(&Value::Int(1), &Value::Int(0)),
            modulo(&Value::Int(1), &Value::Int(0)),
            divide(&Value::Int(i64::MIN), &Value::Int(-1)),
            negate(&Value::Int(i64::MIN)),
            add(&mut Meter::for_constants(), &Value::Null, &Value::Int(1)),
            multiply(&Value::Int(1), &Value::string("a")),
        ]
        .map(|answer| answer.unwrap_err().to_string());
        assert_eq!(
            texts,
            [
                "integer overflow",
                "unsigned integer overflow",
                "division by zero",
                "modulus by zero",
                "integer overflow",
                "integer overflow",
                "no such overload: _+_",
                "no such overload",
            ]
        );
    }

    #[test]
    fn lists_of_type_set_and_map_compare_and_add_by_content() {
        let set =
            Schema::from_openapi(&json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}), false).unwrap();
        let (a, b) = (json!(["x", "y"]), json!(["y", "x"]));
        let (a, b) = (Value::from_json(&a, Some(&set)), Value::from_json(&b, Some(&set)));
        assert!(same(&a, &b));
        let mut meter = Meter::for_constants();
        assert_eq!(size(&add(&mut meter, &a, &b).unwrap()), Some(2));

        let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}});
        let map = Schema::from_openapi(&map, false).unwrap();
        let (a, b) = (json!([{"k": "1", "v": 1}, {"k": "2", "v": 2}]), json!([{"k": "2", "v": 3}]));
        let (a, b) = (Value::from_json(&a, Some(&map)), Value::from_json(&b, Some(&map)));
        let sum = add(&mut meter, &a, &b).unwrap();
        assert_eq!(sum.to_json().unwrap(), json!([{"k": "1", "v": 1}, {"k": "2", "v": 3}]));
        assert!(!same(&a, &b));
    }

    #[test]
    fn a_comparison_of_shared_structure_is_stopped() {
        let mut value = Value::list(vec![Value::Int(1); 100]);
        for _ in 0..6 {
            value = Value::list(vec![value; 100]);
        }
        let answer = equal(&mut Meter::for_constants(), &value, &value.clone());
        assert_eq!(answer, Err(EvalError::CostLimitExceeded));
    }
}
