//! What the caches keep that nobody has used for long, and its removal.
//!
//! Each entry has a file whose time of modification is when the entry was last used: whoever takes
//! something from a cache calls [`touch`].

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use crate::error::{Error, Result};

/// A cache: its folder, what its entries are, and where an entry's time of use is.
struct Kind {
    folder: &'static str,
    what: &'static str,
    mark: fn(&Path) -> PathBuf,
    /// Whether the mark is locked while the entry is in use.
    locked: bool,
}

const KINDS: [Kind; 4] = [
    Kind {
        folder: "builds",
        what: "built server",
        mark: |entry| entry.join("build.json"),
        locked: false,
    },
    Kind {
        folder: "profiles",
        what: "profile",
        mark: |entry| entry.join("profile.json"),
        locked: false,
    },
    Kind {
        folder: "work",
        what: "source and build tree",
        mark: |entry| entry.join("lock"),
        locked: true,
    },
    Kind {
        folder: "data",
        what: "prepared data",
        mark: |entry| beside(entry, ".lock"),
        locked: true,
    },
];

/// An entry of a cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// `built server`, `profile`, `source and build tree`, `prepared data`.
    pub what: &'static str,
    /// What it is in particular: of a built server the point and recipe, else the folder's name.
    pub name: String,
    /// Its folder.
    pub path: PathBuf,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Whole days since it was last used.
    pub unused_days: u64,
    #[serde(skip)]
    lock: Option<PathBuf>,
}

/// Notes that what `mark` stands for is used now. A cache that cannot be written to is used all the same.
pub fn touch(mark: &Path) {
    if let Ok(file) = File::options().append(true).open(mark) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// The entries below `cache` that were not used for `unused` before `now`, those unused longest first.
/// Downloads are not among them (without a network they cannot be had again), nor ccache's folder,
/// which ccache keeps small itself.
///
/// # Errors
/// A cache that cannot be read.
pub fn unused(cache: &Path, unused: Duration, now: SystemTime) -> Result<Vec<Entry>> {
    let mut found = Vec::new();
    for kind in &KINDS {
        let folder = cache.join(kind.folder);
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(Error::io("read", &folder, &error)),
        };
        for entry in entries {
            let entry = entry.map_err(|e| Error::io("read", &folder, &e))?;
            let path = entry.path();
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let mark = (kind.mark)(&path);
            // Without a mark it is half made or half removed; the folder's own time will do.
            let used = std::fs::metadata(&mark)
                .or_else(|_| entry.metadata())
                .and_then(|found| found.modified())
                .map_err(|e| Error::io("look at", &path, &e))?;
            let idle = now.duration_since(used).unwrap_or_default();
            if idle >= unused {
                found.push(Entry {
                    what: kind.what,
                    name: name(&path, &mark),
                    bytes: size(&path),
                    path,
                    unused_days: idle.as_secs() / 86_400,
                    lock: kind.locked.then_some(mark),
                });
            }
        }
    }
    found.sort_by(|a, b| (b.unused_days, &a.path).cmp(&(a.unused_days, &b.path)));
    Ok(found)
}

/// Removes `entry`, unless somebody uses it at this moment: then it stays, and the answer is `false`.
///
/// # Errors
/// What cannot be removed.
pub fn remove(entry: &Entry) -> Result<bool> {
    let _held = match &entry.lock {
        Some(lock) => match File::open(lock) {
            Ok(file) => match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
                _ => Some(file),
            },
            Err(_) => None,
        },
        None => None,
    };
    // Renamed first: an entry is there as a whole or not at all. A lock beside it stays, for others may
    // wait for it.
    let doomed = beside(&entry.path, ".removed");
    let path = match std::fs::rename(&entry.path, &doomed) {
        Ok(()) => &doomed,
        Err(_) => &entry.path,
    };
    std::fs::remove_dir_all(path).map_err(|e| Error::io("remove", path, &e))?;
    Ok(true)
}

/// Removes the file at `path`, if there is one.
///
/// # Errors
/// When it cannot be removed.
pub fn remove_file(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, &error))
        }
        _ => Ok(()),
    }
}

/// What a built server's description says it is, else the last part of `entry`.
fn name(entry: &Path, mark: &Path) -> String {
    #[derive(serde::Deserialize)]
    struct Described {
        label: String,
        recipe: String,
    }
    let described = std::fs::read(mark)
        .ok()
        .and_then(|text| serde_json::from_slice::<Described>(&text).ok());
    match described {
        Some(known) => format!("{}, recipe {}", known.label, known.recipe),
        None => {
            let last = entry.file_name().unwrap_or_default();
            last.to_string_lossy().into_owned()
        }
    }
}

/// `path` with `suffix` at the end of its name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Bytes of all files below `path`; what cannot be read does not count, links are not followed.
pub fn size(path: &Path) -> u64 {
    let meta = |path: &Path| std::fs::symlink_metadata(path).ok();
    let Some(found) = meta(path) else { return 0 };
    if !found.is_dir() {
        return found.len();
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| size(&entry.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn aged(path: &Path, days: u64) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, [0; 100]).unwrap();
        let then = SystemTime::now() - Duration::from_secs(days * DAY + 60);
        File::options()
            .append(true)
            .open(path)
            .unwrap()
            .set_modified(then)
            .unwrap();
    }

    fn cache() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = |inner: &str| folder.path().join(inner);
        aged(&path("builds/old/build.json"), 40);
        aged(&path("builds/new/build.json"), 3);
        aged(&path("work/tree/lock"), 50);
        std::fs::create_dir_all(path("data/set-10.11.18")).unwrap();
        std::fs::write(path("data/set-10.11.18/ibdata1"), [0; 900]).unwrap();
        aged(&path("data/set-10.11.18.lock"), 35);
        aged(&path("downloads/x/a.tar.gz"), 90);
        folder
    }

    fn unused_in(folder: &Path) -> Vec<(String, u64, u64)> {
        let month = Duration::from_secs(30 * DAY);
        let found = unused(folder, month, SystemTime::now()).unwrap();
        found
            .iter()
            .map(|e| {
                let name = e.path.file_name().unwrap().to_string_lossy().into_owned();
                (name, e.unused_days, e.bytes)
            })
            .collect()
    }

    #[test]
    fn what_was_not_used_for_long_is_found_and_removed() {
        let folder = cache();
        let expected = [
            ("tree".to_owned(), 50, 100),
            ("old".to_owned(), 40, 100),
            ("set-10.11.18".to_owned(), 35, 900),
        ];
        assert_eq!(unused_in(folder.path()), expected);
        let all = unused(folder.path(), Duration::ZERO, SystemTime::now()).unwrap();
        assert_eq!(all.len(), 4);
        for entry in &all {
            assert!(remove(entry).unwrap());
            assert!(!entry.path.exists());
        }
        assert!(folder.path().join("downloads/x/a.tar.gz").exists());
        let none = unused(Path::new("/no/such"), Duration::ZERO, SystemTime::now());
        assert!(none.unwrap().is_empty());
    }

    #[test]
    fn what_is_used_now_stays() {
        let folder = cache();
        touch(&folder.path().join("builds/old/build.json"));
        assert!(
            unused_in(folder.path())
                .iter()
                .all(|(name, ..)| name != "old")
        );
        let held = File::open(folder.path().join("work/tree/lock")).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let all = unused(folder.path(), Duration::ZERO, SystemTime::now()).unwrap();
        let tree = all.iter().find(|e| e.path.ends_with("tree")).unwrap();
        assert!(!remove(tree).unwrap() && tree.path.exists());
    }
}
