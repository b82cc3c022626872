//! What services that keep results over time read: Bencher, and github-action-benchmark.

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

/// The name of a measure; `latency` is Bencher's own, in nanoseconds.
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

/// The cost of a transaction at each point, by workload, as Bencher Metric Format.
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

/// An entry of github-action-benchmark's tool `customSmallerIsBetter`.
#[derive(Serialize)]
struct Entry {
    name: String,
    unit: &'static str,
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    extra: String,
}

/// The cost of a transaction at each point, by workload and meter, for github-action-benchmark's tool
/// `customSmallerIsBetter`.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be written.
pub fn github_action_benchmark(attribution: &Attribution) -> Result<String> {
    let entry = |cost: &perfquilt_judge::attribution::Cost| {
        let half = cost
            .low
            .zip(cost.high)
            .map(|(low, high)| (high - low) / 2.0);
        Entry {
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
    let entries: Vec<Entry> = attribution.costs.iter().map(entry).collect();
    json(&entries)
}

fn name(attribution: &Attribution, cost: &perfquilt_judge::attribution::Cost) -> String {
    let point = point_words(attribution, cost.point);
    format!("{}/{}", one_line(&cost.workload), one_line(&point))
}
