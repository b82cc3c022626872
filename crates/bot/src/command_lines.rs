//! Finds the command lines of a comment: lines that forges render as text, outside quotes and code.

use comrak::nodes::{AstNode, NodeValue};
use comrak::{Arena, Options, parse_document};

/// Replaces everything but plain text in a line; no command contains it.
const PLACEHOLDER: char = '\u{fffc}';

/// HTML elements whose content is a quote, code, or struck through.
const NON_TEXT_ELEMENTS: [&str; 9] = [
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

/// Returns the text after `@name` of the first two lines of `comment` that begin with it.
pub(super) fn find(comment: &str, name: &str) -> Vec<String> {
    // The raw lines: an escaped `@name` is text to show, not a command.
    let written: Vec<&str> = comment
        .split(['\n', '\r'])
        .map(str::trim_start)
        .filter(|line| strip_mention(line, name).is_some())
        .collect();
    if written.is_empty() {
        return Vec::new();
    }
    let mut options = Options::default();
    options.extension.footnotes = true;
    options.extension.math_code = true;
    options.extension.math_dollars = true;
    options.extension.strikethrough = true;
    options.extension.table = true;
    let arena = Arena::new();
    let root = parse_document(&arena, comment, &options);
    let mut html = Html::default();
    let mut found = Vec::new();
    for node in root.descendants() {
        // Two lines are enough: the parser rejects more than one command.
        if found.len() > 1 {
            break;
        }
        match &node.data.borrow().value {
            NodeValue::HtmlBlock(block) => html.read(&block.literal),
            NodeValue::HtmlInline(tag) => html.read(tag),
            NodeValue::Text(_) if html.is_text() && begins_line(node) => {
                let line = line(node);
                let text = line
                    .split(PLACEHOLDER)
                    .next()
                    .unwrap_or_default()
                    .trim_end();
                if let Some(rest) = strip_mention(&line, name)
                    && written.iter().any(|written| written.starts_with(text))
                {
                    found.push(rest.to_owned());
                }
            }
            _ => {}
        }
    }
    found
}

/// Returns the text after `@name` in a line that begins with it.
fn strip_mention<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.strip_prefix('@')?;
    let (found, rest) = (rest.get(..name.len())?, &rest[name.len()..]);
    // Logins are case-insensitive.
    let own = found.eq_ignore_ascii_case(name);
    let ends = rest.is_empty() || rest.starts_with([' ', '\t']);
    (own && ends).then_some(rest)
}

/// Returns whether this text begins a line of a paragraph outside quotes.
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

/// Returns the line that begins with the node `first`.
fn line<'a>(first: &'a AstNode<'a>) -> String {
    let mut line = String::new();
    for node in first.following_siblings() {
        match &node.data.borrow().value {
            value if is_break(value) => break,
            NodeValue::Text(text) => line.push_str(text),
            _ => line.push(PLACEHOLDER),
        }
    }
    line
}

/// The state of the HTML up to a position in a comment.
#[derive(Debug, Default)]
struct Html {
    /// Whether an HTML comment is open.
    hidden: bool,
    /// The number of open [`NON_TEXT_ELEMENTS`].
    non_text_depth: usize,
}

impl Html {
    /// Returns whether the text that follows is rendered as plain text.
    fn is_text(&self) -> bool {
        !self.hidden && self.non_text_depth == 0
    }

    /// Advances the state over `html`.
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
                // `<!-->` is a complete comment.
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
            if NON_TEXT_ELEMENTS
                .iter()
                .any(|known| known.eq_ignore_ascii_case(tag))
            {
                self.non_text_depth = if closes {
                    self.non_text_depth.saturating_sub(1)
                } else {
                    self.non_text_depth + 1
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(comment: &str) -> Vec<String> {
        find(comment, "perfquilt")
    }

    #[test]
    fn lines_rendered_as_text_are_found() {
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
            assert_eq!(found(comment), [" status"], "{comment:?}");
        }
        let several = found("@perfquilt run\n@PERFQUILT cancel");
        assert_eq!(several, [" run", " cancel"]);
    }

    #[test]
    fn quotes_and_code_are_ignored() {
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
            "$$\n@perfquilt status\n$$",
            "see $$\n@perfquilt status\n$$ there",
            "```math\n@perfquilt status\n```",
        ] {
            assert_eq!(found(comment), [""; 0], "{comment:?}");
        }
    }

    #[test]
    fn markup_is_replaced_in_a_command() {
        let found = found("@perfquilt run `quick`");
        assert_eq!(found, [format!(" run {PLACEHOLDER}")]);
    }
}
