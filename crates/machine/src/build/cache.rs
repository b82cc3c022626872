//! The cache of runnable servers: `CACHE/builds/KEY/`, complete or not there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::relink::Keep;
use super::work::remove;
use super::{BuildSeconds, Built, Profiled, identity};
use perfquilt_config::BUILD_RECORD;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::caches;

/// Version of [`Meta`].
const FORMAT: u32 = 1;

/// What a result was made of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Meta {
    pub format: u32,
    pub label: String,
    pub release: String,
    pub tree: String,
    pub recipe: String,
    pub toolchain: Vec<String>,
    pub identity: String,
    pub seconds: BuildSeconds,
    pub compiled_units: u64,
    /// Every file by relative path, with its size in bytes.
    pub files: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profiled>,
}

/// The folder of results.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    dir: PathBuf,
    /// The folder of all caches.
    root: PathBuf,
}

impl Cache {
    pub(super) fn new(cache: &Path) -> Cache {
        Cache {
            dir: cache.join("builds"),
            root: cache.to_owned(),
        }
    }

    /// The result of `key`, if it is there and whole.
    pub(super) fn get(&self, key: &str) -> Option<Built> {
        let dir = self.dir.join(key);
        if !caches::hold(&dir.join(BUILD_RECORD)) {
            return None;
        }
        let text = std::fs::read(dir.join(BUILD_RECORD)).ok()?;
        let meta: Meta = serde_json::from_slice(&text).ok()?;
        let whole = meta.format == FORMAT && is_whole(&dir, &meta.files);
        whole.then(|| Built {
            key: key.to_owned(),
            dir,
            identity: meta.identity,
            seconds: meta.seconds,
            compiled_units: meta.compiled_units,
            cached: true,
            profile: meta.profile,
        })
    }

    /// Copies the files of `install` (path inside the result to path outside) to a folder of its own,
    /// named after `owner`, which only one process uses at a time.
    pub(super) fn collect(
        &self,
        owner: &str,
        install: &BTreeMap<String, String>,
    ) -> Result<Collected> {
        let dir = self.dir.join(format!(".partial-{owner}"));
        remove(&dir)?;
        std::fs::create_dir_all(&dir).map_err(|e| Error::io("create", &dir, &e))?;
        // From here on the folder goes when this is dropped.
        let mut collected = Collected {
            dir,
            identity: String::new(),
            files: BTreeMap::new(),
        };
        for (inside, outside) in install {
            let to = collected.dir.join(inside);
            let outside_path = Path::new(outside);
            let sources = matching(outside_path);
            if sources.is_empty() {
                return Err(Error::build(format!(
                    "there is no {outside}, which the recipe installs as `{inside}`"
                ))
                .hint("correct `install` or `targets` of the recipe"));
            }
            for from in sources {
                match from.file_name() {
                    Some(name) if has_stars(outside_path) => {
                        copy(&from, &to.join(name), &mut Vec::new())?;
                    }
                    _ => copy(&from, &to, &mut Vec::new())?,
                }
            }
        }
        collected.files = list(&collected.dir)?;
        collected.identity = identity::of_files(&collected.dir, &collected.files)?;
        Ok(collected)
    }

    /// Adds what linking again needs. It is no part of what the server is when it runs.
    pub(super) fn keep(&self, collected: &mut Collected, keep: &Keep) -> Result<()> {
        keep.write(&collected.dir, &self.root)?;
        collected.files = list(&collected.dir)?;
        Ok(())
    }

    /// Makes a collected result the one of `key`, unless there is a whole one, made with the same profile:
    /// then it is that one.
    pub(super) fn publish(&self, key: &str, collected: Collected, meta: Meta) -> Result<Built> {
        let meta = Meta {
            format: FORMAT,
            identity: collected.identity.clone(),
            files: collected.files.clone(),
            ..meta
        };
        let path = collected.dir.join(BUILD_RECORD);
        let text = serde_json::to_vec_pretty(&meta)
            .map_err(|error| Error::internal(format!("cannot describe a build: {error}")))?;
        std::fs::write(&path, text).map_err(|e| Error::io("write", &path, &e))?;
        let dir = self.dir.join(key);
        // Recipes and releases of other names come to the same key, and somebody may measure what is there.
        let digest = |profile: &Option<Profiled>| profile.as_ref().map(|used| used.digest.clone());
        if let Some(there) = self.get(key)
            && digest(&there.profile) == digest(&meta.profile)
        {
            return Ok(there);
        }
        // A damaged result of the same key would be in the way, and so would one of a lost profile.
        remove(&dir)?;
        if let Err(error) = std::fs::rename(&collected.dir, &dir) {
            // A builder of another release with the same tree may have been quicker.
            return self
                .get(key)
                .ok_or_else(|| Error::io("write", &dir, &error));
        }
        caches::hold(&dir.join(BUILD_RECORD));
        Ok(Built {
            key: key.to_owned(),
            dir,
            identity: meta.identity,
            seconds: meta.seconds,
            compiled_units: meta.compiled_units,
            cached: false,
            profile: meta.profile,
        })
    }
}

/// A result before it is published; removed when dropped.
#[derive(Debug)]
pub(super) struct Collected {
    dir: PathBuf,
    identity: String,
    files: BTreeMap<String, u64>,
}

impl Drop for Collected {
    fn drop(&mut self) {
        // After publishing there is nothing left; what cannot be removed now is removed by the next
        // build of the same recipe.
        let _ = remove(&self.dir);
    }
}

/// Copies a file, or a folder with what is in it; links are followed. `above` are the folders that `from` is in,
/// from the one that is installed on.
fn copy(from: &Path, to: &Path, above: &mut Vec<PathBuf>) -> Result<()> {
    let io = |what: &str, path: &Path, error: &std::io::Error| Error::io(what, path, error);
    let meta = match std::fs::metadata(from) {
        Ok(meta) => meta,
        Err(error) if from.is_symlink() => {
            return Err(Error::build(format!(
                "{}, which is to be installed, is a link that leads nowhere: {error}",
                from.display()
            )));
        }
        Err(error) => return Err(io("read", from, &error)),
    };
    if meta.is_dir() {
        let real = std::fs::canonicalize(from).map_err(|e| io("read", from, &e))?;
        if above.contains(&real) {
            return Err(Error::build(format!(
                "{}, which is to be installed, is a link to a folder that it is in",
                from.display()
            )));
        }
        above.push(real);
        std::fs::create_dir_all(to).map_err(|e| io("create", to, &e))?;
        for entry in std::fs::read_dir(from).map_err(|e| io("read", from, &e))? {
            let entry = entry.map_err(|e| io("read", from, &e))?;
            // CMake's own folders and scripts lie among what it makes.
            if entry.file_name() == "CMakeFiles" || entry.file_name() == "cmake_install.cmake" {
                continue;
            }
            copy(&entry.path(), &to.join(entry.file_name()), above)?;
        }
        above.pop();
        return Ok(());
    }
    if !meta.is_file() {
        // Opening a pipe would wait for whoever writes to it.
        return Err(Error::build(format!(
            "{}, which is to be installed, is no file and no folder",
            from.display()
        )));
    }
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).map_err(|e| io("create", folder, &e))?;
    }
    // Shares the blocks where the file system can (the standard library asks the kernel).
    std::fs::copy(from, to).map_err(|e| io("copy", from, &e))?;
    Ok(())
}

/// Whether the last part of `path` means several files. Stars before it are part of a folder's name.
pub(super) fn has_stars(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().contains('*'))
}

/// `path` if it is there; with `*` in its last part, every entry of the folder that matches.
pub(super) fn matching(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (Some(folder), true) = (path.parent(), name.contains('*')) else {
        return path.exists().then(|| path.to_owned()).into_iter().collect();
    };
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| is_match(&name, &entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Whether `name` has the parts between the stars of `pattern`, in order, ends included.
fn is_match(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(name) = name.strip_prefix(head) else {
        return false;
    };
    let mut ends = name
        .char_indices()
        .map(|(index, _)| index)
        .chain([name.len()]);
    ends.any(|index| is_match(rest, &name[index..]))
}

/// Whether all `files` are in `dir`, each of its size.
pub(super) fn is_whole(dir: &Path, files: &BTreeMap<String, u64>) -> bool {
    files.iter().all(|(name, size)| {
        std::fs::metadata(dir.join(name)).is_ok_and(|found| found.len() == *size)
    })
}

/// Every file below `dir` by relative path, with its size in bytes.
pub(super) fn list(dir: &Path) -> Result<BTreeMap<String, u64>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|e| Error::io("read", &folder, &e))? {
            let path = entry.map_err(|e| Error::io("read", &folder, &e))?.path();
            let meta = std::fs::metadata(&path).map_err(|e| Error::io("read", &path, &e))?;
            if meta.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(dir).unwrap_or(&path);
            files.insert(name.to_string_lossy().into_owned(), meta.len());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta {
        Meta {
            format: FORMAT,
            label: "x-1".into(),
            release: "x-1".into(),
            tree: "t".into(),
            recipe: "quick".into(),
            toolchain: Vec::new(),
            identity: String::new(),
            seconds: BuildSeconds::default(),
            compiled_units: 3,
            files: BTreeMap::new(),
            profile: None,
        }
    }

    #[test]
    fn a_result_is_whole_or_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("made");
        std::fs::create_dir_all(outside.join("CMakeFiles")).unwrap();
        std::fs::write(outside.join("a"), "abc").unwrap();
        let cache = Cache::new(folder.path());
        let install = BTreeMap::from([("share".to_owned(), outside.display().to_string())]);

        drop(cache.collect("w", &install).unwrap());
        let left = std::fs::read_dir(&cache.dir).unwrap().count();
        assert_eq!(left, 0, "a dropped result leaves nothing");

        let collected = cache.collect("w", &install).unwrap();
        let built = cache.publish("k", collected, meta()).unwrap();
        assert!(!built.cached && built.dir.join("share/a").exists());
        assert!(!built.dir.join("share/CMakeFiles").exists());
        let again = cache.get("k").unwrap();
        assert!(again.cached);
        assert_eq!(again.identity, built.identity);

        std::fs::write(built.dir.join("share/a"), "ab").unwrap();
        assert!(cache.get("k").is_none(), "damaged");
        let collected = cache.collect("w", &install).unwrap();
        cache.publish("k", collected, meta()).unwrap();
        assert!(cache.get("k").is_some(), "mended");
    }

    #[test]
    fn a_whole_result_stays_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("made");
        std::fs::write(&outside, "abc").unwrap();
        let cache = Cache::new(folder.path());
        let install = BTreeMap::from([("bin/x".to_owned(), outside.display().to_string())]);
        let publish = |owner: &str, digest: Option<&str>| {
            let profile = digest.map(|digest| Profiled {
                digest: digest.to_owned(),
                of: "x-1".to_owned(),
                changed: 0,
                without: 0,
            });
            let collected = cache.collect(owner, &install).unwrap();
            let meta = Meta { profile, ..meta() };
            cache.publish("k", collected, meta).unwrap()
        };
        let first = publish("one", None);
        std::fs::write(first.dir.join("mark"), "").unwrap();
        let again = publish("other", None);
        assert!(again.cached && again.dir.join("mark").exists());
        let guided = publish("one", Some("1"));
        assert!(!guided.cached && !guided.dir.join("mark").exists());
        assert!(publish("one", Some("1")).cached);
        assert!(!publish("one", Some("2")).cached);
    }

    #[test]
    fn stars_match_names() {
        for name in ["mysql_system_tables.sql", "mariadb_system_tables_data.sql"] {
            assert!(is_match("m*_system_tables*.sql", name), "{name}");
        }
        for name in ["mysql_test_db.sql", "mysql_system_tables.sql.in", ""] {
            assert!(!is_match("m*_system_tables*.sql", name), "{name}");
        }
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.sql", "a.sql", "c.txt"] {
            std::fs::write(folder.path().join(name), "x").unwrap();
        }
        let outside = folder.path().join("*.sql").display().to_string();
        let install = BTreeMap::from([("share/scripts".to_owned(), outside)]);
        let collected = Cache::new(folder.path()).collect("w", &install).unwrap();
        let files: Vec<&String> = collected.files.keys().collect();
        assert_eq!(files, ["share/scripts/a.sql", "share/scripts/b.sql"]);
    }

    #[test]
    fn stars_in_a_folders_name_mean_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("c*d/x");
        std::fs::create_dir(folder.path().join("c*d")).unwrap();
        std::fs::write(&outside, "x").unwrap();
        let install = BTreeMap::from([("bin/x".to_owned(), outside.display().to_string())]);
        let collected = Cache::new(folder.path()).collect("w", &install).unwrap();
        assert_eq!(collected.files.keys().collect::<Vec<_>>(), ["bin/x"]);
    }

    #[test]
    fn links_are_followed_and_what_cannot_be_copied_is_named() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("made");
        std::fs::create_dir_all(outside.join("a/b")).unwrap();
        std::fs::create_dir(outside.join("other")).unwrap();
        std::fs::write(outside.join("a/f"), "f").unwrap();
        std::fs::write(outside.join("other/g"), "g").unwrap();
        symlink("f", outside.join("a/link")).unwrap();
        symlink("../other", outside.join("a/folder")).unwrap();
        let install = BTreeMap::from([("a".to_owned(), outside.join("a").display().to_string())]);
        let cache = Cache::new(folder.path());
        let collected = cache.collect("w", &install).unwrap();
        let files: Vec<&String> = collected.files.keys().collect();
        assert_eq!(files, ["a/f", "a/folder/g", "a/link"]);
        drop(collected);

        let odd = outside.join("a/b/odd");
        let refused = |what: &str| {
            let error = cache.collect("w", &install).unwrap_err();
            assert_eq!(error.kind(), perfquilt_model::error::Kind::Build, "{error}");
            assert!(error.message().contains(what), "{error}");
            assert!(error.message().contains("a/b/odd"), "{error}");
            std::fs::remove_file(&odd).unwrap();
        };
        symlink("nothing", &odd).unwrap();
        refused("leads nowhere");
        symlink("..", &odd).unwrap();
        refused("a folder that it is in");
        let _socket = std::os::unix::net::UnixListener::bind(&odd).unwrap();
        refused("no file and no folder");
    }

    #[test]
    fn what_was_not_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        let install = BTreeMap::from([("bin/x".to_owned(), "/no/such/x".to_owned())]);
        let error = cache.collect("w", &install).unwrap_err();
        assert_eq!(error.kind(), perfquilt_model::error::Kind::Build);
        assert!(error.message().contains("/no/such/x"));
    }
}
