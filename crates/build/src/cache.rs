//! The cache of runnable servers: `CACHE/builds/KEY/`. An entry is complete or absent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files::{digest, has_stars, is_complete, list, matching};
use super::relink::RelinkInputs;
use super::work::remove;
use super::{BuildSeconds, Built, ProfileUse, identity};
use perfquilt_config::BUILD_RECORD;
use perfquilt_model::error::{Error, Result};
use perfquilt_system::caches;
use perfquilt_system::digest::{check, sealed};

/// Version of [`BuildRecord`].
const FORMAT: u32 = 1;

/// Content of [`BUILD_RECORD`]: how a result was built.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct BuildRecord {
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
    /// The digest of the files' contents.
    pub digest: String,
    /// The source files that programs of the build opened; absent if nobody could observe them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<BTreeSet<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileUse>,
}

impl BuildRecord {
    fn built(self, key: &str, dir: PathBuf, cached: bool) -> Built {
        Built {
            seconds: self.seconds,
            compiled_units: self.compiled_units,
            cached,
            profile: self.profile,
            ..Built::existing(key, dir, &self.identity)
        }
    }
}

/// The folder of built servers.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    dir: PathBuf,
    /// The folder of all caches.
    root: PathBuf,
}

/// Returns the source files that programs opened while they built the cache's entry in `dir`; `None` if that is unknown.
pub(super) fn opened(dir: &Path) -> Option<BTreeSet<String>> {
    read_record(dir)?.opened
}

/// Returns whether every byte of the cache's entry in `dir` is as it was built.
pub fn is_intact(dir: &Path) -> bool {
    // A file that cannot be read is as bad as another one.
    read_record(dir)
        .is_some_and(|record| digest(dir, &record.files).is_ok_and(|found| found == record.digest))
}

fn read_record(dir: &Path) -> Option<BuildRecord> {
    let text = std::fs::read(dir.join(BUILD_RECORD)).ok()?;
    check(&text).ok()?;
    serde_json::from_slice(&text).ok()
}

impl Cache {
    pub(super) fn new(cache: &Path) -> Cache {
        Cache {
            dir: cache.join("builds"),
            root: cache.to_owned(),
        }
    }

    /// Returns the result of `key` if it exists and is complete.
    pub(super) fn get(&self, key: &str) -> Option<Built> {
        let dir = self.dir.join(key);
        if !caches::pin(&dir.join(BUILD_RECORD)) {
            return None;
        }
        let record = read_record(&dir)?;
        let complete = record.format == FORMAT && is_complete(&dir, &record.files);
        complete.then(|| record.built(key, dir, true))
    }

    /// Returns whether the entry `key` is as it was built. One that differs gets out of the way, so that it is built again.
    pub(super) fn verify(&self, key: &str) -> Result<bool> {
        let dir = self.dir.join(key);
        let is_intact = is_intact(&dir);
        if !is_intact {
            self.set_aside(&dir)?;
        }
        Ok(is_intact)
    }

    /// Moves the entry in `dir` out of the way, because another machine may be reading it; `perfquilt clean` removes it.
    fn set_aside(&self, dir: &Path) -> Result<()> {
        let aside = tempfile::Builder::new()
            .prefix(".replaced-")
            .tempdir_in(&self.dir);
        aside
            .and_then(|aside| {
                // The entries of a sandbox are links.
                let to = aside.keep().join("entry");
                std::fs::rename(dir, to)
            })
            .map_err(|e| Error::io("replace", dir, &e))
    }

    /// Copies the files of `install` (path inside the result to path outside) to a new folder named after `owner`,
    /// which only one process uses at a time.
    pub(super) fn collect(
        &self,
        owner: &str,
        install: &BTreeMap<String, String>,
    ) -> Result<Collected> {
        let dir = self.dir.join(format!(".partial-{owner}"));
        remove(&dir)?;
        std::fs::create_dir_all(&dir).map_err(|e| Error::io("create", &dir, &e))?;
        // From here on dropping `collected` removes the folder.
        let mut collected = Collected {
            dir,
            identity: String::new(),
            files: BTreeMap::new(),
            sources: Vec::new(),
        };
        for (inside, outside) in install {
            let to = collected.dir.join(inside);
            let outside_path = Path::new(outside);
            let sources = matching(outside_path);
            if sources.is_empty() {
                return Err(Error::installed_file(format!(
                    "there is no {outside}, which the recipe installs as `{inside}`"
                ))
                .hint("correct `install` or `targets` of the recipe"));
            }
            for from in sources {
                let to = match from.file_name() {
                    Some(name) if has_stars(outside_path) => &to.join(name),
                    _ => &to,
                };
                copy(&from, to, &mut Vec::new(), &mut collected.sources)?;
            }
        }
        collected.files = list(&collected.dir)?;
        collected.identity = identity::identity_of_files(&collected.dir, &collected.files)?;
        Ok(collected)
    }

    /// Adds the inputs for relinking. They do not contribute to the server's identity.
    pub(super) fn add_relink(
        &self,
        collected: &mut Collected,
        relink: &RelinkInputs,
    ) -> Result<()> {
        relink.write(&collected.dir, &self.root)?;
        collected.files = list(&collected.dir)?;
        Ok(())
    }

    /// Publishes a collected result under `key`, unless the cache already holds a complete one built with the same
    /// profile; returns the published one. One that `replaces` others makes way only for the same server, undamaged.
    pub(super) fn publish(
        &self,
        key: &str,
        collected: Collected,
        record: BuildRecord,
        replaces: bool,
    ) -> Result<Built> {
        let record = BuildRecord {
            format: FORMAT,
            identity: collected.identity.clone(),
            files: collected.files.clone(),
            digest: digest(&collected.dir, &collected.files)?,
            ..record
        };
        let path = collected.dir.join(BUILD_RECORD);
        let text = serde_json::to_vec_pretty(&record).map_err(Error::json)?;
        std::fs::write(&path, sealed(&text)).map_err(|e| Error::io("write", &path, &e))?;
        let dir = self.dir.join(key);
        // Recipes and releases of other names can share the key, and another process may be measuring the entry.
        let digest_of =
            |profile: &Option<ProfileUse>| profile.as_ref().map(|used| used.digest.clone());
        if let Some(existing) = self.get(key)
            && digest_of(&existing.profile) == digest_of(&record.profile)
        {
            if !replaces {
                return Ok(existing);
            }
            if existing.identity == record.identity && self.verify(key)? {
                return Ok(record.built(key, dir, false));
            }
        }
        // A damaged result of the same key, or one of a lost profile, would block the rename.
        if dir.exists() {
            self.set_aside(&dir)?;
        }
        if let Err(error) = std::fs::rename(&collected.dir, &dir) {
            // A builder of another release with the same tree may have published first.
            return self
                .get(key)
                .ok_or_else(|| Error::io("write", &dir, &error));
        }
        caches::pin(&dir.join(BUILD_RECORD));
        Ok(record.built(key, dir, false))
    }
}

/// An unpublished result; removed when dropped.
#[derive(Debug)]
pub(super) struct Collected {
    dir: PathBuf,
    identity: String,
    files: BTreeMap<String, u64>,
    /// The files that were copied.
    sources: Vec<PathBuf>,
}

impl Collected {
    /// Returns the files below `src` that were copied, by their paths there.
    pub(super) fn copied_from(&self, src: &Path) -> BTreeSet<String> {
        let inside =
            |path: &PathBuf| Some(path.strip_prefix(src).ok()?.to_string_lossy().into_owned());
        self.sources.iter().filter_map(inside).collect()
    }

    /// Returns the paths of its files.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, PathBuf)> {
        let names = self.files.keys();
        names.map(|name| (name.as_str(), self.dir.join(name)))
    }
}

impl Drop for Collected {
    fn drop(&mut self) {
        // After publishing nothing is left here; the next build of the same recipe retries a failed removal.
        let _ = remove(&self.dir);
    }
}

/// Copies a file or a folder with its content, following links, and adds the files to `copied`. `ancestors` are the folders that contain `from`,
/// from the installed one on.
fn copy(
    from: &Path,
    to: &Path,
    ancestors: &mut Vec<PathBuf>,
    copied: &mut Vec<PathBuf>,
) -> Result<()> {
    let meta = match std::fs::metadata(from) {
        Ok(meta) => meta,
        Err(error) if from.is_symlink() => {
            return Err(Error::installed_file(format!(
                "cannot install {}: it is a broken link: {error}",
                from.display()
            )));
        }
        Err(error) => return Err(Error::io("read", from, &error)),
    };
    if meta.is_dir() {
        let real = std::fs::canonicalize(from).map_err(|e| Error::io("read", from, &e))?;
        if ancestors.contains(&real) {
            return Err(Error::installed_file(format!(
                "cannot install {}: it is a link to a folder that contains it",
                from.display()
            )));
        }
        ancestors.push(real);
        std::fs::create_dir_all(to).map_err(|e| Error::io("create", to, &e))?;
        for entry in std::fs::read_dir(from).map_err(|e| Error::io("read", from, &e))? {
            let entry = entry.map_err(|e| Error::io("read", from, &e))?;
            // CMake's own folders and scripts are among the products.
            if entry.file_name() == "CMakeFiles" || entry.file_name() == "cmake_install.cmake" {
                continue;
            }
            copy(
                &entry.path(),
                &to.join(entry.file_name()),
                ancestors,
                copied,
            )?;
        }
        ancestors.pop();
        return Ok(());
    }
    if !meta.is_file() {
        // Opening a pipe would block until another process writes to it.
        return Err(Error::installed_file(format!(
            "cannot install {}: it is neither a file nor a folder",
            from.display()
        )));
    }
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
    }
    // The standard library asks the kernel to share blocks where the file system supports it.
    std::fs::copy(from, to).map_err(|e| Error::io("copy to", to, &e))?;
    copied.push(from.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> BuildRecord {
        BuildRecord {
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
            digest: String::new(),
            opened: None,
            profile: None,
        }
    }

    #[test]
    fn one_flipped_bit_anywhere_is_found_and_gets_out_of_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("made");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("a"), "abc").unwrap();
        std::fs::write(outside.join("b"), "def").unwrap();
        let cache = Cache::new(folder.path());
        let install = BTreeMap::from([("share".to_owned(), outside.display().to_string())]);
        let publish = || {
            let collected = cache.collect("w", &install).unwrap();
            cache.publish("k", collected, record(), false).unwrap()
        };
        let of_now = std::fs::read_to_string(publish().dir.join(BUILD_RECORD)).unwrap();
        let slower = of_now.replace("\"compile\": 0.0", "\"compile\": 9.0");
        assert_ne!(of_now, slower);
        let files = [("share/a", "abb"), ("share/b", "eef"), (BUILD_RECORD, "{}")];
        for (file, text) in files.into_iter().chain([(BUILD_RECORD, &*slower)]) {
            let built = publish();
            assert!(cache.verify("k").unwrap());
            std::fs::write(built.dir.join(file), text).unwrap();
            assert!(!cache.verify("k").unwrap(), "{file}");
            assert!(cache.get("k").is_none(), "{file}");
        }
        let built = publish();
        assert!(!built.cached);
        // A record without a checksum.
        let path = built.dir.join(BUILD_RECORD);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
        document.as_object_mut().unwrap().remove("digest").unwrap();
        document.as_object_mut().unwrap().remove("sha256").unwrap();
        std::fs::write(&path, document.to_string()).unwrap();
        assert!(cache.get("k").is_none());
    }

    #[test]
    fn a_result_is_complete_or_absent() {
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
        let built = cache.publish("k", collected, record(), false).unwrap();
        assert!(!built.cached && built.dir.join("share/a").exists());
        assert!(!built.dir.join("share/CMakeFiles").exists());
        let again = cache.get("k").unwrap();
        assert!(again.cached);
        assert_eq!(again.identity, built.identity);

        std::fs::write(built.dir.join("share/a"), "ab").unwrap();
        assert!(cache.get("k").is_none(), "damaged");
        let collected = cache.collect("w", &install).unwrap();
        cache.publish("k", collected, record(), false).unwrap();
        assert!(cache.get("k").is_some(), "repaired");
    }

    #[test]
    fn a_complete_result_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("made");
        std::fs::write(&outside, "abc").unwrap();
        let cache = Cache::new(folder.path());
        let install = BTreeMap::from([("bin/x".to_owned(), outside.display().to_string())]);
        let publish = |owner: &str, digest: Option<&str>| {
            let profile = digest.map(|digest| ProfileUse {
                digest: digest.to_owned(),
                of: "x-1".to_owned(),
                changed: 0,
                without: 0,
            });
            let collected = cache.collect(owner, &install).unwrap();
            let record = BuildRecord {
                profile,
                ..record()
            };
            cache.publish("k", collected, record, false).unwrap()
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
    fn a_fresh_result_replaces_all_but_the_same_undamaged_server() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("made");
        let cache = Cache::new(folder.path());
        let install = BTreeMap::from([("x".to_owned(), outside.display().to_string())]);
        let publish = |text: &str| {
            std::fs::write(&outside, text).unwrap();
            let collected = cache.collect("one", &install).unwrap();
            let built = cache.publish("k", collected, record(), true).unwrap();
            assert!(!built.cached);
            built.dir
        };
        let dir = publish("abc");
        std::fs::write(dir.join("mark"), "").unwrap();
        publish("abc");
        assert!(dir.join("mark").exists(), "others may be reading it");
        publish("def");
        assert!(!dir.join("mark").exists());
        std::fs::write(dir.join("x"), "xyz").unwrap();
        publish("def");
        assert_eq!(std::fs::read(dir.join("x")).unwrap(), b"def");
    }

    #[test]
    fn a_pattern_installs_every_matching_file() {
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
    fn stars_in_a_folders_name_are_ordinary_characters() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("c*d/x");
        std::fs::create_dir(folder.path().join("c*d")).unwrap();
        std::fs::write(&outside, "x").unwrap();
        let install = BTreeMap::from([("bin/x".to_owned(), outside.display().to_string())]);
        let collected = Cache::new(folder.path()).collect("w", &install).unwrap();
        assert_eq!(collected.files.keys().collect::<Vec<_>>(), ["bin/x"]);
    }

    #[test]
    fn links_are_followed_and_uncopyable_files_are_errors() {
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
        refused("broken link");
        symlink("..", &odd).unwrap();
        refused("a folder that contains it");
        let _socket = std::os::unix::net::UnixListener::bind(&odd).unwrap();
        refused("neither a file nor a folder");
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path());
        let install = BTreeMap::from([("bin/x".to_owned(), "/no/such/x".to_owned())]);
        let error = cache.collect("w", &install).unwrap_err();
        assert_eq!(error.kind(), perfquilt_model::error::Kind::Build);
        assert!(error.message().contains("/no/such/x"));
    }
}
