//! Names and titles come from patches, which anyone may send: text that must not steer a terminal or
//! a web page.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Nobody's title needs more.
const LONGEST: usize = 160;

/// One harmless line: control characters, line ends and marks that reorder or hide text are replaced,
/// and what is too long is cut.
pub(super) fn clean(text: &str) -> String {
    let mut result: String = text
        .chars()
        .take(LONGEST)
        .map(|c| match c {
            '\t' | '\n' | '\r' => ' ',
            c if c.is_control() || is_deceptive(c) => '\u{fffd}',
            c => c,
        })
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        result.push('…');
    }
    result
}

/// Sentences of this program that hold names: cleaned word by word, so that they are not cut.
pub(super) fn long(text: &str) -> String {
    text.split(' ').map(clean).collect::<Vec<_>>().join(" ")
}

/// Marks that change the direction of text, or take no room.
fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{00ad}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

/// Columns that `text` takes on a terminal.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// `text` cut in its middle to at most `room` columns: both ends of a name tell names apart.
pub(super) fn fit(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    let sides = room.saturating_sub(1);
    let head = take(text.chars(), sides - sides / 2);
    let tail: String = take(text.chars().rev(), sides - width(&head))
        .chars()
        .rev()
        .collect();
    format!("{head}…{tail}")
}

fn take(chars: impl Iterator<Item = char>, room: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= room
        })
        .collect()
}

/// `text` broken at spaces into lines of at most `room` columns; a longer word keeps a line of its
/// own.
pub(super) fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        // A figure keeps its unit.
        match words.last_mut() {
            Some(figure) if word.starts_with('%') => {
                figure.push(' ');
                figure.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(&word) <= room => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// `text` as Markdown that shows it as it is: no markup, HTML, link, mention or reference comes of
/// it.
pub(super) fn markdown(text: &str) -> String {
    let text = clean(text);
    let mut result = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let next = rest.clone().next();
        match c {
            '&' => result.push_str("&amp;"),
            '<' => result.push_str("&lt;"),
            '>' => result.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '$' | '#' => {
                result.push('\\');
                result.push(c);
            }
            c => result.push(c),
        }
        // Mentions, references and addresses are looked for in the finished text, where escapes are
        // gone already; a character without width inside them is not.
        let link = match c {
            '@' | '#' => next.is_some_and(char::is_alphanumeric),
            ':' => next == Some('/'),
            'w' | 'W' => next == Some('.'),
            // References to issues have the form GH-12 too.
            '-' => result.ends_with("GH-") || result.ends_with("gh-"),
            _ => false,
        };
        if link {
            result.push('\u{200b}');
        }
    }
    result
}

/// `text` as a Markdown code span that fits into a table; nothing inside a code span is looked at.
pub(super) fn code(text: &str) -> String {
    // A backtick would end the span, a pipe the table's cell, whatever stands before it.
    let text: String = clean(text)
        .chars()
        .map(|c| match c {
            '`' => 'ˋ',
            '|' => '¦',
            c => c,
        })
        .collect();
    if text.trim().is_empty() {
        return "` `".to_owned();
    }
    format!("`{text}`")
}

/// `word` as a POSIX shell reads it back.
pub(super) fn shell(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./:+,=@%".contains(c);
    let word = clean(word);
    if !word.is_empty() && word.chars().all(safe) {
        return word;
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_deceptive_characters_go() {
        assert_eq!(clean("a\x1b[31mb\nc\u{202e}d"), "a\u{fffd}[31mb c\u{fffd}d");
        assert_eq!(clean(&"x".repeat(1000)).chars().count(), LONGEST + 1);
    }

    #[test]
    fn names_are_cut_in_the_middle() {
        assert_eq!(fit("0001-a.patch", 12), "0001-a.patch");
        assert_eq!(fit("0001-string-append.patch", 12), "0001-s…patch");
        assert_eq!(width(&fit("漢字漢字漢字", 6)), 5);
        assert_eq!(fit("abc", 1), "…");
    }

    #[test]
    fn wrapping_keeps_words() {
        assert_eq!(wrap("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrap("abcdefgh i", 4), ["abcdefgh", "i"]);
        assert_eq!(wrap("of 0.42 %", 7), ["of", "0.42 %"]);
    }

    #[test]
    fn nothing_of_a_hostile_title_is_left_active() {
        let text = markdown("<img src=x> @octocat #12 [x](http://e.x) `a` | www.e.x **b**");
        for active in [
            "<img", "@octocat", "#12", " [x", "http:/", "www.", "**", " | ",
        ] {
            assert!(!text.contains(active), "{active} in {text}");
        }
    }

    #[test]
    fn harmless_text_stays_readable() {
        let text = "CPU @ 2.0 GHz: 24 GiB (2 of 4), 10.11.18";
        assert_eq!(markdown(text), text);
    }

    #[test]
    fn code_spans_stay_closed() {
        assert_eq!(code("a`b|c"), "`aˋb¦c`");
        assert_eq!(code(""), "` `");
    }

    #[test]
    fn shell_words() {
        assert_eq!(shell("quick-1"), "quick-1");
        assert_eq!(shell("a b'; rm"), r"'a b'\''; rm'");
        assert_eq!(shell(""), "''");
    }
}
