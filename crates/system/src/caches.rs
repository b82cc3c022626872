//! Finds and removes cache entries that have not been used for a long time.
//!
//! Each entry has a marker file whose modification time is the time of last use: users of an entry call
//! [`pin`], which also protects it from removal.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::files::if_there;
use crate::locks::{self, Lock};
use crate::remove::remove_tree;
use perfquilt_model::error::{Error, Result};

/// The number of seconds in a day.
const DAY: u64 = 86_400;

/// The folder of a cache with what sandboxed runs leave: state and caches that nobody else may trust.
pub const SANDBOXES: &str = "sandboxes";

/// The folder of a cache, what an entry is, and what follows the entry's path in that of its marker.
const CACHES: [(&str, &str, &str); 6] = [
    ("builds", "built server", "/build.json"),
    ("profiles", "profile", "/profile.json"),
    ("work", "source and build tree", "/lock"),
    ("tests", "results of tests", "/tests.json"),
    ("data", "prepared data", ".lock"),
    (SANDBOXES, "sandbox", ".lock"),
];

/// A cache entry.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CacheEntry {
    /// `built server`, `profile`, `source and build tree`, `results of tests`, `prepared data`,
    /// `sandbox`.
    pub what: &'static str,
    /// The label: point and recipe of a built server, else the folder's name.
    pub name: String,
    /// The entry's folder.
    #[serde(serialize_with = "crate::files::as_text")]
    pub path: PathBuf,
    /// The total size of its files, in bytes.
    pub bytes: u64,
    /// Whole days since it was last used.
    pub unused_days: u64,
    #[serde(skip)]
    marker: PathBuf,
}

/// The maximum number of markers locked at a time: each is an open file, and a process is often limited to
/// 1024.
const MAX_PINNED: usize = 512;

/// The markers of entries in use by this process, with shared locks.
static PINNED: Mutex<BTreeMap<PathBuf, Lock>> = Mutex::new(BTreeMap::new());

/// Records that the entry of `marker` is used now. Ignores errors: a read-only cache is usable too.
pub fn touch(marker: &Path) {
    if let Ok(file) = File::options().append(true).open(marker) {
        let _ = file.set_modified(SystemTime::now());
    }
}

/// Records the use of an entry, like [`touch`], and protects the entry from removal until this process ends.
/// When too many entries are pinned already, the time of use is the only protection. Returns `false` when
/// another process is creating or removing the entry; whatever it leaves is not removed.
pub fn pin(marker: &Path) -> bool {
    touch(marker);
    match locks::share_now(marker) {
        Ok(Some(file)) => {
            if let Ok(mut held) = PINNED.lock()
                && (held.len() < MAX_PINNED || held.contains_key(marker))
            {
                held.insert(marker.to_owned(), file);
            }
            true
        }
        Ok(None) => false,
        // An entry without a marker, or on a file system without locks, is usable all the same.
        Err(_) => true,
    }
}

/// Undoes [`pin`].
pub fn unpin(marker: &Path) {
    if let Ok(mut held) = PINNED.lock() {
        held.remove(marker);
    }
}

/// Returns whether a folder of a cache is unfinished or about to be removed.
pub fn is_unfinished(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with('.') || name.ends_with(".tmp") || name.ends_with(".removed")
}

/// Returns the entries below `cache` that were unused for `unused` before `now`, the longest unused first.
/// Excludes downloads, which cannot be recreated without a network, and ccache's folder, whose size ccache
/// limits itself.
pub fn unused(cache: &Path, unused: Duration, now: SystemTime) -> Result<Vec<CacheEntry>> {
    let mut found = Vec::new();
    for (folder, what, marker) in CACHES {
        let folder = cache.join(folder);
        let entries = if_there("read", &folder, std::fs::read_dir(&folder))?;
        for entry in entries.into_iter().flatten() {
            let entry = entry.map_err(|e| Error::io("read", &folder, &e))?;
            let path = entry.path();
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let marker = with_suffix(&path, marker);
            // An entry without a marker is incomplete; the folder's own time serves instead.
            let used = std::fs::metadata(&marker)
                .or_else(|_| entry.metadata())
                .and_then(|found| found.modified())
                .map_err(|e| Error::io("look at", &path, &e))?;
            let idle = now.duration_since(used).unwrap_or_default();
            let in_progress = is_unfinished(&entry.file_name()) && idle < Duration::from_secs(DAY);
            if idle >= unused && !in_progress {
                found.push(CacheEntry {
                    what,
                    name: name(&path, &marker),
                    bytes: size(&path),
                    path,
                    unused_days: idle.as_secs() / DAY,
                    marker,
                });
            }
        }
    }
    found.sort_by(|a, b| (b.unused_days, &a.path).cmp(&(a.unused_days, &b.path)));
    Ok(found)
}

/// Removes `entry`; returns `false` when it is in use and stays.
pub fn remove(entry: &CacheEntry) -> Result<bool> {
    // An entry without a marker is incomplete and old; without lock support, use cannot be detected.
    let _held = match entry
        .marker
        .is_file()
        .then(|| locks::try_now(&entry.marker))
    {
        Some(Ok(None)) => return Ok(false),
        Some(Ok(held)) => held,
        Some(Err(_)) | None => None,
    };
    // Renaming first makes the removal atomic for users of the entry. A lock file beside it stays, because
    // others may wait for it.
    let doomed = with_suffix(&entry.path, ".removed");
    let path = match std::fs::rename(&entry.path, &doomed) {
        Ok(()) => &doomed,
        Err(_) => &entry.path,
    };
    remove_tree(path)?;
    Ok(true)
}

/// Removes the file at `path`, if there is one.
pub fn remove_file(path: &Path) -> Result<()> {
    if_there("remove", path, std::fs::remove_file(path)).map(drop)
}

/// Returns the label of a built server from its description, else the last component of `entry`.
fn name(entry: &Path, marker: &Path) -> String {
    #[derive(serde::Deserialize)]
    struct Described {
        label: String,
        recipe: String,
    }
    let described = std::fs::read(marker)
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

/// Returns `path` with `suffix` appended to its name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Returns the total size of all files below `path`, in bytes. Ignores unreadable ones and does not follow
/// links.
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

    #[test]
    fn size_counts_files_and_does_not_follow_links() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/a"), [0; 1000]).unwrap();
        std::fs::write(dir.path().join("b"), [0; 24]).unwrap();
        assert_eq!(size(dir.path()), 1024);
        std::os::unix::fs::symlink("/", dir.path().join("root")).unwrap();
        assert!(size(dir.path()) < 2000);
    }

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
    fn unused_entries_are_found_and_removed() {
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
    fn entries_in_use_stay() {
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
    fn a_pinned_entry_stays_until_it_is_unpinned() {
        let folder = cache();
        let marker = folder.path().join("builds/old/build.json");
        assert!(pin(&marker));
        let all = unused(folder.path(), Duration::ZERO, SystemTime::now()).unwrap();
        let old = all.iter().find(|e| e.path.ends_with("old")).unwrap();
        assert!(!remove(old).unwrap() && marker.exists());
        unpin(&marker);
        assert!(remove(old).unwrap() && !marker.exists());
    }

    #[test]
    fn unfinished_entries_stay_for_a_day() {
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
