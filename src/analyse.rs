//! Observation files, from whatever source.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::attribution::{Attribution, Collector, Fault, function_changes};
use crate::error::{Error, Result};
use crate::observation::{Meter, Observation};
use crate::store::{ExperimentId, Store, jsonl};

/// A stored experiment with everything that is known of it, as an observation file would hold it.
///
/// # Errors
/// [`Kind::Internal`](crate::error::Kind::Internal) when the store cannot be read.
pub fn stored(store: &Store, id: ExperimentId) -> Result<jsonl::File> {
    let (header, observations) = store.load(id)?;
    let mut supplement = store.supplement(id)?;
    supplement.functions = function_changes(&header, &store.functions(id)?);
    Ok(jsonl::File {
        header,
        supplement,
        observations,
    })
}

/// The attribution of an observation file of at most `most` bytes unpacked, which need not fit into
/// memory.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage), naming file and line, or when it is larger.
pub fn file(path: &Path, most: u64, margin: &dyn Fn(Meter) -> f64) -> Result<Attribution> {
    limited(open(path)?, most, path, &|| reopened(path), margin)
}

/// As [`file()`], of a file that is open: somebody may have put another one in its place. `shown` is its name in
/// errors.
///
/// # Errors
/// As [`file()`].
pub fn opened(
    file: File,
    shown: &Path,
    most: u64,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<Attribution> {
    limited(unpacked(file, shown)?, most, shown, &|| None, margin)
}

/// Reads at most `most` bytes.
fn limited(
    input: Box<dyn BufRead>,
    most: u64,
    shown: &Path,
    again: &Again<'_>,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<Attribution> {
    let mut input = input.take(most.saturating_add(1));
    let read = collect(&mut input, shown, again, margin);
    match input.limit() {
        0 => Err(Error::usage(format!("it is larger than {most} bytes")).at(shown, None)),
        _ => read,
    }
}

/// As [`file()`], from what was opened already.
///
/// # Errors
/// As [`file()`].
pub fn read(
    input: impl BufRead,
    path: &Path,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<Attribution> {
    collect(input, path, &|| reopened(path), margin)
}

/// The same input from its beginning; `None` when it cannot be read again.
type Again<'a> = dyn Fn() -> Option<Box<dyn BufRead>> + 'a;

fn collect(
    input: impl BufRead,
    path: &Path,
    again: &Again<'_>,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<Attribution> {
    let mut reader = jsonl::Reader::new(input, path)?;
    let (header, supplement) = (reader.header.clone(), reader.supplement.clone());
    let mut collector = Collector::new(&header, &supplement)?;
    let mut batch = jsonl::Batch::default();
    while reader.read_ahead(&mut batch)? {
        for (line, observation) in batch.parse() {
            let observation = observation?;
            if let Err(Fault { message, twice }) = collector.add(&observation) {
                let observation = Observation::from(observation);
                let message = match twice {
                    true => {
                        let first = again().and_then(|input| first_line(input, path, &observation));
                        jsonl::twice(&observation, first)
                    }
                    false => message,
                };
                return Err(batch.at(line, Error::usage(message)));
            }
        }
    }
    Ok(collector.finish(margin))
}

/// The first line of a file that holds the block, point, workload and meter of `observation`.
fn first_line(input: impl BufRead, path: &Path, observation: &Observation) -> Option<usize> {
    let mut reader = jsonl::Reader::new(input, path).ok()?;
    loop {
        let other = Observation::from(reader.next_observation().ok()??);
        let same = Observation {
            order: other.order,
            layout: other.layout,
            value: other.value,
            n: other.n,
            ..observation.clone()
        };
        if other == same {
            return Some(reader.line());
        }
    }
}

/// As [`open`], of what was opened before.
fn reopened(path: &Path) -> Option<Box<dyn BufRead>> {
    match path == Path::new("-") {
        true => None,
        false => open(path).ok(),
    }
}

/// Opens an observation file, plain or compressed with gzip; `-` is standard input.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) when it cannot be read.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return unpacked(std::io::stdin(), path);
    }
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    unpacked(file, path)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::usage(format!("cannot read {}: {error}", path.display()))
        .hint("`perfquilt report --format jsonl` writes such a file")
}

/// What is in `raw`, which may be compressed with gzip.
fn unpacked(raw: impl Read + 'static, path: &Path) -> Result<Box<dyn BufRead>> {
    let mut input = BufReader::with_capacity(1 << 16, raw);
    let head = input.fill_buf().map_err(|error| unreadable(path, &error))?;
    if head.starts_with(&[0x1f, 0x8b]) {
        let inflated = flate2::bufread::MultiGzDecoder::new(input);
        return Ok(Box::new(BufReader::with_capacity(1 << 16, inflated)));
    }
    Ok(Box::new(input))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_large_is_not_called_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("observations.jsonl");
        let header =
            r#"{"schema":1,"experiment":"x","series":[],"release":"r","machine":{},"harness":"h"}"#;
        std::fs::write(&path, header).unwrap();
        let words = |most| match file(&path, most, &|_| 0.005) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        let size = header.len() as u64;
        assert_eq!(words(size), "");
        assert!(
            words(size - 1).ends_with("it is larger than 81 bytes"),
            "{}",
            words(size - 1)
        );
    }
}
