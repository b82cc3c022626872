//! Packs as git sees them: git indexes, verifies, checks and reads what the crate writes.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use perfquilt_model::error::Kind;
use perfquilt_pack::{
    EntryEncoder, ObjectId, ObjectKind, PackReader, PackWriter, delta, hash, remove_unfinished,
};
use perfquilt_system::process::Command;
use proptest::prelude::*;

/// A repository and the objects that were written to its only pack.
struct Repository {
    folder: tempfile::TempDir,
    encoder: EntryEncoder,
    pack: PackWriter,
    objects: BTreeMap<ObjectId, (ObjectKind, Vec<u8>)>,
}

impl Repository {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        git(folder.path(), &["init", "--quiet", "--bare"], b"");
        let pack = PackWriter::new(&folder.path().join("objects/pack")).unwrap();
        Repository {
            folder,
            encoder: EntryEncoder::default(),
            pack,
            objects: BTreeMap::new(),
        }
    }

    fn whole(&mut self, kind: ObjectKind, data: &[u8]) -> ObjectId {
        let id = hash(kind, data);
        let entry = self.encoder.whole(kind, id, data).unwrap();
        self.pack.add(&entry).unwrap();
        self.objects.insert(id, (kind, data.to_vec()));
        id
    }

    /// Writes `new` as a delta of the written object `base`, or whole if it is empty.
    fn version(&mut self, base: ObjectId, new: &[u8], delta: &[u8]) -> ObjectId {
        let kind = self.objects[&base].0;
        let id = hash(kind, new);
        if new.is_empty() {
            assert!(self.encoder.delta(id, base, delta).is_err());
            return self.whole(kind, new);
        }
        let entry = self.encoder.delta(id, base, delta).unwrap();
        self.pack.add(&entry).unwrap();
        self.objects.insert(id, (kind, new.to_vec()));
        id
    }

    /// Publishes the pack and has git check it: git makes the same index, finds no fault, and reads every object.
    fn check(self) {
        let store = self.folder.path();
        self.pack.finish().unwrap();
        let files = files(store);
        let [index, pack] = files.as_slice() else {
            panic!("{files:?}");
        };
        assert_eq!(index.extension().unwrap(), "idx");
        let again = store.join("again.idx");
        let arguments = ["index-pack", "--strict", "-o", again.to_str().unwrap()];
        let output = git(
            store,
            &[&arguments[..], &[pack.to_str().unwrap()]].concat(),
            b"",
        );
        let name = String::from_utf8(output).unwrap();
        assert!(
            pack.to_str()
                .unwrap()
                .ends_with(&format!("pack-{}.pack", name.trim_end()))
        );
        assert!(std::fs::read(&again).unwrap() == std::fs::read(index).unwrap());
        git(store, &["verify-pack", index.to_str().unwrap()], b"");
        git(store, &["fsck", "--full", "--strict"], b"");
        let wanted: String = self.objects.keys().map(|id| hex(id) + "\n").collect();
        let read = git(store, &["cat-file", "--batch"], wanted.as_bytes());
        let mut expected = Vec::new();
        for (id, (kind, data)) in &self.objects {
            let head = format!("{} {} {}\n", hex(id), kind.name(), data.len());
            expected.extend([head.as_bytes(), data, b"\n"].concat());
        }
        assert!(read == expected, "git reads other contents");
        let reader = PackReader::open(&store.join("objects/pack"));
        let copies = store.join("copies");
        let mut copy = PackWriter::new(&copies).unwrap();
        for (id, object) in &self.objects {
            // Deltas are left to libgit2.
            let found = reader.read(id);
            assert!(found.as_ref().is_none_or(|found| found == object));
            let entry = reader.compressed(id);
            assert_eq!(entry.is_some(), found.is_some());
            entry.iter().for_each(|entry| copy.add(entry).unwrap());
        }
        copy.finish().unwrap();
        let copied = PackReader::open(&copies);
        for id in self.objects.keys() {
            assert_eq!(copied.read(id), reader.read(id));
        }
    }
}

fn git(store: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let command = Command::new("git")
        .args(["--git-dir=."])
        .args(arguments)
        .directory(store)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(input);
    command.run_ok(Kind::Internal).unwrap().stdout
}

fn hex(id: &ObjectId) -> String {
    id.map(|byte| format!("{byte:02x}")).concat()
}

/// The files of the pack folder, sorted.
fn files(store: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(store.join("objects/pack")).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The content of a tree with plain files, whose names are sorted.
fn tree<'a>(entries: impl IntoIterator<Item = (&'a str, ObjectId)>) -> Vec<u8> {
    let entries = entries.into_iter();
    entries
        .flat_map(|(name, id)| [format!("100644 {name}\0").as_bytes(), id.as_slice()].concat())
        .collect()
}

/// Bytes that do not compress.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(step).collect()
}

proptest! {
    // Each case starts six git processes.
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn random_versions_of_texts(
        texts in proptest::collection::vec(
            proptest::collection::vec(
                proptest::collection::vec("[ab]{0,2}\n|[a-d ]{0,40}\n|x", 0..60), 1..8), 1..8),
    ) {
        let mut repository = Repository::new();
        for versions in texts {
            let mut versions = versions.iter().map(|lines| lines.concat().into_bytes());
            let mut old = versions.next().unwrap();
            let mut base = repository.whole(ObjectKind::Blob, &old);
            for new in versions {
                base = repository.version(base, &new, &delta::of_lines(&old, &new));
                old = new;
            }
        }
        repository.check();
    }

    #[test]
    fn random_bytes(
        contents in proptest::collection::vec(any::<Vec<u8>>(), 1..20),
        changes in proptest::collection::vec((any::<Vec<u8>>(), any::<prop::sample::Index>()), 0..20),
    ) {
        let mut repository = Repository::new();
        let mut written: Vec<(ObjectId, Vec<u8>)> = Vec::new();
        for data in contents {
            written.push((repository.whole(ObjectKind::Blob, &data), data));
        }
        for (new, base) in changes {
            let (base, old) = &written[base.index(written.len())];
            let id = repository.version(*base, &new, &delta::of_trees(old, &new));
            written.push((id, new));
        }
        repository.check();
    }

    #[test]
    fn random_trees(
        names in proptest::collection::btree_set("[a-z]{1,8}", 1..30),
        changes in proptest::collection::vec(
            proptest::collection::vec((any::<prop::sample::Index>(), "[a-c]{0,3}"), 1..5), 1..6),
    ) {
        let mut repository = Repository::new();
        let blob = repository.whole(ObjectKind::Blob, b"");
        let mut entries: Vec<(&str, ObjectId)> = names.iter().map(|name| (name.as_str(), blob)).collect();
        let mut old = tree(entries.iter().copied());
        let mut base = repository.whole(ObjectKind::Tree, &old);
        for change in changes {
            for (at, text) in change {
                let at = at.index(entries.len());
                entries[at].1 = repository.whole(ObjectKind::Blob, text.as_bytes());
            }
            let new = tree(entries.iter().copied());
            base = repository.version(base, &new, &delta::of_trees(&old, &new));
            old = new;
        }
        repository.check();
    }
}

#[test]
fn every_kind_and_the_limits_of_the_encodings() {
    let mut repository = Repository::new();
    // The header's first byte holds four bits of the length, the others seven; 512 bytes are compressed.
    for length in [
        0, 1, 15, 16, 511, 512, 513, 2047, 2048, 262_143, 262_144, 300_000,
    ] {
        repository.whole(ObjectKind::Blob, &noise(length));
        repository.whole(ObjectKind::Blob, &vec![b'x'; length]);
    }
    let blob = repository.whole(ObjectKind::Blob, b"content\n");
    let root = repository.whole(ObjectKind::Tree, &tree([("file", blob)]));
    let who = "A <a@localhost> 0 +0000";
    let commit = format!(
        "tree {}\nauthor {who}\ncommitter {who}\n\ntitle\n",
        hex(&root)
    );
    let commit = repository.whole(ObjectKind::Commit, commit.as_bytes());
    let tag = format!(
        "object {}\ntype commit\ntag v1\ntagger {who}\n\nv1\n",
        hex(&commit)
    );
    repository.whole(ObjectKind::Tag, tag.as_bytes());
    repository.check();
}

#[test]
fn long_copies_are_cut() {
    // A copy instruction holds 24 bits of the length.
    let old = [vec![b'a'; (1 << 24) + 70_000], b"\n".to_vec()].concat();
    let new = [&old[..], b"end"].concat();
    let delta = delta::of_lines(&old, &new);
    assert!(delta.len() < 40, "{}", delta.len());
    let mut repository = Repository::new();
    let base = repository.whole(ObjectKind::Blob, &old);
    repository.version(base, &new, &delta);
    repository.check();
}

#[test]
fn a_changed_line_costs_about_its_length() {
    let line = |number: usize| format!("line {number} of a long file\n");
    let old: String = (0..5000).map(line).collect();
    let new = old
        .replace("line 17 of", "line seventeen of")
        .replace("line 4000 of a long file\n", "");
    let delta = delta::of_lines(old.as_bytes(), new.as_bytes());
    assert!(delta.len() < 80, "{}", delta.len());
    let mut repository = Repository::new();
    let base = repository.whole(ObjectKind::Blob, old.as_bytes());
    repository.version(base, new.as_bytes(), &delta);
    repository.check();
}

#[test]
fn ends_of_texts() {
    let mut repository = Repository::new();
    for (old, new) in [
        ("", ""),
        ("", "a\n"),
        ("a\n", ""),
        ("a", "a\n"),
        ("a\nb", "a\nb\nc"),
        ("x\na\nb\n", "a\nb\n"),
        ("a\nb\nc\n", "a\nc\n"),
    ] {
        // The line in front makes every pair other objects, so that each delta is written.
        let at = repository.objects.len();
        let [old, new] = [old, new].map(|text| format!("{at}\n{text}").into_bytes());
        let base = repository.whole(ObjectKind::Blob, &old);
        repository.version(base, &new, &delta::of_lines(&old, &new));
    }
    repository.check();
}

#[test]
fn an_object_is_written_once_and_a_delta_needs_its_base() {
    let mut repository = Repository::new();
    let old = repository.whole(ObjectKind::Blob, b"old\n");
    assert_eq!(repository.whole(ObjectKind::Blob, b"old\n"), old);
    let delta = delta::of_lines(b"old\n", b"new\n");
    let new = repository.version(old, b"new\n", &delta);
    assert_eq!(repository.pack.depth(&old), Some(0));
    assert_eq!(repository.pack.depth(&new), Some(1));
    let elsewhere = hash(ObjectKind::Blob, b"elsewhere\n");
    let entry = repository
        .encoder
        .delta([1; 20], elsewhere, &delta)
        .unwrap();
    assert!(repository.pack.add(&entry).is_err());
    assert_eq!(repository.pack.depth(&[1; 20]), None);
    repository.check();
}

#[test]
fn an_unfinished_or_empty_pack_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let packs = folder.path().join("objects/pack");
    let entry = EntryEncoder::default().whole(ObjectKind::Blob, hash(ObjectKind::Blob, b"x"), b"x");
    let mut dropped = PackWriter::new(&packs).unwrap();
    dropped.add(&entry.unwrap()).unwrap();
    assert!(!dropped.is_empty());
    drop(dropped);
    PackWriter::new(&packs).unwrap().finish().unwrap();
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    // What a killed process leaves goes; what belongs to others stays.
    std::mem::forget(PackWriter::new(&packs).unwrap());
    std::fs::write(packs.join("pack-1.keep"), "").unwrap();
    assert_eq!(files(folder.path()).len(), 2);
    remove_unfinished(&packs);
    assert_eq!(files(folder.path()), [packs.join("pack-1.keep")]);
}

#[test]
fn whole_objects_are_read_and_damaged_or_other_ones_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = 1_u64;
    let mut noise = |length: usize| -> Vec<u8> {
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 56) as u8
        };
        (0..length).map(|_| next()).collect()
    };
    let mut contents: Vec<Vec<u8>> = [0, 1, 511, 512, 40_000, 300_000].map(&mut noise).into();
    contents.push(b"the same line\n".repeat(100_000));
    let mut pack = PackWriter::new(folder.path()).unwrap();
    let mut encoder = EntryEncoder::default();
    for content in &contents {
        let id = hash(ObjectKind::Blob, content);
        let entry = encoder.whole(ObjectKind::Blob, id, content).unwrap();
        pack.add(&entry).unwrap();
    }
    pack.finish().unwrap();
    let ids: Vec<ObjectId> = contents
        .iter()
        .map(|it| hash(ObjectKind::Blob, it))
        .collect();
    let reader = PackReader::open(folder.path());
    for (id, content) in ids.iter().zip(&contents) {
        let (kind, data) = reader.read(id).unwrap();
        assert!(
            kind == ObjectKind::Blob && data == *content,
            "{}",
            content.len()
        );
    }
    assert!(reader.read(&[7; 20]).is_none());
    assert!(reader.read(&[0xff; 20]).is_none());
    // A byte that changed anywhere in the pack is noticed or belongs to another object.
    let entries = std::fs::read_dir(folder.path()).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let path = paths
        .find(|path| path.extension().is_some_and(|end| end == "pack"))
        .unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let mut permissions = std::fs::metadata(&path).unwrap().permissions();
    #[allow(clippy::permissions_set_readonly_false)]
    permissions.set_readonly(false);
    std::fs::set_permissions(&path, permissions).unwrap();
    for at in (12..bytes.len() - 20).step_by(bytes.len() / 200) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        std::fs::write(&path, &damaged).unwrap();
        for (id, content) in ids.iter().zip(&contents) {
            assert!(reader.read(id).is_none_or(|(_, data)| data == *content));
        }
        let undamaged = ids.iter().filter(|id| reader.compressed(id).is_some());
        assert_eq!(undamaged.count(), ids.len() - 1);
    }
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(ids.iter().any(|id| reader.read(id).is_none()));
}
