//! Simulated machines: the variation of a block's values.

use super::random::Noise;
use perfquilt_judge::stats::block_values;
use perfquilt_model::observation::Slices;
use perfquilt_model::observation::{ExperimentHeader, Meter, Observation};
use perfquilt_model::point::Point;

/// Patches of a simulated series, none of which has an effect.
pub(super) const PATCHES: usize = 4;

/// The standard deviation of a restart in the scenarios, as a fraction of the value: as observed on a shared
/// virtual machine.
pub const RESTART: f64 = 0.006;

/// A simulated machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scenario {
    Restarts,
    Drift,
    HeavyTails,
    Layouts,
    Outliers,
    Missing,
    Unlike,
    Workloads,
    Slices,
    Everything,
}

impl Scenario {
    pub(super) const ALL: [Scenario; 10] = [
        Scenario::Restarts,
        Scenario::Drift,
        Scenario::HeavyTails,
        Scenario::Layouts,
        Scenario::Outliers,
        Scenario::Missing,
        Scenario::Unlike,
        Scenario::Workloads,
        Scenario::Slices,
        Scenario::Everything,
    ];

    /// Returns its name and its description.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Scenario::Restarts => (
                "restarts",
                "every start shifts a server's speed, normally distributed",
            ),
            Scenario::Drift => ("drift", "the machine wanders by 3 % from block to block"),
            Scenario::HeavyTails => (
                "heavy tails",
                "restarts as Student's distribution with 3 degrees of freedom",
            ),
            Scenario::Layouts => (
                "layouts",
                "each start draws one of two code layouts 1 % apart, beside the restart",
            ),
            Scenario::Outliers => ("outliers", "one value in twenty is 1 to 4 % too slow"),
            Scenario::Missing => ("missing values", "one value in ten is missing"),
            Scenario::Unlike => (
                "unlike points",
                "one point varies three times as much as the others",
            ),
            Scenario::Workloads => (
                "three workloads",
                "they share half of a restart's variance and have different variances; judged together and one by one",
            ),
            Scenario::Slices => (
                "slices",
                "from slices: a wandering machine, skewed slices, one in twenty up to 50 times too \
                 slow, restarts",
            ),
            Scenario::Everything => (
                "everything",
                "drift, heavy tails, layouts, outliers, missing values and an unlike point at once",
            ),
        }
    }

    /// Returns the names of its workloads.
    pub(super) fn workloads(self) -> &'static [&'static str] {
        match self {
            Scenario::Workloads => &["calm", "usual", "restless"],
            _ => &["work"],
        }
    }

    /// Draws the deviation of one value from its block and point, as a log; `None` where the value is missing.
    fn error(self, point: Point, noise: &mut Noise) -> Option<f64> {
        let all = self == Scenario::Everything;
        let has = |scenario| self == scenario || all;
        let mut error = if has(Scenario::HeavyTails) {
            RESTART * noise.heavy()
        } else {
            RESTART * noise.normal()
        };
        if has(Scenario::Unlike) && point == Point::Step(2) {
            error *= 3.0;
        }
        if has(Scenario::Layouts) && noise.chance(0.5) {
            error += 0.01;
        }
        if has(Scenario::Outliers) && noise.chance(0.05) {
            error += 0.01 + 0.03 * noise.uniform();
        }
        if has(Scenario::Missing) && noise.chance(0.1) {
            return None;
        }
        Some(error)
    }

    /// Simulates the observations of block `number` on `points` and `workloads`. `drift` is the machine's
    /// current deviation.
    pub(super) fn block(
        self,
        number: u32,
        points: &[Point],
        workloads: &[String],
        drift: &mut f64,
        noise: &mut Noise,
    ) -> Vec<Observation> {
        if matches!(self, Scenario::Drift | Scenario::Everything) {
            *drift += 0.03 * noise.normal();
        }
        let drift = *drift;
        let mut order = points.to_vec();
        noise.shuffle(&mut order);
        let mut observations = Vec::with_capacity(points.len() * workloads.len());
        let mut add = |workload: &str, point: Point, value: f64| {
            let place = order.iter().position(|other| *other == point);
            observations.push(Observation {
                experiment: EXPERIMENT.to_owned(),
                order: place
                    .and_then(|place| u32::try_from(place).ok())
                    .unwrap_or(0),
                ..Observation::new(number, point, workload, Meter::Time, value)
            });
        };
        match self {
            Scenario::Slices => {
                for (point, value) in block_values(&slices(points, noise)) {
                    add(&workloads[0], point, value);
                }
            }
            Scenario::Workloads => {
                for &point in points {
                    let shared = noise.normal();
                    for workload in workloads {
                        let size = match workload.as_str() {
                            "calm" => 0.5,
                            "usual" => 1.0,
                            _ => 1.6,
                        };
                        let error = (shared + noise.normal()) / 2f64.sqrt();
                        add(workload, point, 1e5 * (size * RESTART * error).exp());
                    }
                }
            }
            _ => {
                for &point in points {
                    if let Some(error) = self.error(point, noise) {
                        add(&workloads[0], point, 1e5 * (drift + error).exp());
                    }
                }
            }
        }
        observations
    }
}

/// The name of a simulated experiment.
pub(super) const EXPERIMENT: &str = "simulated";

/// Returns the header of a simulated experiment on a series of `patches` patches.
pub(super) fn header(patches: usize) -> ExperimentHeader {
    let mut header = ExperimentHeader::new("simulated-1", "none");
    header.experiment = EXPERIMENT.to_owned();
    header.series = (1..=patches).map(|k| format!("{k}.patch")).collect();
    header
}

/// Returns the points of a series of `patches` patches, and the control.
pub(super) fn points(patches: usize) -> Vec<Point> {
    let steps = (0..=patches).map(Point::Step);
    steps.chain([Point::Control]).collect()
}

/// Returns empty slices of every point with room for `rounds` rounds, one transaction a slice.
pub(super) fn no_slices(points: &[Point], rounds: usize) -> Vec<Slices> {
    let of = |&point: &Point| Slices {
        point,
        values: Vec::with_capacity(rounds),
        transactions_per_slice: 1,
    };
    points.iter().map(of).collect()
}

/// Rounds of a simulated block of slices: few, so that ten thousand experiments are fast.
const ROUNDS: usize = 24;

fn slices(points: &[Point], noise: &mut Noise) -> Vec<Slices> {
    let restarts: Vec<f64> = points.iter().map(|_| RESTART * noise.normal()).collect();
    let mut machine = 0.1 * noise.normal();
    let mut slices = no_slices(points, ROUNDS);
    for _ in 0..ROUNDS {
        machine += 0.02 * noise.normal();
        for (slices, restart) in slices.iter_mut().zip(&restarts) {
            let mut log = 13.0 + machine + restart;
            log += 0.01 * noise.normal() - 0.005 * (1.0 - noise.uniform()).ln();
            if noise.chance(0.05) {
                log += 4.0 * noise.uniform();
            }
            slices.values.push(log.exp() as f32);
        }
    }
    slices
}
