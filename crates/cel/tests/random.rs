//! Random expressions over a fixed object: whatever is thrown at it, the language answers with a value or an error,
//! within its limits. The fuzz target does the same for longer.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;
use usher_cel::{Activation, Budget, Environment, Type};

fn run(source: &str) {
    let environment = Environment::kubernetes().variable("object", Type::Dyn).with_jsonpatch().with_mutation_types();
    let Ok(program) = environment.compile(source) else {
        return;
    };
    let object = json!({"a": [1, 2.5, "x", null, true], "b": {"c": {"d": "e"}}, "s": "text"});
    let activation = Activation::new().bind("object", &object);
    let plain = program.evaluate_with_cost(&activation, &mut Budget::default());
    if let Ok(value) = &plain.0 {
        assert!(plain.1 <= 1_000_000, "{source}");
        let _ = value.to_json();
    }
    // Explaining changes neither the answer nor the cost.
    let explained = program.explain(&activation, &mut Budget::default());
    assert_eq!(explained.cost, plain.1, "{source}");
    assert_eq!(explained.value.map(|v| v.to_typed_json()), plain.0.map(|v| v.to_typed_json()), "{source}");
}

const TOKENS: [&str; 64] = [
    "object",
    "object.a",
    "object.b.c",
    "x",
    "1",
    "-2",
    "3u",
    "1.5",
    "'s'",
    "b'b'",
    "true",
    "false",
    "null",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    ":",
    "?",
    "+",
    "-",
    "*",
    "/",
    "%",
    "<",
    "<=",
    "==",
    "!=",
    "&&",
    "||",
    "!",
    " in ",
    ".all(x, ",
    ".exists(x, ",
    ".map(x, ",
    ".filter(x, ",
    ".optMap(x, ",
    ".size()",
    ".?a",
    "[?0]",
    "has(",
    "optional.of(",
    ".value()",
    ".orValue(",
    "dyn(",
    "string(",
    "int(",
    "timestamp(",
    "duration(",
    "quantity(",
    "ip(",
    "type(",
    ".matches(",
    ".split(",
    ".join(",
    ".sortBy(x, ",
    "lists.range(",
    "Object{a: ",
    ".format([",
    ".transformMap(k, x, ",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sequences_of_tokens_never_panic(tokens in prop::collection::vec(prop::sample::select(&TOKENS[..]), 0..24)) {
        run(&tokens.concat());
    }

    #[test]
    fn any_text_never_panics(text in "\\PC{0,60}") {
        run(&text);
    }

    #[test]
    fn well_formed_expressions_never_panic(source in expression()) {
        run(&source);
    }
}

/// Expressions that parse, most of them wrong in other ways.
fn expression() -> impl Strategy<Value = String> {
    let leaf =
        prop::sample::select(&["object", "object.a", "object.b", "object.s", "1", "2u", "0.5", "'a'", "true", "null", "[]", "{}"][..]);
    leaf.prop_map(str::to_owned).prop_recursive(4, 24, 3, |inner| {
        let binary = prop::sample::select(&[" + ", " - ", " * ", " / ", " % ", " == ", " < ", " && ", " || ", " in "][..]);
        let wrap = prop::sample::select(&["dyn(", "string(", "int(", "size(", "type(", "optional.of(", "!(", "-("][..]);
        let fold = prop::sample::select(&["all", "exists", "exists_one", "map", "filter", "sortBy"][..]);
        let method = prop::sample::select(&["sum", "min", "sort", "distinct", "reverse", "flatten", "first", "trim", "join"][..]);
        prop_oneof![
            (inner.clone(), binary, inner.clone()).prop_map(|(a, op, b)| format!("({a}{op}{b})")),
            (wrap, inner.clone()).prop_map(|(open, a)| format!("{open}{a})")),
            (inner.clone(), fold, inner.clone()).prop_map(|(a, fold, b)| format!("dyn({a}).{fold}(v, dyn({b}) == v)")),
            (inner.clone(), method).prop_map(|(a, method)| format!("dyn({a}).{method}()")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("(dyn({a}) ? dyn({b}) : dyn({c}))")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[dyn({a}), dyn({b})]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{dyn({a}): dyn({b})}}")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("dyn({a})[dyn({b})]")),
        ]
    })
}
