//! Builds, servers, clients, meters and profiles on this machine, and the sandbox for untrusted code.
//!
//! # Example
//!
//! Servers are the same if what is loaded of their files is the same, whatever the files' places and times:
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use perfquilt_machine::build::identity_of_files;
//!
//! let server = |script: &str| {
//!     let folder = tempfile::tempdir().unwrap();
//!     std::fs::write(folder.path().join("server.sh"), script).unwrap();
//!     let files = BTreeMap::from([("server.sh".to_owned(), script.len() as u64)]);
//!     identity_of_files(folder.path(), &files)
//! };
//! assert_eq!(server("exec sleep 1")?, server("exec sleep 1")?);
//! assert_ne!(server("exec sleep 1")?, server("exec sleep 2")?);
//! # Ok::<(), perfquilt_model::Error>(())
//! ```

pub mod build;
pub mod cpu_quota;
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
