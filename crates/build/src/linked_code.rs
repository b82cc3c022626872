//! Sections of the inputs of a link with everything that decides what they do at run time: content, relocations
//! and symbols, in a form that two builds can be compared by.

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use object::elf::{
    EM_X86_64, ET_REL, FileHeader64, RelocationType, SHF_ALLOC, SHF_EXECINSTR, SHF_MERGE,
    SHF_STRINGS, SHT_NOBITS, SHT_PROGBITS, SHT_REL, SHT_RELA, SHT_SYMTAB, STB_LOCAL, STT_SECTION,
};
use object::read::archive::ArchiveFile;
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym, SymbolTable};
use object::read::{ReadCache, SectionIndex, SymbolIndex};
use object::{Endianness, ReadRef};
use sha2::{Digest, Sha256};

use super::object_sections::{Keys, digest, groups, is_named};
use super::padding::nested;
use perfquilt_system::digest::add_all;

type Header = FileHeader64<Endianness>;

/// Names of the sections of data.
const DATA: [&str; 6] = [
    ".data",
    ".bss",
    ".rodata",
    ".tdata",
    ".tbss",
    ".gcc_except_table",
];

/// A section's purpose, as far as it matters to a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Instructions: run only when they are entered.
    Code,
    /// Values: matter to the code that refers to them.
    Data,
    /// Anything that takes effect without being referred to, as the list of functions to call at the start.
    Other,
}

/// A section that is loaded into memory.
#[derive(Debug)]
pub(super) struct LinkedSection {
    /// Identifies the section in every build. All copies of a section of which the linker keeps one have the
    /// same key.
    pub key: u64,
    pub name: String,
    pub content: Content,
    /// Digest of bytes, relocations and global symbols.
    pub digest: [u8; 32],
    /// Digests of the global symbols that it refers to, and keys of sections that it refers to through local
    /// ones; sorted.
    pub references: Vec<u64>,
    /// Digests of the names of the global symbols in it.
    pub defines: Vec<u64>,
    /// Where its bytes are in the file, and the entries of its relocations.
    pub bytes: Range<u64>,
    pub relocations: Vec<Range<u64>>,
}

/// The sections of a file that takes part in a link.
#[derive(Debug)]
pub(super) enum LinkedFile {
    Objects(Vec<LinkedSection>),
    /// A file whose effect on the program is not known: a script, an object of another kind. Its digest.
    Opaque([u8; 32]),
}

impl LinkedFile {
    /// Reads an object file or an archive, called `name` in every build.
    pub(super) fn read(mut file: impl Read + Seek, name: &str) -> std::io::Result<LinkedFile> {
        let mut whole = Sha256::new();
        add_all(&mut whole, &mut file)?;
        let opaque = LinkedFile::Opaque(whole.finalize().into());
        let cache = ReadCache::new(file);
        let length = (&cache).len().unwrap_or(0);
        let mut keys = Keys::default();
        let ranges: Vec<(u64, (u64, u64))> = match ArchiveFile::parse(&cache) {
            Ok(archive) => {
                let mut ranges = Vec::new();
                for member in archive.members() {
                    let Ok(member) = member else {
                        return Ok(opaque);
                    };
                    ranges.push((keys.of(member.name()), member.file_range()));
                }
                ranges
            }
            Err(_) => vec![(0, (0, length))],
        };
        let mut file = cache.into_inner();
        let (file_key, mut sections, mut bytes) =
            (digest(&[name.as_bytes()]), Vec::new(), Vec::new());
        for (key, (start, size)) in ranges {
            bytes.clear();
            file.seek(SeekFrom::Start(start))?;
            file.by_ref().take(size).read_to_end(&mut bytes)?;
            match of_object(&bytes, nested(file_key, key), start) {
                Some(found) => sections.extend(found),
                None => return Ok(opaque),
            }
        }
        Ok(LinkedFile::Objects(sections))
    }
}

/// Returns the digest of a global symbol's name, as used for references and definitions.
fn global(name: &[u8]) -> u64 {
    digest(&[b"symbol", name])
}

/// A table of relocations, with its place in the object.
type RelocationTable<'d> = (Range<u64>, &'d [<Header as FileHeader>::Rela]);

/// A parsed object file.
struct ObjectFile<'d> {
    bytes: &'d [u8],
    endian: Endianness,
    table: SectionTable<'d, Header>,
    symbols: SymbolTable<'d, Header>,
    /// Keys of all sections by index.
    keys: Vec<u64>,
    /// The relocations of each section.
    relocations: BTreeMap<usize, Vec<RelocationTable<'d>>>,
}

/// Returns the loaded sections of an object file that starts at `start` in its file; `None` if it cannot be
/// compared.
fn of_object(bytes: &[u8], key: u64, start: u64) -> Option<Vec<LinkedSection>> {
    let object = ObjectFile::parse(bytes, key)?;
    let mut sections = Vec::new();
    for index in 0..object.keys.len() {
        if let Some(section) = object.section(index, start)? {
            sections.push(section);
        }
    }
    object.link_exception_tables(&mut sections);
    for section in &mut sections {
        section.references.sort_unstable();
        section.references.dedup();
    }
    sections.extend(object.common_symbols(key)?);
    Some(sections)
}

impl<'d> ObjectFile<'d> {
    fn parse(bytes: &'d [u8], key: u64) -> Option<Self> {
        let header = Header::parse(bytes).ok()?;
        let endian = header.endian().ok()?;
        if header.e_type(endian) != ET_REL || header.e_machine(endian) != EM_X86_64 {
            return None;
        }
        let table = header.sections(endian, bytes).ok()?;
        let symbols = table.symbols(endian, bytes, SHT_SYMTAB).ok()?;
        let groups = groups(endian, &table, &symbols, bytes).ok()?;
        let (mut names, mut in_groups) = (Keys::default(), HashMap::new());
        let mut keys = Vec::new();
        let mut relocations = BTreeMap::<usize, Vec<_>>::new();
        for (index, section) in table.iter().enumerate() {
            let name = table.section_name(endian, section).ok()?;
            // Intermediate code of link-time optimisation becomes instructions elsewhere.
            if name.starts_with(b".gnu.lto_") || section.sh_type(endian) == SHT_REL {
                return None;
            }
            keys.push(match groups.get(&index) {
                Some(&group) => {
                    let group = digest(&[b"group", group]);
                    let names: &mut Keys = in_groups.entry(group).or_default();
                    nested(group, names.of(name))
                }
                None => nested(key, names.of(name)),
            });
            if section.sh_type(endian) == SHT_RELA {
                let (entries, _) = section.rela(endian, bytes).ok()??;
                let offset = section.sh_offset(endian);
                let place = offset..offset.checked_add(section.sh_size(endian))?;
                let changed = section.sh_info(endian) as usize;
                relocations
                    .entry(changed)
                    .or_default()
                    .push((place, entries));
            }
        }
        Some(ObjectFile {
            bytes,
            endian,
            table,
            symbols,
            keys,
            relocations,
        })
    }

    /// Returns the section with an index; `Some(None)` if it is not loaded or means nothing by itself, `None` if
    /// it cannot be compared.
    fn section(&self, index: usize, start: u64) -> Option<Option<LinkedSection>> {
        let endian = self.endian;
        let Ok(section) = self.table.section(SectionIndex(index)) else {
            // The first entry of the table describes no section.
            return (index == 0).then_some(None);
        };
        let name = self.table.section_name(endian, section).ok()?;
        let (flags, kind) = (section.sh_flags(endian), section.sh_type(endian));
        // The linker writes the tables of unwinding; their entries follow from the code.
        if !flags.contains(SHF_ALLOC) || name.starts_with(b".eh_frame") {
            return Some(None);
        }
        let data = section.data(endian, self.bytes).ok()?;
        let mut digest = Sha256::new();
        digest.update(kind.0.to_le_bytes());
        digest.update(flags.0.to_le_bytes());
        for number in [
            section.sh_size(endian),
            section.sh_addralign(endian),
            section.sh_entsize(endian),
        ] {
            digest.update(number.to_le_bytes());
        }
        digest.update(data);
        let defines = self.add_definitions(index, &mut digest)?;
        let mut references = Vec::new();
        let relocations = self.relocations.get(&index);
        for (_, entries) in relocations.into_iter().flatten() {
            for entry in *entries {
                let offset = entry.r_offset.get(endian);
                let RelocationType(kind) = entry.r_type(endian, false);
                digest.update(offset.to_le_bytes());
                digest.update(kind.to_le_bytes());
                digest.update(entry.r_addend.get(endian).to_le_bytes());
                let symbol = SymbolIndex(entry.r_sym(endian, false) as usize);
                self.add_target(symbol, &mut digest, &mut references)?;
            }
        }
        // What others mean by a reference to a merged string is its text.
        if flags.contains(SHF_MERGE) && defines.is_empty() && references.is_empty() {
            return Some(None);
        }
        let is_data = DATA.iter().any(|prefix| is_named(name, prefix));
        let is_code = is_named(name, ".text");
        let ordinary = matches!(kind, SHT_PROGBITS | SHT_NOBITS);
        let (content, bytes) = match section.file_range(endian) {
            Some((offset, size)) if is_code && flags.contains(SHF_EXECINSTR) && ordinary => {
                let begin = start.checked_add(offset)?;
                (Content::Code, begin..begin.checked_add(size)?)
            }
            _ if is_data && ordinary && !flags.contains(SHF_EXECINSTR) => (Content::Data, 0..0),
            _ => (Content::Other, 0..0),
        };
        let places = relocations.into_iter().flatten();
        Some(Some(LinkedSection {
            key: self.keys[index],
            name: String::from_utf8_lossy(name).into_owned(),
            content,
            digest: digest.finalize().into(),
            references,
            defines,
            bytes,
            relocations: places
                .map(|(place, _)| {
                    Some(start.checked_add(place.start)?..start.checked_add(place.end)?)
                })
                .collect::<Option<_>>()?,
        }))
    }

    /// Adds the global symbols of a section to its digest, and returns the digests of their names.
    fn add_definitions(&self, index: usize, digest: &mut Sha256) -> Option<Vec<u64>> {
        let mut found = BTreeMap::new();
        for (place, symbol) in self.symbols.enumerate() {
            if symbol.st_bind() == STB_LOCAL || self.section_of(symbol, place)? != Some(index) {
                continue;
            }
            let name = symbol.name(self.endian, self.symbols.strings()).ok()?;
            let value = symbol.st_value(self.endian);
            let how = [symbol.st_info().0, symbol.st_other().0];
            found.insert(name, (value, symbol.st_size(self.endian), how));
        }
        for (name, (value, size, how)) in &found {
            digest.update((name.len() as u64).to_le_bytes());
            digest.update(name);
            digest.update(value.to_le_bytes());
            digest.update(size.to_le_bytes());
            digest.update(how);
        }
        Some(found.into_keys().map(global).collect())
    }

    /// Returns the index of a symbol's section; `Some(None)` if it has none.
    fn section_of(
        &self,
        symbol: &<Header as FileHeader>::Sym,
        place: SymbolIndex,
    ) -> Option<Option<usize>> {
        let section = self.symbols.symbol_section(self.endian, symbol, place);
        Some(section.ok()?.map(|index| index.0))
    }

    /// Adds what a relocation refers to: a global symbol by its name, a merged string by its text, anything else
    /// by its section and place there.
    fn add_target(
        &self,
        index: SymbolIndex,
        digest: &mut Sha256,
        references: &mut Vec<u64>,
    ) -> Option<()> {
        if index.0 == 0 {
            digest.update(b"nothing");
            return Some(());
        }
        let endian = self.endian;
        let symbol = self.symbols.symbol(index).ok()?;
        let value = symbol.st_value(endian);
        if symbol.st_bind() != STB_LOCAL {
            let name = symbol.name(endian, self.symbols.strings()).ok()?;
            digest.update(b"global");
            digest.update([u8::from(symbol.is_weak()), symbol.st_other().0]);
            digest.update((name.len() as u64).to_le_bytes());
            digest.update(name);
            references.push(global(name));
            return Some(());
        }
        let Some(section) = self.section_of(symbol, index)? else {
            digest.update(b"absolute");
            digest.update(value.to_le_bytes());
            return Some(());
        };
        let header = self.table.section(SectionIndex(section)).ok()?;
        let flags = header.sh_flags(endian);
        if flags.contains(SHF_MERGE) && !self.relocations.contains_key(&section) {
            let data = header.data(endian, self.bytes).ok()?;
            let each = usize::try_from(header.sh_entsize(endian)).ok()?.max(1);
            digest.update(b"merged");
            digest.update((each as u64).to_le_bytes());
            if symbol.st_type() == STT_SECTION {
                // Which text the addend means depends on the instruction.
                digest.update(value.to_le_bytes());
                digest.update(data);
                return Some(());
            }
            let place = usize::try_from(value).ok()?;
            if !flags.contains(SHF_STRINGS) {
                // A short constant may be the end of a longer one.
                let begin = place - place % each;
                digest.update(((place - begin) as u64).to_le_bytes());
                digest.update(data.get(begin..begin.checked_add(each)?)?);
                return Some(());
            }
            let text = data.get(place..)?;
            let mut units = text.chunks_exact(each);
            let end = units.position(|unit| unit.iter().all(|&byte| byte == 0));
            // Without an end, everything behind it counts.
            let length = end.map_or(text.len(), |end| end * each);
            digest.update(text.get(..length)?);
            return Some(());
        }
        let key = *self.keys.get(section)?;
        digest.update(b"local");
        digest.update(key.to_le_bytes());
        digest.update(value.to_le_bytes());
        references.push(key);
        Some(())
    }

    /// Makes code refer to its table of exception handlers, which only the table of unwinding refers to.
    /// Without code of its name, such a table is [`Content::Other`].
    fn link_exception_tables(&self, sections: &mut [LinkedSection]) {
        const CODE: [&str; 5] = [
            ".text",
            ".text.unlikely",
            ".text.hot",
            ".text.startup",
            ".text.exit",
        ];
        for place in 0..sections.len() {
            let section = &sections[place];
            let Some(rest) = section.name.strip_prefix(".gcc_except_table") else {
                continue;
            };
            let names = CODE.map(|prefix| format!("{prefix}{rest}"));
            let key = section.key;
            let mut known = false;
            for code in &mut *sections {
                if code.content == Content::Code && names.contains(&code.name) {
                    code.references.push(key);
                    known = true;
                }
            }
            if !known {
                sections[place].content = Content::Other;
            }
        }
    }

    /// Returns variables for which the linker makes the section.
    fn common_symbols(&self, key: u64) -> Option<Vec<LinkedSection>> {
        let mut found = Vec::new();
        for symbol in self.symbols.iter() {
            if !symbol.is_common(self.endian) {
                continue;
            }
            let name = symbol.name(self.endian, self.symbols.strings()).ok()?;
            let mut digest = Sha256::new();
            digest.update(symbol.st_size(self.endian).to_le_bytes());
            digest.update(symbol.st_value(self.endian).to_le_bytes());
            found.push(LinkedSection {
                key: nested(key, global(name)),
                name: String::from_utf8_lossy(name).into_owned(),
                content: Content::Data,
                digest: digest.finalize().into(),
                references: Vec::new(),
                defines: vec![global(name)],
                bytes: 0..0,
                relocations: Vec::new(),
            });
        }
        Some(found)
    }
}
