//! Statistics: block values from slices, contrasts of points over blocks, and their confidence intervals.
//!
//! `docs/statistics.md` gives the reasons for the methods.

mod change_points;
mod column;
mod components;
mod correlation;
mod dependence;
mod exchangeability;
mod groups;
mod health;
mod interval;
mod loss;
mod moderation;
mod multiplicity;
mod permutation;
mod quantile;
mod readings;
mod robust;
mod sequential;
mod slices;
mod slow;
mod table;
mod units;

#[cfg(test)]
mod simulation_tests;

pub use change_points::{ChangePoint, Estimate, Level, RUN, change_points, level_changes};
#[cfg(test)]
pub(crate) use column::counted;
pub use components::Components;
pub use correlation::{
    MachineCorrelation, UnitCorrelation, blocks_in_wave, equal_rounds, rounds_of_times,
};
pub(crate) use correlation::{between_rounds, without_bias};
pub use dependence::{Dependence, PointDependence};
pub use exchangeability::{Exchangeability, exchangeability};
pub use groups::{GroupComparison, GroupFigures};
pub(crate) use health::FEWEST_GROUPS;
pub use health::{HealthTest, Symptom};
pub use interval::{FEWEST_COUNTED, Interval, SharedVariance, SkewedInterval, SpeedChange, speed};
pub use loss::Loss;
pub use moderation::VariancePrior;
pub use multiplicity::{benjamini_hochberg, benjamini_hochberg_weighted, holm, holm_weighted};
pub use permutation::PermutationTest;
pub use quantile::{LEVEL, POWER, POWER_BEFORE_SHAPES, normal_quantile};
pub(crate) use readings::{are_equal, digit_error, readings_correlation};
pub(crate) use robust::{deviations, mean_row};
pub use robust::{median, trimmed_mean};
pub use sequential::{
    EARLY_LEVEL, FORESEEABLE, StoppingRule, anytime_critical_value, bayes_factor,
    bayes_factor_above, bayes_factor_above_known, blocks_joined, blocks_needed,
    blocks_needed_on_machines, half_width, widening,
};
pub use slices::{
    BlockValue, FEWEST_FOR_P99, FEWEST_SLICES, Histogram, REDUCTION, SLOW, STALLED, SliceTail,
    block_values, reduce_block,
};
pub(crate) use slow::{SlowVariation, run_that_differs};
pub use table::{BlockTable, CompleteBlocks, shared_rows};
pub use units::Units;
