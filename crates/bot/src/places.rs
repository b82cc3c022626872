//! Where the bot keeps what it needs.

use std::path::PathBuf;

use perfquilt_config::workspace::Workspace;
use perfquilt_forge::Repository;

/// The bot's folders: `.perfquilt/bot/` of its workspace.
#[derive(Debug, Clone)]
pub(super) struct Places {
    root: PathBuf,
}

impl Places {
    pub(super) fn new(ws: &Workspace) -> Self {
        Places {
            root: ws.state().join("bot"),
        }
    }

    /// Those below `root`.
    #[cfg(test)]
    pub(super) fn at(root: &std::path::Path) -> Self {
        Places {
            root: root.to_owned(),
        }
    }

    pub(super) fn root(&self) -> &PathBuf {
        &self.root
    }

    /// Locked by the bot that serves here.
    pub(super) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(super) fn queue(&self) -> PathBuf {
        self.root.join("queue.db")
    }

    /// The outcome of the last job of a pull request.
    pub(super) fn outcome(&self, repository: &Repository, number: u64) -> PathBuf {
        let outcomes = self.root.join("outcomes");
        let theirs = outcomes.join(&repository.owner).join(&repository.name);
        theirs.join(number.to_string())
    }

    /// The commits of pull requests.
    pub(super) fn repository(&self) -> PathBuf {
        self.root.join("commits.git")
    }

    /// The workspace of a job.
    pub(super) fn job(&self, id: i64) -> PathBuf {
        self.root.join("jobs").join(id.to_string())
    }

    /// State and caches of strangers' pull requests, a folder each.
    pub(super) fn areas(&self) -> PathBuf {
        self.root.join("areas")
    }

    /// What is known of the releases that pull requests to a server branched off.
    pub(super) fn lock_file(&self) -> PathBuf {
        self.root.join("upstream.lock")
    }
}
