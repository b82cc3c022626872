//! Digests of trees that cover only the relevant parts of their files.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use git2::Oid;
use sha2::{Digest, Sha256};

use super::oid;
use crate::upstream::Objects;
use crate::upstream::objects::MODE_TREE;
use perfquilt_model::error::Result;
use perfquilt_system::digest::add;

/// The part of a file that a digest covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelevantPart {
    /// Its name, mode and content.
    Content,
    /// Its name only.
    Name,
    /// No part; the file is ignored.
    Nothing,
}

/// Computes digests of the relevant parts of trees. Caches the digests of folders, because the trees of one release
/// share most of them.
#[derive(Debug)]
pub struct TreeDigests {
    /// Returns the relevant part of a file, given its name without folder.
    relevant_part: fn(&str) -> RelevantPart,
    known: Mutex<HashMap<Oid, Option<FolderDigest>>>,
}

/// The digest of a folder.
type FolderDigest = [u8; 32];

impl TreeDigests {
    /// Creates a cache of digests; `relevant_part` returns the part to cover of a file, given its name without folder.
    pub fn new(relevant_part: fn(&str) -> RelevantPart) -> Self {
        TreeDigests {
            relevant_part,
            known: Mutex::default(),
        }
    }

    /// Returns the digest of `tree`, an object id, in hexadecimal.
    pub fn digest(&self, object_store: &Path, tree: &str) -> Result<String> {
        let objects = Objects::open(object_store)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let root = self.folder(&objects, oid(tree)?, &mut known)?;
        Ok(hex::encode(root.unwrap_or_default()))
    }

    /// Returns the digest of a folder; `None` if it has no relevant files.
    fn folder(
        &self,
        objects: &Objects,
        tree: Oid,
        known: &mut HashMap<Oid, Option<FolderDigest>>,
    ) -> Result<Option<FolderDigest>> {
        if let Some(part) = known.get(&tree) {
            return Ok(*part);
        }
        let mut digest = Sha256::new();
        let mut empty = true;
        for entry in objects.read_tree(tree)? {
            // The three kinds of parts differ in length, so their digests cannot collide.
            let part = if entry.mode == MODE_TREE {
                match self.folder(objects, entry.oid, known)? {
                    Some(part) => part.to_vec(),
                    None => continue,
                }
            } else {
                match (self.relevant_part)(&String::from_utf8_lossy(&entry.name)) {
                    RelevantPart::Content => {
                        [entry.oid.as_bytes(), entry.mode.to_le_bytes().as_slice()].concat()
                    }
                    RelevantPart::Name => Vec::new(),
                    RelevantPart::Nothing => continue,
                }
            };
            empty = false;
            add(&mut digest, &entry.name);
            add(&mut digest, &part);
        }
        let part: Option<FolderDigest> = (!empty).then(|| digest.finalize().into());
        known.insert(tree, part);
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use git2::ObjectType;

    use super::*;
    use crate::upstream::objects::{MODE_FILE, TreeEntry, hash, serialise_tree};

    #[test]
    fn only_relevant_parts_change_the_digest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let store = Objects::open_or_create(&path).unwrap();
        let tree = |files: &[(&str, &str)], folders: &[(&str, &str)]| {
            let entry = |name: &str, mode, oid| TreeEntry {
                name: name.into(),
                mode,
                oid,
            };
            let file = |(name, text): &(&str, &str)| {
                entry(name, MODE_FILE, hash(ObjectType::Blob, text.as_bytes()))
            };
            let below = |(name, id): &(&str, &str)| entry(name, MODE_TREE, oid(id).unwrap());
            let mut entries: Vec<TreeEntry> = files
                .iter()
                .map(file)
                .chain(folders.iter().map(below))
                .collect();
            let database = store.database().unwrap();
            let data = serialise_tree(&mut entries);
            database.write(ObjectType::Tree, &data).unwrap().to_string()
        };
        let trees = TreeDigests::new(|name| match name {
            "build" => RelevantPart::Content,
            "remark" => RelevantPart::Nothing,
            _ => RelevantPart::Name,
        });
        let digest = |files: &[(&str, &str)], below: &[(&str, &str)]| {
            let inner = tree(below, &[]);
            trees
                .digest(&path, &tree(files, &[("sub", inner.as_str())]))
                .unwrap()
        };
        let plain = digest(&[("a.c", "1"), ("build", "1")], &[("b.c", "1")]);
        let same = [
            digest(&[("a.c", "2"), ("build", "1")], &[("b.c", "2")]),
            digest(
                &[("a.c", "1"), ("build", "1"), ("remark", "1")],
                &[("b.c", "1")],
            ),
        ];
        assert_eq!(same, [plain.clone(), plain.clone()]);
        let others = [
            digest(&[("a.c", "1"), ("build", "2")], &[("b.c", "1")]),
            digest(
                &[("a.c", "1"), ("build", "1")],
                &[("b.c", "1"), ("c.c", "1")],
            ),
            digest(&[("build", "1")], &[("a.c", "1"), ("b.c", "1")]),
            digest(&[("a.c", "1"), ("build", "1")], &[("remark", "1")]),
        ];
        for other in others {
            assert_ne!(other, plain);
        }
    }
}
