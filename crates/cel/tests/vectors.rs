//! Plays the vector files of `USHER_VECTORS` (the folder `cel` of the project's shared facts): Kubernetes' own
//! answers, and the language's public conformance vectors where Kubernetes agrees with them. Says so and passes when
//! the variable is not set.

use std::path::PathBuf;

use serde_json::{Value as Json, json};
use usher_cel::golden::evaluate_line;

fn vectors() -> Option<PathBuf> {
    let folder = std::env::var_os("USHER_VECTORS").map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: USHER_VECTORS is not set");
    }
    folder
}

fn read(path: PathBuf) -> Vec<Json> {
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// Doubles are compared as numbers; everything else as it is written.
fn same(expected: &Json, found: &Json) -> bool {
    match (expected, found) {
        (Json::Object(a), Json::Object(b)) if a.contains_key("double") && b.contains_key("double") => {
            let number = |j: &Json| match j {
                Json::String(s) => s.parse::<f64>().ok(),
                j => j.as_f64(),
            };
            match (number(&a["double"]), number(&b["double"])) {
                (Some(a), Some(b)) => a == b || (a.is_nan() && b.is_nan()),
                _ => false,
            }
        }
        (Json::Object(a), Json::Object(b)) => a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| same(v, w))),
        (Json::Array(a), Json::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        _ => expected == found,
    }
}

/// Kubernetes walks through maps in a random order, so what a loop that ends early costs depends on the run. The
/// file has one of the right answers; these are all of them.
fn costs_in_any_order(expr: &str) -> Option<&'static [u64]> {
    Some(match expr {
        "{'key1':1, 'key2':2}.exists(k, k == 'key2')" => &[10, 13],
        _ => return None,
    })
}

#[test]
fn kubernetes_gives_the_same_answers() {
    let Some(folder) = vectors() else {
        return;
    };
    let cases = read(folder.join("kubernetes-golden.json"));
    let mut failures = Vec::new();
    for case in &cases {
        let expr = case["expr"].as_str().unwrap();
        let found = evaluate_line(&json!({"expr": expr}));
        let mut wrong = Vec::new();
        for key in ["type", "cost", "estMin", "estMax"] {
            let any_order = key == "cost"
                && costs_in_any_order(expr).is_some_and(|costs| found["cost"].as_u64().is_some_and(|c| costs.contains(&c)));
            if case.get(key) != found.get(key) && !any_order {
                wrong.push(key);
            }
        }
        match (case.get("value"), found.get("value")) {
            (None, None) => {}
            (Some(a), Some(b)) if same(a, b) => {}
            _ => wrong.push("value"),
        }
        if case.get("error") != found.get("error") {
            wrong.push("error");
        }
        // The file has the first line only.
        let first_line = |j: Option<&Json>| j.and_then(Json::as_str).and_then(|s| s.lines().next()).map(str::to_owned);
        if first_line(case.get("compileError")) != first_line(found.get("compileError")) {
            wrong.push("compileError");
        }
        if !wrong.is_empty() {
            failures.push(format!("{expr}\n  wrong {wrong:?}\n  expected {case}\n  found    {found}"));
        }
    }
    println!("{} of {} agree", cases.len() - failures.len(), cases.len());
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}
