//! Observation files: a header line, then one observation a line (docs/json.md).

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::observation::{ExperimentHeader, Meter, Observation, Supplement};
use crate::point::Point;

/// A line longer than this is no observation, and is not read into memory to find out.
const LONGEST_LINE: u64 = 16 << 20;

/// The first line: the header, and beside it what else is known.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct FirstLine {
    #[serde(flatten)]
    header: ExperimentHeader,
    #[serde(flatten)]
    supplement: Supplement,
}

/// What an observation file holds.
#[derive(Debug, Clone)]
pub struct File {
    /// The experiment.
    pub header: ExperimentHeader,
    /// What else is known about it.
    pub supplement: Supplement,
    /// The observations in the file's order.
    pub observations: Vec<Observation>,
}

/// Reads a whole observation file; `shown` is its name in errors.
///
/// # Errors
/// As [`Reader::new`] and [`Reader::next`].
pub fn read(input: impl BufRead, shown: &Path) -> Result<File> {
    let mut reader = Reader::new(input, shown)?;
    let observations = reader.by_ref().collect::<Result<_>>()?;
    Ok(File {
        header: reader.header,
        supplement: reader.supplement,
        observations,
    })
}

/// Reads an observation file line by line.
///
/// Empty lines are skipped and unknown fields ignored; everything else that is not as docs/json.md
/// says is an error that names the line.
pub struct Reader<R> {
    /// The experiment.
    pub header: ExperimentHeader,
    /// What else is known about it.
    pub supplement: Supplement,
    lines: Lines<R>,
    seen: Seen,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line of `input`; `shown` is the file's name in errors.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) when it is no header;
    /// [`Kind::Internal`](crate::error::Kind::Internal) when it cannot be read.
    pub fn new(input: R, shown: &Path) -> Result<Self> {
        let mut lines = Lines {
            input,
            shown: shown.to_path_buf(),
            number: 0,
            text: Vec::new(),
            complete: true,
        };
        let Some(first) = lines.next()? else {
            return Err(Error::usage("the file is empty")
                .at(shown, None)
                .hint(HEADER_HINT));
        };
        let FirstLine { header, supplement } = parse_header(first).map_err(|e| lines.at(e))?;
        header
            .check()
            .map_err(|fault| lines.at(Error::usage(fault)))?;
        Ok(Reader {
            header,
            supplement,
            lines,
            seen: Seen::default(),
        })
    }

    fn observation(&mut self) -> Result<Option<Observation>> {
        let Some(text) = self.lines.next()? else {
            return Ok(None);
        };
        let parsed: Result<Observation, _> = serde_json::from_slice(text);
        let lines = &self.lines;
        let observation = parsed.map_err(|error| lines.at(malformed(&error, lines.complete)))?;
        self.header
            .check_observation(&observation)
            .map_err(|fault| lines.at(Error::usage(fault)))?;
        if let Some(line) = self.seen.insert(&observation, lines.number) {
            return Err(lines.at(Error::usage(format!(
                "block {}, point {}, workload {}, meter {} was on line {line} already",
                observation.block, observation.point, observation.workload, observation.meter
            ))));
        }
        Ok(Some(observation))
    }
}

/// Gives each observation, or the fault of its line ([`Kind::Usage`](crate::error::Kind::Usage),
/// naming file and line; [`Kind::Internal`](crate::error::Kind::Internal) when the file cannot be
/// read).
impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Observation>;

    fn next(&mut self) -> Option<Self::Item> {
        self.observation().transpose()
    }
}

/// Writes an observation file that [`read`] reads back to the same.
///
/// # Errors
/// [`Kind::Internal`](crate::error::Kind::Internal) when `output` cannot be written to.
pub fn write(
    output: &mut impl Write,
    header: &ExperimentHeader,
    supplement: &Supplement,
    observations: &[Observation],
) -> Result<()> {
    let first = FirstLine {
        header: header.clone(),
        supplement: supplement.clone(),
    };
    write_line(output, &first)?;
    observations
        .iter()
        .try_for_each(|observation| write_line(output, observation))
}

fn write_line(output: &mut impl Write, value: &impl Serialize) -> Result<()> {
    let mut bytes = serde_json::to_vec(value)
        .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
    bytes.push(b'\n');
    output
        .write_all(&bytes)
        .map_err(|error| Error::internal(format!("cannot write the observations: {error}")))
}

const HEADER_HINT: &str = r#"the first line says what the rest is of, for example {"schema":1,"experiment":"x","series":["0001-a.patch"],"release":"mariadb-10.11.18","machine":{},"harness":"by hand"}"#;

fn parse_header(text: &[u8]) -> Result<FirstLine> {
    serde_json::from_slice(text).map_err(|error| {
        let fault = if serde_json::from_slice::<Observation>(text).is_ok() {
            "the header is missing: the first line is an observation".to_owned()
        } else {
            format!("not a header: {}", json_fault(&error))
        };
        Error::usage(fault).hint(HEADER_HINT)
    })
}

fn malformed(error: &serde_json::Error, complete: bool) -> Error {
    let fault = Error::usage(format!("not an observation: {}", json_fault(error)));
    if error.is_eof() && !complete {
        return fault.hint(
            "the last line is cut off: the file was not written to its end; without that line it can be analysed",
        );
    }
    fault
}

/// serde_json's words without its "at line 1", which would contradict the file's line.
fn json_fault(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((fault, _)) => format!("{fault} (column {})", error.column()),
        None => text,
    }
}

struct Lines<R> {
    input: R,
    shown: PathBuf,
    number: usize,
    text: Vec<u8>,
    complete: bool,
}

impl<R: BufRead> Lines<R> {
    /// The next line that is not empty.
    fn next(&mut self) -> Result<Option<&[u8]>> {
        loop {
            self.text.clear();
            let read = std::io::Read::take(&mut self.input, LONGEST_LINE)
                .read_until(b'\n', &mut self.text)
                .map_err(|error| Error::io("read", &self.shown, &error))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            self.complete = self.text.last() == Some(&b'\n');
            if !self.complete && read as u64 == LONGEST_LINE {
                return Err(self.at(Error::usage("a line of more than 16 MiB")));
            }
            if !self.text.trim_ascii().is_empty() {
                return Ok(Some(&self.text));
            }
        }
    }

    fn at(&self, error: Error) -> Error {
        error.at(self.shown.clone(), self.number)
    }
}

/// Which line held which block, point, workload and meter.
#[derive(Default)]
struct Seen {
    workloads: HashMap<String, u32>,
    cells: HashMap<(u32, Point, u32, Meter), u32>,
}

impl Seen {
    /// Remembers; returns the line that held the same before.
    fn insert(&mut self, observation: &Observation, line: usize) -> Option<u32> {
        let workload = match self.workloads.get(&observation.workload) {
            Some(&number) => number,
            None => {
                let number = u32::try_from(self.workloads.len()).unwrap_or(u32::MAX);
                self.workloads.insert(observation.workload.clone(), number);
                number
            }
        };
        let cell = (
            observation.block,
            observation.point,
            workload,
            observation.meter,
        );
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        self.cells.insert(cell, line)
    }
}
