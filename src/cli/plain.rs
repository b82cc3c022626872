//! Makes untrusted text, such as patch names and compiler output, harmless for a terminal.

use perfquilt_report::is_deceptive;

/// Replaces control characters other than tabs, and characters that reorder or hide text.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' => c,
            c if c.is_control() || is_deceptive(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Applies [`plain`] to every line of `text`, and keeps the line ends.
pub fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_disarmed() {
        assert_eq!(plain("a\tb\u{1b}[2J\nc"), "a\tb\u{fffd}[2J\u{fffd}c");
        assert_eq!(plain("safe\u{202e}cc.exe"), "safe\u{fffd}cc.exe");
        assert_eq!(plain_lines("a\r\n\u{7}b\n"), "a\u{fffd}\n\u{fffd}b\n");
    }
}
