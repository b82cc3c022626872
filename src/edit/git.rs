//! The user's own git, with the user's own identity and configuration.

use std::path::{Path, PathBuf};

use crate::error::{Error, Kind, Result};
use crate::process::{Command, Output};

/// What git and the hooks it runs may know of our environment, besides what every child gets.
const PASSED_ON: [&str; 14] = [
    "XDG_CONFIG_HOME",
    "EMAIL",
    "GNUPGHOME",
    "GPG_TTY",
    "GIT_AUTHOR_NAME",
    "GIT_AUTHOR_EMAIL",
    "GIT_COMMITTER_NAME",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_DATE",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_SYSTEM",
    "GIT_CONFIG_NOSYSTEM",
    "GIT_SSL_CAINFO",
    "XDG_RUNTIME_DIR",
];

/// Git in one folder: a worktree or the bare store.
#[derive(Debug, Clone)]
pub(super) struct Git {
    folder: PathBuf,
}

impl Git {
    pub(super) fn new(folder: &Path) -> Git {
        Git {
            folder: folder.to_owned(),
        }
    }

    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git").args(args).directory(&self.folder);
        for name in PASSED_ON {
            if let Some(value) = std::env::var_os(name) {
                command = command.env(name, value);
            }
        }
        command
    }

    /// Runs it to its end, whatever that is.
    pub(super) fn run(&self, args: &[&str]) -> Result<Output> {
        self.command(args).run()
    }

    /// Its output without the last line end; anything but success is an error.
    pub(super) fn ok(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args).run_ok(Kind::Usage)?;
        Ok(output.stdout_text().trim_end_matches('\n').to_owned())
    }

    /// What is going on in the worktree: a word for it and the command that goes on.
    pub(super) fn in_progress(&self) -> Result<Option<(&'static str, &'static str)>> {
        let folder = PathBuf::from(self.ok(&["rev-parse", "--absolute-git-dir"])?);
        let signs = [
            ("rebase-merge", "rebase", "git rebase --continue"),
            ("rebase-apply", "rebase", "git rebase --continue"),
            ("MERGE_HEAD", "merge", "git merge --abort"),
            (
                "CHERRY_PICK_HEAD",
                "cherry-pick",
                "git cherry-pick --continue",
            ),
            ("REVERT_HEAD", "revert", "git revert --continue"),
            ("BISECT_LOG", "bisection", "git bisect reset"),
        ];
        let found = signs.iter().find(|(file, ..)| folder.join(file).exists());
        Ok(found.map(|(_, what, next)| (*what, *next)))
    }

    /// The branch that is checked out; `None` when none is.
    pub(super) fn branch(&self) -> Result<Option<String>> {
        let output = self.run(&["symbolic-ref", "-q", "HEAD"])?;
        Ok(output
            .success()
            .then(|| output.stdout_text().trim_end().to_owned()))
    }

    /// Files with changes that are in no commit, and files git does not know.
    pub(super) fn status(&self) -> Result<Status> {
        let output = self
            .command(&["status", "--porcelain=v1", "-z", "--untracked-files=normal"])
            .run_ok(Kind::Internal)?;
        let mut status = Status::default();
        let text = output.stdout_text();
        let mut entries = text.split('\0');
        while let Some(entry) = entries.next() {
            let Some((code, path)) = entry.split_at_checked(3) else {
                continue;
            };
            if code.starts_with("??") {
                status.untracked.push(path.to_owned());
                continue;
            }
            if code.starts_with(['R', 'C']) {
                // The name before follows.
                entries.next();
            }
            status.changed.push(path.to_owned());
        }
        Ok(status)
    }
}

/// What `git status` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) changed: Vec<String>,
    pub(super) untracked: Vec<String>,
}

impl Status {
    /// An error naming the files with changes in no commit.
    pub(super) fn refuse(&self, folder: &Path, hint: &str) -> Result<()> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let mut lines: Vec<String> = self.changed.iter().take(10).cloned().collect();
        if self.changed.len() > lines.len() {
            lines.push(format!("and {} more", self.changed.len() - lines.len()));
        }
        let plural = if self.changed.len() == 1 { "" } else { "s" };
        Err(Error::usage(format!(
            "uncommitted changes in {} file{plural} of {}",
            self.changed.len(),
            folder.display()
        ))
        .details(lines)
        .hint(hint))
    }
}
