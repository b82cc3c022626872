//! Clones a data directory by reflinks if the file system supports them, else by copying.

use std::fs::{File, Metadata, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use perfquilt_model::error::{Error, Result};

/// Size in bytes of the blocks that are copied.
const BLOCK: usize = 64 * 1024;

/// Copies the folder `from` to the new folder `to`, sharing blocks if the file system supports it
/// (`FICLONE`). Symbolic links are copied as links. After a failure, `to` is incomplete.
pub fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).map_err(|e| Error::io("create", to, &e))?;
    for entry in std::fs::read_dir(from).map_err(|e| Error::io("read", from, &e))? {
        let entry = entry.map_err(|e| Error::io("read", from, &e))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry
            .file_type()
            .map_err(|e| Error::io("read", &source, &e))?;
        if kind.is_dir() {
            copy_tree(&source, &target)?;
        } else if kind.is_symlink() {
            std::fs::read_link(&source)
                .and_then(|link| std::os::unix::fs::symlink(link, &target))
                .map_err(|e| Error::io("copy", &source, &e))?;
        } else if kind.is_file() {
            copy_file(&source, &target).map_err(|e| Error::io("copy to", &target, &e))?;
        }
        // Sockets and pipes belong to a process, not to its data.
    }
    Ok(())
}

/// Returns the permissions of a file without the bits that give others the rights of its owner or group.
fn plain(found: &Metadata) -> Permissions {
    Permissions::from_mode(found.permissions().mode() & 0o777)
}

fn copy_file(from: &Path, to: &Path) -> std::io::Result<()> {
    let source = File::open(from)?;
    let target = File::create_new(to)?;
    if rustix::fs::ioctl_ficlone(&target, &source).is_ok() {
        return target.set_permissions(plain(&source.metadata()?));
    }
    copy_sparsely(source, target)
}

/// Copies a file without writing blocks of zeros: most of a new database's log is empty, and on a RAM disk every
/// unwritten page saves memory and time.
fn copy_sparsely(mut source: File, mut target: File) -> std::io::Result<()> {
    static ZEROS: [u8; BLOCK] = [0; BLOCK];
    let meta = source.metadata()?;
    let mut block = vec![0; BLOCK];
    loop {
        let filled = read_block(&mut source, &mut block)?;
        if filled == 0 {
            break;
        }
        if block[..filled] == ZEROS[..filled] {
            target.seek_relative(filled as i64)?;
        } else {
            target.write_all(&block[..filled])?;
        }
    }
    // A file that ends in zeros needs its full length set.
    let length = target.stream_position()?;
    target.set_len(length)?;
    target.set_permissions(plain(&meta))
}

fn read_block(source: &mut File, block: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match source.read(&mut block[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Syncs everything under `dir` to the disk, so that a power failure after its publication cannot leave it
/// incomplete.
pub(super) fn sync_tree(dir: &Path) -> Result<()> {
    for entry in std::fs::read_dir(dir).map_err(|e| Error::io("read", dir, &e))? {
        let path = entry.map_err(|e| Error::io("read", dir, &e))?.path();
        let meta = std::fs::symlink_metadata(&path).map_err(|e| Error::io("read", &path, &e))?;
        if meta.is_dir() {
            sync_tree(&path)?;
        } else if meta.is_file() {
            File::open(&path)
                .and_then(|file| file.sync_all())
                .map_err(|e| Error::io("sync", &path, &e))?;
        }
    }
    File::open(dir)
        .and_then(|folder| folder.sync_all())
        .map_err(|e| Error::io("sync", dir, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_files_folders_and_links_but_no_sockets() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::create_dir_all(from.join("sub/empty")).unwrap();
        std::fs::write(from.join("sub/file"), "text").unwrap();
        std::os::unix::fs::symlink("sub/file", from.join("link")).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(from.join("s")).unwrap();
        copy_tree(&from, &to).unwrap();
        assert_eq!(std::fs::read_to_string(to.join("link")).unwrap(), "text");
        assert!(to.join("link").is_symlink());
        assert!(to.join("sub/empty").is_dir());
        assert!(!to.join("s").exists());
        sync_tree(&to).unwrap();
    }

    #[test]
    fn zeros_are_holes_and_lengths_stay() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        for length in [0, 1, BLOCK, BLOCK + 1, 5 * BLOCK + 7] {
            let mut bytes = vec![0; length];
            if length > BLOCK {
                bytes[BLOCK] = 1;
            }
            let (from, to) = (dir.path().join("f"), dir.path().join(format!("t{length}")));
            std::fs::write(&from, &bytes).unwrap();
            copy_sparsely(File::open(&from).unwrap(), File::create_new(&to).unwrap()).unwrap();
            assert!(std::fs::read(&to).unwrap() == bytes, "{length}");
            assert!(to.metadata().unwrap().blocks() * 512 <= 2 * BLOCK as u64);
        }
    }

    #[test]
    fn missing_source_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = copy_tree(&dir.path().join("no"), &dir.path().join("b")).unwrap_err();
        assert!(error.message().contains("/no"), "{error}");
    }
}
