//! Reads observation files: a header line, then one observation per line (docs/json.md). `ObservationFile` of `model`
//! writes them.

use std::collections::HashMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::file_error::{require_object, unreadable, without_type_names};
use super::import::READABLE;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{
    CHECKSUM, ExperimentHeader, FirstLine, Meter, Observation, ObservationFile, Supplement,
};
use perfquilt_model::observation_columns;
use perfquilt_model::point::Point;

/// The longest line in bytes. A longer line is not an observation, and is not read into memory.
const LONGEST_LINE: u64 = 16 << 20;

/// Reads a whole observation file; `shown` is its name in errors.
pub fn read(input: impl BufRead, shown: &Path) -> Result<ObservationFile> {
    let mut reader = Reader::new(input, shown)?;
    let mut observations: Vec<Observation> = Vec::new();
    let mut seen = SeenObservations::default();
    while let Some(observation) = reader.next_observation()? {
        if let Err(fault) = reader.header.check_observation(&observation) {
            return Err(reader.at(Error::observation_file(fault)));
        }
        if let Some(line) = seen.insert(&observation, reader.line()) {
            return Err(reader.at(duplicate(&observation, Some(line))));
        }
        observations.push(observation);
    }
    Ok(ObservationFile {
        header: reader.header,
        supplement: reader.supplement,
        observations,
    })
}

/// Returns the error for a duplicate observation, with the line of the first one if it is known.
pub fn duplicate(observation: &Observation, before: Option<usize>) -> Error {
    let line = before.map_or("before".to_owned(), |line| format!("on line {line}"));
    Error::observed_twice(format!(
        "block {}, point {}, workload {}, meter {} was {line} already",
        observation.block, observation.point, observation.workload, observation.meter
    ))
}

/// Reads an observation file line by line, in constant memory.
///
/// Empty lines are skipped and unknown fields ignored; any other deviation from docs/json.md is an error that
/// names the line. The caller checks whether observations fit the header and each other.
pub struct Reader<R> {
    /// The experiment.
    pub header: ExperimentHeader,
    /// The supplement: plans, builds, conditions and other facts about it.
    pub supplement: Supplement,
    lines: Lines<R>,
    /// An error that occurred after the lines that were read ahead.
    deferred: Option<Error>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line of `input`; `shown` is the file's name in errors.
    pub fn new(input: R, shown: &Path) -> Result<Self> {
        let mut lines = Lines {
            input,
            shown: shown.to_path_buf(),
            number: 0,
            text: Vec::new(),
            complete: true,
            digest: Sha256::new(),
        };
        if !lines.advance()? {
            return Err(Error::observation_file("the file is empty")
                .at(shown, None)
                .hint(READABLE));
        }
        let first = parse_header(&lines.text);
        let FirstLine { header, supplement } = first.map_err(|e| lines.at(e))?;
        header
            .check()
            .and_then(|()| supplement.check())
            .map_err(|fault| lines.at(Error::observation_file(fault)))?;
        Ok(Reader {
            header,
            supplement,
            lines,
            deferred: None,
        })
    }

    /// Returns the next observation; `None` at the end.
    pub fn next_observation(&mut self) -> Result<Option<Observation>> {
        let lines = &mut self.lines;
        if !lines.advance()? {
            return Ok(None);
        }
        parse(&lines.text, lines.complete)
            .map(Some)
            .map_err(|error| lines.at(error))
    }

    /// Reads the next lines, some megabytes, into `batch` for parsing on several processors. Returns `false`
    /// at the end.
    pub fn read_ahead(&mut self, batch: &mut Batch) -> Result<bool> {
        batch.text.clear();
        batch.lines.clear();
        batch.shown.clone_from(&self.lines.shown);
        if let Some(error) = self.deferred.take() {
            return Err(error);
        }
        while batch.text.len() < BATCH {
            match self.lines.advance() {
                Ok(true) => {
                    let start = batch.text.len();
                    batch.text.extend_from_slice(&self.lines.text);
                    batch.lines.push(BatchLine {
                        number: self.lines.number,
                        start,
                        end: batch.text.len(),
                        complete: self.lines.complete,
                    });
                }
                Ok(false) => break,
                // The lines before the error are processed first.
                Err(error) if !batch.lines.is_empty() => {
                    self.deferred = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(!batch.lines.is_empty())
    }

    /// Returns the number of the last line read, from 1.
    pub fn line(&self) -> usize {
        self.lines.number
    }

    /// Adds the position of the last line read to `error`.
    pub fn at(&self, error: Error) -> Error {
        self.lines.at(error)
    }
}

/// Number of bytes to read ahead.
const BATCH: usize = 4 << 20;

/// Lines that were read ahead.
#[derive(Debug, Default)]
pub struct Batch {
    shown: PathBuf,
    text: Vec<u8>,
    lines: Vec<BatchLine>,
}

/// A line of a batch: its number in the file, and its position in the text.
#[derive(Debug, Clone, Copy)]
struct BatchLine {
    number: usize,
    start: usize,
    end: usize,
    complete: bool,
}

impl Batch {
    /// Parses the lines on all processors; returns the observations in order, each with its line number.
    ///
    /// An invalid line gives the error of [`Reader::next_observation`].
    pub fn parse(&self) -> Vec<(usize, Result<Observation>)> {
        let parsed = self.lines.par_iter().map(|line| {
            let parsed = parse(&self.text[line.start..line.end], line.complete);
            (
                line.number,
                parsed.map_err(|error| self.at(line.number, error)),
            )
        });
        parsed.collect()
    }

    /// Adds the position of a line of the file to `error`.
    pub fn at(&self, number: usize, error: Error) -> Error {
        error.at(self.shown.clone(), number)
    }
}

/// Parses the observation in a line; `complete` tells whether the line ends with a newline.
fn parse(text: &[u8], complete: bool) -> Result<Observation> {
    if text.trim_ascii_start().first() == Some(&b'[') {
        let fault = "not an observation: expected a JSON object, found an array";
        return Err(Error::observation_file(fault));
    }
    serde_json::from_slice(text).map_err(|error| malformed(&error, text, complete))
}

const HEADER_HINT: &str = r#"the first line describes the experiment, for example {"schema":1,"experiment":"x","series":["0001-a.patch"],"release":"mariadb-10.11.18","machine":{},"harness":"by hand"}"#;

fn parse_header(text: &[u8]) -> Result<FirstLine> {
    require_object(text, "an observation file").map_err(|error| error.hint(READABLE))?;
    serde_json::from_slice(text).map_err(|error| {
        let fault = if serde_json::from_slice::<Observation>(text).is_ok() {
            "the header is missing: the first line is an observation".to_owned()
        } else {
            format!("not a header: {}", json_fault(&error))
        };
        Error::observation_file(fault).hint(HEADER_HINT)
    })
}

fn malformed(error: &serde_json::Error, text: &[u8], complete: bool) -> Error {
    if let Err(error) = std::str::from_utf8(text) {
        return Error::observation_file(format!(
            "not an observation: not UTF-8 (byte {})",
            error.valid_up_to() + 1
        ));
    }
    let mut words = json_fault(error);
    let behind = words.starts_with("trailing characters");
    if let Some(field) = faulty_field(error, text).filter(|_| !behind) {
        words = format!("`{field}`: {words}");
    }
    let fault = Error::observation_file(format!("not an observation: {words}"));
    if error.is_eof() && !complete {
        return fault.hint(
            "the last line is cut off: the file is incomplete; remove that line to analyse the rest",
        );
    }
    fault
}

/// Returns the field with the invalid value, if it can be identified.
fn faulty_field(error: &serde_json::Error, text: &[u8]) -> Option<String> {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(text) else {
        // Invalid JSON: take the last field that begins before the error.
        let before = String::from_utf8_lossy(&text[..error.column().min(text.len())]).into_owned();
        let (names, _) = before.rsplit_once("\":")?;
        let (_, name) = names.rsplit_once('"')?;
        let mut known = fields().into_iter().map(|(field, _)| field);
        return known.find(|field| *field == name).map(str::to_owned);
    };
    let object = value.as_object()?;
    let misfit = |(field, fits): &(&str, fn(&serde_json::Value) -> bool)| {
        object.get(*field).is_some_and(|value| !fits(value))
    };
    let found = fields().into_iter().find(misfit);
    found.map(|(field, _)| field.to_owned())
}

macro_rules! fields {
    ($($(#[$about:meta])* $name:ident: $type:ty,)*) => {
        /// Returns each field's name with a check of its values.
        fn fields() -> Vec<(&'static str, fn(&serde_json::Value) -> bool)> {
            vec![$((stringify!($name), fits::<$type>),)*]
        }
    };
}

observation_columns!(fields);

fn fits<T: DeserializeOwned>(value: &serde_json::Value) -> bool {
    T::deserialize(value).is_ok()
}

/// Returns serde_json's message without its "at line 1", which would contradict the line number in the file, and
/// without names of Rust's types.
fn json_fault(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((fault, _)) => format!("{} (column {})", without_type_names(fault), error.column()),
        None => without_type_names(&text),
    }
}

/// The byte order mark that some editors write at the start of a UTF-8 file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

struct Lines<R> {
    input: R,
    shown: PathBuf,
    number: usize,
    text: Vec<u8>,
    complete: bool,
    /// Of the lines so far.
    digest: Sha256,
}

impl<R: BufRead> Lines<R> {
    /// Reads the next line that is not empty into `text`; returns `false` at the end.
    fn advance(&mut self) -> Result<bool> {
        loop {
            self.text.clear();
            let read = std::io::Read::take(&mut self.input, LONGEST_LINE)
                .read_until(b'\n', &mut self.text)
                .map_err(|error| unreadable(&self.shown, &error))?;
            if read == 0 {
                return Ok(false);
            }
            self.number += 1;
            self.complete = self.text.last() == Some(&b'\n');
            if !self.complete && read as u64 == LONGEST_LINE {
                return Err(self.at(Error::observation_file("a line of more than 16 MiB")));
            }
            if self.number == 1 && self.text.starts_with(BYTE_ORDER_MARK) {
                self.text.drain(..BYTE_ORDER_MARK.len());
            }
            let line = self.text.trim_ascii_end();
            if let Some(given) = line.strip_prefix(CHECKSUM.as_bytes()) {
                let digest = hex::encode(self.digest.clone().finalize());
                if given != format!("{digest}\"}}").as_bytes() {
                    let fault = "the lines before this one are not those that were written";
                    return Err(self.at(Error::observation_file(fault).hint(
                        "use another copy of the file; if you changed it yourself, remove this line",
                    )));
                }
            } else if !line.is_empty() {
                // Mail and editors may end lines otherwise.
                self.digest.update(line);
                self.digest.update(b"\n");
                return Ok(true);
            }
        }
    }

    fn at(&self, error: Error) -> Error {
        error.at(self.shown.clone(), self.number)
    }
}

/// The line number of every block, point, workload and meter.
#[derive(Default)]
struct SeenObservations {
    experiments: Vec<String>,
    workloads: HashMap<String, usize>,
    cells: HashMap<ObservationKey, usize>,
}

impl SeenObservations {
    /// Records an observation; returns the line of an earlier observation with the same key.
    fn insert(&mut self, observation: &Observation, line: usize) -> Option<usize> {
        let next = self.workloads.len();
        let workload = match self.workloads.get(&observation.workload) {
            Some(&number) => number,
            None => *self
                .workloads
                .entry(observation.workload.clone())
                .or_insert(next),
        };
        let name = &observation.experiment;
        let known = self.experiments.iter().position(|known| known == name);
        let experiment = known.unwrap_or_else(|| {
            self.experiments.push(name.clone());
            self.experiments.len() - 1
        });
        let cell = (
            experiment,
            observation.direct,
            observation.block,
            observation.point,
            workload,
            observation.meter,
        );
        self.cells.insert(cell, line)
    }
}

/// Experiment, direct, block, point, workload, meter.
type ObservationKey = (usize, bool, u32, Point, usize, Meter);
