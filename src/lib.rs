//! perfquilt keeps an ordered, quilt-style series of performance patches on top of an upstream
//! server tree, rebuilds the complete server after each patch, benchmarks each patch separately and
//! reports what each patch is worth, with its uncertainty.
//!
//! Data goes one way: [`series`] → [`stack`] → [`build`] → [`experiment`] (servers × workloads ×
//! meters) → [`store`] → [`stats`] → [`attribution`] → [`report`]. ARCHITECTURE.md has the map and
//! the invariants.

pub mod analyse;
pub mod attribution;
pub mod bisect;
pub mod bot;
pub mod build;
pub mod caches;
pub mod calibrate;
pub mod cli;
pub mod config;
mod cut;
mod digest;
pub mod doctor;
pub mod edit;
pub mod error;
pub mod experiment;
mod files;
pub mod forge;
mod git;
pub mod init;
pub mod lint;
mod locks;
pub mod meter;
pub mod observation;
pub mod outcome;
pub mod point;
pub mod process;
pub mod profile;
pub mod progress;
pub mod rebase;
pub mod report;
pub mod run;
pub mod sandbox;
pub mod series;
pub mod server;
pub mod stack;
pub mod stats;
pub mod store;
mod threads;
pub mod upstream;
pub mod workload;
pub mod workspace;

pub use error::{Error, Result};
