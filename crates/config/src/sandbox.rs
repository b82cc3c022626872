//! `[sandbox]`: resource limits for code from pull requests.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// `[sandbox]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxLimits {
    /// The user (name or number) as whom sandboxed code runs if perfquilt runs as root; otherwise your own.
    pub user: String,
    /// Further readable files and folders, such as a compiler below `/opt`.
    pub read: Vec<PathBuf>,
    /// Memory of all processes together, in MiB; 0 is half of the machine's. RAM disks may take three quarters of this
    /// in addition.
    pub memory_mib: u64,
    /// Maximum number of processes and threads.
    pub processes: u64,
    /// Processors whose time all processes together may use; 0 is all. Needs a control group. A job that has used up
    /// its time stands still until the next tenth of a second: allow more than it measures with.
    pub cpus: u64,
    /// Maximum size of a file in MiB.
    pub file_mib: u64,
    /// Maximum number of open files per process.
    pub open_files: u64,
    /// MiB, and one inode for every 64 KiB of them, that must stay free on the disks the sandbox writes to.
    pub free_mib: u64,
    /// Maximum hours of the sandbox (or a job of the bot without one), and of processor time of each process.
    pub hours: u64,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        SandboxLimits {
            user: "nobody".into(),
            read: Vec::new(),
            memory_mib: 0,
            processes: 4096,
            cpus: 0,
            file_mib: 16 << 10,
            open_files: 1 << 16,
            free_mib: 2 << 10,
            hours: 24,
        }
    }
}
