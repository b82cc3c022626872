//! Simulated slices, and simulated means with their stalls.

use serde::Deserialize;

use super::scenario::{observation, points};
use perfquilt_calibrate::random::Noise;
use perfquilt_judge::stats;
use perfquilt_model::observation::{Meter, Observation, Slices as PointSlices};
use perfquilt_model::point::Point;

/// The standard deviation of a server's start.
const SD: f64 = 0.008;

/// The durations of slices, of which the last patch changes some.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Slices {
    pub(super) patches: usize,
    blocks: u32,
    rounds: usize,
    /// The probability that the machine interrupts a slice.
    #[serde(default = "seldom")]
    interrupted: f64,
    /// The first one that applies to a slice counts.
    last: Vec<Change>,
}

fn seldom() -> f64 {
    0.005
}

/// A change of some slices' durations.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    /// One round in so many.
    every: Option<usize>,
    /// The probability of a slice.
    share: Option<f64>,
    /// Heavy transactions only, or light ones.
    heavy: Option<bool>,
    times: f64,
}

impl Change {
    fn applies(&self, round: usize, heavy: bool, noise: &mut Noise) -> bool {
        self.every.is_none_or(|every| round % every == every / 3)
            && self.heavy.is_none_or(|of| of == heavy)
            && self.share.is_none_or(|share| noise.chance(share))
    }
}

impl Slices {
    pub(super) fn observations(&self, noise: &mut Noise) -> Vec<Observation> {
        let points = points(self.patches);
        let mut all = Vec::new();
        for block in 0..self.blocks {
            let restarts: Vec<f64> = points.iter().map(|_| SD * noise.normal()).collect();
            let of_point = |&point: &Point| PointSlices {
                point,
                values: Vec::with_capacity(self.rounds),
                transactions_per_slice: 1,
            };
            let mut slices: Vec<PointSlices> = points.iter().map(of_point).collect();
            for round in 0..self.rounds {
                let machine = 0.05 * noise.normal();
                let heavy = noise.chance(0.12);
                let work = if heavy { 8f64.ln() } else { 0.0 };
                for (slices, restart) in slices.iter_mut().zip(&restarts) {
                    let mut log = 12.0 + machine + work + restart + 0.02 * noise.normal();
                    if noise.chance(self.interrupted) {
                        log += 1.0 + 2.0 * noise.uniform();
                    }
                    if slices.point == Point::Step(self.patches) {
                        let mut last = self.last.iter();
                        let change = last.find(|change| change.applies(round, heavy, noise));
                        log += change.map_or(0.0, |change| change.times.ln());
                    }
                    slices.values.push(log.exp() as f32);
                }
            }
            all.extend(
                stats::reduce_block(&slices)
                    .into_iter()
                    .map(|of| Observation {
                        mean: of.tail.map(|tail| tail.mean),
                        slow: of.tail.map(|tail| tail.slow),
                        p99: of.tail.and_then(|tail| tail.p99),
                        stalled: of.tail.map(|tail| tail.stalled),
                        ..observation(block, of.point, "0", Meter::Time, of.value)
                    }),
            );
        }
        all
    }
}

/// Values with the mean and the share of stalled slices, to which the last patch's server adds its own.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Stalls {
    pub(super) patches: usize,
    slices: f64,
    /// The standard deviation of a block's ratio of the mean to the typical time.
    mean_sd: f64,
    /// Stalls of the machine in a block of one server, of 50 to 300 slices each: their mean number, or the probability of a burst.
    machine: f64,
    bursts: f64,
    /// The probability of a stall of the last patch in a block, or the mean number of several.
    chance: f64,
    several: f64,
    /// Their lengths in slices, and the standard deviation of the logarithms.
    length: f64,
    lengths_sd: f64,
    /// What the last patch adds to the mean, as a log.
    worse: f64,
}

/// The ratio of the mean to the typical time.
const RATIO: f64 = 1.02;

impl Stalls {
    pub(super) fn observations(self, noise: &mut Noise) -> Vec<Observation> {
        let mut all = Vec::new();
        for block in 0..24 {
            let drift = 0.03 * noise.normal();
            for &point in &points(self.patches) {
                let is_last = point == Point::Step(self.patches);
                let typical = drift + 0.5 * SD * noise.normal();
                let machine = self.of_machine(noise);
                let own = if is_last { self.of_patch(noise) } else { 0 };
                let carried = f64::from(machine) * (50.0 + 250.0 * noise.uniform())
                    + (0..own).map(|_| self.length(noise)).sum::<f64>();
                let worse = if is_last { self.worse } else { 0.0 };
                let ratio = (worse + self.mean_sd * noise.normal()).exp() * RATIO;
                let stalled = f64::from(machine + own) / self.slices;
                let value = 1e5 * typical.exp();
                all.push(Observation {
                    mean: Some(value * (ratio + carried / self.slices)),
                    slow: Some((0.01 + 0.1 * SD * noise.normal()).max(0.0) + stalled),
                    stalled: Some(stalled),
                    ..observation(block, point, "0", Meter::Time, value)
                });
            }
        }
        all
    }

    fn of_machine(self, noise: &mut Noise) -> u32 {
        if self.bursts == 0.0 {
            noise.poisson(self.machine)
        } else if noise.chance(self.bursts) {
            1 + u32::try_from(noise.below(12)).unwrap_or(0)
        } else {
            0
        }
    }

    fn of_patch(self, noise: &mut Noise) -> u32 {
        u32::from(noise.chance(self.chance)) + noise.poisson(self.several)
    }

    fn length(self, noise: &mut Noise) -> f64 {
        let sd = self.lengths_sd;
        self.length * (sd * noise.normal() - 0.5 * sd * sd).exp()
    }

    /// Returns the true effect of the last patch on the mean.
    pub(super) fn mean_effect(self) -> f64 {
        let carried = (self.chance + self.several) * self.length / self.slices;
        RATIO / (RATIO * self.worse.exp() + carried) - 1.0
    }
}
