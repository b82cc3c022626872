//! Import of other tools' results as observations.
//!
//! These tools have no blocks: the i-th readings of a server, one per workload, become a block that no other
//! server shares, so points are compared like runs that were not interleaved (docs/statistics.md).

mod go;
mod hyperfine;
mod sysbench;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use super::file_error::unreadable;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{
    ExcludedReadings, ExperimentHeader, MOST_PATCHES, Meter, Observation, ObservationFile,
    ReusedFrom, SCHEMA, Supplement,
};
use perfquilt_model::point::Point;

/// A format of other tools' results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Output of `sysbench … run`; one file per server, with one or more runs.
    Sysbench,
    /// Output of `hyperfine --export-json`; one command per server, in one or more files.
    Hyperfine,
    /// Output of `go test -bench` and `perfquilt report --format gobench`; one file per server unless names
    /// contain `/point=`.
    GoBenchmark,
}

impl Form {
    /// Returns the name of such a file, with its article.
    pub fn name(self) -> &'static str {
        match self {
            Form::Sysbench => "output of sysbench",
            Form::Hyperfine => "a document of hyperfine",
            Form::GoBenchmark => "output of Go benchmarks",
        }
    }
}

/// The largest file that is read, in bytes.
const LARGEST: u64 = 256 << 20;

/// Detects the format of a file that begins with `head`; `None` if it is unknown.
pub fn detect(head: &[u8]) -> Option<Form> {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.lines().map(str::trim_end);
    let first = head.trim_start();
    if first.starts_with('{') {
        let start = first.trim_start_matches('{').trim_start();
        return start.starts_with("\"results\"").then_some(Form::Hyperfine);
    }
    if lines.clone().any(sysbench::is_head) {
        return Some(Form::Sysbench);
    }
    lines.any(go::is_line).then_some(Form::GoBenchmark)
}

/// One value from a tool's output.
#[derive(Debug, Clone, PartialEq)]
struct ImportedValue {
    workload: String,
    meter: Meter,
    /// The cost per transaction, in the meter's unit.
    value: f64,
    n: u64,
}

/// A server with its values.
#[derive(Debug, Clone, PartialEq, Default)]
struct ImportedServer {
    name: String,
    /// Its point, if the file names it.
    point: Option<Point>,
    /// Its experiment, if the file names it.
    experiment: Option<String>,
    readings: Vec<ImportedValue>,
    /// Number of failed runs.
    failed: u64,
    /// Number of runs without a time.
    timeless: u64,
}

/// Reads files of one format. The first server is the baseline of the others, in their order; a single server
/// is refused.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage), naming file and line, for a file in another format;
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when a file cannot be read.
pub fn read(form: Form, inputs: Vec<(PathBuf, Box<dyn BufRead>)>) -> Result<ObservationFile> {
    let mut servers = Vec::new();
    let mut name = String::new();
    for (path, input) in inputs {
        let mut text = String::new();
        input
            .take(LARGEST + 1)
            .read_to_string(&mut text)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::InvalidData => Error::usage("not UTF-8").at(&path, None),
                _ => unreadable(&path, &error),
            })?;
        if text.len() as u64 > LARGEST {
            return Err(Error::usage("more than 256 MiB").at(&path, None));
        }
        let text = text.trim_start_matches('\u{feff}');
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        if name.is_empty() {
            name = stem.clone().into_owned();
        }
        let found = match form {
            Form::Sysbench => sysbench::read(text, &path, &stem)?,
            Form::Hyperfine => hyperfine::read(text, &path)?,
            Form::GoBenchmark => go::read(text, &path, &stem)?,
        };
        if found.iter().all(|server| server.readings.is_empty()) {
            return Err(Error::usage("no results").at(&path, None));
        }
        let of = |servers: &[ImportedServer]| servers.first().and_then(|s| s.experiment.clone());
        if let (Some(first), Some(other)) = (of(&servers), of(&found))
            && first != other
        {
            let fault = format!(
                "the values are from experiment `{other}`, but those of the first file from `{first}`"
            );
            return Err(Error::usage(fault)
                .at(&path, None)
                .hint("values of different experiments are never compared"));
        }
        servers.extend(found);
    }
    if servers.len() < 2 {
        return Err(
            Error::usage("a single server: there is nothing to compare it with")
                .hint("name the files of all servers, the one to be compared with first"),
        );
    }
    file(&name, servers)
}

fn file(name: &str, servers: Vec<ImportedServer>) -> Result<ObservationFile> {
    let mut header = ExperimentHeader {
        experiment: name.to_owned(),
        started: String::new(),
        ..ExperimentHeader::new(name, "")
    };
    let named = servers.iter().all(|server| server.point.is_some());
    if named {
        header.series = series(&servers);
        carry(&mut header, &servers);
    } else {
        let patches = servers.iter().skip(1);
        header.series = patches.map(|server| server.name.clone()).collect();
    }
    header.check().map_err(Error::usage)?;
    let mut supplement = Supplement::default();
    let mut observations = Vec::new();
    let mut first_block = 0u32;
    for (place, server) in servers.into_iter().enumerate() {
        let point = match server.point {
            Some(point) if named => point,
            _ => Point::Step(place),
        };
        for (count, why) in [
            (server.failed, "that ended with another exit code than 0"),
            (server.timeless, "whose time is not a number above 0"),
        ] {
            if count > 0 {
                supplement.left_out.push(ExcludedReadings {
                    workload: hyperfine::WORKLOAD.to_owned(),
                    meter: Meter::Time,
                    count,
                    reason: format!("runs of {} {why}", server.name),
                });
            }
        }
        if server.readings.is_empty() && !named {
            let why = match server.failed {
                0 => "no run has a time",
                _ => "no run ended with exit code 0",
            };
            header.failed.insert(point, why.to_owned());
        }
        let experiment = match server.experiment {
            Some(experiment) if named => experiment,
            _ => header.experiment.clone(),
        };
        let mut counts: BTreeMap<(Meter, String), u32> = BTreeMap::new();
        for reading in server.readings {
            let of = (reading.meter, reading.workload.clone());
            let count = counts.entry(of).or_default();
            let observation = Observation {
                schema: SCHEMA,
                experiment: experiment.clone(),
                block: first_block.saturating_add(*count),
                order: 0,
                point,
                layout: 0,
                workload: reading.workload,
                meter: reading.meter,
                unit: reading.meter.unit().to_owned(),
                value: reading.value,
                n: reading.n,
                direct: false,
                mean: None,
                slow: None,
                p99: None,
                lane: None,
                machine: None,
            };
            *count += 1;
            header
                .check_observation(&observation.borrowed())
                .map_err(Error::usage)?;
            observations.push(observation);
        }
        let most = counts.into_values().max().unwrap_or(0);
        first_block = first_block.saturating_add(most);
    }
    Ok(ObservationFile {
        header,
        supplement,
        observations,
    })
}

/// Returns the patches up to the last one of any point, each with the name of its first server.
fn series(servers: &[ImportedServer]) -> Vec<String> {
    let last = servers.iter().filter_map(|server| match server.point? {
        Point::Step(k) | Point::Alone(k) | Point::Without(k) => Some(k),
        Point::Control => None,
    });
    let last = last.max().unwrap_or(0).min(MOST_PATCHES);
    let mut series: Vec<String> = (1..=last).map(|k| format!("patch {k}")).collect();
    for server in servers.iter().rev() {
        if let Some(Point::Step(k @ 1..)) = server.point
            && let Some(patch) = series.get_mut(k - 1)
        {
            patch.clone_from(&server.name);
        }
    }
    series
}

/// Sets the first server's experiment as this one, and those of the other servers as reused, because they are
/// not compared with it.
fn carry(header: &mut ExperimentHeader, servers: &[ImportedServer]) {
    let named = servers
        .first()
        .and_then(|server| server.experiment.as_ref());
    if let Some(own) = named {
        header.experiment.clone_from(own);
    }
    let mut seen: BTreeSet<&str> = named.map(String::as_str).into_iter().collect();
    let others = servers
        .iter()
        .filter_map(|server| server.experiment.as_deref());
    let others: Vec<ReusedFrom> = others
        .filter(|experiment| seen.insert(*experiment))
        .map(|experiment| ReusedFrom {
            experiment: experiment.to_owned(),
            ..ReusedFrom::default()
        })
        .collect();
    header.reused = others;
}

/// Returns an error at a line (from 0) of a file.
fn at(path: &Path, line: usize, fault: String) -> Error {
    Error::usage(fault).at(path, Some(line + 1))
}

#[cfg(test)]
mod tests;
