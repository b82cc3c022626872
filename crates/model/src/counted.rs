//! Numbers and lists of things in messages.

use std::fmt::Display;

/// Returns a count with its noun, `one` or `several`: `1 patch`, `0 patches`, `2 copies`.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, one: &str, several: &str) -> String {
    let noun = if count == N::from(1) { one } else { several };
    format!("{count} {noun}")
}

/// Returns a share as a percentage with one decimal.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// Lists the first `most` of `things`, and says how many more there are: `a, b and 3 more`.
pub fn listed<T: Display>(things: &[T], most: usize) -> String {
    let (named, more) = things.split_at(things.len().min(most));
    let named: Vec<String> = named.iter().map(T::to_string).collect();
    match more.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_of_many_are_listed() {
        assert_eq!(listed(&["a", "b"], 2), "a, b");
        assert_eq!(listed(&["a", "b", "c"], 2), "a, b and 1 more");
        assert_eq!(listed(&[0; 0], 2), "");
    }

    #[test]
    fn only_one_is_singular() {
        assert_eq!(counted(1_usize, "patch", "patches"), "1 patch");
        assert_eq!(counted(0_usize, "patch", "patches"), "0 patches");
        assert_eq!(counted(2_u64, "copy", "copies"), "2 copies");
        assert_eq!(counted(3_u32, "day", "days"), "3 days");
        assert_eq!(counted(21_usize, "block", "blocks"), "21 blocks");
    }
}
