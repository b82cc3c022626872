//! Effects and verdicts from observations. Pure functions.

mod agreement;
mod change;
mod collect;
mod comparison;
mod contrast;
mod correlation;
mod costs;
mod decisions;
mod document;
mod effects;
mod end_to_end;
mod excluded;
mod extent;
mod forecast;
mod functions;
mod machines;
mod mean_cost;
mod multiplicity;
mod pairs;
mod points;
mod stopping;
mod summary;
mod tables;
#[cfg(test)]
mod tests;
mod unexecuted;
mod unhealthy;
mod variances;
mod warnings;
mod within;

use perfquilt_model::error::Result;
use perfquilt_model::observation::{ExperimentHeader, Meter, Observation, Supplement};

pub use crate::stats::StoppingRule;
pub use agreement::Agreement;
pub use change::{PatchChange, changes};
pub use collect::Collector;
pub use comparison::{
    ComparedExperiment, Comparison, ComparisonRow, ComparisonTable, DifferenceVerdict,
    EffectDifference, Replication, compare, replicate,
};
pub use correlation::earlier_correlation;
pub use document::{
    AppliedDecision, Attribution, Cells, ComparedWith, ControlEffect, Dependence, Effect,
    EffectKind, EndToEnd, ExcludedMachine, HeavyTail, LaneFigures, LaneNoise, MachineFigures,
    MachineNoise, Noise, NoiseSpread, OpenEffect, Operation, PatchEffects, Progress, Provenance,
    SUITE, ShownChange, Stopping, TailFigure, TailFigures, TransactionCost, Verdict,
};
pub use extent::{MOST_EFFECTS, MOST_WORKLOADS};
pub use forecast::{Design, ExpectedWidth, MeasuredScatter, Scatter};
pub use functions::{compared, function_changes};
pub use machines::FEWEST_MACHINES_AS_UNITS;
pub use summary::effect_on;
pub use unexecuted::Unexecuted;
pub use within::WithinBlocks;

/// Attributes effects to patches. `margin` gives the equivalence margin of a meter as a fraction of
/// speed.
pub fn attribute(
    header: &ExperimentHeader,
    observations: &[Observation],
    margin: &dyn Fn(Meter) -> f64,
) -> Result<Attribution> {
    attribute_with(header, observations, &Supplement::default(), margin)
}

/// Attributes effects to patches, using the supplement as well: planned blocks, build times, noise within
/// blocks.
pub fn attribute_with(
    header: &ExperimentHeader,
    observations: &[Observation],
    supplement: &Supplement,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<Attribution> {
    let mut collector = Collector::new(header, supplement)?;
    for observation in observations {
        collector.add(observation)?;
    }
    Ok(collector.finish(margin))
}
