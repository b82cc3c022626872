//! `bench-config/upstream.lock`: which bytes each release was, so that everybody measures the same.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use perfquilt_model::error::{Error, Result};
use perfquilt_system::files::write_file;

const HEAD: &str = "# Written by `perfquilt upstream fetch`; keep it under version control.\n\n";

/// What one release was when it was first fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Locked {
    /// The upstream version.
    pub version: String,
    /// Where it came from, for people: `debian bookworm mariadb 1:10.11.18-0+deb12u1`.
    pub source: String,
    /// The file's name, where it is a file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// SHA-256 of that file in hexadecimal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sha256: String,
    /// The commit a tag named, for git remotes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// Git's name of the tree that it holds.
    pub tree: String,
}

/// The whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockFile {
    releases: BTreeMap<String, Locked>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    release: Vec<Locked>,
}

impl LockFile {
    /// Reads the file; one that does not exist has no entries.
    ///
    /// # Errors
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage), naming file and line, when it is malformed.
    pub fn read(path: &Path) -> Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(LockFile::default());
            }
            Err(error) => return Err(Error::io("read", path, &error)),
        };
        let document: Document = toml::from_str(&text).map_err(|error| {
            let line = error
                .span()
                .map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let first = error.message().lines().next().unwrap_or("malformed");
            Error::usage(first.to_owned())
                .at("bench-config/upstream.lock", line)
                .hint("take the version under version control back, or remove it and fetch again")
        })?;
        let mut releases = BTreeMap::new();
        for locked in document.release {
            if let Some(first) = releases.insert(locked.version.clone(), locked) {
                return Err(
                    Error::usage(format!("release {} is there twice", first.version))
                        .at("bench-config/upstream.lock", None),
                );
            }
        }
        Ok(LockFile { releases })
    }

    /// The entry of a version.
    pub fn get(&self, version: &str) -> Option<&Locked> {
        self.releases.get(version)
    }

    /// Every entry, by version.
    pub fn iter(&self) -> impl Iterator<Item = &Locked> {
        self.releases.values()
    }

    /// Puts an entry in place of what there was for its version.
    pub fn set(&mut self, locked: Locked) {
        self.releases.insert(locked.version.clone(), locked);
    }

    /// Writes the file, all or nothing.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let document = Document {
            release: self.releases.values().cloned().collect(),
        };
        let body = toml::to_string(&document)
            .map_err(|error| Error::internal(format!("cannot write the lock file: {error}")))?;
        write_file(path, format!("{HEAD}{body}").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked(version: &str) -> Locked {
        Locked {
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
