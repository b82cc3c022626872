//! One job: perfquilt in the workspace of a pull request, in a sandbox or without.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ExitStatus};
use std::time::{Duration, Instant};

use super::area::Area;
use super::command::Command;
use super::places::Places;
use super::source;
use perfquilt_config::workspace::Workspace;
use perfquilt_config::{Config, Untrusted, UseSandbox};
use perfquilt_machine::sandbox::{End, Inside, Sandbox, Watched, too_long, watch};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::{self, Child, Sink};

/// How a job's code is kept from doing harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    /// Not at all.
    Bare,
    /// In a sandbox that may write the bot's caches and results.
    Shared,
    /// In a sandbox with caches and results of its own.
    Apart,
}

impl Guard {
    /// How code of an author who is `trusted`, or not, is run.
    ///
    /// # Errors
    /// In words, why it is not.
    pub(super) fn of(
        config: &Config,
        sandbox: &std::result::Result<(), String>,
        trusted: bool,
    ) -> std::result::Result<Self, String> {
        let bot = &config.bot;
        let stranger = "the author is not among those whose code is run here";
        if !trusted && bot.run_untrusted == Untrusted::Never {
            return Err(stranger.to_owned());
        }
        let missing = match (bot.sandbox, sandbox) {
            (UseSandbox::Off, _) => "the sandbox is switched off",
            (_, Ok(())) if trusted => return Ok(Guard::Shared),
            (_, Ok(())) => return Ok(Guard::Apart),
            (UseSandbox::Required, Err(why)) => return Err(format!("there is no sandbox: {why}")),
            (UseSandbox::Auto, Err(why)) => why,
        };
        if trusted || bot.run_untrusted == Untrusted::Unsandboxed {
            Ok(Guard::Bare)
        } else {
            Err(format!("{stranger} without a sandbox: {missing}"))
        }
    }
}

/// How a job's process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// By itself; the outcome says what it came to.
    Itself,
    /// Because the job is not wanted any more.
    Cancelled,
    /// Because it used more than it may, of what this says.
    Limited(String),
}

/// The patch that a wish is about, if it is about one.
pub(super) fn patch(wish: &Command) -> Option<usize> {
    match wish {
        Command::RunPatch { patch } | Command::DropDryRun { patch } => Some(*patch),
        _ => None,
    }
}

/// The points that are measured of a series of `count` patches; none for all in order.
fn points(wish: &Command, count: usize) -> Vec<String> {
    match wish {
        // A patch is worth what it adds to the one before it.
        Command::RunPatch { patch } => [patch.saturating_sub(1), *patch]
            .map(|point| point.to_string())
            .into(),
        Command::DropDryRun { patch } => (0..=count)
            .map(|point| point.to_string())
            .chain([format!("without:{patch}")])
            .collect(),
        _ => Vec::new(),
    }
}

/// The arguments of `perfquilt` that carry out a wish about a series of `count` patches; `None` for what is no
/// job.
pub(super) fn arguments(wish: &Command, preset: &str, count: usize) -> Option<Vec<String>> {
    let mut words = match wish {
        Command::Run { preset: named } => {
            vec!["run", "--preset", named.as_deref().unwrap_or(preset)]
        }
        Command::RunPatch { .. } | Command::DropDryRun { .. } => vec!["run", "--preset", preset],
        Command::Bisect { workload } => vec!["bisect", "--preset", preset, "--workload", workload],
        _ => return None,
    };
    let points = points(wish, count);
    for point in &points {
        words.extend(["--point", point]);
    }
    Some(words.into_iter().map(str::to_owned).collect())
}

/// The arguments of `perfquilt` that build what `wish` measures of a series of `count` patches; `None` when what
/// is built follows from what is measured, or the preset is unknown.
pub(super) fn building(wish: &Command, config: &Config, count: usize) -> Option<Vec<String>> {
    let usual = &config.bot.preset;
    let preset = match wish {
        Command::Run { preset } => preset.as_ref().unwrap_or(usual),
        Command::RunPatch { .. } | Command::DropDryRun { .. } => usual,
        _ => return None,
    };
    let recipe = &config.preset.get(preset)?.recipe;
    let mut words = vec!["build".to_owned(), "--recipe".to_owned(), recipe.clone()];
    let points = points(wish, count);
    if !points.is_empty() {
        // The bare release is measured with every point.
        words.push("0".to_owned());
    }
    words.extend(points);
    Some(words)
}

/// A job whose workspace is made.
#[derive(Debug)]
pub(super) struct Ready {
    /// Its workspace.
    pub folder: PathBuf,
    /// What it may see and write; `None` for everything.
    pub sandbox: Option<Sandbox>,
    /// Hours it may take without a sandbox; one has its own limits.
    pub hours: u64,
}

impl Ready {
    /// The workspace of `job`, a job of `ws`, guarded so.
    pub(super) fn new(
        ws: &Workspace,
        places: &Places,
        job: &Path,
        guard: Guard,
        area: Option<&Area>,
    ) -> Result<Self> {
        let outcome = source::outcome(job);
        for folder in [&*outcome, ws.cache()] {
            std::fs::create_dir_all(folder).map_err(|e| Error::io("make", folder, &e))?;
        }
        let inside = Sandbox::new(&ws.config.sandbox).read(&ws.bench_config());
        let sandbox = match (guard, area) {
            (Guard::Bare, _) => None,
            (Guard::Apart, Some(area)) => {
                Some(inside.write(&area.state).caches(&area.cache, ws.cache()))
            }
            (Guard::Apart, None) => {
                return Err(Error::internal("a job apart without an area of its own"));
            }
            (Guard::Shared, _) => Some(
                inside
                    .real_time()
                    .write(&ws.state())
                    .hide(places.root())
                    .write(ws.cache())
                    .env("XDG_CACHE_HOME", ws.cache().parent().unwrap_or(ws.root())),
            ),
        };
        Ok(Ready {
            folder: job.to_owned(),
            sandbox: sandbox.map(|sandbox| sandbox.read(job).write(&outcome)),
            hours: ws.config.sandbox.hours,
        })
    }
}

/// A process of a job.
enum Running {
    Bare {
        child: Child,
        started: Instant,
        hours: u64,
    },
    Inside(Inside),
}

impl Running {
    fn take_stderr(&mut self) -> Option<ChildStderr> {
        match self {
            Running::Bare { child, .. } => child.take_stderr(),
            Running::Inside(inside) => inside.take_stderr(),
        }
    }
}

impl Watched for Running {
    fn wait_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        match self {
            Running::Bare { child, .. } => child.wait_within(limit),
            Running::Inside(inside) => inside.wait_within(limit),
        }
    }

    fn keep_limits(&mut self) -> Result<Option<String>> {
        match self {
            Running::Bare {
                child,
                started,
                hours,
            } => {
                let over = too_long(*started, *hours);
                if over.is_some() {
                    child.kill()?;
                }
                Ok(over)
            }
            Running::Inside(inside) => inside.keep_limits(),
        }
    }

    fn stop(&mut self, grace: Duration) -> Result<ExitStatus> {
        match self {
            Running::Bare { child, .. } => child.stop(grace),
            Running::Inside(inside) => inside.stop(grace),
        }
    }
}

/// Runs the program `tool` with `arguments` in the workspace of `job` until it ends, `unwanted` says so, or a
/// signal asks the bot to stop; on the processors `cpus`, or all when there are none. `tell` gets what it says
/// it is doing.
///
/// # Errors
/// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted) when the bot is to stop: the next run of the same job
/// goes on.
pub(super) fn run(
    tool: &Path,
    job: &Ready,
    arguments: &[String],
    cpus: &[usize],
    unwanted: &dyn Fn() -> bool,
    tell: impl Fn(&str) + Send + 'static,
) -> Result<Ended> {
    let mut words: Vec<OsString> = vec!["-C".into(), job.folder.clone().into()];
    words.extend(arguments.iter().map(OsString::from));
    let mut running = match &job.sandbox {
        Some(sandbox) => {
            let sandbox = sandbox.clone().cpus(cpus);
            Running::Inside(sandbox.start(tool, &words, &job.folder, (Sink::Null, Sink::Pipe))?)
        }
        None => {
            let command = process::Command::new(tool).args(words);
            let command = match cpus {
                [] => command,
                cpus => command.cpus(cpus),
            };
            Running::Bare {
                child: command.stdout(Sink::Null).stderr(Sink::Pipe).spawn()?,
                started: Instant::now(),
                hours: job.hours,
            }
        }
    };
    if let Some(stream) = running.take_stderr() {
        use std::io::{BufRead, BufReader, Read};
        // The pipe must be emptied; the thread ends with it. A line that never ends is cut.
        std::thread::spawn(move || {
            const LONGEST: u64 = 4096;
            let mut reader = BufReader::new(stream);
            let mut line = Vec::new();
            while matches!(
                reader.by_ref().take(LONGEST).read_until(b'\n', &mut line),
                Ok(1..)
            ) {
                tell(String::from_utf8_lossy(&line).trim());
                line.clear();
            }
        });
    }
    match watch(&mut running, unwanted)? {
        End::Itself(_) => Ok(Ended::Itself),
        End::Interrupted(_) => Err(Error::interrupted()),
        End::Unwanted => Ok(Ended::Cancelled),
        End::Limited(what) => Ok(Ended::Limited(what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_measured_against_the_one_before_it() {
        let words = |wish: &Command| arguments(wish, "quick", 3).unwrap().join(" ");
        assert_eq!(
            words(&Command::RunPatch { patch: 2 }),
            "run --preset quick --point 1 --point 2"
        );
        assert_eq!(
            words(&Command::DropDryRun { patch: 2 }),
            "run --preset quick --point 0 --point 1 --point 2 --point 3 --point without:2"
        );
        assert_eq!(words(&Command::Run { preset: None }), "run --preset quick");
        assert_eq!(arguments(&Command::Help, "quick", 3), None);
    }

    #[test]
    fn whose_code_runs_where() {
        let text = "[upstream]\nname=\"x\"\ncurrent=\"1\"\n[recipe]\n[preset]\n[server]\nadapter=\"mariadb\"\n[bot]\n";
        let of = |bot: &str, works: bool, trusted: bool| {
            let config: Config = toml::from_str(&format!("{text}{bot}")).unwrap();
            let sandbox = works.then_some(()).ok_or_else(|| "no bwrap".to_owned());
            Guard::of(&config, &sandbox, trusted).ok()
        };
        let (never, open) = (
            "run_untrusted = \"never\"",
            "run_untrusted = \"unsandboxed\"",
        );
        let (off, required) = ("sandbox = \"off\"", "sandbox = \"required\"");
        let off_open = format!("{off}\n{open}");
        for (bot, works, trusted, expected) in [
            ("", true, true, Some(Guard::Shared)),
            ("", true, false, Some(Guard::Apart)),
            ("", false, true, Some(Guard::Bare)),
            ("", false, false, None),
            (never, true, true, Some(Guard::Shared)),
            (never, true, false, None),
            (open, true, false, Some(Guard::Apart)),
            (open, false, false, Some(Guard::Bare)),
            (off, true, true, Some(Guard::Bare)),
            (off, true, false, None),
            (&off_open, true, false, Some(Guard::Bare)),
            (required, false, true, None),
            (required, false, false, None),
            (required, true, true, Some(Guard::Shared)),
        ] {
            assert_eq!(of(bot, works, trusted), expected, "{bot} {works} {trusted}");
        }
    }
    #[test]
    fn a_job_without_a_sandbox_has_an_end_too() {
        let folder = tempfile::tempdir().unwrap();
        let ready = Ready {
            folder: folder.path().to_owned(),
            sandbox: None,
            hours: 0,
        };
        // `env -C FOLDER sleep 600`.
        let arguments = ["sleep".to_owned(), "600".to_owned()];
        let tool = Path::new("/usr/bin/env");
        let ended = run(tool, &ready, &arguments, &[], &|| false, |_| {}).unwrap();
        assert_eq!(ended, Ended::Limited("more than 0 hours".to_owned()));
    }
}
