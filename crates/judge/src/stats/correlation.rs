//! Correlation between blocks that ran at one time or one after the other, and intervals widened by it.

use std::collections::{BTreeMap, BTreeSet};

use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use super::interval::Interval;
use super::robust::{deviations, mean_row, median};

/// The least number of rounds from which the correlation with the preceding round is estimated.
const FEWEST_ROUNDS: usize = 6;
/// The largest correlation that is corrected for. A larger one would be a random walk, whose mean says nothing.
const MOST: f64 = 0.9;
/// So many standard errors are added to the estimate of what blocks beside each other share: with few of them it is too
/// small in half of experiments, and an interval that is too narrow then does not make up for one that is too wide.
const ERRORS: f64 = 1.0;
/// The least time that others run beside a block, in units of its own, for that: more than one other at once.
const CROWDED: f64 = 1.5;

/// How much the units of a table resemble their neighbours in time, estimated from all of its points together.
///
/// Units are in the order in which they began. A *round* is as many neighbouring units as may have run at one time; it has
/// one unit where only one did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnitCorrelation {
    /// Units in a round, on average.
    size: f64,
    /// Variance of a round's mean in units of that of independent units; at least 1.
    within: f64,
    /// Degrees of freedom of `within`.
    within_freedom: f64,
    /// Correlation of a round's mean with that of the preceding round; at least 0.
    between: f64,
    /// Its variance.
    between_variance: f64,
}

impl UnitCorrelation {
    /// Estimates the correlation from `rows`, one per unit in their order, each with the logarithms of the costs of the
    /// same points; `sizes` are those of the rounds that they make, one after the other. `None` if it cannot be estimated:
    /// with a single round or point.
    ///
    /// Deviations from the units' means are divided by each point's standard deviation, so that no noisy point decides. With
    /// the mean squares `B` between rounds and `W` within them, the correlation in a round is `ρ = (B − W)/(B + (k₀ − 1) W)`,
    /// `k₀ = (N − Σk²/N)/(R − 1)` for `N` units in `R` rounds of `k` each (intraclass correlation: R. A. Fisher, *Statistical
    /// Methods for Research Workers*, 1925, section 40; unequal rounds: Searle, Casella and McCulloch, *Variance Components*,
    /// 1992, section 3.6). The mean over units has `1 + ρ (Σk²/N − 1)` times the variance of independent ones. The correlation of consecutive rounds is the mean over points of the lag-1
    /// autocorrelation `r`, as `(r + 1/n)/(1 − 3/n)`, because that of `n` values is too small by about `(1 + 3r)/n` (M. G.
    /// Kendall, *Note on bias in the estimation of autocorrelation*, Biometrika 41, 1954).
    pub fn of(rows: &[Vec<f64>], sizes: &[usize]) -> Option<Self> {
        debug_assert_eq!(sizes.iter().sum::<usize>(), rows.len());
        let points = rows.first().map_or(0, Vec::len);
        let rounds = sizes.len();
        if points < 2 || rounds < 2 {
            return None;
        }
        let columns = standardised(rows, points);
        let free = (points - 1) as f64;
        let means: Vec<Vec<f64>> = columns.iter().map(|of| round_means(of, sizes)).collect();
        let n = rounds as f64;
        let units = rows.len() as f64;
        let (within, within_freedom) = if rows.len() > rounds {
            let squares = sizes.iter().map(|size| (size * size) as f64).sum::<f64>() / units;
            let typical = (units - squares) / (n - 1.0);
            let (between, left) = mean_squares(&columns, &means, sizes, free);
            let all = between + (typical - 1.0) * left;
            let shared = if all > 0.0 {
                (between - left) / all
            } else {
                0.0
            };
            (1.0 + shared * (squares - 1.0), (n - 1.0) * free)
        } else {
            (1.0, f64::INFINITY)
        };
        let raw = means.iter().map(|of| lag1(of)).sum::<f64>() / points as f64;
        let between = between_rounds(raw, rounds);
        Some(UnitCorrelation {
            size: units / n,
            within: within.max(1.0),
            within_freedom,
            between,
            between_variance: (1.0 - between * between) / (n * free),
        })
    }

    /// Returns this correlation, or that of what the units share while they run beside each other, if it is larger. `times`
    /// are those at which the units of `rows` began and ended, in the order of their beginnings.
    ///
    /// A disturbance that changes faster than blocks end gives two blocks that run beside each other for the time `t` the
    /// correlation `ρ·o`, `o = t/√(d₁d₂)`, where `d` is how long a block runs; blocks of several rounds may share some. `ρ` is
    /// estimated by least squares from all pairs, given that values with mean 0 have products with the mean `−(1 + ρS)/n`, and
    /// the mean of `n` units has the variance `1 + ρS`, `S = Σo/n` over all ordered pairs (spatial correlation by distance:
    /// T. G. Conley, *GMM estimation with cross sectional dependence*, J. Econometrics 92, 1999). One standard error is added to
    /// `ρ` where more than two run at once.
    #[must_use]
    pub fn or_beside(self, rows: &[Vec<f64>], times: &[(f64, f64)]) -> Self {
        let points = rows.first().map_or(0, Vec::len);
        let n = rows.len() as f64;
        let columns = standardised(rows, points);
        let (mut products, mut overlaps, mut squares) = (0.0, 0.0, 0.0);
        for (i, a) in times.iter().enumerate() {
            for (j, b) in times.iter().enumerate().skip(i + 1) {
                if b.0 >= a.1 {
                    break;
                }
                let length = ((a.1 - a.0) * (b.1 - b.0)).sqrt();
                let beside = (a.1.min(b.1) - a.0.max(b.0)) / length;
                if !(beside > 0.0 && beside.is_finite()) {
                    continue;
                }
                let product: f64 = columns.iter().map(|of| of[i] * of[j]).sum();
                products += beside * product * n / points as f64;
                overlaps += beside;
                squares += beside * beside;
            }
        }
        let sum = 2.0 * overlaps / n;
        let slope = squares - overlaps * sum / n;
        if slope <= 0.0 {
            return self;
        }
        let error = (slope * points.saturating_sub(1) as f64).sqrt().recip();
        let errors = if sum > CROWDED { ERRORS } else { 0.0 };
        let shared = ((products + overlaps / n) / slope + errors * error).clamp(0.0, 1.0);
        let beside = 1.0 + shared * sum;
        let found = UnitCorrelation {
            within: beside,
            within_freedom: 2.0 * (beside / sum).powi(2) * squares * (points - 1) as f64,
            between: 0.0,
            ..self
        };
        if found.variance_factor(rows.len()) > self.variance_factor(rows.len()) {
            found
        } else {
            self
        }
    }

    /// Returns this correlation with one of consecutive rounds that is at least that of earlier experiments, which is known
    /// from many more blocks.
    #[must_use]
    pub fn at_least(self, earlier: f64) -> Self {
        if earlier <= self.between {
            return self;
        }
        UnitCorrelation {
            between: earlier.min(MOST),
            between_variance: 0.0,
            ..self
        }
    }

    /// Returns the variance of the mean of `n` neighbouring units in units of what Student's formula estimates it to be,
    /// which is too little: independent units have 1.
    pub fn variance_factor(&self, n: usize) -> f64 {
        let rounds = ((n as f64 / self.size) as usize).max(1);
        let count = rounds as f64;
        let of_rounds: f64 = (1..rounds)
            .map(|lag| 2.0 * (1.0 - lag as f64 / count) * self.between.powf(lag as f64))
            .sum();
        let factor = self.within * (1.0 + of_rounds);
        let n = n as f64;
        // Values that resemble each other lie closer to their mean than to the true one.
        factor.min(MOST * n) * (n - 1.0) / (n - factor.min(MOST * n))
    }

    /// Returns the interval of the mean of units, widened by their correlation. Without any it stays as it is.
    ///
    /// The degrees of freedom are those of a product of independent variance estimates, F. E. Satterthwaite, *An approximate
    /// distribution of estimates of variance components*, Biometrics Bulletin 2 (1946): that of the contrast, that of the
    /// rounds, and `(1 + φ)/(1 − φ)` of the correlation φ. The units count as so many independent ones.
    #[must_use]
    pub fn widen(&self, interval: Interval) -> Interval {
        let n = interval.blocks;
        if n < 2 || !interval.standard_error.is_finite() || !self.widens() {
            return interval;
        }
        let freedom = self.degrees_of_freedom(interval.degrees_of_freedom);
        let blocks = (freedom as usize + 1).min(n);
        let error = interval.standard_error * self.variance_factor(n).sqrt();
        let freedom = freedom.min(interval.degrees_of_freedom);
        Interval { blocks, ..interval }.with_error(error, freedom)
    }

    /// Returns the degrees of freedom, at least 1, of a standard error on `own` ones that is widened by the correlation.
    pub(crate) fn degrees_of_freedom(&self, own: f64) -> f64 {
        let mut parts = own.recip();
        if self.within > 1.0 {
            parts += self.within_freedom.recip();
        }
        if self.between > 0.0 {
            let slope = 2.0 / (1.0 - self.between * self.between);
            parts += slope * slope * self.between_variance / 2.0;
        }
        parts.recip().floor().max(1.0)
    }

    /// Estimates the correlation of consecutive values of a single contrast; `None` with fewer than two.
    pub(crate) fn of_values(values: &[f64]) -> Option<Self> {
        let n = values.len();
        if n < 2 {
            return None;
        }
        let between = between_rounds(lag1(values), n);
        Some(UnitCorrelation {
            size: 1.0,
            within: 1.0,
            within_freedom: f64::INFINITY,
            between,
            between_variance: (1.0 - between * between) / n as f64,
        })
    }

    /// Returns whether intervals are wider for it.
    pub(crate) fn widens(&self) -> bool {
        *self != self.without()
    }

    /// Returns the same rounds without correlation.
    fn without(&self) -> Self {
        UnitCorrelation {
            within: 1.0,
            between: 0.0,
            ..*self
        }
    }
}

/// How much machines that measure at one time resemble each other, as they do on one host, estimated from all points of a
/// table together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MachineCorrelation {
    /// Variance of the mean over machines in units of what the differences between machines show; more than 1.
    factor: f64,
    /// Its degrees of freedom.
    freedom: f64,
}

/// The significance level of a disturbance that machines share.
const SHARED: f64 = 0.05;

impl MachineCorrelation {
    /// Estimates the correlation from `rows`, one per block in order, with its machine and the logarithms of the costs of
    /// the same points. `None` if machines share nothing, or with fewer than two waves.
    ///
    /// Consecutive blocks of a machine are a *run*, as many runs as there are machines a *wave*. A disturbance that a wave
    /// shares is in each machine's mean alike, so no difference between machines shows it. It is tested by the F statistic of the mean
    /// squares between waves and of the rest, after subtracting the machines' means (two-way crossed random model; Searle,
    /// Casella and McCulloch, *Variance Components*, 1992, chapter 4).
    pub fn of(rows: &[(u32, Vec<f64>)]) -> Option<Self> {
        let runs: Vec<(u32, Vec<f64>)> = rows
            .chunk_by(|a, b| a.0 == b.0)
            .map(|run| (run[0].0, mean_row(run.iter().map(|(_, row)| row))))
            .collect();
        let machines: BTreeSet<u32> = runs.iter().map(|(machine, _)| *machine).collect();
        let points = runs.first().map_or(0, |(_, row)| row.len());
        let count = machines.len();
        let waves = runs.len() / count.max(1);
        if waves < 2 || count < 2 || points < 2 {
            return None;
        }
        let centred: Vec<(u32, Vec<f64>)> = runs
            .iter()
            .map(|(machine, row)| (*machine, deviations(row)))
            .collect();
        let means: BTreeMap<u32, Vec<f64>> = machines
            .iter()
            .map(|&machine| {
                let own = centred.iter().filter(|(of, _)| *of == machine);
                (machine, mean_row(own.map(|(_, row)| row)))
            })
            .collect();
        let all = mean_row(means.values());
        let left: Vec<Vec<f64>> = centred
            .iter()
            .map(|(machine, row)| {
                row.iter()
                    .zip(&means[machine])
                    .map(|(a, b)| a - b)
                    .collect()
            })
            .collect();
        let columns = standardised(&left, points);
        let free = (points - 1) as f64;
        let sizes = equal_rounds(runs.len(), count);
        let by_wave: Vec<Vec<f64>> = columns.iter().map(|of| round_means(of, &sizes)).collect();
        let size = runs.len() as f64 / waves as f64;
        let of_waves = (waves - 1) as f64 * free;
        let between: f64 = by_wave
            .iter()
            .flatten()
            .map(|mean| size * mean * mean)
            .sum();
        let total: f64 = columns.iter().flatten().map(|value| value * value).sum();
        let of_rest = (runs.len() - count - waves + 1) as f64 * free;
        let ratio = (between / of_waves) / ((total - between) / of_rest);
        let p_value = FisherSnedecor::new(of_waves, of_rest).map_or(1.0, |f| f.sf(ratio));
        if !(ratio > 1.0 && p_value < SHARED) {
            return None;
        }
        // Machines that differ by themselves, too, show so much more than chance within a machine.
        let scale = |of: &[Vec<f64>]| of.iter().flatten().map(|value| value * value).sum::<f64>();
        let apart: Vec<Vec<f64>> = means
            .values()
            .map(|row| row.iter().zip(&all).map(|(a, b)| a - b).collect())
            .collect();
        let of_machines = scale(&apart) * waves as f64 / ((count - 1) as f64 * free);
        let rest = scale(&left) / of_rest * ((total - between) / total);
        let share = (rest / of_machines).min(1.0);
        Some(MachineCorrelation {
            factor: 1.0 + (ratio - 1.0) * share,
            freedom: of_waves,
        })
    }

    /// Returns the interval of a mean over machines, widened by what they share.
    #[must_use]
    pub fn widen(&self, interval: Interval) -> Interval {
        let parts = interval.degrees_of_freedom.recip() + self.freedom.recip();
        let freedom = parts.recip().floor().max(1.0);
        let blocks = (freedom as usize + 1).min(interval.blocks);
        let error = interval.standard_error * self.factor.sqrt();
        Interval { blocks, ..interval }.with_error(error, freedom)
    }
}

/// Returns the correlation of consecutive ones of `n` rounds whose lag-1 autocorrelation is `raw`; 0 with too few.
pub(crate) fn between_rounds(raw: f64, n: usize) -> f64 {
    if n < FEWEST_ROUNDS {
        return 0.0;
    }
    without_bias(raw, n).clamp(0.0, MOST)
}

/// Returns the correlation of consecutive ones of `n > 3` rounds whose lag-1 autocorrelation is `raw` (M. G. Kendall 1954).
pub(crate) fn without_bias(raw: f64, n: usize) -> f64 {
    let n = n as f64;
    (raw + 1.0 / n) / (1.0 - 3.0 / n)
}

/// Returns the columns of deviations from the rows' means, each with mean 0 and sum of squares 1; constant ones stay 0.
fn standardised(rows: &[Vec<f64>], points: usize) -> Vec<Vec<f64>> {
    let rows: Vec<Vec<f64>> = rows.iter().map(|row| deviations(row)).collect();
    let column = |point: usize| {
        let values: Vec<f64> = rows.iter().map(|row| row[point]).collect();
        let values = deviations(&values);
        let size = values.iter().map(|value| value * value).sum::<f64>().sqrt();
        let scale = if size > 0.0 { size.recip() } else { 0.0 };
        values.iter().map(|value| value * scale).collect()
    };
    (0..points).map(column).collect()
}

/// Returns the means of consecutive parts of these sizes.
fn round_means(values: &[f64], sizes: &[usize]) -> Vec<f64> {
    parts(values, sizes)
        .map(|part| part.iter().sum::<f64>() / part.len() as f64)
        .collect()
}

/// Iterates over consecutive parts of these sizes.
fn parts<'v>(values: &'v [f64], sizes: &[usize]) -> impl Iterator<Item = &'v [f64]> {
    let mut left = values;
    sizes.iter().map(move |&size| {
        let (part, rest) = left.split_at(size);
        left = rest;
        part
    })
}

/// Returns the mean squares between rounds and within them; `means` are those of the rounds.
fn mean_squares(
    columns: &[Vec<f64>],
    means: &[Vec<f64>],
    sizes: &[usize],
    free: f64,
) -> (f64, f64) {
    let n = columns[0].len();
    let rounds = sizes.len();
    let (mut between, mut within) = (0.0, 0.0);
    for (column, means) in columns.iter().zip(means) {
        for (part, mean) in parts(column, sizes).zip(means) {
            between += part.len() as f64 * mean * mean;
            within += part.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        }
    }
    (
        between / ((rounds - 1) as f64 * free),
        within / ((n - rounds).max(1) as f64 * free),
    )
}

/// Returns the lag-1 autocorrelation; 0 for constant values.
pub(super) fn lag1(values: &[f64]) -> f64 {
    let values = deviations(values);
    let squares: f64 = values.iter().map(|value| value * value).sum();
    let products: f64 = values.windows(2).map(|pair| pair[0] * pair[1]).sum();
    if squares > 0.0 {
        products / squares
    } else {
        0.0
    }
}

/// Returns the sizes of rounds of nearly equal length, `size` or more each, that `n` units make.
pub fn equal_rounds(n: usize, size: usize) -> Vec<usize> {
    let rounds = (n / size.max(1)).max(1);
    (0..rounds)
        .map(|round| (round + 1) * n / rounds - round * n / rounds)
        .collect()
}

/// Groups blocks into rounds by the times at which they began and ended, in the order of their beginnings: a round has
/// the blocks that ran beside its first one for half of their time, or of its time, or longer.
pub fn rounds_of_times(times: &BTreeMap<u32, (f64, f64)>) -> Vec<Vec<u32>> {
    let mut blocks: Vec<(u32, (f64, f64))> = times.iter().map(|(&b, &time)| (b, time)).collect();
    blocks.sort_by(|(_, a), (_, b)| a.0.total_cmp(&b.0));
    let mut rounds: Vec<((f64, f64), Vec<u32>)> = Vec::new();
    for (block, (began, ended)) in blocks {
        if let Some((first, round)) = rounds.last_mut() {
            let beside = first.1.min(ended) - began;
            if 2.0 * beside >= (first.1 - first.0).min(ended - began) {
                round.push(block);
                continue;
            }
        }
        rounds.push(((began, ended), vec![block]));
    }
    rounds.into_iter().map(|(_, round)| round).collect()
}

/// Returns how many neighbouring blocks make a wave, given the machine of each block: so many as there are machines, times
/// the typical number of consecutive blocks that one of them runs. Without machines it is 1.
pub fn blocks_in_wave(machines: &BTreeMap<u32, u32>) -> usize {
    let distinct: BTreeSet<u32> = machines.values().copied().collect();
    if distinct.len() < 2 {
        return 1;
    }
    let in_order: Vec<u32> = machines.values().copied().collect();
    let mut runs: Vec<f64> = in_order
        .chunk_by(|a, b| a == b)
        .map(|run| run.len() as f64)
        .collect();
    let run = median(&mut runs).unwrap_or(1.0);
    (run * distinct.len() as f64).ceil() as usize
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::test_kit::sum_of_twelve as normal;

    /// Units of six points: values follow the one before with correlation `serial`, and those of `at_once` units share
    /// `shared` of their variance.
    fn rows(
        random: &mut StdRng,
        n: usize,
        serial: f64,
        at_once: usize,
        shared: f64,
    ) -> Vec<Vec<f64>> {
        let (mut own, mut common) = ([0.0; 6], [0.0; 6]);
        let mut rows = Vec::new();
        for unit in 0..n {
            let machine = normal(random);
            let row = (0..6).map(|point| {
                if unit % at_once == 0 {
                    common[point] = normal(random);
                }
                own[point] = serial * own[point] + (1.0 - serial * serial).sqrt() * normal(random);
                machine + f64::sqrt(shared) * common[point] + f64::sqrt(1.0 - shared) * own[point]
            });
            rows.push(row.collect());
        }
        rows
    }

    /// The shares of Student's intervals and of widened ones that miss the true difference of two points, and the mean
    /// ratio of their widths.
    fn missed(n: usize, serial: f64, at_once: usize, shared: f64) -> (f64, f64, f64) {
        const RUNS: u32 = 500;
        let mut random = StdRng::seed_from_u64(n as u64 + 31);
        let (mut student, mut widened, mut wider) = (0, 0, 0.0);
        for _ in 0..RUNS {
            let rows = rows(&mut random, n, serial, at_once, shared);
            let found = UnitCorrelation::of(&rows, &equal_rounds(n, at_once)).unwrap();
            let contrast: Vec<f64> = rows.iter().map(|row| row[3] - row[4]).collect();
            let plain = Interval::of(&contrast).unwrap();
            let wide = found.widen(plain);
            student += u32::from(!plain.contains_zero());
            widened += u32::from(!wide.contains_zero());
            wider += wide.half_width / plain.half_width;
        }
        let share = |count: u32| f64::from(count) / f64::from(RUNS);
        (share(student), share(widened), wider / f64::from(RUNS))
    }

    #[test]
    fn intervals_over_blocks_that_follow_each_other_hold() {
        for n in [12, 24, 40] {
            let (student, widened, _) = missed(n, 0.3, 1, 0.0);
            assert!(student > 0.11, "{n}: {student}");
            assert!((0.025..0.08).contains(&widened), "{n}: {widened}");
        }
    }

    #[test]
    fn intervals_over_lanes_that_share_a_disturbance_hold() {
        for (n, lanes, least) in [(24, 2, 0.09), (24, 4, 0.18), (24, 8, 0.3), (48, 8, 0.3)] {
            let (student, widened, _) = missed(n, 0.0, lanes, 0.5);
            assert!(student > least, "{n} on {lanes}: {student}");
            assert!(widened < 0.075, "{n} on {lanes}: {widened}");
        }
    }

    /// The shares of intervals over eight machines that miss the true difference of two points: Student's, and widened.
    /// Each machine measures six rows of two blocks; what disturbs a server then is the `shared` part of a row's variance.
    fn on_machines(shared: f64) -> (f64, f64) {
        const RUNS: u32 = 400;
        let mut random = StdRng::seed_from_u64(17);
        let (mut student, mut widened) = (0, 0);
        for _ in 0..RUNS {
            let mut blocks = Vec::new();
            let mut by_machine = vec![0.0; 8];
            for _ in 0..6 {
                let common: [f64; 6] = std::array::from_fn(|_| normal(&mut random));
                for (machine, sum) in (0..8).zip(&mut by_machine) {
                    for _ in 0..2 {
                        let row: Vec<f64> = common
                            .iter()
                            .map(|common| {
                                shared.sqrt() * common + (1.0 - shared).sqrt() * normal(&mut random)
                            })
                            .collect();
                        *sum += (row[3] - row[4]) / 12.0;
                        blocks.push((machine, row));
                    }
                }
            }
            let plain = Interval::of(&by_machine).unwrap();
            let wide = MachineCorrelation::of(&blocks).map_or(plain, |of| of.widen(plain));
            student += u32::from(!plain.contains_zero());
            widened += u32::from(!wide.contains_zero());
        }
        let share = |count: u32| f64::from(count) / f64::from(RUNS);
        (share(student), share(widened))
    }

    #[test]
    fn machines_on_one_host_share_its_disturbances() {
        let (student, widened) = on_machines(0.5);
        assert!(student > 0.3 && widened < 0.08, "{student} {widened}");
        let (student, widened) = on_machines(0.0);
        assert!(student < 0.08 && widened > 0.02, "{student} {widened}");
    }

    #[test]
    fn independent_blocks_cost_little() {
        for (n, most) in [(12, 1.13), (24, 1.07), (40, 1.05)] {
            let (_, widened, wider) = missed(n, 0.0, 1, 0.0);
            assert!(widened < 0.07 && wider < most, "{n}: {widened} {wider}");
        }
    }

    #[test]
    fn blocks_that_repel_each_other_leave_students_interval() {
        let rows: Vec<Vec<f64>> = (0..12u32)
            .map(|unit| vec![0.0, if unit % 2 == 0 { 0.01 } else { -0.01 }])
            .collect();
        let found = UnitCorrelation::of(&rows, &[1; 12]).unwrap();
        let plain = Interval::of(&[1.0, 2.0, 4.0, 3.0]).unwrap();
        assert_eq!(found.widen(plain), plain);
        assert!((found.variance_factor(12) - 1.0).abs() < 1e-12);
        assert_eq!(UnitCorrelation::of(&rows[..1], &[1]), None);
        assert_eq!(UnitCorrelation::of(&rows, &equal_rounds(12, 7)), None);
        let equal = vec![vec![1.0; 3]; 12];
        let of_three = UnitCorrelation::of(&equal, &[3; 4]).unwrap();
        assert_eq!(of_three.widen(plain), plain);
    }

    #[test]
    fn a_walk_has_a_finite_interval() {
        let mut at = 0.0;
        let mut random = StdRng::seed_from_u64(3);
        let rows: Vec<Vec<f64>> = (0..30)
            .map(|_| {
                at += normal(&mut random);
                vec![0.0, at]
            })
            .collect();
        let found = UnitCorrelation::of(&rows, &[1; 30]).unwrap();
        let contrast: Vec<f64> = rows.iter().map(|row| row[1]).collect();
        let plain = Interval::of(&contrast).unwrap();
        let wide = found.widen(plain);
        assert!(wide.half_width.is_finite() && wide.half_width > 2.0 * plain.half_width);
    }

    #[test]
    fn a_wave_has_the_rows_of_all_machines() {
        let of = |places: &[u32]| blocks_in_wave(&(0..).zip(places.iter().copied()).collect());
        assert_eq!(of(&[]), 1);
        assert_eq!(of(&[0, 0, 0]), 1);
        assert_eq!(of(&[0, 1, 0, 1, 1, 0]), 2);
        assert_eq!(of(&[0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]), 12);
    }

    #[test]
    fn a_round_has_the_blocks_that_ran_beside_each_other_most_of_the_time() {
        let of =
            |times: &[(f64, f64)]| rounds_of_times(&(0..).zip(times.iter().copied()).collect());
        assert_eq!(of(&[]), Vec::<Vec<u32>>::new());
        // A lane that takes two blocks in a row, as the other one is slow once.
        let lanes = [
            (0., 10.),
            (1., 11.),
            (10., 20.),
            (11., 31.),
            (20., 30.),
            (31., 41.),
            (30., 40.),
        ];
        assert_eq!(of(&lanes), [vec![0, 1], vec![2, 3], vec![4], vec![6, 5]]);
        // One after the other, or hardly beside each other.
        assert_eq!(
            of(&[(0., 10.), (10., 20.), (18., 28.)]),
            [vec![0], vec![1], vec![2]]
        );
        // A short one beside a long one.
        assert_eq!(
            of(&[(0., 100.), (90., 99.), (99., 108.)]),
            [vec![0, 1], vec![2]]
        );
        assert_eq!(
            of(&[(0., 10.), (5., 15.), (10., 20.)]),
            [vec![0, 1], vec![2]]
        );
    }

    #[test]
    fn blocks_share_what_happens_while_they_run_beside_each_other() {
        const STEPS: f64 = 20.0;
        let (mut missed, mut plain) = (0, 0);
        let mut random = StdRng::seed_from_u64(5);
        for run in 0..400 {
            let mut free = [0.0_f64; 4];
            let mut disturbances: Vec<[f64; 6]> = Vec::new();
            let mut blocks: Vec<((f64, f64), Vec<f64>)> = Vec::new();
            for block in 0..24 {
                // The lane that is free first, for 0.5 to 1.5 units of time.
                let lane = (0..4).min_by(|a, b| free[*a].total_cmp(&free[*b])).unwrap();
                let began: f64 = free[lane];
                let length = f64::from((block * 37 + run * 11) % 100) / 100.0;
                free[lane] = began + 0.5 + length;
                let steps = (began * STEPS) as usize..(free[lane] * STEPS) as usize + 1;
                while disturbances.len() < steps.end {
                    disturbances.push(std::array::from_fn(|_| normal(&mut random)));
                }
                let during = &disturbances[steps];
                let row = (0..6).map(|point| {
                    let shared = during.iter().map(|of| of[point]).sum::<f64>();
                    STEPS.sqrt() * shared / during.len() as f64 + normal(&mut random)
                });
                let row = row.collect();
                blocks.push(((began, free[lane]), row));
            }
            let times = (0..).zip(blocks.iter().map(|(time, _)| *time)).collect();
            let rounds = rounds_of_times(&times);
            let sizes: Vec<usize> = rounds.iter().map(Vec::len).collect();
            let in_order: Vec<usize> = rounds.concat().iter().map(|&at| at as usize).collect();
            let rows: Vec<Vec<f64>> = in_order.iter().map(|&at| blocks[at].1.clone()).collect();
            let times: Vec<(f64, f64)> = in_order.iter().map(|&at| blocks[at].0).collect();
            let found = UnitCorrelation::of(&rows, &sizes).unwrap();
            let found = found.or_beside(&rows, &times);
            let contrast: Vec<f64> = rows.iter().map(|row| row[3] - row[4]).collect();
            let own = Interval::of(&contrast).unwrap();
            plain += u32::from(!own.contains_zero());
            missed += u32::from(!found.widen(own).contains_zero());
        }
        assert!(plain > 60 && missed < 40, "{plain} {missed}");
    }

    #[test]
    fn rounds_of_unlike_sizes_are_estimated() {
        let sizes: Vec<usize> = (0..12).map(|round| 1 + round % 3).collect();
        let mut random = StdRng::seed_from_u64(11);
        let (mut missed, mut plain) = (0, 0);
        for _ in 0..1000 {
            let mut rows = Vec::new();
            for &size in &sizes {
                let common: [f64; 6] = std::array::from_fn(|_| normal(&mut random));
                for _ in 0..size {
                    rows.push(common.map(|of| of + normal(&mut random)).to_vec());
                }
            }
            let contrast: Vec<f64> = rows.iter().map(|row| row[3] - row[4]).collect();
            let own = Interval::of(&contrast).unwrap();
            let found = UnitCorrelation::of(&rows, &sizes).unwrap();
            plain += u32::from(!own.contains_zero());
            missed += u32::from(!found.widen(own).contains_zero());
        }
        assert!(plain > 110 && missed < 70, "{plain} {missed}");
    }
}
