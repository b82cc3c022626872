//! Manages a recipe's working folder: source tree, build tree, lock and stamp.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress::Progress;
use perfquilt_system::locks;

/// Format of a working folder; a folder of another format is emptied.
const FORMAT: &str = "perfquilt-work 1";

/// The file that is there while a build runs.
const MARK: &str = "building";

/// A locked working folder.
#[derive(Debug)]
pub(super) struct Work {
    dir: PathBuf,
    lock: Arc<File>,
}

impl Work {
    /// Opens the folder `dir`, waiting until no other process builds in it.
    pub(super) fn lock(dir: &Path, progress: &dyn Progress) -> Result<Work> {
        let path = dir.join("lock");
        let mut file = locks::wait_file(&path, || {
            // The process id is only informative and may be missing.
            let holder = match std::fs::read_to_string(&path).unwrap_or_default().trim() {
                "" => String::new(),
                pid => format!(" (process {pid})"),
            };
            progress.note(&format!(
                "waiting: another perfquilt{holder} builds in {}",
                dir.display()
            ));
        })?;
        let pid = std::process::id().to_string();
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(pid.as_bytes()))
            .map_err(|e| Error::io("write", &path, &e))?;
        Ok(Work {
            dir: dir.to_owned(),
            lock: Arc::new(file),
        })
    }

    /// Returns the lock file, which child processes inherit so that the lock lasts as long as they run.
    pub(super) fn lock_file(&self) -> &Arc<File> {
        &self.lock
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn src(&self) -> PathBuf {
        self.dir.join("src")
    }

    pub(super) fn build(&self) -> PathBuf {
        self.dir.join("build")
    }

    /// Marks that a build in the folder begins. The mark stays if this process dies before [`Work::ended`].
    pub(super) fn began(&self) -> Result<()> {
        let mark = self.dir.join(MARK);
        std::fs::write(&mark, "").map_err(|e| Error::io("write", &mark, &e))
    }

    /// Marks that the build ended, successful or not, with all its processes.
    pub(super) fn ended(&self) -> Result<()> {
        remove(&self.dir.join(MARK))
    }

    /// Has the next [`Work::prepare`] empty the folder if the last build in it did not end: a program that was killed, or
    /// whose child was, leaves half-written files, and `make` takes them for finished ones.
    pub(super) fn distrust_killed_build(&self, progress: &dyn Progress) -> Result<()> {
        if !self.dir.join(MARK).exists() {
            return Ok(());
        }
        progress.note(&format!(
            "the last build in {} was killed, and may have left half-written files",
            self.dir.display()
        ));
        remove(&self.dir.join("stamp"))
    }

    /// Empties the folder if it has another format or was used with other inputs: `inputs` lists the tools and
    /// everything else the folder as a whole depends on.
    pub(super) fn prepare(&self, inputs: &str, progress: &dyn Progress) -> Result<()> {
        let stamp = self.dir.join("stamp");
        let wanted = format!("{FORMAT}\n{inputs}\n");
        if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok(());
        }
        // Remove the stamp first: an interrupted removal then starts over next time.
        remove(&stamp)?;
        let entries = std::fs::read_dir(&self.dir).map_err(|e| Error::io("read", &self.dir, &e))?;
        let mut noted = false;
        for entry in entries {
            let path = entry.map_err(|e| Error::io("read", &self.dir, &e))?.path();
            if path.ends_with("lock") {
                continue;
            }
            if !noted {
                progress.note(&format!(
                    "build tree {} is stale (other build files, toolchain or version); rebuilding from scratch",
                    self.dir.display()
                ));
                noted = true;
            }
            remove(&path)?;
        }
        write_atomically(&stamp, &wanted)
    }
}

/// Removes a file or folder if it exists.
pub(super) fn remove(path: &Path) -> Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, &error))
        }
        _ => Ok(()),
    }
}

/// Writes a file atomically: to a temporary file, then by a rename.
pub(super) fn write_atomically(path: &Path, text: &str) -> Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    std::fs::write(&partial, text).map_err(|e| Error::io("write", &partial, &e))?;
    std::fs::rename(&partial, path).map_err(|e| Error::io("write", path, &e))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use perfquilt_model::progress::Silent;

    #[test]
    fn what_a_killed_build_left_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let work = Work::lock(folder.path(), &Silent).unwrap();
        work.prepare("a", &Silent).unwrap();
        let left = work.src().join("half.o");
        let begin = || {
            work.distrust_killed_build(&Silent).unwrap();
            work.prepare("a", &Silent).unwrap();
            work.began().unwrap();
        };
        begin();
        std::fs::create_dir_all(work.src()).unwrap();
        std::fs::write(&left, "").unwrap();
        work.ended().unwrap();
        begin();
        assert!(left.exists());
        // Nobody says that it ended.
        begin();
        assert!(!left.exists());
    }

    #[test]
    fn a_folder_with_another_stamp_is_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let work = Work::lock(folder.path(), &Silent).unwrap();
        work.prepare("a", &Silent).unwrap();
        std::fs::create_dir_all(work.build()).unwrap();
        std::fs::write(work.build().join("x"), "").unwrap();
        work.prepare("a", &Silent).unwrap();
        assert!(work.build().join("x").exists());
        work.prepare("b", &Silent).unwrap();
        assert!(!work.build().exists());
        std::fs::create_dir_all(work.src()).unwrap();
        std::fs::write(folder.path().join("stamp"), "perfquilt-work 0\nb\n").unwrap();
        work.prepare("b", &Silent).unwrap();
        assert!(!work.src().exists());
    }

    #[test]
    fn a_second_builder_waits() {
        let folder = tempfile::tempdir().unwrap();
        let first = Work::lock(folder.path(), &Silent).unwrap();
        let (sender, done) = std::sync::mpsc::channel();
        let dir = folder.path().to_owned();
        let second = std::thread::spawn(move || {
            let work = Work::lock(&dir, &Silent);
            sender.send(()).unwrap();
            work.unwrap();
        });
        assert!(done.recv_timeout(Duration::from_millis(300)).is_err());
        drop(first);
        done.recv_timeout(Duration::from_secs(30)).unwrap();
        second.join().unwrap();
    }
}
