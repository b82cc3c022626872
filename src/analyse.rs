//! Observation files, from whatever source.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::attribution::{Attribution, Collector, Fault};
use crate::error::{Error, Result};
use crate::observation::{Meter, Observation};
use crate::store::jsonl;

/// The attribution of an observation file of at most `most` bytes unpacked, which need not fit into
/// memory.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage), naming file and line.
pub fn file(path: &Path, most: u64, margin: &dyn Fn(Meter) -> f64) -> Result<Attribution> {
    read(open(path)?.take(most), path, margin)
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
                    true => jsonl::twice(&observation, first_line(path, &observation)),
                    false => message,
                };
                return Err(batch.at(line, Error::usage(message)));
            }
        }
    }
    Ok(collector.finish(margin))
}

/// The first line of a file that holds the block, point, workload and meter of `observation`; `None`
/// when the input cannot be read again.
fn first_line(path: &Path, observation: &Observation) -> Option<usize> {
    if path == Path::new("-") {
        return None;
    }
    let mut reader = jsonl::Reader::new(open(path).ok()?, path).ok()?;
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

/// Opens an observation file, plain or compressed with gzip; `-` is standard input.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) when it cannot be read.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    let raw: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        let file = File::open(path).map_err(|error| {
            Error::usage(format!("cannot read {}: {error}", path.display()))
                .hint("`perfquilt report --format jsonl` writes such a file")
        })?;
        Box::new(file)
    };
    let mut input = BufReader::with_capacity(1 << 16, raw);
    let head = input
        .fill_buf()
        .map_err(|error| Error::io("read", path, &error))?;
    if head.starts_with(&[0x1f, 0x8b]) {
        let inflated = flate2::bufread::MultiGzDecoder::new(input);
        return Ok(Box::new(BufReader::with_capacity(1 << 16, inflated)));
    }
    Ok(Box::new(input))
}
