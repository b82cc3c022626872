//! Reads how much machine code an executable has.

use std::fs::File;
use std::path::Path;

use object::Endianness;
use object::elf::{FileHeader64, SHF_ALLOC, SHF_EXECINSTR};
use object::read::ReadCache;
use object::read::elf::{FileHeader, SectionHeader};

/// Returns the bytes of machine code in the 64-bit ELF file `program`: the sizes of its executable sections (`.text`,
/// `.plt`, `.init` and others). `None` for any other file.
pub(super) fn code_bytes(program: &Path) -> Option<u64> {
    let data = ReadCache::new(File::open(program).ok()?);
    let header = FileHeader64::<Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &data).ok()?;
    let is_code = SHF_ALLOC | SHF_EXECINSTR;
    let code = sections
        .iter()
        .filter(|section| section.sh_flags(endian) & is_code == is_code);
    Some(code.map(|section| section.sh_size(endian)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::error::Kind;
    use perfquilt_system::process::Command;

    #[test]
    fn code_counts_and_data_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("a.out");
        let size = |source: &str| {
            std::fs::write(folder.path().join("a.c"), source).unwrap();
            Command::new("cc")
                .args(["a.c", "-o", "a.out"])
                .directory(folder.path())
                .run_ok(Kind::Build)
                .unwrap();
            code_bytes(&program).unwrap()
        };
        let main = "int main(void) { return 0; }";
        let small = size(main);
        assert!((100..10_000).contains(&small), "{small}");
        assert_eq!(size(&format!("int table[5000] = {{1}}; {main}")), small);
        let padded = size(&format!("{main} __asm__(\".text; .zero 4096\");"));
        assert_eq!(padded, small + 4096);
        std::fs::write(&program, "#!/bin/sh").unwrap();
        assert_eq!(code_bytes(&program), None);
        assert_eq!(code_bytes(&folder.path().join("none")), None);
    }
}
