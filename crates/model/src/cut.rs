//! Truncation of text.

/// Returns the beginning of `text`: at most `bytes` bytes, cut at a character boundary.
pub fn at_most(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::at_most;

    #[test]
    fn no_character_is_cut() {
        assert_eq!(at_most("aé", 9), "aé");
        assert_eq!(at_most("aé", 2), "a");
        assert_eq!(at_most("é", 0), "");
    }
}
