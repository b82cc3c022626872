//! `perfquilt man`: prints or writes manual pages, made from the texts of `--help`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Context;
use super::output::shown;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;

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
pub fn run(context: &Context, arguments: &Arguments, mut command: clap::Command) -> Result<()> {
    command.build();
    let Some(folder) = &arguments.output else {
        if context.output.json() {
            return Err(Error::arguments("a manual page has no JSON form"));
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
    progress::note(&note);
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
    Error::arguments(cause).hint("`--output DIR` names the folder for the pages, one per command")
}

/// Writes the page of `command`, called `name`, and those of its subcommands; returns the number of pages.
fn write(folder: &Path, command: &clap::Command, name: &str) -> Result<usize> {
    let file = folder.join(format!("{name}.1"));
    std::fs::write(&file, page(command, name)?)
        .map_err(|error| Error::io("write", &file, &error))?;
    let mut written = 1;
    for sub in command.get_subcommands() {
        if sub.get_name() != "help" && !sub.is_hide_set() {
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
    let text = String::from_utf8_lossy(&bytes);
    // clap_mangen's name for the text after the options.
    Ok(text.replace(".SH EXTRA\n", ".SH NOTES\n") + &exit_status())
}

/// Returns the section with the exit codes, from the table of the reference.
fn exit_status() -> String {
    let reference = include_str!("../../docs/reference.md");
    let rows = reference
        .lines()
        .skip_while(|line| *line != "<!-- exit codes -->");
    let rows = rows.take_while(|line| *line != "<!-- end -->");
    let mut text = ".SH \"EXIT STATUS\"\n".to_owned();
    for row in rows {
        let mut cells = row.trim_matches('|').split(" | ").map(str::trim);
        if let (Some(code), Some(meaning)) = (cells.next(), cells.next())
            && code.parse::<u8>().is_ok()
        {
            let meaning = meaning
                .replace('`', "")
                .replace('-', "\\-")
                .replace('\'', "\\(aq");
            text += &format!(".TP\n{code}\n{meaning}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn a_page_has_the_examples_and_the_exit_codes() {
        let mut command = super::super::Cli::command();
        command.build();
        let run = command.find_subcommand("run").unwrap();
        let text = page(run, "perfquilt-run").unwrap();
        assert!(!text.contains("EXTRA"), "{text}");
        assert!(text.contains(".SH NOTES\nExamples:"), "{text}");
        let (_, codes) = text.split_once(".SH \"EXIT STATUS\"\n").unwrap();
        assert_eq!(codes.matches(".TP\n").count(), 10, "{codes}");
        assert!(
            codes.contains(".TP\n130\nInterrupted by a signal"),
            "{codes}"
        );
        assert!(codes.contains("with \\-\\-fail\\-on regression"), "{codes}");
    }
}
