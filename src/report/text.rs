//! Names and titles come from patches, which anyone may send: text that must not steer a terminal or
//! a web page.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Nobody's title needs more.
const LONGEST: usize = 160;

/// One harmless line: control characters, line ends and marks that reorder or hide text are replaced,
/// and what is too long is cut.
pub(crate) fn clean(text: &str) -> String {
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
pub(crate) fn fit(text: &str, room: usize) -> String {
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
    let mut rest = text.as_str();
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let digits = commit_digits(rest);
        if !before.is_alphanumeric() && digits > 0 {
            for (place, digit) in rest[..digits].char_indices() {
                // Less than seven digits are no commit.
                if place > 0 && place % 6 == 0 {
                    result.push(APART);
                }
                result.push(digit);
            }
            (before, rest) = ('0', &rest[digits..]);
            continue;
        }
        rest = &rest[c.len_utf8()..];
        let next = rest.chars().next();
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
            // Of an address of mail, too.
            '@' => next.is_some_and(|next| !next.is_whitespace()),
            '#' => next.is_some_and(char::is_alphanumeric),
            ':' => next == Some('/') || is_emoji(rest),
            'w' | 'W' => next == Some('.'),
            // References to issues have the form GH-12 too.
            '-' => {
                let end = result.len().saturating_sub(3);
                result.as_bytes()[end..].eq_ignore_ascii_case(b"gh-")
            }
            _ => false,
        };
        if link {
            result.push(APART);
        }
        before = c;
    }
    result
}

/// Zero width space: keeps what stands before it and behind it from being read as one.
const APART: char = '\u{200b}';

/// Whether GitHub would look for a commit of this id anywhere in `text`.
pub(super) fn is_commit(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    words.any(|word| commit_digits(word) > 0)
}

/// How many hexadecimal digits stand alone at the beginning of `text`, when they are seven or more: GitHub
/// makes a link to the commit of them, which anybody with a fork can have made.
fn commit_digits(text: &str) -> usize {
    let digits = text.bytes().take_while(u8::is_ascii_hexdigit).count();
    let after = text[digits..].chars().next();
    match digits >= 7 && !after.is_some_and(char::is_alphanumeric) {
        true => digits,
        false => 0,
    }
}

/// Whether `text`, which follows a colon, ends the name of an emoji (`tada:`): one that looks like a
/// verdict would be taken for one.
fn is_emoji(text: &str) -> bool {
    let name = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_+-".contains(b);
    let length = text.bytes().take_while(name).count();
    let letters = text[..length].bytes().any(|b| !b.is_ascii_digit());
    // What comes behind the text may begin with the colon.
    let ends = matches!(text[length..].chars().next(), None | Some(':'));
    length > 0 && letters && ends
}

/// `lines` as a code block, each made harmless, that nothing inside can end.
pub(super) fn fenced(language: &str, lines: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| clean(line)).collect();
    let runs = lines
        .iter()
        .flat_map(|line| line.split(|c| c != '`').map(str::len));
    let fence = "`".repeat(runs.max().unwrap_or(0).max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}", lines.join("\n"))
}

/// `address` as the target of a Markdown link; `None` unless it is one of the web.
pub(super) fn address(address: &str) -> Option<String> {
    let host = ["https://", "http://"]
        .iter()
        .find_map(|scheme| address.strip_prefix(scheme));
    let web = host.is_some_and(|host| host.starts_with(|c: char| c.is_ascii_alphanumeric()));
    let plain = |c: char| c.is_ascii_graphic() && !"<>()[]\"'`\\|".contains(c);
    (web && address.len() <= 2000 && address.chars().all(plain)).then(|| address.to_owned())
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
        let text = "CPU @ 2.0 GHz: 24 GiB (2 of 4), 10.11.18, sql/x.cc:4711: error, 3:40";
        assert_eq!(markdown(text), text);
    }

    #[test]
    fn references_of_other_forms_go_too() {
        for (text, active) in [
            ("gH-12", "gH-12"),
            ("see 0123abc.", "0123abc"),
            (":white_check_mark: faster", ":white_check_mark:"),
            ("@_x", "@_x"),
            ("www@.b", "@.b"),
            ("a/b@0123abcdef", "@0123abcdef"),
        ] {
            let shown = markdown(text).replace('\\', "");
            assert!(!shown.contains(active), "{active} in {shown}");
        }
        assert_eq!(
            markdown("decades, 123456, effaced!x"),
            "decades, 123456, efface\u{200b}d!x"
        );
    }

    #[test]
    fn code_blocks_stay_closed() {
        let lines = ["````".to_owned(), "a\u{1b}b".to_owned()];
        assert_eq!(fenced("text", &lines), "`````text\n````\na\u{fffd}b\n`````");
    }

    #[test]
    fn only_addresses_of_the_web_are_links() {
        assert!(address("https://example.org/a?b=c#d").is_some());
        for bad in [
            "javascript:alert(1)",
            "https://e.org/a)b",
            "https://e.org/ b",
            "//e.org",
            "https://",
        ] {
            assert_eq!(address(bad), None, "{bad}");
        }
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
