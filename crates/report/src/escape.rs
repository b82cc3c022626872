//! Text inside Markdown and command lines, of which nothing becomes markup or an argument of its own.

use super::text::{clean, cleaned};

/// No sentence of this program needs more characters.
pub(super) const SENTENCE: usize = 1000;

/// Zero width space: keeps what stands before it and behind it from being read as one.
const ZERO_WIDTH: char = '\u{200b}';

/// `text` as Markdown that shows it as it is: no markup, HTML, link, mention or reference comes of
/// it.
pub(super) fn markdown(text: &str) -> String {
    escaped(&clean(text))
}

/// As [`markdown`], for a sentence of this program whose names are clean already: cut only when somebody
/// made it endless.
pub(super) fn markdown_uncut(text: &str) -> String {
    escaped(&cleaned(text, SENTENCE))
}

/// Clean text as Markdown.
fn escaped(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let digits = commit_digits(rest);
        if !before.is_alphanumeric() && digits > 0 {
            for (place, digit) in rest[..digits].char_indices() {
                // Less than seven digits are no commit.
                if place > 0 && place % 6 == 0 {
                    result.push(ZERO_WIDTH);
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
            result.push(ZERO_WIDTH);
        }
        before = c;
    }
    result
}

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
    if digits >= 7 && !after.is_some_and(char::is_alphanumeric) {
        digits
    } else {
        0
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
    fn nothing_of_a_hostile_title_is_left_active() {
        let text = markdown("<img src=x> @octocat #12 [x](http://e.x) `a` | www.e.x **b**");
        for active in [
            "<img", "@octocat", "#12", " [x", "http:/", "www.", "**", " | ",
        ] {
            assert!(!text.contains(active), "{active} in {text}");
        }
    }

    #[test]
    fn sentences_are_kept_whole_but_not_endless() {
        let sentence = "a <word> ".repeat(40);
        assert!(markdown(&sentence).ends_with('…'));
        assert_eq!(markdown_uncut(&sentence), "a &lt;word&gt; ".repeat(40));
        let endless = markdown_uncut(&"x ".repeat(5000));
        assert_eq!(endless.chars().count(), SENTENCE + 1);
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
