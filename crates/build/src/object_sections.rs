//! Finds the sections of code and data in object files and archives of object files.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};

use object::elf::{
    ET_REL, FileHeader64, GRP_COMDAT, SHF_ALLOC, SHF_MERGE, SHF_TLS, SHT_NOBITS, SHT_PROGBITS,
    SHT_SYMTAB,
};
use object::read::ReadCache;
use object::read::archive::{ArchiveFile, ArchiveKind};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym, SymbolTable};
use object::{Endianness, ReadRef};
use sha2::{Digest, Sha256};

use super::padding::{mix, nested};

/// Length of a member's header in an archive.
pub(super) const ARCHIVE_HEADER: u64 = 60;
/// Length of a section header of a 64-bit file.
const SECTION_HEADER: u64 = 64;

/// Where the linker puts a section: sections of one kind follow each other in the executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SectionKind {
    Text,
    /// Code that GNU ld gathers before other code, each group for itself.
    TextUnlikely,
    TextExit,
    TextStartup,
    TextHot,
    Rodata,
    Relro,
    /// Data that GNU ld puts before other data that is read-only after relocation.
    RelroLocal,
    Data,
    Bss,
}

impl SectionKind {
    /// Returns the kind of a section by its name; `None` if it is not ordinary code or data but part of a table
    /// that the linker assembles (`.init_array`, or a section whose start and end the program refers to).
    fn of(name: &[u8]) -> Option<SectionKind> {
        use SectionKind::*;
        // Longer names first.
        [
            (".text.unlikely", TextUnlikely),
            (".text.exit", TextExit),
            (".text.startup", TextStartup),
            (".text.hot", TextHot),
            (".text", Text),
            (".rodata", Rodata),
            (".data.rel.ro.local", RelroLocal),
            (".data.rel.ro", Relro),
            (".data", Data),
            (".bss", Bss),
        ]
        .into_iter()
        .find(|(prefix, _)| is_named(name, prefix))
        .map(|(_, kind)| kind)
    }

    /// Returns the kind for linkers that keep code of all groups in the order of the input.
    pub(super) fn without_groups(self) -> SectionKind {
        match self {
            SectionKind::TextUnlikely
            | SectionKind::TextExit
            | SectionKind::TextStartup
            | SectionKind::TextHot => SectionKind::Text,
            SectionKind::RelroLocal => SectionKind::Relro,
            kind => kind,
        }
    }
}

/// A section that can be extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Section {
    /// Identifies the section among those of its object file, in every build.
    pub key: u64,
    pub kind: SectionKind,
    /// Digest of the name of the group that it belongs to, of which the linker keeps one in the whole program.
    pub group: Option<u64>,
    /// Offset of its section header in the object file.
    pub header: u64,
    pub is_little_endian: bool,
    /// Offset of its content's end in the object file; `None` if it has no content (`.bss`).
    pub end: Option<u64>,
    pub size: u64,
    pub align: u64,
}

/// An object file: a whole file or a member of an archive.
#[derive(Debug)]
pub(super) struct Object {
    /// Identifies the object among those of its archive, in every build.
    pub key: u64,
    /// Offset in the file.
    pub start: u64,
    pub length: u64,
    pub sections: Vec<Section>,
}

/// A file that takes part in a link.
#[derive(Debug)]
pub(super) struct LinkInput {
    /// Its object files by offset, none overlapping another.
    pub objects: Vec<Object>,
    /// Whether the objects are members of an archive.
    pub is_archive: bool,
    /// Whether bytes can be added at the end of each object.
    pub can_grow: bool,
}

impl LinkInput {
    /// Finds the objects of an object file or an archive; none in other files. Keeps one object file at a time
    /// in memory.
    pub(super) fn read(file: impl Read + Seek) -> LinkInput {
        let cache = ReadCache::new(file);
        let length = (&cache).len().unwrap_or(0);
        let mut keys = Keys::default();
        let (ranges, is_archive, can_grow) = match ArchiveFile::parse(&cache) {
            Ok(archive) => {
                let members = archive.members().flatten();
                let ranges = members
                    .map(|member| (keys.of(member.name()), member.file_range()))
                    .collect();
                // In the other kinds, names are part of the members, or a second table has offsets.
                let can_grow = matches!(
                    archive.kind(),
                    ArchiveKind::Unknown | ArchiveKind::Gnu | ArchiveKind::Gnu64
                );
                (ranges, true, can_grow)
            }
            Err(_) => (vec![(0, (0, length))], false, true),
        };
        let mut file = cache.into_inner();
        let (mut objects, mut bytes, mut end) = (Vec::new(), Vec::new(), 0);
        for (key, (start, size)) in ranges {
            let before = if is_archive { ARCHIVE_HEADER } else { 0 };
            if start < before.saturating_add(end) {
                continue;
            }
            bytes.clear();
            let read = file
                .seek(SeekFrom::Start(start))
                .and_then(|_| file.by_ref().take(size).read_to_end(&mut bytes));
            let sections = match read {
                Ok(read) if read as u64 == size => of_object(&bytes).unwrap_or_default(),
                _ => continue,
            };
            end = start + size;
            if !sections.is_empty() {
                objects.push(Object {
                    key,
                    start,
                    length: size,
                    sections,
                });
            }
        }
        LinkInput {
            objects,
            is_archive,
            can_grow,
        }
    }
}

/// Returns whether a section is called `prefix`, or that, a dot and more.
pub(super) fn is_named(name: &[u8], prefix: &str) -> bool {
    let rest = name.strip_prefix(prefix.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
}

/// Returns the name of the group of each section, by its index, of which the linker keeps only one.
pub(super) fn groups<'d>(
    endian: Endianness,
    table: &SectionTable<'d, FileHeader64<Endianness>>,
    symbols: &SymbolTable<'d, FileHeader64<Endianness>>,
    object: &'d [u8],
) -> object::Result<HashMap<usize, &'d [u8]>> {
    let mut groups = HashMap::new();
    for section in table.iter() {
        if let Some((GRP_COMDAT, members)) = section.group(endian, object)? {
            let symbol = object::SymbolIndex(section.sh_info(endian) as usize);
            let name = symbols.symbol(symbol)?.name(endian, symbols.strings())?;
            groups.extend(
                members
                    .iter()
                    .map(|member| (member.get(endian) as usize, name)),
            );
        }
    }
    Ok(groups)
}

/// Returns the extensible sections of an object file.
fn of_object(object: &[u8]) -> object::Result<Vec<Section>> {
    let header = FileHeader64::<Endianness>::parse(object)?;
    let endian = header.endian()?;
    if header.e_type(endian) != ET_REL {
        return Ok(Vec::new());
    }
    let table = header.sections(endian, object)?;
    let symbols = table.symbols(endian, object, SHT_SYMTAB)?;
    let length = object.len() as u64;
    let groups = groups(endian, &table, &symbols, object)?;
    let mut keys = Keys::default();
    let mut found = Vec::new();
    for (index, section) in table.iter().enumerate() {
        let (flags, size) = (section.sh_flags(endian), section.sh_size(endian));
        let end = match section.sh_type(endian) {
            SHT_PROGBITS => section.sh_offset(endian).checked_add(size),
            SHT_NOBITS => None,
            _ => continue,
        };
        let name = table.section_name(endian, section)?;
        let alone = flags.contains(SHF_ALLOC) && !flags.intersects(SHF_MERGE | SHF_TLS);
        let Some(kind) = SectionKind::of(name).filter(|_| alone) else {
            continue;
        };
        let each = u64::from(header.e_shentsize(endian));
        let at = (index as u64)
            .checked_mul(each)
            .and_then(|at| at.checked_add(header.e_shoff(endian)))
            .filter(|at| {
                at.checked_add(SECTION_HEADER)
                    .is_some_and(|end| end <= length)
            });
        let has_content = section.sh_type(endian) == SHT_PROGBITS;
        let is_sound = !has_content || end.is_some_and(|end| end <= length);
        if let Some(header) = at
            && is_sound
        {
            found.push(Section {
                key: keys.of(name),
                kind,
                group: groups.get(&index).map(|name| digest(&[name])),
                header,
                is_little_endian: endian == Endianness::Little,
                end,
                size,
                align: section.sh_addralign(endian),
            });
        }
    }
    Ok(found)
}

/// Gives keys to things by name; of things with the same name, each has its own.
#[derive(Debug, Default)]
pub(super) struct Keys {
    seen: HashMap<u64, u64>,
}

impl Keys {
    /// Returns the key of the next thing called `name`. Numbers between dots do not count: compilers number
    /// copies of functions and local names, and one more changes the numbers of the others.
    pub(super) fn of(&mut self, name: &[u8]) -> u64 {
        let parts: Vec<&[u8]> = name
            .split(|&byte| byte == b'.')
            .filter(|part| part.is_empty() || !part.iter().all(u8::is_ascii_digit))
            .collect();
        let name = digest(&parts);
        let seen = self.seen.entry(name).or_default();
        *seen += 1;
        nested(name, mix(*seen))
    }
}

/// Returns 64 bits of the SHA-256 digest of `parts`.
pub(super) fn digest(parts: &[&[u8]]) -> u64 {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part);
        digest.update(b"\0");
    }
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest.finalize()[..8]);
    u64::from_le_bytes(bytes)
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
            assert!(LinkInput::read(Cursor::new(bytes)).objects.is_empty());
        }
        // An executable is no relocatable file.
        let program = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(LinkInput::read(program).objects.is_empty());
    }

    /// Returns an object file with 16 bytes of code, with its section header at byte 168.
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
        let found = |bytes: &[u8]| -> Vec<Section> {
            let objects = LinkInput::read(Cursor::new(bytes)).objects;
            objects.into_iter().flat_map(|o| o.sections).collect()
        };
        let headers: Vec<_> = found(&sound)
            .iter()
            .map(|s| (s.header, s.size, s.end))
            .collect();
        assert_eq!(headers, [(168, 16, Some(80))]);
        let mut seen = 0;
        for place in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[place] ^= 0xff;
            for section in found(&bytes) {
                let length = sound.len() as u64;
                assert!(section.header + SECTION_HEADER <= length, "{place}");
                assert!(section.end.is_none_or(|end| end <= length), "{place}");
                seen += 1;
            }
        }
        // Much of the damage is in bytes that are not read.
        assert!(seen > 50, "{seen}");
    }

    #[test]
    fn damaged_archives_are_safe() {
        let object = object_file();
        let mut archive = b"!<arch>\n".to_vec();
        for name in ["a.o/", "b.o/"] {
            let (zero, length) = (0, object.len());
            let header = format!("{name:16}{zero:<12}{zero:<6}{zero:<6}{zero:<8}{length:<10}`\n");
            archive.extend(header.into_bytes());
            archive.extend(&object);
        }
        let whole = LinkInput::read(Cursor::new(&archive));
        assert_eq!(whole.objects.len(), 2);
        assert_ne!(whole.objects[0].key, whole.objects[1].key);
        assert_eq!(
            whole.objects[0].sections[0].key,
            whole.objects[1].sections[0].key
        );
        for place in 0..archive.len() {
            let mut bytes = archive.clone();
            bytes[place] ^= 0x11;
            let mut end = 0;
            for object in LinkInput::read(Cursor::new(&bytes)).objects {
                assert!(object.start >= end, "{place}");
                end = object.start + object.length;
                assert!(end <= bytes.len() as u64, "{place}");
            }
        }
        for length in 0..archive.len() {
            for object in LinkInput::read(Cursor::new(&archive[..length])).objects {
                assert!(object.start + object.length <= length as u64);
            }
        }
    }

    #[test]
    fn only_code_and_data_are_extended() {
        for name in [".text", ".text.main", ".rodata.x", ".data.rel.ro", ".bss"] {
            assert!(SectionKind::of(name.as_bytes()).is_some(), "{name}");
        }
        for name in [".textual", ".init_array", ".tdata", "plugins", ".init", ""] {
            assert!(SectionKind::of(name.as_bytes()).is_none(), "{name}");
        }
        let unlikely = SectionKind::of(b".text.unlikely.x").unwrap();
        assert_eq!(unlikely, SectionKind::TextUnlikely);
        assert_eq!(unlikely.without_groups(), SectionKind::Text);
        assert_eq!(SectionKind::of(b".text.unlikelyx"), Some(SectionKind::Text));
    }

    #[test]
    fn keys_do_not_depend_on_the_compilers_numbers() {
        let keys = |names: &[&str]| -> Vec<u64> {
            let mut keys = Keys::default();
            names.iter().map(|name| keys.of(name.as_bytes())).collect()
        };
        assert_eq!(
            keys(&[".rodata.table.17", ".text.f.part.0"]),
            keys(&[".rodata.table.3", ".text.f.part.1"])
        );
        let same = keys(&[".text.f", ".text.f", ".text.g"]);
        assert_ne!(same[0], same[1]);
        assert_ne!(same[0], same[2]);
    }
}
