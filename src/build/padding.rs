//! Moves code and data apart at random and keeps their order: sections of object files are made
//! longer, by what the file happens to have behind them, before they are linked.

use std::ops::Range;

use object::Endianness;
use object::elf::{FileHeader64, SHF_ALLOC, SHF_MERGE, SHF_TLS, SHT_NOBITS, SHT_PROGBITS};
use object::read::archive::ArchiveFile;
use object::read::elf::{FileHeader, SectionHeader};
use rand::RngExt;
use rand::rngs::StdRng;

/// Bytes of the least padding: what functions are aligned to.
const STEP: u64 = 16;
/// Up to so many steps, so that what follows may begin anywhere in a cache line of 64 bytes.
const MOST: u64 = 3;
/// Where the size is in a section header of a 64-bit file.
const SIZE: usize = 32;

/// A section that may be longer.
struct Section {
    /// Where the file has its size.
    field: Range<usize>,
    size: u64,
    /// How many steps longer it can be.
    most: u64,
}

/// Whether the object file or archive has sections that [`pad`] can move apart.
pub(super) fn can_pad(bytes: &[u8]) -> bool {
    objects(bytes)
        .into_iter()
        .any(|object| !sections(&bytes[object]).is_empty())
}

/// Moves apart what is in an object file or an archive of them: behind every section of code or data
/// lie from 0 to 48 bytes, a multiple of 16, that nothing uses. Anything else is left as it is.
///
/// Lengths are all that changes. Nothing refers to the end of such a section, and the bytes it then
/// has at its end, which belong to other sections, are never executed or read.
pub(super) fn pad(bytes: &mut [u8], random: &mut StdRng) {
    for object in objects(bytes) {
        let object = &mut bytes[object];
        let little = object.get(5) == Some(&1);
        for section in sections(object) {
            let steps = random.random_range(0..=MOST).min(section.most);
            let size = section.size + steps * STEP;
            let size = if little {
                size.to_le_bytes()
            } else {
                size.to_be_bytes()
            };
            object[section.field].copy_from_slice(&size);
        }
    }
}

/// Where the object files of an archive are; of any other file, all of it.
fn objects(bytes: &[u8]) -> Vec<Range<usize>> {
    let Ok(archive) = ArchiveFile::parse(bytes) else {
        return std::iter::once(0..bytes.len()).collect();
    };
    archive
        .members()
        .filter_map(|member| {
            let (start, size) = member.ok()?.file_range();
            let start = usize::try_from(start).ok()?;
            let end = start.checked_add(usize::try_from(size).ok()?)?;
            (end <= bytes.len()).then_some(start..end)
        })
        .collect()
}

/// The sections of a relocatable 64-bit file that may be longer; of anything else, none.
fn sections(bytes: &[u8]) -> Vec<Section> {
    find(bytes).unwrap_or_default()
}

fn find(bytes: &[u8]) -> object::Result<Vec<Section>> {
    let header = FileHeader64::<Endianness>::parse(bytes)?;
    let endian = header.endian()?;
    if header.e_type(endian) != object::elf::ET_REL {
        return Ok(Vec::new());
    }
    let table = header.sections(endian, bytes)?;
    let mut found = Vec::new();
    for (index, section) in table.iter().enumerate() {
        let (flags, kind) = (section.sh_flags(endian), section.sh_type(endian));
        let size = section.sh_size(endian);
        let most = match kind {
            SHT_PROGBITS => {
                let end = section.sh_offset(endian).saturating_add(size);
                (bytes.len() as u64).saturating_sub(end) / STEP
            }
            SHT_NOBITS => MOST,
            _ => continue,
        };
        let alone = flags.contains(SHF_ALLOC)
            && !flags.intersects(SHF_MERGE | SHF_TLS)
            && size > 0
            && is_plain(table.section_name(endian, section)?);
        let at = header.e_shoff(endian) + index as u64 * u64::from(header.e_shentsize(endian));
        let field = usize::try_from(at).ok().and_then(|at| {
            let start = at.checked_add(SIZE)?;
            Some(start..start.checked_add(size_of::<u64>())?)
        });
        if let Some(field) = field.filter(|field| alone && field.end <= bytes.len()) {
            found.push(Section { field, size, most });
        }
    }
    Ok(found)
}

/// Whether it is code or data and no table that the linker puts together out of many (`.init_array`, a
/// section whose start and end the program asks for).
fn is_plain(name: &[u8]) -> bool {
    [".text", ".rodata", ".data", ".bss"].iter().any(|kind| {
        name.strip_prefix(kind.as_bytes())
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
    })
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    /// The smallest of ELF files: no sections.
    fn empty_object() -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16] = 1;
        bytes
    }

    #[test]
    fn what_is_no_object_is_left_as_it_is() {
        for text in [b"".to_vec(), b"{ global: *; };".to_vec(), empty_object()] {
            let mut bytes = text.clone();
            assert!(!can_pad(&bytes));
            pad(&mut bytes, &mut StdRng::seed_from_u64(1));
            assert_eq!(bytes, text);
        }
    }

    #[test]
    fn damaged_objects_are_no_danger() {
        let original = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        // An executable is no relocatable file.
        assert!(!can_pad(&original));
        let mut claimed = original[..4096].to_vec();
        claimed[16] = 1;
        for place in 0..64 {
            let mut bytes = claimed.clone();
            bytes[place] ^= 0xff;
            pad(&mut bytes, &mut StdRng::seed_from_u64(1));
            assert_eq!(bytes.len(), claimed.len());
        }
    }

    #[test]
    fn only_code_and_data_may_be_longer() {
        for name in [".text", ".text.main", ".rodata.x", ".data.rel.ro", ".bss"] {
            assert!(is_plain(name.as_bytes()), "{name}");
        }
        for name in [".textual", ".init_array", ".tdata", "plugins", ".init", ""] {
            assert!(!is_plain(name.as_bytes()), "{name}");
        }
    }
}
