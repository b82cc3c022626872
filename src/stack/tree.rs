//! A git tree that is changed in memory: only the folders on the changed paths are ever read.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use git2::{ObjectType, Oid};

use crate::error::{Error, Result};
use crate::series::path::shown;
use crate::upstream::objects::{MODE_COMMIT, MODE_LINK, MODE_TREE, TreeEntry, serialise_tree};
use crate::upstream::objects::{Objects, empty_tree};
use crate::upstream::pack::ObjectWriter;

/// A tree with changes not yet written.
pub struct WorkingTree<'a> {
    objects: &'a Objects,
    root: Folder,
    /// Contents of files that were read or changed, by path.
    contents: HashMap<Vec<u8>, Arc<Vec<u8>>>,
}

#[derive(Debug)]
struct Folder {
    oid: Oid,
    changed: bool,
    entries: Option<BTreeMap<Vec<u8>, Node>>,
}

#[derive(Debug)]
enum Node {
    File { mode: u32, oid: Oid },
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
        /// Its content.
        oid: Oid,
    },
    /// A folder.
    Folder,
    /// A folder above it is a file, link or submodule; the text names that and its kind.
    Blocked(String),
}

impl<'a> WorkingTree<'a> {
    /// Starts with the tree called `oid`.
    pub fn new(objects: &'a Objects, oid: Oid) -> Self {
        WorkingTree {
            objects,
            root: Folder::unread(oid),
            contents: HashMap::new(),
        }
    }

    /// What is at `path`.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when the object store is damaged.
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
                Node::File { mode, oid } if components.peek().is_none() && *mode != MODE_COMMIT => {
                    return Ok(At::File {
                        mode: *mode,
                        oid: *oid,
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

    /// The content of the file at `path`, whose object is `oid`.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when it cannot be read.
    pub fn content(&mut self, path: &[u8], oid: Oid) -> Result<Arc<Vec<u8>>> {
        if let Some(content) = self.contents.get(path) {
            return Ok(Arc::clone(content));
        }
        let content = Arc::new(self.objects.read(oid, ObjectType::Blob)?);
        self.contents.insert(path.to_vec(), Arc::clone(&content));
        Ok(content)
    }

    /// Puts a file at `path`, where nothing or a file must be.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when a file stands where a folder is needed.
    pub fn set(&mut self, path: &[u8], mode: u32, oid: Oid, content: Arc<Vec<u8>>) -> Result<()> {
        let objects = self.objects;
        let mut folder = &mut self.root;
        let mut components = path.split(|&b| b == b'/').peekable();
        while let Some(name) = components.next() {
            folder.changed = true;
            let entries = folder.read(objects)?;
            if components.peek().is_none() {
                entries.insert(name.to_vec(), Node::File { mode, oid });
                break;
            }
            let node = entries
                .entry(name.to_vec())
                .or_insert_with(|| Node::Folder(Folder::unread(empty_tree())));
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
        self.contents.insert(path.to_vec(), content);
        Ok(())
    }

    /// Removes the file at `path`, and the folders that are empty then.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when the object store is damaged.
    pub fn remove(&mut self, path: &[u8]) -> Result<()> {
        let components: Vec<&[u8]> = path.split(|&b| b == b'/').collect();
        self.contents.remove(path);
        self.root.remove(self.objects, &components)?;
        Ok(())
    }

    /// Writes the changed folders and returns the name of the tree.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when they cannot be written.
    pub fn write(&mut self, writer: &mut ObjectWriter<'_>) -> Result<Oid> {
        self.root.write(writer)
    }
}

impl Folder {
    fn unread(oid: Oid) -> Self {
        Folder {
            oid,
            changed: false,
            entries: None,
        }
    }

    fn read(&mut self, objects: &Objects) -> Result<&mut BTreeMap<Vec<u8>, Node>> {
        if self.entries.is_none() {
            let nodes = objects.read_tree(self.oid)?.into_iter().map(|entry| {
                let node = if entry.mode == MODE_TREE {
                    Node::Folder(Folder::unread(entry.oid))
                } else {
                    Node::File {
                        mode: entry.mode,
                        oid: entry.oid,
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
        let empty = entries.is_empty();
        self.changed = true;
        Ok(empty)
    }

    fn write(&mut self, writer: &mut ObjectWriter<'_>) -> Result<Oid> {
        if !self.changed {
            return Ok(self.oid);
        }
        let mut entries = Vec::new();
        for (name, node) in self.entries.iter_mut().flatten() {
            let (mode, oid) = match node {
                Node::File { mode, oid } => (*mode, *oid),
                Node::Folder(inner) => (MODE_TREE, inner.write(writer)?),
            };
            entries.push(TreeEntry {
                name: name.clone(),
                mode,
                oid,
            });
        }
        self.oid = writer.write(ObjectType::Tree, &serialise_tree(&mut entries))?;
        self.changed = false;
        Ok(self.oid)
    }
}
