//! Servers to measure.

use std::path::PathBuf;

use perfquilt_machine::build::Relink;

/// A built server to measure.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// For messages: the point and its patch.
    pub label: String,
    /// The built server's folder.
    pub dir: PathBuf,
    /// How its executable is linked again; `None` where it cannot be, or is not to be.
    pub relink: Option<Relink>,
    /// Where its data is not that of the experiment's release: the release whose data it needs, and the
    /// folder of the server that prepares it.
    pub data: Option<(String, PathBuf)>,
}
