//! Reading a release from a tarball without unpacking it.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use sha2::{Digest, Sha256};
use tar::EntryType;

use super::import::{FileSink, ImportedTree, import};
use super::objects::{MODE_LINK, Objects, file_mode};
use crate::series::path::shown;
use perfquilt_model::error::{Error, Kind, Result};
use perfquilt_model::progress;
use perfquilt_system::digest::add_all;
use perfquilt_system::process::check_interrupted;

/// Largest accepted file, in bytes: far larger than any source file, far smaller than the machine's memory.
const MEMBER_LIMIT: u64 = 512 << 20;

/// Returns the SHA-256 of a file, in hexadecimal.
pub fn sha256(path: &Path) -> Result<String> {
    let io = |e| Error::io("read", path, &e);
    let mut file = File::open(path).map_err(io)?;
    let mut digest = Sha256::new();
    add_all(&mut digest, &mut file).map_err(io)?;
    check_interrupted()?;
    Ok(hex::encode(digest.finalize()))
}

/// Opens a file, decompressing it according to its first bytes.
fn decompressed(path: &Path) -> Result<Box<dyn Read>> {
    let io = |e| Error::io("read", path, &e);
    let mut magic = [0_u8; 6];
    let mut file = File::open(path).map_err(io)?;
    let count = read_up_to(&mut file, &mut magic).map_err(io)?;
    let file = BufReader::with_capacity(1 << 18, File::open(path).map_err(io)?);
    let name = || {
        path.file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy()
    };
    let unsupported = |form: &str| {
        Err(
            Error::archive(format!("{} is compressed with {form}", name())).hint(
                "supported are .tar, .tar.gz, .tar.bz2 and .tar.xz; repack it as one of these",
            ),
        )
    };
    match &magic[..count] {
        [0x1f, 0x8b, ..] => Ok(Box::new(flate2::bufread::MultiGzDecoder::new(file))),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Ok(Box::new(
            liblzma::bufread::XzDecoder::new_multi_decoder(file),
        )),
        [b'B', b'Z', b'h', ..] => Ok(Box::new(bzip2::bufread::MultiBzDecoder::new(file))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => unsupported("zstd"),
        [b'P', b'K', 3, 4, ..] => unsupported("zip"),
        [] => Err(Error::archive(format!("{} is empty", name()))),
        _ => Ok(Box::new(file)),
    }
}

fn read_up_to(file: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

/// Imports the tarball at `path`. If all files are in one top folder, the tree starts below it.
pub fn import_tarball(store: &Objects, path: &Path, label: &str) -> Result<ImportedTree> {
    let step = progress::begin(&format!("importing {label}"), None);
    let mut archive = tar::Archive::new(decompressed(path)?);
    let damaged = |e: &std::io::Error| {
        Error::archive(format!("damaged or not a tar archive: {e}"))
            .at(path, None)
            .hint("its SHA-256 is the expected one, so the published file is damaged: use another copy and its SHA-256")
    };
    let mut files = 0_u64;
    let imported = import(store, true, |sink| {
        for entry in archive.entries().map_err(|e| damaged(&e))? {
            let mut entry = entry.map_err(|e| damaged(&e))?;
            files += 1;
            if files.is_multiple_of(512) {
                step.update(files, None, &format!("{files} files"));
            }
            add(sink, &mut entry, &damaged).map_err(|error| match error.kind() {
                Kind::Usage if error.location().is_none() => error.at(path, None),
                _ => error,
            })?;
        }
        Ok(())
    })?;
    // The compressed stream's checksum comes after the archive's end marker.
    let mut rest = archive.into_inner();
    let mut buffer = vec![0_u8; 1 << 18];
    while rest.read(&mut buffer).map_err(|e| damaged(&e))? > 0 {
        check_interrupted()?;
    }
    if imported.files == 0 {
        return Err(Error::archive(format!(
            "{} contains no files",
            path.display()
        )));
    }
    step.finish("");
    Ok(imported)
}

fn add<R: Read>(
    sink: &mut FileSink,
    entry: &mut tar::Entry<'_, R>,
    damaged: &dyn Fn(&std::io::Error) -> Error,
) -> Result<()> {
    let name = normal(&entry.path_bytes());
    let refused = |what: &str| {
        Err(Error::archive(format!(
            "archive member {} is {what}, which no source release needs",
            shown(&name)
        )))
    };
    let link = |entry: &tar::Entry<'_, R>| {
        entry
            .link_name_bytes()
            .map(std::borrow::Cow::into_owned)
            .ok_or_else(|| {
                Error::archive(format!("archive member {} links to nothing", shown(&name)))
            })
    };
    match entry.header().entry_type() {
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
            if entry.size() > MEMBER_LIMIT {
                return refused("larger than 512 MiB");
            }
            let extensions = entry.pax_extensions().map_err(|e| damaged(&e))?;
            for extension in extensions.into_iter().flatten() {
                let extension = extension.map_err(|e| damaged(&e))?;
                if extension.key_bytes().starts_with(b"GNU.sparse.") {
                    return Err(Error::archive(format!(
                        "archive member {} is a sparse file in the pax format",
                        shown(&name)
                    ))
                    .hint("repack the archive without `tar --sparse`"));
                }
            }
            let mut content =
                Vec::with_capacity(usize::try_from(entry.size().min(1 << 24)).unwrap_or(0));
            entry.read_to_end(&mut content).map_err(|e| damaged(&e))?;
            let mode = entry.header().mode().map_err(|e| damaged(&e))?;
            sink.file(&name, file_mode(mode), content)
        }
        EntryType::Symlink => {
            let target = link(entry)?;
            sink.file(&name, MODE_LINK, target)
        }
        EntryType::Link => {
            let target = normal(&link(entry)?);
            sink.hard_link(&name, &target)
        }
        // Git trees have no empty folders, and the files create the others. Global headers describe only the archive.
        EntryType::Directory | EntryType::XGlobalHeader => Ok(()),
        EntryType::Char | EntryType::Block => refused("a device"),
        EntryType::Fifo => refused("a named pipe"),
        _ => refused("of an unknown type"),
    }
}

/// Removes a leading `./` and repeated slashes from a member name; keeps unsafe components for the check.
fn normal(name: &[u8]) -> Vec<u8> {
    let absolute = name.first() == Some(&b'/');
    let parts: Vec<&[u8]> = name
        .split(|&b| b == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .collect();
    let mut path = if absolute { vec![b'/'] } else { Vec::new() };
    path.extend_from_slice(&parts.join(&b'/'));
    path
}
