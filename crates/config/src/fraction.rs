//! Fractions of speed: widths of intervals and margins, as such (`0.005`) or in per cent (`0.5 %`).

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};

use perfquilt_model::observation::Meter;

/// The widest interval and the widest margin that can be asked for. Wider ones answer no question about a patch, and are
/// nearly always per cents that were written as a fraction.
pub const MAX_WIDTH: f64 = 0.2;

/// Parses a fraction, as such or in per cent; the error says which values are allowed.
pub fn parse_fraction(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.trim().strip_suffix('%') {
        Some(number) => (number.trim(), 0.01),
        None => (text.trim(), 1.0),
    };
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number * unit),
        _ => Err("a number is needed, such as 0.5% or 0.005".to_owned()),
    }
}

/// Returns what is wrong with a width called `shown`; `None` if it is above 0 and at most [`MAX_WIDTH`].
pub fn width_fault(shown: &str, width: f64) -> Option<String> {
    if width > 0.0 && width <= MAX_WIDTH {
        return None;
    }
    Some(if width > MAX_WIDTH && width < 100.0 * MAX_WIDTH {
        format!(
            "{shown} is a fraction of speed, so {width} is ±{}, and at most ±{} is possible; for ±{} write {} or \"{}\"",
            Percent(width),
            Percent(MAX_WIDTH),
            Percent(width / 100.0),
            Rounded(width / 100.0),
            Percent(width / 100.0),
        )
    } else {
        format!(
            "{shown} is a fraction of speed above 0 and at most {MAX_WIDTH}: 0.005 or \"0.5 %\" for ±0.5 %"
        )
    })
}

/// A number as short as its tenth decimal allows.
struct Rounded(f64);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.10}", self.0);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// A fraction in per cent.
struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", Rounded(100.0 * self.0))
    }
}

/// A fraction in a configuration.
struct Fraction(f64);

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FractionVisitor;
        impl Visitor<'_> for FractionVisitor {
            type Value = Fraction;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a fraction such as 0.005 or \"0.5 %\"")
            }

            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Fraction, E> {
                Ok(Fraction(value))
            }

            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Fraction, E> {
                Ok(Fraction(value as f64))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Fraction, E> {
                parse_fraction(text).map(Fraction).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(FractionVisitor)
    }
}

/// Reads a fraction.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<f64>, D::Error> {
    Fraction::deserialize(deserializer).map(|fraction| Some(fraction.0))
}

/// Reads fractions by meter.
pub(super) fn deserialize_by_meter<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<Meter, f64>, D::Error> {
    let read: BTreeMap<Meter, Fraction> = BTreeMap::deserialize(deserializer)?;
    let checked = read.into_iter().map(|(meter, Fraction(value))| {
        let named = (meter, value);
        value.is_finite().then_some(named).ok_or(meter)
    });
    checked
        .collect::<Result<_, Meter>>()
        .map_err(|meter| D::Error::custom(format!("the margin of {meter} is not a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_and_per_cents_are_read_alike() {
        for text in ["0.005", "0.5%", " 0.5 % ", "5e-3"] {
            assert_eq!(parse_fraction(text), Ok(0.005), "{text}");
        }
        for wrong in ["", "%", "half", "0,5%", "nan", "inf%"] {
            assert!(parse_fraction(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_width_that_looks_like_per_cents_is_refused_with_both_readings() {
        for good in [0.0001, 0.005, 0.2] {
            assert_eq!(width_fault("`resolution`", good), None);
        }
        let fault = width_fault("`resolution`", 0.5).unwrap();
        assert_eq!(
            fault,
            "`resolution` is a fraction of speed, so 0.5 is ±50 %, and at most ±20 % is possible; for ±0.5 % write \
             0.005 or \"0.5 %\""
        );
        for wrong in [-1.0, 0.0, 50.0, f64::NAN, f64::INFINITY] {
            let fault = width_fault("w", wrong).unwrap();
            assert!(
                fault.starts_with("w is a fraction of speed above 0"),
                "{fault}"
            );
        }
    }
}
