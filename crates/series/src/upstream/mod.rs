//! Releases of the upstream server. Each release is fetched once, checked against the lock file and imported into the
//! workspace's object store as one tree and one parentless commit.
//!
//! The commit depends only on the release's name and content, so a release has the same commit id everywhere. The
//! import sets its reference last: a killed import leaves no reference.

mod debian;
mod directory;
mod fetch;
mod files;
pub mod folder_builder;
pub mod git;
mod import;
mod lock;
mod merge;
mod object_memory;
pub mod object_writer;
pub mod objects;
mod settings;
mod tarball;
mod verify;
pub mod watched;

use std::path::Path;

use git2::{ObjectType, Oid};
pub use objects::store_error;

use perfquilt_config::ReleaseSource;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Result};

pub use directory::import_checkout;
pub use files::{file_in, files_of};
pub use lock::{LockFile, LockedRelease};
pub use merge::merge_packs;
pub use objects::{Objects, TreeEntry, read_no_user_settings};
pub use tarball::sha256;
pub use verify::{VerifiedRelease, verify};

/// An imported release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Name and version, for example `mariadb-10.11.18`.
    pub name: String,
    /// The upstream version, for example `10.11.18`.
    pub version: String,
    /// Its commit in the object store.
    pub commit: String,
    /// Its tree in the object store.
    pub tree: String,
    /// SHA-256 of its source file, in hexadecimal; empty for git tags and directories, which the tree alone identifies.
    pub sha256: String,
}

/// The state of a configured release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseStatus {
    /// Name and version.
    pub name: String,
    /// The upstream version.
    pub version: String,
    /// Its source, for messages.
    pub source: String,
    /// Whether the series is for this release.
    pub current: bool,
    /// Its entry in the lock file.
    pub locked: Option<LockedRelease>,
    /// Its tree, if the object store has it.
    pub imported: Option<String>,
}

impl ReleaseStatus {
    /// Returns whether it is both imported and recorded in the lock file, and so usable without the network.
    pub fn is_available(&self) -> bool {
        self.imported.is_some() && self.locked.is_some()
    }
}

/// Returns the state of every configured release. Does not use the network.
pub fn list(ws: &Workspace) -> Result<Vec<ReleaseStatus>> {
    let lock = LockFile::read(&ws.lock_file())?;
    let store = ws.object_store();
    let store = if store.join("HEAD").is_file() {
        Some(Objects::open(&store)?)
    } else {
        None
    };
    let upstream = &ws.config.upstream;
    upstream
        .release
        .iter()
        .map(|source| {
            let name = ws.config.release_name(&source.version);
            let locked = lock.get(&source.version);
            let same = locked.is_none_or(|locked| is_from(locked, source));
            let imported = match &store {
                Some(store) if same => imported(store, &name)?,
                _ => None,
            };
            Ok(ReleaseStatus {
                name,
                version: source.version.clone(),
                source: source_text(source),
                current: source.version == upstream.current,
                locked: locked.cloned(),
                imported: imported.map(|(_, tree)| tree.to_string()),
            })
        })
        .collect()
}

/// Returns the release called `version` (by default the current one). Fetches, checks and imports it first if
/// necessary.
pub fn ensure(ws: &Workspace, version: Option<&str>) -> Result<Release> {
    Ok(ensure_imported(ws, version)?.0)
}

/// Does the same, and returns whether it imported the release just now.
fn ensure_imported(ws: &Workspace, version: Option<&str>) -> Result<(Release, bool)> {
    let source = ws.config.release(version)?;
    let name = ws.config.release_name(&source.version);
    let store = Objects::open_or_create(&ws.object_store())?;
    if let Some(release) = ready(ws, &store, &name, source)? {
        return Ok((release, false));
    }
    let import_lock = store.lock_import()?;
    // The previous holder of the lock may have imported it.
    if let Some(release) = ready(ws, &store, &name, source)? {
        return Ok((release, false));
    }
    let mut lock = LockFile::read(&ws.lock_file())?;
    let locked = lock.get(&source.version);
    let fetched = fetch::fetch(ws, &store, source, locked)?;
    if let Some(locked) = locked {
        check_against_lock(&name, locked, &fetched)?;
    }
    let commit = write_commit(&store, &name, &fetched)?;
    let imported = release(&name, commit, &fetched);
    lock.set(fetched);
    lock.write(&ws.lock_file())?;
    store.set_reference(&reference(&name), commit)?;
    drop(import_lock);
    Ok((imported, true))
}

/// Returns the same as [`ensure`], and checks that a release from a directory still is that directory's content.
pub fn fetch(ws: &Workspace, version: Option<&str>) -> Result<Release> {
    let (release, imported_now) = ensure_imported(ws, version)?;
    // The import has read the directory and compared it with the lock file.
    if !imported_now {
        check_directory(ws, &release.version)?;
    }
    Ok(release)
}

/// Checks that a release from a directory is as recorded. Releases from elsewhere pass.
fn check_directory(ws: &Workspace, version: &str) -> Result<()> {
    let source = ws.config.release(Some(version))?;
    let lock = LockFile::read(&ws.lock_file())?;
    let (Some(_), Some(locked)) = (&source.directory, lock.get(version)) else {
        return Ok(());
    };
    let store = Objects::open_or_create(&ws.object_store())?;
    let found = fetch::fetch(ws, &store, source, Some(locked))?;
    check_against_lock(&ws.config.release_name(version), locked, &found)
}

/// Puts `file` in the place of the download of the release called `version` (by default the current one), for
/// archives that no longer have it. The lock file's or the configuration's SHA-256 decides whether it is the same file.
pub fn supply(ws: &Workspace, version: Option<&str>, file: &Path) -> Result<()> {
    let source = ws.config.release(version)?;
    let lock = LockFile::read(&ws.lock_file())?;
    fetch::supply(ws, source, lock.get(&source.version), file).map(drop)
}

/// Returns the release if the store holds it as recorded in the lock file.
fn ready(
    ws: &Workspace,
    store: &Objects,
    name: &str,
    source: &ReleaseSource,
) -> Result<Option<Release>> {
    let lock = LockFile::read(&ws.lock_file())?;
    let (Some((commit, tree)), Some(locked)) = (imported(store, name)?, lock.get(&source.version))
    else {
        return Ok(None);
    };
    let sha256 = configured_digest(source).unwrap_or(locked.sha256.as_str());
    let same = is_from(locked, source)
        && tree.to_string() == locked.tree
        && sha256.eq_ignore_ascii_case(&locked.sha256);
    Ok(same.then(|| release(name, commit, locked)))
}

/// Returns whether the recorded release is the configured one. The digest identifies a tarball, whatever its address.
fn is_from(locked: &LockedRelease, source: &ReleaseSource) -> bool {
    source.tarball.is_some() || locked.source == source_text(source)
}

fn release(name: &str, commit: Oid, locked: &LockedRelease) -> Release {
    Release {
        name: name.to_owned(),
        version: locked.version.clone(),
        commit: commit.to_string(),
        tree: locked.tree.clone(),
        sha256: locked.sha256.clone(),
    }
}

/// Returns the commits of two releases, in hexadecimal, with upstream's own history from the first to the second.
/// Fetches the history if necessary. Returns `None` if the releases do not come from one git repository, or if the
/// repository does not serve its history.
pub fn history(ws: &Workspace, old: &str, new: &str) -> Result<Option<(String, String)>> {
    let (old, new) = (ws.config.release(Some(old))?, ws.config.release(Some(new))?);
    let (Some(old_git), Some(new_git)) = (&old.git, &new.git) else {
        return Ok(None);
    };
    let store = Objects::open(&ws.object_store())?;
    let commits = git::history(
        &store,
        ws.root(),
        (&old.version, old_git),
        (&new.version, new_git),
    )?;
    Ok(commits.map(|(old, new)| (old.to_string(), new.to_string())))
}

fn reference(name: &str) -> String {
    format!("refs/releases/{}", git::reference_part(name))
}

/// Returns commit and tree of a release if the store has it.
fn imported(store: &Objects, name: &str) -> Result<Option<(Oid, Oid)>> {
    let commit = store.reference(&reference(name))?;
    // A damaged commit counts as missing, so that the release is imported again.
    Ok(commit.and_then(|commit| Some((commit, store.tree_of(commit).ok()?))))
}

fn configured_digest(source: &ReleaseSource) -> Option<&str> {
    source
        .tarball
        .as_ref()
        .map(|tarball| tarball.sha256.as_str())
}

fn source_text(source: &ReleaseSource) -> String {
    if let Some(debian) = &source.debian {
        format!("debian {} {}", debian.suite, debian.package)
    } else if let Some(tarball) = &source.tarball {
        format!("tarball {}", tarball.url)
    } else if let Some(git) = &source.git {
        format!("git {} {}", git.remote, git.tag)
    } else {
        let directory = source.directory.as_deref().unwrap_or("".as_ref());
        format!("directory {}", directory.display())
    }
}

fn check_against_lock(name: &str, locked: &LockedRelease, fetched: &LockedRelease) -> Result<()> {
    let changed = |what: &str, old: &str, new: &str| {
        Err(Error::lock_file(format!("{name} differs from the lock file: its {what} changed"))
            .at("bench-config/upstream.lock", None)
            .details([format!("recorded {old}"), format!("found    {new}")])
            .hint(
                "if the change is wanted, remove the release's entry from the lock file and fetch again; \
                 old results then belong to another release",
            ))
    };
    if !locked.sha256.is_empty() && !fetched.sha256.is_empty() && locked.sha256 != fetched.sha256 {
        return changed("sha256", &locked.sha256, &fetched.sha256);
    }
    if locked.tree != fetched.tree {
        return changed("tree", &locked.tree, &fetched.tree);
    }
    Ok(())
}

fn write_commit(store: &Objects, name: &str, fetched: &LockedRelease) -> Result<Oid> {
    let who = "perfquilt <perfquilt@localhost> 0 +0000";
    let text = format!(
        "tree {}\nauthor {who}\ncommitter {who}\n\n{name}\n",
        fetched.tree
    );
    store
        .database()?
        .write(ObjectType::Commit, text.as_bytes())
        .map_err(store_error)
}
