//! `perfquilt doctor`, `ci/install-deps`, `ci/quickstart` and the action's `ci/github/install` on machines made up of a few programs.

mod action;
mod command;
mod install_deps;
mod quickstart;
mod workflow_trust;
mod workflows;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with a `bin/` that is the whole `PATH`.
pub struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    /// With links to these programs of the real machine.
    pub fn with(programs: &[&str]) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        for name in programs {
            let found = ["/usr/bin", "/bin"]
                .map(|dir| Path::new(dir).join(name))
                .into_iter()
                .find(|path| path.exists())
                .unwrap();
            symlink(found, bin.join(name)).unwrap();
        }
        Machine { folder }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Adds a program that is this shell script.
    pub fn script(&self, name: &str, text: &str) {
        let path = self.path().join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Writes a file below the folder.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Runs `program` there.
    pub fn run(&self, program: &Path, args: &[&str]) -> Output {
        Command::new(program)
            .args(args)
            .env_clear()
            .env("PATH", self.path().join("bin"))
            .env("HOME", self.path())
            .env("XDG_CACHE_HOME", self.path().join("cache"))
            .current_dir(self.path())
            .output()
            .unwrap()
    }
}

/// What a program says on standard error.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
