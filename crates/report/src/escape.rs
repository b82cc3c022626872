//! Escaping of untrusted text for Markdown and for command lines.

use super::text::{clean, cleaned};

/// Maximum number of characters of a sentence.
pub(super) const SENTENCE: usize = 1000;

/// Zero width space: separates characters that would otherwise form a link, mention or reference.
pub(super) const ZERO_WIDTH: char = '\u{200b}';

/// Beginnings of words that GitHub links to issues and to security advisories.
const REFERENCES: [&str; 3] = ["gh-", "cve-", "ghsa-"];

/// Returns Markdown that shows `text` literally, without markup, HTML, links, mentions or references.
pub(super) fn markdown(text: &str) -> String {
    escaped(&clean(text))
}

/// Escapes words within a block, which the caller cuts.
pub(super) fn words(text: &str) -> String {
    let text = cleaned(text, usize::MAX);
    let shown = escaped(&text);
    // The blanks around it separate it from what stands beside it.
    let lead = text.len() - text.trim_start().len();
    format!("{}{shown}", &text[..lead])
}

/// Escapes a text that begins with what would make a block a list, a rule or a heading.
pub(super) fn block_start(text: &str) -> String {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = &text[digits..];
    let ends = |mark: &str| {
        rest.strip_prefix(mark)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
    };
    let is_list = match digits {
        0 => ends("-") || ends("+"),
        _ => ends(".") || ends(")"),
    };
    let is_rule = !text.is_empty() && text.chars().all(|c| "-= ".contains(c));
    if is_list || is_rule {
        format!("{}\\{rest}", &text[..digits])
    } else {
        text.to_owned()
    }
}

/// Escapes the summary of a details element, which GitHub takes for HTML in which it finds mentions and references.
pub(super) fn summary(text: &str) -> String {
    let shown = escaped(&clean(text).replace('@', "＠").replace('#', "＃"));
    let mut plain = String::with_capacity(shown.len());
    let mut chars = shown.chars();
    while let Some(c) = chars.next() {
        // HTML has no backslash escapes.
        plain.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    plain
}

/// Escapes cleaned text for Markdown.
fn escaped(text: &str) -> String {
    // The head of a column of numbers.
    if text == "#" {
        return text.to_owned();
    }
    let mut result = String::new();
    // Four spaces at the beginning of a line or list item are a code block.
    let mut rest = text.trim_start();
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let digits = commit_digits(rest);
        if !before.is_alphanumeric() && digits > 0 {
            for (place, digit) in rest[..digits].char_indices() {
                // Fewer than seven digits are not taken for a commit.
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
        // Forges find mentions, references and addresses in the rendered text, where escapes are gone; a zero width
        // space inside them remains.
        let link = match c {
            // Covers e-mail addresses, too.
            '@' => next.is_some_and(|next| !next.is_whitespace()),
            '#' => next.is_some_and(char::is_alphanumeric),
            // What other forges link: merge requests, milestones, epics and snippets.
            '!' | '%' | '&' | '$' => next.is_some_and(|next| next.is_ascii_digit()),
            ':' => next == Some('/') || is_emoji(rest),
            'w' | 'W' => next == Some('.') && ends_with(&result, "www"),
            // GH-12 refers to an issue, and CVE-2024-1 and GHSA-… to advisories, too.
            '-' => REFERENCES.iter().any(|name| ends_with(&result, name)),
            _ => false,
        };
        if link {
            result.push(ZERO_WIDTH);
        }
        before = c;
    }
    result
}

fn ends_with(text: &str, end: &str) -> bool {
    let from = text.len().saturating_sub(end.len());
    text.as_bytes()[from..].eq_ignore_ascii_case(end.as_bytes())
}

/// Returns whether a name of untrusted authors is harmless as plain text: a word without markup, mention, link or commit.
pub(super) fn is_inert(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let word = !name.is_empty() && name.len() <= LONGEST_INERT;
    word && name.chars().all(plain)
        && !name.starts_with('_')
        && !name.ends_with('_')
        && !is_commit(name)
}

/// Maximum length of an inert name.
const LONGEST_INERT: usize = 40;

/// Returns whether `text` contains a word that GitHub may take for a commit id.
pub(super) fn is_commit(text: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    words.any(|word| commit_digits(word) > 0)
}

/// Returns the number of hexadecimal digits of the first word of `text`, if it consists of seven or more; else 0. GitHub
/// links them to the commit, which may be from anybody's fork.
fn commit_digits(text: &str) -> usize {
    let digits = text.bytes().take_while(u8::is_ascii_hexdigit).count();
    let after = text[digits..].chars().next();
    if digits >= 7 && !after.is_some_and(char::is_alphanumeric) {
        digits
    } else {
        0
    }
}

/// Returns whether `text`, which follows a colon, completes the name of an emoji (`tada:`), which could imitate a
/// verdict.
fn is_emoji(text: &str) -> bool {
    let name = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_+-".contains(b);
    let length = text.bytes().take_while(name).count();
    let letters = text[..length].bytes().any(|b| !b.is_ascii_digit());
    // The text that follows may begin with the colon.
    let ends = matches!(text[length..].chars().next(), None | Some(':'));
    length > 0 && letters && ends
}

/// Returns `lines` as a code block that its content cannot end.
pub(super) fn fenced(language: &str, lines: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| clean(line)).collect();
    let runs = lines
        .iter()
        .flat_map(|line| line.split(|c| c != '`').map(str::len));
    let fence = "`".repeat(runs.max().unwrap_or(0).max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}", lines.join("\n"))
}

/// Returns `address` as the target of a Markdown link; `None` unless it is an HTTP or HTTPS address.
pub(super) fn address(address: &str) -> Option<String> {
    let host = ["https://", "http://"]
        .iter()
        .find_map(|scheme| address.strip_prefix(scheme));
    let web = host.is_some_and(|host| host.starts_with(|c: char| c.is_ascii_alphanumeric()));
    let plain = |c: char| c.is_ascii_graphic() && !"<>()[]\"'`\\|".contains(c);
    (web && address.len() <= 2000 && address.chars().all(plain)).then(|| address.to_owned())
}

/// Returns `text` as a Markdown code span that fits into a table cell. GitHub does not interpret code spans.
pub(super) fn code(text: &str) -> String {
    // A backtick ends the span and a pipe the table cell, even after a backslash.
    let text = clean(text).replace('`', "ˋ").replace('|', "¦");
    if text.trim().is_empty() {
        return "` `".to_owned();
    }
    format!("`{text}`")
}

/// Quotes `word` for a POSIX shell.
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
    fn harmless_text_stays_readable() {
        let text = "CPU @ 2.0 GHz: 24 GiB (2 of 4), 10.11.18, sql/x.cc:4711: error, 3:40";
        assert_eq!(markdown(text), text);
    }

    #[test]
    fn references_of_other_forms_go_too() {
        for (text, active) in [
            ("gH-12", "gH-12"),
            ("cVE-2021-44228", "cVE-2"),
            ("GHSA-jfh8-c2jp-5v3q", "GHSA-j"),
            ("see 0123abc.", "0123abc"),
            (":white_check_mark: faster", ":white_check_mark:"),
            ("@_x", "@_x"),
            ("www@.b", "@.b"),
            ("a/b@0123abcdef", "@0123abcdef"),
            ("a/b!12, $3", "!12"),
            ("a/b!12, $3", "$3"),
            ("%4 and &5", "%4"),
            ("%4 and &5", "&amp;5"),
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
    fn arguments_of_a_shell_are_quoted() {
        assert_eq!(shell("quick-1"), "quick-1");
        assert_eq!(shell("a b'; rm"), r"'a b'\''; rm'");
        assert_eq!(shell(""), "''");
    }
}
