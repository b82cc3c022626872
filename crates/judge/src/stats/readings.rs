//! Readings of one point in runs of their own: what their likeness and their printed digits say of its noise.

use super::correlation::{UnitCorrelation, lag1};
use super::robust::deviations;

/// Significant digits up to which a value counts as printed; more come from a computation.
const MOST_DIGITS: usize = 11;

/// How many standard errors above that of independent readings a correlation must be to count (one-sided, 10 %).
const RESEMBLING: f64 = 1.28;

/// Returns the correlation of consecutive readings; `None` where they look independent.
///
/// That of `n` independent readings has mean `−1/n` and variance `1/n` approximately (M. S. Bartlett 1946, see
/// [`BlockTable::dependence`](super::BlockTable::dependence)). A few readings tell their correlation so badly that to correct
/// for every positive one would widen half of the intervals of independent readings.
pub(crate) fn readings_correlation(values: &[f64]) -> Option<UnitCorrelation> {
    let n = values.len() as f64;
    let z = (lag1(values) + n.recip()) * n.sqrt();
    if z > RESEMBLING {
        UnitCorrelation::of_values(values)
    } else {
        None
    }
}

/// The distance of equal values, as a fraction: that of floating-point rounding.
const EQUAL: f64 = 1e-12;

/// Returns whether several readings are the same to the last digit, so that they show no noise.
pub(crate) fn are_equal(readings: &[(u32, f64)]) -> bool {
    let is_first = |(_, log): &(u32, f64)| (log - readings[0].1).abs() < EQUAL;
    readings.len() > 1 && readings.iter().all(is_first)
}

/// Returns the bound of the error, as a fraction, that comes from the last printed digit of readings with these logarithms;
/// 0 where they have all digits, or scatter over several steps of it.
///
/// Rounding to a step `h` moves the mean of values with the standard deviation `σ` by at most `h/2`, and by no more than
/// `(h/π)·exp(−2π²σ²/h²)` if they are normal: 0.2 % of `h` from `σ = h/2` on (B. Widrow and I. Kollár, *Quantization Noise*, 2008,
/// chapter 4).
///
/// Values that tie do so in steps of any size, such as those of a timer: `h` is at least the least distance of two that differ.
pub(crate) fn digit_error(readings: &[(u32, f64)]) -> f64 {
    let mut costs: Vec<f64> = readings.iter().map(|(_, log)| log.exp()).collect();
    let printed = costs.iter().map(|cost| printed_decimals(*cost));
    let decimals: Option<Vec<i32>> = printed.collect();
    let decimals = decimals.and_then(|all| all.into_iter().max());
    let printed = decimals.map_or(0.0, |decimals| 10f64.powi(-decimals));
    let squares: f64 = deviations(&costs).iter().map(|d| d * d).sum();
    costs.sort_by(f64::total_cmp);
    let n = costs.len() as f64;
    let mean = costs.iter().sum::<f64>() / n;
    let (ties, steps): (Vec<f64>, Vec<f64>) = costs
        .windows(2)
        .map(|pair| pair[1] - pair[0])
        .partition(|step| *step < EQUAL * mean);
    let least = steps.into_iter().fold(f64::INFINITY, f64::min);
    let tied = Some(least).filter(|least| !ties.is_empty() && least.is_finite());
    let step = tied.unwrap_or(0.0).max(printed);
    if (squares / (n - 1.0).max(1.0)).sqrt() >= step / 2.0 {
        return 0.0;
    }
    step / 2.0 / mean
}

/// Returns the number of digits behind the decimal point of a printed value; `None` if it has more digits than are printed.
/// It is negative for zeros before the point behind the third digit: a time in seconds has them as nanoseconds.
fn printed_decimals(value: f64) -> Option<i32> {
    let text = format!("{value:.MOST_DIGITS$e}");
    let (mantissa, exponent) = text.split_once('e')?;
    let digits = mantissa
        .trim_end_matches('0')
        .trim_end_matches('.')
        .len()
        .saturating_sub(1);
    let fraction = i32::try_from(digits.saturating_sub(1)).ok()?;
    let exponent: i32 = exponent.parse().ok()?;
    (digits <= MOST_DIGITS).then(|| (fraction - exponent).max(0.min(2 - exponent)))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::stats::Interval;
    use crate::test_kit::sum_of_twelve;

    fn logs(costs: &[f64]) -> Vec<(u32, f64)> {
        (0..).zip(costs.iter().map(|cost| cost.ln())).collect()
    }

    #[test]
    fn the_last_printed_digit_bounds_equal_readings() {
        assert!((digit_error(&logs(&[10.0; 6])) - 0.05).abs() < 1e-12);
        assert!((digit_error(&logs(&[0.25, 0.25, 0.25])) - 0.02).abs() < 1e-12);
        assert!((digit_error(&logs(&[52.1, 52.1, 52.1])) - 0.05 / 52.1).abs() < 1e-12);
        // One of ten is a step away: still within one.
        let mut nine = vec![10.0; 9];
        nine.push(11.0);
        assert!((digit_error(&logs(&nine)) - 0.5 / 10.1).abs() < 1e-12);
        // Hundredths of a second in nanoseconds.
        let coarse = [1.01e9, 1.01e9, 1.01e9, 1.02e9];
        assert!((digit_error(&logs(&coarse)) - 5e6 / 1.0125e9).abs() < 1e-9);
        assert!((digit_error(&logs(&[1e9; 6])) - 0.005).abs() < 1e-9);
        // Steps of a timer that are no digits.
        let ticks = [3e9 / 7.0, 3e9 / 7.0, 3e9 / 7.0, 3e9 / 7.0, 3.1e9 / 7.0];
        let mean = ticks.iter().sum::<f64>() / 5.0;
        assert!((digit_error(&logs(&ticks)) - 0.05e9 / 7.0 / mean).abs() < 1e-9);
    }

    #[test]
    fn scattered_and_computed_readings_are_not_rounded() {
        assert_eq!(digit_error(&logs(&[10.0, 11.0, 9.0, 12.0])), 0.0);
        assert_eq!(digit_error(&logs(&[1e9 / 3.0; 4])), 0.0);
        assert_eq!(digit_error(&logs(&[1234.567891234; 4])), 0.0);
    }

    /// Shares of pairs of samples of `n` readings, with the correlation `rho` of neighbours and no difference: those that are
    /// called different with and without the correction, and those whose interval it widens.
    fn claims(n: usize, rho: f64) -> (f64, f64, f64) {
        const TRIALS: usize = 1000;
        let mut random = StdRng::seed_from_u64(7);
        let (mut corrected, mut plain, mut widened) = (0, 0, 0);
        for _ in 0..TRIALS {
            let mut side = || {
                let mut error = sum_of_twelve(&mut random);
                let values: Vec<f64> = (0..n)
                    .map(|_| {
                        let fresh = (1.0 - rho * rho).sqrt() * sum_of_twelve(&mut random);
                        error = rho * error + fresh;
                        error
                    })
                    .collect();
                let plain = Interval::of(&values).unwrap();
                let of = readings_correlation(&values);
                (of.map_or(plain, |of| of.widen(plain)), plain)
            };
            let ((first, first_plain), (second, second_plain)) = (side(), side());
            let difference = first.minus(&second);
            let without = first_plain.minus(&second_plain);
            corrected += usize::from(!difference.contains_zero());
            plain += usize::from(!without.contains_zero());
            widened += usize::from(difference.half_width > 1.01 * without.half_width);
        }
        let share = |count: usize| count as f64 / TRIALS as f64;
        (share(corrected), share(plain), share(widened))
    }

    #[test]
    fn readings_that_resemble_their_neighbours_claim_no_difference() {
        for (rho, most) in [(0.5, 0.09), (0.7, 0.09), (0.9, 0.1)] {
            let (corrected, plain, _) = claims(20, rho);
            assert!(plain > 0.2, "{rho}: {plain}");
            assert!(corrected < most, "{rho}: {corrected}");
        }
        let (corrected, plain, _) = claims(60, 0.7);
        assert!(plain > 0.3 && corrected < 0.08, "{plain} {corrected}");
    }

    #[test]
    fn independent_readings_keep_their_interval_as_a_rule() {
        for n in [10, 20] {
            let (corrected, plain, widened) = claims(n, 0.0);
            assert!((plain - corrected).abs() < 0.02, "{plain} {corrected}");
            assert!(corrected > 0.02 && widened < 0.25, "{corrected} {widened}");
        }
    }
}
