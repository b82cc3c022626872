//! Areas of jobs: all files of a job, in a folder of its own that begins empty and is removed when the job ends. No other job and
//! no trusted process uses what the job's code could write there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::paths::BotPaths;
use perfquilt_bench::server::copy_tree;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_store::Store;
use perfquilt_system::remove::remove_tree;

/// The area of a job.
#[derive(Debug, Clone)]
pub(super) struct Area {
    folder: PathBuf,
}

impl Area {
    /// Returns the area of the job with this id, which may not exist yet.
    pub(super) fn of(paths: &BotPaths, id: i64) -> Self {
        Area {
            folder: paths.areas().join(id.to_string()),
        }
    }

    /// The job's workspace, which its code can read.
    pub(super) fn workspace(&self) -> PathBuf {
        self.folder.join("workspace")
    }

    /// The repository with the commits of the pull request, which its code does not see.
    pub(super) fn commits(&self) -> PathBuf {
        self.folder.join("commits.git")
    }

    /// The folder for the job's outcome, which its code can write.
    pub(super) fn outcome(&self) -> PathBuf {
        self.folder.join("outcome")
    }

    /// The state that `.perfquilt` of the workspace links to, which its code can write.
    pub(super) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// `$XDG_CACHE_HOME/perfquilt` of the job, which its code can write.
    pub(super) fn cache(&self) -> PathBuf {
        self.folder.join("cache/perfquilt")
    }

    /// Makes state and caches for a sandbox, with the releases and results of `ws`. A job that the bot resumes keeps its own.
    pub(super) fn fill(&self, ws: &Workspace) -> Result<()> {
        make(&self.cache())?;
        let state = self.state();
        if state.is_dir() {
            return Ok(());
        }
        // The folder appears when it is complete.
        let partial = self.folder.join("state.tmp");
        recreate(&partial)?;
        copy_tree(&ws.object_store(), &partial.join("objects.git"))?;
        if ws.results().is_file() {
            Store::open_existing(&ws.results())?.copy_to(&partial.join("results.db"))?;
        }
        std::fs::rename(&partial, &state).map_err(|e| Error::io("make", &state, &e))
    }

    /// Removes the area.
    pub(super) fn remove(&self) -> Result<()> {
        remove_tree(&self.folder)
    }
}

/// Removes the areas of all jobs but the `open` ones. Failures are reported.
pub(super) fn sweep(paths: &BotPaths, open: &BTreeSet<i64>) {
    for entry in std::fs::read_dir(paths.areas())
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok());
        // The root of a file system may have it.
        let is_kept = id.is_some_and(|id| open.contains(&id)) || name == "lost+found";
        if !is_kept && let Err(error) = remove_tree(&entry.path()) {
            progress::warn(error.into());
        }
    }
}

/// Replaces the folder `path` by an empty one.
pub(super) fn recreate(path: &Path) -> Result<()> {
    remove_tree(path)?;
    make(path)
}

pub(super) fn make(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|e| Error::io("make", path, &e))
}
