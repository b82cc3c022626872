//! The cache of stacks, which avoids applying the same prefix of a series to the same release again.
//!
//! Each cached stack is a file `stacks/NAME` of the object store with one line per patch, and a reference
//! `refs/stacks/NAME` that protects its commits from garbage collection. The key that begins a line covers the release and all
//! patches up to it, so a series whose patch 400 changed finds the lines up to 399. Files are published by a rename
//! and end in a checksum; a file that is damaged or disagrees with the store counts as missing. The least recently used
//! files are removed.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::SystemTime;

use git2::Oid;
use sha2::{Digest, Sha256};

use super::change::PatchFit;
use super::commit::CommittedTree;
use crate::series::Patch;
use crate::upstream::{Objects, Release};
use perfquilt_model::error::{Error, Result};

/// Names the form of the files.
const FORM: &str = "perfquilt stack 2";

/// Maximum number of cached stacks.
const COUNT_LIMIT: usize = 256;
/// Maximum total size of their files, in bytes.
const SIZE_LIMIT: u64 = 64 << 20;

/// A digest over everything that a stack up to some patch depends on.
pub type StackKey = String;

/// The cached result of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackRecord {
    /// The commit and its tree.
    pub committed: CommittedTree,
    /// How exactly the patch applied.
    pub fit: PatchFit,
}

/// Returns one key for each patch. It covers the release, the fuzz, the patches up to it, and the program, because
/// another version may apply patches differently.
pub fn keys(release: &Release, patches: &[&Patch], fuzz: usize) -> Vec<StackKey> {
    let fuzz = fuzz.to_string();
    let mut key = digest(&[FORM, &release.commit, &release.tree, &fuzz, &program()]);
    let keys = patches.iter().map(|patch| {
        key = digest(&[&key, &patch.digest]);
        key.clone()
    });
    keys.collect()
}

/// Returns the SHA-256 of lines, in hexadecimal.
fn digest(lines: &[&str]) -> String {
    hex::encode(Sha256::digest(lines.join("\n")))
}

/// Returns the program's version and the size and modification time of its file, which distinguish builds.
fn program() -> String {
    let file = std::env::current_exe().and_then(std::fs::metadata);
    let (size, time) = file.map_or((0, None), |file| (file.len(), file.modified().ok()));
    let time = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    format!(
        "{} {size} {}",
        env!("CARGO_PKG_VERSION"),
        time.unwrap_or_default().as_nanos()
    )
}

/// The cached stacks of an object store.
pub struct StackCache<'a> {
    objects: &'a Objects,
    folder: PathBuf,
}

impl<'a> StackCache<'a> {
    /// Opens the cache of `objects`.
    pub fn new(objects: &'a Objects) -> Self {
        StackCache {
            objects,
            folder: objects.path().join("stacks"),
        }
    }

    /// Returns the records of the longest cached prefix of a series with these keys.
    pub fn longest(&self, keys: &[StackKey]) -> Vec<StackRecord> {
        let Some(last) = keys.last() else {
            return Vec::new();
        };
        if let Some(records) = self.read(name(last), keys) {
            return records;
        }
        let mut found: Vec<(usize, String)> = self
            .names()
            .into_iter()
            .map(|name| (self.shared_prefix(&name, keys), name))
            .collect();
        found.sort_unstable();
        let records = |(length, name): &(usize, String)| self.read(name, &keys[..*length]);
        found.iter().rev().find_map(records).unwrap_or_default()
    }

    /// Returns the number of leading lines of a file that have these keys.
    fn shared_prefix(&self, name: &str, keys: &[StackKey]) -> usize {
        let text = std::fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        let pairs = text.lines().zip(keys);
        pairs
            .take_while(|(line, key)| line.starts_with(*key))
            .count()
    }

    /// Returns the first records of a file, if they have these keys, the file is undamaged and the store has the last commit.
    fn read(&self, name: &str, keys: &[StackKey]) -> Option<Vec<StackRecord>> {
        let path = self.folder.join(name);
        let text = std::fs::read_to_string(&path).ok()?;
        let (lines, checksum) = text.rsplit_once('\n')?;
        if digest(&[lines]) != checksum {
            return None;
        }
        let lines = lines.lines().map(StackRecord::parse);
        let lines = lines.collect::<Option<Vec<(&str, StackRecord)>>>()?;
        let tip = lines.last()?.1.committed.commit;
        if self.objects.reference(&reference(name)).ok()? != Some(tip) {
            return None;
        }
        let lines = lines.get(..keys.len())?;
        let last = lines.last()?.1.committed;
        let there = |oid| self.objects.has(oid).unwrap_or(false);
        let is_same = lines
            .iter()
            .zip(keys)
            .all(|((key, _), wanted)| key == wanted);
        if !is_same || !there(tip) || !there(last.commit) || !there(last.tree) {
            return None;
        }
        // The modification time only affects the order of removal.
        if let Ok(file) = File::open(&path) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(lines.iter().map(|(_, record)| *record).collect())
    }

    /// Caches a stack whose objects are in the store.
    pub fn publish(&self, keys: &[StackKey], records: &[StackRecord]) -> Result<()> {
        let (Some(key), Some(last)) = (keys.last(), records.last()) else {
            return Ok(());
        };
        let io = |error: std::io::Error| Error::io("write", &self.folder, &error);
        std::fs::create_dir_all(&self.folder).map_err(io)?;
        let _lock = self.objects.lock("stacks.lock")?;
        let lines = keys.iter().zip(records);
        let lines: Vec<String> = lines.map(|(key, record)| record.line(key)).collect();
        let lines = lines.join("\n");
        let text = format!("{lines}\n{}", digest(&[&lines]));
        let name = name(key);
        let mut file = tempfile::Builder::new()
            .prefix(".new-")
            .tempfile_in(&self.folder)
            .map_err(io)?;
        file.write_all(text.as_bytes()).map_err(io)?;
        self.objects
            .set_reference(&reference(name), last.committed.commit)?;
        file.persist(self.folder.join(name))
            .map_err(|error| io(error.error))?;
        self.prune(name)
    }

    /// Removes the least recently used files beyond the limits, except `newest`, and references without a file.
    fn prune(&self, newest: &str) -> Result<()> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(file) = entry.metadata() else { continue };
            if is_name(&name) {
                let used = file.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                files.push((name == newest, used, file.len(), name));
            } else {
                // The lock excludes other writers, so this is a leftover.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        files.sort_unstable();
        let mut size = 0;
        let mut kept = std::collections::BTreeSet::new();
        for (is_newest, _, length, name) in files.into_iter().rev() {
            size += length;
            if is_newest || (size <= SIZE_LIMIT && kept.len() < COUNT_LIMIT) {
                kept.insert(reference(&name));
            } else {
                let _ = std::fs::remove_file(self.folder.join(&name));
            }
        }
        for reference in self.objects.references("refs/stacks/*")? {
            if !kept.contains(&reference) {
                self.objects.remove_reference(&reference)?;
            }
        }
        Ok(())
    }

    fn names(&self) -> Vec<String> {
        std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| is_name(name))
            .collect()
    }
}

fn name(key: &StackKey) -> &str {
    &key[..16]
}

fn is_name(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn reference(name: &str) -> String {
    format!("refs/stacks/{name}")
}

impl StackRecord {
    /// Returns the line of a patch with this key.
    fn line(&self, key: &StackKey) -> String {
        let StackRecord {
            committed: CommittedTree { commit, tree },
            fit: PatchFit { offset, fuzz },
        } = self;
        format!("{key} {commit} {tree} {offset} {fuzz}")
    }

    /// Returns the key and the record of a line.
    fn parse(line: &str) -> Option<(&str, StackRecord)> {
        let words: Vec<&str> = line.split(' ').collect();
        let [key, commit, tree, offset, fuzz] = words[..] else {
            return None;
        };
        let commit = Oid::from_str(commit).ok()?;
        let tree = Oid::from_str(tree).ok()?;
        let offset = offset.parse().ok()?;
        let fuzz = fuzz.parse().ok()?;
        Some((
            key,
            StackRecord {
                committed: CommittedTree { commit, tree },
                fit: PatchFit { offset, fuzz },
            },
        ))
    }
}
