//! A scratch tree for a rebase, which applies and reverts patches one by one or changes single files.

use std::sync::Arc;

use git2::{ObjectType, Oid};

use super::change::{PatchFit, apply_patch};
use super::commit::{self, put};
use super::oid;
use super::place::HunkPlaces;
use super::tree::{FileState, FileStates, PathState, WorkingTree};
use super::tree_object::{TreeObject, components};
use super::tree_pairs::compare;
use crate::series::{FileDiff, Hunk, Patch, Presence};
use crate::upstream::Objects;
use crate::upstream::object_writer::ObjectWriter;
use crate::upstream::objects::{MODE_EXEC, MODE_LINK};
use perfquilt_model::error::{Error, Result};

/// A file in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeFile {
    /// Git's mode.
    pub mode: u32,
    /// The id of its content.
    pub blob: Oid,
    /// Its content.
    pub content: Arc<Vec<u8>>,
}

impl From<TreeFile> for FileState {
    fn from(file: TreeFile) -> FileState {
        FileState {
            mode: file.mode,
            content: file.content,
        }
    }
}

impl TreeFile {
    /// Returns whether it is a symbolic link.
    pub fn is_link(&self) -> bool {
        self.mode == MODE_LINK
    }

    /// Returns its kind for messages: `file`, `executable` or `symbolic link`.
    pub fn kind(&self) -> &'static str {
        match self.mode {
            MODE_LINK => "symbolic link",
            MODE_EXEC => "executable",
            _ => "file",
        }
    }
}

/// A tree in memory with a writer for its new objects.
pub struct TrialTree<'a> {
    objects: &'a Objects,
    writer: ObjectWriter<'a>,
    tree: WorkingTree<'a>,
    /// The same tree by object ids.
    root: TreeObject,
}

impl<'a> TrialTree<'a> {
    /// Starts with `tree`, an object id.
    pub fn new(objects: &'a Objects, tree: &str) -> Result<TrialTree<'a>> {
        let writer = ObjectWriter::deferred(objects)?;
        let root = TreeObject::read(objects, oid(tree)?)?;
        Ok(TrialTree {
            objects,
            writer,
            tree: WorkingTree::new(objects, root.clone()),
            root,
        })
    }

    /// Replaces the tree by another one.
    pub fn reset(&mut self, tree: &str) -> Result<()> {
        self.root = TreeObject::read(self.objects, oid(tree)?)?;
        self.tree = WorkingTree::new(self.objects, self.root.clone());
        Ok(())
    }

    /// Applies a patch exactly, with an offset, or ignoring up to `fuzz` lines of context; on an error nothing changes.
    pub fn apply(&mut self, patch: &Patch, fuzz: usize) -> Result<PatchFit> {
        let fit = apply_patch(&mut self.tree, patch, fuzz)?;
        self.store()?;
        Ok(fit)
    }

    /// Reverts a patch exactly or with an offset; on an error nothing changes.
    ///
    /// # Errors
    /// [`Kind::Series`](perfquilt_model::error::Kind::Series) when the tree does not contain the patch's result, or
    /// when the result has no lines to locate.
    pub fn revert(&mut self, patch: &Patch) -> Result<PatchFit> {
        // A removed file is visible in the tree; removed lines without context are not.
        let unseen = |diff: &&FileDiff| {
            diff.after != Presence::Absent && diff.hunks.iter().any(Hunk::leaves_nothing)
        };
        if let Some(diff) = patch.files.iter().find(unseen) {
            return Err(Error::file_state(format!(
                "{} shows nothing of a hunk that only removes lines",
                diff.shown_name()
            ))
            .at(&patch.shown, diff.line));
        }
        // Where a file's new name or mode is not there, its reversal changes nothing, and so shows nothing.
        for diff in &patch.files {
            let mut mode = |name: &Option<Vec<u8>>| match name {
                Some(name) => self.tree.at(name).map(|state| match state {
                    PathState::File { mode } => Some(mode),
                    _ => None,
                }),
                None => Ok(None),
            };
            let (old, new) = (mode(&diff.old)?, mode(&diff.new)?);
            let moved = diff.rename || diff.copy;
            let sets_mode = diff.after != Presence::Absent && diff.new_mode.is_some();
            let is_gone = diff.after != Presence::Absent || old.is_none();
            let is_there = is_gone
                && !(moved && new.is_none() || diff.rename && old.is_some())
                && (!sets_mode || new == diff.new_mode);
            if !is_there {
                let what = format!(
                    "{} does not have the patch's name or mode",
                    diff.shown_name()
                );
                return Err(Error::file_state(what).at(&patch.shown, diff.line));
            }
        }
        let fit = apply_patch(&mut self.tree, &reversed(patch), 0)?;
        self.store()?;
        Ok(fit)
    }

    /// Returns whether every hunk's result occurs exactly once in its file, so that a reversal can only mean this place.
    pub fn has_result_once(&mut self, patch: &Patch) -> Result<bool> {
        for diff in &patch.files {
            let Some(path) = &diff.new else { continue };
            let Some(file) = self.file(path)? else {
                continue;
            };
            let reversed = diff.clone().reversed();
            let places = HunkPlaces::new(&file.content);
            let once = |hunk: &Hunk| places.of(hunk, 0).len() == 1;
            if !reversed.hunks.iter().all(once) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes the changed files, so that their blobs have ids.
    fn store(&mut self) -> Result<()> {
        for change in self.tree.take_changes() {
            put(
                self.objects,
                &mut self.root,
                change.into(),
                &mut self.writer,
            )?;
        }
        Ok(())
    }

    /// Returns the file at a path; `None` if there is no file or the path is blocked.
    pub fn file(&mut self, path: &[u8]) -> Result<Option<TreeFile>> {
        let Some((mode, blob)) = self.blob(path)? else {
            return Ok(None);
        };
        Ok(Some(TreeFile {
            mode,
            blob,
            content: self.tree.content(path)?,
        }))
    }

    /// Returns mode and blob of the file at a path, without reading its content; `None` if there is no file.
    pub fn blob(&mut self, path: &[u8]) -> Result<Option<(u32, Oid)>> {
        let PathState::File { mode } = self.tree.at(path)? else {
            return Ok(None);
        };
        let blob = self.root.file(self.objects, &components(path))?;
        Ok(blob.map(|blob| (mode, blob)))
    }

    /// Returns whether a folder is at a path.
    pub fn is_folder(&mut self, path: &[u8]) -> Result<bool> {
        Ok(self.tree.at(path)? == PathState::Folder)
    }

    /// Returns the reason why no file can be created at a path, if there is one.
    pub fn obstacle(&mut self, path: &[u8]) -> Result<Option<String>> {
        Ok(self.tree.at(path)?.obstacle(path))
    }

    /// Writes or removes files.
    pub fn change(&mut self, files: FileStates) -> Result<()> {
        self.tree.change(files)?;
        self.store()
    }

    /// Writes the tree and returns its id.
    pub fn write(&mut self) -> Result<String> {
        Ok(self.root.write(&mut self.writer)?.to_string())
    }

    /// Writes the commit of a patch whose result is `tree`; returns its id.
    pub fn commit(&mut self, tree: &str, parent: &str, patch: &Patch) -> Result<String> {
        let text = commit::text(oid(tree)?, oid(parent)?, patch);
        Ok(self.writer.write(ObjectType::Commit, &text)?.to_string())
    }

    /// Publishes the written objects in the store. Without it, only the same [`Objects`] can read them.
    pub fn finish(self) -> Result<()> {
        self.writer.finish()
    }
}

/// Returns the patch that undoes `patch`.
fn reversed(patch: &Patch) -> Patch {
    let mut back = patch.clone();
    // Renames inside one patch refer to the files before it, so the order does not matter to them; two changes of one
    // file must be reverted in the opposite order.
    back.files = patch
        .files
        .iter()
        .rev()
        .cloned()
        .map(FileDiff::reversed)
        .collect();
    back
}

/// Returns path and blob of every file of `tree` whose path does not exist in the tree `other`.
pub fn files_only_in(objects: &Objects, tree: &str, other: &str) -> Result<Vec<(Vec<u8>, Oid)>> {
    let pairs = compare(objects, oid(other)?, oid(tree)?, None)?.into_iter();
    let new = pairs.filter(|pair| pair.old.is_none());
    let mut found: Vec<_> = new
        .filter_map(|pair| Some((pair.new_path, pair.new?.oid)))
        .collect();
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::SeriesFile;
    use crate::upstream::objects::{MODE_COMMIT, MODE_FILE, TreeEntry, serialise_tree};

    #[test]
    fn a_file_does_not_take_a_submodules_place() {
        let folder = tempfile::tempdir().unwrap();
        let store = Objects::open_or_create(&folder.path().join("objects.git")).unwrap();
        let mut entries = [TreeEntry {
            name: b"sub".to_vec(),
            mode: MODE_COMMIT,
            oid: git2::Oid::from_bytes(&[1; 20]).unwrap(),
        }];
        let tree = serialise_tree(&mut entries);
        let tree = store.database().unwrap().write(ObjectType::Tree, &tree);
        let tree = tree.unwrap().to_string();
        let (series, _) = SeriesFile::parse(b"p.patch\n", "series");
        let mut trial = TrialTree::new(&store, &tree).unwrap();
        for path in ["sub", "sub/x"] {
            let patch = format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n");
            let patch = Patch::parse(&series.entries()[0], "p", patch.as_bytes()).unwrap();
            let error = trial.apply(&patch, 0).unwrap_err();
            assert!(error.to_string().ends_with("sub is a submodule"), "{error}");
        }
        assert_eq!(trial.write().unwrap(), tree);
    }

    #[test]
    fn removed_lines_without_context_cannot_be_reverted() {
        let folder = tempfile::tempdir().unwrap();
        let store = Objects::open_or_create(&folder.path().join("objects.git")).unwrap();
        let database = store.database().unwrap();
        let blob = database.write(ObjectType::Blob, b"a\nold(2);\n").unwrap();
        let mut entries = [TreeEntry {
            name: b"f".to_vec(),
            mode: MODE_FILE,
            oid: blob,
        }];
        let tree = serialise_tree(&mut entries);
        let tree = database.write(ObjectType::Tree, &tree).unwrap().to_string();
        let (series, _) = SeriesFile::parse(b"p.patch\n", "series");
        let patch = |text: &str| Patch::parse(&series.entries()[0], "p", text.as_bytes()).unwrap();
        let mut trial = TrialTree::new(&store, &tree).unwrap();
        let removes = patch("--- a/f\n+++ b/f\n@@ -2 +1,0 @@\n-old(1);\n");
        assert!(trial.revert(&removes).is_err());
        assert_eq!(trial.write().unwrap(), tree);
        // A removed file and removed lines with context can be reverted.
        let deletes = patch("--- a/g\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n");
        assert!(trial.revert(&deletes).is_ok());
        let between = patch("--- a/f\n+++ b/f\n@@ -1,3 +1,2 @@\n a\n-old(1);\n old(2);\n");
        assert!(trial.revert(&between).is_ok());
    }
}
