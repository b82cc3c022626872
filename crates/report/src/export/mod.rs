//! The formats of a report on an experiment: one file and one line of [`EXPORTERS`] each.

mod bmf;
mod csv;
mod github_action_benchmark;
mod gobench;
mod html;
mod openmetrics;
mod own;
mod rates;

use std::collections::{BTreeMap, BTreeSet};

use super::report::Distribution;
use super::text::is_deceptive;
use perfquilt_judge::attribution::{Attribution, Effect, PatchEffects, TransactionCost};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::names::{distinct, numbered};
use perfquilt_model::observation::{ObservationFile, RecordedTable};
use perfquilt_model::point::Point;

/// The text for terminals, which is the default format.
pub const TERMINAL: &Exporter = &own::TERMINAL;

/// The attribution document, the format for programs.
pub const JSON: &Exporter = &own::JSON;

/// All formats, in the order in which `--help` lists them.
pub const EXPORTERS: &[&Exporter] = &[
    TERMINAL,
    &own::MARKDOWN,
    &html::HTML,
    JSON,
    &own::JSONL,
    &csv::CSV,
    &gobench::GO_BENCHMARK,
    &bmf::BENCHER,
    &github_action_benchmark::GITHUB_ACTION_BENCHMARK,
    &openmetrics::OPEN_METRICS,
    &own::SQL_BENCH,
    &rates::RATES,
];

/// A format of a report on an experiment.
#[derive(Debug)]
pub struct Exporter {
    /// The name of the format, a value of `--format`.
    pub name: &'static str,
    /// The line about the format in `--help`.
    pub help: &'static str,
    /// The parts of [`ReportData`] that the format needs; the caller may leave out the others.
    pub required_input: RequiredInput,
    /// Whether people can read the output on a terminal. If not, the program refuses to write it there.
    pub is_for_terminals: bool,
    /// Whether the output includes a flame graph if one is given.
    pub includes_flame_graph: bool,
    export: fn(&ReportData<'_>) -> Result<ExportedReport>,
}

impl Exporter {
    /// Creates a format that people can read on a terminal, from the attribution document alone. `name` is a value of
    /// `--format`, lower case and unique among the formats; `help` is its line in `--help`, without a full stop.
    pub const fn new(
        name: &'static str,
        help: &'static str,
        export: fn(&ReportData<'_>) -> Result<ExportedReport>,
    ) -> Self {
        Exporter {
            name,
            help,
            required_input: RequiredInput::Attribution,
            is_for_terminals: true,
            includes_flame_graph: false,
            export,
        }
    }

    /// Returns the format with more of the input.
    pub const fn with_input(self, required_input: RequiredInput) -> Self {
        Exporter {
            required_input,
            ..self
        }
    }

    /// Renders the report.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the format does not suit the experiment;
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the output cannot be encoded, and for a part of
    /// the data that [`Exporter::required_input`] did not ask for.
    pub fn export(&self, data: &ReportData<'_>) -> Result<ExportedReport> {
        (self.export)(data)
    }
}

/// The input of a format; each level includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequiredInput {
    /// The attribution document.
    Attribution,
    /// The observations.
    Observations,
    /// The distributions of the slices.
    Distributions,
}

/// The data of a report.
#[derive(Debug, Clone, Copy)]
pub struct ReportData<'a> {
    /// The attribution document.
    pub attribution: &'a Attribution,
    /// The observations that it was computed from, if they were kept in memory.
    pub file: Option<&'a ObservationFile>,
    /// The distributions of the experiment's slices, if any are stored.
    pub distributions: &'a [Distribution],
    /// The table of sql-bench results that the observations were imported from, if any.
    pub recorded: Option<&'a RecordedTable>,
    /// The flame graph to include (SVG), if any.
    pub flame_graph: Option<&'a [u8]>,
    /// Whether the experiment is in a workspace's store, so that further commands can use it.
    pub stored: bool,
    /// Width of text for terminals, in columns.
    pub columns: usize,
    /// Whether text for terminals may have ANSI colours.
    pub color: bool,
    /// Whether text for terminals and Markdown have tails, noise, machine and builds, too.
    pub details: bool,
    /// Name of the file that [`ExportedReport::companion`] is written to, if there can be one: not beside a pipe.
    pub companion: Option<&'a str>,
}

impl<'a> ReportData<'a> {
    /// Creates the data of a report on `attribution` alone, 80 columns wide and without colours.
    pub fn new(attribution: &'a Attribution) -> Self {
        ReportData {
            attribution,
            file: None,
            distributions: &[],
            recorded: None,
            flame_graph: None,
            stored: false,
            columns: 80,
            color: false,
            details: false,
            companion: None,
        }
    }

    /// Returns the observations, for formats that require them.
    pub fn observations(&self) -> Result<&'a ObservationFile> {
        let missing = || Error::internal("the format did not ask for the observations it exports");
        self.file.ok_or_else(missing)
    }
}

/// A rendered report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportedReport {
    /// The report.
    pub text: String,
    /// Notes for the reader: the names to which a number was added because others are equal.
    pub notes: Vec<String>,
    /// Content of the file [`ReportData::companion`] beside the report, which the text refers to.
    pub companion: Option<Vec<u8>>,
}

impl From<String> for ExportedReport {
    fn from(text: String) -> Self {
        ExportedReport {
            text,
            ..ExportedReport::default()
        }
    }
}

/// The texts that stand for names in an exported report: different ones for different names.
struct UniqueNames<'a> {
    texts: BTreeMap<&'a str, String>,
    notes: Vec<String>,
}

impl<'a> UniqueNames<'a> {
    /// Chooses texts for `names`; `clean` returns the text of a name.
    fn new(names: impl Iterator<Item = &'a str>, clean: &dyn Fn(&str) -> String) -> Self {
        Self::numbered(names, clean, numbered)
    }

    /// Chooses texts for `names`; `numbered` adds a number to one.
    fn numbered(
        names: impl Iterator<Item = &'a str>,
        clean: &dyn Fn(&str) -> String,
        numbered: fn(&str, usize) -> String,
    ) -> Self {
        let texts = distinct(names.map(|name| (name, clean(name))), numbered);
        let changed = texts.iter().filter(|(name, text)| **text != clean(name));
        let notes = changed.map(|(name, text)| {
            format!(
                "`{text}` stands for {}: its name has a number, as another one looks the same",
                name.escape_debug()
            )
        });
        UniqueNames {
            notes: notes.collect(),
            texts,
        }
    }

    /// Chooses texts for the workloads of a document, those of operations included.
    fn of_workloads(attribution: &'a Attribution, clean: &dyn Fn(&str) -> String) -> Self {
        let costs = attribution.costs.iter().map(|cost| &*cost.workload);
        let effects = effects(attribution).map(|(_, effect)| &*effect.workload);
        Self::new(costs.chain(effects), clean)
    }

    /// Returns the text of a name.
    fn get(&self, name: &str) -> &str {
        self.texts.get(name).map_or("", String::as_str)
    }

    /// Adds the notes to a report.
    fn on(self, text: String) -> ExportedReport {
        ExportedReport {
            notes: self.notes,
            ..text.into()
        }
    }
}

/// The names of transaction costs in services that track results: workload and point.
struct BenchmarkNames {
    names: BTreeMap<(String, Point), String>,
    notes: Vec<String>,
}

impl BenchmarkNames {
    fn new(attribution: &Attribution) -> Self {
        let workloads = UniqueNames::of_workloads(attribution, &one_line);
        let costs = attribution.costs.iter();
        let pairs: BTreeSet<(&str, Point)> =
            costs.map(|cost| (&*cost.workload, cost.point)).collect();
        let names = pairs.into_iter().map(|(workload, point)| {
            let label = one_line(&point_label(attribution, point));
            let name = format!("{}/{label}", workloads.get(workload));
            ((workload.to_owned(), point), name)
        });
        let mut names: BTreeMap<(String, Point), String> = names.collect();
        // The names of workloads and patches may have slashes, too.
        let mut taken = BTreeSet::new();
        for name in names.values_mut() {
            let first = name.clone();
            let mut number = 2;
            while !taken.insert(name.clone()) {
                *name = numbered(&first, number);
                number += 1;
            }
        }
        BenchmarkNames {
            names,
            notes: workloads.notes,
        }
    }

    fn get(&self, cost: &TransactionCost) -> &str {
        let key = (cost.workload.clone(), cost.point);
        self.names.get(&key).map_or("", String::as_str)
    }
}

/// Returns `value` as indented JSON with a line end.
fn indented_json(value: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(value).map_err(|error| failed("JSON", &error))?;
    Ok(text + "\n")
}

/// Returns the last patch of a point, or the one it is alone with or without.
fn patch_of(attribution: &Attribution, point: Point) -> Option<&PatchEffects> {
    attribution.patches.get(point.patch()? - 1)
}

/// Returns every effect of the document, each with its patch if it has one: those of the patches on workloads and on
/// their operations, the total and the control.
fn effects(attribution: &Attribution) -> impl Iterator<Item = (Option<&PatchEffects>, &Effect)> {
    let patches = attribution.patches.iter().flat_map(|patch| {
        let effects = patch.effects.iter();
        effects.map(move |effect| (Some(patch), effect))
    });
    let operations = attribution.operations.iter().flat_map(|of| &of.effects);
    let operations = operations.map(move |effect| (patch_of(attribution, effect.point), effect));
    let total = attribution.total.iter().map(|effect| (None, effect));
    let control = attribution.noise.control.iter();
    let control = control.map(|control| (None, &control.effect));
    patches.chain(operations).chain(total).chain(control)
}

/// Returns the display name of a point in other tools: its short form, and the name of its patch if it has one.
fn point_label(attribution: &Attribution, point: Point) -> String {
    match patch_of(attribution, point) {
        Some(patch) => format!("{point} {}", patch.name),
        None => point.to_string(),
    }
}

/// Replaces characters that end a line, control a terminal, or reorder or hide text.
fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control() || is_deceptive(c), "\u{fffd}")
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::internal(format!("cannot write {what}: {error}"))
}

#[cfg(test)]
mod tests;
