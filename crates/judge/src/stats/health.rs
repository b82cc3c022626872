//! Tests whether a machine is fit to measure, by the two servers with the same binary and by the spread of its values
//! alone: what a patch is worth there must not decide whether its values count.

use std::collections::BTreeMap;

use super::interval::{Interval, upper_tail};
use super::robust::median;
use super::table::BlockTable;
use perfquilt_model::point::Point;

/// What is wrong with a place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Symptom {
    /// The control costs less than the release by this, on the log scale, in the mean over blocks.
    Control(f64),
    /// Values vary by this factor of those at the other places.
    Spread(f64),
}

/// A test of one place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HealthTest {
    /// The place's number.
    pub place: u32,
    /// What was found, whether significant or not.
    pub symptom: Symptom,
    /// P-value under the hypothesis that the place is as the others.
    pub p_value: f64,
}

/// The least number of complete blocks at a place to be tested.
const FEWEST_BLOCKS: usize = 4;
/// The least number of places whose spread is compared: of two, nobody can tell which one is unlike the others.
const FEWEST_PLACES: usize = 3;
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
/// The level of a place's own test.
const AGREEMENT: f64 = 0.01;

impl BlockTable {
    /// Tests the places that measured the complete blocks of this table; `places` has the place of each block.
    pub fn test_health(&self, places: &BTreeMap<u32, u32>) -> Vec<HealthTest> {
        let complete = self.complete();
        let points = self.points();
        let mut by_place: BTreeMap<u32, Vec<&[f64]>> = BTreeMap::new();
        for (block, row) in complete.rows() {
            if let Some(&place) = places.get(&block) {
                by_place.entry(place).or_default().push(row);
            }
        }
        by_place.retain(|_, rows| rows.len() >= FEWEST_BLOCKS);
        if by_place.len() < FEWEST_PLACES || points.len() < 2 {
            return Vec::new();
        }
        let mut tests = Vec::new();
        let column = |point| points.binary_search(&point).ok();
        if let Some((base, control)) = column(Point::BASE).zip(column(Point::Control)) {
            let of = |rows: &Vec<&[f64]>| rows.iter().map(|row| row[base] - row[control]).collect();
            let differences: BTreeMap<u32, Vec<f64>> = by_place
                .iter()
                .map(|(&place, rows)| (place, of(rows)))
                .collect();
            tests.extend(unlike(&differences, Some(0.0), Symptom::Control));
        }
        let spreads: BTreeMap<u32, Vec<f64>> = by_place
            .iter()
            .map(|(&place, rows)| (place, log_spreads(rows, points.len())))
            .collect();
        tests.extend(unlike(&spreads, None, |log| Symptom::Spread(log.exp())));
        tests
    }
}

/// Tests for each place whether the median of its values is `expected`, or that of the other places' medians if there is
/// no expectation. The scale of values is that of all places together (median absolute deviation from each place's
/// median), because four to eight values of one place tell too little of it; a place's own Student's test must agree at
/// 1 %, lest values with two modes count as a difference.
fn unlike(
    values: &BTreeMap<u32, Vec<f64>>,
    expected: Option<f64>,
    symptom: impl Fn(f64) -> Symptom,
) -> Vec<HealthTest> {
    let medians: BTreeMap<u32, f64> = values
        .iter()
        .map(|(&place, of)| (place, median_of(of)))
        .collect();
    let all: Vec<f64> = medians.values().copied().collect();
    let centre = expected.unwrap_or_else(|| median_of(&all));
    let mut deviations = Vec::new();
    for (place, of) in values {
        // Deviations from a median of few values are too small by about this.
        let shrunk = (1.0 - 1.0 / of.len() as f64).sqrt();
        deviations.extend(
            of.iter()
                .map(|value| (value - medians[place]).abs() / shrunk),
        );
    }
    let scale = median_of(&deviations) / NORMAL_MAD;
    let degrees_of_freedom = (MAD_EFFICIENCY * (deviations.len() - values.len()) as f64).max(1.0);
    let tests = values.iter().filter_map(|(&place, of)| {
        let difference = medians[&place] - centre;
        let error = MEDIAN_ERROR * scale / (of.len() as f64).sqrt();
        let statistic = difference / error.max(f64::MIN_POSITIVE);
        let shifted: Vec<f64> = of.iter().map(|value| value - centre).collect();
        let agrees = Interval::of(&shifted)?.p_value() < AGREEMENT;
        Some(HealthTest {
            place,
            symptom: symptom(difference),
            p_value: match expected {
                _ if !agrees => 1.0,
                Some(_) => 2.0 * upper_tail(statistic.abs(), degrees_of_freedom),
                // Values that vary less than the others' are no fault.
                None => upper_tail(statistic, degrees_of_freedom),
            },
        })
    });
    tests.collect()
}

fn median_of(values: &[f64]) -> f64 {
    median(&mut values.to_vec()).unwrap_or(0.0)
}

/// Returns the logarithm of each block's standard deviation around block and point. The points' means are those of this
/// place, so that a patch which is worth more or less here adds nothing.
fn log_spreads(rows: &[&[f64]], points: usize) -> Vec<f64> {
    let count = rows.len() as f64;
    let centred: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| {
            let mean = row.iter().sum::<f64>() / points as f64;
            row.iter().map(|value| value - mean).collect()
        })
        .collect();
    let means: Vec<f64> = (0..points)
        .map(|point| centred.iter().map(|row| row[point]).sum::<f64>() / count)
        .collect();
    // Residuals around own means are too small by this, more so at places with fewer blocks.
    let shrunk = (1.0 - 1.0 / count).sqrt();
    let spread = |row: &Vec<f64>| {
        let squares: f64 = row
            .iter()
            .zip(&means)
            .map(|(value, mean)| (value - mean).powi(2))
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

    /// Eight blocks at each of so many places. At the last one, values vary by `spread` times as much, the control costs
    /// `shift` less and the first patch is worth `worth` more.
    fn table(
        random: &mut StdRng,
        places: u32,
        spread: f64,
        shift: f64,
        worth: f64,
    ) -> (BlockTable, BTreeMap<u32, u32>) {
        let mut table = BlockTable::default();
        let mut of = BTreeMap::new();
        for place in 0..places {
            let last = place + 1 == places;
            for block in place * 8..place * 8 + 8 {
                of.insert(block, place);
                let common: f64 = random.random_range(-0.1..0.1);
                for point in POINTS {
                    let sd = if last { 0.01 * spread } else { 0.01 };
                    let normal: f64 = (0..12).map(|_| random.random_range(-0.5..0.5)).sum();
                    // One value in fifty is an outlier, as on shared machines.
                    let tail = if random.random_range(0..50) == 0 {
                        4.0
                    } else {
                        1.0
                    };
                    let own = match point {
                        Point::Control if last => -shift,
                        Point::Step(1) if last => -worth,
                        _ => 0.0,
                    };
                    table.insert_plain(block, point, common + own + tail * sd * normal, 1);
                }
            }
        }
        (table, of)
    }

    /// The share of tables in which some place fails at 0.5 % over all tests, and the last one does.
    fn found(places: u32, spread: f64, shift: f64, worth: f64, runs: u32) -> (f64, f64) {
        let mut random = StdRng::seed_from_u64(u64::from(places) + 7);
        let (mut any, mut last) = (0, 0);
        for _ in 0..runs {
            let (table, of) = table(&mut random, places, spread, shift, worth);
            let tests = table.test_health(&of);
            let p_values: Vec<f64> = tests.iter().map(|test| test.p_value).collect();
            let mut failed = tests
                .iter()
                .zip(holm(&p_values))
                .filter(|(_, p)| *p < 0.005);
            let failed: Vec<u32> = failed.by_ref().map(|(test, _)| test.place).collect();
            any += u32::from(!failed.is_empty());
            last += u32::from(failed.contains(&(places - 1)));
        }
        (
            f64::from(any) / f64::from(runs),
            f64::from(last) / f64::from(runs),
        )
    }

    #[test]
    fn healthy_places_pass() {
        for places in [3, 10, 50] {
            let (any, _) = found(places, 1.0, 0.0, 0.0, 1000);
            assert!(any < 0.01, "{places} places: {any}");
        }
    }

    #[test]
    fn noisy_and_shifted_places_fail() {
        let (_, noisy) = found(10, 5.0, 0.0, 0.0, 200);
        assert!(noisy > 0.9, "{noisy}");
        let (_, shifted) = found(10, 1.0, 0.05, 0.0, 200);
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
                // One place in four repeats to 10⁻⁵, the others exactly.
                let own = if block < 8 { 1e-5 } else { 0.0 };
                table.insert_plain(block, point, own * random.random_range(-1.0..1.0), 1);
            }
        }
        let tests = table.test_health(&of);
        let spreads = tests
            .iter()
            .filter(|test| matches!(test.symptom, Symptom::Spread(_)));
        for test in spreads {
            assert_eq!(test.symptom, Symptom::Spread(1.0));
            assert!(test.p_value > 0.1, "{test:?}");
        }
    }

    #[test]
    fn what_a_patch_is_worth_at_a_place_decides_nothing() {
        let (any, _) = found(10, 1.0, 0.0, 0.1, 500);
        assert!(any < 0.02, "{any}");
    }
}
