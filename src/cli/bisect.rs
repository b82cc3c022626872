//! `perfquilt bisect`: finds the change that made a workload slower.

use std::ffi::OsString;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Subcommand};

use super::Context;
use super::choices;
use super::measuring::{FreshOption, with_recipe};
use super::report_options::TextReportOptions;
use super::series_as_written::SeriesChoice;
use perfquilt_config::parse_fraction;
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::bisect::two_way::LossSource;
use perfquilt_judge::bisect::{
    BisectOutcome, BisectSession, Conclusion, DEFAULT_BLOCKS, DEFAULT_ERROR, DEFAULT_SIZE,
    Direction, Question,
};
use perfquilt_measure::run::bisect::bisect;
use perfquilt_measure::run::commits::CommitRevisions;
use perfquilt_measure::run::prepare;
use perfquilt_measure::run::releases::compare;
use perfquilt_measure::run::request::{BisectRequest, DEFAULT_PRESET};
use perfquilt_measure::run::revisions::SeriesRevisions;
use perfquilt_measure::run::sessions::Sessions;
use perfquilt_measure::run::step::{ChangeSide, CommitsHere, side};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::observation::Metric;
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_results::outcome::{self, OutcomePart, RunStart};
use perfquilt_store::require_object;

/// Arguments of `perfquilt bisect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt bisect --workload oltp_read_only        the whole series
  perfquilt bisect --workload oltp_read_only --meter cpu --good 1 --bad 4
  perfquilt bisect log                              the result and its path

Stored measurements are reused, only the necessary points are built, and the same command resumes an \
interrupted bisection.")]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<BisectCommand>,
    #[command(flatten)]
    series: SeriesSearch,
}

impl Arguments {
    /// Returns whether the exit code is for `git bisect run`.
    pub fn is_for_git(&self) -> bool {
        matches!(self.command, Some(BisectCommand::Step(_)))
    }
}

#[derive(Debug, Subcommand)]
enum BisectCommand {
    /// Attribute a loss between two releases to the patches or to upstream
    Releases(Releases),
    /// Search upstream's commits between two releases, with the series moved to each
    Commits(Commits),
    /// Classify the commit that git tests here as good or bad, for `git bisect run`
    Step(Step),
    /// Show a bisection: result, path and cost
    Log(Log),
    /// Repeat the decisions of a bisection from its log, without measuring
    Replay(Replay),
}

/// Options of a comparison and its error rate, shared by all kinds of bisection.
#[derive(Debug, Clone, Args)]
struct ComparisonOptions {
    /// Workload that became slower (default: the preset's, if it has only one)
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// Meter: time, cpu, instructions, cycles, l1i_misses, branch_misses, frontend_bound, rss, context_switches,
    /// io_bytes, io_calls, server_reads, server_writes, server_syncs; of time and cpu also the mean, the shares of slow and of stalled slices, and the 99th percentile (time.mean, time.slow, time.stalled, time.p99)
    #[arg(long, value_name = "METER", default_value = "time")]
    meter: Metric,
    /// Smallest change to find, such as 0.5% or 0.005 of speed (default: 0.5%)
    #[arg(long, value_name = "SIZE", value_parser = parse_fraction, default_value_t = DEFAULT_SIZE, hide_default_value = true)]
    size: f64,
    /// Error rate: share of bisections that may name a wrong change, or miss one of at least the size (default: 1%)
    #[arg(long, value_name = "SHARE", value_parser = parse_fraction, default_value_t = DEFAULT_ERROR, hide_default_value = true)]
    error: f64,
    /// Maximum number of blocks per comparison; without a decision by then, it is undecided
    #[arg(long, value_name = "N", value_parser = choices::number::<usize>, default_value_t = DEFAULT_BLOCKS)]
    blocks: usize,
    /// Preset for building and measuring: a [preset.NAME] of the configuration
    #[arg(long, value_name = "NAME", default_value = DEFAULT_PRESET)]
    preset: String,
    /// Recipe instead of the preset's
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    /// Build and measure on the machines of a cluster, with the settings of [cluster]: slurm or command (default: the
    /// preset's, else on this machine)
    #[arg(long, value_name = "SCHEDULER", value_parser = choices::scheduler)]
    on: Option<String>,
    #[command(flatten)]
    fresh: FreshOption,
}

/// Options of a search, shared by all kinds of bisection that search.
#[derive(Debug, Clone, Args)]
struct SearchOptions {
    #[command(flatten)]
    comparison: ComparisonOptions,
    /// Direction of the changes to find
    #[arg(long, value_parser = choices::direction(), default_value = "slower")]
    direction: Direction,
}

/// Options of a search that names the responsible change.
#[derive(Debug, Clone, Args)]
struct CulpritOptions {
    #[command(flatten)]
    search: SearchOptions,
    /// Skip the final profile of the functions whose instructions changed
    #[arg(long)]
    no_profile: bool,
}

/// Options of the search over the series.
#[derive(Debug, Args)]
struct SeriesSearch {
    #[command(flatten)]
    culprit: CulpritOptions,
    /// Point known to be good (default: the bare release)
    #[arg(long, value_name = "POINT")]
    good: Option<Point>,
    /// Point known to be bad (default: the whole series)
    #[arg(long, value_name = "POINT")]
    bad: Option<Point>,
    /// Release (default: the current one)
    #[arg(long, value_name = "VERSION")]
    release: Option<String>,
    /// Folder to write the outcome to, for a pull request: the session, or the failure
    #[arg(long, value_name = "FOLDER")]
    outcome: Option<PathBuf>,
    /// Commit to record in the outcome (default: the workspace's)
    #[arg(long, value_name = "COMMIT", requires = "outcome")]
    head: Option<String>,
    #[command(flatten)]
    written: SeriesChoice,
    #[command(flatten)]
    report: TextReportOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt bisect releases 10.11.18 11.8.6 --workload oltp_read_only")]
struct Releases {
    /// Old release
    old: String,
    /// New release
    new: String,
    /// Patch, by its name or its number on both releases (default: the whole series)
    #[arg(long, value_name = "PATCH")]
    patch: Option<String>,
    #[command(flatten)]
    comparison: ComparisonOptions,
    #[command(flatten)]
    written: SeriesChoice,
    #[command(flatten)]
    report: TextReportOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt bisect commits 10.11.18 10.11.19 --workload oltp_read_only")]
struct Commits {
    /// Release known to be good: a tag of a git remote
    old: String,
    /// Release known to be bad: a later tag of the same remote
    new: String,
    /// Search upstream alone, without the series
    #[arg(long)]
    bare: bool,
    #[command(flatten)]
    culprit: CulpritOptions,
    #[command(flatten)]
    written: SeriesChoice,
    #[command(flatten)]
    report: TextReportOptions,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes are those of `git bisect run`: 0 good, 1 bad, 125 cannot be tested, 128 anything else.

Examples:
  perfquilt bisect step --good v1 --bad v2 --workload oltp_read_only

In a repository of the server:
  git bisect start v2 v1
  git bisect run perfquilt -C WORKSPACE bisect step --good v1 --bad v2 --workload oltp_read_only"
)]
struct Step {
    /// Good commit to compare with
    #[arg(long, value_name = "COMMIT")]
    good: String,
    /// Bad commit to compare with
    #[arg(long, value_name = "COMMIT")]
    bad: String,
    #[command(flatten)]
    search: SearchOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt bisect log
  perfquilt bisect log --raw > log.json")]
struct Log {
    /// Name of the bisection (default: the latest)
    name: Option<String>,
    /// List the bisections instead
    #[arg(long, conflicts_with_all = ["name", "raw", "format"])]
    list: bool,
    /// Print the log itself, for `bisect replay`
    #[arg(long, conflicts_with = "format")]
    raw: bool,
    #[command(flatten)]
    report: TextReportOptions,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt bisect replay log.json")]
struct Replay {
    /// Log printed by `bisect log --raw`; - is standard input
    file: PathBuf,
    #[command(flatten)]
    report: TextReportOptions,
}

impl ComparisonOptions {
    /// Returns the request to find losses, with the preset's settings.
    fn request(&self, ws: &Workspace) -> Result<BisectRequest> {
        let preset = ws.config.preset(&self.preset)?.clone();
        let recipe = self.recipe.clone();
        let recipe = recipe.filter(|recipe| *recipe != preset.recipe);
        let mut preset = with_recipe(ws, preset, recipe.as_deref())?;
        preset.on = self.on.clone().or(preset.on);
        let workload = match (&self.workload, preset.workloads.as_slice()) {
            (Some(name), _) => &ws.config.workload(name)?.name,
            (None, [only]) => only,
            (None, several) => {
                return Err(
                    Error::bisection_question("a bisection needs exactly one workload").hint(
                        format!("choose one with --workload: {}", several.join(", ")),
                    ),
                );
            }
        };
        Ok(BisectRequest {
            question: Question {
                size: self.size,
                error: self.error,
                most_blocks: self.blocks,
                ..Question::about(workload, self.meter)
            },
            preset,
            recipe,
            profile: false,
            describe: perfquilt_report::bisect::step,
        })
    }
}

impl SearchOptions {
    /// Returns the request to find changes in the direction.
    fn request(&self, ws: &Workspace) -> Result<BisectRequest> {
        let mut request = self.comparison.request(ws)?;
        request.question.direction = self.direction;
        Ok(request)
    }
}

impl CulpritOptions {
    /// Returns the request to name the change, and to profile it unless that is disabled.
    fn request(&self, ws: &Workspace) -> Result<BisectRequest> {
        let mut request = self.search.request(ws)?;
        request.profile = !self.no_profile;
        Ok(request)
    }
}

/// Exit code for `git bisect run`: the commit checked out is good.
const GOOD: u8 = 0;
/// Exit code for `git bisect run`: the commit is bad.
const BAD: u8 = 1;
/// Exit code for `git bisect run`: the commit cannot be tested.
const SKIP: u8 = 125;
/// Exit code for `git bisect run`: an error that ends the bisection.
const ABORT: u8 = 128;

/// Returns an error if `matches` have options of the search over the series before a subcommand, which has its own
/// and would ignore them. Options of every command are allowed there.
pub fn misplaced(command: &mut clap::Command, matches: &ArgMatches) -> Option<clap::Error> {
    let matches = matches.subcommand_matches("bisect")?;
    let sub = matches.subcommand_name()?;
    let command = command.find_subcommand_mut("bisect")?;
    let given = command.get_arguments().find(|arg| {
        let source = matches.value_source(arg.get_id().as_str());
        !arg.is_global_set() && source == Some(ValueSource::CommandLine)
    })?;
    let message = format!("the subcommand '{sub}' cannot be used with '{given}'");
    Some(command.error(ErrorKind::ArgumentConflict, message))
}

/// Returns the exit code of a command line that clap refused with `code`: `git bisect run` takes 2 for "bad".
pub fn code_of_usage(args: &[OsString], code: u8) -> u8 {
    let has = |word: &str| args.iter().any(|arg| arg == word);
    if code != 0 && has("bisect") && has("step") {
        ABORT
    } else {
        code
    }
}

/// Returns the exit code that tells `git bisect run` of an error.
pub fn code_for_git(error: &Error) -> u8 {
    match error.kind() {
        Kind::Interrupted => error.kind().exit_code(),
        _ => ABORT,
    }
}

/// Runs `perfquilt bisect`.
///
/// # Errors
/// Those of [`bisect`]; [`Kind::Inconclusive`] when it is undecided.
pub fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        None => bisect_series(context, &arguments.series)?,
        Some(BisectCommand::Releases(releases)) => compare_releases(context, releases)?,
        Some(BisectCommand::Commits(commits)) => bisect_commits(context, commits)?,
        Some(BisectCommand::Step(step)) => {
            // git takes the exit code of a panic for "bad".
            let step = AssertUnwindSafe(|| classify_commit(context, step));
            let code = std::panic::catch_unwind(step).unwrap_or(ABORT);
            return Ok(ExitCode::from(code));
        }
        Some(BisectCommand::Log(log)) => show_log(context, log)?,
        Some(BisectCommand::Replay(replay)) => replay_log(context, replay)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Classifies the commit that git tests here and returns the exit code for `git bisect run`.
fn classify_commit(context: &Context, step: &Step) -> u8 {
    let fresh = &step.search.comparison.fresh;
    let found = fresh.workspace(context).and_then(|ws| {
        let request = step.search.request(&ws)?;
        let here = std::env::current_dir().map_err(|error| {
            Error::bisection_question(format!("there is no current folder: {error}"))
        })?;
        let states = CommitsHere::new(&ws, &here, &step.good, &step.bad)?;
        let found = side(&ws, &states, &request)?;
        states.check_unmoved()?;
        if let ChangeSide::Unknown(reason) = &found
            && let Some(error) = states.lacks_submodules(reason)
        {
            return Err(error);
        }
        // A fix may consist of files that git does not know.
        if matches!(found, ChangeSide::Unknown(_))
            && let Some(words) = states.untracked_files()
        {
            progress::note(&words);
        }
        Ok(found)
    });
    match found {
        Ok(ChangeSide::Good) => GOOD,
        Ok(ChangeSide::Bad) => BAD,
        Ok(ChangeSide::Unknown(reason)) => {
            let skipped = format!("this commit cannot be tested: {reason}");
            progress::note(&skipped);
            SKIP
        }
        Err(error) => {
            context.output.error(&error);
            code_for_git(&error)
        }
    }
}

fn bisect_series(context: &Context, options: &SeriesSearch) -> Result<()> {
    options.report.format(context)?;
    let ws = options.culprit.search.comparison.fresh.workspace(context)?;
    let release = options.release.as_deref();
    options.written.check(&ws, &[release])?;
    let Some(folder) = &options.outcome else {
        return search_series(context, options, &ws, &mut None);
    };
    super::run::create_outcome_folder(folder)?;
    let head = super::run::outcome_commit(&ws, options.head.as_deref())?;
    let start = RunStart::now(head, Some(folder))?;
    let mut session = None;
    let done = search_series(context, options, &ws, &mut session);
    let failures = match &done {
        Err(error) if error.kind() != Kind::Inconclusive => vec![Failure::new(error, None)],
        _ => Vec::new(),
    };
    let written = outcome::update(
        folder,
        &start,
        failures,
        OutcomePart::Bisection(session.as_ref()),
    );
    context.output.combine(done, written)
}

/// Bisects the series and shows the result; for an outcome, `session` is set to the session as soon as there is one.
fn search_series(
    context: &Context,
    options: &SeriesSearch,
    ws: &Workspace,
    session: &mut Option<BisectSession>,
) -> Result<()> {
    let request = options.culprit.request(ws)?;
    let version = options.release.as_deref();
    let prepared = prepare(ws, version)?;
    if prepared.series.patches().is_empty() {
        return Err(Error::series_empty(
            "the series has no patches, so there is nothing to bisect",
        )
        .hint("`perfquilt import SOURCE` imports patches"));
    }
    let states = SeriesRevisions::new(&prepared, version, options.good, options.bad)?;
    let mut finished = bisect(ws, &states, &request)?;
    if options.outcome.is_some() {
        *session = Some(Sessions::of(ws).find(Some(&finished.name))?.session);
    }
    // The series may have been edited meanwhile; the result is about the state at the start.
    let trees = |prepared: &perfquilt_measure::run::Prepared| -> Vec<String> {
        let steps = prepared.stack.steps.iter();
        steps.map(|step| step.tree.clone()).collect()
    };
    let changed = match prepare(ws, version) {
        Ok(now) => trees(&now) != trees(&prepared),
        Err(_) => true,
    };
    if changed {
        finished.outcome.notes.push(
            "The series was edited during the bisection: the result is about the series as it was before."
                .to_owned(),
        );
    }
    show(context, &options.report, &finished.outcome)?;
    require_decision(&finished.outcome)
}

fn compare_releases(context: &Context, arguments: &Releases) -> Result<()> {
    arguments.report.format(context)?;
    let ws = arguments.comparison.fresh.workspace(context)?;
    let releases = [&*arguments.old, &*arguments.new];
    arguments.written.check(&ws, &releases.map(Some))?;
    let request = arguments.comparison.request(&ws)?;
    let table = compare(&ws, releases, arguments.patch.as_deref(), &request)?;
    let document = perfquilt_report::two_way::document(&table);
    arguments.report.print(context, &document, &table)?;
    match table.whose {
        LossSource::Undecided => Err(undecided()),
        _ => Ok(()),
    }
}

fn bisect_commits(context: &Context, arguments: &Commits) -> Result<()> {
    arguments.report.format(context)?;
    let ws = arguments
        .culprit
        .search
        .comparison
        .fresh
        .workspace(context)?;
    let releases @ [old, new] = [&*arguments.old, &*arguments.new];
    if !arguments.bare {
        let all = [None, Some(old), Some(new)];
        arguments.written.check(&ws, &all)?;
    }
    let request = arguments.culprit.request(&ws)?;
    let states = CommitRevisions::new(&ws, releases, arguments.bare)?;
    let finished = bisect(&ws, &states, &request)?;
    show(context, &arguments.report, &finished.outcome)?;
    require_decision(&finished.outcome)
}

fn show_log(context: &Context, log: &Log) -> Result<()> {
    let ws = context.workspace()?;
    let sessions = Sessions::of(&ws);
    if log.list {
        return list(context, &sessions);
    }
    let stored = sessions.find(log.name.as_deref())?;
    if log.raw {
        return context.output.print_json(&stored.session);
    }
    show(context, &log.report, &stored.session.replay().outcome())
}

fn list(context: &Context, sessions: &Sessions) -> Result<()> {
    let mut rows = Vec::new();
    for name in sessions.names()? {
        let stored = sessions.find(Some(&name))?;
        let outcome = stored.session.replay().outcome();
        rows.push(serde_json::json!({
            "bisection": name,
            "release": outcome.question.release,
            "workload": outcome.question.workload,
            "meter": outcome.question.meter,
            "conclusion": outcome.conclusion,
            "blocks": outcome.cost.blocks,
        }));
    }
    let line = |row: &serde_json::Value| {
        let fields = ["bisection", "release", "workload", "meter", "conclusion"];
        let words =
            fields.map(|field| super::plain::plain(row[field].as_str().unwrap_or_default()));
        format!("{}  {} blocks\n", words.join("  "), row["blocks"])
    };
    let json = serde_json::json!({ "schema": 1, "bisections": rows });
    let text = || rows.iter().map(line).collect();
    context.output.result(&json, text)
}

fn replay_log(context: &Context, replay: &Replay) -> Result<()> {
    let text = if replay.file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin()).map_err(|error| {
            Error::input_unreadable(format!("cannot read standard input: {error}"))
        })?
    } else {
        std::fs::read_to_string(&replay.file).map_err(|error| {
            Error::input_unreadable(format!("cannot read {}: {error}", replay.file.display()))
        })?
    };
    let session = require_object(text.as_bytes(), "the log of a bisection")
        .and_then(|()| BisectSession::parse(&text))
        .map_err(|error| {
            let error = error.hint_or("`perfquilt bisect log --raw` prints such a log");
            error.at(&replay.file, None)
        })?;
    let outcome = session.replay().outcome();
    show(context, &replay.report, &outcome)
}

/// Prints a bisection in the requested format.
pub fn show(context: &Context, options: &TextReportOptions, outcome: &BisectOutcome) -> Result<()> {
    options.print(
        context,
        &perfquilt_report::bisect::document(outcome),
        outcome,
    )
}

/// Returns an error if the bisection is undecided.
fn require_decision(outcome: &BisectOutcome) -> Result<()> {
    match outcome.conclusion {
        Conclusion::Undecided | Conclusion::Unfinished => Err(undecided()),
        Conclusion::Found | Conclusion::Nothing | Conclusion::Opposite => Ok(()),
    }
}

fn undecided() -> Error {
    Error::undecided("undecided within the allowed number of blocks")
        .hint("`--blocks` allows more, a larger `--size` needs fewer")
}
