//! `perfquilt` without a command.

use std::path::Path;
use std::process::ExitCode;

use super::Context;
use super::plain::plain_lines;
use super::status::{self, Status};
use perfquilt_config::CONFIG_FILE;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::quoted;

const WHAT: &str = "\
perfquilt keeps a series of performance patches on top of a server's source,
and measures each patch's effect on the complete server.
";

/// Most workspaces below the current folder that are named.
const MOST: usize = 3;

/// The situation where there is no workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    /// The folders below that are workspaces.
    Workspaces(Vec<String>),
    /// `series` and `patches/`, to which a workspace's configuration can be added.
    Series,
    /// A series of quilt in this folder of the current one.
    SeriesIn(&'static str),
    /// A git repository, perhaps with a fork's commits.
    Repository,
    Nothing,
}

fn look(here: &Path) -> Found {
    let mut workspaces: Vec<String> = std::fs::read_dir(here)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join(CONFIG_FILE).is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    workspaces.sort();
    if !workspaces.is_empty() {
        return Found::Workspaces(workspaces);
    }
    if here.join("series").is_file() && here.join("patches").is_dir() {
        return Found::Series;
    }
    let series = ["patches", "debian/patches"];
    if let Some(folder) = series
        .into_iter()
        .find(|folder| here.join(folder).join("series").is_file())
    {
        return Found::SeriesIn(folder);
    }
    if here.join(".git").exists() {
        return Found::Repository;
    }
    Found::Nothing
}

/// Returns the text for a folder that is no workspace: what perfquilt is, and the next commands.
fn text(found: &Found) -> String {
    let next = |head: &str, commands: &[(&str, &str)]| {
        let mut text = format!("{WHAT}\n{head} Next:\n");
        for (command, does) in commands {
            text += &format!("  {command:<42}  {does}\n");
        }
        text
    };
    let new = ("perfquilt init DIR", "create a workspace (for MariaDB;");
    let server = ("", "--server names another server)");
    let text = match found {
        Found::Workspaces(folders) => {
            let mut commands = Vec::new();
            for folder in folders.iter().take(MOST) {
                commands.push(format!("perfquilt -C {} status", quoted(folder)));
            }
            let commands: Vec<(&str, &str)> = commands
                .iter()
                .map(|it| (it.as_str(), "show its state"))
                .collect();
            let head = match folders.len() {
                1 => "There is a workspace below this folder.".to_owned(),
                count => format!("There are {count} workspaces below this folder."),
            };
            next(&head, &commands)
        }
        Found::Series => next(
            "This folder has a series, and no bench-config/ to make it a workspace.",
            &[
                ("perfquilt init", "add one (for MariaDB;"),
                server,
                ("perfquilt status", "how each patch applies"),
            ],
        ),
        Found::SeriesIn(folder) => next(
            &format!("This folder has a series in {folder}, and is not a workspace."),
            &[
                new,
                server,
                (
                    &format!("perfquilt -C DIR import {folder}"),
                    "import the series",
                ),
            ],
        ),
        Found::Repository => next(
            "There is no workspace in this repository or above it.",
            &[
                new,
                server,
                (
                    "perfquilt -C DIR import . RELEASE..BRANCH",
                    "import its commits as patches",
                ),
            ],
        ),
        Found::Nothing => next(
            "There is no workspace in this folder or above it.",
            &[
                new,
                server,
                ("perfquilt -C DIR status", "use one that is elsewhere"),
            ],
        ),
    };
    text + "\n`perfquilt help` lists all commands.\n"
}

/// Shows the status of the workspace or, where there is none, how to get one.
pub fn run(context: &Context) -> Result<ExitCode> {
    if context.workspace_if_any()?.is_some() {
        return status::run(context, &Status::default()).map(|()| ExitCode::SUCCESS);
    }
    if context.output.json() {
        return Err(
            Error::no_workspace("no command is given, and there is no workspace here")
                .hint("`perfquilt help` lists all commands"),
        );
    }
    let here = std::env::current_dir().unwrap_or_default();
    context.output.print(&plain_lines(&text(&look(&here))))?;
    // A script that forgot the command should not go on.
    Ok(ExitCode::from(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_fits_the_folder_and_the_terminal() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path();
        let create = |file: &str| {
            let file = here.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        };
        assert_eq!(look(here), Found::Nothing);
        create(".git/HEAD");
        assert_eq!(look(here), Found::Repository);
        create("debian/patches/series");
        assert_eq!(look(here), Found::SeriesIn("debian/patches"));
        create("patches/a.patch");
        create("series");
        assert_eq!(look(here), Found::Series);
        for name in ["b", "a", "it's", "d"] {
            create(&format!("{name}/{CONFIG_FILE}"));
        }
        let found = look(here);
        let Found::Workspaces(names) = &found else {
            panic!("{found:?}")
        };
        assert_eq!(names.len(), 4);
        let every = [
            Found::Nothing,
            Found::Repository,
            Found::SeriesIn("debian/patches"),
            Found::Series,
            found,
        ];
        for found in &every {
            let text = text(found);
            assert!(text.contains(" Next:\n  perfquilt "), "{text}");
            assert!(
                text.lines().all(|line| line.chars().count() <= 80),
                "{text}"
            );
        }
    }
}
