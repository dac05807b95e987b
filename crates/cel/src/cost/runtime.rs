//! What a call costs when it is made, from the sizes of its arguments. Which rule applies is decided when an
//! expression is planned. Calls that could take long are charged before they are made.

use super::{AUTHORIZATION_CHECK, LIST_CREATE, REGEX_LENGTH, STRING_TRAVERSAL, STRUCT_CREATE, by_factor};
use crate::error::EvalError;
use crate::library::Opaque;
use crate::meter::Meter;
use crate::operations;
use crate::value::{List, Value};

/// How a call is charged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Charge {
    Fixed(u64),
    /// A tenth of the size of the first argument, times a factor.
    Traverse(f64),
    /// A tenth of the size of the second argument.
    TraverseSecond,
    /// A tenth of the size of the result, times two.
    Join,
    /// Every element of the first argument, and of what is inside it.
    TraverseDeeply,
    Regex,
    Contains,
    /// The size of the second argument.
    InList,
    /// A tenth of the smaller size.
    Smaller,
    /// A tenth of both sizes.
    Add,
    Selector,
    ContainsIp {
        text: bool,
    },
    ContainsCidr {
        text: bool,
    },
    Validate,
    /// The size of the result.
    ListOutput,
    Flatten,
    /// The square of the size of an argument.
    SelfCompare(usize),
    Sets(f64),
}

impl Charge {
    /// The rule for a call. Without an overload, several could be meant and the call costs one.
    pub fn of(function: &str, overload: Option<&str>) -> Charge {
        match overload {
            Some("list_slice" | "lists_range" | "list_reverse") => return Charge::ListOutput,
            Some("list_flatten" | "list_flatten_int") => return Charge::Flatten,
            Some("list_distinct") => return Charge::SelfCompare(0),
            Some(id) if id.starts_with("list_") && id.ends_with("_sort") => {
                return Charge::SelfCompare(0);
            }
            Some(id) if id.ends_with("_sortByAssociatedKeys") => return Charge::SelfCompare(1),
            Some("list_sets_contains_list" | "list_sets_intersects_list") => {
                return Charge::Sets(1.0);
            }
            Some("list_sets_equivalent_list") => return Charge::Sets(2.0),
            _ => {}
        }
        match function {
            "check" => return Charge::Fixed(AUTHORIZATION_CHECK),
            "fieldSelector" | "labelSelector" => return Charge::Selector,
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes" => {
                return Charge::TraverseDeeply;
            }
            "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "jsonpatch.escapeKey" => {
                return Charge::Traverse(1.0);
            }
            "replace" | "split" => return Charge::Traverse(2.0),
            "join" => return Charge::Join,
            "find" | "findAll" => return Charge::Regex,
            "ip" if overload == Some("cidr_ip") => return Charge::Fixed(1),
            "cidr" | "isIP" | "isCIDR" | "ip" => return Charge::Traverse(1.0),
            "ip.isCanonical" => return Charge::Traverse(2.0),
            "containsIP" => {
                return Charge::ContainsIp { text: overload == Some("cidr_contains_ip_string") };
            }
            "containsCIDR" => {
                return Charge::ContainsCidr { text: overload == Some("cidr_contains_cidr_string") };
            }
            "quantity" | "isQuantity" | "semver" | "isSemver" => return Charge::Traverse(1.0),
            "validate" => return Charge::Validate,
            _ => {}
        }
        match overload {
            Some("starts_with_string" | "ends_with_string") => Charge::TraverseSecond,
            Some("string_to_bytes" | "bytes_to_string" | "strings_quote" | "string_format") => Charge::Traverse(1.0),
            Some("in_list") => Charge::InList,
            Some(
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
            ) => Charge::Smaller,
            Some("add_string" | "add_bytes") => Charge::Add,
            Some("matches_string") => Charge::Regex,
            Some("contains_string") => Charge::Contains,
            _ => Charge::Fixed(1),
        }
    }

    /// Whether the charge depends on the result.
    pub fn after(self) -> bool {
        matches!(self, Charge::Join | Charge::ListOutput)
    }

    /// What the call costs. Arguments that failed count as size one; so does a result that did.
    pub fn cost(self, meter: &mut Meter, args: &[Value<'_>], result: Option<&Value<'_>>) -> Result<u64, EvalError> {
        let size = |i: usize| args.get(i).map_or(1, size);
        Ok(match self {
            Charge::Fixed(cost) => cost,
            Charge::Traverse(factor) => by_factor(size(0), factor * STRING_TRAVERSAL),
            Charge::TraverseSecond => by_factor(size(1), STRING_TRAVERSAL),
            Charge::Join => by_factor(result.map_or(1, self::size), 2.0 * STRING_TRAVERSAL),
            Charge::TraverseDeeply => args.first().map_or(Ok(0), |v| traversal(meter, v))?,
            Charge::Regex => by_factor(size(0) + 1, STRING_TRAVERSAL).saturating_mul(by_factor(size(1), REGEX_LENGTH)),
            Charge::Contains => by_factor(size(0), STRING_TRAVERSAL).saturating_mul(by_factor(size(1), STRING_TRAVERSAL)),
            Charge::InList => size(1),
            Charge::Smaller => smaller(args),
            Charge::Add => by_factor(size(0) + size(1), STRING_TRAVERSAL),
            Charge::Selector => selector(size(1)),
            Charge::ContainsIp { text } => {
                let parse = if text { by_factor(size(1), STRING_TRAVERSAL) } else { 0 };
                by_factor(2 * size(0), STRING_TRAVERSAL) + parse
            }
            Charge::ContainsCidr { text } => {
                let parse = if text { by_factor(size(1), STRING_TRAVERSAL) } else { 0 };
                by_factor(2 * size(0), STRING_TRAVERSAL) + by_factor(size(0), STRING_TRAVERSAL) + 1 + parse
            }
            Charge::Validate => match args.first() {
                Some(Value::Opaque(Opaque::Format(format))) => {
                    by_factor(size(1) + 1, STRING_TRAVERSAL) * by_factor(format.regex_size, REGEX_LENGTH)
                }
                _ => 1,
            },
            Charge::ListOutput => allocating(1.0, result.map_or(1, self::size)),
            Charge::Flatten => {
                let depth = match args.get(1) {
                    Some(Value::Int(depth)) => (*depth).max(0) as f64,
                    _ => 1.0,
                };
                allocating(depth, size(0))
            }
            Charge::SelfCompare(at) => self_compare(args.get(at)),
            Charge::Sets(factor) => 1u64.saturating_add((size(0).saturating_mul(size(1)) as f64 * factor) as u64),
        })
    }
}

/// The size that costs are computed from.
fn size(value: &Value<'_>) -> u64 {
    operations::size(value).unwrap_or(1)
}

/// What `==` and `!=` of two values cost.
pub(crate) fn equality(a: &Value<'_>, b: &Value<'_>, equals: bool) -> u64 {
    // Values of Kubernetes' own types compare at a fixed cost, but only with `==`.
    if equals && matches!(a, Value::Opaque(_)) {
        return 1;
    }
    by_factor(size_inside(a).min(size_inside(b)), STRING_TRAVERSAL)
}

fn smaller(args: &[Value<'_>]) -> u64 {
    match args {
        [a, b] => by_factor(size_inside(a).min(size_inside(b)), STRING_TRAVERSAL),
        _ => 1,
    }
}

/// As [`size`], but looks into optional values.
fn size_inside(value: &Value<'_>) -> u64 {
    match value {
        Value::Optional(Some(inner)) => size_inside(inner),
        other => size(other),
    }
}

fn allocating(factor: f64, size: u64) -> u64 {
    ((size as f64 * factor) as u64).saturating_add(1 + LIST_CREATE)
}

fn self_compare(list: Option<&Value<'_>>) -> u64 {
    let Some(Value::List(list)) = list else {
        return allocating(2.0, 0);
    };
    let factor = match list.get(0) {
        Some(Value::String(_) | Value::Bytes(_)) => 2.0 + STRING_TRAVERSAL,
        _ => 2.0,
    };
    let size = list.len() as u64;
    allocating(factor, size.saturating_mul(size))
}

/// A selector costs a list, its text, and a requirement for every second character.
fn selector(length: u64) -> u64 {
    let requirement = (LIST_CREATE + STRUCT_CREATE) as f64;
    LIST_CREATE + by_factor(length, STRING_TRAVERSAL) + by_factor(by_factor(length, 0.5), requirement)
}

/// The cost of walking through a value.
fn traversal(meter: &mut Meter, value: &Value<'_>) -> Result<u64, EvalError> {
    meter.work(1)?;
    Ok(match value {
        Value::String(s) => (s.len() as f64 * STRING_TRAVERSAL) as u64,
        Value::Bytes(b) => (b.len() as f64 * STRING_TRAVERSAL) as u64,
        Value::List(list) => traverse_list(meter, list)?,
        Value::Map(map) => {
            let mut cost = 0u64;
            for (key, value) in map.iter() {
                cost = cost.saturating_add(traversal(meter, &key)?).saturating_add(traversal(meter, &value)?);
            }
            cost
        }
        _ => 1,
    })
}

fn traverse_list(meter: &mut Meter, list: &List<'_>) -> Result<u64, EvalError> {
    let mut cost = 0u64;
    for item in list.iter() {
        cost = cost.saturating_add(traversal(meter, &item)?);
    }
    Ok(cost)
}
