//! The user's own git, with the user's own identity and configuration: for worktrees, and for what the
//! user's repository gets.

pub mod worktree;

use std::path::{Path, PathBuf};

use crate::process::{Command, DeathSignal, Output};
use perfquilt_model::error::{Error, Kind, Result};

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

/// A git that reaches other repositories as the user's own does: with its configuration, certificates and
/// proxies.
pub fn users(git: Command) -> Command {
    // It takes its lock files away when it ends by itself, and `status` needs none.
    let mut git = git
        .network()
        .death_signal(DeathSignal::Terminate)
        .env("GIT_OPTIONAL_LOCKS", "0");
    for name in PASSED_ON {
        if let Some(value) = std::env::var_os(name) {
            git = git.env(name, value);
        }
    }
    git
}

/// Git in one folder: a worktree, the bare store, or the user's repository.
#[derive(Debug, Clone)]
pub struct Git {
    folder: PathBuf,
    bare: bool,
    index: Option<PathBuf>,
}

impl Git {
    /// Git in the worktree at `folder`.
    pub fn new(folder: &Path) -> Git {
        Git {
            folder: folder.to_owned(),
            bare: false,
            index: None,
        }
    }

    /// In a bare repository such as the object store. Git is told so: a user's `safe.bareRepository` may forbid it to
    /// find one by itself.
    pub fn bare(folder: &Path) -> Git {
        Git {
            bare: true,
            ..Git::new(folder)
        }
    }

    /// The same with another index, so that the user's stays as it is.
    pub fn with_index(&self, index: &Path) -> Git {
        Git {
            index: Some(index.to_owned()),
            ..self.clone()
        }
    }

    /// The command `git args`, in the folder and with the index.
    pub fn command(&self, args: &[&str]) -> Command {
        let told = self.bare.then_some("--git-dir=.");
        let words = told.iter().chain(args);
        let command = users(Command::new("git").args(words).directory(&self.folder));
        match &self.index {
            Some(index) => command.env("GIT_INDEX_FILE", index),
            None => command,
        }
    }

    /// The commit that is checked out; `None` outside a repository, or without git.
    pub fn head(&self) -> Option<String> {
        let output = self
            .run(&["rev-parse", "--verify", "--quiet", "HEAD"])
            .ok()?;
        output
            .success()
            .then(|| output.stdout_text().trim().to_owned())
    }

    /// Runs it to its end, whatever that is.
    pub fn run(&self, args: &[&str]) -> Result<Output> {
        self.command(args).run()
    }

    /// Its output without the last line end; anything but success is an error.
    pub fn ok(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args).run_ok(Kind::Usage)?;
        Ok(output.stdout_text().trim_end_matches('\n').to_owned())
    }

    /// As [`Git::ok`], with bytes on standard input.
    pub fn feed(&self, args: &[&str], input: &[u8]) -> Result<String> {
        let output = self.command(args).stdin(input).run_ok(Kind::Usage)?;
        Ok(output.stdout_text().trim_end_matches('\n').to_owned())
    }

    /// What is going on in the worktree: a word for it and the command that goes on.
    pub fn in_progress(&self) -> Result<Option<(&'static str, &'static str)>> {
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
    pub fn branch(&self) -> Result<Option<String>> {
        let output = self.run(&["symbolic-ref", "-q", "HEAD"])?;
        Ok(output
            .success()
            .then(|| output.stdout_text().trim_end().to_owned()))
    }

    /// Files with changes that are in no commit, and files git does not know.
    pub fn status(&self) -> Result<Status> {
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
            // In the index or in the worktree.
            if code.chars().take(2).any(|c| matches!(c, 'R' | 'C')) {
                // The name before follows.
                entries.next();
            }
            status.changed.push(path.to_owned());
        }
        Ok(status)
    }
}

/// The entries of what git writes with `-z`.
pub fn nul_separated(text: &str) -> impl Iterator<Item = &str> {
    text.split('\0').filter(|entry| !entry.is_empty())
}

/// The result of `git status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Tracked files that differ from the commit.
    pub changed: Vec<String>,
    /// Files that git does not track and does not ignore.
    pub untracked: Vec<String>,
}

impl Status {
    /// An error naming the files with changes in no commit.
    pub fn refuse(&self, folder: &Path, hint: &str) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rename_that_is_not_in_the_index_is_one_change() {
        let folder = tempfile::tempdir().unwrap();
        let git = Git::new(folder.path());
        std::fs::write(folder.path().join("old"), "a\nb\nc\n").unwrap();
        git.ok(&["init", "-q"]).unwrap();
        git.ok(&["add", "old"]).unwrap();
        let who = ["-c", "user.name=T", "-c", "user.email=t@example.org"];
        git.ok(&[&who[..], &["commit", "-qm", "x"]].concat())
            .unwrap();
        std::fs::rename(folder.path().join("old"), folder.path().join("new")).unwrap();
        git.ok(&["add", "-N", "new"]).unwrap();
        let status = git.status().unwrap();
        assert_eq!(status.changed, ["new"]);
        assert!(status.untracked.is_empty());
    }
}
