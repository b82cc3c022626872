//! Analysis of observations: statistics, the attribution document and the decisions of a bisection.
//!
//! Every function is pure: its result depends on its arguments alone, and nothing does input or output.

pub mod attribution;
pub mod bisect;
pub mod profile;
pub mod server_tests;
pub mod stats;
