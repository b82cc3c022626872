//! Manages a recipe's working folder: source tree, build tree, lock and stamp.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use super::files::walk;
use super::opened::{Opened, OpenedPaths};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_system::files::if_there;
use perfquilt_system::locks;
use perfquilt_system::process::Command;

/// Format of a working folder; a folder of another format is emptied.
const FORMAT: &str = "perfquilt-work 3";

/// The file with what the builds in the folder opened since it was empty.
const OPENED: &str = "opened";
/// The file that exists if [`Work::preprocesses`].
const PREPROCESS: &str = "preprocess";

/// A locked working folder.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) dir: PathBuf,
    /// The lock file, which child processes inherit so that the lock lasts as long as they run.
    pub(super) lock: Arc<File>,
}

impl Work {
    /// Opens the folder `dir`, waiting until no other process builds in it.
    pub(super) fn lock(dir: &Path) -> Result<Work> {
        let path = dir.join("lock");
        let mut file = locks::wait_file(&path, || {
            // The process id is only informative and may be missing.
            let holder = match std::fs::read_to_string(&path).unwrap_or_default().trim() {
                "" => String::new(),
                pid => format!(" (process {pid})"),
            };
            progress::note(&format!(
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

    /// Returns `command` with the environment `env` for a program that builds or tests here: it inherits the lock, and where
    /// children are restricted it writes only to this folder and to temporary files.
    pub(super) fn command(&self, command: Command, env: &[(String, String)]) -> Command {
        command
            .holding(&self.lock)
            .writing_to(vec![std::env::temp_dir(), self.dir.clone()])
            .envs(env.iter().cloned())
    }

    pub(super) fn src(&self) -> PathBuf {
        self.dir.join("src")
    }

    pub(super) fn build(&self) -> PathBuf {
        self.dir.join("build")
    }

    /// Empties the folder if it has another format or was used with other inputs: `inputs` lists the tools and
    /// everything else the folder as a whole depends on.
    pub(super) fn prepare(&self, inputs: &str) -> Result<()> {
        let stamp = self.dir.join("stamp");
        let wanted = format!("{FORMAT}\n{inputs}\n");
        if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok(());
        }
        // Remove the stamp first: an interrupted removal then starts over next time.
        remove(&stamp)?;
        if self.src().exists() {
            progress::note(&format!(
                "build tree {} is stale (other build files, toolchain or version); rebuilding from scratch",
                self.dir.display()
            ));
        }
        self.empty()?;
        write_atomically(&stamp, &wanted)
    }

    /// Removes everything but the lock and the stamp.
    pub(super) fn empty(&self) -> Result<()> {
        let entries = std::fs::read_dir(&self.dir).map_err(|e| Error::io("read", &self.dir, &e))?;
        for entry in entries {
            let path = entry.map_err(|e| Error::io("read", &self.dir, &e))?.path();
            if !path.ends_with("lock") && !path.ends_with("stamp") {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Returns what the builds in this folder opened; `None` if nobody observed one of them to its end.
    pub(super) fn opened(&self) -> Opened {
        if !self.build().exists() {
            return Some(OpenedPaths::default());
        }
        let text = std::fs::read(self.dir.join(OPENED)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Stores what [`Work::opened`] returns.
    pub(super) fn set_opened(&self, opened: &Opened) -> Result<()> {
        let text = serde_json::to_string(opened).map_err(Error::json)?;
        write_atomically(&self.dir.join(OPENED), &text)
    }

    /// Whether ccache must preprocess every unit: its shorter way follows the headers that a unit had, and does not notice
    /// a new one in the place of another.
    pub(super) fn preprocesses(&self) -> bool {
        self.dir.join(PREPROCESS).exists()
    }

    /// Makes ccache preprocess every unit until the folder is emptied.
    pub(super) fn preprocess(&self) -> Result<()> {
        write_atomically(&self.dir.join(PREPROCESS), "")
    }

    /// Returns a product of the build tree that is newer than the present: the clock was ahead when it was made, and ninja
    /// would take it for newer than any file that is written now.
    pub(super) fn future_product(&self) -> Option<PathBuf> {
        let now = SystemTime::now();
        let build = self.build();
        let products = walk(&build).into_iter().filter(|(_, kind)| kind.is_file());
        products.map(|(path, _)| build.join(path)).find(|path| {
            let meta = std::fs::symlink_metadata(path);
            meta.and_then(|meta| meta.modified())
                .is_ok_and(|time| time > now)
        })
    }
}

/// Removes a file or folder if it exists.
pub(super) fn remove(path: &Path) -> Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    if_there("remove", path, removed).map(drop)
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

    #[test]
    fn products_from_the_future_and_gaps_of_the_observation_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let work = Work::lock(folder.path()).unwrap();
        let nothing = Some(OpenedPaths::default());
        assert_eq!(work.opened(), nothing, "nothing was built");
        std::fs::create_dir_all(work.build().join("deps")).unwrap();
        assert_eq!(work.opened(), None, "nobody says what this build opened");
        let opened = Some(OpenedPaths {
            configuring: ["deps/".to_owned()].into(),
            building: ["a b.c".to_owned(), "deps/l.c".to_owned()].into(),
        });
        work.set_opened(&opened).unwrap();
        assert_eq!(work.opened(), opened);
        work.set_opened(&None).unwrap();
        assert_eq!(work.opened(), None);

        let product = work.build().join("deps/l.o");
        let file = File::create(&product).unwrap();
        assert_eq!(work.future_product(), None);
        let ahead = SystemTime::now() + Duration::from_secs(3600);
        file.set_modified(ahead).unwrap();
        assert_eq!(work.future_product(), Some(product));
        work.empty().unwrap();
        assert!(!work.build().exists() && work.opened().is_some());
    }

    #[test]
    fn a_folder_with_another_stamp_is_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let work = Work::lock(folder.path()).unwrap();
        work.prepare("a").unwrap();
        std::fs::create_dir_all(work.build()).unwrap();
        std::fs::write(work.build().join("x"), "").unwrap();
        work.prepare("a").unwrap();
        assert!(work.build().join("x").exists());
        work.prepare("b").unwrap();
        assert!(!work.build().exists());
        std::fs::create_dir_all(work.src()).unwrap();
        std::fs::write(folder.path().join("stamp"), "perfquilt-work 0\nb\n").unwrap();
        work.prepare("b").unwrap();
        assert!(!work.src().exists());
    }

    #[test]
    fn a_second_builder_waits() {
        let folder = tempfile::tempdir().unwrap();
        let first = Work::lock(folder.path()).unwrap();
        let (sender, done) = std::sync::mpsc::channel();
        let dir = folder.path().to_owned();
        let second = std::thread::spawn(move || {
            let work = Work::lock(&dir);
            sender.send(()).unwrap();
            work.unwrap();
        });
        assert!(done.recv_timeout(Duration::from_millis(300)).is_err());
        drop(first);
        done.recv_timeout(Duration::from_secs(30)).unwrap();
        second.join().unwrap();
    }
}
