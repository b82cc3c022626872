//! Makes untrusted text, such as patch names and compiler output, harmless for a terminal.

use perfquilt_report::is_deceptive;

/// Removes the colours of other programs' output, and replaces control characters other than tabs, and characters that reorder
/// or hide text.
pub fn plain(text: &str) -> String {
    without_colors(text)
        .chars()
        .map(|c| match c {
            '\t' => c,
            c if c.is_control() || is_deceptive(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Removes the escape sequences by which compilers colour their messages: `ESC [ … m` and `ESC [ K`.
fn without_colors(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        match rest.strip_prefix(['m', 'K']) {
            Some(rest) => kept.push_str(rest),
            None => kept.extend(["\x1b[", part]),
        }
    }
    kept
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
        assert_eq!(
            plain("a.c:1: \u{1b}[01;31m\u{1b}[Kerror:\u{1b}[m\u{1b}[K no\u{1b}["),
            "a.c:1: error: no\u{fffd}["
        );
        assert_eq!(plain("safe\u{202e}cc.exe"), "safe\u{fffd}cc.exe");
        assert_eq!(plain_lines("a\r\n\u{7}b\n"), "a\u{fffd}\n\u{fffd}b\n");
    }
}
