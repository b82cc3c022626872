//! Measures what the functions of two servers cost.
//!
//! Both servers do the same transactions (same data, same seed), either under callgrind, which tells what each
//! instruction of which function was executed for, or sampled by perf at full speed, which tells time but not
//! calls. [`measure`](fn@measure) repeats that and returns the costs by function of each repetition.

mod frames;
mod measure;
mod table;

pub use measure::{Pair, Source, Subject, measure};
