//! `perfquilt run`: the main job.

use clap::Args;

use super::Context;
use super::report::{self, Form};
use crate::error::Result;
use crate::point::Point;
use crate::run::{Options, run as run_job};
use crate::store::Store;

/// Arguments of `perfquilt run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt run                          the whole series, preset quick
  perfquilt run --point 0 --point 2      two points only
  perfquilt run --workload oltp_read_only --blocks 24
  perfquilt run --json > attribution.json

Everything finished is kept: an interrupted run goes on where it stopped, and a run with nothing new
to do only reports.")]
pub struct Arguments {
    /// What to build and measure: a [preset.NAME] of the configuration
    #[arg(long, value_name = "NAME", default_value = "quick")]
    preset: String,
    /// The release (default: the current one)
    #[arg(long, value_name = "VERSION")]
    release: Option<String>,
    /// Only these points (the bare release is always one of them)
    #[arg(long = "point", value_name = "POINT")]
    points: Vec<Point>,
    /// Other workloads than the preset's
    #[arg(long = "workload", value_name = "NAME")]
    workloads: Vec<String>,
    /// Another recipe than the preset's
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    /// Another number of blocks than the preset's
    #[arg(long, value_name = "N")]
    blocks: Option<u32>,
    #[command(flatten)]
    form: Form,
}

/// Runs `perfquilt run`.
///
/// # Errors
/// Those of [`crate::run::run`]; after the report, the error of the first point that failed; what
/// `--fail-on` asks for.
pub fn run(context: &Context, arguments: Arguments) -> Result<()> {
    let ws = context.workspace()?;
    let options = Options {
        preset: arguments.preset,
        release: arguments.release,
        points: arguments.points,
        workloads: arguments.workloads,
        recipe: arguments.recipe,
        blocks: arguments.blocks,
    };
    let outcome = run_job(&ws, &options, context.output.progress())?;
    let store = Store::open_existing(&ws.results())?;
    let judged = report::stored(context, &arguments.form, &ws, &store, outcome.experiment);
    let mut errors = outcome.build_errors;
    if errors.is_empty() {
        errors.extend(outcome.failed);
    }
    let Some((_, last)) = errors.pop() else {
        return judged;
    };
    for (_, error) in &errors {
        context.output.error(error);
    }
    Err(last)
}
