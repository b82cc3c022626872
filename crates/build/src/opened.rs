//! Observes which files of a source tree a build opens: what no program opens is in no server.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::inotify;
use rustix::io::Errno;

/// Interval at which a quiet observer looks whether the build has ended.
const POLL: Duration = Duration::from_millis(50);
/// Bytes of the kernel's messages read at once.
const BUFFER: usize = 1 << 16;

/// The files that programs opened, by their paths in the source tree; `None` if nobody could observe them.
pub(super) type Opened = Option<BTreeSet<String>>;

/// An observer of a source tree. Dropping it ends the observation.
pub(super) struct Observer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Opened>>,
}

impl Observer {
    /// Observes the files below `src` from now on.
    pub(super) fn begin(src: &Path) -> Observer {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = Tree::watch(src).map(|tree| {
            let stop = stop.clone();
            std::thread::spawn(move || tree.read(&stop))
        });
        Observer { stop, thread }
    }

    /// Returns the files that were opened; symbolic links count as opened, since reading a link opens nothing.
    pub(super) fn end(mut self) -> Opened {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()?
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The watched folders of a source tree.
struct Tree {
    queue: OwnedFd,
    folders: HashMap<i32, PathBuf>,
    /// Files that existed when the observation began: products of the build are no sources.
    sources: HashSet<PathBuf>,
    links: BTreeSet<String>,
}

impl Tree {
    /// Watches all folders below `src`; `None` where the kernel does not allow it.
    fn watch(src: &Path) -> Option<Tree> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let mut tree = Tree {
            queue: inotify::init(flags).ok()?,
            folders: HashMap::new(),
            sources: HashSet::new(),
            links: BTreeSet::new(),
        };
        let wanted = inotify::WatchFlags::OPEN | inotify::WatchFlags::ONLYDIR;
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let path = src.join(&folder);
            let watch = inotify::add_watch(&tree.queue, &path, wanted).ok()?;
            for entry in std::fs::read_dir(&path).ok()? {
                let entry = entry.ok()?;
                let inside = folder.join(entry.file_name());
                match entry.file_type().ok()? {
                    kind if kind.is_dir() => folders.push(inside),
                    kind if kind.is_symlink() => {
                        tree.links.insert(inside.to_string_lossy().into_owned());
                    }
                    _ => {
                        tree.sources.insert(inside);
                    }
                }
            }
            tree.folders.insert(watch, folder);
        }
        Some(tree)
    }

    /// Reads the kernel's messages until `stop` is set and none is left.
    fn read(self, stop: &AtomicBool) -> Opened {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
        let mut messages = inotify::Reader::new(&self.queue, &mut buffer);
        let mut seen: HashSet<(i32, Vec<u8>)> = HashSet::new();
        let mut last = false;
        loop {
            match messages.next() {
                Ok(message) => {
                    if message
                        .events()
                        .contains(inotify::ReadFlags::QUEUE_OVERFLOW)
                    {
                        return None;
                    }
                    if let Some(name) = message.file_name() {
                        seen.insert((message.wd(), name.to_bytes().to_vec()));
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if last => break,
                // Messages of the build's last programs are in the queue when the build ends.
                Err(Errno::AGAIN) => {
                    last = stop.load(Ordering::Relaxed);
                    if !last {
                        std::thread::sleep(POLL);
                    }
                }
                Err(_) => return None,
            }
        }
        let opened: BTreeSet<String> = seen
            .iter()
            .filter_map(|(watch, name)| {
                let path = self.folders.get(watch)?.join(OsStr::from_bytes(name));
                let path = self.sources.get(&path)?;
                Some(path.to_string_lossy().into_owned())
            })
            .collect();
        // A build reads something: a kernel that reports nothing does not observe.
        (!opened.is_empty()).then(|| opened.into_iter().chain(self.links).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opened_files_are_seen_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let src = folder.path();
        std::fs::create_dir_all(src.join("deps/lua")).unwrap();
        for name in ["a.c", "b.c", "deps/lua/l.c"] {
            std::fs::write(src.join(name), "int x;\n").unwrap();
        }
        std::os::unix::fs::symlink("b.c", src.join("link.c")).unwrap();
        let observer = Observer::begin(src);
        let script = "test -e b.c && cat deps/lua/l.c a.c > made.o && cat made.o && ls deps";
        let command = perfquilt_system::process::Command::new("sh").args(["-c", script]);
        assert!(command.directory(src).run().unwrap().success());
        let opened: Vec<String> = observer.end().unwrap().into_iter().collect();
        assert_eq!(opened, ["a.c", "deps/lua/l.c", "link.c"]);
    }

    #[test]
    fn an_observation_without_any_message_is_none() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Observer::begin(folder.path()).end(), None);
        assert_eq!(Observer::begin(&folder.path().join("none")).end(), None);
    }
}
