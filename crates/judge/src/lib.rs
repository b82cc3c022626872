//! What observations say: statistics, the attribution document and the decisions of a bisection.
//!
//! Every result is a function of its arguments alone; nothing here does input or output.

pub mod attribution;
pub mod bisect;
pub mod profile;
pub mod stats;
