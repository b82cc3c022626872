//! Reasons why a server fails to start, and the time it gets for a start.

use std::fmt;
use std::process::ExitStatus;
use std::time::Duration;

use super::Instrumentation;
use perfquilt_system::process::describe_exit;

/// Factor by which valgrind slows down a start.
const VALGRIND_SLOWDOWN: f64 = 8.0;
/// Words between the server and the time in the sentence of [`StartFailure::NotReady`].
const NOT_READY: &str = "was not ready within ";

/// Why a server did not become ready.
///
/// An experiment stores the reason of a failed point as a sentence; [`StartFailure::of_reason`] reads it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFailure {
    /// The process ended before it accepted connections.
    Ended(ExitStatus),
    /// The server did not accept connections in time.
    NotReady {
        /// The time it had, rounded to seconds.
        seconds: u64,
    },
}

impl StartFailure {
    /// The failure to become ready within `timeout`.
    pub(super) fn not_ready(timeout: Duration) -> Self {
        StartFailure::NotReady {
            seconds: timeout.as_secs_f64().round() as u64,
        }
    }

    /// Returns the timeout in the stored `reason` of a failed point; `None` if the point failed for another reason.
    pub fn of_reason(reason: &str) -> Option<Self> {
        let (_, time) = reason.rsplit_once(NOT_READY)?;
        let seconds = time.strip_suffix(" s")?.parse().ok()?;
        Some(StartFailure::NotReady { seconds })
    }

    /// Whether a new start with `start_seconds` may succeed because it has another timeout, plain or under callgrind.
    pub fn may_pass_with(self, start_seconds: f64) -> bool {
        let same = |slowdown: f64| self == Self::not_ready(duration(start_seconds * slowdown));
        matches!(self, StartFailure::NotReady { .. }) && !same(1.0) && !same(VALGRIND_SLOWDOWN)
    }
}

impl fmt::Display for StartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartFailure::Ended(status) => write!(f, "{} at start", describe_exit(*status)),
            StartFailure::NotReady { seconds } => write!(f, "{NOT_READY}{seconds} s"),
        }
    }
}

/// Returns the time in which a server with `start_seconds` must become ready.
pub(super) fn start_timeout(start_seconds: f64, instrumentation: &Instrumentation) -> Duration {
    duration(match instrumentation {
        Instrumentation::Plain => start_seconds,
        Instrumentation::Callgrind { .. } => start_seconds * VALGRIND_SLOWDOWN,
    })
}

/// Converts seconds of the configuration to a duration, clamped to 0.1 s to a day.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.clamp(0.1, 86_400.0)).unwrap_or(Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_read_back_from_the_stored_reason() {
        let failure = StartFailure::not_ready(Duration::from_secs(20));
        let reason = format!("server of 2 (x.patch) {failure}");
        assert_eq!(reason, "server of 2 (x.patch) was not ready within 20 s");
        assert_eq!(StartFailure::of_reason(&reason), Some(failure));
        let other = "server of 2 (x.patch) exited with 1 at start";
        assert_eq!(StartFailure::of_reason(other), None);
    }

    #[test]
    fn only_another_timeout_may_pass() {
        let failure = StartFailure::not_ready(Duration::from_secs(20));
        assert!(failure.may_pass_with(30.0));
        assert!(!failure.may_pass_with(20.0));
        // Under callgrind a start has eight times as long.
        assert!(!failure.may_pass_with(2.5));
        let ended = StartFailure::Ended(ExitStatus::default());
        assert!(!ended.may_pass_with(30.0));
    }
}
