//! Writing many objects at once: one pack with its index, published by rename.
//!
//! The formats are git's pack version 2 and index version 2. An import writes no deltas: it is bound
//! by compression and file creation, and one file for 36,000 objects avoids the latter. A stack is
//! nearly all deltas, of which [`ObjectWriter::write_version`] makes chains of bounded length.

use crate::upstream::object_store;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use git2::{ObjectType, Odb, OdbLookupFlags, Oid};
use sha1::{Digest, Sha1};

use super::objects::{self, Objects, oid_from};
use super::packed::{Chain, REF_DELTA, Stored};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::locks::Lock;

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
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when compression fails.
    pub fn pack(&mut self, kind: ObjectType, oid: Oid, data: &[u8]) -> Result<Packed> {
        let mut bytes = Vec::with_capacity(data.len() / 2 + 64);
        write_header(&mut bytes, number_of(kind), data.len());
        self.compress(bytes, oid, data)
    }

    /// Makes an object ready to be written as a delta of the object called `base`.
    ///
    /// # Errors
    /// As [`Packer::pack`].
    pub fn pack_delta(&mut self, oid: Oid, base: Oid, delta: &[u8]) -> Result<Packed> {
        let mut bytes = Vec::with_capacity(delta.len() + 64);
        write_header(&mut bytes, REF_DELTA, delta.len());
        bytes.extend_from_slice(base.as_bytes());
        self.compress(bytes, oid, delta)
    }

    fn compress(&mut self, mut bytes: Vec<u8>, oid: Oid, data: &[u8]) -> Result<Packed> {
        if data.len() < STORE_LIMIT {
            store(&mut bytes, data);
            return Ok(Packed::new(oid, bytes));
        }
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
        Ok(Packed::new(oid, bytes))
    }
}

impl Packed {
    /// An object as another pack holds it: its bytes there and their CRC-32.
    pub fn stored(oid: Oid, bytes: Vec<u8>, crc: u32) -> Self {
        Packed { oid, bytes, crc }
    }

    fn new(oid: Oid, bytes: Vec<u8>) -> Self {
        let mut crc = Crc::new();
        crc.update(&bytes);
        Packed {
            oid,
            bytes,
            crc: crc.sum(),
        }
    }
}

/// Content shorter than this is not worth a compressor's start, which clears its tables.
const STORE_LIMIT: usize = 512;

/// Appends `data`, which is short, as a zlib stream of one stored block.
fn store(bytes: &mut Vec<u8>, data: &[u8]) {
    // Shorter than STORE_LIMIT, so that two bytes hold the length.
    let length = data.len() as u16;
    bytes.extend_from_slice(&[0x78, 0x01, 0x01]);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&(!length).to_le_bytes());
    bytes.extend_from_slice(data);
    // The sums of so few bytes stay below 2^32, so that the remainder can wait.
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in data {
        a += u32::from(byte);
        b += a;
    }
    bytes.extend_from_slice(&(((b % 65_521) << 16) | (a % 65_521)).to_be_bytes());
}

fn number_of(kind: ObjectType) -> u8 {
    match kind {
        ObjectType::Commit => 1,
        ObjectType::Tree => 2,
        ObjectType::Tag => 4,
        ObjectType::Blob | ObjectType::Any => 3,
    }
}

fn write_header(bytes: &mut Vec<u8>, number: u8, size: usize) {
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
    /// How many deltas each object is made of.
    depths: HashMap<Oid, usize>,
}

impl PackWriter {
    /// Begins a pack in the store at `store`.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the file cannot be made.
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
            depths: HashMap::new(),
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
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be written.
    pub fn add(&mut self, object: &Packed) -> Result<()> {
        self.add_at(object.oid, &object.bytes, object.crc, 0)
    }

    fn add_at(&mut self, oid: Oid, bytes: &[u8], crc: u32, depth: usize) -> Result<()> {
        if let Entry::Vacant(place) = self.depths.entry(oid) {
            place.insert(depth);
            let offset = self.offset;
            self.written.push(Written { oid, offset, crc });
            self.put(bytes)?;
        }
        Ok(())
    }

    /// Takes over an object as it is stored elsewhere, with what it is a delta of.
    fn add_stored(&mut self, chain: &[Stored]) -> Result<()> {
        for (depth, stored) in chain.iter().enumerate() {
            self.add_at(stored.oid, &stored.bytes, stored.crc, depth)?;
        }
        Ok(())
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// Publishes the pack: after this returns, its objects are in the store and on the disk. Returns
    /// the file's name without its ending; an empty pack leaves nothing.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be written.
    pub fn finish(mut self) -> Result<Option<OsString>> {
        if self.is_empty() {
            return Ok(None);
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
        // By its content, as git does it: two packs with the same objects may hold them differently.
        let name = format!("pack-{}", oid_from(&checksum));
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
            .persist(folder.join(format!("{name}.pack")))
            .map_err(persisted)?;
        index_file
            .persist(folder.join(format!("{name}.idx")))
            .map_err(persisted)?;
        File::open(&folder)
            .and_then(|folder| folder.sync_all())
            .map_err(&io)?;
        Ok(Some(name.into()))
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
const LOOSE_LIMIT: usize = 100;

/// Longest chain of deltas written, as in git.
const DEPTH_LIMIT: usize = 50;

/// Hashes, compresses and writes objects one after the other.
pub struct ObjectWriter<'a> {
    store: &'a Objects,
    database: Odb<'a>,
    packed: Option<(Packer, PackWriter, Lock)>,
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

    /// Writes an object and returns its name. A pack may repeat objects of other packs.
    ///
    /// # Errors
    /// As [`PackWriter::add`].
    pub fn write(&mut self, kind: ObjectType, data: &[u8]) -> Result<Oid> {
        let oid = objects::hash(kind, data);
        self.write_named(kind, oid, data)?;
        Ok(oid)
    }

    /// As [`ObjectWriter::write`], for an object whose name is known.
    ///
    /// # Errors
    /// As [`PackWriter::add`].
    pub fn write_named(&mut self, kind: ObjectType, oid: Oid, data: &[u8]) -> Result<()> {
        match &mut self.packed {
            // Looking for it in the store would cost more than the bytes are worth.
            Some((packer, pack, _)) => {
                if !pack.depths.contains_key(&oid) {
                    pack.add(&packer.pack(kind, oid, data)?)?;
                }
            }
            None => {
                if !self.database.exists_ext(oid, OdbLookupFlags::NO_REFRESH) {
                    self.database.write(kind, data).map_err(object_store)?;
                }
            }
        }
        Ok(())
    }

    /// Writes an object called `oid` that is a new version of `base`. The result of `delta` makes it
    /// from `base`, and `chain` is how the store holds `base`. A pack takes the delta alone when it
    /// has the base as well.
    ///
    /// # Errors
    /// As [`PackWriter::add`].
    pub fn write_version(
        &mut self,
        (kind, oid): (ObjectType, Oid),
        data: &[u8],
        base: Oid,
        chain: Option<&Chain>,
        delta: impl FnOnce() -> Vec<u8>,
    ) -> Result<()> {
        let Some((packer, pack, _)) = &mut self.packed else {
            return self.write_named(kind, oid, data);
        };
        if pack.depths.contains_key(&oid) {
            return Ok(());
        }
        if let Some(chain) = chain
            && chain.len() < DEPTH_LIMIT
        {
            pack.add_stored(chain)?;
        }
        let depth = pack.depths.get(&base).map(|depth| depth + 1);
        if let Some(depth) = depth.filter(|&depth| depth <= DEPTH_LIMIT) {
            let delta = delta();
            if delta.len() < data.len() / 2 {
                let object = packer.pack_delta(oid, base, &delta)?;
                return pack.add_at(oid, &object.bytes, object.crc, depth);
            }
        }
        pack.add(&packer.pack(kind, oid, data)?)
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
            self.store.database()?.refresh().map_err(object_store)?;
        }
        Ok(())
    }
}
