//! Runs one job: perfquilt in the workspace of a pull request, with or without a sandbox.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::area::{self, Area};
use super::command::Command;
use perfquilt_bench::sandbox::{LimitedProcess, ProcessEnd, Sandbox, supervise, time_exceeded};
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Config, Preset, SandboxMode, UntrustedPolicy};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::INTERIM_SECONDS;
use perfquilt_system::git;
use perfquilt_system::process::{self, Child, Sink};

/// How a job's code is isolated from the bot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Isolation {
    /// No isolation.
    None,
    /// A sandbox with caches and results of its own, whoever the author is.
    Sandbox,
}

impl Isolation {
    /// Selects the isolation for code of a `trusted` or an untrusted author; the error is the reason why the bot does not run it.
    pub(super) fn of(
        config: &Config,
        sandbox: &std::result::Result<(), String>,
        trusted: bool,
    ) -> std::result::Result<Self, String> {
        let bot = &config.bot;
        let untrusted = "the author is not among those whose code is run here";
        if !trusted && bot.run_untrusted == UntrustedPolicy::Never {
            return Err(untrusted.to_owned());
        }
        let missing = match (bot.sandbox, sandbox) {
            (SandboxMode::Off, _) => "the sandbox is switched off",
            (_, Ok(())) => return Ok(Isolation::Sandbox),
            (SandboxMode::Required, Err(why)) => return Err(format!("there is no sandbox: {why}")),
            (SandboxMode::Auto, Err(why)) => why,
        };
        if trusted || bot.run_untrusted == UntrustedPolicy::Unsandboxed {
            Ok(Isolation::None)
        } else {
            Err(format!("{untrusted} without a sandbox: {missing}"))
        }
    }
}

/// How a job's process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JobEnd {
    /// The process exited; its outcome file has the result.
    Exited,
    /// The job was cancelled.
    Cancelled,
    /// The job exceeded this limit.
    LimitExceeded(String),
}

/// Returns the number of the patch that a command names, if any.
pub(super) fn patch_number(command: &Command) -> Option<usize> {
    match command {
        Command::RunPatch { patch } | Command::DropDryRun { patch } => Some(*patch),
        _ => None,
    }
}

/// Returns the preset that `command` measures with; `None` when it measures nothing, or the preset is unknown.
pub(super) fn preset_of<'a>(command: &Command, config: &'a Config) -> Option<&'a Preset> {
    let usual = &config.bot.preset;
    let name = match command {
        Command::Run { preset } => preset.as_ref().unwrap_or(usual),
        Command::RunPatch { .. } | Command::DropDryRun { .. } | Command::Bisect { .. } => usual,
        _ => return None,
    };
    config.preset.get(name)
}

/// Returns the points to measure in a series of `count` patches; `None` means all in order.
fn points(command: &Command, count: usize) -> Option<Vec<String>> {
    match command {
        // A patch's effect is its difference from the patch before it.
        Command::RunPatch { patch } => {
            let points = [patch.saturating_sub(1), *patch];
            Some(points.map(|point| point.to_string()).into())
        }
        Command::DropDryRun { patch } => {
            let points = (0..=count).map(|point| point.to_string());
            Some(points.chain([format!("without:{patch}")]).collect())
        }
        _ => None,
    }
}

/// Returns the arguments of `perfquilt` that execute a command on a series of `count` patches; `None` when the
/// command is not a job.
pub(super) fn run_arguments(command: &Command, preset: &str, count: usize) -> Option<Vec<String>> {
    let mut words = match command {
        Command::Run { preset: named } => {
            vec!["run", "--preset", named.as_deref().unwrap_or(preset)]
        }
        Command::RunPatch { .. } | Command::DropDryRun { .. } => vec!["run", "--preset", preset],
        Command::Bisect { workload } => vec!["bisect", "--preset", preset, "--workload", workload],
        _ => return None,
    };
    let points = points(command, count);
    for point in points.iter().flatten() {
        words.extend(["--point", point]);
    }
    Some(words.into_iter().map(str::to_owned).collect())
}

/// Returns the arguments of `perfquilt` that build the points that `command` measures in a series of `count`
/// patches; `None` when the points to build depend on measurements, or the preset is unknown.
pub(super) fn build_arguments(
    command: &Command,
    config: &Config,
    count: usize,
) -> Option<Vec<String>> {
    let has_points = !matches!(command, Command::Bisect { .. });
    let preset = preset_of(command, config).filter(|_| has_points)?;
    let mut words = vec![
        "build".to_owned(),
        "--recipe".to_owned(),
        preset.recipe.clone(),
    ];
    if let Some(on) = &preset.on {
        words.extend(["--on".to_owned(), on.clone()]);
    }
    if let Some(points) = points(command, count) {
        // Every measurement includes the unpatched release.
        words.push("0".to_owned());
        words.extend(points);
    }
    Some(words)
}

/// Returns the arguments of `perfquilt` that build the release for `command` on this machine; `None` when it measures
/// nothing, or elsewhere.
pub(super) fn release_arguments(command: &Command, config: &Config) -> Option<Vec<String>> {
    let preset = preset_of(command, config)?;
    let words = ["build", "--recipe", &preset.recipe, "0"];
    let here = preset.on.is_none();
    here.then(|| words.map(str::to_owned).into())
}

/// A job's workspace and the limits of its process.
#[derive(Debug)]
pub(super) struct JobEnvironment {
    /// The workspace's directory.
    pub folder: PathBuf,
    /// The sandbox with its readable and writable paths; `None` to run without one.
    pub sandbox: Option<Sandbox>,
    /// The maximum run time without a sandbox, in hours; a sandbox enforces its own limits.
    pub hours: u64,
}

impl JobEnvironment {
    /// Returns the environment of the bot's own workspace, whose code is trusted.
    pub(super) fn of_bot(ws: &Workspace) -> Self {
        JobEnvironment {
            folder: ws.root().to_owned(),
            sandbox: None,
            hours: ws.config.sandbox.hours,
        }
    }

    /// Prepares the process environment of the job in `area`, derived from `ws`: in a sandbox that writes to folders of the area and
    /// nowhere else, or without one. Code of a `trusted` author may use real-time scheduling.
    pub(super) fn new(ws: &Workspace, area: &Area, sandboxed: bool, trusted: bool) -> Result<Self> {
        let (folder, outcome) = (area.workspace(), area.outcome());
        area::recreate(&outcome)?;
        area::make(ws.cache())?;
        let sandbox = sandboxed.then(|| {
            let sandbox = Sandbox::new(&ws.config.sandbox)
                .read(&ws.bench_config())
                .write(&area.state())
                .caches(&area.cache(), ws.cache())
                .read(&folder)
                .write(&outcome);
            if trusted {
                sandbox.real_time()
            } else {
                sandbox
            }
        });
        Ok(JobEnvironment {
            folder,
            sandbox,
            hours: ws.config.sandbox.hours,
        })
    }
}

/// The process of a job without a sandbox, which is limited to some hours.
struct Unsandboxed {
    child: Child,
    started: Instant,
    hours: u64,
}

impl LimitedProcess for Unsandboxed {
    fn wait_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        self.child.wait_within(limit)
    }

    fn enforce_limits(&mut self) -> Result<Option<String>> {
        let over = time_exceeded(self.started, self.hours);
        if over.is_some() {
            self.child.kill()?;
        }
        Ok(over)
    }

    fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        self.child.stop(grace)
    }
}

/// Runs the program `tool` with `arguments` in the workspace of `job` until it exits, `cancelled` returns true,
/// or a signal asks the bot to stop. Runs on the processors `cpus`; `None` means all. Passes each line that the
/// program writes to standard error to `on_line`.
///
/// # Errors
/// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted) when the bot stops; the next run of the
/// same job resumes it.
pub(super) fn run(
    tool: &Path,
    job: &JobEnvironment,
    arguments: &[String],
    cpus: Option<&[usize]>,
    cancelled: &dyn Fn() -> bool,
    on_line: impl Fn(&str) + Send + 'static,
) -> Result<JobEnd> {
    let mut words: Vec<OsString> = vec!["-C".into(), job.folder.clone().into()];
    words.extend(arguments.iter().map(OsString::from));
    let (mut running, stderr): (Box<dyn LimitedProcess>, _) = match &job.sandbox {
        Some(sandbox) => {
            let sandbox = sandbox.clone().cpus(cpus.unwrap_or_default());
            // The status shows the last line.
            let sandbox = sandbox.env(INTERIM_SECONDS, "0");
            let sinks = (Sink::Null, Sink::Pipe);
            let mut inside = sandbox.start(tool, &words, &job.folder, sinks)?;
            let stderr = inside.take_stderr();
            (Box::new(inside), stderr)
        }
        None => {
            let command = process::Command::new(tool).args(words);
            let command = command.env(INTERIM_SECONDS, "0");
            let command = git::settings().fold(command, |of, (name, value)| of.env(name, value));
            let command = match cpus {
                Some(cpus) => command.cpus(cpus),
                None => command,
            };
            let mut child = command.stdout(Sink::Null).stderr(Sink::Pipe).spawn()?;
            let stderr = child.take_stderr();
            let outside = Unsandboxed {
                child,
                started: Instant::now(),
                hours: job.hours,
            };
            (Box::new(outside), stderr)
        }
    };
    if let Some(stream) = stderr {
        use std::io::{BufRead, BufReader, Read};
        // The pipe must be drained, or the process blocks; the thread ends when the pipe closes. Endless lines
        // are cut.
        std::thread::spawn(move || {
            const MAX_LINE_BYTES: u64 = 4096;
            let mut reader = BufReader::new(stream);
            let mut line = Vec::new();
            while matches!(
                reader
                    .by_ref()
                    .take(MAX_LINE_BYTES)
                    .read_until(b'\n', &mut line),
                Ok(1..)
            ) {
                on_line(String::from_utf8_lossy(&line).trim());
                line.clear();
            }
        });
    }
    match supervise(&mut *running, cancelled)? {
        ProcessEnd::Exited(_) => Ok(JobEnd::Exited),
        ProcessEnd::Interrupted(_) => Err(Error::interrupted()),
        ProcessEnd::Cancelled => Ok(JobEnd::Cancelled),
        ProcessEnd::LimitExceeded(what) => Ok(JobEnd::LimitExceeded(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_measured_against_the_one_before_it() {
        let words = |command: &Command| run_arguments(command, "quick", 3).unwrap().join(" ");
        assert_eq!(
            words(&Command::RunPatch { patch: 2 }),
            "run --preset quick --point 1 --point 2"
        );
        assert_eq!(
            words(&Command::DropDryRun { patch: 2 }),
            "run --preset quick --point 0 --point 1 --point 2 --point 3 --point without:2"
        );
        assert_eq!(words(&Command::Run { preset: None }), "run --preset quick");
        assert_eq!(run_arguments(&Command::Help, "quick", 3), None);
    }

    #[test]
    fn the_release_is_built_for_what_is_measured_on_this_machine() {
        let text = "[upstream]\nname=\"x\"\ncurrent=\"1\"\n[recipe]\n[server]\nadapter=\"mariadb\"\n\
                    [preset.quick]\nrecipe=\"small\"\nworkloads=[\"w\"]\nmeters=[\"time\"]\nblocks=2\n\
                    block_seconds=1.0\n[bot]\n";
        let config: Config = toml::from_str(text).unwrap();
        let words = |command: &Command| release_arguments(command, &config).map(|it| it.join(" "));
        let built = Some("build --recipe small 0".to_owned());
        assert_eq!(words(&Command::Run { preset: None }), built);
        assert_eq!(words(&Command::RunPatch { patch: 2 }), built);
        assert_eq!(words(&Command::Help), None);
        let mut elsewhere = config.clone();
        elsewhere.preset.get_mut("quick").unwrap().on = Some("slurm".to_owned());
        let command = Command::Run { preset: None };
        assert_eq!(release_arguments(&command, &elsewhere), None);
    }

    #[test]
    fn isolation_follows_configuration_and_trust() {
        let text = "[upstream]\nname=\"x\"\ncurrent=\"1\"\n[recipe]\n[preset]\n[server]\nadapter=\"mariadb\"\n[bot]\n";
        let of = |bot: &str, works: bool, trusted: bool| {
            let config: Config = toml::from_str(&format!("{text}{bot}")).unwrap();
            let sandbox = works.then_some(()).ok_or_else(|| "no bwrap".to_owned());
            Isolation::of(&config, &sandbox, trusted).ok()
        };
        let (never, open) = (
            "run_untrusted = \"never\"",
            "run_untrusted = \"unsandboxed\"",
        );
        let (off, required) = ("sandbox = \"off\"", "sandbox = \"required\"");
        let off_open = format!("{off}\n{open}");
        for (bot, works, trusted, expected) in [
            ("", true, true, Some(Isolation::Sandbox)),
            ("", true, false, Some(Isolation::Sandbox)),
            ("", false, true, Some(Isolation::None)),
            ("", false, false, None),
            (never, true, true, Some(Isolation::Sandbox)),
            (never, true, false, None),
            (open, true, false, Some(Isolation::Sandbox)),
            (open, false, false, Some(Isolation::None)),
            (off, true, true, Some(Isolation::None)),
            (off, true, false, None),
            (&off_open, true, false, Some(Isolation::None)),
            (required, false, true, None),
            (required, false, false, None),
            (required, true, true, Some(Isolation::Sandbox)),
        ] {
            assert_eq!(of(bot, works, trusted), expected, "{bot} {works} {trusted}");
        }
    }
    #[test]
    fn a_job_without_a_sandbox_is_limited_too() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = JobEnvironment {
            folder: folder.path().to_owned(),
            sandbox: None,
            hours: 0,
        };
        // `env -C FOLDER sleep 600`.
        let arguments = ["sleep".to_owned(), "600".to_owned()];
        let tool = Path::new("/usr/bin/env");
        let ended = run(tool, &workspace, &arguments, None, &|| false, |_| {}).unwrap();
        assert_eq!(ended, JobEnd::LimitExceeded("more than 0 hours".to_owned()));
    }
}
