//! Editing the series with plain git (or with quilt), and writing it back.
//!
//! `edit` checks the stack out as a branch of the object store in a linked worktree, one commit a
//! patch. Whatever the maintainer does there, `refresh` reads the branch, finds the patch each commit
//! belongs to (`assign`), decides what becomes of each file and tries the result against the branch's own
//! trees (`plan`), and publishes it in one step that survives a kill ([`publish`]). So do the rebases that git is asked for
//! in between (`attempt`).

mod assign;
mod attempt;
mod branch;
mod plan;
pub mod publish;
mod quilt;
mod refresh;
mod tip;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::upstream::Release;
use crate::upstream::git::reference_part;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::git::worktree::{self, Place};

pub use branch::{Opened, Request, State, close, open};
pub(crate) use plan::compressed;
pub use quilt::{QuiltTree, quilt};
pub use refresh::{Fate, Outcome, Refreshed, Wanted, refresh};

/// An edit branch and where it is checked out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Session {
    schema: u32,
    /// The release's version.
    version: String,
    /// The release's name.
    release: String,
    /// The release's commit.
    base: String,
    /// The branch, without `refs/heads/`.
    branch: String,
    /// Where it is checked out; in its file relative to the workspace, where it is in there.
    directory: PathBuf,
    /// The stack it began with, or was last written back as.
    start: String,
    /// The fuzz the stack was made with.
    #[serde(default)]
    fuzz: usize,
}

impl Session {
    fn new(
        ws: &Workspace,
        release: &Release,
        directory: Option<&Path>,
        fuzz: usize,
    ) -> Result<Session> {
        let part = reference_part(&release.name);
        let directory = match directory {
            Some(dir) => std::path::absolute(dir).map_err(|e| Error::io("find", dir, &e))?,
            None => folder(ws).join(&part),
        };
        Ok(Session {
            schema: 1,
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

    fn reference(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    fn load(ws: &Workspace, release: &str) -> Result<Option<Session>> {
        let path = Session::file(ws, release);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("read", &path, &error)),
        };
        let mut session: Session = serde_json::from_str(&text).map_err(|error| {
            Error::usage(format!("{} is damaged: {error}", path.display())).hint(
                "remove it; the branch and its worktree stay, and `perfquilt edit` takes them up again",
            )
        })?;
        session.directory = ws.root().join(&session.directory);
        Ok(Some(session))
    }

    fn save(&self, ws: &Workspace) -> Result<()> {
        let path = Session::file(ws, &self.release);
        let mut written = self.clone();
        written.directory = ws.written(&self.directory);
        let mut text = serde_json::to_vec_pretty(&written)
            .map_err(|error| Error::internal(format!("cannot write JSON: {error}")))?;
        text.push(b'\n');
        perfquilt_system::files::write_file(&path, &text)
    }

    /// What is where it is checked out.
    fn place(&self, ws: &Workspace) -> Result<Place> {
        worktree::look(&self.directory, &ws.object_store(), ws.root())
    }

    /// Every session of the workspace, by release.
    fn all(ws: &Workspace) -> Result<Vec<Session>> {
        let mut found = Vec::new();
        let Ok(entries) = std::fs::read_dir(folder(ws)) else {
            return Ok(found);
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|end| end == "json")
                && let Some(stem) = path.file_stem()
                && let Some(session) = Session::load(ws, &stem.to_string_lossy())?
            {
                found.push(session);
            }
        }
        found.sort_by(|a, b| a.release.cmp(&b.release));
        Ok(found)
    }
}

/// `.perfquilt/edit/`.
fn folder(ws: &Workspace) -> PathBuf {
    ws.state().join("edit")
}
