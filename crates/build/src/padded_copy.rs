//! Copies files that take part in a link, with sections extended as a plan says.
//!
//! Only headers of sections change: a section is extended over the bytes that follow it in its file, and zero bytes
//! are added at the end of the object file where they do not suffice. Nothing refers to the end of such a section,
//! and the added bytes, which may belong to other sections, are never executed or read.

use std::fs::File;
use std::io::{BufWriter, Read, Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::common_layout::{FilePlan, ObjectPlan, SectionPlan};
use super::object_sections::ARCHIVE_HEADER;

/// Offsets of the size and of the alignment in a section header of a 64-bit file.
const SIZE: u64 = 32;
const ALIGN: u64 = 48;
/// Where the size is in a member's header in an archive.
const MEMBER_SIZE: std::ops::Range<usize> = 48..58;
/// Length of the text at the start of an archive.
const MAGIC: usize = 8;

/// Copies the file `from` to the new file `to` in the layout `seed`.
///
/// # Errors
/// Files that cannot be read or written; [`std::io::ErrorKind::UnexpectedEof`] when `from` is shorter than when
/// it was planned.
pub(super) fn padded_copy(from: &Path, to: &Path, plan: &FilePlan, seed: u64) -> Result<()> {
    let mut source = File::open(from)?;
    // A mode of its own: the stored files are read-only.
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(to)?;
    let drawn: Vec<Vec<(u64, u64)>> = plan
        .objects
        .iter()
        .map(|object| object.sections.iter().map(|s| s.draw(seed)).collect())
        .collect();
    let growth = |(object, drawn): (&ObjectPlan, &Vec<(u64, u64)>)| {
        if plan.can_grow {
            object.growth(drawn.iter().map(|(size, _)| *size))
        } else {
            0
        }
    };
    let growths: Vec<u64> = plan.objects.iter().zip(&drawn).map(growth).collect();
    let mut target = BufWriter::with_capacity(1 << 16, file);
    let (mut position, mut bytes) = (0, Vec::new());
    for (index, (object, drawn)) in plan.objects.iter().zip(&drawn).enumerate() {
        read(&mut source, &mut bytes, object.start - position)?;
        if plan.is_archive {
            if index == 0 {
                move_symbols(&mut bytes, plan, &growths);
            }
            let header = bytes.len() - ARCHIVE_HEADER as usize;
            let size = format!("{:<10}", object.length.saturating_add(growths[index]));
            bytes[header..][MEMBER_SIZE].copy_from_slice(size.as_bytes());
        }
        target.write_all(&bytes)?;
        read(&mut source, &mut bytes, object.length)?;
        for (section, &drawn) in object.sections.iter().zip(drawn) {
            extend(&mut bytes, section, drawn, object.length + growths[index]);
        }
        target.write_all(&bytes)?;
        std::io::copy(&mut std::io::repeat(0).take(growths[index]), &mut target)?;
        position = object.start + object.length;
    }
    let mut file = target.into_inner()?;
    std::io::copy(&mut source, &mut file)?;
    Ok(())
}

/// Reads exactly `count` bytes.
fn read(source: &mut File, bytes: &mut Vec<u8>, count: u64) -> Result<()> {
    bytes.clear();
    if source.take(count).read_to_end(bytes)? as u64 == count {
        Ok(())
    } else {
        Err(std::io::ErrorKind::UnexpectedEof.into())
    }
}

/// Writes the drawn size and alignment into the section's header. The content ends at `length` at the latest.
fn extend(object: &mut [u8], plan: &SectionPlan, (size, align): (u64, u64), length: u64) {
    let section = &plan.section;
    let most = match section.end {
        Some(end) => length.saturating_sub(end - section.size),
        None => u64::MAX,
    };
    for (field, value) in [(SIZE, size.min(most)), (ALIGN, align)] {
        let at = (section.header + field) as usize;
        let value = if section.is_little_endian {
            value.to_le_bytes()
        } else {
            value.to_be_bytes()
        };
        object[at..at + 8].copy_from_slice(&value);
    }
}

/// Corrects the offsets of members in an archive's table of symbols, its first member if it has one. `head` is
/// the archive up to the first planned object.
fn move_symbols(head: &mut [u8], plan: &FilePlan, growths: &[u64]) {
    let start = MAGIC + ARCHIVE_HEADER as usize;
    if head.len() < start {
        return;
    }
    let width = match &head[MAGIC..MAGIC + 16] {
        b"/               " => 4,
        b"/SYM64/         " => 8,
        _ => return,
    };
    let number = |bytes: &[u8]| {
        let mut wide = [0; 8];
        wide[8 - bytes.len()..].copy_from_slice(bytes);
        u64::from_be_bytes(wide)
    };
    let table = &mut head[start..];
    let Some((count, offsets)) = table.split_at_mut_checked(width) else {
        return;
    };
    let count = number(count) as usize;
    // Offset of each object's header, and the growth of all objects before it.
    let mut before = 0;
    let moves: Vec<(u64, u64)> = plan
        .objects
        .iter()
        .zip(growths)
        .map(|(object, growth)| {
            let moved = (object.start, before);
            before += growth;
            moved
        })
        .collect();
    for offset in offsets.chunks_exact_mut(width).take(count) {
        let old = number(offset);
        // The objects that begin behind this offset do not move it.
        let behind = moves.partition_point(|(start, _)| *start - ARCHIVE_HEADER < old);
        let shift = match moves.get(behind) {
            Some((_, shift)) => *shift,
            None => before,
        };
        let new = old.saturating_add(shift).to_be_bytes();
        offset.copy_from_slice(&new[8 - width..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common_layout::{BuildInputs, plan};
    use crate::object_sections::LinkInput;
    use object::read::archive::ArchiveFile;
    use perfquilt_system::process::Command;
    use std::sync::Arc;

    /// Compiles two objects, of which `long` says how much code the first has, and archives them in `folder`.
    fn archive(folder: &Path, long: bool) -> std::path::PathBuf {
        std::fs::create_dir_all(folder).unwrap();
        let code = "x = x * 7 ^ x; ".repeat(if long { 3000 } else { 1 });
        let first = format!("int first(int x) {{ {code} return x; }}\n");
        std::fs::write(folder.join("first.c"), first).unwrap();
        std::fs::write(folder.join("second.c"), "int second(void) { return 2; }\n").unwrap();
        for words in [
            "cc -O1 -c first.c second.c",
            "ar rcs both.a first.o second.o",
        ] {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let done = Command::from_words(&words).unwrap().directory(folder).run();
            assert!(done.unwrap().success());
        }
        folder.join("both.a")
    }

    fn read_input(path: &Path) -> Arc<LinkInput> {
        Arc::new(LinkInput::read(File::open(path).unwrap()))
    }

    #[test]
    fn members_of_archives_grow_and_stay_where_their_table_says() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [false, true].map(|long| archive(&folder.path().join(long.to_string()), long));
        let builds = paths.each_ref().map(|path| BuildInputs {
            names: vec!["both.a".into()],
            files: vec![read_input(path)],
            gathers_groups: true,
        });
        let plans = plan(&builds);
        let copy = folder.path().join("copy.a");
        padded_copy(&paths[0], &copy, plans[0].values().next().unwrap(), 3).unwrap();
        let before = std::fs::read(&paths[0]).unwrap();
        let after = std::fs::read(&copy).unwrap();
        assert!(after.len() > before.len() + 5000);
        let symbols = |bytes: &[u8]| -> Vec<(String, String)> {
            let archive = ArchiveFile::parse(bytes).unwrap();
            let symbols = archive.symbols().unwrap().unwrap();
            let found = symbols.map(|symbol| {
                let symbol = symbol.unwrap();
                let member = archive.member(symbol.offset()).unwrap();
                [symbol.name(), member.name()].map(|name| String::from_utf8_lossy(name).into())
            });
            found.map(|[symbol, member]| (symbol, member)).collect()
        };
        assert_eq!(symbols(&before).len(), 2);
        assert_eq!(symbols(&after), symbols(&before));
        // Where both have the same code, both copies have sections of the same size.
        let other = folder.path().join("other.a");
        padded_copy(&paths[1], &other, plans[1].values().next().unwrap(), 3).unwrap();
        let sizes = |path: &Path| -> Vec<(u64, u64)> {
            let input = read_input(path);
            let sections = input.objects.iter().flat_map(|object| &object.sections);
            sections.map(|s| (s.size, s.align)).collect()
        };
        assert_eq!(sizes(&copy), sizes(&other));
        assert_ne!(sizes(&copy), sizes(&paths[0]));
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = archive(folder.path(), false);
        let builds = [BuildInputs {
            names: vec!["both.a".into()],
            files: vec![read_input(&path)],
            gathers_groups: true,
        }];
        let plans = plan(&builds);
        let length = std::fs::metadata(&path).unwrap().len();
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(length / 2)
            .unwrap();
        let copy = folder.path().join("copy.a");
        let error = padded_copy(&path, &copy, plans[0].values().next().unwrap(), 3).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    }
}
