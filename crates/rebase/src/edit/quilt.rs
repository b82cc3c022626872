//! Exports a source tree for use with quilt.

use std::path::{Path, PathBuf};

use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_series::series::SeriesLocation;
use perfquilt_series::stack;
use perfquilt_series::upstream;
use perfquilt_system::files::write_file;

/// A source tree in which quilt uses the workspace's series and patches.
#[derive(Debug, Clone)]
pub struct QuiltTree {
    /// The release.
    pub release: String,
    /// Folder of the tree.
    pub directory: PathBuf,
    /// Number of written files.
    pub files: usize,
    /// Number of patches in the series; none is applied.
    pub patches: usize,
}

/// Unpacks a release into `dir`, which must be new or empty, and configures quilt there to use the workspace's
/// series and patches.
pub fn quilt(ws: &Workspace, version: Option<&str>, dir: &Path) -> Result<QuiltTree> {
    let directory = std::path::absolute(dir).map_err(|e| Error::io("find", dir, &e))?;
    if let Ok(mut entries) = std::fs::read_dir(&directory)
        && entries.next().is_some()
    {
        return Err(
            Error::folder_taken(format!("{} is not empty", directory.display()))
                .hint("name a new folder, or empty this one first"),
        );
    }
    let location = SeriesLocation::of(ws, version)?;
    let patches = perfquilt_series::series::survey(ws, version)?
        .series
        .file()
        .entries()
        .len();
    let release = upstream::ensure(ws, version)?;
    let files = stack::export(&ws.object_store(), &release.tree, &directory)?;
    let pc = directory.join(".pc");
    let inside = |path: &Path| -> Result<Vec<u8>> {
        let path = std::fs::canonicalize(path).map_err(|e| Error::io("find", path, &e))?;
        let mut line = path.into_os_string().into_encoded_bytes();
        line.push(b'\n');
        Ok(line)
    };
    let folder = &location.folder;
    std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
    write_file(&pc.join(".version"), b"2\n")?;
    write_file(&pc.join(".quilt_patches"), &inside(folder)?)?;
    write_file(&pc.join(".quilt_series"), &inside(&location.file)?)?;
    Ok(QuiltTree {
        release: release.name,
        directory,
        files,
        patches,
    })
}
