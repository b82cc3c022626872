//! Writing many objects at once: one pack with its index, published by rename.
//!
//! The formats are git's pack version 2 and index version 2, without deltas: an import is bound by
//! compression and file creation, and one file for 36,000 objects avoids the latter.

use std::collections::HashSet;
use std::fs::{File, Permissions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use git2::{ObjectType, Odb, OdbLookupFlags, Oid};
use sha1::{Digest, Sha1};

use super::objects::{self, ImportLock, Objects, oid_from};
use crate::error::{Error, Result};

/// First part of the names of unfinished packs.
pub(super) const TEMPORARY: &str = "tmp_perfquilt_";

/// An object ready to be written.
#[derive(Debug)]
pub struct Packed {
    /// Its name.
    pub oid: Oid,
    /// Header and compressed content, as they stand in a pack.
    bytes: Vec<u8>,
    crc: u32,
}

/// Compresses objects; keeps its working memory from one to the next.
pub struct Packer {
    state: Compress,
}

impl Default for Packer {
    fn default() -> Self {
        Packer {
            state: Compress::new(Compression::fast(), true),
        }
    }
}

impl Packer {
    /// Makes an object of `kind` whose name is `oid` ready to be written.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when compression fails.
    pub fn pack(&mut self, kind: ObjectType, oid: Oid, data: &[u8]) -> Result<Packed> {
        let mut bytes = Vec::with_capacity(data.len() / 2 + 64);
        write_header(&mut bytes, kind, data.len());
        self.state.reset();
        let mut rest = data;
        loop {
            bytes.reserve(rest.len() / 2 + 128);
            let before = self.state.total_in();
            let status = self
                .state
                .compress_vec(rest, &mut bytes, FlushCompress::Finish)
                .map_err(|error| Error::internal(format!("cannot compress: {error}")))?;
            let taken = usize::try_from(self.state.total_in() - before).unwrap_or(rest.len());
            rest = &rest[taken.min(rest.len())..];
            if status == Status::StreamEnd {
                break;
            }
        }
        let mut crc = Crc::new();
        crc.update(&bytes);
        Ok(Packed {
            oid,
            bytes,
            crc: crc.sum(),
        })
    }
}

fn write_header(bytes: &mut Vec<u8>, kind: ObjectType, size: usize) {
    let number = match kind {
        ObjectType::Commit => 1,
        ObjectType::Tree => 2,
        ObjectType::Tag => 4,
        ObjectType::Blob | ObjectType::Any => 3,
    };
    let mut byte = (number << 4) | (size & 0xf) as u8;
    let mut rest = size >> 4;
    while rest > 0 {
        bytes.push(byte | 0x80);
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
    }
    bytes.push(byte);
}

struct Written {
    oid: Oid,
    offset: u64,
    crc: u32,
}

/// A pack being written. Dropping it without [`PackWriter::finish`] removes it.
pub struct PackWriter {
    folder: PathBuf,
    temporary: tempfile::NamedTempFile,
    out: BufWriter<File>,
    offset: u64,
    written: Vec<Written>,
    seen: HashSet<Oid>,
}

impl PackWriter {
    /// Begins a pack in the store at `store`.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when the file cannot be made.
    pub fn new(store: &Path) -> Result<Self> {
        let folder = store.join("objects/pack");
        std::fs::create_dir_all(&folder).map_err(|e| Error::io("create", &folder, &e))?;
        let io = |error| Error::io("write a pack in", &folder, &error);
        let temporary = tempfile::Builder::new()
            .prefix(TEMPORARY)
            .tempfile_in(&folder)
            .map_err(io)?;
        let file = temporary.reopen().map_err(io)?;
        let mut writer = PackWriter {
            out: BufWriter::with_capacity(1 << 18, file),
            folder,
            temporary,
            offset: 0,
            written: Vec::new(),
            seen: HashSet::new(),
        };
        // The number of objects is filled in at the end.
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

    /// Writes an object, unless this pack has it already.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when it cannot be written.
    pub fn add(&mut self, object: &Packed) -> Result<()> {
        if self.seen.insert(object.oid) {
            self.written.push(Written {
                oid: object.oid,
                offset: self.offset,
                crc: object.crc,
            });
            self.put(&object.bytes)?;
        }
        Ok(())
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// Publishes the pack: after this returns, its objects are in the store and on the disk. An
    /// empty pack leaves nothing.
    ///
    /// # Errors
    /// [`Kind::Internal`](crate::error::Kind::Internal) when it cannot be written.
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

        self.written.sort_unstable_by_key(|object| object.oid);
        let name = self.name();
        let index = self.index(&checksum);
        let mut index_file = tempfile::Builder::new()
            .prefix(TEMPORARY)
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
            .persist(folder.join(format!("pack-{name}.pack")))
            .map_err(persisted)?;
        index_file
            .persist(folder.join(format!("pack-{name}.idx")))
            .map_err(persisted)?;
        Ok(())
    }

    /// Git names packs after their objects.
    fn name(&self) -> Oid {
        let mut hasher = Sha1::new();
        for object in &self.written {
            hasher.update(object.oid.as_bytes());
        }
        oid_from(&hasher.finalize())
    }

    fn index(&self, pack_checksum: &[u8]) -> Vec<u8> {
        let mut index = Vec::with_capacity(self.written.len() * 28 + 2048);
        index.extend_from_slice(b"\xfftOc\0\0\0\x02");
        let mut counts = [0_u32; 256];
        for object in &self.written {
            counts[usize::from(object.oid.as_bytes()[0])] += 1;
        }
        let mut total = 0_u32;
        for count in counts {
            total += count;
            index.extend_from_slice(&total.to_be_bytes());
        }
        for object in &self.written {
            index.extend_from_slice(object.oid.as_bytes());
        }
        for object in &self.written {
            index.extend_from_slice(&object.crc.to_be_bytes());
        }
        let mut large = Vec::new();
        for object in &self.written {
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
}

fn checksum_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut hasher = Sha1::new();
    let mut buffer = vec![0_u8; 1 << 18];
    loop {
        let count = std::io::Read::read(&mut file, &mut buffer)?;
        if count == 0 {
            return Ok(hasher.finalize().to_vec());
        }
        hasher.update(&buffer[..count]);
    }
}

/// Below this many objects, files of their own are quicker than a further pack for every reader.
const LOOSE_LIMIT: usize = 400;

/// Hashes, compresses and writes objects one after the other, leaving out those the store has.
pub struct ObjectWriter<'a> {
    store: &'a Objects,
    database: Odb<'a>,
    packed: Option<(Packer, PackWriter, ImportLock)>,
}

impl<'a> ObjectWriter<'a> {
    /// Begins writing about `expected` objects into `store`.
    ///
    /// # Errors
    /// As [`PackWriter::new`].
    pub fn new(store: &'a Objects, expected: usize) -> Result<Self> {
        let packed = if expected > LOOSE_LIMIT {
            let lock = store.lock_import()?;
            Some((Packer::default(), PackWriter::new(store.path())?, lock))
        } else {
            None
        };
        Ok(ObjectWriter {
            store,
            database: store.database()?,
            packed,
        })
    }

    /// Writes an object and returns its name.
    ///
    /// # Errors
    /// As [`PackWriter::add`].
    pub fn write(&mut self, kind: ObjectType, data: &[u8]) -> Result<Oid> {
        let oid = objects::hash(kind, data);
        let known = |oid| self.database.exists_ext(oid, OdbLookupFlags::NO_REFRESH);
        match &mut self.packed {
            Some((packer, pack, _)) => {
                if !pack.seen.contains(&oid) && !known(oid) {
                    pack.add(&packer.pack(kind, oid, data)?)?;
                }
            }
            None => {
                if !known(oid) {
                    self.database.write(kind, data)?;
                }
            }
        }
        Ok(oid)
    }

    /// As [`PackWriter::finish`]; the store then knows the new objects.
    ///
    /// # Errors
    /// As [`PackWriter::finish`].
    pub fn finish(self) -> Result<()> {
        if let Some((_, pack, _lock)) = self.packed
            && !pack.is_empty()
        {
            pack.finish()?;
            self.store.database()?.refresh()?;
        }
        Ok(())
    }
}
