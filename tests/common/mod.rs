//! A hermetic place to run the tool in: own home, own caches, explicit environment.

pub mod applied;
pub mod chromium;
pub mod documents;
pub mod generate;
pub mod releases;
pub mod share;
pub mod sysbench;
pub mod trees;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A workspace in a temporary folder, and the folders around it.
pub struct TestEnvironment {
    folder: TempDir,
}

/// The configuration of a workspace without recipes and presets, after its releases.
pub const REST: &str = "[recipe]\n[preset]\n[server]\nadapter = \"mariadb\"\n";

/// A mounted file system.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// Mounts a file system of so many MiB in memory at `folder`; `None` where that is not allowed.
    pub fn in_memory(folder: &Path, mib: u32) -> Option<Self> {
        fs::create_dir_all(folder).unwrap();
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={mib}m,mode=0755"),
                "tmpfs",
            ])
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
        let environment = Self::empty();
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures")
            .join(name);
        copy(&source, &environment.workspace());
        environment
    }

    /// An environment whose workspace has the release 1.0, the still empty folder `up`, and no patches.
    pub fn new() -> Self {
        let environment =
            Self::with_releases("release = [{ version = \"1.0\", directory = \"up\" }]\n");
        fs::create_dir(environment.path("up")).unwrap();
        environment
    }

    /// An environment whose workspace has these releases in its configuration, and no patches.
    pub fn with_releases(releases: &str) -> Self {
        let environment = Self::empty();
        environment.configure(releases);
        environment.write("series", "");
        fs::create_dir(environment.path("patches")).unwrap();
        environment
    }

    /// An environment whose workspace is an empty folder.
    pub fn empty() -> Self {
        let folder = TempDir::new().unwrap();
        for name in ["workspace", "home", "cache", "tmp"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        TestEnvironment { folder }
    }

    /// Configures the workspace with these releases, and nothing to measure.
    pub fn configure(&self, releases: &str) {
        let upstream = "[upstream]\nname = \"srv\"\ncurrent = \"1.0\"\n";
        self.write(
            "bench-config/perfquilt.toml",
            format!("{upstream}{releases}{REST}"),
        );
    }

    /// The path of a file of the workspace.
    pub fn path(&self, inner: &str) -> PathBuf {
        self.workspace().join(inner)
    }

    /// The text of a file of the workspace.
    pub fn read(&self, path: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.path(path)).unwrap()).into_owned()
    }

    /// Writes the user's settings of git.
    pub fn configure_git(&self, settings: &str) {
        fs::write(self.folder.path().join("home/.gitconfig"), settings).unwrap();
    }

    /// Makes a symbolic link in the workspace.
    pub fn link(&self, path: &str, target: &str) {
        symlink(target, self.path(path)).unwrap();
    }

    /// Makes a file of the workspace executable.
    pub fn executable(&self, path: &str) {
        fs::set_permissions(self.path(path), PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Adds a patch to the end of the series.
    pub fn patch(&self, name: &str, content: impl AsRef<[u8]>) {
        self.write(&format!("patches/{name}"), content);
        let series = self.read("series");
        self.write("series", format!("{series}{name}\n"));
    }

    /// The workspace's root.
    pub fn workspace(&self) -> PathBuf {
        self.folder.path().join("workspace")
    }

    /// The tool's caches.
    pub fn cache(&self) -> PathBuf {
        self.cache_home().join("perfquilt")
    }

    /// The folder of all programs' caches.
    pub fn cache_home(&self) -> PathBuf {
        self.folder.path().join("cache")
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
            .env("XDG_CACHE_HOME", self.cache_home())
            .env("TMPDIR", self.folder.path().join("tmp"))
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            // Tests wait for blocks.
            .env("PERFQUILT_INTERIM_SECONDS", "0");
        command
    }

    /// Runs the tool with `args` in the workspace.
    pub fn run(&self, args: &[&str]) -> Finished {
        self.command(args).output().unwrap().into()
    }

    /// Runs the tool in the workspace; returns exit code, standard output and standard error, with the workspace's path as
    /// `[WS]`, and bytes that are no text replaced.
    pub fn shown(&self, args: &[&str]) -> (i32, String, String) {
        let output = self.command(args).output().unwrap();
        let root = self.workspace().to_string_lossy().into_owned();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&root, "[WS]");
        let code = output.status.code().unwrap();
        (code, text(&output.stdout), text(&output.stderr))
    }

    /// Runs the tool, which must succeed; returns its standard output as [`TestEnvironment::shown`] does.
    pub fn ok(&self, args: &[&str]) -> String {
        let (code, out, err) = self.shown(args);
        assert_eq!(code, 0, "{args:?}: {err}");
        out
    }

    /// Runs the tool, which must fail with `code`; returns its standard error without the lines of progress.
    pub fn fails(&self, code: i32, args: &[&str]) -> String {
        let (found, out, err) = self.shown(args);
        assert_eq!(found, code, "{args:?}: {out}{err}");
        err.lines()
            .filter(|line| !line.ends_with('…'))
            .map(|line| format!("{line}\n"))
            .collect()
    }

    /// Starts the tool and sends it a signal after a while, unless it is done by then.
    pub fn run_and_signal(&self, args: &[&str], after: Duration, signal: Signal) {
        let mut child = self
            .command(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(after);
        // It may be done, but nobody waited for it: the id is its own.
        let _ = kill_process(Pid::from_child(&child), signal);
        child.wait().unwrap();
    }

    /// Replaces `from` by `to` in a file of the workspace; it must be there.
    pub fn replace(&self, file: &str, from: &str, to: &str) {
        let path = self.workspace().join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from:?}");
        fs::write(path, text.replace(from, to)).unwrap();
    }

    /// Writes a file of the workspace, and the folders above it.
    pub fn write(&self, file: &str, content: impl AsRef<[u8]>) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
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

/// Runs a program that must not need our environment.
pub fn run_in(dir: &Path, program: &str, args: &[&str]) -> perfquilt_system::process::Output {
    let command = perfquilt_system::process::Command::new(program)
        .args(args)
        .directory(dir)
        .env("QUILT_PATCHES", "patches");
    let settings = perfquilt_testkit::GIT_ENVIRONMENT.into_iter();
    settings
        .fold(command, |command, (name, value)| command.env(name, value))
        .run()
        .unwrap()
}

/// Every file below `dir` with its kind and content, without version control's own.
pub fn listing(dir: &Path) -> Vec<(String, String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            if [".git", ".pc", "patches", "series"].contains(&name.as_str()) {
                continue;
            }
            let path = entry.path();
            let shown = path
                .strip_prefix(dir)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                let target = target.to_string_lossy().into_owned();
                found.push((shown, "link".to_owned(), target.into_bytes()));
            } else {
                let mode = entry.metadata().unwrap().permissions().mode();
                let kind = if mode & 0o100 != 0 { "exec" } else { "file" };
                found.push((shown, kind.to_owned(), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}
