//! Counts what an evaluation costs and stops it when it costs too much or takes too long. The cost is the one
//! that Kubernetes counts. Beside it runs a count of work that Kubernetes does not charge for, such as comparing
//! deeply shared values, so that no expression can run past its budget in time either.

use std::time::Instant;

use crate::error::EvalError;

/// The most that one evaluation may cost.
pub const PER_CALL_LIMIT: u64 = 1_000_000;
/// The most that all evaluations for one policy binding or custom resource may cost together.
pub const RUNTIME_BUDGET: u64 = 10_000_000;
/// The same for the match conditions of one webhook or policy binding.
pub const MATCH_CONDITIONS_BUDGET: u64 = 2_500_000;

/// Uncharged steps before an evaluation is stopped. About a tenth of a second.
const MAX_WORK: u64 = 20_000_000;
/// Steps between two looks at the clock.
const CLOCK_INTERVAL: u64 = 1 << 16;
/// The longest string that a function may make: what adding strings could make within the per-call limit.
pub(crate) const MAX_STRING: usize = 10_000_000;

/// What evaluations may cost, and until when they may run.
///
/// One budget is handed to a number of evaluations, one after the other. Each of them may cost no more than
/// the per-call limit, all of them together no more than the total.
///
/// ```
/// use usher_cel::Budget;
///
/// let budget = Budget::default();
/// assert_eq!(budget.remaining(), 10_000_000);
/// ```
#[derive(Debug, Clone)]
pub struct Budget {
    per_call: u64,
    remaining: u64,
    used: u64,
    deadline: Option<Instant>,
}

impl Default for Budget {
    fn default() -> Self {
        Budget::new(RUNTIME_BUDGET)
    }
}

impl Budget {
    /// A budget for all evaluations together, with Kubernetes' limit for each.
    pub fn new(total: u64) -> Self {
        Budget { per_call: PER_CALL_LIMIT, remaining: total, used: 0, deadline: None }
    }

    /// Changes what a single evaluation may cost.
    pub fn per_call(mut self, limit: u64) -> Self {
        self.per_call = limit;
        self
    }

    /// Stops evaluations at a time.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// What is left.
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// What has been used.
    pub fn used(&self) -> u64 {
        self.used
    }

    pub(crate) fn spend(&mut self, cost: u64) -> Result<(), EvalError> {
        self.used = self.used.saturating_add(cost);
        if cost > self.remaining {
            self.remaining = 0;
            return Err(EvalError::BudgetExhausted);
        }
        self.remaining -= cost;
        Ok(())
    }
}

/// The count of one evaluation.
#[derive(Debug)]
pub(crate) struct Meter {
    pub cost: u64,
    per_call: u64,
    limit: u64,
    work: u64,
    next_look: u64,
    deadline: Option<Instant>,
    /// Regular expressions that the evaluation has compiled.
    pub regexes: Vec<(String, regex::Regex)>,
}

impl Meter {
    pub fn new(budget: &Budget) -> Self {
        Meter {
            cost: 0,
            per_call: budget.per_call,
            limit: budget.per_call.min(budget.remaining),
            work: 0,
            next_look: CLOCK_INTERVAL,
            deadline: budget.deadline,
            regexes: Vec::new(),
        }
    }

    /// A meter for what is computed when an expression is compiled.
    pub fn for_constants() -> Self {
        Meter::new(&Budget::default())
    }

    #[inline]
    pub fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(self.exceeded()) } else { Ok(()) }
    }

    #[cold]
    fn exceeded(&self) -> EvalError {
        if self.cost > self.per_call { EvalError::CostLimitExceeded } else { EvalError::BudgetExhausted }
    }

    /// Counts steps that are not charged for.
    #[inline]
    pub fn work(&mut self, steps: u64) -> Result<(), EvalError> {
        self.work = self.work.saturating_add(steps);
        if self.work >= self.next_look { self.look() } else { Ok(()) }
    }

    #[cold]
    fn look(&mut self) -> Result<(), EvalError> {
        self.next_look = self.work + CLOCK_INTERVAL;
        if self.work > MAX_WORK {
            return Err(EvalError::CostLimitExceeded);
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(EvalError::Interrupted),
            _ => Ok(()),
        }
    }

    /// Looks at the clock now; comprehensions do every hundred iterations.
    pub fn check_deadline(&self) -> Result<(), EvalError> {
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(EvalError::Interrupted),
            _ => Ok(()),
        }
    }

    /// Refuses to make a string longer than adding strings could have made it.
    pub fn check_string(&mut self, len: usize) -> Result<(), EvalError> {
        if len > MAX_STRING {
            return Err(EvalError::CostLimitExceeded);
        }
        self.work(len as u64 / 16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_that_was_reached_is_the_one_reported() {
        let mut meter = Meter::new(&Budget::new(100).per_call(10));
        assert_eq!(meter.charge(10), Ok(()));
        assert_eq!(meter.charge(1), Err(EvalError::CostLimitExceeded));
        let mut meter = Meter::new(&Budget::new(5).per_call(10));
        assert_eq!(meter.charge(6), Err(EvalError::BudgetExhausted));
    }

    #[test]
    fn a_budget_runs_out() {
        let mut budget = Budget::new(10);
        assert_eq!(budget.spend(6), Ok(()));
        assert_eq!(budget.spend(5), Err(EvalError::BudgetExhausted));
        assert_eq!((budget.remaining(), budget.used()), (0, 11));
    }

    #[test]
    fn uncharged_work_is_bounded_too() {
        let mut meter = Meter::new(&Budget::default());
        let mut steps = 0;
        while meter.work(1_000).is_ok() {
            steps += 1_000;
        }
        assert!(steps <= MAX_WORK + CLOCK_INTERVAL);
    }
}
