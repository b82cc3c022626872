//! Analysis of observations: statistics, the attribution document and the decisions of a bisection.
//!
//! Every function is pure: its result depends on its arguments alone, and nothing does input or output.
//!
//! # Example
//!
//! ```
//! use perfquilt_judge::attribution::{Verdict, attribute};
//! use perfquilt_model::observation::{ExperimentHeader, Meter, Observation};
//!
//! let mut header = ExperimentHeader::new("toy-1.0", "make");
//! header.series = vec!["0001-fewer-rounds.patch".to_owned()];
//! // Nanoseconds a transaction: the release, the first patch, and the release again, in eight blocks.
//! let mut observations = Vec::new();
//! for block in 0..8 {
//!     let machine = f64::from(block * 5 % 8); // what the machine did to all points of the block
//!     let costs = [("0", 1000.0), ("1", 900.0 + f64::from(block % 3)), ("control", 1001.0)];
//!     for (order, (point, cost)) in costs.into_iter().enumerate() {
//!         observations.push(Observation {
//!             experiment: header.experiment.clone(),
//!             order: order as u32,
//!             n: 5000,
//!             ..Observation::new(block, point.parse()?, "requests", Meter::Time, cost + machine)
//!         });
//!     }
//! }
//!
//! let attribution = attribute(&header, &observations, &Meter::default_margin)?;
//! let effect = &attribution.patches[0].effects[0];
//! assert_eq!(effect.verdict, Verdict::Faster);
//! assert!(effect.estimate > 0.10 && effect.estimate < 0.12, "{}", effect.estimate);
//! # Ok::<(), perfquilt_model::Error>(())
//! ```

pub mod attribution;
pub mod bisect;
pub mod profile;
pub mod server_tests;
pub mod stats;
#[cfg(test)]
mod test_kit;
