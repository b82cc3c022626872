//! The Go benchmark format (golang.org/design/14313-benchmark-format), as `go test -bench` prints it, plain or as JSON.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use super::{Exclusion, Imported, ImportedServer, ImportedValue, Importer, InputText, at};
use perfquilt_model::error::Result;
use perfquilt_model::names::{distinct, numbered};
use perfquilt_model::number;
use perfquilt_model::observation::{MOST_PATCHES, Meter, RowName};
use perfquilt_model::point::Point;

/// Output of `go test -bench` and `perfquilt report --format gobench`; one file per server unless names
/// contain `/point=`.
pub(super) const IMPORTER: Importer = Importer {
    name: "output of Go benchmarks",
    has_keys: |keys| keys.iter().any(|key| key == "Action"),
    has_line: is_line,
    read,
};

/// Returns whether a line is a result: `Benchmark` and a name that does not continue with a lower-case
/// letter, a count, and a value with its unit.
fn is_line(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let named = words.next().is_some_and(is_name);
    let counted = words.next().is_some_and(|n| n.parse::<u64>().is_ok());
    named && counted && words.next().is_some_and(is_value) && words.next().is_some()
}

/// Returns whether a word is meant to be a number.
fn is_value(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit()) || word.parse::<f64>().is_ok()
}

fn is_name(word: &str) -> bool {
    let name = word.strip_prefix("Benchmark");
    name.is_some_and(|name| !name.starts_with(char::is_lowercase))
}

/// Returns whether a line that is no result has one: a count, and a value per operation. Other output stands before it, or in
/// place of its name.
fn has_result(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.windows(3).any(|three| {
        three[0].parse::<u64>().is_ok() && is_value(three[1]) && three[2].ends_with("/op")
    })
}

/// Returns whether a line that is no result begins and ends like one: output of another benchmark came between, or it is
/// damaged.
fn is_damaged(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let last = words.next_back();
    words.next().is_some_and(is_name)
        && last.is_some_and(|unit| unit.ends_with("/op"))
        && !line.contains("---")
}

/// Returns the name of a benchmark that began, which is printed before its result.
fn begun(line: &str) -> Option<&str> {
    let (name, rest) = line.split_once([' ', '\t'])?;
    (is_name(name) && rest.trim_start_matches(' ').starts_with('\t') || line.ends_with('\t'))
        .then_some(name)
}

fn meter(unit: &str) -> Option<Meter> {
    Meter::ALL.into_iter().find(|meter| meter.go_unit() == unit)
}

/// The keys of the lines that distinguish benchmarks of one name.
const FACTS: [&str; 4] = ["pkg", "goos", "goarch", "cpu"];

/// The keys of the lines that tell which build was measured. A file has the results of one.
const BUILD_FACTS: [&str; 5] = ["commit", "branch", "revision", "toolchain", "version"];

/// Why the results of several builds in one file have no verdict.
const SEVERAL_BUILDS: &str = "one file has results of several builds";

/// A benchmark: what its name says, and the lines before it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Benchmark {
    /// The name without `Benchmark`, and without the number of processors.
    name: String,
    /// The digits after the last hyphen: GOMAXPROCS, or a part of the name where that is 1.
    processors: Option<String>,
    /// The values of [`FACTS`].
    facts: [Option<String>; FACTS.len()],
}

/// A line with a result.
struct GoResult {
    line: usize,
    benchmark: Benchmark,
    experiment: Option<String>,
    n: u64,
    values: Vec<(Meter, f64)>,
}

/// A file's results, and what `perfquilt report --format gobench` says about them.
#[derive(Default)]
struct GoFile {
    results: Vec<GoResult>,
    /// Failed runs by benchmark or package.
    failed: BTreeMap<String, u64>,
    /// The names of patches, by their place.
    patches: BTreeMap<usize, String>,
    /// The name of the server that the others are compared with.
    base: Option<String>,
    /// The names of workloads by their words in benchmarks' names.
    workloads: BTreeMap<String, String>,
    /// The values of [`BUILD_FACTS`] that results stand behind.
    builds: BTreeMap<&'static str, BTreeSet<String>>,
}

/// Reads the results of files: each of one server, or of the points that perfquilt's own files name by `/point=`,
/// separately for each preceding `experiment:` line. Units other than costs of time or instructions are skipped.
fn read(inputs: &[InputText]) -> Result<Imported> {
    let files: Vec<GoFile> = inputs.iter().map(parse).collect::<Result<_>>()?;
    let names = Names::of(inputs, &files)?;
    let mut imported = Imported::default();
    imported.notes.extend(names.note());
    for file in &files {
        imported.base = imported.base.take().or_else(|| file.base.clone());
        imported.files.push(servers(file, &names));
    }
    Ok(imported)
}

fn parse(input: &InputText) -> Result<GoFile> {
    let mut parser = Parser::default();
    for (number, line) in lines(&input.text, &input.path)? {
        parser
            .line(number, &line)
            .map_err(|fault| at(&input.path, number, fault))?;
    }
    if let Some(name) = parser.open.take() {
        parser.fail(&name);
    }
    Ok(parser.file)
}

/// The state after the lines so far.
#[derive(Default)]
struct Parser {
    file: GoFile,
    facts: [Option<String>; FACTS.len()],
    experiment: Option<String>,
    /// The values of [`BUILD_FACTS`].
    build: BTreeMap<&'static str, String>,
    /// The benchmark that began and has no result yet.
    open: Option<String>,
    /// Whether a benchmark of the package has failed.
    package_failed: bool,
}

impl Parser {
    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        if let Some((key, value)) = line.split_once(':').filter(|(key, _)| is_key(key)) {
            self.describe(key, value.trim());
        } else if is_line(line) {
            self.open = None;
            for (key, value) in &self.build {
                let values = self.file.builds.entry(key).or_default();
                values.insert(value.clone());
            }
            let result = result(line, &self.facts)?;
            self.file.results.push(GoResult {
                line: number,
                experiment: self.experiment.clone(),
                ..result
            });
        } else if is_damaged(line) {
            return Err(
                "not a result, although it begins with a benchmark's name and has a unit (remove the line, \
                 or repeat the benchmark)"
                    .to_owned(),
            );
        } else if has_result(line) {
            return Err(
                "a result without its name: other output precedes it on this line (if it is no result, \
                 remove the line)"
                    .to_owned(),
            );
        } else {
            self.end_of_run(line);
        }
        Ok(())
    }

    /// Keeps what a line says about the results behind it.
    fn describe(&mut self, key: &str, value: &str) {
        if let Some(place) = FACTS.iter().position(|fact| *fact == key) {
            self.facts[place] = Some(value.to_owned()).filter(|value| !value.is_empty());
            self.package_failed &= key != "pkg";
        } else if key == "experiment" {
            self.experiment = Some(value.to_owned());
        } else if let Some(key) = BUILD_FACTS.iter().find(|fact| **fact == key) {
            self.build.insert(key, value.to_owned());
        } else {
            self.file.describe(key, value);
        }
    }

    /// Counts runs that failed.
    fn end_of_run(&mut self, line: &str) {
        if let Some(name) = begun(line) {
            if let Some(before) = self.open.replace(name.to_owned()) {
                self.fail(&before);
            }
            if line.contains("--- SKIP:") || line.contains("--- BENCH:") {
                self.open = None;
            }
        }
        let package = line.strip_prefix("FAIL");
        if let Some(place) = line.find("--- FAIL: Benchmark") {
            let name = line[place..].split_whitespace().nth(2);
            self.fail(name.unwrap_or_default());
            self.open = None;
        } else if let Some(package) = package.filter(|rest| rest.starts_with(['\t', ' '])) {
            if let Some(name) = self.open.take() {
                self.fail(&name);
            } else if !self.package_failed {
                self.fail(package.split_whitespace().next().unwrap_or_default());
            }
            self.package_failed = false;
        }
    }

    /// Counts a failed run of a benchmark or package.
    fn fail(&mut self, name: &str) {
        self.package_failed = true;
        *self.file.failed.entry(name.to_owned()).or_default() += 1;
    }
}

impl GoFile {
    /// Keeps a line that perfquilt wrote about its results.
    fn describe(&mut self, key: &str, value: &str) {
        let number = key
            .strip_prefix("patch-")
            .or_else(|| key.strip_prefix("server-"));
        if let Some(place) = number.and_then(|place| place.parse().ok()) {
            self.patches.insert(place, value.to_owned());
        } else if key == "base" {
            self.base = Some(value.to_owned());
        } else if key.starts_with("workload-")
            && let Some((word, name)) = value.split_once(' ')
            && let Ok(name) = serde_json::from_str(name)
        {
            self.workloads.insert(word.to_owned(), name);
        }
    }
}

/// Returns whether a line of the form `key: value` is about the results behind it.
fn is_key(key: &str) -> bool {
    key.starts_with(char::is_lowercase)
        && !key.contains(|c: char| c.is_whitespace() || c.is_uppercase())
}

/// Parses a result, without its line and experiment.
fn result(line: &str, facts: &[Option<String>; FACTS.len()]) -> Result<GoResult, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let n = words[1].parse::<u64>().unwrap_or(0);
    let mut values: Vec<(Meter, f64)> = Vec::new();
    for pair in words[2..].chunks(2) {
        let [value, unit] = pair else {
            return Err(format!("`{}` has no unit", pair[0]));
        };
        let Some(meter) = meter(unit) else { continue };
        let cost = number::parse(value).filter(|cost| *cost > 0.0);
        let (Some(cost), true) = (cost, n > 0) else {
            return Err(format!("`{value} {unit}` of {n} operations is not a cost"));
        };
        if values.iter().any(|(known, _)| *known == meter) {
            return Err(format!("two values in {unit}"));
        }
        values.push((meter, cost));
    }
    let name = words[0].strip_prefix("Benchmark").unwrap_or(words[0]);
    let (name, processors) = match name.rsplit_once('-') {
        Some((name, digits))
            if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) =>
        {
            (name, Some(digits.to_owned()))
        }
        _ => (name, None),
    };
    let benchmark = Benchmark {
        name: name.to_owned(),
        processors,
        facts: facts.clone(),
    };
    Ok(GoResult {
        line: 0,
        benchmark,
        experiment: None,
        n,
        values,
    })
}

/// Returns the lines of a file with their numbers from 0; those of `go test -json` in the order of their packages, each
/// with its `pkg:` line before.
fn lines<'t>(text: &'t str, path: &Path) -> Result<Vec<(usize, Cow<'t, str>)>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Event<'e> {
        action: Cow<'e, str>,
        #[serde(default)]
        package: String,
        #[serde(default)]
        output: String,
    }
    if !text.trim_start().starts_with('{') {
        return Ok(text.lines().map(Cow::Borrowed).enumerate().collect());
    }
    let mut packages: BTreeMap<String, Vec<(usize, String)>> = BTreeMap::new();
    let events = text.lines().enumerate();
    for (number, line) in events.filter(|(_, line)| line.starts_with('{')) {
        let event: Event<'_> = serde_json::from_str(line).map_err(|error| {
            at(
                path,
                number,
                format!("not an event of `go test -json`: {error}"),
            )
        })?;
        if event.action != "output" {
            continue;
        }
        let head = || vec![(number, format!("pkg: {}\n", event.package))];
        let output = packages.entry(event.package.clone()).or_insert_with(head);
        // An event may be a part of a line.
        match output.last_mut() {
            Some((_, last)) if !last.ends_with('\n') => last.push_str(&event.output),
            _ => output.push((number, event.output)),
        }
    }
    let all = packages.into_values().flatten();
    Ok(all
        .map(|(number, line)| {
            (
                number,
                Cow::Owned(line.trim_end_matches(['\n', '\r']).to_owned()),
            )
        })
        .collect())
}

/// The workload and the point of each benchmark.
struct Names {
    /// By benchmark.
    places: BTreeMap<Benchmark, (String, Option<Point>)>,
    /// Names that are not those of the file, because several would be equal.
    numbered: Vec<String>,
    /// The number of processors of all benchmarks, if it is one.
    processors: Option<String>,
}

impl Names {
    /// Names the benchmarks of all files by what differs between them: where all have the same number of processors, it
    /// is no part of names.
    fn of(inputs: &[InputText], files: &[GoFile]) -> Result<Names> {
        let results = || files.iter().flat_map(|file| &file.results);
        let all: BTreeSet<&Benchmark> = results().map(|result| &result.benchmark).collect();
        let one_number = all
            .iter()
            .map(|benchmark| &benchmark.processors)
            .collect::<BTreeSet<_>>()
            .len()
            == 1;
        let differs: Vec<bool> = (0..FACTS.len())
            .map(|fact| {
                all.iter()
                    .filter_map(|benchmark| benchmark.facts[fact].as_ref())
                    .collect::<BTreeSet<_>>()
                    .len()
                    > 1
            })
            .collect();
        let by_points = has_points(inputs, files)?;
        let mut named: BTreeMap<&Benchmark, (String, Option<Point>)> = BTreeMap::new();
        let mut shown: BTreeMap<String, String> = BTreeMap::new();
        for benchmark in all {
            let full = |name: &str| {
                let processors = benchmark.processors.as_ref().filter(|_| !one_number);
                let mut name = match processors {
                    Some(processors) => format!("{name}-{processors}"),
                    None => name.to_owned(),
                };
                for (place, fact) in FACTS.iter().enumerate() {
                    let value = benchmark.facts[place].as_ref().filter(|_| differs[place]);
                    name = match (*fact, value) {
                        (_, None) => name,
                        ("pkg", Some(package)) => format!("{package}.{name}"),
                        (fact, Some(value)) => format!("{name}, {fact} {value}"),
                    };
                }
                name
            };
            if by_points {
                let (name, point) = name_and_point(&benchmark.name, files);
                shown.insert(full(&name), full(&name));
                named.insert(benchmark, (full(&name), point));
            } else {
                let name = full(&benchmark.name);
                // Only operations are separated by a slash; a benchmark's sub-benchmarks are not operations.
                shown.insert(name.clone(), full(&benchmark.name.replace('/', ".")));
                named.insert(benchmark, (name, None));
            }
        }
        let by_name = distinct(
            shown.iter().map(|(name, shown)| (&**name, shown.clone())),
            numbered,
        );
        let changed = by_name
            .iter()
            .filter(|(name, unique)| **unique != shown[**name]);
        let numbered = changed
            .map(|(name, unique)| format!("{unique} is {name}"))
            .collect();
        let places = named.iter().map(|(benchmark, (name, point))| {
            ((*benchmark).clone(), (by_name[&**name].clone(), *point))
        });
        Ok(Names {
            places: places.collect(),
            numbered,
            processors: one_number
                .then(|| results().next()?.benchmark.processors.clone())
                .flatten(),
        })
    }

    /// Says which names have a number to keep them apart.
    fn note(&self) -> Option<String> {
        (!self.numbered.is_empty()).then(|| {
            let names = self.numbered.join("; ");
            format!("Benchmarks whose names would be equal have a number: {names}.")
        })
    }

    /// Returns the workload's name for a benchmark that has failed.
    fn of_failed(&self, benchmark: &str) -> String {
        let name = benchmark.strip_prefix("Benchmark").unwrap_or(benchmark);
        let suffix = self.processors.as_ref().map(|number| format!("-{number}"));
        let name = suffix
            .and_then(|suffix| name.strip_suffix(&*suffix))
            .unwrap_or(name);
        or_benchmark(name)
    }
}

/// The beginning of the names that `report --format gobench` writes, without `Benchmark`.
const OWN: &str = "Server/workload=";

/// Returns whether names contain the points, by `/point=`: those that perfquilt writes do, and those of a single file if
/// each has a point and one is the base.
fn has_points(inputs: &[InputText], files: &[GoFile]) -> Result<bool> {
    let mut points = BTreeSet::new();
    let mut without = false;
    let mut is_own = false;
    for (file, input) in files.iter().zip(inputs) {
        for result in &file.results {
            let name = &result.benchmark.name;
            let words = name
                .split('/')
                .filter_map(|part| part.strip_prefix("point="));
            let words: Vec<&str> = words.collect();
            let own = name.starts_with(OWN) && !words.is_empty();
            is_own |= own;
            match words[..] {
                [word] => match word.parse::<Point>() {
                    Ok(point) => drop(points.insert(point)),
                    Err(error) if own => {
                        return Err(at(&input.path, result.line, error.message().to_owned()));
                    }
                    Err(_) => without = true,
                },
                _ => without = true,
            }
        }
    }
    Ok(!without && (is_own || inputs.len() == 1 && points.contains(&Point::BASE)))
}

/// Returns a name, also for a benchmark without one.
fn or_benchmark(name: &str) -> String {
    let name = if name.is_empty() { "benchmark" } else { name };
    name.to_owned()
}

/// Splits a benchmark's name into the workload and the point.
fn name_and_point(name: &str, files: &[GoFile]) -> (String, Option<Point>) {
    let is_point = |part: &&str| part.starts_with("point=");
    let point = name.split('/').find(is_point);
    let point = point.and_then(|part| part["point=".len()..].parse().ok());
    let is_own = name.starts_with(OWN);
    let parts = name.split('/').filter(|part| !is_point(part));
    let parts: Vec<&str> = parts.collect();
    if !is_own {
        return (or_benchmark(&parts.join(".")), point);
    }
    let word = parts[1..].join("/");
    let word = word.strip_prefix("workload=").unwrap_or(&word);
    let written = files.iter().find_map(|file| file.workloads.get(word));
    let workload = match (written, word.split_once("/operation=")) {
        (Some(written), _) => written.clone(),
        (None, Some((workload, operation))) => RowName::operation(workload, operation).to_string(),
        (None, None) => word.replace('/', "."),
    };
    (workload, point)
}

/// Returns the servers of a file.
fn servers(file: &GoFile, names: &Names) -> Vec<ImportedServer> {
    let mut servers: BTreeMap<(usize, Option<Point>), ImportedServer> = BTreeMap::new();
    // Experiments are numbered in the order of their first results.
    let mut experiments: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    for result in &file.results {
        let (workload, point) = &names.places[&result.benchmark];
        let experiment = result.experiment.as_deref().filter(|_| point.is_some());
        let next = experiments.len();
        let place = *experiments.entry(experiment).or_insert(next);
        let server = servers.entry((place, *point)).or_default();
        server.experiment = experiment.map(str::to_owned);
        if result.values.is_empty() {
            server.exclude(workload, Exclusion::Unitless);
        }
        let value = |(meter, value): &(Meter, f64)| ImportedValue {
            workload: workload.clone(),
            meter: *meter,
            value: *value,
            n: result.n,
        };
        server.readings.extend(result.values.iter().map(value));
    }
    let named = servers.keys().all(|(_, point)| point.is_some());
    if named && !servers.is_empty() {
        // Patches without results are part of the series.
        for (&patch, _) in file.patches.range(1..=MOST_PATCHES) {
            servers.entry((0, Some(Point::Step(patch)))).or_default();
        }
    }
    if servers.is_empty() && !file.failed.is_empty() {
        servers.insert((0, None), ImportedServer::default());
    }
    let mixes_builds = file.builds.values().any(|values| values.len() > 1);
    for server in servers.values_mut().filter(|_| mixes_builds) {
        server.withhold(SEVERAL_BUILDS);
    }
    if let Some(first) = servers.values_mut().next() {
        let several = file.builds.iter().filter(|(_, values)| values.len() > 1);
        first.notes.extend(several.map(|(key, values)| {
            let values: Vec<&str> = values.iter().take(3).map(String::as_str).collect();
            format!(
                "One file has results for several values of `{key}` ({}): they count as one server's.",
                values.join(", ")
            )
        }));
        for (benchmark, count) in &file.failed {
            let workload = names.of_failed(benchmark);
            *first
                .excluded
                .entry((workload, Exclusion::Failed))
                .or_default() += count;
        }
    }
    let servers = servers.into_iter().map(|((_, point), mut server)| {
        server.point = point;
        server.name = match point {
            Some(Point::Step(k)) => {
                let known = file.patches.get(&k).cloned();
                known.unwrap_or_else(|| format!("point {k}"))
            }
            Some(point) => point.to_string(),
            None => String::new(),
        };
        server
    });
    servers.collect()
}
