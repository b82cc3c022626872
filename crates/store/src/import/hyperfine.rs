//! The output of `hyperfine --export-json`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::{Exclusion, Imported, ImportedServer, ImportedValue, Importer, InputText, at};
use crate::file_error::without_type_names;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::names::numbered;
use perfquilt_model::observation::Meter;

/// Output of `hyperfine --export-json`; one command per server, in one or more files.
pub(super) const IMPORTER: Importer = Importer {
    name: "a document of hyperfine",
    has_keys: |keys| {
        keys.iter().any(|key| key == "results") && !keys.iter().any(|key| key == "experiment")
    },
    has_line: |_| false,
    read,
};

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
    times: Option<Vec<Option<f64>>>,
    /// `null` for a run that a signal ended.
    exit_codes: Option<Vec<Option<i32>>>,
    #[serde(default)]
    parameters: BTreeMap<String, serde_json::Value>,
}

/// Reads the commands of documents, each as a server, or as a workload of its document's server where documents have the same
/// commands. Failed runs are counted and give no values.
fn read(inputs: &[InputText]) -> Result<Imported> {
    let files = inputs.iter().map(|input| servers(&input.text, &input.path));
    let files: Vec<Vec<ImportedServer>> = files.collect::<Result<_>>()?;
    Ok(Imported {
        files: if are_namesakes(&files) {
            files
                .into_iter()
                .map(|commands| vec![by_command(commands)])
                .collect()
        } else {
            files
        },
        ..Imported::default()
    })
}

/// Returns whether a document of several commands and another one have a command in common: they are two runs, and each
/// command is compared with its namesake.
fn are_namesakes(files: &[Vec<ImportedServer>]) -> bool {
    let Some((first, others)) = files.split_first() else {
        return false;
    };
    let is_in_first = |other: &ImportedServer| {
        let same =
            |own: &ImportedServer| (&own.name, &own.variant) == (&other.name, &other.variant);
        first.iter().any(same)
    };
    files.iter().any(|file| file.len() > 1) && others.iter().flatten().any(is_in_first)
}

/// Joins the commands of a document, each as a workload of one server.
fn by_command(commands: Vec<ImportedServer>) -> ImportedServer {
    let mut joined = ImportedServer::default();
    let named = commands.into_iter().map(|command| {
        let words = [command.name.as_str(), command.variant.as_str()];
        let name = words.into_iter().filter(|words| !words.is_empty());
        let name = name.collect::<Vec<_>>().join(", ");
        // A slash separates an operation from its workload, which has a name.
        let name = name.trim_matches([' ', '/']).to_owned();
        (
            if name.is_empty() {
                WORKLOAD.to_owned()
            } else {
                name
            },
            command,
        )
    });
    let named: Vec<(String, ImportedServer)> = named.collect();
    for (place, (name, command)) in named.iter().enumerate() {
        let earlier = named[..place].iter().filter(|(other, _)| other == name);
        let workload = match earlier.count() {
            0 => name.clone(),
            before => numbered(name, before + 1),
        };
        let readings = command.readings.iter().cloned();
        joined
            .readings
            .extend(readings.map(|reading| ImportedValue {
                workload: workload.clone(),
                ..reading
            }));
        for ((_, why), count) in &command.excluded {
            *joined.excluded.entry((workload.clone(), *why)).or_default() += count;
        }
    }
    joined
}

fn servers(text: &str, path: &Path) -> Result<Vec<ImportedServer>> {
    let document: Document = serde_json::from_str(text).map_err(|error| {
        let line = Some(error.line()).filter(|line| *line > 0);
        let fault = without_type_names(&error.to_string());
        Error::foreign_results(format!("not a document of hyperfine: {fault}"))
            .at(path, line)
            .hint("`hyperfine --export-json FILE COMMAND…` writes such a document")
    })?;
    let servers = document
        .results
        .into_iter()
        .map(|benchmark| server(benchmark, text, path));
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
