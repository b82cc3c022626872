//! Reading whole objects straight from a store's packs.
//!
//! A long series reads thousands of files of a release. libgit2 inflates each with the system's zlib, computes its SHA-1
//! with the slow function that finds collisions, and has it copied; this takes more than half of the time of a stack.
//! The reader inflates into the buffer that callers get, and relies on zlib's checksum, as git does. It knows what
//! imports write: whole objects in packs of version 2. Callers read everything else through libgit2.

use std::cell::{OnceCell, RefCell};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use flate2::{Decompress, FlushDecompress, Status};

use super::entry::PackEntry;
use super::object::{ObjectId, ObjectKind};

/// Size of the largest object that is read, in bytes.
const MAX_SIZE: usize = 1 << 30;
/// The first bytes of an index: its magic number and version 2.
const INDEX_MAGIC: &[u8] = b"\xfftOc\0\0\0\x02";
/// Where the names begin in an index: after the magic number and 256 counts.
const NAMES: u64 = 8 + 256 * 4;
/// Bytes that are read with the beginning of an entry; most files need no second read.
const FIRST_READ: usize = 1 << 14;
/// Maximum length of an entry's header: a kind, and a size of up to 57 bits.
const MAX_HEADER: usize = 9;

/// The packs of a store.
#[derive(Debug)]
pub struct PackReader {
    packs: Vec<Pack>,
    scratch: RefCell<Scratch>,
}

#[derive(Debug)]
struct Pack {
    file: File,
    index: File,
    /// Number of objects whose name begins with a byte up to this one.
    counts: Vec<u32>,
    /// Where entries begin, sorted, with the end of the last one.
    bounds: OnceCell<Vec<u64>>,
}

/// Buffers that the next object reuses.
#[derive(Debug)]
struct Scratch {
    names: Vec<u8>,
    compressed: Vec<u8>,
    inflate: Decompress,
}

impl PackReader {
    /// Opens the packs in `folder` and skips unreadable ones. Packs that appear later are not read.
    pub fn open(folder: &Path) -> Self {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let indexes = entries.map(|entry| entry.path());
        let indexes = indexes.filter(|path| path.extension().is_some_and(|end| end == "idx"));
        let mut packs: Vec<Pack> = indexes.filter_map(|index| Pack::open(&index)).collect();
        // The largest ones have the releases, which most reads are for.
        packs.sort_by_key(|pack| std::cmp::Reverse(pack.counts.last().copied()));
        PackReader {
            packs,
            scratch: RefCell::new(Scratch {
                names: Vec::new(),
                compressed: Vec::new(),
                inflate: Decompress::new(true),
            }),
        }
    }

    /// Returns kind and content of an object; `None` if no pack has it, whole and undamaged.
    pub fn read(&self, id: &ObjectId) -> Option<(ObjectKind, Vec<u8>)> {
        let scratch = &mut *self.scratch.try_borrow_mut().ok()?;
        self.packs.iter().find_map(|pack| {
            let number = pack.number(id, &mut scratch.names)?;
            pack.entry(pack.offset(number)?, scratch)
        })
    }

    /// Returns the compressed entry of an object as it is in a pack; `None` if no pack has it, whole and undamaged. Copying
    /// it costs much less than compressing the object again.
    pub fn compressed(&self, id: &ObjectId) -> Option<PackEntry> {
        let scratch = &mut *self.scratch.try_borrow_mut().ok()?;
        self.packs.iter().find_map(|pack| {
            let number = pack.number(id, &mut scratch.names)?;
            pack.compressed(*id, number)
        })
    }
}

impl Pack {
    fn open(index_path: &Path) -> Option<Pack> {
        let index = File::open(index_path).ok()?;
        let mut head = [0; NAMES as usize];
        index.read_exact_at(&mut head, 0).ok()?;
        let counts = head.strip_prefix(INDEX_MAGIC)?;
        let (counts, _) = counts.as_chunks::<4>();
        Some(Pack {
            file: File::open(index_path.with_extension("pack")).ok()?,
            index,
            counts: counts
                .iter()
                .map(|count| u32::from_be_bytes(*count))
                .collect(),
            bounds: OnceCell::new(),
        })
    }

    /// Returns the number of objects.
    fn len(&self) -> u64 {
        self.counts.last().copied().unwrap_or_default().into()
    }

    /// Returns the number of an object in the order of names; `None` if it is not in the pack.
    fn number(&self, id: &ObjectId, names: &mut Vec<u8>) -> Option<u64> {
        let first = usize::from(id[0]);
        let before = first.checked_sub(1).map_or(0, |at| self.counts[at]);
        let count = self.counts[first].checked_sub(before)?;
        names.resize(count as usize * id.len(), 0);
        let start = NAMES + u64::from(before) * id.len() as u64;
        self.index.read_exact_at(names, start).ok()?;
        let (names, _) = names.as_chunks::<20>();
        Some(u64::from(before) + names.binary_search(id).ok()? as u64)
    }

    /// Returns the number in place `number` of the index's table of checksums (0) or small offsets (1).
    fn small(&self, table: u64, number: u64) -> Option<u32> {
        let mut small = [0; 4];
        let at = NAMES + self.len() * (20 + 4 * table) + number * 4;
        self.index.read_exact_at(&mut small, at).ok()?;
        Some(u32::from_be_bytes(small))
    }

    /// Returns where an object begins.
    fn offset(&self, number: u64) -> Option<u64> {
        let small = self.small(1, number)?;
        if small >> 31 == 0 {
            return Some(u64::from(small));
        }
        let mut large = [0; 8];
        let at = NAMES + self.len() * 28 + u64::from(small & 0x7fff_ffff) * 8;
        self.index.read_exact_at(&mut large, at).ok()?;
        Some(u64::from_be_bytes(large))
    }

    /// Returns where entries begin, sorted, with the end of the last one; `None` for packs of 2 GiB and more.
    fn read_bounds(&self) -> Option<Vec<u64>> {
        let mut table = vec![0; self.len() as usize * 4];
        self.index
            .read_exact_at(&mut table, NAMES + self.len() * 24)
            .ok()?;
        let (offsets, _) = table.as_chunks::<4>();
        let offsets = offsets
            .iter()
            .map(|bytes| u32::from_be_bytes(*bytes).into());
        // The pack ends with its checksum.
        let end = self.file.metadata().ok()?.len().checked_sub(20)?;
        let mut bounds: Vec<u64> = offsets.chain([end]).collect();
        bounds.sort_unstable();
        (*bounds.last()? == end && end >> 31 == 0).then_some(bounds)
    }

    /// Reads the compressed entry of the whole object with that number, whose checksum must be the index's.
    fn compressed(&self, id: ObjectId, number: u64) -> Option<PackEntry> {
        if self.bounds.get().is_none() {
            self.bounds.set(self.read_bounds()?).ok()?;
        }
        let (bounds, offset) = (self.bounds.get()?, self.offset(number)?);
        let end = bounds.get(bounds.binary_search(&offset).ok()? + 1)?;
        let mut bytes = vec![0; usize::try_from(end - offset).ok()?];
        self.file.read_exact_at(&mut bytes, offset).ok()?;
        header(&bytes)?;
        let entry = PackEntry::new(id, None, bytes);
        (entry.crc == self.small(0, number)?).then_some(entry)
    }

    /// Reads the whole object at `offset`.
    fn entry(&self, offset: u64, scratch: &mut Scratch) -> Option<(ObjectKind, Vec<u8>)> {
        let Scratch {
            compressed,
            inflate,
            ..
        } = scratch;
        let mut end = 0;
        let mut read_more = |compressed: &mut Vec<u8>, count: usize| {
            let wanted = end + count;
            compressed.resize(compressed.len().max(wanted), 0);
            let read = self
                .file
                .read_at(&mut compressed[end..wanted], offset + end as u64);
            end += read.ok().filter(|&read| read > 0)?;
            Some(end)
        };
        let mut end = read_more(compressed, FIRST_READ)?;
        let (kind, size, mut at) = header(&compressed[..end])?;
        // One byte more than needed tells an object that is longer than its header says.
        let mut data = Vec::with_capacity(size + 1);
        inflate.reset(true);
        loop {
            let (taken, made) = (inflate.total_in(), data.len());
            let input = &compressed[at..end];
            let status = inflate.decompress_vec(input, &mut data, FlushDecompress::None);
            let taken = usize::try_from(inflate.total_in() - taken).ok()?;
            at += taken;
            if status.ok()? == Status::StreamEnd {
                return (data.len() == size).then_some((kind, data));
            }
            if data.len() > size || taken == 0 && data.len() == made {
                return None;
            }
            end = read_more(compressed, (size - data.len()) / 2 + FIRST_READ)?;
        }
    }
}

/// Reads kind, size and length of an entry's header; `None` for a delta.
fn header(bytes: &[u8]) -> Option<(ObjectKind, usize, usize)> {
    let first = *bytes.first()?;
    let kind = match first >> 4 & 7 {
        1 => ObjectKind::Commit,
        2 => ObjectKind::Tree,
        3 => ObjectKind::Blob,
        4 => ObjectKind::Tag,
        _ => return None,
    };
    let mut size = usize::from(first & 0xf);
    let mut length = 1;
    let mut more = first & 0x80 != 0;
    while more && length < MAX_HEADER {
        let byte = *bytes.get(length)?;
        size |= usize::from(byte & 0x7f) << (4 + 7 * (length - 1));
        more = byte & 0x80 != 0;
        length += 1;
    }
    (!more && size <= MAX_SIZE).then_some((kind, size, length))
}
