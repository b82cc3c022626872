//! Checking trees out to a folder. A move from one tree to the next writes only the files that differ, so that all
//! others keep their modification time and are not recompiled.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use git2::{ObjectType, Oid};

use super::oid;
use super::tree_pairs::{FileSide, compare};
use crate::series::path;
use crate::upstream::Objects;
use crate::upstream::objects::{MODE_COMMIT, MODE_EXEC, MODE_LINK, empty_tree};
use perfquilt_model::error::{Error, Result};
use perfquilt_model::progress;
use perfquilt_system::files::if_there;
use perfquilt_system::locks::{self, Lock};
use perfquilt_system::process::check_interrupted;

/// Age of the files of a new folder: what a later move writes is newer, even where a file system rounds times.
const AGE: Duration = Duration::from_secs(3600);

/// A folder with the files of one tree.
///
/// A journal next to it (`DIR.tree`) names this tree and, during a move, also the target. After a kill, the next move
/// compares every file in which these trees differ.
pub struct Worktree {
    files: FolderFiles,
    journal: PathBuf,
    _lock: Lock,
}

/// The files of a folder, without the journal.
struct FolderFiles {
    objects: Objects,
    root: PathBuf,
}

/// The result of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MoveResult {
    /// Number of files written.
    pub written: usize,
    /// Number of files removed.
    pub removed: usize,
}

/// Paths where trees differ, with the file of the target tree.
type Differences = BTreeMap<Vec<u8>, Option<FileSide>>;

impl Worktree {
    /// Opens or creates the worktree at `dir`. Moves touch only files of the trees; build products stay.
    pub fn open(object_store: &Path, dir: &Path) -> Result<Worktree> {
        let root = std::path::absolute(dir).map_err(|e| Error::io("find", dir, &e))?;
        std::fs::create_dir_all(&root).map_err(|e| Error::io("create", &root, &e))?;
        let beside = |end: &str| {
            let mut name = root.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        let lock = locks::try_now(&beside(".lock"))?.ok_or_else(|| {
            Error::locked(format!("another process works in {}", root.display()))
                .hint("wait for it, or stop it")
        })?;
        Ok(Worktree {
            journal: beside(".tree"),
            files: FolderFiles {
                objects: Objects::open(object_store)?,
                root,
            },
            _lock: lock,
        })
    }

    /// Changes the files to those of `tree`. Files that are equal in both trees are not touched. All others get one time: make
    /// would run autotools again if a file that they generated looked older than its source.
    ///
    /// # Errors
    /// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted) (the next move continues from there),
    /// [`Kind::Usage`](perfquilt_model::error::Kind::Usage) when the journal is damaged,
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when a file cannot be written.
    pub fn move_to(&self, tree: &str) -> Result<MoveResult> {
        let target = oid(tree)?;
        let mut trees = self.read_journal()?;
        if trees == [target] {
            return Ok(MoveResult::default());
        }
        if !self.has_trees(&trees)? {
            // The tree is of another object store, so its files are unknown.
            progress::note(&format!(
                "{} belongs to another workspace; replacing its files",
                self.files.root.display()
            ));
            // After a kill, the workspace that owns the tree must not consider the remaining files complete.
            trees.push(empty_tree());
            self.write_journal(&trees)?;
            self.empty()?;
            trees = vec![empty_tree()];
        }
        // After a kill, each file is as in one of these trees or half written. A file that is equal in all of them was
        // not touched.
        let interrupted = trees.len() > 1;
        let time = self.time(trees.contains(&empty_tree()));
        let mut differences = Differences::new();
        for from in &trees {
            self.files.compare(*from, target, &mut differences)?;
        }
        if !trees.contains(&target) {
            trees.push(target);
        }
        self.write_journal(&trees)?;
        let moved = self.files.apply(&differences, interrupted, time)?;
        self.write_journal(&[target])?;
        File::options()
            .write(true)
            .open(&self.journal)
            .and_then(|journal| journal.set_modified(time))
            .map_err(|e| Error::io("write", &self.journal, &e))?;
        Ok(moved)
    }

    /// Returns the time of the files of a move. It rises from move to move, whatever the clock does.
    fn time(&self, is_new: bool) -> SystemTime {
        let now = SystemTime::now();
        if is_new {
            return now - AGE;
        }
        // The journal has the time of the last move.
        let last = std::fs::metadata(&self.journal).and_then(|meta| meta.modified());
        last.map_or(now, |last| now.max(last + Duration::from_millis(1)))
    }

    /// Returns the paths that a move to `tree` would write (`true`) or remove; `None` if the tree is of another object store.
    pub fn changes(&self, tree: &str) -> Result<Option<BTreeMap<Vec<u8>, bool>>> {
        let trees = self.read_journal()?;
        if !self.has_trees(&trees)? {
            return Ok(None);
        }
        let mut differences = Differences::new();
        for from in trees {
            self.files.compare(from, oid(tree)?, &mut differences)?;
        }
        let changes = differences.into_iter();
        let changes = changes.map(|(path, file)| (path, file.is_some()));
        Ok(Some(changes.collect()))
    }

    fn has_trees(&self, trees: &[Oid]) -> Result<bool> {
        for tree in trees {
            if *tree != empty_tree() && !self.files.objects.has(*tree)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn empty(&self) -> Result<()> {
        let root = &self.files.root;
        std::fs::remove_dir_all(root).map_err(|e| Error::io("empty", root, &e))?;
        std::fs::create_dir(root).map_err(|e| Error::io("create", root, &e))
    }

    fn read_journal(&self) -> Result<Vec<Oid>> {
        let text = std::fs::read_to_string(&self.journal);
        let Some(text) = if_there("read", &self.journal, text)? else {
            return Ok(vec![empty_tree()]);
        };
        let trees: Vec<Oid> = text
            .lines()
            .filter_map(|line| Oid::from_str(line).ok())
            .collect();
        if trees.is_empty() || trees.len() != text.lines().count() {
            return Err(
                Error::journal(format!("{} is damaged", self.journal.display())).hint(format!(
                    "remove it together with {}; both are created again",
                    self.files.root.display()
                )),
            );
        }
        Ok(trees)
    }

    fn write_journal(&self, trees: &[Oid]) -> Result<()> {
        let text: String = trees.iter().map(|tree| format!("{tree}\n")).collect();
        perfquilt_system::files::write_file(&self.journal, text.as_bytes())
    }
}

impl FolderFiles {
    /// Collects every path where two trees differ, with the file of the second tree.
    fn compare(&self, from: Oid, to: Oid, out: &mut Differences) -> Result<()> {
        // A submodule is a folder that git fills from elsewhere.
        let file = |side: Option<FileSide>| side.filter(|side| side.mode != MODE_COMMIT);
        for pair in compare(&self.objects, from, to, None)? {
            path::check(&pair.new_path)?;
            let (old, new) = (file(pair.old), file(pair.new));
            if new.is_some() && old != new {
                out.insert(pair.new_path, new);
            } else if old != new {
                // If a folder replaces the file, creating the folder removes the file.
                out.entry(pair.new_path).or_insert(None);
            }
        }
        Ok(())
    }

    fn apply(
        &self,
        differences: &Differences,
        look_first: bool,
        time: SystemTime,
    ) -> Result<MoveResult> {
        let mut moved = MoveResult::default();
        let step = progress::begin("moving the source tree", Some(differences.len() as u64));
        let mut done = 0_u64;
        let mut tick = |path: &[u8]| -> Result<()> {
            done += 1;
            if done.is_multiple_of(256) {
                check_interrupted()?;
                step.update(done, None, &path::shown(path));
            }
            Ok(())
        };
        for (path, entry) in differences {
            if entry.is_none() {
                tick(path)?;
                moved.removed += usize::from(self.remove(path)?);
            }
        }
        let mut folders = BTreeSet::new();
        for (path, entry) in differences {
            if let Some(entry) = entry {
                tick(path)?;
                let file = self.place(path);
                let content = self.objects.read(entry.oid, ObjectType::Blob)?;
                if look_first && is_on_disk(&file, entry.mode, &content) {
                    continue;
                }
                self.make_folders(path, &mut folders)?;
                write_file(&file, entry.mode, &content, time)?;
                moved.written += 1;
            }
        }
        step.finish("");
        Ok(moved)
    }

    fn place(&self, path: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(path))
    }

    /// Removes a file and the folders that become empty; returns whether the file existed.
    fn remove(&self, path: &[u8]) -> Result<bool> {
        let file = self.place(path);
        let through_link = path
            .iter()
            .enumerate()
            .any(|(end, byte)| *byte == b'/' && self.place(&path[..end]).is_symlink());
        // After an interrupted move there may be a folder instead of the file, or a link instead of one of its folders:
        // then the file does not exist.
        if through_link {
            return Ok(false);
        }
        match std::fs::remove_file(&file) {
            Ok(()) => {}
            Err(error) if is_gone(&error) => return Ok(false),
            Err(_) if file.is_dir() => return Ok(false),
            Err(error) => return Err(Error::io("remove", &file, &error)),
        }
        for folder in file.ancestors().skip(1) {
            if folder == self.root || std::fs::remove_dir(folder).is_err() {
                break;
            }
        }
        Ok(true)
    }

    /// Creates the folders above a path. Replaces symbolic links, because no write may pass through one.
    fn make_folders(&self, path: &[u8], known: &mut BTreeSet<Vec<u8>>) -> Result<()> {
        for (end, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let above = &path[..end];
            if known.contains(above) {
                continue;
            }
            let folder = self.place(above);
            let io = |e| Error::io("create", &folder, &e);
            match std::fs::symlink_metadata(&folder) {
                Ok(meta) if meta.is_dir() => {}
                Ok(_) => {
                    std::fs::remove_file(&folder).map_err(io)?;
                    std::fs::create_dir(&folder).map_err(io)?;
                }
                Err(error) if is_gone(&error) => std::fs::create_dir(&folder).map_err(io)?,
                Err(error) => return Err(io(error)),
            }
            known.insert(above.to_vec());
        }
        Ok(())
    }
}

/// Returns whether an error means that the path does not exist.
fn is_gone(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
}

fn permissions(mode: u32) -> u32 {
    if mode == MODE_EXEC { 0o755 } else { 0o644 }
}

/// Returns whether a file on disk has this mode and content.
pub fn is_on_disk(file: &Path, mode: u32, content: &[u8]) -> bool {
    let Ok(meta) = std::fs::symlink_metadata(file) else {
        return false;
    };
    if mode == MODE_LINK {
        return std::fs::read_link(file)
            .is_ok_and(|target| target.as_os_str().as_bytes() == content);
    }
    let executable = meta.permissions().mode() & 0o100 != 0;
    meta.is_file()
        && executable == (mode == MODE_EXEC)
        && meta.len() == content.len() as u64
        && std::fs::read(file).is_ok_and(|there| there == content)
}

/// Writes a file after removing its predecessor, so that it never writes through a link.
fn write_file(file: &Path, mode: u32, content: &[u8], time: SystemTime) -> Result<()> {
    let io = |e| Error::io("write", file, &e);
    match std::fs::remove_file(file) {
        Ok(()) => {}
        Err(error) if is_gone(&error) => {}
        // Build products may keep a folder that the new tree does not have.
        Err(_) if file.is_dir() => std::fs::remove_dir_all(file).map_err(io)?,
        Err(error) => return Err(io(error)),
    }
    if mode == MODE_LINK {
        return std::os::unix::fs::symlink(OsStr::from_bytes(content), file).map_err(io);
    }
    let mut out = File::options()
        .write(true)
        .create_new(true)
        .mode(permissions(mode))
        .open(file)
        .map_err(io)?;
    out.write_all(content).map_err(io)?;
    out.set_modified(time).map_err(io)
}

/// Writes a whole tree to `dir`, which must be new or empty; returns the number of files.
pub fn export(object_store: &Path, tree: &str, dir: &Path) -> Result<usize> {
    let root = std::path::absolute(dir).map_err(|e| Error::io("find", dir, &e))?;
    std::fs::create_dir_all(&root).map_err(|e| Error::io("create", &root, &e))?;
    let files = FolderFiles {
        objects: Objects::open(object_store)?,
        root,
    };
    let mut differences = Differences::new();
    files.compare(empty_tree(), oid(tree)?, &mut differences)?;
    let now = SystemTime::now();
    Ok(files.apply(&differences, false, now)?.written)
}
