//! Progress reporting. The library never prints: whoever runs it names a [`Progress`] once for the whole process, as with
//! `log` and `tracing`, and [`note`], [`warn`], [`interim`] and [`begin`] reach it from everywhere.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

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

/// The receiver of the process.
static RECEIVER: OnceLock<Arc<dyn Progress>> = OnceLock::new();

thread_local! {
    /// The receiver of this thread, in place of the process's.
    static OWN: RefCell<Option<Arc<dyn Progress>>> = const { RefCell::new(None) };
}

/// Sends the reports of all threads to `receiver`. The first call counts; before it, nobody receives them.
pub fn report_to(receiver: Arc<dyn Progress>) {
    let _ = RECEIVER.set(receiver);
}

/// Runs `work`, whose reports on this thread go to `receiver` alone.
pub fn reporting_to<T>(receiver: Arc<dyn Progress>, work: impl FnOnce() -> T) -> T {
    struct Restore(Option<Arc<dyn Progress>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            OWN.set(self.0.take());
        }
    }
    let _restore = Restore(OWN.replace(Some(receiver)));
    work()
}

/// Runs `work` without its reports on this thread.
pub fn silently<T>(work: impl FnOnce() -> T) -> T {
    reporting_to(Arc::new(Silent), work)
}

fn receiver() -> Arc<dyn Progress> {
    let own = OWN.with_borrow(Clone::clone);
    own.or_else(|| RECEIVER.get().cloned())
        .unwrap_or_else(|| Arc::new(Silent))
}

/// Starts a step, as [`Progress::begin`] does.
pub fn begin(name: &str, total: Option<u64>) -> Box<dyn Step> {
    receiver().begin(name, total)
}

/// Reports a line worth keeping.
pub fn note(line: &str) {
    receiver().note(line);
}

/// Reports a line that the next one replaces.
pub fn interim(line: &str) {
    receiver().interim(line);
}

/// Reports a problem that does not stop the work.
pub fn warn(warning: Warning) {
    receiver().warn(warning);
}

/// Ignores all reports.
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
