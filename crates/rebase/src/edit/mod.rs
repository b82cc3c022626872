//! Editing of the series with git (or with quilt), and writing it back.
//!
//! `edit` checks the stack out as a branch of the object store in a linked worktree, one commit per patch.
//! `refresh` then reads the branch, assigns each commit to a patch (`assign`), plans the new files and verifies them
//! against the branch's trees (`plan`), and publishes them in one step that survives a kill ([`publish`]). Git's
//! rebases in between survive a kill as well (`git_rebase`).

mod assign;
mod branch;
mod conflict;
mod git_rebase;
mod plan;
pub mod publish;
mod quilt;
mod refresh;
mod tip;
mod unwritten;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_series::stack::{Stack, history};
use perfquilt_series::state;
use perfquilt_series::upstream::git::reference_part;
use perfquilt_series::upstream::{Objects, Release};
use perfquilt_system::git::worktree::{self, WorktreeState};

pub use branch::{BranchState, EditBranch, EditRequest, close, open};
pub use conflict::StoppedRebase;
pub use plan::{EmptyCommit, PatchChange, RefreshedPatch};
pub use quilt::{QuiltTree, quilt};
pub use refresh::{RefreshOptions, RefreshResult, refresh};
pub use unwritten::{UnwrittenBranch, unwritten};

/// The form of a session. Commits of a branch of form 1 name their patches on `Patch:` lines.
const SCHEMA: u32 = 2;

/// An edit branch and its worktree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EditSession {
    schema: u32,
    /// The release's version.
    version: String,
    /// The release's name.
    release: String,
    /// The release's commit.
    base: String,
    /// The branch, without `refs/heads/`.
    branch: String,
    /// The worktree; stored relative to the workspace if it is inside.
    directory: PathBuf,
    /// Last commit of the stack that the branch started from or was last written back as.
    start: String,
    /// The fuzz with which the stack was applied.
    #[serde(default)]
    fuzz: usize,
}

impl EditSession {
    fn new(
        ws: &Workspace,
        release: &Release,
        directory: Option<&Path>,
        fuzz: usize,
    ) -> Result<EditSession> {
        let part = reference_part(&release.name);
        let directory = match directory {
            Some(dir) => std::path::absolute(dir).map_err(|e| Error::io("find", dir, &e))?,
            None => folder(ws).join(&part),
        };
        Ok(EditSession {
            schema: SCHEMA,
            version: release.version.clone(),
            release: release.name.clone(),
            base: release.commit.clone(),
            branch: format!("edit/{part}"),
            directory,
            start: String::new(),
            fuzz,
        })
    }

    fn file(ws: &Workspace, release: &str) -> PathBuf {
        folder(ws).join(format!("{}.json", reference_part(release)))
    }

    /// Notes that the branch has the stack with this last commit.
    fn restart(&mut self, tip: &str) {
        tip.clone_into(&mut self.start);
        self.schema = SCHEMA;
    }

    /// Returns whether an earlier version of perfquilt made the branch's commits.
    fn is_old(&self) -> bool {
        self.schema < SCHEMA
    }

    /// Returns whether the series is still the one that the branch started from. The commits of an old branch have other
    /// ids than those of today's stack and the same trees.
    fn starts_at(&self, store: &Objects, stack: &Stack) -> Result<bool> {
        if self.start == branch::stack_tip(stack) {
            return Ok(true);
        }
        if !self.is_old() || !store.has_named(&self.start).unwrap_or(false) {
            return Ok(false);
        }
        let commits = history::commits(store, &self.base, &self.start)?;
        let trees = commits.iter().map(|commit| &commit.tree);
        Ok(trees.eq(stack.steps.iter().map(|step| &step.tree)))
    }

    fn reference(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    fn load(ws: &Workspace, release: &str) -> Result<Option<EditSession>> {
        let hint = "remove it; the branch and its worktree stay, and `perfquilt edit` reopens them";
        let found = state::read(&EditSession::file(ws, release), || hint.to_owned())?;
        Ok(found.map(|session: EditSession| EditSession {
            directory: ws.root().join(&session.directory),
            ..session
        }))
    }

    fn save(&self, ws: &Workspace) -> Result<()> {
        let path = EditSession::file(ws, &self.release);
        let mut written = self.clone();
        written.directory = ws.written(&self.directory);
        perfquilt_system::files::write_file(&path, &state::text(&written)?)
    }

    /// Inspects the worktree's folder.
    fn place(&self, ws: &Workspace) -> Result<WorktreeState> {
        worktree::inspect(&self.directory, &ws.object_store(), ws.root())
    }

    /// Returns every session of the workspace, sorted by release.
    fn all(ws: &Workspace) -> Result<Vec<EditSession>> {
        let mut found = Vec::new();
        let Ok(entries) = std::fs::read_dir(folder(ws)) else {
            return Ok(found);
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|end| end == "json")
                && let Some(stem) = path.file_stem()
                && let Some(session) = EditSession::load(ws, &stem.to_string_lossy())?
            {
                found.push(session);
            }
        }
        found.sort_by(|a, b| a.release.cmp(&b.release));
        Ok(found)
    }
}

/// Returns `.perfquilt/edit/`.
fn folder(ws: &Workspace) -> PathBuf {
    ws.state().join("edit")
}
