//! Result of one attempt to build a point, whatever the build system.

use super::opened::{self, Opened};
use super::profile_warnings::ProfileWarnings;
use super::run::ProgramRun;

/// Result of one run of a build system. Times are wall-clock seconds.
#[derive(Default)]
pub(super) struct BuildAttempt {
    /// The program that failed, if one did.
    pub failed: Option<ProgramRun>,
    pub configure: f64,
    pub compile: f64,
    pub link: f64,
    /// Units compiled.
    pub units: u64,
    /// Compiler warnings about the profile in use.
    pub profile_warnings: ProfileWarnings,
    /// What programs opened.
    pub opened: Opened,
}

impl BuildAttempt {
    /// Adds the costs of an earlier attempt at the same build.
    pub(super) fn add(&mut self, earlier: BuildAttempt) {
        self.configure += earlier.configure;
        self.compile += earlier.compile;
        self.link += earlier.link;
        self.units += earlier.units;
        self.profile_warnings += earlier.profile_warnings;
        self.opened = opened::both(self.opened.take(), earlier.opened);
    }
}
