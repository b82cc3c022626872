//! Runs the user's git with the user's identity and configuration, for worktrees and for commits to the user's
//! repository.

pub mod worktree;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::process::{Command, DeathSignal, Output};
use perfquilt_model::counted::counted;
use perfquilt_model::error::{Error, Kind, Result};

/// Environment variables that git and its hooks inherit, in addition to those of every child.
const INHERITED_VARIABLES: [&str; 15] = [
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
    "GIT_ATTR_NOSYSTEM",
    "GIT_SSL_CAINFO",
    "XDG_RUNTIME_DIR",
];

/// Where git reads its settings if [`use_settings`] was called.
static SETTINGS: OnceLock<Vec<(&'static str, OsString)>> = OnceLock::new();

/// From now on, git of this process reads the settings in `file` in place of those of user and system; without a file, none.
pub fn use_settings(file: Option<&Path>) {
    let file = file.unwrap_or(Path::new("/dev/null"));
    // A second call changes nothing.
    let _ = SETTINGS.set(isolated_settings(file).into());
}

/// Returns the variables with which a child reads the settings that this process reads, if [`use_settings`] was called.
pub fn settings() -> impl Iterator<Item = (&'static str, OsString)> {
    SETTINGS.get().into_iter().flatten().cloned()
}

/// Returns the variables with which git reads settings and attributes of `file` and the repository only.
fn isolated_settings(file: &Path) -> [(&'static str, OsString); 4] {
    [
        ("GIT_CONFIG_GLOBAL", file.into()),
        ("GIT_CONFIG_NOSYSTEM", "1".into()),
        ("GIT_ATTR_NOSYSTEM", "1".into()),
        // It has the user's attributes.
        ("XDG_CONFIG_HOME", "/dev/null".into()),
    ]
}

/// Gives `git` the user's configuration, certificates and proxies, so that it can access other repositories as
/// the user does.
pub fn with_user_config(git: Command) -> Command {
    // SIGTERM lets it remove its lock files, and `status` needs no locks. It runs no code of a series, and writes the store.
    let inherited = INHERITED_VARIABLES.into_iter();
    git.network()
        .unrestricted()
        .death_signal(DeathSignal::Terminate)
        .env("GIT_OPTIONAL_LOCKS", "0")
        .envs(inherited.filter_map(|name| Some((name, std::env::var_os(name)?))))
        .envs(settings())
}

/// Settings of a repository that name programs, with values that start none, for perfquilt's own repositories: nothing
/// in them is the user's, whose worktrees keep their settings.
const NO_PROGRAMS: [&str; 5] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.alternateRefsCommand=true",
    "protocol.ext.allow=never",
    "safe.bareRepository=explicit",
];

/// Returns git for one of perfquilt's own bare repositories, with the user's configuration but without anything that the
/// repository itself would have git run.
pub fn own_git(repository: &Path) -> Command {
    let settings = NO_PROGRAMS.iter().flat_map(|setting| ["-c", setting]);
    let git = Command::new("git")
        .arg("--git-dir")
        .arg(repository)
        .args(settings);
    with_user_config(git).env("GIT_TERMINAL_PROMPT", "0")
}

/// Git commands in one folder: a worktree, the bare object store, or the user's repository.
#[derive(Debug, Clone)]
pub struct Git {
    folder: PathBuf,
    bare: bool,
    /// Whether git reads no settings of user and system.
    isolated: bool,
    /// Variables that name the repository, its index and its objects.
    variables: BTreeMap<OsString, OsString>,
}

impl Git {
    /// Returns git for the worktree at `folder`.
    pub fn new(folder: &Path) -> Git {
        Git {
            folder: folder.to_owned(),
            bare: false,
            isolated: false,
            variables: BTreeMap::new(),
        }
    }

    /// Returns git for the repository in which the user calls perfquilt: the one that `GIT_DIR` and git's other variables
    /// name, as they do below hooks and `git rebase --exec`, or else that of the folder.
    pub fn of_caller(folder: &Path) -> Git {
        let own = |name: &OsString| name.as_bytes().starts_with(b"GIT_");
        Git {
            variables: std::env::vars_os().filter(|(name, _)| own(name)).collect(),
            ..Git::new(folder)
        }
    }

    /// Returns git for a bare repository such as the object store. Names the repository explicitly, because a
    /// user's `safe.bareRepository` may forbid its discovery.
    pub fn bare(folder: &Path) -> Git {
        Git {
            bare: true,
            ..Git::new(folder)
        }
    }

    /// Has git find objects in the folder `objects` of another repository, too.
    #[must_use]
    pub fn above(mut self, objects: &Path) -> Self {
        let name = "GIT_ALTERNATE_OBJECT_DIRECTORIES";
        self.variables.insert(name.into(), objects.into());
        self
    }

    /// Returns git for a bare repository with commits of untrusted authors: it reads neither settings nor attributes of user and
    /// system, which may name programs to run on what is read.
    pub fn isolated(folder: &Path) -> Git {
        Git {
            isolated: true,
            ..Git::bare(folder)
        }
    }

    /// Returns a copy that uses another index, which leaves the user's index unchanged.
    pub fn with_index(&self, index: &Path) -> Git {
        self.with("GIT_INDEX_FILE", index)
    }

    /// Returns a copy that runs with a variable, such as `GIT_WORK_TREE`.
    pub fn with(&self, name: &str, value: &Path) -> Git {
        let mut git = self.clone();
        git.variables.insert(name.into(), value.into());
        git
    }

    /// Returns the command `git args`, in the folder and with the index.
    pub fn command(&self, args: &[&str]) -> Command {
        let command = if self.bare {
            own_git(Path::new("."))
        } else {
            with_user_config(Command::new("git"))
        };
        let isolated = self
            .isolated
            .then(|| isolated_settings(Path::new("/dev/null")));
        command
            .args(args)
            .directory(&self.folder)
            .envs(&self.variables)
            .envs(isolated.into_iter().flatten())
    }

    /// Returns whether the repository lacks the history before some commits.
    pub fn is_shallow(&self) -> bool {
        let shallow = self.ok(&["rev-parse", "--is-shallow-repository"]);
        shallow.is_ok_and(|shallow| shallow == "true")
    }

    /// Returns whether the repository lacks contents of commits, which its remote has.
    pub fn is_partial(&self) -> bool {
        let promisors = ["config", "--get-regexp", r"^remote\..*\.promisor$"];
        let found = self.ok(&promisors);
        found.is_ok_and(|found| found.contains("true"))
    }

    /// Returns the commit in `from..to` whose parents a shallow repository lacks.
    pub fn cut_between(&self, from: &str, to: &str) -> Result<Option<String>> {
        if !self.is_shallow() {
            return Ok(None);
        }
        let list = [
            "rev-parse",
            "--path-format=absolute",
            "--git-path",
            "shallow",
        ];
        let list = PathBuf::from(self.ok(&list)?);
        let ends = std::fs::read_to_string(&list).map_err(|e| Error::io("read", &list, &e))?;
        let ends: BTreeSet<&str> = ends.lines().collect();
        let range = self.ok(&["rev-list", to, &format!("^{from}"), "--"])?;
        Ok(range
            .lines()
            .find(|commit| ends.contains(commit))
            .map(str::to_owned))
    }

    /// Returns the commit that is checked out; `None` outside a repository, or without git.
    pub fn head(&self) -> Option<String> {
        let output = self
            .run(&["rev-parse", "--verify", "--quiet", "HEAD"])
            .ok()?;
        output
            .success()
            .then(|| output.stdout_text().trim().to_owned())
    }

    /// Runs the command and returns its output, whatever its exit code.
    pub fn run(&self, args: &[&str]) -> Result<Output> {
        self.command(args).run()
    }

    /// Runs the command and returns its output without the final line feed; a failing command is an error.
    pub fn ok(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args).run_ok(Kind::Usage)?;
        Ok(output.stdout_text().trim_end_matches('\n').to_owned())
    }

    /// Runs the command like [`Git::ok`], with `input` on its standard input.
    pub fn run_with_input(&self, args: &[&str], input: &[u8]) -> Result<String> {
        let output = self.command(args).stdin(input).run_ok(Kind::Usage)?;
        Ok(output.stdout_text().trim_end_matches('\n').to_owned())
    }

    /// Returns the operation in progress in the worktree, with the command that continues or ends it.
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

    /// Returns the branch that is checked out; `None` when HEAD is detached.
    pub fn branch(&self) -> Result<Option<String>> {
        let output = self.run(&["symbolic-ref", "-q", "HEAD"])?;
        Ok(output
            .success()
            .then(|| output.stdout_text().trim_end().to_owned()))
    }

    /// Returns the files with uncommitted changes and the untracked files.
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
            // Renamed in the index or in the worktree.
            if code.chars().take(2).any(|c| matches!(c, 'R' | 'C')) {
                // The old name follows.
                entries.next();
            }
            status.changed.push(path.to_owned());
        }
        Ok(status)
    }
}

/// Returns why git does not read the repository that messages call `name`, if `words`, those of git, show it.
pub fn unreadable(name: &str, words: &str) -> Option<Error> {
    if words.contains("dubious ownership") {
        let commands = words.lines().map(str::trim);
        return Some(
            Error::git(format!("git refuses {name}, because its folder belongs to another user"))
                .details(commands.filter(|line| line.starts_with("git config")))
                .hint("the command above allows it, also with `/.git` after the path; or use a clone of your own"),
        );
    }
    let message = format!("{name} is not a git repository");
    words
        .contains("not a git repository")
        .then(|| Error::git(message))
}

/// Returns the entries of git's output with `-z`.
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
    /// Returns an error that names the files with uncommitted changes, if any.
    pub fn refuse(&self, folder: &Path, hint: &str) -> Result<()> {
        if self.changed.is_empty() {
            return Ok(());
        }
        let mut lines: Vec<String> = self.changed.iter().take(10).cloned().collect();
        if self.changed.len() > lines.len() {
            lines.push(format!("and {} more", self.changed.len() - lines.len()));
        }
        Err(Error::git(format!(
            "uncommitted changes in {} of {}",
            counted(self.changed.len(), "file", "files"),
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
        let identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"];
        git.ok(&[&identity[..], &["commit", "-qm", "x"]].concat())
            .unwrap();
        std::fs::rename(folder.path().join("old"), folder.path().join("new")).unwrap();
        git.ok(&["add", "-N", "new"]).unwrap();
        let status = git.status().unwrap();
        assert_eq!(status.changed, ["new"]);
        assert!(status.untracked.is_empty());
    }
}
