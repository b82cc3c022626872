//! Merging small packs. Every long stack adds a pack, and every pack makes object lookups slower.
//!
//! The stored objects are copied unchanged, and none is dropped: that is up to `git gc`, which knows the unused ones.
//! The old packs are removed after the merged one is on the disk, so a kill at any time loses no object.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use flate2::Crc;
use git2::Oid;

use super::objects::Objects;
use super::pack_folder;
use super::pack_reader::{PackIndex, REF_DELTA};
use super::pack_writer::{PackWriter, PackedObject};
use perfquilt_model::error::Result;
use perfquilt_system::process::check_interrupted;

/// Packs of fewer bytes are small.
const SIZE_LIMIT: u64 = 16 << 20;
/// Maximum number of small packs.
const COUNT_LIMIT: usize = 16;

/// Merges the small packs of `store` if there are too many. Returns the number of merged packs.
///
/// # Errors
/// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the merged pack cannot be written,
/// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted).
pub fn merge_small(store: &Objects) -> Result<usize> {
    let folder = pack_folder::path(store.path());
    if small_packs(&folder).len() <= COUNT_LIMIT {
        return Ok(0);
    }
    // Another process may have merged them.
    let _lock = store.lock_import()?;
    let found = small_packs(&folder);
    if found.len() <= COUNT_LIMIT {
        return Ok(0);
    }
    let mut merged = PackWriter::new(store.path())?;
    let mut sources = Vec::new();
    for index in found {
        check_interrupted()?;
        // A damaged pack is left alone.
        let Some(objects) = read_objects(&index) else {
            continue;
        };
        for object in objects {
            merged.add(&object)?;
        }
        sources.push(index);
    }
    if sources.len() < 2 {
        return Ok(0);
    }
    let own = merged.finish()?;
    let count = sources.len();
    for index in sources {
        if index.file_stem().map(OsStr::to_os_string) == own {
            continue;
        }
        // The index goes first: without it, git ignores the pack.
        for end in ["idx", "rev", "pack"] {
            let _ = std::fs::remove_file(index.with_extension(end));
        }
    }
    store.refresh()?;
    Ok(count)
}

/// Returns the index files of small packs that may be replaced, smallest pack first.
fn small_packs(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut special = HashSet::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.extension().and_then(OsStr::to_str) {
            Some("idx") => {
                let size = std::fs::metadata(path.with_extension("pack")).map(|file| file.len());
                found.extend(
                    size.ok()
                        .filter(|&size| size < SIZE_LIMIT)
                        .map(|size| (size, path)),
                );
            }
            // Git's multi-pack index refers to the packs.
            None if entry.file_name() == "multi-pack-index" => return Vec::new(),
            Some("pack" | "rev") | None => {}
            Some(_) => {
                special.insert(path.with_extension("idx"));
            }
        }
    }
    found.sort();
    let paths = found.into_iter().map(|(_, path)| path);
    paths.filter(|path| !special.contains(path)).collect()
}

/// Reads a pack's objects in their order; `None` if an object is damaged, precedes its delta base or is of an
/// unsupported type.
fn read_objects(index: &Path) -> Option<Vec<PackedObject>> {
    let pack = std::fs::read(index.with_extension("pack")).ok()?;
    let entries = PackIndex::open(index)?.entries()?;
    let end = pack.len().checked_sub(20)?;
    let ends = entries.iter().skip(1).map(|entry| entry.offset);
    let ends = ends.chain([end as u64]);
    let mut before = HashSet::new();
    let mut objects = Vec::with_capacity(entries.len());
    for (entry, end) in entries.iter().zip(ends) {
        let start = usize::try_from(entry.offset).ok()?;
        let bytes = pack.get(start..usize::try_from(end).ok()?)?;
        let mut crc = Crc::new();
        crc.update(bytes);
        if crc.sum() != entry.crc {
            return None;
        }
        let header = bytes.iter().position(|byte| byte & 0x80 == 0)? + 1;
        match bytes[0] >> 4 & 7 {
            1..=4 => {}
            REF_DELTA => {
                let base = Oid::from_bytes(bytes.get(header..header + 20)?).ok()?;
                if !before.contains(&base) {
                    return None;
                }
            }
            _ => return None,
        }
        before.insert(entry.oid);
        objects.push(PackedObject::stored(entry.oid, bytes.to_vec(), entry.crc));
    }
    Some(objects)
}

#[cfg(test)]
mod tests {
    use git2::ObjectType;

    use super::super::pack_writer::Packer;
    use super::super::{delta, objects::hash};
    use super::*;

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

    /// Writes a pack with one text and a second one as a delta of it.
    fn pack(store: &Objects, base: usize, other: usize) {
        let (old, new) = (text(base), text(other));
        let name = |data: &[u8]| hash(ObjectType::Blob, data);
        let mut packer = Packer::default();
        let mut pack = PackWriter::new(store.path()).unwrap();
        let whole = packer.pack(ObjectType::Blob, name(&old), &old).unwrap();
        pack.add(&whole).unwrap();
        let delta = delta::of_lines(&old, &new);
        let delta = packer.pack_delta(name(&new), name(&old), &delta).unwrap();
        pack.add(&delta).unwrap();
        pack.finish().unwrap();
    }

    fn store() -> (tempfile::TempDir, Objects) {
        let dir = tempfile::tempdir().unwrap();
        let store = Objects::open_or_create(&dir.path().join("objects.git")).unwrap();
        (dir, store)
    }

    fn packs(store: &Objects) -> usize {
        small_packs(&store.path().join("objects/pack")).len()
    }

    /// Checks that both perfquilt's reader and libgit2 find every text.
    fn check(store: &Objects, texts: usize) {
        let fresh = Objects::open(store.path()).unwrap();
        for number in 0..texts {
            let oid = hash(ObjectType::Blob, &text(number));
            assert_eq!(fresh.read(oid, ObjectType::Blob).unwrap(), text(number));
            let (data, chain) = fresh.load(oid, ObjectType::Blob).unwrap();
            assert_eq!(data, text(number));
            assert!(chain.is_some());
        }
    }

    #[test]
    fn packs_with_opposite_deltas_are_merged() {
        let (_dir, store) = store();
        for number in 0..COUNT_LIMIT {
            pack(&store, number, number + 1);
        }
        assert_eq!(merge_small(&store).unwrap(), 0, "not too many yet");
        assert_eq!(packs(&store), COUNT_LIMIT);
        // The same two objects, each a delta of the other in one of the packs.
        pack(&store, 1, 0);
        assert_eq!(merge_small(&store).unwrap(), COUNT_LIMIT + 1);
        assert_eq!(packs(&store), 1);
        check(&store, COUNT_LIMIT + 1);
        // A store that was opened before the merge still reads it.
        let oid = hash(ObjectType::Blob, &text(COUNT_LIMIT));
        assert!(store.has(oid).unwrap());
    }

    #[test]
    fn damaged_packs_and_those_to_be_kept_stay() {
        let (_dir, store) = store();
        let folder = store.path().join("objects/pack");
        pack(&store, 50, 51);
        pack(&store, 52, 53);
        let [damaged, kept] = [0, 1].map(|at| small_packs(&folder).remove(at));
        let path = damaged.with_extension("pack");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[40] ^= 1;
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
        std::fs::write(kept.with_extension("keep"), "").unwrap();
        for number in 0..COUNT_LIMIT {
            pack(&store, number, number + 1);
        }
        assert_eq!(merge_small(&store).unwrap(), COUNT_LIMIT);
        assert!(damaged.is_file() && kept.is_file());
        check(&store, COUNT_LIMIT + 1);
    }

    #[test]
    fn merging_recovers_from_a_kill_before_the_old_packs_were_removed() {
        let (dir, store) = store();
        let folder = store.path().join("objects/pack");
        for number in 0..=COUNT_LIMIT {
            pack(&store, number, number + 1);
        }
        // The state after a kill between publishing the merged pack and removing the old ones.
        let copy = dir.path().join("copy");
        std::fs::create_dir(&copy).unwrap();
        for file in std::fs::read_dir(&folder).unwrap().flatten() {
            std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
        merge_small(&store).unwrap();
        for file in std::fs::read_dir(&copy).unwrap().flatten() {
            std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
        check(&store, COUNT_LIMIT + 2);
        assert_eq!(merge_small(&store).unwrap(), COUNT_LIMIT + 2);
        assert_eq!(packs(&store), 1);
        check(&store, COUNT_LIMIT + 2);
    }
}
