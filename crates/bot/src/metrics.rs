//! The service's metrics in the OpenMetrics text format, which Prometheus reads.

use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use perfquilt_model::error::{Error, Result};
use perfquilt_store::queue::JobState;

/// The content type of [`Metrics::text`].
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How the service handled a delivery: the value of the label `result`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeliveryOutcome(&'static str);

impl DeliveryOutcome {
    pub(super) const ACCEPTED: Self = Self("accepted");
    pub(super) const DUPLICATE: Self = Self("duplicate");
    pub(super) const IGNORED: Self = Self("ignored");
    pub(super) const FOREIGN: Self = Self("foreign");
    pub(super) const FORGED: Self = Self("forged");
    pub(super) const MALFORMED: Self = Self("malformed");
    pub(super) const REFUSED: Self = Self("refused");
    const ALL: [Self; 7] = [
        Self::ACCEPTED,
        Self::DUPLICATE,
        Self::IGNORED,
        Self::FOREIGN,
        Self::FORGED,
        Self::MALFORMED,
        Self::REFUSED,
    ];
}

/// Upper bounds of the histogram's buckets, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 1.0];

/// A label's name and value.
type Label = [(&'static str, &'static str); 1];

/// The metrics, which several threads may update and encode at a time.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    deliveries: Family<Label, Counter>,
    seconds: Histogram,
    jobs: Family<Label, Gauge>,
}

impl Metrics {
    /// Returns the metrics of a service that has received nothing.
    pub(super) fn new() -> Self {
        let deliveries = Family::<Label, Counter>::default();
        for outcome in DeliveryOutcome::ALL {
            // A counter that appears with its first event lacks the increase from 0.
            let _ = deliveries.get_or_create(&[("result", outcome.0)]);
        }
        let seconds = Histogram::new(BUCKETS);
        let jobs = Family::<Label, Gauge>::default();
        let mut registry = Registry::default();
        // The encoder adds `_total` to a counter's name and a full stop to each description.
        registry.register(
            "perfquilt_deliveries",
            "Webhook deliveries by result",
            deliveries.clone(),
        );
        registry.register(
            "perfquilt_delivery_seconds",
            "Time until a delivery was answered",
            seconds.clone(),
        );
        registry.register("perfquilt_jobs", "Jobs by state", jobs.clone());
        Metrics {
            registry,
            deliveries,
            seconds,
            jobs,
        }
    }

    /// Counts a delivery and the time it took to answer.
    pub(super) fn delivery(&self, outcome: DeliveryOutcome, took: Duration) {
        self.deliveries
            .get_or_create(&[("result", outcome.0)])
            .inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// Returns all metrics as text, with the number of jobs in every state.
    pub(super) fn text(&self, jobs: &[(JobState, u64)]) -> Result<String> {
        for (state, count) in jobs {
            self.jobs
                .get_or_create(&[("state", state.name())])
                .set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)
            .map_err(|_| Error::internal("the metrics cannot be encoded"))?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_appear_in_the_text() {
        let metrics = Metrics::new();
        metrics.delivery(DeliveryOutcome::ACCEPTED, Duration::from_millis(3));
        metrics.delivery(DeliveryOutcome::FORGED, Duration::from_secs(2));
        let text = metrics.text(&[(JobState::Waiting, 4)]).unwrap();
        for line in [
            "perfquilt_deliveries_total{result=\"accepted\"} 1",
            "perfquilt_deliveries_total{result=\"forged\"} 1",
            "perfquilt_deliveries_total{result=\"refused\"} 0",
            "perfquilt_delivery_seconds_bucket{le=\"0.002\"} 0",
            "perfquilt_delivery_seconds_bucket{le=\"0.005\"} 1",
            "perfquilt_delivery_seconds_bucket{le=\"1.0\"} 1",
            "perfquilt_delivery_seconds_bucket{le=\"+Inf\"} 2",
            "perfquilt_delivery_seconds_sum 2.003",
            "perfquilt_delivery_seconds_count 2",
            "perfquilt_jobs{state=\"waiting\"} 4",
            "# TYPE perfquilt_deliveries counter",
            "# TYPE perfquilt_delivery_seconds histogram",
            "# TYPE perfquilt_jobs gauge",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(text.ends_with("\n# EOF\n"), "{text}");
    }
}
