//! Runs `git rebase` in the worktree of an edit branch so that a kill loses nothing.
//!
//! When git is killed in the middle of a rebase, it counts the current patch as applied although there is no commit
//! of it, and the next `git rebase --continue` loses the patch. Therefore git runs to completion even when perfquilt
//! is interrupted or killed, and a record of the previous state is written first. The shell that runs git removes the
//! record at the end. If the record still exists later, git itself was killed or failed half-way, and the recorded
//! state is restored.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{EditSession, folder};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_series::stack::history;
use perfquilt_series::state;
use perfquilt_series::upstream::Objects;
use perfquilt_series::upstream::git::reference_part;
use perfquilt_system::files::{if_there, write_file};
use perfquilt_system::git::worktree::WorktreeState;
use perfquilt_system::git::{Git, with_user_config};
use perfquilt_system::locks::{self, Lock};
use perfquilt_system::process::{Command, Sink, check_interrupted, last_lines};

/// Runs git and removes the record if git's exit code is 0 or 1. Higher codes mean unexpected errors or signals.
const WRAPPER_SCRIPT: &str = r#"note=$1; shift; "$@"; code=$?; if [ "$code" -le 1 ]; then rm -f -- "$note"; fi; exit "$code""#;

/// Folders with git's state of a running rebase, below its folder for the worktree.
const STATE_FOLDERS: [&str; 2] = ["rebase-merge", "rebase-apply"];

/// Maximum time for which a running git holds a lock file; older ones were left by a killed git.
const MAX_LOCK_AGE: Duration = Duration::from_secs(1);

/// The recorded state of an edit branch's worktree before git started.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedState {
    schema: u32,
    /// The commit that was checked out.
    head: String,
    /// The branch's last commit.
    tip: String,
    /// Git's state files of the running rebase; empty if the branch itself was checked out.
    rebase: BTreeMap<String, Vec<u8>>,
}

impl SavedState {
    /// Returns the commits that git was to pick unchanged, including those before it stopped.
    fn picked(&self) -> Vec<String> {
        let texts = ["rebase-merge/done", "rebase-merge/git-rebase-todo"]
            .iter()
            .filter_map(|name| self.rebase.get(*name))
            .map(|bytes| String::from_utf8_lossy(bytes));
        let mut picked = Vec::new();
        for text in texts {
            for line in text.lines() {
                let mut words = line.split_ascii_whitespace();
                if let (Some("pick" | "p"), Some(commit)) = (words.next(), words.next()) {
                    picked.push(commit.to_owned());
                }
            }
        }
        picked
    }

    /// Whether the rebase running in git's folder `own` is the recorded one, rather than one started since. The file
    /// that identifies the rebase may be removed already, or not written yet.
    fn is_of(&self, own: &Path) -> bool {
        STATE_FOLDERS.iter().all(|folder| {
            let name = format!("{folder}/orig-head");
            let now = std::fs::read_to_string(own.join(&name)).unwrap_or_default();
            let recorded = self.rebase.get(&name).map_or_else(
                || self.tip.clone(),
                |bytes| String::from_utf8_lossy(bytes).into_owned(),
            );
            now.trim().is_empty() || now.trim() == recorded.trim()
        })
    }
}

/// The result of a git command.
#[derive(Debug)]
pub(super) struct RebaseExit {
    /// Whether git reported success.
    pub(super) success: bool,
    /// Whether a rebase is running now.
    pub(super) under_way: bool,
    /// Whether git failed half-way and the previous state was restored.
    pub(super) undone: bool,
    /// The last lines of its output.
    pub(super) said: Vec<String>,
    /// The commits that git was to pick unchanged, including those before it stopped.
    pub(super) picked: Vec<String>,
}

/// The worktree of an edit branch.
pub(super) struct EditWorktree<'a> {
    pub(super) ws: &'a Workspace,
    pub(super) store: &'a Objects,
    pub(super) session: &'a EditSession,
}

impl<'a> EditWorktree<'a> {
    pub(super) fn new(ws: &'a Workspace, store: &'a Objects, session: &'a EditSession) -> Self {
        EditWorktree { ws, store, session }
    }

    /// Runs git with arguments `words` in the worktree, which must have no uncommitted changes.
    ///
    /// # Errors
    /// When git cannot be started, or the previous state cannot be restored; the next command tries again.
    pub(super) fn run(&self, words: &[&str], env: (&str, &str)) -> Result<RebaseExit> {
        let own = self.own_folder()?;
        let before = self.before(&own)?;
        let record = self.file("git-at-work");
        write_file(&record, &state::text(&before)?)?;
        // The output goes to a file because a pipe would break when perfquilt dies.
        let log = self.file("git-said");
        let _ = std::fs::remove_file(&log);
        let status = self.run_uninterruptible(&record, &log, words, env);
        let said = std::fs::read(&log).unwrap_or_default();
        let _ = std::fs::remove_file(&log);
        let undone = record.exists();
        if undone {
            self.settle()?;
        }
        Ok(RebaseExit {
            success: status?.success(),
            under_way: is_under_way(&own),
            undone,
            said: output_lines(&String::from_utf8_lossy(&said)),
            picked: before.picked(),
        })
    }

    fn run_uninterruptible(
        &self,
        record: &Path,
        log: &Path,
        words: &[&str],
        (name, value): (&str, &str),
    ) -> Result<ExitStatus> {
        // The record stays locked as long as one of git's processes lives.
        let held = Arc::new(locks::wait_file(record, || {})?);
        let command = Command::new("sh")
            .args(["-c", WRAPPER_SCRIPT, "sh"])
            .arg(record)
            // A file-system monitor that git leaves in the background would keep the lock.
            .args(["git", "-c", "core.fsmonitor=false"])
            .args(words)
            .directory(&self.session.directory)
            .stdout(Sink::File(log.to_owned()))
            .stderr(Sink::File(log.to_owned()));
        let command = with_user_config(command).env(name, value);
        let mut child = command.holding(&held).uninterruptible().spawn()?;
        child
            .wait_within(Duration::MAX)?
            .ok_or_else(|| Error::internal("git did not exit"))
    }

    /// Waits for a git process that a killed command left running, and restores the recorded state if git itself was
    /// killed. Checks for a single file if neither is the case.
    pub(super) fn settle(&self) -> Result<()> {
        let record = self.file("git-at-work");
        let Some(_alone) = self.wait_for(&record)? else {
            return Ok(());
        };
        let directory = self.session.directory.display();
        let hint = || format!("look at {directory} with git, then remove that file");
        let Some(before) = state::read::<SavedState>(&record, hint)? else {
            return Ok(());
        };
        if self.session.place(self.ws)? == WorktreeState::Complete {
            let own = self.own_folder()?;
            self.clear_locks(Some(&own));
            // If no rebase is running, git had not started, had finished, or the user repaired the state.
            if is_under_way(&own) && before.is_of(&own) {
                self.put_back(&own, &before)?;
            }
        } else {
            self.clear_locks(None);
        }
        std::fs::remove_file(&record).map_err(|e| Error::io("remove", &record, &e))
    }

    /// Returns the lock on the record; `None` if there is no record, or git finished meanwhile.
    fn wait_for(&self, record: &Path) -> Result<Option<Lock>> {
        let mut told = false;
        while record.exists() {
            match locks::share_now(record) {
                Ok(Some(held)) => return Ok(Some(held)),
                Err(error) if record.exists() => return Err(error),
                // Git's shell removed the record between the two checks.
                Err(_) => return Ok(None),
                Ok(None) => {}
            }
            if !told {
                progress::warn(Warning::git_still_runs(
                    "git from an interrupted command is still running; waiting for it to finish",
                ));
                told = true;
            }
            check_interrupted()?;
            std::thread::sleep(locks::POLL_INTERVAL);
        }
        Ok(None)
    }

    fn file(&self, what: &str) -> PathBuf {
        let part = reference_part(&self.session.release);
        folder(self.ws).join(format!("{part}.{what}"))
    }

    pub(super) fn git(&self) -> Git {
        Git::new(&self.session.directory)
    }

    /// Returns git's folder for the worktree.
    fn own_folder(&self) -> Result<PathBuf> {
        let folder = self.git().ok(&["rev-parse", "--absolute-git-dir"])?;
        Ok(PathBuf::from(folder))
    }

    fn before(&self, own: &Path) -> Result<SavedState> {
        let reference = self.session.reference();
        let tip = history::reference(self.store, &reference)?
            .ok_or_else(|| Error::no_edit(format!("the branch {} is gone", self.session.branch)))?;
        let mut rebase = BTreeMap::new();
        for folder in STATE_FOLDERS {
            for path in files_in(&own.join(folder)) {
                let bytes = std::fs::read(&path).map_err(|e| Error::io("read", &path, &e))?;
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                rebase.insert(format!("{folder}/{name}"), bytes);
            }
        }
        Ok(SavedState {
            schema: 1,
            head: self.git().ok(&["rev-parse", "--verify", "HEAD"])?,
            tip,
            rebase,
        })
    }

    /// Removes lock files of a killed git, which would make later git commands fail.
    fn clear_locks(&self, own: Option<&Path>) {
        let store = self.store.path();
        let mut locks = vec![
            store.join("packed-refs.lock"),
            store.join(format!("{}.lock", self.session.reference())),
        ];
        if let Some(own) = own {
            locks.extend(files_in(own));
            STATE_FOLDERS
                .iter()
                .for_each(|folder| locks.extend(files_in(&own.join(folder))));
        }
        let inode = |path: &Path| std::fs::metadata(path).ok().map(|meta| meta.ino());
        let found: Vec<(PathBuf, u64)> = locks
            .into_iter()
            .filter(|path| path.extension() == Some(OsStr::new("lock")))
            .filter_map(|path| inode(&path).map(|ino| (path, ino)))
            .collect();
        if found.is_empty() {
            return;
        }
        // A running git removes its own lock files within this time.
        std::thread::sleep(MAX_LOCK_AGE);
        for (path, ino) in found {
            if inode(&path) == Some(ino) {
                // If this fails, git's own error names the file.
                let _ = std::fs::remove_file(&path);
            }
        }
    }

    fn put_back(&self, own: &Path, before: &SavedState) -> Result<()> {
        let git = self.git();
        let strays = self.strays(before)?;
        let mut known = vec![before.head.clone(), before.tip.clone()];
        let mut kept = Vec::new();
        let tip = history::reference(self.store, &self.session.reference())?;
        for commit in [Some(self.snapshot(own, &strays)?), tip]
            .into_iter()
            .flatten()
        {
            let mut words = vec!["rev-list", "--max-count=1", commit.as_str(), "--not"];
            words.extend(known.iter().map(String::as_str));
            if !git.ok(&words)?.is_empty() {
                kept.push(keep(self.store, &self.session.release, &commit)?);
                known.push(commit);
            }
        }
        for path in &strays {
            let path = self.session.directory.join(OsStr::from_bytes(path));
            std::fs::remove_file(&path).map_err(|e| Error::io("remove", &path, &e))?;
        }
        let reference = self.session.reference();
        if before.rebase.is_empty() {
            git.ok(&["symbolic-ref", "HEAD", &reference])?;
        } else {
            git.ok(&["update-ref", "--no-deref", "HEAD", &before.head])?;
        }
        git.ok(&["update-ref", &reference, &before.tip])?;
        git.ok(&["reset", "--quiet", "--hard"])?;
        restore(own, &before.rebase)?;
        let mut line =
            "git was killed in the middle of a rebase; the worktree was restored".to_owned();
        if !kept.is_empty() {
            line.push_str(&format!(
                "; its unfinished state is kept as {}",
                kept.join(" and ")
            ));
        }
        progress::warn(Warning::restored_worktree(line));
        Ok(())
    }

    /// Returns files in the worktree that are missing from git's index but belong to a patch of the branch: git wrote
    /// them and was killed before it updated the index.
    fn strays(&self, before: &SavedState) -> Result<Vec<Vec<u8>>> {
        let git = self.git();
        let others = git
            .command(&["ls-files", "--others", "-z"])
            .run_ok(Kind::Usage)?;
        let range = format!("{}..{}", self.session.base, before.tip);
        let commits = git.ok(&["rev-list", &range])?;
        let changed = git
            .command(&["diff-tree", "--stdin", "--no-commit-id", "--no-renames"])
            .args(["--name-only", "-r", "-z"])
            .stdin(format!("{commits}\n"))
            .run_ok(Kind::Usage)?;
        let names = |bytes: &[u8]| -> Vec<Vec<u8>> {
            let names = bytes.split(|&byte| byte == 0);
            names
                .filter(|name| !name.is_empty())
                .map(<[u8]>::to_vec)
                .collect()
        };
        let changed: BTreeSet<Vec<u8>> = names(&changed.stdout).into_iter().collect();
        let mut strays = names(&others.stdout);
        strays.retain(|name| changed.contains(name));
        Ok(strays)
    }

    /// Commits everything in the worktree and returns the commit; the checked-out commit if nothing differs.
    fn snapshot(&self, own: &Path, strays: &[Vec<u8>]) -> Result<String> {
        let git = self.git();
        let index = own.join("perfquilt-index");
        let aside = git.with_index(&index);
        let copied = std::fs::copy(own.join("index"), &index);
        if if_there("write", &index, copied)?.is_none() {
            aside.ok(&["read-tree", "HEAD"])?;
        }
        aside.ok(&["add", "--update"])?;
        if !strays.is_empty() {
            let mut list = strays.join(&0_u8);
            list.push(0);
            aside.run_with_input(&["update-index", "--add", "-z", "--stdin"], &list)?;
        }
        let tree = aside.ok(&["write-tree"])?;
        std::fs::remove_file(&index).map_err(|e| Error::io("remove", &index, &e))?;
        let head = git.ok(&["rev-parse", "--verify", "HEAD"])?;
        if git.ok(&["rev-parse", "--verify", "HEAD^{tree}"])? == tree {
            return Ok(head);
        }
        git.ok(&[
            "-c",
            "user.name=perfquilt",
            "-c",
            "user.email=perfquilt@localhost",
            "commit-tree",
            "-p",
            &head,
            "-m",
            "state of an interrupted rebase",
            &tree,
        ])
    }
}

/// Keeps a commit under a new reference and returns the reference's name.
pub(super) fn keep(store: &Objects, release: &str, commit: &str) -> Result<String> {
    let part = reference_part(release);
    let mut number = 1;
    loop {
        let name = format!("refs/kept/{part}/{number}");
        if history::reference(store, &name)?.is_none() {
            history::set_reference(store, &name, commit)?;
            return Ok(name);
        }
        number += 1;
    }
}

/// Returns the last lines of git's output. Git ends a line of progress with a carriage return and may clear it with
/// blanks or with an escape sequence.
fn output_lines(text: &str) -> Vec<String> {
    let lines = text
        .split(['\r', '\n'])
        .map(|line| line.trim_start_matches("\x1b[K").trim_end());
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    last_lines(&lines.join("\n"), 12)
}

fn is_under_way(own: &Path) -> bool {
    STATE_FOLDERS.iter().any(|folder| own.join(folder).exists())
}

/// Restores git's state files of a rebase. The recorded files are written before others are removed, so that a kill
/// here still leaves a running rebase.
fn restore(own: &Path, recorded: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    for (name, bytes) in recorded {
        write_file(&own.join(name), bytes)?;
    }
    for folder in STATE_FOLDERS {
        let path = own.join(folder);
        let inside = |name: &str| recorded.contains_key(&format!("{folder}/{name}"));
        if recorded
            .keys()
            .any(|name| Path::new(name).starts_with(folder))
        {
            for file in files_in(&path) {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                if !inside(&name) {
                    std::fs::remove_file(&file).map_err(|e| Error::io("remove", &file, &e))?;
                }
            }
        } else {
            if_there("remove", &path, std::fs::remove_dir_all(&path))?;
        }
    }
    Ok(())
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.is_file()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_progress_end_with_a_carriage_return() {
        assert_eq!(
            output_lines("Rebasing (2/2)\r\x1b[KAuto-merging a.c\nRebasing (2/2)\r     \rdone\r\n"),
            [
                "Rebasing (2/2)",
                "Auto-merging a.c",
                "Rebasing (2/2)",
                "done"
            ]
        );
    }
}
