//! Kubernetes quantities (`500m`, `1Gi`, `1e3`) as integers.
//!
//! A scheduler compares and adds resources thousands of times a second, so a quantity is read once into billionths and kept as
//! whole thousandths (cpu) or whole units (everything else) from then on. This is not a general arithmetic library: quantities are
//! read here and written by whoever owns the object they stand in.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

const NANO: i128 = 1_000_000_000;

/// The quantity in billionths of its unit, or `None` when the text is no quantity.
fn nanos(text: &str) -> Option<i128> {
    let text = text.trim();
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (number, suffix) = digits.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (multiplier, divisor) = scale(suffix)?;
    let mut mantissa: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        mantissa = mantissa.checked_mul(10)?.checked_add(i128::from(digit - b'0'))?;
    }
    let divisor = divisor.checked_mul(10i128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    let scaled = mantissa.checked_mul(multiplier)?.checked_mul(NANO)?;
    // Kubernetes rounds up: a request for any part of a unit is a request for it.
    let value = scaled.checked_add(divisor - 1)? / divisor;
    Some(if negative { -value } else { value })
}

/// What a suffix multiplies by, as a fraction.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    let ki = 1024i128;
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, NANO),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "k" => (1_000, 1),
        "M" => (1_000_000, 1),
        "G" => (NANO, 1),
        "T" => (1_000 * NANO, 1),
        "P" => (1_000_000 * NANO, 1),
        "E" => (NANO * NANO, 1),
        "Ki" => (ki, 1),
        "Mi" => (ki.pow(2), 1),
        "Gi" => (ki.pow(3), 1),
        "Ti" => (ki.pow(4), 1),
        "Pi" => (ki.pow(5), 1),
        "Ei" => (ki.pow(6), 1),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10i128.checked_pow(exponent.unsigned_abs())?;
            if exponent >= 0 { (power, 1) } else { (1, power) }
        }
    })
}

fn divide_up(nanos: i128, by: i128) -> i64 {
    let up = if nanos > 0 { (nanos + by - 1) / by } else { nanos / by };
    i64::try_from(up).unwrap_or(if up > 0 { i64::MAX } else { i64::MIN })
}

/// The quantity in whole units, rounded up; nothing readable counts as zero (the API server has refused such text already).
#[must_use]
pub fn value(quantity: &Quantity) -> i64 {
    nanos(&quantity.0).map_or(0, |nanos| divide_up(nanos, NANO))
}

/// The quantity in thousandths, rounded up.
#[must_use]
pub fn milli_value(quantity: &Quantity) -> i64 {
    nanos(&quantity.0).map_or(0, |nanos| divide_up(nanos, 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        Quantity(text.into())
    }

    #[test]
    fn suffixes_of_both_families_are_read() {
        assert_eq!(value(&q("1Ki")), 1024);
        assert_eq!(value(&q("1k")), 1000);
        assert_eq!(value(&q("1.5Gi")), 1_610_612_736);
        assert_eq!(value(&q("2e3")), 2000);
        assert_eq!(value(&q("12E")), 12_000_000_000_000_000_000_i128.min(i64::MAX.into()) as i64);
        assert_eq!(milli_value(&q("250m")), 250);
        assert_eq!(milli_value(&q("2")), 2000);
        assert_eq!(milli_value(&q("0.1")), 100);
    }

    #[test]
    fn parts_of_a_unit_round_up() {
        assert_eq!(value(&q("100m")), 1);
        assert_eq!(milli_value(&q("1u")), 1);
        assert_eq!(milli_value(&q("1n")), 1);
    }

    #[test]
    fn text_that_is_no_quantity_counts_as_nothing() {
        for text in ["", "Gi", "1.2.3", "1Zi", "e3", "-", "99999999999999999999999999999999999999999Ei"] {
            assert_eq!(value(&q(text)), 0, "{text:?}");
        }
    }
}
