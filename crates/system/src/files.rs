//! Reads and writes whole files.

use std::ffi::OsString;
use std::fs::{File, Metadata, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::locks;
use perfquilt_model::error::{Error, Result};

/// Writes a file atomically: whatever happens, either the old or the new content is in place, and the content
/// reaches the disk before the name does. Keeps the permissions of an existing file; a new one is readable by
/// everybody. Creates missing folders. Leaves a file with the same content untouched.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    if std::fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let io = |error: std::io::Error| Error::io("write", path, &error);
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
    let permissions = match std::fs::metadata(path) {
        Ok(found) => found.permissions(),
        Err(_) => Permissions::from_mode(0o644),
    };
    // With a fixed name, the next writer reuses the file that a killed one left.
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".perfquilt");
    let temporary = folder.join(name);
    if let Ok(Some(mut file)) = locks::try_now(&temporary) {
        let written = fill(&mut file.0, bytes, permissions)
            .and_then(|()| std::fs::rename(&temporary, path))
            .map_err(io);
        if written.is_err() {
            // A leftover temporary file is harmless.
            let _ = std::fs::remove_file(&temporary);
        }
        return written;
    }
    // Another process is writing the file, or the file system has no locks.
    let mut file = tempfile::Builder::new()
        .prefix(".")
        .suffix(".perfquilt")
        .tempfile_in(folder)
        .map_err(io)?;
    fill(file.as_file_mut(), bytes, permissions).map_err(io)?;
    file.persist(path).map_err(|error| io(error.error))?;
    Ok(())
}

/// Checks that nobody but this user and root can have written into the folder `path`.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when it belongs to somebody else, or all users may write to it.
pub fn check_trusted(path: &Path) -> Result<()> {
    let found = std::fs::metadata(path).map_err(|e| Error::io("read", path, &e))?;
    let user = rustix::process::geteuid().as_raw();
    let why = match found.uid() {
        owner if owner != user && owner != 0 => "belongs to another user",
        _ if found.mode() & 0o002 != 0 => "can be written by every user",
        _ => return Ok(()),
    };
    let fault = format!(
        "{} {why}, so another user may have written its content",
        path.display()
    );
    Err(Error::file_refused(fault))
}

/// Makes the folder `path`, if it is missing, and accessible to this user only.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when it belongs to another user.
pub fn make_private(path: &Path) -> Result<()> {
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above).map_err(|e| Error::io("create", above, &e))?;
    }
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|e| Error::io("create", path, &e))?;
    let found = std::fs::symlink_metadata(path).map_err(|e| Error::io("read", path, &e))?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        let fault = format!(
            "{} belongs to another user, who could read and replace its content",
            path.display()
        );
        return Err(Error::file_refused(fault)
            .hint("give it to the user who runs perfquilt (`chown`), or use another folder"));
    }
    if is_private(&found) {
        return Ok(());
    }
    std::fs::set_permissions(path, Permissions::from_mode(0o700))
        .map_err(|e| Error::io("make private", path, &e))
}

/// Returns whether only its owner has rights to a file or folder.
pub fn is_private(found: &Metadata) -> bool {
    found.mode() & 0o077 == 0
}

/// Opens a file that others may have written. It must be a plain file, because a link could point to a file that its
/// author may not read, and a pipe might never end. Returns `None` if it does not exist.
///
/// # Errors
/// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) for anything but a plain file;
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be opened.
pub fn open_untrusted(path: &Path) -> Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let refused =
        |why: &str| Error::file_refused(format!("{why}, so it was not read")).at(path, None);
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return Err(refused("it is a link")),
        Err(error) => return Err(Error::io("read", path, &error.into())),
    };
    let kind = file.metadata().map_err(|e| Error::io("read", path, &e))?;
    if kind.is_file() {
        Ok(Some(file))
    } else {
        Err(refused("it is not a plain file"))
    }
}

/// Reads a file that others may have written, as [`open_untrusted`] opens it. Returns `None` if it does not exist.
pub fn read_untrusted(path: &Path, most: u64) -> Result<Option<Vec<u8>>> {
    let Some(file) = open_untrusted(path)? else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| Error::io("read", path, &e))?;
    if bytes.len() as u64 <= most {
        Ok(Some(bytes))
    } else {
        Err(Error::file_refused(format!("it is larger than {most} bytes")).at(path, None))
    }
}

fn fill(file: &mut File, bytes: &[u8], permissions: Permissions) -> std::io::Result<()> {
    file.set_len(0)?;
    // Set before writing, so that nobody without permission can read the content.
    file.set_permissions(permissions)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Returns the result of an attempt to `what` the file or folder at `path`; `None` if there is none.
pub fn if_there<T>(what: &str, path: &Path, result: std::io::Result<T>) -> Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(what, path, &error)),
    }
}

/// Reads the text of the file at `path`, which errors call `shown`.
pub fn read_text(path: &Path, shown: &str) -> Result<String> {
    let bytes = std::fs::read(path).map_err(|e| Error::io("read", path, &e))?;
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        Error::file_refused("not UTF-8").at(shown, line)
    })
}

/// Serializes a path as text, for JSON; replaces what is not UTF-8.
pub fn as_text<S: serde::Serializer>(path: &Path, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_can_read_a_file_and_its_permissions_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/file");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write_file(&path, b"old").unwrap();
        assert_eq!(mode(), 0o644);
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        write_file(&path, b"new").unwrap();
        assert_eq!(mode(), 0o600);
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        let names = std::fs::read_dir(path.parent().unwrap()).unwrap();
        assert_eq!(names.count(), 1, "nothing else is left");
    }

    #[test]
    fn an_unchanged_file_is_not_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_file(&path, b"same").unwrap();
        let inode = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).unwrap());
        let before = inode();
        write_file(&path, b"same").unwrap();
        assert_eq!(inode(), before);
        write_file(&path, b"other").unwrap();
        assert_ne!(inode(), before);
    }

    #[test]
    fn a_stale_temporary_file_is_reused_and_a_locked_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let temporary = folder.path().join(".file.perfquilt");
        std::fs::write(&temporary, "half of something longer").unwrap();
        write_file(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert!(!temporary.exists());
        let other = locks::try_now(&temporary).unwrap();
        assert!(other.is_some());
        write_file(&path, b"newer").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"newer");
        assert!(temporary.exists());
    }

    #[test]
    fn invalid_utf8_is_reported_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"a\nna\xefve\n").unwrap();
        let error = read_text(&path, "shown").unwrap_err();
        assert_eq!(error.kind(), perfquilt_model::error::Kind::Usage);
        assert_eq!(error.to_string(), "shown:2: not UTF-8");
        std::fs::write(&path, "naïve").unwrap();
        assert_eq!(read_text(&path, "shown").unwrap(), "naïve");
    }
}
