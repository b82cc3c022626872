//! Building a tree in memory.

use std::collections::BTreeMap;

use git2::Oid;

use super::objects::{MODE_TREE, TreeEntry, serialise_tree};
use crate::series::path;
use perfquilt_model::error::{Error, Result};

/// A folder of a tree under construction.
#[derive(Debug, Default)]
pub struct FolderBuilder {
    entries: BTreeMap<Vec<u8>, Node>,
}

#[derive(Debug)]
enum Node {
    File(u32, Oid),
    Folder(FolderBuilder),
}

impl FolderBuilder {
    /// Inserts an object at `path` and creates the folders above it.
    pub fn insert(&mut self, path: &[u8], mode: u32, oid: Oid) -> Result<()> {
        let taken = || Error::usage(format!("{} is given twice", path::shown(path)));
        let mut folder = self;
        let mut components = path.split(|&b| b == b'/').peekable();
        while let Some(name) = components.next() {
            if components.peek().is_none() {
                let node = Node::File(mode, oid);
                return match folder.entries.insert(name.to_vec(), node) {
                    None => Ok(()),
                    Some(_) => Err(taken()),
                };
            }
            let node = folder
                .entries
                .entry(name.to_vec())
                .or_insert_with(|| Node::Folder(FolderBuilder::default()));
            folder = match node {
                Node::Folder(inner) => inner,
                Node::File(..) => return Err(taken()),
            };
        }
        Err(Error::usage("an empty path"))
    }

    /// Returns mode and object of the file at `path`.
    pub fn find(&self, path: &[u8]) -> Option<(u32, Oid)> {
        let mut folder = self;
        let mut components = path.split(|&b| b == b'/').peekable();
        while let Some(name) = components.next() {
            match (folder.entries.get(name)?, components.peek()) {
                (Node::File(mode, oid), None) => return Some((*mode, *oid)),
                (Node::Folder(inner), Some(_)) => folder = inner,
                _ => return None,
            }
        }
        None
    }

    /// Returns the only entry if that is a folder, otherwise `self`. Archives usually have one top folder.
    #[must_use]
    pub fn without_top(mut self) -> FolderBuilder {
        if self.entries.len() == 1 {
            match self.entries.pop_first() {
                Some((_, Node::Folder(inner))) => return inner,
                Some((name, node)) => {
                    self.entries.insert(name, node);
                }
                None => {}
            }
        }
        self
    }

    /// Passes the content of every tree object to `write`, innermost first, and returns the id of the outermost.
    pub fn store(&self, write: &mut dyn FnMut(&[u8]) -> Result<Oid>) -> Result<Oid> {
        let mut entries = self
            .entries
            .iter()
            .map(|(name, node)| {
                let (mode, oid) = match node {
                    Node::File(mode, oid) => (*mode, *oid),
                    Node::Folder(inner) => (MODE_TREE, inner.store(write)?),
                };
                Ok(TreeEntry {
                    name: name.clone(),
                    mode,
                    oid,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        write(&serialise_tree(&mut entries))
    }
}
