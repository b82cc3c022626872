//! The time that a server gets for a start.

use std::time::Duration;

use super::Instrumentation;

/// Factor by which valgrind slows down a start.
const VALGRIND_SLOWDOWN: f64 = 8.0;

/// Whether a server that was not ready within `timeout` may start with `start_seconds`, because it has another timeout
/// then, plain or under callgrind.
pub fn may_start_with(start_seconds: f64, timeout: Duration) -> bool {
    let same = |slowdown: f64| {
        let now = duration(start_seconds * slowdown);
        now.abs_diff(timeout) < Duration::from_millis(1)
    };
    !same(1.0) && !same(VALGRIND_SLOWDOWN)
}

/// Returns the time in which a server with `start_seconds` must become ready.
pub(super) fn start_timeout(start_seconds: f64, instrumentation: &Instrumentation) -> Duration {
    duration(match instrumentation {
        Instrumentation::Plain => start_seconds,
        Instrumentation::Callgrind { .. } | Instrumentation::Traced { .. } => {
            start_seconds * VALGRIND_SLOWDOWN
        }
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
    fn only_another_timeout_may_pass() {
        let timeout = Duration::from_secs(20);
        assert!(may_start_with(30.0, timeout));
        assert!(!may_start_with(20.0, timeout));
        // Under callgrind a start has eight times as long.
        assert!(!may_start_with(2.5, timeout));
    }
}
