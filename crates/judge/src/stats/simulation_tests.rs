//! Simulated experiments that check the coverage of intervals and the power of tests.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use perfquilt_model::observation::Slices;
use perfquilt_model::point::Point;

const POINTS: usize = 5;
const EFFECT: f64 = 0.004;

/// Random numbers distributed like measurement errors.
struct Noise(StdRng);

impl Noise {
    fn new(seed: u64) -> Self {
        Noise(StdRng::seed_from_u64(seed))
    }

    fn uniform(&mut self) -> f64 {
        self.0.random::<f64>()
    }

    fn normal(&mut self) -> f64 {
        crate::test_kit::normal(&mut self.0)
    }

    /// Draws from Student's t distribution with 3 degrees of freedom: heavier tails than a normal.
    fn heavy(&mut self) -> f64 {
        let squares: f64 = (0..3).map(|_| self.normal().powi(2)).sum();
        self.normal() / (squares / 3.0).sqrt()
    }
}

/// Returns the share of experiments in which the interval of an in-order effect contains its true value.
/// `error` draws the deviation of a point in a block, or `None` for a missing value.
fn coverage(
    experiments: usize,
    blocks: u32,
    error: &mut dyn FnMut(usize) -> Option<f64>,
    noise: &mut Noise,
) -> f64 {
    let mut held = 0;
    let mut all = 0;
    for _ in 0..experiments {
        let mut table = BlockTable::default();
        let mut drift = 0.0;
        for block in 0..blocks {
            // The drift is much larger than any effect.
            drift += 0.03 * noise.normal();
            for point in 0..POINTS {
                if let Some(error) = error(point) {
                    let log = 11.0 + drift - EFFECT * point as f64 + error;
                    table.insert(block, Point::Step(point), log.exp(), 1);
                }
            }
        }
        for point in 1..POINTS {
            let ratios =
                table.contrast(&[(Point::Step(point - 1), 1.0), (Point::Step(point), -1.0)]);
            let ratios: Vec<f64> = ratios.into_iter().map(|(_, ratio)| ratio).collect();
            let Some(interval) = Interval::of(&ratios) else {
                continue;
            };
            all += 1;
            if (interval.low()..=interval.high()).contains(&EFFECT) {
                held += 1;
            }
        }
    }
    f64::from(held) / f64::from(all)
}

fn assert_covers(scenario: &str, share: f64) {
    assert!((0.93..=0.97).contains(&share), "{scenario}: {share}");
}

#[test]
fn intervals_cover_under_drift_and_restarts() {
    for blocks in [2, 3, 6, 18] {
        let mut errors = Noise::new(1);
        let share = coverage(
            2500,
            blocks,
            &mut |_| Some(0.004 * errors.normal()),
            &mut Noise::new(2),
        );
        assert_covers(&format!("{blocks} blocks"), share);
    }
}

#[test]
fn intervals_cover_under_heavy_tails() {
    let mut errors = Noise::new(3);
    let share = coverage(
        2500,
        18,
        &mut |_| Some(0.003 * errors.heavy()),
        &mut Noise::new(4),
    );
    assert_covers("heavy tails", share);
}

#[test]
fn intervals_cover_when_points_vary_unlike() {
    let mut errors = Noise::new(5);
    let share = coverage(
        2500,
        10,
        &mut |point| {
            let sd = if point == 2 { 0.012 } else { 0.003 };
            Some(sd * errors.normal())
        },
        &mut Noise::new(6),
    );
    assert_covers("unlike points", share);
}

#[test]
fn intervals_cover_with_missing_values() {
    let mut errors = Noise::new(7);
    let share = coverage(
        2500,
        12,
        &mut |_| (errors.uniform() > 0.1).then(|| 0.004 * errors.normal()),
        &mut Noise::new(8),
    );
    assert_covers("missing values", share);
}

/// Simulates one block's slices: rounds share a drifting machine, a restart shifts each point, slices are
/// skewed, and some are outliers.
fn simulated_slices(
    noise: &mut Noise,
    rounds: usize,
    effects: &[f64],
    outliers: f64,
    restart: f64,
) -> Vec<Slices> {
    let restarts: Vec<f64> = effects.iter().map(|_| restart * noise.normal()).collect();
    let mut machine = 0.1 * noise.normal();
    let mut points: Vec<Vec<f32>> = vec![Vec::with_capacity(rounds); effects.len()];
    for _ in 0..rounds {
        machine += 0.02 * noise.normal();
        for (point, values) in points.iter_mut().enumerate() {
            let mut log = 13.0 + machine - effects[point] + restarts[point];
            log += 0.03 * noise.normal() - 0.02 * (1.0 - noise.uniform()).ln();
            if noise.uniform() < outliers {
                log += 1.0 + 3.0 * noise.uniform();
            }
            values.push(log.exp() as f32);
        }
    }
    points
        .into_iter()
        .enumerate()
        .map(|(point, nanoseconds)| Slices {
            point: Point::Step(point),
            values: nanoseconds,
            transactions_per_slice: 1,
        })
        .collect()
}

#[test]
fn intervals_cover_from_slices_with_outliers() {
    let mut noise = Noise::new(9);
    let effects = [0.0, EFFECT, EFFECT];
    let mut held = 0;
    let experiments = 2000;
    for _ in 0..experiments {
        let mut table = BlockTable::default();
        for block in 0..6 {
            for (point, value) in
                block_values(&simulated_slices(&mut noise, 24, &effects, 0.05, 0.003))
            {
                table.insert(block, point, value, 1);
            }
        }
        let ratios = table.contrast(&[(Point::Step(0), 1.0), (Point::Step(1), -1.0)]);
        let ratios: Vec<f64> = ratios.into_iter().map(|(_, ratio)| ratio).collect();
        let interval = Interval::of(&ratios).unwrap();
        if (interval.low()..=interval.high()).contains(&EFFECT) {
            held += 1;
        }
    }
    assert_covers("slices", f64::from(held) / f64::from(experiments));
}

/// Returns the mean square error of the log ratio of two points over simulated blocks, by the block values
/// and by plain means of logarithms.
fn errors_of_block_values(outliers: f64) -> (f64, f64) {
    let mut noise = Noise::new(10);
    let (mut robust, mut plain) = (0.0, 0.0);
    for _ in 0..400 {
        let slices = simulated_slices(&mut noise, 100, &[0.0; 4], outliers, 0.0);
        let values = block_values(&slices);
        let mean = |point: usize| -> f64 {
            let logs = slices[point].values.iter().map(|ns| f64::from(ns.ln()));
            logs.sum::<f64>() / 100.0
        };
        robust += (values[0].1 / values[1].1).ln().powi(2);
        plain += (mean(0) - mean(1)).powi(2);
    }
    (robust, plain)
}

#[test]
fn the_standard_error_within_a_block_is_honest() {
    let mut noise = Noise::new(11);
    let mut errors = Vec::new();
    let mut differences = Vec::new();
    for _ in 0..400 {
        let mut slices = simulated_slices(&mut noise, 320, &[0.0; 4], 0.03, 0.003);
        // The restart's shift is not part of the error within a block: take two halves of one block.
        let second: Vec<Slices> = slices
            .iter_mut()
            .map(|slices| Slices {
                values: slices.values.split_off(160),
                ..slices.clone()
            })
            .collect();
        let ratio = |slices: &[Slices]| {
            let values = reduce_block(slices);
            errors.push(values[0].standard_error.unwrap());
            (values[0].value / values[1].value).ln()
        };
        let mut ratio = ratio;
        let difference = ratio(&slices) - ratio(&second);
        differences.push(difference);
    }
    // Two points in two halves: four independent errors.
    let expected = (differences.iter().map(|d| d * d).sum::<f64>() / 400.0 / 4.0).sqrt();
    let reported = (errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64).sqrt();
    assert!(
        (0.85..1.15).contains(&(reported / expected)),
        "{reported} {expected}"
    );
}

#[test]
fn block_values_lose_little_when_quiet_and_gain_much_when_not() {
    let (robust, plain) = errors_of_block_values(0.0);
    assert!(robust < 1.25 * plain, "quiet: {robust} {plain}");
    let (robust, plain) = errors_of_block_values(0.05);
    assert!(robust < 0.2 * plain, "outliers: {robust} {plain}");
}

#[test]
fn the_minimum_detectable_effect_has_its_power() {
    let mut noise = Noise::new(12);
    let sd = 0.004;
    for (blocks, rows) in [(6, 1.0), (12, 1.0), (12, 4.0), (24, 60.0)] {
        let mut experiment = |effect: f64| {
            let values: Vec<f64> = (0..blocks).map(|_| effect + sd * noise.normal()).collect();
            Interval::of(&values).unwrap()
        };
        let experiments = 4000;
        // The minimum detectable effect of one experiment is the true effect of the next.
        let seen = (0..experiments)
            .filter(|_| {
                let effect = experiment(0.0).minimum_detectable(1.0 / rows, POWER);
                experiment(effect).p_value() <= 0.05 / rows
            })
            .count();
        let power = seen as f64 / f64::from(experiments);
        assert!((0.78..0.82).contains(&power), "{blocks} {rows}: {power}");
    }
}

/// The benefit and the cost of pooling variances over points: the reason why times are not pooled.
#[test]
fn pooled_intervals_are_narrower_and_fail_a_restless_point() {
    let mut noise = Noise::new(31);
    // Pooled and separate half-widths, and the coverage of the point with the larger variance when pooled.
    let mut simulate = |blocks: u32, restless: f64| {
        let (mut pooled_widths, mut own_widths, mut held) = (0.0, 0.0, 0.0);
        let experiments = 3000;
        for _ in 0..experiments {
            let mut table = BlockTable::default();
            for block in 0..blocks {
                for point in 0..6 {
                    let sd = if point == 2 { restless } else { 0.004 };
                    let log = 11.0 + sd * noise.normal();
                    table.insert(block, Point::Step(point), log.exp(), 1);
                }
            }
            let ratios = table.contrast(&[(Point::Step(1), 1.0), (Point::Step(2), -1.0)]);
            let ratios: Vec<f64> = ratios.into_iter().map(|(_, ratio)| ratio).collect();
            let own = Interval::of(&ratios).unwrap();
            let (variance, _) = table.complete().variance_and_range().unwrap();
            let error = (2.0 * variance / f64::from(blocks)).sqrt();
            let degrees_of_freedom = f64::from(5 * (blocks - 1));
            let pooled = Interval::with(
                own.estimate,
                error,
                ratios.len(),
                degrees_of_freedom,
                StoppingRule::FixedSample,
            );
            pooled_widths += pooled.half_width;
            own_widths += own.half_width;
            held += f64::from(u8::from(pooled.contains_zero()));
        }
        (
            1.0 - pooled_widths / own_widths,
            held / f64::from(experiments),
        )
    };
    for (blocks, narrower) in [(3, 0.43), (8, 0.12), (18, 0.05)] {
        let (found, held) = simulate(blocks, 0.004);
        assert!((found - narrower).abs() < 0.02, "{blocks}: {found}");
        assert!((0.935..0.965).contains(&held), "{blocks}: {held}");
        let (_, held) = simulate(blocks, 0.012);
        assert!((0.78..0.85).contains(&held), "{blocks}: {held}");
    }
}
