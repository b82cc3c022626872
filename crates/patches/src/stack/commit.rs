//! Writing the chain of commits: one thread names the contents that applying the patches made, another
//! stores them with their trees and commits, while the next patches are applied.

use std::sync::mpsc::{Receiver, SyncSender};

use git2::{ObjectType, Oid};

use super::folder::Folder;
use super::tree::FileChange;
use crate::series::{Patch, Timestamp};
use crate::upstream::Objects;
use crate::upstream::delta;
use crate::upstream::objects::hash;
use crate::upstream::pack::ObjectWriter;
use perfquilt_model::error::Result;
use perfquilt_system::process::check_interrupted;

/// What one patch changed.
pub struct Step<'p, C = FileChange> {
    /// The patch.
    pub patch: &'p Patch,
    /// Its changes, in order.
    pub changes: Vec<C>,
}

/// A change and what can be found out about it without any other.
pub struct Named {
    change: FileChange,
    /// The content's name; none for a removal.
    blob: Option<Oid>,
    /// What makes the content out of what was there before, once that was computed.
    delta: Option<Vec<u8>>,
}

impl From<FileChange> for Named {
    fn from(change: FileChange) -> Self {
        let blob = match &change {
            FileChange::Set { content, .. } => Some(hash(ObjectType::Blob, content)),
            FileChange::Remove { .. } => None,
        };
        Named {
            change,
            blob,
            delta: None,
        }
    }
}

impl Named {
    fn with_delta(mut self) -> Self {
        if let FileChange::Set {
            content,
            before: Some(before),
            ..
        } = &self.change
        {
            self.delta = Some(delta::of_lines(&before.content, content));
        }
        self
    }
}

/// Names what comes in and passes it on, until there is no more or nobody takes it.
pub fn name_all<'p>(steps: &Receiver<Step<'p>>, named: &SyncSender<Step<'p, Named>>) {
    for Step { patch, changes } in steps {
        let changes = changes.into_iter();
        let changes = changes.map(|change| Named::from(change).with_delta());
        let changes = changes.collect();
        if named.send(Step { patch, changes }).is_err() {
            break;
        }
    }
}

/// A commit and its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The commit.
    pub commit: Oid,
    /// Its tree.
    pub tree: Oid,
}

/// Commits each step on top of the one before, the first on `start`, until there are no more, and
/// then publishes all new objects at once. About `expected` steps will come.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the store cannot be read or written.
pub fn commit_all(
    objects: &Objects,
    start: Committed,
    expected: usize,
    steps: &Receiver<Step<'_, Named>>,
) -> Result<Vec<Committed>> {
    // A patch writes a few blobs, the trees above them and a commit.
    let mut writer = ObjectWriter::new(objects, expected * 8)?;
    let mut root = Folder::read(objects, start.tree)?;
    let mut parent = start.commit;
    let mut done = Vec::with_capacity(expected);
    for step in steps {
        for change in step.changes {
            put(objects, &mut root, change, &mut writer)?;
        }
        let tree = root.write(&mut writer)?;
        parent = writer.write(ObjectType::Commit, &text(tree, parent, step.patch))?;
        done.push(Committed {
            commit: parent,
            tree,
        });
    }
    // Whoever interrupts wants no more work done.
    check_interrupted()?;
    writer.finish()?;
    Ok(done)
}

/// Stores one change and puts it into the tree that begins with `root`.
///
/// # Errors
/// As [`commit_all`].
pub fn put(
    objects: &Objects,
    root: &mut Folder,
    named: Named,
    writer: &mut ObjectWriter<'_>,
) -> Result<()> {
    let Named {
        change,
        blob,
        delta,
    } = named;
    match change {
        FileChange::Remove { path } => root.remove(objects, &components(&path)),
        FileChange::Set {
            path,
            mode,
            content,
            before,
        } => {
            let path = components(&path);
            let base = match before {
                Some(before) => root.file(objects, &path)?.map(|oid| (oid, before)),
                None => None,
            };
            let oid = blob.unwrap_or_else(|| hash(ObjectType::Blob, &content));
            match base {
                Some((base, before)) => writer.write_version(
                    (ObjectType::Blob, oid),
                    &content,
                    base,
                    before.chain.as_ref(),
                    || delta.unwrap_or_else(|| delta::of_lines(&before.content, &content)),
                )?,
                None => writer.write_named(ObjectType::Blob, oid, &content)?,
            }
            root.set(objects, &path, mode, oid)
        }
    }
}

fn components(path: &[u8]) -> Vec<&[u8]> {
    path.split(|&b| b == b'/').collect()
}

/// A commit object that depends on nothing but its arguments.
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
    text.push_str(&format!("\nPatch: {}\n", patch.name));
    // A NUL would end the message for git.
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
