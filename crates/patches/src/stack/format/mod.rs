//! The canonical form of a patch: what `git diff --full-index --binary -M OLD NEW` prints, made in
//! memory and independent of any configuration, attribute or working tree.
//!
//! Only folders that differ are read. The lines are compared by libgit2's copy of git's own
//! algorithm; renames are found as git finds them (`rename`), which libgit2 does differently. The
//! body of a binary change is compressed at zlib's default level (git's own default is the fastest):
//! `git -c core.compression=6 diff …` prints the same bytes.

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
struct Side {
    mode: u32,
    oid: Oid,
}

/// A file that differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pair {
    old_path: Vec<u8>,
    new_path: Vec<u8>,
    old: Option<Side>,
    new: Option<Side>,
    /// How alike both sides of a rename are, out of [`rename::MAX_SCORE`].
    score: Option<u64>,
}

/// The canonical diff from one tree to another; empty when they are the same. Trees are named in
/// hexadecimal.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when an object is missing or damaged.
pub fn diff(store: &Objects, old_tree: &str, new_tree: &str) -> Result<Vec<u8>> {
    let mut pairs = Vec::new();
    let (old, new) = (oid(old_tree)?, oid(new_tree)?);
    compare(store, Some(old), Some(new), &mut Vec::new(), &mut pairs)?;
    // Folders sort as if they ended in a slash, so that this is the order of the trees too.
    pairs.sort_by(|a, b| a.new_path.cmp(&b.new_path));
    let mut contents = Contents::new(store);
    let pairs = rename::detect(pairs, &mut contents)?;
    let mut out = Vec::new();
    for pair in &pairs {
        text::write(pair, &mut contents, &mut out)?;
    }
    Ok(out)
}

/// Paths that differ between two trees, in order.
///
/// # Errors
/// As [`diff`].
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
    pairs: &mut Vec<Pair>,
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
                .map(|entry| Side {
                    mode: entry.mode,
                    oid: entry.oid,
                })
        };
        compare(store, folder(&one), folder(&two), prefix, pairs)?;
        let (one, two) = (file(&one), file(&two));
        if one != two {
            pairs.push(Pair {
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

/// Contents of files, read when asked for.
struct Contents<'a> {
    store: &'a Objects,
}

impl<'a> Contents<'a> {
    fn new(store: &'a Objects) -> Self {
        Contents { store }
    }

    fn read(&mut self, side: Side) -> Result<Vec<u8>> {
        if side.mode == MODE_COMMIT {
            // What git shows of a submodule.
            return Ok(format!("Subproject commit {}\n", side.oid).into_bytes());
        }
        self.store.read(side.oid, ObjectType::Blob)
    }
}

/// Git's notion of a binary file: a NUL among the first 8000 bytes.
fn is_binary(content: &[u8]) -> bool {
    content[..content.len().min(8000)].contains(&0)
}

/// A submodule that differs between two trees, which no patch can express.
///
/// # Errors
/// As [`diff`].
pub fn changed_submodule(
    store: &Objects,
    old_tree: &str,
    new_tree: &str,
) -> Result<Option<String>> {
    let mut pairs = Vec::new();
    let (old, new) = (oid(old_tree)?, oid(new_tree)?);
    compare(store, Some(old), Some(new), &mut Vec::new(), &mut pairs)?;
    let submodule = |side: Option<Side>| side.is_some_and(|side| side.mode == MODE_COMMIT);
    Ok(pairs
        .into_iter()
        .find(|pair| submodule(pair.old) || submodule(pair.new))
        .map(|pair| crate::series::path::shown(&pair.new_path)))
}
