//! `perfquilt history`: shows the effects of all stored experiments beside each other.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Context;
use super::output_file::{deliver, writable};
use super::pager::PagerStart;
use super::report_options::{choose_format, format_by_suffix};
use perfquilt_judge::attribution::{Attribution, attribute_with};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::observation::Meter;
use perfquilt_store::Store;

/// Arguments of `perfquilt history`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt history
  perfquilt history --meter instructions --workload oltp_read_only
  perfquilt history --release mariadb-11.8.6 --format html --output history.html")]
pub struct Arguments {
    /// Meter to show
    #[arg(long, value_name = "METER", default_value = "time")]
    meter: Meter,
    /// Workload to show (default: all of each experiment together)
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Release of the experiments to show, by its version or its name (default: all)
    #[arg(long, value_name = "NAME")]
    release: Option<String>,
    /// Recipe of the experiments to show (default: all)
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    /// Format of the history (--json is short for json)
    #[arg(long, value_enum)]
    format: Option<HistoryFormat>,
    /// File to write to instead of standard output; without --format, its suffix chooses the format: .html or .json
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A format of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HistoryFormat {
    /// Table for a terminal
    Terminal,
    /// Page for browsers
    Html,
    /// JSON document for programs
    Json,
}

/// Runs `perfquilt history`.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when there are no results, no experiment matches, or the file
/// cannot be written.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let format = choose_format(
        context,
        arguments.format,
        HistoryFormat::Json,
        format_by_suffix(
            arguments.output.as_deref(),
            arguments.format,
            HistoryFormat::Terminal,
        )?,
    )?;
    if let Some(file) = &arguments.output {
        writable(file)?;
    }
    let ws = context.workspace()?;
    let store = Store::open_existing(&ws.results())?;
    let mut listed = store.list()?;
    // Experiments with servers named by hand are not about the series.
    listed.retain(|one| !one.header.is_of_servers());
    for (requested, what, of) in [
        (&arguments.release, "release", 0),
        (&arguments.recipe, "recipe", 1),
    ] {
        let Some(requested) = requested else { continue };
        let name = |one: &perfquilt_store::ExperimentSummary| match of {
            0 => one.header.release.clone(),
            _ => one.header.recipe.clone(),
        };
        let exists = |wanted: &String| listed.iter().any(|one| name(one) == *wanted);
        let full_name = ws.config.release_name(requested);
        let wanted = if what == "release" && !exists(requested) && exists(&full_name) {
            full_name
        } else {
            requested.clone()
        };
        if !exists(&wanted) {
            let mut names: Vec<String> = listed.iter().map(name).collect();
            names.sort();
            names.dedup();
            return Err(perfquilt_model::error::Error::unknown(
                what,
                requested,
                names.iter(),
            ));
        }
        listed.retain(|one| name(one) == wanted);
    }
    listed.retain(|one| one.observations > 0);
    listed.sort_by(|a, b| a.header.started.cmp(&b.header.started));
    let step = context
        .output
        .progress()
        .begin("experiments", Some(listed.len() as u64));
    let mut attributions: Vec<Attribution> = Vec::new();
    for (place, one) in listed.iter().enumerate() {
        step.update(place as u64, None, &one.header.experiment);
        let (header, observations) = store.load(one.id)?;
        let supplement = perfquilt_results::analyse::supplement(&store, one.id)?;
        let margin = |meter| ws.config.margin(meter);
        attributions.push(attribute_with(
            &header,
            &observations,
            &supplement,
            &margin,
        )?);
    }
    step.finish("");
    if let Some(workload) = &arguments.workload {
        let all = attributions.iter().flat_map(|a| &a.workloads);
        let all: BTreeSet<&String> = all.collect();
        if !all.contains(workload) {
            let all = all.iter().copied();
            return Err(perfquilt_model::error::Error::unknown(
                "workload", workload, all,
            ));
        }
    }
    let workload = arguments.workload.as_deref();
    let history = perfquilt_report::history::history(&attributions, arguments.meter, workload);
    let text = match format {
        HistoryFormat::Terminal => history.terminal(context.output.width(), context.output.color()),
        HistoryFormat::Html if arguments.output.is_none() && context.output.is_terminal() => {
            return Err(
                Error::usage("refusing to write HTML to a terminal").hint("--output history.html")
            );
        }
        HistoryFormat::Html => history.html()?,
        HistoryFormat::Json => {
            let text = serde_json::to_string_pretty(&history);
            text.map_err(|error| Error::internal(format!("cannot write JSON: {error}")))? + "\n"
        }
    };
    if arguments.output.is_none() && format == HistoryFormat::Terminal {
        return context.output.page(&text, PagerStart::Top);
    }
    deliver(context, arguments.output.as_deref(), &text)
}
