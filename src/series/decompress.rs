//! Patches that are compressed, told by their names as quilt tells them.

use std::io::Read;

use liblzma::read::XzDecoder;
use liblzma::stream::Stream;

use crate::error::{Error, Result};

/// Largest patch file accepted, decompressed.
const LIMIT: u64 = 256 << 20;

/// Most memory an LZMA stream may ask for.
const MEMORY: u64 = 512 << 20;

/// liblzma's flag for several streams one after the other.
const CONCATENATED: u32 = 0x08;

/// Endings of compressed patches that quilt knows.
pub(super) const ENDINGS: [&str; 5] = [".gz", ".bz2", ".xz", ".lzma", ".lz"];

/// The bytes of the patch file called `name`, decompressed if its name says so; `shown` is its name in
/// errors.
///
/// # Errors
/// [`Kind::Series`](crate::error::Kind::Series) when they are damaged, or too many.
pub(super) fn decompress(name: &str, bytes: Vec<u8>, shown: &str) -> Result<Vec<u8>> {
    let input = bytes.as_slice();
    let broken = |error: &dyn std::fmt::Display| {
        Error::series(format!("cannot be decompressed: {error}")).at(shown, None)
    };
    let lzma = |stream: Result<Stream, liblzma::stream::Error>| match stream {
        Ok(stream) => Ok(XzDecoder::new_stream(input, stream)),
        Err(error) => Err(broken(&error)),
    };
    let ending = ENDINGS.iter().find(|ending| name.ends_with(**ending));
    let reader: Box<dyn Read> = match ending.copied() {
        Some(".gz") => Box::new(flate2::read::MultiGzDecoder::new(input)),
        Some(".bz2") => Box::new(bzip2::read::MultiBzDecoder::new(input)),
        Some(".lzma") => Box::new(lzma(Stream::new_lzma_decoder(MEMORY))?),
        Some(".lz") => Box::new(lzma(Stream::new_lzip_decoder(MEMORY, CONCATENATED))?),
        // Like xz, which takes what lzma made as well.
        Some(_) => Box::new(lzma(Stream::new_auto_decoder(MEMORY, CONCATENATED))?),
        None if name.ends_with(".zst") => {
            return Err(Error::series(
                "patches compressed as .zst are not supported, by quilt either",
            )
            .at(shown, None)
            .hint("compress it as .xz or .gz, or not at all"));
        }
        None => return Ok(bytes),
    };
    let mut plain = Vec::new();
    reader
        .take(LIMIT + 1)
        .read_to_end(&mut plain)
        .map_err(|error| broken(&error))?;
    if plain.len() as u64 > LIMIT {
        let what = format!("larger than {} MiB when decompressed", LIMIT >> 20);
        return Err(Error::series(what).at(shown, None));
    }
    Ok(plain)
}
