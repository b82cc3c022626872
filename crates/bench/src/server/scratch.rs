//! Private folders for running servers: on a RAM disk if everything fits, else under the cache.
//!
//! This process locks its folder for as long as it lives. A killed process leaves its folder behind unlocked, and
//! the next process that needs a folder removes it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use perfquilt_config::Disk;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::files::make_private;
use perfquilt_system::host::KernelFields;
use perfquilt_system::locks::{self, Lock};
use perfquilt_system::process::end_processes_of;

/// Linux's world-writable RAM disk.
const RAM_DISK: &str = "/dev/shm";
/// Magic number of tmpfs in `statfs(2)`.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
/// Expected memory of one server in addition to its data (buffers, code, threads), in bytes.
const SERVER_MEMORY: u64 = 320 << 20;
/// Memory and disk space left unused, in bytes.
const RESERVE: u64 = 512 << 20;
/// Maximum length of a Unix socket's path on Linux, without the final zero.
const SOCKET_PATH_MAX: usize = 107;

/// The space of concurrent servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerSpace {
    /// The number of servers.
    pub servers: usize,
    /// The bytes of the data and programs of each.
    pub bytes: u64,
}

impl ServerSpace {
    /// Returns the space of `sets` times as many servers.
    pub fn times(self, sets: usize) -> Self {
        ServerSpace {
            servers: self.servers.saturating_mul(sets),
            ..self
        }
    }

    fn count(self) -> u64 {
        u64::try_from(self.servers).unwrap_or(u64::MAX)
    }

    /// Returns the bytes of their files, which may grow by half.
    fn files(self) -> u64 {
        let each = self.bytes.saturating_add(self.bytes / 2);
        each.saturating_mul(self.count())
    }

    /// Returns the bytes of memory that they need with their files on the RAM disk.
    pub fn memory(self) -> u64 {
        let own = self.count().saturating_mul(SERVER_MEMORY);
        self.files().saturating_add(own)
    }

    /// Returns how many sets of so many servers fit into memory with their files on the RAM disk; 0 where there is
    /// no RAM disk.
    pub fn sets_in_memory(self) -> usize {
        let ram = Path::new(RAM_DISK);
        if !is_tmpfs(ram) {
            return 0;
        }
        self.sets_within(free_bytes(ram), memory_available())
    }

    fn sets_within(self, free_on_disk: u64, memory: u64) -> usize {
        let by_disk = free_on_disk / self.files().max(1);
        let by_memory = memory.saturating_sub(RESERVE) / self.memory().max(1);
        usize::try_from(by_disk.min(by_memory)).unwrap_or(usize::MAX)
    }

    /// Files on the RAM disk and the servers' own memory come from the same pool.
    fn fits_in_memory(self, free_on_disk: u64, memory: u64) -> bool {
        self.files() <= free_on_disk && self.memory().saturating_add(RESERVE) <= memory
    }

    /// Returns the bytes of memory that servers may use.
    pub fn available_memory() -> u64 {
        memory_available().saturating_sub(RESERVE)
    }
}

/// A private folder for the servers of one experiment, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    dir: TempDir,
    // Keeps the folder locked.
    _lock: Lock,
    started: AtomicU32,
}

impl Scratch {
    /// Creates a folder with room for concurrent servers.
    pub fn open(ws: &Workspace, space: ServerSpace) -> Result<Self> {
        let (servers, need) = (space.servers, space.files());
        let ram = Path::new(RAM_DISK);
        let memory = memory_available();
        let durable = ws.config.server.disk == Disk::Durable;
        if !durable && is_tmpfs(ram) && space.fits_in_memory(free_bytes(ram), memory) {
            // Another user may own a folder of this name there; the cache is the fallback.
            let parent = ram.join(format!("perfquilt-{}", rustix::process::getuid().as_raw()));
            if let Ok(scratch) = Self::within(&parent) {
                return Ok(scratch);
            }
        }
        let parent = ws.cache().join("run");
        std::fs::create_dir_all(ws.cache()).map_err(|e| Error::io("create", ws.cache(), &e))?;
        if durable && is_tmpfs(ws.cache()) {
            return Err(Error::server_settings(format!(
                "`disk = \"durable\"` needs a disk, and the caches in {} are in memory",
                ws.cache().display()
            ))
            .hint("set XDG_CACHE_HOME to a folder on a disk"));
        }
        let free = free_bytes(ws.cache());
        if need.saturating_add(RESERVE) > free {
            let mib = |bytes: u64| bytes >> 20;
            let in_memory = if durable {
                String::new()
            } else {
                let room = free_bytes(ram).min(memory.saturating_sub(RESERVE));
                format!("{RAM_DISK} has {} MiB and ", mib(room))
            };
            return Err(Error::server_space(format!(
                "the files of {servers} servers need {} MiB, but {in_memory}{} has {} MiB to spare",
                mib(need),
                ws.cache().display(),
                mib(free.saturating_sub(RESERVE)),
            ))
            .hint("free some space, or measure fewer points at once"));
        }
        Self::within(&parent)
    }

    /// Creates a folder inside `parent`, which is accessible to this user only, after removing folders of dead
    /// processes.
    pub fn within(parent: &Path) -> Result<Self> {
        make_private(parent)?;
        // Only one process at a time removes dead folders or creates its own; otherwise a new folder could be
        // mistaken for a dead one before it is locked.
        let _gate = locks::wait(&parent.join(".lock"), || {})?;
        remove_dead(parent);
        let dir = tempfile::Builder::new()
            .prefix("")
            .rand_bytes(6)
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir_in(parent)
            .map_err(|e| Error::io("create a folder in", parent, &e))?;
        let held = locks::wait(&dir.path().join(".lock"), || {})?;
        Ok(Scratch {
            dir,
            _lock: held,
            started: AtomicU32::new(0),
        })
    }

    /// Returns the folder.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Creates an empty folder for one start.
    pub fn fresh(&self) -> Result<PathBuf> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        // All names have the same length, because the length of a path can shift a server's heap.
        let dir = self.path().join(format!("{number:08}"));
        std::fs::create_dir(&dir).map_err(|e| Error::io("create", &dir, &e))?;
        Ok(dir)
    }
}

/// Returns a folder for one server's socket: `dir` itself if its path is short enough, else a private folder with a
/// short path, which the caller keeps as long as the socket.
pub(super) fn socket_folder(dir: &Path) -> Result<(PathBuf, Option<Scratch>)> {
    // Leave room for the longest name, `/s.sock`, and for clients that append a suffix.
    if dir.as_os_str().len() + 16 < SOCKET_PATH_MAX {
        return Ok((dir.to_path_buf(), None));
    }
    let uid = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute() && path.is_dir() && path.as_os_str().len() < 60)
        .map(|path| path.join("perfquilt"));
    let parents = runtime
        .into_iter()
        .chain([PathBuf::from(format!("/tmp/perfquilt-{uid}"))]);
    let mut last = None;
    for parent in parents {
        match Scratch::within(&parent) {
            Ok(scratch) => return Ok((scratch.path().to_path_buf(), Some(scratch))),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| Error::internal("no folder for a socket")))
}

fn remove_dead(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        // The kernel releases a lock when its process ends in any way.
        if let Ok(Some(_dead)) = locks::try_now(&path.join(".lock")) {
            // Servers that had left the killed process still use the folder.
            end_processes_of(&path);
            // The next process retries a failed removal.
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

fn is_tmpfs(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|fs| fs.f_type == TMPFS_MAGIC)
}

/// Returns the bytes that an ordinary user may still write below `path`; 0 if it does not exist.
pub(crate) fn free_bytes(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize))
}

/// Memory that the kernel reports as usable without swapping; 0 when it reports none.
pub(crate) fn memory_available() -> u64 {
    let available = KernelFields::read("/proc/meminfo").number("MemAvailable");
    available.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    const GIB: u64 = 1 << 30;

    #[test]
    fn memory_counts_data_servers_and_reserve() {
        let space = |need: u64, servers: usize| ServerSpace {
            servers,
            bytes: need / 3 * 2 / servers as u64,
        };
        let six = space(GIB, 6);
        assert!(six.fits_in_memory(12 * GIB, 20 * GIB));
        assert!(!six.fits_in_memory(GIB / 2, 20 * GIB), "disk too small");
        assert!(!six.fits_in_memory(12 * GIB, 3 * GIB), "memory too small");
        let endless = ServerSpace {
            servers: 1,
            bytes: u64::MAX,
        };
        assert!(!endless.fits_in_memory(12 * GIB, 20 * GIB), "no overflow");
        // Six servers take 1 GiB of files and 1.875 GiB of their own memory.
        assert_eq!(six.sets_within(12 * GIB, 20 * GIB), 6);
        assert_eq!(six.sets_within(3 * GIB, 20 * GIB), 3);
        assert_eq!(six.sets_within(12 * GIB, 3 * GIB), 0);
        for sets in 1..8 {
            let fits = six.times(sets).fits_in_memory(12 * GIB, 20 * GIB);
            assert_eq!(fits, sets <= 6, "{sets}");
        }
    }

    #[test]
    fn folders_are_private_fresh_and_removed() {
        let base = tempfile::tempdir().unwrap();
        let parent = base.path().join("p");
        let scratch = Scratch::within(&parent).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&parent), mode(scratch.path())), (0o700, 0o700));
        let (a, b) = (scratch.fresh().unwrap(), scratch.fresh().unwrap());
        assert!(a != b && a.is_dir() && b.is_dir());
        let path = scratch.path().to_path_buf();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn folders_of_dead_processes_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let living = Scratch::within(base.path()).unwrap();
        // A killed process leaves a folder with an unheld lock.
        let dead = base.path().join("dead00");
        std::fs::create_dir_all(dead.join("0/data")).unwrap();
        std::fs::write(dead.join(".lock"), "").unwrap();
        let other = Scratch::within(base.path()).unwrap();
        assert!(!dead.exists());
        assert!(living.path().exists() && other.path().exists());
    }

    #[test]
    fn an_open_folder_is_made_private() {
        let base = tempfile::tempdir().unwrap();
        std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let _scratch = Scratch::within(base.path()).unwrap();
        assert_eq!(std::fs::metadata(base.path()).unwrap().mode() & 0o077, 0);
    }

    #[test]
    fn a_link_in_place_of_the_folder_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        assert!(Scratch::within(&link).is_err());
    }

    #[test]
    fn sockets_get_short_paths() {
        let base = tempfile::tempdir().unwrap();
        let (near, kept) = socket_folder(base.path()).unwrap();
        assert_eq!((near.as_path(), kept.is_none()), (base.path(), true));
        let long = base.path().join("x".repeat(120));
        let (far, kept) = socket_folder(&long).unwrap();
        assert!(far.as_os_str().len() < 90 && kept.is_some());
        drop(kept);
        assert!(!far.exists());
    }
}
