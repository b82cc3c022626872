//! A server that is up, and its certain end.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use super::scratch::{Scratch, socket_folder};
use super::{Launch, Under, log};
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_system::process::{Child, Command, Sink, check_interrupted, how_it_ended};

/// How many lines of a failed server's log an error shows.
const LOG_LINES: usize = 14;
/// Valgrind makes a start about this much slower.
const VALGRIND_SLOWNESS: f64 = 8.0;

/// Where a server takes connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// A Unix socket.
    pub socket: PathBuf,
    /// A port on the loopback interface, for servers that cannot do without.
    pub port: Option<u16>,
}

/// A server that takes connections. Dropping it kills the server and removes its folder.
#[derive(Debug)]
pub struct Running {
    /// Where it takes connections.
    pub endpoint: Endpoint,
    label: String,
    values: BTreeMap<String, String>,
    log: PathBuf,
    kept_logs: PathBuf,
    under: Under,
    stop: Stop,
    // A connection that must stay open as long as the server runs.
    held: Option<Box<dyn std::fmt::Debug + Send>>,
    // Dropped in this order: the process first, then the folders it uses.
    child: Child,
    folder: Folder,
    _socket_folder: Option<Scratch>,
}

/// How a server is asked to end.
#[derive(Debug, Clone)]
pub(super) enum Stop {
    /// SIGTERM.
    Signal {
        /// Whether dying of it is as good as exiting with 0 (a server without a handler of its own).
        may_kill: bool,
    },
    /// A command; SIGTERM if the server still runs afterwards.
    Command(Box<Command>),
}

/// The folder of a start, removed when dropped unless its data is kept.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            // Nothing useful can be done about a failure here; the next `Scratch` tries again.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// What an adapter knows of a start before there is a process.
pub(super) struct Plan<'a> {
    pub(super) launch: &'a Launch<'a>,
    /// Program and arguments, in the foreground.
    pub(super) words: Vec<OsString>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) place: Place,
    pub(super) stop: Stop,
    pub(super) start_seconds: f64,
    pub(super) kept_logs: PathBuf,
    /// Functions whose cost, with that of what they call, callgrind leaves out.
    pub(super) uncounted: &'static [&'static str],
    /// Placeholders of the configuration's commands and their values.
    pub(super) values: BTreeMap<String, String>,
}

/// The socket of a start and the folder kept for it.
pub(super) struct Place {
    pub(super) socket: PathBuf,
    pub(super) port: Option<u16>,
    folder: Option<Scratch>,
}

impl Place {
    /// A place with a socket for a start in `dir`.
    pub(super) fn new(dir: &Path, port: Option<u16>) -> Result<Self> {
        let (parent, folder) = socket_folder(dir)?;
        Ok(Place {
            socket: parent.join("s.sock"),
            port,
            folder,
        })
    }
}

impl Running {
    /// Starts the process of `plan` and waits until `ready` says that it takes connections.
    pub(super) fn begin(
        plan: Plan<'_>,
        ready: &mut dyn FnMut(&Endpoint) -> Result<bool>,
    ) -> Result<Running> {
        let launch = plan.launch;
        let log = launch.dir.join("server.log");
        let mut words = under_words(&launch.under, launch.dir, plan.uncounted);
        words.extend(plan.words);
        let (program, args) = words
            .split_first()
            .ok_or_else(|| Error::usage("the command that starts the server is empty"))?;
        let mut command = Command::new(program)
            .args(args)
            .directory(launch.dir)
            .stdout(Sink::File(log.clone()))
            .stderr(Sink::File(log.clone()));
        for (name, value) in plan
            .env
            .iter()
            .chain(launch.env.iter().map(|(n, v)| (n, v)))
        {
            command = command.env(name, value);
        }
        if let Some(cpus) = launch.cpus {
            command = command.cpus(cpus);
        }
        // From here on the folder goes away with this value, also on an early return.
        let folder = Folder {
            path: launch.dir.to_path_buf(),
            keep: false,
        };
        let mut running = Running {
            endpoint: Endpoint {
                socket: plan.place.socket,
                port: plan.place.port,
            },
            label: launch.label.to_owned(),
            values: plan.values,
            log,
            kept_logs: plan.kept_logs,
            under: launch.under.clone(),
            stop: plan.stop,
            held: None,
            child: command
                .spawn()
                .map_err(|error| not_started(launch.label, program, error))?,
            folder,
            _socket_folder: plan.place.folder,
        };
        let limit = patience(plan.start_seconds, &launch.under);
        running.wait_until_ready(limit, ready)?;
        Ok(running)
    }

    fn wait_until_ready(
        &mut self,
        limit: Duration,
        ready: &mut dyn FnMut(&Endpoint) -> Result<bool>,
    ) -> Result<()> {
        let started = Instant::now();
        let mut pause = Duration::from_millis(2);
        loop {
            self.ended()?.map_or(Ok(()), |status| {
                Err(self.failure(&format!("{} at start", how_it_ended(status))))
            })?;
            let is_ready = ready(&self.endpoint)?;
            // Another server might have answered in the place of one that has just ended.
            if is_ready && self.ended()?.is_none() {
                return Ok(());
            }
            check_interrupted()?;
            if started.elapsed() > limit {
                let failure = self.failure(&not_ready(limit));
                let slower = "a slower machine may need a larger `start_seconds` in [server]";
                let hint = match failure.hint_text() {
                    Some(log) => format!("{slower}; {log}"),
                    None => slower.to_owned(),
                };
                return Err(failure.hint(hint));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// Keeps `connection` open as long as the server runs.
    pub(super) fn hold(&mut self, connection: impl std::fmt::Debug + Send + 'static) {
        self.held = Some(Box::new(connection));
    }

    /// The server's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Processor time that it has taken so far, threads that ended included; `None` where the kernel does not
    /// tell. Processes that the server starts do not count.
    pub fn processor_time(&self) -> Option<Duration> {
        processor_time(self.pid())
    }

    /// What it is called in messages.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// What it runs under.
    pub fn under(&self) -> &Under {
        &self.under
    }

    /// The folder of this start.
    pub fn dir(&self) -> &Path {
        &self.folder.path
    }

    /// The last telling lines of its log.
    pub fn log_tail(&self) -> Vec<String> {
        log::telling_lines(&log::end_of(&self.log), LOG_LINES)
    }

    /// Replaces the configuration's placeholders (`{socket}`, `{port}`, `{dir}`, `{server}`,
    /// `{config}`) in a command for this server.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for a placeholder that does not exist.
    pub fn expand(&self, words: &[String]) -> Result<Vec<String>> {
        perfquilt_config::expand(words, &self.values)
    }

    /// An error if the server is no longer running.
    ///
    /// # Errors
    /// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) with the log's tail.
    pub fn check(&mut self) -> Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(self.failure(&format!("{} under load", how_it_ended(status)))),
        }
    }

    /// What `error`, met by a client of this server, comes from: the server's own end if it has
    /// ended or is ending (a crashing server may still be writing its report), else `error`.
    #[must_use]
    pub fn explain(&mut self, error: Error) -> Error {
        if error.kind() == Kind::Interrupted {
            return error;
        }
        let started = Instant::now();
        loop {
            if let Err(crash) = self.check() {
                return crash;
            }
            let patience = if log::shows_crash(&log::end_of(&self.log)) {
                Duration::from_secs(20)
            } else {
                Duration::from_millis(300)
            };
            if started.elapsed() > patience {
                return error;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the server at once and removes its folder: nothing of a measured server's data is
    /// wanted any more.
    ///
    /// # Errors
    /// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when it had ended before, with the log's tail.
    pub fn stop(mut self) -> Result<()> {
        let crashed = self.check();
        self.child.kill()?;
        crashed
    }

    /// Lets the server end in its own time, all data written, and keeps `DIR/data`, whose path is
    /// returned; whoever gets it removes `DIR`.
    ///
    /// # Errors
    /// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when it does not end in time or ends with an
    /// error; its folder is then removed.
    pub fn stop_cleanly(mut self) -> Result<PathBuf> {
        self.check()?;
        self.held = None;
        let limit = Duration::from_secs(120);
        if let Stop::Command(command) = &self.stop {
            // The command's own exit code says little (a connection that ends under it is normal).
            command.run_within(limit)?;
            self.child.wait_within(Duration::from_secs(10))?;
        }
        let status = match self.child.try_wait()? {
            Some(status) => status,
            None => self.child.stop(limit)?,
        };
        let killed = status.signal() == Some(SIGTERM);
        let clean =
            status.success() || (killed && !matches!(self.stop, Stop::Signal { may_kill: false }));
        if !clean {
            return Err(self.failure(&format!("{} while stopping", how_it_ended(status))));
        }
        self.folder.keep = true;
        Ok(self.folder.path.join("data"))
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// The error for a server that failed, its log kept for the user.
    fn failure(&self, what: &str) -> Error {
        let error =
            Error::bench(format!("server of {} {what}", self.label)).details(self.log_tail());
        match self.keep_log() {
            Some(path) => error.hint(format!("its whole log is kept in {}", path.display())),
            None => error,
        }
    }

    fn keep_log(&self) -> Option<PathBuf> {
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || "-.".contains(c) {
                c
            } else {
                '_'
            }
        };
        let name: String = self.label.chars().map(plain).take(80).collect();
        let target = self.kept_logs.join(format!("server-{name}.log"));
        std::fs::create_dir_all(&self.kept_logs).ok()?;
        std::fs::copy(&self.log, &target).ok()?;
        Some(target)
    }
}

/// The error for a server whose process was not started. A program of the server's own, given by its path, is
/// that point's fault alone.
fn not_started(label: &str, program: &OsStr, error: Error) -> Error {
    if error.kind() != Kind::Usage || !program.to_string_lossy().contains('/') {
        return error;
    }
    let failure = Error::bench(format!("server of {label}: {}", error.message()));
    match error.hint_text() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// How long a server with `start_seconds` may take until it is ready.
pub(super) fn patience(start_seconds: f64, under: &Under) -> Duration {
    seconds(match under {
        Under::Plain => start_seconds,
        Under::Callgrind { .. } => start_seconds * VALGRIND_SLOWNESS,
    })
}

/// What is said of a server that is not ready in time, up to the time.
const NOT_READY: &str = "was not ready within";

fn not_ready(limit: Duration) -> String {
    format!("{NOT_READY} {} s", limit.as_secs_f64().round())
}

/// Whether a server failed for the `reason` that it was not ready in time, and has another time with
/// `start_seconds`.
pub fn has_other_time(reason: &str, start_seconds: f64) -> bool {
    let same = |slowness: f64| reason.ends_with(&not_ready(seconds(start_seconds * slowness)));
    reason.contains(NOT_READY) && !same(1.0) && !same(VALGRIND_SLOWNESS)
}

/// SIGTERM's number on Linux.
const SIGTERM: i32 = 15;

/// Seconds from the configuration, within what a duration can hold.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.clamp(0.1, 86_400.0)).unwrap_or(Duration::from_secs(60))
}

/// The words before the server's own: valgrind and its options, or nothing.
pub(super) fn under_words(under: &Under, dir: &Path, uncounted: &[&str]) -> Vec<OsString> {
    let Under::Callgrind { out, addresses } = under else {
        return Vec::new();
    };
    let with_path = |option: &str, path: &Path| {
        let mut word = OsString::from(option);
        word.push(path);
        word
    };
    let mut words: Vec<OsString> = [
        "valgrind",
        // Neither ~/.valgrindrc nor VALGRIND_OPTS may change what is counted.
        "--command-line-only=yes",
        "--tool=callgrind",
        "--instr-atstart=no",
        "--separate-threads=yes",
        "--cache-sim=yes",
        // The simulated caches are the same on every machine, so that counts compare.
        "--I1=32768,8,64",
        "--D1=32768,8,64",
        "--LL=8388608,16,64",
        // Threads take turns in order, so that a client's thread cannot be starved by others.
        "--fair-sched=try",
    ]
    .into_iter()
    .map(OsString::from)
    .collect();
    if !uncounted.is_empty() {
        words.extend(
            uncounted
                .iter()
                .map(|name| format!("--toggle-collect={name}").into()),
        );
        // The option above makes callgrind begin with counting nothing.
        words.push("--collect-atstart=yes".into());
    }
    words.extend(addresses.then(|| "--dump-instr=yes".into()));
    // The control pipes lie in the folder that is removed with the server, not in /tmp.
    words.push(with_path("--vgdb-prefix=", &vgdb_prefix(dir)));
    words.push(with_path("--callgrind-out-file=", out));
    words
}

/// Prefix of the pipes through which valgrind is controlled, for a start in `dir`.
pub fn vgdb_prefix(dir: &Path) -> PathBuf {
    dir.join("vgdb")
}

/// [`Running::processor_time`] of the process `pid`.
pub fn processor_time(pid: u32) -> Option<Duration> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?);
    let time = clock_gettime(clock_getcpuclockid(pid).ok()?).ok()?;
    Some(Duration::from(time))
}
