//! Builds, servers, clients, meters and profiles on this machine, and the sandbox for untrusted code.

pub mod build;
pub mod doctor;
pub mod meter;
pub mod packages;
pub mod profile;
pub mod sandbox;
pub mod server;
pub mod test_suite;
pub mod workload;

use perfquilt_config::Config;
use perfquilt_model::error::Result;

/// Checks the sections of the configuration that the server's adapter and the workloads' clients read.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage), with file and line.
pub fn check(config: &Config) -> Result<()> {
    server::check(config)?;
    workload::check(config)
}
