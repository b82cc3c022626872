//! The output of `sysbench … run`, versions 0.4 to 1.1.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Exclusion, Imported, ImportedServer, ImportedValue, Importer, InputText, at};
use perfquilt_model::counted::counted;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::names::{distinct, numbered};
use perfquilt_model::number;
use perfquilt_model::observation::Meter;

/// Output of `sysbench … run`; one file per server, with one or more runs.
pub(super) const IMPORTER: Importer = Importer {
    name: "output of sysbench",
    has_keys: |_| false,
    has_line: is_head,
    read,
};

/// Returns whether a line is the first one of a run's output.
fn is_head(line: &str) -> bool {
    line.strip_prefix("sysbench ")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// A run's output about itself and since its last report.
#[derive(Default)]
struct Run {
    /// Whether it measures: `prepare` and `cleanup` have the same first line.
    measures: bool,
    /// The test's name, from the command if the log has it, else from the output.
    test: Option<String>,
    /// The options that every name has.
    options: Vec<String>,
    /// Further facts about the test in the output.
    described: BTreeSet<String>,
    /// The options of its command, if the log has it.
    command: Option<BTreeSet<String>>,
    /// Whether the lines still describe the test.
    has_begun: bool,
    threads: Option<String>,
    /// Whether the test's requests are counted below `queries performed:`.
    queries: BTreeMap<&'static str, f64>,
    /// The second of the checkpoint whose report follows.
    checkpoint: Option<f64>,
    /// The events per second that the report itself states.
    rate: Option<f64>,
    seconds: Option<f64>,
    /// The average latency of an event in milliseconds, behind the last report.
    latency: Option<f64>,
    /// The reports so far.
    reports: Vec<Report>,
    /// The line of its head.
    line: usize,
    /// Errors that the test ignored, and connections that it lost, by their words.
    faults: BTreeMap<&'static str, f64>,
    /// Whether the times of single events have begun, which follow the number of events, and not ended.
    in_latency: bool,
    has_failed: bool,
}

/// The time and the events of a report.
struct Report {
    line: usize,
    checkpoint: Option<f64>,
    /// The seconds as printed, which count from the start of the run since version 1.0.
    seconds: f64,
    events: u64,
    rate: Option<f64>,
}

/// Lines that name the test, and its name.
const TESTS: [(&str, &str); 9] = [
    ("Prime numbers limit:", "cpu"),
    ("Doing CPU performance benchmark", "cpu"),
    ("Running memory speed test", "memory"),
    ("Doing memory operations speed test", "memory"),
    ("Doing thread subsystem performance test", "threads"),
    ("Doing mutex performance test", "mutex"),
    ("Extra file open flags:", "fileio"),
    ("Doing OLTP test", "oltp"),
    ("Running mixed OLTP test", "oltp"),
];

/// The words before the rate of a run that has one: it does not go as fast as it can.
const RATE: &str = "at a rate of ";

/// Lines with an option that makes it another test.
const OPTIONS: [(&str, &str); 8] = [
    // Behind the start, in version 0.4.
    ("Maximum prime number checked in CPU test:", "primes to "),
    ("Prime numbers limit:", "primes to "),
    ("Target transaction rate:", RATE),
    ("block size:", "blocks of "),
    ("scope:", "scope "),
    ("Block size ", "blocks of "),
    ("operation:", ""),
    (
        "Read/Write ratio for combined random IO test:",
        "reads to writes ",
    ),
];

/// The beginnings of lines before the start of a test that do not make it another one: how long it runs, and what it prints.
const INCIDENTAL: [&str; 18] = [
    "Running the test with following options",
    "Number of threads:",
    "Initializing random number generator",
    "Random number generator seed",
    "Report intermediate results",
    "Debug mode",
    "Forcing shutdown",
    "Maximum number of requests",
    "Number of IO requests",
    "Number of random requests",
    "total size:",
    "Memory transfer size:",
    "WARNING:",
    "ALERT:",
    "NOTICE:",
    "DEBUG:",
    "PANIC:",
    "FATAL:",
];

/// Lines with which a test starts, or its results if the log lacks the start.
const STARTS: [&str; 10] = [
    "Initializing worker threads",
    "Threads started!",
    "SQL statistics:",
    "OLTP test statistics:",
    "queries performed:",
    "File operations:",
    "Operations performed:",
    "Throughput:",
    "General statistics:",
    "Test execution summary:",
];

/// Options of the command that do not make it another test: the server's address, the length, and what is printed. The
/// output has the number of threads.
const INCIDENTAL_OPTIONS: [&str; 15] = [
    "thread-init-timeout",
    "db-driver",
    "time",
    "max-time",
    "events",
    "max-requests",
    "threads",
    "num-threads",
    "rand-seed",
    "report-interval",
    "report-checkpoints",
    "percentile",
    "histogram",
    "verbosity",
    "forced-shutdown",
];

/// The ends of such options of each driver: `--mysql-host`.
const ADDRESS: [&str; 5] = ["-host", "-port", "-user", "-socket", "-db"];

/// Folders of sysbench's own tests, which need no path.
const OWN_TESTS: [&str; 2] = ["/usr/share/sysbench", "/usr/local/share/sysbench"];

/// Lines that count what went wrong in a run that went on.
const FAULTS: [&str; 2] = ["ignored errors", "reconnects"];
/// The share of events from which on such faults are reported: a few deadlocks are part of most tests that write.
const FAULTS_SHARE: f64 = 0.01;

/// Reads the runs of logs, one of each server: the time per event is the run's seconds over its events, whatever the number
/// of threads. Runs of other tests, with other options or another number of threads are other workloads; their names have the
/// options that differ.
fn read(inputs: &[InputText]) -> Result<Imported> {
    let logs = inputs.iter().map(|input| parse(&input.text, &input.path));
    let logs: Vec<Log> = logs.collect::<Result<_>>()?;
    let names = Names::of(&logs);
    let notes = differing_numbers(&logs, inputs, &names);
    let servers = logs.into_iter().zip(inputs);
    let servers = servers.map(|(log, input)| Ok(vec![server(log, &names, &input.path)?]));
    Ok(Imported {
        files: servers.collect::<Result<_>>()?,
        last_notes: notes,
        ..Imported::default()
    })
}

/// Says which runs are workloads of their own because of a number that is printed before their start: a script may print one
/// that says nothing about the test.
fn differing_numbers(logs: &[Log], inputs: &[InputText], names: &Names) -> Vec<String> {
    let masked = |line: &str| line.replace(|c: char| c.is_ascii_digit(), "");
    // The first line of each kind, and where its run begins; then another one of the kind.
    let mut first: BTreeMap<(String, String), (&str, String)> = BTreeMap::new();
    let mut notes = BTreeMap::new();
    for (log, input) in logs.iter().zip(inputs) {
        for run in &log.runs {
            let name = run.name();
            let common = names.common.get(&name);
            for line in &run.described {
                let kind = (name.clone(), masked(line));
                if kind.1 == *line || common.is_some_and(|common| common.described.contains(line)) {
                    continue;
                }
                let place = format!("{}:{}", input.path.display(), run.line + 1);
                let (one, of_one) = first.entry(kind.clone()).or_insert((line, place.clone()));
                if one != line {
                    notes.entry(kind).or_insert_with(|| {
                        format!(
                            "Runs that print another number before their start are workloads of their own: `{one}` ({of_one}), \
                             `{line}` ({place}). If it says nothing about the test, remove these lines."
                        )
                    });
                }
            }
        }
    }
    notes.into_values().collect()
}

/// The runs of a file.
#[derive(Default)]
struct Log {
    runs: Vec<Run>,
    versions: BTreeSet<String>,
}

fn parse(text: &str, path: &Path) -> Result<Log> {
    let mut log = Log::default();
    let mut command = None;
    // The lines of a command so far that end in a backslash.
    let mut begun = String::new();
    let count = text.lines().count();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if is_head(line) {
            let version = line.split_whitespace().take(2);
            log.versions.insert(version.collect::<Vec<_>>().join(" "));
            begun.clear();
            let (test, options) = command.take().unzip();
            log.runs.push(Run {
                line: number,
                test,
                command: options,
                ..Run::default()
            });
        } else if let Some(start) = line.strip_suffix('\\') {
            begun += start;
        } else if let Some(found) = read_command(&(std::mem::take(&mut begun) + line)) {
            command = Some(found);
        }
        let Some(run) = log.runs.last_mut() else {
            continue;
        };
        let is_cut = number + 1 == count && !text.ends_with('\n');
        let events = value(line, "total number of events:");
        // A number at the end of a file without line end may be cut off.
        if is_cut && line.ends_with(|c: char| c.is_ascii_digit()) {
            run.has_failed |= events.is_some();
            break;
        }
        match run.line(line) {
            Ok(()) => {}
            Err(_) if is_cut => run.has_failed = true,
            Err(fault) => return Err(at(path, number, fault)),
        }
        if let Some(events) = events {
            run.report(events, number)
                .map_err(|fault| at(path, number, format!("`{line}`: {fault}")))?;
        }
    }
    if let Some(run) = log.runs.last_mut() {
        run.has_failed |= run.in_latency && !text.ends_with('\n');
    }
    Ok(log)
}

/// Facts that all runs of one name have in common, which their names need not repeat.
#[derive(Default)]
struct Common {
    described: BTreeSet<String>,
    /// `None` as long as no run has its command.
    command: Option<BTreeSet<String>>,
}

/// The names of workloads, by what differs between the runs of all logs.
struct Names {
    /// By the names of the runs' own output.
    common: BTreeMap<String, Common>,
    /// The texts of full names: only operations are separated by a slash.
    shown: BTreeMap<String, String>,
}

impl Names {
    fn of(logs: &[Log]) -> Names {
        let mut names = Names {
            common: BTreeMap::new(),
            shown: BTreeMap::new(),
        };
        let runs = || logs.iter().flat_map(|log| &log.runs);
        for run in runs() {
            let common = names.common.entry(run.name()).or_insert_with(|| Common {
                described: run.described.clone(),
                command: None,
            });
            common.described.retain(|line| run.described.contains(line));
            if let Some(options) = &run.command {
                let kept = common.command.get_or_insert_with(|| options.clone());
                kept.retain(|option| options.contains(option));
            }
        }
        let full: BTreeSet<String> = runs().map(|run| names.full(run)).collect();
        let texts = full
            .iter()
            .map(|name| (&**name, name.replace(" /", " ").replace('/', "-")));
        names.shown = distinct(texts, numbered)
            .into_iter()
            .map(|(name, text)| (name.to_owned(), text))
            .collect();
        names
    }

    fn workload(&self, run: &Run) -> String {
        self.shown[&self.full(run)].clone()
    }

    fn full(&self, run: &Run) -> String {
        let name = run.name();
        let Some(common) = self.common.get(&name) else {
            return name;
        };
        let of_command = common.command.iter().zip(&run.command);
        let of_command = of_command.flat_map(|(common, own)| own.difference(common));
        let differing = run.described.difference(&common.described);
        let differing = differing.chain(of_command).map(String::as_str);
        let parts: Vec<&str> = std::iter::once(&*name).chain(differing).collect();
        parts.join(", ")
    }
}

impl Run {
    /// Reads a line other than the number of events.
    fn line(&mut self, line: &str) -> Result<(), String> {
        if let Some(threads) = value(line, "Number of threads:") {
            self.threads = Some(threads.to_owned());
            self.measures = true;
        }
        self.measures |= line == "Threads started!";
        self.describe(line);
        self.has_failed |= line.starts_with("FATAL:");
        self.in_latency |= line.starts_with("Latency (ms)");
        self.in_latency &= !line.starts_with("sum:");
        // Up to version 0.5 with a unit, below `per-request statistics:` or `response time:`.
        if let Some(average) = value(line, "avg:") {
            self.latency =
                number::parse(average.trim_end_matches("ms")).filter(|latency| *latency > 0.0);
        }
        for kind in ["read", "write"] {
            if let Some(count) = value(line, kind).and_then(|rest| value(rest, ":"))
                && let Some(count) = number::parse(count)
            {
                self.queries.insert(kind, count);
            }
        }
        for kind in FAULTS {
            if let Some(count) = value(line, kind).and_then(|rest| value(rest, ":"))
                && let Some(count) = count.split('(').next().and_then(number::parse)
            {
                *self.faults.entry(kind).or_default() += count;
            }
        }
        if let Some(stamp) = line.strip_suffix("Checkpoint report:") {
            let stamp = stamp.trim().trim_start_matches('[').trim_end_matches(']');
            let stamp = stamp.trim().trim_end_matches('s').parse().ok();
            self.checkpoint = Some(stamp.unwrap_or(f64::NAN));
        }
        if let Some(rate) = rate(line) {
            self.rate = Some(rate);
        }
        // The latter is the name since sysbench 1.1.
        if let Some(found) = value(line, "total time:").or_else(|| value(line, "time elapsed:")) {
            let seconds = number::parse(found.strip_suffix('s').unwrap_or(found));
            let seconds = seconds.filter(|seconds| *seconds > 0.0);
            self.seconds =
                Some(seconds.ok_or_else(|| format!("`{line}` has no number of seconds"))?);
        }
        Ok(())
    }

    /// Keeps what a line before the start says about the test.
    fn describe(&mut self, line: &str) {
        if let Some((start, words)) = OPTIONS.iter().find(|(start, _)| line.starts_with(start)) {
            self.options
                .push(format!("{words}{}", line[start.len()..].trim()));
        }
        self.has_begun |= STARTS.iter().any(|start| line.starts_with(start));
        if self.has_begun || is_head(line) {
            return;
        }
        if let Some((_, test)) = TESTS.iter().find(|(start, _)| line.starts_with(start)) {
            self.test.get_or_insert_with(|| (*test).to_owned());
        }
        let mode = line.strip_prefix("Doing ");
        let mode = mode.and_then(|mode| mode.strip_suffix(" test"));
        if let Some(mode) = mode.filter(|_| self.test.as_deref() == Some("fileio")) {
            self.options.push(mode.to_owned());
        } else if !line.is_empty()
            && !OPTIONS.iter().any(|(start, _)| line.starts_with(start))
            && !INCIDENTAL.iter().any(|start| line.starts_with(start))
            && !has_time_of_day(line)
        {
            self.described.insert(line.to_owned());
        }
    }

    /// Ends a report with its number of events.
    fn report(&mut self, events: &str, line: usize) -> Result<(), String> {
        let events = number::parse(events).filter(|n| *n >= 1.0 && n.fract() == 0.0);
        let events = events.ok_or("a run needs at least one event")?;
        let seconds = self.seconds.take();
        let seconds = seconds.ok_or("events without `total time:` or `time elapsed:` before")?;
        self.reports.push(Report {
            line,
            checkpoint: self.checkpoint.take(),
            seconds,
            events: events as u64,
            rate: self.rate.take(),
        });
        Ok(())
    }

    /// Returns the name of the workload as far as its own output tells: the test, its options, and the number of threads.
    fn name(&self) -> String {
        let events = self.reports.last().map_or(1, |last| last.events);
        let mut parts = vec![self.test.clone().unwrap_or_else(|| "sysbench".to_owned())];
        if self.test.is_none() && !self.queries.is_empty() {
            let each = |kind: &str, several: &str| {
                let count = self.queries.get(kind).copied().unwrap_or_default();
                counted((count / events as f64).round(), kind, several)
            };
            let (reads, writes) = (each("read", "reads"), each("write", "writes"));
            parts.push(format!("{reads} and {writes}"));
        }
        parts.extend(self.options.iter().cloned());
        match self.threads.as_deref() {
            None => {}
            Some("1") => parts.push("1 thread".to_owned()),
            Some(threads) => parts.push(format!("{threads} threads")),
        }
        parts.join(", ")
    }
}

/// The runs of a log whose test it does not name: sysbench prints nothing about some.
#[derive(Default)]
struct Unnamed {
    /// The costs of the runs by workload, each with its line.
    costs: BTreeMap<String, Vec<(f64, usize)>>,
    /// The line of the last run without anything that tells its test.
    line: Option<usize>,
    /// Whether there are runs of which the test is known.
    beside_named: bool,
}

/// Costs of one test that differ more than this are those of two.
const MOST_SPREAD: f64 = 10.0;
/// Two groups of costs that differ at least this much, and several times as much as the costs within each, are those of
/// two tests.
const LEAST_STEP: f64 = 1.3;
/// How many times the distance between such groups is the distance within them.
const STEP_OF_SPREAD: f64 = 3.0;

impl Unnamed {
    /// Refuses runs that may be of different tests, because others of the log are, or because their times are far apart.
    fn check(&self, path: &Path) -> Result<()> {
        let refused = |line, fault: String| {
            Err(at(path, line, fault)
                .hint("write a log for each test, or each command before its output (`set -x`)"))
        };
        if let Some(line) = self.line.filter(|_| self.beside_named) {
            let fault = "sysbench does not print the test of this run, and the log has runs of several tests";
            return refused(line, fault.to_owned());
        }
        for (workload, costs) in &self.costs {
            let mut costs = costs.clone();
            costs.sort_by(|a, b| a.0.total_cmp(&b.0));
            if let Some(second) = second_group(&costs) {
                let (cheapest, dearer) = (costs[0].0, costs[second]);
                let fault = format!(
                    "sysbench does not print the test of this run, and it is not that of others of {workload}: an event \
                     takes {:.1} times as long",
                    dearer.0 / cheapest
                );
                return refused(dearer.1, fault);
            }
        }
        Ok(())
    }
}

/// Returns the place of the first cost of the second group, if sorted costs fall into two: those of two tests.
fn second_group(costs: &[(f64, usize)]) -> Option<usize> {
    let ratio = |from: usize, to: usize| costs[to].0 / costs[from].0;
    let last = costs.len().checked_sub(1)?;
    let second = (1..=last).max_by(|&a, &b| ratio(a - 1, a).total_cmp(&ratio(b - 1, b)))?;
    if ratio(0, last) > MOST_SPREAD {
        return Some(second);
    }
    let step = ratio(second - 1, second);
    let within = ratio(0, second - 1).max(ratio(second, last));
    let are_groups = second >= 2 && last > second;
    (are_groups && step >= LEAST_STEP && step.ln() >= STEP_OF_SPREAD * within.ln())
        .then_some(second)
}

/// Returns the server of a log.
fn server(log: Log, names: &Names, path: &Path) -> Result<ImportedServer> {
    let mut server = ImportedServer {
        versions: log.versions,
        ..ImportedServer::default()
    };
    let mut unnamed = Unnamed::default();
    for run in log.runs {
        let workload = names.workload(&run);
        add(run, workload, &mut server, &mut unnamed, path)?;
    }
    unnamed.check(path)?;
    Ok(server)
}

/// Adds the values of a run to its server, or counts it as failed.
fn add(
    run: Run,
    workload: String,
    server: &mut ImportedServer,
    unnamed: &mut Unnamed,
    path: &Path,
) -> Result<()> {
    let ends = run
        .reports
        .last()
        .is_some_and(|last| last.checkpoint.is_none());
    if run.has_failed || !ends {
        if run.measures || !run.reports.is_empty() {
            server.exclude(&workload, Exclusion::Unfinished);
        }
        return Ok(());
    }
    let seconds = intervals(&run.reports).map_err(|(line, fault)| ambiguous(path, line, fault))?;
    let events: u64 = run.reports.iter().map(|report| report.events).sum();
    if run.test.is_none() {
        let cost = seconds.iter().sum::<f64>() / events as f64;
        let costs = unnamed.costs.entry(workload.clone()).or_default();
        costs.push((cost, run.line));
        if costs.len() > 1 || run.queries.is_empty() {
            server.notes.insert(UNNAMED.to_owned());
        }
    }
    if run.test.is_none() && run.queries.is_empty() {
        unnamed.line = Some(run.line);
    } else {
        unnamed.beside_named = true;
    }
    let has_rate = run.options.iter().any(|option| option.starts_with(RATE));
    let latency = run.latency.filter(|_| run.reports.len() == 1);
    if has_rate {
        let words = match latency {
            Some(_) => "perfquilt compares the average latency of an event",
            None => "they do not show how fast a server is",
        };
        server.notes.insert(format!(
            "Runs of {workload} have a target rate, which decides how long they take: {words}."
        ));
        if latency.is_none() {
            server.withheld.insert((workload.clone(), AT_FIXED_RATE));
        }
    }
    for (kind, count) in &run.faults {
        if *count > FAULTS_SHARE * events as f64 {
            server.notes.insert(format!(
                "Runs of {workload} have {kind}, up to {:.0} % of the number of events in {}: failed events count as work done.",
                100.0 * count / events as f64,
                path.display()
            ));
            server.withheld.insert((workload.clone(), FAILED_EVENTS));
        }
    }
    for (report, seconds) in run.reports.iter().zip(seconds) {
        server.readings.push(ImportedValue {
            workload: workload.clone(),
            meter: Meter::Time,
            value: match latency.filter(|_| has_rate) {
                Some(milliseconds) => 1e6 * milliseconds,
                None => 1e9 * seconds / report.events as f64,
            },
            n: report.events,
        });
    }
    Ok(())
}

/// Why runs at a target rate without latency have no verdict.
const AT_FIXED_RATE: &str = "unknown at a fixed rate";

/// Why runs with many failed events have no verdict.
const FAILED_EVENTS: &str = "events that failed count as work done";

/// The note about runs whose test is unknown.
const UNNAMED: &str = "sysbench does not print which test these runs are of: perfquilt takes runs with the same numbers of \
                       threads, reads and writes for runs of one test.";

fn ambiguous(path: &Path, line: usize, fault: &str) -> Error {
    at(path, line, fault.to_owned()).hint("`sysbench … run` without `--report-checkpoints`")
}

/// Returns the seconds of each report's events: counters start anew at a checkpoint, but since version 1.0 the time counts
/// from the start of the run.
fn intervals(reports: &[Report]) -> Result<Vec<f64>, (usize, &'static str)> {
    let mut own = Vec::new();
    let (mut counts_from_start, mut before, mut is_open) = (None, 0.0, false);
    for report in reports {
        if !is_open {
            // The first report of a run.
            own.push(report.seconds);
            (counts_from_start, before) = (None, report.seconds);
            is_open = report.checkpoint.is_some();
            continue;
        }
        let difference = report.seconds - before;
        let fits = |seconds: f64| {
            let ratio_of_rate = report
                .rate
                .map(|rate| rate * seconds / report.events as f64);
            ratio_of_rate.is_some_and(|ratio| (ratio - 1.0).abs() < 0.02)
        };
        let from_start = match (report.rate, report.checkpoint) {
            (Some(_), _) if fits(difference) && difference > 0.0 => Some(true),
            (Some(_), _) if fits(report.seconds) => Some(false),
            (Some(_), _) => {
                return Err((
                    report.line,
                    "time and events do not fit the rate of this report",
                ));
            }
            (None, Some(stamp)) => Some((report.seconds - stamp).abs() < 0.5 + 0.05 * stamp),
            (None, None) => counts_from_start,
        };
        let seconds = match from_start {
            Some(true) if difference > 0.0 => difference,
            Some(false) => report.seconds,
            _ => {
                return Err((
                    report.line,
                    "it is unknown whether this time counts from the start",
                ));
            }
        };
        own.push(seconds);
        (counts_from_start, before) = (from_start, report.seconds);
        is_open = report.checkpoint.is_some();
    }
    Ok(own)
}

/// Returns the events per second that a line states.
fn rate(line: &str) -> Option<f64> {
    let words = ["events/s (eps):", "events per second:"];
    if let Some(rate) = words.iter().find_map(|key| value(line, key)) {
        return number::parse(rate);
    }
    let (_, rate) = value(line, "transactions:")?.split_once('(')?;
    number::parse(rate.split_once(" per sec")?.0)
}

/// Returns the test that a command line of sysbench runs, as a shell or its trace shows it, and the options that make it
/// another test.
fn read_command(line: &str) -> Option<(String, BTreeSet<String>)> {
    if !line.contains("sysbench") {
        return None;
    }
    // A shell's trace quotes words; a line that is no whole command may have half of a pair.
    let words = shlex::split(line);
    let words = words.unwrap_or_else(|| {
        let words = line.split_whitespace();
        words
            .map(|word| word.trim_matches(['\'', '"']).to_owned())
            .collect()
    });
    let is_program = |word: &str| word == "sysbench" || word.ends_with("/sysbench");
    let place = words.iter().position(|word| is_program(word))?;
    let arguments: Vec<&str> = words[place + 1..].iter().map(String::as_str).collect();
    if !arguments.contains(&"run") {
        return None;
    }
    let named = arguments
        .iter()
        .find_map(|word| word.strip_prefix("--test="));
    let is_test = |word: &&&str| !word.starts_with('-') && **word != "run";
    let test = Path::new(named.or_else(|| arguments.iter().find(is_test).copied())?);
    let name = test.file_name()?.to_str()?;
    let options = arguments.iter().filter_map(|word| option_of_test(word));
    let mut options: BTreeSet<String> = options.collect();
    let folder = test.parent().and_then(Path::to_str).unwrap_or_default();
    if !folder.is_empty() && !OWN_TESTS.contains(&folder) {
        options.insert(format!("of {folder}"));
    }
    Some((
        name.strip_suffix(".lua").unwrap_or(name).to_owned(),
        options,
    ))
}

/// Returns an option that makes it another test, with hyphens in its name, for which sysbench takes underscores, too. No
/// password is ever part of a name.
fn option_of_test(word: &str) -> Option<String> {
    let option = word.strip_prefix("--")?;
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, format!("={value}")),
        None => (option, String::new()),
    };
    let name = name.replace('_', "-");
    let is_incidental = name == "test"
        || INCIDENTAL_OPTIONS.contains(&&*name)
        || ADDRESS.iter().any(|end| name.ends_with(end))
        || name.contains("password");
    (!is_incidental).then(|| format!("--{name}{value}"))
}

/// Returns whether a line has a time such as `12:05`: scripts print when they begin.
fn has_time_of_day(line: &str) -> bool {
    line.as_bytes().windows(5).any(|five| {
        five[2] == b':'
            && [0, 1, 3, 4]
                .iter()
                .all(|&place| five[place].is_ascii_digit())
    })
}

fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key).map(str::trim)
}
