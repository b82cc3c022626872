//! Computing and formatting digests.

use sha2::{Digest, Sha256};

/// Returns `bytes` in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or_default();
    let digits = |byte: &u8| [digit(byte >> 4), digit(byte & 0xf)];
    bytes.iter().flat_map(digits).collect()
}

/// Adds `part`, prefixed by its length, so that different sequences of parts never hash the same bytes.
pub fn add(digest: &mut Sha256, part: &[u8]) {
    digest.update((part.len() as u64).to_le_bytes());
    digest.update(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(hex(&[]), "");
        assert_eq!(hex(&[0, 0x0f, 0xa0, 0xff]), "000fa0ff");
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let of = |parts: [&[u8]; 2]| {
            let mut digest = Sha256::new();
            parts.iter().for_each(|part| add(&mut digest, part));
            hex(&digest.finalize())
        };
        assert_ne!(of([b"ab", b"c"]), of([b"a", b"bc"]));
    }
}
