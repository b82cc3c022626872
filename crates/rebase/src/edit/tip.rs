//! The last commit of the edit branch, even if the branch was removed.

use super::git_rebase::EditWorktree;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_model::warning::Warning;
use perfquilt_series::stack::history;
use perfquilt_system::git::worktree::WorktreeState;

impl EditWorktree<'_> {
    /// Returns the branch's last commit. Restores a removed branch at the commit its worktree had checked out, or else at
    /// the start of the session; `None` if the store has neither commit any more.
    pub(super) fn find_tip(&self) -> Result<Option<String>> {
        let session = self.session;
        let reference = session.reference();
        if let Some(tip) = history::reference(self.store, &reference)? {
            return Ok(Some(tip));
        }
        let known = [self.checked_out()?, Some(session.start.clone())];
        for commit in known.into_iter().flatten() {
            if self.store.has_named(&commit).unwrap_or(false) {
                history::set_reference(self.store, &reference, &commit)?;
                progress::warn(Warning::restored_branch(format!(
                    "the branch {} was missing; perfquilt restored it at {commit:.12}",
                    session.branch
                )));
                return Ok(Some(commit));
            }
        }
        Ok(None)
    }

    /// Returns the branch's last commit; like [`EditWorktree::find_tip`], but a missing commit is an error.
    pub(super) fn tip(&self) -> Result<String> {
        self.find_tip()?.ok_or_else(|| {
            Error::no_edit(format!("the branch {} is gone", self.session.branch)).hint(format!(
                "`perfquilt edit {}` creates it again",
                self.session.version
            ))
        })
    }

    /// Returns the commit of a removed branch that the worktree has checked out, from the log of `HEAD`: git itself
    /// cannot resolve it.
    fn checked_out(&self) -> Result<Option<String>> {
        if self.session.place(self.ws)? != WorktreeState::Complete {
            return Ok(None);
        }
        let git = self.git();
        if git.branch()? != Some(self.session.reference()) {
            return Ok(None);
        }
        let file = git.ok(&["rev-parse", "--git-path", "logs/HEAD"])?;
        let log = std::fs::read(self.session.directory.join(file)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        // Each line has the old commit, the new commit, the author and the time; for a removal the new one is all zeros.
        let commits = log.lines().next_back().map(|line| line.split(' ').take(2));
        let commits = commits.into_iter().flatten();
        let named = commits.filter(|commit| commit.contains(|c| c != '0'));
        Ok(named.last().map(str::to_owned))
    }
}
