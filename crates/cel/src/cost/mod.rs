//! What expressions cost. The estimate bounds the cost before an expression is ever run, from the sizes that the
//! schema allows; the charge is what a call costs when it is made. Both follow Kubernetes to the unit, because
//! the limits on custom resource rules are stated in them.

mod estimate;
mod functions;
pub(crate) mod runtime;

pub(crate) use estimate::estimate;

/// The most that one rule of a CustomResourceDefinition may be estimated to cost.
pub const STATIC_ESTIMATED_COST_LIMIT: u64 = 10_000_000;
/// The most that all rules of a CustomResourceDefinition may be estimated to cost together.
pub const STATIC_ESTIMATED_CRD_COST_LIMIT: u64 = 100_000_000;

pub(crate) const SELECT_AND_IDENT: u64 = 1;
pub(crate) const LIST_CREATE: u64 = 10;
pub(crate) const MAP_CREATE: u64 = 30;
pub(crate) const STRUCT_CREATE: u64 = 40;
pub(crate) const STRING_TRAVERSAL: f64 = 0.1;
pub(crate) const REGEX_LENGTH: f64 = 0.25;
pub(crate) const AUTHORIZATION_CHECK: u64 = 350_000;

/// The least and the most that an expression can cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CostEstimate {
    /// The least.
    pub min: u64,
    /// The most; `u64::MAX` when nothing bounds it.
    pub max: u64,
}

impl CostEstimate {
    pub(crate) const ZERO: CostEstimate = CostEstimate::fixed(0);

    pub(crate) const fn fixed(cost: u64) -> Self {
        CostEstimate { min: cost, max: cost }
    }

    pub(crate) fn add(self, other: Self) -> Self {
        CostEstimate { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(crate) fn multiply(self, other: Self) -> Self {
        CostEstimate { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(crate) fn times(self, factor: f64) -> Self {
        CostEstimate { min: by_factor(self.min, factor), max: by_factor(self.max, factor) }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        CostEstimate { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// The least and the most that `size()` of something can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub min: u64,
    pub max: u64,
}

impl Size {
    pub const UNKNOWN: Size = Size { min: 0, max: u64::MAX };
    pub const ONE: Size = Size { min: 1, max: 1 };

    pub fn fixed(size: u64) -> Size {
        Size { min: size, max: size }
    }

    pub fn add(self, other: Size) -> Size {
        Size { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub fn multiply(self, other: Size) -> Size {
        Size { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub fn union(self, other: Size) -> Size {
        Size { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    pub fn cost(self, factor: f64) -> CostEstimate {
        self.as_cost().times(factor)
    }

    pub fn as_cost(self) -> CostEstimate {
        CostEstimate { min: self.min, max: self.max }
    }
}

/// Multiplies and rounds up, without leaving the range.
pub(crate) fn by_factor(n: u64, factor: f64) -> u64 {
    let product = (n as f64 * factor).ceil();
    // The conversion saturates.
    product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_saturate_instead_of_wrapping() {
        let unknown = Size::UNKNOWN.as_cost();
        assert_eq!(unknown.add(CostEstimate::fixed(1)).max, u64::MAX);
        assert_eq!(unknown.multiply(unknown).max, u64::MAX);
        assert_eq!(by_factor(21, 0.1), 3);
        assert_eq!(by_factor(u64::MAX, 2.0), u64::MAX);
    }
}
