//! Detects text that GitHub renders as active elements, for the tests.

use std::sync::LazyLock;

use comrak::nodes::{AstNode, NodeValue};
use comrak::{Arena, Options, parse_document};
use regex::Regex;

/// Addresses that comments may link to.
const OURS: [&str; 1] = ["https://github.com/acme/series/"];

/// Returns every link, image, HTML element, mention, reference and emoji of `markdown` that this program does not create
/// itself.
pub(crate) fn active(markdown: &str) -> Vec<String> {
    let mut options = Options::default();
    options.extension.table = true;
    options.extension.autolink = true;
    options.extension.strikethrough = true;
    options.extension.tasklist = true;
    options.extension.footnotes = true;
    options.extension.math_dollars = true;
    options.extension.math_code = true;
    options.extension.alerts = true;
    let arena = Arena::new();
    let root = parse_document(&arena, markdown, &options);
    let mut found = Vec::new();
    look(root, &mut found);
    found
}

fn look<'a>(node: &'a AstNode<'a>, found: &mut Vec<String>) {
    let own_html = |html: &str| OWN_HTML.is_match(html);
    match &node.data.borrow().value {
        NodeValue::Link(link) if OURS.iter().any(|ours| link.url.starts_with(ours)) => {}
        NodeValue::Link(link) => found.push(format!("link {}", link.url)),
        NodeValue::Image(link) => found.push(format!("image {}", link.url)),
        NodeValue::HtmlBlock(html) if !own_html(&html.literal) => {
            found.push(format!("html {}", html.literal));
        }
        NodeValue::HtmlInline(html) if !own_html(html) => found.push(format!("html {html}")),
        NodeValue::Math(math) => found.push(format!("math {}", math.literal)),
        NodeValue::FootnoteReference(_) | NodeValue::FootnoteDefinition(_) => {
            found.push("footnote".to_owned());
        }
        NodeValue::TaskItem(_) => found.push("task".to_owned()),
        NodeValue::Strikethrough => found.push("strikethrough".to_owned()),
        NodeValue::CodeBlock(block)
            if !["", "diff", "sh", "text"].contains(&block.info.as_str()) =>
        {
            found.push(format!("code block {:?}", block.info));
        }
        NodeValue::Paragraph | NodeValue::Heading(_) | NodeValue::TableCell => {
            let mut text = String::new();
            words(node, &mut text);
            found.extend(references(&text));
        }
        _ => {}
    }
    for child in node.children() {
        look(child, found);
    }
}

/// Appends the text of a block outside code and links.
fn words<'a>(node: &'a AstNode<'a>, text: &mut String) {
    for child in node.children() {
        match &child.data.borrow().value {
            NodeValue::Text(part) => text.push_str(part),
            // An element divides text, too.
            NodeValue::SoftBreak | NodeValue::LineBreak | NodeValue::HtmlInline(_) => {
                text.push('\n')
            }
            NodeValue::Code(_) | NodeValue::Link(_) => text.push(' '),
            _ => words(child, text),
        }
    }
}

/// Returns the patterns that GitHub turns into links, mentions and pictures in rendered text.
fn references(text: &str) -> Vec<String> {
    REFERENCES
        .iter()
        .filter_map(|pattern| pattern.find(text))
        .map(|found| format!("{:?} in {text:?}", found.as_str()))
        .collect()
}

static OWN_HTML: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^(<details( open)?><summary>[^<>@#]*</summary>|</details>|</?sub>|<br>)\s*$")
        .unwrap()
});

static REFERENCES: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    [
        r"@[0-9A-Za-z_]",
        r"#[0-9]",
        r"(?i)\bgh-[0-9]",
        r"(?i)(https?|ftp)://",
        r"(?i)\bwww\.",
        r"\b[0-9a-f]{7,40}\b",
        r":[a-z0-9_+-]*[a-z_+-][a-z0-9_+-]*:",
    ]
    .map(|pattern| Regex::new(pattern).unwrap())
    .into()
});
