//! Data types shared by all parts of perfquilt: points, meters, observations, errors and progress.
//!
//! This crate does no input or output.
//!
//! # Example
//!
//! ```
//! use perfquilt_model::error::Error;
//! use perfquilt_model::observation::Meter;
//! use perfquilt_model::point::Point;
//!
//! let point: Point = "without:3".parse()?;
//! assert_eq!(point, Point::Without(3));
//!
//! let meter: Meter = "instructions".parse()?;
//! assert!(!meter.is_timed());
//!
//! let error = Error::arguments("there is no preset `quik`")
//!     .at("bench-config/perfquilt.toml", 7)
//!     .hint("did you mean `quick`?");
//! assert_eq!(error.to_string(), "bench-config/perfquilt.toml:7: there is no preset `quik`");
//! assert_eq!(error.kind().exit_code(), 2);
//! # Ok::<(), Error>(())
//! ```

pub mod code;
pub mod comment;
pub mod comparable;
pub mod counted;
pub mod cut;
pub mod decision;
pub mod error;
pub mod failure;
pub mod ledger;
pub mod magic;
pub mod matrix;
pub mod names;
pub mod number;
pub mod observation;
pub mod point;
pub mod profile;
pub mod progress;
pub mod rebase;
pub mod repository;
pub mod server_tests;
pub mod warning;
pub mod watch;

pub use error::{Error, Result};
