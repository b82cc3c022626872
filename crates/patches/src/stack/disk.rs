//! The files as GNU patch sees them while it works through one patch file.
//!
//! Patch deletes files when it has read the whole patch, and writes what git's diffs change later
//! still: each of them means the files as they were before, so that a file can be copied and changed,
//! or two files can change places. What follows from that is followed here, because it decides which
//! names exist.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::tree::{At, WorkingTree};
use crate::series::path::{self, shown};
use perfquilt_model::error::{Error, Result};

/// A file's mode and content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Git's mode.
    pub mode: u32,
    /// Its content; a symbolic link's is where it leads.
    pub content: Arc<Vec<u8>>,
}

/// Files to be patched.
pub trait Files {
    /// What is at `path`.
    ///
    /// # Errors
    /// When it cannot be read.
    fn at(&mut self, path: &[u8]) -> Result<At>;

    /// The content of the file at `path`, where [`Files::at`] found one.
    ///
    /// # Errors
    /// When it cannot be read.
    fn content(&mut self, path: &[u8]) -> Result<Arc<Vec<u8>>>;
}

impl Files for WorkingTree<'_> {
    fn at(&mut self, path: &[u8]) -> Result<At> {
        WorkingTree::at(self, path)
    }

    fn content(&mut self, path: &[u8]) -> Result<Arc<Vec<u8>>> {
        WorkingTree::content(self, path)
    }
}

/// What a patch makes of files: by path, the file it leaves, or `None` where it removes one.
pub type Outcomes = BTreeMap<Vec<u8>, Option<File>>;

/// A file's identity: whatever is written to a path is another file than was there before.
type Id = (Vec<u8>, u32);

/// The files with what was done to them so far.
pub(super) struct Disk<'f> {
    files: &'f mut dyn Files,
    written: BTreeMap<Vec<u8>, (u32, File)>,
    doomed: BTreeSet<Id>,
    queue: Vec<(Vec<u8>, File)>,
    queued: BTreeSet<Id>,
}

impl<'f> Disk<'f> {
    pub fn new(files: &'f mut dyn Files) -> Self {
        Disk {
            files,
            written: BTreeMap::new(),
            doomed: BTreeSet::new(),
            queue: Vec::new(),
            queued: BTreeSet::new(),
        }
    }

    fn id(&self, path: &[u8]) -> Id {
        let version = self.written.get(path).map_or(0, |(version, _)| *version);
        (path.to_vec(), version)
    }

    /// The file at `path`, whether it is to be deleted or not.
    ///
    /// # Errors
    /// [`Kind::Series`](perfquilt_model::error::Kind::Series) when it is no file, or can only be reached through
    /// a symbolic link.
    pub fn file(&mut self, path: &[u8]) -> Result<Option<File>> {
        match self.look(path)? {
            At::File { mode } => {
                if let Some((_, file)) = self.written.get(path) {
                    return Ok(Some(file.clone()));
                }
                let content = self.files.content(path)?;
                Ok(Some(File { mode, content }))
            }
            At::Nothing | At::Submodule | At::Blocked(_) => Ok(None),
            At::Folder => Err(Error::series(format!("{} is a folder", shown(path)))),
        }
    }

    /// Whether there is something at `path` that will stay.
    ///
    /// # Errors
    /// As [`Disk::file`].
    pub fn exists(&mut self, path: &[u8]) -> Result<bool> {
        Ok(match self.look(path)? {
            At::File { .. } => !self.doomed.contains(&self.id(path)),
            At::Folder => true,
            At::Nothing | At::Submodule | At::Blocked(_) => false,
        })
    }

    /// Whether a folder is at `path`.
    ///
    /// # Errors
    /// As [`Disk::file`].
    pub fn is_folder(&mut self, path: &[u8]) -> Result<bool> {
        Ok(self.look(path)? == At::Folder)
    }

    /// What stands in the way of `path`, if it is below a file, or a submodule.
    ///
    /// # Errors
    /// As [`Disk::file`].
    pub fn blocked(&mut self, path: &[u8]) -> Result<Option<String>> {
        Ok(match self.look(path)? {
            At::Blocked(what) => Some(what),
            At::Submodule => Some(format!("{} is a submodule", shown(path))),
            _ => None,
        })
    }

    fn look(&mut self, path: &[u8]) -> Result<At> {
        path::check(path).map_err(|error| Error::series(error.message().to_owned()))?;
        for above in folders(path) {
            if let Some((_, file)) = self.written.get(above) {
                let kind = match file.mode {
                    crate::upstream::objects::MODE_LINK => return Err(through_link(path, above)),
                    _ => "a file",
                };
                return Ok(At::Blocked(format!("{} is {kind}", shown(above))));
            }
        }
        if let Some((_, file)) = self.written.get(path) {
            return Ok(At::File { mode: file.mode });
        }
        let found = self.files.at(path)?;
        match &found {
            At::Blocked(what) if what.ends_with("a symbolic link") => {
                Err(Error::series(format!("{}: {what}", shown(path)))
                    .hint("a patch may not reach through it"))
            }
            At::Nothing => {
                if self.written_below(path) {
                    return Ok(At::Folder);
                }
                Ok(found)
            }
            _ => Ok(found),
        }
    }

    fn written_below(&self, path: &[u8]) -> bool {
        let inside = [path, b"/"].concat();
        let next = self.written.range(inside.clone()..).next();
        next.is_some_and(|(below, _)| below.starts_with(&inside))
    }

    /// Whether something is waiting to be written to `path`.
    pub fn waits(&self, path: &[u8]) -> bool {
        self.queue.iter().any(|(waiting, _)| waiting == path)
    }

    /// Tells whether the file at `path` is one that something waits for, and remembers that now
    /// something does.
    pub fn mark_queued(&mut self, path: &[u8]) -> bool {
        let id = self.id(path);
        !self.queued.insert(id)
    }

    /// Writes a file when the queue is emptied.
    pub fn write_later(&mut self, path: &[u8], file: File) {
        self.queue.push((path.to_vec(), file));
    }

    /// Writes a file.
    ///
    /// # Errors
    /// [`Kind::Series`](perfquilt_model::error::Kind::Series) when a file is where its folder must be, or a folder or a
    /// submodule where it must be itself.
    pub fn write(&mut self, path: &[u8], file: File) -> Result<()> {
        for above in folders(path) {
            let kind = match self.look(above)? {
                At::Submodule => "submodule",
                At::File { .. } | At::Blocked(_) => "file",
                At::Nothing | At::Folder => continue,
            };
            if !self.doomed.contains(&self.id(above)) {
                return Err(Error::series(format!(
                    "{} cannot be created: {} is a {kind}",
                    shown(path),
                    shown(above)
                )));
            }
        }
        if self.look(path)? == At::Submodule {
            return Err(Error::series(format!("{} is a submodule", shown(path))));
        }
        // A folder may have taken the place of a file that is to be deleted.
        if self.is_folder(path)? || self.written_below(path) {
            return Err(Error::series(format!("{} is a folder", shown(path))));
        }
        let id = self.id(path);
        self.doomed.remove(&id);
        self.written.insert(path.to_vec(), (id.1 + 1, file));
        Ok(())
    }

    /// Deletes the file that is at `path` now, when all is done.
    pub fn doom(&mut self, path: &[u8]) {
        let id = self.id(path);
        self.doomed.insert(id);
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// As [`Disk::write`].
    pub fn flush(&mut self) -> Result<()> {
        for (path, file) in std::mem::take(&mut self.queue) {
            self.write(&path, file)?;
        }
        Ok(())
    }

    /// Ends the patch.
    ///
    /// # Errors
    /// As [`Disk::write`].
    pub fn finish(mut self) -> Result<Outcomes> {
        self.flush()?;
        let mut outcomes = Outcomes::new();
        for (path, version) in &self.doomed {
            if self.id(path).1 == *version {
                outcomes.insert(path.clone(), None);
            }
        }
        for (path, (_, file)) in self.written {
            outcomes.entry(path).or_insert(Some(file));
        }
        Ok(outcomes)
    }
}

/// The folders above a path, the outermost first.
pub(super) fn folders(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'/')
        .map(|(end, _)| &path[..end])
}

fn through_link(path: &[u8], link: &[u8]) -> Error {
    Error::series(format!(
        "{}: {} is a symbolic link",
        shown(path),
        shown(link)
    ))
    .hint("a patch may not reach through it")
}
