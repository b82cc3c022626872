//! Merging small packs. Every long stack adds a pack, and every pack makes object lookups slower.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::objects::Objects;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_system::git::Git;

/// Packs of at least this many bytes hold releases and are never merged.
const SIZE_LIMIT: u64 = 16 << 20;
/// Maximum number of small packs.
const COUNT_LIMIT: usize = 16;
/// Older versions of git ignore `--keep-pack` in a geometric repack and would write the releases again.
const OLDEST_GIT: (u32, u32) = (2, 37);

/// Lets git merge the small packs of the store at `path` if there are too many. Having many packs is no failure, so an
/// error is only logged.
pub fn merge_packs(path: &Path) {
    if let Err(error) = try_merge(path) {
        tracing::debug!("packs were not merged: {error}");
    }
}

/// Merges the small packs if there are too many. Git keeps every object, used or not, and removes a pack only when the
/// merged one is on the disk. Returns whether it merged any.
fn try_merge(path: &Path) -> Result<bool> {
    let store = Objects::open(path)?;
    let (small, _) = packs(&store);
    if small <= COUNT_LIMIT {
        return Ok(false);
    }
    // Another process may have merged them.
    let _lock = store.lock_import()?;
    let (small, large) = packs(&store);
    if small <= COUNT_LIMIT {
        return Ok(false);
    }
    let git = Git::bare(store.path());
    let version = git.ok(&["version"])?;
    if version_number(&version).is_none_or(|version| version < OLDEST_GIT) {
        let (major, minor) = OLDEST_GIT;
        return Err(Error::program_unusable(format!(
            "{version} cannot merge packs, {major}.{minor} can"
        )));
    }
    let keep = large.iter().map(|pack| {
        let mut option = OsStr::new("--keep-pack=").to_os_string();
        option.push(pack);
        option
    });
    // The user's settings must not split the pack or add a bitmap. The deltas are as short as they can be.
    git.command(&["-c", "repack.writeBitmaps=false"])
        .args(["-c", "pack.packSizeLimit=0", "repack"])
        .args(["--geometric=2", "-d", "-n", "--quiet", "--window=0"])
        .args(keep)
        .run_ok(Kind::Internal)?;
    Ok(true)
}

/// Returns the first two numbers of what `git version` prints.
fn version_number(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("git version ")?.split('.');
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

/// Returns the number of small packs that may be merged, and the file names of the large ones.
fn packs(store: &Objects) -> (usize, Vec<PathBuf>) {
    let (mut small, mut large) = (0, Vec::new());
    let entries = std::fs::read_dir(store.pack_folder());
    for entry in entries.into_iter().flatten().flatten() {
        let path = entry.path();
        // Readers look for indices: a pack without one is unfinished.
        if path.extension() != Some(OsStr::new("pack")) || !path.with_extension("idx").is_file() {
            continue;
        }
        match entry.metadata() {
            Ok(file) if file.len() >= SIZE_LIMIT => large.push(entry.file_name().into()),
            Ok(_) if !path.with_extension("keep").is_file() => small += 1,
            _ => {}
        }
    }
    (small, large)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use git2::{ObjectType, Oid};

    use super::super::object_writer::ObjectWriter;
    use super::super::objects::hash;
    use super::*;
    use perfquilt_pack::delta;

    fn text(number: usize) -> Vec<u8> {
        let lines = (0..300).map(|line| {
            if line % 97 == number {
                format!("version {number}\n")
            } else {
                format!("line {line}\n")
            }
        });
        lines.collect::<String>().into_bytes()
    }

    fn blob(number: usize) -> Oid {
        hash(ObjectType::Blob, &text(number))
    }

    /// Writes a pack with one text and a second one as a delta of it.
    fn pack(store: &Objects, base: usize, other: usize) {
        // An expected number this large makes the writer use a pack.
        let mut writer = ObjectWriter::new(store, 1 << 20).unwrap();
        let (old, new) = (text(base), text(other));
        writer.write(ObjectType::Blob, &old).unwrap();
        let named = (ObjectType::Blob, blob(other));
        let delta = || delta::of_lines(&old, &new);
        writer
            .write_version(named, &new, blob(base), delta)
            .unwrap();
        writer.finish().unwrap();
    }

    fn store() -> (tempfile::TempDir, Objects) {
        let dir = tempfile::tempdir().unwrap();
        let store = Objects::open_or_create(&dir.path().join("objects.git")).unwrap();
        (dir, store)
    }

    /// The names of all packs.
    fn names(store: &Objects) -> BTreeSet<PathBuf> {
        let entries = std::fs::read_dir(store.pack_folder()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .filter(|path| path.extension() == Some(OsStr::new("pack")))
            .collect()
    }

    /// Checks that git finds no fault and that every text is there.
    fn check(store: &Objects, texts: usize) {
        Git::bare(store.path())
            .ok(&["fsck", "--full", "--strict"])
            .unwrap();
        let fresh = Objects::open(store.path()).unwrap();
        for number in 0..texts {
            let data = fresh.read(blob(number), ObjectType::Blob).unwrap();
            assert_eq!(data, text(number));
        }
    }

    #[test]
    fn versions_of_git_are_compared_as_numbers() {
        for (text, old) in [
            ("git version 2.9.5", true),
            ("git version 2.36.6", true),
            ("git version 2.37.0-rc1", false),
            ("git version 2.39.5 (Apple Git-154)", false),
            ("git version 10.0", false),
        ] {
            assert_eq!(version_number(text).unwrap() < OLDEST_GIT, old, "{text}");
        }
        assert_eq!(version_number("hub version 2.39"), None);
    }

    #[test]
    fn git_merges_packs_with_opposite_deltas_and_keeps_objects_that_nothing_uses() {
        let (_dir, store) = store();
        for number in 0..COUNT_LIMIT {
            pack(&store, number, number + 1);
        }
        let loose = store.database().unwrap().write(ObjectType::Blob, b"loose");
        assert!(!try_merge(store.path()).unwrap(), "not too many yet");
        assert_eq!(names(&store).len(), COUNT_LIMIT);
        // The same two objects, each a delta of the other in one of the packs.
        pack(&store, 1, 0);
        // Other processes have read the store before git merges.
        let reader = Objects::open(store.path()).unwrap();
        assert!(reader.has(blob(0)).unwrap());
        assert!(try_merge(store.path()).unwrap());
        assert_eq!(names(&store).len(), 1);
        check(&store, COUNT_LIMIT + 1);
        let read = |store: &Objects, oid| store.read(oid, ObjectType::Blob).unwrap();
        assert_eq!(read(&store, loose.unwrap()), b"loose");
        for number in 0..=COUNT_LIMIT {
            assert_eq!(read(&reader, blob(number)), text(number));
        }
    }

    #[test]
    fn large_packs_and_those_to_be_kept_stay() {
        let (_dir, store) = store();
        let mut writer = ObjectWriter::new(&store, 1 << 20).unwrap();
        // Short contents are stored uncompressed.
        for number in 0_u64..40_000 {
            let content = number.to_be_bytes().repeat(60);
            writer.write(ObjectType::Blob, &content).unwrap();
        }
        writer.finish().unwrap();
        let large = names(&store);
        pack(&store, 50, 51);
        let kept: BTreeSet<PathBuf> = &names(&store) - &large;
        for path in &kept {
            std::fs::write(path.with_extension("keep"), "").unwrap();
        }
        for number in 0..=COUNT_LIMIT {
            pack(&store, number, number + 1);
        }
        assert!(try_merge(store.path()).unwrap());
        let left = names(&store);
        assert!(left.is_superset(&large) && left.is_superset(&kept));
        assert_eq!(left.len(), 3);
        check(&store, COUNT_LIMIT + 2);
    }

    #[test]
    fn merging_recovers_from_a_kill_before_the_old_packs_were_removed() {
        let (dir, store) = store();
        for number in 0..=COUNT_LIMIT {
            pack(&store, number, number + 1);
        }
        // The state after a kill between publishing the merged pack and removing the old ones.
        let copy = dir.path().join("copy");
        std::fs::create_dir(&copy).unwrap();
        for file in std::fs::read_dir(store.pack_folder()).unwrap().flatten() {
            std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
        assert!(try_merge(store.path()).unwrap());
        for file in std::fs::read_dir(&copy).unwrap().flatten() {
            std::fs::copy(file.path(), store.pack_folder().join(file.file_name())).unwrap();
        }
        check(&store, COUNT_LIMIT + 2);
        assert!(try_merge(store.path()).unwrap());
        assert_eq!(names(&store).len(), 1);
        check(&store, COUNT_LIMIT + 2);
    }

    #[test]
    fn a_damaged_pack_makes_git_give_up_and_lose_nothing() {
        let (_dir, store) = store();
        for number in 0..=COUNT_LIMIT {
            pack(&store, 2 * number, 2 * number + 1);
        }
        let before = names(&store);
        let damaged = before.first().unwrap();
        let mut bytes = std::fs::read(damaged).unwrap();
        bytes[40] ^= 1;
        std::fs::remove_file(damaged).unwrap();
        std::fs::write(damaged, bytes).unwrap();
        assert!(try_merge(store.path()).is_err());
        assert!(names(&store).is_superset(&before));
    }
}
