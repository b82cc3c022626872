//! `perfquilt run`: the main job.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::Context;
use super::bench::Measuring;
use super::form::Form;
use super::report;
use crate::error::{Error, Kind, Result};
use crate::outcome::{self, Failure};
use crate::process::Sink;
use crate::run::run as run_job;
use crate::sandbox::Sandbox;
use crate::store::Store;
use crate::upstream;
use crate::workspace::Workspace;

/// How long what runs in a sandbox may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(60);
/// How often a sandbox's limits are looked at.
const GLANCE: Duration = Duration::from_millis(250);

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
    /// Build and measure where patches reach neither network, home nor secrets (needs bubblewrap)
    #[arg(long)]
    sandbox: bool,
    #[command(flatten)]
    form: Form,
}

/// Runs `perfquilt run`.
///
/// # Errors
/// Those of [`crate::run::run`]; after the report, the error of the first point that failed; what
/// `--fail-on` asks for.
pub fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode> {
    let ws = context.workspace()?;
    match arguments.sandbox {
        true => apart(context, &ws, arguments),
        false => here(context, &ws, arguments).map(|()| ExitCode::SUCCESS),
    }
}

/// Fetches the release, and runs the same command in a sandbox without the network.
fn apart(context: &Context, ws: &Workspace, arguments: &Arguments) -> Result<ExitCode> {
    crate::sandbox::works().map_err(|why| {
        Error::usage(format!("there is no sandbox: {why}"))
            .hint("`perfquilt doctor` says what is missing")
    })?;
    let release = arguments.measuring.release.as_deref();
    upstream::ensure(ws, release, context.output.progress())?;
    let files = ws.config.series_of(release)?;
    let root = ws.root();
    let mut sandbox = Sandbox::new(&ws.config.sandbox)
        .read(&ws.bench_config())
        .read(&root.join(files.file))
        .read(&root.join(files.patches));
    for folder in [&ws.state(), ws.cache()] {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("make", folder, &e))?;
        sandbox = sandbox.write(folder);
    }
    sandbox = sandbox.env("XDG_CACHE_HOME", ws.cache().parent().unwrap_or(root));
    if let Some(folder) = &arguments.outcome {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("make", folder, &e))?;
        let folder = std::path::absolute(folder).map_err(|e| Error::io("find", folder, &e))?;
        sandbox = sandbox.write(&folder);
    }
    let here = std::env::current_dir().map_err(|e| Error::io("find", Path::new("."), &e))?;
    let tool = std::env::current_exe()
        .map_err(|error| Error::internal(format!("cannot find this program: {error}")))?;
    let words: Vec<OsString> = std::env::args_os()
        .skip(1)
        .filter(|word| word != "--sandbox")
        .collect();
    let mut inside = sandbox.start(&tool, &words, &here, (Sink::Inherit, Sink::Inherit))?;
    let status = loop {
        match inside.wait_within(GLANCE) {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) if error.kind() == Kind::Interrupted => break inside.stop(GRACE)?,
            Err(error) => return Err(error),
        }
        if let Some(what) = inside.keep_limits()? {
            return Err(Error::bench(format!("the sandbox was ended: {what}"))
                .hint("[sandbox] of the configuration sets its limits"));
        }
    };
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map(ExitCode::from)
        .ok_or_else(|| match status.signal() {
            Some(signal) => Error::internal(format!("the sandbox was ended by signal {signal}")),
            None => Error::internal("the sandbox ended unexpectedly"),
        })
}

fn here(context: &Context, ws: &Workspace, arguments: &Arguments) -> Result<()> {
    let mut preset = arguments.measuring.preset(ws)?;
    if let Some(recipe) = &arguments.recipe {
        ws.config.recipe(recipe)?;
        preset.recipe.clone_from(recipe);
    }
    let measuring = &arguments.measuring;
    let release = measuring.release.as_deref();
    let progress = context.output.progress();
    let told = arguments.outcome.as_deref();
    let outcome = match run_job(ws, &preset, release, &measuring.wanted(), progress) {
        Ok(outcome) => outcome,
        Err(error) => {
            if let Some(folder) = told {
                outcome::write(folder, ws, &[Failure::new(&error, None)], None)?;
            }
            return Err(error);
        }
    };
    let store = Store::open_existing(&ws.results())?;
    if let Some(folder) = told {
        let failures = outcome::failures(&outcome);
        outcome::write(folder, ws, &failures, Some((&store, outcome.experiment)))?;
    }
    if let Some(error) = outcome.stopped {
        return Err(error);
    }
    let judged = report::stored(context, &arguments.form, ws, &store, outcome.experiment);
    let mut errors = outcome.build_errors;
    if errors.is_empty() {
        errors.extend(outcome.failed);
    }
    let Some((_, last)) = errors.pop() else {
        return judged;
    };
    for (_, error) in &errors {
        context.output.error(error);
    }
    Err(last)
}
