//! Inputs made to hurt: each must end quickly, with an error or within its budget, and never bring the process down.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use serde_json::json;
use usher_cel::{Activation, Budget, CompileError, Environment, EvalError, Type};

/// Far more than any of them needs, even in a debug build on a busy machine.
const QUICKLY: Duration = Duration::from_secs(5);

fn environment() -> Environment {
    Environment::kubernetes().variable("x", Type::Dyn)
}

/// Compiles and evaluates, and gives the error text or nothing.
fn run(source: &str) -> Option<String> {
    let start = Instant::now();
    let x = json!({"list": (0..100).collect::<Vec<_>>(), "text": "a".repeat(10_000)});
    let error = match environment().compile(source) {
        Err(error) => Some(error.to_string()),
        Ok(program) => {
            let activation = Activation::new().bind("x", &x);
            program.evaluate(&activation, &mut Budget::default()).err().map(|e| e.to_string())
        }
    };
    assert!(start.elapsed() < QUICKLY, "{:?} for {:.80}", start.elapsed(), source);
    error
}

const COST: &str = "operation cancelled: actual cost limit exceeded";

#[test]
fn deep_nesting_and_long_chains_are_refused() {
    let limit = Some("ERROR: <input>:-1:0: expression recursion limit exceeded: 250".to_owned());
    for (open, close) in [("(", ")"), ("[", "]"), ("{1: ", "}"), ("f(", ")")] {
        assert_eq!(run(&format!("{}1{}", open.repeat(10_000), close.repeat(10_000))), limit);
    }
    assert_eq!(run(&format!("x{}", ".a".repeat(49_000))), limit);
    assert_eq!(run(&format!("x{}", "[0]".repeat(30_000))), limit);
    assert_eq!(run(&format!("1{}", " + 1".repeat(24_000))), limit);
    assert_eq!(run(&format!("1{}", " == 1".repeat(19_000))), limit);
    assert_eq!(run(&"true ? 1 : ".repeat(9_000)), limit);
    for operator in ["-", "!", "(", "[", "{", ".", "?", "\"", "'", "b'", "`", "//", "\\"] {
        assert!(run(&operator.repeat(40_000)).is_some() || operator == "//", "{operator}");
    }
    assert!(run(&"1 + ".repeat(262_144)).is_some_and(|e| e.contains("code point size exceeds limit: size: 1048576")));
    assert!(run(&format!("x.a{}", ".b".repeat(49_000))).is_some());
}

#[test]
fn long_flat_expressions_are_fine() {
    assert_eq!(run(&format!("true{}", " && true".repeat(12_000))), None);
    assert_eq!(run(&format!("[{}].size() > 0", "1, ".repeat(30_000))), None);
    assert_eq!(run(&format!("'{}'.size() > 0", "é".repeat(90_000))), None);
}

#[test]
fn nested_loops_are_stopped_by_their_cost() {
    let twenty = "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19]";
    let nested = (0..6).fold("1".to_owned(), |inner, i| format!("{twenty}.map(v{i}, {inner})"));
    assert_eq!(run(&nested).as_deref(), Some(COST));
    assert_eq!(run("x.list.all(a, x.list.all(b, x.list.all(c, x.list.all(d, true))))").as_deref(), Some(COST));
}

#[test]
fn doubling_is_stopped_before_it_fills_the_memory() {
    let doubled = |start: &str, times: usize| {
        let mut source = start.to_owned();
        for i in 0..times {
            source = format!("[{source}].map(v{i}, v{i} + v{i})[0]");
        }
        source
    };
    assert_eq!(run(&format!("{}.size() > 0", doubled("'0123456789abcdef'", 27))).as_deref(), Some(COST));
    // Lists are put together without copying, so doubling them is cheap; walking through them is not.
    assert_eq!(run(&format!("{}.size() == 17179869184", doubled("[0, 1]", 33))), None);
    assert_eq!(run(&format!("{}.all(x, true)", doubled("[0, 1]", 33))).as_deref(), Some(COST));
    assert_eq!(run(&format!("{}.sum() > 0", doubled("[0, 1]", 33))).as_deref(), Some(COST));
    assert_eq!(run(&format!("1 in {}.map(x, x)", doubled("[0, 1]", 33))).as_deref(), Some(COST));
    let list = doubled("[0, 1]", 33);
    assert_eq!(run(&format!("{list} == {list}")).as_deref(), Some(COST));
    assert_eq!(run(&format!("{list}.reverse().size() > 0")).as_deref(), Some(COST));
    assert_eq!(run(&format!("{list}.slice(0, 17179869184).size() > 0")).as_deref(), Some(COST));
    assert_eq!(run(&format!("{list}.distinct().size() > 0")).as_deref(), Some(COST));
}

#[test]
fn functions_whose_result_is_larger_than_their_cost_are_bounded() {
    assert_eq!(run("lists.range(1000000000).size() > 0").as_deref(), Some(COST));
    assert_eq!(run("x.text.replace('', x.text).size() > 0").as_deref(), Some(COST));
    assert_eq!(run("x.list.map(i, x.text).map(i, x.list.map(j, x.text)).flatten().join(x.text).size() > 0").as_deref(), Some(COST));
    let nested = "x.list.map(i, x.list).map(i, x.list.map(j, x.list)).map(i, x.list)";
    assert!(run(&format!("{nested}.flatten(5).size() > 0")).is_none_or(|e| e == COST));
    assert!(run("'%.1000000000f'.format([1.0])").is_some());
    assert!(
        run("optional.of(lists.range(300)).optMap(r, r.map(i, r)).optMap(m, m.map(i, m)).optMap(n, '%s'.format([n])).value().size() > 0")
            .is_some_and(|e| e == COST)
    );
}

#[test]
fn optional_chains_do_not_double_the_expression() {
    let chain = (0..80).fold("optional.of(1)".to_owned(), |inner, i| format!("{inner}.optMap(v{i}, v{i} + 1)"));
    // Every step reads the one before twice, so the cost doubles, and stops it.
    assert_eq!(run(&chain).as_deref(), Some(COST));
}

#[test]
fn regular_expression_bombs_do_not_go_off() {
    for pattern in
        ["(a+)+$", "(a|aa)+$", "(.*)*x", "(a{1,1000}){1,1000}", "((((a{100}){100}){100}){100})", "(x+x+)+y", "(?i)(\\\\pL{1,50}){20}"]
    {
        run(&format!("x.text.matches('{pattern}')"));
        run(&format!("x.text.matches('{pattern}' + string(x.list[0]))"));
    }
    run("x.list.all(i, x.list.all(j, !x.text.matches('(\\\\pL{40}){10}' + string(i) + 'x' + string(j))))");
    assert!(environment().compile(&format!("'a'.matches('{}a{}')", "(".repeat(10_000), ")".repeat(10_000))).is_err());
}

#[test]
fn an_evaluation_ends_at_its_deadline() {
    let program = environment().compile("x.list.all(a, x.list.all(b, x.list.all(c, true)))").unwrap();
    let x = json!({"list": (0..1_000).collect::<Vec<_>>()});
    let activation = Activation::new().bind("x", &x);
    let mut budget = Budget::new(u64::MAX).per_call(u64::MAX).deadline(Instant::now() + Duration::from_millis(50));
    let start = Instant::now();
    let error = program.evaluate(&activation, &mut budget).err();
    assert_eq!(error, Some(EvalError::Interrupted));
    assert!(start.elapsed() < QUICKLY);
}

#[test]
fn a_deep_document_does_not_exhaust_the_stack() {
    let mut deep = json!(1);
    for _ in 0..100 {
        deep = json!([deep]);
    }
    let program = environment().compile("x == x && [x].flatten(1000).size() == 1").unwrap();
    let activation = Activation::new().bind("x", &deep);
    assert!(program.evaluate(&activation, &mut Budget::default()).is_ok());
}

#[test]
fn errors_of_huge_expressions_stay_small() {
    let source = format!("{} + {}", "a".repeat(20_000), "b".repeat(20_000));
    match environment().compile(&source) {
        Err(CompileError::Issues(issues)) => assert!(issues.to_string().len() < 100_000),
        other => panic!("{other:?}"),
    }
}
