//! Tests of the independence of blocks, which every interval assumes.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};

use super::correlation::lag1;
use super::interval::{Interval, speed};
use super::robust::deviations;
use super::table::BlockTable;
use super::units::Units;
use perfquilt_model::point::Point;

/// Dependence between the blocks of a table, in their order. Deviations are those of logarithms from their
/// block's mean over points, averaged over the blocks of a unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Dependence {
    /// Number of units.
    pub units: usize,
    /// Correlation of a point's deviation with that in the preceding unit, averaged over points.
    pub lag1: f64,
    /// One-sided p-value of the correlation under independence.
    pub lag1_p_value: f64,
    /// By point.
    pub points: Vec<PointDependence>,
}

/// Dependence between consecutive blocks at one point.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PointDependence {
    /// The point.
    pub point: Point,
    /// Correlation of its deviation with that in the preceding unit.
    pub lag1: f64,
    /// The speed in the second half of the units against the first, relative to the mean of all points; a
    /// fraction of speed.
    pub halves: f64,
    /// P-value of the difference of halves by Welch's test, under independence.
    pub halves_p_value: f64,
}

/// The least number of units for the tests.
pub(super) const FEWEST: usize = 8;

impl BlockTable {
    /// Tests whether the table's blocks depend on each other, using complete blocks; `None` with fewer than
    /// eight units or three points.
    ///
    /// For independent values, the lag-1 autocorrelation has mean `−1/n` and variance approximately `1/n` (M.
    /// S. Bartlett, *On the theoretical specification and sampling properties of autocorrelated time-series*,
    /// J. Royal Statistical Society Supplement 8, 1946). The deviations of `p` points add up to 0, so the
    /// mean over them has variance `1/(n(p − 1))`.
    pub fn dependence(&self, units: &Units) -> Option<Dependence> {
        let count = self.points().len();
        if count < 3 {
            return None;
        }
        let rows: Vec<Vec<f64>> = units
            .mean_rows(&self.complete())
            .iter()
            .map(|row| deviations(row))
            .collect();
        let n = rows.len();
        if n < FEWEST {
            return None;
        }
        let points: Vec<PointDependence> = self
            .points()
            .iter()
            .enumerate()
            .map(|(place, &point)| {
                let values: Vec<f64> = rows.iter().map(|row| row[place]).collect();
                let (first, second) = values.split_at(n / 2);
                let halves = Interval::of_two_samples(second, first);
                PointDependence {
                    point,
                    lag1: lag1(&values),
                    halves: halves.map_or(0.0, |halves| speed(-halves.estimate)),
                    halves_p_value: halves.map_or(1.0, |halves| halves.p_value()),
                }
            })
            .collect();
        let mean = points.iter().map(|point| point.lag1).sum::<f64>() / count as f64;
        let units = n as f64;
        let z = (mean + 1.0 / units) * (units * (count - 1) as f64).sqrt();
        Some(Dependence {
            units: n,
            lag1: mean,
            lag1_p_value: Normal::standard().sf(z),
            points,
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::test_kit::sum_of_twelve;

    /// Simulates six points with autocorrelation `rho`; the last point is slower by `step` from the middle
    /// on.
    fn table(random: &mut StdRng, blocks: u32, rho: f64, step: f64) -> BlockTable {
        let mut table = BlockTable::default();
        let mut errors = [0.0; 6];
        for block in 0..blocks {
            for (point, error) in errors.iter_mut().enumerate() {
                let fresh = sum_of_twelve(random);
                *error = rho * *error + (1.0 - rho * rho).sqrt() * fresh;
                let late = point == 5 && block >= blocks / 2;
                let log = 11.0 + 0.01 * *error + if late { step } else { 0.0 };
                assert!(table.insert(block, Point::Step(point), log.exp(), 1));
            }
        }
        table
    }

    fn found(rho: f64, step: f64) -> (f64, f64) {
        let mut random = StdRng::seed_from_u64(11);
        let units = Units::default();
        let (mut lagged, mut halved) = (0.0, 0.0);
        for _ in 0..400 {
            let found = table(&mut random, 40, rho, step)
                .dependence(&units)
                .unwrap();
            lagged += f64::from(u8::from(found.lag1_p_value < 0.01));
            let last = found.points.last().unwrap();
            halved += f64::from(u8::from(last.halves_p_value < 0.01));
        }
        (lagged / 400.0, halved / 400.0)
    }

    #[test]
    fn independent_blocks_are_hardly_ever_called_dependent() {
        let (lagged, halved) = found(0.0, 0.0);
        assert!(lagged < 0.03 && halved < 0.03, "{lagged} {halved}");
    }

    #[test]
    fn blocks_that_follow_each_other_and_points_that_change_are_found() {
        let (lagged, _) = found(0.3, 0.0);
        assert!(lagged > 0.8, "{lagged}");
        let (_, halved) = found(0.0, 0.015);
        assert!(halved > 0.9, "{halved}");
    }

    #[test]
    fn few_blocks_or_points_say_nothing() {
        let mut random = StdRng::seed_from_u64(1);
        let units = Units::default();
        assert_eq!(table(&mut random, 7, 0.0, 0.0).dependence(&units), None);
        assert_eq!(BlockTable::default().dependence(&units), None);
    }
}
