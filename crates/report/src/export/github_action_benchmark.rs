//! The input of github-action-benchmark's tool `customSmallerIsBetter`.

use serde::Serialize;

use super::{BenchmarkNames, ExportedReport, Exporter, indented_json, one_line};
use crate::number::significant;
use perfquilt_judge::attribution::{Attribution, TransactionCost};
use perfquilt_model::error::Result;

/// The cost of a transaction at each point, by workload and meter, for github-action-benchmark.
pub(super) const GITHUB_ACTION_BENCHMARK: Exporter = Exporter::new(
    "github-action-benchmark",
    "Costs for github-action-benchmark's tool `customSmallerIsBetter`",
    |data| github_action_benchmark(data.attribution),
);

/// A benchmark of github-action-benchmark's tool `customSmallerIsBetter`.
#[derive(Serialize)]
struct Benchmark {
    name: String,
    unit: &'static str,
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    extra: String,
}

/// Returns the cost of a transaction at each point, by workload and meter, for github-action-benchmark's tool
/// `customSmallerIsBetter`.
pub(super) fn github_action_benchmark(attribution: &Attribution) -> Result<ExportedReport> {
    let names = BenchmarkNames::new(attribution);
    let benchmark = |cost: &TransactionCost| {
        let half = cost
            .low
            .zip(cost.high)
            .map(|(low, high)| (high - low) / 2.0);
        Benchmark {
            name: format!("{} ({})", names.get(cost), cost.meter),
            unit: cost.meter.unit(),
            value: cost.estimate,
            range: half.map(|half| format!("± {}", significant(half))),
            extra: format!(
                "experiment {}, {} blocks",
                one_line(&attribution.experiment),
                cost.blocks
            ),
        }
    };
    let benchmarks: Vec<Benchmark> = attribution.costs.iter().map(benchmark).collect();
    Ok(ExportedReport {
        notes: names.notes,
        ..indented_json(&benchmarks)?.into()
    })
}
