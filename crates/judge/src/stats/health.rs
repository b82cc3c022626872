//! Tests whether a machine is fit to measure, by the two servers with the same binary and by the spread of its values
//! alone: what a patch is worth there must not decide whether its values count.

use std::collections::{BTreeMap, BTreeSet};

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use super::interval::{Interval, speed, upper_tail};
use super::robust::{deviations, median};
use super::table::BlockTable;
use super::units::Units;
use perfquilt_model::point::Point;

/// A fault of a group.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Symptom {
    /// The control costs less than the release by this, on the log scale, in the mean over blocks.
    Control(f64),
    /// Values vary by this factor of those in the other groups.
    Spread(f64),
}

/// A test of one group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HealthTest {
    /// The group's number.
    pub group: u32,
    /// The findings, whether significant or not.
    pub symptom: Symptom,
    /// P-value under the hypothesis that the group is as the others.
    pub p_value: f64,
}

/// The least number of complete blocks in a group to be tested.
const FEWEST_BLOCKS: usize = 4;
/// The least number of groups whose spread is compared: of two, nobody can tell which one is unlike the others.
pub(crate) const FEWEST_GROUPS: usize = 3;
/// The median absolute deviation of a standard normal distribution.
const NORMAL_MAD: f64 = 0.674_489_75;
/// The efficiency of the median absolute deviation: it knows the scale as well as the standard deviation of so many times
/// fewer normal values (Rousseeuw and Croux, 1993).
const MAD_EFFICIENCY: f64 = 0.37;
/// The standard error of a median of normal values, in standard errors of their mean: √(π/2).
const MEDIAN_ERROR: f64 = 1.253_314_1;
/// The least standard deviation of a block's values around block and point: a smaller one, of values that agree in most
/// digits, is no measure of noise.
const LEAST_SPREAD: f64 = 1e-4;
/// The level of a group's own test, and of the normal approximation below which permutations decide.
const AGREEMENT: f64 = 0.01;
/// The seed of permutations: a table has one result.
const SEED: u64 = 1;

impl BlockTable {
    /// Tests the groups that measured the complete blocks of this table; `groups` has the group of each block, `units` the
    /// blocks that share layouts. A p-value below 1 % is that of so many `permutations` or larger; it can be as small as the
    /// reciprocal of their number times that of groups.
    pub fn test_health(
        &self,
        groups: &BTreeMap<u32, u32>,
        units: &Units,
        permutations: u32,
    ) -> Vec<HealthTest> {
        let complete = self.complete();
        let points = self.points();
        let mut by_group: BTreeMap<u32, Vec<(u32, &[f64])>> = BTreeMap::new();
        for (block, row) in complete.rows() {
            if let Some(&group) = groups.get(&block) {
                by_group
                    .entry(group)
                    .or_default()
                    .push((units.of(block), row));
            }
        }
        by_group.retain(|_, rows| rows.len() >= FEWEST_BLOCKS);
        if by_group.len() < FEWEST_GROUPS || points.len() < 2 {
            return Vec::new();
        }
        let mut tests = Vec::new();
        let column = |point| points.binary_search(&point).ok();
        let each = |of: &dyn Fn(&[&[f64]]) -> Vec<f64>| -> Vec<GroupValues> {
            let groups = by_group.iter();
            groups
                .map(|(&group, rows)| {
                    let values: Vec<&[f64]> = rows.iter().map(|(_, row)| *row).collect();
                    GroupValues {
                        group,
                        units: rows.iter().map(|(unit, _)| *unit).collect(),
                        values: of(&values),
                    }
                })
                .collect()
        };
        let spreads = each(&|rows| log_spreads(rows, points.len()));
        let symptom = |log: f64| Symptom::Spread(log.exp());
        let of_spreads = unlike(&spreads, None, permutations, symptom, &BTreeSet::new());
        if let Some((base, control)) = column(Point::BASE).zip(column(Point::Control)) {
            let differences =
                each(&|rows| rows.iter().map(|row| row[base] - row[control]).collect());
            // The values of noisy groups tell nothing about the others'.
            let noisy = of_spreads
                .iter()
                .filter(|test| test.p_value < AGREEMENT / 10.0);
            let noisy = noisy.map(|test| test.group).collect();
            let symptom = |log: f64| Symptom::Control(speed(log));
            tests.extend(unlike(
                &differences,
                Some(0.0),
                permutations,
                symptom,
                &noisy,
            ));
        }
        tests.extend(of_spreads);
        tests
    }
}

/// The values of a group's blocks.
struct GroupValues {
    group: u32,
    /// The unit of each block.
    units: Vec<u32>,
    values: Vec<f64>,
}

impl GroupValues {
    /// Returns the median in units of the standard error of a single value's mean, after subtracting `centre`.
    fn statistic(&self, centre: f64) -> f64 {
        (median_of(&self.values) - centre) * (self.values.len() as f64).sqrt()
    }

    /// Returns the deviations from the median, larger by what the median of few values takes away, by unit.
    fn deviations(&self) -> Vec<Vec<f64>> {
        let own = median_of(&self.values);
        let shrunk = (1.0 - 1.0 / self.values.len() as f64).sqrt();
        let mut by_unit: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for (&unit, value) in self.units.iter().zip(&self.values) {
            by_unit
                .entry(unit)
                .or_default()
                .push((value - own) / shrunk);
        }
        by_unit.into_values().collect()
    }
}

/// Tests for each group whether the median of its values is `expected`, or that of the other groups' medians if there is
/// no expectation.
///
/// A group's own Student's test must agree at 1 %, lest values with two modes count as a difference, and so must the normal
/// distribution, with the scale of all groups together (median absolute deviation from each group's median). Values with
/// heavy tails have medians that the normal distribution does not know. The p-value is therefore at least the share of medians
/// that are as far away when the deviations of all groups from their medians are exchanged: a permutation of residuals (D.
/// Freedman and D. Lane, *A nonstochastic interpretation of reported significance levels*, Journal of Business & Economic
/// Statistics 1, 1983), except those of the groups `without`. Blocks of one unit stay together; differences from an
/// expectation may change their sign.
fn unlike(
    values: &[GroupValues],
    expected: Option<f64>,
    permutations: u32,
    symptom: impl Fn(f64) -> Symptom,
    without: &BTreeSet<u32>,
) -> Vec<HealthTest> {
    let medians: Vec<f64> = values.iter().map(|of| median_of(&of.values)).collect();
    let centre = expected.unwrap_or_else(|| median_of(&medians));
    let pooled = values.iter().filter(|of| !without.contains(&of.group));
    let pool: Vec<Vec<f64>> = pooled.clone().flat_map(GroupValues::deviations).collect();
    let pooled: Vec<&GroupValues> = pooled.collect();
    let sizes: Vec<f64> = pool.iter().flatten().map(|value| value.abs()).collect();
    let scale = median_of(&sizes) / NORMAL_MAD;
    let degrees_of_freedom = (MAD_EFFICIENCY * (sizes.len() - pooled.len()) as f64).max(1.0);
    let mut permuted: Option<Vec<f64>> = None;
    let mut tests = Vec::with_capacity(values.len());
    for (of, own) in values.iter().zip(&medians) {
        let statistic = of.statistic(centre);
        let normal = statistic / (MEDIAN_ERROR * scale).max(f64::MIN_POSITIVE);
        let shifted: Vec<f64> = of.values.iter().map(|value| value - centre).collect();
        let agrees = Interval::of(&shifted).is_some_and(|own| own.p_value() < AGREEMENT);
        let p_value = match expected {
            _ if !agrees => 1.0,
            Some(_) => 2.0 * upper_tail(normal.abs(), degrees_of_freedom),
            // Values that vary less than the others' are no fault.
            None => upper_tail(normal, degrees_of_freedom),
        };
        let p_value = if p_value < AGREEMENT {
            let null =
                permuted.get_or_insert_with(|| permute(&pool, &pooled, expected, permutations));
            let statistic = expected.map_or(statistic, |_| statistic.abs());
            let below = null.partition_point(|value| *value < statistic);
            let permuted = (1 + null.len() - below) as f64 / (1 + null.len()) as f64;
            // Few values tell little of the scale, which the normal distribution's degrees of freedom allow for.
            p_value.max(permuted)
        } else {
            p_value
        };
        tests.push(HealthTest {
            group: of.group,
            symptom: symptom(own - centre),
            p_value,
        });
    }
    tests
}

/// Returns the statistics of all groups, sorted, when the units of deviations in `pool` are given to them at random.
fn permute(
    pool: &[Vec<f64>],
    values: &[&GroupValues],
    expected: Option<f64>,
    permutations: u32,
) -> Vec<f64> {
    let mut random = StdRng::seed_from_u64(SEED);
    let mut order: Vec<usize> = (0..pool.len()).collect();
    let mut null = Vec::with_capacity(permutations as usize * values.len());
    let counts: Vec<usize> = values.iter().map(|of| of.deviations().len()).collect();
    let mut drawn: Vec<f64> = Vec::new();
    let mut medians: Vec<(f64, f64)> = Vec::with_capacity(values.len());
    for _ in 0..permutations {
        order.shuffle(&mut random);
        let mut left = order.iter();
        medians.clear();
        for &count in &counts {
            drawn.clear();
            for &unit in left.by_ref().take(count) {
                let sign = match expected {
                    Some(_) if random.random::<bool>() => -1.0,
                    _ => 1.0,
                };
                drawn.extend(pool[unit].iter().map(|value| sign * value));
            }
            let root = (drawn.len() as f64).sqrt();
            medians.push((median(&mut drawn).unwrap_or(0.0), root));
        }
        let centre = match expected {
            Some(_) => 0.0,
            None => median_of(
                &medians
                    .iter()
                    .map(|(median, _)| *median)
                    .collect::<Vec<_>>(),
            ),
        };
        null.extend(medians.iter().map(|(median, root)| {
            let statistic = (median - centre) * root;
            expected.map_or(statistic, |_| statistic.abs())
        }));
    }
    null.sort_by(f64::total_cmp);
    null
}

fn median_of(values: &[f64]) -> f64 {
    median(&mut values.to_vec()).unwrap_or(0.0)
}

/// Returns the logarithm of each block's standard deviation around block and point. The points' medians are those of this
/// group, so that a patch which is worth more or less here adds nothing; one outlier in their means would add to all blocks.
fn log_spreads(rows: &[&[f64]], points: usize) -> Vec<f64> {
    let count = rows.len() as f64;
    let centred: Vec<Vec<f64>> = rows.iter().map(|row| deviations(row)).collect();
    let medians: Vec<f64> = (0..points)
        .map(|point| median_of(&centred.iter().map(|row| row[point]).collect::<Vec<_>>()))
        .collect();
    // Residuals around own medians are too small by this, more so at groups with fewer blocks: a value's covariance with
    // the median of `n` is 1/n, the median's variance is π/2n.
    let shrunk = (1.0 - (2.0 - MEDIAN_ERROR * MEDIAN_ERROR) / count).sqrt();
    let spread = |row: &Vec<f64>| {
        let squares: f64 = row
            .iter()
            .zip(&medians)
            .map(|(value, median)| (value - median).powi(2))
            .sum();
        ((squares / (points - 1) as f64).sqrt() / shrunk)
            .max(LEAST_SPREAD)
            .ln()
    };
    centred.iter().map(spread).collect()
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::stats::holm;

    const POINTS: [Point; 4] = [
        Point::Step(0),
        Point::Step(1),
        Point::Step(2),
        Point::Control,
    ];

    /// Draws the deviation of a value, in units of a usual one.
    type Noise = fn(&mut StdRng) -> f64;

    fn normal(random: &mut StdRng) -> f64 {
        (0..12).map(|_| random.random_range(-0.5..0.5)).sum()
    }

    /// One value in fifty is an outlier, as on shared machines.
    fn usual(random: &mut StdRng) -> f64 {
        let outlier = random.random_range(0..50) == 0;
        if outlier {
            4.0 * normal(random)
        } else {
            normal(random)
        }
    }

    /// Student's distribution with so many degrees of freedom.
    fn heavy<const DEGREES: u32>(random: &mut StdRng) -> f64 {
        let squares: f64 = (0..DEGREES).map(|_| normal(random).powi(2)).sum();
        normal(random) / (squares / f64::from(DEGREES)).sqrt()
    }

    /// Eight blocks in each of so many groups. At the last one, values vary by `spread` times as much, the control costs
    /// `shift` less and the first patch is worth `worth` more.
    fn table(
        random: &mut StdRng,
        groups: u32,
        spread: f64,
        shift: f64,
        worth: f64,
        noise: Noise,
    ) -> (BlockTable, BTreeMap<u32, u32>) {
        let mut table = BlockTable::default();
        let mut of = BTreeMap::new();
        for group in 0..groups {
            let last = group + 1 == groups;
            for block in group * 8..group * 8 + 8 {
                of.insert(block, group);
                let common: f64 = random.random_range(-0.1..0.1);
                for point in POINTS {
                    let sd = if last { 0.01 * spread } else { 0.01 };
                    let own_noise = noise(random);
                    let own = match point {
                        Point::Control if last => -shift,
                        Point::Step(1) if last => -worth,
                        _ => 0.0,
                    };
                    table.insert_plain(block, point, common + own + sd * own_noise, 1);
                }
            }
        }
        (table, of)
    }

    /// The share of tables in which some group fails at 0.5 % over all tests, and the last one does.
    fn found(
        groups: u32,
        spread: f64,
        shift: f64,
        worth: f64,
        noise: Noise,
        runs: u32,
    ) -> (f64, f64) {
        let mut random = StdRng::seed_from_u64(u64::from(groups) + 7);
        let (mut any, mut last) = (0, 0);
        for _ in 0..runs {
            let (table, of) = table(&mut random, groups, spread, shift, worth, noise);
            let tests = table.test_health(&of, &Units::default(), 500);
            let p_values: Vec<f64> = tests.iter().map(|test| test.p_value).collect();
            let mut failed = tests
                .iter()
                .zip(holm(&p_values))
                .filter(|(_, p)| *p < 0.005);
            let failed: Vec<u32> = failed.by_ref().map(|(test, _)| test.group).collect();
            any += u32::from(!failed.is_empty());
            last += u32::from(failed.contains(&(groups - 1)));
        }
        (
            f64::from(any) / f64::from(runs),
            f64::from(last) / f64::from(runs),
        )
    }

    #[test]
    fn healthy_groups_pass() {
        for groups in [3, 10, 50] {
            let (any, _) = found(groups, 1.0, 0.0, 0.0, usual, 600);
            assert!(any < 0.01, "{groups} groups: {any}");
        }
    }

    #[test]
    fn healthy_groups_pass_where_blocks_have_heavy_tails() {
        for (noise, name) in [(heavy::<3> as Noise, "t3"), (heavy::<2>, "t2")] {
            for groups in [3, 10] {
                let (any, _) = found(groups, 1.0, 0.0, 0.0, noise, 500);
                assert!(any < 0.015, "{name}, {groups} groups: {any}");
            }
        }
    }

    #[test]
    fn noisy_and_shifted_groups_fail() {
        let (_, noisy) = found(10, 5.0, 0.0, 0.0, usual, 100);
        assert!(noisy > 0.9, "{noisy}");
        let (_, shifted) = found(10, 1.0, 0.05, 0.0, usual, 100);
        assert!(shifted > 0.9, "{shifted}");
    }

    #[test]
    fn values_that_agree_in_most_digits_are_no_noise() {
        let mut random = StdRng::seed_from_u64(3);
        let mut table = BlockTable::default();
        let mut of = BTreeMap::new();
        for block in 0..32 {
            of.insert(block, block / 8);
            for point in POINTS {
                // One group in four repeats to 10⁻⁵, the others exactly.
                let own = if block < 8 { 1e-5 } else { 0.0 };
                table.insert_plain(block, point, own * random.random_range(-1.0..1.0), 1);
            }
        }
        let tests = table.test_health(&of, &Units::default(), 500);
        let spreads = tests
            .iter()
            .filter(|test| matches!(test.symptom, Symptom::Spread(_)));
        for test in spreads {
            assert_eq!(test.symptom, Symptom::Spread(1.0));
            assert!(test.p_value > 0.1, "{test:?}");
        }
    }

    #[test]
    fn the_effect_of_a_patch_in_a_group_decides_nothing() {
        let (any, _) = found(10, 1.0, 0.0, 0.1, usual, 500);
        assert!(any < 0.02, "{any}");
    }
}
