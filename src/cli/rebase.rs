//! `perfquilt rebase`: moves the series to another release and reports how each patch fits.

use std::path::PathBuf;

use clap::Args;

use super::Context;
use super::measuring::{FreshOption, chosen_recipe};
use super::output::shown;
use super::pager::PagerStart;
use super::plain::plain_lines;
use super::report_options::{TextFormat, TextReportOptions};
use perfquilt_config::CONFIG_FILE;
use perfquilt_config::workspace::Workspace;
use perfquilt_measure::run::build_rebased;
use perfquilt_model::counted::counted;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_model::rebase::{BuildResult, PatchReport, TestResult};
use perfquilt_rebase::resolve::{self, OpenConflict};
use perfquilt_rebase::{RebaseRequest, Report, WriteOptions, Written};
use perfquilt_system::process::quoted;

/// Arguments of `perfquilt rebase`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt rebase 11.8.6               how each patch fits
  perfquilt rebase 11.8.6 --conflicts   with the lines of each conflict
  perfquilt rebase 11.8.6 --build       and whether each point builds
  perfquilt rebase 11.8.6 --test        and whether its tests pass there
  perfquilt rebase 11.8.6 --write       and the moved series as a branch
  perfquilt rebase 11.8.6 --continue    once a resolution is committed")]
pub struct Arguments {
    /// Release to move the series to
    release: String,
    /// Release to move the series from (default: the current one)
    #[arg(long, value_name = "RELEASE")]
    from: Option<String>,
    /// Write the moved series as one commit on a new branch of the workspace's git repository
    #[arg(long)]
    write: bool,
    /// With --write: leave out patches that need a decision, as comments in the series
    #[arg(long, requires = "write")]
    hold: bool,
    /// With --write: folder for a separate series of the new release, beside the old one
    #[arg(long, value_name = "FOLDER", requires = "write")]
    into: Option<PathBuf>,
    /// With --write: name of the new branch (default: rebase/NAME-RELEASE, such as rebase/mariadb-11.8.6)
    #[arg(long, value_name = "NAME", requires = "write")]
    branch: Option<String>,
    /// With --write: new folder to write to instead of a branch
    #[arg(
        long,
        value_name = "DIR",
        requires = "write",
        conflicts_with = "branch"
    )]
    output: Option<PathBuf>,
    /// Build the new release, then each patch that applies, on top of the previous ones
    #[arg(long, conflicts_with_all = ["resolve", "abort"])]
    build: bool,
    /// Run the server's own tests on the new release, and at each point that builds
    #[arg(long, conflicts_with_all = ["resolve", "abort"])]
    test: bool,
    /// With --build or --test: recipe to build with (default: that of the preset quick)
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    /// Show the lines of every conflict and of every patch that changed
    #[arg(long)]
    conflicts: bool,
    /// Patch whose conflict to open in a git worktree
    #[arg(long, value_name = "PATCH", conflicts_with_all = ["write", "continue_", "abort"])]
    resolve: Option<String>,
    /// Record the resolution committed in the open worktree, and continue
    #[arg(long = "continue", conflicts_with_all = ["write", "abort"])]
    continue_: bool,
    /// Close the open worktree without a resolution
    #[arg(long, conflicts_with = "write")]
    abort: bool,
    #[command(flatten)]
    fresh: FreshOption,
    #[command(flatten)]
    report: TextReportOptions,
}

/// Runs the subcommand.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) while there are open decisions; those of
/// [`perfquilt_rebase::rebase`].
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let format = arguments.report.format(context)?;
    let ws = arguments.fresh.workspace(context)?;
    let request = RebaseRequest {
        to: arguments.release.clone(),
        from: arguments.from.clone(),
    };
    if arguments.abort {
        let name = resolve::abort(&ws, &request.to)?;
        if context.output.json() {
            let document = serde_json::json!({ "schema": 1, "left": name });
            return context.output.print_json(&document);
        }
        progress::note(&format!("{name} stays unresolved"));
        return Ok(());
    }
    if arguments.continue_ {
        // Both releases are checked before the resolution is recorded, as the report needs them.
        ws.config.release(Some(&request.to))?;
        ws.config.release(request.from.as_deref())?;
        let name = resolve::take(&ws, &request.to)?;
        progress::note(&format!("{name}: recorded the resolution"));
    }
    let mut rebased = perfquilt_rebase::rebase(&ws, &request)?;
    if let Some(which) = &arguments.resolve {
        let open = resolve::open(&ws, &rebased, which)?;
        return show_open(context, &rebased.report, &request, &open);
    }
    perfquilt_results::effects::add_effects(&ws, &mut rebased.report)?;
    if arguments.recipe.is_some() && !arguments.build && !arguments.test {
        return Err(Error::arguments("`--recipe` needs `--build` or `--test`"));
    }
    if arguments.build || arguments.test {
        let recipe = chosen_recipe(&ws, arguments.recipe.as_deref())?;
        build_rebased(&ws, &mut rebased, recipe, arguments.test)?;
    }
    if arguments.write {
        let options = WriteOptions {
            hold: arguments.hold,
            into: arguments.into.clone(),
            branch: arguments.branch.clone(),
            output: arguments.output.clone(),
        };
        let written = perfquilt_rebase::write::write(&ws, &rebased, &options)?;
        rebased.report.next = after_writing(&ws, &rebased.report, &written);
        rebased.report.written = Some(written);
        show(context, arguments, format, &rebased.report)?;
        require_builds(&rebased.report)?;
        return require_tests(&rebased.report);
    }
    show(context, arguments, format, &rebased.report)?;
    require_decisions(&rebased.report)?;
    require_builds(&rebased.report)?;
    require_tests(&rebased.report)
}

/// Returns the next commands after a branch or a folder was written.
fn after_writing(ws: &Workspace, report: &Report, written: &Written) -> Vec<String> {
    let Some(branch) = &written.branch else {
        return Vec::new();
    };
    // A separate series of the new release leaves the current release unchanged.
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

fn show_open(
    context: &Context,
    report: &Report,
    request: &RebaseRequest,
    open: &OpenConflict,
) -> Result<()> {
    let json = serde_json::json!({
        "schema": 1,
        "patch": open.patch,
        "release": report.to,
        "directory": shown(&open.directory),
        "files": open.files,
    });
    let dir = open.directory.display();
    let mut text = format!("{} on {}, in {dir}\n", open.patch, report.to);
    for file in &open.files {
        text.push_str(&format!("  {file}\n"));
    }
    let command = perfquilt_rebase::command(report, request);
    let folder = quoted(&dir.to_string());
    text.push_str(&format!(
        "\nnext: cd {folder}\n      git mergetool, or an editor\n      git add -A && git cherry-pick --continue\n      {command} --continue\n"
    ));
    context.output.result(&json, || plain_lines(&text))
}

fn show(
    context: &Context,
    arguments: &Arguments,
    format: TextFormat,
    report: &Report,
) -> Result<()> {
    let output = &context.output;
    let document = || perfquilt_report::rebase::document(report, arguments.conflicts);
    match format {
        TextFormat::Terminal => {
            let text = document().terminal(output.width(), output.color());
            output.page(&text, PagerStart::Top)
        }
        TextFormat::Markdown => output.print(&document().markdown()),
        TextFormat::Json => output.print_json(report),
    }
}

/// Returns an error if a patch that goes in does not build.
fn require_builds(report: &Report) -> Result<()> {
    let failed = |patch: &&PatchReport| matches!(patch.build, Some(BuildResult::Failed(_)));
    match report.patches.iter().filter(failed).count() {
        0 => Ok(()),
        count => Err(Error::build_failed(format!(
            "{} not build on {}",
            counted(count, "patch does", "patches do"),
            report.to
        ))),
    }
}

/// Returns an error if the tests of a patch that goes in newly fail, or could not run.
fn require_tests(report: &Report) -> Result<()> {
    let mut failing = 0;
    let mut lacking = 0;
    for patch in &report.patches {
        match &patch.tests {
            Some(TestResult::Ran(tests)) if !tests.new.is_empty() => failing += 1,
            Some(TestResult::Failed(_)) => lacking += 1,
            _ => {}
        }
    }
    match (failing, lacking) {
        (0, 0) => Ok(()),
        (0, lacking) => Err(Error::test_suite(format!(
            "the tests of {} could not run on {}",
            counted(lacking, "patch", "patches"),
            report.to
        ))),
        (failing, _) => Err(Error::test_regression(format!(
            "{} tests fail on {}",
            counted(failing, "patch makes", "patches make"),
            report.to
        ))),
    }
}

/// Returns an error if decisions are open.
fn require_decisions(report: &Report) -> Result<()> {
    if report.ready {
        return Ok(());
    }
    let error = Error::rebase_decision(format!(
        "{} to make, {} untested",
        counted(report.decisions, "decision", "decisions"),
        report.untested()
    ));
    Err(error.hint_if(perfquilt_rebase::decision_hint(report)))
}
