//! A git tree with changes in memory. It reads only the folders on the changed paths.
//!
//! This module holds contents; `super::commit` computes the ids of the new objects on another thread.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use git2::{ObjectType, Oid};

use super::tree_object::{TreeObject, components};
use crate::series::path::shown;
use crate::upstream::Objects;
use crate::upstream::objects::{MODE_COMMIT, MODE_TREE, kind_of};
use perfquilt_model::error::{Error, Result};

/// A tree with changes not yet written.
pub struct WorkingTree<'a> {
    objects: &'a Objects,
    root: TreeObject,
    /// Contents of the files that were read or changed, by path.
    files: HashMap<Vec<u8>, Arc<Vec<u8>>>,
    changes: Vec<FileChange>,
}

/// A file's mode and content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileState {
    /// Git's mode.
    pub mode: u32,
    /// Its content; for a symbolic link, the target.
    pub content: Arc<Vec<u8>>,
}

/// Files by path; `None` for a removed one.
pub type FileStates = BTreeMap<Vec<u8>, Option<FileState>>;

/// A change of a file.
#[derive(Debug)]
pub struct FileChange {
    /// Its path.
    pub path: Vec<u8>,
    /// The file; `None` if it was removed.
    pub file: Option<FileState>,
    /// The previous content, if it was read.
    pub before: Option<Arc<Vec<u8>>>,
}

/// The state of a path in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathState {
    /// Nothing; a file can be created.
    Nothing,
    /// A file or symbolic link.
    File {
        /// Git's mode.
        mode: u32,
    },
    /// A folder.
    Folder,
    /// A submodule.
    Submodule,
    /// A component above it is no folder.
    Blocked(Obstacle),
}

/// A file, link or submodule in the place of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// Its path.
    pub path: Vec<u8>,
    /// Git's mode.
    pub mode: u32,
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is {}", shown(&self.path), kind_of(self.mode))
    }
}

impl PathState {
    /// Returns the reason why no file can be created at `path`, which has this state, if there is one.
    pub fn obstacle(&self, path: &[u8]) -> Option<String> {
        match self {
            PathState::Nothing | PathState::File { .. } => None,
            PathState::Folder => Some(format!("{} is a folder", shown(path))),
            PathState::Submodule => Some(format!("{} is a submodule", shown(path))),
            PathState::Blocked(obstacle) => Some(obstacle.to_string()),
        }
    }
}

impl<'a> WorkingTree<'a> {
    /// Starts with a tree.
    pub fn new(objects: &'a Objects, root: TreeObject) -> Self {
        WorkingTree {
            objects,
            root,
            files: HashMap::new(),
            changes: Vec::new(),
        }
    }

    /// Returns the state of `path`.
    pub fn at(&mut self, path: &[u8]) -> Result<PathState> {
        let components = components(path);
        let found = self.root.entry_at(self.objects, &components)?;
        Ok(match found {
            None => PathState::Nothing,
            Some((MODE_TREE, ..)) => PathState::Folder,
            Some((mode, _, depth)) if depth < components.len() => PathState::Blocked(Obstacle {
                path: components[..depth].join(&b'/'),
                mode,
            }),
            Some((MODE_COMMIT, ..)) => PathState::Submodule,
            Some((mode, ..)) => PathState::File { mode },
        })
    }

    /// Returns the content of the file at `path`.
    pub fn content(&mut self, path: &[u8]) -> Result<Arc<Vec<u8>>> {
        if let Some(content) = self.files.get(path) {
            return Ok(Arc::clone(content));
        }
        let oid = self.root.file(self.objects, &components(path))?;
        let oid = oid.ok_or_else(|| {
            Error::internal(format!("there is no file {} to be read", shown(path)))
        })?;
        let content = self.objects.read_shared(oid, ObjectType::Blob)?;
        self.files.insert(path.to_vec(), Arc::clone(&content));
        Ok(content)
    }

    /// Writes or removes files. Removals come first, so that a folder can replace a file.
    pub fn change(&mut self, files: FileStates) -> Result<()> {
        for (path, file) in &files {
            if file.is_none() && matches!(self.at(path)?, PathState::File { .. }) {
                self.remove(path)?;
            }
        }
        for (path, file) in files {
            if let Some(file) = file {
                if let Some(obstacle) = self.at(&path)?.obstacle(&path) {
                    return Err(Error::hunk(obstacle));
                }
                self.set(path, file)?;
            }
        }
        Ok(())
    }

    /// Sets the file at `path`, which must be a file or not exist.
    fn set(&mut self, path: Vec<u8>, file: FileState) -> Result<()> {
        // The ids of new contents are computed elsewhere.
        let (objects, unknown) = (self.objects, Oid::ZERO_SHA1);
        self.root
            .set(objects, &components(&path), file.mode, unknown)?;
        let before = self.files.insert(path.clone(), Arc::clone(&file.content));
        let file = Some(file);
        self.changes.push(FileChange { path, file, before });
        Ok(())
    }

    /// Removes the file at `path` and the folders that become empty.
    fn remove(&mut self, path: &[u8]) -> Result<()> {
        self.files.remove(path);
        self.root.remove(self.objects, &components(path))?;
        self.changes.push(FileChange {
            path: path.to_vec(),
            file: None,
            before: None,
        });
        Ok(())
    }

    /// Returns the changes since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<FileChange> {
        std::mem::take(&mut self.changes)
    }
}
