//! A sandbox for code of strangers, made by bubblewrap: no network but a loopback of its own, the system
//! read-only, a home and temporary folders of its own, an environment without secrets, processes that end
//! with it, and limits on what it uses. What it may read and write is listed; nothing else is there.

mod enter;
mod inside;
mod limits;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use enter::enter;
pub use inside::{End, Inside, Watched, too_long, watch};

use perfquilt_config::Limits;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::{Command, DeathSignal, Sink, find_program};

/// Tells perfquilt inside which limits to take on, as JSON.
const LIMITS: &str = "PERFQUILT_SANDBOX";
/// Tells it to leave real-time scheduling allowed.
const REAL_TIME: &str = "PERFQUILT_REAL_TIME";
/// Names the caches that can be read inside and whose entries are used.
const CACHE_BELOW: &str = "PERFQUILT_CACHE_BELOW";

/// Folders of the system; where they are links, links are made.
const SYSTEM: [&str; 7] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32",
];
/// What compilers and servers read of the system's configuration. Nothing that is secret is among it.
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
/// The home inside.
const HOME: &str = "/tmp/home";

/// What a path is inside.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mount {
    Read(PathBuf),
    Write(PathBuf),
    Hide(PathBuf),
}

impl Mount {
    fn path(&self) -> &Path {
        match self {
            Mount::Read(path) | Mount::Write(path) | Mount::Hide(path) => path,
        }
    }
}

/// What can be seen and changed in a sandbox besides the system. Later entries lie over earlier ones.
#[derive(Debug, Clone, Default)]
pub struct Sandbox {
    mounts: Vec<Mount>,
    env: BTreeMap<OsString, OsString>,
    limits: Limits,
    cpus: Vec<usize>,
    real_time: bool,
}

impl Sandbox {
    /// One with these limits in which nothing can be read but the system and what the limits name.
    pub fn new(limits: &Limits) -> Self {
        Sandbox {
            mounts: limits.read.iter().cloned().map(Mount::Read).collect(),
            limits: limits.clone(),
            ..Sandbox::default()
        }
    }

    /// `path` can be read, at the same place; nothing happens when it does not exist.
    #[must_use]
    pub fn read(mut self, path: &Path) -> Self {
        self.mounts.push(Mount::Read(path.to_owned()));
        self
    }

    /// `path`, which must exist, can be read and written.
    #[must_use]
    pub fn write(mut self, path: &Path) -> Self {
        self.mounts.push(Mount::Write(path.to_owned()));
        self
    }

    /// The folder `path` is empty, and stays so.
    #[must_use]
    pub fn hide(mut self, path: &Path) -> Self {
        self.mounts.push(Mount::Hide(path.to_owned()));
        self
    }

    /// Only these processors are used; all when there are none.
    #[must_use]
    pub fn cpus(mut self, cpus: &[usize]) -> Self {
        self.cpus = cpus.to_vec();
        self
    }

    /// What runs inside may ask for real-time scheduling, as far as this program may: precise, but whoever
    /// has it can keep a processor to themselves but for the share the kernel reserves.
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

    /// The caches `own`, which can be written, and beside them what `below` has, which can only be read: what
    /// runs inside finds finished servers, data and compiled units there, but can leave nothing to others.
    #[must_use]
    pub fn caches(self, own: &Path, below: &Path) -> Self {
        let compiled = below.join("ccache");
        let sandbox = self
            .write(own)
            .read(below)
            .env(CACHE_BELOW, below)
            .env("XDG_CACHE_HOME", own.parent().unwrap_or(own));
        if !compiled.is_dir() {
            return sandbox;
        }
        sandbox
            .env("CCACHE_DIR", compiled)
            .env("CCACHE_READONLY", "1")
            .env("CCACHE_TEMPDIR", "/tmp")
    }

    /// Starts perfquilt, the program `tool`, with `arguments` inside, in the folder `directory`.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when bubblewrap is not installed or the sandbox cannot be
    /// made.
    pub fn start(
        &self,
        tool: &Path,
        arguments: &[OsString],
        directory: &Path,
        (stdout, stderr): (Sink, Sink),
    ) -> Result<Inside> {
        let limits = limits::settled(&self.limits);
        let status = tempfile::tempfile()
            .map_err(|error| Error::internal(format!("cannot make a file: {error}")))?;
        let status = Arc::new(status);
        if self.real_time {
            limits::allow_real_time();
        }
        let json = serde_json::to_string(&limits)
            .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
        let command = Command::new("bwrap")
            .args(["--json-status-fd", &status.as_raw_fd().to_string()])
            .args(apart())
            .args(system(&limits))
            .args(["--ro-bind".as_ref(), tool.as_os_str(), tool.as_os_str()])
            .args(self.mounts.iter().flat_map(words))
            .args(self.variables(&json))
            .args(["--dir".as_ref(), directory.as_os_str()])
            .args(self.closed())
            .args(["--chdir".as_ref(), directory.as_os_str()])
            .arg("--")
            .arg(tool)
            .args(arguments)
            .stdout(stdout)
            .stderr(stderr)
            .death_signal(DeathSignal::Kill)
            .holding(&status);
        let command = match self.cpus.as_slice() {
            [] => command,
            cpus => command.cpus(cpus),
        };
        let disks = self.mounts.iter().filter_map(|mount| match mount {
            Mount::Write(path) => Some(path.clone()),
            _ => None,
        });
        Ok(Inside::new(
            command.spawn()?,
            status,
            limits,
            disks.collect(),
        ))
    }

    /// Closes the folders in memory that have no size of their own and that nothing needs to write to: what
    /// is in them counts as nobody's memory. To be done when all else is in its place.
    fn closed(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        for (index, mount) in self.mounts.iter().enumerate() {
            let Mount::Hide(path) = mount else { continue };
            let lies_over = |later: &Mount| path.starts_with(later.path());
            if !self.mounts[index + 1..].iter().any(lies_over) {
                words.extend(["--remount-ro".into(), path.into()]);
            }
        }
        words.extend(["--remount-ro", "/dev", "--remount-ro", "/"].map(OsString::from));
        words
    }

    fn variables(&self, limits: &str) -> Vec<OsString> {
        let mut variables: BTreeMap<OsString, OsString> = BTreeMap::new();
        let mut set = |name: &str, value: &OsStr| {
            variables.insert(name.into(), value.to_owned());
        };
        for name in ["PATH", "TERM", "COLUMNS", "NO_COLOR", "USER", "LOGNAME"] {
            if let Some(value) = std::env::var_os(name) {
                set(name, &value);
            }
        }
        set("HOME", HOME.as_ref());
        set("TMPDIR", "/tmp".as_ref());
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

/// Namespaces, rights and the end.
fn apart() -> Vec<OsString> {
    [
        "--unshare-user",
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
        // Whoever can make a namespace of users has more of the kernel to attack.
        "--disable-userns",
        "--cap-drop",
        "ALL",
        "--new-session",
        "--die-with-parent",
    ]
    .map(OsString::from)
    .to_vec()
}

fn system(limits: &Limits) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |parts: &[&OsStr]| words.extend(parts.iter().map(|part| (*part).to_owned()));
    for folder in SYSTEM {
        match std::fs::read_link(folder) {
            Ok(target) => add(&["--symlink".as_ref(), target.as_os_str(), folder.as_ref()]),
            Err(_) => add(&["--ro-bind-try".as_ref(), folder.as_ref(), folder.as_ref()]),
        }
    }
    for path in CONFIGURATION {
        add(&["--ro-bind-try".as_ref(), path.as_ref(), path.as_ref()]);
    }
    add(&["--proc", "/proc", "--dev", "/dev"].map(OsStr::new));
    let bytes = |mib: u64| (mib << 20).to_string();
    let (shared, temporary) = (bytes(limits.memory_mib / 2), bytes(limits.memory_mib / 4));
    add(&["--size", &shared, "--tmpfs", "/dev/shm"].map(OsStr::new));
    add(&["--size", &temporary, "--tmpfs", "/tmp"].map(OsStr::new));
    add(&["--dir", HOME].map(OsStr::new));
    words
}

fn words(mount: &Mount) -> Vec<OsString> {
    let bind = |how: &str, path: &Path| vec![how.into(), path.into(), path.into()];
    match mount {
        Mount::Read(path) => bind("--ro-bind-try", path),
        Mount::Write(path) => bind("--bind", path),
        Mount::Hide(path) => vec!["--tmpfs".into(), path.into()],
    }
}

/// Whether sandboxes can be made on this machine.
///
/// # Errors
/// In words, why not.
pub fn works() -> std::result::Result<(), String> {
    const PATIENCE: Duration = Duration::from_secs(10);
    if find_program("bwrap").is_none() {
        return Err("bubblewrap is not installed".to_owned());
    }
    let output = Command::new("bwrap")
        .args(apart())
        .args(system(&limits::settled(&Limits::default())))
        .args(Sandbox::default().closed())
        .args(["--", "/bin/sh", "-c", "exit 0"])
        .run_within(PATIENCE)
        .map_err(|error| error.to_string())?;
    if output.success() {
        Ok(())
    } else {
        Err(format!(
            "bubblewrap cannot make one: {}",
            output.tail(1).join(" ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_closed_unless_something_lies_over_it() {
        let sandbox = Sandbox::new(&Limits::default())
            .hide(Path::new("/a/hidden"))
            .write(Path::new("/a/hidden/below"))
            .hide(Path::new("/b/c"))
            .write(Path::new("/b"))
            .hide(Path::new("/d"))
            .read(Path::new("/d"));
        assert_eq!(
            sandbox.closed(),
            [
                "--remount-ro",
                "/a/hidden",
                "--remount-ro",
                "/dev",
                "--remount-ro",
                "/"
            ]
        );
    }
}
