//! Measuring: experiments, bisections, whole runs from a series to stored blocks, and the tasks of jobs on a cluster.
//!
//! # Example
//!
//! The plan of an experiment follows from its seed:
//!
//! ```
//! use perfquilt_config::Layouts;
//! use perfquilt_measure::experiment::plan::{Reading, Scope, plan};
//! use perfquilt_model::point::Point;
//!
//! let points = [Point::BASE, Point::Step(1), Point::Step(2), Point::Control];
//! let scope = Scope {
//!     seed: 7,
//!     points: &points,
//!     workloads: &["oltp_read_only".to_owned()],
//!     windows: &[],
//!     blocks: 16,
//!     count_blocks: 3,
//!     lanes: 1,
//!     layouts: Layouts::Padded,
//!     direct: &[],
//! };
//! let blocks = plan(&scope);
//! assert_eq!(blocks.iter().filter(|block| block.kind.reading() == Reading::Timed).count(), 16);
//! assert_eq!(blocks.iter().filter(|block| block.kind.reading() == Reading::Counted).count(), 3);
//! assert!(blocks.iter().all(|block| block.points.len() == points.len()));
//! // Another run of the same seed measures the same.
//! assert_eq!(plan(&scope), blocks);
//! ```

pub mod experiment;
pub mod run;
mod task;
pub mod worker;
