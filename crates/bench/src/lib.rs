//! Servers, clients, meters and profiles on this machine, and the sandbox for untrusted code.
//!
//! # Example
//!
//! Two builds give a function different suffixes; meters and profiles compare it under one name:
//!
//! ```
//! use perfquilt_bench::meter::plain_name;
//!
//! assert_eq!(plain_name("row_search_mvcc.constprop.0"), plain_name("row_search_mvcc.part.3.cold"));
//! ```

pub mod cpu_quota;
pub mod doctor;
pub mod inputs;
pub mod meter;
pub mod profile;
pub mod sandbox;
pub mod server;
pub mod turns;
pub mod workload;

use perfquilt_config::Config;
use perfquilt_model::error::Result;

/// Checks the sections of the configuration that the server's adapter and the workloads' clients read.
pub fn check(config: &Config) -> Result<()> {
    server::check(config)?;
    workload::check(config)
}
