//! `perfquilt` without a command.

use std::process::ExitCode;

use super::Context;
use super::status::{self, Status};
use perfquilt_model::error::{Error, Result};

const TEXT: &str = "\
perfquilt keeps a series of performance patches on top of a server's source,
and measures what each patch is worth on the complete server.

There is no workspace in this folder or above it. Next:
  perfquilt init DIR            create a workspace
  perfquilt -C DIR status       use one that is elsewhere

`perfquilt help` lists all commands.
";

/// Shows the status of the workspace or, where there is none, how to get one.
///
/// # Errors
/// Those of [`status::run`]; with `--json`, the missing command where there is no workspace.
pub fn run(context: &Context) -> Result<ExitCode> {
    if context.workspace_if_any()?.is_some() {
        return status::run(context, &Status {}).map(|()| ExitCode::SUCCESS);
    }
    if context.output.json() {
        return Err(
            Error::usage("no command is given, and there is no workspace here")
                .hint("`perfquilt help` lists all commands"),
        );
    }
    context.output.print(TEXT)?;
    // A script that forgot the command should not go on.
    Ok(ExitCode::from(2))
}
