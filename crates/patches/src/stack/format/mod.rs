//! The canonical form of a patch: the output of `git diff --full-index --binary -M OLD NEW`, generated in memory and
//! independent of any configuration, attribute or working tree.
//!
//! Only folders that differ are read. libgit2's copy of git's own algorithm compares the lines. The module `rename`
//! detects renames like git, because libgit2's detection differs. The body of a binary change is compressed at zlib's
//! default level (git's own default is the fastest): `git -c core.compression=6 diff …` prints the same bytes.

mod rename;
mod text;

use std::collections::BTreeSet;

use git2::{ObjectType, Oid};

use super::oid;
use crate::upstream::Objects;
use crate::upstream::objects::{MODE_COMMIT, MODE_TREE, TreeEntry};
use perfquilt_model::error::Result;

/// One side of a changed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileSide {
    mode: u32,
    oid: Oid,
}

/// A file that differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FilePair {
    old_path: Vec<u8>,
    new_path: Vec<u8>,
    old: Option<FileSide>,
    new: Option<FileSide>,
    /// The similarity of both sides of a rename, out of [`rename::MAX_SCORE`].
    score: Option<u64>,
}

/// Returns the canonical diff between two trees, given by their hexadecimal ids; empty if they are equal.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when an object is missing or damaged.
pub fn diff(store: &Objects, old_tree: &str, new_tree: &str) -> Result<Vec<u8>> {
    let mut pairs = Vec::new();
    let (old, new) = (oid(old_tree)?, oid(new_tree)?);
    compare(store, Some(old), Some(new), &mut Vec::new(), &mut pairs)?;
    // Trees sort folders as if they ended in a slash, so sorting by path gives the order of the trees.
    pairs.sort_by(|a, b| a.new_path.cmp(&b.new_path));
    let mut contents = ContentReader::new(store);
    let pairs = rename::detect(pairs, &mut contents)?;
    let mut out = Vec::new();
    for pair in &pairs {
        text::write(pair, &mut contents, &mut out)?;
    }
    Ok(out)
}

/// Returns the sorted paths that differ between two trees.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when an object is missing or damaged.
pub fn changed_paths(store: &Objects, old_tree: &str, new_tree: &str) -> Result<Vec<Vec<u8>>> {
    let mut pairs = Vec::new();
    let (old, new) = (oid(old_tree)?, oid(new_tree)?);
    compare(store, Some(old), Some(new), &mut Vec::new(), &mut pairs)?;
    let paths: BTreeSet<Vec<u8>> = pairs.into_iter().map(|pair| pair.new_path).collect();
    Ok(paths.into_iter().collect())
}

fn compare(
    store: &Objects,
    old: Option<Oid>,
    new: Option<Oid>,
    prefix: &mut Vec<u8>,
    pairs: &mut Vec<FilePair>,
) -> Result<()> {
    if old == new {
        return Ok(());
    }
    let read = |tree: Option<Oid>| match tree {
        Some(tree) => store.read_tree(tree),
        None => Ok(Vec::new()),
    };
    let mut old = read(old)?;
    let mut new = read(new)?;
    old.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    new.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let (mut old, mut new) = (old.into_iter().peekable(), new.into_iter().peekable());
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
        let length = prefix.len();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        prefix.extend_from_slice(name);
        let folder = |entry: &Option<TreeEntry>| {
            entry
                .as_ref()
                .filter(|entry| entry.mode == MODE_TREE)
                .map(|entry| entry.oid)
        };
        let file = |entry: &Option<TreeEntry>| {
            entry
                .as_ref()
                .filter(|entry| entry.mode != MODE_TREE)
                .map(|entry| FileSide {
                    mode: entry.mode,
                    oid: entry.oid,
                })
        };
        compare(store, folder(&one), folder(&two), prefix, pairs)?;
        let (one, two) = (file(&one), file(&two));
        if one != two {
            pairs.push(FilePair {
                old_path: prefix.clone(),
                new_path: prefix.clone(),
                old: one,
                new: two,
                score: None,
            });
        }
        prefix.truncate(length);
    }
}

/// Reads the contents of files.
struct ContentReader<'a> {
    store: &'a Objects,
}

impl<'a> ContentReader<'a> {
    fn new(store: &'a Objects) -> Self {
        ContentReader { store }
    }

    fn read(&mut self, side: FileSide) -> Result<Vec<u8>> {
        if side.mode == MODE_COMMIT {
            // Git's diff shows a submodule as this line.
            return Ok(format!("Subproject commit {}\n", side.oid).into_bytes());
        }
        self.store.read(side.oid, ObjectType::Blob)
    }
}

/// Returns whether git considers the content binary: it has a NUL among the first 8000 bytes.
fn is_binary(content: &[u8]) -> bool {
    content[..content.len().min(8000)].contains(&0)
}

/// Returns the path of a submodule that differs between two trees; a patch cannot express that change.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when an object is missing or damaged.
pub fn changed_submodule(
    store: &Objects,
    old_tree: &str,
    new_tree: &str,
) -> Result<Option<String>> {
    let mut pairs = Vec::new();
    let (old, new) = (oid(old_tree)?, oid(new_tree)?);
    compare(store, Some(old), Some(new), &mut Vec::new(), &mut pairs)?;
    let submodule = |side: Option<FileSide>| side.is_some_and(|side| side.mode == MODE_COMMIT);
    Ok(pairs
        .into_iter()
        .find(|pair| submodule(pair.old) || submodule(pair.new))
        .map(|pair| crate::series::path::shown(&pair.new_path)))
}
