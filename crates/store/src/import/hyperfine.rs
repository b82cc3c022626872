//! The output of `hyperfine --export-json`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::{Exclusion, Imported, ImportedServer, ImportedValue, InputText, at};
use crate::file_error::without_type_names;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;

/// The workload that all commands of a document share.
const WORKLOAD: &str = "command";

#[derive(Deserialize)]
struct Document {
    results: Vec<Benchmark>,
}

#[derive(Deserialize)]
struct Benchmark {
    command: String,
    /// Seconds, one per run; missing if a benchmark failed.
    #[serde(default)]
    times: Option<Vec<Option<f64>>>,
    /// `null` for a run that a signal ended.
    #[serde(default)]
    exit_codes: Option<Vec<Option<i32>>>,
    #[serde(default)]
    parameters: BTreeMap<String, serde_json::Value>,
}

/// Reads the commands of documents, each as a server. Failed runs are counted and give no values.
pub(super) fn read(inputs: &[InputText]) -> Result<Imported> {
    let files = inputs.iter().map(|input| servers(&input.text, &input.path));
    Ok(Imported {
        files: files.collect::<Result<_>>()?,
        ..Imported::default()
    })
}

fn servers(text: &str, path: &Path) -> Result<Vec<ImportedServer>> {
    let document: Document = serde_json::from_str(text).map_err(|error| {
        let line = Some(error.line()).filter(|line| *line > 0);
        let fault = without_type_names(&error.to_string());
        Error::usage(format!("not a document of hyperfine: {fault}"))
            .at(path, line)
            .hint("`hyperfine --export-json FILE COMMAND…` writes such a document")
    })?;
    let servers = document
        .results
        .into_iter()
        .map(|of| server(of, text, path));
    servers.collect()
}

fn server(benchmark: Benchmark, text: &str, path: &Path) -> Result<ImportedServer> {
    let parameters = benchmark.parameters.iter();
    let parameters: Vec<String> = parameters
        .map(|(name, value)| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            format!("{name}={text}")
        })
        .collect();
    let mut server = ImportedServer {
        name: benchmark.command,
        variant: parameters.join(", "),
        ..ImportedServer::default()
    };
    let times = benchmark.times.unwrap_or_default();
    let codes = benchmark.exit_codes.unwrap_or_default();
    if !codes.is_empty() && codes.len() != times.len() {
        let (times, codes) = (times.len(), codes.len());
        let quoted = serde_json::to_string(&server.name).unwrap_or_default();
        let line = text.lines().position(|line| line.contains(&quoted));
        let fault = format!("{quoted} has {times} times and {codes} exit codes");
        return Err(at(path, line.unwrap_or(0), fault));
    }
    if times.is_empty() {
        server.exclude(WORKLOAD, Exclusion::Timeless);
    }
    for (run, seconds) in times.into_iter().enumerate() {
        if codes.get(run).is_some_and(|code| *code != Some(0)) {
            server.exclude(WORKLOAD, Exclusion::ExitCode);
        } else if let Some(seconds) = seconds.filter(|s| s.is_finite() && *s > 0.0) {
            server.readings.push(ImportedValue {
                workload: WORKLOAD.to_owned(),
                meter: Meter::Time,
                value: 1e9 * seconds,
                n: 1,
            });
        } else {
            server.exclude(WORKLOAD, Exclusion::Timeless);
        }
    }
    Ok(server)
}
