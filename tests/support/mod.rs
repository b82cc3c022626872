//! Workspaces in temporary folders, and the programs run in them.

pub mod applied;
pub mod generate;
pub mod releases;
pub mod share;
pub mod trees;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use perfquilt_system::process::{Command, Output};
use tempfile::TempDir;

/// A workspace with a release in the folder `up` and nothing of the user's environment.
pub struct Space {
    dir: TempDir,
}

pub const REST: &str = "[recipe]\n[preset]\n[server]\nadapter = \"mariadb\"\n";

impl Space {
    /// A workspace whose release 1.0 is the (still empty) folder `up`.
    pub fn new() -> Space {
        let space = Space::bare("release = [{ version = \"1.0\", directory = \"up\" }]\n");
        std::fs::create_dir(space.path("up")).unwrap();
        space
    }

    /// A workspace with these releases in its configuration.
    pub fn bare(releases: &str) -> Space {
        let space = Space {
            dir: tempfile::tempdir().unwrap(),
        };
        space.configure(releases);
        space.write("series", "");
        std::fs::create_dir(space.path("patches")).unwrap();
        space
    }

    pub fn configure(&self, releases: &str) {
        self.write(
            "bench-config/perfquilt.toml",
            format!("[upstream]\nname = \"srv\"\ncurrent = \"1.0\"\n{releases}{REST}"),
        );
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, inner: &str) -> PathBuf {
        self.root().join(inner)
    }

    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path(path)).unwrap()).into_owned()
    }

    pub fn link(&self, path: &str, target: &str) {
        symlink(target, self.path(path)).unwrap();
    }

    pub fn executable(&self, path: &str) {
        std::fs::set_permissions(self.path(path), PermissionsExt::from_mode(0o755)).unwrap();
    }

    /// Adds a patch to the end of the series.
    pub fn patch(&self, name: &str, content: impl AsRef<[u8]>) {
        self.write(&format!("patches/{name}"), content);
        let series = self.read("series");
        self.write("series", format!("{series}{name}\n"));
    }

    /// The program, in this workspace and with an empty environment.
    pub fn command(&self) -> assert_cmd::Command {
        let mut command = assert_cmd::Command::cargo_bin("perfquilt").unwrap();
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.root())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .current_dir(self.root());
        command
    }

    /// Runs the program; returns exit code, standard output and standard error, with the
    /// workspace's path written as `[WS]`.
    pub fn run(&self, args: &[&str]) -> (i32, String, String) {
        let output = self.command().args(args).output().unwrap();
        let text = |bytes: &[u8]| {
            let root = self.root().to_string_lossy().into_owned();
            String::from_utf8_lossy(bytes).replace(&root, "[WS]")
        };
        (
            output.status.code().unwrap(),
            text(&output.stdout),
            text(&output.stderr),
        )
    }

    /// Runs the program, which must succeed; returns its standard output.
    pub fn ok(&self, args: &[&str]) -> String {
        let (code, out, err) = self.run(args);
        assert_eq!(code, 0, "{args:?}: {err}");
        out
    }

    /// Starts the program and kills it after a while, unless it is done by then.
    pub fn run_and_kill(&self, args: &[&str], after: std::time::Duration) {
        self.run_and_signal(args, after, rustix::process::Signal::KILL);
    }

    /// Starts the program and sends it a signal after a while, unless it is done by then.
    pub fn run_and_signal(
        &self,
        args: &[&str],
        after: std::time::Duration,
        signal: rustix::process::Signal,
    ) {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_perfquilt"))
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.root())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .current_dir(self.root())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(after);
        // It may be done, but nobody waited for it: the id is its own.
        let pid = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process(pid, signal);
        child.wait().unwrap();
    }

    /// Runs the program, which must fail with `code`; returns its standard error without the lines of
    /// progress.
    pub fn fails(&self, code: i32, args: &[&str]) -> String {
        let (found, out, err) = self.run(args);
        assert_eq!(found, code, "{args:?}: {out}{err}");
        err.lines()
            .filter(|line| !line.ends_with('…'))
            .map(|line| format!("{line}\n"))
            .collect()
    }
}

/// Runs a program that must not need our environment.
pub fn run_in(dir: &Path, program: &str, args: &[&str]) -> Output {
    Command::new(program)
        .args(args)
        .directory(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "t")
        .env("GIT_AUTHOR_EMAIL", "t@example.org")
        .env("GIT_COMMITTER_NAME", "t")
        .env("GIT_COMMITTER_EMAIL", "t@example.org")
        .env("QUILT_PATCHES", "patches")
        .run()
        .unwrap()
}

/// Every file below `dir` with its kind and content, without version control's own.
pub fn listing(dir: &Path) -> Vec<(String, String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
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
                let target = std::fs::read_link(&path).unwrap();
                let target = target.to_string_lossy().into_owned();
                found.push((shown, "link".to_owned(), target.into_bytes()));
            } else {
                let mode = entry.metadata().unwrap().permissions().mode();
                let kind = if mode & 0o100 != 0 { "exec" } else { "file" };
                found.push((shown, kind.to_owned(), std::fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}
