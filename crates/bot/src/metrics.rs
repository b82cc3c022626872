//! The service's metrics in Prometheus' text format.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use perfquilt_store::queue::JobState;

/// How the service handled a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeliveryOutcome {
    Accepted,
    Duplicate,
    Ignored,
    Foreign,
    Forged,
    Malformed,
    Refused,
}

const ALL: [(DeliveryOutcome, &str); 7] = [
    (DeliveryOutcome::Accepted, "accepted"),
    (DeliveryOutcome::Duplicate, "duplicate"),
    (DeliveryOutcome::Ignored, "ignored"),
    (DeliveryOutcome::Foreign, "foreign"),
    (DeliveryOutcome::Forged, "forged"),
    (DeliveryOutcome::Malformed, "malformed"),
    (DeliveryOutcome::Refused, "refused"),
];

/// Upper bounds of the histogram's buckets, in milliseconds.
const BUCKETS: [u64; 8] = [1, 2, 5, 10, 20, 50, 100, 1000];

/// The counters.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    deliveries: [AtomicU64; ALL.len()],
    buckets: [AtomicU64; BUCKETS.len()],
    microseconds: AtomicU64,
}

impl Metrics {
    /// Counts a delivery and the time it took to answer.
    pub(super) fn delivery(&self, outcome: DeliveryOutcome, took: Duration) {
        if let Some(index) = ALL.iter().position(|(known, _)| *known == outcome) {
            self.deliveries[index].fetch_add(1, Ordering::Relaxed);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.microseconds.fetch_add(micros, Ordering::Relaxed);
        for (bucket, end) in self.buckets.iter().zip(BUCKETS) {
            if micros <= 1000 * end {
                bucket.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns all metrics as text, with the number of jobs per state.
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
        for (end, bucket) in BUCKETS.iter().zip(&self.buckets) {
            let seconds = *end as f64 / 1000.0;
            let _ = writeln!(
                text,
                "perfquilt_delivery_seconds_bucket{{le=\"{seconds}\"}} {}",
                read(bucket)
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
    fn counters_appear_in_the_text() {
        let metrics = Metrics::default();
        metrics.delivery(DeliveryOutcome::Accepted, Duration::from_millis(3));
        metrics.delivery(DeliveryOutcome::Forged, Duration::from_secs(2));
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
