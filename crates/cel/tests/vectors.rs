//! Plays the vector files of `USHER_VECTORS` (the folder `cel` of the project's shared facts): Kubernetes' own
//! answers, and the language's public conformance vectors where Kubernetes agrees with them. Says so and passes when
//! the variable is not set.
#![allow(clippy::unwrap_used)]

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
            let any_order =
                key == "cost" && costs_in_any_order(expr).is_some_and(|costs| found["cost"].as_u64().is_some_and(|c| costs.contains(&c)));
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

/// Why Kubernetes answers a public vector differently, or cannot be asked it at all.
fn not_kubernetes(file: &str, case: &Json) -> Option<&'static str> {
    let expr = case["expr"].as_str().unwrap_or("");
    let has = |key: &str| case.get(key).is_some();
    if has("disable_check") {
        return Some("Kubernetes checks every expression");
    }
    if has("container") {
        return Some("Kubernetes sets no container");
    }
    if case["types"].as_object().is_some_and(|types| types.values().any(Json::is_object)) {
        return Some("Kubernetes declares no functions of its own for a test");
    }
    if file == "math_ext.json" {
        return Some("Kubernetes has no math library");
    }
    match expr {
        "['1', '2', null] == ['1', '2', '3']"
        | "[1.0, 2.1] == [1u, 2]"
        | "{1:'hello', 2:'world'} == {1:'goodbye', 2:null}"
        | "{1u: 1.0, 2: 2.0, 3u: 3.0}[2u]"
        | "{'content-type': 'application/json', 'content-length': 145}.`content-type` == 'application/json'"
        | "[1, 'foo', 3].exists(e, e != '1')"
        | "{'key':1, 1:21}.exists(k, v, k != 2 && v != 22)" => Some("Kubernetes wants the elements of a literal to have one type"),
        "[optional.of(1), null][0]" => Some("Kubernetes wants the elements of a literal to have one type"),
        "'☺'.reverse() == '☺'" | "'Ta©oCαt'.reverse() == 'tαCo©aT'" => {
            Some("Kubernetes has version 2 of the strings library, without reverse")
        }
        "'tacocat'.indexOf('a', 30) == -1" => Some("Kubernetes finds nothing beyond the end, and says so with -1"),
        "str_var.format([1052.032911275])"
        | "\"%s\".format([{1: \"value1\", uint(2): \"value2\", true: double(\"NaN\")}])"
        | "\"%s\".format([[double(\"NaN\"), double(\"Infinity\"), double(\"-Infinity\")]])"
        | "\"%s\".format([{\"strKey\":\"x\", 6:duration(\"422s\"), true:42}])" => {
            Some("Kubernetes has version 2 of the strings library, which writes these differently")
        }
        "ip('::ffff:c0a8:1') == ip('192.168.0.1')" | "ip('::ffff:c0a8:1') == ip('192.168.10.1')" => {
            Some("Kubernetes refuses IPv4 addresses in IPv6 form")
        }
        "\"%e\".format([3u])" | "\"%d\".format([double(\"-Infinity\")])" => {
            Some("Kubernetes has version 2 of the strings library, whose clauses take fewer types")
        }
        _ => None,
    }
}

#[test]
fn public_vectors_agree_where_kubernetes_does() {
    let Some(folder) = vectors() else {
        return;
    };
    let golden = read(folder.join("kubernetes-golden.json"));
    let answered: std::collections::HashSet<&str> = golden.iter().filter_map(|c| c["expr"].as_str()).collect();
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder.join("spec")).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let (mut played, mut skipped, mut failures) = (0, 0, Vec::new());
    for path in files {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        for case in read(path) {
            let expr = case["expr"].as_str().unwrap();
            // The golden file has Kubernetes' own answer to most of them, and that is the one that counts.
            if case.get("bindings").is_none() && answered.contains(expr) || not_kubernetes(&file, &case).is_some() {
                skipped += 1;
                continue;
            }
            played += 1;
            let found = evaluate_line(&case);
            let expect = &case["expect"];
            let fits = match (expect.get("value"), expect.get("type")) {
                (Some(value), _) => found.get("value").is_some_and(|v| same(value, v)),
                (None, Some(t)) => found.get("type") == Some(t),
                (None, None) => found.get("value").is_none(),
            };
            if !fits {
                failures.push(format!("{file} {case}\n  found {found}"));
            }
        }
    }
    println!("{} of {played} agree, {skipped} are answered by the golden file or are not for Kubernetes", played - failures.len());
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}
