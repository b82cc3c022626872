//! Encoding objects as entries of a pack: a header, and the compressed content or delta.

use flate2::{Compress, Compression, Crc, FlushCompress, Status};

use super::object::{ObjectId, ObjectKind};
use perfquilt_model::error::{Error, Result};

/// The type number of deltas that name their base by id.
const REF_DELTA: u8 = 7;

/// Content shorter than this many bytes is stored uncompressed: starting the compressor clears its tables, which costs
/// more than compression saves.
const COMPRESSION_THRESHOLD: usize = 512;

/// Git refuses shorter deltas. Only an empty object has one.
const SHORTEST_DELTA: usize = 4;

/// An encoded object, ready to be written to a pack.
#[derive(Debug)]
pub struct PackEntry {
    /// The object's id.
    pub(crate) id: ObjectId,
    /// The object that it is a delta of, unless it is stored whole.
    pub(crate) base: Option<ObjectId>,
    /// Header and compressed content.
    pub(crate) bytes: Vec<u8>,
    /// The CRC-32 of `bytes`.
    pub(crate) crc: u32,
}

/// Encodes objects and reuses its compression state between them.
#[derive(Debug)]
pub struct EntryEncoder {
    state: Compress,
}

impl Default for EntryEncoder {
    fn default() -> Self {
        EntryEncoder {
            state: Compress::new(Compression::fast(), true),
        }
    }
}

impl EntryEncoder {
    /// Encodes the whole object `id`.
    pub fn whole(&mut self, kind: ObjectKind, id: ObjectId, data: &[u8]) -> Result<PackEntry> {
        let mut bytes = Vec::with_capacity(data.len() / 2 + 64);
        write_header(&mut bytes, kind.number(), data.len());
        self.compress(&mut bytes, data)?;
        Ok(PackEntry::new(id, None, bytes))
    }

    /// Encodes the object `id`, which is not empty, as a [`delta`](crate::delta) of the object `base`.
    pub fn delta(&mut self, id: ObjectId, base: ObjectId, delta: &[u8]) -> Result<PackEntry> {
        if delta.len() < SHORTEST_DELTA {
            return Err(Error::internal("a delta to an empty object"));
        }
        let mut bytes = Vec::with_capacity(delta.len() + 64);
        write_header(&mut bytes, REF_DELTA, delta.len());
        bytes.extend_from_slice(&base);
        self.compress(&mut bytes, delta)?;
        Ok(PackEntry::new(id, Some(base), bytes))
    }

    fn compress(&mut self, bytes: &mut Vec<u8>, data: &[u8]) -> Result<()> {
        if data.len() < COMPRESSION_THRESHOLD {
            write_stored_block(bytes, data);
            return Ok(());
        }
        self.state.reset();
        let mut rest = data;
        loop {
            bytes.reserve(rest.len() / 2 + 128);
            let before = self.state.total_in();
            let status = self
                .state
                .compress_vec(rest, bytes, FlushCompress::Finish)
                .map_err(|error| Error::internal(format!("cannot compress: {error}")))?;
            let taken = usize::try_from(self.state.total_in() - before).unwrap_or(rest.len());
            rest = &rest[taken.min(rest.len())..];
            if status == Status::StreamEnd {
                return Ok(());
            }
        }
    }
}

impl PackEntry {
    pub(crate) fn new(id: ObjectId, base: Option<ObjectId>, bytes: Vec<u8>) -> Self {
        let mut crc = Crc::new();
        crc.update(&bytes);
        let crc = crc.sum();
        PackEntry {
            id,
            base,
            bytes,
            crc,
        }
    }
}

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
