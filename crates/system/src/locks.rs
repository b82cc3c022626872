//! Locks on files. They go with the process that holds them, however it ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use crate::process::check_interrupted;
use perfquilt_model::error::{Error, Result};

/// How often a process that waits for its turn looks.
pub const POLL: Duration = Duration::from_millis(10);

/// A locked file. The lock ends with this value: left to the closing of the file, it would last until whatever
/// child is just being started executes its program.
#[derive(Debug)]
pub struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file does it, too.
        let _ = self.0.unlock();
    }
}

impl Deref for Lock {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl DerefMut for Lock {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.0
    }
}

/// Waits until nobody else holds the lock file `path`, and keeps others out while the answer lives. The
/// file and its folder are made where they are missing. `told` is called once if there is a need to wait.
///
/// # Errors
/// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted) while waiting;
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the file cannot be made or locked.
pub fn wait(path: &Path, told: impl FnOnce()) -> Result<Lock> {
    wait_file(path, told).map(Lock)
}

/// As [`wait`], but the lock lasts until the file is closed, by whatever process has it open.
///
/// # Errors
/// As [`wait`].
pub fn wait_file(path: &Path, told: impl FnOnce()) -> Result<File> {
    let mut told = Some(told);
    loop {
        if let Some(held) = alone_now(path)? {
            return Ok(held);
        }
        if let Some(told) = told.take() {
            told();
        }
        check_interrupted()?;
        std::thread::sleep(POLL);
    }
}

/// As [`wait`], but `None` where that would wait.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the file cannot be made or locked.
pub fn try_now(path: &Path) -> Result<Option<Lock>> {
    Ok(alone_now(path)?.map(Lock))
}

fn alone_now(path: &Path) -> Result<Option<File>> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
    }
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    // Nobody's link leads to a file that is no lock.
    options.custom_flags(libc::O_NOFOLLOW);
    lock(path, &options, File::try_lock)
}

/// Shares the lock file `path`, which must be there, with others that share it: nobody holds it alone
/// while the answer lives. `None` where somebody does already.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the file cannot be opened or locked.
pub fn share_now(path: &Path) -> Result<Option<Lock>> {
    let held = lock(path, File::options().read(true), File::try_lock_shared)?;
    Ok(held.map(Lock))
}

fn lock(
    path: &Path,
    options: &OpenOptions,
    how: fn(&File) -> std::result::Result<(), TryLockError>,
) -> Result<Option<File>> {
    loop {
        let file = options
            .open(path)
            .map_err(|e| Error::io("open", path, &e))?;
        match how(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", path, &error)),
        }
        // Whoever held it may have moved it away meanwhile, and a file that nobody finds under its name
        // keeps nobody out.
        if is_at(&file, path).map_err(|e| Error::io("look at", path, &e))? {
            return Ok(Some(file));
        }
    }
}

/// Whether `path` names `file`.
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
    fn one_holds_it_alone_or_several_share_it() {
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
    fn who_waits_is_told_once_and_gets_it() {
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
    fn a_file_moved_away_while_it_was_locked_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("entry/lock");
        let away = folder.path().join("away");
        // Between its opening and its locking, another process takes the folder away.
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let opened = File::create(&path).unwrap();
        std::fs::rename(path.parent().unwrap(), &away).unwrap();
        opened.try_lock().unwrap();
        assert!(!is_at(&opened, &path).unwrap());
        let held = try_now(&path).unwrap().unwrap();
        assert!(is_at(&held, &path).unwrap() && !is_at(&opened, &path).unwrap());
    }
}
