//! `perfquilt ledger`: lists each patch with its origin, states, decisions and next step.

use clap::Args;

use super::Context;
use super::report_options::DocumentOptions;
use perfquilt_model::error::Result;
use perfquilt_report::ledger::document;

/// Arguments of `perfquilt ledger`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt ledger
  perfquilt ledger --output ledger.md")]
pub struct Arguments {
    #[command(flatten)]
    options: DocumentOptions,
}

/// Runs the subcommand.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let format = arguments.options.format(context)?;
    let ws = context.workspace()?;
    let matrix = perfquilt_rebase::matrix::matrix(&ws)?;
    let ledger = perfquilt_results::ledger::ledger(&ws, matrix)?;
    let shown = document(&ledger);
    arguments.options.write(context, format, &shown, &ledger)
}
