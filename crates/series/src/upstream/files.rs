//! Reading single files of an imported release without a source tree.

use std::path::{Path, PathBuf};

use git2::{ObjectType, Oid};

use super::Release;
use super::objects::{MODE_EXEC, MODE_FILE, MODE_TREE, Objects, oid};
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::Result;

/// A file of a release: its path and its content.
pub type ReleaseFile = (PathBuf, Vec<u8>);

/// Returns the files below `folder` (one name, no slashes) of a release, with their paths relative to it; `None` if the
/// release has no such folder. Skips symbolic links.
pub fn files_of(
    ws: &Workspace,
    release: &Release,
    folder: &str,
) -> Result<Option<Vec<ReleaseFile>>> {
    let store = Objects::open(&ws.object_store())?;
    let Some((MODE_TREE, found)) = entry_at(&store, &release.tree, folder)? else {
        return Ok(None);
    };
    let mut files = Vec::new();
    gather(&store, found, Path::new(""), &mut files)?;
    Ok(Some(files))
}

/// Returns the content of the file at `path` (separated by slashes) in a tree of the object store; `None` if there is
/// none.
pub fn file_in(ws: &Workspace, tree: &str, path: &str) -> Result<Option<Vec<u8>>> {
    let store = Objects::open(&ws.object_store())?;
    match entry_at(&store, tree, path)? {
        Some((MODE_FILE | MODE_EXEC, oid)) => store.read(oid, ObjectType::Blob).map(Some),
        _ => Ok(None),
    }
}

/// Returns mode and object of the file or folder at `path` in a tree.
fn entry_at(store: &Objects, tree: &str, path: &str) -> Result<Option<(u32, Oid)>> {
    let mut at = (MODE_TREE, oid(tree)?);
    for name in path.split('/') {
        if at.0 != MODE_TREE {
            return Ok(None);
        }
        let entries = store.read_tree(at.1)?;
        match entries.iter().find(|entry| entry.name == name.as_bytes()) {
            Some(entry) => at = (entry.mode, entry.oid),
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

fn gather(store: &Objects, tree: Oid, below: &Path, files: &mut Vec<ReleaseFile>) -> Result<()> {
    for entry in store.read_tree(tree)? {
        let path = below.join(String::from_utf8_lossy(&entry.name).as_ref());
        match entry.mode {
            MODE_TREE => gather(store, entry.oid, &path, files)?,
            MODE_FILE | MODE_EXEC => files.push((path, store.read(entry.oid, ObjectType::Blob)?)),
            _ => {}
        }
    }
    Ok(())
}
