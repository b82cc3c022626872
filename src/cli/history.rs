//! `perfquilt history`: every stored experiment at once.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Context;
use super::form::{chosen, deliver, writable};
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
    /// The meter that is told
    #[arg(long, value_name = "METER", default_value = "time")]
    meter: Meter,
    /// One workload (default: all of each experiment together)
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Only experiments on this release
    #[arg(long, value_name = "NAME")]
    release: Option<String>,
    /// Only experiments with this recipe
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    /// The form (--json is short for json)
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A history's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people
    Terminal,
    /// A page for browsers
    Html,
    /// For programs
    Json,
}

/// Runs `perfquilt history`.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when there are no results, no experiment is as asked for, or the file
/// cannot be written.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let format = chosen(context, arguments.format, Format::Json, Format::Terminal)?;
    if let Some(file) = &arguments.output {
        writable(file)?;
    }
    let ws = context.workspace()?;
    let store = Store::open_existing(&ws.results())?;
    let mut listed = store.list()?;
    // Servers that somebody named are no moment of the series.
    listed.retain(|one| one.header.base.is_empty());
    for (asked, what, of) in [
        (&arguments.release, "release", 0),
        (&arguments.recipe, "recipe", 1),
    ] {
        let Some(asked) = asked else { continue };
        let name = |one: &perfquilt_store::Listed| match of {
            0 => one.header.release.clone(),
            _ => one.header.recipe.clone(),
        };
        if !listed.iter().any(|one| name(one) == *asked) {
            let mut names: Vec<String> = listed.iter().map(name).collect();
            names.sort();
            names.dedup();
            return Err(perfquilt_model::error::Error::unknown(
                what,
                asked,
                names.iter(),
            ));
        }
        listed.retain(|one| name(one) == *asked);
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
        Format::Terminal => history.terminal(context.output.width(), context.output.color()),
        Format::Html if arguments.output.is_none() && context.output.is_terminal() => {
            return Err(Error::usage("a page is not for a terminal").hint("--output history.html"));
        }
        Format::Html => history.html()?,
        Format::Json => {
            let text = serde_json::to_string_pretty(&history);
            text.map_err(|error| Error::internal(format!("cannot write JSON: {error}")))? + "\n"
        }
    };
    deliver(context, arguments.output.as_deref(), &text)
}
