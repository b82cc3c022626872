//! Compression of patch files. As in quilt, the name's extension selects the format.

use std::io::{Read, Write};

use liblzma::read::XzDecoder;
use liblzma::stream::Stream;

use perfquilt_model::error::{Error, Result};

/// Largest accepted patch file in bytes, both as stored and decompressed.
pub const FILE_LIMIT: u64 = 64 << 20;

/// Memory limit of an LZMA stream, in bytes.
const LZMA_MEMORY_LIMIT: u64 = 512 << 20;

/// liblzma's flag for concatenated streams.
const CONCATENATED: u32 = 0x08;

/// Extensions of compressed patches that quilt supports.
const EXTENSIONS: [&str; 5] = [".gz", ".bz2", ".xz", ".lzma", ".lz"];

/// Returns the compression extension of the patch file called `name`; empty if it is not compressed.
pub fn compression(name: &str) -> &'static str {
    let mut extensions = EXTENSIONS.into_iter();
    extensions.find(|end| name.ends_with(end)).unwrap_or("")
}

/// Decompresses the bytes of the patch file called `name` if its extension says so; `shown` is its name in errors.
pub fn decompress(name: &str, bytes: Vec<u8>, shown: &str) -> Result<Vec<u8>> {
    let input = bytes.as_slice();
    let broken = |error: &dyn std::fmt::Display| {
        Error::patch_syntax(format!("cannot be decompressed: {error}")).at(shown, None)
    };
    let lzma = |stream: Result<Stream, liblzma::stream::Error>| match stream {
        Ok(stream) => Ok(XzDecoder::new_stream(input, stream)),
        Err(error) => Err(broken(&error)),
    };
    let reader: Box<dyn Read> = match compression(name) {
        ".gz" => Box::new(flate2::read::MultiGzDecoder::new(input)),
        ".bz2" => Box::new(bzip2::read::MultiBzDecoder::new(input)),
        ".lzma" => Box::new(lzma(Stream::new_lzma_decoder(LZMA_MEMORY_LIMIT))?),
        ".lz" => Box::new(lzma(Stream::new_lzip_decoder(
            LZMA_MEMORY_LIMIT,
            CONCATENATED,
        ))?),
        // Like the xz program, which also reads LZMA files.
        ".xz" => Box::new(lzma(Stream::new_auto_decoder(
            LZMA_MEMORY_LIMIT,
            CONCATENATED,
        ))?),
        _ if name.ends_with(".zst") => {
            return Err(Error::patch_unsupported(
                "patches compressed as .zst are not supported, by quilt either",
            )
            .at(shown, None)
            .hint("compress it as .xz or .gz, or not at all"));
        }
        _ if bytes.len() as u64 > FILE_LIMIT => return Err(too_large("").at(shown, None)),
        _ => return Ok(bytes),
    };
    let mut plain = Vec::new();
    reader
        .take(FILE_LIMIT + 1)
        .read_to_end(&mut plain)
        .map_err(|error| broken(&error))?;
    if plain.len() as u64 > FILE_LIMIT {
        return Err(too_large(" when decompressed").at(shown, None));
    }
    Ok(plain)
}

fn too_large(when: &str) -> Error {
    Error::patch_too_large(format!("larger than {} MiB{when}", FILE_LIMIT >> 20))
}

/// Compresses a patch's bytes as its file name requires.
pub fn compress(name: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let io = |e: std::io::Error| Error::internal(format!("cannot compress {name}: {e}"));
    match compression(name) {
        ".gz" => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            out.write_all(bytes).map_err(io)?;
            out.finish().map_err(io)
        }
        ".xz" => {
            let mut out = liblzma::write::XzEncoder::new(Vec::new(), 6);
            out.write_all(bytes).map_err(io)?;
            out.finish().map_err(io)
        }
        "" => Ok(bytes.to_vec()),
        other => Err(Error::patch_unsupported(format!(
            "{name} changes, but patches compressed as {other} can only be read"
        ))
        .hint("decompress the file, correct its name in `series`, and retry")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn there_is_a_limit_whether_compressed_or_not() {
        let large = vec![b'+'; usize::try_from(FILE_LIMIT).unwrap() + 1];
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&large).unwrap();
        let error = decompress("p.patch.gz", packed.finish().unwrap(), "p").unwrap_err();
        assert_eq!(error.to_string(), "p: larger than 64 MiB when decompressed");
        let error = decompress("p.patch", large, "p").unwrap_err();
        assert_eq!(error.to_string(), "p: larger than 64 MiB");
    }
}
