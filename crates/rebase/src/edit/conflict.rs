//! Conflicts at which a rebase in the worktree of an edit branch stopped.

use std::path::{Path, PathBuf};

use perfquilt_model::counted::listed;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_series::series::Timestamp;
use perfquilt_series::series::message::Message;
use perfquilt_system::git::{Git, nul_separated};

/// Maximum number of files named in a sentence.
const MOST_FILES: usize = 5;

/// A rebase that stopped because a patch did not apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoppedRebase {
    /// The patch's name; its title if the commit has no `Perfquilt-Patch:` line.
    pub patch: String,
    /// Files with unresolved conflicts, relative to the worktree; empty if all are resolved but not committed.
    pub files: Vec<String>,
}

impl StoppedRebase {
    /// Describes the state: `a rebase is stopped at two.patch, with conflicts in a.c`.
    pub fn sentence(&self) -> String {
        let at = format!("a rebase is stopped at {}", self.patch);
        if self.files.is_empty() {
            return format!("{at}, with resolved conflicts that are not committed");
        }
        let list = listed(&self.files, MOST_FILES);
        let are_more = self.files.len() > MOST_FILES;
        let noun = if are_more { " files" } else { "" };
        format!("{at}, with conflicts in {list}{noun}")
    }

    /// Returns the error for a command that cannot work in this state.
    pub(super) fn error(&self, kind: Kind, worktree: &Path) -> Error {
        let resolve = if self.files.is_empty() {
            "in the worktree, "
        } else {
            "edit the files in the worktree, `git add` them, "
        };
        Error::edit_state(self.sentence()).of_kind(kind)
            .at(worktree, None)
            .hint(format!(
                "{resolve}`git rebase --continue`, then `perfquilt refresh`; `git rebase --abort` discards the rebase and its changes"
            ))
    }
}

/// Returns the rebase in git's worktree that stopped with conflicts; `None` if there is none, also if it stopped for
/// editing or if the conflict's resolution is committed.
pub(super) fn find(git: &Git) -> Result<Option<StoppedRebase>> {
    if !matches!(git.in_progress()?, Some(("rebase", _))) {
        return Ok(None);
    }
    let unmerged = git.ok(&["diff", "--name-only", "--diff-filter=U", "-z"])?;
    let files: Vec<String> = nul_separated(&unmerged).map(str::to_owned).collect();
    if files.is_empty() && (!is_uncommitted_pick(git)? || git.status()?.changed.is_empty()) {
        return Ok(None);
    }
    Ok(Some(StoppedRebase {
        patch: patch(git)?,
        files,
    }))
}

/// Whether git waits for the commit of a patch. If it stopped for editing, the commit exists and git records that it
/// may be amended.
fn is_uncommitted_pick(git: &Git) -> Result<bool> {
    let folder = PathBuf::from(git.ok(&["rev-parse", "--absolute-git-dir"])?);
    Ok(folder.join("MERGE_MSG").exists() && !folder.join("rebase-merge/amend").exists())
}

/// Returns the name of the patch that git was applying when it stopped.
fn patch(git: &Git) -> Result<String> {
    let output = git.run(&["log", "-1", "--format=%B", "REBASE_HEAD", "--"])?;
    let text = output.stdout_text();
    let (message, names) = Message::parse(&text, None, Timestamp::default());
    let name = names.into_iter().next().unwrap_or(message.title);
    Ok(if !output.success() || name.is_empty() {
        "a commit without a title".to_owned()
    } else {
        name
    })
}
