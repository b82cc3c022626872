//! Numbers of things in messages.

use std::fmt::Display;

/// Returns a count with its noun, `one` or `several`: `1 patch`, `0 patches`, `2 copies`.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, one: &str, several: &str) -> String {
    let noun = if count == N::from(1) { one } else { several };
    format!("{count} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        assert_eq!(counted(1_usize, "patch", "patches"), "1 patch");
        assert_eq!(counted(0_usize, "patch", "patches"), "0 patches");
        assert_eq!(counted(2_u64, "copy", "copies"), "2 copies");
        assert_eq!(counted(3_u32, "day", "days"), "3 days");
        assert_eq!(counted(21_usize, "block", "blocks"), "21 blocks");
    }
}
