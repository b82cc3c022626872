//! Finds the shared libraries that an installed program would load from the build tree.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader64};
use object::read::ReadCache;
use object::read::elf::FileHeader;

/// Returns the names of the shared libraries that the 64-bit ELF file `program` needs and finds below `work` by its run
/// path (`DT_RPATH`, `DT_RUNPATH`). The next point overwrites them there, so that all points would run the libraries of
/// the one that was built last. Empty for any other file.
pub(super) fn in_work_folder(program: &Path, work: &Path) -> Vec<String> {
    let (needed, mut folders) = dynamic_paths(program).unwrap_or_default();
    folders.retain(|folder| folder.starts_with(work));
    needed
        .iter()
        .filter(|name| folders.iter().any(|folder| folder.join(name).exists()))
        .map(|name| name.display().to_string())
        .collect()
}

/// Returns the names of the shared libraries that the 64-bit ELF file `program` needs; none for any other file.
pub fn needed_libraries(program: &Path) -> Vec<String> {
    let (needed, _) = dynamic_paths(program).unwrap_or_default();
    needed
        .iter()
        .map(|name| name.display().to_string())
        .collect()
}

/// Returns the libraries that a program needs, and the folders of its run path; `None` for a file that is no 64-bit ELF
/// file.
fn dynamic_paths(program: &Path) -> Option<(Vec<PathBuf>, Vec<PathBuf>)> {
    let data = ReadCache::new(File::open(program).ok()?);
    let header = FileHeader64::<Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &data).ok()?;
    let table = sections.dynamic_table(endian, &data).ok()?;
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let (mut needed, mut folders) = (Vec::new(), Vec::new());
    for entry in &table {
        match entry.tag {
            DT_NEEDED => needed.push(path(table.string(entry).ok()?)),
            DT_RPATH | DT_RUNPATH => {
                let listed = table.string(entry).ok()?;
                folders.extend(listed.split(|byte| *byte == b':').map(path));
            }
            _ => {}
        }
    }
    Some((needed, folders))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquilt_model::error::Kind;
    use perfquilt_system::process::Command;

    #[test]
    fn libraries_of_the_build_are_found_by_the_run_path() {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        std::fs::create_dir_all(work.join("lib")).unwrap();
        std::fs::write(work.join("part.c"), "int part(void) { return 0; }").unwrap();
        let main = "int part(void); int main(void) { return part(); }";
        std::fs::write(work.join("main.c"), main).unwrap();
        let cc = |arguments: &[&str]| {
            Command::new("cc")
                .args(arguments)
                .directory(&work)
                .run_ok(Kind::Build)
                .unwrap();
        };
        cc(&["-shared", "-fPIC", "part.c", "-o", "lib/libpart.so"]);
        let run_path = format!("-Wl,-rpath,/nowhere:{}/lib:", work.display());
        cc(&["main.c", "-Llib", "-lpart", &run_path, "-o", "shared"]);
        let found = |program: &str| in_work_folder(&work.join(program), &work);
        assert_eq!(found("shared"), ["libpart.so"]);
        cc(&[
            "main.c",
            "-Llib",
            "-lpart",
            "-Wl,-rpath,$ORIGIN/lib",
            "-o",
            "moved",
        ]);
        cc(&["main.c", "part.c", &run_path, "-o", "alone"]);
        for program in ["moved", "alone", "main.c", "none"] {
            assert!(found(program).is_empty(), "{program}");
        }
        std::fs::remove_file(work.join("lib/libpart.so")).unwrap();
        assert!(found("shared").is_empty());
    }
}
