//! Explains why the kernel does not start a program.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::{FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};

use crate::mounts::may_execute;

/// Bytes at the start of a program that name its machine, and its loader or interpreter.
const HEAD: u64 = 4096;

/// The machines that servers run on, by their numbers in executables.
const MACHINES: [(u16, &str); 8] = [
    (3, "i386"),
    (21, "ppc64"),
    (22, "s390x"),
    (40, "arm"),
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "riscv64"),
    (258, "loongarch64"),
];

/// Returns why the file `path` cannot be started, and what helps; `None` if that is unknown.
pub(super) fn reason(path: &Path) -> Option<(String, String)> {
    let shown = path.display();
    let meta = std::fs::metadata(path).ok()?;
    if meta.is_dir() {
        let help = "name a program in it".to_owned();
        return Some(("it is a folder".to_owned(), help));
    }
    if meta.permissions().mode() & 0o111 == 0 {
        let help = format!("if it is a program, `chmod +x {shown}` makes it executable");
        return Some(("it is not executable".to_owned(), help));
    }
    if !may_execute(path) {
        let help = "mount it without `noexec`, or move the file; XDG_CACHE_HOME names another folder for perfquilt's caches";
        let cause = "its file system is mounted `noexec`".to_owned();
        return Some((cause, help.to_owned()));
    }
    if let Some(machine) = foreign_machine(path) {
        let help = format!("build or install it for {}", std::env::consts::ARCH);
        return Some((format!("it is for {machine}"), help));
    }
    let needed = needed(&head(path)?).filter(|needed| !needed.exists())?;
    let cause = format!("there is no {}, which it names", needed.display());
    let help = "install that, or correct the first line of the script";
    Some((cause, help.to_owned()))
}

/// Returns the machine that the program or library `path` was made for, if this machine cannot run it. The C library would
/// run such a program as a shell script.
pub fn foreign_machine(path: &Path) -> Option<String> {
    let own = head(Path::new("/proc/self/exe"))?;
    let (machine, own) = (machine(&head(path)?)?, machine(&own)?);
    let older = matches!((own, machine), (62, 3) | (183, 40));
    (machine != own && !older && !has_emulators()).then(|| {
        let known = MACHINES.iter().find(|(number, _)| *number == machine);
        known.map_or(format!("machine {machine}"), |(_, name)| (*name).to_owned())
    })
}

/// Whether the kernel was told programs that run those of other machines.
fn has_emulators() -> bool {
    let entries = std::fs::read_dir("/proc/sys/fs/binfmt_misc");
    let mut rules = entries.into_iter().flatten().flatten();
    rules.any(|rule| {
        let rule = std::fs::read_to_string(rule.path());
        rule.is_ok_and(|text| text.contains("magic 7f454c46"))
    })
}

fn head(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(HEAD)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(bytes)
}

fn machine(bytes: &[u8]) -> Option<u16> {
    let number = bytes.strip_prefix(b"\x7fELF")?.get(14..16)?;
    let number = number.try_into().ok()?;
    Some(if bytes[5] == 2 {
        u16::from_be_bytes(number)
    } else {
        u16::from_le_bytes(number)
    })
}

/// Returns the loader of a program, or the interpreter of a script.
fn needed(bytes: &[u8]) -> Option<PathBuf> {
    if let Some(line) = bytes.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next()?;
        let line = String::from_utf8_lossy(line).into_owned();
        // A carriage return at the end of the line is part of the name.
        return line
            .trim_start()
            .split([' ', '\t'])
            .next()
            .map(PathBuf::from);
    }
    loader::<FileHeader64<Endianness>>(bytes).or_else(|| loader::<FileHeader32<Endianness>>(bytes))
}

/// Returns the loader of a program whose file begins with `bytes`.
fn loader<H: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> Option<PathBuf> {
    let header = H::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let mut segments = header.program_headers(endian, bytes).ok()?.iter();
    let path = segments.find_map(|segment| segment.interpreter(endian, bytes).ok()?)?;
    Some(PathBuf::from(String::from_utf8_lossy(path).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Command;

    /// Writes a file that may be executed, and returns why it does not start.
    fn fault(content: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Command::new(&path).run().unwrap_err().message().to_owned()
    }

    #[test]
    fn what_a_program_needs_is_named() {
        assert!(fault(b"#!/opt/none/sh -e\nx\n").contains("there is no /opt/none/sh, which"));
        assert!(fault(b"#!/bin/sh\r\nx\r\n").contains("there is no /bin/sh\r, which"));
        let own = std::fs::read("/bin/sh").unwrap();
        let loader = needed(&own).unwrap();
        let loader = loader.to_str().unwrap();
        let at = own
            .windows(loader.len())
            .position(|part| part == loader.as_bytes());
        let mut moved = own.clone();
        moved[at.unwrap() + 1] = b'X';
        assert!(fault(&moved).contains(&format!("there is no /X{}", &loader[2..])));
    }

    #[test]
    fn a_program_for_another_machine_is_not_run_as_a_script() {
        let mut other = std::fs::read("/bin/sh").unwrap();
        other[18] = if other[18] == 22 { 62 } else { 22 };
        other[19] = 0;
        let message = fault(&other);
        assert!(message.contains("it is for "), "{message}");
    }
}
