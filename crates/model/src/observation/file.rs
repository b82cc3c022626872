//! Writes observation files: a header line, then one observation per line (docs/json.md). `store::jsonl` reads them.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{ExperimentHeader, Observation, Supplement};
use crate::error::{Error, Result};

/// The content of an observation file.
#[derive(Debug, Clone)]
pub struct ObservationFile {
    /// The experiment.
    pub header: ExperimentHeader,
    /// The supplement: plans, builds, conditions and other facts about it.
    pub supplement: Supplement,
    /// The observations in the file's order.
    pub observations: Vec<Observation>,
}

/// The first line of an observation file: the header and the supplement, as one JSON object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FirstLine {
    /// The experiment.
    #[serde(flatten)]
    pub header: ExperimentHeader,
    /// The supplement: plans, builds, conditions and other facts about it.
    #[serde(flatten)]
    pub supplement: Supplement,
}

/// The beginning of a line with the SHA-256 of all bytes before it, which an observation file may end with.
pub const CHECKSUM: &str = "{\"sha256\":\"";

/// Number of observations per gzip member; members are compressed in parallel.
const MEMBER: usize = 1 << 16;

impl ObservationFile {
    /// Writes the file as JSON Lines.
    pub fn write(&self, output: &mut impl Write) -> Result<()> {
        self.write_head(output)?;
        write_lines(output, &self.observations)
    }

    /// Returns the output of [`ObservationFile::write`] compressed with gzip.
    pub fn compressed(&self) -> Result<Vec<u8>> {
        let head = self.observations.len().min(MEMBER);
        let (first, rest) = self.observations.split_at(head);
        let mut bytes = member(|output| {
            self.write_head(output)?;
            write_lines(output, first)
        })?;
        let members = rest
            .par_chunks(MEMBER)
            .map(|lines| member(|output| write_lines(output, lines)));
        for member in members.collect::<Result<Vec<_>>>()? {
            bytes.extend(member);
        }
        Ok(bytes)
    }

    fn write_head(&self, output: &mut impl Write) -> Result<()> {
        let first = FirstLine {
            header: self.header.clone(),
            supplement: self.supplement.clone(),
        };
        write_line(output, &first)
    }
}

/// Returns the output of `write` as a gzip member.
fn member(write: impl Fn(&mut GzEncoder<Vec<u8>>) -> Result<()>) -> Result<Vec<u8>> {
    let mut output = GzEncoder::new(Vec::new(), Compression::default());
    write(&mut output)?;
    output
        .finish()
        .map_err(|error| Error::internal(format!("cannot compress the observations: {error}")))
}

fn write_lines(output: &mut impl Write, observations: &[Observation]) -> Result<()> {
    observations
        .iter()
        .try_for_each(|observation| write_line(output, observation))
}

fn write_line(output: &mut impl Write, value: &impl Serialize) -> Result<()> {
    let mut bytes = serde_json::to_vec(value).map_err(Error::json)?;
    bytes.push(b'\n');
    output
        .write_all(&bytes)
        .map_err(|error| Error::internal(format!("cannot write the observations: {error}")))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const HEADER: &str = r#"{"schema":1,"experiment":"x","series":["a.patch"],"release":"r","machine":{},"harness":"h"}"#;

    #[test]
    fn an_empty_name_of_the_base_is_none() {
        let read = |base: &str| -> FirstLine {
            let line = HEADER.replace("\"schema\"", &format!("{base}\"schema\""));
            serde_json::from_str(&line).unwrap()
        };
        assert_eq!(read("").header.base, None);
        assert_eq!(read(r#""base":"","#).header.base, None);
        let named = read(r#""base":"old","#);
        assert_eq!(named.header.base.as_deref(), Some("old"));
        let written = serde_json::to_value(&named).unwrap();
        assert_eq!(written["base"], "old");
    }

    #[test]
    fn many_members_are_one_file() {
        let observation = r#"{"schema":1,"experiment":"x","block":0,"order":0,"point":"0","layout":0,"workload":"w","meter":"time","unit":"ns/txn","value":1.5,"n":1}"#;
        let one: Observation = serde_json::from_str(observation).unwrap();
        let blocks = 0..3 * MEMBER as u32 + 7;
        let file = ObservationFile {
            header: serde_json::from_str(HEADER).unwrap(),
            supplement: Supplement::default(),
            observations: blocks
                .map(|block| Observation {
                    block,
                    ..one.clone()
                })
                .collect(),
        };
        let bytes = file.compressed().unwrap();
        let mut unpacked = String::new();
        let mut members = flate2::read::MultiGzDecoder::new(&bytes[..]);
        members.read_to_string(&mut unpacked).unwrap();
        let mut plain = Vec::new();
        file.write(&mut plain).unwrap();
        assert!(
            unpacked.as_bytes() == plain,
            "compressed and plain lines differ"
        );
        let mut lines = unpacked.lines();
        let first: FirstLine = serde_json::from_str(lines.next().unwrap()).unwrap();
        assert_eq!(first.header, file.header);
        let read: Vec<Observation> = lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(read == file.observations, "observations read back differ");
    }
}
