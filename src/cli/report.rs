//! `perfquilt report`: a stored experiment again, in any form.

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Context;
use crate::attribution::{self, Attribution, Verdict};
use crate::config::default_margin;
use crate::error::{Error, Kind, Result};
use crate::observation::{Meter, RecordedRow};
use crate::report;
use crate::store::{ExperimentId, Listed, Store, jsonl};
use crate::workspace::Workspace;

/// Arguments of `perfquilt report`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The experiment's name (default: the latest)
    experiment: Option<String>,
    /// List the experiments instead
    #[arg(long, conflicts_with_all = ["experiment", "format", "fail_on"])]
    list: bool,
    #[command(flatten)]
    form: Form,
}

/// How results are shown; shared by the commands that end in a report.
#[derive(Debug, Clone, Default, Args)]
pub struct Form {
    /// The report's form (--json is short for json)
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// End with exit code 6 when a patch is slower, 7 when one is unclear
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    fail_on: Vec<FailOn>,
}

impl Form {
    /// The form asked for by `--format` or `--json`.
    ///
    /// # Errors
    /// [`Kind::Usage`] when they contradict each other.
    pub fn format(&self, context: &Context) -> Result<Format> {
        match (self.format, context.output.json()) {
            (None | Some(Format::Json), true) => Ok(Format::Json),
            (Some(_), true) => Err(Error::usage("--json and --format ask for different forms")),
            (format, false) => Ok(format.unwrap_or(Format::Terminal)),
        }
    }
}

/// A report's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table for people
    Terminal,
    /// What a pull request gets
    Markdown,
    /// The attribution document
    Json,
    /// The raw observations
    Jsonl,
    /// Every operation of sql-bench's programs, as sql-bench prints them and with what is known
    SqlBench,
    /// What each point does in a second, and its other costs, as Markdown
    Rates,
}

/// A result that ends the program with an exit code of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A patch is slower
    Regression,
    /// A patch is unclear or has no figures, or blocks are missing
    Inconclusive,
}

/// Runs `perfquilt report`.
///
/// # Errors
/// [`Kind::Usage`] when there is no such experiment; as [`show`].
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let workspace = context.workspace()?;
    let store = Store::open_existing(&workspace.results())?;
    if arguments.list {
        return list(context, &store.list()?);
    }
    let id = match &arguments.experiment {
        Some(name) => store.find(name)?,
        None => store.latest()?.ok_or_else(|| {
            Error::usage("there are no results yet")
                .hint("`perfquilt run` builds, measures and reports")
        })?,
    };
    stored(context, &arguments.form, &workspace, &store, id)
}

/// Prints the report of a stored experiment in the form asked for.
///
/// # Errors
/// As [`show`], and [`Kind::Internal`] when the store cannot be read.
pub fn stored(
    context: &Context,
    form: &Form,
    workspace: &Workspace,
    store: &Store,
    id: ExperimentId,
) -> Result<()> {
    let (header, observations) = store.load(id)?;
    let mut supplement = store.supplement(id)?;
    supplement.functions = attribution::function_changes(&header, &store.functions(id)?);
    let margin = |meter| workspace.config.margin(meter);
    let file = jsonl::File {
        header,
        supplement,
        observations,
    };
    show(context, form, &file, None, &margin)
}

/// Prints the report of an experiment in the form asked for; `recorded` is the table it was made from, if it was
/// made from one.
///
/// # Errors
/// [`Kind::Regression`] and [`Kind::Inconclusive`] where `--fail-on` asks for them;
/// [`Kind::Usage`] when observations do not fit the header.
pub fn show(
    context: &Context,
    form: &Form,
    file: &jsonl::File,
    recorded: Option<&[RecordedRow]>,
    margin: &dyn Fn(Meter) -> f64,
) -> Result<()> {
    let jsonl::File {
        header,
        supplement,
        observations,
    } = file;
    let attribution = attribution::attribute_with(header, observations, supplement, margin)?;
    if form.format(context)? != Format::Jsonl {
        return print(context, form, &attribution, recorded);
    }
    let mut bytes = Vec::new();
    jsonl::write(&mut bytes, header, supplement, observations)?;
    context.output.print(&String::from_utf8_lossy(&bytes))?;
    fail(&attribution, &form.fail_on)
}

/// Prints the report of an attribution in the form asked for; `recorded` is the table it was made from, if it
/// was made from one.
///
/// # Errors
/// [`Kind::Regression`] and [`Kind::Inconclusive`] where `--fail-on` asks for them;
/// [`Kind::Usage`] for raw observations, which an attribution does not hold.
pub fn print(
    context: &Context,
    form: &Form,
    attribution: &Attribution,
    recorded: Option<&[RecordedRow]>,
) -> Result<()> {
    let output = &context.output;
    let text = match form.format(context)? {
        Format::Terminal => report::terminal(attribution, output.width(), output.color()),
        Format::Markdown => report::markdown(attribution),
        Format::Json => report::json(attribution)?,
        Format::SqlBench => {
            report::sql_bench(attribution, recorded, output.width(), output.color())?
        }
        Format::Rates => report::rates(attribution),
        Format::Jsonl => return Err(Error::usage("there are no raw observations to print")),
    };
    output.print(&text)?;
    fail(attribution, &form.fail_on)
}

/// The default margins, for observations outside a workspace.
pub fn default_margins(meter: Meter) -> f64 {
    default_margin(meter)
}

fn fail(attribution: &Attribution, fail_on: &[FailOn]) -> Result<()> {
    let names = |verdict| {
        let patches = attribution.patches_with(verdict);
        let names: Vec<&str> = patches.iter().map(|patch| patch.name.as_str()).collect();
        names.join(", ")
    };
    if fail_on.contains(&FailOn::Regression) && attribution.is_regression() {
        return Err(Error::new(
            Kind::Regression,
            format!("slower: {}", names(Verdict::Slower)),
        ));
    }
    if fail_on.contains(&FailOn::Inconclusive) && attribution.is_inconclusive() {
        let message = match names(Verdict::Unclear) {
            _ if !attribution.is_complete() => "blocks are still to be measured".to_owned(),
            names if names.is_empty() => "some patches have no figures".to_owned(),
            names => format!("unclear: {names}"),
        };
        return Err(Error::new(Kind::Inconclusive, message));
    }
    Ok(())
}

#[derive(Serialize)]
struct ListedExperiment<'a> {
    experiment: &'a str,
    release: &'a str,
    recipe: &'a str,
    started: &'a str,
    patches: usize,
    observations: u64,
}

fn list(context: &Context, listed: &[Listed]) -> Result<()> {
    let experiments: Vec<ListedExperiment<'_>> = listed
        .iter()
        .map(|listed| ListedExperiment {
            experiment: &listed.header.experiment,
            release: &listed.header.release,
            recipe: &listed.header.recipe,
            started: &listed.header.started,
            patches: listed.header.series.len(),
            observations: listed.observations,
        })
        .collect();
    if context.output.json() {
        return context
            .output
            .print_json(&serde_json::json!({ "schema": 1, "experiments": experiments }));
    }
    let mut text = String::new();
    for one in &experiments {
        let line = [
            one.experiment,
            one.release,
            one.recipe,
            &format!("{} patches", one.patches),
            &format!("{} observations", one.observations),
            one.started,
        ]
        .map(super::output::plain)
        .join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    context.output.print(&text)
}
