//! `perfquilt history`: shows the effects of all stored experiments beside each other, or the differences of two.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;

use super::Context;
use super::output_file::refuse_overwrite;
use super::report_options::{self, DocumentOptions};
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::attribution::{self, Attribution, Comparison, SUITE};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;
use perfquilt_model::progress;
use perfquilt_report::comparison::document;
use perfquilt_report::history::History;
use perfquilt_results::analyse;
use perfquilt_store::{ExperimentSummary, Store, jsonl};

/// Arguments of `perfquilt history`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt history
  perfquilt history 0001                                         one patch
  perfquilt history --meter instructions --workload oltp_read_only
  perfquilt history --release mariadb-11.8.6 --format html --output history.html
  perfquilt history mariadb-10.11.18-quick mariadb-11.8.6-quick  after a rebase
  perfquilt history intel.jsonl.gz amd.jsonl.gz                  on two machines")]
pub struct Arguments {
    /// Patch to show, by a unique part of its name (default: all); with NEW, the experiment to compare with it, patch by
    /// patch: its name in the workspace's store, or an observation file
    #[arg(value_name = "PATCH|OLD")]
    before: Option<String>,
    /// Second experiment, likewise
    #[arg(value_name = "NEW")]
    after: Option<String>,
    /// Meter to show
    #[arg(
        long,
        value_name = "METER",
        default_value = "time",
        conflicts_with = "after"
    )]
    meter: Meter,
    /// Workload to show (default: all of each experiment together; with OLD NEW, each that both have)
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Release of the experiments to show, by its version or its name (default: all)
    #[arg(long, value_name = "NAME", conflicts_with = "after")]
    release: Option<String>,
    /// Recipe of the experiments to show (default: all)
    #[arg(long, value_name = "NAME", conflicts_with = "after")]
    recipe: Option<String>,
    #[command(flatten)]
    options: DocumentOptions,
}

/// Runs `perfquilt history`.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let format = arguments.options.format(context)?;
    if let (Some(before), Some(after)) = (&arguments.before, &arguments.after) {
        let compared = compared(context, before, after, arguments)?;
        let shown = document(&compared);
        return arguments.options.write(context, format, &shown, &compared);
    }
    let mut history = stored_effects(context, arguments)?;
    if let Some(patch) = &arguments.before {
        keep_patch(&mut history, patch)?;
    }
    arguments
        .options
        .write(context, format, &history.document(), &history)
}

/// Returns the effects of all stored experiments that the options choose.
fn stored_effects(context: &Context, arguments: &Arguments) -> Result<History> {
    let ws = context.workspace()?;
    let store = Store::open_existing(&ws.results())?;
    let listed = chosen(&ws, store.list()?, arguments)?;
    let step = progress::begin("experiments", Some(listed.len() as u64));
    let mut attributions: Vec<Attribution> = Vec::new();
    for (place, one) in listed.iter().enumerate() {
        step.update(place as u64, None, &one.header.experiment);
        let margin = |meter| ws.config.margin(meter);
        attributions.push(analyse::effects(&store, one.id, &margin)?);
    }
    step.finish("");
    let workload = arguments.workload.as_deref();
    if let Some(workload) = workload {
        let all = attributions.iter().flat_map(|a| &a.workloads);
        let all: BTreeSet<&String> = all.collect();
        if !all.iter().any(|known| *known == workload) {
            return Err(Error::unknown("workload", workload, all));
        }
    }
    Ok(perfquilt_report::history::history(
        &attributions,
        arguments.meter,
        workload,
    ))
}

/// Keeps the rows of the only patch whose name is `text` or has it as a part. Their verdicts stay those among all patches.
fn keep_patch(history: &mut History, text: &str) -> Result<()> {
    let names: Vec<String> = history
        .patches
        .iter()
        .filter_map(|p| p.name.clone())
        .collect();
    let exact = names.iter().find(|name| *name == text);
    let parts: Vec<&String> = names.iter().filter(|name| name.contains(text)).collect();
    let only = match (exact, parts.as_slice()) {
        (Some(only), _) | (None, &[only]) => only,
        (None, []) => {
            let fault = Error::unknown("patch in the stored experiments", text, names.iter());
            return Err(fault.details(["`perfquilt history OLD NEW` compares two experiments"]));
        }
        (None, several) => {
            let fault = Error::patch_unknown(format!("\"{text}\" matches several patches"));
            let names = several.iter().take(10).copied();
            return Err(fault.details(names).hint("give more of the name"));
        }
    };
    history
        .patches
        .retain(|patch| patch.name.as_ref() == Some(only));
    history.release.clear();
    Ok(())
}

/// Returns the experiments on the series with observations, of the requested release and recipe, the earliest first.
fn chosen(
    ws: &Workspace,
    mut listed: Vec<ExperimentSummary>,
    arguments: &Arguments,
) -> Result<Vec<ExperimentSummary>> {
    // Experiments with servers named by hand are not about the series.
    listed.retain(|one| !one.header.is_of_servers());
    type Name = fn(&ExperimentSummary) -> &String;
    let choices: [(_, _, Name); 2] = [
        (&arguments.release, "release", |one| &one.header.release),
        (&arguments.recipe, "recipe", |one| &one.header.recipe),
    ];
    for (requested, what, name) in choices {
        let Some(requested) = requested else { continue };
        let exists = |wanted: &String| listed.iter().any(|one| name(one) == wanted);
        let full_name = ws.config.release_name(requested);
        let wanted = if what == "release" && !exists(requested) && exists(&full_name) {
            full_name
        } else {
            requested.clone()
        };
        if !exists(&wanted) {
            let mut names: Vec<String> = listed.iter().map(name).cloned().collect();
            names.sort();
            names.dedup();
            return Err(Error::unknown(what, requested, names.iter()));
        }
        listed.retain(|one| *name(one) == wanted);
    }
    listed.retain(|one| one.observations > 0);
    listed.sort_by(|a, b| a.header.started.cmp(&b.header.started));
    Ok(listed)
}

/// Compares two experiments patch by patch.
fn compared(
    context: &Context,
    before: &str,
    after: &str,
    arguments: &Arguments,
) -> Result<Comparison> {
    let inputs = [before, after].into_iter();
    refuse_overwrite("comparison", arguments.options.output(), inputs)?;
    let ws = context.workspace_if_any()?;
    let names = [before, after];
    let before = read(ws.as_ref(), before)?;
    let after = read(ws.as_ref(), after)?;
    let mut compared = attribution::compare(&before, &after);
    if let Some(ws) = &ws
        && !names.iter().any(|name| Path::new(name).is_file())
    {
        let store = Store::open_existing(&ws.results())?;
        let [before, after] = names.map(|name| store.find(name));
        let edited = analyse::edited_patch(&store, before?, after?)?;
        compared.warnings.extend(edited);
    }
    if let Some(name) = &arguments.workload {
        let known = compared.tables.iter().map(|table| &table.workload);
        let known: Vec<&String> = known.filter(|known| *known != SUITE).collect();
        if !known.contains(&name) {
            let what = "workload of both experiments";
            return Err(Error::unknown(what, name, known));
        }
        compared.tables.retain(|table| table.workload == *name);
    }
    Ok(compared)
}

/// Reads and judges an experiment: a file if there is one of this name, otherwise one of the workspace's store.
fn read(ws: Option<&Workspace>, name: &str) -> Result<Attribution> {
    let path = Path::new(name);
    let margin = report_options::margin(ws);
    let file = if path.is_file() {
        jsonl::read(analyse::open(path)?, path)?
    } else if let Some(ws) = ws {
        let store = Store::open_existing(&ws.results())?;
        let id = store.find(name)?;
        analyse::stored(&store, id)?
    } else {
        let fault =
            Error::no_workspace(format!("there is no file `{name}`, and no workspace here"));
        return Err(fault.hint("give two observation files, or `-C DIR` for a workspace"));
    };
    analyse::attribution(&file, &margin)
}
