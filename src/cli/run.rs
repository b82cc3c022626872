//! `perfquilt run`: the main job.

use std::path::PathBuf;

use clap::Args;

use super::Context;
use super::bench::Measuring;
use super::form::Form;
use super::report;
use crate::error::Result;
use crate::outcome::{self, Failure};
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
    /// Write what it came to into this folder, for `perfquilt post`: raw observations and what failed
    #[arg(long, value_name = "FOLDER")]
    outcome: Option<PathBuf>,
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
    let told = arguments.outcome.as_deref();
    let outcome = match run_job(&ws, &preset, release, &measuring.wanted(), progress) {
        Ok(outcome) => outcome,
        Err(error) => {
            if let Some(folder) = told {
                outcome::write(folder, &ws, &[Failure::new(&error, None)], None)?;
            }
            return Err(error);
        }
    };
    let store = Store::open_existing(&ws.results())?;
    if let Some(folder) = told {
        let failures = outcome::failures(&outcome);
        outcome::write(folder, &ws, &failures, Some((&store, outcome.experiment)))?;
    }
    if let Some(error) = outcome.stopped {
        return Err(error);
    }
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
