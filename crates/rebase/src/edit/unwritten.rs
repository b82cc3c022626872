//! Work on edit branches that the series does not have: what is measured is the series, without it.

use std::path::PathBuf;

use super::EditSession;
use super::conflict::{self, StoppedRebase};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::counted::listed;
use perfquilt_model::error::Result;
use perfquilt_series::series::paths;
use perfquilt_series::stack::history;
use perfquilt_series::upstream::Objects;
use perfquilt_system::git::Git;
use perfquilt_system::git::worktree::WorktreeState;

/// An edit branch with work that is not in the series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnwrittenBranch {
    /// The release's version.
    pub version: String,
    /// The branch, without `refs/heads/`.
    pub branch: String,
    /// The worktree.
    pub directory: PathBuf,
    work: UnwrittenWork,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum UnwrittenWork {
    /// A rebase that stopped with conflicts.
    Conflict(StoppedRebase),
    /// Another operation of git, and the command that continues or ends it.
    InProgress(&'static str, &'static str),
    /// Another commit than the branch's is checked out.
    Elsewhere,
    /// Tracked files have uncommitted changes.
    Changes(Vec<String>),
    /// The branch has this many commits that the series does not have; none if it only lacks some.
    Commits(usize),
}

impl UnwrittenBranch {
    /// Describes the state: `the edit branch edit/mariadb-10.11.18 has 2 commits that are not in the series`.
    pub fn sentence(&self) -> String {
        let branch = format!("the edit branch {}", self.branch);
        match &self.work {
            UnwrittenWork::Conflict(stopped) => format!("{branch}: {}", stopped.sentence()),
            UnwrittenWork::InProgress(what, _) => {
                format!(
                    "{branch}: a {what} is stopped in {}",
                    self.directory.display()
                )
            }
            UnwrittenWork::Elsewhere => format!(
                "{branch} is not checked out in {}, but another commit",
                self.directory.display()
            ),
            UnwrittenWork::Changes(files) => {
                format!("{branch} has uncommitted changes: {}", listed(files, 1))
            }
            UnwrittenWork::Commits(0) => format!("{branch} lacks commits that are in the series"),
            UnwrittenWork::Commits(1) => format!("{branch} has a commit that is not in the series"),
            UnwrittenWork::Commits(count) => {
                format!("{branch} has {count} commits that are not in the series")
            }
        }
    }

    /// Returns the commands that write the work to the series.
    pub fn next(&self) -> String {
        let refresh = format!("`perfquilt refresh --release {}`", self.version);
        match &self.work {
            UnwrittenWork::Conflict(stopped) if !stopped.files.is_empty() => format!(
                "resolve the conflicts in {}, `git add` the files, `git rebase --continue`, then {refresh}",
                self.directory.display()
            ),
            UnwrittenWork::Conflict(_) => format!("`git rebase --continue`, then {refresh}"),
            UnwrittenWork::InProgress(_, next) => format!("`{next}` there, then {refresh}"),
            UnwrittenWork::Elsewhere => {
                format!("`git checkout {}` there, then {refresh}", self.branch)
            }
            UnwrittenWork::Changes(_) => format!(
                "commit them in {} (`git commit --amend -a` adds them to the patch that is checked out), then {refresh}",
                self.directory.display()
            ),
            UnwrittenWork::Commits(_) => format!("{refresh} writes the branch back to the series"),
        }
    }
}

/// Returns the edit branches with work that is not in the series. With `releases`, only those whose series is also the
/// series of one of these releases (`None`: the current one); releases that are not configured are ignored.
pub fn unwritten(
    ws: &Workspace,
    releases: Option<&[Option<&str>]>,
) -> Result<Vec<UnwrittenBranch>> {
    let sessions = EditSession::all(ws)?;
    if sessions.is_empty() {
        return Ok(Vec::new());
    }
    let wanted = match releases {
        Some(releases) => {
            let files = releases
                .iter()
                .filter_map(|release| paths(ws, *release).ok());
            Some(files.map(|paths| paths.series).collect::<Vec<_>>())
        }
        None => None,
    };
    let store = Objects::open(&ws.object_store())?;
    let mut found = Vec::new();
    for session in sessions {
        // The series of a release that left the configuration is not known any more; its work cannot be in it.
        let own = paths(ws, Some(&session.version)).map(|paths| paths.series);
        let is_wanted = match (&wanted, own) {
            (Some(wanted), Ok(own)) => wanted.contains(&own),
            (Some(_), Err(_)) => false,
            (None, _) => true,
        };
        if is_wanted && let Some(work) = work(ws, &store, &session)? {
            found.push(UnwrittenBranch {
                version: session.version,
                branch: session.branch,
                directory: session.directory,
                work,
            });
        }
    }
    Ok(found)
}

fn work(ws: &Workspace, store: &Objects, session: &EditSession) -> Result<Option<UnwrittenWork>> {
    let tip = history::reference(store, &session.reference())?;
    let is_written = tip.as_ref().is_none_or(|tip| *tip == session.start);
    if session.place(ws)? == WorktreeState::Complete {
        let git = Git::new(&session.directory);
        if let Some(stopped) = conflict::find(&git)? {
            return Ok(Some(UnwrittenWork::Conflict(stopped)));
        }
        if let Some((what, next)) = git.in_progress()? {
            return Ok(Some(UnwrittenWork::InProgress(what, next)));
        }
        if tip.is_some() && git.head() != tip && git.branch()? != Some(session.reference()) {
            return Ok(Some(UnwrittenWork::Elsewhere));
        }
        let changed = git.status()?.changed;
        if !changed.is_empty() {
            return Ok(Some(UnwrittenWork::Changes(changed)));
        }
    }
    Ok(match tip {
        Some(tip) if !is_written => {
            let range = format!("{}..{tip}", session.start);
            let count = Git::bare(store.path()).ok(&["rev-list", "--count", &range]);
            Some(UnwrittenWork::Commits(
                count.ok().and_then(|count| count.parse().ok()).unwrap_or(1),
            ))
        }
        _ => None,
    })
}
