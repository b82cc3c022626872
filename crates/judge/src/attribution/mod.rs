//! From observations to effects and verdicts. Pure.

mod agreement;
mod change;
mod closure;
mod collect;
mod costs;
mod document;
mod effects;
mod functions;
mod left_out;
mod multiplicity;
mod points;
mod stopping;
mod summary;
#[cfg(test)]
mod tests;
mod warnings;
mod within;

use perfquilt_model::error::Result;
use perfquilt_model::observation::{ExperimentHeader, Meter, Observation, Supplement};

pub use agreement::Agreement;
pub use change::{Change, changes};
pub use collect::{Collector, Fault};
pub use document::{
    Attribution, Closure, ControlEffect, Cost, Dependence, Effect, Figure, Interval, Kind, Noise,
    NoiseSpread, Operation, Part, PatchEffects, PointDependence, Progress, Provenance, SUITE, Tail,
    Verdict,
};
pub use functions::{compared, function_changes};
pub use stopping::{Open, Stopping};
pub use within::WithinBlocks;

/// Attributes effects to patches. `margin` gives the equivalence margin of a meter as a fraction of
/// speed.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when an observation does not fit the header or a block
/// has a point twice.
pub fn attribute(
    header: &ExperimentHeader,
    observations: &[Observation],
    margin: &dyn Fn(Meter) -> f64,
) -> Result<Attribution> {
    attribute_with(header, observations, &Supplement::default(), margin)
}

/// [`attribute`] with what else is known: planned blocks, build times, noise within blocks.
///
/// # Errors
/// As [`attribute`].
pub fn attribute_with(
    header: &ExperimentHeader,
    observations: &[Observation],
    supplement: &Supplement,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<Attribution> {
    let mut collector = Collector::new(header, supplement)?;
    for observation in observations {
        collector.add(&observation.borrowed())?;
    }
    Ok(collector.finish(margin))
}
