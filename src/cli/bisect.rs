//! `perfquilt bisect`: which change made it slower.

use std::ffi::OsString;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Subcommand};

use super::Context;
use super::bench::with_recipe;
use super::choices;
use super::form::{TextForm, TextFormat};
use perfquilt_config::workspace::Workspace;
use perfquilt_judge::bisect::two_way::Whose;
use perfquilt_judge::bisect::{
    Conclusion, DEFAULT_ERROR, DEFAULT_SIZE, Direction, Outcome, Session,
};
use perfquilt_measure::run::bisect::{Ask, DEFAULT_PRESET, bisect};
use perfquilt_measure::run::commits::CommitStates;
use perfquilt_measure::run::prepare;
use perfquilt_measure::run::releases::compare;
use perfquilt_measure::run::sessions::Sessions;
use perfquilt_measure::run::states::SeriesStates;
use perfquilt_measure::run::step::{CommitsHere, Side, side};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::observation::Metric;
use perfquilt_model::point::Point;
use perfquilt_results::outcome::{self, Made};

/// Arguments of `perfquilt bisect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt bisect --workload oltp_read_only        the whole series
  perfquilt bisect --workload oltp_read_only --meter instructions --good 1 --bad 4
  perfquilt bisect log                              what was found, and how

What is measured already is used, only what is needed is built, and an interrupted bisection goes on
with the same command.")]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Sub>,
    #[command(flatten)]
    over: Over,
}

impl Arguments {
    /// Whether it is `git bisect run` that sees the exit code.
    pub fn is_for_git(&self) -> bool {
        matches!(self.command, Some(Sub::Step(_)))
    }
}

#[derive(Debug, Subcommand)]
enum Sub {
    /// Whose is the loss between two releases: the patch's, or upstream's?
    Releases(Releases),
    /// Search upstream's commits between two releases, the series moved to each
    Commits(Commits),
    /// For `git bisect run`: is the commit checked out here like the good one or like the bad one?
    Step(Step),
    /// Show a bisection: what was found, the path, the cost
    Log(Log),
    /// Decide again from a bisection's log, measuring nothing
    Replay(Replay),
}

/// What is compared, and how surely; shared by all ways to bisect.
#[derive(Debug, Clone, Args)]
struct Asking {
    /// The workload that got slower
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// What is read: time, cpu, instructions, cycles, l1i_misses, branch_misses, frontend_bound; of time and cpu also
    /// the mean, the share of slow slices and the 99th percentile (time.mean, time.slow, time.p99)
    #[arg(long, value_name = "METER", default_value = "time")]
    meter: Metric,
    /// The smallest change looked for: 0.5%, or 0.005 of speed
    #[arg(long, value_name = "SIZE", value_parser = share, default_value_t = DEFAULT_SIZE, hide_default_value = true)]
    size: f64,
    /// The share of bisections that may name a wrong change, or miss one of at least the size
    #[arg(long, value_name = "SHARE", value_parser = share, default_value_t = DEFAULT_ERROR, hide_default_value = true)]
    error: f64,
    /// The most blocks of one comparison; what they do not decide is undecidable
    #[arg(long, value_name = "N", default_value_t = 400)]
    blocks: usize,
    /// How is measured and built: a [preset.NAME] of the configuration
    #[arg(long, value_name = "NAME", default_value = DEFAULT_PRESET)]
    preset: String,
    /// Another recipe than the preset's
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    /// Use no stored measurement, and begin a new bisection where one is finished
    #[arg(long)]
    fresh: bool,
}

/// What is searched for; shared by all ways that search.
#[derive(Debug, Clone, Args)]
struct Searching {
    #[command(flatten)]
    asking: Asking,
    /// Which changes are looked for
    #[arg(long, value_parser = choices::direction(), default_value = "slower")]
    direction: Direction,
}

/// A search that ends with a name.
#[derive(Debug, Clone, Args)]
struct Naming {
    #[command(flatten)]
    searching: Searching,
    /// Do not look, at the end, which functions the change made dearer or cheaper
    #[arg(long)]
    no_profile: bool,
}

#[derive(Debug, Args)]
struct Over {
    #[command(flatten)]
    naming: Naming,
    /// The point that is known to be good (default: the bare release)
    #[arg(long, value_name = "POINT")]
    good: Option<Point>,
    /// The point that is known to be bad (default: the whole series)
    #[arg(long, value_name = "POINT")]
    bad: Option<Point>,
    /// The release (default: the current one)
    #[arg(long, value_name = "VERSION")]
    release: Option<String>,
    /// Write what it came to into this folder, for a pull request: the session, or what failed
    #[arg(long, value_name = "FOLDER")]
    outcome: Option<PathBuf>,
    /// The commit that is searched, for the outcome (default: the workspace's)
    #[arg(long, value_name = "COMMIT", requires = "outcome")]
    head: Option<String>,
    #[command(flatten)]
    form: TextForm,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt bisect releases 10.11.18 11.8.6 --workload oltp_read_only")]
struct Releases {
    /// The release before
    old: String,
    /// The release behind
    new: String,
    /// One patch, by its name or its number on both releases (default: the whole series)
    #[arg(long, value_name = "PATCH")]
    patch: Option<String>,
    #[command(flatten)]
    asking: Asking,
    #[command(flatten)]
    form: TextForm,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt bisect commits 10.11.17 10.11.18 --workload oltp_read_only")]
struct Commits {
    /// The release that is known to be good: a tag of a git remote
    old: String,
    /// The release that is known to be bad: a later tag of the same remote
    new: String,
    /// Upstream alone, without the series
    #[arg(long)]
    bare: bool,
    #[command(flatten)]
    naming: Naming,
    #[command(flatten)]
    form: TextForm,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes are those of `git bisect run`: 0 good, 1 bad, 125 cannot be told, 128 anything else.

Examples:
  perfquilt bisect step --good v1 --bad v2 --workload oltp_read_only

In a repository of the server:
  git bisect start v2 v1
  git bisect run perfquilt -C WORKSPACE bisect step --good v1 --bad v2 --workload oltp_read_only"
)]
struct Step {
    /// The good commit, for comparison
    #[arg(long, value_name = "COMMIT")]
    good: String,
    /// The bad commit, for comparison
    #[arg(long, value_name = "COMMIT")]
    bad: String,
    #[command(flatten)]
    searching: Searching,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt bisect log
  perfquilt bisect log --raw > log.json")]
struct Log {
    /// The bisection's name (default: the latest)
    name: Option<String>,
    /// List the bisections instead
    #[arg(long, conflicts_with_all = ["name", "raw", "format"])]
    list: bool,
    /// Print the log itself, for `bisect replay`
    #[arg(long, conflicts_with = "format")]
    raw: bool,
    #[command(flatten)]
    form: TextForm,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt bisect replay log.json")]
struct Replay {
    /// A log as `bisect log --raw` prints it; - is standard input
    file: PathBuf,
    #[command(flatten)]
    form: TextForm,
}

/// A share as a fraction, or in per cent.
fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.trim().strip_suffix('%') {
        Some(number) => (number.trim(), 0.01),
        None => (text.trim(), 1.0),
    };
    match number.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(number * unit),
        _ => Err("a number is needed, as 0.5% or 0.005".to_owned()),
    }
}

impl Asking {
    /// What is asked, with the preset's settings: whether something is slower.
    ///
    /// # Errors
    /// [`Kind::Usage`] for unknown names and numbers that make no sense.
    fn ask(&self, ws: &Workspace) -> Result<Ask> {
        let preset = ws.config.preset(&self.preset)?.clone();
        let recipe = self.recipe.clone();
        let recipe = recipe.filter(|recipe| *recipe != preset.recipe);
        let preset = with_recipe(ws, preset, recipe.as_deref())?;
        let workload = match (&self.workload, preset.workloads.as_slice()) {
            (Some(name), _) => ws.config.workload(name)?.name.clone(),
            (None, [only]) => only.clone(),
            (None, several) => {
                return Err(Error::usage("a bisection looks at one workload")
                    .hint(format!("name it with --workload: {}", several.join(", "))));
            }
        };
        Ok(Ask {
            workload,
            meter: self.meter,
            direction: Direction::Slower,
            size: self.size,
            error: self.error,
            most_blocks: self.blocks,
            preset,
            preset_name: self.preset.clone(),
            recipe,
            fresh: self.fresh,
            profile: false,
            describe: perfquilt_report::bisect::step,
        })
    }
}

impl Searching {
    /// What is asked.
    ///
    /// # Errors
    /// As [`Asking::ask`].
    fn ask(&self, ws: &Workspace) -> Result<Ask> {
        Ok(Ask {
            direction: self.direction,
            ..self.asking.ask(ws)?
        })
    }
}

impl Naming {
    /// What is asked.
    ///
    /// # Errors
    /// As [`Asking::ask`].
    fn ask(&self, ws: &Workspace) -> Result<Ask> {
        Ok(Ask {
            profile: !self.no_profile,
            ..self.searching.ask(ws)?
        })
    }
}

/// `git bisect run`: the commit checked out is good.
const GOOD: u8 = 0;
/// `git bisect run`: it is bad.
const BAD: u8 = 1;
/// `git bisect run`: it cannot be told.
const SKIP: u8 = 125;
/// `git bisect run`: something is wrong, and the bisection ends.
const ABORT: u8 = 128;

/// The error of a command line whose `matches` have options of the search over the series beside a subcommand, which
/// has its own and would not heed them. The options of every command may stand there.
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

/// The exit code of a command line that clap refused with `code`: `git bisect run` would take 2 for "bad".
pub fn code_of_usage(args: &[OsString], code: u8) -> u8 {
    let has = |word: &str| args.iter().any(|arg| arg == word);
    if code != 0 && has("bisect") && has("step") {
        ABORT
    } else {
        code
    }
}

/// The exit code of an error that `git bisect run` sees.
pub fn code_for_git(error: &Error) -> u8 {
    match error.kind() {
        Kind::Interrupted => error.kind().exit_code(),
        _ => ABORT,
    }
}

/// Runs `perfquilt bisect`.
///
/// # Errors
/// Those of [`bisect`]; [`Kind::Inconclusive`] when it could not be decided.
pub fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.command {
        None => over_series(context, &arguments.over)?,
        Some(Sub::Releases(releases)) => over_releases(context, releases)?,
        Some(Sub::Commits(commits)) => over_commits(context, commits)?,
        Some(Sub::Step(step)) => {
            // git would take a panic's code for "bad".
            let step = AssertUnwindSafe(|| one_step(context, step));
            let code = std::panic::catch_unwind(step).unwrap_or(ABORT);
            return Ok(ExitCode::from(code));
        }
        Some(Sub::Log(log)) => show_log(context, log)?,
        Some(Sub::Replay(replay)) => replayed(context, replay)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The exit code that tells `git bisect run` what the commit is.
fn one_step(context: &Context, step: &Step) -> u8 {
    let found = context.workspace().and_then(|ws| {
        let ask = step.searching.ask(&ws)?;
        let progress = context.output.progress();
        let here = std::env::current_dir()
            .map_err(|error| Error::usage(format!("there is no current folder: {error}")))?;
        let states = CommitsHere::new(&ws, &here, (&step.good, &step.bad))?;
        side(&ws, &states, &ask, progress)
    });
    match found {
        Ok(Side::Good) => GOOD,
        Ok(Side::Bad) => BAD,
        Ok(Side::Unknown(reason)) => {
            let skipped = format!("this commit cannot be told: {reason}");
            context.output.progress().note(&skipped);
            SKIP
        }
        Err(error) => {
            context.output.error(&error);
            code_for_git(&error)
        }
    }
}

fn over_series(context: &Context, over: &Over) -> Result<()> {
    over.form.format(context)?;
    let ws = context.workspace()?;
    let Some(folder) = &over.outcome else {
        return search_series(context, over, &ws, &mut None);
    };
    super::run::usable(folder)?;
    let head = super::run::head(&ws, over.head.as_deref())?;
    let mut session = None;
    let done = search_series(context, over, &ws, &mut session);
    let failures = match &done {
        Err(error) if error.kind() != Kind::Inconclusive => vec![Failure::new(error, None)],
        _ => Vec::new(),
    };
    let told = outcome::put(folder, &head, failures, Made::Bisection(session.as_ref()));
    context.output.told(done, told)
}

/// Bisects the series and shows what it came to; `session` becomes the session of an outcome, once there is one.
fn search_series(
    context: &Context,
    over: &Over,
    ws: &Workspace,
    session: &mut Option<Session>,
) -> Result<()> {
    let progress = context.output.progress();
    let ask = over.naming.ask(ws)?;
    let version = over.release.as_deref();
    let prepared = prepare(ws, version, progress)?;
    let states = SeriesStates::new(&prepared, version, over.good, over.bad)?;
    let mut finished = bisect(ws, &states, &ask, progress)?;
    if over.outcome.is_some() {
        *session = Some(Sessions::of(ws).find(Some(&finished.name))?.session);
    }
    // Patches may be edited while it runs; what was asked about are those of before.
    let trees = |prepared: &perfquilt_measure::run::Prepared| -> Vec<String> {
        let steps = prepared.stack.steps.iter();
        steps.map(|step| step.tree.clone()).collect()
    };
    let changed = match prepare(ws, version, progress) {
        Ok(now) => trees(&now) != trees(&prepared),
        Err(_) => true,
    };
    if changed {
        finished.outcome.notes.push(
            "The series was edited meanwhile: this is the answer for the series as it was."
                .to_owned(),
        );
    }
    show(context, &over.form, &finished.outcome)?;
    decided(&finished.outcome)
}

fn over_releases(context: &Context, arguments: &Releases) -> Result<()> {
    let format = arguments.form.format(context)?;
    let ws = context.workspace()?;
    let progress = context.output.progress();
    let ask = arguments.asking.ask(&ws)?;
    let releases = (arguments.old.as_str(), arguments.new.as_str());
    let table = compare(&ws, releases, arguments.patch.as_deref(), &ask, progress)?;
    let output = &context.output;
    match format {
        TextFormat::Terminal => {
            output.print(&perfquilt_report::two_way::terminal(&table, output.width()))?
        }
        TextFormat::Markdown => output.print(&perfquilt_report::two_way::markdown(&table))?,
        TextFormat::Json => output.print_json(&table)?,
    }
    match table.whose {
        Whose::Undecided => Err(undecided()),
        _ => Ok(()),
    }
}

fn over_commits(context: &Context, arguments: &Commits) -> Result<()> {
    arguments.form.format(context)?;
    let ws = context.workspace()?;
    let progress = context.output.progress();
    let ask = arguments.naming.ask(&ws)?;
    let releases = (arguments.old.as_str(), arguments.new.as_str());
    let states = CommitStates::new(&ws, releases, arguments.bare, progress)?;
    let finished = bisect(&ws, &states, &ask, progress)?;
    show(context, &arguments.form, &finished.outcome)?;
    decided(&finished.outcome)
}

fn show_log(context: &Context, log: &Log) -> Result<()> {
    let ws = context.workspace()?;
    let sessions = Sessions::of(&ws);
    if log.list {
        return list(context, &sessions);
    }
    let kept = sessions.find(log.name.as_deref())?;
    if log.raw {
        return context.output.print_json(&kept.session);
    }
    show(context, &log.form, &kept.session.replay().outcome())
}

fn list(context: &Context, sessions: &Sessions) -> Result<()> {
    let mut rows = Vec::new();
    for name in sessions.names()? {
        let kept = sessions.find(Some(&name))?;
        let outcome = kept.session.replay().outcome();
        rows.push(serde_json::json!({
            "bisection": name,
            "release": outcome.question.release,
            "workload": outcome.question.workload,
            "meter": outcome.question.meter,
            "conclusion": outcome.conclusion,
            "blocks": outcome.cost.blocks,
        }));
    }
    if context.output.json() {
        let document = serde_json::json!({ "schema": 1, "bisections": rows });
        return context.output.print_json(&document);
    }
    let mut text = String::new();
    for row in &rows {
        let fields = ["bisection", "release", "workload", "meter", "conclusion"];
        let words: Vec<String> = fields
            .iter()
            .map(|field| super::output::plain(row[field].as_str().unwrap_or_default()))
            .collect();
        text.push_str(&format!("{}  {} blocks\n", words.join("  "), row["blocks"]));
    }
    context.output.print(&text)
}

fn replayed(context: &Context, replay: &Replay) -> Result<()> {
    let text = if replay.file.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
            .map_err(|error| Error::usage(format!("cannot read standard input: {error}")))?
    } else {
        std::fs::read_to_string(&replay.file).map_err(|error| {
            Error::usage(format!("cannot read {}: {error}", replay.file.display()))
        })?
    };
    let outcome = Session::parse(&text)?.replay().outcome();
    show(context, &replay.form, &outcome)
}

/// Prints a bisection in the form asked for.
///
/// # Errors
/// As [`TextForm::format`].
pub fn show(context: &Context, form: &TextForm, outcome: &Outcome) -> Result<()> {
    let output = &context.output;
    match form.format(context)? {
        TextFormat::Terminal => output.print(&perfquilt_report::bisect::terminal(
            outcome,
            output.width(),
            output.color(),
        )),
        TextFormat::Markdown => output.print(&perfquilt_report::bisect::markdown(outcome)),
        TextFormat::Json => output.print_json(outcome),
    }
}

/// The error that stands for a bisection that could not be decided.
fn decided(outcome: &Outcome) -> Result<()> {
    match outcome.conclusion {
        Conclusion::Undecided | Conclusion::Unfinished => Err(undecided()),
        Conclusion::Found | Conclusion::Nothing | Conclusion::Opposite => Ok(()),
    }
}

fn undecided() -> Error {
    Error::new(Kind::Inconclusive, "the blocks allowed do not decide it")
        .hint("`--blocks` allows more, a larger `--size` needs fewer")
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_are_fractions_or_per_cents() {
        assert_eq!(share("0.5%"), Ok(0.005));
        assert_eq!(share(" 1 % "), Ok(0.01));
        assert_eq!(share("0.005"), Ok(0.005));
        for text in ["", "%", "x", "nan", "inf%"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
