//! A hermetic place to run the tool in: own home, own caches, explicit environment.

pub mod chromium;
pub mod documents;
pub mod sysbench;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A workspace in a temporary folder, and the folders around it.
pub struct TestEnvironment {
    folder: TempDir,
}

/// A mounted file system.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// Mounts a file system of so many MiB in memory at `folder`; `None` where that is not allowed.
    pub fn in_memory(folder: &Path, mib: u32) -> Option<Self> {
        fs::create_dir_all(folder).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"])
            .arg(folder)
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then(|| Mounted(folder.to_owned()))
    }

    /// Fills it.
    pub fn flood(&self) -> PathBuf {
        let rest = self.0.join("rest");
        let flood = Command::new("sh")
            .args(["-c", "cat /dev/zero > \"$0\" 2>/dev/null"])
            .arg(&rest)
            .status();
        assert!(!flood.unwrap().success());
        rest
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Whether progress on standard error tells of a measured block, and not of another program that measures meanwhile.
pub fn measures(stderr: &str) -> bool {
    let of_block = |line: &str| line.starts_with("block ") || line.starts_with("counted block ");
    stderr.lines().any(of_block)
}

/// The results of a command.
#[derive(Debug)]
pub struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        Finished {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl TestEnvironment {
    /// An environment whose workspace is a copy of `tests/fixtures/NAME`.
    pub fn with_fixture(name: &str) -> Self {
        let environment = TestEnvironment {
            folder: TempDir::new().unwrap(),
        };
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures")
            .join(name);
        copy(&source, &environment.workspace());
        for folder in ["home", "cache", "tmp"] {
            fs::create_dir(environment.folder.path().join(folder)).unwrap();
        }
        environment
    }

    /// The workspace's root.
    pub fn workspace(&self) -> PathBuf {
        self.folder.path().join("workspace")
    }

    /// The tool's caches.
    pub fn cache(&self) -> PathBuf {
        self.folder.path().join("cache/perfquilt")
    }

    /// The tool with `args`, in the workspace, not started yet.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.hermetic(env!("CARGO_BIN_EXE_perfquilt"), &self.workspace());
        command.args(args);
        command
    }

    /// A program in `folder`, with the places of this environment and nothing of the user's, not started yet.
    pub fn hermetic(&self, program: &str, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.folder.path().join("home"))
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .env("TMPDIR", self.folder.path().join("tmp"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null");
        command
    }

    /// Runs the tool with `args` in the workspace.
    pub fn run(&self, args: &[&str]) -> Finished {
        self.command(args).output().unwrap().into()
    }

    /// Replaces `from` by `to` in a file of the workspace; it must be there.
    pub fn replace(&self, file: &str, from: &str, to: &str) {
        let path = self.workspace().join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from:?}");
        fs::write(path, text.replace(from, to)).unwrap();
    }

    /// Writes a file of the workspace.
    pub fn write(&self, file: &str, text: &str) {
        fs::write(self.workspace().join(file), text).unwrap();
    }

    /// Starts the tool with `args`, waits until `mark` is on its standard error, sends it `signal`, and
    /// returns its exit code once nothing it started is left; `None` when the signal ended it.
    pub fn stopped_at(&self, args: &[&str], mark: &str, signal: Signal) -> Option<i32> {
        let mut child = self
            .command(args)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let found = lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.contains(mark));
        assert!(found, "it ended without saying {mark:?}");
        kill_process(Pid::from_child(&child), signal).unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        let code = child.wait().unwrap().code();
        self.wait_until_no_process_is_left();
        code
    }

    /// Adds `tests/fixtures/queue` to the workspace, as its cluster of two machines.
    pub fn add_queue(&self) {
        self.write("queue", include_str!("../fixtures/queue"));
        let queue = self.workspace().join("queue");
        fs::set_permissions(&queue, fs::Permissions::from_mode(0o755)).unwrap();
        let words = |rest: &str| format!("[{:?}, {rest}]", queue.display().to_string());
        let cluster = format!(
            "\n[cluster]\nmachines = 2\n[cluster.command]\nsubmit = {}\nlist = {}\ncancel = {}\n",
            words(r#""submit", "{name}", "{program}", "{file}""#),
            words(r#""list""#),
            words(r#""cancel", "{name}""#),
        );
        let config = self.workspace().join("bench-config/perfquilt.toml");
        let text = fs::read_to_string(&config).unwrap();
        fs::write(&config, text + &cluster).unwrap();
    }

    /// Fails when it takes longer than ten seconds. What was killed may be there for a moment still.
    pub fn wait_until_no_process_is_left(&self) {
        let started = Instant::now();
        while !self.processes().is_empty() {
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "{:?}",
                self.processes()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Processes whose command line or environment names this environment's folder: servers run
    /// from a RAM disk, but in the environment that the tool was given.
    pub fn processes(&self) -> Vec<String> {
        let mark = self.folder.path().to_string_lossy().into_owned();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let read = |file: &str| -> String {
                let bytes = fs::read(entry.path().join(file)).unwrap_or_default();
                String::from_utf8_lossy(&bytes).replace('\0', " ")
            };
            let line = read("cmdline");
            if line.contains(&mark) || read("environ").contains(&mark) {
                found.push(line);
            }
        }
        found
    }
}

/// Copies a folder.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
