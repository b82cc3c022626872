//! The object store of a workspace: a bare git repository that perfquilt and its worktrees write to.

use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use git2::{ConfigLevel, ObjectType, Odb, OdbLookupFlags, Oid, Repository};

use super::object_memory::ObjectMemory;
use perfquilt_model::error::{DISK_FULL, Error, Result};
use perfquilt_pack::{ObjectId, ObjectKind, PackReader};
use perfquilt_system::git::Git;
use perfquilt_system::locks::{self, Lock};

/// A lock file of git that does not change for this time is stale.
const STALE_LOCK_AGE: Duration = Duration::from_secs(1);
/// Interval between attempts while another process holds a lock file of git.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

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

/// Returns what a mode stands for in messages.
pub fn kind_of(mode: u32) -> &'static str {
    match mode {
        MODE_LINK => "a symbolic link",
        MODE_COMMIT => "a submodule",
        _ => "a file",
    }
}

/// An entry of a tree object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// The name, without slashes.
    pub name: Vec<u8>,
    /// Git's mode: one of the `MODE_` constants.
    pub mode: u32,
    /// The object id.
    pub oid: Oid,
}

/// An open object store.
pub struct Objects {
    repository: Repository,
    path: PathBuf,
    /// The objects of the store that its commits build on.
    below: Option<PathBuf>,
    packs: OnceCell<PackReader>,
    memory: RefCell<ObjectMemory>,
}

/// Has libgit2 read no settings of the user and the system, as git does not with the variables that name others. Those of
/// perfquilt's repositories need none.
#[allow(unsafe_code)]
pub fn read_no_user_settings() {
    let levels = [
        ConfigLevel::System,
        ConfigLevel::XDG,
        ConfigLevel::Global,
        ConfigLevel::ProgramData,
    ];
    for level in levels {
        // SAFETY: no other thread uses libgit2 yet: the program calls this as it starts. It cannot fail: the level exists.
        let _ = unsafe { git2::opts::set_search_path(level, "/dev/null") };
    }
}

impl Objects {
    /// Opens the store at `path`, or creates an empty one.
    pub fn open_or_create(path: &Path) -> Result<Self> {
        if let Ok(store) = Self::open(path) {
            return Ok(store);
        }
        std::fs::create_dir_all(path).map_err(|e| Error::io("create", path, &e))?;
        // A killed process may have left half a repository. Initialising it again completes it; only the locks of the
        // killed process need to be removed. The lock keeps two processes from creating the store at the same time.
        let _lock = locks::wait(&path.join("import.lock"), || {})?;
        if let Ok(store) = Self::open(path) {
            return Ok(store);
        }
        for name in ["config.lock", "HEAD.lock"] {
            // Usually there is none, and `init_bare` reports one that could not be removed.
            let _ = std::fs::remove_file(path.join(name));
        }
        Repository::init_bare(path).map_err(|e| open_error(path, &e))?;
        Self::open(path)
    }

    /// Opens the store at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let repository = Repository::open_bare(path).map_err(|e| open_error(path, &e))?;
        // perfquilt makes none. Git runs a command of the store's configuration for each.
        let alternates = path.join("objects/info/alternates");
        if std::fs::symlink_metadata(&alternates).is_ok_and(|found| found.len() > 0) {
            return Err(Error::object_store(
                "it makes the object store use objects of another repository",
            )
            .at(&alternates, None)
            .hint("move the object store away, unless you know who wrote that file"));
        }
        Ok(Objects {
            repository,
            path: path.to_owned(),
            below: None,
            packs: OnceCell::new(),
            memory: RefCell::default(),
        })
    }

    /// Opens the store at `path`, whose commits build on those of the store `base`.
    pub fn open_above(path: &Path, base: &Path) -> Result<Self> {
        let mut store = Self::open(path)?;
        let objects = base.join("objects");
        let added = objects.to_str().map(|objects| {
            store
                .database()?
                .add_disk_alternate(objects)
                .map_err(store_error)
        });
        added.unwrap_or_else(|| {
            Err(Error::object_store(format!(
                "{} is not UTF-8",
                base.display()
            )))
        })?;
        store.below = Some(objects);
        Ok(store)
    }

    /// Returns git for the store, without settings of user and system.
    pub fn git(&self) -> Git {
        let git = Git::isolated(&self.path);
        match &self.below {
            Some(objects) => git.above(objects),
            None => git,
        }
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder of its packs.
    pub(super) fn pack_folder(&self) -> PathBuf {
        self.path.join("objects/pack")
    }

    /// Returns the repository as libgit2 has it.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Returns its object database, which threads may share.
    pub fn database(&self) -> Result<Odb<'_>> {
        self.repository.odb().map_err(store_error)
    }

    /// Finds packs that another process has added.
    pub fn refresh(&self) -> Result<()> {
        self.database()?.refresh().map_err(store_error)
    }

    /// Returns the objects in memory.
    pub(super) fn memory(&self) -> &RefCell<ObjectMemory> {
        &self.memory
    }

    /// Returns the content of an object of the given `kind`.
    pub fn read(&self, oid: Oid, kind: ObjectType) -> Result<Vec<u8>> {
        Ok(Arc::unwrap_or_clone(self.read_shared(oid, kind)?))
    }

    /// Returns the content of an object of the given `kind`, which may be shared with others who read it.
    pub fn read_shared(&self, oid: Oid, kind: ObjectType) -> Result<Arc<Vec<u8>>> {
        if let Some((found, data)) = self.memory.borrow_mut().get(&oid)
            && found == kind
        {
            return Ok(data);
        }
        let data = Arc::new(self.read_stored(oid, kind)?);
        self.memory.borrow_mut().keep(oid, kind, &data);
        Ok(data)
    }

    /// Returns the packs that were there at the first read.
    pub(super) fn packs(&self) -> &PackReader {
        self.packs
            .get_or_init(|| PackReader::open(&self.pack_folder()))
    }

    fn read_stored(&self, oid: Oid, kind: ObjectType) -> Result<Vec<u8>> {
        if let Some((found, data)) = self.packs().read(&object_id(oid))
            && found == object_kind(kind)
        {
            return Ok(data);
        }
        let database = self.database()?;
        let object = database.read(oid).map_err(|e| self.damaged(oid, &e))?;
        if object.kind() != kind {
            return Err(Error::objects_damaged(format!(
                "object {oid} of {} is a {}, not a {kind}",
                self.path.display(),
                object.kind()
            )));
        }
        Ok(object.data().to_vec())
    }

    /// Returns the size of an object in bytes, without reading its content.
    pub fn size(&self, oid: Oid) -> Result<u64> {
        if oid == empty_tree() {
            return Ok(0);
        }
        if let Some(made) = self.memory.borrow().unwritten(&oid) {
            return Ok(made.data.len() as u64);
        }
        let header = self.database()?.read_header(oid);
        let (size, _) = header.map_err(|e| self.damaged(oid, &e))?;
        Ok(size as u64)
    }

    /// Returns the entries of a tree object, in git's order.
    pub fn read_tree(&self, oid: Oid) -> Result<Vec<TreeEntry>> {
        if oid == empty_tree() {
            return Ok(Vec::new());
        }
        let data = self.read(oid, ObjectType::Tree)?;
        parse_tree(&data).ok_or_else(|| Error::objects_damaged(format!("tree {oid} is malformed")))
    }

    /// Returns whether the store holds an object.
    pub fn has(&self, oid: Oid) -> Result<bool> {
        Ok(self.database()?.exists_ext(oid, OdbLookupFlags::NO_REFRESH))
    }

    /// Returns whether the store holds the object with the hexadecimal id `name`.
    pub fn has_named(&self, name: &str) -> Result<bool> {
        self.has(oid(name)?)
    }

    /// Returns the object that a reference names, if the reference exists.
    pub fn reference(&self, name: &str) -> Result<Option<Oid>> {
        match self.repository.refname_to_id(name) {
            Ok(oid) => Ok(Some(oid)),
            Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
            Err(error) => Err(store_error(error)),
        }
    }

    /// Sets a reference to an object.
    pub fn set_reference(&self, name: &str, oid: Oid) -> Result<()> {
        if self.reference(name)? != Some(oid) {
            self.retry_while_locked(name, || {
                self.repository
                    .reference(name, oid, true, "perfquilt")
                    .map(drop)
            })
            .map_err(store_error)?;
        }
        Ok(())
    }

    /// Runs `work`, which locks the reference or file `name` of the store, and retries it while the lock is held. Git
    /// holds these locks only briefly. A lock that stays unchanged was left by a killed process; this method removes
    /// it.
    pub(super) fn retry_while_locked(
        &self,
        name: &str,
        mut work: impl FnMut() -> std::result::Result<(), git2::Error>,
    ) -> std::result::Result<(), git2::Error> {
        let lock = self.repository.path().join(format!("{name}.lock"));
        let modified = || {
            let meta = std::fs::metadata(&lock);
            meta.and_then(|meta| meta.modified()).ok()
        };
        let (mut seen, mut since) = (modified(), Instant::now());
        loop {
            let result = work();
            let locked = |error: &git2::Error| error.code() == git2::ErrorCode::Locked;
            if !result.as_ref().err().is_some_and(locked) {
                return result;
            }
            std::thread::sleep(LOCK_POLL_INTERVAL);
            let now = modified();
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() > STALE_LOCK_AGE {
                match locks::try_now(&self.path.join("stale.lock")) {
                    // Another waiting process is removing it.
                    Ok(None) => {}
                    // If the lock changed, another process removed the stale one and now holds its own.
                    Ok(Some(_alone)) if modified() == seen => {
                        std::fs::remove_file(&lock).or(result)?;
                    }
                    Ok(Some(_)) => {}
                    Err(_) => return result,
                }
            }
        }
    }

    /// Returns the names of the references that match a pattern such as `refs/stacks/*`.
    pub fn references(&self, pattern: &str) -> Result<Vec<String>> {
        let found = self
            .repository
            .references_glob(pattern)
            .map_err(store_error)?;
        let mut names = Vec::new();
        for reference in found {
            let reference = reference.map_err(store_error)?;
            names.push(String::from_utf8_lossy(reference.name_bytes()).into_owned());
        }
        Ok(names)
    }

    /// Removes a reference, if it exists.
    pub fn remove_reference(&self, name: &str) -> Result<()> {
        let removed = self.retry_while_locked(name, || {
            let found = self.repository.find_reference(name);
            found.and_then(|mut reference| reference.delete())
        });
        match removed {
            Err(error) if error.code() != git2::ErrorCode::NotFound => Err(store_error(error)),
            _ => Ok(()),
        }
    }

    /// Returns the tree of the commit called `commit`, both in hexadecimal.
    pub fn tree_named(&self, commit: &str) -> Result<String> {
        Ok(self.tree_of(oid(commit)?)?.to_string())
    }

    /// Writes a commit in perfquilt's name. Its id depends only on the arguments.
    pub fn commit_named(&self, tree: &str, parent: &str, message: &str) -> Result<String> {
        let who = "perfquilt <perfquilt@localhost> 0 +0000";
        let text =
            format!("tree {tree}\nparent {parent}\nauthor {who}\ncommitter {who}\n\n{message}\n");
        let oid = self
            .database()?
            .write(ObjectType::Commit, text.replace('\0', "").as_bytes())
            .map_err(store_error)?;
        Ok(oid.to_string())
    }

    /// Returns the commits of the references below `prefix` as pairs of parent and commit, sorted.
    pub fn commits_below(&self, prefix: &str) -> Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        for reference in self
            .repository
            .references_glob(&format!("{prefix}/*"))
            .map_err(store_error)?
        {
            let commit = reference
                .map_err(store_error)?
                .peel_to_commit()
                .map_err(store_error)?;
            if let Ok(parent) = commit.parent_id(0) {
                found.push((parent.to_string(), commit.id().to_string()));
            }
        }
        found.sort();
        Ok(found)
    }

    /// Returns the tree of a commit.
    pub fn tree_of(&self, commit: Oid) -> Result<Oid> {
        Ok(self
            .repository
            .find_commit(commit)
            .map_err(store_error)?
            .tree_id())
    }

    /// Takes the lock file `name` of this store; waits while another process holds it.
    pub fn lock(&self, name: &str) -> Result<Lock> {
        locks::wait(&self.path.join(name), || {})
    }

    /// Takes the import lock of this store; waits for other importers. Removes the leftovers of killed importers.
    pub fn lock_import(&self) -> Result<Lock> {
        let lock = self.lock("import.lock")?;
        self.remove_leftovers();
        Ok(lock)
    }

    fn remove_leftovers(&self) {
        // This lock would keep git from shallow fetches.
        let _ = std::fs::remove_file(self.path.join("shallow.lock"));
        perfquilt_pack::remove_unfinished(&self.pack_folder());
    }

    fn damaged(&self, oid: Oid, error: &git2::Error) -> Error {
        Error::objects_damaged(format!(
            "object {oid} cannot be read from {}: {}",
            self.path.display(),
            error.message()
        ))
        .hint(DAMAGED)
    }
}

/// The hint for a damaged object store. Its packs are made again from the releases' sources; only the commits that a
/// user made in an edit branch are nowhere else.
pub const DAMAGED: &str = "\
`mv .perfquilt/objects.git .perfquilt/objects.damaged && perfquilt upstream fetch` makes the object store again; results \
are not in it, but commits of `perfquilt edit` that are in no series yet";

/// Returns the error for a failure of libgit2; `what` comes before its message. A full disk is recognised by the
/// message because libgit2 has no error code for it.
fn library_error(what: &str, source: &git2::Error) -> Error {
    if source.class() == git2::ErrorClass::Config {
        return Error::object_store(format!("{what}: {}", source.message())).hint(
            "git's configuration cannot be read: `git config --list --show-origin` names its files",
        );
    }
    let message = format!("{what}: {}", source.message());
    if message.contains("No space left on device") {
        Error::disk_full(message).hint(DISK_FULL)
    } else {
        Error::objects_damaged(message)
    }
}

/// Returns the error for a failure of libgit2 in the object store.
pub fn store_error(error: git2::Error) -> Error {
    library_error("object store", &error)
}

fn open_error(path: &Path, error: &git2::Error) -> Error {
    let what = format!("cannot open the object store {}", path.display());
    library_error(&what, error)
        .hint_or("`perfquilt upstream fetch` creates it; if it is damaged, move it away first")
}

/// Parses an object id in hexadecimal.
pub fn oid(text: &str) -> Result<Oid> {
    Oid::from_str(text).map_err(|_| Error::objects_damaged(format!("`{text}` names no object")))
}

/// Returns the id of the empty tree, which need not be stored.
pub fn empty_tree() -> Oid {
    hash(ObjectType::Tree, b"")
}

/// Returns git's id of an object.
pub fn hash(kind: ObjectType, data: &[u8]) -> Oid {
    // Only a wrong length fails, and every id has twenty bytes.
    Oid::from_bytes(&perfquilt_pack::hash(object_kind(kind), data)).unwrap_or(Oid::ZERO_SHA1)
}

/// Returns an object's id for a pack.
pub(super) fn object_id(oid: Oid) -> ObjectId {
    // Only a wrong length fails, and every id has twenty bytes.
    oid.as_bytes().try_into().unwrap_or_default()
}

/// Returns an object's kind for a pack.
pub(super) fn object_kind(kind: ObjectType) -> ObjectKind {
    match kind {
        ObjectType::Commit => ObjectKind::Commit,
        ObjectType::Tree => ObjectKind::Tree,
        ObjectType::Tag => ObjectKind::Tag,
        ObjectType::Blob | ObjectType::Any => ObjectKind::Blob,
    }
}

/// Parses a tree object's content; `None` if it is malformed.
pub(super) fn parse_tree(mut data: &[u8]) -> Option<Vec<TreeEntry>> {
    let mut entries = Vec::new();
    while !data.is_empty() {
        let space = memchr::memchr(b' ', data)?;
        let nul = memchr::memchr(0, data)?;
        let mode = u32::from_str_radix(std::str::from_utf8(&data[..space]).ok()?, 8).ok()?;
        let oid = Oid::from_bytes(data.get(nul + 1..nul + 21)?).ok()?;
        entries.push(TreeEntry {
            name: data.get(space + 1..nul)?.to_vec(),
            mode: canonical_mode(mode),
            oid,
        });
        data = &data[nul + 21..];
    }
    Some(entries)
}

/// Returns the mode of a file with these permissions.
pub(super) fn file_mode(permissions: u32) -> u32 {
    if permissions & 0o100 != 0 {
        MODE_EXEC
    } else {
        MODE_FILE
    }
}

/// Normalises a mode as git does: old commits hold others, such as 100664.
pub fn canonical_mode(mode: u32) -> u32 {
    match mode & 0o170_000 {
        0o100_000 => file_mode(mode),
        0o120_000 => MODE_LINK,
        0o040_000 => MODE_TREE,
        _ => MODE_COMMIT,
    }
}

/// Serialises a tree object after sorting `entries` in git's order.
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

/// Returns the sort key of an entry: git compares names as if those of folders ended in a slash.
fn sort_key(entry: &TreeEntry) -> impl Iterator<Item = u8> + '_ {
    let slash = (entry.mode == MODE_TREE).then_some(b'/');
    entry.name.iter().copied().chain(slash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_created_store_is_completed() {
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
    fn a_stale_lock_is_removed() {
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
