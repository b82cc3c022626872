//! The canonical form of a patch: the output of `git diff --full-index --binary -M OLD NEW`, generated in memory and
//! independent of any configuration, attribute or working tree.
//!
//! Only folders that differ are read. libgit2's copy of git's own algorithm compares the lines. Its detection of renames
//! differs from git's, so git itself finds them. The body of a binary change is compressed at zlib's
//! default level (git's own default is the fastest): `git -c core.compression=6 diff …` prints the same bytes.

mod rename;
mod text;

pub use super::tree_pairs::{ChangeBudget, ChangeLimit};

use std::collections::BTreeSet;

use git2::ObjectType;

use super::tree_pairs::{FilePair, FileSide, compare};
use super::{MovedLines, oid};
use crate::series::path::shown;
use crate::upstream::Objects;
use crate::upstream::objects::MODE_COMMIT;
use perfquilt_model::error::Result;

/// Returns the canonical diff between two trees, given by their hexadecimal ids; empty if they are equal.
pub fn diff(store: &Objects, old_tree: &str, new_tree: &str) -> Result<Vec<u8>> {
    Ok(commit_diff(store, old_tree, new_tree)?.0)
}

/// Returns the canonical diff between two trees, and the path of a submodule that differs: a patch cannot express that
/// change.
pub fn commit_diff(
    store: &Objects,
    old_tree: &str,
    new_tree: &str,
) -> Result<(Vec<u8>, Option<String>)> {
    let mut pairs = compare(store, oid(old_tree)?, oid(new_tree)?, None)?;
    let submodule = submodule(&pairs);
    // Trees sort folders as if they ended in a slash, so sorting by path gives the order of the trees.
    pairs.sort_by(|a, b| a.new_path.cmp(&b.new_path));
    let mut contents = ContentReader::new(store);
    let pairs = rename::detect(pairs, &mut contents)?;
    let mut out = Vec::new();
    for pair in &pairs {
        text::write(pair, &mut contents, &mut out)?;
    }
    Ok((out, submodule))
}

/// Returns the lines that move between two trees, given by their hexadecimal ids, of which one has other comments and white
/// space in files of C and C++ than the other; `None` if anything else differs.
pub fn moved_lines(store: &Objects, old_tree: &str, new_tree: &str) -> Result<Option<MovedLines>> {
    let mut contents = ContentReader::new(store);
    let mut moved = MovedLines::default();
    for pair in compare(store, oid(old_tree)?, oid(new_tree)?, None)? {
        let (Some(old), Some(new)) = (pair.old, pair.new) else {
            return Ok(None);
        };
        if old.mode != new.mode || old.mode == MODE_COMMIT {
            return Ok(None);
        }
        let (old, new) = (contents.read(old)?, contents.read(new)?);
        if !moved.add(&pair.new_path, &old, &new) {
            return Ok(None);
        }
    }
    Ok(Some(moved))
}

/// The paths that differ between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeChanges {
    /// The paths, sorted.
    pub paths: Vec<Vec<u8>>,
    /// The first of them that is a submodule; a patch cannot express its change.
    pub submodule: Option<String>,
}

/// Returns the sorted paths that differ between two trees.
pub fn changed_paths(store: &Objects, old_tree: &str, new_tree: &str) -> Result<Vec<Vec<u8>>> {
    Ok(tree_changes(store, old_tree, new_tree, None)?.paths)
}

/// Returns what differs between two trees, and takes it from `budget`.
pub fn tree_changes(
    store: &Objects,
    old_tree: &str,
    new_tree: &str,
    budget: Option<&mut ChangeBudget>,
) -> Result<TreeChanges> {
    let pairs = compare(store, oid(old_tree)?, oid(new_tree)?, budget)?;
    let submodule = submodule(&pairs);
    let paths: BTreeSet<Vec<u8>> = pairs.into_iter().map(|pair| pair.new_path).collect();
    Ok(TreeChanges {
        paths: paths.into_iter().collect(),
        submodule,
    })
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
pub fn is_binary(content: &[u8]) -> bool {
    content[..content.len().min(8000)].contains(&0)
}

/// Returns the path of the first submodule among differing files.
fn submodule(pairs: &[FilePair]) -> Option<String> {
    let is_submodule = |side: Option<FileSide>| side.is_some_and(|side| side.mode == MODE_COMMIT);
    let found = pairs
        .iter()
        .find(|pair| is_submodule(pair.old) || is_submodule(pair.new));
    found.map(|pair| shown(&pair.new_path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::path::MAX_DEPTH;
    use crate::upstream::objects::{MODE_FILE, MODE_TREE, TreeEntry, empty_tree, serialise_tree};

    fn store() -> (tempfile::TempDir, Objects) {
        let folder = tempfile::tempdir().unwrap();
        let store = Objects::open_or_create(&folder.path().join("objects.git")).unwrap();
        (folder, store)
    }

    /// Writes a tree of `depth` levels, each with `width` references to the one below, and a file in the lowest one.
    fn nested(store: &Objects, depth: usize, width: usize) -> String {
        let database = store.database().unwrap();
        let mut below = (MODE_FILE, database.write(ObjectType::Blob, b"x").unwrap());
        for _ in 0..depth {
            let mut entries: Vec<TreeEntry> = (0..width)
                .map(|at| TreeEntry {
                    name: format!("{at}").into_bytes(),
                    mode: below.0,
                    oid: below.1,
                })
                .collect();
            let tree = serialise_tree(&mut entries);
            below = (MODE_TREE, database.write(ObjectType::Tree, &tree).unwrap());
        }
        below.1.to_string()
    }

    #[test]
    fn a_tree_that_lists_itself_many_times_uses_up_its_budget() {
        let (_folder, store) = store();
        let empty = empty_tree().to_string();
        let within = |tree: &str, files: usize, bytes: u64| {
            let mut budget = ChangeBudget::new(ChangeLimit { files, bytes });
            tree_changes(&store, &empty, tree, Some(&mut budget)).map(|changes| changes.paths.len())
        };
        // Ten folders of ten files: 110 entries of 29 or 28 bytes, and one byte a file.
        let small = nested(&store, 2, 10);
        assert_eq!(within(&small, 100, 4000).unwrap(), 100);
        assert!(within(&small, 99, 4000).is_err());
        assert!(within(&small, 100, 3000).is_err());
        // Ten billion files.
        let bomb = nested(&store, 10, 10);
        for (files, bytes) in [(1000, u64::MAX), (usize::MAX, 1 << 20)] {
            let error = within(&bomb, files, bytes).unwrap_err();
            assert!(
                error.to_string().contains("the commits change more than"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_depth_of_trees_has_a_limit() {
        let (_folder, store) = store();
        let empty = empty_tree().to_string();
        let found = changed_paths(&store, &empty, &nested(&store, MAX_DEPTH, 1)).unwrap();
        assert_eq!(found.len(), 1);
        let error = changed_paths(&store, &empty, &nested(&store, MAX_DEPTH + 1, 1)).unwrap_err();
        assert!(error.to_string().ends_with("too many folders"), "{error}");
    }
}
