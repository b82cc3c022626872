//! Writing encoded objects to a pack with its index, published by a rename.

use std::collections::HashMap;
use std::fs::{File, Permissions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha1::{Digest, Sha1};

use super::entry::PackEntry;
use super::object::ObjectId;
use perfquilt_model::error::{Error, Result};

/// Prefix of the names of unfinished packs.
const TEMPORARY_PREFIX: &str = "tmp_perfquilt_";

/// The index entry of a written object.
struct WrittenObject {
    id: ObjectId,
    offset: u64,
    crc: u32,
}

/// A pack being written. Dropping it without [`PackWriter::finish`] removes it.
pub struct PackWriter {
    folder: PathBuf,
    temporary: tempfile::NamedTempFile,
    out: BufWriter<File>,
    offset: u64,
    written: Vec<WrittenObject>,
    /// Length of each object's delta chain.
    depths: HashMap<ObjectId, usize>,
}

impl PackWriter {
    /// Creates a pack in `folder`, which is created if necessary: `objects/pack` of a repository.
    pub fn new(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, &e))?;
        let io = |error| Error::io("write a pack in", folder, &error);
        let temporary = tempfile::Builder::new()
            .prefix(TEMPORARY_PREFIX)
            .tempfile_in(folder)
            .map_err(io)?;
        let file = temporary.reopen().map_err(io)?;
        let mut writer = PackWriter {
            out: BufWriter::with_capacity(1 << 18, file),
            folder: folder.to_owned(),
            temporary,
            offset: 0,
            written: Vec::new(),
            depths: HashMap::new(),
        };
        // `finish` fills in the number of objects.
        writer.put(b"PACK\0\0\0\x02\0\0\0\0")?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out
            .write_all(bytes)
            .map_err(|e| Error::io("write a pack in", &self.folder, &e))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Writes an object, unless this pack has it already. A delta's base must have been written before: git refuses
    /// packs that refer to objects of others.
    pub fn add(&mut self, entry: &PackEntry) -> Result<()> {
        if self.depths.contains_key(&entry.id) {
            return Ok(());
        }
        let depth = match &entry.base {
            None => 0,
            Some(base) => {
                let depth = self.depth(base);
                depth.ok_or_else(|| Error::internal("a pack lacks the base of a delta"))? + 1
            }
        };
        self.depths.insert(entry.id, depth);
        self.written.push(WrittenObject {
            id: entry.id,
            offset: self.offset,
            crc: entry.crc,
        });
        self.put(&entry.bytes)
    }

    /// Returns the number of deltas between the object `id` and a whole one; `None` if the pack lacks the object.
    pub fn depth(&self, id: &ObjectId) -> Option<usize> {
        self.depths.get(id).copied()
    }

    /// Returns whether the pack has no objects.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// Publishes the pack. Afterwards its objects are in the repository and synced to the disk. An empty pack is
    /// removed instead.
    pub fn finish(mut self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let folder = self.folder.clone();
        let io = move |error| Error::io("write a pack in", &folder, &error);
        let count = u32::try_from(self.written.len())
            .map_err(|_| Error::internal("more objects than a pack can hold"))?;
        self.out.flush().map_err(&io)?;
        let mut file = self.temporary.reopen().map_err(&io)?;
        file.seek(SeekFrom::Start(8)).map_err(&io)?;
        file.write_all(&count.to_be_bytes()).map_err(&io)?;
        let checksum = checksum_file(self.temporary.path()).map_err(&io)?;
        file.seek(SeekFrom::End(0)).map_err(&io)?;
        file.write_all(&checksum).map_err(&io)?;
        file.sync_all().map_err(&io)?;

        self.written.sort_unstable_by_key(|object| object.id);
        // Git also names packs by their content: two packs may encode the same objects differently.
        let hex = checksum.map(|byte| format!("{byte:02x}")).concat();
        let name = format!("pack-{hex}");
        let index = index(&self.written, &checksum);
        let mut index_file = tempfile::Builder::new()
            .prefix(TEMPORARY_PREFIX)
            .tempfile_in(&self.folder)
            .map_err(&io)?;
        index_file.write_all(&index).map_err(&io)?;
        index_file.as_file().sync_all().map_err(&io)?;
        for file in [self.temporary.as_file(), index_file.as_file()] {
            file.set_permissions(Permissions::from_mode(0o444))
                .map_err(&io)?;
        }
        // Readers look for indices, so the pack must be in place before its index.
        let PackWriter {
            temporary, folder, ..
        } = self;
        let persisted = |e: tempfile::PersistError| io(e.error);
        temporary
            .persist(folder.join(format!("{name}.pack")))
            .map_err(persisted)?;
        index_file
            .persist(folder.join(format!("{name}.idx")))
            .map_err(persisted)?;
        File::open(&folder)
            .and_then(|folder| folder.sync_all())
            .map_err(&io)
    }
}

/// Returns the index of a pack; `written` is sorted by id.
fn index(written: &[WrittenObject], pack_checksum: &[u8]) -> Vec<u8> {
    let mut index = Vec::with_capacity(written.len() * 28 + 2048);
    index.extend_from_slice(b"\xfftOc\0\0\0\x02");
    let mut counts = [0_u32; 256];
    for object in written {
        counts[usize::from(object.id[0])] += 1;
    }
    let mut total = 0_u32;
    for count in counts {
        total += count;
        index.extend_from_slice(&total.to_be_bytes());
    }
    for object in written {
        index.extend_from_slice(&object.id);
    }
    for object in written {
        index.extend_from_slice(&object.crc.to_be_bytes());
    }
    let mut large = Vec::new();
    for object in written {
        let small = u32::try_from(object.offset).ok().filter(|o| o >> 31 == 0);
        let word = small.unwrap_or_else(|| {
            large.push(object.offset);
            0x8000_0000 | (large.len() - 1) as u32
        });
        index.extend_from_slice(&word.to_be_bytes());
    }
    for offset in large {
        index.extend_from_slice(&offset.to_be_bytes());
    }
    index.extend_from_slice(pack_checksum);
    let checksum = Sha1::digest(&index);
    index.extend_from_slice(&checksum);
    index
}

fn checksum_file(path: &Path) -> std::io::Result<ObjectId> {
    let mut file = File::open(path)?;
    let mut hasher = Sha1::new();
    let mut buffer = vec![0_u8; 1 << 18];
    loop {
        let count = std::io::Read::read(&mut file, &mut buffer)?;
        if count == 0 {
            return Ok(hasher.finalize().into());
        }
        hasher.update(&buffer[..count]);
    }
}

/// Removes the unfinished packs that killed processes left in `folder`. The caller knows that nobody is writing one.
pub fn remove_unfinished(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with(TEMPORARY_PREFIX) {
            // A concurrent removal has the same effect.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use perfquilt_model::error::Kind;
    use perfquilt_system::process::Command;

    use super::*;

    #[test]
    fn git_finds_offsets_that_need_eight_bytes() {
        let offsets = [12, (1 << 31) - 1, 1 << 31, 1 << 33, (1 << 40) + 7];
        let written: Vec<WrittenObject> = (0_u8..)
            .zip(offsets)
            .map(|(number, offset)| WrittenObject {
                id: [number * 60; 20],
                offset,
                crc: u32::from(number),
            })
            .collect();
        let shown = Command::new("git")
            .arg("show-index")
            .stdin(index(&written, &[0; 20]))
            .run_ok(Kind::Internal)
            .unwrap()
            .stdout_text();
        let expected: String = written
            .iter()
            .map(|object| {
                let id = object.id.map(|byte| format!("{byte:02x}")).concat();
                format!("{} {id} ({:08x})\n", object.offset, object.crc)
            })
            .collect();
        assert_eq!(shown, expected);
    }
}
