//! The only module that starts processes.
//!
//! Every child leads a process group of its own, is told to end when this program dies, gets a small,
//! explicit environment (so that secrets of ours never reach it) and is stopped when its handle is
//! dropped. Only what must not be cut off ([`Command::to_its_end`]) outlives this program.

mod child;
mod ended;
mod scheduling;
mod signals;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use child::Child;
pub use ended::how_it_ended;
pub use scheduling::set_of;
pub use scheduling::{may_set_real_time, set_real_time};
pub use signals::{check_interrupted, install_signal_handlers, interrupt, interrupted};

use perfquilt_model::error::{Error, Result};

/// Variables of our environment that children get; everything else is withheld.
const PASSED_ON: [&str; 11] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "TERM",
    "XDG_CACHE_HOME",
    "CCACHE_DIR",
    "CCACHE_MAXSIZE",
    "CCACHE_READONLY",
    "CCACHE_TEMPDIR",
];

/// Those that programs get besides which fetch something from elsewhere. A proxy's address may hold a
/// password and the agent lets others be logged in to: no compiler, server or client gets them.
const FOR_NETWORK: [&str; 7] = [
    "SSH_AUTH_SOCK",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// Where a stream of a child goes.
#[derive(Debug, Clone, Default)]
pub enum Sink {
    /// Nowhere.
    #[default]
    Null,
    /// Appended to a file.
    File(PathBuf),
    /// Read by us, see [`Child`].
    Pipe,
    /// Where ours goes.
    Inherit,
    /// Standard error only: into the same pipe as standard output, so that lines stay in order.
    Merged,
}

/// A process to be started.
#[derive(Debug, Clone)]
pub struct Command {
    program: OsString,
    args: Vec<OsString>,
    directory: Option<PathBuf>,
    env: BTreeMap<OsString, OsString>,
    network: bool,
    stdin: Option<Vec<u8>>,
    stdout: Sink,
    stderr: Sink,
    death_signal: DeathSignal,
    cpus: Option<Vec<usize>>,
    real_time: bool,
    holds: Option<Arc<File>>,
    to_its_end: bool,
}

/// What the kernel sends a child when this program dies, however it dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeathSignal {
    /// SIGKILL: for programs without children of their own.
    #[default]
    Kill,
    /// SIGTERM: for programs that stop their own children on it (ninja, make).
    Terminate,
}

/// What a finished process left.
#[derive(Debug)]
pub struct Output {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it wrote to its standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error.
    pub stderr: Vec<u8>,
    /// Wall-clock time from start to end.
    pub elapsed: Duration,
}

impl Output {
    /// Whether it exited with 0.
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }

    /// Standard output as text, invalid bytes replaced.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text, invalid bytes replaced.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// `exited with 1` or `was ended by signal 11 (SIGSEGV)`.
    pub fn how_it_ended(&self) -> String {
        ended::in_words(self.code, self.signal)
    }

    /// The last `count` lines of standard error, or of standard output when that is empty.
    pub fn tail(&self, count: usize) -> Vec<String> {
        let text = if self.stderr.is_empty() {
            self.stdout_text()
        } else {
            self.stderr_text()
        };
        last_lines(&text, count)
    }
}

/// The last `count` lines of `text`.
pub fn last_lines(text: &str, count: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..]
        .iter()
        .map(|line| (*line).to_owned())
        .collect()
}

/// The number in a field of `/proc/PID/stat`, counted from 1 as proc(5) does, behind the second. That one, the
/// name, may have anything in it.
pub fn stat_field(stat: &str, number: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let word = rest.split_ascii_whitespace().nth(number.checked_sub(3)?)?;
    word.parse().ok()
}

/// The error for a machine without `program`.
pub fn missing(program: &str) -> Error {
    Error::usage(format!("`{program}` is not installed"))
        .hint("`perfquilt doctor` names what is missing and the command that installs it")
}

/// The full path of an executable on `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| {
            std::fs::metadata(path)
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
}

/// `word` as a user would type it in a shell: in quotes where it needs them.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%{}".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

impl Command {
    /// `program` (looked up on `PATH` unless it has a slash) without arguments, its streams closed.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Command {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            directory: None,
            env: BTreeMap::new(),
            network: false,
            stdin: None,
            stdout: Sink::Null,
            stderr: Sink::Null,
            death_signal: DeathSignal::Kill,
            cpus: None,
            real_time: false,
            holds: None,
            to_its_end: false,
        }
    }

    /// From a list whose first word is the program.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the list is empty.
    pub fn from_words(words: &[String]) -> Result<Self> {
        let (program, args) = words
            .split_first()
            .ok_or_else(|| Error::usage("an empty command in the configuration"))?;
        Ok(Command::new(program).args(args))
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn directory(mut self, directory: &Path) -> Self {
        self.directory = Some(directory.to_owned());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .insert(name.as_ref().to_owned(), value.as_ref().to_owned());
        self
    }

    /// Lets it know the proxies and the SSH agent of our environment: for programs of the system (git, apt, a
    /// downloader) that fetch something, never for what is built or measured.
    #[must_use]
    pub fn network(mut self) -> Self {
        self.network = true;
        self
    }

    /// Gives it `bytes` on standard input; without, standard input is empty.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Where standard output goes ([`Command::run`] always captures).
    #[must_use]
    pub fn stdout(mut self, sink: Sink) -> Self {
        self.stdout = sink;
        self
    }

    /// Where standard error goes ([`Command::run`] always captures).
    #[must_use]
    pub fn stderr(mut self, sink: Sink) -> Self {
        self.stderr = sink;
        self
    }

    /// What the kernel sends it when this program dies.
    #[must_use]
    pub fn death_signal(mut self, signal: DeathSignal) -> Self {
        self.death_signal = signal;
        self
    }

    /// Has it scheduled before everything else on its processors (ignored where the kernel refuses).
    #[must_use]
    pub fn real_time(mut self, real_time: bool) -> Self {
        self.real_time = real_time;
        self
    }

    /// Restricts it to these processors (ignored where the kernel refuses).
    #[must_use]
    pub fn cpus(mut self, cpus: &[usize]) -> Self {
        self.cpus = Some(cpus.to_vec());
        self
    }

    /// Keeps `file` open in the child and in what it starts in turn, so that a lock on it lasts until
    /// the last of them is gone, even when this program dies first.
    #[must_use]
    pub fn holding(mut self, file: &Arc<File>) -> Self {
        self.holds = Some(Arc::clone(file));
        self
    }

    /// Lets it come to its end by itself: a signal that asks this program to stop is heeded after that, and when this
    /// program dies, the kernel tells it nothing.
    #[must_use]
    pub fn to_its_end(mut self) -> Self {
        self.to_its_end = true;
        self
    }

    /// The command as a user would type it.
    pub fn shown(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.args);
        let quoted = words.map(|word| quoted(&word.to_string_lossy()));
        quoted.collect::<Vec<_>>().join(" ")
    }

    /// Starts it. Call this from a thread that lives as long as the child may: the kernel's death
    /// signal follows the starting thread.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the program is not there, or is none that can be
    /// run; [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be started.
    pub fn spawn(&self) -> Result<Child> {
        // The one place where the standard library's command is allowed.
        #[allow(clippy::disallowed_methods)]
        let mut command = std::process::Command::new(&self.program);
        command.args(&self.args).env_clear().process_group(0);
        let for_network: &[&str] = if self.network { &FOR_NETWORK } else { &[] };
        for name in PASSED_ON.iter().chain(for_network) {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("LC_ALL", "C.UTF-8").envs(&self.env);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command.stdin(if self.stdin.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        let merged = if matches!(self.stderr, Sink::Merged) {
            let (reader, writer) = merged_pipe()?;
            command.stdout(writer.try_clone().map_err(no_pipe)?);
            command.stderr(writer);
            Some(reader)
        } else {
            command.stdout(open_sink(&self.stdout)?);
            command.stderr(open_sink(&self.stderr)?);
            None
        };
        self.before_exec(&mut command);
        tracing::debug!("starting {}", self.shown());
        let mut child = command.spawn().map_err(|error| self.not_started(&error))?;
        if let Some(reader) = merged {
            child.stdout = Some(OwnedFd::from(reader).into());
        }
        if let (Some(bytes), Some(mut pipe)) = (self.stdin.clone(), child.stdin.take()) {
            // A child that does not read its input to the end closes the pipe; that is its right.
            std::thread::spawn(move || drop(pipe.write_all(&bytes)));
        }
        Ok(Child::new(child, self.shown(), self.to_its_end))
    }

    fn not_started(&self, error: &std::io::Error) -> Error {
        let program = self.program.to_string_lossy();
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        if let (true, Some(folder)) = (missing, &self.directory)
            && !folder.is_dir()
        {
            return Error::usage(format!(
                "`{program}` cannot be started in {}: there is no such folder",
                folder.display()
            ));
        }
        let unusable = error.kind() == std::io::ErrorKind::PermissionDenied
            || error.raw_os_error() == Some(libc::ENOEXEC);
        match (missing, program.contains('/')) {
            // It may be the configuration's own, of which `doctor` knows nothing.
            (true, false) => Error::usage(format!("`{program}` is not installed")).hint(
                "install it, or correct the command that names it; what perfquilt itself needs and is \
                 missing, `perfquilt doctor` names",
            ),
            (true, true) => Error::usage(format!("`{program}` cannot be started: {error}"))
                .hint("the file is missing, or the loader or interpreter that it names"),
            _ if unusable => Error::usage(format!("`{program}` cannot be started: {error}")),
            _ => Error::internal(format!("cannot start `{program}`: {error}")),
        }
    }

    #[allow(unsafe_code)]
    fn before_exec(&self, command: &mut std::process::Command) {
        let signal = match self.death_signal {
            _ if self.to_its_end => None,
            DeathSignal::Kill => Some(rustix::process::Signal::KILL),
            DeathSignal::Terminate => Some(rustix::process::Signal::TERM),
        };
        let parent = rustix::process::getpid();
        let cpus = self.cpus.as_deref().map(scheduling::set_of);
        let holds = self.holds.clone();
        let real_time = self.real_time;
        // SAFETY: between fork and exec only async-signal-safe system calls are made (prctl,
        // getppid, sched_setaffinity, sched_setscheduler, fcntl); nothing allocates or locks.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(signal)?;
                // The parent may have died before the line above took effect.
                if signal.is_some() && rustix::process::getppid() != Some(parent) {
                    return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
                }
                if let Some(set) = &cpus {
                    let _ = rustix::thread::sched_setaffinity(None, set);
                }
                if real_time {
                    let _ = scheduling::set_real_time(0);
                }
                if let Some(file) = &holds {
                    rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())?;
                }
                Ok(())
            });
        }
    }

    /// Runs it to its end, capturing both streams.
    ///
    /// # Errors
    /// As [`Command::spawn`]; [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted) when a signal
    /// asks this program to stop; the exit code is the caller's to judge.
    pub fn run(&self) -> Result<Output> {
        self.run_within(Duration::MAX)
    }

    /// Like [`Command::run`], but ends the process after `limit`.
    ///
    /// # Errors
    /// As [`Command::run`], and [`Kind::Bench`](perfquilt_model::error::Kind::Bench) when the limit is over.
    pub fn run_within(&self, limit: Duration) -> Result<Output> {
        self.run_unless(limit, &|| false)
    }

    /// Like [`Command::run_within`], but ends the process as soon as `unwanted` says so, too.
    ///
    /// # Errors
    /// As [`Command::run_within`], and [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted) when it was
    /// unwanted.
    pub fn run_unless(&self, limit: Duration, unwanted: &dyn Fn() -> bool) -> Result<Output> {
        let started = Instant::now();
        let mut command = self.clone();
        command.stdout = Sink::Pipe;
        command.stderr = Sink::Pipe;
        let child = command.spawn()?;
        child.finish(started, limit, unwanted)
    }

    /// Runs it and makes anything but exit code 0 an error of `kind` with the last lines it wrote.
    ///
    /// # Errors
    /// As [`Command::run`], and `kind`.
    pub fn run_ok(&self, kind: perfquilt_model::error::Kind) -> Result<Output> {
        let output = self.run()?;
        if output.success() {
            return Ok(output);
        }
        let program = Path::new(&self.program)
            .file_name()
            .unwrap_or(&self.program)
            .to_string_lossy()
            .into_owned();
        Err(
            Error::new(kind, format!("{program} {}", output.how_it_ended()))
                .details(output.tail(15))
                .hint(format!("the command was: {}", self.shown())),
        )
    }
}

fn merged_pipe() -> Result<(PipeReader, PipeWriter)> {
    std::io::pipe().map_err(no_pipe)
}

#[allow(clippy::needless_pass_by_value)] // What `map_err` passes.
fn no_pipe(error: std::io::Error) -> Error {
    Error::internal(format!("cannot make a pipe: {error}"))
}

fn open_sink(sink: &Sink) -> Result<Stdio> {
    Ok(match sink {
        Sink::Null => Stdio::null(),
        Sink::Pipe | Sink::Merged => Stdio::piped(),
        Sink::Inherit => Stdio::inherit(),
        Sink::File(path) => {
            let file = File::options()
                .create(true)
                .append(true)
                .open(path)
                .map_err(|e| Error::io("open", path, &e))?;
            Stdio::from(file)
        }
    })
}
