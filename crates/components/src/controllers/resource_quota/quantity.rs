//! Quantities that can be added: `100m`, `1Gi`, `2`.

use std::fmt;

/// How a quantity is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Decimal,
    Binary,
}

/// A number of billionths, and how to write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    nano: i128,
    style: Style,
}

const NANO: i128 = 1_000_000_000;
const DECIMAL: [(&str, i128); 10] = [
    ("E", 1_000_000_000_000_000_000 * NANO),
    ("P", 1_000_000_000_000_000 * NANO),
    ("T", 1_000_000_000_000 * NANO),
    ("G", 1_000_000_000 * NANO),
    ("M", 1_000_000 * NANO),
    ("k", 1_000 * NANO),
    ("", NANO),
    ("m", 1_000_000),
    ("u", 1_000),
    ("n", 1),
];
const BINARY: [(&str, i128); 6] = [
    ("Ei", (1 << 60) * NANO),
    ("Pi", (1 << 50) * NANO),
    ("Ti", (1 << 40) * NANO),
    ("Gi", (1 << 30) * NANO),
    ("Mi", (1 << 20) * NANO),
    ("Ki", (1 << 10) * NANO),
];

impl Amount {
    /// A whole number.
    pub fn whole(number: usize) -> Amount {
        Amount { nano: i128::try_from(number).unwrap_or(i128::MAX / NANO) * NANO, style: Style::Decimal }
    }

    /// Reads a quantity; `None` if it is none.
    pub fn parse(text: &str) -> Option<Amount> {
        let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (unit, style) = match BINARY.iter().find(|(name, _)| *name == suffix) {
            Some((_, unit)) => (*unit, Style::Binary),
            None => match DECIMAL.iter().find(|(name, _)| *name == suffix) {
                Some((_, unit)) => (*unit, Style::Decimal),
                None => (power(suffix)?, Style::Decimal),
            },
        };
        let negative = number.starts_with('-');
        let number = number.trim_start_matches(['+', '-']);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let product = digits.checked_mul(unit)?;
        // What is smaller than a billionth is rounded up, so that nothing is free.
        let nano = product / scale + i128::from(product % scale != 0);
        Some(Amount { nano: if negative { -nano } else { nano }, style })
    }

    /// The sum, written like the first of the two unless that is nothing.
    pub fn plus(self, other: Amount) -> Amount {
        let style = if self.nano == 0 { other.style } else { self.style };
        Amount { nano: self.nano.saturating_add(other.nano), style }
    }

    /// Whether it is more than the other.
    pub fn exceeds(self, other: Amount) -> bool {
        self.nano > other.nano
    }

    /// The larger of the two.
    pub fn max(self, other: Amount) -> Amount {
        if other.nano > self.nano { other } else { self }
    }
}

/// `e3`, `E-2`.
fn power(suffix: &str) -> Option<i128> {
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    match u32::try_from(exponent) {
        Ok(exponent) => 10_i128.checked_pow(exponent)?.checked_mul(NANO),
        Err(_) => Some(NANO / 10_i128.checked_pow(exponent.unsigned_abs())?),
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        let binary = BINARY.iter().filter(|_| self.style == Style::Binary);
        for (suffix, unit) in binary.chain(&DECIMAL) {
            // A binary quantity that is no multiple of 1024 is written plainly, not in thousands.
            let plain = self.style == Style::Binary && !BINARY.iter().any(|(name, _)| name == suffix) && *unit > NANO;
            if self.nano % unit == 0 && !plain {
                return write!(f, "{}{suffix}", self.nano / unit);
            }
        }
        write!(f, "{}n", self.nano)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(parts: &[&str]) -> String {
        parts.iter().map(|part| Amount::parse(part).unwrap()).reduce(Amount::plus).unwrap().to_string()
    }

    #[test]
    fn sums_are_written_in_the_shortest_exact_way() {
        assert_eq!(sum(&["100m", "900m"]), "1");
        assert_eq!(sum(&["0.5", "250m"]), "750m");
        assert_eq!(sum(&["512Mi", "512Mi"]), "1Gi");
        assert_eq!(sum(&["1Gi", "100"]), "1073741924");
        assert_eq!(sum(&["1500", "500"]), "2k");
        assert_eq!(sum(&["1e3", "0"]), "1k");
        assert_eq!(sum(&["0", "1Gi"]), "1Gi");
    }

    #[test]
    fn nonsense_is_no_quantity() {
        for text in ["", "Mi", "1X", "a"] {
            assert_eq!(Amount::parse(text), None, "{text}");
        }
    }
}
