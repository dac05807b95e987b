//! Why an expression came to its value: the value of every part of it that was evaluated, with the place of that
//! part in the text.

use std::fmt;
use std::ops::Range;

use crate::ast::ExprId;
use crate::error::EvalError;
use crate::json::show;
use crate::program::Program;
use crate::value::Value;

/// The most steps that are kept; a loop over a long list has many.
const MAX_STEPS: usize = 10_000;

/// An evaluation with all its steps.
#[derive(Debug)]
pub struct Explanation<'a> {
    /// What the expression came to.
    pub value: Result<Value<'a>, EvalError>,
    /// What it cost.
    pub cost: u64,
    /// The parts in the order in which they were done. Parts of a loop occur once for every round.
    pub steps: Vec<Step<'a>>,
}

/// The value of a part of an expression.
#[derive(Debug)]
pub struct Step<'a> {
    /// Where the part stands, in bytes.
    pub span: Range<usize>,
    /// The part.
    pub text: &'a str,
    /// What it came to.
    pub value: Result<Value<'a>, EvalError>,
}

impl<'a> Explanation<'a> {
    pub(crate) fn new(
        program: &'a Program,
        value: Result<Value<'a>, EvalError>,
        cost: u64,
        trace: Vec<(ExprId, Result<Value<'a>, EvalError>)>,
    ) -> Self {
        let mut steps: Vec<Step<'a>> = Vec::new();
        let mut previous = None;
        for (id, value) in trace.into_iter().take(MAX_STEPS) {
            let (start, end) = program.spans[id as usize];
            let span = start as usize..end as usize;
            // A chain of selections reports its last part twice.
            if previous == Some(id) {
                continue;
            }
            previous = Some(id);
            let text = program.source().get(span.clone()).unwrap_or("");
            steps.push(Step { span, text, value });
        }
        Explanation { value, cost, steps }
    }

    /// What the parts came to, as JSON: at most so many of them, and no value that is longer than so many bytes.
    pub fn told(&self, most: usize, longest: usize) -> Vec<serde_json::Value> {
        let mut told: Vec<serde_json::Value> = Vec::new();
        // From the end: what came last decided, and where a loop has too many rounds it is the first ones that nobody misses.
        for step in self.steps.iter().rev() {
            let value = match &step.value {
                Ok(value) => value.to_json().unwrap_or_else(|_| value.type_of().to_string().into()),
                Err(error) => error.to_string().into(),
            };
            // A literal says itself; a large value says nothing that anybody reads.
            let text = value.to_string();
            if text == step.text || text.trim_matches('"') == step.text.trim_matches(['"', '\'']) {
                continue;
            }
            let value = if text.len() > longest { format!("({} bytes)", text.len()).into() } else { value };
            let entry = serde_json::json!({"expression": step.text, "value": value});
            if !told.contains(&entry) {
                told.push(entry);
            }
            if told.len() == most {
                break;
            }
        }
        told.reverse();
        told
    }
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Ok(value @ (Value::List(_) | Value::Map(_) | Value::Struct(_))) => match value.to_json() {
                Ok(json) => write!(f, "{} = {json}", self.text),
                Err(_) => write!(f, "{} = {}", self.text, value.type_of()),
            },
            Ok(Value::String(text)) => write!(f, "{} = {:?}", self.text, &**text),
            Ok(value) => write!(f, "{} = {}", self.text, show(value)),
            Err(error) => write!(f, "{} fails: {error}", self.text),
        }
    }
}
