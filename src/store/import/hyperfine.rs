//! What `hyperfine --export-json` writes.

use std::path::Path;

use serde::Deserialize;

use super::{Reading, Server};
use crate::error::{Error, Result};
use crate::observation::Meter;

#[derive(Deserialize)]
struct Document {
    results: Vec<Benchmark>,
}

#[derive(Deserialize)]
struct Benchmark {
    command: String,
    /// Seconds, one a run; missing from what `--export-json` of a failed benchmark leaves.
    #[serde(default)]
    times: Vec<f64>,
    #[serde(default)]
    exit_codes: Vec<Option<i32>>,
}

/// The commands of a document, each a server. Runs that failed are no readings.
pub(super) fn read(text: &str, path: &Path) -> Result<Vec<Server>> {
    let document: Document = serde_json::from_str(text).map_err(|error| {
        let line = Some(error.line()).filter(|line| *line > 0);
        Error::usage(format!("not a document of hyperfine: {error}")).at(path, line)
    })?;
    let server = |benchmark: Benchmark| {
        let failed = |run: usize| {
            let code = benchmark.exit_codes.get(run);
            code.is_some_and(|code| *code != Some(0))
        };
        let times = benchmark.times.iter().enumerate();
        let usable = times.filter(|(run, s)| !failed(*run) && s.is_finite() && **s > 0.0);
        Server {
            readings: usable
                .map(|(_, seconds)| Reading {
                    workload: "command".to_owned(),
                    meter: Meter::Time,
                    value: 1e9 * seconds,
                    n: 1,
                })
                .collect(),
            name: benchmark.command,
            point: None,
        }
    };
    Ok(document.results.into_iter().map(server).collect())
}
