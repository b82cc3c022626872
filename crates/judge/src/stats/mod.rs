//! Statistics: block values from slices, contrasts of points over blocks, intervals. Pure.
//!
//! `docs/method.md` explains the choices in words.

mod components;
mod dependence;
mod exchangeability;
mod interval;
mod loss;
mod multiplicity;
mod robust;
mod sequential;
mod slices;
mod table;
mod units;

#[cfg(test)]
mod simulation;

pub use components::Components;
pub use dependence::{Dependence, PointDependence};
pub use exchangeability::{Exchangeability, exchangeability};
pub use interval::{Interval, LEVEL, POWER, SharedVariance, normal_quantile, speed};
pub use loss::Loss;
pub use multiplicity::{benjamini_hochberg, benjamini_hochberg_weighted, holm, holm_weighted};
pub use robust::{median, trimmed_mean};
pub use sequential::{
    EARLY_LEVEL, Looks, bayes_factor, bayes_factor_above, bayes_factor_above_known, blocks_needed,
    critical, half_width, widening,
};
pub use slices::{
    BlockValue, CAP, FEWEST_FOR_P99, FEWEST_SLICES, Histogram, REDUCTION, SLOW, Tail, block_values,
    reduce_block,
};
pub use table::{BlockTable, Complete, Spread};
pub use units::{OverUnits, Units};
