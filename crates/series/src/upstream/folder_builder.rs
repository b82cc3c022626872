//! Building a tree in memory.

use std::collections::BTreeMap;

use git2::Oid;

use super::objects::{MODE_TREE, TreeEntry, serialise_tree};
use crate::series::path::{folders, shown};
use perfquilt_model::error::{Error, Result};

/// A tree under construction: mode and object of each file.
#[derive(Debug, Default)]
pub struct FolderBuilder {
    files: BTreeMap<Vec<u8>, (u32, Oid)>,
}

impl FolderBuilder {
    /// Inserts an object at `path`.
    pub fn insert(&mut self, path: &[u8], mode: u32, oid: Oid) -> Result<()> {
        let inside = [path, b"/"].concat();
        let next = self.files.range(inside.clone()..).next();
        let is_folder = next.is_some_and(|(path, _)| path.starts_with(&inside));
        let is_in_file = folders(path).any(|folder| self.files.contains_key(folder));
        let file = self.files.insert(path.to_vec(), (mode, oid));
        if is_folder || is_in_file || file.is_some() {
            return Err(Error::archive(format!("{} is given twice", shown(path))));
        }
        Ok(())
    }

    /// Returns mode and object of the file at `path`.
    pub fn find(&self, path: &[u8]) -> Option<(u32, Oid)> {
        self.files.get(path).copied()
    }

    /// Returns what is in the only entry if that is a folder, otherwise `self`. Archives usually have one top folder.
    #[must_use]
    pub fn without_top(mut self) -> FolderBuilder {
        let first = self.files.keys().next().cloned().unwrap_or_default();
        let Some(top) = top(&first).map(|top| [top, b"/"].concat()) else {
            return self;
        };
        if self.files.keys().all(|path| path.starts_with(&top)) {
            let files = self.files.into_iter();
            let below = files.map(|(path, file)| (path[top.len()..].to_vec(), file));
            self.files = below.collect();
        }
        self
    }

    /// Passes the content of every tree object to `write`, innermost first, and returns the id of the outermost.
    pub fn store(&self, write: &mut dyn FnMut(&[u8]) -> Result<Oid>) -> Result<Oid> {
        let files = self.files.iter().map(|(path, file)| (&**path, *file));
        store(&files.collect::<Vec<_>>(), write)
    }
}

/// A file's path, mode and object.
type File<'p> = (&'p [u8], (u32, Oid));

/// Returns the outermost folder above a path.
fn top(path: &[u8]) -> Option<&[u8]> {
    folders(path).next()
}

/// Writes a folder with these files, sorted by path.
fn store(files: &[File<'_>], write: &mut dyn FnMut(&[u8]) -> Result<Oid>) -> Result<Oid> {
    let mut entries = Vec::new();
    // A file is a group of its own: none is in another one's folder.
    for group in files.chunk_by(|a, b| top(a.0).is_some() && top(a.0) == top(b.0)) {
        let (path, (mode, oid)) = group[0];
        let (name, mode, oid) = match top(path) {
            None => (path, mode, oid),
            Some(name) => {
                let below = group.iter();
                let below = below.map(|(path, file)| (&path[name.len() + 1..], *file));
                (name, MODE_TREE, store(&below.collect::<Vec<_>>(), write)?)
            }
        };
        entries.push(TreeEntry {
            name: name.to_vec(),
            mode,
            oid,
        });
    }
    write(&serialise_tree(&mut entries))
}
