//! Digests of several parts.

use sha2::{Digest, Sha256};

/// Adds `part`, prefixed by its length, so that different sequences of parts never hash the same bytes.
pub fn add(digest: &mut Sha256, part: &[u8]) {
    digest.update((part.len() as u64).to_le_bytes());
    digest.update(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let of = |parts: [&[u8]; 2]| {
            let mut digest = Sha256::new();
            parts.iter().for_each(|part| add(&mut digest, part));
            digest.finalize()
        };
        assert_ne!(of([b"ab", b"c"]), of([b"a", b"bc"]));
    }
}
