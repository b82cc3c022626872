//! Results of other tools as observations.
//!
//! What these tools write knows nothing of blocks: every reading becomes a block of its own, so that points are
//! compared as runs that were not interleaved (docs/method.md).

mod go;
mod hyperfine;
mod sysbench;

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use super::jsonl::File;
use crate::error::{Error, Result};
use crate::observation::{ExperimentHeader, Meter, Observation, SCHEMA, Supplement};
use crate::point::Point;

/// A form that results of other tools have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// What `sysbench … run` prints; one file a server, with one run or several in a row.
    Sysbench,
    /// What `hyperfine --export-json` writes; one command a server, in one file or several.
    Hyperfine,
    /// What `go test -bench` prints, and `perfquilt report --format gobench`; one file a server unless names
    /// say `/point=`.
    GoBenchmark,
}

/// Nothing that is read here is larger.
const LARGEST: u64 = 256 << 20;

/// The form of a file that begins with `head`; `None` for what is none of them.
pub fn detect(head: &[u8]) -> Option<Form> {
    let head = String::from_utf8_lossy(&head[..head.len().min(8192)]).into_owned();
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

/// One value that a tool read.
#[derive(Debug, Clone, PartialEq)]
struct Reading {
    workload: String,
    meter: Meter,
    /// Of one transaction, in the meter's unit.
    value: f64,
    n: u64,
}

/// A server: its name and what was read of it. A point is known where the file names it.
#[derive(Debug, Clone, PartialEq)]
struct Server {
    name: String,
    point: Option<Point>,
    readings: Vec<Reading>,
}

/// Reads files of one form. The first server is what the others are compared with, in their order; one server
/// alone is no comparison, and is refused.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage), naming file and line, for what is not of that form;
/// [`Kind::Internal`](crate::error::Kind::Internal) when a file cannot be read.
pub fn read(form: Form, inputs: Vec<(PathBuf, Box<dyn BufRead>)>) -> Result<File> {
    let mut servers = Vec::new();
    let mut name = String::new();
    for (path, input) in inputs {
        let mut text = String::new();
        input
            .take(LARGEST + 1)
            .read_to_string(&mut text)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::InvalidData => Error::usage("not UTF-8").at(&path, None),
                _ => Error::io("read", &path, &error),
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

fn file(name: &str, servers: Vec<Server>) -> Result<File> {
    let mut header = ExperimentHeader {
        experiment: name.to_owned(),
        started: String::new(),
        ..ExperimentHeader::new(name, "")
    };
    let named = servers.iter().all(|server| server.point.is_some());
    if !named {
        let patches = servers.iter().skip(1);
        header.series = patches.map(|server| server.name.clone()).collect();
    } else {
        let last = servers.iter().filter_map(|server| match server.point? {
            Point::Step(k) | Point::Alone(k) | Point::Without(k) => Some(k),
            Point::Control => None,
        });
        let last = last.max().unwrap_or(0).min(MOST_PATCHES);
        header.series = (1..=last).map(|k| format!("patch {k}")).collect();
        for (place, patch) in header.series.iter_mut().enumerate() {
            let here = |s: &&Server| s.point == Some(Point::Step(place + 1));
            if let Some(server) = servers.iter().find(here) {
                patch.clone_from(&server.name);
            }
        }
    }
    let mut observations = Vec::new();
    for (place, server) in servers.into_iter().enumerate() {
        let point = match server.point {
            Some(point) if named => point,
            _ => Point::Step(place),
        };
        for reading in server.readings {
            let block = u32::try_from(observations.len()).unwrap_or(u32::MAX);
            let observation = Observation {
                schema: SCHEMA,
                experiment: header.experiment.clone(),
                block,
                order: 0,
                point,
                layout: 0,
                workload: reading.workload,
                meter: reading.meter,
                unit: reading.meter.unit().to_owned(),
                value: reading.value,
                n: reading.n,
                direct: false,
            };
            header
                .check_observation(&observation.borrowed())
                .map_err(Error::usage)?;
            observations.push(observation);
        }
    }
    Ok(File {
        header,
        supplement: Supplement::default(),
        observations,
    })
}

/// No series is longer; a name says any number.
const MOST_PATCHES: usize = 10_000;

/// An error at a line (from 0) of a file.
fn at(path: &Path, line: usize, fault: String) -> Error {
    Error::usage(fault).at(path, Some(line + 1))
}

#[cfg(test)]
mod tests;
