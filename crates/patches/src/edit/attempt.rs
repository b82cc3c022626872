//! A rebase that git begins or goes on with for us.
//!
//! Cut off in the middle, git counts the patch it was at as put back though there is no commit of it, and the next
//! `git rebase --continue` loses it. So git is let come to its end when this program is interrupted or killed, and what
//! was there before is noted. Git's own shell takes the note away; where it is found, git itself was killed or failed
//! half-way, and everything is put back as the note says.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Session, folder};
use crate::stack::history;
use crate::upstream::Objects;
use crate::upstream::git::reference_part;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress::Progress;
use perfquilt_system::files::write_file;
use perfquilt_system::git::worktree::Place;
use perfquilt_system::git::{Git, users};
use perfquilt_system::locks::{self, Lock};
use perfquilt_system::process::{Command, Sink, check_interrupted, last_lines};

/// Exit codes above 1 are those of errors that git does not expect, and of signals.
const TO_ITS_END: &str = r#"note=$1; shift; "$@"; code=$?; if [ "$code" -le 1 ]; then rm -f -- "$note"; fi; exit "$code""#;

/// Where git notes a rebase that is under way, below its folder for the worktree.
const FOLDERS: [&str; 2] = ["rebase-merge", "rebase-apply"];

/// How long git holds a lock at most, other than one that a killed git left.
const LOCK_HELD: Duration = Duration::from_secs(1);

/// The worktree of an edit branch as it was before git began.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Before {
    schema: u32,
    /// The commit that was checked out.
    head: String,
    /// The branch's last commit.
    tip: String,
    /// Git's notes of the rebase under way; none where the branch itself was checked out.
    rebase: BTreeMap<String, Vec<u8>>,
}

impl Before {
    /// The commits that git was to put back as they are, also those before it stopped.
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

    /// Whether the rebase under way in git's folder `own` is the noted one, not one that somebody began since. What
    /// names it may be gone already, or not written yet.
    fn is_of(&self, own: &Path) -> bool {
        FOLDERS.iter().all(|folder| {
            let name = format!("{folder}/orig-head");
            let now = std::fs::read_to_string(own.join(&name)).unwrap_or_default();
            let noted = self.rebase.get(&name).map_or_else(
                || self.tip.clone(),
                |bytes| String::from_utf8_lossy(bytes).into_owned(),
            );
            now.trim().is_empty() || now.trim() == noted.trim()
        })
    }
}

/// How git ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Whether it says that it did what it should.
    pub(super) success: bool,
    /// Whether a rebase is under way now.
    pub(super) under_way: bool,
    /// Whether it failed half-way, and everything is as it was before.
    pub(super) undone: bool,
    /// The last lines it wrote.
    pub(super) said: Vec<String>,
    /// The commits that it was to put back as they are, also those before it stopped.
    pub(super) picked: Vec<String>,
}

/// The worktree of an edit branch in which git is to rebase.
pub(super) struct Attempt<'a> {
    pub(super) ws: &'a Workspace,
    store: &'a Objects,
    pub(super) session: &'a Session,
    pub(super) progress: &'a dyn Progress,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        ws: &'a Workspace,
        store: &'a Objects,
        session: &'a Session,
        progress: &'a dyn Progress,
    ) -> Self {
        Attempt {
            ws,
            store,
            session,
            progress,
        }
    }

    /// Has git carry out `words` in the worktree, which has no changes that are in no commit.
    ///
    /// # Errors
    /// When it cannot be started, or what it left half done cannot be put back; the next command tries that again.
    pub(super) fn run(&self, words: &[&str], env: (&str, &str)) -> Result<Ended> {
        let own = self.own_folder()?;
        let before = self.before(&own)?;
        let text = serde_json::to_vec(&before)
            .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
        let note = self.file("git-at-work");
        write_file(&note, &text)?;
        // Not through a pipe, which would break when this program dies.
        let log = self.file("git-said");
        let _ = std::fs::remove_file(&log);
        let status = self.to_its_end(&note, &log, words, env);
        let said = std::fs::read(&log).unwrap_or_default();
        let _ = std::fs::remove_file(&log);
        let undone = note.exists();
        if undone {
            self.settle()?;
        }
        Ok(Ended {
            success: status?.success(),
            under_way: is_under_way(&own),
            undone,
            said: last_lines(&String::from_utf8_lossy(&said), 12),
            picked: before.picked(),
        })
    }

    fn to_its_end(
        &self,
        note: &Path,
        log: &Path,
        words: &[&str],
        (name, value): (&str, &str),
    ) -> Result<ExitStatus> {
        // The note is locked as long as one of git's processes lives.
        let held = Arc::new(locks::wait_file(note, || {})?);
        let command = Command::new("sh")
            .args(["-c", TO_ITS_END, "sh"])
            .arg(note)
            // A monitor that git leaves in the background would hold the note for good.
            .args(["git", "-c", "core.fsmonitor=false"])
            .args(words)
            .directory(&self.session.directory)
            .stdout(Sink::File(log.to_owned()))
            .stderr(Sink::File(log.to_owned()));
        let command = users(command).env(name, value);
        let mut child = command.holding(&held).to_its_end().spawn()?;
        child
            .wait_within(Duration::MAX)?
            .ok_or_else(|| Error::internal("git did not end"))
    }

    /// Waits for a git that a killed command left at work, and puts back what one left half done that was killed
    /// itself. Costs one look at a file where there is neither.
    ///
    /// # Errors
    /// [`Kind::Interrupted`] while waiting, or when git cannot put it back.
    pub(super) fn settle(&self) -> Result<()> {
        let note = self.file("git-at-work");
        let Some(_alone) = self.wait_for(&note)? else {
            return Ok(());
        };
        let text = std::fs::read(&note).map_err(|e| Error::io("read", &note, &e))?;
        let before: Before = serde_json::from_slice(&text).map_err(|error| {
            Error::usage(format!("{} is damaged: {error}", note.display())).hint(format!(
                "look at {} with git, then remove that file",
                self.session.directory.display()
            ))
        })?;
        if self.session.place(self.ws)? == Place::Whole {
            let own = self.own_folder()?;
            self.clear_locks(Some(&own));
            // Without a rebase git had not begun, or was done, or somebody has put things right by hand.
            if is_under_way(&own) && before.is_of(&own) {
                self.put_back(&own, &before)?;
            }
        } else {
            self.clear_locks(None);
        }
        std::fs::remove_file(&note).map_err(|e| Error::io("remove", &note, &e))
    }

    /// The note, held alone; `None` where there is none, or its git ended well meanwhile.
    fn wait_for(&self, note: &Path) -> Result<Option<Lock>> {
        let mut told = false;
        while note.exists() {
            match locks::share_now(note) {
                Ok(Some(held)) => return Ok(Some(held)),
                Err(error) if note.exists() => return Err(error),
                // It is being removed.
                Err(_) => return Ok(None),
                Ok(None) => {}
            }
            if !told {
                self.progress.warn(
                    "the git of an interrupted command is still at work; waiting for its end",
                );
                told = true;
            }
            check_interrupted()?;
            std::thread::sleep(locks::POLL);
        }
        Ok(None)
    }

    fn file(&self, what: &str) -> PathBuf {
        let part = reference_part(&self.session.release);
        folder(self.ws).join(format!("{part}.{what}"))
    }

    fn git(&self) -> Git {
        Git::new(&self.session.directory)
    }

    /// Git's folder for the worktree.
    fn own_folder(&self) -> Result<PathBuf> {
        let folder = self.git().ok(&["rev-parse", "--absolute-git-dir"])?;
        Ok(PathBuf::from(folder))
    }

    fn before(&self, own: &Path) -> Result<Before> {
        let reference = self.session.reference();
        let tip = history::reference(self.store, &reference)?
            .ok_or_else(|| Error::usage(format!("the branch {} is gone", self.session.branch)))?;
        let mut rebase = BTreeMap::new();
        for folder in FOLDERS {
            for path in files_in(&own.join(folder)) {
                let bytes = std::fs::read(&path).map_err(|e| Error::io("read", &path, &e))?;
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                rebase.insert(format!("{folder}/{name}"), bytes);
            }
        }
        Ok(Before {
            schema: 1,
            head: self.git().ok(&["rev-parse", "--verify", "HEAD"])?,
            tip,
            rebase,
        })
    }

    /// Removes the lock files that a killed git left, of which a later one says that somebody is at work.
    fn clear_locks(&self, own: Option<&Path>) {
        let store = self.store.path();
        let mut locks = vec![
            store.join("packed-refs.lock"),
            store.join(format!("{}.lock", self.session.reference())),
        ];
        if let Some(own) = own {
            locks.extend(files_in(own));
            FOLDERS
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
        // Those of a git that is at work now go by themselves.
        std::thread::sleep(LOCK_HELD);
        for (path, ino) in found {
            if inode(&path) == Some(ino) {
                // Where it stays, git names it.
                let _ = std::fs::remove_file(&path);
            }
        }
    }

    fn put_back(&self, own: &Path, before: &Before) -> Result<()> {
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
            "git was cut off in the middle of a rebase; the worktree is as it was before"
                .to_owned();
        if !kept.is_empty() {
            line.push_str(&format!("; what it had is kept as {}", kept.join(" and ")));
        }
        self.progress.warn(&line);
        Ok(())
    }

    /// Files in the worktree that git's index does not know and a patch of the branch has: git wrote them and did not
    /// come to noting that.
    fn strays(&self, before: &Before) -> Result<Vec<Vec<u8>>> {
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

    /// A commit of everything in the worktree: that which is checked out, where there is nothing else.
    fn snapshot(&self, own: &Path, strays: &[Vec<u8>]) -> Result<String> {
        let git = self.git();
        let index = own.join("perfquilt-index");
        let aside = git.with_index(&index);
        match std::fs::copy(own.join("index"), &index) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                aside.ok(&["read-tree", "HEAD"])?;
            }
            Err(error) => return Err(Error::io("write", &index, &error)),
        }
        aside.ok(&["add", "--update"])?;
        if !strays.is_empty() {
            let mut list = strays.join(&0_u8);
            list.push(0);
            aside.feed(&["update-index", "--add", "-z", "--stdin"], &list)?;
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
            "what an interrupted rebase left",
            &tree,
        ])
    }
}

/// Keeps a commit under a name of its own.
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

fn is_under_way(own: &Path) -> bool {
    FOLDERS.iter().any(|folder| own.join(folder).exists())
}

/// Makes git's notes of a rebase these. What is noted is written first: where the rest is still there, a kill here is
/// one in the middle of a rebase, too.
fn restore(own: &Path, noted: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    for (name, bytes) in noted {
        write_file(&own.join(name), bytes)?;
    }
    for folder in FOLDERS {
        let path = own.join(folder);
        let inside = |name: &str| noted.contains_key(&format!("{folder}/{name}"));
        if noted.keys().any(|name| Path::new(name).starts_with(folder)) {
            for file in files_in(&path) {
                let name = file.file_name().unwrap_or_default().to_string_lossy();
                if !inside(&name) {
                    std::fs::remove_file(&file).map_err(|e| Error::io("remove", &file, &e))?;
                }
            }
        } else {
            match std::fs::remove_dir_all(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::io("remove", &path, &error));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.is_file()).collect()
}
