//! Both lists libraries: Kubernetes' own (`isSorted`, `sum`, `min`, `max`, `indexOf`, `lastIndexOf`, `includes`)
//! and the language's extension, version 3 (`slice`, `flatten`, `sort`, `lists.range`, `reverse`, `distinct`;
//! `sortBy` is a macro).

use std::cmp::Ordering;

use crate::declarations::{Declaration, declare};
use crate::error::{EvalError, failed, no_such_overload};
use crate::meter::Meter;
use crate::operations::{self, Answer};
use crate::value::{List, Value};

/// The longest list that a function may make in one go. Its cost would be beyond any limit.
const MAX_LIST: usize = 1_000_000;

macro_rules! for_comparable {
    ($function:literal, $before:literal, $after:literal, $result:literal, $call:ident) => {
        [
            declare($function, concat!($before, "int", $after), concat!("list(int)", $result), $call),
            declare($function, concat!($before, "uint", $after), concat!("list(uint)", $result), $call),
            declare($function, concat!($before, "double", $after), concat!("list(double)", $result), $call),
            declare($function, concat!($before, "bool", $after), concat!("list(bool)", $result), $call),
            declare($function, concat!($before, "duration", $after), concat!("list(duration)", $result), $call),
            declare($function, concat!($before, "timestamp", $after), concat!("list(timestamp)", $result), $call),
            declare($function, concat!($before, "string", $after), concat!("list(string)", $result), $call),
            declare($function, concat!($before, "bytes", $after), concat!("list(bytes)", $result), $call),
        ]
    };
}

macro_rules! of_element_type {
    ($function:literal, $call:ident, $suffix:literal, $($t:literal),*) => {
        [$(declare(
            $function,
            concat!("list_", $t, $suffix, $t),
            concat!("list(", $t, ").() -> ", $t),
            $call,
        )),*]
    };
}

const IS_SORTED: [Declaration; 8] = for_comparable!("isSorted", "list_", "_is_sorted_bool", ".() -> bool", is_sorted);
const SUM: [Declaration; 4] = [
    declare("sum", "list_int_sum_int", "list(int).() -> int", sum_ints),
    declare("sum", "list_uint_sum_uint", "list(uint).() -> uint", sum_uints),
    declare("sum", "list_double_sum_double", "list(double).() -> double", sum_doubles),
    declare("sum", "list_duration_sum_duration", "list(duration).() -> duration", sum_durations),
];
const MAX: [Declaration; 8] =
    of_element_type!("max", max, "_max_", "int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes");
const MIN: [Declaration; 8] =
    of_element_type!("min", min, "_min_", "int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes");

macro_rules! sorts {
    ($function:literal, $suffix:literal, $call:ident, $list:ident) => {
        [
            sorts!(@one $function, $suffix, $call, $list, "int", "int"),
            sorts!(@one $function, $suffix, $call, $list, "uint", "uint"),
            sorts!(@one $function, $suffix, $call, $list, "double", "double"),
            sorts!(@one $function, $suffix, $call, $list, "bool", "bool"),
            sorts!(@one $function, $suffix, $call, $list, "google.protobuf.Duration", "duration"),
            sorts!(@one $function, $suffix, $call, $list, "google.protobuf.Timestamp", "timestamp"),
            sorts!(@one $function, $suffix, $call, $list, "string", "string"),
            sorts!(@one $function, $suffix, $call, $list, "bytes", "bytes"),
        ]
    };
    (@one $function:literal, $suffix:literal, $call:ident, own, $id:literal, $t:literal) => {
        declare($function, concat!("list_", $id, $suffix), concat!("list(", $t, ").() -> list(", $t, ")"), $call)
    };
    (@one $function:literal, $suffix:literal, $call:ident, keys, $id:literal, $t:literal) => {
        declare($function, concat!("list_", $id, $suffix), concat!("list(T).(list(", $t, ")) -> list(T)"), $call)
    };
}

const SORT: [Declaration; 8] = sorts!("sort", "_sort", sort, own);
const SORT_BY: [Declaration; 8] = sorts!("@sortByAssociatedKeys", "_sortByAssociatedKeys", sort_by_keys, keys);

const OTHERS: [Declaration; 9] = [
    declare("indexOf", "list_a_index_of_int", "list(A).(A) -> int", index_of),
    declare("lastIndexOf", "list_a_last_index_of_int", "list(A).(A) -> int", last_index_of),
    declare("includes", "list_includes_dyn_dyn", "dyn.(dyn) -> bool", includes),
    declare("slice", "list_slice", "list(T).(int, int) -> list(T)", slice),
    declare("flatten", "list_flatten", "list(list(T)).() -> list(T)", flatten),
    declare("flatten", "list_flatten_int", "list(dyn).(int) -> list(dyn)", flatten),
    declare("lists.range", "lists_range", "(int) -> list(int)", range),
    declare("reverse", "list_reverse", "list(T).() -> list(T)", reverse),
    declare("distinct", "list_distinct", "list(T).() -> list(T)", distinct),
];

pub(crate) const DECLARATIONS: &[Declaration] = &{
    const NONE: Declaration = declare("", "", "() -> dyn", includes);
    const LEN: usize = 8 + 4 + 8 + 8 + 8 + 8 + 9;
    let mut all = [NONE; LEN];
    let mut at = 0;
    macro_rules! append {
        ($table:ident) => {
            let mut i = 0;
            while i < $table.len() {
                let d = &$table[i];
                all[at] = declare(d.function, d.id, d.signature, d.call);
                at += 1;
                i += 1;
            }
        };
    }
    append!(SORT);
    append!(SORT_BY);
    append!(OTHERS);
    append!(IS_SORTED);
    append!(SUM);
    append!(MAX);
    append!(MIN);
    all
};

fn list<'v, 'a>(args: &'v [Value<'a>]) -> Result<&'v List<'a>, EvalError> {
    match args {
        [Value::List(list), ..] => Ok(list),
        _ => Err(no_such_overload()),
    }
}

fn is_sorted<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let mut previous: Option<Value<'_>> = None;
    for item in list(args)?.iter() {
        meter.work(1)?;
        if let Some(previous) = &previous
            && operations::compare(previous, &item)? == Ordering::Greater
        {
            return Ok(Value::Bool(false));
        }
        previous = Some(item);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(meter: &mut Meter, args: &[Value<'a>], zero: Value<'a>) -> Answer<'a> {
    let mut total = zero;
    for item in list(args)?.iter() {
        meter.work(1)?;
        total = operations::add(meter, &total, &item)?;
    }
    Ok(total)
}

fn sum_ints<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    sum(meter, args, Value::Int(0))
}

fn sum_uints<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    sum(meter, args, Value::Uint(0))
}

fn sum_doubles<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    sum(meter, args, Value::Double(0.0))
}

fn sum_durations<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    sum(meter, args, Value::Duration(0))
}

fn extreme<'a>(meter: &mut Meter, args: &[Value<'a>], name: &str, replace: Ordering) -> Answer<'a> {
    let mut found: Option<Value<'a>> = None;
    for item in list(args)?.iter() {
        meter.work(1)?;
        match &found {
            Some(best) if operations::compare(best, &item)? != replace => {}
            _ => found = Some(item),
        }
    }
    found.ok_or_else(|| failed(format!("{name} called on empty list")))
}

fn max<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    extreme(meter, args, "max", Ordering::Less)
}

fn min<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    extreme(meter, args, "min", Ordering::Greater)
}

fn index_of<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::List(list), item] = args else {
        return Err(no_such_overload());
    };
    for (i, element) in list.iter().enumerate() {
        meter.work(1)?;
        if operations::equal(meter, &element, item)? {
            return Ok(Value::Int(i as i64));
        }
    }
    Ok(Value::Int(-1))
}

fn last_index_of<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::List(list), item] = args else {
        return Err(no_such_overload());
    };
    for i in (0..list.len()).rev() {
        meter.work(1)?;
        if let Some(element) = list.get(i)
            && operations::equal(meter, &element, item)?
        {
            return Ok(Value::Int(i as i64));
        }
    }
    Ok(Value::Int(-1))
}

fn includes<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::List(list), item] => operations::contains(meter, list, item).map(Value::Bool),
        [target, item] => operations::equal(meter, target, item).map(Value::Bool),
        _ => Err(no_such_overload()),
    }
}

fn range<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::Int(n)] = args else {
        return Err(no_such_overload());
    };
    let n = usize::try_from(*n).unwrap_or(0);
    check_length(meter, n)?;
    Ok(Value::list((0..n as i64).map(Value::Int).collect()))
}

fn check_length(meter: &mut Meter, len: usize) -> Result<(), EvalError> {
    if len > MAX_LIST {
        return Err(EvalError::CostLimitExceeded);
    }
    meter.work(len as u64 / 8)
}

fn reverse<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let list = list(args)?;
    check_length(meter, list.len())?;
    let mut items: Vec<Value<'a>> = list.iter().collect();
    items.reverse();
    Ok(Value::list(items))
}

fn slice<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else {
        return Err(no_such_overload());
    };
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return Err(failed(format!("cannot slice({start}, {end}), negative indexes not supported")));
    };
    if from > to {
        return Err(failed(format!("cannot slice({start}, {end}), start index must be less than or equal to end index")));
    }
    if list.len() < to {
        return Err(failed(format!("cannot slice({start}, {end}), list is length {}", list.len())));
    }
    check_length(meter, to - from)?;
    Ok(Value::list((from..to).filter_map(|i| list.get(i)).collect()))
}

fn flatten<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let depth = match args {
        [Value::List(_)] => 1,
        [Value::List(_), Value::Int(depth)] => *depth,
        _ => return Err(no_such_overload()),
    };
    let depth = usize::try_from(depth).map_err(|_| failed("level must be non-negative"))?;
    let mut flat = Vec::new();
    flatten_into(meter, list(args)?, depth, &mut flat)?;
    Ok(Value::list(flat))
}

/// Recurses no deeper than values nest, which expressions and documents bound.
fn flatten_into<'a>(meter: &mut Meter, list: &List<'a>, depth: usize, flat: &mut Vec<Value<'a>>) -> Result<(), EvalError> {
    for item in list.iter() {
        meter.work(1)?;
        match item {
            Value::List(inner) if depth > 0 => flatten_into(meter, &inner, depth - 1, flat)?,
            other => flat.push(other),
        }
        if flat.len() > MAX_LIST {
            return Err(EvalError::CostLimitExceeded);
        }
    }
    Ok(())
}

fn sort<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let list = list(args)?;
    sort_with(meter, list, list)
}

fn sort_by_keys<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::List(list), Value::List(keys)] => sort_with(meter, list, keys),
        _ => Err(no_such_overload()),
    }
}

/// Sorts one list by the order of another one of the same length.
pub(crate) fn sort_with<'a>(meter: &mut Meter, list: &List<'a>, keys: &List<'a>) -> Answer<'a> {
    check_length(meter, list.len())?;
    if list.len() != keys.len() {
        return Err(failed(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} elements respectively",
            list.len(),
            keys.len()
        )));
    }
    let mut pairs: Vec<(Value<'a>, Value<'a>)> = keys.iter().zip(list.iter()).collect();
    let Some((first, _)) = pairs.first() else {
        return Ok(Value::List(list.clone()));
    };
    if operations::compare(first, first).is_err() && !matches!(first, Value::Double(_)) {
        return Err(failed("list elements must be comparable"));
    }
    let kind = std::mem::discriminant(first);
    if pairs.iter().any(|(key, _)| std::mem::discriminant(key) != kind) {
        return Err(failed("list elements must have the same type"));
    }
    meter.work(pairs.len() as u64)?;
    pairs.sort_by(|(a, _), (b, _)| operations::compare(a, b).unwrap_or(Ordering::Equal));
    Ok(Value::list(pairs.into_iter().map(|(_, item)| item).collect()))
}

fn distinct<'a>(meter: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    let mut unique: Vec<Value<'a>> = Vec::new();
    for item in list(args)?.iter() {
        let mut seen = false;
        for other in &unique {
            meter.work(1)?;
            if operations::equal(meter, &item, other)? {
                seen = true;
                break;
            }
        }
        if !seen {
            unique.push(item);
        }
    }
    Ok(Value::list(unique))
}
