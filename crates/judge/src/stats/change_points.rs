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

/// A level of a row in one experiment, such as the cost of a transaction on the log scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Number of the experiment, in chronological order.
    pub experiment: usize,
    /// The level.
    pub value: f64,
}

/// A change in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangePoint {
    /// Index of the first estimate after the change.
    pub index: usize,
    /// Means from the preceding change to this one, and from this one to the next, on the log scale; of estimates, weighted
    /// ones.
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
    let weighted = |row: &Vec<Estimate>| row.iter().map(Weighted::of).collect();
    changes_of(&rows.iter().map(weighted).collect::<Vec<_>>())
}

/// As [`change_points`], for levels: two experiments differ by more than the errors of their levels, because machine and
/// server are not in the same state again. Their variance is half the mean square of successive differences since a row's last
/// change (J. von Neumann, R. H. Kent, H. R. Bellinson, B. I. Hart, *The mean square successive difference*, Annals of
/// Mathematical Statistics 12, 1941). Where levels drift, that around the two means is greater by 1/(1 − *r*), *r* the
/// correlation of neighbours, and counts (1 + *r*)/(1 − *r*) times (H. J. Thiébaux, F. W. Zwiers, *The interpretation and
/// estimation of effective sample size*, Journal of Climate and Applied Meteorology 23, 1984).
pub fn level_changes(rows: &[Vec<Level>]) -> Vec<Vec<ChangePoint>> {
    changes_of(rows)
}

/// A value of a row.
trait Value: Copy {
    /// Returns the number of its experiment.
    fn experiment(&self) -> usize;

    /// Returns the mean of values; `None` where one has no error.
    fn mean(values: &[Self]) -> Option<f64>;

    /// Returns the two-sided p-value of a difference between the means of values and of those that follow.
    fn difference(before: &[Self], after: &[Self]) -> Option<f64>;
}

/// An estimate with its weight, the inverse of its variance, which takes long to compute.
#[derive(Debug, Clone, Copy)]
struct Weighted {
    experiment: usize,
    estimate: f64,
    weight: f64,
    degrees_of_freedom: f64,
}

impl Weighted {
    fn of(estimate: &Estimate) -> Self {
        let interval = &estimate.interval;
        Weighted {
            experiment: estimate.experiment,
            estimate: interval.estimate,
            weight: interval.students_error().powi(-2),
            degrees_of_freedom: interval.degrees_of_freedom.max(1.0),
        }
    }
}

impl Value for Weighted {
    fn experiment(&self) -> usize {
        self.experiment
    }

    fn mean(values: &[Self]) -> Option<f64> {
        WeightedMean::of(values).map(|of| of.mean)
    }

    fn difference(before: &[Self], after: &[Self]) -> Option<f64> {
        Some(WeightedMean::of(before)?.difference(&WeightedMean::of(after)?))
    }
}

impl Value for Level {
    fn experiment(&self) -> usize {
        self.experiment
    }

    fn mean(values: &[Self]) -> Option<f64> {
        let sum: f64 = values.iter().map(|of| of.value).sum();
        (!values.is_empty()).then(|| sum / values.len() as f64)
    }

    fn difference(before: &[Self], after: &[Self]) -> Option<f64> {
        let count = (before.len() + after.len()) as f64;
        let means = (Self::mean(before)?, Self::mean(after)?);
        let all = || before.iter().chain(after);
        let steps = all().zip(all().skip(1));
        let successive: f64 = steps.map(|(a, b)| (b.value - a.value).powi(2)).sum();
        let around = |values: &[Self], mean: f64| -> f64 {
            values.iter().map(|of| (of.value - mean).powi(2)).sum()
        };
        let around = around(before, means.0) + around(after, means.1);
        let freedom = 2.0 * (count - 1.0).powi(2) / (3.0 * count - 4.0);
        let successive = successive / (2.0 * (count - 1.0));
        let around = around / (count - 2.0);
        let variance = if around > successive {
            // Their ratio is 1 less the correlation of neighbours.
            around * (2.0 * around - successive) / successive
        } else {
            successive
        };
        let error = variance * (1.0 / before.len() as f64 + 1.0 / after.len() as f64);
        (count > 2.0 && error > 0.0)
            .then(|| 2.0 * upper_tail((means.0 - means.1).abs() / error.sqrt(), freedom))
    }
}

fn changes_of<V: Value>(rows: &[Vec<V>]) -> Vec<Vec<ChangePoint>> {
    let last = rows.iter().flatten().map(Value::experiment).max();
    let mut starts: Vec<Vec<usize>> = vec![vec![0]; rows.len()];
    for experiment in 0..=last.unwrap_or(0) {
        let mut found: Vec<(usize, &[V], f64)> = Vec::new();
        for (row, estimates) in rows.iter().enumerate() {
            let seen = estimates.partition_point(|of| of.experiment() <= experiment);
            let start = starts[row].last().copied().unwrap_or(0);
            let own = &estimates[start..seen];
            let is_new = own.last().is_some_and(|of| of.experiment() == experiment);
            let lengths = || (0..usize::BITS).map(|power| 1usize << power);
            let lengths = || lengths().take_while(|&length| length < own.len());
            if is_new && let Some((_, p)) = likeliest(own, lengths()) {
                found.push((row, own, (p * lengths().count() as f64).min(1.0)));
            }
        }
        let p_values: Vec<f64> = found.iter().map(|(.., p)| *p).collect();
        for ((row, own, _), p) in found.into_iter().zip(holm(&p_values)) {
            // Where a change is need not be tested.
            if p <= (1.0 - LEVEL) / RUN as f64
                && let Some((place, _)) = likeliest(own, 1..own.len())
            {
                let start = starts[row].last().copied().unwrap_or(0);
                starts[row].push(start + place);
            }
        }
    }
    let of_row = |(starts, estimates): (&Vec<usize>, &Vec<V>)| {
        let ends = starts.iter().skip(1).copied().chain([estimates.len()]);
        let means: Vec<f64> = starts
            .iter()
            .zip(ends)
            .map(|(&from, to)| V::mean(&estimates[from..to]).unwrap_or(0.0))
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

/// Returns the likeliest place of a change before one of the last `lengths` of `own`, with its p-value.
fn likeliest<V: Value>(own: &[V], lengths: impl Iterator<Item = usize>) -> Option<(usize, f64)> {
    let test = |length: usize| {
        let (before, after) = own.split_at(own.len() - length);
        Some((before.len(), V::difference(before, after)?))
    };
    let tested = lengths.filter_map(test);
    tested.min_by(|a, b| a.1.total_cmp(&b.1))
}

/// A mean of estimates, weighted by their precision.
struct WeightedMean {
    mean: f64,
    variance: f64,
    degrees_of_freedom: f64,
}

impl WeightedMean {
    /// `None` where an estimate has no error.
    fn of(estimates: &[Weighted]) -> Option<Self> {
        let (mut all, mut sum) = (0.0, 0.0);
        for of in estimates {
            all += of.weight;
            sum += of.weight * of.estimate;
        }
        if !(all.is_finite() && all > 0.0) {
            return None;
        }
        let (mut uncertain, mut parts) = (0.0, 0.0);
        for of in estimates {
            let share = of.weight / all;
            uncertain += share * (1.0 - share) / of.degrees_of_freedom;
            parts += share * share / of.degrees_of_freedom;
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

    /// Four rows of levels that wander by `drift` of their differences from the mean; the first row's grows by `change`
    /// from experiment 15 on.
    fn levels(random: &mut StdRng, drift: f64, change: f64) -> Vec<Vec<Level>> {
        let mut row = |change: f64| {
            let mut state = 0.01 * sum_of_twelve(random);
            let level = |experiment: usize| {
                let size = if experiment >= 15 { change } else { 0.0 };
                let value = state + size;
                state = drift * state + (1.0 - drift * drift).sqrt() * 0.01 * sum_of_twelve(random);
                Level { experiment, value }
            };
            (0..RUN).map(level).collect()
        };
        vec![row(change), row(0.0), row(0.0), row(0.0)]
    }

    #[test]
    fn levels_change_where_they_do_and_differ_as_much_as_they_do_without_a_change() {
        let mut random = StdRng::seed_from_u64(7);
        // Histories of 400 with a false change: 5 % are 20. If neighbours correlate by a half, they are 13 %.
        for (drift, most) in [(0.0, 20), (0.3, 20), (0.5, 80)] {
            let mut wrong = 0;
            for _ in 0..400 {
                let found = level_changes(&levels(&mut random, drift, 0.0));
                wrong += u32::from(found.iter().any(|changes| !changes.is_empty()));
            }
            assert!(wrong <= most, "{drift}: {wrong}");
        }
        let mut right = 0;
        for _ in 0..60 {
            let found = level_changes(&levels(&mut random, 0.0, 0.04));
            if let [one] = found[0][..] {
                let size = one.after - one.before;
                right += usize::from((14..=17).contains(&one.index) && (size - 0.04).abs() < 0.015);
            }
        }
        assert!(right >= 50, "{right}");
        let constant = |experiment| Level {
            experiment,
            value: 1.0,
        };
        assert_eq!(level_changes(&[(0..9).map(constant).collect()]), [vec![]]);
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
