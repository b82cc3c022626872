//! Editing tree objects in their serialised form: a patch changes one object id of twenty bytes in a tree object that
//! may have thousands of entries.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use git2::{ObjectType, Oid};

use crate::upstream::Objects;
use crate::upstream::object_writer::ObjectWriter;
use crate::upstream::objects::{MODE_TREE, canonical_mode, empty_tree, hash};
use perfquilt_model::error::{Error, Result};
use perfquilt_pack::delta;

/// Length of an object id in bytes.
const OID_LENGTH: usize = 20;

/// A serialised tree object and the edited ones below it.
#[derive(Debug, Clone)]
pub struct TreeObject {
    /// The id of the object as last written.
    oid: Oid,
    /// The current content.
    bytes: Vec<u8>,
    /// The offsets of each entry.
    entries: Vec<EntryOffsets>,
    /// The content as last written, if it has changed since.
    before: Option<Vec<u8>>,
    folders: BTreeMap<Vec<u8>, TreeObject>,
    /// Names of the folders below that changed.
    touched: BTreeSet<Vec<u8>>,
}

impl TreeObject {
    /// Reads the tree object `oid`.
    pub fn read(objects: &Objects, oid: Oid) -> Result<Self> {
        let bytes = if oid == empty_tree() {
            Vec::new()
        } else {
            objects.read(oid, ObjectType::Tree)?
        };
        let mut folder = TreeObject {
            oid,
            bytes,
            entries: Vec::new(),
            before: None,
            folders: BTreeMap::new(),
            touched: BTreeSet::new(),
        };
        let mut at = 0;
        while at < folder.bytes.len() {
            let entry = EntryOffsets::parse(&folder.bytes, at)
                .filter(|entry| entry.end() <= folder.bytes.len())
                .ok_or_else(|| Error::internal(format!("tree {oid} is malformed")))?;
            at = entry.end();
            folder.entries.push(entry);
        }
        Ok(folder)
    }

    /// Sets the file at a path, which is given by its components.
    pub fn set(&mut self, objects: &Objects, path: &[&[u8]], mode: u32, oid: Oid) -> Result<()> {
        match path {
            [] => {}
            [name] => self.put(name, mode, oid),
            [name, rest @ ..] => self.below(objects, name)?.set(objects, rest, mode, oid)?,
        }
        Ok(())
    }

    /// Removes the file at a path.
    pub fn remove(&mut self, objects: &Objects, path: &[&[u8]]) -> Result<()> {
        match path {
            [] => {}
            [name] => self.take(name, false),
            [name, rest @ ..] => {
                let folder = self.below(objects, name)?;
                folder.remove(objects, rest)?;
                if folder.entries.is_empty() && folder.folders.is_empty() {
                    self.folders.remove(*name);
                    self.touched.remove(*name);
                    self.take(name, true);
                }
            }
        }
        Ok(())
    }

    /// Returns the entry at a path, or that of the file in the place of one of its folders: mode, object and the number of
    /// components up to it. Folders have no object here.
    pub fn entry_at(
        &mut self,
        objects: &Objects,
        path: &[&[u8]],
    ) -> Result<Option<(u32, Oid, usize)>> {
        let mut folder = self;
        for (at, name) in path.iter().enumerate() {
            if let Ok(number) = folder.find(name, false) {
                let found = folder.mode(number).zip(folder.object(number));
                return Ok(found.map(|(mode, oid)| (mode, oid, at + 1)));
            }
            if !folder.folders.contains_key(*name) && folder.find(name, true).is_err() {
                return Ok(None);
            }
            if at + 1 < path.len() {
                folder = folder.load(objects, name)?;
            }
        }
        Ok(Some((MODE_TREE, Oid::ZERO_SHA1, path.len())))
    }

    /// Returns the object of the file at a path.
    pub fn file(&mut self, objects: &Objects, path: &[&[u8]]) -> Result<Option<Oid>> {
        let found = self.entry_at(objects, path)?;
        let file = found.filter(|(mode, _, depth)| *mode != MODE_TREE && *depth == path.len());
        Ok(file.map(|(_, oid, _)| oid))
    }

    /// Writes the changed tree objects and returns the id of this one.
    pub fn write(&mut self, writer: &mut ObjectWriter<'_>) -> Result<Oid> {
        for name in std::mem::take(&mut self.touched) {
            let Some(folder) = self.folders.get_mut(&name) else {
                continue;
            };
            let oid = folder.write(writer)?;
            self.put(&name, MODE_TREE, oid);
        }
        let Some(before) = self.before.take() else {
            return Ok(self.oid);
        };
        self.oid = if self.entries.is_empty() {
            // Only the root can be empty here, and git knows the empty tree without storing it.
            writer.write(ObjectType::Tree, &self.bytes)?
        } else {
            let delta = || delta::of_trees(&before, &self.bytes);
            let oid = hash(ObjectType::Tree, &self.bytes);
            let named = (ObjectType::Tree, oid);
            writer.write_version(named, &self.bytes, self.oid, delta)?;
            oid
        };
        Ok(self.oid)
    }

    fn below(&mut self, objects: &Objects, name: &[u8]) -> Result<&mut TreeObject> {
        self.touched.insert(name.to_vec());
        self.load(objects, name)
    }

    fn load(&mut self, objects: &Objects, name: &[u8]) -> Result<&mut TreeObject> {
        if !self.folders.contains_key(name) {
            let there = self.find(name, true).ok().and_then(|i| self.object(i));
            let folder = TreeObject::read(objects, there.unwrap_or_else(empty_tree))?;
            self.folders.insert(name.to_vec(), folder);
        }
        self.folders
            .get_mut(name)
            .ok_or_else(|| Error::internal("a folder vanished"))
    }

    /// Finds the index of an entry; the error is the index where it would be inserted.
    fn find(&self, name: &[u8], folder: bool) -> std::result::Result<usize, usize> {
        self.entries.binary_search_by(|entry| {
            let key = (entry.name(&self.bytes), entry.is_folder(&self.bytes));
            compare(key, (name, folder))
        })
    }

    fn mode(&self, number: usize) -> Option<u32> {
        let text = std::str::from_utf8(self.entries.get(number)?.mode(&self.bytes)).ok()?;
        Some(canonical_mode(u32::from_str_radix(text, 8).ok()?))
    }

    fn object(&self, number: usize) -> Option<Oid> {
        let entry = self.entries.get(number)?;
        Oid::from_bytes(&self.bytes[entry.object..entry.end()]).ok()
    }

    fn put(&mut self, name: &[u8], mode: u32, oid: Oid) {
        let mode_text = format!("{mode:o}");
        let found = self.find(name, mode == MODE_TREE);
        if let Ok(number) = found
            && self.entries[number].mode(&self.bytes) == mode_text.as_bytes()
        {
            let place = self.entries[number].object..self.entries[number].end();
            if &self.bytes[place.clone()] != oid.as_bytes() {
                self.remember();
                self.bytes[place].copy_from_slice(oid.as_bytes());
            }
            return;
        }
        if found.is_ok() {
            self.take(name, mode == MODE_TREE);
        }
        self.remember();
        let number = found.unwrap_or_else(|number| number);
        let start = self
            .entries
            .get(number)
            .map_or(self.bytes.len(), |entry| entry.start);
        let space = start + mode_text.len();
        let new = EntryOffsets {
            start,
            space,
            object: space + name.len() + 2,
        };
        let text = [mode_text.as_bytes(), b" ", name, &[0], oid.as_bytes()].concat();
        self.bytes.splice(start..start, text);
        for later in &mut self.entries[number..] {
            *later = later.moved(start, new.end());
        }
        self.entries.insert(number, new);
    }

    fn take(&mut self, name: &[u8], folder: bool) {
        let Ok(number) = self.find(name, folder) else {
            return;
        };
        self.remember();
        let old = self.entries.remove(number);
        self.bytes.drain(old.start..old.end());
        for later in &mut self.entries[number..] {
            *later = later.moved(old.end(), old.start);
        }
    }

    fn remember(&mut self) {
        if self.before.is_none() {
            self.before = Some(self.bytes.clone());
        }
    }
}

/// Returns the components of a path.
pub(super) fn components(path: &[u8]) -> Vec<&[u8]> {
    path.split(|&b| b == b'/').collect()
}

/// The offsets of an entry's parts.
#[derive(Debug, Clone, Copy)]
struct EntryOffsets {
    start: usize,
    space: usize,
    object: usize,
}

impl EntryOffsets {
    /// Finds the parts of the entry that begins at `start`.
    fn parse(bytes: &[u8], start: usize) -> Option<Self> {
        let rest = bytes.get(start..)?;
        // Modes have five or six digits.
        let space = rest.iter().take(8).position(|&b| b == b' ')?;
        let nul = memchr::memchr(0, &rest[space..])?;
        Some(EntryOffsets {
            start,
            space: start + space,
            object: start + space + nul + 1,
        })
    }

    fn mode<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start..self.space]
    }

    fn name<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.space + 1..self.object - 1]
    }

    fn end(&self) -> usize {
        self.object + OID_LENGTH
    }

    fn is_folder(&self, bytes: &[u8]) -> bool {
        // Some programs write a leading zero.
        matches!(self.mode(bytes), b"40000" | b"040000")
    }

    /// Returns the offsets after the byte at `from` has come to `to`.
    fn moved(&self, from: usize, to: usize) -> Self {
        EntryOffsets {
            start: self.start + to - from,
            space: self.space + to - from,
            object: self.object + to - from,
        }
    }
}

/// Compares two names in git's order, as if those of folders ended in a slash.
fn compare(a: (&[u8], bool), b: (&[u8], bool)) -> Ordering {
    let common = a.0.len().min(b.0.len());
    a.0[..common].cmp(&b.0[..common]).then_with(|| {
        let next = |(name, folder): (&[u8], bool)| match name.get(common) {
            Some(&byte) => Some(byte),
            None => folder.then_some(b'/'),
        };
        // Names contain no slash, so one byte decides.
        next(a).cmp(&next(b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::TreeEntry;
    use crate::upstream::objects::{MODE_EXEC, MODE_FILE, serialise_tree};
    use proptest::prelude::*;

    fn store() -> (tempfile::TempDir, Objects) {
        let dir = tempfile::tempdir().unwrap();
        let store = Objects::open_or_create(&dir.path().join("objects.git")).unwrap();
        (dir, store)
    }

    fn oid(number: u8) -> Oid {
        Oid::from_bytes(&[number; OID_LENGTH]).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Any sequence of additions, changes and removals gives the same bytes as serialising the entries.
        #[test]
        fn is_what_a_fresh_serialisation_gives(
            steps in proptest::collection::vec(
                ("[ab.0]{1,3}", prop::option::of(("[01]", 1_u8..5, any::<bool>()))), 1..40),
        ) {
            let (_dir, store) = store();
            let mut writer = ObjectWriter::new(&store, 0).unwrap();
            let mut folder = TreeObject::read(&store, empty_tree()).unwrap();
            let mut expected: BTreeMap<String, (u32, Oid)> = BTreeMap::new();
            for (name, step) in steps {
                match step {
                    Some((_, number, exec)) => {
                        let mode = if exec { MODE_EXEC } else { MODE_FILE };
                        folder.set(&store, &[name.as_bytes()], mode, oid(number)).unwrap();
                        expected.insert(name, (mode, oid(number)));
                    }
                    None => {
                        folder.remove(&store, &[name.as_bytes()]).unwrap();
                        expected.remove(&name);
                    }
                }
                let written = folder.write(&mut writer).unwrap();
                let mut entries: Vec<TreeEntry> = expected
                    .iter()
                    .map(|(name, (mode, oid))| TreeEntry {
                        name: name.clone().into_bytes(),
                        mode: *mode,
                        oid: *oid,
                    })
                    .collect();
                let bytes = serialise_tree(&mut entries);
                let wanted = crate::upstream::objects::hash(ObjectType::Tree, &bytes);
                prop_assert_eq!(written, wanted);
            }
        }
    }

    #[test]
    fn a_folder_whose_mode_has_a_leading_zero_keeps_its_files() {
        let (_dir, store) = store();
        let database = store.database().unwrap();
        let tree = |mode: &str, name: &str, oid: Oid| {
            let mut data = format!("{mode} {name}\0").into_bytes();
            data.extend_from_slice(oid.as_bytes());
            database.write(ObjectType::Tree, &data).unwrap()
        };
        let old = tree("040000", "sql", tree("100644", "kept", oid(1)));
        let mut root = TreeObject::read(&store, old).unwrap();
        let path: [&[u8]; 2] = [b"sql", b"x"];
        root.set(&store, &path, MODE_FILE, oid(2)).unwrap();
        let mut writer = ObjectWriter::new(&store, 0).unwrap();
        let new = root.write(&mut writer).unwrap();
        let entries = store.read_tree(new).unwrap();
        assert_eq!(entries.len(), 1);
        let below = store.read_tree(entries[0].oid).unwrap();
        let names: Vec<&[u8]> = below.iter().map(|entry| entry.name.as_slice()).collect();
        assert_eq!(names, [b"kept".as_slice(), b"x"]);
    }

    #[test]
    fn folders_come_and_go_with_their_files() {
        let (_dir, store) = store();
        let mut writer = ObjectWriter::new(&store, 0).unwrap();
        let mut root = TreeObject::read(&store, empty_tree()).unwrap();
        root.set(&store, &[b"x"], MODE_FILE, oid(1)).unwrap();
        let flat = root.write(&mut writer).unwrap();
        let deep: [&[u8]; 3] = [b"a", b"b", b"c"];
        root.set(&store, &deep, MODE_FILE, oid(2)).unwrap();
        root.set(&store, &[b"a.txt"], MODE_FILE, oid(2)).unwrap();
        let both = root.write(&mut writer).unwrap();
        assert_ne!(flat, both);
        assert_eq!(root.file(&store, &deep).unwrap(), Some(oid(2)));
        assert_eq!(root.file(&store, &[b"a", b"z"]).unwrap(), None);
        assert_eq!(root.file(&store, &[b"q", b"z"]).unwrap(), None);
        let names: Vec<Vec<u8>> = store
            .read_tree(both)
            .unwrap()
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        assert_eq!(names, [b"a.txt".to_vec(), b"a".to_vec(), b"x".to_vec()]);
        // A file takes the folder's place.
        root.remove(&store, &deep).unwrap();
        root.set(&store, &[b"a"], MODE_FILE, oid(1)).unwrap();
        root.remove(&store, &[b"a.txt"]).unwrap();
        root.write(&mut writer).unwrap();
        assert_eq!(root.file(&store, &deep).unwrap(), None);
        root.remove(&store, &[b"a"]).unwrap();
        assert_eq!(root.write(&mut writer).unwrap(), flat);
    }
}
