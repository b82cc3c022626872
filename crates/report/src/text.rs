//! Cleaning of untrusted text, such as names and titles of patches, and its layout in columns.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Maximum number of characters of a name or title.
const LONGEST: usize = 160;

/// Returns `text` as one harmless line: control characters, line ends and characters that reorder or hide text are
/// replaced, and text of more than 160 characters is cut.
pub fn clean(text: &str) -> String {
    cleaned(text, LONGEST)
}

/// Cleans `text` like [`clean`], but cuts it at `longest` characters.
pub(super) fn cleaned(text: &str, longest: usize) -> String {
    let mut result: String = text
        .chars()
        .take(longest)
        .map(|c| match c {
            '\t' | '\n' | '\r' => ' ',
            c if c.is_control() || is_deceptive(c) => '\u{fffd}',
            c => c,
        })
        .collect();
    if text.chars().nth(longest).is_some() {
        result.push('…');
    }
    result
}

/// Cleans a sentence of this program that contains names: its words are cut like names, the whole sentence is not.
pub fn long(text: &str) -> String {
    text.split(' ').map(clean).collect::<Vec<_>>().join(" ")
}

/// Returns whether a character changes the direction of text or is invisible.
pub fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{00ad}' | '\u{061c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

/// Returns the width of `text` on a terminal, in columns.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Cuts `text` in its middle to at most `room` columns, as names differ at both ends.
pub fn fit(text: &str, room: usize) -> String {
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
        .take_while(|&c| {
            used += most(c);
            used <= room
        })
        .collect()
}

/// Returns the maximum number of columns that `c` adds to a text. A variation selector has no width, but may widen the
/// character before it.
fn most(c: char) -> usize {
    match c {
        '\u{fe00}'..='\u{fe0f}' => 1,
        c => c.width().unwrap_or(1),
    }
}

/// Breaks `text` at spaces into lines of at most `room` columns; a longer word gets a line of its own.
pub fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        // No break between a figure and its per cent sign.
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

/// Returns as much of a commit's id as a reader needs.
pub(super) fn short_commit(id: &str) -> &str {
    id.char_indices().nth(12).map_or(id, |(end, _)| &id[..end])
}

/// Breaks the lines of `text`, at blanks where there are any, so that none has more than `room` columns.
pub(super) fn fold(text: &str, room: usize) -> String {
    let mut folded = String::new();
    for line in text.lines() {
        let is_short = width(line) <= room;
        let parts = if is_short {
            vec![line.to_owned()]
        } else {
            wrap(line, room)
        };
        for part in parts {
            let mut rest = part.as_str();
            while width(rest) > room {
                let (head, tail) = rest.split_at(take(rest.chars(), room).len().max(1));
                folded += &format!("{head}\n");
                rest = tail;
            }
            folded += &format!("{rest}\n");
        }
    }
    folded
}

/// Cuts `text` at its end to at most `room` columns.
pub fn fit_end(text: &str, room: usize) -> String {
    if width(text) <= room {
        return text.to_owned();
    }
    take(text.chars(), room.saturating_sub(1)) + "…"
}

/// Capitalises the first letter of `text`.
pub fn capital(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
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
        // An emoji takes two columns, although neither of its two characters does.
        let pictures = "\u{263a}\u{fe0f}".repeat(20);
        assert!(width(&fit(&pictures, 12)) <= 12);
        assert!(width(&fit_end(&pictures, 12)) <= 12);
        assert!(width(&fit(&"a\t".repeat(20), 12)) <= 12);
    }

    #[test]
    fn wrapping_keeps_words() {
        assert_eq!(wrap("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrap("abcdefgh i", 4), ["abcdefgh", "i"]);
        assert_eq!(wrap("of 0.42 %", 7), ["of", "0.42 %"]);
    }

    #[test]
    fn sentences_begin_with_a_capital_letter() {
        assert_eq!(capital("patch 3"), "Patch 3");
        assert_eq!(capital("ärger"), "Ärger");
        assert_eq!(capital(""), "");
    }

    #[test]
    fn the_end_of_a_line_goes() {
        assert_eq!(fit_end("12  return 漢字;", 12), "12  return …");
        assert_eq!(fit_end("12  return;", 11), "12  return;");
        assert_eq!(fit_end("漢字", 3), "漢…");
        assert_eq!(fit_end("漢字", 1), "…");
    }
}
