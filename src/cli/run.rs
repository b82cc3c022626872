//! `perfquilt run`: the main job.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::bench::{Measuring, with_recipe};
use super::form::Form;
use super::report;
use perfquilt_config::Preset;
use perfquilt_config::workspace::Workspace;
use perfquilt_machine::sandbox::{self, End, Sandbox};
use perfquilt_measure::run::run as run_job;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::failure::Failure;
use perfquilt_patches::series::Location;
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
  perfquilt run --effects alone,without  also each patch by itself, and the series without it
  perfquilt run --sandbox                patches that you have not read
  perfquilt run --json > attribution.json

Everything finished is kept: an interrupted run goes on where it stopped, and a run with nothing new
to do only reports.")]
pub struct Arguments {
    #[command(flatten)]
    measuring: Measuring,
    /// Another recipe than the preset's
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    /// Write what it came to into this folder, for `perfquilt post`: raw observations and what failed
    #[arg(long, value_name = "FOLDER")]
    outcome: Option<PathBuf>,
    /// The commit that is measured, for the outcome (default: the workspace's)
    #[arg(long, value_name = "COMMIT", requires = "outcome")]
    head: Option<String>,
    /// Build and measure where patches reach neither network, home nor secrets (needs bubblewrap)
    #[arg(long, conflicts_with_all = ["output", "flame_graph"])]
    sandbox: bool,
    #[command(flatten)]
    form: Form,
}

/// Runs `perfquilt run`.
///
/// # Errors
/// Those of [`perfquilt_measure::run::run`]; after the report, the error of the first point that failed; what
/// `--fail-on` asks for.
pub fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode> {
    let folder = arguments.outcome.as_deref();
    folder.map_or(Ok(()), usable)?;
    let mut commit = String::new();
    let settled = settle(context, arguments, &mut commit);
    let told = folder.map(|folder| (folder, commit.as_str()));
    let (ws, preset) = match settled {
        Ok(settled) => settled,
        Err(error) => {
            let told = tell(told, &error);
            return context.output.told(Err(error), told);
        }
    };
    match (arguments.sandbox, told) {
        (true, Some((folder, head))) => apart_and_told(context, &ws, arguments, folder, head),
        (true, None) => apart(context, &ws, arguments, None),
        (false, told) => here(context, &ws, arguments, &preset, told).map(|()| ExitCode::SUCCESS),
    }
}

/// Makes the folder of an outcome, and refuses one that nothing can be written to before anything is done for it.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when it cannot be made or written to.
pub(super) fn usable(folder: &Path) -> Result<()> {
    let refused = |error: std::io::Error| {
        Error::usage(format!(
            "cannot write to the folder {}: {error}",
            folder.display()
        ))
        .hint("`--outcome` names a folder, which is made if need be")
    };
    std::fs::create_dir_all(folder).map_err(refused)?;
    tempfile::tempfile_in(folder).map(drop).map_err(refused)
}

/// What is asked for; `commit` becomes the one of an outcome as soon as it is known.
fn settle(
    context: &Context,
    arguments: &Arguments,
    commit: &mut String,
) -> Result<(Workspace, Preset)> {
    let given = arguments.head.as_deref();
    let ws = context.workspace();
    *commit = match &ws {
        Ok(ws) if arguments.outcome.is_some() => head(ws, given)?,
        _ => given
            .map(perfquilt_forge::commit)
            .transpose()?
            .unwrap_or_default(),
    };
    let ws = ws?;
    arguments.form.check(context)?;
    let preset = arguments.measuring.preset(&ws)?;
    let preset = with_recipe(&ws, preset, arguments.recipe.as_deref())?;
    Ok((ws, preset))
}

/// Writes that `error` is all there is to the outcome, where one is asked for: that of a run before is not this
/// one's.
fn tell(told: Option<(&Path, &str)>, error: &Error) -> Result<()> {
    match told {
        Some((folder, head)) => outcome::write(folder, head, vec![Failure::new(error, None)], None),
        None => Ok(()),
    }
}

/// The commit whose outcome is written: the one that is `given`, else the workspace's; empty when unknown.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when what is given is no commit.
pub(super) fn head(ws: &Workspace, given: Option<&str>) -> Result<String> {
    match given {
        Some(given) => perfquilt_forge::commit(given),
        None => Ok(outcome::head(ws)),
    }
}

/// As [`apart`]; what it came to is taken over into `folder`, as that of the commit `head`.
fn apart_and_told(
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
    let done = apart(context, ws, arguments, Some(made.path()));
    let failed = |error: &Error| {
        let failures = vec![Failure::new(error, None)];
        outcome::write(folder, head, failures, None)
    };
    let told = match &done {
        // What ran inside does not know of which commit the series is.
        Ok(_) => {
            let margin = |meter| ws.config.margin(meter);
            let silent = !made.path().join(outcome::OUTCOME_FILE).exists();
            outcome::take(made.path(), folder, head, false, &margin).or_else(|error| {
                failed(&if silent {
                    Error::internal("the run ended without saying what it came to")
                        .hint("its log says more")
                } else {
                    error
                })
            })
        }
        // Nor why it was ended.
        Err(error) => failed(error),
    };
    context.output.told(done, told)
}

/// Fetches the release, and runs the same command in a sandbox without the network; its outcome goes to
/// `outcome`, a folder of the workspace's state.
fn apart(
    context: &Context,
    ws: &Workspace,
    arguments: &Arguments,
    outcome: Option<&Path>,
) -> Result<ExitCode> {
    sandbox::works().map_err(|why| {
        Error::usage(format!("there is no sandbox: {why}"))
            .hint("`perfquilt doctor` says what is missing")
    })?;
    let release = arguments.measuring.release.as_deref();
    upstream::ensure(ws, release, context.output.progress())?;
    let root = ws.root();
    let mut sandbox = quilted(Sandbox::new(&ws.config.sandbox), ws, release)?;
    for folder in [&ws.state(), ws.cache()] {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("make", folder, &e))?;
        sandbox = sandbox.write(folder);
    }
    sandbox = sandbox.env("XDG_CACHE_HOME", ws.cache().parent().unwrap_or(root));
    let here = std::env::current_dir().map_err(|e| Error::io("find", Path::new("."), &e))?;
    let tool = std::env::current_exe()
        .map_err(|error| Error::internal(format!("cannot find this program: {error}")))?;
    let words = inside(std::env::args_os().skip(1), outcome);
    let mut inside = sandbox.start(&tool, &words, &here, (Sink::Inherit, Sink::Inherit))?;
    let status = match sandbox::watch(&mut inside, &|| false)? {
        End::Itself(status) | End::Interrupted(status) => status,
        End::Limited(what) => {
            return Err(Error::bench(format!("the sandbox was ended: {what}"))
                .hint("[sandbox] of the configuration sets its limits"));
        }
        End::Unwanted => return Err(Error::interrupted()),
    };
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map(ExitCode::from)
        .ok_or_else(|| match status.signal() {
            Some(signal) => Error::internal(format!("the sandbox was ended by signal {signal}")),
            None => Error::internal("the sandbox ended unexpectedly"),
        })
}

/// The words of a command line for the same in a sandbox, whose outcome goes to another folder.
fn inside(words: impl Iterator<Item = OsString>, outcome: Option<&Path>) -> Vec<OsString> {
    let mut words = words.filter(|word| word != "--sandbox");
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let apart = word == "--outcome";
        let joined = word.to_string_lossy().starts_with("--outcome=");
        match outcome {
            Some(folder) if apart || joined => {
                if apart {
                    words.next();
                }
                found.extend(["--outcome".into(), folder.into()]);
            }
            _ => found.push(word),
        }
    }
    found
}

/// The series of `release` can be read in the sandbox, wherever the configuration or quilt says that it is, and
/// what says so.
fn quilted(sandbox: Sandbox, ws: &Workspace, release: Option<&str>) -> Result<Sandbox> {
    let series = Location::of(ws, release)?;
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

/// Runs it without a sandbox; `told` is the folder of its outcome and the commit that is measured.
fn here(
    context: &Context,
    ws: &Workspace,
    arguments: &Arguments,
    preset: &Preset,
    told: Option<(&Path, &str)>,
) -> Result<()> {
    let measuring = &arguments.measuring;
    let release = measuring.release.as_deref();
    let progress = context.output.progress();
    let outcome = match run_job(ws, preset, release, &measuring.wanted(), progress) {
        Ok(outcome) => outcome,
        Err(error) => {
            let told = tell(told, &error);
            return context.output.told(Err(error), told);
        }
    };
    let store = Store::open_existing(&ws.results())?;
    let told = match told {
        Some((folder, head)) => {
            let experiment = Some((&store, outcome.experiment));
            outcome::write(folder, head, outcome.failures(), experiment)
        }
        None => Ok(()),
    };
    if let Some(error) = outcome.stopped {
        return context.output.told(Err(error), told);
    }
    let judged = report::stored(context, &arguments.form, ws, &store, outcome.experiment);
    // Those of points that could not be built stand last: their exit code is the run's.
    let points = outcome.failed.into_iter().chain(outcome.build_errors);
    let errors = judged
        .err()
        .into_iter()
        .chain(points.map(|(_, error)| error));
    let done = context.output.errors(errors.collect());
    context.output.told(done, told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_command_runs_inside() {
        let words = |line: &str, outcome: Option<&str>| {
            let words = line.split(' ').map(OsString::from);
            let found = inside(words, outcome.map(Path::new));
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
