//! Numbers of things in messages.

/// Returns `count` with its noun, in the plural unless there is one: `1 patch`, `0 patches`, `2 copies`.
///
/// `noun` is a regular English noun in the singular.
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 {
        return format!("1 {noun}");
    }
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{count} {stem}ies"),
        _ if noun.ends_with(['s', 'x', 'h']) => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        assert_eq!(counted(1, "patch"), "1 patch");
        assert_eq!(counted(0, "patch"), "0 patches");
        assert_eq!(counted(2, "copy"), "2 copies");
        assert_eq!(counted(3, "day"), "3 days");
        assert_eq!(counted(21, "block"), "21 blocks");
    }
}
