//! Servers to measure.

use std::path::PathBuf;

use perfquilt_machine::build::Relink;

/// A built server to measure.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The point and its patch, for messages.
    pub label: String,
    /// The built server's folder.
    pub dir: PathBuf,
    /// How to link its executable again; `None` if that is impossible or not wanted.
    pub relink: Option<Relink>,
    /// The release whose data it needs, and the folder of the server that prepares it, if that is not the
    /// experiment's release.
    pub data: Option<(String, PathBuf)>,
}
