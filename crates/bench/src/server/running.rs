//! A running server and its shutdown.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::program::Program;
use super::scratch::{Scratch, socket_folder};
use super::start_failure::start_timeout;
use super::{AdapterSetup, Instrumentation, Launch, listener, log};
use crate::inputs::Trace;
use perfquilt_config::files_below;
use perfquilt_model::counted::listed;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_system::process::{
    Child, Command, DeathSignal, Exceptions, OrphanProcess, Sink, check_interrupted, describe_exit,
    foreign_machine, process_tree, process_tree_time,
};

/// How many lines of a failed server's log an error shows.
const LOG_LINES: usize = 14;
/// The name of the log in the folder of a start.
const LOG_FILE: &str = "server.log";
/// How long a process that a starting server leaves behind may live.
const STRAY_LIMIT: Duration = Duration::from_secs(2);
/// How long a start waits for a helper beside the server to end.
const HELPER_LIMIT: Duration = Duration::from_millis(500);
/// How long a start takes before perfquilt looks whether somebody stopped it.
const STOPPED_LIMIT: Duration = Duration::from_secs(2);
/// The most processor time of helpers, as a share of that of the server: they do no part of its work.
const HELPERS_SHARE: f64 = 0.01;
/// Processor time that a helper may use in any case, as for its own start.
const HELPERS_TIME: Duration = Duration::from_millis(100);

/// Address on which a server accepts connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// A Unix socket.
    pub socket: PathBuf,
    /// A port on the loopback interface, for servers without Unix sockets.
    pub port: Option<u16>,
}

/// A server that accepts connections. Dropping it kills the server and removes its folder.
#[derive(Debug)]
pub struct Running {
    /// Address on which it accepts connections.
    pub endpoint: Endpoint,
    /// Its label in messages.
    pub label: String,
    program: Program,
    values: BTreeMap<String, String>,
    log: PathBuf,
    kept_logs: PathBuf,
    /// What it runs under.
    pub instrumentation: Instrumentation,
    stop: Stop,
    // A connection that must stay open as long as the server runs.
    held_connection: Option<Box<dyn std::fmt::Debug + Send>>,
    // Dropped in this order: the process first, then the folders it uses.
    child: Child,
    folder: StartFolder,
    _socket_folder: Option<Scratch>,
    start_timeout: Duration,
}

/// What the loader says before the name of a library that it does not find.
const MISSING_LIBRARY: &str = "error while loading shared libraries: ";

/// How a server is asked to shut down.
#[derive(Debug, Clone)]
pub enum Stop {
    /// SIGTERM.
    Signal {
        /// Whether death by the signal counts as success, for servers without a handler.
        may_kill: bool,
    },
    /// SIGINT, after which the server must exit with 0.
    Interrupt,
    /// A command that makes the server end.
    Command(Box<Command>),
}

/// The time that a server has to end after its command failed.
const GRACE: Duration = Duration::from_secs(5);

/// The largest log of a server, in bytes.
const LARGEST_LOG: u64 = 256 << 20;

/// The relation of a server's process to its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerProcess {
    /// The leader of the group that they stay in; the group is killed.
    #[default]
    Group,
    /// PostgreSQL's postmaster. Its children lead sessions of their own, and it ends them all on SIGQUIT, which it gets
    /// before it is killed and when this program dies. It refuses to be root's.
    Postmaster,
}

/// The folder of a start, removed when dropped unless its data is kept.
#[derive(Debug)]
struct StartFolder {
    path: PathBuf,
    keep: bool,
}

impl Drop for StartFolder {
    fn drop(&mut self) {
        if !self.keep {
            // On failure, the next `Scratch` retries the removal.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// A start that failed. Dropping it removes the folder.
#[derive(Debug)]
pub(super) struct FailedStart {
    /// The reason.
    pub(super) error: Error,
    /// Whether the server's log says that its port is taken.
    pub(super) lost_port: bool,
    folder: Option<StartFolder>,
}

impl FailedStart {
    /// Keeps the folder with what was in it before the start, for another one; removes its data and its log.
    pub(super) fn keep_folder(mut self) {
        if let Some(folder) = &mut self.folder {
            folder.keep = true;
            // What cannot be removed fails the next start, which says so.
            let _ = std::fs::remove_dir_all(folder.path.join("data"));
            let _ = std::fs::remove_file(folder.path.join(LOG_FILE));
        }
    }
}

impl From<Error> for FailedStart {
    fn from(error: Error) -> Self {
        FailedStart {
            error,
            lost_port: false,
            folder: None,
        }
    }
}

/// Returns whether a server's log says that another program has its address (EADDRINUSE), in the words of libc, of libuv
/// and of other libraries.
fn says_port_is_taken(log: &str) -> bool {
    let log = log.to_lowercase();
    let words = [
        "address already in use",
        "eaddrinuse",
        "address in use",
        "port is already allocated",
        "port already in use",
    ];
    words.iter().any(|words| log.contains(words))
}

/// An adapter's description of a start before there is a process.
pub struct StartPlan<'a> {
    /// The start.
    pub launch: &'a Launch<'a>,
    /// Program and arguments, in the foreground.
    pub words: Vec<OsString>,
    /// Additional environment variables.
    pub env: BTreeMap<String, String>,
    /// The address to listen on.
    pub address: ListenAddress,
    /// How the server is asked to shut down.
    pub stop: Stop,
    /// The relation of its process to its children.
    pub process: ServerProcess,
    /// Timeout in seconds until the server is ready.
    pub start_seconds: f64,
    /// The folder for the log of a failed server.
    pub kept_logs: PathBuf,
    /// Functions that callgrind does not count, including their callees.
    pub uncounted: &'static [&'static str],
    /// Values of the placeholders in the configuration's commands.
    pub values: BTreeMap<String, String>,
}

/// The address on which a server is to listen: a Unix socket, with a path short enough for the kernel, and a port, if the server
/// needs one.
pub struct ListenAddress {
    /// The address.
    pub endpoint: Endpoint,
    /// Holds the socket if the start's own path is too long.
    folder: Option<Scratch>,
}

impl ListenAddress {
    /// Chooses the socket of a start in `dir`.
    pub fn new(dir: &Path, port: Option<u16>) -> Result<Self> {
        let (parent, folder) = socket_folder(dir)?;
        Ok(ListenAddress {
            endpoint: Endpoint {
                socket: parent.join("s.sock"),
                port,
            },
            folder,
        })
    }
}

impl<'a> StartPlan<'a> {
    /// Plans a start with these `words` for the workspace of `setup`: the process leads a group and ends on SIGTERM.
    pub fn new(
        setup: &AdapterSetup,
        launch: &'a Launch<'a>,
        address: ListenAddress,
        words: Vec<OsString>,
    ) -> Self {
        StartPlan {
            launch,
            words,
            env: BTreeMap::new(),
            values: placeholder_values(launch, &address, &setup.bench_config),
            address,
            stop: Stop::Signal { may_kill: false },
            process: ServerProcess::Group,
            start_seconds: setup.server.start_seconds,
            kept_logs: setup.logs.clone(),
            uncounted: &[],
        }
    }
}

/// Returns the values of the placeholders of a server's and its clients' commands for one start.
fn placeholder_values(
    launch: &Launch<'_>,
    address: &ListenAddress,
    config: &Path,
) -> BTreeMap<String, String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut values = BTreeMap::from([
        ("server".to_owned(), text(launch.server)),
        ("dir".to_owned(), text(&launch.dir.join("data"))),
        ("socket".to_owned(), text(&address.endpoint.socket)),
        ("config".to_owned(), text(config)),
    ]);
    if let Some(port) = address.endpoint.port {
        values.insert("port".to_owned(), port.to_string());
    }
    values
}

impl Running {
    /// Starts the process of `plan` and waits until `ready` returns that it accepts connections.
    pub fn begin(
        plan: StartPlan<'_>,
        ready: &mut dyn FnMut(&Endpoint) -> Result<bool>,
    ) -> Result<Running> {
        Self::begin_on_port(plan, ready).map_err(|failed| failed.error)
    }

    /// Starts like [`Running::begin`]; whoever gets the failure can start again in the same folder.
    pub(super) fn begin_on_port(
        plan: StartPlan<'_>,
        ready: &mut dyn FnMut(&Endpoint) -> Result<bool>,
    ) -> Result<Running, FailedStart> {
        let mut running = Self::spawn(plan)?;
        match running.wait_until_ready(ready) {
            Ok(()) => Ok(running),
            Err(error) => {
                let _ = running.child.kill();
                let text = std::fs::read(&running.log).unwrap_or_default();
                Err(FailedStart {
                    error,
                    lost_port: running.endpoint.port.is_some()
                        && says_port_is_taken(&String::from_utf8_lossy(&text)),
                    folder: Some(running.folder),
                })
            }
        }
    }

    fn spawn(plan: StartPlan<'_>) -> Result<Running, FailedStart> {
        let launch = plan.launch;
        let log = launch.dir.join(LOG_FILE);
        let shown = plan
            .words
            .iter()
            .map(|word| word.to_string_lossy().into_owned());
        let program_of_server = Program::new(launch.server, &shown.collect::<Vec<_>>());
        let mut words = instrumentation_words(&launch.instrumentation, launch.dir, plan.uncounted);
        words.extend(plan.words);
        let (program, args) = words
            .split_first()
            .ok_or_else(|| Error::server_settings("the command that starts the server is empty"))?;
        let mut command = Command::new(program)
            .args(args)
            .directory(launch.dir)
            .stdout(Sink::File(log.clone()))
            .stderr(Sink::File(log.clone()))
            // The path of a start is unique.
            .mark(launch.dir.to_string_lossy())
            .envs(&plan.env)
            .envs(launch.env.iter().cloned());
        let mut exceptions = Exceptions::default();
        if let Instrumentation::Callgrind { .. } = launch.instrumentation {
            command = command.without_env(NAMES_OF_PIPES);
            exceptions.signals = true;
        }
        let traces = match &launch.instrumentation {
            Instrumentation::Traced { out } => out.parent(),
            _ => None,
        };
        let socket = plan.address.folder.as_ref().map(Scratch::path);
        let folders = [Some(launch.dir), socket, traces, launch.counts];
        exceptions.folders = folders.into_iter().flatten().map(Into::into).collect();
        command = command.excepted(exceptions);
        if plan.process == ServerProcess::Postmaster {
            command = command.death_signal(DeathSignal::Quit).ordinary_user();
        }
        // From here on dropping this value removes the folder, also on an early return.
        let folder = StartFolder {
            path: launch.dir.to_path_buf(),
            keep: false,
        };
        Ok(Running {
            endpoint: plan.address.endpoint,
            label: launch.label.to_owned(),
            program: program_of_server,
            values: plan.values,
            log,
            kept_logs: plan.kept_logs,
            instrumentation: launch.instrumentation.clone(),
            stop: plan.stop,
            held_connection: None,
            child: command
                .spawn()
                .map_err(|error| not_started(launch.label, program, error))?,
            folder,
            _socket_folder: plan.address.folder,
            start_timeout: start_timeout(plan.start_seconds, &launch.instrumentation),
        })
    }

    fn wait_until_ready(&mut self, ready: &mut dyn FnMut(&Endpoint) -> Result<bool>) -> Result<()> {
        let timeout = self.start_timeout;
        let started = Instant::now();
        let mut pause = Duration::from_millis(2);
        let mut since_ready: Option<Instant> = None;
        let mut others_port = None;
        let mut is_told = false;
        loop {
            if let Some(status) = self.ended()? {
                return Err(self.end_failure(status, "at start"));
            }
            let mut is_ready = ready(&self.endpoint)?;
            // The port may belong to another program, which answers while this server fails to get it.
            if is_ready && let Some(port) = self.endpoint.port {
                is_ready = listener::may_belong_to(port, &self.pids());
                others_port = (!is_ready).then_some(port);
            }
            if is_ready && self.ended()?.is_none() {
                self.child.note_descendants();
                let strays = self.child.strays();
                // One that only helped to start it ends by itself.
                let waited = since_ready.get_or_insert_with(Instant::now).elapsed();
                if strays.is_empty() || waited > HELPER_LIMIT && self.are_helpers(&strays) {
                    return self.check_program();
                }
                if waited > STRAY_LIMIT {
                    return Err(self.stray_failure(&strays));
                }
            }
            check_interrupted()?;
            if !is_told && started.elapsed() > STOPPED_LIMIT {
                let mut processes = self.pids().into_iter().filter_map(OrphanProcess::read);
                if let Some(stopped) = processes.find(OrphanProcess::is_stopped) {
                    is_told = true;
                    tracing::warn!(
                        "the server does not start because {stopped} was stopped; `kill -CONT {}` continues it",
                        stopped.pid
                    );
                }
            }
            if started.elapsed() > timeout {
                return Err(self.not_ready(timeout, others_port));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    /// Checks that what answers is the server's own program.
    fn check_program(&self) -> Result<()> {
        let Endpoint { socket, port } = &self.endpoint;
        let pids = self.pids();
        let listening = listener::listening(socket, *port, &pids);
        self.program.check(&pids, &listening).map_err(|what| {
            self.failure(&format!("{what}, so it is not measured")).hint(
                "`start` of [server.command] must run a file of {server}, also through a wrapper",
            )
        })
    }

    /// Keeps `connection` open as long as the server runs.
    pub(super) fn hold(&mut self, connection: impl std::fmt::Debug + Send + 'static) {
        self.held_connection = Some(Box::new(connection));
    }

    /// Returns the server's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the ids of all its processes: its own, and those of its living descendants.
    pub fn pids(&self) -> Vec<u32> {
        process_tree(self.pid())
    }

    /// Returns the processor time of all its processes so far, including that of ended threads and children; `None` if
    /// the kernel does not report it.
    pub fn processor_time(&self) -> Option<Duration> {
        process_tree_time(self.pid())
    }

    /// Returns the error of a command with these `words`, expanded for this server, whose program could not be started: a
    /// failure of this server only if the program is one of its own files.
    pub(crate) fn own_failure(&self, words: &[String], error: Error) -> Error {
        let program = words.first().map_or("", String::as_str);
        let server = self.values.get("server").map(Path::new);
        if server.is_some_and(|server| Path::new(program).starts_with(server)) {
            not_started(&self.label, OsStr::new(program), error)
        } else {
            error
        }
    }

    /// Returns the folder of this start.
    pub fn dir(&self) -> &Path {
        &self.folder.path
    }

    /// Returns the most informative last lines of its log.
    pub fn log_tail(&self) -> Vec<String> {
        log::relevant_lines(&log::tail(&self.log), LOG_LINES)
    }

    /// Replaces the configuration's placeholders (`{socket}`, `{port}`, `{dir}`, `{server}`,
    /// `{config}`) in a command for this server.
    pub fn expand(&self, words: &[String]) -> Result<Vec<String>> {
        perfquilt_config::expand(words, &self.values)
    }

    /// Returns whether `strays`, processes of the server that are no longer descendants of its first one, only run beside
    /// it: the server itself listens at its address, and they do next to nothing.
    fn are_helpers(&self, strays: &[OrphanProcess]) -> bool {
        let time = |pid| process_tree_time(pid).unwrap_or_default();
        let theirs: Duration = strays.iter().map(|stray| time(stray.pid)).sum();
        let allowed = time(self.pid()).mul_f64(HELPERS_SHARE).max(HELPERS_TIME);
        let Endpoint { socket, port } = &self.endpoint;
        theirs <= allowed && !listener::listening(socket, *port, &self.pids()).is_empty()
    }

    /// Returns the names of the processes that run beside the server, see [`Running::check`]: it started them, and they are
    /// no longer descendants of its first process.
    pub fn helpers(&self) -> BTreeSet<String> {
        let helpers = self.child.strays().into_iter();
        helpers.map(|helper| helper.name).collect()
    }

    /// Checks that the server is still running, and that nothing of it runs without its first process, except for helpers
    /// that neither listen for it nor work.
    pub fn check(&mut self) -> Result<()> {
        if let Some(status) = self.ended()? {
            return Err(self.end_failure(status, "under load"));
        }
        self.child.note_descendants();
        let strays = self.child.strays();
        if !strays.is_empty() && !self.are_helpers(&strays) {
            // The first process may have ended only now, which makes strays of its children.
            return Err(match self.ended()? {
                Some(status) => self.end_failure(status, "under load"),
                None => self.stray_failure(&strays),
            });
        }
        let written = std::fs::metadata(&self.log).map_or(0, |log| log.len());
        if written > LARGEST_LOG {
            return Err(self
                .failure(&format!("has written {} MiB to its log", written >> 20))
                .hint("reduce its logging: servers' files are in memory, and writing them is part of every measured time"));
        }
        Ok(())
    }

    /// Returns what marks the processes of this start, for commands whose own processes are to end with the server.
    pub fn mark(&self) -> String {
        self.folder.path.to_string_lossy().into_owned()
    }

    /// Returns the cause of a client's `error`: the server's own end if it has ended or is about to
    /// (a crashing server may still be writing its report), else `error` itself, with what its log says of too few open files.
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
            let timeout = if log::shows_crash(&log::tail(&self.log)) {
                Duration::from_secs(20)
            } else {
                Duration::from_millis(300)
            };
            if started.elapsed() > timeout {
                // It may refuse or close connections without saying why to the client.
                let log = log::tail(&self.log);
                let cause = log.lines().find(|line| log::says_too_few_files(line));
                return error.details(cause.map(|line| format!("the server's log: {line}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills the server and removes its folder, for measured servers, whose data is disposable.
    ///
    /// # Errors
    /// [`Kind::Bench`](perfquilt_model::error::Kind::Bench) with the log's tail when it had already ended.
    pub fn stop(mut self) -> Result<()> {
        let crashed = self.check();
        self.child.kill()?;
        crashed
    }

    /// Shuts the server down so that it writes all data, and returns the path of `DIR/data`. The folder is not
    /// removed: the caller owns `DIR`.
    /// If the server does not end in time or ends with an error, its folder is removed.
    pub fn stop_cleanly(mut self) -> Result<PathBuf> {
        self.check()?;
        self.held_connection = None;
        let timeout = Duration::from_secs(120);
        if let Stop::Command(command) = &self.stop {
            // Its exit code alone proves nothing: its connection may break when the server shuts down.
            let output = command.run_within(timeout)?;
            let limit = if output.success() { timeout } else { GRACE };
            if self.child.wait_within(limit)?.is_none() {
                let end = output.describe_exit();
                let error = self.failure(&format!(
                    "still runs {} s after `stop`, which {end}",
                    limit.as_secs()
                ));
                return Err(error.hint(
                    "`stop` of [server.command] must end the server; without this key it gets SIGTERM",
                ));
            }
        }
        let status = match self.child.try_wait()? {
            Some(status) => status,
            None if matches!(self.stop, Stop::Interrupt) => {
                self.child.stop_by_interrupt(timeout)?
            }
            None => self.child.stop(timeout)?,
        };
        let killed = status.signal() == Some(SIGTERM);
        let clean =
            status.success() || (killed && !matches!(self.stop, Stop::Signal { may_kill: false }));
        if !clean {
            return Err(self.failure(&format!("{} while stopping", describe_exit(status))));
        }
        self.folder.keep = true;
        Ok(self.folder.path.join("data"))
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Returns the error of a server whose first process ended `when`.
    fn end_failure(&self, status: ExitStatus, when: &str) -> Error {
        let end = describe_exit(status);
        let left = self.child.orphans();
        if left.is_empty() {
            return self.failure(&format!("{end} {when}"));
        }
        let error = self.failure(&format!(
            "{end} {when}, but {} went on without it and {} ended",
            names(left),
            if left.len() > 1 { "were" } else { "was" },
        ));
        if status.code().is_some() {
            stay_in_foreground(error)
        } else {
            error
        }
    }

    /// Returns the error of a server with processes that are no longer descendants of its first one.
    fn stray_failure(&self, strays: &[OrphanProcess]) -> Error {
        let error = self.failure(&format!(
            "left its first process: {} {} outside of it, where perfquilt cannot count what {}",
            names(strays),
            if strays.len() > 1 { "run" } else { "runs" },
            if strays.len() > 1 {
                "they use"
            } else {
                "it uses"
            },
        ));
        stay_in_foreground(error)
    }

    /// Returns the error of a server that did not accept connections within `timeout`; on `others_port` another program does.
    fn not_ready(&self, timeout: Duration, others_port: Option<u16>) -> Error {
        let mut what = format!("was not ready within {} s", timeout.as_secs_f64().round());
        if let Some(port) = others_port {
            what += &format!(": another program listens on its port {port}");
        }
        let slower = "a slower machine may need a larger `start_seconds` in [server]";
        self.failure(&what)
            .hint_before(slower)
            .start_timeout(timeout)
    }

    /// Returns the error of a failed server and keeps its log for the user.
    fn failure(&self, what: &str) -> Error {
        let log = self.log_tail();
        let library = self.foreign_library(&log);
        let error = Error::server_failed(format!("server of {} {what}", self.label)).details(log);
        let kept = self.keep_log();
        let kept = kept.map(|path| format!("the full log is in {}", path.display()));
        error.details(library).hint_if(kept)
    }

    /// Returns the library of another machine that the loader passed over: it says only that there is none.
    fn foreign_library(&self, log: &[String]) -> Option<String> {
        let end = |line: &String| Some(line.split_once(MISSING_LIBRARY)?.1.to_owned());
        let missing = log.iter().find_map(end)?;
        let name = missing.split(':').next()?;
        let files = files_below(Path::new(self.values.get("server")?)).ok()?;
        let library = files.into_iter().find(|path| path.ends_with(name))?;
        let machine = foreign_machine(&library)?;
        Some(format!("{} is for {machine}", library.display()))
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

/// Adds the hint for a server that went to the background.
fn stay_in_foreground(error: Error) -> Error {
    let foreground = "perfquilt measures servers in the foreground: no `daemonize`, no setsid, and no `&` in a script that \
                      starts one (`exec` it)";
    error.hint_before(foreground)
}

/// Names processes: `` `toyd` (process 12) and `worker` (process 13) ``.
fn names(processes: &[OrphanProcess]) -> String {
    if processes.len() > 3 {
        return listed(processes, 3);
    }
    let names = processes.iter().map(ToString::to_string);
    names.collect::<Vec<_>>().join(" and ")
}

/// Returns the error of a server whose process could not be started. A missing program of the server itself, given
/// by its path, is a failure of that point only.
pub(super) fn not_started(label: &str, program: &OsStr, error: Error) -> Error {
    if error.kind() != Kind::Usage || !program.to_string_lossy().contains('/') {
        return error;
    }
    Error::server_failed(format!("server of {label}: {}", error.message()))
        .hint_if(error.hint_text())
}

/// SIGTERM's number on Linux.
const SIGTERM: i32 = 15;

/// Returns the words that precede the server's command: a tool with its options, or nothing.
pub(super) fn instrumentation_words(
    instrumentation: &Instrumentation,
    dir: &Path,
    uncounted: &[&str],
) -> Vec<OsString> {
    let (out, addresses, caches) = match instrumentation {
        Instrumentation::Plain => return Vec::new(),
        Instrumentation::Traced { out } => return Trace::words(out).unwrap_or_default(),
        Instrumentation::Callgrind {
            out,
            addresses,
            caches,
        } => (out, addresses, caches),
    };
    let with_path = |option: &str, path: &Path| {
        let mut word = OsString::from(option);
        word.push(path);
        word
    };
    let mut words: Vec<OsString> = [
        "valgrind",
        // Ignore ~/.valgrindrc and VALGRIND_OPTS, which could change the counts.
        "--command-line-only=yes",
        "--tool=callgrind",
        "--instr-atstart=no",
        "--separate-threads=yes",
        // Count children too, in profiles of their own: some servers serve each connection in one.
        "--trace-children=yes",
        // Schedule threads in order, so that other threads cannot starve a client's thread.
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
        // The option above would start callgrind with collection off.
        words.push("--collect-atstart=yes".into());
    }
    words.extend(addresses.then(|| "--dump-instr=yes".into()));
    if *caches {
        // The same caches on every machine, so that counts are comparable.
        let caches = [
            "--cache-sim=yes",
            "--I1=32768,8,64",
            "--D1=32768,8,64",
            "--LL=8388608,16,64",
        ];
        words.extend(caches.map(OsString::from));
    }
    // Put the control pipes into the folder that is removed with the server, not into /tmp.
    words.push(with_path("--vgdb-prefix=", &vgdb_prefix(dir)));
    let mut profiles = with_path("--callgrind-out-file=", out);
    profiles.push(".%p");
    words.push(profiles);
    words
}

/// The environment variables that valgrind and vgdb make the names of their pipes from. Valgrind reads them again when it
/// opens a pipe, from the environment of the server, which may have overwritten it by then to show a title in the list of
/// processes. Without them the names do not change.
pub const NAMES_OF_PIPES: &[&str] = &["LOGNAME", "USER", "HOST", "HOSTNAME"];

/// Returns the prefix of the pipes that control valgrind, for a start in `dir`.
pub fn vgdb_prefix(dir: &Path) -> PathBuf {
    dir.join("vgdb")
}
