//! Reading and analysis of results on disk: stored experiments, observation files, outcomes of runs, and
//! effects of patches before and after a rebase.
//!
//! # Example
//!
//! ```
//! use perfquilt_judge::attribution::Verdict;
//! use perfquilt_model::observation::Meter;
//! use perfquilt_results::analyse;
//!
//! // A log of sysbench for each server, or any observation file, is read alike.
//! let mut text = String::from(
//!     r#"{"schema": 1, "experiment": "toy", "series": ["a.patch"], "release": "toy-1.0", "machine": {}, "harness": ""}"#,
//! );
//! for block in 0..8 {
//!     for (order, point, value) in [(0, "0", 1000 + block % 3), (1, "1", 900 + block % 2)] {
//!         text += &format!(
//!             "\n{{\"schema\": 1, \"experiment\": \"toy\", \"block\": {block}, \"order\": {order}, \"point\": \"{point}\", \
//!              \"layout\": 0, \"workload\": \"w\", \"meter\": \"time\", \"unit\": \"ns/txn\", \"value\": {value}, \"n\": 9}}"
//!         );
//!     }
//! }
//! let attribution = analyse::read(text.as_bytes(), "toy.jsonl".as_ref(), &Meter::default_margin)?;
//! assert_eq!(attribution.patches[0].effects[0].verdict, Verdict::Faster);
//! # Ok::<(), perfquilt_model::Error>(())
//! ```

pub mod analyse;
pub mod decisions;
mod earlier;
pub mod effects;
pub mod ledger;
pub mod merge;
pub mod outcome;
