//! perfquilt's access to the operating system: processes, files, locks, digests and the user's git.

pub mod caches;
pub mod digest;
pub mod files;
pub mod git;
pub mod host;
pub mod locks;
pub mod mounts;
pub mod process;
