//! Statistics: block values from slices, contrasts of points over blocks, intervals. Pure.
//!
//! `docs/method.md` explains the choices in words.

mod components;
mod interval;
mod multiplicity;
mod robust;
mod sequential;
mod slices;
mod table;
mod units;

#[cfg(test)]
mod simulation;

pub use components::Components;
pub use interval::{Interval, LEVEL, POWER, normal_quantile, speed};
pub use multiplicity::{benjamini_hochberg, holm};
pub use robust::{median, trimmed_mean};
pub use sequential::{
    EARLY_LEVEL, Looks, bayes_factor, bayes_factor_above, bayes_factor_above_known, blocks_needed,
    critical, half_width, widening,
};
pub use slices::{BlockValue, Slices, block_values, reduce_block};
pub use table::{BlockTable, Complete, Spread};
pub use units::Units;
