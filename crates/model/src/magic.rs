//! The first bytes of files that are not what they stand for: compressed ones, and pointers.

/// Returns the program whose compressed files begin as `bytes` do: gzip, bzip2, xz, lzip or zstd.
pub fn compression(bytes: &[u8]) -> Option<&'static str> {
    const MAGIC: [(&[u8], &str); 5] = [
        (b"\x1f\x8b", "gzip"),
        (b"BZh", "bzip2"),
        (b"\xfd7zXZ\0", "xz"),
        (b"LZIP", "lzip"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
    ];
    let (_, name) = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic))?;
    // `BZh` may begin a word; the first block's mark follows.
    (*name != "bzip2" || bytes.get(4..10) == Some(b"1AY&SY")).then_some(*name)
}

/// Returns whether a file begins as a zip archive does.
pub fn is_zip(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04")
}

/// Returns whether a file is the pointer that git stores for a file of Git LFS
/// (<https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md>).
pub fn is_lfs_pointer(bytes: &[u8]) -> bool {
    bytes.starts_with(b"version https://git-lfs.github.com/spec/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_first_bytes() {
        assert_eq!(compression(b"\x1f\x8b\x08"), Some("gzip"));
        assert_eq!(compression(b"BZh91AY&SY"), Some("bzip2"));
        assert_eq!(compression(b"BZhang wrote this"), None);
        assert_eq!(compression(b"\x28\xb5\x2f\xfd"), Some("zstd"));
        assert!(is_zip(b"PK\x03\x04") && !is_zip(b"PK"));
        assert!(is_lfs_pointer(
            b"version https://git-lfs.github.com/spec/v1\n"
        ));
    }
}
