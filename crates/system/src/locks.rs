//! File locks. The kernel releases them when their process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use crate::process::check_interrupted;
use perfquilt_model::error::{Error, Result};

/// How often a waiting process retries.
pub const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A locked file. Dropping this value releases the lock explicitly: merely closing the file would leave it
/// locked until a child that is being started executes its program.
#[derive(Debug)]
pub struct Lock(pub(crate) File);

impl Drop for Lock {
    fn drop(&mut self) {
        // On failure, closing the file releases the lock.
        let _ = self.0.unlock();
    }
}

/// Waits until no other process holds the lock file `path`, and locks it exclusively. Creates the file and its
/// folder when missing. Calls `on_wait` once if it has to wait.
pub fn wait(path: &Path, on_wait: impl FnOnce()) -> Result<Lock> {
    wait_file(path, on_wait).map(Lock)
}

/// Waits and locks like [`wait`], but the lock lasts until all processes that have the file open close it.
pub fn wait_file(path: &Path, on_wait: impl FnOnce()) -> Result<File> {
    let mut on_wait = Some(on_wait);
    loop {
        if let Some(held) = try_exclusive(path)? {
            return Ok(held);
        }
        if let Some(on_wait) = on_wait.take() {
            on_wait();
        }
        check_interrupted()?;
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Locks the file exclusively, like [`wait`]; returns `None` instead of waiting.
pub fn try_now(path: &Path) -> Result<Option<Lock>> {
    Ok(try_exclusive(path)?.map(Lock))
}

fn try_exclusive(path: &Path) -> Result<Option<File>> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
    }
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    // A symbolic link must not make this lock another file, and whoever can read a file can lock it.
    options.custom_flags(libc::O_NOFOLLOW).mode(0o600);
    lock(path, &options, File::try_lock)
}

/// Locks the existing lock file `path` together with others that share it; `None` when another process holds it
/// exclusively.
pub fn share_now(path: &Path) -> Result<Option<Lock>> {
    let held = lock(path, File::options().read(true), File::try_lock_shared)?;
    Ok(held.map(Lock))
}

fn lock(
    path: &Path,
    options: &OpenOptions,
    operation: fn(&File) -> std::result::Result<(), TryLockError>,
) -> Result<Option<File>> {
    loop {
        let file = options
            .open(path)
            .map_err(|e| Error::io("open", path, &e))?;
        match operation(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", path, &error)),
        }
        // Its previous holder may have moved the file away, and a lock on a file that `path` does not name
        // excludes nobody.
        if is_at(&file, path).map_err(|e| Error::io("look at", path, &e))? {
            return Ok(Some(file));
        }
    }
}

/// Returns whether `path` names `file`.
fn is_at(file: &File, path: &Path) -> std::io::Result<bool> {
    let held = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_exclusive_or_shared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/lock");
        assert!(share_now(&path).is_err(), "nothing to share");
        let alone = wait(&path, || panic!("nobody to wait for")).unwrap();
        assert!(try_now(&path).unwrap().is_none());
        assert!(share_now(&path).unwrap().is_none());
        drop(alone);
        let shared = [share_now(&path).unwrap(), share_now(&path).unwrap()];
        assert!(shared.iter().all(Option::is_some));
        assert!(try_now(&path).unwrap().is_none());
        drop(shared);
        assert!(try_now(&path).unwrap().is_some());
    }

    #[test]
    fn a_waiter_is_notified_once_and_gets_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let mut held = try_now(&path).unwrap();
        let mut told = 0;
        let got = wait(&path, || {
            told += 1;
            held.take();
        });
        assert!(got.is_ok());
        assert_eq!(told, 1);
    }

    #[test]
    fn a_moved_lock_file_is_created_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("entry/lock");
        let away = folder.path().join("away");
        // Another process takes the folder away between opening and locking.
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let opened = File::create(&path).unwrap();
        std::fs::rename(path.parent().unwrap(), &away).unwrap();
        opened.try_lock().unwrap();
        assert!(!is_at(&opened, &path).unwrap());
        let held = try_now(&path).unwrap().unwrap();
        assert!(is_at(&held.0, &path).unwrap() && !is_at(&opened, &path).unwrap());
    }
}
