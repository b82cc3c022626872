//! `perfquilt profile A B`: where two servers differ, function by function.

use std::path::{Path, PathBuf};

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::json;

use super::Context;
use super::form::chosen;
use perfquilt_config::Workload;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::profile::{Difference, Edge, Hot};
use perfquilt_machine::meter::Counter;
use perfquilt_machine::meter::samples::Sampled;
use perfquilt_machine::profile::{self, Pair, Source, Subject};
use perfquilt_measure::run::Target;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::profile::CostTable;
use perfquilt_patches::upstream;
use perfquilt_report::{Annotated, Line, Shown};

/// Arguments of `perfquilt profile`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt profile 0 4                                the release and the whole series
  perfquilt profile 1 2 --workload row_guards --flame-graph guards.svg
  perfquilt profile 10.11.18:0 11.8.6:0 --recipe plain two releases
  perfquilt profile 0 ../other/server                  and a server built elsewhere
  perfquilt profile 0 4 --source perf                  processor time instead of instructions
  perfquilt profile 0 1 --callers 'String::append(char const*, unsigned int)'")]
pub struct Arguments {
    /// The first server: [RELEASE:]POINT[@RECIPE], or the folder of one built elsewhere
    #[arg(value_name = "A")]
    before: String,
    /// The second server
    #[arg(value_name = "B")]
    after: String,
    /// What they are asked to do (default: the first workload of the preset quick)
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// How points are built (default: as the preset quick says). One with debug information (-g1) tells
    /// inlined functions and lines
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    /// Where costs come from: every instruction, counted by callgrind, or time, sampled by perf (default:
    /// callgrind, and perf where that is missing)
    #[arg(long, value_enum, value_name = "WHAT")]
    source: Option<SourceName>,
    /// Runs of each server, from fresh starts; two at least for intervals
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Transactions of a run (default: as many as take some seconds)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    transactions: Option<u64>,
    /// The most functions shown (default: 25, in JSON all)
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    top: Option<usize>,
    /// Also who calls this function
    #[arg(long, value_name = "FUNCTION")]
    callers: Option<String>,
    /// Also this function's lines of source with their costs
    #[arg(long, value_name = "FUNCTION")]
    annotate: Option<String>,
    /// Write a differential flame graph (SVG)
    #[arg(long, value_name = "FILE")]
    flame_graph: Option<PathBuf>,
    /// The form (--json is short for json)
    #[arg(long, value_enum)]
    format: Option<Format>,
}

/// Where costs come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SourceName {
    /// Callgrind: instructions, calls, callers
    Callgrind,
    /// Perf: processor time at full speed, without calls
    Perf,
}

impl Arguments {
    /// Where costs come from.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) where this machine has none, or perf cannot tell what is asked for.
    fn source(&self) -> Result<Source> {
        let source = match self.source {
            Some(SourceName::Callgrind) => Source::Callgrind,
            Some(SourceName::Perf) => Source::Perf(Sampled::detect()?),
            None if Counter::callgrind().is_ok() => Source::Callgrind,
            None => Source::Perf(Sampled::detect()?),
        };
        let calls = match (&self.callers, &self.flame_graph) {
            (Some(_), _) => Some("--callers"),
            (None, Some(_)) => Some("--flame-graph"),
            (None, None) => None,
        };
        match (source, calls) {
            (Source::Perf(_), Some(option)) => Err(Error::usage(format!(
                "`{option}` needs to know who calls whom, which samples do not tell"
            ))
            .hint("`--source callgrind` does, where valgrind is installed")),
            _ => Ok(source),
        }
    }
}

/// The form of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people
    Terminal,
    /// For a pull request
    Markdown,
    /// For programs
    Json,
}

/// Functions shown to people, where they do not say how many.
const TOP: usize = 25;

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    difference: Difference,
    /// Who calls the function asked for, the caller whose calls' cost changed most first.
    #[serde(skip_serializing_if = "Option::is_none")]
    callers: Option<&'a [Edge]>,
    /// The lines of the function asked for, on either server.
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<serde_json::Value>,
}

/// Runs `perfquilt profile`.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for an unknown point, function, workload or missing tools;
/// [`Kind::Build`](perfquilt_model::error::Kind::Build) when a server cannot be built; as [`profile::measure`].
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let format = chosen(context, arguments.format, Format::Json, Format::Terminal)?;
    let source = arguments.source()?;
    if let Some(file) = &arguments.flame_graph {
        check_place(file)?;
    }
    let ws = context.workspace()?;
    let progress = context.output.progress();
    let quick = ws
        .config
        .preset
        .get("quick")
        .or(ws.config.preset.values().next());
    let recipe = match (&arguments.recipe, quick) {
        (Some(recipe), _) => recipe.as_str(),
        (None, Some(preset)) => preset.recipe.as_str(),
        (None, None) => return Err(Error::usage("no preset is configured: --recipe is needed")),
    };
    let name = match (&arguments.workload, quick.and_then(|p| p.workloads.first())) {
        (Some(name), _) | (None, Some(name)) => name,
        (None, None) => {
            return Err(Error::usage(
                "no preset is configured: --workload is needed",
            ));
        }
    };
    let workload = match quick {
        Some(preset) => preset.workload(&ws.config, name)?,
        None => ws.config.workload(name)?.clone(),
    };
    let before = Target::find(&ws, &arguments.before, recipe, progress)?;
    let after = Target::find(&ws, &arguments.after, recipe, progress)?;
    let pair = profile::measure(
        &ws,
        &workload,
        source,
        [
            &subject(&ws, &before, recipe)?,
            &subject(&ws, &after, recipe)?,
        ],
        arguments.transactions,
        arguments.runs,
        progress,
    )?;
    let difference = difference([&before, &after], &workload, source, &pair);
    // What was measured is shown, whatever of the rest fails.
    let mut errors = Vec::new();
    if let Some(file) = &arguments.flame_graph {
        let drawn = draw(file, &difference, &pair);
        if kept(drawn, &mut errors).is_some() {
            progress.note(&format!("{} is written", file.display()));
        }
    }
    let named = |name: &Option<String>, errors: &mut Vec<Error>| {
        let found = name.as_ref().map(|name| function(&difference, name));
        found.and_then(|found| kept(found, errors))
    };
    let callers = named(&arguments.callers, &mut errors)
        .map(|name| (name, Difference::callers(&pair.before, &pair.after, name)));
    let annotated = named(&arguments.annotate, &mut errors)
        .map(|name| annotated(&ws, &before, &after, &pair, name))
        .and_then(|lines| kept(lines, &mut errors));
    let callers = callers
        .as_ref()
        .map(|(name, edges)| (*name, edges.as_slice()));
    let shown = Shown {
        difference: &difference,
        top: arguments.top.unwrap_or(TOP),
        callers,
        lines: annotated.as_ref(),
    };
    let output = &context.output;
    let done = match format {
        Format::Terminal => output.print(&perfquilt_report::profile(
            &shown,
            output.width(),
            output.color(),
        )),
        Format::Markdown => output.print(&perfquilt_report::profile_markdown(&shown)),
        Format::Json => {
            let mut difference = difference.clone();
            let all = difference.functions.len();
            difference.functions.truncate(arguments.top.unwrap_or(all));
            output.print_json(&Document {
                difference,
                callers: callers.map(|(_, edges)| edges),
                lines: annotated.as_ref().map(lines),
            })
        }
    };
    output.told(done, output.errors(errors))
}

/// Refuses, before minutes of measuring, a file that has no folder to be in.
fn check_place(file: &Path) -> Result<()> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if folder.is_dir() && !file.is_dir() {
        Ok(())
    } else {
        Err(
            Error::usage(format!("{} cannot be written", file.display()))
                .hint("name a file in a folder that is there"),
        )
    }
}

/// What was found; an error goes to `errors`.
fn kept<T>(found: Result<T>, errors: &mut Vec<Error>) -> Option<T> {
    found.map_err(|error| errors.push(error)).ok()
}

/// Draws the differential flame graph to `file`.
fn draw(file: &Path, difference: &Difference, pair: &Pair) -> Result<()> {
    let title = format!(
        "{} → {}, {}",
        difference.before, difference.after, difference.workload
    );
    let svg = perfquilt_report::flame_graph(&title, &pair.before, &pair.after)?;
    std::fs::write(file, svg).map_err(|error| Error::io("write", file, &error))
}

/// The lines of a function in the JSON document.
fn lines(annotated: &Annotated) -> serde_json::Value {
    let side = |lines: &[Line]| -> Vec<serde_json::Value> {
        let line = |line: &Line| {
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

/// A server to look into.
fn subject(ws: &Workspace, target: &Target, recipe: &str) -> Result<Subject> {
    // Nobody knows how a server built elsewhere was built.
    let recipe = match target.recipe.as_str() {
        "" => recipe,
        own => own,
    };
    let binary = ws.config.recipe(recipe)?.binary.as_deref();
    Ok(Subject {
        label: target.label.clone(),
        executable: target.built.dir.join(binary.unwrap_or_default()),
        server: target.built.dir.clone(),
        release: target.release.clone(),
        data: target.data.clone(),
        base: target.base.clone(),
    })
}

fn difference(
    [before, after]: [&Target; 2],
    workload: &Workload,
    source: Source,
    pair: &Pair,
) -> Difference {
    Difference {
        schema: 1,
        before: before.label.clone(),
        after: after.label.clone(),
        workload: workload.name.clone(),
        source: source.name().to_owned(),
        unit: source.unit().to_owned(),
        runs: pair.before.len(),
        transactions: pair.transactions,
        total: Difference::total_of(&pair.before, &pair.after),
        functions: Difference::functions_of(&pair.before, &pair.after),
    }
}

/// The function called `name`, with or without its parameters.
fn function<'a>(difference: &'a Difference, name: &str) -> Result<&'a str> {
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
    let error = Error::usage(format!("no function `{name}` ran"));
    Err(match nearest {
        Some((similarity, known)) if similarity > 0.7 => {
            error.hint(format!("did you mean `{known}`?"))
        }
        _ => error.hint("its name is that of the table, parameters may be left out"),
    })
}

fn annotated(
    ws: &Workspace,
    before: &Target,
    after: &Target,
    pair: &Pair,
    function: &str,
) -> Result<Annotated> {
    let side = |target: &Target, tables: &[CostTable]| -> Result<Vec<Line>> {
        let lines = Difference::lines(tables, function);
        let mut sources = Vec::new();
        let mut text: Option<(String, Option<String>)> = None;
        for hot in lines {
            if text.as_ref().is_none_or(|(file, _)| *file != hot.file) {
                text = Some((hot.file.clone(), source_of(ws, target, &hot)?));
            }
            let content = text.as_ref().and_then(|(_, content)| content.as_deref());
            let line = content.and_then(|content| content.lines().nth(hot.line as usize - 1));
            sources.push(Line {
                text: line.map(str::to_owned),
                hot,
            });
        }
        Ok(sources)
    };
    Ok(Annotated {
        function: function.to_owned(),
        before: side(before, &pair.before)?,
        after: side(after, &pair.after)?,
    })
}

/// The source file that a line is in, if it is one of the server's tree.
fn source_of(ws: &Workspace, target: &Target, hot: &Hot) -> Result<Option<String>> {
    let Some(tree) = &target.tree else {
        return Ok(None);
    };
    // Debug information has the path of the folder it was compiled in; the longest end of it that the tree
    // has is the file.
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
