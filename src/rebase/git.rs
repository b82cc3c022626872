//! The user's own git, with the user's own identity.

use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, Result};
use crate::process::{Command, Output, find_program};

/// What git and the hooks it runs may know of our environment, besides what every child gets.
const PASSED_ON: [&str; 11] = [
    "XDG_CONFIG_HOME",
    "EMAIL",
    "GNUPGHOME",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    "XDG_RUNTIME_DIR",
];

/// Git in one folder.
#[derive(Debug, Clone)]
pub(super) struct Git {
    folder: PathBuf,
    index: Option<PathBuf>,
}

impl Git {
    /// Git in `folder`.
    ///
    /// # Errors
    /// [`Kind::Usage`] when git is not installed.
    pub fn new(folder: &Path) -> Result<Git> {
        if find_program("git").is_none() {
            return Err(Error::usage("git is not installed").hint("`apt-get install git`"));
        }
        Ok(Git {
            folder: folder.to_owned(),
            index: None,
        })
    }

    /// The same with another index, so that the user's stays as it is.
    pub fn with_index(&self, index: &Path) -> Git {
        Git {
            folder: self.folder.clone(),
            index: Some(index.to_owned()),
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git").args(args).directory(&self.folder);
        for name in PASSED_ON {
            if let Some(value) = std::env::var_os(name) {
                command = command.env(name, value);
            }
        }
        match &self.index {
            Some(index) => command.env("GIT_INDEX_FILE", index),
            None => command,
        }
    }

    /// Runs it to its end, whatever that is.
    pub fn run(&self, args: &[&str]) -> Result<Output> {
        self.command(args).run()
    }

    /// Its output without line ends around it; anything but success is an error.
    pub fn ok(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args).run_ok(Kind::Usage)?;
        Ok(output.stdout_text().trim().to_owned())
    }

    /// As [`Git::ok`], with bytes on standard input.
    pub fn feed(&self, args: &[&str], input: &[u8]) -> Result<String> {
        let output = self.command(args).stdin(input).run_ok(Kind::Usage)?;
        Ok(output.stdout_text().trim().to_owned())
    }
}
