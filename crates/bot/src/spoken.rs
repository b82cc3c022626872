//! Which lines of a comment speak to the bot: those that GitHub shows as text, outside quotes and code.

use comrak::nodes::{AstNode, NodeValue};
use comrak::{Arena, Options, parse_document};

/// Stands for whatever is no plain text in a line; no command has it.
const OTHER: char = '\u{fffc}';

/// HTML elements whose content is a quote, code, or crossed out.
const APART: [&str; 9] = [
    "blockquote",
    "code",
    "del",
    "kbd",
    "pre",
    "q",
    "s",
    "samp",
    "strike",
];

/// What stands behind `@name` on the first two lines of `comment` that begin with it.
pub(super) fn to(comment: &str, name: &str) -> Vec<String> {
    // As they are written: what is escaped is meant to be shown, not to be heard.
    let written: Vec<&str> = comment
        .split(['\n', '\r'])
        .map(str::trim_start)
        .filter(|line| behind(line, name).is_some())
        .collect();
    if written.is_empty() {
        return Vec::new();
    }
    let mut options = Options::default();
    options.extension.footnotes = true;
    options.extension.strikethrough = true;
    options.extension.table = true;
    let arena = Arena::new();
    let root = parse_document(&arena, comment, &options);
    let mut html = Html::default();
    let mut found = Vec::new();
    for node in root.descendants() {
        // More than one is too many, however many there are.
        if found.len() > 1 {
            break;
        }
        match &node.data.borrow().value {
            NodeValue::HtmlBlock(block) => html.read(&block.literal),
            NodeValue::HtmlInline(tag) => html.read(tag),
            NodeValue::Text(_) if html.is_text() && begins_line(node) => {
                let line = line(node);
                let text = line.split(OTHER).next().unwrap_or_default().trim_end();
                if let Some(behind) = behind(&line, name)
                    && written.iter().any(|written| written.starts_with(text))
                {
                    found.push(behind.to_owned());
                }
            }
            _ => {}
        }
    }
    found
}

/// What stands behind `@name` in a line that begins with it.
fn behind<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.strip_prefix('@')?;
    let (found, behind) = (rest.get(..name.len())?, &rest[name.len()..]);
    // Logins have no upper and lower case.
    let own = found.eq_ignore_ascii_case(name);
    let ends = behind.is_empty() || behind.starts_with([' ', '\t']);
    (own && ends).then_some(behind)
}

/// Whether a line of a paragraph outside quotes begins with this text.
fn begins_line<'a>(text: &'a AstNode<'a>) -> bool {
    if let Some(before) = text.previous_sibling()
        && !is_break(&before.data.borrow().value)
    {
        return false;
    }
    text.ancestors().skip(1).all(|above| {
        matches!(
            &above.data.borrow().value,
            NodeValue::Document
                | NodeValue::Heading(_)
                | NodeValue::Item(_)
                | NodeValue::List(_)
                | NodeValue::Paragraph
        )
    })
}

fn is_break(value: &NodeValue) -> bool {
    matches!(value, NodeValue::SoftBreak | NodeValue::LineBreak)
}

/// The line that begins with the node `first`.
fn line<'a>(first: &'a AstNode<'a>) -> String {
    let mut line = String::new();
    for node in first.following_siblings() {
        match &node.data.borrow().value {
            value if is_break(value) => break,
            NodeValue::Text(text) => line.push_str(text),
            _ => line.push(OTHER),
        }
    }
    line
}

/// What the HTML up to some place of a comment makes of what follows.
#[derive(Debug, Default)]
struct Html {
    /// A comment is open.
    hidden: bool,
    /// How many elements of [`APART`] are open.
    apart: usize,
}

impl Html {
    /// Whether what follows is shown as plain text.
    fn is_text(&self) -> bool {
        !self.hidden && self.apart == 0
    }

    /// Goes on behind `html`.
    fn read(&mut self, html: &str) {
        let mut rest = html;
        loop {
            if self.hidden {
                let Some(end) = rest.find("-->") else {
                    return;
                };
                self.hidden = false;
                rest = &rest[end..];
            }
            let Some(begin) = rest.find('<') else {
                return;
            };
            rest = &rest[begin + 1..];
            if let Some(comment) = rest.strip_prefix('!') {
                // `<!-->` is a whole comment.
                self.hidden = comment.starts_with("--");
                rest = comment;
                continue;
            }
            let (closes, tag) = match rest.strip_prefix('/') {
                Some(tag) => (true, tag),
                None => (false, rest),
            };
            let end = tag.find(|c: char| !c.is_ascii_alphanumeric());
            let tag = &tag[..end.unwrap_or(tag.len())];
            if APART.iter().any(|known| known.eq_ignore_ascii_case(tag)) {
                self.apart = if closes {
                    self.apart.saturating_sub(1)
                } else {
                    self.apart + 1
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(comment: &str) -> Vec<String> {
        to(comment, "perfquilt")
    }

    #[test]
    fn what_is_shown_as_text_is_heard() {
        for comment in [
            "@perfquilt status",
            "Thanks.\n@perfquilt status",
            "Please:\n- this\n@perfquilt status\n",
            "1. this\n   @perfquilt status",
            "```make``` works\n\n@perfquilt status",
            "``` inline ``` text\n@perfquilt status",
            "`<!--` starts one\n\n@perfquilt status",
            "x <!-- y -->  <!--\n\n@perfquilt status",
            "[1]: https://example.org\n@perfquilt status",
            "<!-->\n\n@perfquilt status",
            "<details><summary>x</summary>\n\n@perfquilt status\n</details>",
            "<blockquote>\n\nquoted\n</blockquote>\n\n@perfquilt status",
            "> quoted\n\n@perfquilt status",
            "- ```\n  @perfquilt cancel\n  ```\n\n@perfquilt status",
            "```\n@perfquilt status\n```\n@perfquilt status",
            "a\r@perfquilt status",
            "@perfquilt status\n---\nA signature",
        ] {
            assert_eq!(heard(comment), [" status"], "{comment:?}");
        }
        let several = heard("@perfquilt run\n@PERFQUILT cancel");
        assert_eq!(several, [" run", " cancel"]);
    }

    #[test]
    fn quotes_and_code_are_not() {
        for comment in [
            "- ```\n  @perfquilt status\n  ```",
            "1. look:\n   ```\n   @perfquilt status\n   ```",
            "- item\n\n  ```\n  @perfquilt status\n  ```",
            "<pre>\n@perfquilt status\n</pre>",
            "<code>\n\n@perfquilt status\n\n</code>",
            "`x\n@perfquilt status\ny`",
            "> quoted\n@perfquilt status",
            "> - quoted\n@perfquilt status",
            "<blockquote>\n\n@perfquilt status\n</blockquote>",
            "<div> <!--\n\n@perfquilt status",
            "| a |\n|---|\n@perfquilt status",
            "[^1]: note\n@perfquilt status\n\nx[^1]",
            "~~@perfquilt status~~",
            "**@perfquilt status**",
            "\\@perfquilt status",
            "&#64;perfquilt status",
            "* @perfquilt status",
            "# @perfquilt status",
        ] {
            assert_eq!(heard(comment), [""; 0], "{comment:?}");
        }
    }

    #[test]
    fn what_is_no_text_is_no_part_of_a_command() {
        let found = heard("@perfquilt run `quick`");
        assert_eq!(found, [format!(" run {OTHER}")]);
    }
}
