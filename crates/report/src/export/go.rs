//! The Go benchmark format (golang.org/design/14313-benchmark-format), which `benchstat` reads.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::one_line;
use perfquilt_model::observation::{ExperimentHeader, Meter, Observation};

/// Every observation in use as a benchmark's result, an operation being a transaction:
/// `BenchmarkServer/workload=W/point=K N VALUE ns/op`, with `/operation=O` behind the workload where it is of a
/// part of it. `benchstat -col /point` compares the points; it knows nothing of blocks, so its intervals are wider
/// than this program's. What was carried over follows under its own experiment's name, which `benchstat` tells
/// apart; what is stale is left out, and what was seen of points that failed or are the binary of others.
pub fn go_benchmark(header: &ExperimentHeader, observations: &[Observation]) -> String {
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
    // benchstat's columns are in the order of first appearance, and the first one is what it compares with.
    let carried = |observation: &Observation| {
        let mut origins = header.carried.iter();
        origins.position(|origin| origin.experiment == observation.experiment)
    };
    let mut rows: Vec<(Option<usize>, &Observation)> = observations
        .iter()
        .filter(|observation| !observation.direct)
        .filter(|of| !header.failed.contains_key(&of.point))
        .filter(|of| header.server_of(of.point) == of.point)
        .map(|observation| (carried(observation), observation))
        .filter(|(place, _)| place.is_none_or(|place| header.carried[place].stale.is_none()))
        .collect();
    rows.sort_by_key(|(place, observation)| (*place, observation.point));
    let all = observations.iter();
    let workloads: BTreeSet<(Meter, &str)> = all.map(|of| (of.meter, &*of.workload)).collect();
    let mut told = None;
    for (place, observation) in rows {
        if place != told {
            let _ = writeln!(
                text,
                "experiment: {}",
                one_line(&observation.experiment).trim()
            );
            told = place;
        }
        let workload = match observation.workload.split_once('/') {
            Some((whole, part)) if workloads.contains(&(observation.meter, whole)) => {
                format!("{}/operation={}", word(whole), word(part))
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

/// A name as a part of a benchmark's name: without blanks and what parts names.
fn word(name: &str) -> String {
    let plain = |c: char| match c {
        c if c.is_whitespace() || c.is_control() || c == '/' => '_',
        c => c,
    };
    name.chars().map(plain).collect()
}
