//! A compiled expression: what it gives, what it may cost, and its evaluation.

use crate::activation::Activation;
use crate::check::{Checked, Reference};
use crate::cost::CostEstimate;
use crate::error::EvalError;
use crate::eval::Evaluator;
use crate::explain::Explanation;
use crate::meter::Budget;
use crate::plan::Plan;
use crate::types::Type;
use crate::value::Value;

/// A compiled expression. Evaluate it as often as needed, from any thread.
#[derive(Debug)]
pub struct Program {
    source: String,
    plan: Plan,
    output_type: Type,
    cost: CostEstimate,
    /// Where each node stands in the source, for explanations.
    pub(crate) spans: Vec<(u32, u32)>,
    variables: Vec<String>,
}

/// What an evaluation gave.
#[derive(Debug, Clone)]
pub struct Evaluation<'a> {
    /// The value.
    pub value: Value<'a>,
    /// What it cost.
    pub cost: u64,
}

impl Program {
    pub(crate) fn new(source: &str, checked: &Checked, plan: Plan, output_type: Type, cost: CostEstimate) -> Self {
        let mut variables: Vec<String> = checked
            .references
            .iter()
            .filter_map(|r| match r {
                Reference::Variable(name) => Some(name.to_string()),
                _ => None,
            })
            .collect();
        variables.sort();
        variables.dedup();
        Program { source: source.to_owned(), plan, output_type, cost, spans: checked.ast.spans.clone(), variables }
    }

    /// The text of the expression.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The type that it gives.
    pub fn output_type(&self) -> &Type {
        &self.output_type
    }

    /// The least and the most that it can cost, given the bounds in the schemas of its variables.
    pub fn cost_estimate(&self) -> CostEstimate {
        self.cost
    }

    /// The variables that it refers to. A rule that refers to `oldSelf` is a transition rule.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(String::as_str)
    }

    /// Evaluates. The cost is taken from the budget, also if the evaluation fails.
    pub fn evaluate<'a>(&'a self, activation: &Activation<'a>, budget: &mut Budget) -> Result<Evaluation<'a>, EvalError> {
        let mut evaluator = Evaluator::<false>::new(&self.plan, activation, budget);
        let answer = evaluator.run();
        let cost = evaluator.meter.cost;
        settle(answer, budget, cost).map(|value| Evaluation { value, cost })
    }

    /// Evaluates and gives the cost also if the evaluation fails.
    pub fn evaluate_with_cost<'a>(&'a self, activation: &Activation<'a>, budget: &mut Budget) -> (Result<Value<'a>, EvalError>, u64) {
        let mut evaluator = Evaluator::<false>::new(&self.plan, activation, budget);
        let answer = evaluator.run();
        let cost = evaluator.meter.cost;
        (settle(answer, budget, cost), cost)
    }

    /// Evaluates and gives the value of every part of the expression that was evaluated.
    ///
    /// ```
    /// use serde_json::json;
    /// use usher_cel::{Activation, Budget, Environment, Type};
    ///
    /// let program = Environment::kubernetes().variable("n", Type::Int).compile("n + 1 > 2").unwrap();
    /// let n = json!(1);
    /// let explanation = program.explain(&Activation::new().bind("n", &n), &mut Budget::default());
    /// let texts: Vec<String> = explanation.steps.iter().map(|s| s.to_string()).collect();
    /// assert_eq!(texts, ["n = 1", "1 = 1", "n + 1 = 2", "2 = 2", "n + 1 > 2 = false"]);
    /// ```
    pub fn explain<'a>(&'a self, activation: &Activation<'a>, budget: &mut Budget) -> Explanation<'a> {
        let mut evaluator = Evaluator::<true>::new(&self.plan, activation, budget);
        let value = evaluator.run();
        let cost = evaluator.meter.cost;
        let trace = std::mem::take(&mut evaluator.trace);
        Explanation::new(self, settle(value, budget, cost), cost, trace)
    }
}

/// Pays for an evaluation. One that was stopped keeps the reason why.
fn settle<'a>(answer: Result<Value<'a>, EvalError>, budget: &mut Budget, cost: u64) -> Result<Value<'a>, EvalError> {
    let paid = budget.spend(cost);
    match answer {
        Err(error) if error.is_cancelled() => Err(error),
        answer => paid.and(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_values_can_go_to_other_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<Program>();
        shared::<Value<'_>>();
        shared::<crate::Environment>();
    }
}
