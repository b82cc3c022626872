//! The Bencher Metric Format of the service Bencher.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{BenchmarkNames, ExportedReport, Exporter, indented_json};
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::error::Result;
use perfquilt_model::observation::Meter;

/// The cost of a transaction at each point, by workload, for Bencher.
pub(super) const BENCHER: Exporter = Exporter::new(
    "bmf",
    "Costs of all points in the Bencher Metric Format",
    |data| bencher(data.attribution),
);

/// A measure of the Bencher Metric Format.
#[derive(Serialize)]
struct Metric {
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lower_value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upper_value: Option<f64>,
}

/// Returns the name of a measure; `latency` is predefined by Bencher, in nanoseconds.
fn measure(meter: Meter) -> String {
    match meter {
        Meter::Time => "latency".to_owned(),
        Meter::Cpu => "cpu-time".to_owned(),
        Meter::Rss => "peak-rss".to_owned(),
        meter => meter.name().replace('_', "-"),
    }
}

/// Returns the cost of a transaction at each point, by workload, in the Bencher Metric Format.
pub(super) fn bencher(attribution: &Attribution) -> Result<ExportedReport> {
    let names = BenchmarkNames::new(attribution);
    let mut benchmarks: BTreeMap<String, BTreeMap<String, Metric>> = BTreeMap::new();
    for cost in &attribution.costs {
        let name = names.get(cost).to_owned();
        let metric = Metric {
            value: cost.estimate,
            lower_value: cost.low,
            upper_value: cost.high,
        };
        let measures = benchmarks.entry(name).or_default();
        measures.insert(measure(cost.meter), metric);
    }
    Ok(ExportedReport {
        notes: names.notes,
        ..indented_json(&benchmarks)?.into()
    })
}
