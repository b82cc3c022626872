//! `perfquilt profile A B`: compares two servers function by function.

use std::path::{Path, PathBuf};

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::json;

use super::Context;
use super::choices;
use super::measuring::{DEFAULT_PRESET, FreshOption};
use super::output_file;
use super::report_options::TextReportOptions;
use super::series_as_written::SeriesChoice;
use perfquilt_bench::meter::Counter;
use perfquilt_bench::meter::samples::SamplingEvent;
use perfquilt_bench::profile::{
    self, CostSource, CostTables, MakeServer, ProfileRequest, ProfiledServer,
};
use perfquilt_config::Workload;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::profile::{CallEdge, HotLine, ProfileDifference};
use perfquilt_measure::run::{FoundServer, FreshLinks, NamedServer, series_of};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::profile::CostTable;
use perfquilt_model::progress;
use perfquilt_report::profile::{AnnotatedFunction, ProfileReport, SourceLine, document};
use perfquilt_series::upstream;

/// Arguments of `perfquilt profile`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt profile 0 4                  the release and the whole series
  perfquilt profile 1 2 --workload row_guards --flame-graph guards.svg
  perfquilt profile 10.11.18:0 11.8.6:0  two releases
  perfquilt profile 0 ../other/server    against a server built elsewhere
  perfquilt profile 0 4 --recipe plain   inlined functions have their own rows
  perfquilt profile 0 4 --source perf    processor time instead of instructions
  perfquilt profile 0 1 --callers 'String::append(char const*, unsigned int)'")]
pub struct Arguments {
    /// First server: [RELEASE:]POINT[@RECIPE], or the folder of a server built elsewhere
    #[arg(value_name = "A")]
    before: String,
    /// Second server
    #[arg(value_name = "B")]
    after: String,
    /// Workload to run (default: the first one of the preset quick)
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Recipe to build points with (default: that of the preset quick); inlined functions and lines need one with
    /// debug information (-g1)
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    /// Source of costs: every instruction, counted by callgrind, or time, sampled by perf (default:
    /// callgrind, or perf where that is missing)
    #[arg(long, value_enum, value_name = "SOURCE")]
    source: Option<SourceName>,
    /// Number of runs of each server, from fresh starts; intervals need at least two
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = choices::positive::<u32>)]
    runs: u32,
    /// Number of transactions per run (default: some seconds' worth)
    #[arg(long, value_name = "N", value_parser = choices::positive::<u64>)]
    transactions: Option<u64>,
    /// Maximum number of functions to show (default: 25, in JSON all)
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    top: Option<usize>,
    /// Function whose callers to show
    #[arg(long, value_name = "FUNCTION")]
    callers: Option<String>,
    /// Function whose source lines to show with their costs
    #[arg(long, value_name = "FUNCTION")]
    annotate: Option<String>,
    /// File to write a differential flame graph (SVG) to
    #[arg(long, value_name = "FILE")]
    flame_graph: Option<PathBuf>,
    #[command(flatten)]
    report: TextReportOptions,
    #[command(flatten)]
    fresh: FreshOption,
    #[command(flatten)]
    series: SeriesChoice,
}

/// A source of costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SourceName {
    /// Callgrind: instructions, calls, callers
    Callgrind,
    /// Perf: processor time at full speed, without calls
    Perf,
}

impl Arguments {
    /// Returns the source of costs.
    fn source(&self) -> Result<CostSource> {
        let source = match self.source {
            Some(SourceName::Callgrind) => CostSource::Callgrind,
            Some(SourceName::Perf) => CostSource::Perf(SamplingEvent::detect()?),
            None if Counter::callgrind().is_ok() => CostSource::Callgrind,
            None => CostSource::Perf(SamplingEvent::detect()?),
        };
        let calls = match (&self.callers, &self.flame_graph) {
            (Some(_), _) => Some("--callers"),
            (None, Some(_)) => Some("--flame-graph"),
            (None, None) => None,
        };
        match (source, calls) {
            (CostSource::Perf(_), Some(option)) => Err(Error::arguments(format!(
                "`{option}` needs a call graph, which perf samples do not have"
            ))
            .hint("`--source callgrind` records one, where valgrind is installed")),
            _ => Ok(source),
        }
    }
}

/// Default number of functions in a table.
const DEFAULT_TOP: usize = 25;

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    difference: ProfileDifference,
    /// The callers of the function of `--callers`, in descending order of the change of their calls' cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    callers: Option<&'a [CallEdge]>,
    /// The lines of the function of `--annotate`, on both servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<serde_json::Value>,
}

/// Runs `perfquilt profile`.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    arguments.report.format(context)?;
    let source = arguments.source()?;
    if let Some(file) = &arguments.flame_graph {
        output_file::writable(file)?;
    }
    let ws = arguments.fresh.workspace(context)?;
    let servers = [&arguments.before, &arguments.after];
    let releases: Vec<_> = servers
        .into_iter()
        .filter_map(|name| series_of(name))
        .collect();
    arguments.series.check(&ws, &releases)?;
    let quick = ws
        .config
        .preset
        .get(DEFAULT_PRESET)
        .or(ws.config.preset.values().next());
    let needed = |option: &str| {
        let fault = format!("no preset is configured: {option} is needed");
        move || Error::arguments(fault)
    };
    let recipe = arguments.recipe.as_ref();
    let recipe = recipe.or(quick.map(|preset| &preset.recipe));
    let recipe = recipe.ok_or_else(needed("--recipe"))?;
    let name = arguments.workload.as_ref();
    let name = name.or(quick.and_then(|preset| preset.workloads.first()));
    let name = name.ok_or_else(needed("--workload"))?;
    let workload = match quick {
        Some(preset) => preset.workload(&ws.config, name)?,
        None => ws.config.workload(name)?.clone(),
    };
    let [before, after] = servers.map(|name| FoundServer::find(&ws, name));
    let (before, after) = (before?, after?);
    let before = before.build(&ws, recipe)?;
    let after = after.build(&ws, recipe)?;
    let [of_before, of_after] = [&before, &after].map(|named| binary(&ws, named, recipe));
    let binaries = [of_before?, of_after?];
    // Instructions do not depend on the layout, and their source needs the path at which the server was built.
    let servers = match source {
        CostSource::Perf(_) => {
            let servers = [(&before, binaries[0]), (&after, binaries[1])];
            Some(FreshLinks::new(&ws, servers)?)
        }
        CostSource::Callgrind => None,
    };
    let make = servers
        .as_ref()
        .map(|servers| |side: usize, layout: u64| servers.make(side, layout));
    let pair = profile::measure(
        &ws,
        &ProfileRequest {
            workload: &workload,
            source,
            transactions: arguments.transactions,
            runs: arguments.runs,
        },
        [
            profiled(&before, binaries[0]),
            profiled(&after, binaries[1]),
        ],
        make.as_ref().map(|make| make as &MakeServer<'_>),
    )?;
    let difference = difference([&before, &after], &workload, source, &pair);
    // Errors are collected, so that a failure below does not hide the measurements.
    let mut errors = Vec::new();
    if let Some(file) = &arguments.flame_graph {
        let drawn = draw(file, &difference, &pair);
        if ok_or_collect(drawn, &mut errors).is_some() {
            progress::note(&format!("wrote {}", file.display()));
        }
    }
    let named = |name: &Option<String>, errors: &mut Vec<Error>| {
        let found = name.as_ref().map(|name| function(&difference, name));
        found.and_then(|found| ok_or_collect(found, errors))
    };
    let callers = named(&arguments.callers, &mut errors).map(|name| {
        (
            name,
            ProfileDifference::callers(&pair.before, &pair.after, name),
        )
    });
    let annotated = named(&arguments.annotate, &mut errors)
        .map(|name| annotated(&ws, &before, &after, &pair, name))
        .and_then(|lines| ok_or_collect(lines, &mut errors));
    let callers = callers
        .as_ref()
        .map(|(name, edges)| (*name, edges.as_slice()));
    let shown = ProfileReport {
        difference: &difference,
        top: arguments.top.unwrap_or(DEFAULT_TOP),
        callers,
        lines: annotated.as_ref(),
    };
    let output = &context.output;
    let mut listed = difference.clone();
    let all = difference.functions.len();
    listed.functions.truncate(arguments.top.unwrap_or(all));
    let value = Document {
        difference: listed,
        callers: callers.map(|(_, edges)| edges),
        lines: annotated.as_ref().map(lines),
    };
    let done = arguments.report.print(context, &document(&shown), &value);
    output.combine(done, output.errors(errors))
}

/// Returns the value of `found`; an error is added to `errors`.
fn ok_or_collect<T>(found: Result<T>, errors: &mut Vec<Error>) -> Option<T> {
    found.map_err(|error| errors.push(error)).ok()
}

/// Draws the differential flame graph to `file`.
fn draw(file: &Path, difference: &ProfileDifference, pair: &CostTables) -> Result<()> {
    let title = format!(
        "{} → {}, {}",
        difference.before, difference.after, difference.workload
    );
    let svg = perfquilt_report::flame_graph(&title, &pair.before, &pair.after)?;
    output_file::write(file, svg.as_bytes())
}

/// Returns the lines of a function for the JSON document.
fn lines(annotated: &AnnotatedFunction) -> serde_json::Value {
    let side = |lines: &[SourceLine]| -> Vec<serde_json::Value> {
        let line = |line: &SourceLine| {
            json!({
                "file": line.hot.file,
                "line": line.hot.line,
                "own": line.hot.own,
                "text": line.text,
            })
        };
        lines.iter().map(line).collect()
    };
    json!({
        "function": annotated.function,
        "before": side(&annotated.before),
        "after": side(&annotated.after),
    })
}

/// Returns the path of a server's measured executable in its folder.
fn binary<'a>(ws: &'a Workspace, named: &NamedServer, recipe: &str) -> Result<Option<&'a str>> {
    // The recipe of a server built elsewhere is unknown.
    let recipe = named.recipe.as_deref().unwrap_or(recipe);
    Ok(ws.config.recipe(recipe)?.binary.as_deref())
}

fn profiled<'a>(named: &'a NamedServer, binary: Option<&'a str>) -> ProfiledServer<'a> {
    ProfiledServer {
        label: &named.label,
        dir: &named.built.dir,
        data: (&named.data.0, &named.data.1),
        binary: binary.unwrap_or_default(),
        release: &named.release,
    }
}

fn difference(
    [before, after]: [&NamedServer; 2],
    workload: &Workload,
    source: CostSource,
    pair: &CostTables,
) -> ProfileDifference {
    ProfileDifference {
        schema: 1,
        before: before.label.clone(),
        after: after.label.clone(),
        workload: workload.name.clone(),
        source: source.name().to_owned(),
        unit: source.unit().to_owned(),
        runs: pair.before.len(),
        transactions: pair.transactions,
        total: ProfileDifference::total_of(&pair.before, &pair.after),
        functions: ProfileDifference::functions_of(&pair.before, &pair.after),
    }
}

/// Returns the full name of the function called `name`, with or without its parameters.
fn function<'a>(difference: &'a ProfileDifference, name: &str) -> Result<&'a str> {
    let names = || difference.functions.iter().map(|f| f.name.as_str());
    let without = |known: &&str| {
        known
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('('))
    };
    if let Some(known) = names()
        .find(|known| *known == name)
        .or_else(|| names().find(without))
    {
        return Ok(known);
    }
    let nearest = names()
        .map(|known| (strsim::jaro_winkler(known, name), known))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let error = Error::arguments(format!("the function `{name}` did not run"));
    Err(match nearest {
        Some((similarity, known)) if similarity > 0.7 => {
            error.hint(format!("did you mean `{known}`?"))
        }
        _ => error.hint("use a name from the table; parameters are optional"),
    })
}

fn annotated(
    ws: &Workspace,
    before: &NamedServer,
    after: &NamedServer,
    pair: &CostTables,
    function: &str,
) -> Result<AnnotatedFunction> {
    let side = |named: &NamedServer, tables: &[CostTable]| -> Result<Vec<SourceLine>> {
        let lines = ProfileDifference::lines(tables, function);
        let mut sources = Vec::new();
        let mut text: Option<(String, Option<String>)> = None;
        for hot in lines {
            if text.as_ref().is_none_or(|(file, _)| *file != hot.file) {
                text = Some((hot.file.clone(), source_of(ws, named, &hot)?));
            }
            let content = text.as_ref().and_then(|(_, content)| content.as_deref());
            // Line 0 is code that the compiler made.
            let index = (hot.line as usize).checked_sub(1);
            let line = content
                .zip(index)
                .and_then(|(content, index)| content.lines().nth(index));
            sources.push(SourceLine {
                text: line.map(str::to_owned),
                hot,
            });
        }
        Ok(sources)
    };
    Ok(AnnotatedFunction {
        function: function.to_owned(),
        before: side(before, &pair.before)?,
        after: side(after, &pair.after)?,
    })
}

/// Returns the text of the source file of a line, if the file is in the server's tree.
fn source_of(ws: &Workspace, named: &NamedServer, hot: &HotLine) -> Result<Option<String>> {
    let Some(tree) = &named.tree else {
        return Ok(None);
    };
    // Debug information has the absolute path at compile time; the file is its longest suffix that exists in the tree.
    let parts: Vec<&str> = hot
        .file
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    for start in 0..parts.len() {
        let path = parts[start..].join("/");
        if let Some(content) = upstream::file_in(ws, tree, &path)? {
            return Ok(Some(String::from_utf8_lossy(&content).into_owned()));
        }
    }
    Ok(None)
}
