//! Reading objects directly from a store's packs.
//!
//! Applying a long series reads thousands of files, and libgit2 verifies each of them with a slow hash. This reader
//! relies on zlib's checksum. It also returns the stored bytes, so that a new pack can copy them without compressing
//! them again. Callers read everything that it does not support, such as loose objects and offset deltas, through
//! libgit2.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use flate2::{Decompress, FlushDecompress, Status};
use git2::{ObjectType, Oid};

use super::{delta, pack_folder};

/// Largest supported object, in bytes.
const SIZE_LIMIT: usize = 1 << 30;
/// Longest supported delta chain.
const CHAIN_LIMIT: usize = 4096;

/// An object as stored in a pack: header, id of the base if it is a delta, compressed content.
#[derive(Debug)]
pub struct StoredObject {
    /// Its id.
    pub oid: Oid,
    /// Its bytes in the pack.
    pub bytes: Vec<u8>,
    /// Their CRC-32, from the pack's index.
    pub crc: u32,
}

/// The stored objects that a pack needs to hold an object: its delta bases, then the object itself.
pub type Chain = Arc<[StoredObject]>;

/// An object read from a pack.
#[derive(Debug)]
pub struct LoadedObject {
    /// Its kind.
    pub kind: ObjectType,
    /// Its content.
    pub data: Vec<u8>,
    /// Its stored form.
    pub chain: Chain,
}

/// The packs of a store.
#[derive(Debug)]
pub struct Packs {
    packs: Vec<Pack>,
}

#[derive(Debug)]
struct Pack {
    file: File,
    index: PackIndex,
}

/// The index of a pack, in git's version 2.
#[derive(Debug)]
pub struct PackIndex {
    bytes: Vec<u8>,
    count: usize,
}

/// The location of an object in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// The object id.
    pub oid: Oid,
    /// Its offset from the pack's beginning, in bytes.
    pub offset: u64,
    /// CRC-32 of its bytes in the pack.
    pub crc: u32,
}

/// The object type of deltas that name their base by id.
pub const REF_DELTA: u8 = 7;

const HEADER: usize = 8;
const FANOUT: usize = 1024;

impl Packs {
    /// Opens the packs of the store at `path`; skips unreadable ones.
    pub fn open(path: &Path) -> Self {
        let mut packs = Vec::new();
        let entries = std::fs::read_dir(pack_folder::path(path));
        for entry in entries.into_iter().flatten().flatten() {
            let index = entry.path();
            if index.extension().is_some_and(|end| end == "idx") {
                packs.extend(Pack::open(&index));
            }
        }
        // The large packs hold the releases, which most reads are for.
        packs.sort_by_key(|pack| std::cmp::Reverse(pack.index.count));
        Packs { packs }
    }

    /// Reads the object `oid`; `None` if it must be read through libgit2.
    pub fn read(&self, oid: Oid) -> Option<LoadedObject> {
        let mut chain = Vec::new();
        let mut deltas = Vec::new();
        let mut wanted = oid;
        let (kind, mut data) = loop {
            if chain.len() > CHAIN_LIMIT {
                return None;
            }
            let (entry, crc) = self.packs.iter().find_map(|pack| {
                let found = pack.index.find(wanted)?;
                Some((pack.entry(found.offset)?, found.crc))
            })?;
            chain.push(StoredObject {
                oid: wanted,
                bytes: entry.bytes,
                crc,
            });
            match entry.base {
                Some(base) => {
                    deltas.push(entry.data);
                    wanted = base;
                }
                None => break (entry.kind, entry.data),
            }
        };
        for step in deltas.iter().rev() {
            data = delta::apply(&data, step)?;
        }
        chain.reverse();
        Some(LoadedObject {
            kind,
            data,
            chain: chain.into(),
        })
    }
}

/// An entry of a pack: its bytes, and its inflated data, which is a delta if there is a base.
struct PackEntry {
    kind: ObjectType,
    base: Option<Oid>,
    bytes: Vec<u8>,
    data: Vec<u8>,
}

impl PackIndex {
    /// Reads the index at `path`; `None` if it is unreadable or of another version.
    pub fn open(path: &Path) -> Option<PackIndex> {
        let bytes = std::fs::read(path).ok()?;
        if bytes.get(..HEADER)? != b"\xfftOc\0\0\0\x02" {
            return None;
        }
        let count = word(&bytes, HEADER + FANOUT - 4)? as usize;
        let enough = HEADER + FANOUT + count * 28 + 40;
        (bytes.len() >= enough).then_some(PackIndex { bytes, count })
    }

    /// Returns every object, in the pack's order.
    pub fn entries(&self) -> Option<Vec<IndexEntry>> {
        let mut entries = (0..self.count)
            .map(|number| self.entry(number))
            .collect::<Option<Vec<_>>>()?;
        entries.sort_unstable_by_key(|entry| entry.offset);
        Some(entries)
    }

    fn find(&self, oid: Oid) -> Option<IndexEntry> {
        let wanted = oid.as_bytes();
        let first = usize::from(wanted[0]);
        let bound = |at: usize| Some(word(&self.bytes, HEADER + at * 4)? as usize);
        let mut low = if first == 0 { 0 } else { bound(first - 1)? };
        let mut high = bound(first)?.min(self.count);
        while low < high {
            let middle = low.midpoint(high);
            match self.name(middle)?.cmp(wanted) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return self.entry(middle),
            }
        }
        None
    }

    fn name(&self, number: usize) -> Option<&[u8]> {
        let at = HEADER + FANOUT + number * 20;
        self.bytes.get(at..at + 20)
    }

    fn entry(&self, number: usize) -> Option<IndexEntry> {
        let crcs = HEADER + FANOUT + self.count * 20;
        Some(IndexEntry {
            oid: Oid::from_bytes(self.name(number)?).ok()?,
            offset: self.offset(number)?,
            crc: word(&self.bytes, crcs + number * 4)?,
        })
    }

    fn offset(&self, number: usize) -> Option<u64> {
        let small = HEADER + FANOUT + self.count * 24;
        let offset = word(&self.bytes, small + number * 4)?;
        if offset >> 31 == 0 {
            return Some(u64::from(offset));
        }
        let at = small + self.count * 4 + (offset & 0x7fff_ffff) as usize * 8;
        let high = word(&self.bytes, at)?;
        let low = word(&self.bytes, at + 4)?;
        Some(u64::from(high) << 32 | u64::from(low))
    }
}

impl Pack {
    fn open(index: &Path) -> Option<Pack> {
        Some(Pack {
            file: File::open(index.with_extension("pack")).ok()?,
            index: PackIndex::open(index)?,
        })
    }

    fn entry(&self, offset: u64) -> Option<PackEntry> {
        let mut bytes = vec![0; 1 << 13];
        let mut filled = self.file.read_at(&mut bytes, offset).ok()?;
        let byte = |at: usize| (at < filled).then(|| bytes[at]);
        let mut at = 0;
        let mut head = byte(at)?;
        let number = head >> 4 & 7;
        let mut size = usize::from(head & 0xf);
        for shift in (4..).step_by(7).take(8) {
            at += 1;
            if head & 0x80 == 0 {
                break;
            }
            head = byte(at)?;
            size |= usize::from(head & 0x7f) << shift;
        }
        let (kind, base) = match number {
            1 => (ObjectType::Commit, None),
            2 => (ObjectType::Tree, None),
            3 => (ObjectType::Blob, None),
            4 => (ObjectType::Tag, None),
            REF_DELTA => {
                let name = bytes.get(at..at + 20)?;
                at += 20;
                (ObjectType::Any, Some(Oid::from_bytes(name).ok()?))
            }
            _ => return None,
        };
        if size > SIZE_LIMIT {
            return None;
        }
        let mut data = Vec::with_capacity(size + 1);
        let mut inflate = Decompress::new(true);
        let start = at;
        loop {
            let input = &bytes[at.min(filled)..filled];
            let before = inflate.total_in();
            let status = inflate
                .decompress_vec(input, &mut data, FlushDecompress::None)
                .ok()?;
            at += usize::try_from(inflate.total_in() - before).ok()?;
            if status == Status::StreamEnd {
                break;
            }
            if data.len() > size {
                return None;
            }
            // The rest of the content is an estimate of the compressed bytes to come.
            let more = (size - data.len() + 1024).max(1 << 12);
            bytes.resize(filled + more, 0);
            let count = self
                .file
                .read_at(&mut bytes[filled..], offset + filled as u64)
                .ok()?;
            if count == 0 && at >= filled {
                return None;
            }
            filled += count;
        }
        debug_assert!(at >= start);
        bytes.truncate(at);
        (data.len() == size).then_some(PackEntry {
            kind,
            base,
            bytes,
            data,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}
