//! Observes which files of a source tree a build opens: what no program opens is in no server.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::files::walk;
use rustix::fs::inotify::{self, ReadFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Interval at which a quiet observer looks whether the build has ended.
const POLL: Duration = Duration::from_millis(10);
/// Bytes of the kernel's messages read at once.
const BUFFER: usize = 1 << 16;

/// The paths in the source tree that programs opened; `None` if nobody could observe them.
pub(super) type Opened = Option<OpenedPaths>;

/// Paths of opened files, and of listed folders with a slash at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenedPaths {
    /// Opened while CMake configured the build.
    pub configuring: BTreeSet<String>,
    /// Opened by ninja's or the recipe's commands.
    pub building: BTreeSet<String>,
}

impl OpenedPaths {
    /// Returns whether the path was opened at all.
    pub(super) fn has(&self, path: &str) -> bool {
        self.building.contains(path) || self.configuring.contains(path)
    }

    /// Returns all files and folders.
    pub(super) fn all(&self) -> BTreeSet<String> {
        &self.configuring | &self.building
    }
}

/// Returns what was opened in both phases of a build.
pub(super) fn opened(
    configuring: Option<BTreeSet<String>>,
    building: Option<BTreeSet<String>>,
) -> Opened {
    Some(OpenedPaths {
        configuring: configuring?,
        building: building?,
    })
}

/// Returns what was opened in two builds.
pub(super) fn both(one: Opened, other: Opened) -> Opened {
    let (mut both, other) = (one?, other?);
    both.configuring.extend(other.configuring);
    both.building.extend(other.building);
    Some(both)
}

/// Whether a path is that of a unit to compile.
pub(super) fn is_source(path: &str) -> bool {
    let end = Path::new(path).extension().and_then(OsStr::to_str);
    end.is_some_and(|end| ["c", "cc", "cpp", "cxx", "C", "S", "s"].contains(&end))
}

/// Runs `act` and returns which paths below `src` were opened meanwhile.
pub(super) fn observed<T>(src: &Path, act: impl FnOnce() -> T) -> (T, Option<BTreeSet<String>>) {
    let stop = Arc::new(AtomicBool::new(false));
    let thread: Option<JoinHandle<_>> = Tree::watch(src).map(|tree| {
        let stop = stop.clone();
        std::thread::spawn(move || tree.read(&stop))
    });
    let done = act();
    stop.store(true, Ordering::Relaxed);
    (done, thread.and_then(|thread| thread.join().ok()?))
}

/// The watched folders of a source tree.
struct Tree {
    src: PathBuf,
    queue: OwnedFd,
    folders: HashMap<i32, PathBuf>,
    /// Files that existed when the observation began: products of the build are no sources.
    sources: HashSet<PathBuf>,
}

impl Tree {
    /// Watches all folders below `src`; `None` where the kernel does not allow it.
    fn watch(src: &Path) -> Option<Tree> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let mut tree = Tree {
            src: src.to_owned(),
            queue: inotify::init(flags).ok()?,
            folders: HashMap::new(),
            sources: HashSet::new(),
        };
        let wanted = inotify::WatchFlags::OPEN | inotify::WatchFlags::ONLYDIR;
        let mut watch = |folder: PathBuf| {
            let id = inotify::add_watch(&tree.queue, src.join(&folder), wanted).ok()?;
            tree.folders.insert(id, folder);
            Some(())
        };
        watch(PathBuf::new())?;
        for (path, kind) in walk(src) {
            if kind.is_dir() {
                watch(path)?;
            } else {
                tree.sources.insert(path);
            }
        }
        // A kernel that does not report this does not observe the file system at all.
        File::open(src).ok()?;
        let mut seen = HashSet::new();
        tree.drain(&mut seen).ok()?;
        (!seen.is_empty()).then_some(tree)
    }

    /// Reads the waiting messages: folder, and name of the file or nothing.
    fn drain(&self, seen: &mut HashSet<(i32, Vec<u8>)>) -> Result<(), Errno> {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
        let mut messages = inotify::Reader::new(&self.queue, &mut buffer);
        loop {
            match messages.next() {
                Ok(message) if message.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    return Err(Errno::OVERFLOW);
                }
                Ok(message) => {
                    let name = message.file_name();
                    let name = name.map_or(Vec::new(), |name| name.to_bytes().to_vec());
                    seen.insert((message.wd(), name));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the kernel's messages until `stop` is set and none is left.
    fn read(self, stop: &AtomicBool) -> Option<BTreeSet<String>> {
        let mut seen = HashSet::new();
        loop {
            // Messages of the build's last programs are in the queue when the build ends.
            let is_last = stop.load(Ordering::Relaxed);
            self.drain(&mut seen).ok()?;
            if is_last {
                break;
            }
            std::thread::sleep(POLL);
        }
        let mut opened: HashSet<PathBuf> = HashSet::new();
        let mut paths = BTreeSet::new();
        for (watch, name) in seen {
            let Some(folder) = self.folders.get(&watch) else {
                continue;
            };
            if name.is_empty() {
                paths.insert(format!("{}/", folder.display()));
            } else {
                opened.insert(folder.join(OsStr::from_bytes(&name)));
            }
        }
        let used = self.sources.iter();
        let used = used.filter(|path| opened.contains(*path) || is_hidden(&self.src.join(path)));
        paths.extend(used.map(|path| path.to_string_lossy().into_owned()));
        Some(paths)
    }
}

/// Whether programs can read the file without opening it by its name: as a symbolic link, by another name of the same file,
/// or after a rename.
pub(super) fn is_hidden(file: &Path) -> bool {
    std::fs::symlink_metadata(file).map_or(true, |meta| meta.is_symlink() || meta.nlink() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("deps/lua")).unwrap();
        for name in ["a.c", "b.c", "linked.c", "moved.c", "deps/lua/l.c"] {
            std::fs::write(folder.path().join(name), "int x;\n").unwrap();
        }
        std::os::unix::fs::symlink("b.c", folder.path().join("link.c")).unwrap();
        folder
    }

    /// Returns what a shell script opens.
    fn opened_by(script: &str) -> Vec<String> {
        let folder = folder();
        let command = perfquilt_system::process::Command::new("sh").args(["-c", script]);
        let command = command.directory(folder.path());
        let (output, opened) = observed(folder.path(), || command.run().unwrap());
        assert!(output.success(), "{output:?}");
        opened.unwrap().into_iter().collect()
    }

    #[test]
    fn opened_files_are_seen_and_others_are_not() {
        let script = "test -e b.c && cat deps/lua/l.c a.c > made.o && cat made.o";
        assert_eq!(opened_by(script), ["a.c", "deps/lua/l.c", "link.c"]);
        assert_eq!(opened_by("ls deps"), ["deps/", "link.c"]);
        let others = "ln linked.c x/l.c && mv moved.c x/m.c && cat x/*.c";
        let others = opened_by(&format!("mkdir x && {others}"));
        assert_eq!(others, ["link.c", "linked.c", "moved.c"]);
    }

    #[test]
    fn a_folder_that_cannot_be_watched_is_not_observed() {
        let (_, opened) = observed(&folder().path().join("none"), || ());
        assert_eq!(opened, None);
        let (_, opened) = observed(folder().path(), || ());
        assert!(opened.unwrap().contains("link.c"));
    }
}
