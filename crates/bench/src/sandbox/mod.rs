//! A bubblewrap sandbox for untrusted code: only a private loopback network, a read-only system, private home and
//! temporary folders, an environment without secrets, processes that end with the sandbox, and resource limits.
//! Only listed paths are visible inside, `/proc` is read-only, and system calls that no server needs are refused. Started
//! as root, its code runs as an unprivileged user.

mod cgroup;
mod domain;
mod enter;
mod limits;
mod process;
mod protection;
mod seccomp;
mod user;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cgroup::Cgroup;
pub use enter::enter;
pub use limits::{limit_this_process, no_core_files};
pub use process::{LimitedProcess, ProcessEnd, SandboxProcess, supervise, time_exceeded};
pub use protection::{Protection, protections};
use user::OtherUser;

use perfquilt_config::SandboxLimits;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::caches::SANDBOXES;
use perfquilt_system::process::{Command, DeathSignal, Sink, find_program};

/// Environment variable with the limits that perfquilt applies inside, as JSON.
const LIMITS: &str = "PERFQUILT_SANDBOX";
/// Environment variable that keeps real-time scheduling allowed inside.
const REAL_TIME: &str = "PERFQUILT_REAL_TIME";
/// Environment variable with the read-only caches whose entries are used inside.
const SHARED_CACHE: &str = "PERFQUILT_CACHE_BELOW";

/// System folders; links among them become links inside.
const SYSTEM: [&str; 7] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32",
];
/// System configuration that compilers and servers read; none of it is secret.
const CONFIGURATION: [&str; 14] = [
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/hosts",
    "/etc/services",
    "/etc/protocols",
    "/etc/localtime",
    "/etc/perl",
    "/etc/debian_version",
    "/sys/devices/system",
];
/// The folder of a cache in which servers are compiled.
const WORK: &str = "work";
/// Folder inside for the home, for temporary files and for sockets.
const HOME: &str = "/tmp/home";
/// Files in `/proc` about the kernel and other programs that not everybody may read.
const MASKED: [&str; 16] = [
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/slabinfo",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/kallsyms",
    "/proc/vmallocinfo",
    "/proc/pagetypeinfo",
    "/proc/config.gz",
];
/// OOM score that makes the kernel kill processes of a sandbox first when memory runs out.
const OOM_SCORE: &[u8] = b"1000";

/// How a path appears inside.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mount {
    Read(PathBuf),
    Write(PathBuf),
    Hide(PathBuf),
    Link { path: PathBuf, target: PathBuf },
}

impl Mount {
    fn path(&self) -> &Path {
        match self {
            Mount::Read(path) | Mount::Write(path) | Mount::Hide(path) => path,
            Mount::Link { path, .. } => path,
        }
    }
}

/// Description of a sandbox: visible paths besides the system, environment and limits. Later mounts cover earlier
/// ones.
#[derive(Debug, Clone, Default)]
pub struct Sandbox {
    mounts: Vec<Mount>,
    env: BTreeMap<OsString, OsString>,
    limits: SandboxLimits,
    cpus: Vec<usize>,
    real_time: bool,
}

impl Sandbox {
    /// Creates a sandbox with these limits in which only the system and the paths named in the limits are readable.
    pub fn new(limits: &SandboxLimits) -> Self {
        Sandbox {
            mounts: limits.read.iter().cloned().map(Mount::Read).collect(),
            limits: limits.clone(),
            ..Sandbox::default()
        }
    }

    /// Makes `path` readable inside; ignored if it does not exist.
    #[must_use]
    pub fn read(mut self, path: &Path) -> Self {
        self.mounts.push(Mount::Read(path.to_owned()));
        self
    }

    /// Makes `path`, which must exist, readable and writable inside.
    #[must_use]
    pub fn write(mut self, path: &Path) -> Self {
        self.mounts.push(Mount::Write(path.to_owned()));
        self
    }

    /// Replaces the folder `path` by an empty read-only one inside.
    #[must_use]
    pub fn hide(mut self, path: &Path) -> Self {
        self.mounts.push(Mount::Hide(path.to_owned()));
        self
    }

    /// Makes `path` a link to `target` inside.
    #[must_use]
    pub fn link(mut self, path: &Path, target: &Path) -> Self {
        self.mounts.push(Mount::Link {
            path: path.to_owned(),
            target: target.to_owned(),
        });
        self
    }

    /// Restricts the sandbox to these processors; an empty list allows all.
    #[must_use]
    pub fn cpus(mut self, cpus: &[usize]) -> Self {
        self.cpus = cpus.to_vec();
        self
    }

    /// Allows real-time scheduling inside, if this program may use it. It makes measurements precise, but a process
    /// that uses it can occupy a processor except for the share the kernel reserves.
    #[must_use]
    pub fn real_time(mut self) -> Self {
        self.real_time = true;
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.insert(name.into(), value.as_ref().to_owned());
        self
    }

    /// Adds the writable caches `own` and the read-only caches `shared`. Programs inside can use finished servers,
    /// data and compiled units of `shared` but cannot leave anything for others, nor see other sandboxes.
    #[must_use]
    pub fn caches(self, own: &Path, shared: &Path) -> Self {
        let compiled = shared.join("ccache");
        let mut sandbox = self.read(shared);
        // Whoever may read a lock file may lock it, and keep all other builds waiting.
        for hidden in [SANDBOXES, WORK] {
            let hidden = shared.join(hidden);
            if hidden.is_dir() {
                sandbox = sandbox.hide(&hidden);
            }
        }
        let sandbox = sandbox
            .write(own)
            .env(SHARED_CACHE, shared)
            .env("XDG_CACHE_HOME", own.parent().unwrap_or(own));
        if !compiled.is_dir() {
            return sandbox;
        }
        sandbox
            .env("CCACHE_DIR", compiled)
            .env("CCACHE_READONLY", "1")
            .env("CCACHE_TEMPDIR", HOME)
    }

    /// Starts the program `tool`, which is perfquilt, with `arguments` inside, in the folder `directory`.
    pub fn start(
        &self,
        tool: &Path,
        arguments: &[OsString],
        directory: &Path,
        (stdout, stderr): (Sink, Sink),
    ) -> Result<SandboxProcess> {
        let limits = limits::resolve(&self.limits);
        let user = OtherUser::needed(&limits.user)?;
        let status = tempfile::tempfile().map_err(|error| {
            Error::system_refused(format!("cannot create a temporary file: {error}"))
        })?;
        let status = Arc::new(status);
        if self.real_time {
            limits::allow_real_time();
        }
        let written = self.mounts.iter().filter_map(|mount| match mount {
            Mount::Write(path) => Some(path.clone()),
            _ => None,
        });
        let written: Vec<PathBuf> = written.collect();
        if let Some(user) = user {
            written.iter().try_for_each(|path| user.give(path))?;
        }
        let group = Cgroup::create(&limits);
        let mut inner = limits.clone();
        if group.is_some() {
            // The group refuses first, and tells it.
            inner.processes = inner.processes.saturating_mul(2);
        }
        let json = serde_json::to_string(&inner).map_err(Error::json)?;
        let mark = written.first().map(|path| path.to_string_lossy());
        let command = bubblewrap(user, &limits)?
            // If this program is killed before bubblewrap's process 1 has a death signal, the next start ends it.
            .belonging_to(&mark.unwrap_or_default())
            .args(["--json-status-fd", &status.as_raw_fd().to_string()])
            .args(mount_arguments(&Mount::Read(tool.to_owned())))
            .args(self.mounts.iter().flat_map(mount_arguments))
            .args(self.variables(&json, &limits.user, user.is_some()))
            .args(folders_above(&directory.join("inside")))
            .args(self.read_only_remounts())
            .args(["--chdir".as_ref(), directory.as_os_str()])
            .arg("--")
            .args(user.iter().flat_map(|user| user.command()))
            .arg(tool)
            .args(arguments)
            .stdout(stdout)
            .stderr(stderr)
            .death_signal(DeathSignal::Kill)
            .holding(&status)
            // Only a privileged process can lower the score again, and nobody inside can write to `/proc`.
            .writing(Path::new("/proc/self/oom_score_adj"), OOM_SCORE)?;
        let entrances: Vec<PathBuf> = group.iter().flat_map(Cgroup::entrances).collect();
        let mut entrances = entrances.iter();
        let command = entrances.try_fold(command, |command, path| command.writing(path, b"0"))?;
        let command = match self.cpus.as_slice() {
            [] => command,
            cpus => command.cpus(cpus),
        };
        let child = command.spawn()?;
        Ok(SandboxProcess::new(child, status, limits, written, group))
    }

    /// Returns the options that remount in-memory folders without a size limit read-only, since their content would
    /// not count as memory of any process. They must come after all mounts.
    fn read_only_remounts(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        for (index, mount) in self.mounts.iter().enumerate() {
            let Mount::Hide(path) = mount else { continue };
            let covers = |later: &Mount| path.starts_with(later.path());
            if !self.mounts[index + 1..].iter().any(covers) {
                words.extend(["--remount-ro".into(), path.into()]);
            }
        }
        let rest = ["/proc", "/dev", "/"];
        words.extend(
            rest.iter()
                .flat_map(|path| ["--remount-ro".into(), path.into()]),
        );
        words
    }

    fn variables(&self, limits: &str, user: &str, is_other_user: bool) -> Vec<OsString> {
        let mut variables: BTreeMap<OsString, OsString> = BTreeMap::new();
        let mut set = |name: &str, value: &OsStr| {
            variables.insert(name.into(), value.to_owned());
        };
        for name in ["PATH", "TERM", "COLUMNS", "NO_COLOR", "USER", "LOGNAME"] {
            if let Some(value) = std::env::var_os(name) {
                set(name, &value);
            }
        }
        if is_other_user {
            set("USER", user.as_ref());
            set("LOGNAME", user.as_ref());
        }
        for name in ["HOME", "TMPDIR", "XDG_RUNTIME_DIR"] {
            set(name, HOME.as_ref());
        }
        set("LC_ALL", "C.UTF-8".as_ref());
        set(LIMITS, limits.as_ref());
        if self.real_time {
            set(REAL_TIME, "1".as_ref());
        }
        variables.extend(self.env.clone());
        let mut words = vec!["--clearenv".into()];
        for (name, value) in variables {
            words.extend(["--setenv".into(), name, value]);
        }
        words
    }
}

/// Returns bubblewrap's options for namespaces, capabilities and the end of the sandbox, whose code runs as `user` if
/// this program is root.
fn isolation(user: Option<OtherUser>) -> Vec<OsString> {
    let ordinary = [
        "--unshare-user",
        // User namespaces expose more of the kernel to attacks.
        "--disable-userns",
        "--cap-drop",
        "ALL",
    ];
    // `setpriv` needs these, and has given them up when it starts the next program.
    let root = [
        "--cap-drop",
        "ALL",
        "--cap-add",
        "CAP_SETUID",
        "--cap-add",
        "CAP_SETGID",
    ];
    let rights: &[&str] = if user.is_some() { &root } else { &ordinary };
    let both = [
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--die-with-parent",
    ];
    rights.iter().chain(&both).map(OsString::from).collect()
}

/// Returns bubblewrap with the options that every sandbox has, whose code runs as `user` if this program is root.
fn bubblewrap(user: Option<OtherUser>, limits: &SandboxLimits) -> Result<Command> {
    let command = Command::new("bwrap").lifeline().args(isolation(user));
    let load = |command: Command, filter: &Arc<File>| {
        let number = filter.as_raw_fd().to_string();
        command.args(["--add-seccomp-fd", &number]).holding(filter)
    };
    let command = seccomp::files()?.iter().fold(command, load);
    Ok(command.args(system(limits)))
}

fn system(limits: &SandboxLimits) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |parts: &[&OsStr]| words.extend(parts.iter().map(|part| (*part).to_owned()));
    for folder in SYSTEM {
        match std::fs::read_link(folder) {
            Ok(target) => add(&["--symlink".as_ref(), target.as_os_str(), folder.as_ref()]),
            Err(_) => add(&["--ro-bind-try".as_ref(), folder.as_ref(), folder.as_ref()]),
        }
    }
    let configuration = CONFIGURATION.map(|path| Mount::Read(path.into()));
    words.extend(configuration.iter().flat_map(mount_arguments));
    let mut add = |parts: &[&OsStr]| words.extend(parts.iter().map(|part| (*part).to_owned()));
    add(&["--proc", "/proc", "--dev", "/dev"].map(OsStr::new));
    let bytes = |mib: u64| (mib << 20).to_string();
    let (shared, temporary) = (bytes(limits.memory_mib / 2), bytes(limits.memory_mib / 4));
    for path in MASKED.iter().filter(|path| Path::new(path).exists()) {
        add(&["--ro-bind", "/dev/null", path].map(OsStr::new));
    }
    // As root, bubblewrap creates them for another user.
    for (size, path) in [(&shared, "/dev/shm"), (&temporary, "/tmp")] {
        add(&["--perms", "1777", "--size", size, "--tmpfs", path].map(OsStr::new));
    }
    add(&["--perms", "1777", "--dir", HOME].map(OsStr::new));
    words
}

fn mount_arguments(mount: &Mount) -> Vec<OsString> {
    let bind = |how: &str, path: &Path| [how.into(), path.into(), path.into()].to_vec();
    let words: Vec<OsString> = match mount {
        Mount::Read(path) => bind("--ro-bind-try", path),
        Mount::Write(path) => bind("--bind", path),
        Mount::Hide(path) => vec!["--tmpfs".into(), path.into()],
        Mount::Link { path, target } => vec!["--symlink".into(), target.into(), path.into()],
    };
    folders_above(mount.path()).chain(words).collect()
}

/// Returns bubblewrap's options that make the folders above `path` where they are missing. Those that it makes by itself
/// are for its own user only.
fn folders_above(path: &Path) -> impl Iterator<Item = OsString> {
    let mut folders: Vec<&Path> = path.ancestors().skip(1).collect();
    // Not the root, which is there.
    folders.pop();
    let words = |folder: &Path| {
        [
            "--perms".into(),
            "0755".into(),
            "--dir".into(),
            folder.into(),
        ]
    };
    let words: Vec<OsString> = folders.into_iter().rev().flat_map(words).collect();
    words.into_iter()
}

/// Returns the MiB of memory that `limits` allow on this machine.
pub fn memory_limit(limits: &SandboxLimits) -> u64 {
    limits::resolve(limits).memory_mib
}

/// Checks whether sandboxes with these limits can be created on this machine.
pub fn check_support(limits: &SandboxLimits) -> std::result::Result<(), String> {
    const TIMEOUT: Duration = Duration::from_secs(10);
    if find_program("bwrap").is_none() {
        return Err("bubblewrap is not installed".to_owned());
    }
    let words = |error: Error| match error.hint_text() {
        Some(hint) => format!("{error}: {hint}"),
        None => error.to_string(),
    };
    let user = OtherUser::needed(&limits.user).map_err(words)?;
    let command = bubblewrap(user, &limits::resolve(limits))
        .map_err(words)?
        .args(Sandbox::default().read_only_remounts())
        .arg("--")
        .args(user.iter().flat_map(|user| user.command()))
        .args(["/bin/sh", "-c", "exit 0"]);
    let output = command.run_within(TIMEOUT).map_err(words)?;
    if output.success() {
        Ok(())
    } else {
        Err(format!(
            "bubblewrap cannot create a sandbox: {}",
            output.tail(1).join(" ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_folders_are_read_only_unless_covered() {
        let sandbox = Sandbox::new(&SandboxLimits::default())
            .hide(Path::new("/a/hidden"))
            .write(Path::new("/a/hidden/below"))
            .hide(Path::new("/b/c"))
            .write(Path::new("/b"))
            .hide(Path::new("/d"))
            .read(Path::new("/d"));
        assert_eq!(
            sandbox.read_only_remounts(),
            [
                "--remount-ro",
                "/a/hidden",
                "--remount-ro",
                "/proc",
                "--remount-ro",
                "/dev",
                "--remount-ro",
                "/"
            ]
        );
    }
}
