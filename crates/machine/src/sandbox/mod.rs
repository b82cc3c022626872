//! A bubblewrap sandbox for untrusted code: only a private loopback network, a read-only system, private home and
//! temporary folders, an environment without secrets, processes that end with the sandbox, and resource limits.
//! Only listed paths are visible inside.

mod enter;
mod limits;
mod process;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use enter::enter;
pub use process::{LimitedProcess, ProcessEnd, SandboxProcess, supervise, time_exceeded};

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
/// Home folder inside.
const HOME: &str = "/tmp/home";

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
        let others = shared.join(SANDBOXES);
        let mut sandbox = self.read(shared);
        if others.is_dir() {
            sandbox = sandbox.hide(&others);
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
            .env("CCACHE_TEMPDIR", "/tmp")
    }

    /// Starts the program `tool`, which is perfquilt, with `arguments` inside, in the folder `directory`.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when bubblewrap is not installed or the sandbox cannot be
    /// created.
    pub fn start(
        &self,
        tool: &Path,
        arguments: &[OsString],
        directory: &Path,
        (stdout, stderr): (Sink, Sink),
    ) -> Result<SandboxProcess> {
        let limits = limits::resolve(&self.limits);
        let status = tempfile::tempfile()
            .map_err(|error| Error::internal(format!("cannot create a temporary file: {error}")))?;
        let status = Arc::new(status);
        if self.real_time {
            limits::allow_real_time();
        }
        let json = serde_json::to_string(&limits)
            .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
        let command = Command::new("bwrap")
            .args(["--json-status-fd", &status.as_raw_fd().to_string()])
            .args(isolation())
            .args(system(&limits))
            .args(["--ro-bind".as_ref(), tool.as_os_str(), tool.as_os_str()])
            .args(self.mounts.iter().flat_map(mount_arguments))
            .args(self.variables(&json))
            .args(["--dir".as_ref(), directory.as_os_str()])
            .args(self.read_only_remounts())
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
        Ok(SandboxProcess::new(
            command.spawn()?,
            status,
            limits,
            disks.collect(),
        ))
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

/// Returns bubblewrap's options for namespaces, capabilities and the end of the sandbox.
fn isolation() -> Vec<OsString> {
    [
        "--unshare-user",
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
        // User namespaces expose more of the kernel to attacks.
        "--disable-userns",
        "--cap-drop",
        "ALL",
        "--new-session",
        "--die-with-parent",
    ]
    .map(OsString::from)
    .to_vec()
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

fn mount_arguments(mount: &Mount) -> Vec<OsString> {
    let bind = |how: &str, path: &Path| vec![how.into(), path.into(), path.into()];
    match mount {
        Mount::Read(path) => bind("--ro-bind-try", path),
        Mount::Write(path) => bind("--bind", path),
        Mount::Hide(path) => vec!["--tmpfs".into(), path.into()],
        Mount::Link { path, target } => vec!["--symlink".into(), target.into(), path.into()],
    }
}

/// Checks whether sandboxes can be created on this machine.
///
/// # Errors
/// The reason why not, in words.
pub fn check_support() -> std::result::Result<(), String> {
    const TIMEOUT: Duration = Duration::from_secs(10);
    if find_program("bwrap").is_none() {
        return Err("bubblewrap is not installed".to_owned());
    }
    let output = Command::new("bwrap")
        .args(isolation())
        .args(system(&limits::resolve(&SandboxLimits::default())))
        .args(Sandbox::default().read_only_remounts())
        .args(["--", "/bin/sh", "-c", "exit 0"])
        .run_within(TIMEOUT)
        .map_err(|error| error.to_string())?;
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
                "/dev",
                "--remount-ro",
                "/"
            ]
        );
    }
}
