//! Progress reporting. The library never prints; the command line passes in a [`Progress`].

use crate::warning::Warning;

/// The environment variable with the seconds between two interim lines in a log.
pub const INTERIM_SECONDS: &str = "PERFQUILT_INTERIM_SECONDS";

/// Receives progress reports of the library. Implementations print, draw a bar, or do nothing.
pub trait Progress: Send + Sync {
    /// Starts a step called `name`; `total` is its size in the units that [`Step::update`] counts.
    fn begin(&self, name: &str, total: Option<u64>) -> Box<dyn Step>;

    /// Reports a line worth keeping (a point finished, a file fetched).
    fn note(&self, line: &str);

    /// Reports a line that the next one replaces (the effects so far). A log may leave some of them out.
    fn interim(&self, line: &str) {
        self.note(line);
    }

    /// Reports a problem that does not stop the work.
    fn warn(&self, warning: Warning);
}

/// A running step. Dropping it without [`Step::finish`] means that it failed.
pub trait Step: Send {
    /// Reports that `done` of `total` is done; `message` names the current item.
    fn update(&self, done: u64, total: Option<u64>, message: &str);

    /// Reports the estimated `share` of the step's time that has passed; `message` gives the estimated rest.
    fn estimate(&self, share: f64, message: &str);

    /// Ends the step successfully; `summary` is kept as a line unless it is empty.
    fn finish(self: Box<Self>, summary: &str);
}

/// Ignores all reports: for tests and quiet use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

struct SilentStep;

impl Progress for Silent {
    fn begin(&self, _name: &str, _total: Option<u64>) -> Box<dyn Step> {
        Box::new(SilentStep)
    }

    fn note(&self, _line: &str) {}

    fn warn(&self, _warning: Warning) {}
}

impl Step for SilentStep {
    fn update(&self, _done: u64, _total: Option<u64>, _message: &str) {}

    fn estimate(&self, _share: f64, _message: &str) {}

    fn finish(self: Box<Self>, _summary: &str) {}
}
