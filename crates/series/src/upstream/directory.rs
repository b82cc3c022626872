//! Reading a release from a directory.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::import::{FileSink, ImportedTree, import};
use super::objects::{MODE_LINK, Objects, file_mode};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;

/// Folders of version control, quilt and perfquilt, which are not part of a release.
const EXCLUDED_FOLDERS: [&str; 5] = [".git", ".pc", ".svn", ".hg", ".perfquilt"];

/// Imports the tree below `root` without the folders of version control, quilt and perfquilt.
pub fn import_directory(store: &Objects, root: &Path, label: &str) -> Result<ImportedTree> {
    let hint = "correct `directory`; a relative path starts at the workspace's root";
    if !root.is_dir() {
        let fault = format!("{} is not a folder", root.display());
        return Err(Error::archive(fault).hint(hint));
    }
    let step = progress::begin(&format!("importing {label}"), None);
    let imported = import(store, false, |sink| {
        walk(sink, root, &mut Vec::new(), &EXCLUDED_FOLDERS)
    })?;
    if imported.files == 0 {
        return Err(Error::archive(format!("{} contains no files", root.display())).hint(hint));
    }
    step.finish("");
    Ok(imported)
}

/// Imports all files below a folder into which git has checked them out, and keeps their tree; returns its id.
pub fn import_checkout(store: &Objects, root: &Path) -> Result<String> {
    let _lock = store.lock_import()?;
    let imported = import(store, false, |sink| {
        walk(sink, root, &mut Vec::new(), &[".git"])
    })?;
    let tree = imported.tree;
    store.set_reference(&format!("refs/measured/{tree}"), tree)?;
    Ok(tree.to_string())
}

fn walk(sink: &mut FileSink, folder: &Path, path: &mut Vec<u8>, excluded: &[&str]) -> Result<()> {
    let io = |e| Error::io("read", folder, &e);
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name();
        if excluded.iter().any(|excluded| name == *excluded) {
            continue;
        }
        let place = entry.path();
        let io = |e| Error::io("read", &place, &e);
        let length = path.len();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        let kind = entry.file_type().map_err(io)?;
        if kind.is_dir() {
            walk(sink, &place, path, excluded)?;
        } else if kind.is_symlink() {
            let target = std::fs::read_link(&place).map_err(io)?;
            let content = target.as_os_str().as_bytes().to_vec();
            sink.file(path, MODE_LINK, content)?;
        } else if kind.is_file() {
            let mode = entry.metadata().map_err(io)?.permissions().mode();
            sink.file(path, file_mode(mode), std::fs::read(&place).map_err(io)?)?;
        } else {
            return Err(Error::archive(format!(
                "{} is neither a file nor a folder nor a symbolic link",
                place.display()
            )));
        }
        path.truncate(length);
    }
    Ok(())
}
