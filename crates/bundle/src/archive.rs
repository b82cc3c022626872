//! The archive of a bundle: a tar file in gzip, every byte of which follows from the manifest that it begins with.
//!
//! A reader of tar archives interprets links, devices, modes, sparse files, extensions that replace names and sizes, and
//! repeated members; this one interprets nothing. After `manifest.json`, each distinct content follows once, named by its
//! digest and in that order, and every header must be, bit by bit, the one that [`write()`] makes for it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

use crate::manifest::{MANIFEST, Manifest, PackedFile};
use perfquilt_model::error::{Error, Result};
use perfquilt_system::digest;

/// The size of a tar header, and the unit of lengths in an archive.
const BLOCK: usize = 512;
/// The zeros at the end of an archive.
const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];
/// The largest manifest, in bytes.
const LARGEST_MANIFEST: u64 = 64 << 20;
/// How many times larger than the file its contents may be; gzip makes the zeros of a bomb a thousand times smaller.
const MOST_EXPANSION: u64 = 200;
/// Bytes that any file may expand to.
const SMALL: u64 = 16 << 20;

/// Where the writer finds a content.
#[derive(Debug)]
pub(crate) enum Source {
    Bytes(Vec<u8>),
    File(PathBuf),
}

/// Returns the only header of a member.
fn header(name: &str, bytes: u64) -> Header {
    let mut header = Header::new_ustar();
    // Names are the manifest's and digests, which fit.
    let _ = header.set_path(name);
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(EntryType::Regular);
    header.set_cksum();
    header
}

fn member(digest: &str) -> String {
    format!("contents/{digest}")
}

/// Returns the zeros behind a content.
fn padding(bytes: u64) -> &'static [u8] {
    &END[..(BLOCK - (bytes % BLOCK as u64) as usize) % BLOCK]
}

/// Writes the bundle of `manifest`, whose `contents` are found by digest, to `path`, and returns its SHA-256. The file has its name
/// only once all of it is on the disk and could be read again.
pub(crate) fn write(
    path: &Path,
    manifest: &Manifest,
    contents: &BTreeMap<String, Source>,
) -> Result<String> {
    let failed = |error: io::Error| Error::io("write", path, &error);
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let temporary = tempfile::Builder::new()
        .prefix(".")
        .suffix(".perfquilt")
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(folder.unwrap_or(".".as_ref()))
        .map_err(failed)?;
    let text = manifest.text().map_err(Error::unbundled)?;
    pack(temporary.as_file(), &text, manifest, contents).map_err(failed)?;
    // A file may have changed since its digest was taken.
    read(temporary.path(), None)?;
    let digest = digest::of_file(temporary.path()).map_err(failed)?;
    temporary
        .persist(path)
        .map_err(|error| failed(error.error))?;
    Ok(digest)
}

fn pack(
    file: &File,
    text: &[u8],
    manifest: &Manifest,
    contents: &BTreeMap<String, Source>,
) -> io::Result<()> {
    let mut output = GzEncoder::new(BufWriter::new(file), Compression::default());
    let mut add = |name: &str, content: &mut dyn Read, bytes: u64| -> io::Result<()> {
        output.write_all(header(name, bytes).as_bytes())?;
        io::copy(&mut content.take(bytes), &mut output)?;
        output.write_all(padding(bytes))
    };
    add(MANIFEST, &mut &text[..], text.len() as u64)?;
    for (digest, places) in manifest.contents() {
        let mut content: Box<dyn Read> = match &contents[digest] {
            Source::Bytes(content) => Box::new(&content[..]),
            Source::File(path) => Box::new(File::open(path)?),
        };
        add(&member(digest), &mut content, places[0].1.bytes)?;
    }
    output.write_all(&END)?;
    output.finish()?.flush()?;
    file.sync_all()
}

/// Checks the bundle at `path`, and unpacks it into the empty folder `to` if there is one. What was unpacked counts only if this
/// succeeds.
pub(crate) fn read(path: &Path, to: Option<&Path>) -> Result<Manifest> {
    let unread = |e| Error::input_unreadable(format!("cannot read {}: {e}", path.display()));
    let file = File::open(path).map_err(unread)?;
    let packed = file.metadata().map_err(unread)?;
    let unpacked = if packed.is_file() {
        let input = BufReader::with_capacity(1 << 18, file);
        let most = packed.len().saturating_mul(MOST_EXPANSION).max(SMALL);
        Reader(GzDecoder::new(input)).unpack(most, to)
    } else {
        refused("it is not a plain file")
    };
    unpacked.map_err(|error| {
        let fault = match (error.raw_os_error(), error.kind()) {
            (Some(_), _) => return Error::io("unpack", path, &error),
            (None, ErrorKind::UnexpectedEof) => "it is cut off".to_owned(),
            (None, _) => format!("it is damaged, or no bundle: {error}"),
        };
        Error::bundle(fault)
            .at(path, None)
            .hint("`perfquilt bundle FILE` makes one; copy it again, and compare its SHA-256")
    })
}

fn refused<T>(fault: impl Into<String>) -> io::Result<T> {
    Err(io::Error::new(ErrorKind::InvalidData, fault.into()))
}

/// Its errors are those of the system, and faults of the archive.
struct Reader(GzDecoder<BufReader<File>>);

impl Reader {
    fn unpack(&mut self, most: u64, to: Option<&Path>) -> io::Result<Manifest> {
        let first = self.block()?;
        let bytes = Header::from_byte_slice(&first)
            .entry_size()
            .unwrap_or(u64::MAX);
        check_header(&first, MANIFEST, bytes)?;
        if bytes > LARGEST_MANIFEST.min(most) {
            return refused(format!("its manifest has {bytes} bytes"));
        }
        let mut text = Vec::new();
        self.content(bytes, &mut text)?;
        let manifest = Manifest::parse(&text).or_else(refused)?;
        let contents = manifest.contents();
        let total = contents
            .values()
            .map(|places| u128::from(places[0].1.bytes))
            .sum::<u128>();
        if total > most.into() {
            return refused(format!(
                "it would unpack to {total} bytes, more than {MOST_EXPANSION} times its size"
            ));
        }
        for (digest, places) in contents {
            let bytes = places[0].1.bytes;
            check_header(&self.block()?, &member(digest), bytes)?;
            let found = match to {
                Some(folder) => self.place(bytes, folder, &places)?,
                None => self.content(bytes, &mut io::sink())?,
            };
            if found != *digest {
                return refused(format!("the content {digest} has another digest"));
            }
        }
        let mut one = [0];
        let is_over = [self.block()?, self.block()?] == [[0; BLOCK]; 2]
            && self.0.read(&mut one)? == 0
            && self.0.get_mut().read(&mut one)? == 0;
        if is_over {
            Ok(manifest)
        } else {
            refused("more follows after its last file")
        }
    }

    /// Unpacks a content to its places below `folder`, and returns its digest.
    fn place(
        &mut self,
        bytes: u64,
        folder: &Path,
        places: &[(&str, &PackedFile)],
    ) -> io::Result<String> {
        let is_program = places.iter().any(|(_, file)| file.executable);
        let mut digest = String::new();
        let mut made: Option<PathBuf> = None;
        for (place, _) in places {
            let path = folder.join(place);
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            if let Some(first) = &made {
                std::fs::hard_link(first, &path)?;
            } else {
                let mode = if is_program { 0o755 } else { 0o644 };
                let mut options = OpenOptions::new();
                let mut file = options
                    .write(true)
                    .create_new(true)
                    .mode(mode)
                    .open(&path)?;
                digest = self.content(bytes, &mut file)?;
                made = Some(path);
            }
        }
        Ok(digest)
    }

    /// Reads a content of so many bytes with its padding to `to`, and returns its digest.
    fn content(&mut self, bytes: u64, to: &mut dyn Write) -> io::Result<String> {
        let mut digest = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        let mut left = bytes;
        while left > 0 {
            let part = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            self.0.read_exact(&mut buffer[..part])?;
            digest.update(&buffer[..part]);
            to.write_all(&buffer[..part])?;
            left -= part as u64;
        }
        let padding = padding(bytes);
        self.0.read_exact(&mut buffer[..padding.len()])?;
        if buffer[..padding.len()] == *padding {
            Ok(hex::encode(digest.finalize()))
        } else {
            refused("there are bytes behind the end of a file")
        }
    }

    fn block(&mut self) -> io::Result<[u8; BLOCK]> {
        let mut block = [0; BLOCK];
        self.0.read_exact(&mut block)?;
        Ok(block)
    }
}

/// Refuses a header that is not the one of the plain file `name` of so many bytes.
fn check_header(block: &[u8; BLOCK], name: &str, bytes: u64) -> io::Result<()> {
    if header(name, bytes).as_bytes() == block {
        return Ok(());
    }
    let found = Header::from_byte_slice(block);
    let kind = format!("{:?}", found.entry_type()).to_lowercase();
    let shown = String::from_utf8_lossy(&found.path_bytes())
        .escape_debug()
        .to_string();
    refused(format!(
        "its member `{shown}` ({kind}) is not the one that belongs there: {name}, a plain file of {bytes} bytes"
    ))
}
