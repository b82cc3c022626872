//! How many cases of a property put it to the test.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the cases of a property, and among them those that had something to compare.
///
/// A generator that makes nothing applicable would pass every comparison.
pub struct Share {
    cases: AtomicUsize,
    counted: AtomicUsize,
}

impl Share {
    pub const fn new() -> Share {
        Share {
            cases: AtomicUsize::new(0),
            counted: AtomicUsize::new(0),
        }
    }

    /// Notes a case and whether it had something to compare.
    pub fn count(&self, counts: bool) {
        self.cases.fetch_add(1, Ordering::Relaxed);
        self.counted
            .fetch_add(usize::from(counts), Ordering::Relaxed);
    }

    /// Fails when fewer than one case in `parts` had something to compare.
    pub fn is_at_least_one_in(&self, parts: usize) {
        let cases = self.cases.load(Ordering::Relaxed);
        let counted = self.counted.load(Ordering::Relaxed);
        assert!(
            cases > 0 && counted * parts >= cases,
            "only {counted} of {cases} cases had something to compare, not one in {parts}"
        );
    }
}
