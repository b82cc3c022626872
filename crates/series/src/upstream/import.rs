//! Importing a stream of files into the object store as one tree.
//!
//! The caller reads and decompresses on its own thread, workers hash and compress, and one thread writes the pack. No
//! file is unpacked to the disk, and memory use stays at a few batches.

use std::collections::HashSet;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use git2::{ObjectType, OdbLookupFlags, Oid};

use super::folder_builder::FolderBuilder;
use super::objects::{self, Objects, object_id};
use crate::series::path;
use crate::upstream::store_error;
use perfquilt_model::error::{Error, Result};
use perfquilt_pack::{EntryEncoder, ObjectKind, PackEntry, PackWriter};
use perfquilt_system::process::check_interrupted;

/// Size of a batch for a worker, in bytes.
const BATCH_BYTES: usize = 1 << 20;

/// A file on its way to a worker.
struct QueuedFile {
    path: Vec<u8>,
    mode: u32,
    content: Vec<u8>,
}

/// A file from a worker; `packed` is `None` if the store or the import already has the object.
struct HashedFile {
    path: Vec<u8>,
    mode: u32,
    oid: Oid,
    packed: Option<PackEntry>,
}

/// The result of an import.
#[derive(Debug, Clone, Copy)]
pub struct ImportedTree {
    /// The tree.
    pub tree: Oid,
    /// Number of files in the tree.
    pub files: usize,
    /// Total size of the files, in bytes.
    pub bytes: u64,
}

/// Runs `read`, which supplies the files, and stores them as one tree. With `strip_top`, the tree starts below a single
/// top folder.
pub fn import(
    store: &Objects,
    strip_top: bool,
    read: impl FnOnce(&mut FileSink) -> Result<()>,
) -> Result<ImportedTree> {
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get().saturating_sub(1));
    let workers = workers.clamp(1, 4);
    let database = store.database()?;
    let known: Arc<Mutex<HashSet<Oid>>> = Arc::default();
    let (to_workers, from_reader) = sync_channel::<Vec<QueuedFile>>(2 * workers);
    // Only the workers hold the receiver: when the last of them ends, the reader's sends fail.
    let from_reader = Arc::new(Mutex::new(from_reader));
    let (to_writer, from_workers) = sync_channel::<Result<Vec<HashedFile>>>(2 * workers);
    let mut pack = PackWriter::new(&store.pack_folder())?;
    std::thread::scope(|scope| {
        for _ in 0..workers {
            let (input, output) = (Arc::clone(&from_reader), to_writer.clone());
            let (known, database) = (Arc::clone(&known), &database);
            scope.spawn(move || work(&input, &output, &known, database));
        }
        drop((to_writer, from_reader));
        let writer = scope.spawn(move || write(from_workers, &mut pack).map(|tree| (tree, pack)));
        let mut reader = FileSink::new(to_workers);
        let read_result = read(&mut reader).and_then(|()| reader.flush());
        let FileSink {
            to_workers,
            hard_links,
            files,
            bytes,
            ..
        } = reader;
        // Workers end when the last sender is gone.
        drop(to_workers);
        let written = writer
            .join()
            .map_err(|_| Error::internal("the thread that writes objects died"))?;
        // A failing writer closes the channel, which makes the reader fail too. The writer's error is the cause.
        let (mut tree, mut pack) = match (read_result, written) {
            (_, Err(error)) | (Err(error), Ok(_)) => return Err(error),
            (Ok(()), Ok(written)) => written,
        };
        for (path, target) in hard_links {
            let (mode, oid) = tree.find(&target).ok_or_else(|| {
                Error::archive(format!(
                    "hard link {} to {}, which is not a file of the archive",
                    path::shown(&path),
                    path::shown(&target)
                ))
            })?;
            tree.insert(&path, mode, oid)?;
        }
        if strip_top {
            tree = tree.without_top();
        }
        let mut encoder = EntryEncoder::default();
        let oid = tree.store(&mut |data| {
            let oid = objects::hash(ObjectType::Tree, data);
            if !database.exists_ext(oid, OdbLookupFlags::NO_REFRESH) {
                pack.add(&encoder.whole(ObjectKind::Tree, object_id(oid), data)?)?;
            }
            Ok(oid)
        })?;
        pack.finish()?;
        database.refresh().map_err(store_error)?;
        Ok(ImportedTree {
            tree: oid,
            files,
            bytes,
        })
    })
}

fn work(
    input: &Mutex<Receiver<Vec<QueuedFile>>>,
    output: &SyncSender<Result<Vec<HashedFile>>>,
    known: &Mutex<HashSet<Oid>>,
    database: &git2::Odb<'_>,
) {
    let mut encoder = EntryEncoder::default();
    loop {
        let received = match input.lock() {
            Ok(receiver) => receiver.recv(),
            Err(_) => return,
        };
        let Ok(batch) = received else { return };
        let result = batch
            .into_iter()
            .map(|item| {
                let oid = objects::hash(ObjectType::Blob, &item.content);
                let first = known.lock().is_ok_and(|mut known| known.insert(oid));
                let wanted = first && !database.exists_ext(oid, OdbLookupFlags::NO_REFRESH);
                let packed = wanted
                    .then(|| encoder.whole(ObjectKind::Blob, object_id(oid), &item.content))
                    .transpose()?;
                Ok(HashedFile {
                    path: item.path,
                    mode: item.mode,
                    oid,
                    packed,
                })
            })
            .collect();
        if output.send(result).is_err() {
            return;
        }
    }
}

fn write(input: Receiver<Result<Vec<HashedFile>>>, pack: &mut PackWriter) -> Result<FolderBuilder> {
    let mut root = FolderBuilder::default();
    for batch in input {
        for done in batch? {
            if let Some(packed) = &done.packed {
                pack.add(packed)?;
            }
            root.insert(&done.path, done.mode, done.oid)?;
        }
    }
    Ok(root)
}

/// Receives the files of a release, in batches for the workers.
pub struct FileSink {
    to_workers: SyncSender<Vec<QueuedFile>>,
    batch: Vec<QueuedFile>,
    batch_bytes: usize,
    /// Path and target of hard links, resolved when the tree has every file.
    hard_links: Vec<(Vec<u8>, Vec<u8>)>,
    files: usize,
    bytes: u64,
}

impl FileSink {
    fn new(to_workers: SyncSender<Vec<QueuedFile>>) -> Self {
        FileSink {
            to_workers,
            batch: Vec::new(),
            batch_bytes: 0,
            hard_links: Vec::new(),
            files: 0,
            bytes: 0,
        }
    }

    fn flush(&mut self) -> Result<()> {
        check_interrupted()?;
        self.batch_bytes = 0;
        self.to_workers
            .send(std::mem::take(&mut self.batch))
            .map_err(|_| Error::internal("the import was cancelled"))
    }

    /// Adds a file at `path` (components without `.` and `..`, separated by single slashes); a link's content is its
    /// target.
    pub fn file(&mut self, path: &[u8], mode: u32, content: Vec<u8>) -> Result<()> {
        path::check(path)?;
        self.files += 1;
        self.bytes += content.len() as u64;
        self.batch_bytes += content.len();
        self.batch.push(QueuedFile {
            path: path.to_vec(),
            mode,
            content,
        });
        if self.batch_bytes >= BATCH_BYTES || self.batch.len() >= 256 {
            self.flush()?;
        }
        Ok(())
    }

    /// Adds another name of a file that was added before.
    pub fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        path::check(path)?;
        self.files += 1;
        self.hard_links.push((path.to_vec(), target.to_vec()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::objects::{MODE_EXEC, MODE_FILE, MODE_LINK};
    use super::*;
    use perfquilt_testkit::git;

    fn store() -> (tempfile::TempDir, Objects) {
        let dir = tempfile::tempdir().unwrap();
        let store = Objects::open_or_create(&dir.path().join("o.git")).unwrap();
        (dir, store)
    }

    #[test]
    fn imports_and_git_agrees() {
        let (_dir, store) = store();
        let _lock = store.lock_import().unwrap();
        let imported = import(&store, true, |sink| {
            sink.file(b"top/a/run.sh", MODE_EXEC, b"#!\n".to_vec())?;
            sink.file(b"top/a.c", MODE_FILE, vec![b'x'; 3_000_000])?;
            sink.file(b"top/again.c", MODE_FILE, vec![b'x'; 3_000_000])?;
            sink.hard_link(b"top/b/hard", b"top/a/run.sh")?;
            sink.file(b"top/l", MODE_LINK, b"a/run.sh".to_vec())
        })
        .unwrap();
        assert_eq!(imported.files, 5);
        let listing = git(store.path(), &["ls-tree", "-r", &imported.tree.to_string()]);
        let names: Vec<&str> = listing
            .lines()
            .map(|line| line.split_once('\t').unwrap().1)
            .collect();
        assert_eq!(names, ["a.c", "a/run.sh", "again.c", "b/hard", "l"]);
        assert!(listing.contains("100755 blob") && listing.contains("120000 blob"));
        git(store.path(), &["fsck", "--full", "--strict"]);
        // Importing the same files again adds nothing.
        let packs = || {
            std::fs::read_dir(store.path().join("objects/pack"))
                .unwrap()
                .count()
        };
        let before = packs();
        let again = import(&store, false, |sink| {
            sink.file(b"a.c", MODE_FILE, vec![b'x'; 3_000_000])?;
            sink.file(b"a/run.sh", MODE_EXEC, b"#!\n".to_vec())?;
            sink.file(b"again.c", MODE_FILE, vec![b'x'; 3_000_000])?;
            sink.file(b"b/hard", MODE_EXEC, b"#!\n".to_vec())?;
            sink.file(b"l", MODE_LINK, b"a/run.sh".to_vec())
        })
        .unwrap();
        assert_eq!(again.tree, imported.tree);
        assert_eq!(packs(), before);
    }

    #[test]
    fn hostile_members_are_refused_and_leave_nothing() {
        let cases: [&[&[u8]]; 8] = [
            &[b"../evil"],
            &[b"/etc/passwd"],
            &[b"a/.git/config"],
            &[b"a/.GIT/hooks/x"],
            &[b"a/../../b"],
            &[b"a", b"a/b"],
            &[b"a/b", b"a"],
            &[b"a", b"a"],
        ];
        for paths in cases {
            let (_dir, store) = store();
            let result = import(&store, false, |sink| {
                paths
                    .iter()
                    .try_for_each(|path| sink.file(path, MODE_FILE, b"x".to_vec()))
            });
            assert!(result.is_err(), "{paths:?}");
            let left = std::fs::read_dir(store.path().join("objects/pack")).unwrap();
            assert_eq!(left.count(), 0, "{paths:?}");
        }
    }

    #[test]
    fn hard_link_to_nothing_is_refused() {
        let (_dir, store) = store();
        let error = import(&store, false, |sink| sink.hard_link(b"a", b"b")).unwrap_err();
        assert!(error.message().contains("hard link"), "{error}");
    }
}
