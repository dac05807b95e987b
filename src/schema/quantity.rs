//! Quantities (`500m`, `1Gi`, `2e3`): reading them, comparing them, and the canonical form in which a server gives them
//! back. Whole and fractional amounts down to a billionth; nothing here goes through floating point.

use std::fmt;

/// An amount, exact to a billionth, and the family of suffixes that it was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// How an amount was written and is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// `m`, `k`, `M`, …
    DecimalSi,
    /// `Ki`, `Mi`, …
    BinarySi,
    /// `e3`.
    DecimalExponent,
}

/// Why a text is not a quantity, in the words of a real server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// It does not look like one.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// Its suffix is none.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const NANO: i128 = 1_000_000_000;
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Quantity {
    /// Reads a quantity. Amounts beyond 2^63 are capped, and what is finer than a billionth is rounded up, as a real server does.
    ///
    /// # Errors
    /// If the text is not one.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
            None => return Err(QuantityError::Format),
        };
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(QuantityError::Format);
        }
        let (format, scale) = self::suffix(suffix)?;
        let nanos = scale.nanos(whole, fraction).min(i128::from(i64::MAX) * NANO);
        Ok(Self { nanos: if negative { -nanos } else { nanos }, format })
    }

    /// A whole number of units.
    pub fn from_units(units: i64) -> Self {
        Self { nanos: i128::from(units) * NANO, format: Format::DecimalSi }
    }

    /// The amount in billionths.
    pub fn nanos(&self) -> i128 {
        self.nanos
    }

    /// The amount in thousandths, rounded up.
    pub fn milli(&self) -> i128 {
        div_up(self.nanos, 1_000_000)
    }

    /// The amount in units, rounded up.
    pub fn units(&self) -> i128 {
        div_up(self.nanos, NANO)
    }

    /// The same amount, rounded up to thousandths.
    pub fn rounded_to_milli(self) -> Self {
        Self { nanos: self.milli() * 1_000_000, ..self }
    }

    /// The sum, written as the first is.
    pub fn plus(self, other: Self) -> Self {
        // Nothing is written in no particular way.
        let format = if self.nanos == 0 { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_add(other.nanos), format }
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.nanos.cmp(&other.nanos))
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        // Small and fractional amounts have no binary form.
        if self.format == Format::BinarySi && self.nanos % NANO == 0 && self.nanos.abs() >= 1024 * NANO {
            let (mut amount, mut power) = (self.nanos / NANO, 0);
            while amount % 1024 == 0 && power + 1 < BINARY.len() {
                amount /= 1024;
                power += 1;
            }
            return write!(f, "{amount}{}", BINARY[power]);
        }
        let (mut amount, mut power) = (self.nanos, 0);
        while amount % 1000 == 0 && power + 1 < DECIMAL.len() {
            amount /= 1000;
            power += 1;
        }
        match self.format {
            Format::DecimalExponent if power != 3 => write!(f, "{amount}e{}", power as i32 * 3 - 9),
            _ => write!(f, "{amount}{}", DECIMAL[power]),
        }
    }
}

/// What the digits are multiplied with.
enum Scale {
    Ten(i32),
    Two(u32),
}

impl Scale {
    /// `whole.fraction` times the scale, in billionths, rounded up; what is too big is as big as can be.
    fn nanos(&self, whole: &str, fraction: &str) -> i128 {
        match *self {
            Scale::Ten(power) => {
                let digits = format!("{whole}{fraction}");
                shifted(&digits, power + 9 - i32::try_from(fraction.len()).unwrap_or(i32::MAX / 2))
            }
            Scale::Two(power) => {
                let factor = 1i128 << power;
                let whole = shifted(whole, 9).checked_mul(factor).unwrap_or(i128::MAX);
                let digits = &fraction[..fraction.len().min(18)];
                let Some(part) = shifted(digits, 0).checked_mul(factor).and_then(|p| p.checked_mul(NANO)) else { return i128::MAX };
                let unit = 10i128.pow(u32::try_from(digits.len()).unwrap_or(18));
                whole.saturating_add(div_up(part, unit))
            }
        }
    }
}

/// The number that the digits make, with the point moved; rounded up, and capped.
fn shifted(digits: &str, power: i32) -> i128 {
    let digits = digits.trim_start_matches('0');
    let length = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    if digits.is_empty() {
        return 0;
    }
    if length + i64::from(power) > 38 {
        return i128::MAX;
    }
    if power >= 0 {
        let number: i128 = digits.parse().unwrap_or(i128::MAX);
        return u32::try_from(power).ok().and_then(|p| 10i128.checked_pow(p)).and_then(|f| number.checked_mul(f)).unwrap_or(i128::MAX);
    }
    let keep = usize::try_from(length + i64::from(power)).unwrap_or(0);
    let (kept, dropped) = digits.split_at(keep);
    let number: i128 = if kept.is_empty() { 0 } else { kept.parse().unwrap_or(i128::MAX) };
    if dropped.bytes().any(|b| b != b'0') { number.saturating_add(1) } else { number }
}

fn div_up(amount: i128, by: i128) -> i128 {
    // Rounding is away from zero on both sides.
    let (quotient, rest) = (amount / by, amount % by);
    quotient + rest.signum()
}

fn suffix(suffix: &str) -> Result<(Format, Scale), QuantityError> {
    if let Some(index) = DECIMAL.iter().position(|s| *s == suffix) {
        return Ok((Format::DecimalSi, Scale::Ten(index as i32 * 3 - 9)));
    }
    if let Some(index) = BINARY.iter().position(|s| *s == suffix) {
        return Ok((Format::BinarySi, Scale::Two(index as u32 * 10)));
    }
    let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let digits = letters.strip_prefix(['+', '-']).unwrap_or(letters);
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(QuantityError::Format);
    }
    match suffix.strip_prefix(['e', 'E']).map(str::parse::<i32>) {
        Some(Ok(power)) if power.abs() < 1000 => Ok((Format::DecimalExponent, Scale::Ten(power))),
        _ => Err(QuantityError::Suffix),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        Quantity::parse(text).map_or_else(|e| e.to_string(), |q| q.to_string())
    }

    #[test]
    fn amounts_take_their_canonical_form() {
        for (written, given) in [
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("100", "100"),
            ("1000", "1k"),
            ("0.1", "100m"),
            ("1e3", "1e3"),
            ("0", "0"),
            ("-1.5", "-1500m"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1.1Ki", "1126400m"),
            ("12345678901", "12345678901"),
            ("5.", "5"),
            (".5", "500m"),
            ("0.0000000001", "1n"),
            ("9999999999999999999", "9223372036854775807"),
            ("1E", "1E"),
            ("1E2", "100"),
            ("250M", "250M"),
            ("2048Ki", "2Mi"),
        ] {
            assert_eq!(canonical(written), given, "{written}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_told_as_a_real_server_does() {
        assert_eq!(Quantity::parse("").expect_err("refused"), QuantityError::Format);
        assert_eq!(Quantity::parse("abc").expect_err("refused"), QuantityError::Format);
        assert_eq!(Quantity::parse("1.2.3").expect_err("refused"), QuantityError::Format);
        assert_eq!(Quantity::parse("1 Gi").expect_err("refused"), QuantityError::Format);
        assert_eq!(Quantity::parse("1mm").expect_err("refused"), QuantityError::Suffix);
        assert_eq!(Quantity::parse("1KiB").expect_err("refused"), QuantityError::Format);
        assert_eq!(Quantity::parse("1é").expect_err("refused"), QuantityError::Format);
    }

    #[test]
    fn amounts_compare_whatever_their_suffix() {
        let q = |text| Quantity::parse(text).expect("quantity");
        assert!(q("1Gi") > q("1G") && q("999m") < q("1") && q("1500m") > q("1"));
        assert_eq!((q("1500m").units(), q("0.1m").milli()), (2, 1));
    }
}
