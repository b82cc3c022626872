//! The calibration of the method: simulated experiments and bisections with known answers, which `ci/calibrate` runs.
//!
//! # Example
//!
//! How often do intervals over twelve blocks of heavy-tailed noise contain the true effect, 0?
//!
//! ```
//! use perfquilt_calibrate::random::Noise;
//! use perfquilt_judge::stats::Interval;
//!
//! let holds = |experiment: &usize| {
//!     let mut noise = Noise::of(1, "example", *experiment);
//!     let blocks: Vec<f64> = (0..12).map(|_| noise.heavy()).collect();
//!     Interval::of(&blocks).is_some_and(|interval| interval.contains_zero())
//! };
//! let covered = (0..1000).filter(holds).count();
//! assert!((930..=980).contains(&covered), "{covered}");
//! ```

mod bisection;
mod checks;
mod cost;
mod document;
mod experiment;
mod family;
mod machines;
mod scenario;
mod sessions;
mod simulation;
mod slices;

use std::time::Instant;

use serde::Serialize;
use statrs::distribution::{Binomial, DiscreteCDF};

use perfquilt_model::error::Result;

pub use bisection::{Bisections, bisections};
pub use checks::Check;
pub use cost::{CaseCost, Costs, Prices, costs};
pub use document::text;
pub use family::Family;

use simulation::counted;

/// The largest share of experiments without effect in which a patch may be called faster or slower: 5 %
/// nominal, and the chance of the simulation.
const FALSE_POSITIVES: f64 = 0.055;

/// The smallest and the largest share of the 95 % intervals that may contain the true effect. Apparent
/// dependence of blocks by chance widens intervals.
const COVERAGE: (f64, f64) = (0.94, 0.985);

/// The results of a simulated calibration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Simulated {
    /// Version of this document: 2.
    pub schema: u32,
    /// The version of the program.
    pub version: &'static str,
    /// The seed of all random numbers.
    pub seed: u64,
    /// Null experiments per scenario.
    pub experiments: usize,
    /// The day of the calibration, in UTC.
    pub date: String,
    /// The duration in seconds.
    pub seconds: f64,
    /// The number of threads.
    pub threads: usize,
    /// Null experiments, by scenario.
    pub families: Vec<Family>,
    /// Cases that the scenarios do not cover: other numbers of patches, counts, layouts, unpaired runs, tails.
    pub checks: Vec<Check>,
}

impl Simulated {
    /// Returns the limits that were missed, one fragment each. With fewer than 10,000 experiments a limit
    /// counts as missed when chance does not explain it.
    pub fn faults(&self) -> Vec<String> {
        self.described(Check::is_missed)
    }

    /// Returns the figures outside their limits by no more than chance explains, one fragment each.
    pub fn outside_by_chance(&self) -> Vec<String> {
        self.described(|check| check.is_outside() && !check.is_missed())
    }

    fn described(&self, filter: impl Fn(&Check) -> bool) -> Vec<String> {
        let families = self.families.iter().flat_map(Family::checks);
        let all = families.chain(self.checks.iter().cloned()).filter(filter);
        all.map(|check| check.describe()).collect()
    }
}

/// The number of experiments from which on a share is compared without an allowance for chance.
const ENOUGH: usize = 10_000;

/// The probability below which chance does not explain a share as far beyond its limit as the observed one, or
/// farther. It is small because there are more than a hundred limits.
const CHANCE: f64 = 1e-4;

/// Returns whether `share` of `n` experiments is more than `most`, beyond chance.
fn is_above(share: f64, most: f64, n: usize) -> bool {
    is_below(1.0 - share, 1.0 - most, n)
}

/// Returns whether `share` of `n` experiments is less than `least`, beyond chance, by the binomial
/// distribution.
fn is_below(share: f64, least: f64, n: usize) -> bool {
    if share >= least {
        return false;
    }
    if n >= ENOUGH {
        return true;
    }
    let hits = (share * n as f64).round() as u64;
    Binomial::new(least, n as u64).is_ok_and(|chance| chance.cdf(hits) < CHANCE)
}

/// Runs `experiments` simulated experiments per scenario, or those of the promises alone whose names contain `only`. The same
/// seed gives the same figures.
pub fn simulated(experiments: usize, seed: u64, only: Option<&str>) -> Result<Simulated> {
    let started = Instant::now();
    let mut families = Vec::new();
    let scenarios = scenario::scenarios()?;
    for scenario in scenarios.iter().filter(|_| only.is_none()) {
        let name = format!("simulate {}", scenario.name);
        let found = counted(&name, experiments, |done| {
            family::family(scenario, experiments, seed, done)
        })?;
        families.push(found);
    }
    let checks = counted("check promises", checks::count()?, |done| {
        checks::checks(experiments, seed, only.unwrap_or_default(), done)
    })?;
    Ok(Simulated {
        schema: 2,
        version: env!("CARGO_PKG_VERSION"),
        seed,
        experiments,
        date: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
        seconds: started.elapsed().as_secs_f64(),
        threads: rayon::current_num_threads(),
        families,
        checks,
    })
}
