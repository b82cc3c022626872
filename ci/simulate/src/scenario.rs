//! Simulated machines, which `scenarios.json` describes, and series without effect.

use serde::Deserialize;

use super::experiment::Experiment;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{ExperimentHeader, Meter, Observation};
use perfquilt_model::point::Point;

/// Patches of a simulated series, none of which has an effect.
pub(super) const PATCHES: usize = 4;

/// The standard deviation of a restart in the scenarios, as a fraction of the value: as observed on a shared
/// virtual machine.
pub const RESTART: f64 = 0.006;

/// A simulated machine that measures [`PATCHES`] patches without effect.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) experiment: Experiment,
}

/// Returns the scenarios that the file describes.
pub(super) fn scenarios() -> Result<Vec<Scenario>> {
    serde_json::from_str(include_str!("scenarios.json"))
        .map_err(|error| Error::internal(format!("scenarios.json: {error}")))
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

/// Returns an observation of a simulated experiment.
pub(super) fn observation(
    block: u32,
    point: Point,
    workload: &str,
    meter: Meter,
    value: f64,
) -> Observation {
    Observation {
        experiment: EXPERIMENT.to_owned(),
        ..Observation::new(block, point, workload, meter, value)
    }
}
