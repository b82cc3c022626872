//! Pads code and data at random distances without changing their order: extends sections of object files before
//! the link, over the bytes that follow them in the file.

use std::io::{Read, Seek, SeekFrom};

use object::elf::{ET_REL, FileHeader64, SHF_ALLOC, SHF_MERGE, SHF_TLS, SHT_NOBITS, SHT_PROGBITS};
use object::read::ReadCache;
use object::read::archive::ArchiveFile;
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, ReadRef};
use rand::RngExt;
use rand::rngs::StdRng;

/// Unit of padding in bytes: the alignment of functions.
const STEP: u64 = 16;
/// Number of different small paddings, starting at none: the next section may begin anywhere in a cache line of
/// 64 bytes.
const LINE_STEPS: u64 = 4;
/// Number of different large paddings: the next section may begin anywhere in a page of 4 KiB, the range that
/// indexes first-level caches and branch predictors.
const PAGE_STEPS: u64 = 256;
/// One section in this many gets a large padding. More would scatter related code over too many pages; with
/// fewer, the distance between functions some ten kilobytes apart would change by only a line or two.
const LARGE_PADDING_INTERVAL: u64 = 64;
/// Offset of the size in a section header of a 64-bit file.
const SIZE_OFFSET: u64 = 32;

/// A section that can be extended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section {
    /// Offset of its size field in the file.
    field: u64,
    endian: Endianness,
    size: u64,
    /// Maximum extension, in steps.
    max_steps: u64,
}

impl Section {
    /// Draws a new size: 0 to 48 bytes more, a multiple of 16, or rarely up to 4080. Returns the offset in the
    /// file and the bytes to write there.
    pub(super) fn draw(self, random: &mut StdRng) -> (u64, [u8; 8]) {
        let drawn = random.random_range(0..LARGE_PADDING_INTERVAL * PAGE_STEPS);
        let steps = match drawn / PAGE_STEPS {
            0 => drawn % PAGE_STEPS,
            _ => drawn % LINE_STEPS,
        };
        let size = self.size + steps.min(self.max_steps) * STEP;
        let bytes = match self.endian {
            Endianness::Little => size.to_le_bytes(),
            Endianness::Big => size.to_be_bytes(),
        };
        (self.field, bytes)
    }
}

/// Returns the extensible sections of code and data in an object file or an archive of object files; none for
/// other files. Keeps one object file at a time in memory.
///
/// Only lengths change. Nothing refers to the end of such a section, and the bytes added at its end, which belong
/// to other sections, are never executed or read.
pub(super) fn sections(file: impl Read + Seek) -> Vec<Section> {
    let cache = ReadCache::new(file);
    let ranges: Vec<(u64, u64)> = match ArchiveFile::parse(&cache) {
        Ok(archive) => archive
            .members()
            .flatten()
            .map(|m| m.file_range())
            .collect(),
        Err(_) => (&cache)
            .len()
            .map(|length| (0, length))
            .into_iter()
            .collect(),
    };
    let mut file = cache.into_inner();
    let mut found = Vec::new();
    let mut object = Vec::new();
    for (start, size) in ranges {
        object.clear();
        let read = file
            .seek(SeekFrom::Start(start))
            .and_then(|_| file.by_ref().take(size).read_to_end(&mut object));
        if read.is_ok() {
            found.extend(of_object(&object, start).unwrap_or_default());
        }
    }
    found
}

/// Returns the extensible sections of an object file that begins at the offset `start` of its file.
fn of_object(object: &[u8], start: u64) -> object::Result<Vec<Section>> {
    let header = FileHeader64::<Endianness>::parse(object)?;
    let endian = header.endian()?;
    if header.e_type(endian) != ET_REL {
        return Ok(Vec::new());
    }
    let table = header.sections(endian, object)?;
    let length = object.len() as u64;
    let mut found = Vec::new();
    for (index, section) in table.iter().enumerate() {
        let (flags, size) = (section.sh_flags(endian), section.sh_size(endian));
        let max_steps = match section.sh_type(endian) {
            SHT_PROGBITS => {
                let end = section.sh_offset(endian).saturating_add(size);
                length.saturating_sub(end) / STEP
            }
            SHT_NOBITS => PAGE_STEPS,
            _ => continue,
        };
        let alone = flags.contains(SHF_ALLOC) && !flags.intersects(SHF_MERGE | SHF_TLS) && size > 0;
        let each = u64::from(header.e_shentsize(endian));
        let field = (index as u64)
            .checked_mul(each)
            .and_then(|at| at.checked_add(header.e_shoff(endian)))
            .and_then(|at| at.checked_add(SIZE_OFFSET))
            .filter(|at| at.checked_add(8).is_some_and(|end| end <= length));
        if let Some(field) = field
            && alone
            && is_plain(table.section_name(endian, section)?)
        {
            found.push(Section {
                field: start + field,
                endian,
                size,
                max_steps,
            });
        }
    }
    Ok(found)
}

/// Whether the section called `name` is ordinary code or data, not part of a table that the linker assembles
/// (`.init_array`, or a section whose start and end the program refers to).
fn is_plain(name: &[u8]) -> bool {
    [".text", ".rodata", ".data", ".bss"].iter().any(|kind| {
        name.strip_prefix(kind.as_bytes())
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
    })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn other_files_have_no_sections() {
        let mut empty_object = vec![0; 64];
        empty_object[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        empty_object[16] = 1;
        for bytes in [b"".to_vec(), b"{ global: *; };".to_vec(), empty_object] {
            assert!(sections(Cursor::new(bytes)).is_empty());
        }
        // An executable is no relocatable file.
        let program = std::env::current_exe().unwrap();
        assert!(sections(std::fs::File::open(program).unwrap()).is_empty());
    }

    /// Returns an object file with 16 bytes of code, with its size at byte 200.
    fn object_file() -> Vec<u8> {
        let mut bytes = vec![0; 296];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[80..97].copy_from_slice(b"\0.text\0.shstrtab\0");
        let (text, names) = (104 + 64, 104 + 128);
        for (place, value) in [
            // Relocatable, x86-64; three section headers of 64 bytes from byte 104 on, the third with the names.
            (16, 1),
            (18, 62),
            (20, 1),
            (40, 104),
            (52, 64),
            (58, 64),
            (60, 3),
            (62, 2),
            // Name, type, flags, offset and size.
            (text, 1),
            (text + 4, 1),
            (text + 8, 6),
            (text + 24, 64),
            (text + 32, 16),
            (names, 7),
            (names + 4, 3),
            (names + 24, 80),
            (names + 32, 17),
        ] {
            bytes[place] = value;
        }
        bytes
    }

    #[test]
    fn damaged_objects_are_safe() {
        let sound = object_file();
        let found = sections(Cursor::new(&sound));
        let fields: Vec<(u64, u64)> = found.iter().map(|s| (s.field, s.size)).collect();
        assert_eq!(fields, [(200, 16)]);
        let mut seen = 0;
        for place in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[place] ^= 0xff;
            for section in sections(Cursor::new(bytes)) {
                assert!(section.field + 8 <= sound.len() as u64, "{place}");
                seen += 1;
            }
        }
        // Much of the damage is in bytes that are not read.
        assert!(seen > 50, "{seen}");
    }

    #[test]
    fn only_code_and_data_are_extended() {
        for name in [".text", ".text.main", ".rodata.x", ".data.rel.ro", ".bss"] {
            assert!(is_plain(name.as_bytes()), "{name}");
        }
        for name in [".textual", ".init_array", ".tdata", "plugins", ".init", ""] {
            assert!(!is_plain(name.as_bytes()), "{name}");
        }
    }
}
