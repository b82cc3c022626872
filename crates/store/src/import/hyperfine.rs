//! What `hyperfine --export-json` writes.

use std::path::Path;

use serde::Deserialize;

use super::{Reading, Server};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;

/// What all commands of a document do, each in its own way.
pub(super) const WORKLOAD: &str = "command";

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

/// The commands of a document, each a server. Runs that failed are counted, and are no readings.
pub(super) fn read(text: &str, path: &Path) -> Result<Vec<Server>> {
    let document: Document = serde_json::from_str(text).map_err(|error| {
        let line = Some(error.line()).filter(|line| *line > 0);
        Error::usage(format!("not a document of hyperfine: {error}")).at(path, line)
    })?;
    let server = |benchmark: Benchmark| {
        let mut server = Server {
            name: benchmark.command,
            ..Server::default()
        };
        for (run, seconds) in benchmark.times.iter().enumerate() {
            let code = benchmark.exit_codes.get(run);
            if code.is_some_and(|code| *code != Some(0)) {
                server.failed += 1;
            } else if seconds.is_finite() && *seconds > 0.0 {
                server.readings.push(Reading {
                    workload: WORKLOAD.to_owned(),
                    meter: Meter::Time,
                    value: 1e9 * seconds,
                    n: 1,
                });
            } else {
                server.timeless += 1;
            }
        }
        server
    };
    Ok(document.results.into_iter().map(server).collect())
}
