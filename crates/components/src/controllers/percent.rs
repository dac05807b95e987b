//! Numbers that may be percentages: `maxSurge`, `maxUnavailable`, `minAvailable`.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Which way a percentage is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// To the larger number.
    Up,
    /// To the smaller number.
    Down,
}

/// The number that `value` stands for, of `total`; `None` if it is neither a number nor a percentage.
pub fn resolve(value: &IntOrString, total: i32, round: Round) -> Option<i32> {
    match value {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let product = percent.checked_mul(i64::from(total))?;
            let number = match round {
                Round::Up => product.checked_add(99)? / 100,
                Round::Down => product / 100,
            };
            i32::try_from(number).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_as_asked() {
        let quarter = IntOrString::String("25%".into());
        assert_eq!(resolve(&quarter, 10, Round::Up), Some(3));
        assert_eq!(resolve(&quarter, 10, Round::Down), Some(2));
        assert_eq!(resolve(&IntOrString::Int(4), 10, Round::Up), Some(4));
        assert_eq!(resolve(&IntOrString::String("four".into()), 10, Round::Up), None);
    }
}
