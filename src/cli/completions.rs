//! `perfquilt completions SHELL`: prints a completion script.

use clap::Args;
use clap_complete::Shell;

use super::Context;
use perfquilt_model::error::{Error, Result};

/// Arguments of `perfquilt completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt completions bash > ~/.local/share/bash-completion/completions/perfquilt
  perfquilt completions zsh > ~/.zfunc/_perfquilt")]
pub struct Arguments {
    /// Shell to complete for
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completion script of a shell for `command`.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be written;
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) with `--json`.
pub fn run(context: &Context, arguments: &Arguments, mut command: clap::Command) -> Result<()> {
    if context.output.json() {
        return Err(Error::usage("a completion script has no JSON form"));
    }
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "perfquilt", &mut script);
    context.output.print(&String::from_utf8_lossy(&script))
}
