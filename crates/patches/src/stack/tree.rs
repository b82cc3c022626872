//! A git tree that is changed in memory: only the folders on the changed paths are ever read.
//!
//! This side knows contents; the names of the new objects are found by [`super::commit`], on another
//! thread.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use git2::{ObjectType, Oid};

use crate::series::path::shown;
use crate::upstream::Objects;
use crate::upstream::objects::{MODE_COMMIT, MODE_LINK, MODE_TREE};
use crate::upstream::packed::Chain;
use perfquilt_model::error::{Error, Result};

/// A tree with changes not yet written.
pub struct WorkingTree<'a> {
    objects: &'a Objects,
    root: Folder,
    /// Files that were read or changed, by path.
    files: HashMap<Vec<u8>, Version>,
    changes: Vec<FileChange>,
}

/// One state of a file.
#[derive(Debug, Clone)]
pub struct Version {
    /// Its content.
    pub content: Arc<Vec<u8>>,
    /// How the store holds it, where it does.
    pub chain: Option<Chain>,
}

/// What happened to a file.
#[derive(Debug)]
pub enum FileChange {
    /// It is there now, with this content.
    Set {
        /// Where.
        path: Vec<u8>,
        /// Git's mode.
        mode: u32,
        /// The content.
        content: Arc<Vec<u8>>,
        /// What was there before, if it was read.
        before: Option<Version>,
    },
    /// It is gone.
    Remove {
        /// Where it was.
        path: Vec<u8>,
    },
}

#[derive(Debug)]
struct Folder {
    /// Its object; `None` for a new folder.
    oid: Option<Oid>,
    entries: Option<BTreeMap<Vec<u8>, Node>>,
}

#[derive(Debug)]
enum Node {
    /// A file; its object is known until it is changed.
    File {
        mode: u32,
        oid: Option<Oid>,
    },
    Folder(Folder),
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// Nothing, and it could be created.
    Nothing,
    /// A file or symbolic link.
    File {
        /// Git's mode.
        mode: u32,
    },
    /// A folder.
    Folder,
    /// A submodule: a folder that somebody else fills.
    Submodule,
    /// A folder above it is a file, link or submodule; the text names that and its kind.
    Blocked(String),
}

impl<'a> WorkingTree<'a> {
    /// Starts with the tree called `oid`.
    pub fn new(objects: &'a Objects, oid: Oid) -> Self {
        WorkingTree {
            objects,
            root: Folder {
                oid: Some(oid),
                entries: None,
            },
            files: HashMap::new(),
            changes: Vec::new(),
        }
    }

    /// What is at `path`.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the object store is damaged.
    pub fn at(&mut self, path: &[u8]) -> Result<At> {
        let objects = self.objects;
        let mut folder = &mut self.root;
        let mut components = path.split(|&b| b == b'/').peekable();
        let mut walked = Vec::new();
        while let Some(name) = components.next() {
            walked.push(name);
            let Some(node) = folder.read(objects)?.get_mut(name) else {
                return Ok(At::Nothing);
            };
            match node {
                Node::Folder(inner) => folder = inner,
                Node::File { mode, .. } if components.peek().is_none() => {
                    return Ok(match *mode {
                        MODE_COMMIT => At::Submodule,
                        mode => At::File { mode },
                    });
                }
                Node::File { mode, .. } => {
                    let kind = match *mode {
                        MODE_LINK => "a symbolic link",
                        MODE_COMMIT => "a submodule",
                        _ => "a file",
                    };
                    return Ok(At::Blocked(format!(
                        "{} is {kind}",
                        shown(&walked.join(&b'/'))
                    )));
                }
            }
        }
        Ok(At::Folder)
    }

    /// The content of the file at `path`, where a file must be.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be read.
    pub fn content(&mut self, path: &[u8]) -> Result<Arc<Vec<u8>>> {
        if let Some(version) = self.files.get(path) {
            return Ok(Arc::clone(&version.content));
        }
        let oid = self.unchanged(path)?.ok_or_else(|| {
            Error::internal(format!("there is no file {} to be read", shown(path)))
        })?;
        let (content, chain) = self.objects.load(oid, ObjectType::Blob)?;
        let content = Arc::new(content);
        let version = Version {
            content: Arc::clone(&content),
            chain,
        };
        self.files.insert(path.to_vec(), version);
        Ok(content)
    }

    /// The object of a file that was not changed.
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

    /// Puts a file at `path`, where nothing or a file must be.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when a file stands where a folder is needed.
    pub fn set(&mut self, path: &[u8], mode: u32, content: Arc<Vec<u8>>) -> Result<()> {
        let objects = self.objects;
        let mut folder = &mut self.root;
        let mut components = path.split(|&b| b == b'/').peekable();
        while let Some(name) = components.next() {
            let entries = folder.read(objects)?;
            if components.peek().is_none() {
                entries.insert(name.to_vec(), Node::File { mode, oid: None });
                break;
            }
            let node = entries.entry(name.to_vec()).or_insert_with(|| {
                Node::Folder(Folder {
                    oid: None,
                    entries: None,
                })
            });
            match node {
                Node::Folder(inner) => folder = inner,
                Node::File { .. } => {
                    return Err(Error::internal(format!(
                        "a file stands where {} needs a folder",
                        shown(path)
                    )));
                }
            }
        }
        let version = Version {
            content: Arc::clone(&content),
            chain: None,
        };
        self.changes.push(FileChange::Set {
            path: path.to_vec(),
            mode,
            content,
            before: self.files.insert(path.to_vec(), version),
        });
        Ok(())
    }

    /// Removes the file at `path`, and the folders that are empty then.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the object store is damaged.
    pub fn remove(&mut self, path: &[u8]) -> Result<()> {
        let components: Vec<&[u8]> = path.split(|&b| b == b'/').collect();
        self.files.remove(path);
        self.root.remove(self.objects, &components)?;
        self.changes.push(FileChange::Remove {
            path: path.to_vec(),
        });
        Ok(())
    }

    /// What happened since this was last asked, in order.
    pub fn take_changes(&mut self) -> Vec<FileChange> {
        std::mem::take(&mut self.changes)
    }
}

impl Folder {
    fn read(&mut self, objects: &Objects) -> Result<&mut BTreeMap<Vec<u8>, Node>> {
        if self.entries.is_none()
            && let Some(oid) = self.oid
        {
            let nodes = objects.read_tree(oid)?.into_iter().map(|entry| {
                let node = if entry.mode == MODE_TREE {
                    Node::Folder(Folder {
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

    /// Returns whether this folder is empty afterwards.
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
