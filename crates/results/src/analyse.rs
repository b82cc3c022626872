//! Attribution of stored experiments and observation files.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::Path;

use crate::earlier;
use perfquilt_judge::attribution::{
    Attribution, Collector, WithinBlocks, attribute_with, function_changes,
};
use perfquilt_judge::server_tests;
use perfquilt_model::comparable::{Comparable, Part};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::{Meter, Observation, ObservationFile, Supplement};
use perfquilt_model::point::Point;
use perfquilt_model::warning::Warning;
use perfquilt_store::{ExperimentId, Store, jsonl};

/// Returns a stored experiment in the form of an observation file.
pub fn stored(store: &Store, id: ExperimentId) -> Result<ObservationFile> {
    let (header, observations) = store.load(id)?;
    let mut supplement = supplement(store, id)?;
    supplement.functions = function_changes(&header, &store.functions(id)?);
    Ok(ObservationFile {
        header,
        supplement,
        observations,
    })
}

/// Makes the attribution of an observation file.
pub fn attribution(file: &ObservationFile, margin: &dyn Fn(Meter) -> f64) -> Result<Attribution> {
    attribute_with(&file.header, &file.observations, &file.supplement, margin)
}

/// Makes the attribution of a stored experiment, without the functions whose instructions changed.
pub fn effects(
    store: &Store,
    id: ExperimentId,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<Attribution> {
    let (header, observations) = store.load(id)?;
    attribute_with(&header, &observations, &supplement(store, id)?, margin)
}

/// Returns a sentence on the first patch of two stored experiments that has the same name in both but another server, although
/// release, recipe and all patches before it are the same; `None` without one.
pub fn edited_patch(
    store: &Store,
    before: ExperimentId,
    after: ExperimentId,
) -> Result<Option<Warning>> {
    let (old, new) = (store.header(before)?, store.header(after)?);
    let observed = (store.observed(before, &old)?, store.observed(after, &new)?);
    let servers =
        |observed: &Comparable| observed.only(|part| matches!(part, Part::Release | Part::Recipe));
    if servers(&observed.0) != servers(&observed.1) {
        return Ok(None);
    }
    let differs = |point: Point| {
        let program = Part::Program(point);
        Some(observed.0.get(&program)? != observed.1.get(&program)?)
    };
    // The release itself differs if another compiler built it.
    let mut points = (1..).map(Point::Step);
    let mut patches = old.series.iter().zip(&new.series).zip(&mut points);
    let edited = (differs(Point::BASE) == Some(false))
        .then(|| {
            patches.find(|((one, other), point)| one != other || differs(*point) != Some(false))
        })
        .flatten();
    Ok(edited
        .filter(|((one, other), point)| one == other && differs(*point) == Some(true))
        .map(|((name, _), point)| {
            Warning::edited_patch(format!(
                "Patch {point} ({name}) was edited between the experiments: its server is another one, and so are those of \
                 the patches behind it."
            ))
        }))
}

/// Returns the supplement of a stored experiment, with the standard errors within blocks from its slices and the
/// comparison of the server's own tests.
pub fn supplement(store: &Store, id: ExperimentId) -> Result<Supplement> {
    let mut blocks = WithinBlocks::default();
    for (workload, block) in store.slice_blocks(id)? {
        blocks.add(&workload, &store.slices(id, &workload, block)?);
    }
    let (within, mut left_out) = blocks.finish();
    let mut supplement = earlier::with_correlation(store, id, store.supplement(id)?)?;
    let observed = store.observed(id, &store.header(id)?)?;
    let owned = |text: &str| text.to_owned();
    let programs = observed.programs();
    supplement.programs = programs.map(|(point, of)| (point, owned(of))).collect();
    let workloads = observed.workloads();
    supplement.workload_digests = workloads
        .map(|(name, of)| (owned(name), owned(of)))
        .collect();
    supplement.tests = server_tests::compare(&store.tests(id)?);
    left_out.append(&mut supplement.left_out);
    Ok(Supplement {
        within,
        left_out,
        ..supplement
    })
}

/// Makes the attribution of an untrusted observation file of at most `most` bytes unpacked, which need not fit into
/// memory, and whose workloads, effects and values are limited ([`Collector::check_extent`]).
pub fn file(path: &Path, most: u64, margin: &dyn Fn(Meter) -> f64) -> Result<Attribution> {
    limited(open(path)?, most, path, &|| reopened(path), margin)
}

/// Makes the attribution of an open observation file, whose path may refer to another file by now. `shown` is
/// its name in errors.
pub fn opened(
    file: File,
    shown: &Path,
    most: u64,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<Attribution> {
    limited(unpacked(file, shown)?, most, shown, &|| None, margin)
}

/// Makes the attribution of at most `most` bytes of `input`.
fn limited(
    input: Box<dyn BufRead>,
    most: u64,
    shown: &Path,
    again: &ReopenInput<'_>,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<Attribution> {
    let mut input = input.take(most.saturating_add(1));
    let check = |collector: &Collector<'_>| collector.check_extent();
    let read = collect(&mut input, shown, again, &check, margin);
    match input.limit() {
        0 => {
            Err(Error::observation_file(format!("it is larger than {most} bytes")).at(shown, None))
        }
        _ => read,
    }
}

/// Makes the attribution of an observation file from `input`, without a size limit.
pub fn read(
    input: impl BufRead,
    path: &Path,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<Attribution> {
    collect(input, path, &|| reopened(path), &|_| Ok(()), margin)
}

/// Reopens the input from its beginning; `None` if it cannot be read again.
type ReopenInput<'a> = dyn Fn() -> Option<Box<dyn BufRead>> + 'a;

/// Refuses what is too large to be judged; called again after some lines.
type CheckExtent = dyn Fn(&Collector<'_>) -> std::result::Result<(), String>;

fn collect(
    input: impl BufRead,
    path: &Path,
    again: &ReopenInput<'_>,
    check: &CheckExtent,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<Attribution> {
    let mut reader = jsonl::Reader::new(input, path)?;
    let (header, supplement) = (reader.header.clone(), reader.supplement.clone());
    let mut collector = Collector::new(&header, &supplement)?;
    let within_limits = |collector: &Collector<'_>| {
        check(collector).map_err(|message| Error::observation_file(message).at(path, None))
    };
    // Planned workloads count, too.
    within_limits(&collector)?;
    let mut batch = jsonl::Batch::default();
    while reader.read_ahead(&mut batch)? {
        for (line, observation) in batch.parse() {
            let observation = observation?;
            if let Err(mut error) = collector.add(&observation) {
                // The first of both is not in memory any more.
                if error.code().number == 722 {
                    let first = again().and_then(|input| first_line(input, path, &observation));
                    error = jsonl::duplicate(&observation, first);
                }
                return Err(batch.at(line, error));
            }
        }
        within_limits(&collector)?;
    }
    Ok(collector.finish(margin))
}

/// Returns the first line of a file with the block, point, workload and meter of `observation`.
fn first_line(input: impl BufRead, path: &Path, observation: &Observation) -> Option<usize> {
    let mut reader = jsonl::Reader::new(input, path).ok()?;
    loop {
        let other = reader.next_observation().ok()??;
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

/// Opens a file again; `None` for standard input.
fn reopened(path: &Path) -> Option<Box<dyn BufRead>> {
    if path == Path::new("-") {
        None
    } else {
        open(path).ok()
    }
}

/// Opens an observation file, plain or compressed with gzip; `-` is standard input.
pub fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return unpacked(std::io::stdin(), path);
    }
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    unpacked(file, path)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::observation_file(format!("cannot read {}: {error}", path.display()))
        .hint("`perfquilt report --format jsonl` writes such a file")
}

/// Number of bytes for detecting a file's format: tests may print a lot before the first benchmark.
const HEAD: u64 = 16 << 20;

/// Returns the beginning of `input`, and a reader of all of it. `shown` is its name in errors.
pub fn head(mut input: Box<dyn BufRead>, shown: &Path) -> Result<(Vec<u8>, Box<dyn BufRead>)> {
    // A pipe may return a single byte at a time.
    let mut head = Vec::new();
    input
        .by_ref()
        .take(HEAD)
        .read_to_end(&mut head)
        .map_err(|error| perfquilt_store::unreadable(shown, &error))?;
    let whole = Cursor::new(head.clone()).chain(input);
    Ok((head, Box::new(whole)))
}

/// Returns a reader of `raw`, which may be compressed with gzip.
fn unpacked(mut raw: impl Read + 'static, path: &Path) -> Result<Box<dyn BufRead>> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    let mut magic = Vec::new();
    raw.by_ref()
        .take(GZIP.len() as u64)
        .read_to_end(&mut magic)
        .map_err(|error| unreadable(path, &error))?;
    let compressed = magic == GZIP;
    let input = BufReader::with_capacity(1 << 16, Cursor::new(magic).chain(raw));
    if compressed {
        let inflated = flate2::bufread::MultiGzDecoder::new(input);
        return Ok(Box::new(BufReader::with_capacity(1 << 16, inflated)));
    }
    Ok(Box::new(input))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_store::import;

    /// A reader that returns one byte at a time, like a pipe may.
    struct Slow(Cursor<Vec<u8>>);

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let room = buffer.len().min(1);
            self.0.read(&mut buffer[..room])
        }
    }

    #[test]
    fn a_form_is_known_however_little_a_pipe_hands_over_at_a_time() {
        let text = "=== RUN TestX\n".repeat(1000) + "BenchmarkX-8\t1000\t10 ns/op\n";
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packer, text.as_bytes()).unwrap();
        let packed = packer.finish().unwrap();
        for bytes in [text.clone().into_bytes(), packed] {
            let path = Path::new("-");
            let input = unpacked(Slow(Cursor::new(bytes)), path).unwrap();
            let (head, mut input) = head(input, path).unwrap();
            let form = import::detect(&head).unwrap();
            assert_eq!(form.name, "output of Go benchmarks");
            let mut all = String::new();
            input.read_to_string(&mut all).unwrap();
            assert_eq!(all, text);
        }
    }

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
