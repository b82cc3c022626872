//! Change points in the effects of one patch over many experiments.

use super::interval::{Interval, upper_tail};
use super::multiplicity::holm;
use super::quantile::LEVEL;

/// Experiments without any change over which a false one is found with probability 1 − [`LEVEL`]; the mean number until a
/// false change is at least 1/(1 − [`LEVEL`]) times this.
pub const RUN: usize = 30;

/// An estimate of one row in one experiment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Number of the experiment, in chronological order.
    pub experiment: usize,
    /// The estimate with its standard error.
    pub interval: Interval,
}

/// A change in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangePoint {
    /// Index of the first estimate after the change.
    pub index: usize,
    /// Weighted means from the preceding change to this one, and from this one to the next, on the log scale.
    pub before: f64,
    /// See `before`.
    pub after: f64,
}

/// Returns the changes in each of `rows`, whose estimates are independent and in chronological order.
///
/// After each experiment, the last 1, 2, 4, … estimates of a row since its last change are compared with those before, by
/// Welch's test of the weighted means (variance of a weighted mean with estimated weights: P. Meier, *Variance of a
/// weighted mean*, Biometrics 9, 1953). P-values are multiplied by the number of these tests, adjusted over rows by Holm,
/// and compared with `(1 − LEVEL)/RUN`: the probability of a false change is at most that in each experiment, whatever the
/// number of rows, so that the run length has a bound (E. S. Page, *Continuous inspection schemes*, Biometrika 41, 1954;
/// G. Lorden, *Procedures for reacting to a change in distribution*, Annals of Mathematical Statistics 42, 1971). Later
/// experiments take no change back.
pub fn change_points(rows: &[Vec<Estimate>]) -> Vec<Vec<ChangePoint>> {
    let last = rows.iter().flatten().map(|of| of.experiment).max();
    let mut starts: Vec<Vec<usize>> = vec![vec![0]; rows.len()];
    for experiment in 0..=last.unwrap_or(0) {
        let mut found: Vec<(usize, usize, f64)> = Vec::new();
        for (row, estimates) in rows.iter().enumerate() {
            let seen = estimates.partition_point(|of| of.experiment <= experiment);
            let is_new = estimates[..seen]
                .last()
                .is_some_and(|of| of.experiment == experiment);
            let start = starts[row].last().copied().unwrap_or(0);
            if is_new && let Some((index, p)) = change(&estimates[..seen], start) {
                found.push((row, index, p));
            }
        }
        let p_values: Vec<f64> = found.iter().map(|(.., p)| *p).collect();
        for ((row, index, _), p) in found.iter().zip(holm(&p_values)) {
            if p <= (1.0 - LEVEL) / RUN as f64 {
                starts[*row].push(*index);
            }
        }
    }
    let of_row = |(starts, estimates): (&Vec<usize>, &Vec<Estimate>)| {
        let ends = starts.iter().skip(1).copied().chain([estimates.len()]);
        let means: Vec<f64> = starts
            .iter()
            .zip(ends)
            .map(|(&from, to)| WeightedMean::of(&estimates[from..to]).map_or(0.0, |of| of.mean))
            .collect();
        (1..starts.len())
            .map(|at| ChangePoint {
                index: starts[at],
                before: means[at - 1],
                after: means[at],
            })
            .collect()
    };
    starts.iter().zip(rows).map(of_row).collect()
}

/// Returns the p-value of a change after `start`, adjusted for the number of tested places, and the most likely place of all.
fn change(estimates: &[Estimate], start: usize) -> Option<(usize, f64)> {
    let own = &estimates[start..];
    let test = |length: usize| {
        let (before, after) = own.split_at(own.len() - length);
        let p = WeightedMean::of(before)?.difference(&WeightedMean::of(after)?);
        Some((start + before.len(), p))
    };
    let least = |lengths: &mut dyn Iterator<Item = usize>| {
        let tested = lengths.filter_map(test);
        tested.min_by(|a, b| a.1.total_cmp(&b.1))
    };
    let lengths = || (0..usize::BITS).map(|power| 1usize << power);
    let lengths = || lengths().take_while(|&length| length < own.len());
    let (_, p) = least(&mut lengths())?;
    // Where a change is need not be tested.
    let (index, _) = least(&mut (1..own.len()))?;
    Some((index, (p * lengths().count() as f64).min(1.0)))
}

/// A mean of estimates, weighted by their precision.
struct WeightedMean {
    mean: f64,
    variance: f64,
    degrees_of_freedom: f64,
}

impl WeightedMean {
    /// `None` where an estimate has no error.
    fn of(estimates: &[Estimate]) -> Option<Self> {
        let (mut all, mut sum) = (0.0, 0.0);
        let weight = |of: &Estimate| of.interval.students_error().powi(-2);
        for of in estimates {
            let weight = weight(of);
            all += weight;
            sum += weight * of.interval.estimate;
        }
        if !(all.is_finite() && all > 0.0) {
            return None;
        }
        let (mut uncertain, mut parts) = (0.0, 0.0);
        for of in estimates {
            let share = weight(of) / all;
            let freedom = of.interval.degrees_of_freedom.max(1.0);
            uncertain += share * (1.0 - share) / freedom;
            parts += share * share / freedom;
        }
        Some(WeightedMean {
            mean: sum / all,
            variance: (1.0 + 4.0 * uncertain) / all,
            degrees_of_freedom: parts.recip(),
        })
    }

    /// Returns the two-sided p-value of a difference from `other`.
    fn difference(&self, other: &WeightedMean) -> f64 {
        let variance = self.variance + other.variance;
        let parts = self.variance.powi(2) / self.degrees_of_freedom
            + other.variance.powi(2) / other.degrees_of_freedom;
        let statistic = (self.mean - other.mean).abs() / variance.sqrt();
        2.0 * upper_tail(statistic, variance * variance / parts)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::test_kit::sum_of_twelve;

    /// Five rows over `experiments` of 12 to 24 blocks each; the first row's effect grows by `change` from the
    /// experiment `from` on.
    fn rows(
        random: &mut StdRng,
        experiments: usize,
        from: usize,
        change: f64,
    ) -> Vec<Vec<Estimate>> {
        let mut rows = vec![Vec::new(); 5];
        for experiment in 0..experiments {
            let blocks = random.random_range(12..25);
            for (place, row) in rows.iter_mut().enumerate() {
                let size = if place == 0 && experiment >= from {
                    change
                } else {
                    0.0
                };
                let values: Vec<f64> = (0..blocks)
                    .map(|_| size + 0.01 * sum_of_twelve(random))
                    .collect();
                row.push(Estimate {
                    experiment,
                    interval: Interval::of(&values).unwrap(),
                });
            }
        }
        rows
    }

    #[test]
    fn thirty_unchanged_experiments_hardly_ever_have_a_change() {
        let mut random = StdRng::seed_from_u64(5);
        let mut wrong = 0;
        for _ in 0..400 {
            let found = change_points(&rows(&mut random, RUN, 0, 0.0));
            wrong += u32::from(found.iter().any(|changes| !changes.is_empty()));
        }
        // 5 % of 400 are 20.
        assert!(wrong <= 20, "{wrong}");
    }

    #[test]
    fn a_change_is_found_where_it_is_and_stays() {
        let mut random = StdRng::seed_from_u64(6);
        let (mut right, mut others) = (0, 0);
        for _ in 0..60 {
            let rows = rows(&mut random, RUN, 12, 0.012);
            let found = change_points(&rows);
            others += found[1..].iter().flatten().count();
            let early: Vec<Vec<Estimate>> = rows.iter().map(|row| row[..20].to_vec()).collect();
            let known = &change_points(&early)[0];
            assert!(known.len() <= found[0].len());
            for (a, b) in known.iter().zip(&found[0]) {
                assert_eq!(a.index, b.index);
            }
            if let [one] = found[0][..] {
                let is_near = (11..=14).contains(&one.index);
                let size = one.after - one.before;
                right += usize::from(is_near && (size - 0.012).abs() < 0.005);
            }
        }
        assert!(right >= 50 && others <= 4, "{right} {others}");
    }

    #[test]
    fn a_single_estimate_or_one_without_an_error_changes_nothing() {
        assert_eq!(change_points(&[]), Vec::<Vec<ChangePoint>>::new());
        let one = Interval::of(&[1.0]).unwrap();
        let row: Vec<Estimate> = (0..9)
            .map(|experiment| Estimate {
                experiment,
                interval: one,
            })
            .collect();
        assert_eq!(
            change_points(&[row.clone(), row[..1].to_vec()]),
            [vec![], vec![]]
        );
    }
}
