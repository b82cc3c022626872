//! Patches that are compressed, told by their names as quilt tells them.

use std::io::Read;

use liblzma::read::XzDecoder;
use liblzma::stream::Stream;

use perfquilt_model::error::{Error, Result};

/// Largest patch file accepted, as it is and decompressed.
pub(super) const LIMIT: u64 = 64 << 20;

/// Most memory an LZMA stream may ask for.
const MEMORY: u64 = 512 << 20;

/// liblzma's flag for several streams one after the other.
const CONCATENATED: u32 = 0x08;

/// Endings of compressed patches that quilt knows.
const ENDINGS: [&str; 5] = [".gz", ".bz2", ".xz", ".lzma", ".lz"];

/// The ending that says how the patch file called `name` is compressed; empty where it is not.
pub(crate) fn compression(name: &str) -> &'static str {
    let mut endings = ENDINGS.into_iter();
    endings.find(|end| name.ends_with(end)).unwrap_or("")
}

/// The bytes of the patch file called `name`, decompressed if its name says so; `shown` is its name in
/// errors.
///
/// # Errors
/// [`Kind::Series`](perfquilt_model::error::Kind::Series) when they are damaged, or too many.
pub(super) fn decompress(name: &str, bytes: Vec<u8>, shown: &str) -> Result<Vec<u8>> {
    let input = bytes.as_slice();
    let broken = |error: &dyn std::fmt::Display| {
        Error::series(format!("cannot be decompressed: {error}")).at(shown, None)
    };
    let lzma = |stream: Result<Stream, liblzma::stream::Error>| match stream {
        Ok(stream) => Ok(XzDecoder::new_stream(input, stream)),
        Err(error) => Err(broken(&error)),
    };
    let reader: Box<dyn Read> = match compression(name) {
        ".gz" => Box::new(flate2::read::MultiGzDecoder::new(input)),
        ".bz2" => Box::new(bzip2::read::MultiBzDecoder::new(input)),
        ".lzma" => Box::new(lzma(Stream::new_lzma_decoder(MEMORY))?),
        ".lz" => Box::new(lzma(Stream::new_lzip_decoder(MEMORY, CONCATENATED))?),
        // Like xz, which takes what lzma made as well.
        ".xz" => Box::new(lzma(Stream::new_auto_decoder(MEMORY, CONCATENATED))?),
        _ if name.ends_with(".zst") => {
            return Err(Error::series(
                "patches compressed as .zst are not supported, by quilt either",
            )
            .at(shown, None)
            .hint("compress it as .xz or .gz, or not at all"));
        }
        _ if bytes.len() as u64 > LIMIT => return Err(too_large("").at(shown, None)),
        _ => return Ok(bytes),
    };
    let mut plain = Vec::new();
    reader
        .take(LIMIT + 1)
        .read_to_end(&mut plain)
        .map_err(|error| broken(&error))?;
    if plain.len() as u64 > LIMIT {
        return Err(too_large(" when decompressed").at(shown, None));
    }
    Ok(plain)
}

fn too_large(when: &str) -> Error {
    Error::series(format!("larger than {} MiB{when}", LIMIT >> 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn there_is_a_limit_whether_compressed_or_not() {
        let large = vec![b'+'; usize::try_from(LIMIT).unwrap() + 1];
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&large).unwrap();
        let error = decompress("p.patch.gz", packed.finish().unwrap(), "p").unwrap_err();
        assert_eq!(error.to_string(), "p: larger than 64 MiB when decompressed");
        let error = decompress("p.patch", large, "p").unwrap_err();
        assert_eq!(error.to_string(), "p: larger than 64 MiB");
    }
}
