//! `perfquilt report`: reports on a stored experiment in any format.

use std::collections::BTreeMap;

use clap::Args;
use serde::Serialize;

use super::Context;
use super::plain::plain;
use super::report_options::{ReportInput, ReportOptions, decisions, show};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::counted::counted;
use perfquilt_model::error::{Error, Result};
use perfquilt_report::{Distribution, RequiredInput};
use perfquilt_results::analyse;
use perfquilt_store::{ExperimentId, ExperimentSummary, Store};

/// Arguments of `perfquilt report`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt report                                     the latest experiment
  perfquilt report --list
  perfquilt report --format html --output report.html
  perfquilt report mariadb-10.11.18-quick --format jsonl | gzip > old.jsonl.gz
  perfquilt report --format gobench > all.txt && benchstat -col /point all.txt
  perfquilt report --fail-on regression --quiet        exit code 6 if slower")]
pub struct Arguments {
    /// Name of the experiment (default: the latest)
    experiment: Option<String>,
    /// List the experiments instead
    #[arg(long, conflicts_with_all = ["experiment", "format", "fail_on", "output", "flame_graph"])]
    list: bool,
    #[command(flatten)]
    report: ReportOptions,
}

/// Runs `perfquilt report`.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    arguments.report.format(context)?;
    let workspace = context.workspace()?;
    let store = Store::open_existing(&workspace.results())?;
    if arguments.list {
        return list(context, &store.list()?);
    }
    arguments.report.check(context)?;
    let id = find_experiment(&store, arguments.experiment.as_deref())?;
    show_stored(context, &arguments.report.paged(), &workspace, &store, id)
}

/// Returns the experiment called `name`, else the latest.
pub fn find_experiment(store: &Store, name: Option<&str>) -> Result<ExperimentId> {
    match name {
        Some(name) => store.find(name),
        None => store.latest()?.ok_or_else(|| {
            Error::no_results("there are no results yet")
                .hint("`perfquilt run` builds, measures and reports")
        }),
    }
}

/// Prints the report of a stored experiment in the requested format.
pub fn show_stored(
    context: &Context,
    options: &ReportOptions,
    workspace: &Workspace,
    store: &Store,
    id: ExperimentId,
) -> Result<()> {
    let file = analyse::stored(store, id)?;
    let margin = |meter| workspace.config.margin(meter);
    let required = options.format(context)?.0.required_input;
    let distributions = if required >= RequiredInput::Distributions {
        distributions(store, id)?
    } else {
        Vec::new()
    };
    let shown = ReportInput {
        file,
        recorded: None,
        distributions,
        stored: true,
        decisions: decisions(Some(workspace))?,
    };
    show(context, options, &shown, &margin)
}

/// Returns the distributions of the slices of all workloads.
fn distributions(store: &Store, id: ExperimentId) -> Result<Vec<Distribution>> {
    let mut blocks: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for (workload, block) in store.slice_blocks(id)? {
        blocks.entry(workload).or_default().push(block);
    }
    let mut found = Vec::new();
    for (workload, blocks) in blocks {
        let mut failed = None;
        let slices = blocks.into_iter().map_while(|block| {
            let slices = store.slices(id, &workload, block);
            slices.map_err(|error| failed = Some(error)).ok()
        });
        found.extend(Distribution::of(&workload, slices));
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(found)
}

#[derive(Serialize)]
struct ListedExperiment<'a> {
    experiment: &'a str,
    release: &'a str,
    recipe: &'a str,
    started: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    patches: Option<usize>,
    /// Of servers that are no series, besides the base.
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<usize>,
    observations: u64,
}

fn list(context: &Context, listed: &[ExperimentSummary]) -> Result<()> {
    let experiments: Vec<ListedExperiment<'_>> = listed
        .iter()
        .map(|listed| {
            let header = &listed.header;
            let count = Some(header.series.len());
            ListedExperiment {
                experiment: &header.experiment,
                release: &header.release,
                recipe: &header.recipe,
                started: &header.started,
                patches: count.filter(|_| !header.is_of_servers()),
                servers: count.filter(|_| header.is_of_servers()),
                observations: listed.observations,
            }
        })
        .collect();
    let json = serde_json::json!({ "schema": 1, "experiments": experiments });
    // Programs that read the output get one line per experiment.
    let columns = if context.output.is_terminal() {
        context.output.width()
    } else {
        usize::MAX
    };
    let mut text = String::new();
    for one in &experiments {
        let observations = usize::try_from(one.observations).unwrap_or(usize::MAX);
        let parts = [
            plain(one.experiment),
            plain(one.release),
            plain(one.recipe),
            match one.servers {
                Some(servers) => counted(servers, "server", "servers"),
                None => counted(one.patches.unwrap_or(0), "patch", "patches"),
            },
            counted(observations, "observation", "observations"),
            plain(one.started),
        ];
        text.push_str(&wrap_parts(&parts, columns));
    }
    context.output.result(&json, || text)
}

/// Joins `parts` with gaps; a part that does not fit into `columns` goes to an indented next line.
fn wrap_parts(parts: &[String], columns: usize) -> String {
    let mut text = String::new();
    let mut used = 0;
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let width = part.chars().count();
        let (gap, before) = match used {
            0 => ("", 0),
            _ if used + 2 + width > columns => ("\n    ", 4),
            _ => ("  ", used + 2),
        };
        text.push_str(gap);
        text.push_str(part);
        used = before + width;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_fits_the_terminal() {
        let parts = [
            "mariadb-10.11.18-series-29",
            "mariadb-10.11.18",
            "",
            "1 patch",
            "40 observations",
            "2026-10-29T02:04:05Z",
        ]
        .map(str::to_owned);
        assert_eq!(
            wrap_parts(&parts, 80),
            "mariadb-10.11.18-series-29  mariadb-10.11.18  1 patch  40 observations\n    \
             2026-10-29T02:04:05Z\n"
        );
        assert_eq!(wrap_parts(&parts, usize::MAX).lines().count(), 1);
    }
}
