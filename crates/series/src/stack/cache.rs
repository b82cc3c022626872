//! The cache of stacks, which avoids applying the same prefix of a series to the same release again.
//!
//! Each cached stack is a file `stacks/NAME` of the object store with one record per patch, and a reference
//! `refs/stacks/NAME` that protects its commits from garbage collection. The key of a record covers the release and all
//! patches up to it, so a series whose patch 400 changed finds the records up to 399. Files are published by a rename
//! and end in a checksum; a file that is damaged or disagrees with the store counts as missing. The least recently used
//! files are removed.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use git2::Oid;
use sha2::{Digest, Sha256};

use super::change::PatchFit;
use super::commit::CommittedTree;
use crate::series::Patch;
use crate::upstream::{Objects, Release};
use perfquilt_model::error::{Error, Result};

const MAGIC: &[u8] = b"perfquilt stack 1\n";
/// Length of a SHA-256, in bytes.
const DIGEST_LENGTH: usize = 32;
/// Length of a record in bytes: key, commit, tree, offset and fuzz.
const RECORD_LENGTH: usize = DIGEST_LENGTH + 20 + 20 + 8 + 8;

/// Maximum number of cached stacks.
const COUNT_LIMIT: usize = 256;
/// Maximum total size of their files, in bytes.
const SIZE_LIMIT: u64 = 64 << 20;

/// A digest over everything that a stack up to some patch depends on.
pub type StackKey = [u8; DIGEST_LENGTH];

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
    let mut hasher = Sha256::new();
    hasher.update(MAGIC);
    let program = program();
    for part in [&release.commit, &release.tree, &fuzz.to_string(), &program] {
        hasher.update(part.as_bytes());
        hasher.update(b"\n");
    }
    let mut key: StackKey = hasher.finalize().into();
    patches
        .iter()
        .map(|patch| {
            let mut hasher = Sha256::new();
            hasher.update(key);
            hasher.update(patch.digest.as_bytes());
            key = hasher.finalize().into();
            key
        })
        .collect()
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
        if let Some(records) = self.read(&name(last), keys, keys.len()) {
            return records;
        }
        let mut found: Vec<(usize, String)> = self
            .names()
            .into_iter()
            .map(|name| (shared_prefix(&self.folder.join(&name), keys), name))
            .filter(|(length, _)| *length > 0)
            .collect();
        found.sort_unstable();
        let records = |(length, name): &(usize, String)| self.read(name, keys, *length);
        found.iter().rev().find_map(records).unwrap_or_default()
    }

    /// Returns the first `length` records of a file, if the file is undamaged and the store has the last commit.
    fn read(&self, name: &str, keys: &[StackKey], length: usize) -> Option<Vec<StackRecord>> {
        let path = self.folder.join(name);
        let bytes = std::fs::read(&path).ok()?;
        let (body, checksum) = bytes.split_at_checked(bytes.len().checked_sub(DIGEST_LENGTH)?)?;
        if Sha256::digest(body).as_slice() != checksum {
            return None;
        }
        let records = body.strip_prefix(MAGIC)?;
        let (records, rest) = records.as_chunks::<RECORD_LENGTH>();
        if !rest.is_empty() || records.len() < length {
            return None;
        }
        let tip = decode(records.last()?)?.committed.commit;
        if self.objects.reference(&reference(name)).ok()? != Some(tip) {
            return None;
        }
        let records = records[..length]
            .iter()
            .zip(keys)
            .map(|(record, key)| (record[..DIGEST_LENGTH] == key[..]).then(|| decode(record))?)
            .collect::<Option<Vec<StackRecord>>>()?;
        let last = records.last()?.committed;
        let there = |oid| self.objects.has(oid).unwrap_or(false);
        if !there(tip) || !there(last.commit) || !there(last.tree) {
            return None;
        }
        // The modification time only affects the order of removal.
        if let Ok(file) = File::open(&path) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(records)
    }

    /// Caches a stack whose objects are in the store.
    pub fn publish(&self, keys: &[StackKey], records: &[StackRecord]) -> Result<()> {
        let (Some(key), Some(last)) = (keys.last(), records.last()) else {
            return Ok(());
        };
        let io = |error: std::io::Error| Error::io("write", &self.folder, &error);
        std::fs::create_dir_all(&self.folder).map_err(io)?;
        let _lock = self.objects.lock("stacks.lock")?;
        let mut bytes = MAGIC.to_vec();
        for (key, record) in keys.iter().zip(records) {
            encode(&mut bytes, key, record);
        }
        let checksum = Sha256::digest(&bytes);
        bytes.extend_from_slice(&checksum);
        let name = name(key);
        let mut file = tempfile::Builder::new()
            .prefix(".new-")
            .tempfile_in(&self.folder)
            .map_err(io)?;
        file.write_all(&bytes).map_err(io)?;
        self.objects
            .set_reference(&reference(&name), last.committed.commit)?;
        file.persist(self.folder.join(&name))
            .map_err(|error| io(error.error))?;
        self.prune(&name)
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

/// Returns the number of leading records of the file at `path` that have these keys. Equal keys imply equal
/// predecessors, so a binary search suffices.
fn shared_prefix(path: &Path, keys: &[StackKey]) -> usize {
    let Ok(file) = File::open(path) else {
        return 0;
    };
    let length = file.metadata().map_or(0, |file| file.len());
    let records =
        length.saturating_sub((MAGIC.len() + DIGEST_LENGTH) as u64) / RECORD_LENGTH as u64;
    let same = |index: usize| {
        let mut key = [0; DIGEST_LENGTH];
        let at = MAGIC.len() + index * RECORD_LENGTH;
        file.read_exact_at(&mut key, at as u64).is_ok() && key == keys[index]
    };
    let (mut low, mut high) = (0, keys.len().min(usize::try_from(records).unwrap_or(0)));
    while low < high {
        let middle = low.midpoint(high);
        if same(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

fn name(key: &StackKey) -> String {
    hex::encode(&key[..8])
}

fn is_name(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn reference(name: &str) -> String {
    format!("refs/stacks/{name}")
}

fn encode(bytes: &mut Vec<u8>, key: &StackKey, record: &StackRecord) {
    let StackRecord {
        committed: CommittedTree { commit, tree },
        fit: PatchFit { offset, fuzz },
    } = record;
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(commit.as_bytes());
    bytes.extend_from_slice(tree.as_bytes());
    bytes.extend_from_slice(&offset.to_le_bytes());
    bytes.extend_from_slice(&(*fuzz as u64).to_le_bytes());
}

fn decode(record: &[u8; RECORD_LENGTH]) -> Option<StackRecord> {
    let (_, rest) = record.split_at_checked(DIGEST_LENGTH)?;
    let (commit, rest) = rest.split_at_checked(20)?;
    let (tree, rest) = rest.split_at_checked(20)?;
    let (offset, fuzz) = rest.split_at_checked(8)?;
    Some(StackRecord {
        committed: CommittedTree {
            commit: Oid::from_bytes(commit).ok()?,
            tree: Oid::from_bytes(tree).ok()?,
        },
        fit: PatchFit {
            offset: i64::from_le_bytes(offset.try_into().ok()?),
            fuzz: usize::try_from(u64::from_le_bytes(fuzz.try_into().ok()?)).ok()?,
        },
    })
}
