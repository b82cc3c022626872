//! The last commit of the edit branch, also where somebody removed the branch.

use super::Session;
use crate::stack::history;
use crate::upstream::Objects;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;
use perfquilt_system::git::Git;
use perfquilt_system::git::worktree::Place;

/// The branch's last commit. A branch that was removed is put back to what its worktree had checked out, or else to
/// how the series left it; `None` where neither is in the store any more.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the worktree is not this workspace's.
pub(super) fn find(
    ws: &Workspace,
    store: &Objects,
    session: &Session,
    progress: &dyn Progress,
) -> Result<Option<String>> {
    let reference = session.reference();
    if let Some(tip) = history::reference(store, &reference)? {
        return Ok(Some(tip));
    }
    let known = [checked_out(ws, session)?, Some(session.start.clone())];
    for commit in known.into_iter().flatten() {
        if store.has_named(&commit).unwrap_or(false) {
            history::set_reference(store, &reference, &commit)?;
            progress.warn(&format!(
                "the branch {} was gone; it is back at {commit:.12}",
                session.branch
            ));
            return Ok(Some(commit));
        }
    }
    Ok(None)
}

/// As [`find`], where there must be one.
///
/// # Errors
/// As [`find`]; [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when there is none.
pub(super) fn of(
    ws: &Workspace,
    store: &Objects,
    session: &Session,
    progress: &dyn Progress,
) -> Result<String> {
    find(ws, store, session, progress)?.ok_or_else(|| {
        Error::usage(format!("the branch {} is gone", session.branch)).hint(format!(
            "`perfquilt edit {}` makes it anew",
            session.version
        ))
    })
}

/// What the worktree has checked out of a branch that is no more: git cannot say, but its log of `HEAD` is there.
fn checked_out(ws: &Workspace, session: &Session) -> Result<Option<String>> {
    if session.place(ws)? != Place::Whole {
        return Ok(None);
    }
    let git = Git::new(&session.directory);
    if git.branch()? != Some(session.reference()) {
        return Ok(None);
    }
    let file = git.ok(&["rev-parse", "--git-path", "logs/HEAD"])?;
    let log = std::fs::read(session.directory.join(file)).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    // Each line has the old commit, the new commit, who and when; a removal is logged with zeros for the new one.
    let commits = log.lines().next_back().map(|line| line.split(' ').take(2));
    let commits = commits.into_iter().flatten();
    let named = commits.filter(|commit| commit.contains(|c| c != '0'));
    Ok(named.last().map(str::to_owned))
}
