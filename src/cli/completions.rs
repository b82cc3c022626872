//! `perfquilt completions SHELL`: prints a script that makes a shell ask this program for completions. Names from the workspace
//! (presets, workloads, releases, patches, experiments) are among them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};

use super::Context;
use perfquilt_config::Config;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_series::series::Series;
use perfquilt_store::Store;
use perfquilt_system::process::quoted;

/// The variable with which the script asks for completions.
const VARIABLE: &str = "PERFQUILT_COMPLETE";

/// Arguments of `perfquilt completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt completions bash > ~/.local/share/bash-completion/completions/perfquilt
  perfquilt completions zsh > ~/.zfunc/_perfquilt
  perfquilt completions fish > ~/.config/fish/completions/perfquilt.fish

The script asks the program `perfquilt` on PATH. Write it again after installing another version.")]
pub struct Arguments {
    /// Shell to complete for
    #[arg(value_parser = shells())]
    shell: String,
}

fn shells() -> impl TypedValueParser<Value = String> {
    PossibleValuesParser::new(Shells::builtins().names())
}

/// Prints the completion script of a shell.
pub fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    if context.output.json() {
        return Err(Error::arguments("a completion script has no JSON form"));
    }
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(&arguments.shell) {
        shell
            .write_registration(VARIABLE, "perfquilt", "perfquilt", "perfquilt", &mut script)
            .map_err(|error| Error::internal(format!("cannot write the script: {error}")))?;
    }
    context.output.print(&String::from_utf8_lossy(&script))
}

/// Answers a shell that asks for completions. Returns whether one did.
pub(super) fn answer(
    args: &[OsString],
    command: fn() -> clap::Command,
) -> Result<bool, clap::Error> {
    let here = std::env::current_dir().ok();
    CompleteEnv::with_factory(|| with_names(command()))
        .var(VARIABLE)
        .try_complete(args.iter().cloned(), here.as_deref())
}

/// Adds the workspace's names to the arguments of all commands that take them.
fn with_names(command: clap::Command) -> clap::Command {
    command
        .mut_args(|arg| match names_of(&arg) {
            Some(names) => arg.add(ArgValueCandidates::new(names)),
            None => arg,
        })
        .mut_subcommands(with_names)
}

/// Returns the names that an argument takes.
fn names_of(arg: &clap::Arg) -> Option<fn() -> Vec<CompletionCandidate>> {
    let placeholder = arg.get_value_names().and_then(|names| names.first());
    let placeholder = placeholder.map_or("", |name| name.as_str());
    Some(match (arg.get_id().as_str(), placeholder) {
        ("preset", _) => presets,
        ("workload" | "workloads", _) => workloads,
        ("recipe", _) => recipes,
        ("release" | "versions" | "from" | "old" | "new", _) => releases,
        ("points" | "point" | "good" | "bad", _) => points,
        ("patch" | "resolve", _) => patches,
        ("experiment" | "earlier", _) => experiments,
        // Those of `history`; `profile` has servers of the same names.
        ("before" | "after", "PATCH|OLD" | "NEW") => experiments,
        _ => return None,
    })
}

/// Returns the workspace of the command line that is being completed.
fn workspace() -> Option<Workspace> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let mut words = words.iter();
    let mut folder = PathBuf::from(".");
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if matches!(&*text, "-C" | "--directory") {
            folder = words.next()?.into();
        } else if let Some(given) = text.strip_prefix("--directory=") {
            folder = given.into();
        }
    }
    Workspace::open(&folder).ok()
}

/// Returns the completion of a name. Nothing that a shell would read as more than a word is completed: names of patches come
/// from untrusted authors.
fn candidate(name: &str, help: &str) -> Option<CompletionCandidate> {
    if quoted(name) != name {
        return None;
    }
    let help = (!help.is_empty()).then(|| super::plain::plain(help).into());
    Some(CompletionCandidate::new(name).help(help))
}

/// Completes the names of a table of the configuration, each with its description.
fn named<T: 'static>(
    table: fn(&Config) -> &BTreeMap<String, T>,
    description: fn(&T) -> &str,
) -> Vec<CompletionCandidate> {
    let entries = |ws: Workspace| {
        let entries = table(&ws.config).iter();
        entries
            .filter_map(|(name, entry)| candidate(name, description(entry)))
            .collect()
    };
    workspace().map(entries).unwrap_or_default()
}

fn presets() -> Vec<CompletionCandidate> {
    named(|config| &config.preset, |preset| &preset.description)
}

fn workloads() -> Vec<CompletionCandidate> {
    named(|config| &config.workloads, |workload| &workload.description)
}

fn recipes() -> Vec<CompletionCandidate> {
    named(|config| &config.recipe, |recipe| &recipe.description)
}

fn releases() -> Vec<CompletionCandidate> {
    let versions = |ws: Workspace| {
        let releases = ws.config.upstream.release.iter();
        releases
            .filter_map(|release| candidate(&release.version, ""))
            .collect()
    };
    workspace().map(versions).unwrap_or_default()
}

/// Returns name and title of each patch of the current series.
fn series() -> Vec<(String, String)> {
    let series = workspace().and_then(|ws| Series::load_for(&ws, None).ok());
    let series = series.iter().flat_map(Series::patches);
    series
        .map(|patch| (patch.name.clone(), patch.title.clone()))
        .collect()
}

fn patches() -> Vec<CompletionCandidate> {
    series()
        .iter()
        .filter_map(|(name, title)| candidate(name, title))
        .collect()
}

fn points() -> Vec<CompletionCandidate> {
    let patches = series();
    let names = patches.iter().map(|(name, _)| name.as_str());
    let labels = std::iter::once("the bare release").chain(names);
    labels
        .enumerate()
        .filter_map(|(k, label)| candidate(&k.to_string(), label))
        .collect()
}

fn experiments() -> Vec<CompletionCandidate> {
    let store = workspace().and_then(|ws| Store::open_existing(&ws.results()).ok());
    let listed = store
        .and_then(|store| store.list().ok())
        .unwrap_or_default();
    let listed = listed.iter().map(|summary| &summary.header);
    listed
        .filter_map(|header| candidate(&header.experiment, &header.started))
        .collect()
}
