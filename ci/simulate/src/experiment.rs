//! Experiments to simulate, as `checks.json` describes them: what is measured, how its values vary, and the true effects.

use std::f64::consts::FRAC_1_SQRT_2;

use serde::Deserialize;

use super::machines::Fleet;
use super::scenario::{header, observation, points};
use super::slices::{Slices, Stalls};
use perfquilt_calibrate::random::{Distribution, Noise};
use perfquilt_calibrate::{Disturbance, following};
use perfquilt_judge::attribution::{self, Attribution, Effect, SUITE};
use perfquilt_model::error::Result;
use perfquilt_model::observation::{Meter, Observation};
use perfquilt_model::point::Point;

/// Where the values of an experiment come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Experiment {
    /// One value for each server in each block.
    Blocks(Box<Blocks>),
    /// The durations of slices, reduced to values of blocks.
    Slices(Slices),
    /// Values with the mean and the share of stalled slices.
    Stalls(Stalls),
    /// Blocks that lanes run at one time.
    Beside(Beside),
    /// Machines that share the blocks.
    Fleet(Fleet),
    /// Instructions of so many functions in counted blocks, of which the patch changed the first.
    Functions(u32),
}

impl Experiment {
    /// Draws the observations of an experiment, in the order of its blocks; none of fleets and functions.
    pub(super) fn observations(&self, noise: &mut Noise) -> Vec<Observation> {
        match self {
            Experiment::Blocks(blocks) => blocks.observations(noise),
            Experiment::Slices(slices) => slices.observations(noise),
            Experiment::Stalls(stalls) => stalls.observations(noise),
            Experiment::Beside(beside) => beside.observations(noise),
            Experiment::Fleet(_) | Experiment::Functions(_) => Vec::new(),
        }
    }

    /// Returns the number of patches.
    pub(super) fn patches(&self) -> usize {
        match self {
            Experiment::Blocks(blocks) => blocks.patches,
            Experiment::Slices(slices) => slices.patches,
            Experiment::Stalls(stalls) => stalls.patches,
            Experiment::Beside(_) => 4,
            Experiment::Fleet(_) | Experiment::Functions(_) => 1,
        }
    }

    /// Returns the names of the workloads.
    pub(super) fn workloads(&self) -> Vec<String> {
        let count = match self {
            Experiment::Blocks(blocks) => blocks.effects.len(),
            _ => 1,
        };
        (0..count).map(|at| at.to_string()).collect()
    }

    /// Returns the true effects that a row is about: one over all workloads speaks of each of them.
    pub(super) fn truths(&self, effect: &Effect) -> Vec<f64> {
        match self {
            Experiment::Blocks(blocks) => blocks.truths(effect),
            _ => vec![0.0],
        }
    }

    /// Returns the true effect of the last patch on the mean.
    pub(super) fn mean_effect(&self) -> f64 {
        match self {
            Experiment::Stalls(stalls) => stalls.mean_effect(),
            _ => 0.0,
        }
    }

    /// Returns the meter that verdicts are about.
    pub(super) fn meter(&self) -> Meter {
        match self {
            Experiment::Blocks(blocks) => blocks.meters[0],
            _ => Meter::Time,
        }
    }

    /// Returns whether an experiment takes long.
    pub(super) fn is_large(&self) -> bool {
        self.patches() > 10
            || matches!(self, Experiment::Blocks(blocks) if blocks.effects.len() > 1)
    }
}

/// One value for each server in each block.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Blocks {
    pub(super) patches: usize,
    pub(super) blocks: u32,
    pub(super) meters: Vec<Meter>,
    /// The standard deviation of a value, as a fraction.
    sd: f64,
    /// How it is distributed.
    noise: Distribution,
    /// How many times as much the second patch's server varies.
    factor: f64,
    /// Standard deviations by workload, in units of `sd`, half of whose variance a server's workloads share.
    spreads: Vec<f64>,
    /// The probability that a value is missing.
    missing: f64,
    /// The step of values, as a fraction; 0 for none.
    step: f64,
    /// The blocks that the release and the first patch have of their own, as in other tools' files, and their standard deviations.
    apart: Vec<(u32, f64)>,
    /// The lanes that run at one time, and the share of each server's variance that is common to them.
    lanes: Option<(u32, f64)>,
    layouts: Option<Layouts>,
    /// What happens to the starts of every server.
    every: Disturbance,
    /// What happens to those of the first patch's server besides.
    one: Disturbance,
    /// What each of the gaining patches gains, by workload.
    pub(super) effects: Vec<f64>,
    gaining: Vec<usize>,
    /// The patches that lose as much.
    losing: Vec<usize>,
    /// Whether values have a mean, a share of slow slices and a 99th percentile, which alone have the effect.
    tails: bool,
    /// The operations that the workload's client times, which share half of a value's variance.
    operations: usize,
    counted: Option<Counted>,
}

impl Default for Blocks {
    fn default() -> Self {
        Blocks {
            patches: 1,
            blocks: 12,
            meters: vec![Meter::Time],
            sd: 0.008,
            noise: Distribution::Normal,
            factor: 1.0,
            spreads: Vec::new(),
            missing: 0.0,
            step: 0.0,
            apart: Vec::new(),
            lanes: None,
            layouts: None,
            every: Disturbance::default(),
            one: Disturbance::default(),
            effects: vec![0.0],
            gaining: vec![1],
            losing: Vec::new(),
            tails: false,
            operations: 0,
            counted: None,
        }
    }
}

/// The assignment of layouts to blocks.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Layouts {
    /// Twice each; their standard deviations at all points and at the second patch.
    Repeated(f64, f64),
    /// Drawn from so many for each point, with the standard deviation.
    Crossed(u32, f64),
}

/// Blocks of instructions beside the timed ones.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counted {
    blocks: u32,
    /// Deviations that were seen, all equally probable.
    seen: Vec<f64>,
    /// What the patches in `changed` save.
    saving: f64,
    changed: Vec<usize>,
}

impl Blocks {
    fn truths(&self, effect: &Effect) -> Vec<f64> {
        let is_one = |patches: &[usize]| patches.iter().any(|&of| effect.point == Point::Step(of));
        let sign =
            f64::from(u8::from(is_one(&self.gaining))) - f64::from(u8::from(is_one(&self.losing)));
        let place: Option<usize> = effect.workload.parse().ok();
        match place.and_then(|place| self.effects.get(place)) {
            Some(own) => vec![sign * own],
            None if effect.workload == SUITE => self.effects.iter().map(|of| sign * of).collect(),
            None => vec![0.0],
        }
    }

    fn observations(&self, noise: &mut Noise) -> Vec<Observation> {
        let points = points(self.patches);
        let count = self.effects.len() * self.meters.len();
        let (lanes, common) = self.lanes.unwrap_or((1, 1.0));
        let mut errors: Vec<f64> = (0..points.len() * count).map(|_| noise.normal()).collect();
        let begins = self.one.begins(self.blocks, noise);
        let mut layouts: Vec<(u64, f64)> = vec![(0, 0.0); points.len()];
        let pool = self.pool(points.len(), noise);
        let mut all = Vec::new();
        let mut walk = 0.0;
        for block in 0..self.blocks {
            let drift = self.every.shift(&mut walk, noise);
            if let Some(of) = self.layouts {
                of.next(block, &points, &pool, &mut layouts, noise);
            }
            for (place, &point) in points.iter().enumerate() {
                let own = self.apart.get(place).copied();
                let (runs, sd) = match own.filter(|(runs, _)| block < *runs) {
                    None if !self.apart.is_empty() => continue,
                    own => own.unwrap_or((0, self.sd)),
                };
                let (mut serial, mut factor) = (self.every.serial, 1.0);
                let (layout, luck) = layouts[place];
                let mut log = drift + luck + self.every.cost(block, 0, noise);
                if point == Point::Step(1) {
                    serial = serial.max(self.one.serial);
                    log += self.one.cost(block, begins, noise);
                } else if point == Point::Step(2) {
                    factor = self.factor;
                }
                let first = if runs > 0 && place > 0 {
                    self.blocks
                } else {
                    0
                };
                let shared = noise.normal();
                for (at, gain) in self.effects.iter().enumerate() {
                    for (number, &meter) in self.meters.iter().enumerate() {
                        let error = &mut errors[place * count + at * self.meters.len() + number];
                        if block % lanes == 0 {
                            let fresh = noise.draw(self.noise);
                            *error = following(*error, serial, fresh);
                        }
                        let mut own =
                            common.sqrt() * *error + (1.0 - common).sqrt() * noise.normal();
                        if let Some(spread) = self.spreads.get(at) {
                            own = spread * (own + shared) * FRAC_1_SQRT_2;
                        }
                        if noise.chance(self.missing) {
                            continue;
                        }
                        let gain = gain.ln_1p() * self.share_of(point);
                        let untouched = log + factor * sd * own;
                        let (workload, value) = (at.to_string(), self.value(untouched - gain));
                        let mut one = Observation {
                            lane: self.lanes.map(|_| block % lanes),
                            layout,
                            ..observation(first + block, point, &workload, meter, value)
                        };
                        if self.tails {
                            let mut near = |size: f64| size * sd * noise.normal();
                            one.value = self.value(untouched);
                            one.mean = Some(self.value(untouched + near(0.5) - gain));
                            one.p99 = Some(self.value(1.0 + near(2.0) - 3.0 * gain));
                            one.slow = Some((0.02 + near(0.1) - gain / 4.0).clamp(0.0, 1.0));
                        }
                        all.push(one);
                        for operation in 0..self.operations {
                            let own = (own + noise.normal()) * FRAC_1_SQRT_2;
                            let part = format!("{at}/part {operation}");
                            let value = self.value(log + sd * own);
                            all.push(observation(block, point, &part, meter, value));
                        }
                    }
                }
            }
        }
        if let Some(counted) = &self.counted {
            all.extend(counted.observations(&points, noise));
        }
        all
    }

    fn value(&self, log: f64) -> f64 {
        let value = log.exp();
        1e9 * if self.step > 0.0 {
            (value / self.step).round() * self.step
        } else {
            value
        }
    }

    /// Returns how many times a point has the effect.
    fn share_of(&self, point: Point) -> f64 {
        count_up_to(&self.gaining, point) - count_up_to(&self.losing, point)
    }

    /// Draws what the layouts of each point do to it, where they are drawn from few.
    fn pool(&self, points: usize, noise: &mut Noise) -> Vec<Vec<f64>> {
        let Some(Layouts::Crossed(count, sd)) = self.layouts else {
            return Vec::new();
        };
        let mut own = || (0..count).map(|_| sd * noise.normal()).collect();
        (0..points).map(|_| own()).collect()
    }
}

/// Returns how many of `patches` are part of a point.
fn count_up_to(patches: &[usize], point: Point) -> f64 {
    match point {
        Point::Step(step) => patches.iter().filter(|patch| **patch <= step).count() as f64,
        _ => 0.0,
    }
}

impl Layouts {
    /// Draws the layouts of a block and what they do.
    fn next(
        self,
        block: u32,
        points: &[Point],
        pool: &[Vec<f64>],
        layouts: &mut [(u64, f64)],
        noise: &mut Noise,
    ) {
        for (place, layout) in layouts.iter_mut().enumerate() {
            match self {
                Layouts::Repeated(..) if block % 2 == 1 => {}
                Layouts::Repeated(all, second) => {
                    let is_second = points[place] == Point::Step(2);
                    let sd = if is_second { second } else { all };
                    *layout = (u64::from(block) + 1, sd * noise.normal());
                }
                Layouts::Crossed(count, _) => {
                    let drawn = noise.below(count as usize);
                    *layout = (drawn as u64 + 1, pool[place][drawn]);
                }
            }
        }
    }
}

impl Counted {
    fn observations(&self, points: &[Point], noise: &mut Noise) -> Vec<Observation> {
        let mut all = Vec::new();
        for block in 0..self.blocks {
            let transactions = 0.002 * noise.normal();
            for &point in points {
                let saved = self.saving * count_up_to(&self.changed, point);
                let log = transactions + noise.one_of(&self.seen) - saved;
                let value = 1e9 * log.exp();
                all.push(observation(block, point, "0", Meter::Instructions, value));
            }
        }
        all
    }
}

/// Blocks on lanes: each block takes the first free lane, for 0.5 to 1.5 units of time. A new disturbance of each server begins
/// every twentieth of a unit, on all lanes alike; it makes half of the variance of a block of one unit.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct Beside {
    lanes: usize,
    blocks: u32,
}

impl Beside {
    fn observations(self, noise: &mut Noise) -> Vec<Observation> {
        const STEPS: f64 = 20.0;
        const SD: f64 = 0.008;
        let points = points(4);
        let mut free = vec![0.0; self.lanes];
        let mut disturbances: Vec<Vec<f64>> = Vec::new();
        let mut all = Vec::new();
        for block in 0..self.blocks {
            let lane = (0..free.len())
                .min_by(|a, b| f64::total_cmp(&free[*a], &free[*b]))
                .unwrap_or(0);
            let began = free[lane];
            let ended = began + 0.5 + noise.uniform();
            free[lane] = ended;
            let (first, last) = ((began * STEPS) as usize, (ended * STEPS) as usize);
            while disturbances.len() <= last {
                disturbances.push(points.iter().map(|_| noise.normal()).collect());
            }
            let during = &disturbances[first..=last];
            for (place, &point) in points.iter().enumerate() {
                let shared = during.iter().map(|of| of[place]).sum::<f64>() / during.len() as f64;
                let error = (0.5f64).sqrt() * (STEPS.sqrt() * shared + noise.normal());
                let value = 1e5 * (SD * error).exp();
                all.push(Observation {
                    lane: u32::try_from(lane).ok(),
                    began: Some(began),
                    ended: Some(ended),
                    ..observation(block, point, "0", Meter::Time, value)
                });
            }
        }
        all
    }
}

/// Returns the observations judged as a report does.
pub(super) fn judged(patches: usize, observations: &[Observation]) -> Result<Attribution> {
    attribution::attribute(&header(patches), observations, &Meter::default_margin)
}
