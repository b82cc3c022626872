//! `perfquilt man`: prints or writes manual pages, made from the texts of `--help`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Context;
use super::output::shown;
use perfquilt_model::error::{Error, Result};

/// Arguments of `perfquilt man`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt man | man -l -
  perfquilt man --output ~/.local/share/man/man1")]
pub struct Arguments {
    /// Folder to write a page per command to, instead of printing one
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Prints the manual page of `command`, or writes the pages of all its subcommands.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when they cannot be written;
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) with `--json` but no folder, and for a path that is no folder.
pub fn run(context: &Context, arguments: &Arguments, mut command: clap::Command) -> Result<()> {
    command.build();
    let Some(folder) = &arguments.output else {
        if context.output.json() {
            return Err(Error::usage("a manual page has no JSON form"));
        }
        return context.output.print(&page(&command, "perfquilt")?);
    };
    std::fs::create_dir_all(folder).map_err(|error| not_created(folder, &error))?;
    let written = write(folder, &command, "perfquilt")?;
    if context.output.json() {
        return context.output.print_json(&serde_json::json!({
            "schema": 1,
            "directory": shown(folder),
            "pages": written,
        }));
    }
    let note = format!("{written} pages in {}", folder.display());
    context.output.progress().note(&note);
    Ok(())
}

/// Returns the error for a folder of pages that cannot be created.
fn not_created(folder: &Path, error: &std::io::Error) -> Error {
    let mut folders = folder.ancestors();
    let cause = match folders.find(|part| part.exists() && !part.is_dir()) {
        Some(file) => format!("{} is not a folder", file.display()),
        None => match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                format!("cannot create {}: {error}", folder.display())
            }
            _ => return Error::io("create", folder, error),
        },
    };
    Error::usage(cause).hint("`--output DIR` names the folder for the pages, one per command")
}

/// Writes the page of `command`, called `name`, and those of its subcommands; returns the number of pages.
fn write(folder: &Path, command: &clap::Command, name: &str) -> Result<usize> {
    let file = folder.join(format!("{name}.1"));
    std::fs::write(&file, page(command, name)?)
        .map_err(|error| Error::io("write", &file, &error))?;
    let mut written = 1;
    for sub in command.get_subcommands() {
        if sub.get_name() != "help" {
            written += write(folder, sub, &format!("{name}-{}", sub.get_name()))?;
        }
    }
    Ok(written)
}

fn page(command: &clap::Command, name: &str) -> Result<String> {
    let mut bytes = Vec::new();
    clap_mangen::Man::new(command.clone())
        .title(name)
        .manual("perfquilt manual")
        // Without a date, the text is reproducible.
        .date("")
        .render(&mut bytes)
        .map_err(|error| Error::internal(format!("cannot write the manual: {error}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
