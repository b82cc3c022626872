//! The folder through which a coordinator and the workers of its jobs exchange files. All machines see it.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use perfquilt_model::error::{Error, Result};

/// Publishes `bytes` under `path`, whole or not at all. Returns `false` if another worker has published it before, which
/// then stands.
///
/// A hard link decides: unlike a rename, it fails where there is a file, on a network file system too.
pub fn publish(path: &Path, bytes: &[u8]) -> Result<bool> {
    let io = |error: std::io::Error| Error::io("write", path, &error);
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::Builder::new()
        .prefix(".part-")
        .tempfile_in(folder)
        .map_err(io)?;
    file.write_all(bytes).map_err(io)?;
    file.as_file().sync_all().map_err(io)?;
    match std::fs::hard_link(file.path(), path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => return Err(io(error)),
    }
    // The new name must be on the disk before a coordinator acts on it.
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(io)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_system::threads;

    #[test]
    fn the_first_of_two_workers_publishes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("block-7.json");
        let published = threads::each(0..8_u8, |worker| publish(&path, &[worker; 4096]).unwrap());
        assert_eq!(published.iter().filter(|first| **first).count(), 1);
        let first = published.iter().position(|first| *first).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [first as u8; 4096]);
        // Nothing else is left.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(!publish(&path, b"late").unwrap());
    }
}
