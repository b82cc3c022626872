//! How long steps tell what they do. The library never prints: the edge passes in a [`Progress`].

/// Receives what the library is doing. Implementations print, draw a bar, or do nothing.
pub trait Progress: Send + Sync {
    /// Starts a step called `name`; `total` is its size in whatever [`Step::update`] counts.
    fn begin(&self, name: &str, total: Option<u64>) -> Box<dyn Step>;

    /// A line worth keeping (a point finished, a file fetched).
    fn note(&self, line: &str);

    /// Something the user should know although the work goes on.
    fn warn(&self, line: &str);
}

/// A running step. Dropping it without [`Step::finish`] means that it failed.
pub trait Step: Send {
    /// `done` of `total` is done; `message` is what is being worked on now.
    fn update(&self, done: u64, total: Option<u64>, message: &str);

    /// The `share` of the step's time that is over, as far as can be foretold; `message` says how much is left.
    fn foretold(&self, share: f64, message: &str);

    /// The step is done; `summary` is kept as a line when not empty.
    fn finish(self: Box<Self>, summary: &str);
}

/// Says nothing: for tests and quiet use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

struct SilentStep;

impl Progress for Silent {
    fn begin(&self, _name: &str, _total: Option<u64>) -> Box<dyn Step> {
        Box::new(SilentStep)
    }

    fn note(&self, _line: &str) {}

    fn warn(&self, _line: &str) {}
}

impl Step for SilentStep {
    fn update(&self, _done: u64, _total: Option<u64>, _message: &str) {}

    fn foretold(&self, _share: f64, _message: &str) {}

    fn finish(self: Box<Self>, _summary: &str) {}
}
