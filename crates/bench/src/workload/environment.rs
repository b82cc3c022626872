//! Where clients run.

use std::path::{Path, PathBuf};

use super::Placement;
use perfquilt_model::error::{Error, Result};

/// Where clients run: their files, and the processors of clients and servers.
#[derive(Debug)]
pub struct Environment {
    /// The workspace's `bench-config/`.
    pub bench_config: PathBuf,
    /// Removed when dropped.
    folder: tempfile::TempDir,
    /// The placement of servers and clients.
    pub placement: Placement,
}

impl Environment {
    /// Creates the environment of clients on this machine, for the workspace with this `bench-config/`.
    pub fn new(bench_config: PathBuf) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("perfquilt-")
            .tempdir()
            .map_err(|e| {
                let error = Error::io("create a folder in", &std::env::temp_dir(), &e);
                match e.kind() {
                    std::io::ErrorKind::NotFound => {
                        error.hint("set TMPDIR to a folder that exists")
                    }
                    _ => error,
                }
            })?;
        Ok(Environment {
            bench_config,
            folder,
            placement: Placement::of_this_machine(),
        })
    }

    /// Returns the folder of the clients' files, which all clients share; it is removed after measuring.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Creates an empty folder for the results of one run of a client.
    pub fn results_folder(&self) -> Result<tempfile::TempDir> {
        tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(self.folder())
            .map_err(|e| Error::io("create a folder in", self.folder(), &e))
    }
}
