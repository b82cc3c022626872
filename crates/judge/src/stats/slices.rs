//! Reduces a block's slices to one typical value per point, and the mean and the tail beside it.

use perfquilt_model::observation::Slices;
use perfquilt_model::point::Point;

use super::robust::{median, trimmed_mean};
use super::table::two_way_sd;

/// Version of [`reduce_block`]. Values of different versions are not comparable: a change that gives other
/// values for the same slices takes the next number.
pub const REDUCTION: u32 = 3;

/// The values of one point in a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockValue {
    /// The point.
    pub point: Point,
    /// Typical time in nanoseconds per transaction: a trimmed mean without the slowest and the fastest fifth
    /// of the slices.
    pub value: f64,
    /// Statistics over all slices; `None` with fewer than [`FEWEST_SLICES`].
    pub tail: Option<SliceTail>,
    /// Standard error of `value` within the block, as a fraction of it, pooled over the block's points after
    /// subtracting their common effect; `None` with fewer than 32 rounds or a single point.
    pub standard_error: Option<f64>,
    /// Slices used.
    pub slices: usize,
    /// Slices excluded because they were not finite numbers above 0.
    pub left_out: usize,
}

/// Statistics of a point's slices in one block that the typical time does not show.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SliceTail {
    /// Mean nanoseconds per transaction; its inverse is the throughput. On a machine that interrupts servers, its
    /// longest interruptions dominate the differences between blocks.
    pub mean: f64,
    /// The share of slices that took more than [`SLOW`] times the typical time of the block's points in the
    /// same round.
    pub slow: f64,
    /// The share of slices that took more than [`STALLED`] times the typical time of the block's points in the same
    /// round: the machine's own interruptions are hardly ever so long, so a few show.
    pub stalled: f64,
    /// The 99th percentile of nanoseconds per transaction; `None` with fewer than [`FEWEST_FOR_P99`] slices.
    pub p99: Option<f64>,
}

/// The least number of slices for a mean and a share of slow slices.
pub const FEWEST_SLICES: usize = 32;

/// The least number of slices for a 99th percentile.
pub const FEWEST_FOR_P99: usize = 100;

/// The ratio to its round's typical time above which a slice is slow.
pub const SLOW: f64 = 2.0;

/// The ratio to its round's typical time above which a slice is stalled.
pub const STALLED: f64 = 20.0;

/// The share of a point's residuals that is trimmed on each side.
const TRIM: f64 = 0.2;

/// Passes of the alternating fit. The second changes the result by less than its standard error, the third by
/// no measurable amount.
const PASSES: usize = 3;

/// Returns the typical times of [`reduce_block`] only.
pub fn block_values(slices: &[Slices]) -> Vec<(Point, f64)> {
    reduce_block(slices)
        .into_iter()
        .map(|value| (value.point, value.value))
        .collect()
}

/// Reduces a block's slices to one value per point by a robust fit of `ln(ns/txn) = round + point + noise`.
///
/// A short disturbance of the machine affects all points of a round alike; it becomes part of the round's
/// effect (the median over points) and cancels in differences between points. The point's trimmed mean over
/// rounds removes disturbances of single slices. The typical round effect is added back, so values are
/// nanoseconds per transaction.
///
/// Points without a usable slice are missing from the result.
pub fn reduce_block(slices: &[Slices]) -> Vec<BlockValue> {
    let (points, effects) = fit(slices);
    let level = trimmed_mean(&mut known(&effects), TRIM).unwrap_or(0.0);
    let standard_error = batch_error(&points, &effects);
    let mut locations: Vec<f64> = points.iter().map(|point| point.location).collect();
    let usual = median(&mut locations).unwrap_or(0.0);
    points
        .iter()
        .map(|point| BlockValue {
            point: point.point,
            value: (level + point.location).exp(),
            tail: point.tail(&effects, usual),
            standard_error,
            slices: point.used,
            left_out: point.left_out,
        })
        .collect()
}

/// Fits the model of [`reduce_block`]; returns the points with their locations, and the rounds' effects.
fn fit(slices: &[Slices]) -> (Vec<Logs>, Vec<f64>) {
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
    (points, effects)
}

/// Returns the values that are numbers.
fn known(values: &[f64]) -> Vec<f64> {
    values.iter().copied().filter(|v| !v.is_nan()).collect()
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
            .values
            .iter()
            .map(|&ns| {
                if ns.is_finite() && ns > 0.0 {
                    (f64::from(ns) / transactions).ln()
                } else {
                    f64::NAN
                }
            })
            .collect();
        let mut usable = known(&values);
        let used = usable.len();
        Logs {
            point: slices.point,
            left_out: values.len() - used,
            used,
            location: median(&mut usable).unwrap_or(0.0),
            values,
        }
    }

    /// Returns the mean and the tail, given the rounds' effects and `usual`, the median of the points'
    /// locations; `None` with too few slices.
    ///
    /// The mean is a ratio estimate: the point's slices over the typical times of its rounds, times
    /// the mean of all rounds. A round that is long for all points because its transactions are long has a
    /// proportional weight; a missing slice removes its round from both sums.
    fn tail(&self, effects: &[f64], usual: f64) -> Option<SliceTail> {
        if self.used < FEWEST_SLICES {
            return None;
        }
        let (mut time, mut rounds, mut slow, mut stalled) = (0.0, 0.0, 0usize, 0usize);
        for (value, effect) in self.values.iter().zip(effects) {
            if value.is_nan() {
                continue;
            }
            let ratio = (value - effect - usual).exp();
            let typical = effect.exp();
            time += typical * ratio;
            rounds += typical;
            slow += usize::from(ratio > SLOW);
            stalled += usize::from(ratio > STALLED);
        }
        let known_effects = known(effects);
        let all: f64 = known_effects
            .iter()
            .fold(0.0, |sum, effect| sum + effect.exp());
        let count = known_effects.len() as f64;
        let mut sorted = known(&self.values);
        Some(SliceTail {
            mean: time / rounds * (all / count) * usual.exp(),
            slow: slow as f64 / self.used as f64,
            stalled: stalled as f64 / self.used as f64,
            p99: (self.used >= FEWEST_FOR_P99).then(|| quantile(&mut sorted, 0.99).exp()),
        })
    }

    /// Returns this point's residuals in the rounds `from..to` after subtracting the rounds' effects.
    fn residuals(&self, effects: &[f64], from: usize, to: usize) -> Vec<f64> {
        let to = to.min(self.values.len());
        (from.min(to)..to)
            .map(|round| self.values[round] - effects[round])
            .filter(|residual| !residual.is_nan())
            .collect()
    }
}

/// Returns the quantile at `p` of `values`, which must not be empty, by linear interpolation. Reorders
/// `values`.
fn quantile(values: &mut [f64], p: f64) -> f64 {
    let place = p * (values.len() - 1) as f64;
    let below = place as usize;
    let (_, &mut low, above) = values.select_nth_unstable_by(below, f64::total_cmp);
    let high = above.iter().copied().fold(f64::INFINITY, f64::min);
    if high.is_finite() {
        low + (place - below as f64) * (high - low)
    } else {
        low
    }
}

/// Histogram of a point's slices, in units of the release's typical time in the same round.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Histogram {
    /// Slices by bin: bin `i` holds ratios from `2^((i − OFFSET)/STEPS)` on; the first and the last bin
    /// include everything beyond.
    counts: Vec<u64>,
}

/// Bins per octave.
const STEPS: f64 = 16.0;
/// The bin at which a ratio of 1 begins.
const OFFSET: usize = 32;
/// Number of bins: ratios from 1/4 to 256.
const BINS: usize = OFFSET + 8 * 16;

impl Histogram {
    /// Adds the slices of a block to the histograms of their points; does nothing if the release is missing.
    pub fn add_block(slices: &[Slices], to: &mut std::collections::BTreeMap<Point, Histogram>) {
        let (points, effects) = fit(slices);
        let Some(base) = points.iter().find(|logs| logs.point == Point::BASE) else {
            return;
        };
        for logs in &points {
            let histogram = to.entry(logs.point).or_default();
            histogram.counts.resize(BINS, 0);
            for (value, effect) in logs.values.iter().zip(&effects) {
                let octaves = (value - effect - base.location) / std::f64::consts::LN_2;
                if octaves.is_nan() {
                    continue;
                }
                let bin = (octaves * STEPS + OFFSET as f64).clamp(0.0, (BINS - 1) as f64) as usize;
                histogram.counts[bin] += 1;
            }
        }
    }

    /// Returns the number of slices.
    pub fn slices(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the complementary distribution function: each ratio to the release's typical time with the
    /// share of slices that took at least as long, ascending; from the last ratio that all slices reach to
    /// the first that none reaches.
    pub fn slower_than(&self) -> Vec<(f64, f64)> {
        let all = self.slices();
        let mut left = all;
        let mut shares = Vec::new();
        for (bin, count) in self.counts.iter().enumerate() {
            let ratio = ((bin as f64 - OFFSET as f64) / STEPS).exp2();
            let next = self.counts.get(bin + 1).copied().unwrap_or(0);
            if left < all || *count > 0 || next > 0 {
                shares.push((ratio, left as f64 / all as f64));
            }
            if left == 0 {
                break;
            }
            left -= count;
        }
        shares
    }
}

/// Sets each round's effect to the median over points of the values minus the points' locations.
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

/// Returns the standard error of a point's location from the variance of its locations in consecutive batches
/// of rounds (so that it is valid for autocorrelated slices, too), after subtracting batch and point effects.
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
            values: nanoseconds.to_vec(),
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

    /// A deterministic common variation of machine and transactions, the same for all points of a round.
    fn hum(round: u32) -> f32 {
        1000.0 * (1.0 + 0.1 * ((round % 13) as f32 / 13.0))
    }

    fn tails(of: impl Fn(u32) -> f32) -> (BlockValue, BlockValue) {
        let base: Vec<f32> = (0..1000).map(hum).collect();
        let other: Vec<f32> = (0..1000).map(|round| hum(round) * of(round)).collect();
        let values = reduce_block(&[self::of(0, &base), self::of(1, &other), self::of(2, &base)]);
        (values[0], values[1])
    }

    #[test]
    fn stalls_show_in_the_mean_and_the_tail_and_not_in_the_typical_time() {
        // Every hundredth slice takes four times as long: 3 % more in all.
        let (base, stalled) = tails(|round| if round % 100 == 50 { 4.0 } else { 1.0 });
        assert!((stalled.value / base.value - 1.0).abs() < 1e-3);
        let (base, tail) = (base.tail.unwrap(), stalled.tail.unwrap());
        assert!((tail.mean / base.mean - 1.03).abs() < 2e-3, "{tail:?}");
        assert!((base.slow, (tail.slow - 0.01).abs() < 1e-9) == (0.0, true));
        let (_, frequent) = tails(|round| if round % 50 == 25 { 6.0 } else { 1.0 });
        let p99 = frequent.tail.unwrap().p99.unwrap();
        assert!(p99 / base.p99.unwrap() > 4.0, "{p99}");
    }

    #[test]
    fn a_rare_long_stall_counts_in_full() {
        // One slice of a thousand takes a hundred times as long: a tenth of the throughput.
        let (base, stalled) = tails(|round| if round == 500 { 101.0 } else { 1.0 });
        let ratio = stalled.tail.unwrap().mean / base.tail.unwrap().mean;
        assert!((ratio / 1.1 - 1.0).abs() < 5e-3, "{ratio}");
        assert!((stalled.tail.unwrap().stalled - 1e-3).abs() < 1e-9);
        assert_eq!(base.tail.unwrap().stalled, 0.0);
    }

    #[test]
    fn long_transactions_weigh_in_the_mean_as_they_are_long() {
        // Every eighth transaction takes eight times as long, and one point does these 30 % faster.
        let heavy = |round: u32| if round.is_multiple_of(8) { 8.0 } else { 1.0 };
        let base: Vec<f32> = (0..1000).map(|r| hum(r) * heavy(r)).collect();
        let faster = |r: u32| if r.is_multiple_of(8) { 0.7 } else { 1.0 };
        let other: Vec<f32> = (0..1000).map(|r| hum(r) * heavy(r) * faster(r)).collect();
        let values = reduce_block(&[of(0, &base), of(1, &other), of(2, &base)]);
        assert!((values[1].value / values[0].value - 1.0).abs() < 1e-3);
        let mean = |value: &BlockValue| value.tail.unwrap().mean;
        let expected = (7.0 + 8.0 * 0.7) / 15.0;
        assert!((mean(&values[1]) / mean(&values[0]) - expected).abs() < 2e-3);
        assert!(
            (mean(&values[0]) / 1046.0 / 1.875 - 1.0).abs() < 0.01,
            "{values:?}"
        );
    }

    #[test]
    fn few_slices_have_no_tail() {
        let few =
            |n: usize| reduce_block(&[of(0, &vec![1000.0; n]), of(1, &vec![1000.0; n])])[0].tail;
        assert_eq!(few(31), None);
        assert_eq!(few(32).unwrap().p99, None);
        assert!(few(FEWEST_FOR_P99).unwrap().p99.is_some());
    }

    #[test]
    fn a_histogram_tells_how_many_are_slower() {
        let base: Vec<f32> = (0..1000).map(hum).collect();
        let stalled = |r: u32| if r % 10 == 5 { 5.0 } else { 1.0 };
        let other: Vec<f32> = (0..1000).map(|r| hum(r) * stalled(r)).collect();
        let mut found = std::collections::BTreeMap::new();
        let slices = [of(0, &base), of(1, &other), of(2, &base)];
        Histogram::add_block(&slices, &mut found);
        Histogram::add_block(&slices, &mut found);
        let stalled = &found[&Point::Step(1)];
        assert_eq!(stalled.slices(), 2000);
        let shares = stalled.slower_than();
        let at = |ratio: f64| {
            let found = shares.iter().find(|(r, _)| *r >= ratio);
            found.map_or(0.0, |(_, share)| *share)
        };
        assert!(
            (at(0.5), at(2.0), at(4.5), at(6.0)) == (1.0, 0.1, 0.1, 0.0),
            "{shares:?}"
        );
        assert!(
            found[&Point::BASE]
                .slower_than()
                .iter()
                .all(|(r, s)| *r < 1.1 || *s == 0.0)
        );
    }

    /// A new number for a new way: stored values were reduced by the code of their time.
    #[test]
    fn the_same_slices_give_the_values_of_this_reduction() {
        use sha2::{Digest, Sha256};
        let mut state = 12_345u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        let slices: Vec<Slices> = (0..4)
            .map(|point| {
                let mut slice = || match next() {
                    x if x < 0.01 => f32::NAN,
                    x if x < 0.05 => 1000.0 * (1.0 + 30.0 * next()),
                    _ => 1000.0 + 100.0 * next() + point as f32,
                };
                let nanoseconds: Vec<f32> = (0..600).map(|_| slice()).collect();
                of(point, &nanoseconds)
            })
            .collect();
        let mut text = String::new();
        for value in reduce_block(&slices) {
            let tail = value.tail.unwrap();
            // Ten digits: what differs beyond is the order of sums.
            text += &format!(
                "{:.9e} {:.9e} {:.9e} {:.9e} {}\n",
                value.value,
                tail.mean,
                tail.slow,
                tail.p99.unwrap(),
                value.slices
            );
        }
        let digest = Sha256::digest(&text);
        assert_eq!(
            (REDUCTION, &digest[..8]),
            (3, &0x4b54_ccd3_f6a0_ac41_u64.to_be_bytes()[..]),
            "other values for the same slices: take the next REDUCTION\n{text}"
        );
    }

    #[test]
    fn a_fifth_of_wild_slices_does_not_matter_to_the_typical_time() {
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
