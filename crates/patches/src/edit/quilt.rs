//! A source tree for quilt itself.

use std::path::{Path, PathBuf};

use crate::series::Location;
use crate::stack;
use crate::upstream;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;
use perfquilt_system::files::write_file;

/// A tree on which quilt works with the workspace's own series and patches.
#[derive(Debug, Clone)]
pub struct QuiltTree {
    /// The release.
    pub release: String,
    /// Where it is.
    pub directory: PathBuf,
    /// Files written.
    pub files: usize,
    /// Patches in the series, none of which is applied.
    pub patches: usize,
}

/// Unpacks a release into `dir`, which must be new or empty, and tells quilt there where series and
/// patches are.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the folder is not empty; the series need not apply.
pub fn quilt(
    ws: &Workspace,
    version: Option<&str>,
    dir: &Path,
    progress: &dyn Progress,
) -> Result<QuiltTree> {
    let directory = std::path::absolute(dir).map_err(|e| Error::io("find", dir, &e))?;
    if let Ok(mut entries) = std::fs::read_dir(&directory)
        && entries.next().is_some()
    {
        return Err(
            Error::usage(format!("{} is not empty", directory.display()))
                .hint("name a new folder, or empty this one first"),
        );
    }
    let location = Location::of(ws, version)?;
    let patches = crate::series::survey(ws, version)?
        .series
        .file()
        .entries()
        .len();
    let release = upstream::ensure(ws, version, progress)?;
    let files = stack::export(&ws.object_store(), &release.tree, &directory, progress)?;
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
