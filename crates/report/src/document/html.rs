//! Documents as pages. Text is escaped, and the frame's policy forbids scripts and everything that would be loaded.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, PreEscaped, Render, html};

use super::inline::{Emphasis, Figure, Inline, Target};
use super::table::{Cell, Column, ColumnKind, Row};
use super::{Drawing, Folding, Ink, Node, Style, Table, Text, frame};
use crate::escape;
use crate::text::clean;
use perfquilt_model::error::Result;

/// Writes a page: its title and all blocks before the first section, the sections, and what made it.
pub(super) fn render(nodes: &[Node], subject: &str) -> Result<String> {
    let is_section = |node: &Node| matches!(node, Node::Section(..));
    let first = nodes.iter().position(is_section).unwrap_or(nodes.len());
    let (head, main) = nodes.split_at(first);
    let title = nodes.iter().find_map(|node| match node {
        Node::Heading(1, _, text) => Some(text.plain()),
        _ => None,
    });
    let sections: Vec<_> = main
        .iter()
        .filter_map(|node| match node {
            Node::Section(id, _, title, _) => Some((id, title)),
            _ => None,
        })
        .collect();
    let footers = nodes.iter().filter_map(|node| match node {
        Node::Footer(text) => Some(text),
        _ => None,
    });
    let body = html! {
        header {
            (blocks(head)?)
            @if sections.len() > 2 {
                nav aria-label="Sections" { ul {
                    @for (id, title) in &sections { li { a href={ "#" (id) } { (title) } } }
                } }
            }
        }
        main { (blocks(main)?) }
        footer { p {
            "perfquilt " (env!("CARGO_PKG_VERSION")) @for text in footers { ", " (text) }
        } }
    };
    let title = format!("{subject}: {}", title.unwrap_or_default());
    Ok(frame::page(&title, None, &body))
}

fn blocks(nodes: &[Node]) -> Result<Markup> {
    let blocks = nodes.iter().map(block).collect::<Result<Vec<_>>>()?;
    Ok(html! { @for block in blocks { (block) } })
}

fn block(node: &Node) -> Result<Markup> {
    Ok(match node {
        Node::Heading(1, _, text) => html! { h1 { (text) } },
        Node::Heading(2, _, text) => html! { h2 { (text) } },
        Node::Heading(_, _, text) => html! { h3 { (text) } },
        Node::Paragraph(Style::Alert, text) => html! { p.alert role="note" { (text) } },
        Node::Paragraph(style, text) => html! { p class=[style.class()] { (text) } },
        Node::List(items) => html! { ul { @for item in items { li { (item) } } } },
        Node::Facts(facts) => {
            html! { dl { @for (name, text) in facts { dt { (name) } dd { (text) } } } }
        }
        Node::Table(of) => table(of),
        Node::Code(_, lines) => {
            html! { pre tabindex="0" { @for line in lines { (clean(line)) "\n" } } }
        }
        Node::Details(folding, summary, nodes) => html! {
            details open[*folding == Folding::Open] { summary { (summary) } (blocks(nodes)?) }
        },
        Node::Section(id, _, title, nodes) => html! {
            section aria-labelledby=(id) { h2 id=(id) { (title) } (blocks(nodes)?) }
        },
        Node::Drawings(drawings) => {
            let drawings = drawings.iter().map(drawing).collect::<Result<Vec<_>>>()?;
            html! { div.charts { @for drawing in drawings { (drawing) } } }
        }
        // An image cannot run scripts.
        Node::Picture(svg, about) => html! {
            div.scroll tabindex="0" role="region" aria-label=(clean(about)) {
                img src=(data("image/svg+xml", svg)) alt=(clean(about));
            }
        },
        Node::Hint(_) | Node::Footer(_) => html! {},
        Node::Next(commands) => html! {
            p { "Next:" }
            pre tabindex="0" { @for (command, purpose) in commands {
                @if !purpose.is_empty() { "# " (clean(purpose)) "\n" }
                (clean(command)) "\n"
            } }
        },
    })
}

fn drawing(drawing: &Drawing) -> Result<Markup> {
    let below = blocks(&drawing.below)?;
    let shown = match drawing.chart.draw()? {
        Some(svg) => html! {
            figure {
                (PreEscaped(svg))
                figcaption { (drawing.caption) }
                @if drawing.folded { details { summary { "The same as a table" } (below) } }
            }
            @if !drawing.folded { (below) }
        },
        None => below,
    };
    Ok(html! {
        div {
            @if !drawing.heading.is_empty() { h3 { (drawing.heading) } }
            (shown)
        }
    })
}

/// Wraps a table so that it scrolls on narrow screens, also by keyboard.
fn table(table: &Table) -> Markup {
    let role = |name: &'static str| table.stacks.then_some(name);
    let names = table
        .columns
        .iter()
        .position(|column| column.kind == ColumnKind::Names);
    let cell = |(place, (cell, column)): (usize, (&Cell, &Column))| {
        let is_figure = column.kind == ColumnKind::Figures;
        let class = match (is_figure, cell.style.class()) {
            (true, Some(class)) => Some(format!("n {class}")),
            (true, None) => Some("n".to_owned()),
            (false, class) => class.map(str::to_owned),
        };
        // The number in front needs no label.
        let label = role("")
            .filter(|_| is_figure && place > 0)
            .map(|_| column.head.plain());
        html! {
            @if names == Some(place) { th scope="row" role=[role("rowheader")] { (cell) } }
            @else { td class=[class] role=[role("cell")] data-label=[label] { (cell) } }
        }
    };
    let row = |row: &Row| {
        html! {
            tr role=[role("row")] class=[row.is_total.then_some("total")] {
                @for pair in row.cells.iter().zip(&table.columns).enumerate() { (cell(pair)) }
            }
        }
    };
    let body = html! {
        table class=[role("effects")] role=[role("table")] {
            thead { tr role=[role("row")] {
                @for column in &table.columns {
                    @if column.head.is_empty() { td {} }
                    @else { th class=[(column.kind == ColumnKind::Figures).then_some("n")] scope="col" { (column.head) } }
                }
            } }
            tbody { @for of in &table.rows { (row(of)) } }
        }
    };
    frame::scroll(&table.about, &body)
}

/// Renders a key of a legend.
fn key(ink: Ink, round: bool, words: &str) -> Markup {
    let shape = if round { "dot " } else { "" };
    html! { span class=(format!("key {shape}k-{}", ink.name())) {} (clean(words)) }
}

fn link(words: &str, target: &Target) -> Markup {
    match target {
        Target::Web(web) => match escape::address(web) {
            Some(web) => html! { a href=(web) { (words) } },
            None => html! { (words) },
        },
        Target::Within(name, kind, content) => {
            html! { a href=(data(kind, content)) download=(file_name(name)) { (words) } }
        }
        Target::Beside(name) => html! { a href=(address(name)) { (words) } },
    }
}

fn data(kind: &str, content: &[u8]) -> String {
    format!("data:{kind};base64,{}", STANDARD.encode(content))
}

/// Returns the percent-encoded relative address of a file beside the page.
fn address(name: &str) -> String {
    let mut address = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            address.push(char::from(byte))
        } else {
            address.push_str(&format!("%{byte:02X}"))
        }
    }
    address
}

/// Converts a name to that of a file without folders.
fn file_name(name: &str) -> String {
    let name: String = name.chars().take(120).collect();
    let name = name.replace(
        |c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c),
        "-",
    );
    name.trim_start_matches('.').to_owned()
}

impl Style {
    /// Returns the class in `style.css`.
    fn class(self) -> Option<&'static str> {
        match self {
            Style::Plain => None,
            Style::Soft => Some("soft"),
            Style::Good => Some("good"),
            Style::Bad => Some("bad"),
            Style::Open => Some("open"),
            Style::Quiet => Some("quiet"),
            Style::Note => Some("note"),
            Style::Alert => Some("alert"),
        }
    }
}

impl Render for Cell {
    fn render(&self) -> Markup {
        html! {
            (self.text)
            @for text in &self.below { br; (text) }
            @if !self.remark.is_empty() { div.soft { (self.remark) } }
        }
    }
}

impl Render for Text {
    fn render(&self) -> Markup {
        html! { @for part in &self.0 { (part) } }
    }
}

impl Render for Inline {
    fn render(&self) -> Markup {
        match self {
            Inline::Words(text) | Inline::Literal(text) => html! { (text) },
            Inline::Name(text) | Inline::Code(text) => html! { code { (text) } },
            Inline::Strong(text) => html! { b { (text) } },
            Inline::Figure(figure) => html! { (figure) },
            Inline::Key(ink, round, words) => key(*ink, *round, words),
            Inline::Link(words, target) => link(&clean(words), target),
        }
    }
}

impl Render for Figure {
    fn render(&self) -> Markup {
        let text = clean(&self.text);
        let figure = match self.values {
            Some((value, low, high)) => {
                html! { data value=(value) data-low=[low] data-high=[high] { (text) } }
            }
            None => html! { (text) },
        };
        match self.emphasis {
            Emphasis::None => figure,
            Emphasis::Significant => html! { b { (figure) } },
            Emphasis::Stale => html! { i { (figure) } },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_plain() {
        assert_eq!(file_name("../../a b.gz"), "-..-a-b.gz");
    }

    #[test]
    fn a_file_beside_the_page_is_reached_whatever_its_name_is() {
        assert_eq!(address("run#1 50%?.gz"), "run%231%2050%25%3F.gz");
        assert_eq!(address("a:b"), "a%3Ab");
        assert_eq!(address("ä-_.~"), "%C3%A4-_.~");
    }
}
