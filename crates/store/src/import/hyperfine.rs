//! The output of `hyperfine --export-json`.

use std::path::Path;

use serde::Deserialize;

use super::{ImportedServer, ImportedValue};
use crate::file_error::without_type_names;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;

/// The workload that all commands of a document share.
pub(super) const WORKLOAD: &str = "command";

#[derive(Deserialize)]
struct Document {
    results: Vec<Benchmark>,
}

#[derive(Deserialize)]
struct Benchmark {
    command: String,
    /// Seconds, one per run; missing if a benchmark failed.
    #[serde(default)]
    times: Vec<f64>,
    #[serde(default)]
    exit_codes: Vec<Option<i32>>,
}

/// Reads the commands of a document, each as a server. Failed runs are counted and give no values.
pub(super) fn read(text: &str, path: &Path) -> Result<Vec<ImportedServer>> {
    let document: Document = serde_json::from_str(text).map_err(|error| {
        let line = Some(error.line()).filter(|line| *line > 0);
        let fault = without_type_names(&error.to_string());
        Error::usage(format!("not a document of hyperfine: {fault}")).at(path, line)
    })?;
    let server = |benchmark: Benchmark| {
        let mut server = ImportedServer {
            name: benchmark.command,
            ..ImportedServer::default()
        };
        for (run, seconds) in benchmark.times.iter().enumerate() {
            let code = benchmark.exit_codes.get(run);
            if code.is_some_and(|code| *code != Some(0)) {
                server.failed += 1;
            } else if seconds.is_finite() && *seconds > 0.0 {
                server.readings.push(ImportedValue {
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
