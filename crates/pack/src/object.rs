//! Git's objects: kinds and ids.

use sha1::{Digest, Sha1};

/// The id of an object, a SHA-1.
pub type ObjectId = [u8; 20];

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// A commit.
    Commit,
    /// A tree.
    Tree,
    /// A blob.
    Blob,
    /// A tag.
    Tag,
}

impl ObjectKind {
    /// Returns git's name of it.
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::Commit => "commit",
            ObjectKind::Tree => "tree",
            ObjectKind::Blob => "blob",
            ObjectKind::Tag => "tag",
        }
    }

    /// Returns its number in the header of a pack's entry.
    pub(crate) fn number(self) -> u8 {
        match self {
            ObjectKind::Commit => 1,
            ObjectKind::Tree => 2,
            ObjectKind::Blob => 3,
            ObjectKind::Tag => 4,
        }
    }
}

/// Returns git's id of an object.
pub fn hash(kind: ObjectKind, data: &[u8]) -> ObjectId {
    let mut hasher = Sha1::new();
    hasher.update(format!("{} {}\0", kind.name(), data.len()));
    hasher.update(data);
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_as_git_does() {
        let hex = |id: ObjectId| id.map(|byte| format!("{byte:02x}")).concat();
        let empty_blob = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
        let empty_tree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        assert_eq!(hex(hash(ObjectKind::Blob, b"")), empty_blob);
        assert_eq!(hex(hash(ObjectKind::Tree, b"")), empty_tree);
    }
}
