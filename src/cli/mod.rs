//! The command line: one file a subcommand; reads flags, calls the library, prints.

mod analyse;
mod bench;
mod bisect;
mod bot;
mod build;
mod calibrate;
mod choices;
mod clean;
mod completions;
mod doctor;
mod edit;
mod export;
mod form;
mod history;
mod init;
mod lint;
mod man;
mod output;
mod post;
mod profile;
mod rebase;
mod refresh;
mod report;
mod run;
mod stack;
mod status;
mod terminal;
mod upstream;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use perfquilt_config::CONFIG_FILE;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};

pub use output::Output;

/// What each patch of a performance series is worth, measured on the complete server.
#[derive(Debug, Parser)]
#[command(
    name = "perfquilt",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, Default, Args)]
pub struct Global {
    /// Work in the workspace at DIR (default: this folder or the nearest above it)
    #[arg(short = 'C', long = "directory", value_name = "DIR", global = true)]
    directory: Option<PathBuf>,
    /// Print one JSON document on standard output
    #[arg(long, global = true)]
    json: bool,
    /// No progress, only results, warnings and errors
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Name every program that is started, on standard error
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Colour: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    color: ColorChoice,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build every point, measure, and report what each patch is worth
    Run(run::Arguments),
    /// Make a new workspace
    Init(init::Arguments),
    /// Check that this machine has what the workspace needs
    Doctor(doctor::Arguments),
    /// Releases: list, fetch, verify
    #[command(subcommand)]
    Upstream(upstream::Upstream),
    /// Show the release, the series and how each patch applies
    Status(status::Status),
    /// Check series and patches
    Lint(lint::Lint),
    /// Apply the series and show the chain of commits
    Stack(stack::Stack),
    /// Write a point's source tree to a folder
    Export(export::Export),
    /// Move the series to another release and say how each patch fits
    Rebase(rebase::Arguments),
    /// Check the stack out as a git branch to be edited
    Edit(edit::Edit),
    /// Write the edit branch back to series and patches
    Refresh(refresh::Refresh),
    /// Build points without measuring them
    Build(build::Arguments),
    /// Measure servers that are built already
    Bench(bench::Arguments),
    /// Report on a stored experiment again
    Report(report::Arguments),
    /// What each patch was worth over releases and time
    History(history::Arguments),
    /// Report on an observation file from any source
    Analyse(analyse::Arguments),
    /// Where two servers differ, function by function
    Profile(profile::Arguments),
    /// Find the patch or upstream commit that made a workload slower
    Bisect(bisect::Arguments),
    /// Tell a pull request what its series is worth: one comment, a check run, a label
    Post(post::Arguments),
    /// Serve pull requests: measure what people ask for in comments
    #[command(subcommand)]
    Bot(bot::Command),
    /// Remove what the caches keep and nobody uses
    Clean(clean::Arguments),
    /// Check that intervals and verdicts keep their promises, in simulation or on this machine
    Calibrate(calibrate::Arguments),
    /// Print a shell's completion script
    Completions(completions::Arguments),
    /// Print the manual page, or write one a command
    Man(man::Arguments),
}

/// What a subcommand works with.
pub struct Context {
    /// The flags of every command.
    pub global: Global,
    /// Where results and progress go.
    pub output: Output,
}

impl Context {
    /// The workspace the user means.
    ///
    /// # Errors
    /// As [`Workspace::open`], and when what a killed command left cannot be finished.
    pub fn workspace(&self) -> Result<Workspace> {
        let ws = Workspace::open(self.global.directory.as_deref().unwrap_or(".".as_ref()))?;
        if perfquilt_patches::edit::publish::recover(&ws)? {
            let progress = self.output.progress();
            progress.warn("an interrupted command had not written the whole series; it is now");
        }
        Ok(ws)
    }

    /// The workspace, if there is one here or named: one that is there must work.
    ///
    /// # Errors
    /// As [`Context::workspace`].
    pub fn workspace_if_any(&self) -> Result<Option<Workspace>> {
        let here = std::env::current_dir().unwrap_or_default();
        let mut folders = here.ancestors();
        let any = folders.any(|folder| folder.join(CONFIG_FILE).is_file());
        if any || self.global.directory.is_some() {
            self.workspace().map(Some)
        } else {
            Ok(None)
        }
    }
}

/// Runs the command line and returns the exit code of DESIGN's contract.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match parse(&args) {
        Ok(cli) => cli,
        Err(error) => return worded(&error, &args),
    };
    let output = Output::new(&cli.global);
    if cli.global.verbose > 0 {
        // This program's own lines only: libraries may log what they send, a token among it.
        let ours = tracing_subscriber::filter::filter_fn(|metadata| {
            metadata.target().starts_with(env!("CARGO_CRATE_NAME"))
        });
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_target(false)
            .with_filter(ours);
        tracing_subscriber::registry().with(lines).init();
    }
    let for_git = matches!(&cli.command, Command::Bisect(arguments) if arguments.is_for_git());
    let context = Context {
        global: cli.global,
        output,
    };
    let result = perfquilt_system::process::install_signal_handlers()
        .and_then(|()| perfquilt_machine::sandbox::enter())
        .and_then(|()| dispatch(&context, cli.command));
    match result {
        Ok(code) => code,
        Err(error) => {
            context.output.error(&error);
            ExitCode::from(if for_git {
                bisect::code_for_git(&error)
            } else {
                error.kind().exit_code()
            })
        }
    }
}

/// The command line's meaning; help and errors are in the colour it asks for.
fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = Cli::command().color(color_of(args));
    let mut matches = command.try_get_matches_from_mut(args)?;
    if let Some(error) = bisect::misplaced(&mut command, &matches) {
        return Err(error);
    }
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// What `--color` says, wherever it stands: a command line that cannot be read has it too.
fn color_of(args: &[OsString]) -> ColorChoice {
    let mut args = args.iter().filter_map(|arg| arg.to_str());
    while let Some(arg) = args.next() {
        let when = match arg.strip_prefix("--color") {
            Some("") => args.next(),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        if let Some(choice) = when.and_then(|when| when.parse().ok()) {
            return choice;
        }
    }
    ColorChoice::Auto
}

/// Prints help or an error of usage, which clap words itself, and returns the exit code; 2 is clap's code for wrong
/// usage too.
fn worded(error: &clap::Error, args: &[OsString]) -> ExitCode {
    let code = u8::try_from(error.exit_code()).unwrap_or(2);
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    match printed {
        // As for results, a closed pipe is the reader's right.
        Err(fault) if code == 0 && fault.kind() != std::io::ErrorKind::BrokenPipe => {
            let fault = Error::internal(format!("cannot write the help: {fault}"));
            Output::new(&Global::default()).error(&fault);
            ExitCode::from(fault.kind().exit_code())
        }
        _ => ExitCode::from(bisect::code_of_usage(args, code)),
    }
}

fn dispatch(context: &Context, command: Command) -> Result<ExitCode> {
    let done = match command {
        Command::Run(arguments) => return run::run(context, &arguments),
        Command::Init(arguments) => init::run(context, &arguments),
        Command::Doctor(arguments) => doctor::run(context, &arguments),
        Command::Upstream(command) => upstream::run(context, command),
        Command::Status(arguments) => status::run(context, &arguments),
        Command::Lint(arguments) => lint::run(context, &arguments),
        Command::Stack(arguments) => stack::run(context, &arguments),
        Command::Export(arguments) => export::run(context, &arguments),
        Command::Rebase(arguments) => rebase::run(context, &arguments),
        Command::Edit(arguments) => edit::run(context, &arguments),
        Command::Refresh(arguments) => refresh::run(context, &arguments),
        Command::Build(arguments) => build::run(context, &arguments),
        Command::Bench(arguments) => bench::run(context, &arguments),
        Command::Report(arguments) => report::run(context, &arguments),
        Command::History(arguments) => history::run(context, &arguments),
        Command::Analyse(arguments) => analyse::run(context, &arguments),
        Command::Profile(arguments) => profile::run(context, &arguments),
        Command::Bisect(arguments) => return bisect::run(context, &arguments),
        Command::Post(arguments) => post::run(context, &arguments),
        Command::Bot(command) => bot::run(context, &command),
        Command::Clean(arguments) => clean::run(context, &arguments),
        Command::Calibrate(arguments) => calibrate::run(context, &arguments),
        Command::Completions(arguments) => completions::run(context, &arguments, Cli::command()),
        Command::Man(arguments) => man::run(context, &arguments, Cli::command()),
    };
    done.map(|()| ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_colour_is_known_before_the_line_is_read() {
        for (line, color) in [
            ("perfquilt --color never bisec", ColorChoice::Never),
            (
                "perfquilt bisect log --color=always --x",
                ColorChoice::Always,
            ),
            ("perfquilt --color blue", ColorChoice::Auto),
            ("perfquilt --color", ColorChoice::Auto),
        ] {
            assert_eq!(color_of(&words(line)), color, "{line}");
        }
    }

    #[test]
    fn options_of_every_command_may_stand_before_a_subcommand() {
        for line in [
            "perfquilt bisect -C w log",
            "perfquilt bisect --json -q -v --color never log --list",
            "perfquilt -C w bisect --size 1% --json",
        ] {
            assert!(parse(&words(line)).is_ok(), "{line}");
        }
        for line in [
            "perfquilt bisect --size 1% log",
            "perfquilt bisect -q --fresh releases 1 2 --fresh",
        ] {
            let error = parse(&words(line)).unwrap_err();
            let kind = clap::error::ErrorKind::ArgumentConflict;
            assert_eq!(error.kind(), kind, "{line}: {error}");
        }
    }
}
