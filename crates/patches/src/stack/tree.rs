//! A git tree with changes in memory. It reads only the folders on the changed paths.
//!
//! This module holds contents; [`super::commit`] computes the ids of the new objects on another thread.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use git2::{ObjectType, Oid};

use crate::series::path::shown;
use crate::upstream::Objects;
use crate::upstream::objects::{MODE_COMMIT, MODE_TREE, kind_of};
use perfquilt_model::error::{Error, Result};

/// A tree with changes not yet written.
pub struct WorkingTree<'a> {
    objects: &'a Objects,
    root: WorkingFolder,
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

#[derive(Debug)]
struct WorkingFolder {
    /// Its object; `None` for a new folder.
    oid: Option<Oid>,
    entries: Option<BTreeMap<Vec<u8>, Node>>,
}

#[derive(Debug)]
enum Node {
    /// A file; `oid` is `None` once it has changed.
    File {
        mode: u32,
        oid: Option<Oid>,
    },
    Folder(WorkingFolder),
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
    /// Starts with the tree called `oid`.
    pub fn new(objects: &'a Objects, oid: Oid) -> Self {
        WorkingTree {
            objects,
            root: WorkingFolder {
                oid: Some(oid),
                entries: None,
            },
            files: HashMap::new(),
            changes: Vec::new(),
        }
    }

    /// Returns the state of `path`.
    pub fn at(&mut self, path: &[u8]) -> Result<PathState> {
        let objects = self.objects;
        let mut folder = &mut self.root;
        let mut components = path.split(|&b| b == b'/').peekable();
        let mut walked = Vec::new();
        while let Some(name) = components.next() {
            walked.push(name);
            let Some(node) = folder.read(objects)?.get_mut(name) else {
                return Ok(PathState::Nothing);
            };
            match node {
                Node::Folder(inner) => folder = inner,
                Node::File { mode, .. } if components.peek().is_none() => {
                    return Ok(match *mode {
                        MODE_COMMIT => PathState::Submodule,
                        mode => PathState::File { mode },
                    });
                }
                Node::File { mode, .. } => {
                    return Ok(PathState::Blocked(Obstacle {
                        path: walked.join(&b'/'),
                        mode: *mode,
                    }));
                }
            }
        }
        Ok(PathState::Folder)
    }

    /// Returns the content of the file at `path`.
    pub fn content(&mut self, path: &[u8]) -> Result<Arc<Vec<u8>>> {
        if let Some(content) = self.files.get(path) {
            return Ok(Arc::clone(content));
        }
        let oid = self.unchanged(path)?.ok_or_else(|| {
            Error::internal(format!("there is no file {} to be read", shown(path)))
        })?;
        let content = self.objects.read_shared(oid, ObjectType::Blob)?;
        self.files.insert(path.to_vec(), Arc::clone(&content));
        Ok(content)
    }

    /// Returns the object of an unchanged file.
    fn unchanged(&mut self, path: &[u8]) -> Result<Option<Oid>> {
        let objects = self.objects;
        let mut folder = &mut self.root;
        for name in path.split(|&b| b == b'/') {
            match folder.read(objects)?.get_mut(name) {
                Some(Node::Folder(inner)) => folder = inner,
                Some(Node::File { oid, .. }) => return Ok(*oid),
                None => break,
            }
        }
        Ok(None)
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
                    return Err(Error::series(obstacle));
                }
                self.set(path, file)?;
            }
        }
        Ok(())
    }

    /// Sets the file at `path`, which must be a file or not exist.
    fn set(&mut self, path: Vec<u8>, file: FileState) -> Result<()> {
        let objects = self.objects;
        let mut folder = &mut self.root;
        let mut components = path.split(|&b| b == b'/').peekable();
        while let Some(name) = components.next() {
            let entries = folder.read(objects)?;
            if components.peek().is_none() {
                let mode = file.mode;
                entries.insert(name.to_vec(), Node::File { mode, oid: None });
                break;
            }
            let node = entries.entry(name.to_vec()).or_insert_with(|| {
                Node::Folder(WorkingFolder {
                    oid: None,
                    entries: None,
                })
            });
            match node {
                Node::Folder(inner) => folder = inner,
                Node::File { .. } => {
                    return Err(Error::internal(format!(
                        "a file stands where {} needs a folder",
                        shown(&path)
                    )));
                }
            }
        }
        let before = self.files.insert(path.clone(), Arc::clone(&file.content));
        let file = Some(file);
        self.changes.push(FileChange { path, file, before });
        Ok(())
    }

    /// Removes the file at `path` and the folders that become empty.
    fn remove(&mut self, path: &[u8]) -> Result<()> {
        let components: Vec<&[u8]> = path.split(|&b| b == b'/').collect();
        self.files.remove(path);
        self.root.remove(self.objects, &components)?;
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

impl WorkingFolder {
    fn read(&mut self, objects: &Objects) -> Result<&mut BTreeMap<Vec<u8>, Node>> {
        if self.entries.is_none()
            && let Some(oid) = self.oid
        {
            let nodes = objects.read_tree(oid)?.into_iter().map(|entry| {
                let node = if entry.mode == MODE_TREE {
                    Node::Folder(WorkingFolder {
                        oid: Some(entry.oid),
                        entries: None,
                    })
                } else {
                    Node::File {
                        mode: entry.mode,
                        oid: Some(entry.oid),
                    }
                };
                (entry.name, node)
            });
            self.entries = Some(nodes.collect());
        }
        Ok(self.entries.get_or_insert_default())
    }

    /// Removes a path; returns whether this folder is empty afterwards.
    fn remove(&mut self, objects: &Objects, components: &[&[u8]]) -> Result<bool> {
        let Some((name, rest)) = components.split_first() else {
            return Ok(false);
        };
        let entries = self.read(objects)?;
        let gone = if rest.is_empty() {
            true
        } else {
            match entries.get_mut(*name) {
                Some(Node::Folder(inner)) => inner.remove(objects, rest)?,
                _ => false,
            }
        };
        if gone {
            entries.remove(*name);
        }
        Ok(entries.is_empty())
    }
}
