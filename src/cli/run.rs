//! `perfquilt run`: builds every point, measures, and reports.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdout, ExitCode};

use clap::Args;

use super::Context;
use super::choices;
use super::measuring::{MeasuringOptions, with_recipe};
use super::plain::plain_lines;
use super::report;
use super::report_options::ReportOptions;
use perfquilt_config::Preset;
use perfquilt_config::workspace::Workspace;
use perfquilt_measure::experiment::NoiseSource;
use perfquilt_measure::run::{RunForecast, RunJob, RunRequest, SandboxArea, series_of};
use perfquilt_model::counted::counted;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::failure::Failure;
use perfquilt_model::point::Point;
use perfquilt_model::progress;
use perfquilt_results::outcome::{self, RunStart};
use perfquilt_store::Store;
use perfquilt_system::process::quoted;

/// Arguments of `perfquilt run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquilt run                          the whole series, preset quick
  perfquilt run --point 0 --point 2      two points only
  perfquilt run --workload oltp_read_only --blocks 24
  perfquilt run --test                   the server's own tests first
  perfquilt run --effects alone,without  also each patch alone, and without it
  perfquilt run --dry-run                what it would measure, in what time
  perfquilt run --budget 30m             measure as much as fits in 30 minutes
  perfquilt run --sandbox                for patches that you have not reviewed
  perfquilt run --server 0=0 --server 1=0@pgo     plain and profile-guided
  perfquilt run --server 0=0 --server 1=11.8.6:0  two releases
  perfquilt run --server 0=old/ --server 1=new/   servers built elsewhere
  perfquilt run --json > attribution.json

Finished work is kept: an interrupted run continues where it stopped, and a run with nothing new to do \
only reports.")]
pub struct Arguments {
    #[command(flatten)]
    measuring: MeasuringOptions,
    /// Server to measure as this point, instead of the series: [RELEASE:]POINT[@RECIPE], built if necessary, or the folder
    /// of a server built elsewhere, laid out as the recipe's `install`
    #[arg(long = "server", value_name = "POINT=SERVER", value_parser = choices::server,
          conflicts_with_all = ["points", "release", "effects", "test", "outcome", "dry_run", "sandbox"])]
    servers: Vec<(Point, String)>,
    /// Recipe instead of the preset's
    #[arg(long, value_name = "NAME")]
    recipe: Option<String>,
    /// Run the server's own tests at every point of the series before measuring (default: as the preset says)
    #[arg(long)]
    test: bool,
    /// Folder to write the outcome to, for `perfquilt post`: raw observations and failures
    #[arg(long, value_name = "FOLDER", overrides_with = "outcome")]
    outcome: Option<PathBuf>,
    /// Commit to record in the outcome (default: the workspace's)
    #[arg(long, value_name = "COMMIT", requires = "outcome")]
    head: Option<String>,
    /// Print the forecast of blocks, interval widths, memory and time; build and measure nothing (fetches
    /// the release if necessary)
    #[arg(long, conflicts_with_all = ["outcome", "sandbox", "output", "flame_graph"])]
    dry_run: bool,
    /// Build and measure without access to network, home and secrets (needs bubblewrap)
    #[arg(long, conflicts_with_all = ["output", "flame_graph"])]
    sandbox: bool,
    /// The command runs in the sandbox that --sandbox creates
    #[arg(long, hide = true, requires = "sandbox")]
    in_sandbox: bool,
    #[command(flatten)]
    report: ReportOptions,
}

impl Arguments {
    /// Returns whether servers are named instead of points of the series.
    pub(super) fn names_servers(&self) -> bool {
        !self.servers.is_empty()
    }

    /// Returns the releases whose series are measured; `None` inside stands for the current one.
    fn releases(&self) -> Vec<Option<&str>> {
        if self.names_servers() {
            let servers = self.servers.iter();
            servers.filter_map(|(_, name)| series_of(name)).collect()
        } else {
            vec![self.measuring.release.as_deref()]
        }
    }

    /// Returns this command for a shell, without what does not change the figures.
    fn command(&self) -> String {
        let mut words = self.measuring.command();
        for (point, server) in &self.servers {
            words.push(format!("--server {}", quoted(&format!("{point}={server}"))));
        }
        if let Some(recipe) = &self.recipe {
            words.push(format!("--recipe {}", quoted(recipe)));
        }
        if self.sandbox {
            words.push("--sandbox".to_owned());
        }
        words.join(" ")
    }
}

/// Runs `perfquilt run`.
///
/// # Errors
/// Those of [`RunJob::run`]; after the report, the error of the last point that failed; those
/// requested by `--fail-on`.
pub fn run(context: &Context, arguments: &Arguments) -> Result<ExitCode> {
    if arguments.dry_run {
        return dry_run(context, arguments).map(|()| ExitCode::SUCCESS);
    }
    let folder = arguments.outcome.as_deref();
    folder.map_or(Ok(()), create_outcome_folder)?;
    let mut start = RunStart::now(String::new(), folder)?;
    let opened = open_workspace(context, arguments, &mut start.head);
    let target = folder.map(|folder| (folder, &start));
    let (ws, preset) = match opened {
        Ok(opened) => opened,
        Err(error) => return fail(context, target, error),
    };
    match (arguments.sandbox && !arguments.in_sandbox, target) {
        (true, Some((folder, start))) => {
            run_sandboxed_for_outcome(context, &ws, arguments, &preset, folder, start)
        }
        (true, None) => {
            let area = open_area(&ws, arguments)?;
            run_sandboxed(&area, None)
        }
        (false, target) => {
            run_directly(context, &ws, arguments, &preset, target).map(|()| ExitCode::SUCCESS)
        }
    }
}

/// Prints the forecast of the run.
fn dry_run(context: &Context, arguments: &Arguments) -> Result<()> {
    let ws = arguments.measuring.fresh.workspace(context)?;
    let measuring = &arguments.measuring;
    measuring.series.check(&ws, &arguments.releases())?;
    let preset = measuring.preset(&ws)?;
    let preset = with_recipe(&ws, preset, arguments.recipe.as_deref())?;
    let release = measuring.release.as_deref();
    let request = measuring.request(&preset, None);
    let job = RunJob {
        ws: &ws,
        preset: &preset,
        wanted: &request,
    };
    let found = job.foresee(release)?;
    let budget = request.budget.map(|budget| budget.duration.as_secs_f64());
    if let Some(warning) = budget.and_then(|budget| found.forecast.over_budget(budget)) {
        progress::warn(warning);
    }
    let json = serde_json::json!({ "schema": 1, "forecast": found });
    let text = || forecast_text(&found, &preset);
    context.output.result(&json, text)
}

fn forecast_text(found: &RunForecast, preset: &Preset) -> String {
    let forecast = &found.forecast;
    let percent = |fraction: f64| format!("{:.2} %", 100.0 * fraction);
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    let builds = match found.unbuilt.len() {
        0 => "all points are built".to_owned(),
        count => format!("{} to build", counted(count, "point", "points")),
    };
    let mut servers = format!("{} at once{}", forecast.servers, forecast.places());
    if forecast.windows > 1 {
        servers += &format!(", in {} windows", forecast.windows);
    }
    let needed = forecast
        .memory
        .map_or_else(|| "unknown before the data is prepared".to_owned(), gib);
    let memory = match forecast.available_memory {
        Some(available) if forecast.memory.is_some() => {
            format!("{needed} of {} available", gib(available))
        }
        Some(available) => format!("{needed}; {} available", gib(available)),
        None => format!("{needed}, on each machine"),
    };
    let mut blocks = match preset.resolution {
        _ if forecast.blocks == 0 => "none: the series has no patches".to_owned(),
        Some(resolution) if forecast.blocks < forecast.most_blocks => format!(
            "about {} of at most {} for ±{}",
            forecast.blocks,
            forecast.most_blocks,
            percent(resolution)
        ),
        Some(resolution) => format!(
            "{}, which give {} instead of ±{}",
            forecast.most_blocks,
            forecast.width(),
            percent(resolution)
        ),
        None => format!(
            "{}, which give {}{}",
            forecast.blocks,
            forecast.width(),
            forecast.range()
        ),
    };
    if forecast.windows > 1 {
        blocks += ", in each window";
    }
    if forecast.count_blocks > 0 {
        blocks += &format!("; {} counted", forecast.count_blocks);
    }
    let source = match &forecast.noise_source {
        NoiseSource::Experiment(name) if forecast.guessed_noise.is_empty() => {
            format!("from {name}")
        }
        NoiseSource::Experiment(name) => {
            format!(
                "from {name}; a guess for {}",
                forecast.guessed_noise.join(", ")
            )
        }
        NoiseSource::Assumed => "a guess: no run has timed these workloads".to_owned(),
    };
    let time = match (found.is_measured, forecast.guessed_seconds) {
        (true, _) => {
            "nothing to measure: every point is measured already (`--fresh` measures again)"
                .to_owned()
        }
        (false, true) => format!(
            "about {}, a guess: no run tells how long blocks take",
            forecast.duration()
        ),
        (false, false) => format!("about {} to measure", forecast.duration()),
    };
    let lines = [
        (
            "points",
            format!("{} with the control; {builds}", forecast.points),
        ),
        ("servers", servers),
        ("memory", memory),
        ("blocks", blocks),
        (
            "noise",
            format!("{} a value, {source}", percent(forecast.noise)),
        ),
        ("time", time),
    ];
    let mut text = format!(
        "{}, recipe {}: {}\n",
        found.release,
        preset.recipe,
        preset.workloads.join(", ")
    );
    for (name, value) in lines {
        text += &format!("  {name:8} {value}\n");
    }
    text
}

/// Creates the folder of an outcome, and checks that it can be written before any work is done for it.
pub(super) fn create_outcome_folder(folder: &Path) -> Result<()> {
    let refused = |error: std::io::Error| {
        Error::output(format!(
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
    let ws = arguments.measuring.fresh.workspace(context);
    *commit = match &ws {
        Ok(ws) if arguments.outcome.is_some() => outcome_commit(ws, given)?,
        _ => given
            .map(perfquilt_forge::parse_commit)
            .transpose()?
            .unwrap_or_default(),
    };
    let ws = ws?;
    arguments.report.check(context)?;
    // The sandbox has series and patches alone, which were checked outside of it.
    if !arguments.in_sandbox {
        let releases = arguments.releases();
        arguments.measuring.series.check(&ws, &releases)?;
    }
    let preset = arguments.measuring.preset(&ws)?;
    let mut preset = with_recipe(&ws, preset, arguments.recipe.as_deref())?;
    preset.test |= arguments.test;
    Ok((ws, preset))
}

/// Writes an outcome with nothing but `error`. It replaces that of an earlier run.
fn write_failure(folder: &Path, start: &RunStart, error: &Error) -> Result<()> {
    outcome::write(folder, start, vec![Failure::new(error, None)], None)
}

/// Returns the error that ended the run, after writing it to the outcome, if one is requested.
fn fail<T>(context: &Context, target: Option<(&Path, &RunStart)>, error: Error) -> Result<T> {
    let written = target.map(|(folder, start)| write_failure(folder, start, &error));
    context
        .output
        .combine(Err(error), written.unwrap_or(Ok(())))
}

/// Returns the commit to record in the outcome: the one that is `given`, else the workspace's; empty when unknown.
pub(super) fn outcome_commit(ws: &Workspace, given: Option<&str>) -> Result<String> {
    match given {
        Some(given) => perfquilt_forge::parse_commit(given),
        None => Ok(outcome::workspace_commit(ws)),
    }
}

/// Runs [`run_sandboxed`] and copies its outcome to `folder`, as that of the run `start`.
fn run_sandboxed_for_outcome(
    context: &Context,
    ws: &Workspace,
    arguments: &Arguments,
    preset: &Preset,
    folder: &Path,
    start: &RunStart,
) -> Result<ExitCode> {
    let run = || {
        let area = open_area(ws, arguments)?;
        let made = area.outcome()?;
        let budget = arguments.measuring.budget.or(preset.budget);
        let preset = Preset {
            budget,
            ..preset.clone()
        };
        let asked = start.clone().asking(&preset, made.path())?;
        let code = run_sandboxed(&area, Some(made.path()))?;
        Ok((code, made, asked))
    };
    match run() {
        // The run in the sandbox does not know the commit of the series.
        Ok((code, made, asked)) => {
            let margin = |meter| ws.config.margin(meter);
            let silent = !made.path().join(outcome::OUTCOME_FILE).exists();
            let taken = outcome::copy_untrusted(made.path(), folder, &asked, false, &margin);
            let written = taken.or_else(|error| {
                let error = if silent {
                    Error::internal("the run ended without writing its outcome").hint("see its log")
                } else {
                    error
                };
                write_failure(folder, start, &error)
            });
            context.output.combine(Ok(code), written)
        }
        // It does not know either why it was ended.
        Err(error) => fail(context, Some((folder, start)), error),
    }
}

/// Opens the area of the sandboxed run.
fn open_area<'a>(ws: &'a Workspace, arguments: &'a Arguments) -> Result<SandboxArea<'a>> {
    if let Some(on) = arguments.measuring.preset(ws)?.on {
        return Err(Error::sandbox_unavailable(format!(
            "a sandbox has no network, so it cannot use the cluster of `{on}`"
        ))
        .hint("choose a preset without `on`"));
    }
    let release = arguments.measuring.release.as_deref();
    SandboxArea::open(ws, release)
}

/// Runs the same command in a sandbox; it writes its outcome to the folder `outcome`.
fn run_sandboxed(area: &SandboxArea<'_>, outcome: Option<&Path>) -> Result<ExitCode> {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    // The last of two values counts.
    words.push("--in-sandbox".into());
    without_color(&mut words);
    if let Some(folder) = outcome {
        words.extend(["--outcome".into(), folder.into()]);
    }
    relayed(|relay| area.run(&words, outcome, relay)).map(ExitCode::from)
}

/// The streams of a program in a sandbox, as they are handed over once it runs.
type Relay<'a> = dyn FnMut(Option<ChildStdout>, Option<ChildStderr>) + 'a;

/// Copies the streams of the program that `start` starts to those of this one; returns what `start` returns.
pub(super) fn relayed(start: impl FnOnce(&mut Relay<'_>) -> Result<u8>) -> Result<u8> {
    let mut relays = Vec::new();
    let code = start(&mut |stdout, stderr| {
        let stdout = stdout.map(|from| std::thread::spawn(|| relay(from, std::io::stdout())));
        let stderr = stderr.map(|from| std::thread::spawn(|| relay(from, std::io::stderr())));
        relays.extend(stdout.into_iter().chain(stderr));
    });
    for relay in relays {
        // It ends with the stream, which ends with the sandbox.
        let _ = relay.join();
    }
    code
}

/// Replaces a request for colours, whose control sequences would not reach the terminal.
fn without_color(words: &mut [OsString]) {
    let mut is_value = false;
    for word in words {
        if *word == "--color=always" {
            *word = "--color=never".into();
        } else if is_value && *word == "always" {
            *word = "never".into();
        }
        is_value = *word == "--color";
    }
}

/// Copies what code in a sandbox wrote, line by line and made harmless for a terminal or a log.
fn relay(from: impl Read, mut to: impl Write) {
    /// Longer lines are shown in parts.
    const LONGEST_LINE: u64 = 1 << 20;
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while matches!(
        from.by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line),
        Ok(1..)
    ) {
        let text = without_commands(&plain_lines(&String::from_utf8_lossy(&line)));
        // The stream is read to its end even if nobody reads ours any more.
        let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
        line.clear();
    }
}

/// Breaks what GitHub Actions would read as a command in a log.
fn without_commands(line: &str) -> String {
    let line = line.replace("##[", "## [");
    match line.trim_start().strip_prefix("::") {
        Some(rest) => format!(": :{rest}"),
        None => line,
    }
}

/// Runs without a sandbox; `target` is the folder of the outcome and the start to record in it.
fn run_directly(
    context: &Context,
    ws: &Workspace,
    arguments: &Arguments,
    preset: &Preset,
    target: Option<(&Path, &RunStart)>,
) -> Result<()> {
    let measuring = &arguments.measuring;
    let request = RunRequest {
        commit: outcome::whole_commit(ws),
        ..measuring.request(preset, Some(arguments.command()))
    };
    let job = RunJob {
        ws,
        preset,
        wanted: &request,
    };
    let outcome = if arguments.names_servers() {
        job.run_servers(&arguments.servers)
    } else {
        job.run(measuring.release.as_deref())
    };
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return fail(context, target, error),
    };
    let store = Store::open_existing(&ws.results())?;
    let written = match target {
        Some((folder, start)) => {
            let experiment = Some((&store, outcome.experiment));
            outcome::write(folder, start, outcome.failures(), experiment)
        }
        None => Ok(()),
    };
    let id = outcome.experiment;
    let show = || report::show_stored(context, &arguments.report, ws, &store, id);
    if let Some(error) = outcome.stopped {
        // What was measured before is worth a report, unless a signal ended it.
        let is_shown = match error.kind() {
            Kind::Interrupted => Ok(false),
            _ => store.has_observations(id),
        };
        let shown = is_shown.and_then(|is_shown| if is_shown { show() } else { Ok(()) });
        let failed = context.output.combine(Err(error), shown);
        return context.output.combine(failed, written);
    }
    let judged = show();
    // Build errors come last, so that they determine the exit code.
    let failed = outcome.failed;
    let points = failed.points.into_iter().chain(outcome.build_errors);
    let errors = judged
        .err()
        .into_iter()
        .chain(outcome.tests.lacking.into_iter().map(|(_, error)| error))
        .chain(outcome.tests.new)
        .chain(failed.workloads.into_values())
        .chain(points.map(|(_, error)| error));
    let done = context.output.errors(errors.collect());
    context.output.combine(done, written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_inside_controls_a_terminal_or_a_log() {
        let from =
            b"a\x1b]0;title\x07\n::add-mask::x\n  ::error::x\nb ##[group]c\n\xff\r\x1b[2Jend";
        let mut to = Vec::new();
        relay(&from[..], &mut to);
        assert_eq!(
            String::from_utf8(to).unwrap(),
            "a\u{fffd}]0;title\u{fffd}\n: :add-mask::x\n: :error::x\nb ## [group]c\n\u{fffd}\u{fffd}\u{fffd}[2Jend"
        );
        let mut words: Vec<OsString> = ["--color", "always", "run", "--color=always", "always"]
            .map(OsString::from)
            .into();
        without_color(&mut words);
        assert_eq!(
            words,
            ["--color", "never", "run", "--color=never", "always"]
        );
    }
}
