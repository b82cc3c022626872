//! `perfquilt run`: builds every point, measures, and reports.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::bench::{MeasuringOptions, with_recipe};
use super::report;
use super::report_options::ReportOptions;
use perfquilt_config::Preset;
use perfquilt_config::workspace::Workspace;
use perfquilt_machine::sandbox::{self, ProcessEnd, Sandbox};
use perfquilt_measure::run::run as run_job;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::failure::Failure;
use perfquilt_patches::series::SeriesLocation;
use perfquilt_patches::upstream;
use perfquilt_results::outcome;
use perfquilt_store::Store;
use perfquilt_system::process::Sink;

/// Arguments of `perfquilt run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt run                          the whole series, preset quick
  perfquilt run --point 0 --point 2      two points only
  perfquilt run --workload oltp_read_only --blocks 24
  perfquilt run --effects alone,without  also each patch alone, and the series without it
  perfquilt run --sandbox                for patches that you have not reviewed
  perfquilt run --json > attribution.json

Finished work is kept: an interrupted run continues where it stopped, and a run with nothing new to do
only reports.")]
pub struct Arguments {
    #[command(flatten)]
    measuring: MeasuringOptions,
    /// Recipe instead of the preset's
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    /// Folder to write the outcome to, for `perfquilt post`: raw observations and failures
    #[arg(long, value_name = "FOLDER")]
    outcome: Option<PathBuf>,
    /// Commit to record in the outcome (default: the workspace's)
    #[arg(long, value_name = "COMMIT", requires = "outcome")]
    head: Option<String>,
    /// Build and measure without access to network, home and secrets (needs bubblewrap)
    #[arg(long, conflicts_with_all = ["output", "flame_graph"])]
    sandbox: bool,
    #[command(flatten)]
    report: ReportOptions,
}

/// Runs `perfquilt run`.
///
/// # Errors
/// Those of [`perfquilt_measure::run::run`]; after the report, the error of the last point that failed; those
/// requested by `--fail-on`.
pub fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode> {
    let folder = arguments.outcome.as_deref();
    folder.map_or(Ok(()), create_outcome_folder)?;
    let mut commit = String::new();
    let opened = open_workspace(context, arguments, &mut commit);
    let target = folder.map(|folder| (folder, commit.as_str()));
    let (ws, preset) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let written = write_failure(target, &error);
            return context.output.combine(Err(error), written);
        }
    };
    match (arguments.sandbox, target) {
        (true, Some((folder, head))) => {
            run_sandboxed_for_outcome(context, &ws, arguments, folder, head)
        }
        (true, None) => run_sandboxed(context, &ws, arguments, None),
        (false, target) => {
            run_directly(context, &ws, arguments, &preset, target).map(|()| ExitCode::SUCCESS)
        }
    }
}

/// Creates the folder of an outcome, and checks that it can be written before any work is done for it.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when it cannot be created or written to.
pub(super) fn create_outcome_folder(folder: &Path) -> Result<()> {
    let refused = |error: std::io::Error| {
        Error::usage(format!(
            "cannot write to the folder {}: {error}",
            folder.display()
        ))
        .hint("`--outcome` names a folder, which is created if necessary")
    };
    std::fs::create_dir_all(folder).map_err(refused)?;
    tempfile::tempfile_in(folder).map(drop).map_err(refused)
}

/// Opens the workspace and returns it with the requested preset; sets `commit` to that of the outcome as soon as it
/// is known.
fn open_workspace(
    context: &Context,
    arguments: &Arguments,
    commit: &mut String,
) -> Result<(Workspace, Preset)> {
    let given = arguments.head.as_deref();
    let ws = context.workspace();
    *commit = match &ws {
        Ok(ws) if arguments.outcome.is_some() => outcome_commit(ws, given)?,
        _ => given
            .map(perfquilt_forge::parse_commit)
            .transpose()?
            .unwrap_or_default(),
    };
    let ws = ws?;
    arguments.report.check(context)?;
    let preset = arguments.measuring.preset(&ws)?;
    let preset = with_recipe(&ws, preset, arguments.recipe.as_deref())?;
    Ok((ws, preset))
}

/// Writes an outcome with nothing but `error`, if an outcome is requested. It replaces that of an earlier run.
fn write_failure(target: Option<(&Path, &str)>, error: &Error) -> Result<()> {
    match target {
        Some((folder, head)) => outcome::write(folder, head, vec![Failure::new(error, None)], None),
        None => Ok(()),
    }
}

/// Returns the commit to record in the outcome: the one that is `given`, else the workspace's; empty when unknown.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when `given` is no commit id.
pub(super) fn outcome_commit(ws: &Workspace, given: Option<&str>) -> Result<String> {
    match given {
        Some(given) => perfquilt_forge::parse_commit(given),
        None => Ok(outcome::head(ws)),
    }
}

/// Runs [`run_sandboxed`] and copies its outcome to `folder`, as that of the commit `head`.
fn run_sandboxed_for_outcome(
    context: &Context,
    ws: &Workspace,
    arguments: &Arguments,
    folder: &Path,
    head: &str,
) -> Result<ExitCode> {
    let state = ws.state();
    std::fs::create_dir_all(&state).map_err(|e| Error::io("make", &state, &e))?;
    let made = tempfile::Builder::new()
        .prefix("outcome-")
        .tempdir_in(&state)
        .map_err(|e| Error::io("make a folder in", &state, &e))?;
    let done = run_sandboxed(context, ws, arguments, Some(made.path()));
    let failed = |error: &Error| {
        let failures = vec![Failure::new(error, None)];
        outcome::write(folder, head, failures, None)
    };
    let written = match &done {
        // The run in the sandbox does not know the commit of the series.
        Ok(_) => {
            let margin = |meter| ws.config.margin(meter);
            let silent = !made.path().join(outcome::OUTCOME_FILE).exists();
            outcome::take(made.path(), folder, head, false, &margin).or_else(|error| {
                failed(&if silent {
                    Error::internal("the run ended without writing its outcome").hint("see its log")
                } else {
                    error
                })
            })
        }
        // It does not know either why it was ended.
        Err(error) => failed(error),
    };
    context.output.combine(done, written)
}

/// Fetches the release, and runs the same command in a sandbox without network; it writes its outcome to `outcome`, a
/// folder of the workspace's state.
fn run_sandboxed(
    context: &Context,
    ws: &Workspace,
    arguments: &Arguments,
    outcome: Option<&Path>,
) -> Result<ExitCode> {
    sandbox::check_support().map_err(|why| {
        Error::usage(format!("there is no sandbox: {why}"))
            .hint("`perfquilt doctor` lists what is missing")
    })?;
    let release = arguments.measuring.release.as_deref();
    upstream::ensure(ws, release, context.output.progress())?;
    let root = ws.root();
    let mut sandbox = allow_series(Sandbox::new(&ws.config.sandbox), ws, release)?;
    for folder in [&ws.state(), ws.cache()] {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("make", folder, &e))?;
        sandbox = sandbox.write(folder);
    }
    sandbox = sandbox.env("XDG_CACHE_HOME", ws.cache().parent().unwrap_or(root));
    let here = std::env::current_dir().map_err(|e| Error::io("find", Path::new("."), &e))?;
    let tool = std::env::current_exe()
        .map_err(|error| Error::internal(format!("cannot find this program: {error}")))?;
    let words = sandboxed_command_line(std::env::args_os().skip(1), outcome);
    let mut inside = sandbox.start(&tool, &words, &here, (Sink::Inherit, Sink::Inherit))?;
    let status = match sandbox::supervise(&mut inside, &|| false)? {
        ProcessEnd::Exited(status) | ProcessEnd::Interrupted(status) => status,
        ProcessEnd::LimitExceeded(what) => {
            return Err(Error::bench(format!("the sandbox was ended: {what}"))
                .hint("[sandbox] of the configuration sets its limits"));
        }
        ProcessEnd::Cancelled => return Err(Error::interrupted()),
    };
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map(ExitCode::from)
        .ok_or_else(|| match status.signal() {
            Some(signal) => Error::internal(format!("the sandbox was ended by signal {signal}")),
            None => Error::internal("the sandbox ended unexpectedly"),
        })
}

/// Returns the command line to run in the sandbox: the same without `--sandbox`, and with another folder for the
/// outcome.
fn sandboxed_command_line(
    words: impl Iterator<Item = OsString>,
    outcome: Option<&Path>,
) -> Vec<OsString> {
    let mut words = words.filter(|word| word != "--sandbox");
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let separate = word == "--outcome";
        let joined = word.to_string_lossy().starts_with("--outcome=");
        match outcome {
            Some(folder) if separate || joined => {
                if separate {
                    words.next();
                }
                found.extend(["--outcome".into(), folder.into()]);
            }
            _ => found.push(word),
        }
    }
    found
}

/// Makes the series of `release` readable in the sandbox, with the files and variables that locate it: those of the
/// configuration and of quilt.
fn allow_series(sandbox: Sandbox, ws: &Workspace, release: Option<&str>) -> Result<Sandbox> {
    let series = SeriesLocation::of(ws, release)?;
    let mut sandbox = sandbox
        .read(&ws.bench_config())
        .read(&series.file)
        .read(&series.folder);
    for name in ["QUILT_PC", "QUILT_PATCHES", "QUILT_SERIES"] {
        if let Some(value) = std::env::var_os(name) {
            sandbox = sandbox.env(name, value);
        }
    }
    let given = std::env::var_os("QUILT_PC").filter(|value| !value.is_empty());
    let noted = ws.root().join(given.unwrap_or_else(|| ".pc".into()));
    Ok(sandbox
        .read(&noted.join(".quilt_patches"))
        .read(&noted.join(".quilt_series")))
}

/// Runs without a sandbox; `target` is the folder of the outcome and the commit to record in it.
fn run_directly(
    context: &Context,
    ws: &Workspace,
    arguments: &Arguments,
    preset: &Preset,
    target: Option<(&Path, &str)>,
) -> Result<()> {
    let measuring = &arguments.measuring;
    let release = measuring.release.as_deref();
    let progress = context.output.progress();
    let outcome = match run_job(ws, preset, release, &measuring.request(), progress) {
        Ok(outcome) => outcome,
        Err(error) => {
            let written = write_failure(target, &error);
            return context.output.combine(Err(error), written);
        }
    };
    let store = Store::open_existing(&ws.results())?;
    let written = match target {
        Some((folder, head)) => {
            let experiment = Some((&store, outcome.experiment));
            outcome::write(folder, head, outcome.failures(), experiment)
        }
        None => Ok(()),
    };
    if let Some(error) = outcome.stopped {
        return context.output.combine(Err(error), written);
    }
    let judged = report::show_stored(context, &arguments.report, ws, &store, outcome.experiment);
    // Build errors come last, so that they determine the exit code.
    let points = outcome.failed.into_iter().chain(outcome.build_errors);
    let errors = judged
        .err()
        .into_iter()
        .chain(points.map(|(_, error)| error));
    let done = context.output.errors(errors.collect());
    context.output.combine(done, written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_command_runs_inside() {
        let words = |line: &str, outcome: Option<&str>| {
            let words = line.split(' ').map(OsString::from);
            let found = sandboxed_command_line(words, outcome.map(Path::new));
            let found: Vec<String> = found
                .into_iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            found.join(" ")
        };
        let line = "-C ws run --sandbox --outcome out --blocks 2";
        let expected = "-C ws run --outcome /kept --blocks 2";
        assert_eq!(words(line, Some("/kept")), expected);
        let line = "run --outcome=out --blocks 2 --sandbox";
        let expected = "run --outcome /kept --blocks 2";
        assert_eq!(words(line, Some("/kept")), expected);
        assert_eq!(words("run --sandbox", None), "run");
    }
}
