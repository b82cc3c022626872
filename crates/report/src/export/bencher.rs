//! Formats of services that track results over time: Bencher and github-action-benchmark.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::number::significant;
use super::{json, one_line, point_words};
use perfquilt_judge::attribution::Attribution;
use perfquilt_model::error::Result;
use perfquilt_model::observation::Meter;

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
fn measure(meter: Meter) -> &'static str {
    match meter {
        Meter::Time => "latency",
        Meter::Cpu => "cpu-time",
        Meter::Instructions => "instructions",
        Meter::Cycles => "cycles",
        Meter::L1iMisses => "l1i-misses",
        Meter::BranchMisses => "branch-misses",
        Meter::FrontendBound => "frontend-bound",
    }
}

/// Returns the cost of a transaction at each point, by workload, in the Bencher Metric Format.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be written.
pub fn bencher(attribution: &Attribution) -> Result<String> {
    let mut benchmarks: BTreeMap<String, BTreeMap<&str, Metric>> = BTreeMap::new();
    for cost in &attribution.costs {
        let name = name(attribution, cost);
        let metric = Metric {
            value: cost.estimate,
            lower_value: cost.low,
            upper_value: cost.high,
        };
        let measures = benchmarks.entry(name).or_default();
        measures.insert(measure(cost.meter), metric);
    }
    json(&benchmarks)
}

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
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be written.
pub fn github_action_benchmark(attribution: &Attribution) -> Result<String> {
    let benchmark = |cost: &perfquilt_judge::attribution::TransactionCost| {
        let half = cost
            .low
            .zip(cost.high)
            .map(|(low, high)| (high - low) / 2.0);
        Benchmark {
            name: format!("{} ({})", name(attribution, cost), cost.meter),
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
    json(&benchmarks)
}

fn name(attribution: &Attribution, cost: &perfquilt_judge::attribution::TransactionCost) -> String {
    let point = point_words(attribution, cost.point);
    format!("{}/{}", one_line(&cost.workload), one_line(&point))
}
