//! The files as GNU patch sees them while it processes one patch file.
//!
//! GNU patch deletes files only after the whole patch. It also delays the output of git diffs: each of them refers to
//! the files before the patch, so that one patch can copy and change a file, or swap two files. This module reproduces
//! that order, because it determines which files exist for a diff.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{FileState, FileStates, Obstacle, PathState, WorkingTree};
use crate::series::path::{self, folders, shown};
use crate::upstream::objects::MODE_LINK;
use perfquilt_model::error::{Error, Result};

/// The identity of a file: its path and the number of writes to the path so far.
type FileId = (Vec<u8>, u32);

/// The files with the pending changes of a patch.
pub(super) struct PendingFiles<'f, 't> {
    tree: &'f mut WorkingTree<'t>,
    written: BTreeMap<Vec<u8>, (u32, FileState)>,
    deleted: BTreeSet<FileId>,
    queue: Vec<(Vec<u8>, FileState)>,
    queued: BTreeSet<FileId>,
    /// Files that git's diffs in the patch delete or rename, so that their folders can become files.
    leaving: BTreeSet<Vec<u8>>,
}

impl<'f, 't> PendingFiles<'f, 't> {
    pub fn new(tree: &'f mut WorkingTree<'t>) -> Self {
        PendingFiles {
            tree,
            written: BTreeMap::new(),
            deleted: BTreeSet::new(),
            queue: Vec::new(),
            queued: BTreeSet::new(),
            leaving: BTreeSet::new(),
        }
    }

    /// Announces files that the patch deletes or renames. As for `git apply`, a file or link may replace the folder that
    /// they leave empty, wherever their diffs stand in the patch.
    pub fn announce(&mut self, leaving: impl Iterator<Item = Vec<u8>>) {
        self.leaving.extend(leaving);
    }

    /// Returns whether files leave the folder `path`.
    fn empties(&self, path: &[u8]) -> bool {
        let inside = [path, b"/"].concat();
        let next = self.leaving.range(inside.clone()..).next();
        next.is_some_and(|leaving| leaving.starts_with(&inside))
    }

    fn id(&self, path: &[u8]) -> FileId {
        let version = self.written.get(path).map_or(0, |(version, _)| *version);
        (path.to_vec(), version)
    }

    /// Returns the file at `path`, even if it will be deleted.
    pub fn file(&mut self, path: &[u8]) -> Result<Option<FileState>> {
        match self.look(path)? {
            PathState::File { mode } => match self.written.get(path) {
                Some((_, file)) => Ok(Some(file.clone())),
                None => self.of_tree(path, mode),
            },
            PathState::Nothing | PathState::Submodule | PathState::Blocked(_) => Ok(None),
            PathState::Folder => Err(Error::file_state(format!("{} is a folder", shown(path)))),
        }
    }

    /// Returns the file at `path` before the patch; `None` if there is none.
    pub fn unpatched(&mut self, path: &[u8]) -> Result<Option<FileState>> {
        match self.tree.at(path)? {
            PathState::File { mode } => self.of_tree(path, mode),
            _ => Ok(None),
        }
    }

    fn of_tree(&mut self, path: &[u8], mode: u32) -> Result<Option<FileState>> {
        let content = self.tree.content(path)?;
        Ok(Some(FileState { mode, content }))
    }

    /// Returns whether a folder, or a file that will not be deleted, is at `path`.
    pub fn exists(&mut self, path: &[u8]) -> Result<bool> {
        Ok(match self.look(path)? {
            PathState::File { .. } => !self.deleted.contains(&self.id(path)),
            PathState::Folder => true,
            PathState::Nothing | PathState::Submodule | PathState::Blocked(_) => false,
        })
    }

    /// Returns whether a folder is at `path`.
    pub fn is_folder(&mut self, path: &[u8]) -> Result<bool> {
        Ok(self.look(path)? == PathState::Folder)
    }

    /// Returns the obstacle at `path`, if the path is below a file or is a submodule.
    pub fn blocked(&mut self, path: &[u8]) -> Result<Option<String>> {
        let state = self.look(path)?;
        Ok(state.obstacle(path).filter(|_| state != PathState::Folder))
    }

    fn look(&mut self, path: &[u8]) -> Result<PathState> {
        path::check(path).map_err(|error| Error::file_state(error.message().to_owned()))?;
        for above in folders(path).filter(|_| !self.leaving.contains(path)) {
            if let Some((_, file)) = self.written.get(above) {
                let obstacle = Obstacle {
                    path: above.to_vec(),
                    mode: file.mode,
                };
                return match file.mode {
                    MODE_LINK => Err(through_link(path, &obstacle)),
                    _ => Ok(PathState::Blocked(obstacle)),
                };
            }
        }
        if let Some((_, file)) = self.written.get(path) {
            return Ok(PathState::File { mode: file.mode });
        }
        let found = self.tree.at(path)?;
        match &found {
            PathState::Blocked(obstacle)
                if obstacle.mode == MODE_LINK && !self.loses_folder(path) =>
            {
                Err(through_link(path, obstacle))
            }
            PathState::Nothing => {
                if self.written_below(path) {
                    return Ok(PathState::Folder);
                }
                Ok(found)
            }
            PathState::Folder if self.empties(path) && !self.written_below(path) => {
                Ok(PathState::Nothing)
            }
            _ => Ok(found),
        }
    }

    /// Returns whether the patch deletes or renames what stands in the place of a folder above `path`.
    fn loses_folder(&self, path: &[u8]) -> bool {
        folders(path).any(|above| self.leaving.contains(above))
    }

    fn written_below(&self, path: &[u8]) -> bool {
        let inside = [path, b"/"].concat();
        let next = self.written.range(inside.clone()..).next();
        next.is_some_and(|(below, _)| below.starts_with(&inside))
    }

    /// Returns whether the queue has a write to `path`.
    pub fn is_queued(&self, path: &[u8]) -> bool {
        self.queue.iter().any(|(waiting, _)| waiting == path)
    }

    /// Marks the file at `path` as the target of a queued write; returns whether it was marked before.
    pub fn mark_queued(&mut self, path: &[u8]) -> bool {
        let id = self.id(path);
        !self.queued.insert(id)
    }

    /// Queues the write of a file.
    pub fn write_later(&mut self, path: &[u8], file: FileState) {
        self.queue.push((path.to_vec(), file));
    }

    /// Writes a file.
    pub fn write(&mut self, path: &[u8], file: FileState) -> Result<()> {
        for above in folders(path) {
            let kind = match self.look(above)? {
                PathState::Submodule => "submodule",
                PathState::File { .. } | PathState::Blocked(_) => "file",
                PathState::Nothing | PathState::Folder => continue,
            };
            if !self.deleted.contains(&self.id(above)) {
                return Err(Error::file_state(format!(
                    "{} cannot be created: {} is a {kind}",
                    shown(path),
                    shown(above)
                )));
            }
        }
        if self.look(path)? == PathState::Submodule {
            return Err(Error::file_state(format!("{} is a submodule", shown(path))));
        }
        // A folder may have replaced a file that is about to be deleted.
        if self.is_folder(path)? || self.written_below(path) {
            return Err(Error::file_state(format!("{} is a folder", shown(path))));
        }
        let id = self.id(path);
        self.deleted.remove(&id);
        self.written.insert(path.to_vec(), (id.1 + 1, file));
        Ok(())
    }

    /// Deletes the current file at `path` at the end of the patch.
    pub fn delete_later(&mut self, path: &[u8]) {
        let id = self.id(path);
        self.deleted.insert(id);
    }

    /// Writes the queued files.
    pub fn flush(&mut self) -> Result<()> {
        for (path, file) in std::mem::take(&mut self.queue) {
            self.write(&path, file)?;
        }
        Ok(())
    }

    /// Writes the queued files and returns the effect of the whole patch.
    pub fn finish(mut self) -> Result<FileStates> {
        self.flush()?;
        let mut effect = FileStates::new();
        for (path, version) in &self.deleted {
            if self.id(path).1 == *version {
                effect.insert(path.clone(), None);
            }
        }
        for (path, (_, file)) in self.written {
            effect.entry(path).or_insert(Some(file));
        }
        Ok(effect)
    }
}

/// Returns the error for a path below a link.
pub(super) fn through_link(path: &[u8], what: impl std::fmt::Display) -> Error {
    Error::file_state(format!("{}: {what}", shown(path)))
        .hint("patches cannot modify files behind it")
}
