//! `perfquilt run`: the main job.

use clap::Args;

use super::Context;
use super::bench::Measuring;
use super::report::{self, Form};
use crate::error::Result;
use crate::run::run as run_job;
use crate::store::Store;

/// Arguments of `perfquilt run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt run                          the whole series, preset quick
  perfquilt run --point 0 --point 2      two points only
  perfquilt run --workload oltp_read_only --blocks 24
  perfquilt run --effects alone,without  also each patch by itself, and the series without it
  perfquilt run --json > attribution.json

Everything finished is kept: an interrupted run goes on where it stopped, and a run with nothing new
to do only reports.")]
pub struct Arguments {
    #[command(flatten)]
    measuring: Measuring,
    /// Another recipe than the preset's
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    #[command(flatten)]
    form: Form,
}

/// Runs `perfquilt run`.
///
/// # Errors
/// Those of [`crate::run::run`]; after the report, the error of the first point that failed; what
/// `--fail-on` asks for.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let ws = context.workspace()?;
    let mut preset = arguments.measuring.preset(&ws)?;
    if let Some(recipe) = &arguments.recipe {
        ws.config.recipe(recipe)?;
        preset.recipe.clone_from(recipe);
    }
    let measuring = &arguments.measuring;
    let release = measuring.release.as_deref();
    let progress = context.output.progress();
    let outcome = run_job(&ws, &preset, release, &measuring.wanted(), progress)?;
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
