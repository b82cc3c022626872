//! The command line: one file per subcommand, which reads flags, calls the library and prints.

mod accept;
mod analyse;
mod bisect;
mod bot;
mod build;
mod bundle;
mod calibrate;
mod choices;
mod clean;
mod completions;
mod doctor;
mod edit;
mod explain;
mod export;
mod history;
mod import;
mod init;
mod ledger;
mod lint;
mod man;
mod matrix;
mod measuring;
mod output;
mod output_file;
mod overview;
mod pager;
mod plain;
mod post;
mod profile;
mod rebase;
mod refresh;
mod report;
mod report_options;
mod run;
mod series_as_written;
mod stack;
mod status;
mod terminal;
mod test;
mod upstream;
mod watch;
mod welcome;
mod worker;

use std::cell::RefCell;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use perfquilt_config::CONFIG_FILE;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_system::process::{quoted, raise_open_files};

pub use output::Output;

/// Measure the effect of each patch of a performance series, on the complete server
#[derive(Debug, Parser)]
#[command(name = "perfquilt", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Flags that every command takes.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Folder of the workspace (default: this folder or the nearest one above it)
    #[arg(short = 'C', long = "directory", value_name = "DIR", global = true)]
    directory: Option<PathBuf>,
    /// Print one JSON document on standard output
    #[arg(long, global = true)]
    json: bool,
    /// Print only results, warnings and errors, no progress
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Log each started program to standard error
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Do not pipe long reports into a pager
    #[arg(long, global = true)]
    no_pager: bool,
    /// Colour: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    color: ColorChoice,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build every point, measure, and report each patch's effect
    Run(run::Arguments),
    /// Create a workspace
    Init(init::Arguments),
    /// Check that this machine has what the workspace needs
    Doctor(doctor::Arguments),
    /// List, fetch and verify releases
    #[command(subcommand)]
    Upstream(upstream::Upstream),
    /// Show the release, the series and how each patch applies
    Status(status::Status),
    /// Check series and patches
    Lint(lint::Lint),
    /// Apply the series and show the chain of commits
    Stack(stack::Stack),
    /// Write a point's source tree to a folder, or a package's series
    Export(export::Export),
    /// Show how each patch fits another release, and move the series
    Rebase(rebase::Arguments),
    /// Report what changes upstream for each patch
    Watch(watch::Arguments),
    /// Import patches from git, mails, a folder or another series
    Import(import::Arguments),
    /// Check out the stack as a git branch for editing
    Edit(edit::Edit),
    /// Write the edit branch back to series and patches
    Refresh(refresh::Refresh),
    /// Build points without measuring them
    Build(build::Arguments),
    /// Run the server's own tests on the release and after each patch
    Test(test::Arguments),
    /// Report on a stored experiment
    Report(report::Arguments),
    /// Show each patch's effect across releases, or in two experiments
    History(history::Arguments),
    /// Show each patch on each release: its state and its effect
    Matrix(matrix::Arguments),
    /// List each patch: owner, upstream, effects, decisions, next step
    Ledger(ledger::Arguments),
    /// Record why a slower patch stays, or that the next rebase drops it
    Accept(accept::Arguments),
    /// Pack a run for other machines, or measure a packed one here
    Bundle(bundle::Arguments),
    /// Report on an observation file from any source
    Analyse(analyse::Arguments),
    /// Say what the code of an error or a warning means
    Explain(explain::Arguments),
    /// Compare two servers function by function
    Profile(profile::Arguments),
    /// Find the patch or upstream commit that made a workload slower
    Bisect(bisect::Arguments),
    /// Post results to a pull request: one comment, a check run, a label
    Post(post::Arguments),
    /// Serve pull requests: run the measurements that comments request
    #[command(subcommand)]
    Bot(bot::Command),
    /// Remove unused entries from the caches
    Clean(clean::Arguments),
    /// Measure the release against copies of itself
    Calibrate(calibrate::Arguments),
    /// Measure single servers: deprecated, use `run --server`
    #[command(hide = true)]
    Bench(run::Arguments),
    /// Compare two experiments: deprecated, use `history OLD NEW`
    #[command(hide = true)]
    Compare(history::Arguments),
    /// Measure a task of blocks, as a job of a cluster
    #[command(hide = true)]
    Worker(worker::Arguments),
    /// Print a shell's completion script
    Completions(completions::Arguments),
    /// Print the manual page, or write one page per command
    Man(man::Arguments),
}

/// The environment of a subcommand.
pub struct Context {
    /// The flags that every command takes.
    pub global: Global,
    /// Prints results, progress and errors.
    pub output: Output,
    /// The object store of the workspace that was opened last.
    object_store: RefCell<Option<PathBuf>>,
}

impl Context {
    /// Opens the workspace of `--directory` or the current folder, and finishes what a killed command left undone.
    pub fn workspace(&self) -> Result<Workspace> {
        let ws = Workspace::open(self.global.directory.as_deref().unwrap_or(".".as_ref()))?;
        perfquilt_bench::check(&ws.config)?;
        if perfquilt_rebase::edit::publish::recover(&ws)? {
            let words =
                "finished writing the series, which an interrupted command had left incomplete";
            progress::warn(Warning::completed_write(words));
        }
        self.object_store.replace(Some(ws.object_store()));
        Ok(ws)
    }

    /// Merges the packs of the workspace's object store, which takes longer than most commands: the user has the
    /// results by then, and nothing is being measured.
    fn merge_packs(&self) {
        let store = self.object_store.take();
        if let Some(store) = store.filter(|store| store.join("HEAD").is_file()) {
            perfquilt_series::upstream::merge_packs(&store);
        }
    }

    /// Opens the workspace, if `--directory` names one or the current folder is in one.
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

/// Runs the command line and returns the exit code (docs/reference.md lists them).
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    match completions::answer(&args, Cli::command) {
        Ok(true) => return ExitCode::SUCCESS,
        Ok(false) => {}
        Err(error) => return print_clap_error(&error, &args),
    }
    let cli = match parse(&args) {
        Ok(cli) => cli,
        Err(error) => return print_clap_error(&error, &args),
    };
    let output = Output::new(&cli.global);
    log_to_standard_error(cli.global.verbose > 0);
    let for_git =
        matches!(&cli.command, Some(Command::Bisect(arguments)) if arguments.is_for_git());
    let context = Context {
        global: cli.global,
        output,
        object_store: RefCell::default(),
    };
    report_missing_threads();
    raise_open_files();
    // The bot's jobs read no user's settings, and libgit2 does not heed the variables that tell git so.
    let named = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"];
    if named.iter().all(|name| std::env::var_os(name).is_some()) {
        perfquilt_series::upstream::read_no_user_settings();
    }
    let result = perfquilt_system::process::install_signal_handlers()
        .and_then(|()| perfquilt_bench::sandbox::enter())
        .and_then(|()| dispatch(&context, cli.command));
    match result {
        Ok(code) => {
            context.merge_packs();
            code
        }
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

/// Makes a thread that cannot be started an error like others: the standard library and others panic. Finished work is
/// stored, and children end with this process.
fn report_missing_threads() {
    use std::io::Write;
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload_as_str().unwrap_or_default();
        let texts = [
            "failed to spawn thread",
            "OS can't spawn worker thread",
            "The global thread pool has not been initialized",
        ];
        if !texts.iter().any(|text| message.starts_with(text)) {
            return usual(panic);
        }
        let error = Error::system_refused(format!("cannot start a thread: {message}"));
        // The streams of a command may be locked by the thread that panics.
        let _ = writeln!(
            std::io::stderr(),
            "error: {error} [{}]\nhint: this user has too many processes: raise the limit \
             (`ulimit -u`, TasksMax), or end some",
            error.code()
        );
        #[expect(
            clippy::disallowed_methods,
            reason = "a panic hook has nobody to return to"
        )]
        std::process::exit(i32::from(Kind::Internal.exit_code()));
    }));
}

/// Logs to standard error: warnings and errors, or everything if `verbose`.
fn log_to_standard_error(verbose: bool) {
    let level = if verbose {
        LevelFilter::TRACE
    } else {
        LevelFilter::WARN
    };
    // Only this program's own lines: libraries may log their requests, including tokens.
    let ours = filter_fn(move |metadata| {
        *metadata.level() <= level && metadata.target().starts_with(env!("CARGO_CRATE_NAME"))
    });
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_span_events(FmtSpan::CLOSE)
        .with_filter(ours);
    tracing_subscriber::registry().with(lines).init();
}

/// Parses the command line; help and errors honour its `--color`.
fn parse(args: &[OsString]) -> Result<Cli, clap::Error> {
    let mut command = overview::with_groups(Cli::command().color(color_of(args)));
    let mut matches = command.try_get_matches_from_mut(args)?;
    if let Some(error) = bisect::misplaced(&mut command, &matches) {
        return Err(error);
    }
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Returns the value of `--color`, wherever it stands, even on a command line that cannot be parsed.
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

/// Prints clap's help or usage error and returns the exit code. clap's own code for wrong usage is 2, too.
fn print_clap_error(error: &clap::Error, args: &[OsString]) -> ExitCode {
    let code = u8::try_from(error.exit_code()).unwrap_or(2);
    let printed = if error.use_stderr() {
        print_usage_error(error, args)
    } else {
        error.print().and_then(|()| std::io::stdout().flush())
    };
    match printed {
        // A reader may close the pipe early, as with results.
        Err(fault) if code == 0 && fault.kind() != std::io::ErrorKind::BrokenPipe => {
            let fault = Error::internal(format!("cannot write the help: {fault}"));
            Output::new(&Global::default()).error(&fault);
            ExitCode::from(fault.kind().exit_code())
        }
        _ => ExitCode::from(bisect::code_of_usage(args, code)),
    }
}

/// Prints a usage error with its code at the end of the first line, and a hint. A value's own type has a more precise code than
/// clap, and a hint that clap does not print.
fn print_usage_error(error: &clap::Error, args: &[OsString]) -> std::io::Result<()> {
    let own = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Error>());
    let mut text = error.render().ansi().to_string();
    if error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let code = own.map_or_else(|| Error::command_line("").code(), Error::code);
        text = text.replacen('\n', &format!(" [{code}]\n"), 1);
    }
    let choice = match color_of(args) {
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
        ColorChoice::Auto => anstream::ColorChoice::Auto,
    };
    let mut stderr = anstream::AutoStream::new(std::io::stderr(), choice);
    stderr.write_all(text.as_bytes())?;
    let hint = match own {
        Some(own) => own.hint_text().map(plain::plain),
        None => hint_of(error, args),
    };
    hint.map_or(Ok(()), |hint| writeln!(stderr, "hint: {hint}"))
}

/// Options of earlier versions, and their successors.
const REMOVED: [(&str, &str); 7] = [
    (
        "layouts",
        "`layouts` of [preset.NAME] in bench-config/perfquilt.toml",
    ),
    (
        "lanes",
        "`lanes` of [preset.NAME] in bench-config/perfquilt.toml",
    ),
    ("user", "`user` of [sandbox] in bench-config/perfquilt.toml"),
    ("experiments", "`ci/calibrate` in perfquilt's source tree"),
    ("seed", "`ci/calibrate` in perfquilt's source tree"),
    ("bisect", "`ci/calibrate` in perfquilt's source tree"),
    ("cost", "`ci/bench/waste` in perfquilt's source tree"),
];

/// Returns the hint of a usage error, such as the option that a lone word was probably meant for.
fn hint_of(error: &clap::Error, args: &[OsString]) -> Option<String> {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && error.get(ContextKind::SuggestedSubcommand).is_none()
    {
        return nearest_command(word);
    }
    let word = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(word) if error.kind() == ErrorKind::UnknownArgument => word,
        _ => return None,
    };
    let measures = |arg: &OsString| arg == "run" || arg == "bench";
    if let Some(option) = word.strip_prefix("--") {
        let option = option.split('=').next().unwrap_or(option);
        let removed = REMOVED.iter().find(|(name, _)| *name == option);
        return match removed {
            Some((name, successor)) => Some(format!("{successor} replaces the option --{name}")),
            None => positional(option, args),
        };
    }
    if word.starts_with('-') || !args.iter().any(measures) {
        return None;
    }
    let option = match word.parse::<Point>() {
        Ok(_) => "--point",
        Err(_) => "--preset",
    };
    let word = plain::plain(&quoted(word));
    Some(format!("`{option} {word}`? `--workload` chooses workloads"))
}

/// Returns the hint that the unknown `option` names a value that its command takes without one.
fn positional(option: &str, args: &[OsString]) -> Option<String> {
    let cli = Cli::command();
    let command = args.iter().find_map(|arg| cli.find_subcommand(arg))?;
    let found = command.get_positionals().find(|arg| arg.get_id() == option);
    let value = found?.get_value_names()?.first()?;
    let name = command.get_name();
    Some(format!("without an option: `perfquilt {name} {value}`"))
}

/// Returns the hint to the command that `word` is a slip of: clap knows none of short commands whose letters are exchanged.
fn nearest_command(word: &str) -> Option<String> {
    let command = Cli::command();
    let names = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    let distance = |name: &str| strsim::damerau_levenshtein(name, word);
    let nearest = names
        .map(clap::Command::get_name)
        .min_by_key(|name| distance(name))?;
    (distance(nearest) == 1).then(|| format!("did you mean `perfquilt {nearest}`?"))
}

/// Warns that the command `old` has the name `new`; both do the same in this version.
fn renamed(old: &str, new: &str) {
    progress::warn(Warning::old_name(format!(
        "`perfquilt {old}` is now `perfquilt {new}`; the next version drops the old name"
    )));
}

fn dispatch(context: &Context, command: Option<Command>) -> Result<ExitCode> {
    let Some(command) = command else {
        return welcome::run(context);
    };
    let done = match command {
        Command::Run(arguments) => return run::run(context, &arguments),
        Command::Bench(arguments) => {
            let servers = arguments.names_servers();
            renamed("bench", if servers { "run --server" } else { "run" });
            return run::run(context, &arguments);
        }
        Command::Init(arguments) => init::run(context, &arguments),
        Command::Doctor(arguments) => doctor::run(context, &arguments),
        Command::Upstream(command) => upstream::run(context, command),
        Command::Status(arguments) => status::run(context, &arguments),
        Command::Lint(arguments) => lint::run(context, &arguments),
        Command::Stack(arguments) => stack::run(context, &arguments),
        Command::Export(arguments) => export::run(context, &arguments),
        Command::Import(arguments) => import::run(context, &arguments),
        Command::Rebase(arguments) => rebase::run(context, &arguments),
        Command::Edit(arguments) => edit::run(context, &arguments),
        Command::Refresh(arguments) => refresh::run(context, &arguments),
        Command::Build(arguments) => build::run(context, &arguments),
        Command::Test(arguments) => test::run(context, &arguments),
        Command::Report(arguments) => report::run(context, &arguments),
        Command::History(arguments) => history::run(context, &arguments),
        Command::Accept(arguments) => accept::run(context, &arguments),
        Command::Ledger(arguments) => ledger::run(context, &arguments),
        Command::Watch(arguments) => watch::run(context, &arguments),
        Command::Matrix(arguments) => matrix::run(context, &arguments),
        Command::Explain(arguments) => explain::run(context, &arguments),
        Command::Compare(arguments) => {
            renamed("compare", "history OLD NEW");
            history::run(context, &arguments)
        }
        Command::Analyse(arguments) => analyse::run(context, &arguments),
        Command::Profile(arguments) => profile::run(context, &arguments),
        Command::Bundle(arguments) => return bundle::run(context, &arguments),
        Command::Bisect(arguments) => return bisect::run(context, &arguments),
        Command::Post(arguments) => post::run(context, &arguments),
        Command::Bot(command) => bot::run(context, &command),
        Command::Clean(arguments) => clean::run(context, &arguments),
        Command::Calibrate(arguments) => calibrate::run(context, &arguments),
        Command::Worker(arguments) => worker::run(&arguments),
        Command::Completions(arguments) => completions::run(context, &arguments),
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
