//! `perfquilt rebase`: move the series to another release and report on every patch.

use std::path::PathBuf;

use clap::Args;

use super::Context;
use super::form::{TextForm, TextFormat};
use super::output::{counted, plain_lines, shown};
use perfquilt_config::CONFIG_FILE;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_patches::rebase::resolve::{self, Opened};
use perfquilt_patches::rebase::{self, Report, Request, Written};
use perfquilt_system::process::quoted;

/// Arguments of `perfquilt rebase`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt rebase 11.8.6               how each patch fits
  perfquilt rebase 11.8.6 --write       and the moved series as a branch
  perfquilt rebase 11.8.6 --continue    after a conflict was resolved and committed")]
pub struct Arguments {
    /// The release to move the series to
    release: String,
    /// The release whose series it is (default: the current one)
    #[arg(long, value_name = "RELEASE")]
    from: Option<String>,
    /// Write the moved series as one commit on a new branch of the workspace's git repository
    #[arg(long)]
    write: bool,
    /// With --write: leave patches that need a decision out, as comments in the series
    #[arg(long, requires = "write")]
    hold: bool,
    /// With --write: the folder of a series of the new release's own, beside the old one
    #[arg(long, value_name = "FOLDER", requires = "write")]
    into: Option<PathBuf>,
    /// With --write: the new branch (default: rebase/RELEASE)
    #[arg(long, value_name = "NAME", requires = "write")]
    branch: Option<String>,
    /// With --write: write to a new folder instead of a branch
    #[arg(
        long,
        value_name = "DIR",
        requires = "write",
        conflicts_with = "branch"
    )]
    output: Option<PathBuf>,
    /// Open a patch's conflict in a git worktree
    #[arg(long, value_name = "PATCH", conflicts_with_all = ["write", "continue_", "abort"])]
    resolve: Option<String>,
    /// Take what was committed in the open worktree, remember it, and go on
    #[arg(long = "continue", conflicts_with_all = ["write", "abort"])]
    continue_: bool,
    /// Close the open worktree without a result
    #[arg(long, conflicts_with = "write")]
    abort: bool,
    #[command(flatten)]
    form: TextForm,
}

/// Runs the subcommand.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) while there is something to decide; as
/// [`rebase::rebase`].
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let format = arguments.form.format(context)?;
    let ws = context.workspace()?;
    let progress = context.output.progress();
    let request = Request {
        to: arguments.release.clone(),
        from: arguments.from.clone(),
    };
    if arguments.abort {
        let name = resolve::abort(&ws, &request.to)?;
        if context.output.json() {
            let document = serde_json::json!({ "schema": 1, "left": name });
            return context.output.print_json(&document);
        }
        progress.note(&format!("{name} is left as it was"));
        return Ok(());
    }
    if arguments.continue_ {
        // What is decided goes on to a report, which needs both.
        ws.config.release(Some(&request.to))?;
        ws.config.release(request.from.as_deref())?;
        let name = resolve::take(&ws, &request.to)?;
        progress.note(&format!("{name}: what was decided is remembered"));
    }
    let mut rebased = rebase::rebase(&ws, &request, progress)?;
    if let Some(which) = &arguments.resolve {
        let open = resolve::open(&ws, &rebased, which, progress)?;
        return show_open(context, &rebased.report, &request, &open);
    }
    perfquilt_results::worth::add_effects(&ws, &mut rebased.report)?;
    if arguments.write {
        let options = rebase::write::Options {
            hold: arguments.hold,
            into: arguments.into.clone(),
            branch: arguments.branch.clone(),
            output: arguments.output.clone(),
        };
        let written = rebase::write::write(&ws, &rebased, &options)?;
        rebased.report.next = after_writing(&ws, &rebased.report, &written);
        rebased.report.written = Some(written);
        return show(context, format, &rebased.report);
    }
    show(context, format, &rebased.report)?;
    undecided(&rebased.report)
}

/// The commands that go on after a branch or a folder was written.
fn after_writing(ws: &Workspace, report: &Report, written: &Written) -> Vec<String> {
    let Some(branch) = &written.branch else {
        return Vec::new();
    };
    // A series of the release's own leaves the current release as it is.
    let moved = written.files.iter().any(|file| file == CONFIG_FILE)
        && ws
            .config
            .release(Some(&report.version))
            .is_ok_and(|r| r.patches.is_none())
        && !written
            .files
            .iter()
            .any(|file| file.ends_with("/series") && file != &report.series);
    let release = if moved {
        String::new()
    } else {
        format!(" --release {}", report.version)
    };
    vec![
        format!("git switch {}", quoted(branch)),
        format!("perfquilt run{release}"),
    ]
}

fn show_open(context: &Context, report: &Report, request: &Request, open: &Opened) -> Result<()> {
    if context.output.json() {
        return context.output.print_json(&serde_json::json!({
            "schema": 1,
            "patch": open.patch,
            "release": report.to,
            "directory": shown(&open.directory),
            "files": open.files,
        }));
    }
    let dir = open.directory.display();
    let mut text = format!("{} on {}, in {dir}\n", open.patch, report.to);
    for file in &open.files {
        text.push_str(&format!("  {file}\n"));
    }
    let command = rebase::command(report, request);
    let folder = quoted(&dir.to_string());
    text.push_str(&format!(
        "\nnext: cd {folder}\n      git mergetool, or an editor\n      git add -A && git cherry-pick --continue\n      {command} --continue\n"
    ));
    context.output.print(&plain_lines(&text))
}

fn show(context: &Context, format: TextFormat, report: &Report) -> Result<()> {
    let output = &context.output;
    match format {
        TextFormat::Terminal => output.print(&perfquilt_report::rebase::terminal(
            report,
            output.width(),
            output.color(),
        )),
        TextFormat::Markdown => output.print(&perfquilt_report::rebase::markdown(report)),
        TextFormat::Json => output.print_json(report),
    }
}

/// The error that stands for open decisions.
fn undecided(report: &Report) -> Result<()> {
    if report.ready {
        return Ok(());
    }
    let error = Error::series(format!(
        "{} to make, {} untested",
        counted(report.decisions, "decision", "decisions"),
        report.untested()
    ));
    Err(match report.next.first() {
        Some(command) => error.hint(format!("`{command}` opens the first")),
        None => error,
    })
}
