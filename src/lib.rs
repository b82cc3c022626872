//! perfquilt keeps an ordered, quilt-style series of performance patches on top of an upstream
//! server tree, rebuilds the complete server after each patch, benchmarks each patch separately and
//! reports what each patch is worth, with its uncertainty.
//!
//! Data goes one way: [`series`] → [`stack`] → [`build`] → [`experiment`] (servers × workloads ×
//! meters) → [`store`] → [`stats`] → [`attribution`] → [`report`]. ARCHITECTURE.md has the map and
//! the invariants.

pub mod analyse;
pub mod bot;
pub mod calibrate;
pub mod cli;
pub mod doctor;
pub mod experiment;
pub mod forge;
pub mod init;
pub mod outcome;
pub mod run;
pub mod worth;
