//! `upstream verify`: comparing downloads, lock file and object store.

use git2::{ObjectType, Oid};

use super::lock::{LockFile, LockedRelease};
use super::objects::{DAMAGED, MODE_COMMIT, MODE_TREE, Objects, empty_tree, hash, parse_tree};
use super::{check_directory, fetch, imported};
use perfquilt_config::ReleaseSource;
use perfquilt_config::workspace::Workspace;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_system::process::check_interrupted;

/// The result of verifying a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedRelease {
    /// Name and version.
    pub name: String,
    /// Whether its source file exists; its digest is then the recorded one.
    pub file: bool,
    /// Number of objects read from the store, each of which hashes to its id.
    pub objects: usize,
}

/// Checks every release of the lock file, or those in `versions`: the digest of its source file if that exists, and
/// every object of its tree. Returns the result of each release; a release that fails does not stop the others.
///
/// # Errors
/// [`Kind::Usage`] for an unknown release, or when no release was fetched yet; [`Kind::Interrupted`]. A release's own
/// result is [`Kind::Usage`] when something differs from the lock file, [`Kind::Internal`] when the store is damaged.
pub fn verify(ws: &Workspace, versions: &[String]) -> Result<Vec<Result<VerifiedRelease>>> {
    let lock = LockFile::read(&ws.lock_file())?;
    let mut wanted = Vec::new();
    if versions.is_empty() {
        wanted.extend(lock.iter().map(|locked| locked.version.clone()));
    } else {
        for version in versions {
            wanted.push(ws.config.release(Some(version))?.version.clone());
        }
    }
    if wanted.is_empty() {
        return Err(
            Error::lock_file("nothing to verify: no release was fetched yet")
                .hint("`perfquilt upstream fetch` fetches the current one"),
        );
    }
    let store = Objects::open_or_create(&ws.object_store())?;
    let mut results = Vec::new();
    for version in wanted {
        check_interrupted()?;
        match verify_release(ws, &lock, &store, &version) {
            Err(error) if error.kind() == Kind::Interrupted => return Err(error),
            result => results.push(result),
        }
    }
    Ok(results)
}

/// Checks the release called `version`.
fn verify_release(
    ws: &Workspace,
    lock: &LockFile,
    store: &Objects,
    version: &str,
) -> Result<VerifiedRelease> {
    let name = ws.config.release_name(version);
    let fetch_hint = format!("`perfquilt upstream fetch {version}` fetches it");
    let locked = lock.get(version).ok_or_else(|| {
        Error::lock_file(format!("{name} is not in the lock file")).hint(fetch_hint.clone())
    })?;
    let file = match ws.config.release(Some(version)) {
        Ok(source) if !locked.sha256.is_empty() => check_file(ws, source, locked)?,
        _ => false,
    };
    let Some((_, tree)) = imported(store, &name)? else {
        return Err(
            Error::lock_file(format!("{name} is not in the object store")).hint(fetch_hint),
        );
    };
    if tree.to_string() != locked.tree {
        return Err(
            Error::lock_file(format!("{name} has another tree in the object store"))
                .details([
                    format!("recorded {}", locked.tree),
                    format!("found    {tree}"),
                ])
                .hint(fetch_hint),
        );
    }
    check_directory(ws, version)?;
    let step = progress::begin(&format!("checking {name}"), None);
    let mut objects = 0;
    check_objects(store, tree, &mut objects, &mut |done| {
        step.update(done as u64, None, &format!("{done} objects"));
    })?;
    step.finish("");
    Ok(VerifiedRelease {
        name,
        file,
        objects,
    })
}

/// Compares the digest of a release's source file with the recorded one. Returns whether the file exists.
fn check_file(ws: &Workspace, source: &ReleaseSource, locked: &LockedRelease) -> Result<bool> {
    let Some((path, found)) = fetch::existing_file(ws, source, &locked.file)? else {
        return Ok(false);
    };
    if found == locked.sha256 {
        return Ok(true);
    }
    // Nothing can fetch the user's own file again.
    let hint = if fetch::is_local_file(source) {
        "restore the file; if the new one is right, correct `sha256` in bench-config/perfquilt.toml"
    } else {
        "remove it and fetch again"
    };
    let fault = format!("{} is not the file that was recorded", path.display());
    Err(Error::lock_file(fault)
        .details([
            format!("recorded {}", locked.sha256),
            format!("found    {found}"),
        ])
        .hint(hint))
}

/// Reads every object below `tree` and hashes it.
fn check_objects(
    store: &Objects,
    tree: Oid,
    count: &mut usize,
    report: &mut dyn FnMut(usize),
) -> Result<()> {
    check_interrupted()?;
    if tree == empty_tree() {
        return Ok(());
    }
    *count += 1;
    let database = store.database()?;
    let damaged =
        |oid: Oid| Error::objects_damaged(format!("object {oid} is damaged")).hint(DAMAGED);
    let data = store.read(tree, ObjectType::Tree)?;
    if hash(ObjectType::Tree, &data) != tree {
        return Err(damaged(tree));
    }
    for entry in parse_tree(&data).ok_or_else(|| damaged(tree))? {
        match entry.mode {
            MODE_TREE => check_objects(store, entry.oid, count, report)?,
            MODE_COMMIT => {}
            _ => {
                let object = database.read(entry.oid).map_err(|error| {
                    Error::objects_damaged(format!("object {}: {}", entry.oid, error.message()))
                        .hint(DAMAGED)
                })?;
                if object.kind() != ObjectType::Blob
                    || hash(ObjectType::Blob, object.data()) != entry.oid
                {
                    return Err(damaged(entry.oid));
                }
                *count += 1;
                if count.is_multiple_of(1024) {
                    report(*count);
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::TreeEntry;
    use crate::upstream::object_writer::ObjectWriter;
    use crate::upstream::objects::serialise_tree;

    #[test]
    fn a_folder_under_a_name_that_is_not_its_own_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("objects.git");
        let mut entries = [TreeEntry {
            name: b"sub".to_vec(),
            mode: MODE_COMMIT,
            oid: Oid::from_bytes(&[1; 20]).unwrap(),
        }];
        let data = serialise_tree(&mut entries);
        let (right, wrong) = (
            hash(ObjectType::Tree, &data),
            Oid::from_bytes(&[2; 20]).unwrap(),
        );
        let store = Objects::open_or_create(&path).unwrap();
        // An expected number this large makes the writer use a pack.
        let mut writer = ObjectWriter::new(&store, 1 << 20).unwrap();
        for name in [right, wrong] {
            writer.write_named(ObjectType::Tree, name, &data).unwrap();
        }
        writer.finish().unwrap();
        let store = Objects::open(&path).unwrap();
        let check = |tree| {
            let mut count = 0;
            check_objects(&store, tree, &mut count, &mut |_| ()).map(|()| count)
        };
        assert_eq!(check(right).unwrap(), 1);
        assert!(check(wrong).is_err());
    }
}
