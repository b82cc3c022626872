//! Starts processes; the only module that does.
//!
//! Every child leads its own process group, gets a parent-death signal and a small, explicit environment
//! without our secrets, and is stopped when its handle is dropped. Only uninterruptible children
//! ([`Command::uninterruptible`]) outlive this program.

mod child;
mod exit_status;
mod namespace;
mod orphans;
mod process_tree;
mod scheduling;
mod signals;
mod terminal;
#[cfg(test)]
mod tests;
mod unstartable;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{PipeReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

pub use child::{Child, was_stopped};
pub use exit_status::describe_exit;
pub use orphans::{OrphanProcess, end_processes_of};
pub use process_tree::{children, process_tree, process_tree_time};
pub use scheduling::cpu_set;
pub use scheduling::{may_set_real_time, processor_time, set_real_time};
pub use signals::{
    check_interrupted, check_interrupted_soon, end_at_first_signal, install_signal_handlers,
    interrupt, interrupted, sleep,
};
pub use terminal::is_in_foreground;
pub use unstartable::foreign_machine;

use rustix::process::{Resource, Rlimit};

use crate::packages::install_hint;
use perfquilt_model::error::{DISK_FULL, Error, Kind, Result};

/// Environment variables that children inherit; all others are withheld.
const INHERITED_VARIABLES: [&str; 11] = [
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

/// Environment variables that programs with network access inherit in addition. A proxy's address may contain a
/// password and an SSH agent grants logins, so compilers, servers and clients do not get them.
const NETWORK_VARIABLES: [&str; 7] = [
    "SSH_AUTH_SOCK",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
];

/// The destination of a child's output stream.
#[derive(Debug, Clone, Default)]
pub enum Sink {
    /// Discards the stream.
    #[default]
    Null,
    /// Appends the stream to a file.
    File(PathBuf),
    /// Pipes the stream to this program, see [`Child`].
    Pipe,
    /// Uses this program's stream.
    Inherit,
    /// For standard error only: the same pipe as standard output, so that lines stay in order.
    Merged,
}

/// A process to start.
#[derive(Debug, Clone, Default)]
pub struct Command {
    program: OsString,
    args: Vec<OsString>,
    directory: Option<PathBuf>,
    env: BTreeMap<OsString, OsString>,
    /// Inherited environment variables that it does not get.
    withheld: &'static [&'static str],
    network: bool,
    stdin: Option<Vec<u8>>,
    stdout: Sink,
    stderr: Sink,
    death_signal: DeathSignal,
    cpus: Option<Vec<usize>>,
    real_time: bool,
    open_files: Vec<Arc<File>>,
    writes: Vec<(CString, &'static [u8])>,
    /// `None` without any restriction.
    restricted: Option<Exceptions>,
    uninterruptible: bool,
    ordinary_user: bool,
    foreground: bool,
    output_limit: usize,
    limits: Vec<(Resource, u64)>,
    lifeline: bool,
    mark: Option<String>,
}

/// Exceptions of one process from [`restrict_children`].
#[derive(Debug, Clone, Default)]
pub struct Exceptions {
    /// Whether it may signal others: valgrind asks whether `vgdb` lives.
    pub signals: bool,
    /// The only folders that it may write to; empty for those of all processes.
    pub folders: Vec<PathBuf>,
}

/// Restricts the calling process; makes only async-signal-safe calls.
pub type Restriction = Box<dyn Fn() -> std::io::Result<()> + Send + Sync>;

/// The argument of [`restrict_children`].
static RESTRICTION: OnceLock<fn(&Exceptions) -> std::io::Result<Restriction>> = OnceLock::new();

/// Has every process that this program starts from now on call what `restriction` returns for it before it starts its program,
/// except for those that are [`Command::unrestricted`]. The first call counts.
pub fn restrict_children(restriction: fn(&Exceptions) -> std::io::Result<Restriction>) {
    let _ = RESTRICTION.set(restriction);
}

/// The limit of open files that processes get which this program starts, if its own one is another.
static OPEN_FILES: OnceLock<Rlimit> = OnceLock::new();

/// Lets this program open as many files as its user may raise the limit to: with many servers and lanes it needs more than
/// the usual thousand. What it starts keeps the limit as it was, which decides how large some servers make their caches.
pub fn raise_open_files() {
    let before = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        ..before
    };
    if rustix::process::setrlimit(Resource::Nofile, raised).is_ok() {
        let _ = OPEN_FILES.set(before);
    }
}

/// The user `nobody`, as which [`Command::ordinary_user`] runs: `getpwuid` knows it on nearly every system.
const NOBODY: u32 = 65534;

/// Linux's command of `fcntl` that chooses the signal of a file that is ready.
const F_SETSIG: i32 = 10;
/// How long a program may be open for writing before it cannot be started.
const BUSY: Duration = Duration::from_secs(5);
/// Time between two attempts to start such a program.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Starts a program that this process may just have written: a child that another thread has forked meanwhile holds the
/// file open for writing until it executes its own program, and the kernel refuses to start it as long.
fn unless_busy<T>(mut start: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    let until = Instant::now() + BUSY;
    loop {
        match start() {
            Err(error)
                if error.kind() == std::io::ErrorKind::ExecutableFileBusy
                    && Instant::now() < until =>
            {
                std::thread::sleep(BUSY_PAUSE);
            }
            done => return done,
        }
    }
}

/// The signal that the kernel sends a child when this program dies for any reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeathSignal {
    /// SIGKILL: for programs without children of their own.
    #[default]
    Kill,
    /// SIGTERM: for programs that stop their own children on it (ninja, make).
    Terminate,
    /// SIGQUIT: for servers whose children leave the process group, and which end all of them on it
    /// (PostgreSQL). [`Child`] sends it too before it kills the group.
    Quit,
}

/// The result of a finished process.
#[derive(Debug)]
pub struct Output {
    /// The exit code; `None` when a signal ended the process.
    pub code: Option<i32>,
    /// The signal that ended the process.
    pub signal: Option<i32>,
    /// The process's standard output.
    pub stdout: Vec<u8>,
    /// The process's standard error.
    pub stderr: Vec<u8>,
    /// Wall-clock time from start to end.
    pub elapsed: Duration,
    /// The names of the processes that it left in its group, and which ended with it; only of a
    /// [`Command::uninterruptible`] one.
    pub cut_off: Vec<String>,
    /// Whether the process was stopped by a signal, and continued at least 40 ms before its end.
    pub was_stopped: bool,
}

impl Output {
    /// Returns whether the exit code is 0.
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }

    /// Returns standard output as text, with invalid bytes replaced.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns standard error as text, with invalid bytes replaced.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Describes the exit status: `exited with 1` or `was ended by signal 11 (SIGSEGV)`.
    pub fn describe_exit(&self) -> String {
        exit_status::describe(self.code, self.signal)
    }

    /// Returns the last `count` lines of standard error, or of standard output when that is empty.
    pub fn tail(&self, count: usize) -> Vec<String> {
        let text = if self.stderr.is_empty() {
            self.stdout_text()
        } else {
            self.stderr_text()
        };
        last_lines(&text, count)
    }
}

/// Returns the last `count` lines of `text`.
pub fn last_lines(text: &str, count: usize) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..]
        .iter()
        .map(|line| (*line).to_owned())
        .collect()
}

/// Returns the number in field `number` of `/proc/PID/stat`, counted from 1 as in proc(5), for fields after the
/// second. The second, the name, may contain any characters.
pub fn stat_field(stat: &str, number: usize) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let word = rest.split_ascii_whitespace().nth(number.checked_sub(3)?)?;
    word.parse().ok()
}

/// Returns the error for a machine without `program`.
pub fn missing(program: &str) -> Error {
    let hint = install_hint(program).unwrap_or_else(|| {
        "`perfquilt doctor` names what is missing and the command that installs it".to_owned()
    });
    Error::program_missing(format!("`{program}` is not installed")).hint(hint)
}

/// Returns the full path of an executable on `PATH`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    which::which_global(name).ok()
}

/// Returns `text` with the user names and passwords of its URLs removed: either may be a token.
pub fn without_credentials(text: &str) -> String {
    const SCHEME_END: &str = "://";
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(SCHEME_END) {
        let (scheme, after) = rest.split_at(at + SCHEME_END.len());
        shown.push_str(scheme);
        let ends = |c: char| c.is_whitespace() || "/?#'\"".contains(c);
        let authority = &after[..after.find(ends).unwrap_or(after.len())];
        rest = &after[authority.rfind('@').map_or(0, |at| at + 1)..];
    }
    shown + rest
}

/// Quotes `word` for a shell, if necessary.
pub fn quoted(word: &str) -> String {
    // shlex would quote `=,%{}` too, which most options contain and which rarely mean something to a shell.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%{}".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), Cow::into_owned)
}

impl Command {
    /// Returns a command for `program` (looked up on `PATH` unless it contains a slash) without arguments, with
    /// empty standard input and discarded output.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Command {
            program: program.as_ref().to_owned(),
            restricted: Some(Exceptions::default()),
            output_limit: usize::MAX,
            ..Command::default()
        }
    }

    /// Returns a command from a list of words, the first of which is the program.
    pub fn from_words(words: &[String]) -> Result<Self> {
        let (program, args) = words
            .split_first()
            .ok_or_else(|| Error::configuration("an empty command in the configuration"))?;
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

    /// Runs it as the last words of the command `before`.
    #[must_use]
    pub fn behind(mut self, before: Vec<OsString>) -> Self {
        let words = before.into_iter().chain([self.program]).chain(self.args);
        let mut words: Vec<OsString> = words.collect();
        self.program = words.remove(0);
        self.args = words;
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

    /// Sets environment variables.
    #[must_use]
    pub fn envs<N: AsRef<OsStr>, V: AsRef<OsStr>>(
        self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let variables = variables.into_iter();
        variables.fold(self, |command, (name, value)| command.env(name, value))
    }

    /// Withholds inherited environment variables.
    #[must_use]
    pub fn without_env(mut self, names: &'static [&'static str]) -> Self {
        self.withheld = names;
        self
    }

    /// Passes on the proxies and the SSH agent of our environment: for system programs (git, apt, a downloader)
    /// that fetch something, never for programs that are built or measured.
    #[must_use]
    pub fn network(mut self) -> Self {
        self.network = true;
        self
    }

    /// Passes `bytes` on standard input, which is empty by default.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(bytes.into());
        self
    }

    /// Sets the destination of standard output ([`Command::run`] always captures it).
    #[must_use]
    pub fn stdout(mut self, sink: Sink) -> Self {
        self.stdout = sink;
        self
    }

    /// Sets the destination of standard error ([`Command::run`] always captures it).
    #[must_use]
    pub fn stderr(mut self, sink: Sink) -> Self {
        self.stderr = sink;
        self
    }

    /// Sets the parent-death signal.
    #[must_use]
    pub fn death_signal(mut self, signal: DeathSignal) -> Self {
        self.death_signal = signal;
        self
    }

    /// Enables real-time scheduling on its processors (ignored when the kernel refuses).
    #[must_use]
    pub fn real_time(mut self, real_time: bool) -> Self {
        self.real_time = real_time;
        self
    }

    /// Restricts it to these processors (ignored when the kernel refuses).
    #[must_use]
    pub fn cpus(mut self, cpus: &[usize]) -> Self {
        self.cpus = Some(cpus.to_vec());
        self
    }

    /// Keeps `file` open in the child and its descendants, so that a lock on it lasts until the last of them
    /// has ended, even when this program dies first.
    #[must_use]
    pub fn holding(mut self, file: &Arc<File>) -> Self {
        self.open_files.push(Arc::clone(file));
        self
    }

    /// Has the new process write `text` to the file `path` before it starts its program, to join a control group or to
    /// change its OOM score (ignored when the kernel refuses).
    pub fn writing(mut self, path: &Path, text: &'static [u8]) -> Result<Self> {
        let path = CString::new(path.as_os_str().as_encoded_bytes())
            .map_err(|_| Error::system_refused("a path with a NUL"))?;
        self.writes.push((path, text));
        Ok(self)
    }

    /// Gives the process these exceptions where children are restricted. The first of its folders is for its temporary files.
    #[must_use]
    pub fn excepted(mut self, exceptions: Exceptions) -> Self {
        if let (Some(first), Some(_)) = (exceptions.folders.first(), RESTRICTION.get()) {
            self.env.insert("TMPDIR".into(), first.into());
        }
        self.restricted = Some(exceptions);
        self
    }

    /// Has the process write only to `folders` where children are restricted. The first one is for its temporary files.
    #[must_use]
    pub fn writing_to(self, folders: Vec<PathBuf>) -> Self {
        self.excepted(Exceptions {
            folders,
            ..Exceptions::default()
        })
    }

    /// Has the process write only into the folder of `path` where children are restricted.
    #[must_use]
    pub fn writing_beside(self, path: &Path) -> Self {
        self.writing_to(path.parent().map(Path::to_owned).into_iter().collect())
    }

    /// Exempts the process from [`restrict_children`]: for `perf` and `vgdb`, which observe servers, for git, and for what
    /// removes folders.
    #[must_use]
    pub fn unrestricted(mut self) -> Self {
        self.restricted = None;
        self
    }

    /// Limits each stream that [`Command::run`] captures to `most` bytes: a process that writes more is an error.
    #[must_use]
    pub fn output_limit(mut self, most: usize) -> Self {
        self.output_limit = most;
        self
    }

    /// Limits a resource of the process and of its descendants (ignored where its limit is lower already).
    #[must_use]
    pub fn limit(mut self, resource: Resource, most: u64) -> Self {
        self.limits.push((resource, most));
        self
    }

    /// Starts a session of its own, without a terminal, and has the kernel kill its process group when this program dies: unlike the
    /// parent-death signal, that reaches the group's other processes, from the first moment on.
    #[must_use]
    pub fn lifeline(mut self) -> Self {
        self.lifeline = true;
        self
    }

    /// Ends everything that it starts when it ends, also what leaves its process group. `mark` is in the environment of all
    /// its descendants and of no other start's.
    #[must_use]
    pub fn mark(mut self, mark: impl Into<String>) -> Self {
        self.mark = Some(mark.into());
        self
    }

    /// Makes what it leaves behind belong to the running start with this mark, see [`Command::mark`].
    #[must_use]
    pub fn belonging_to(self, mark: &str) -> Self {
        self.env(orphans::MARK, mark)
    }

    /// Lets it run to completion: this program stops only after it ends when a signal asks to stop, and it gets
    /// no parent-death signal.
    #[must_use]
    pub fn uninterruptible(mut self) -> Self {
        self.uninterruptible = true;
        self
    }

    /// Makes the process group the one that reads this program's terminal, which standard output must be: for a pager.
    /// The terminal is this program's again when the process has ended.
    #[must_use]
    pub fn foreground(mut self) -> Self {
        self.foreground = true;
        self
    }

    /// Runs it as an ordinary user if this program runs as root, for programs that refuse root: in a user namespace
    /// of its own, in which root's files belong to `nobody`. Nothing on the disk changes its owner, and System V
    /// shared memory vanishes with the namespace.
    #[must_use]
    pub fn ordinary_user(mut self) -> Self {
        self.ordinary_user = rustix::process::geteuid().is_root();
        self
    }

    /// Returns the command as a user would type it, without the user names and passwords of URLs.
    pub fn shown(&self) -> String {
        let words = std::iter::once(&self.program).chain(&self.args);
        let quoted = words.map(|word| quoted(&without_credentials(&word.to_string_lossy())));
        quoted.collect::<Vec<_>>().join(" ")
    }

    /// Starts the process. The calling thread must live as long as the child, because the kernel's parent-death
    /// signal follows the starting thread.
    ///
    /// # Errors
    /// [`Kind::Usage`] when the program is missing or not executable;
    /// [`Kind::Internal`] when it cannot be started.
    pub fn spawn(&self) -> Result<Child> {
        // The only place where the standard library's command is allowed.
        #[allow(clippy::disallowed_methods)]
        let mut command = std::process::Command::new(&self.program);
        command.args(&self.args).env_clear();
        if !self.lifeline {
            command.process_group(0);
        }
        let network: &[&str] = if self.network {
            &NETWORK_VARIABLES
        } else {
            &[]
        };
        for name in INHERITED_VARIABLES.iter().chain(network) {
            let value = std::env::var_os(name).filter(|_| !self.withheld.contains(name));
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command.env("LC_ALL", "C.UTF-8").envs(&self.env);
        if let Some(mark) = &self.mark {
            orphans::adopt_orphans();
            command.env(orphans::MARK, mark);
        }
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command.stdin(if self.stdin.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        let merged = if matches!(self.stderr, Sink::Merged) {
            let (reader, writer) = std::io::pipe().map_err(no_pipe)?;
            command.stdout(writer.try_clone().map_err(no_pipe)?);
            command.stderr(writer);
            Some(reader)
        } else {
            command.stdout(open_sink(&self.stdout)?);
            command.stderr(open_sink(&self.stderr)?);
            None
        };
        let lifeline = self.lifeline.then(std::io::pipe).transpose();
        let (reader, lifeline) = lifeline.map_err(no_pipe)?.unzip();
        let restrict = RESTRICTION.get().zip(self.restricted.as_ref());
        let restriction = restrict.map(|(restrict, exceptions)| restrict(exceptions));
        let restriction = restriction.transpose();
        let restriction = restriction.map_err(|error| self.not_started(&error))?;
        self.before_exec(&mut command, reader, restriction);
        tracing::debug!("starting {}", self.shown());
        if self
            .file()
            .is_some_and(|file| foreign_machine(&file).is_some())
            && let Some(fault) = self.unstartable()
        {
            return Err(fault);
        }
        let mut child = unless_busy(|| orphans::start_child(|| command.spawn()))
            .map_err(|error| self.not_started(&error))?;
        if let Some(reader) = merged {
            child.stdout = Some(OwnedFd::from(reader).into());
        }
        if let (Some(bytes), Some(mut pipe)) = (self.stdin.clone(), child.stdin.take()) {
            // A child may close the pipe without reading all of its input.
            let write = std::thread::Builder::new().spawn(move || drop(pipe.write_all(&bytes)));
            if let Err(error) = write {
                let _ = child.kill().and_then(|()| child.wait());
                return Err(no_thread(&error));
            }
        }
        Ok(Child::new(child, self, lifeline))
    }

    fn not_started(&self, error: &std::io::Error) -> Error {
        let program = self.program.to_string_lossy();
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        if let (true, Some(folder)) = (missing, &self.directory)
            && !folder.is_dir()
        {
            return Error::program_unusable(format!(
                "`{program}` cannot be started in {}: there is no such folder",
                folder.display()
            ));
        }
        if let Some(fault) = self.unstartable() {
            return fault;
        }
        let unusable = error.kind() == std::io::ErrorKind::PermissionDenied
            || error.raw_os_error() == Some(libc::ENOEXEC);
        match (missing, program.contains('/')) {
            // The configuration may name the program, and then `doctor` does not know it.
            (true, false) => Error::program_missing(format!("`{program}` is not installed")).hint(
                install_hint(&program).unwrap_or_else(|| {
                    "install it, or correct the command that names it; `perfquilt doctor` lists what perfquilt itself \
                     needs and is missing"
                        .to_owned()
                }),
            ),
            (true, true) => Error::program_unusable(format!("`{program}` cannot be started: {error}"))
                .hint("correct the command that names it"),
            _ if unusable => Error::program_unusable(format!("`{program}` cannot be started: {error}")),
            _ => Error::system_refused(format!("cannot start `{program}`: {error}")),
        }
    }

    /// Returns why the file of the program does not start, if that is known.
    fn unstartable(&self) -> Option<Error> {
        let path = self.file()?;
        let (cause, help) = unstartable::reason(&path)?;
        let path = path.display();
        Some(Error::program_unusable(format!("`{path}` cannot be started: {cause}")).hint(help))
    }

    /// Returns the file of the program.
    fn file(&self) -> Option<PathBuf> {
        if !self.program.as_encoded_bytes().contains(&b'/') {
            let has_own_path = self.env.contains_key(OsStr::new("PATH"));
            return find_program(self.program.to_str()?).filter(|_| !has_own_path);
        }
        let folder = self.directory.as_deref().unwrap_or(Path::new(""));
        Some(folder.join(&self.program))
    }

    #[allow(unsafe_code)]
    fn before_exec(
        &self,
        command: &mut std::process::Command,
        lifeline: Option<PipeReader>,
        restriction: Option<Restriction>,
    ) {
        let signal = match self.death_signal {
            _ if self.uninterruptible => None,
            DeathSignal::Kill => Some(rustix::process::Signal::KILL),
            DeathSignal::Terminate => Some(rustix::process::Signal::TERM),
            DeathSignal::Quit => Some(rustix::process::Signal::QUIT),
        };
        let parent = rustix::process::getpid();
        let cpus = self.cpus.as_deref().map(scheduling::cpu_set);
        let open_files = self.open_files.clone();
        let writes = self.writes.clone();
        let limits = self.limits.clone();
        let own_files = OPEN_FILES.get().copied();
        let (real_time, foreground) = (self.real_time, self.foreground);
        let maps = self.ordinary_user.then(|| {
            let map = |own: u32| format!("{NOBODY} {own} 1").into_bytes();
            let user = map(rustix::process::geteuid().as_raw());
            (user, map(rustix::process::getegid().as_raw()))
        });
        // SAFETY: between fork and exec only async-signal-safe system calls are made (unshare, open, write,
        // prctl, getppid, setrlimit, sched_setaffinity, sched_setscheduler, signal, ioctl, fcntl, seccomp); nothing allocates
        // or locks.
        unsafe {
            command.pre_exec(move || {
                if let Some((user, group)) = &maps {
                    // First, because a change of credentials clears the death signal.
                    namespace::enter_user_namespace(user, group)?;
                }
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
                if let Some(before) = &own_files {
                    let _ = rustix::process::setrlimit(Resource::Nofile, *before);
                }
                if let Some(lifeline) = &lifeline {
                    let group = -rustix::process::setsid()?.as_raw_pid();
                    for (command, value) in [
                        (libc::F_SETOWN, group),
                        (F_SETSIG, libc::SIGKILL),
                        (libc::F_SETFL, libc::O_ASYNC),
                        (libc::F_SETFD, 0),
                    ] {
                        if libc::fcntl(lifeline.as_raw_fd(), command, value) < 0 {
                            return Err(std::io::Error::last_os_error());
                        }
                    }
                }
                for (resource, most) in &limits {
                    let most = Some(*most);
                    let new = Rlimit {
                        current: most,
                        maximum: most,
                    };
                    let _ = rustix::process::setrlimit(*resource, new);
                }
                if foreground {
                    terminal::give_to(rustix::process::getpid());
                }
                for file in &open_files {
                    rustix::io::fcntl_setfd(file, rustix::io::FdFlags::empty())?;
                }
                for (path, text) in &writes {
                    let _ = namespace::write(path, text);
                }
                // Last, because it may forbid the calls above.
                restriction.as_ref().map_or(Ok(()), |restrict| restrict())
            });
        }
    }

    /// Runs the command to completion and captures both streams.
    ///
    /// # Errors
    /// Those of [`Command::spawn`]; [`Kind::Interrupted`] when a
    /// signal asks this program to stop; [`Kind::Bench`] when it writes more than
    /// its limit ([`Command::output_limit`]). A failing exit code is not an error.
    pub fn run(&self) -> Result<Output> {
        self.run_within(Duration::MAX)
    }

    /// Runs the command like [`Command::run`], but stops the process after `limit`.
    pub fn run_within(&self, limit: Duration) -> Result<Output> {
        self.run_cancellable(limit, &|| false)
    }

    /// Runs the command like [`Command::run_within`], but also stops the process as soon as `cancelled` returns
    /// true.
    pub fn run_cancellable(&self, limit: Duration, cancelled: &dyn Fn() -> bool) -> Result<Output> {
        let started = Instant::now();
        let mut command = self.clone();
        command.stdout = Sink::Pipe;
        command.stderr = Sink::Pipe;
        let child = command.spawn()?;
        child.finish(started, limit, self.output_limit, cancelled)
    }

    /// Runs the command; any exit code but 0 is an error of `kind` with the last lines of output.
    pub fn run_ok(&self, kind: Kind) -> Result<Output> {
        self.require_success(self.run()?, kind)
    }

    /// Returns `output`, which this command had, if its exit code is 0.
    pub fn require_success(&self, output: Output, kind: Kind) -> Result<Output> {
        if output.success() {
            return Ok(output);
        }
        let program = Path::new(&self.program)
            .file_name()
            .unwrap_or(&self.program)
            .to_string_lossy()
            .into_owned();
        let tail = output.tail(15);
        let ended = format!("{program} {}", output.describe_exit());
        // As most programs say it, in English by `LC_ALL`.
        let is_full = |line: &String| line.contains("No space left on device");
        Err(if tail.iter().any(is_full) {
            Error::disk_full(ended).details(tail).hint(DISK_FULL)
        } else {
            Error::program_failed(ended)
                .of_kind(kind)
                .details(tail)
                .hint(format!("the command was: {}", self.shown()))
        })
    }
}

/// Returns the error for a machine, or a user, without free processes.
fn no_thread(error: &std::io::Error) -> Error {
    Error::program_limit(format!("cannot start a thread: {error}"))
        .hint("raise the limit of processes (`ulimit -u`, `processes` in [sandbox]), or end some")
}

#[allow(clippy::needless_pass_by_value)] // What `map_err` passes.
fn no_pipe(error: std::io::Error) -> Error {
    Error::system_refused(format!("cannot make a pipe: {error}"))
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
