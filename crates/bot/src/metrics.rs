//! What the service counts, in the form that Prometheus reads.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perfquilt_store::queue::JobState;

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    Accepted,
    Duplicate,
    Ignored,
    Foreign,
    Forged,
    Malformed,
    Refused,
}

const ALL: [(Received, &str); 7] = [
    (Received::Accepted, "accepted"),
    (Received::Duplicate, "duplicate"),
    (Received::Ignored, "ignored"),
    (Received::Foreign, "foreign"),
    (Received::Forged, "forged"),
    (Received::Malformed, "malformed"),
    (Received::Refused, "refused"),
];

/// Upper ends of the histogram's classes, in milliseconds.
const CLASSES: [u64; 8] = [1, 2, 5, 10, 20, 50, 100, 1000];

/// The counters.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    deliveries: [AtomicU64; ALL.len()],
    classes: [AtomicU64; CLASSES.len()],
    microseconds: AtomicU64,
}

impl Metrics {
    /// Counts a delivery that was answered after this long.
    pub(super) fn delivery(&self, received: Received, took: Duration) {
        if let Some(place) = ALL.iter().position(|(known, _)| *known == received) {
            self.deliveries[place].fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.microseconds.fetch_add(micros, Ordering::Relaxed);
        for (class, end) in self.classes.iter().zip(CLASSES) {
            if micros <= 1000 * end {
                class.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// All of it, with how many jobs are in which state.
    pub(super) fn text(&self, jobs: &[(JobState, u64)]) -> String {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut text = String::from(
            "# HELP perfquilt_deliveries_total Webhook deliveries by what became of them.\n\
             # TYPE perfquilt_deliveries_total counter\n",
        );
        for ((_, name), counter) in ALL.iter().zip(&self.deliveries) {
            let _ = writeln!(
                text,
                "perfquilt_deliveries_total{{result=\"{name}\"}} {}",
                read(counter)
            );
        }
        text.push_str(
            "# HELP perfquilt_delivery_seconds Time until a delivery was answered.\n\
             # TYPE perfquilt_delivery_seconds histogram\n",
        );
        for (end, class) in CLASSES.iter().zip(&self.classes) {
            let seconds = *end as f64 / 1000.0;
            let _ = writeln!(
                text,
                "perfquilt_delivery_seconds_bucket{{le=\"{seconds}\"}} {}",
                read(class)
            );
        }
        let count: u64 = self.deliveries.iter().map(read).sum();
        let seconds = read(&self.microseconds) as f64 / 1e6;
        let _ = writeln!(
            text,
            "perfquilt_delivery_seconds_bucket{{le=\"+Inf\"}} {count}"
        );
        let _ = writeln!(text, "perfquilt_delivery_seconds_sum {seconds}");
        let _ = writeln!(text, "perfquilt_delivery_seconds_count {count}");
        text.push_str(
            "# HELP perfquilt_jobs Jobs by state.\n\
             # TYPE perfquilt_jobs gauge\n",
        );
        for (state, count) in jobs {
            let _ = writeln!(text, "perfquilt_jobs{{state=\"{}\"}} {count}", state.name());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_shown() {
        let metrics = Metrics::default();
        metrics.delivery(Received::Accepted, Duration::from_millis(3));
        metrics.delivery(Received::Forged, Duration::from_secs(2));
        let text = metrics.text(&[(JobState::Waiting, 4)]);
        for line in [
            "perfquilt_deliveries_total{result=\"accepted\"} 1",
            "perfquilt_deliveries_total{result=\"forged\"} 1",
            "perfquilt_delivery_seconds_bucket{le=\"0.002\"} 0",
            "perfquilt_delivery_seconds_bucket{le=\"0.005\"} 1",
            "perfquilt_delivery_seconds_bucket{le=\"+Inf\"} 2",
            "perfquilt_delivery_seconds_sum 2.003",
            "perfquilt_jobs{state=\"waiting\"} 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
