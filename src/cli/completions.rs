//! `perfquilt completions SHELL`.

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
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completion script of a shell for `command`.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be written;
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when it is to be JSON.
pub fn run(context: &Context, arguments: &Arguments, mut command: clap::Command) -> Result<()> {
    if context.output.json() {
        return Err(Error::usage("a completion script is no JSON document"));
    }
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "perfquilt", &mut script);
    context.output.print(&String::from_utf8_lossy(&script))
}
