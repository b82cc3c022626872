//! The Go benchmark format (golang.org/design/14313-benchmark-format), which `benchstat` reads.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{ExportedReport, Exporter, ReportData, RequiredInput, one_line};
use perfquilt_model::error::Result;
use perfquilt_model::observation::{ExperimentHeader, Meter, Observation, RowName};

/// Every used observation as a benchmark result.
pub(super) struct GoBenchmark;

impl Exporter for GoBenchmark {
    fn name(&self) -> &'static str {
        "gobench"
    }

    fn help(&self) -> &'static str {
        "Raw observations in Go's benchmark format, for `benchstat -col /point`"
    }

    fn required_input(&self) -> RequiredInput {
        RequiredInput::Observations
    }

    fn export(&self, data: &ReportData<'_>) -> Result<ExportedReport> {
        let file = data.observations()?;
        Ok(go_benchmark(&file.header, &file.observations).into())
    }
}

/// Returns every used observation as a benchmark result, in which an operation is a transaction:
/// `BenchmarkServer/workload=W/point=K N VALUE ns/op`, with `/operation=O` after the workload for a part of it.
///
/// `benchstat -col /point` compares the points; it knows nothing of blocks, so its intervals are wider than this
/// program's. Reused observations follow under the name of their own experiment, which `benchstat` separates. Stale
/// observations are left out, as are those of points that failed or have the binary of another point.
pub(super) fn go_benchmark(header: &ExperimentHeader, observations: &[Observation]) -> String {
    let mut text = String::new();
    let facts = [
        ("release", &header.release),
        ("recipe", &header.recipe),
        ("experiment", &header.experiment),
        ("harness", &header.harness),
    ];
    for (key, value) in facts.iter().filter(|(_, value)| !value.trim().is_empty()) {
        let _ = writeln!(text, "{key}: {}", one_line(value).trim());
    }
    for (place, patch) in header.series.iter().enumerate() {
        let _ = writeln!(text, "patch-{}: {}", place + 1, one_line(patch).trim());
    }
    for meter in Meter::ALL {
        let _ = writeln!(text, "Unit {} better=lower", meter.go_unit());
    }
    // benchstat orders columns by first appearance, and compares with the first one.
    let carried = |observation: &Observation| {
        let mut origins = header.reused.iter();
        origins.position(|origin| origin.experiment == observation.experiment)
    };
    let mut rows: Vec<(Option<usize>, &Observation)> = observations
        .iter()
        .filter(|observation| !observation.direct)
        .filter(|of| !header.failed.contains_key(&of.point))
        .filter(|of| header.server_of(of.point) == of.point)
        .map(|observation| (carried(observation), observation))
        .filter(|(place, _)| place.is_none_or(|place| header.reused[place].stale.is_none()))
        .collect();
    rows.sort_by_key(|(place, observation)| (*place, observation.point));
    let all = observations.iter();
    let workloads: BTreeSet<(Meter, &str)> = all.map(|of| (of.meter, &*of.workload)).collect();
    let mut current = None;
    for (place, observation) in rows {
        if place != current {
            let _ = writeln!(
                text,
                "experiment: {}",
                one_line(&observation.experiment).trim()
            );
            current = place;
        }
        let name = RowName::from(&*observation.workload);
        let workload = match name.operation {
            Some(operation) if workloads.contains(&(observation.meter, name.workload)) => {
                format!("{}/operation={}", word(name.workload), word(operation))
            }
            _ => word(&observation.workload),
        };
        let _ = writeln!(
            text,
            "BenchmarkServer/workload={workload}/point={} {} {} {}",
            observation.point,
            observation.n,
            observation.value,
            observation.meter.go_unit()
        );
    }
    text
}

/// Returns a name as a part of a benchmark's name, without blanks and separators.
fn word(name: &str) -> String {
    let plain = |c: char| match c {
        c if c.is_whitespace() || c.is_control() || c == '/' => '_',
        c => c,
    };
    name.chars().map(plain).collect()
}
