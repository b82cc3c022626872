//! `[sandbox]`: what code of pull requests may have of the machine.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `[sandbox]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Files and folders that can be read in it, besides the system's.
    pub read: Vec<PathBuf>,
    /// MiB of memory of all processes together; its RAM disks may take three quarters of that besides.
    /// Half of the machine's when 0.
    pub memory_mib: u64,
    /// Processes and threads at once.
    pub processes: u64,
    /// MiB of one file.
    pub file_mib: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// MiB that must stay free on the disk it writes to.
    pub free_mib: u64,
    /// Hours, of the whole and of the processor time of one process.
    pub hours: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            read: Vec::new(),
            memory_mib: 0,
            processes: 4096,
            file_mib: 16 << 10,
            open_files: 1 << 16,
            free_mib: 2 << 10,
            hours: 24,
        }
    }
}
