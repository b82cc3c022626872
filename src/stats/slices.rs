//! One value a point from the slices of a block.

use crate::point::Point;

use super::robust::{median, trimmed_mean};
use super::table::two_way_sd;

/// The slices of one point in one block, in round order: round `i` of every point of the block
/// happened within the same few milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Slices {
    /// The point.
    pub point: Point,
    /// Wall-clock nanoseconds of each slice. A value that is not a finite number above 0 (a clock
    /// that jumped, a slice that failed) is left out.
    pub nanoseconds: Vec<f32>,
    /// Transactions in one slice.
    pub transactions_per_slice: u64,
}

/// What a block says about one point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockValue {
    /// The point.
    pub point: Point,
    /// Nanoseconds a transaction.
    pub value: f64,
    /// Standard error of `value` within the block, as a fraction of it, pooled over the block's
    /// points and without what all points have in common; `None` with fewer than 32 rounds or a
    /// single point.
    pub standard_error: Option<f64>,
    /// Slices used.
    pub slices: usize,
    /// Slices left out because they were not finite numbers above 0.
    pub left_out: usize,
}

/// The share of a point's residuals put aside on each side.
const TRIM: f64 = 0.2;

/// Passes of the alternating fit. The second changes the result by less than its standard error,
/// the third by nothing that could be shown.
const PASSES: usize = 3;

/// [`reduce_block`] without the details.
pub fn block_values(slices: &[Slices]) -> Vec<(Point, f64)> {
    reduce_block(slices)
        .into_iter()
        .map(|value| (value.point, value.value))
        .collect()
}

/// One value a point from a block's slices: a robust fit of
/// `ln(ns/txn) = round + point + noise`.
///
/// What disturbs the machine for a moment disturbs the points of a round alike; it becomes part of
/// the round's effect (the median over points) and drops out of differences between points. What hits
/// a single slice is put aside by the point's trimmed mean over rounds. The typical round effect is
/// added back, so that values are nanoseconds a transaction.
///
/// Points without a usable slice are missing from the result.
pub fn reduce_block(slices: &[Slices]) -> Vec<BlockValue> {
    let mut points: Vec<Logs> = slices
        .iter()
        .map(Logs::new)
        .filter(|logs| logs.used > 0)
        .collect();
    let rounds = points.iter().map(|p| p.values.len()).max().unwrap_or(0);
    let mut effects = vec![f64::NAN; rounds];
    for _ in 0..PASSES {
        round_effects(&points, &mut effects);
        for point in &mut points {
            let mut residuals = point.residuals(&effects, 0, rounds);
            if let Some(location) = trimmed_mean(&mut residuals, TRIM) {
                point.location = location;
            }
        }
    }
    round_effects(&points, &mut effects);
    let mut known: Vec<f64> = effects.iter().copied().filter(|e| !e.is_nan()).collect();
    let level = trimmed_mean(&mut known, TRIM).unwrap_or(0.0);
    let standard_error = batch_error(&points, &effects);
    points
        .iter()
        .map(|point| BlockValue {
            point: point.point,
            value: (level + point.location).exp(),
            standard_error,
            slices: point.used,
            left_out: point.left_out,
        })
        .collect()
}

struct Logs {
    point: Point,
    /// `ln(ns/txn)` by round; NaN where the slice is unusable.
    values: Vec<f64>,
    used: usize,
    left_out: usize,
    location: f64,
}

impl Logs {
    fn new(slices: &Slices) -> Self {
        let transactions = slices.transactions_per_slice.max(1) as f64;
        let values: Vec<f64> = slices
            .nanoseconds
            .iter()
            .map(|&ns| {
                if ns.is_finite() && ns > 0.0 {
                    (f64::from(ns) / transactions).ln()
                } else {
                    f64::NAN
                }
            })
            .collect();
        let mut usable: Vec<f64> = values.iter().copied().filter(|v| !v.is_nan()).collect();
        let used = usable.len();
        Logs {
            point: slices.point,
            left_out: values.len() - used,
            used,
            location: median(&mut usable).unwrap_or(0.0),
            values,
        }
    }

    /// What the effects of the rounds `from..to` leave of this point's values.
    fn residuals(&self, effects: &[f64], from: usize, to: usize) -> Vec<f64> {
        let to = to.min(self.values.len());
        (from.min(to)..to)
            .map(|round| self.values[round] - effects[round])
            .filter(|residual| !residual.is_nan())
            .collect()
    }
}

/// Each round's effect: the median over points of what their locations leave.
fn round_effects(points: &[Logs], effects: &mut [f64]) {
    let mut left = Vec::with_capacity(points.len());
    for (round, effect) in effects.iter_mut().enumerate() {
        left.clear();
        left.extend(
            points
                .iter()
                .filter_map(|p| p.values.get(round).map(|value| value - p.location))
                .filter(|value| !value.is_nan()),
        );
        *effect = median(&mut left).unwrap_or(f64::NAN);
    }
}

/// The standard error of a point's location from the spread of its locations in consecutive batches of
/// rounds (so that it holds for neighbouring slices that are alike, too), with batch and point taken
/// out.
fn batch_error(points: &[Logs], effects: &[f64]) -> Option<f64> {
    let batches = (effects.len() / 16).min(20);
    if batches < 2 {
        return None;
    }
    let size = effects.len() / batches;
    let rows: Vec<Vec<f64>> = (0..batches)
        .filter_map(|batch| {
            points
                .iter()
                .map(|point| {
                    let mut residuals = point.residuals(effects, batch * size, (batch + 1) * size);
                    trimmed_mean(&mut residuals, TRIM)
                })
                .collect()
        })
        .collect();
    let sd = two_way_sd(&rows.concat(), points.len())?;
    Some(sd / (rows.len() as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(point: usize, nanoseconds: &[f32]) -> Slices {
        Slices {
            point: Point::Step(point),
            nanoseconds: nanoseconds.to_vec(),
            transactions_per_slice: 1,
        }
    }

    #[test]
    fn drift_shared_by_the_points_of_a_round_drops_out() {
        let a: Vec<f32> = (0..100u8).map(|i| 1000.0 + 10.0 * f32::from(i)).collect();
        let b: Vec<f32> = a.iter().map(|ns| ns * 1.01).collect();
        let values = block_values(&[of(0, &a), of(1, &b)]);
        assert!((values[1].1 / values[0].1 - 1.01).abs() < 1e-6);
        assert!((1400.0..1600.0).contains(&values[0].1), "{values:?}");
    }

    #[test]
    fn transactions_divide() {
        let mut slices = of(0, &[5000.0; 4]);
        slices.transactions_per_slice = 5;
        let values = block_values(&[slices, of(1, &[1000.0; 4])]);
        assert!((values[0].1 - values[1].1).abs() < 1e-9);
    }

    #[test]
    fn unusable_slices_are_counted_and_left_out() {
        let mut a = vec![1000.0; 50];
        a[3] = f32::NAN;
        a[4] = -5.0;
        a[5] = 0.0;
        a[6] = f32::INFINITY;
        let values = reduce_block(&[of(0, &a), of(1, &[1000.0; 40]), of(2, &[0.0; 50])]);
        assert_eq!(values.len(), 2);
        assert_eq!((values[0].slices, values[0].left_out), (46, 4));
        assert_eq!((values[1].slices, values[1].left_out), (40, 0));
        assert!((values[0].value - 1000.0).abs() < 1e-6);
        assert!((values[1].value - 1000.0).abs() < 1e-6);
    }

    #[test]
    fn nothing_gives_nothing() {
        assert!(block_values(&[]).is_empty());
        assert!(block_values(&[of(0, &[])]).is_empty());
    }

    #[test]
    fn one_point_alone_keeps_its_level() {
        let value = reduce_block(&[of(0, &[900.0, 1000.0, 1100.0, 1000.0, 1000.0])])[0];
        assert!((value.value - 1000.0).abs() < 15.0, "{value:?}");
        assert_eq!(value.standard_error, None);
    }

    #[test]
    fn a_fifth_of_wild_slices_does_not_matter() {
        let a: Vec<f32> = (0..500u16).map(|i| 1000.0 + f32::from(i % 7)).collect();
        let b: Vec<f32> = (0..500u16)
            .map(|i| {
                if i % 6 == 0 {
                    90_000.0
                } else {
                    1000.0 + f32::from(i % 7)
                }
            })
            .collect();
        let values = block_values(&[of(0, &a), of(1, &b), of(2, &a)]);
        assert!(
            (values[1].1 / values[0].1 - 1.0).abs() < 0.001,
            "{values:?}"
        );
    }
}
