//! Writing the chain of commits. While the next patches are applied, one thread hashes the new contents, and another
//! one stores them with their trees and commits.

use std::sync::mpsc::{Receiver, SyncSender};

use git2::{ObjectType, Oid};

use super::tree::{FileChange, FileState};
use super::tree_object::{TreeObject, components};
use crate::series::message::{ends_in_trailers, patch_line};
use crate::series::{Patch, Timestamp};
use crate::upstream::Objects;
use crate::upstream::object_writer::ObjectWriter;
use crate::upstream::objects::hash;
use perfquilt_model::error::Result;
use perfquilt_pack::delta;
use perfquilt_system::process::check_interrupted;

/// The changes of one patch.
pub struct PatchChanges<'p, C = FileChange> {
    /// The patch.
    pub patch: &'p Patch,
    /// Its changes, in order.
    pub changes: Vec<C>,
}

/// A change with its precomputed object id and delta.
pub struct HashedChange {
    change: FileChange,
    /// The id of the content; `None` for a removal.
    blob: Option<Oid>,
    /// The delta from the previous content, if computed.
    delta: Option<Vec<u8>>,
}

impl From<FileChange> for HashedChange {
    fn from(change: FileChange) -> Self {
        let file = change.file.as_ref();
        HashedChange {
            blob: file.map(|file| hash(ObjectType::Blob, &file.content)),
            change,
            delta: None,
        }
    }
}

impl HashedChange {
    fn with_delta(mut self) -> Self {
        if let (Some(file), Some(before)) = (&self.change.file, &self.change.before) {
            self.delta = Some(delta::of_lines(before, &file.content));
        }
        self
    }
}

/// Hashes the received changes and passes them on, until either channel closes.
pub fn hash_all<'p>(
    steps: &Receiver<PatchChanges<'p>>,
    named: &SyncSender<PatchChanges<'p, HashedChange>>,
) {
    for PatchChanges { patch, changes } in steps {
        let changes = changes.into_iter();
        let changes = changes.map(|change| HashedChange::from(change).with_delta());
        let changes = changes.collect();
        if named.send(PatchChanges { patch, changes }).is_err() {
            break;
        }
    }
}

/// A commit and its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommittedTree {
    /// The commit.
    pub commit: Oid,
    /// Its tree.
    pub tree: Oid,
}

/// Commits the changes of each patch on top of the previous one, the first on `start`, until the channel closes. Then
/// it publishes all new objects at once. `expected` is the approximate number of patches.
pub fn commit_all(
    objects: &Objects,
    start: CommittedTree,
    expected: usize,
    steps: &Receiver<PatchChanges<'_, HashedChange>>,
) -> Result<Vec<CommittedTree>> {
    // An estimate: a patch writes a few blobs, the trees above them and a commit.
    let mut writer = ObjectWriter::new(objects, expected * 8)?;
    let mut root = TreeObject::read(objects, start.tree)?;
    let mut parent = start.commit;
    let mut done = Vec::with_capacity(expected);
    for step in steps {
        for change in step.changes {
            put(objects, &mut root, change, &mut writer)?;
        }
        let tree = root.write(&mut writer)?;
        parent = writer.write(ObjectType::Commit, &text(tree, parent, step.patch))?;
        done.push(CommittedTree {
            commit: parent,
            tree,
        });
    }
    // Publishing takes time, so an interrupted run skips it.
    check_interrupted()?;
    writer.finish()?;
    Ok(done)
}

/// Stores one change and applies it to the tree `root`.
pub fn put(
    objects: &Objects,
    root: &mut TreeObject,
    named: HashedChange,
    writer: &mut ObjectWriter<'_>,
) -> Result<()> {
    let HashedChange {
        change: FileChange { path, file, before },
        blob,
        delta,
    } = named;
    let path = components(&path);
    let Some(FileState { mode, content }) = file else {
        return root.remove(objects, &path);
    };
    let base = match before {
        Some(before) => root.file(objects, &path)?.map(|oid| (oid, before)),
        None => None,
    };
    let oid = blob.unwrap_or_else(|| hash(ObjectType::Blob, &content));
    match base {
        Some((base, before)) => {
            writer.write_version((ObjectType::Blob, oid), &content, base, || {
                delta.unwrap_or_else(|| delta::of_lines(&before, &content))
            })?
        }
        None => writer.write_named(ObjectType::Blob, oid, &content)?,
    }
    root.set(objects, &path, mode, oid)
}

/// Returns the content of a commit object. It depends only on the arguments.
pub fn text(tree: Oid, parent: Oid, patch: &Patch) -> Vec<u8> {
    let header = &patch.header;
    let date = header.date.unwrap_or_default();
    let (name, email) = match &header.author {
        Some(person) => (person.name.as_str(), person.email.as_str()),
        None => ("unknown", ""),
    };
    let when = git_date(date);
    let mut text = format!(
        "tree {tree}\nparent {parent}\nauthor {name} <{email}> {when}\n\
         committer perfquilt <perfquilt@localhost> {when}\n\n{}\n",
        patch.title
    );
    let body = header.text_below(&patch.title);
    if !body.is_empty() {
        text.push('\n');
        text.push_str(body);
        text.push('\n');
    }
    // Trailers stay one paragraph, as git's own commands expect.
    let gap = if ends_in_trailers(body) { "" } else { "\n" };
    text.push_str(&format!("{gap}{}\n", patch_line(&patch.name)));
    // Git ends a message at a NUL.
    text.replace('\0', "\u{fffd}").into_bytes()
}

fn git_date(date: Timestamp) -> String {
    let offset = date.offset_minutes.clamp(-1439, 1439);
    let sign = if offset < 0 { '-' } else { '+' };
    format!(
        "{} {sign}{:02}{:02}",
        date.seconds.max(0),
        offset.abs() / 60,
        offset.abs() % 60
    )
}
