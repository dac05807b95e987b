//! Any expression over any object: no panic, no overflow, no run past its budget. The input is an expression, a zero
//! byte, and the JSON of the object (which may be missing).
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use usher_cel::{Activation, Budget, Environment, EvalError, Type};

fuzz_target!(|data: &[u8]| {
    let (source, json) = match data.iter().position(|b| *b == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[][..]),
    };
    let Ok(source) = std::str::from_utf8(source) else {
        return;
    };
    let object = serde_json::from_slice(json).unwrap_or(serde_json::Value::Null);
    let environment = Environment::kubernetes().variable("object", Type::Dyn).with_jsonpatch().with_mutation_types();
    let start = Instant::now();
    if let Ok(program) = environment.compile(source) {
        let activation = Activation::new().bind("object", &object);
        let mut budget = Budget::default();
        match program.evaluate(&activation, &mut budget) {
            Ok(evaluation) => {
                assert!(evaluation.cost <= 1_000_000);
                let _ = evaluation.value.to_json();
            }
            Err(EvalError::CostLimitExceeded | EvalError::BudgetExhausted | EvalError::Failed(_)) => {}
            Err(EvalError::Interrupted) => panic!("there was no deadline"),
        }
        let mut budget = Budget::default();
        program.explain(&activation, &mut budget);
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{source}");
});
