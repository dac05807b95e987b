//! The static estimate of a call, from the sizes that its arguments can have. The counterpart of the runtime
//! charges; where the two look different, so do Kubernetes'.

use super::estimate::{Estimator, Node};
use super::{AUTHORIZATION_CHECK, CostEstimate, LIST_CREATE, REGEX_LENGTH, STRING_TRAVERSAL, STRUCT_CREATE, Size};
use crate::ast::{Expr, Literal};
use crate::types::Type;

/// The cost of a call without its arguments, and the size of its result if that is known.
pub(super) type CallEstimate = (CostEstimate, Option<Size>);

const ONE: CostEstimate = CostEstimate::fixed(1);
/// The largest expression behind a named format.
const MAX_FORMAT_REGEX: f64 = 128.0;
/// The largest named format.
const MAX_FORMAT_SIZE: u64 = 64;

/// What the language's extensions say about an overload.
pub(super) fn of_overload(e: &Estimator<'_>, overload: &str, target: Option<&Node>, args: &[Node]) -> Option<CallEstimate> {
    let allocating = |factor: f64, size: Size| {
        let cost = size.cost(factor).add(ONE).add(CostEstimate::fixed(LIST_CREATE));
        Some((cost, Some(size)))
    };
    let literal = |node: &Node, otherwise: u64| match e.literal(node) {
        Some(Literal::Int(n)) => u64::try_from(*n).unwrap_or(0),
        _ => otherwise,
    };
    match (overload, target, args) {
        ("list_slice", Some(target), [start, end]) => {
            let size = e.size(target);
            let (start, end) = (literal(start, 0), literal(end, size.max));
            allocating(1.0, Size::fixed(end.wrapping_sub(start)))
        }
        ("lists_range", None, [n]) => allocating(1.0, Size::fixed(literal(n, u64::MAX))),
        ("list_reverse", Some(target), []) => allocating(1.0, e.size(target)),
        ("list_flatten" | "list_flatten_int", Some(target), _) => {
            let depth = args.first().map_or(1, |n| literal(n, u64::MAX));
            allocating(depth as f64, e.size(target))
        }
        ("list_distinct", Some(target), []) => {
            let size = e.size(target);
            allocating(2.0, size.multiply(size))
        }
        (id, Some(target), []) if id.ends_with("_sort") => sort(e, id, target),
        (id, Some(_), [keys]) if id.ends_with("_sortByAssociatedKeys") => sort(e, id, keys),
        ("list_sets_contains_list" | "list_sets_intersects_list", _, [a, b]) => {
            Some((e.size(a).multiply(e.size(b)).as_cost().add(ONE), None))
        }
        ("list_sets_equivalent_list", _, [a, b]) => Some((e.size(a).multiply(e.size(b)).cost(2.0).add(ONE), None)),
        _ => None,
    }
}

fn sort(e: &Estimator<'_>, overload: &str, list: &Node) -> Option<CallEstimate> {
    let size = e.size(list);
    let text = overload.starts_with("list_string") || overload.starts_with("list_bytes");
    let factor = if text { 2.0 + STRING_TRAVERSAL } else { 2.0 };
    let squared = size.multiply(size);
    Some((squared.cost(factor).add(ONE).add(CostEstimate::fixed(LIST_CREATE)), Some(squared)))
}

/// What Kubernetes says about a function.
pub(super) fn of_kubernetes(
    e: &Estimator<'_>,
    function: &str,
    overload: &str,
    target: Option<&Node>,
    args: &[Node],
) -> Option<CallEstimate> {
    let cost = |cost: CostEstimate| Some((cost, None));
    let traverse = |size: Size, factor: f64| size.cost(factor * STRING_TRAVERSAL);
    match (function, target, args) {
        ("check", ..) => cost(CostEstimate::fixed(AUTHORIZATION_CHECK)),
        (
            "serviceAccount" | "path" | "group" | "resource" | "subresource" | "namespace" | "name" | "allowed" | "reason" | "error"
            | "errored",
            ..,
        ) => cost(ONE),
        ("fieldSelector" | "labelSelector", _, [text]) => {
            let size = e.size(text);
            let requirements = size.cost(0.5).times((LIST_CREATE + STRUCT_CREATE) as f64);
            cost(CostEstimate::fixed(LIST_CREATE).add(traverse(size, 1.0)).add(requirements))
        }
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes", Some(target), _) => {
            cost(traverse_elements(e, function, target))
        }
        ("url" | "jsonpatch.escapeKey", _, [text]) => {
            let size = e.size(text);
            Some((traverse(size, 1.0), Some(size)))
        }
        ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
            let size = e.size(target);
            Some((traverse(size, 1.0), Some(size)))
        }
        ("replace", Some(target), [from, to, ..]) => {
            let size = e.size(target);
            Some((traverse(size, 2.0), Some(replaced(size, e.size(from), e.size(to)))))
        }
        ("split", Some(target), _) => {
            let size = e.size(target);
            let max = match args.get(1).and_then(|n| e.literal(n)) {
                Some(Literal::Int(n)) => *n as u64,
                _ => size.max,
            };
            Some((traverse(size, 2.0), Some(Size { min: 0, max })))
        }
        ("join", Some(target), _) => {
            let size = joined(e, target, args);
            Some((traverse(size, 1.0), Some(size)))
        }
        ("find" | "findAll", Some(target), [pattern, ..]) => {
            let size = e.size(target);
            let text = traverse(size.add(Size::ONE), 1.0);
            let result = Size { min: 0, max: size.max };
            Some((text.multiply(e.size(pattern).cost(REGEX_LENGTH)), Some(result)))
        }
        ("ip", ..) if overload == "cidr_ip" => cost(ONE),
        ("cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver", _, [text, ..]) => {
            cost(traverse(e.size(text), 1.0))
        }
        ("ip.isCanonical", _, [text, ..]) => cost(traverse(e.size(text), 2.0)),
        (
            "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast",
            ..,
        ) => cost(ONE),
        ("containsIP" | "containsCIDR", _, [other, ..]) => {
            let address = Size { min: 4, max: 16 };
            let mut sum = traverse(address.add(address), 1.0);
            if function == "containsCIDR" {
                sum = sum.add(traverse(address, 1.0)).add(ONE);
            }
            if matches!(overload, "cidr_contains_ip_string" | "cidr_contains_cidr_string") {
                sum = sum.add(traverse(e.size(other), 1.0));
            }
            cost(sum)
        }
        ("validate", _, [text, ..]) => cost(traverse(e.size(text), 1.0).times(MAX_FORMAT_REGEX * REGEX_LENGTH)),
        (
            "format.named" | "sign" | "asInteger" | "isInteger" | "asApproximateFloat" | "isGreaterThan" | "isLessThan" | "compareTo"
            | "add" | "sub" | "major" | "minor" | "patch",
            ..,
        )
        | ("getScheme" | "getHostname" | "getHost" | "getPort" | "getEscapedPath" | "getQuery", ..) => cost(ONE),
        ("_==_", _, [a, b]) if a.cel_type == b.cel_type => cost(kubernetes_equality(&a.cel_type, b)?),
        _ => None,
    }
}

fn kubernetes_equality(t: &Type, right: &Node) -> Option<CostEstimate> {
    match t.name() {
        "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => Some(ONE),
        "kubernetes.NamedFormat" => Some(CostEstimate { min: 1, max: MAX_FORMAT_SIZE }.times(STRING_TRAVERSAL)),
        "kubernetes.URL" => {
            let max = right.size.map_or(1, |size| size.max);
            Some(CostEstimate { min: 1, max }.times(STRING_TRAVERSAL))
        }
        name if name.starts_with("kubernetes.authorization.") => Some(ONE),
        _ => None,
    }
}

fn traverse_elements(e: &Estimator<'_>, function: &str, target: &Node) -> CostEstimate {
    let size = e.size(target);
    match e.element(target) {
        Some(element) => {
            let mut each = ONE;
            if matches!(element.cel_type, Type::String | Type::Bytes) {
                each = each.add(e.size(&element).cost(STRING_TRAVERSAL));
            }
            size.as_cost().multiply(each)
        }
        None if function == "includes" => size.as_cost().multiply(ONE),
        // A string, which indexOf and lastIndexOf take.
        None => size.cost(STRING_TRAVERSAL),
    }
}

fn joined(e: &Estimator<'_>, target: &Node, args: &[Node]) -> Size {
    let list = e.size(target);
    let mut size = Size::fixed(0);
    if let Some(element) = e.element(target) {
        size = list.multiply(e.size(&element));
    }
    if let Some(separator) = args.first() {
        let gaps = Size { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
        size = size.add(e.size(separator).multiply(gaps));
    }
    size
}

/// How long a string can be after a replacement.
fn replaced(size: Size, from: Size, to: Size) -> Size {
    let divide = |a: u64, b: u64| (a as f64 / b as f64).ceil() as u64;
    let (max_count, max_kept) = if from.min == 0 {
        (size.max.saturating_add(1), size.max)
    } else if to.max <= from.min {
        (0, size.max)
    } else {
        (divide(size.max, from.min), 0)
    };
    let (min_count, min_kept) = if from.max == 0 {
        (size.min.saturating_add(1), size.min)
    } else if from.max <= to.min {
        (0, size.min)
    } else {
        (divide(size.min, from.max), 0)
    };
    let count = Size { min: min_count, max: max_count };
    let kept = Size { min: min_kept, max: max_kept };
    count.multiply(to).add(kept)
}

/// What the language itself says about an overload. The costs of the arguments come on top.
pub(super) fn of_language(overload: &str, target: Option<&Node>, args: &[Node]) -> CallEstimate {
    let known = |node: &Node| node.size.unwrap_or(Size::UNKNOWN);
    match (overload, target, args) {
        ("string_format", Some(target), _) => (known(target).cost(STRING_TRAVERSAL), None),
        ("string_to_bytes", _, [text]) => {
            let size = known(text);
            let result = Size { min: size.min, max: size.max.wrapping_mul(4) };
            (size.cost(STRING_TRAVERSAL), Some(result))
        }
        ("bytes_to_string", _, [bytes]) => {
            let size = known(bytes);
            (size.cost(STRING_TRAVERSAL), Some(Size { min: size.min / 4, max: size.max }))
        }
        ("strings_quote", _, [text]) => {
            let size = known(text);
            let result = Size { min: size.min.wrapping_add(2), max: size.max.wrapping_mul(2).wrapping_add(2) };
            (size.cost(STRING_TRAVERSAL), Some(result))
        }
        ("starts_with_string" | "ends_with_string", _, [part]) => (known(part).cost(STRING_TRAVERSAL), None),
        ("in_list", _, [_, list]) => (known(list).as_cost(), None),
        ("matches_string", Some(target), [pattern]) => {
            let text = known(target).add(Size::ONE).cost(STRING_TRAVERSAL);
            (text.multiply(known(pattern).cost(REGEX_LENGTH)), None)
        }
        ("contains_string", Some(target), [part]) => {
            (known(target).cost(STRING_TRAVERSAL).multiply(known(part).cost(STRING_TRAVERSAL)), None)
        }
        ("add_string" | "add_bytes" | "add_list", _, [a, b]) => {
            let sum = known(a).add(known(b));
            let cost = if overload == "add_list" { ONE } else { sum.cost(STRING_TRAVERSAL) };
            (cost, Some(sum))
        }
        (
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
            _,
            [a, b],
        ) => {
            let smallest = known(a).max.min(known(b).max);
            let cost = CostEstimate { min: u64::from(smallest > 0), max: smallest };
            (cost.times(STRING_TRAVERSAL), None)
        }
        _ => (ONE, None),
    }
}

/// The literal that a node is.
pub(super) fn literal(expr: &Expr) -> Option<&Literal> {
    match expr {
        Expr::Literal(literal) => Some(literal),
        _ => None,
    }
}
