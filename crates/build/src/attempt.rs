//! Result of one attempt to build a point, whatever the build system.

use super::BuildSeconds;
use super::opened::{self, Opened};
use super::profile_warnings::ProfileWarnings;
use super::run::ProgramRun;

/// Result of one run of a build system. Times are wall-clock seconds.
#[derive(Default)]
pub(super) struct BuildAttempt {
    /// The program that failed, if one did.
    pub failed: Option<ProgramRun>,
    pub seconds: BuildSeconds,
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
        self.seconds.configure += earlier.seconds.configure;
        self.seconds.compile += earlier.seconds.compile;
        self.seconds.link += earlier.seconds.link;
        self.units += earlier.units;
        self.profile_warnings += earlier.profile_warnings;
        self.opened = opened::both(self.opened.take(), earlier.opened);
    }
}
