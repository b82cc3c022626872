//! `perfquilt bundle`: packs a run, and measures a packed one on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::Context;
use super::output_file::writable;
use super::report::find_experiment;
use super::report_options::DocumentOptions;
use super::run::relayed;
use perfquilt_bundle::{Replay, make, measure};
use perfquilt_config::workspace::cache_dir;
use perfquilt_judge::attribution::{Comparison, Replication, replicate};
use perfquilt_model::counted::counted;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_report::comparison::document;
use perfquilt_store::Store;
use perfquilt_system::digest;
use perfquilt_system::process::quoted;

/// Arguments of `perfquilt bundle`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  perfquilt bundle run.bundle                          the latest experiment
  perfquilt bundle old.bundle mariadb-10.11.18-quick
  perfquilt bundle run run.bundle                      on another machine, which needs no compiler

A bundle has the servers, what relinks them, workloads, series and observations of a run; no credentials, no environment."
)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// File to write
    #[arg(value_name = "FILE", required = true)]
    file: Option<PathBuf>,
    /// Name of the experiment (default: the latest)
    experiment: Option<String>,
    /// Address at which the bundle will be, for the run's reports and comments
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure a bundle's servers here, and say whether its verdicts hold
    Run(RunArguments),
}

/// Arguments of `perfquilt bundle run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt bundle run run.bundle
  perfquilt bundle run run.bundle --sha256 4f2a…       only if it is this file")]
struct RunArguments {
    /// Bundle to measure
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// SHA-256 that the file must have, as its maker told it
    #[arg(long, value_name = "DIGEST")]
    sha256: Option<String>,
    /// Run the bundle's programs as you, with all your rights: for bundles of people whom you trust
    #[arg(long)]
    no_sandbox: bool,
    /// FILE is the folder of an unpacked bundle, and this is the sandbox for it
    #[arg(long, hide = true)]
    in_sandbox: bool,
    #[command(flatten)]
    options: DocumentOptions,
}

/// Runs `perfquilt bundle`.
///
/// # Errors
/// Those of [`make`] and [`Replay::unpack`]; after the report, the verdicts that do not hold or cannot be told.
pub fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode> {
    match (&arguments.command, &arguments.file) {
        (Some(Command::Run(arguments)), _) => replay(context, arguments),
        (None, Some(file)) => pack(context, file, arguments),
        (None, None) => Err(Error::arguments("no file for the bundle is given")),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn pack(context: &Context, file: &Path, arguments: &Arguments) -> Result<()> {
    let ws = context.workspace()?;
    writable(file)?;
    let store = Store::open_existing(&ws.results())?;
    let id = find_experiment(&store, arguments.experiment.as_deref())?;
    let (manifest, sha256) = make(&ws, (&store, id), file)?;
    let of = file.file_name().unwrap_or_default().to_string_lossy();
    let command = commands(&of, &sha256, arguments.url.as_deref());
    store.record_bundle(id, &command)?;
    let bytes = std::fs::metadata(file).map_or(0, |found| found.len());
    let name = file.display().to_string();
    let json = serde_json::json!({
        "schema": 1, "file": name, "sha256": sha256, "bytes": bytes, "experiment": manifest.experiment,
        "run": command, "commit": manifest.commit, "series": manifest.series, "points": manifest.servers.keys().collect::<Vec<_>>(),
    });
    context.output.result(&json, || {
        format!(
            "{name}: {}, {}, {:.1} MB\non another machine:\n{command}\n",
            manifest.experiment,
            counted(manifest.servers.len(), "server", "servers"),
            bytes as f64 / 1e6,
        )
    })
}

/// Returns the commands that get a bundle and measure it.
fn commands(file: &str, sha256: &str, url: Option<&str>) -> String {
    let file = quoted(file);
    let get = url.map_or_else(String::new, |url| {
        format!("curl -fL -o {file} {}\n", quoted(url))
    });
    format!("{get}perfquilt bundle run {file} --sha256 {sha256}")
}

/// Returns the commands for the bundle at an address that ends with its digest.
pub(super) fn commands_for(address: &str) -> Result<String, String> {
    let (url, digest) = address.split_once("#sha256=").unwrap_or_default();
    let file = url.rsplit('/').next().unwrap_or_default();
    if file.is_empty() || digest.len() != 64 || !digest.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err("expected an address, `#sha256=` and 64 digits".to_owned());
    }
    Ok(commands(file, digest, Some(url)))
}

fn replay(context: &Context, arguments: &RunArguments) -> Result<()> {
    let command = "perfquilt bundle run";
    if arguments.in_sandbox {
        return measure(&arguments.file, command);
    }
    let format = arguments.options.format(context)?;
    if let Some(expected) = &arguments.sha256 {
        check_digest(&arguments.file, expected)?;
    }
    let step = progress::begin("checking the bundle", None);
    let bundle = Replay::unpack(&arguments.file, &cache_dir()?)?;
    step.finish("");
    let measured = if arguments.no_sandbox {
        measure(bundle.path(), command)
    } else {
        let words = ["--color=never", "bundle", "run", "--in-sandbox"].map(OsString::from);
        let quiet = context.global.quiet.then(|| OsString::from("--quiet"));
        let folder = OsString::from(bundle.path());
        let words: Vec<OsString> = quiet.into_iter().chain(words).chain([folder]).collect();
        relayed(|relay| bundle.run_sandboxed(&words, relay)).map(drop)
    };
    let (outcome, here) = bundle
        .here()
        .map_err(|error| measured.err().unwrap_or(error))?;
    let failures: Vec<Error> = outcome.failures.into_iter().map(Error::from).collect();
    let Some(here) = here else {
        return context.output.errors(failures);
    };
    let compared = replicate(&bundle.there, &here);
    let shown = document(&compared);
    arguments
        .options
        .write(context, format, &shown, &compared)?;
    let verdict = verdict(&compared);
    context
        .output
        .combine(verdict, context.output.errors(failures))
}

fn check_digest(file: &Path, expected: &str) -> Result<()> {
    let found = digest::of_file(file)
        .map_err(|e| Error::input_unreadable(format!("cannot read {}: {e}", file.display())))?;
    if found.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    Err(Error::bundle(format!("its SHA-256 is {found}")).at(file, None))
}

/// Returns the error for verdicts that do not hold, else for those that cannot be told.
fn verdict(compared: &Comparison) -> Result<()> {
    let words = |kind| match compared.replications(kind) {
        0 => None,
        count => Some(format!("{}: {kind}", counted(count, "verdict", "verdicts"))),
    };
    match (
        words(Replication::DoesNotHold),
        words(Replication::CannotTell),
    ) {
        (Some(words), _) => Err(Error::not_confirmed(words)),
        (None, Some(words)) => Err(Error::unconfirmed(words)),
        (None, None) => Ok(()),
    }
}
