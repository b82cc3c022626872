//! The lock file `bench-config/upstream.lock`, which records the content of each release so that everybody measures the
//! same one.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use perfquilt_config::{read_recorded, write_recorded};
use perfquilt_model::error::{Error, Result};

/// The record of a release from its first fetch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedRelease {
    /// The upstream version.
    pub version: String,
    /// Its source, for messages: `debian bookworm mariadb 1:10.11.18-0+deb12u1`.
    pub source: String,
    /// The name of its source file; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// SHA-256 of that file, in hexadecimal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sha256: String,
    /// The tagged commit, for git remotes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// The object id of its tree.
    pub tree: String,
}

/// The parsed lock file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockFile {
    releases: BTreeMap<String, LockedRelease>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LockDocument {
    #[serde(default)]
    release: Vec<LockedRelease>,
}

impl LockFile {
    /// Reads the file; a missing file has no entries.
    pub fn read(path: &Path) -> Result<Self> {
        let document: LockDocument =
            read_recorded(path, "bench-config/upstream.lock").map_err(|error| {
                error.hint("restore the committed version, or remove the file and fetch again")
            })?;
        let mut releases = BTreeMap::new();
        for locked in document.release {
            if let Some(first) = releases.insert(locked.version.clone(), locked) {
                return Err(
                    Error::lock_file(format!("release {} is listed twice", first.version))
                        .at("bench-config/upstream.lock", None),
                );
            }
        }
        Ok(LockFile { releases })
    }

    /// Returns the entry of a version.
    pub fn get(&self, version: &str) -> Option<&LockedRelease> {
        self.releases.get(version)
    }

    /// Returns every entry, sorted by version.
    pub fn iter(&self) -> impl Iterator<Item = &LockedRelease> {
        self.releases.values()
    }

    /// Adds an entry, or replaces the one of its version.
    pub fn set(&mut self, locked: LockedRelease) {
        self.releases.insert(locked.version.clone(), locked);
    }

    /// Writes the file atomically.
    pub fn write(&self, path: &Path) -> Result<()> {
        let document = LockDocument {
            release: self.releases.values().cloned().collect(),
        };
        write_recorded(path, "perfquilt upstream fetch", &document)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked(version: &str) -> LockedRelease {
        LockedRelease {
            version: version.into(),
            source: "directory ../x".into(),
            file: String::new(),
            sha256: String::new(),
            commit: String::new(),
            tree: "ab".into(),
        }
    }

    #[test]
    fn round_trips() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("upstream.lock");
        let mut lock = LockFile::read(&path).unwrap();
        lock.set(locked("2"));
        lock.set(locked("1"));
        lock.write(&path).unwrap();
        assert_eq!(LockFile::read(&path).unwrap(), lock);
    }

    #[test]
    fn faults_name_their_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("upstream.lock");
        std::fs::write(&path, "[[release]]\nversion = 3\n").unwrap();
        let error = LockFile::read(&path).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("bench-config/upstream.lock:2:"),
            "{error}"
        );
    }
}
