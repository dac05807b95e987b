//! What can go wrong when an expression is compiled or evaluated.

use crate::cost::CostEstimate;
use crate::source::Issues;
use crate::types::Type;

/// Why an expression is not a program.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CompileError {
    /// The text does not parse or does not check. Prints as Kubernetes prints it.
    #[error("{0}")]
    Issues(#[source] Issues),
    /// The text checks, but a part of it that is constant fails, such as `int('x')`.
    #[error("{message}")]
    Program {
        /// What failed.
        message: String,
        /// The type that the expression would have had.
        output_type: Type,
        /// The cost that it would have had.
        cost: CostEstimate,
    },
}

/// Why an evaluation has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The expression failed, as with `1 / 0`. Logical operators can absorb this one, but not the others.
    #[error("{0}")]
    Failed(Box<str>),
    /// The expression cost more than one evaluation may.
    #[error("operation cancelled: actual cost limit exceeded")]
    CostLimitExceeded,
    /// The expression cost more than was left of the budget it shares with others.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    BudgetExhausted,
    /// The deadline passed.
    #[error("operation interrupted")]
    Interrupted,
}

impl EvalError {
    /// Whether the evaluation was stopped from outside, rather than failing by itself.
    pub fn is_cancelled(&self) -> bool {
        !matches!(self, EvalError::Failed(_))
    }
}

pub(crate) fn failed(message: impl Into<Box<str>>) -> EvalError {
    EvalError::Failed(message.into())
}

pub(crate) fn no_such_overload() -> EvalError {
    failed("no such overload")
}

pub(crate) fn conversion_error(from: &str, to: &str) -> EvalError {
    failed(format!("type conversion error from '{from}' to '{to}'"))
}
