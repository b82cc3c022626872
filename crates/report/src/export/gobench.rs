//! The Go benchmark format (golang.org/design/14313-benchmark-format), which `benchstat` reads.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{ExportedReport, Exporter, RequiredInput, UniqueNames, one_line};
use crate::text::is_deceptive;
use perfquilt_model::observation::{ExperimentHeader, Meter, Observation, RowName};

/// Every used observation as a benchmark result.
pub(super) const GO_BENCHMARK: Exporter = Exporter::new(
    "gobench",
    "Raw observations in Go's benchmark format, for `benchstat -col /point`",
    |data| {
        let file = data.observations()?;
        Ok(go_benchmark(&file.header, &file.observations))
    },
)
.with_input(RequiredInput::Observations);

/// Returns every used observation as a benchmark result, in which an operation is a transaction:
/// `BenchmarkServer/workload=W/point=K N VALUE ns/op`, with `/operation=O` after the workload for a part of it.
///
/// `benchstat -col /point` compares the points; it knows nothing of blocks, so its intervals are wider than this
/// program's. Reused observations follow under the name of their own experiment, which `benchstat` separates. Stale
/// observations are left out, as are those of points that failed or have the binary of another point.
pub(super) fn go_benchmark(
    header: &ExperimentHeader,
    observations: &[Observation],
) -> ExportedReport {
    let mut text = String::new();
    let noun = header.base.as_ref().map_or("patch", |_| "server");
    let facts = [
        ("release", Some(&header.release)),
        ("recipe", Some(&header.recipe)),
        ("experiment", Some(&header.experiment)),
        ("harness", Some(&header.harness)),
        ("base", header.base.as_ref()),
    ];
    for (key, value) in facts {
        if let Some(value) = value.filter(|value| !value.trim().is_empty()) {
            let _ = writeln!(text, "{key}: {}", one_line(value).trim());
        }
    }
    for (place, name) in header.series.iter().enumerate() {
        let _ = writeln!(text, "{noun}-{}: {}", place + 1, one_line(name).trim());
    }
    let names = workload_names(observations);
    let renamed = names.texts.iter().filter(|(name, word)| name != word);
    for (place, (name, word)) in renamed.enumerate() {
        let _ = writeln!(text, "workload-{}: {word} {}", place + 1, json(name));
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
        let workload = names.get(&observation.workload);
        let _ = writeln!(
            text,
            "BenchmarkServer/workload={workload}/point={} {} {} {}",
            observation.point,
            observation.n,
            observation.value,
            observation.meter.go_unit()
        );
    }
    names.on(text)
}

/// Returns the words that stand for workloads in benchmarks' names, with `/operation=O` for a part of one.
fn workload_names(observations: &[Observation]) -> UniqueNames<'_> {
    let all = observations.iter();
    let workloads: BTreeSet<(Meter, &str)> = all.map(|of| (of.meter, &*of.workload)).collect();
    let word_of = |stored: &str| {
        let name = RowName::from(stored);
        let is_workload = |meter: Meter| workloads.contains(&(meter, name.workload));
        match name.operation {
            Some(operation) if Meter::ALL.into_iter().any(is_workload) => {
                format!("{}/operation={}", word(name.workload), word(operation))
            }
            _ => word(stored),
        }
    };
    let stored = workloads.iter().map(|(_, name)| *name);
    UniqueNames::numbered(stored, &word_of, |word, number| format!("{word}#{number}"))
}

/// Returns a name in quotation marks, with escapes for all characters that are invisible or end a line.
fn json(name: &str) -> String {
    let quoted = serde_json::to_string(name).unwrap_or_default();
    let mut text = String::new();
    for c in quoted.chars() {
        if c.is_control() || is_deceptive(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    text
}

/// Returns a name as a part of a benchmark's name, without blanks and separators.
fn word(name: &str) -> String {
    name.replace(
        |c: char| c.is_whitespace() || c.is_control() || c == '/',
        "_",
    )
}
