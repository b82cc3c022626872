//! Simulated experiments of many machines: how patches differ between them, and machines that are unhealthy, slow or die.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::checks::{Hits, Question, hit};
use super::scenario::{RESTART, header, observation, points};
use perfquilt_calibrate::random::Noise;
use perfquilt_judge::attribution::{self, Attribution, EffectKind};
use perfquilt_model::error::Result;
use perfquilt_model::observation::{Meter, Observation};
use perfquilt_model::point::Point;

/// Patches of the simulated series, none of which has an effect in the mean over all machines.
const PATCHES: usize = 2;
/// Standard deviation of the offset of a server on a shifted machine, as a fraction of speed.
const OFFSET: f64 = 0.02;
/// Blocks of a row, two of which have the same layouts.
const ROW: u32 = 4;

/// Machines to simulate.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fleet {
    machines: u32,
    /// Rows that each machine measures.
    rows: u32,
    /// Standard deviation of what a patch is worth from machine to machine, as a fraction of speed.
    between: f64,
    /// Machines whose values vary five times as much, those on which each server has an offset of its own (2 %, standard deviation), those that
    /// measure half of their rows because they are slow, and those that die after their first row.
    #[serde(default)]
    noisy: u32,
    #[serde(default)]
    shifted: u32,
    #[serde(default)]
    slow: u32,
    #[serde(default)]
    dying: u32,
    /// Degrees of freedom of Student's distribution of a restart; `None` for the normal distribution.
    tails: Option<u32>,
}

/// An experiment, and its machines by name.
pub(super) struct Found {
    attribution: Attribution,
    noisy: BTreeSet<String>,
    shifted: BTreeSet<String>,
    /// The mean over machines of what each patch is worth there.
    worth: Vec<f64>,
}

impl Fleet {
    /// Simulates an experiment.
    pub(super) fn measure(self, noise: &mut Noise) -> Result<Found> {
        let points = points(PATCHES);
        let mut observations = Vec::new();
        let (mut noisy, mut shifted) = (BTreeSet::new(), BTreeSet::new());
        let mut worth = vec![0.0; PATCHES];
        let mut block = 0;
        for machine in 0..self.machines {
            let name = format!("n{machine:03}");
            // The kinds follow each other in the list of machines.
            let mut from = 0;
            let mut is = |count: u32| {
                from += count;
                (from - count..from).contains(&machine)
            };
            let (is_noisy, is_shifted, is_slow, is_dying) = (
                is(self.noisy),
                is(self.shifted),
                is(self.slow),
                is(self.dying),
            );
            let rows = match (is_dying, is_slow) {
                (true, _) => 1,
                (_, true) => self.rows.div_ceil(2),
                _ => self.rows,
            };
            let own: Vec<f64> = (0..PATCHES)
                .map(|_| self.between * noise.normal())
                .collect();
            for (sum, own) in worth.iter_mut().zip(&own) {
                *sum += own / f64::from(self.machines);
            }
            let offset = if is_shifted { OFFSET } else { 0.0 };
            let offsets: Vec<f64> = points.iter().map(|_| offset * noise.normal()).collect();
            for within in 0..rows * ROW {
                // Restarts vary alone; layouts are those of the block before every second time.
                let layout = u64::from((block + within) / 2) + 1;
                for (place, &point) in points.iter().enumerate() {
                    let patches = match point {
                        Point::Step(k) => own[..k].iter().sum(),
                        _ => 0.0,
                    };
                    let sd = if is_noisy { 5.0 * RESTART } else { RESTART };
                    let value = 1e5 * (offsets[place] - patches + sd * self.restart(noise)).exp();
                    observations.push(Observation {
                        order: u32::try_from(place).unwrap_or(0),
                        layout,
                        machine: Some(name.clone()),
                        ..observation(block + within, point, "work", Meter::Time, value)
                    });
                }
            }
            block += rows * ROW;
            if is_noisy {
                noisy.insert(name);
            } else if is_shifted {
                shifted.insert(name);
            }
        }
        let attribution = attribution::attribute(&header(PATCHES), &observations, &|_| 0.01)?;
        Ok(Found {
            attribution,
            noisy,
            shifted,
            worth,
        })
    }
}

impl Fleet {
    /// Draws the deviation of a restart in units of its scale.
    fn restart(self, noise: &mut Noise) -> f64 {
        let normal = noise.normal();
        let Some(freedom) = self.tails else {
            return normal;
        };
        let squares: f64 = (0..freedom).map(|_| noise.normal().powi(2)).sum();
        normal / (squares / f64::from(freedom)).sqrt()
    }
}

impl Found {
    pub(super) fn asked(&self, question: Question) -> Hits {
        match question {
            Question::Noisy => self.left_out(&self.noisy),
            Question::Shifted => self.left_out(&self.shifted),
            Question::Healthy => hit(self.leaves_out_healthy()),
            _ => self.covered(),
        }
    }

    /// Returns how many of the patches' intervals contain the true effect, and their number: over all machines of the class
    /// where machines are units, else on these machines.
    fn covered(&self) -> Hits {
        let units = self.attribution.noise.machines.iter().any(|of| of.units);
        let mut held = 0;
        let mut all = 0;
        for (index, patch) in self.attribution.patches.iter().enumerate() {
            let truth = if units {
                0.0
            } else {
                self.worth[index].exp_m1()
            };
            for effect in patch
                .effects
                .iter()
                .filter(|of| of.kind == EffectKind::InOrder)
            {
                if let (Some(low), Some(high)) = (effect.low, effect.high) {
                    all += 1;
                    held += u32::from(low <= truth && truth <= high);
                }
            }
        }
        (held, all)
    }

    /// Returns how many of `planted` machines are left out, and their number.
    fn left_out(&self, planted: &BTreeSet<String>) -> Hits {
        let excluded = &self.attribution.noise.excluded_machines;
        let found = excluded.iter().filter(|of| planted.contains(&of.machine));
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        (count(found.count()), count(planted.len()))
    }

    fn leaves_out_healthy(&self) -> bool {
        let excluded = &self.attribution.noise.excluded_machines;
        let is_planted = |name: &String| self.noisy.contains(name) || self.shifted.contains(name);
        excluded.iter().any(|of| !is_planted(&of.machine))
    }
}
