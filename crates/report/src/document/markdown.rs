//! Documents as GitHub-flavoured Markdown. Nothing but its own markup is active: no text becomes markup, HTML, a link, a
//! mention or a reference.

use super::inline::{Emphasis, Figure, Inline, Target};
use super::table::{Cell, ColumnKind};
use super::{Folding, Node, Style, Table, Text};
use crate::escape::{self, ZERO_WIDTH, code, fenced};

/// Writes nodes; the document's heading gets `level`.
pub(crate) fn render(nodes: &[Node], level: usize) -> String {
    let blocks: Vec<String> = nodes.iter().map(|node| block(node, level)).collect();
    let mut text = String::new();
    for block in blocks.iter().filter(|block| !block.is_empty()) {
        if !text.is_empty() {
            text.push('\n');
        }
        text += block;
        text.push('\n');
    }
    text
}

fn block(node: &Node, level: usize) -> String {
    let heading =
        |below: usize, text: &Text| format!("{} {}", "#".repeat(level + below), inline(text));
    match node {
        Node::Heading(below, _, text) => heading(usize::from(*below).saturating_sub(1), text),
        Node::Paragraph(Style::Note | Style::Alert, text) => format!("> {}", line(text)),
        Node::Paragraph(_, text) => line(text),
        Node::List(items) => lines(items.iter().map(item)),
        Node::Facts(facts) => lines(
            facts
                .iter()
                .map(|(name, text)| format!("- {}: {}", line(name), inline(text))),
        ),
        Node::Table(of) => table(of),
        Node::Code(language, lines) => fenced(language, lines),
        Node::Section(_, Folding::Open, title, nodes) => {
            format!(
                "{}\n\n{}",
                heading(1, title),
                render(nodes, level).trim_end()
            )
        }
        Node::Details(folding, summary, nodes) | Node::Section(_, folding, summary, nodes) => {
            let open = if *folding == Folding::Open {
                " open"
            } else {
                ""
            };
            let body = render(nodes, level);
            let summary = escape::summary(&summary.plain());
            format!("<details{open}><summary>{summary}</summary>\n\n{body}\n</details>")
        }
        Node::Drawings(drawings) => {
            let one = |drawing: &super::Drawing| {
                let title = match &drawing.heading {
                    none if none.is_empty() => String::new(),
                    text => heading(2, text) + "\n\n",
                };
                title + render(&drawing.below, level).trim_end()
            };
            let shown = drawings.iter().filter(|drawing| drawing.has_text());
            shown.map(one).collect::<Vec<_>>().join("\n\n")
        }
        Node::Hint(_) | Node::Picture(..) => String::new(),
        Node::Footer(text) => format!("<sub>{}</sub>", inline(text)),
        Node::Next(commands) => {
            let purpose = |text: &String| (!text.is_empty()).then(|| format!("# {text}"));
            let lines = commands
                .iter()
                .flat_map(|(command, why)| purpose(why).into_iter().chain([command.clone()]));
            format!("Next:\n\n{}", fenced("sh", &lines.collect::<Vec<_>>()))
        }
    }
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

fn item(item: &Cell) -> String {
    format!("- {}", with_below(line(&item.text), &item.below))
}

fn with_below(text: String, below: &[Text]) -> String {
    let below = below.iter().map(inline).filter(|text| !text.is_empty());
    let all = [text].into_iter().chain(below).collect::<Vec<_>>();
    all.join("<br>")
}

fn table(table: &Table) -> String {
    let row = |cells: &mut dyn Iterator<Item = String>| {
        let cells = cells.map(|cell| {
            if cell.is_empty() {
                " |".to_owned()
            } else {
                format!(" {cell} |")
            }
        });
        format!("|{}", cells.collect::<String>())
    };
    let heads = row(&mut table.columns.iter().map(|column| inline(&column.head)));
    let rule = |kind| {
        if kind == ColumnKind::Figures {
            "--:|"
        } else {
            ":--|"
        }
    };
    let rule: String = table
        .columns
        .iter()
        .map(|column| rule(column.kind))
        .collect();
    let rows = table
        .rows
        .iter()
        .map(|of| row(&mut of.cells.iter().map(cell)));
    lines([heads, format!("|{rule}")].into_iter().chain(rows))
}

fn cell(cell: &Cell) -> String {
    let text = with_below(inline(&cell.text), &cell.below);
    match (text, inline(&cell.remark)) {
        (text, remark) if remark.is_empty() => text,
        (text, remark) if text.is_empty() => remark,
        (text, remark) => format!("{text} ({remark})"),
    }
}

/// Writes a text that begins a block.
fn line(text: &Text) -> String {
    escape::block_start(inline(text).trim_start())
}

/// Writes a text within a line.
fn inline(text: &Text) -> String {
    let mut written = String::new();
    let mut words = String::new();
    for part in &text.0 {
        // Neighbours are escaped together, as what is harmless may become active beside something else.
        let plain = match part {
            Inline::Words(text) | Inline::Literal(text) => Some(text),
            _ => None,
        };
        if let Some(text) = plain {
            if words.is_empty() && is_joined_by(&written, text) {
                written.push(ZERO_WIDTH);
            }
            words += text;
            continue;
        }
        written += &escape::words(&std::mem::take(&mut words));
        if is_seam_open(&written, part) {
            written.push(ZERO_WIDTH);
        }
        written += &match part {
            Inline::Name(text) | Inline::Code(text) => code(text),
            Inline::Strong(text) => format!("**{}**", inline(text)),
            Inline::Figure(of) => figure(of),
            Inline::Link(words, target) => link(words, target),
            Inline::Key(..) | Inline::Words(_) | Inline::Literal(_) => String::new(),
        };
    }
    written + &escape::words(&words)
}

fn link(words: &str, target: &Target) -> String {
    let address = match target {
        Target::Web(address) => escape::address(address),
        Target::Within(..) | Target::Beside(_) => None,
    };
    let words = escape::markdown(words);
    match address {
        Some(address) => format!("[{words}]({address})"),
        None => words,
    }
}

/// Returns whether the end of a text and what follows it may form a link, a mention or an emoji together.
fn is_seam_open(before: &str, part: &Inline) -> bool {
    match part {
        Inline::Name(_) | Inline::Code(_) => before.ends_with('`'),
        _ => before.ends_with(is_joining),
    }
}

/// Returns whether words may form such a thing with what stands before them.
fn is_joined_by(before: &str, words: &str) -> bool {
    let is_address = before.ends_with(['w', 'W']) && words.starts_with('.');
    // Emphasis divides what would be an emoji.
    let is_colon = before.ends_with('*') && words.starts_with(": ");
    let is_code = before.ends_with('`');
    let joins = before.ends_with(is_joining) && words.starts_with(is_joining);
    is_address || joins && !is_code && !is_colon
}

fn is_joining(c: char) -> bool {
    !c.is_whitespace() && !"().,;".contains(c)
}

/// Keeps a figure on one line, and makes a significant estimate bold, but not its interval.
fn figure(figure: &Figure) -> String {
    let text = escape::words(&figure.text)
        .replace(' ', "\u{a0}")
        .replace("\u{a0}(", " (");
    match (figure.emphasis, text.split_once("\u{a0}%")) {
        (Emphasis::Significant, Some((estimate, interval))) => {
            format!("**{estimate}\u{a0}%**{interval}")
        }
        (Emphasis::Stale, _) => format!("*{text}*"),
        _ => text,
    }
}
