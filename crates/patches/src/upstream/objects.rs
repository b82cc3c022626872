//! The bare object store of a workspace: a git repository that this program and its worktrees write to.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use git2::{ObjectType, Odb, OdbLookupFlags, Oid, Repository};

use super::packed::{Chain, Content, Packs};
use perfquilt_model::error::{DISK_FULL, Error, Result};
use perfquilt_system::locks::{self, Lock};

/// How long a reference's lock may stay the same before it counts as left behind, and how often it is looked at.
const LOCK_HELD: Duration = Duration::from_secs(1);
const LOCK_POLL: Duration = Duration::from_millis(20);

/// Mode of a plain file in a tree.
pub const MODE_FILE: u32 = 0o100_644;
/// Mode of an executable file in a tree.
pub const MODE_EXEC: u32 = 0o100_755;
/// Mode of a symbolic link in a tree.
pub const MODE_LINK: u32 = 0o120_000;
/// Mode of a folder in a tree.
pub const MODE_TREE: u32 = 0o040_000;
/// Mode of a submodule in a tree: a commit of another repository.
pub const MODE_COMMIT: u32 = 0o160_000;

/// One name in a tree object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// The name, without slashes.
    pub name: Vec<u8>,
    /// Git's mode: one of the `MODE_` constants.
    pub mode: u32,
    /// The object.
    pub oid: Oid,
}

/// An open object store.
pub struct Objects {
    repository: Repository,
    path: PathBuf,
    /// The packs as they were when something was first read from them.
    packs: OnceCell<Arc<Packs>>,
}

impl Objects {
    /// Opens the store at `path`, making an empty one where there is none.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be made or is no git repository.
    pub fn open_or_create(path: &Path) -> Result<Self> {
        if let Ok(store) = Self::open(path) {
            return Ok(store);
        }
        std::fs::create_dir_all(path).map_err(|e| Error::io("create", path, &e))?;
        // Two processes that make it at once, or one that was killed while making it, would leave
        // half a repository; making it again completes it and removes nothing but the locks of who was killed.
        let _lock = locks::wait(&path.join("import.lock"), || {})?;
        if let Ok(store) = Self::open(path) {
            return Ok(store);
        }
        for name in ["config.lock", "HEAD.lock"] {
            // Mostly there is none; one that stays is told of by what follows.
            let _ = std::fs::remove_file(path.join(name));
        }
        let repository = Repository::init_bare(path).map_err(|e| broken(path, &e))?;
        Ok(Objects {
            repository,
            path: path.to_owned(),
            packs: OnceCell::new(),
        })
    }

    /// Opens the store at `path`.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when there is none.
    pub fn open(path: &Path) -> Result<Self> {
        let repository = Repository::open_bare(path).map_err(|e| broken(path, &e))?;
        Ok(Objects {
            repository,
            path: path.to_owned(),
            packs: OnceCell::new(),
        })
    }

    /// The same store for another thread.
    ///
    /// # Errors
    /// As [`Objects::open`].
    pub fn again(&self) -> Result<Self> {
        let other = Self::open(&self.path)?;
        // It is empty, so that setting it succeeds.
        let _ = other.packs.set(Arc::clone(self.packs()));
        Ok(other)
    }

    fn packs(&self) -> &Arc<Packs> {
        self.packs.get_or_init(|| Arc::new(Packs::open(&self.path)))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Its object database, which threads may share.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it is damaged.
    pub fn database(&self) -> Result<Odb<'_>> {
        self.repository.odb().map_err(object_store)
    }

    /// Finds packs that another process has added meanwhile.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the store cannot be read.
    pub fn refresh(&self) -> Result<()> {
        self.database()?.refresh().map_err(object_store)
    }

    /// The content of an object that must be of `kind`.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it is missing, damaged or of another kind.
    pub fn read(&self, oid: Oid, kind: ObjectType) -> Result<Vec<u8>> {
        let database = self.database()?;
        let object = database.read(oid).map_err(|e| self.damaged(oid, &e))?;
        if object.kind() != kind {
            return Err(Error::internal(format!(
                "object {oid} of {} is a {}, not a {kind}",
                self.path.display(),
                object.kind()
            )));
        }
        Ok(object.data().to_vec())
    }

    /// The content of an object that must be of `kind`, and how it is stored if a pack can take that
    /// over; quicker than [`Objects::read`] for many objects.
    ///
    /// # Errors
    /// As [`Objects::read`].
    pub fn load(&self, oid: Oid, kind: ObjectType) -> Result<(Vec<u8>, Option<Chain>)> {
        match self.packs().read(oid) {
            Some(Content {
                kind: found,
                data,
                chain,
            }) if found == kind => Ok((data, Some(chain))),
            _ => Ok((self.read(oid, kind)?, None)),
        }
    }

    /// The entries of a tree object, in git's order.
    ///
    /// # Errors
    /// As [`Objects::read`].
    pub fn read_tree(&self, oid: Oid) -> Result<Vec<TreeEntry>> {
        if oid == empty_tree() {
            return Ok(Vec::new());
        }
        let (data, _) = self.load(oid, ObjectType::Tree)?;
        parse_tree(&data).ok_or_else(|| Error::internal(format!("tree {oid} is malformed")))
    }

    /// Whether the store holds an object.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the store is damaged.
    pub fn has(&self, oid: Oid) -> Result<bool> {
        Ok(self.database()?.exists_ext(oid, OdbLookupFlags::NO_REFRESH))
    }

    /// Whether the store has the object called `name`, in hexadecimal.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it is no name.
    pub fn has_named(&self, name: &str) -> Result<bool> {
        self.has(Oid::from_str(name).map_err(object_store)?)
    }

    /// The object a reference names, if there is such a reference.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the store is damaged.
    pub fn reference(&self, name: &str) -> Result<Option<Oid>> {
        match self.repository.refname_to_id(name) {
            Ok(oid) => Ok(Some(oid)),
            Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
            Err(error) => Err(object_store(error)),
        }
    }

    /// Makes a reference name an object, whatever it named before.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be written.
    pub fn set_reference(&self, name: &str, oid: Oid) -> Result<()> {
        if self.reference(name)? != Some(oid) {
            self.past_lock(name, || {
                self.repository
                    .reference(name, oid, true, "perfquilt")
                    .map(drop)
            })
            .map_err(object_store)?;
        }
        Ok(())
    }

    /// Does what locks the reference or file `name` of the store. Locks are held for a moment only; one that stays
    /// was left by a process that was killed while it had it, and is removed.
    pub(super) fn past_lock(
        &self,
        name: &str,
        mut work: impl FnMut() -> std::result::Result<(), git2::Error>,
    ) -> std::result::Result<(), git2::Error> {
        let lock = self.repository.path().join(format!("{name}.lock"));
        let made = || {
            let meta = std::fs::metadata(&lock);
            meta.and_then(|meta| meta.modified()).ok()
        };
        let (mut seen, mut since) = (made(), Instant::now());
        loop {
            let result = work();
            let locked = |error: &git2::Error| error.code() == git2::ErrorCode::Locked;
            if !result.as_ref().err().is_some_and(locked) {
                return result;
            }
            std::thread::sleep(LOCK_POLL);
            let now = made();
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() > LOCK_HELD {
                match locks::try_now(&self.path.join("stale.lock")) {
                    // Another process that waited as long removes it at this moment.
                    Ok(None) => {}
                    // Or it has done so, and the lock that is there is its own.
                    Ok(Some(_alone)) if made() == seen => {
                        std::fs::remove_file(&lock).or(result)?;
                    }
                    Ok(Some(_)) => {}
                    Err(_) => return result,
                }
            }
        }
    }

    /// The names of the references that match a pattern such as `refs/stacks/*`.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the store is damaged.
    pub fn references(&self, pattern: &str) -> Result<Vec<String>> {
        let found = self
            .repository
            .references_glob(pattern)
            .map_err(object_store)?;
        let mut names = Vec::new();
        for reference in found {
            names.push(
                String::from_utf8_lossy(reference.map_err(object_store)?.name_bytes()).into_owned(),
            );
        }
        Ok(names)
    }

    /// Removes a reference; that there is none is no error.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be removed.
    pub fn remove_reference(&self, name: &str) -> Result<()> {
        let removed = self.past_lock(name, || {
            let found = self.repository.find_reference(name);
            found.and_then(|mut reference| reference.delete())
        });
        match removed {
            Err(error) if error.code() != git2::ErrorCode::NotFound => Err(object_store(error)),
            _ => Ok(()),
        }
    }

    /// The tree of the commit called `commit`, both in hexadecimal.
    ///
    /// # Errors
    /// As [`Objects::read`].
    pub fn tree_named(&self, commit: &str) -> Result<String> {
        Ok(self
            .tree_of(Oid::from_str(commit).map_err(object_store)?)?
            .to_string())
    }

    /// Writes a commit of this program's own, which depends on its arguments alone.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be written.
    pub fn commit_named(&self, tree: &str, parent: &str, message: &str) -> Result<String> {
        let who = "perfquilt <perfquilt@localhost> 0 +0000";
        let text =
            format!("tree {tree}\nparent {parent}\nauthor {who}\ncommitter {who}\n\n{message}\n");
        let oid = self
            .database()?
            .write(ObjectType::Commit, text.replace('\0', "").as_bytes())
            .map_err(object_store)?;
        Ok(oid.to_string())
    }

    /// The commits that references below `prefix` name, each after its parent.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the store is damaged.
    pub fn commits_below(&self, prefix: &str) -> Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        for reference in self
            .repository
            .references_glob(&format!("{prefix}/*"))
            .map_err(object_store)?
        {
            let commit = reference
                .map_err(object_store)?
                .peel_to_commit()
                .map_err(object_store)?;
            if let Ok(parent) = commit.parent_id(0) {
                found.push((parent.to_string(), commit.id().to_string()));
            }
        }
        found.sort();
        Ok(found)
    }

    /// The tree of a commit.
    ///
    /// # Errors
    /// As [`Objects::read`].
    pub fn tree_of(&self, commit: Oid) -> Result<Oid> {
        Ok(self
            .repository
            .find_commit(commit)
            .map_err(object_store)?
            .tree_id())
    }

    /// Waits for other holders of the lock file `name` of this store, then keeps new ones out.
    ///
    /// # Errors
    /// As [`Objects::lock_import`].
    pub fn lock(&self, name: &str) -> Result<Lock> {
        locks::wait(&self.path.join(name), || {})
    }

    /// Waits for other importers of this store, then keeps new ones out and removes what killed
    /// ones left.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the lock file cannot be made,
    /// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted) while waiting.
    pub fn lock_import(&self) -> Result<Lock> {
        let lock = self.lock("import.lock")?;
        self.remove_leftovers();
        Ok(lock)
    }

    fn remove_leftovers(&self) {
        // With that in its way git fetches no tag without history.
        let _ = std::fs::remove_file(self.path.join("shallow.lock"));
        let Ok(entries) = std::fs::read_dir(self.path.join("objects/pack")) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(super::pack::TEMPORARY) {
                // Somebody else may have removed it; either way it is gone.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn damaged(&self, oid: Oid, error: &git2::Error) -> Error {
        Error::internal(format!(
            "object {oid} cannot be read from {}: {}",
            self.path.display(),
            error.message()
        ))
        .hint("`perfquilt upstream verify` checks the store; removing it and `perfquilt upstream fetch` make it anew")
    }
}

/// The error for a failure of the object store's library; `what` is the fragment before its message. Only the
/// message tells that the disk is full.
fn failed(what: &str, source: &git2::Error) -> Error {
    let error = Error::internal(format!("{what}: {}", source.message()));
    if source.message().contains("No space left on device") {
        error.hint(DISK_FULL)
    } else {
        error
    }
}

/// The error for a failure of the object store's library.
pub(crate) fn object_store(error: git2::Error) -> Error {
    failed("object store", &error)
}

fn broken(path: &Path, error: &git2::Error) -> Error {
    let error = failed(
        &format!("cannot open the object store {}", path.display()),
        error,
    );
    match error.hint_text() {
        Some(_) => error,
        None => {
            error.hint("`perfquilt upstream fetch` makes it; if it is damaged, remove it first")
        }
    }
}

/// The tree without entries, which need not be stored.
pub fn empty_tree() -> Oid {
    hash(ObjectType::Tree, b"")
}

/// The name git gives to an object.
pub fn hash(kind: ObjectType, data: &[u8]) -> Oid {
    use sha1::{Digest, Sha1};
    let mut hasher = Sha1::new();
    hasher.update(kind.str().as_bytes());
    hasher.update(format!(" {}\0", data.len()).as_bytes());
    hasher.update(data);
    oid_from(&hasher.finalize())
}

pub(super) fn oid_from(bytes: &[u8]) -> Oid {
    // Only a wrong length fails, and SHA-1 always gives twenty bytes.
    Oid::from_bytes(bytes).unwrap_or(Oid::ZERO_SHA1)
}

/// The entries of a tree object's content; `None` when it is malformed.
pub(super) fn parse_tree(mut data: &[u8]) -> Option<Vec<TreeEntry>> {
    let mut entries = Vec::new();
    while !data.is_empty() {
        let space = memchr::memchr(b' ', data)?;
        let nul = memchr::memchr(0, data)?;
        let mode = u32::from_str_radix(std::str::from_utf8(&data[..space]).ok()?, 8).ok()?;
        let oid = Oid::from_bytes(data.get(nul + 1..nul + 21)?).ok()?;
        entries.push(TreeEntry {
            name: data.get(space + 1..nul)?.to_vec(),
            mode: canonical(mode),
            oid,
        });
        data = &data[nul + 21..];
    }
    Some(entries)
}

/// The mode as git takes it: old commits hold others, such as 100664.
fn canonical(mode: u32) -> u32 {
    match mode & 0o170_000 {
        0o100_000 if mode & 0o100 != 0 => MODE_EXEC,
        0o100_000 => MODE_FILE,
        0o120_000 => MODE_LINK,
        0o040_000 => MODE_TREE,
        _ => MODE_COMMIT,
    }
}

/// The content of the tree object with `entries`, which it puts in git's order.
pub fn serialise_tree(entries: &mut [TreeEntry]) -> Vec<u8> {
    entries.sort_unstable_by(|a, b| sort_key(a).cmp(sort_key(b)));
    let mut data = Vec::with_capacity(entries.len() * 48);
    for entry in entries {
        data.extend_from_slice(format!("{:o} ", entry.mode).as_bytes());
        data.extend_from_slice(&entry.name);
        data.push(0);
        data.extend_from_slice(entry.oid.as_bytes());
    }
    data
}

/// Git compares names as if those of folders ended in a slash.
fn sort_key(entry: &TreeEntry) -> impl Iterator<Item = u8> + '_ {
    let slash = (entry.mode == MODE_TREE).then_some(b'/');
    entry.name.iter().copied().chain(slash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_as_git_does() {
        assert_eq!(
            hash(ObjectType::Blob, b"").to_string(),
            "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
        );
        assert_eq!(
            empty_tree().to_string(),
            "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
        );
    }

    #[test]
    fn a_store_whose_maker_was_killed_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        for left in ["config.lock", "HEAD.lock"] {
            let path = folder.path().join(left);
            std::fs::create_dir_all(path.join("objects")).unwrap();
            std::fs::write(path.join(left), "[core]").unwrap();
            let store = Objects::open_or_create(&path).unwrap();
            assert!(store.repository.is_bare() && !path.join(left).exists());
            Objects::open(&path).unwrap();
        }
    }

    #[test]
    fn a_lock_that_was_left_behind_is_no_hindrance() {
        let folder = tempfile::tempdir().unwrap();
        let store = Objects::open_or_create(&folder.path().join("store")).unwrap();
        let blob = store.repository.blob(b"x").unwrap();
        std::fs::create_dir_all(store.repository.path().join("refs/kept")).unwrap();
        let lock = store.repository.path().join("refs/kept/x.lock");
        for _ in 0..2 {
            std::fs::write(&lock, "").unwrap();
            store.set_reference("refs/kept/x", blob).unwrap();
            assert_eq!(store.reference("refs/kept/x").unwrap(), Some(blob));
            std::fs::write(&lock, "").unwrap();
            store.remove_reference("refs/kept/x").unwrap();
            assert_eq!(store.reference("refs/kept/x").unwrap(), None);
        }
        assert!(!lock.exists());
    }

    #[test]
    fn folders_sort_as_if_they_ended_in_a_slash() {
        let entry = |name: &str, mode| TreeEntry {
            name: name.into(),
            mode,
            oid: Oid::ZERO_SHA1,
        };
        let mut entries = [
            entry("a", MODE_TREE),
            entry("a.b", MODE_FILE),
            entry("a0", MODE_FILE),
        ];
        let data = serialise_tree(&mut entries);
        let names: Vec<Vec<u8>> = parse_tree(&data)
            .unwrap()
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        assert_eq!(names, [b"a.b".to_vec(), b"a".to_vec(), b"a0".to_vec()]);
    }

    #[test]
    fn odd_modes_of_old_commits_are_understood() {
        let modes = [
            ("100664", MODE_FILE),
            ("100775", MODE_EXEC),
            ("120777", MODE_LINK),
            ("040000", MODE_TREE),
            ("160000", MODE_COMMIT),
        ];
        for (text, mode) in modes {
            let mut data = format!("{text} name\0").into_bytes();
            data.extend_from_slice(&[1; 20]);
            assert_eq!(parse_tree(&data).unwrap()[0].mode, mode, "{text}");
        }
    }

    #[test]
    fn truncated_trees_are_refused() {
        assert!(parse_tree(b"100644 a\0short").is_none());
        assert!(parse_tree(b"100644").is_none());
    }
}
