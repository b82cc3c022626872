//! The bot's files and directories.

use std::path::PathBuf;

use perfquilt_config::workspace::Workspace;
use perfquilt_forge::Repository;

/// The paths below `.perfquilt/bot/` of the bot's workspace.
#[derive(Debug, Clone)]
pub(super) struct BotPaths {
    root: PathBuf,
}

impl BotPaths {
    pub(super) fn new(ws: &Workspace) -> Self {
        BotPaths {
            root: ws.state().join("bot"),
        }
    }

    /// Returns the paths below `root`.
    #[cfg(test)]
    pub(super) fn at(root: &std::path::Path) -> Self {
        BotPaths {
            root: root.to_owned(),
        }
    }

    /// The folder of all the others.
    pub(super) fn root(&self) -> PathBuf {
        self.root.clone()
    }

    /// The lock file of the bot that serves this workspace.
    pub(super) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub(super) fn queue(&self) -> PathBuf {
        self.root.join("queue.db")
    }

    /// The directory with the outcome of a pull request's last job.
    pub(super) fn outcome(&self, repository: &Repository, number: u64) -> PathBuf {
        let outcomes = self.root.join("outcomes");
        let theirs = outcomes.join(&repository.owner).join(&repository.name);
        theirs.join(number.to_string())
    }

    /// The bare repository with the commits of the branches that pull requests to a server are based on.
    pub(super) fn repository(&self) -> PathBuf {
        self.root.join("commits.git")
    }

    /// The directory with the areas of jobs, one folder each.
    pub(super) fn areas(&self) -> PathBuf {
        self.root.join("areas")
    }

    /// The file with the file system that is mounted at [`BotPaths::areas`], if the bot makes one.
    pub(super) fn area_file(&self) -> PathBuf {
        self.root.join("areas.ext4")
    }

    /// The lock file of the releases that pull requests to a server are based on.
    pub(super) fn lock_file(&self) -> PathBuf {
        self.root.join("upstream.lock")
    }
}
