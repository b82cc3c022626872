//! Computes the identity of a built server: a digest of everything that matters at run time.
//!
//! For an ELF file these are the sections that are loaded into memory, with their addresses. The digest omits
//! debug information, symbol tables and the compiler's comments, which are never loaded, and the build id, which
//! is itself a digest of the rest. So a patch that only moves lines in a file compiled with debug information
//! keeps the identity, and one that changes a single loaded byte does not. Paths would differ between machines;
//! the build removes them (`-ffile-prefix-map`). Any other file counts byte for byte. Execute permission counts
//! too.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use object::LittleEndian;
use object::elf::{FileHeader64, SHF_ALLOC, SectionHeader64};
use object::read::elf::{FileHeader, SectionHeader};
use sha2::{Digest, Sha256};

use perfquilt_model::error::{Error, Result};
use perfquilt_system::digest::add;

/// Section with the linker's digest of the whole file.
const BUILD_ID: &[u8] = b".note.gnu.build-id";

/// Returns the identity of the files below `dir`, given by relative path and size.
pub fn identity_of_files(dir: &Path, files: &BTreeMap<String, u64>) -> Result<String> {
    let mut all = Sha256::new();
    for name in files.keys() {
        let path = dir.join(name);
        let bytes = std::fs::read(&path).map_err(|e| Error::io("read", &path, &e))?;
        add(&mut all, name.as_bytes());
        all.update(of_bytes(&bytes));
        let meta = std::fs::metadata(&path).map_err(|e| Error::io("read", &path, &e))?;
        let may_execute = meta.permissions().mode() & 0o111 != 0;
        // Only an unexpected permission enters the digest, so that identities of earlier versions, which
        // ignored permissions, stay valid.
        if may_execute != is_program(&bytes) {
            all.update(b"x");
        }
    }
    Ok(hex::encode(all.finalize()))
}

/// Whether a file with this content is expected to be executable.
fn is_program(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF") || bytes.starts_with(b"#!")
}

fn of_bytes(bytes: &[u8]) -> [u8; 32] {
    loadable(bytes).unwrap_or_else(|| Sha256::digest(bytes).into())
}

/// Returns the digest of the loaded sections of a 64-bit little-endian ELF file; `None` for other files and for
/// files with invalid tables.
fn loadable(bytes: &[u8]) -> Option<[u8; 32]> {
    let sections = loaded_sections(bytes)?;
    let mut digest = Sha256::new();
    // Type, machine and version, then the entry point.
    digest.update(bytes.get(0x10..0x20)?);
    for section in &sections {
        digest.update((section.name.len() as u64).to_le_bytes());
        digest.update(section.name);
        for value in section.header {
            digest.update(value.to_le_bytes());
        }
        digest.update(section.content);
    }
    (!sections.is_empty()).then(|| digest.finalize().into())
}

/// A section that is loaded into memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LoadedSection<'b> {
    pub name: &'b [u8],
    /// Type, flags, address and size.
    pub header: [u64; 4],
    /// Empty without bytes in the file, and where it is the linker's digest of the rest.
    pub content: &'b [u8],
}

/// Returns the loaded sections of a 64-bit little-endian ELF file; `None` for other files and for files with invalid tables.
pub(super) fn loaded_sections(bytes: &[u8]) -> Option<Vec<LoadedSection<'_>>> {
    let header = FileHeader64::<LittleEndian>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let table = header.sections(endian, bytes).ok()?;
    let is_loaded = |section: &&SectionHeader64<_>| section.sh_flags(endian).contains(SHF_ALLOC);
    let sections = table.iter().filter(is_loaded).map(|section| {
        let name = table.section_name(endian, section).ok()?;
        Some(LoadedSection {
            name,
            header: [
                u64::from(section.sh_type(endian).0),
                section.sh_flags(endian).0,
                section.sh_addr(endian),
                section.sh_size(endian),
            ],
            content: if name == BUILD_ID {
                &[]
            } else {
                section.data(endian, bytes).ok()?
            },
        })
    });
    sections.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_system::process::Command;

    fn compile(folder: &Path, source: &str, flags: &[&str]) -> Vec<u8> {
        std::fs::write(folder.join("a.c"), source).unwrap();
        Command::new("cc")
            .args(flags)
            .args(["a.c", "-o", "a.out"])
            .directory(folder)
            .run_ok(perfquilt_model::error::Kind::Build)
            .unwrap();
        std::fs::read(folder.join("a.out")).unwrap()
    }

    #[test]
    fn debug_information_and_build_id_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let source = "int main(void) { return 7; }\n";
        let flags = ["-g", "-Wl,--build-id=sha1"];
        let plain = compile(folder.path(), source, &flags);
        let moved = compile(folder.path(), &format!("\n\n\n{source}"), &flags);
        assert_ne!(plain, moved, "line numbers differ");
        assert_eq!(of_bytes(&plain), of_bytes(&moved));
        let other = compile(folder.path(), &source.replace('7', "8"), &flags);
        assert_ne!(of_bytes(&plain), of_bytes(&other));
    }

    #[test]
    fn other_and_damaged_files_count_byte_for_byte() {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = compile(folder.path(), "int main(void) { return 7; }\n", &[]);
        assert!(loadable(&bytes).is_some());
        bytes.truncate(bytes.len() / 2);
        assert!(loadable(&bytes).is_none());
        assert_ne!(of_bytes(b"#!/bin/sh\n"), of_bytes(b"#!/bin/sh"));
        assert_ne!(of_bytes(b"\x7fELF\x02\x01"), of_bytes(b""));
    }

    #[test]
    fn execute_permission_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for (text, usual) in [("#!/bin/sh\n", 0o755), ("words\n", 0o644)] {
            std::fs::write(&path, text).unwrap();
            let with = |mode: u32| {
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
                identity_of_files(folder.path(), &BTreeMap::from([("a".to_owned(), 1)])).unwrap()
            };
            assert_ne!(with(0o755), with(0o644));
            assert_eq!(with(0o755), with(0o700), "for any class of users");
            let mut content = Sha256::new();
            add(&mut content, b"a");
            content.update(of_bytes(text.as_bytes()));
            assert_eq!(with(usual), hex::encode(content.finalize()), "as before");
        }
    }

    #[test]
    fn names_count() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "x").unwrap();
        std::fs::write(folder.path().join("b"), "x").unwrap();
        let one = |name: &str| {
            identity_of_files(folder.path(), &BTreeMap::from([(name.to_owned(), 1)])).unwrap()
        };
        assert_ne!(one("a"), one("b"));
    }
}
