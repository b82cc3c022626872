//! `perfquilt matrix`: shows each patch on each release.

use clap::Args;

use super::Context;
use super::report_options::DocumentOptions;
use perfquilt_model::error::Result;
use perfquilt_report::matrix::document;

/// Arguments of `perfquilt matrix`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt matrix
  perfquilt matrix --output matrix.html")]
pub struct Arguments {
    #[command(flatten)]
    options: DocumentOptions,
}

/// Runs the subcommand.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let format = arguments.options.format(context)?;
    let ws = context.workspace()?;
    let mut matrix = perfquilt_rebase::matrix::matrix(&ws)?;
    perfquilt_results::effects::add_to_matrix(&ws, &mut matrix)?;
    let shown = document(&matrix);
    arguments.options.write(context, format, &shown, &matrix)
}
