//! Comparing two trees file by file. Only folders that differ are read.

use git2::Oid;

use crate::series::path::{MAX_DEPTH, shown};
use crate::upstream::Objects;
use crate::upstream::objects::{MODE_COMMIT, MODE_TREE, TreeEntry};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::process::check_interrupted;

/// One side of a changed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileSide {
    pub mode: u32,
    pub oid: Oid,
}

/// A file that differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FilePair {
    pub old_path: Vec<u8>,
    pub new_path: Vec<u8>,
    pub old: Option<FileSide>,
    pub new: Option<FileSide>,
    /// The similarity of both sides of a rename, in percent.
    pub similarity: Option<u8>,
}

/// Maximum changes of commits by untrusted authors: a tree of a few kilobytes can list more files than any machine can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeLimit {
    /// Number of differing files.
    pub files: usize,
    /// Bytes of the folders that are compared, and of both sides of differing files.
    pub bytes: u64,
}

/// The rest of a [`ChangeLimit`] for further comparisons.
#[derive(Debug, Clone)]
pub struct ChangeBudget {
    limit: ChangeLimit,
    left: ChangeLimit,
}

impl ChangeBudget {
    /// Starts with the whole limit.
    pub fn new(limit: ChangeLimit) -> Self {
        ChangeBudget { limit, left: limit }
    }

    /// Takes `files` and `bytes` away.
    pub fn take(&mut self, files: usize, bytes: u64) -> Result<()> {
        let files = self.left.files.checked_sub(files);
        let Some((files, bytes)) = files.zip(self.left.bytes.checked_sub(bytes)) else {
            return Err(Error::history_too_large(format!(
                "the commits change more than {} files, or {} MiB of files and folders",
                self.limit.files,
                self.limit.bytes >> 20
            )));
        };
        self.left = ChangeLimit { files, bytes };
        Ok(())
    }
}

/// Returns the files that differ between two trees, and takes them from `budget`.
pub(super) fn compare(
    store: &Objects,
    old_tree: Oid,
    new_tree: Oid,
    budget: Option<&mut ChangeBudget>,
) -> Result<Vec<FilePair>> {
    let mut comparison = TreeComparison {
        store,
        prefix: Vec::new(),
        depth: 0,
        pairs: Vec::new(),
        budget,
    };
    comparison.folders(Some(old_tree), Some(new_tree))?;
    Ok(comparison.pairs)
}

/// A comparison of two trees.
struct TreeComparison<'a, 'b> {
    store: &'a Objects,
    /// The path of the folders that are compared.
    prefix: Vec<u8>,
    /// The number of its components.
    depth: usize,
    pairs: Vec<FilePair>,
    budget: Option<&'b mut ChangeBudget>,
}

impl TreeComparison<'_, '_> {
    /// Compares two folders with everything in them.
    fn folders(&mut self, old: Option<Oid>, new: Option<Oid>) -> Result<()> {
        if old == new {
            return Ok(());
        }
        check_interrupted()?;
        if self.depth >= MAX_DEPTH {
            let what = format!("path {}: too many folders", shown(&self.prefix));
            return Err(Error::history_too_large(what));
        }
        let mut old = self.read(old)?.into_iter().peekable();
        let mut new = self.read(new)?.into_iter().peekable();
        loop {
            let (one, two) = match (old.peek(), new.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => (old.next(), None),
                (None, Some(_)) => (None, new.next()),
                (Some(a), Some(b)) => match a.name.cmp(&b.name) {
                    std::cmp::Ordering::Less => (old.next(), None),
                    std::cmp::Ordering::Greater => (None, new.next()),
                    std::cmp::Ordering::Equal => (old.next(), new.next()),
                },
            };
            let Some(name) = one.as_ref().or(two.as_ref()).map(|entry| &entry.name) else {
                return Ok(());
            };
            let length = self.prefix.len();
            if !self.prefix.is_empty() {
                self.prefix.push(b'/');
            }
            self.prefix.extend_from_slice(name);
            self.depth += 1;
            self.entries(one.as_ref(), two.as_ref())?;
            self.depth -= 1;
            self.prefix.truncate(length);
        }
    }

    /// Compares two entries of the same name.
    fn entries(&mut self, old: Option<&TreeEntry>, new: Option<&TreeEntry>) -> Result<()> {
        let folder = |entry: Option<&TreeEntry>| {
            entry
                .filter(|entry| entry.mode == MODE_TREE)
                .map(|entry| entry.oid)
        };
        let file = |entry: Option<&TreeEntry>| {
            entry
                .filter(|entry| entry.mode != MODE_TREE)
                .map(|entry| FileSide {
                    mode: entry.mode,
                    oid: entry.oid,
                })
        };
        self.folders(folder(old), folder(new))?;
        let (old, new) = (file(old), file(new));
        if old == new {
            return Ok(());
        }
        if let Some(budget) = self.budget.as_deref_mut() {
            let mut bytes = 0;
            for side in [old, new].into_iter().flatten() {
                if side.mode != MODE_COMMIT {
                    bytes += self.store.size(side.oid)?;
                }
            }
            budget.take(1, bytes)?;
        }
        self.pairs.push(FilePair {
            old_path: self.prefix.clone(),
            new_path: self.prefix.clone(),
            old,
            new,
            similarity: None,
        });
        Ok(())
    }

    /// Returns the entries of a folder, sorted by name.
    fn read(&mut self, folder: Option<Oid>) -> Result<Vec<TreeEntry>> {
        let Some(folder) = folder else {
            return Ok(Vec::new());
        };
        if let Some(budget) = self.budget.as_deref_mut() {
            budget.take(0, self.store.size(folder)?)?;
        }
        let mut entries = self.store.read_tree(folder)?;
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }
}
