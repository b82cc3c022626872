//! Measures the cost of the functions of two servers.
//!
//! Both servers run the same transactions (same data, same seed), either under callgrind, which attributes every
//! instruction to a function and its callers, or sampled by perf at full speed, which measures time but not
//! calls. [`measure`](fn@measure) repeats this and returns the costs by function of each repetition.

mod frames;
mod measure;
mod table;

pub use measure::{CostSource, CostTables, MakeServer, ProfileRequest, ProfiledServer, measure};
