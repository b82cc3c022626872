//! Import of other tools' results as observations.
//!
//! These tools have no blocks: the i-th readings of a server, one per workload, become a block that no other
//! server shares, so points are compared like runs that were not interleaved (docs/statistics.md).

mod go;
mod hyperfine;
mod labels;
mod prefix;
mod sysbench;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};

use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::file_error::unreadable;
use perfquilt_model::counted::counted;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::magic;
use perfquilt_model::observation::{
    ExcludedReadings, ExperimentHeader, MOST_PATCHES, Meter, Observation, ObservationFile,
    ReusedFrom, Supplement, Withheld,
};
use perfquilt_model::point::Point;
use prefix::tool_behind;

/// A format of another tool's results: a file of its own, and a line in `IMPORTERS`.
#[derive(Debug)]
pub struct Importer {
    /// What such a file is, with its article.
    pub name: &'static str,
    /// Returns whether a document with these keys is one.
    has_keys: fn(&[String]) -> bool,
    /// Returns whether a line shows that a text is one.
    has_line: fn(&str) -> bool,
    read: fn(&[InputText]) -> Result<Imported>,
}

/// The importers; the first one that knows a file reads it.
const IMPORTERS: [&Importer; 3] = [&sysbench::IMPORTER, &hyperfine::IMPORTER, &go::IMPORTER];

/// The largest file that is read, in bytes.
const LARGEST: u64 = 256 << 20;

/// Detects the format of a file that begins with `head`; `None` if it is unknown.
pub fn detect(head: &[u8]) -> Option<&'static Importer> {
    let text = String::from_utf8_lossy(head);
    let first = text.trim_start_matches('\u{feff}').trim_start();
    let mut importers = IMPORTERS.into_iter();
    if first.starts_with('{') {
        let keys = json_keys(first.as_bytes());
        return importers.find(|importer| (importer.has_keys)(&keys));
    }
    let known = importers.find(|importer| text.lines().map(str::trim_end).any(importer.has_line));
    known.or_else(|| {
        let (before, importer) = text.lines().find_map(tool_behind)?;
        prefix::is_of_log(before).then_some(importer)
    })
}

/// Returns the keys of the JSON object that `text` begins with, as far as it goes.
fn json_keys(text: &[u8]) -> Vec<String> {
    struct Keys<'k>(&'k mut Vec<String>);
    impl<'de> Visitor<'de> for Keys<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
            while let Some(key) = map.next_key()? {
                self.0.push(key);
                map.next_value::<IgnoredAny>()?;
            }
            Ok(())
        }
    }
    let mut keys = Vec::new();
    // The text may end early: the keys so far are known all the same.
    let _ = serde_json::Deserializer::from_slice(text).deserialize_map(Keys(&mut keys));
    keys
}

/// Returns whether a file that begins with `head` is meant to be an observation file, or is JSON of no known kind.
pub fn is_observation_file(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let first = text.trim_start_matches('\u{feff}').trim();
    if !first.starts_with('{') {
        // The reader says which kind of value it is.
        let line = first.lines().next().unwrap_or_default();
        return serde_json::from_str::<IgnoredAny>(line).is_ok();
    }
    let keys = json_keys(first.as_bytes());
    let has = |name: &str| keys.iter().any(|key| key == name);
    // A document that `--json` writes has effects instead of observations.
    (has("schema") || has("experiment")) && !has("patches")
}

/// The formats that perfquilt reads, and the commands that write them.
pub(super) const READABLE: &str = "perfquilt reads observation files (`perfquilt report --format jsonl`), sysbench \
    (`sysbench … run > FILE`), hyperfine (`hyperfine --export-json FILE COMMAND…`), Go benchmarks \
    (`go test -bench . -count 10 > FILE`) and tables of sql-bench results; docs/formats.md says how";

/// Returns the error for a file that begins with `head`, in none of the formats.
pub fn unknown(path: &Path, head: &[u8]) -> Error {
    if [[0xff, 0xfe], [0xfe, 0xff]]
        .iter()
        .any(|mark| head.starts_with(mark))
    {
        return Error::foreign_results("this is UTF-16, as some shells redirect output")
            .at(path, None)
            .hint("convert it first: `iconv -f UTF-16 -t UTF-8`");
    }
    let packed = match magic::compression(head) {
        Some(program) => Some(format!("packed with {program}")),
        None => magic::is_zip(head).then(|| "a zip archive".to_owned()),
    };
    if let Some(packed) = packed {
        return Error::foreign_results(format!("this is {packed}; perfquilt unpacks only gzip"))
            .at(path, None)
            .hint("unpack it first, or write it to standard input: `… | perfquilt analyse -`");
    }
    if magic::is_lfs_pointer(head) {
        return Error::foreign_results("this is a pointer to a file in Git LFS, not the file")
            .at(path, None)
            .hint("`git lfs pull` fetches the file");
    }
    in_another_form(path, &String::from_utf8_lossy(head)).unwrap_or_else(|| {
        Error::foreign_results("unknown format")
            .at(path, None)
            .hint(READABLE)
    })
}

/// Returns the error for output of a tool that stands behind something else than the prefix of a log: in a document, or below
/// other lines. `None` if there is none.
fn in_another_form(path: &Path, text: &str) -> Option<Error> {
    let is_event = |line: &str| {
        line.starts_with('{') && json_keys(line.as_bytes()).iter().any(|key| key == "Action")
    };
    let (line, error) = text.lines().enumerate().find_map(|(line, text)| {
        if is_event(text) {
            let fault = format!(
                "events of `go test -json` begin here, below {}",
                counted(line, "other line", "other lines")
            );
            let hint = format!("leave these out: `tail -n +{} FILE`", line + 1);
            return Some((line, Error::foreign_results(fault).hint(hint)));
        }
        let (before, format) = tool_behind(text)?;
        let shown = before.escape_debug();
        let fault = format!("{} begins here, behind `{shown}`", format.name);
        let remedy = if before.contains('\u{1b}') {
            "remove the colours: `sed 's/\\x1b\\[[0-9;]*[A-Za-z]//g' FILE`".to_owned()
        } else if before.contains('{') {
            "take the output out of its document first, for example with `jq -r .stdout FILE`"
                .to_owned()
        } else if before.contains('"') {
            "remove the quotes around each line: `sed -E 's/^[[:blank:]]*\"(.*)\",?$/\\1/' FILE`"
                .to_owned()
        } else {
            "remove what stands before each line".to_owned()
        };
        Some((line, Error::foreign_results(fault).hint(remedy)))
    })?;
    Some(error.at(path, Some(line + 1)))
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

/// Why a run gives no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Exclusion {
    /// Its command failed.
    ExitCode,
    /// It has no time.
    Timeless,
    /// It did not get to its end.
    Unfinished,
    /// The tool calls it failed.
    Failed,
    /// It has no value that perfquilt reads.
    Unitless,
}

impl Exclusion {
    /// Returns the end of a sentence about such runs.
    fn runs(self) -> &'static str {
        match self {
            Exclusion::ExitCode => "that ended with another exit code than 0",
            Exclusion::Timeless => "whose time is missing, or not a number above 0",
            Exclusion::Unfinished => {
                "without results (they ended with FATAL, or their output is cut off)"
            }
            Exclusion::Failed => "that ended with FAIL, or did not end",
            Exclusion::Unitless => "without ns/op",
        }
    }

    /// Returns what is said of a server that has only such runs.
    fn all(self) -> &'static str {
        match self {
            Exclusion::ExitCode => "no run ended with exit code 0",
            Exclusion::Timeless => "no run has a time in `times`",
            Exclusion::Unfinished => "every run ended with FATAL, or its output is cut off",
            Exclusion::Failed => "every run failed or did not end",
            Exclusion::Unitless => "no result has ns/op, and other units are not costs",
        }
    }
}

/// A server with its values.
#[derive(Debug, Clone, PartialEq, Default)]
struct ImportedServer {
    /// Its name; empty if it is that of the file.
    name: String,
    /// The part that distinguishes it from others of its name, if any.
    variant: String,
    /// Its point, if the file names it.
    point: Option<Point>,
    /// Its experiment, if the file names it.
    experiment: Option<String>,
    readings: Vec<ImportedValue>,
    /// The numbers of runs without values, by workload and reason.
    excluded: BTreeMap<(String, Exclusion), u64>,
    /// Sentences about what was read.
    notes: BTreeSet<String>,
    /// Workloads whose readings cannot tell how fast it is, with the reason.
    withheld: BTreeSet<(String, &'static str)>,
    /// The versions of the tool.
    versions: BTreeSet<String>,
}

impl ImportedServer {
    /// Withholds the verdict on all of its workloads.
    fn withhold(&mut self, why: &'static str) {
        let withheld = self
            .readings
            .iter()
            .map(|reading| (reading.workload.clone(), why));
        self.withheld.extend(withheld);
    }

    /// Counts a run of `workload` without a value.
    fn exclude(&mut self, workload: &str, why: Exclusion) {
        *self.excluded.entry((workload.to_owned(), why)).or_default() += 1;
    }
}

/// A file as text.
struct InputText {
    path: PathBuf,
    text: String,
}

/// The servers of all files.
#[derive(Default)]
struct Imported {
    /// One entry per file.
    files: Vec<Vec<ImportedServer>>,
    /// The name of point 0, if the files name it and the points are no series.
    base: Option<String>,
    /// Sentences about what was read.
    notes: Vec<String>,
    /// Sentences about all files, behind those about each.
    last_notes: Vec<String>,
}

/// Reads files of one format. The first server is the one that the others are compared with; a single server is refused.
pub fn read(form: &Importer, inputs: Vec<(PathBuf, Box<dyn BufRead>)>) -> Result<ObservationFile> {
    let inputs = inputs.into_iter();
    let inputs = inputs.map(|(path, input)| text(form, path, input));
    let inputs: Vec<InputText> = inputs.collect::<Result<_>>()?;
    let mut imported = (form.read)(&inputs)?;
    let paths: Vec<&Path> = inputs.iter().map(|input| &*input.path).collect();
    check(&imported.files, &paths)?;
    let files = labels::of_files(&paths);
    labels::name(&mut imported.files, &files);
    let count = imported.files.iter().flatten().count();
    if count < 2 {
        return Err(
            Error::foreign_results("a single server: there is nothing to compare it with")
                .hint("name the files of all servers, the one to be compared with first (docs/formats.md)"),
        );
    }
    check_common(&imported.files, &paths)?;
    imported
        .last_notes
        .extend(several_versions(&mut imported.files));
    if let Some(note) = equal_servers(&mut imported.files) {
        imported.last_notes.push(note);
    }
    file(&files[0], imported)
}

/// Notes servers that have exactly the values of another one: a file that was given twice, or copied.
fn equal_servers(files: &mut [Vec<ImportedServer>]) -> Option<String> {
    let mut all = files.iter_mut().flatten();
    let first = &*all.next()?;
    // A pair of times may be equal by chance.
    let is_equal = |server: &&mut ImportedServer| {
        server.readings.len() > 2 && server.readings == first.readings
    };
    let mut note = None;
    for equal in all.filter(is_equal) {
        equal.withhold(COPY);
        note.get_or_insert(format!(
            "{} has exactly the values of {}: is it the same file, or a copy?",
            equal.name, first.name
        ));
    }
    note
}

/// Why a server with the values of the first one has no verdict.
const COPY: &str = "the values of one file cannot tell two servers apart";

/// Notes results of several versions of the tool, which may measure differently.
fn several_versions(files: &mut [Vec<ImportedServer>]) -> Option<String> {
    let mut servers = files.iter_mut().flatten();
    let first = servers.next()?.versions.clone();
    let mut versions = first.clone();
    for server in servers {
        versions.extend(server.versions.iter().cloned());
        if server.versions != first {
            server.withhold(OTHER_TOOL);
        }
    }
    let versions: Vec<String> = versions.into_iter().collect();
    (versions.len() > 1).then(|| {
        format!(
            "The results are of several versions of the tool, which may measure differently: {}.",
            versions.join(", ")
        )
    })
}

/// Why a server that another version of the tool measured has no verdict.
const OTHER_TOOL: &str = "another version of the tool measured the other server";

fn text(form: &Importer, path: PathBuf, input: Box<dyn BufRead>) -> Result<InputText> {
    let mut text = String::new();
    input
        .take(LARGEST + 1)
        .read_to_string(&mut text)
        .map_err(|error| unreadable(&path, &error))?;
    if text.len() as u64 > LARGEST {
        return Err(Error::foreign_results("more than 256 MiB").at(&path, None));
    }
    if let Some(rest) = text.strip_prefix('\u{feff}') {
        text = rest.to_owned();
    }
    let text = prefix::without_prefix(text, form, &path)?;
    Ok(InputText { path, text })
}

/// Refuses files without results, and values of different experiments.
fn check(files: &[Vec<ImportedServer>], paths: &[&Path]) -> Result<()> {
    let experiment_of =
        |servers: &[ImportedServer]| servers.first().and_then(|s| s.experiment.clone());
    let mut all = files.iter().flatten();
    if all.clone().all(|server| server.readings.is_empty())
        && let Some((_, why)) = all.find_map(|server| server.excluded.keys().next())
    {
        return Err(Error::foreign_results(format!("no results: {}", why.all())).at(paths[0], None));
    }
    for (found, path) in files.iter().zip(paths) {
        let is_empty =
            |server: &ImportedServer| server.readings.is_empty() && server.excluded.is_empty();
        if found.iter().all(is_empty) {
            return Err(Error::foreign_results("no results").at(*path, None));
        }
        if let (Some(first), Some(other)) = (experiment_of(&files[0]), experiment_of(found))
            && first != other
        {
            let fault = format!(
                "the values are from experiment `{other}`, but those of the first file from `{first}`"
            );
            return Err(Error::foreign_results(fault)
                .at(*path, None)
                .hint("values of different experiments are never compared"));
        }
    }
    Ok(())
}

/// Refuses a server that has no workload of the first one: there would be no figure, and nobody would see why.
fn check_common(files: &[Vec<ImportedServer>], paths: &[&Path]) -> Result<()> {
    let workloads = |server: &ImportedServer| -> BTreeSet<(Meter, String)> {
        let readings = server.readings.iter();
        readings
            .map(|reading| (reading.meter, reading.workload.clone()))
            .collect()
    };
    let mut all = files
        .iter()
        .zip(paths)
        .flat_map(|(servers, path)| servers.iter().map(move |server| (server, path)));
    let Some((base, _)) = all.next() else {
        return Ok(());
    };
    let of_base = workloads(base);
    let first = |names: &BTreeSet<(Meter, String)>| {
        names
            .first()
            .map_or(String::new(), |(_, name)| name.clone())
    };
    for (server, path) in all.filter(|(server, _)| server.point.is_none()) {
        let own = workloads(server);
        if own.is_empty() || of_base.is_empty() || !own.is_disjoint(&of_base) {
            continue;
        }
        let fault = format!(
            "{} has none of the workloads of {}: `{}` here, `{}` there",
            server.name,
            base.name,
            first(&own),
            first(&of_base)
        );
        return Err(Error::foreign_results(fault)
            .at(*path, None)
            .hint(
                "results are compared if test, options, threads, package, machine and number of processors are the same; \
                 what a script of sysbench prints before the start is part of the name, so print nothing that differs by run",
            ));
    }
    Ok(())
}

fn file(name: &str, imported: Imported) -> Result<ObservationFile> {
    let Imported {
        files,
        base,
        notes,
        last_notes,
    } = imported;
    let servers: Vec<ImportedServer> = files.into_iter().flatten().collect();
    let mut header = ExperimentHeader {
        experiment: name.to_owned(),
        ..ExperimentHeader::new(name, "")
    };
    let named = servers.iter().all(|server| server.point.is_some());
    if named {
        header.series = series(&servers);
        header.base = base;
        carry(&mut header, &servers);
    } else {
        header.base = servers.first().map(|server| server.name.clone());
        let further = servers.iter().skip(1);
        header.series = further.map(|server| server.name.clone()).collect();
    }
    header.check().map_err(Error::foreign_results)?;
    let mut supplement = Supplement {
        notes,
        ..Supplement::default()
    };
    let mut observations = Vec::new();
    let mut first_block = 0u32;
    for (place, server) in servers.into_iter().enumerate() {
        let point = match server.point {
            Some(point) if named => point,
            _ => Point::Step(place),
        };
        supplement.left_out.extend(left_out(&server));
        let withheld = server.withheld.iter().map(|(workload, why)| Withheld {
            workload: Some(workload.clone()),
            points: vec![point],
            reason: (*why).to_owned(),
            ..Withheld::default()
        });
        supplement.withheld.extend(withheld);
        for note in survivors(&server)
            .into_iter()
            .chain(server.notes.iter().cloned())
        {
            if !supplement.notes.contains(&note) {
                supplement.notes.push(note);
            }
        }
        if server.readings.is_empty() && !named {
            let why = server.excluded.keys().next().map(|(_, why)| why.all());
            let why = why.unwrap_or("no results");
            header.failed.insert(point, why.to_owned());
        }
        let experiment = match server.experiment {
            Some(experiment) if named => experiment,
            _ => header.experiment.clone(),
        };
        let mut counts: BTreeMap<(Meter, String), u32> = BTreeMap::new();
        for reading in server.readings {
            let row = (reading.meter, reading.workload.clone());
            let count = counts.entry(row).or_default();
            let block = first_block.saturating_add(*count);
            let observation = Observation {
                experiment: experiment.clone(),
                n: reading.n,
                ..Observation::new(
                    block,
                    point,
                    &reading.workload,
                    reading.meter,
                    reading.value,
                )
            };
            *count += 1;
            header
                .check_observation(&observation)
                .map_err(Error::foreign_results)?;
            observations.push(observation);
        }
        let most = counts.into_values().max().unwrap_or(0);
        first_block = first_block.saturating_add(most);
    }
    supplement.notes.extend(last_notes);
    Ok(ObservationFile {
        header,
        supplement,
        observations,
    })
}

/// Returns the runs of a server without values.
fn left_out(server: &ImportedServer) -> impl Iterator<Item = ExcludedReadings> {
    server
        .excluded
        .iter()
        .map(|((workload, why), count)| ExcludedReadings {
            workload: workload.clone(),
            meter: Meter::Time,
            count: *count,
            reason: format!("runs of {} {}", server.name, why.runs()),
        })
}

/// Says that the figures of a server are only those of its other runs.
fn survivors(server: &ImportedServer) -> Vec<String> {
    if server.readings.is_empty() {
        return Vec::new();
    }
    let mut counts: BTreeMap<Exclusion, u64> = BTreeMap::new();
    for ((_, why), count) in &server.excluded {
        *counts.entry(*why).or_default() += count;
    }
    let note = |(why, count): (Exclusion, u64)| {
        let (name, runs) = (&server.name, why.runs());
        let what = match why {
            Exclusion::Unitless => "Runs",
            _ => "Failed runs",
        };
        format!("{what} of {name} {runs}: {count}. Its figures are those of the other runs alone.")
    };
    counts.into_iter().map(note).collect()
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
    Error::foreign_results(fault).at(path, Some(line + 1))
}

#[cfg(test)]
mod tests;
