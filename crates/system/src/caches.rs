//! What the caches keep that nobody has used for long, and its removal.
//!
//! Each entry has a file whose time of modification is when the entry was last used: whoever takes
//! something from a cache calls `hold`, which also keeps it there.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::locks::{self, Lock};
use perfquilt_model::error::{Error, Result};

/// Seconds of a day.
const DAY: u64 = 86_400;

/// A cache: its folder, what its entries are, and where an entry's time of use is.
struct Kind {
    folder: &'static str,
    what: &'static str,
    /// Locked while the entry is in use.
    mark: fn(&Path) -> PathBuf,
}

const KINDS: [Kind; 4] = [
    Kind {
        folder: "builds",
        what: "built server",
        mark: |entry| entry.join("build.json"),
    },
    Kind {
        folder: "profiles",
        what: "profile",
        mark: |entry| entry.join("profile.json"),
    },
    Kind {
        folder: "work",
        what: "source and build tree",
        mark: |entry| entry.join("lock"),
    },
    Kind {
        folder: "data",
        what: "prepared data",
        mark: |entry| beside(entry, ".lock"),
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
    #[serde(serialize_with = "crate::files::as_text")]
    pub path: PathBuf,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Whole days since it was last used.
    pub unused_days: u64,
    #[serde(skip)]
    mark: PathBuf,
}

/// The most marks that are locked at a time: each is an open file, of which a process often may have 1024.
const MOST_HELD: usize = 512;

/// The marks of what this process uses, locked together with others that use it.
static HELD: Mutex<BTreeMap<PathBuf, Lock>> = Mutex::new(BTreeMap::new());

/// Notes that what `mark` stands for is used now. A cache that cannot be written to is used all the same.
pub fn touch(mark: &Path) {
    if let Ok(file) = File::options().append(true).open(mark) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// As [`touch`], and keeps the entry from being removed as long as this process lives, unless it holds very
/// many: then that it was used just now has to do. `false` when it is being made or removed at this moment;
/// what is there afterwards stays.
pub fn hold(mark: &Path) -> bool {
    touch(mark);
    match locks::share_now(mark) {
        Ok(Some(file)) => {
            if let Ok(mut held) = HELD.lock()
                && (held.len() < MOST_HELD || held.contains_key(mark))
            {
                held.insert(mark.to_owned(), file);
            }
            true
        }
        Ok(None) => false,
        // Without a mark, or without locks, it is used all the same.
        Err(_) => true,
    }
}

/// Ends what [`hold`] began, where it did.
pub fn let_go(mark: &Path) {
    if let Ok(mut held) = HELD.lock() {
        held.remove(mark);
    }
}

/// Whether a folder of a cache is not finished, or about to go.
pub fn is_work(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with('.') || name.ends_with(".tmp") || name.ends_with(".removed")
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
            let at_work = is_work(&entry.file_name()) && idle < Duration::from_secs(DAY);
            if idle >= unused && !at_work {
                found.push(Entry {
                    what: kind.what,
                    name: name(&path, &mark),
                    bytes: size(&path),
                    path,
                    unused_days: idle.as_secs() / DAY,
                    mark,
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
    // What has no mark is half made, and old; where there are no locks, nothing can be said.
    let _held = match entry.mark.is_file().then(|| locks::try_now(&entry.mark)) {
        Some(Ok(None)) => return Ok(false),
        Some(Ok(held)) => held,
        Some(Err(_)) | None => None,
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
        held.lock().unwrap();
        let all = unused(folder.path(), Duration::ZERO, SystemTime::now()).unwrap();
        let tree = all.iter().find(|e| e.path.ends_with("tree")).unwrap();
        assert!(!remove(tree).unwrap() && tree.path.exists());
    }

    #[test]
    fn what_was_taken_stays_until_it_is_let_go() {
        let folder = cache();
        let mark = folder.path().join("builds/old/build.json");
        assert!(hold(&mark));
        let all = unused(folder.path(), Duration::ZERO, SystemTime::now()).unwrap();
        let old = all.iter().find(|e| e.path.ends_with("old")).unwrap();
        assert!(!remove(old).unwrap() && mark.exists());
        let_go(&mark);
        assert!(remove(old).unwrap() && !mark.exists());
    }

    #[test]
    fn what_is_being_made_stays_for_a_day() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["builds/.partial-x", "profiles/.raw-x", "data/set.tmp"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let found = |later: u64| {
            let now = SystemTime::now() + Duration::from_secs(later);
            unused(folder.path(), Duration::ZERO, now).unwrap().len()
        };
        assert_eq!(found(60), 0);
        assert_eq!(found(DAY + 60), 3);
    }
}
