//! Slow variation: consecutive values of one contrast that wander, or that a server shifts for a while.

use std::f64::consts::{PI, SQRT_2};

use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use super::dependence::FEWEST;
use super::interval::Interval;
use super::quantile::{LEVEL, student};
use super::robust::deviations;

/// The number of slowest waves that tell the mean's error: those of half a period and of a whole one over all values.
const SLOWEST: usize = 2;
/// One wave in so many is compared with the others, too: with them, weaker waves show.
const SLOW_IN: usize = 6;
/// The largest p-value at which slow waves count as larger than the others, in one family of contrasts.
const SLOWER: f64 = 0.05;
/// How many times the root mean square of the slowest two the mean's standard error is then. Where values follow the one
/// before with correlation 0.9, it is 1.8 times with 24 of them, 1.5 times with 40.
const UNDERSTATED: f64 = 2.0;

/// The least length of a run that may make an effect alone, and the longest, in sixteenths of all values.
const RUNS: std::ops::RangeInclusive<usize> = 4..=8;
/// How many standard errors a run must lie above the other values. Of 24 independent values, 23 % have a run that does.
const ABOVE: f64 = 2.4;

/// The part of consecutive values that changes more slowly than independent ones would.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SlowVariation {
    /// The standard error of the values' mean that the slowest waves show.
    standard_error: f64,
}

impl SlowVariation {
    /// Estimates the slow part of `values`, one of `family` contrasts whose p-values are adjusted by Bonferroni; `None` if they
    /// look independent, or are too few.
    ///
    /// The coefficients of `n` independent normal values by the cosines of `j` half periods, `j < n`, are independent with the
    /// values' variance. If the values wander, those of small `j` are larger, and resemble that of the mean, `j = 0`. So the mean
    /// square of the slowest two estimates the mean's variance on two degrees of freedom (equally weighted cosines: U. K.
    /// Müller, *A theory of robust long-run variance estimation*, J. Econometrics 141, 2007; E. Lazarus, D. J. Lewis, J. H. Stock
    /// and M. W. Watson, *HAR inference*, J. Business & Economic Statistics 36, 2018), and replaces the usual estimate where an F test
    /// finds them, or the slowest sixth of all, to be larger than the others. It is too small if values remember a part of
    /// their whole time (U. K. Müller, *HAC corrections for strongly autocorrelated time series*, the same journal 32, 2014),
    /// so its root is doubled.
    pub(crate) fn of(values: &[f64], family: usize) -> Option<Self> {
        let count = values.len();
        if count < FEWEST {
            return None;
        }
        let n = count as f64;
        let values = deviations(values);
        let all: f64 = values.iter().map(|value| value * value).sum();
        let coefficient = |waves: usize| {
            let of = |(place, value): (usize, &f64)| {
                value * SQRT_2 * (PI * waves as f64 * (place as f64 + 0.5) / n).cos()
            };
            values.iter().enumerate().map(of).sum::<f64>() / n.sqrt()
        };
        let most = SLOWEST.max(count / SLOW_IN);
        let squares: Vec<f64> = (1..=most).map(|j| coefficient(j).powi(2)).collect();
        let are_larger = |squares: &[f64]| {
            let slow: f64 = squares.iter().sum();
            let (waves, rest) = (squares.len(), count - 1 - squares.len());
            let (waves, rest) = (waves as f64, rest as f64);
            let (own, others) = (slow / waves, (all - slow) / rest);
            let chance = FisherSnedecor::new(waves, rest);
            others > 0.0
                && chance.is_ok_and(|chance| chance.sf(own / others) < SLOWER / family as f64)
        };
        let slowest = &squares[..SLOWEST];
        let is_slow = are_larger(slowest) || most > SLOWEST && are_larger(&squares);
        let variance = slowest.iter().sum::<f64>() / (SLOWEST as f64 * n);
        is_slow.then(|| SlowVariation {
            standard_error: UNDERSTATED * variance.sqrt(),
        })
    }

    /// Returns the interval of the values' mean, as wide at 95 % as two degrees of freedom make it. It keeps its own ones for
    /// smaller errors: an estimate that an F test found to be large is not small by chance.
    pub(crate) fn widen(&self, interval: Interval) -> Interval {
        let at = |freedom: f64| student(0.5 + LEVEL / 2.0, freedom);
        let own = interval.degrees_of_freedom;
        let wider = at(SLOWEST as f64) / at(own);
        interval.with_error(self.standard_error * wider, own)
    }
}

/// Returns the length of a run of consecutive `values` that makes their mean differ from 0 alone: it lies farther out than
/// chance explains, and the other values do not show a difference (Student's test at 5 %). `None` if there is no such run.
///
/// A server that is off for a while gives such a run, and an effect gives it by chance: the more seldom the larger it is.
pub(crate) fn run_that_differs(values: &[f64]) -> Option<usize> {
    let n = values.len();
    let mut sums = vec![0.0];
    for value in values {
        sums.push(sums[sums.len() - 1] + value);
    }
    let squares: f64 = deviations(values).iter().map(|value| value * value).sum();
    let sd = (squares / (n as f64 - 1.0)).sqrt() * sums[n].signum();
    let differs = |(length, start): &(usize, usize)| {
        let run = sums[start + length] - sums[*start];
        let (inside, outside) = (*length as f64, (n - length) as f64);
        let others = (sums[n] - run) / outside;
        let above = (run / inside - others) / (sd * (inside.recip() + outside.recip()).sqrt());
        let shown = student(0.5 + LEVEL / 2.0, n as f64 - 2.0);
        above > ABOVE && others * outside.sqrt() / sd < shown
    };
    let lengths = RUNS.map(|part| n * part / 16).filter(|length| *length > 1);
    let mut runs = lengths.flat_map(|length| (0..=n - length).map(move |start| (length, start)));
    runs.find(differs).map(|(length, _)| length)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::test_kit::sum_of_twelve;

    const EXPERIMENTS: usize = 2000;

    /// Shares of experiments of `n` blocks that call a difference: by Student's interval, by the wider one, and by that
    /// without those whose difference a run makes. Each value resembles the one before by `rho`, and `shift` adds to it.
    fn called(n: usize, rho: f64, shift: impl Fn(usize) -> f64) -> [f64; 3] {
        let mut random = StdRng::seed_from_u64(17);
        let mut called = [0; 3];
        for _ in 0..EXPERIMENTS {
            let mut error = sum_of_twelve(&mut random);
            let value = |place: usize| {
                error = rho * error + (1.0 - rho * rho).sqrt() * sum_of_twelve(&mut random);
                error + shift(place)
            };
            let values: Vec<f64> = (0..n).map(value).collect();
            let plain = Interval::of(&values).unwrap();
            let wide = SlowVariation::of(&values, 1).map_or(plain, |of| of.widen(plain));
            let shown = !wide.contains_zero();
            called[0] += usize::from(!plain.contains_zero());
            called[1] += usize::from(shown);
            called[2] += usize::from(shown && run_that_differs(&values).is_none());
        }
        called.map(|count| count as f64 / EXPERIMENTS as f64)
    }

    #[test]
    fn values_that_wander_seldom_show_a_difference() {
        let [plain, wide, _] = called(24, 0.8, |_| 0.0);
        assert!(plain > 0.45 && wide < 0.17, "{plain} {wide}");
        let [plain, wide, _] = called(40, 0.9, |_| 0.0);
        assert!(plain > 0.6 && wide < 0.12, "{plain} {wide}");
    }

    #[test]
    fn a_shift_of_some_consecutive_blocks_is_seldom_a_difference() {
        let of_six = called(24, 0.0, |place| {
            f64::from(u8::from((9..15).contains(&place)))
        });
        let of_half = called(24, 0.0, |place| f64::from(u8::from(place > 11)));
        assert!(of_six[0] > 0.15 && of_six[2] < 0.09, "{of_six:?}");
        assert!(of_half[0] > 0.5 && of_half[2] < 0.25, "{of_half:?}");
    }

    #[test]
    fn independent_values_keep_their_claims() {
        let none = called(24, 0.0, |_| 0.0);
        assert!(none[2] < 0.05 && none[1] > 0.035, "{none:?}");
        let clear = called(24, 0.0, |_| 1.0);
        assert!(clear[0] > 0.99 && clear[2] > 0.88, "{clear:?}");
        let large = called(12, 0.0, |_| 10.0);
        assert!(large[2] > 0.999, "{large:?}");
    }

    #[test]
    fn few_or_equal_values_are_not_slow() {
        for values in [&[][..], &[1.0], &[1.0, 2.0, 4.0], &[1.0; 12]] {
            assert_eq!(SlowVariation::of(values, 1), None);
            assert_eq!(run_that_differs(values), None);
        }
    }
}
