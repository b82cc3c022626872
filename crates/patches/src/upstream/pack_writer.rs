//! Writing many objects at once into one pack with its index, published by a rename.
//!
//! The formats are git's pack version 2 and index version 2. An import writes no deltas: compression and file creation
//! limit its speed, and one file for 36,000 objects avoids the latter. A stack consists almost entirely of deltas;
//! [`ObjectWriter::write_version`] bounds the length of their chains.

use crate::upstream::store_error;
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
use super::pack_folder::{self, TEMPORARY_PREFIX};
use super::pack_reader::{Chain, REF_DELTA, StoredObject};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::locks::Lock;

/// An encoded object, ready to be written to a pack.
#[derive(Debug)]
pub struct PackedObject {
    /// Its id.
    pub oid: Oid,
    /// Header and compressed content in the pack format.
    bytes: Vec<u8>,
    crc: u32,
}

/// Encodes objects for a pack and reuses its compression state between them.
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
    /// Encodes an object of `kind` with the id `oid`.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when compression fails.
    pub fn pack(&mut self, kind: ObjectType, oid: Oid, data: &[u8]) -> Result<PackedObject> {
        let mut bytes = Vec::with_capacity(data.len() / 2 + 64);
        write_header(&mut bytes, type_number(kind), data.len());
        self.compress(bytes, oid, data)
    }

    /// Encodes an object as a delta of the object `base`.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when compression fails.
    pub fn pack_delta(&mut self, oid: Oid, base: Oid, delta: &[u8]) -> Result<PackedObject> {
        let mut bytes = Vec::with_capacity(delta.len() + 64);
        write_header(&mut bytes, REF_DELTA, delta.len());
        bytes.extend_from_slice(base.as_bytes());
        self.compress(bytes, oid, delta)
    }

    fn compress(&mut self, mut bytes: Vec<u8>, oid: Oid, data: &[u8]) -> Result<PackedObject> {
        if data.len() < COMPRESSION_THRESHOLD {
            write_stored_block(&mut bytes, data);
            return Ok(PackedObject::new(oid, bytes));
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
        Ok(PackedObject::new(oid, bytes))
    }
}

impl PackedObject {
    /// Wraps an object of another pack: its bytes there and their CRC-32.
    pub fn stored(oid: Oid, bytes: Vec<u8>, crc: u32) -> Self {
        PackedObject { oid, bytes, crc }
    }

    fn new(oid: Oid, bytes: Vec<u8>) -> Self {
        let mut crc = Crc::new();
        crc.update(&bytes);
        PackedObject {
            oid,
            bytes,
            crc: crc.sum(),
        }
    }
}

/// Content shorter than this many bytes is stored uncompressed: starting the compressor clears its tables, which costs
/// more than compression saves.
const COMPRESSION_THRESHOLD: usize = 512;

/// Appends the short `data` as a zlib stream of one stored block.
fn write_stored_block(bytes: &mut Vec<u8>, data: &[u8]) {
    // Shorter than COMPRESSION_THRESHOLD, so two bytes hold the length.
    let length = data.len() as u16;
    bytes.extend_from_slice(&[0x78, 0x01, 0x01]);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&(!length).to_le_bytes());
    bytes.extend_from_slice(data);
    // The sums of so few bytes stay below 2^32, so one reduction at the end suffices.
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in data {
        a += u32::from(byte);
        b += a;
    }
    bytes.extend_from_slice(&(((b % 65_521) << 16) | (a % 65_521)).to_be_bytes());
}

fn type_number(kind: ObjectType) -> u8 {
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

/// The index entry of a written object.
struct WrittenObject {
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
    written: Vec<WrittenObject>,
    /// Length of each object's delta chain.
    depths: HashMap<Oid, usize>,
}

impl PackWriter {
    /// Creates a pack in the store at `store`.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the file cannot be created.
    pub fn new(store: &Path) -> Result<Self> {
        let folder = pack_folder::path(store);
        std::fs::create_dir_all(&folder).map_err(|e| Error::io("create", &folder, &e))?;
        let io = |error| Error::io("write a pack in", &folder, &error);
        let temporary = tempfile::Builder::new()
            .prefix(TEMPORARY_PREFIX)
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

    /// Writes an object, unless this pack has it already.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be written.
    pub fn add(&mut self, object: &PackedObject) -> Result<()> {
        self.add_at(object.oid, &object.bytes, object.crc, 0)
    }

    fn add_at(&mut self, oid: Oid, bytes: &[u8], crc: u32, depth: usize) -> Result<()> {
        if let Entry::Vacant(place) = self.depths.entry(oid) {
            place.insert(depth);
            let offset = self.offset;
            self.written.push(WrittenObject { oid, offset, crc });
            self.put(bytes)?;
        }
        Ok(())
    }

    /// Copies an object as another pack stores it, together with its delta bases.
    fn add_stored(&mut self, chain: &[StoredObject]) -> Result<()> {
        for (depth, stored) in chain.iter().enumerate() {
            self.add_at(stored.oid, &stored.bytes, stored.crc, depth)?;
        }
        Ok(())
    }

    /// Returns whether the pack has no objects.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// Publishes the pack. Afterwards its objects are in the store and synced to the disk. Returns the file's name
    /// without extension; `None` for an empty pack, which is removed.
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
        // Git also names packs by their content: two packs may encode the same objects differently.
        let name = format!("pack-{}", oid_from(&checksum));
        let index = self.index(&checksum);
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

/// Up to this many objects are written as loose objects, because another pack would slow down every reader.
const LOOSE_LIMIT: usize = 100;

/// Maximum length of a delta chain; git's default.
const CHAIN_LIMIT: usize = 50;

/// Hashes, compresses and writes objects, as a pack or as loose objects.
pub struct ObjectWriter<'a> {
    store: &'a Objects,
    database: Odb<'a>,
    packed: Option<(Packer, PackWriter, Lock)>,
}

impl<'a> ObjectWriter<'a> {
    /// Creates a writer for about `expected` objects into `store`.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when the pack cannot be created,
    /// [`Kind::Interrupted`](perfquilt_model::error::Kind::Interrupted) while waiting for another importer.
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

    /// Writes an object and returns its id. A pack may repeat objects of other packs.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be written.
    pub fn write(&mut self, kind: ObjectType, data: &[u8]) -> Result<Oid> {
        let oid = objects::hash(kind, data);
        self.write_named(kind, oid, data)?;
        Ok(oid)
    }

    /// Writes an object whose id is known.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be written.
    pub fn write_named(&mut self, kind: ObjectType, oid: Oid, data: &[u8]) -> Result<()> {
        match &mut self.packed {
            // A lookup in the store would cost more than writing the object twice.
            Some((packer, pack, _)) => {
                if !pack.depths.contains_key(&oid) {
                    pack.add(&packer.pack(kind, oid, data)?)?;
                }
            }
            None => {
                if !self.database.exists_ext(oid, OdbLookupFlags::NO_REFRESH) {
                    self.database.write(kind, data).map_err(store_error)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the object `oid` that is a new version of `base`. `delta` computes the delta from `base`, and `chain` is
    /// the stored form of `base`. A pack stores only the delta if it also holds the base.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when it cannot be written.
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
            && chain.len() < CHAIN_LIMIT
        {
            pack.add_stored(chain)?;
        }
        let depth = pack.depths.get(&base).map(|depth| depth + 1);
        if let Some(depth) = depth.filter(|&depth| depth <= CHAIN_LIMIT) {
            let delta = delta();
            if delta.len() < data.len() / 2 {
                let object = packer.pack_delta(oid, base, &delta)?;
                return pack.add_at(oid, &object.bytes, object.crc, depth);
            }
        }
        pack.add(&packer.pack(kind, oid, data)?)
    }

    /// Publishes the new objects in the store.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when they cannot be written.
    pub fn finish(self) -> Result<()> {
        if let Some((_, pack, _lock)) = self.packed
            && !pack.is_empty()
        {
            pack.finish()?;
            self.store.database()?.refresh().map_err(store_error)?;
        }
        Ok(())
    }
}
