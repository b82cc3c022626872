//! Remembering stacks: the same beginning of a series on the same release is not applied twice.
//!
//! Each remembered stack is a file `stacks/NAME` of the object store with one record a patch, and a
//! reference `refs/stacks/NAME` that keeps its commits from being collected. A record is found by a
//! key over the release and all patches up to it, so a series whose patch 400 changed finds the
//! records up to 399. Files are published by a rename and end in a checksum; whatever does not agree
//! with itself or with the store counts as not there. The least recently used ones are removed.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use git2::Oid;
use sha2::{Digest, Sha256};

use super::change::How;
use super::commit::Committed;
use crate::series::Patch;
use crate::upstream::{Objects, Release};
use perfquilt_model::error::{Error, Result};

const MAGIC: &[u8] = b"perfquilt stack 1\n";
/// SHA-256, of keys and of files.
const DIGEST: usize = 32;
/// Key, commit, tree, offset, fuzz.
const RECORD: usize = DIGEST + 20 + 20 + 8 + 8;

/// How many stacks are remembered at most.
const COUNT_LIMIT: usize = 256;
/// How many bytes their files have at most.
const SIZE_LIMIT: u64 = 64 << 20;

/// What a stack up to some patch depends on.
pub type Key = [u8; DIGEST];

/// A patch that was applied and committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The commit and its tree.
    pub committed: Committed,
    /// How the patch went in.
    pub how: How,
}

/// One key for each patch, over the release, the patches up to it, and this program: another version
/// may apply patches in another way.
pub fn keys(release: &Release, patches: &[&Patch], fuzz: usize) -> Vec<Key> {
    let mut hasher = Sha256::new();
    hasher.update(MAGIC);
    let program = program();
    for part in [&release.commit, &release.tree, &fuzz.to_string(), &program] {
        hasher.update(part.as_bytes());
        hasher.update(b"\n");
    }
    let mut key: Key = hasher.finalize().into();
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

/// Version of this program and size and time of its file, so that a changed build counts as another.
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

/// The remembered stacks of a store.
pub struct Cache<'a> {
    objects: &'a Objects,
    folder: PathBuf,
}

impl<'a> Cache<'a> {
    /// Those of `objects`.
    pub fn new(objects: &'a Objects) -> Self {
        Cache {
            objects,
            folder: objects.path().join("stacks"),
        }
    }

    /// The records of the longest remembered beginning of a series with these keys.
    pub fn longest(&self, keys: &[Key]) -> Vec<Record> {
        let Some(last) = keys.last() else {
            return Vec::new();
        };
        if let Some(records) = self.read(&name(last), keys, keys.len()) {
            return records;
        }
        let mut found: Vec<(usize, String)> = self
            .names()
            .into_iter()
            .map(|name| (shared(&self.folder.join(&name), keys), name))
            .filter(|(length, _)| *length > 0)
            .collect();
        found.sort_unstable();
        let records = |(length, name): &(usize, String)| self.read(name, keys, *length);
        found.iter().rev().find_map(records).unwrap_or_default()
    }

    /// The first `length` records of a file, if all of it is as it was written and the store has the
    /// last commit.
    fn read(&self, name: &str, keys: &[Key], length: usize) -> Option<Vec<Record>> {
        let path = self.folder.join(name);
        let bytes = std::fs::read(&path).ok()?;
        let (body, checksum) = bytes.split_at_checked(bytes.len().checked_sub(DIGEST)?)?;
        if Sha256::digest(body).as_slice() != checksum {
            return None;
        }
        let records = body.strip_prefix(MAGIC)?;
        let (records, rest) = records.as_chunks::<RECORD>();
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
            .map(|(record, key)| (record[..DIGEST] == key[..]).then(|| decode(record))?)
            .collect::<Option<Vec<Record>>>()?;
        let last = records.last()?.committed;
        let there = |oid| self.objects.has(oid).unwrap_or(false);
        if !there(tip) || !there(last.commit) || !there(last.tree) {
            return None;
        }
        // Only the order of removal depends on it.
        if let Ok(file) = File::open(&path) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(records)
    }

    /// Remembers a stack whose objects are in the store.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when reference or file cannot be written,
    /// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted) while waiting for another process.
    pub fn publish(&self, keys: &[Key], records: &[Record]) -> Result<()> {
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

    /// Removes what is too much, least recently used first, but not `newest`; and references that
    /// belong to no file.
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
                // The lock is held, so that it belongs to nobody who is still writing.
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

/// How many of the first records of the file at `path` have these keys. Keys that are the same stay
/// so to the beginning, so that a few of them tell.
fn shared(path: &Path, keys: &[Key]) -> usize {
    let Ok(file) = File::open(path) else {
        return 0;
    };
    let length = file.metadata().map_or(0, |file| file.len());
    let records = length.saturating_sub((MAGIC.len() + DIGEST) as u64) / RECORD as u64;
    let same = |index: usize| {
        let mut key = [0; DIGEST];
        let at = MAGIC.len() + index * RECORD;
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

fn name(key: &Key) -> String {
    key[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_name(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn reference(name: &str) -> String {
    format!("refs/stacks/{name}")
}

fn encode(bytes: &mut Vec<u8>, key: &Key, record: &Record) {
    let Record {
        committed: Committed { commit, tree },
        how: How { offset, fuzz },
    } = record;
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(commit.as_bytes());
    bytes.extend_from_slice(tree.as_bytes());
    bytes.extend_from_slice(&offset.to_le_bytes());
    bytes.extend_from_slice(&(*fuzz as u64).to_le_bytes());
}

fn decode(record: &[u8; RECORD]) -> Option<Record> {
    let (_, rest) = record.split_at_checked(DIGEST)?;
    let (commit, rest) = rest.split_at_checked(20)?;
    let (tree, rest) = rest.split_at_checked(20)?;
    let (offset, fuzz) = rest.split_at_checked(8)?;
    Some(Record {
        committed: Committed {
            commit: Oid::from_bytes(commit).ok()?,
            tree: Oid::from_bytes(tree).ok()?,
        },
        how: How {
            offset: i64::from_le_bytes(offset.try_into().ok()?),
            fuzz: usize::try_from(u64::from_le_bytes(fuzz.try_into().ok()?)).ok()?,
        },
    })
}
