//! Kubernetes quantities: exact decimal numbers with the suffixes of resources. Like Kubernetes, remembers whether
//! a quantity still fits a 64 bit integer with a decimal scale, because only those can be turned into integers.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::declarations::{Declaration, declare};
use crate::error::{EvalError, failed, no_such_overload};
use crate::library::Opaque;
use crate::meter::Meter;
use crate::operations::Answer;
use crate::value::Value;

#[rustfmt::skip]
pub(crate) const DECLARATIONS: &[Declaration] = &[
    declare("quantity", "string_to_quantity", "(string) -> kubernetes.Quantity", quantity),
    declare("isQuantity", "is_quantity_string", "(string) -> bool", is_quantity),
    declare("sign", "quantity_sign", "(kubernetes.Quantity) -> int", sign),
    declare("isGreaterThan", "quantity_is_greater_than", "kubernetes.Quantity.(kubernetes.Quantity) -> bool", is_greater_than),
    declare("isLessThan", "quantity_is_less_than", "kubernetes.Quantity.(kubernetes.Quantity) -> bool", is_less_than),
    declare("compareTo", "quantity_compare_to", "kubernetes.Quantity.(kubernetes.Quantity) -> int", compare_to),
    declare("asApproximateFloat", "quantity_get_float", "kubernetes.Quantity.() -> double", as_approximate_float),
    declare("asInteger", "quantity_get_int", "kubernetes.Quantity.() -> int", as_integer),
    declare("isInteger", "quantity_is_integer", "kubernetes.Quantity.() -> bool", is_integer),
    declare("add", "quantity_add", "kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity", add),
    declare("add", "quantity_add_int", "kubernetes.Quantity.(int) -> kubernetes.Quantity", add),
    declare("sub", "quantity_sub", "kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity", sub),
    declare("sub", "quantity_sub_int", "kubernetes.Quantity.(int) -> kubernetes.Quantity", sub),
];

const FORMAT_ERROR: &str = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX_ERROR: &str = "unable to parse quantity's suffix";
const NANO: i32 = -9;

/// A quantity: `mantissa × 10^scale`.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    mantissa: i128,
    scale: i32,
    /// Whether it is held as a 64 bit integer and a scale.
    small: bool,
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other) == Ordering::Equal
    }
}

impl Quantity {
    fn small(value: i64) -> Quantity {
        Quantity { mantissa: value.into(), scale: 0, small: true }
    }

    pub(crate) fn parse(text: &str) -> Result<Quantity, &'static str> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let negative = text.starts_with('-');
        let number_len = unsigned.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, suffix) = unsigned.split_at(number_len);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(FORMAT_ERROR);
        }
        let (base2, exponent) = parse_suffix(suffix)?;
        let digits = format!("{}{}", whole.trim_start_matches('0'), fraction);
        let decimal_exponent = if base2 { 0 } else { exponent };
        let multiplier: i128 = if base2 { 1i128.checked_shl(exponent as u32).unwrap_or(i128::MAX) } else { 1 };
        let scale = decimal_exponent - fraction.len() as i32;
        let signed = |value: i128| if negative { -value } else { value };
        if scale >= NANO
            && digits.len() <= 18
            && let Ok(value) = if digits.is_empty() { Ok(0) } else { digits.parse::<i64>() }
            && let Some(product) = i128::from(value).checked_mul(multiplier)
            && i64::try_from(product).is_ok()
        {
            return Ok(Quantity { mantissa: signed(product), scale, small: true });
        }
        // Larger ones are decimals, capped at the largest 64 bit integer and rounded up to a billionth.
        let cap = Quantity { mantissa: signed(i64::MAX.into()), scale: 0, small: false };
        let value = match digits.get(..38.min(digits.len())).and_then(|d| d.parse::<i128>().ok()) {
            Some(value) if digits.len() <= 36 => value,
            _ => return Ok(cap),
        };
        let Some(mut mantissa) = value.checked_mul(multiplier) else {
            return Ok(cap);
        };
        let mut scale = scale;
        while scale < NANO {
            let rest = mantissa % 10;
            mantissa = mantissa / 10 + i128::from(rest != 0);
            scale += 1;
        }
        let found = Quantity { mantissa: signed(mantissa), scale, small: false };
        let too_large = found.magnitude().compare(&cap.magnitude()) == Ordering::Greater;
        Ok(if too_large { cap } else { found })
    }

    fn magnitude(&self) -> Quantity {
        Quantity { mantissa: self.mantissa.saturating_abs(), ..*self }
    }

    fn compare(&self, other: &Quantity) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs != Ordering::Equal || self.mantissa == 0 {
            return signs;
        }
        let (high, low, flipped) = if self.scale >= other.scale { (self, other, false) } else { (other, self, true) };
        let ordering = match scaled(high.mantissa, high.scale - low.scale) {
            Some(mantissa) => mantissa.cmp(&low.mantissa),
            // Beyond 128 bits: larger in magnitude than anything that fits.
            None if high.mantissa > 0 => Ordering::Greater,
            None => Ordering::Less,
        };
        if flipped { ordering.reverse() } else { ordering }
    }

    fn plus(&self, other: &Quantity) -> Quantity {
        if other.mantissa == 0 {
            return *self;
        }
        if self.mantissa == 0 {
            return *other;
        }
        let scale = self.scale.min(other.scale);
        let fit = |q: &Quantity| scaled(q.mantissa, q.scale - scale);
        match (fit(self), fit(other)) {
            (Some(a), Some(b)) => {
                let sum = a.saturating_add(b);
                Quantity { mantissa: sum, scale, small: self.small && other.small && i64::try_from(sum).is_ok() }
            }
            _ => {
                if self.scale > other.scale {
                    *self
                } else {
                    *other
                }
            }
        }
    }

    fn negated(&self) -> Quantity {
        Quantity { mantissa: -self.mantissa, ..*self }
    }

    fn as_i64(&self) -> Option<i64> {
        if !self.small || self.scale < 0 {
            return None;
        }
        scaled(self.mantissa, self.scale).and_then(|n| i64::try_from(n).ok())
    }

    fn as_f64(&self) -> f64 {
        format!("{}e{}", self.mantissa, self.scale).parse().unwrap_or(f64::NAN)
    }
}

fn scaled(mantissa: i128, by: i32) -> Option<i128> {
    mantissa.checked_mul(10i128.checked_pow(by.try_into().ok()?)?)
}

/// Whether the suffix counts in powers of two, and the exponent.
fn parse_suffix(suffix: &str) -> Result<(bool, i32), &'static str> {
    let decimal = |exponent| Ok((false, exponent));
    let binary = |exponent| Ok((true, exponent));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']);
            match exponent.and_then(|e| e.parse::<i16>().ok()) {
                Some(exponent) => decimal(exponent.into()),
                None if suffix.bytes().all(|b| b"eEinumkKMGTP+-0123456789".contains(&b)) && exponent.is_none() => Err(SUFFIX_ERROR),
                None => Err(FORMAT_ERROR),
            }
        }
    }
}

impl fmt::Display for Quantity {
    /// The canonical form, with decimal suffixes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut mantissa, mut scale) = (self.mantissa, self.scale);
        if mantissa == 0 {
            return f.write_str("0");
        }
        while scale % 3 != 0 {
            mantissa = mantissa.saturating_mul(10);
            scale -= 1;
        }
        while mantissa % 1_000 == 0 && scale < 18 {
            mantissa /= 1_000;
            scale += 3;
        }
        let suffix = match scale {
            -9 => "n",
            -6 => "u",
            -3 => "m",
            0 => "",
            3 => "k",
            6 => "M",
            9 => "G",
            12 => "T",
            15 => "P",
            18 => "E",
            other => return write!(f, "{mantissa}e{other}"),
        };
        write!(f, "{mantissa}{suffix}")
    }
}

fn value<'a>(quantity: Quantity) -> Value<'a> {
    Value::Opaque(Opaque::Quantity(Arc::new(quantity)))
}

fn quantity<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text)] => Quantity::parse(text).map(value).map_err(failed),
        _ => Err(no_such_overload()),
    }
}

fn is_quantity<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    match args {
        [Value::String(text)] => Ok(Value::Bool(Quantity::parse(text).is_ok())),
        _ => Err(no_such_overload()),
    }
}

fn target<'v>(args: &'v [Value<'_>]) -> Result<&'v Quantity, EvalError> {
    match args {
        [Value::Opaque(Opaque::Quantity(quantity)), ..] => Ok(quantity),
        _ => Err(no_such_overload()),
    }
}

fn other(args: &[Value<'_>]) -> Result<Quantity, EvalError> {
    match args {
        [_, Value::Opaque(Opaque::Quantity(quantity))] => Ok(**quantity),
        [_, Value::Int(n)] => Ok(Quantity::small(*n)),
        _ => Err(no_such_overload()),
    }
}

fn sign<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Int(target(args)?.mantissa.signum() as i64))
}

fn is_greater_than<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Bool(target(args)?.compare(&other(args)?) == Ordering::Greater))
}

fn is_less_than<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Bool(target(args)?.compare(&other(args)?) == Ordering::Less))
}

fn compare_to<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Int(target(args)?.compare(&other(args)?) as i64))
}

fn as_approximate_float<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Double(target(args)?.as_f64()))
}

fn as_integer<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    target(args)?.as_i64().map(Value::Int).ok_or_else(|| failed("cannot convert value to integer"))
}

fn is_integer<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(Value::Bool(target(args)?.as_i64().is_some()))
}

fn add<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(value(target(args)?.plus(&other(args)?)))
}

fn sub<'a>(_: &mut Meter, args: &[Value<'a>]) -> Answer<'a> {
    Ok(value(target(args)?.plus(&other(args)?.negated())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[test]
    fn quantities_compare_across_suffixes() {
        assert!(q("1Ki") == q("1024"));
        assert!(q("0.1") == q("100m"));
        assert_eq!(q("1Gi").compare(&q("1G")), Ordering::Greater);
        assert_eq!(q("-1").compare(&q("1n")), Ordering::Less);
        assert_eq!(q("999999999999999999E").compare(&q("1n")), Ordering::Greater);
        assert!(q("1e3") == q("1k"));
    }

    #[test]
    fn only_some_are_integers() {
        assert_eq!(q("50k").as_i64(), Some(50_000));
        assert_eq!(q("1.5G").as_i64(), Some(1_500_000_000));
        assert_eq!(q("1.5").as_i64(), None);
        assert_eq!(q("9999999999999999999999999999999999999G").as_i64(), None);
        assert_eq!(q("1.5").as_f64(), 1.5);
    }

    #[test]
    fn bad_quantities_are_refused() {
        for text in ["", "1Mo", "ten", "1.2.3", "--1", "1 Gi", "1e", "0x10"] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
        assert_eq!(Quantity::parse("10Mo").unwrap_err(), FORMAT_ERROR);
        assert_eq!(Quantity::parse("1mm").unwrap_err(), SUFFIX_ERROR);
    }

    #[test]
    fn sums_are_exact() {
        assert!(q("1").plus(&q("500m")) == q("1500m"));
        assert!(q("1").plus(&q("3").negated()) == q("-2"));
        assert_eq!(q("1500m").to_string(), "1500m");
        assert_eq!(q("2000").to_string(), "2k");
    }
}
