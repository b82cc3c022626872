//! A document: a tree of headings, paragraphs, tables, lists, code and drawings, which three renderers write.
//!
//! Each report of this program is a function from its data to nodes: a new section is one function, a new format one
//! renderer. Text from untrusted authors stands in a tree as [`name`], [`literal`] or [`Node::Code`], so that it looks as it
//! is; wherever it stands, no renderer lets it become active.

pub(crate) mod chart;
pub(crate) mod frame;
mod html;
#[cfg(test)]
pub(crate) mod inert;
mod inline;
pub(crate) mod markdown;
mod table;
mod terminal;
#[cfg(test)]
mod tests;

use perfquilt_model::error::Result;

pub(crate) use chart::{Chart, Ink};
pub(crate) use inline::{
    Figure, Inline, Target, Text, estimates, key, keys, literal, name, sentence,
};
pub(crate) use table::{Cell, Table, TableBuilder, table};

/// A document in no format yet.
#[derive(Debug, Clone, Default)]
pub struct Document(pub(crate) Vec<Node>);

/// A block of a document.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    /// A heading; level 1 is that of the document.
    Heading(u8, Style, Text),
    Paragraph(Style, Text),
    List(Vec<Cell>),
    /// Names and what they stand for.
    Facts(Vec<(Text, Text)>),
    Table(Table),
    /// Lines of source text, output or commands, with their language.
    Code(&'static str, Vec<String>),
    Details(Folding, Text, Vec<Node>),
    /// How a terminal shows more; other formats show it.
    Hint(Text),
    /// A part of a page, with its identifier there; elsewhere it may be folded.
    Section(&'static str, Folding, Text, Vec<Node>),
    /// Drawings beside each other; a format without drawings shows what stands below them.
    Drawings(Vec<Drawing>),
    /// A picture (SVG), which only a page shows, and what it shows.
    Picture(Vec<u8>, String),
    /// The commands to continue with, each with its purpose.
    Next(Vec<(String, String)>),
    /// The last line, which says where the document is from.
    Footer(Text),
}

/// The meaning of a block or cell, which decides its look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Style {
    #[default]
    Plain,
    /// Beside the point.
    Soft,
    Good,
    Bad,
    /// Not decided.
    Open,
    /// Nothing happened.
    Quiet,
    /// A remark that a reader must not miss.
    Note,
    /// A remark on the whole document.
    Alert,
}

/// Where the content of [`Node::Details`] and [`Node::Section`] is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Folding {
    /// Everywhere.
    Open,
    /// On a terminal; other formats fold it.
    Folded,
    /// Not on a terminal; other formats fold it.
    LeftOut,
}

/// A drawing, with the same figures as a table.
#[derive(Debug, Clone)]
pub(crate) struct Drawing {
    pub(crate) heading: Text,
    pub(crate) chart: Chart,
    pub(crate) caption: Text,
    /// What stands below it.
    pub(crate) below: Vec<Node>,
    /// Whether a page folds what stands below it.
    pub(crate) folded: bool,
}

impl Drawing {
    /// Returns a drawing without heading and caption, whose table a page folds.
    pub(crate) fn new(chart: Chart, table: Node) -> Self {
        Drawing {
            below: vec![table],
            folded: true,
            ..Drawing::alone(chart)
        }
    }

    /// Returns a drawing whose table stands elsewhere.
    pub(crate) fn alone(chart: Chart) -> Self {
        Drawing {
            heading: Text::default(),
            chart,
            caption: Text::default(),
            below: Vec::new(),
            folded: false,
        }
    }

    pub(crate) fn heading(self, text: impl Into<Text>) -> Self {
        Drawing {
            heading: text.into(),
            ..self
        }
    }

    pub(crate) fn caption(self, text: impl Into<Text>) -> Self {
        Drawing {
            caption: text.into(),
            ..self
        }
    }

    /// Returns whether a format without drawings shows anything of it.
    fn has_text(&self) -> bool {
        !self.heading.is_empty() || !self.below.is_empty()
    }
}

impl Document {
    /// Returns the document as text of at most `columns` columns; `color` allows ANSI colours.
    pub fn terminal(&self, columns: usize, color: bool) -> String {
        terminal::render(&self.0, columns, color)
    }

    /// Returns the document as GitHub-flavoured Markdown.
    pub fn markdown(&self) -> String {
        markdown::render(&self.0, 2)
    }

    /// Returns the document as a page.
    ///
    /// # Errors
    /// [`Kind::Internal`](perfquilt_model::error::Kind::Internal) when a drawing fails.
    pub fn html(&self) -> Result<String> {
        self.page("perfquilt")
    }

    /// Returns the document as a page whose title begins with its subject.
    pub(crate) fn page(&self, subject: &str) -> Result<String> {
        html::render(&self.0, subject)
    }
}

/// Returns the heading of a document.
pub(crate) fn title(text: impl Into<Text>) -> Node {
    Node::Heading(1, Style::Plain, text.into())
}

/// Returns the heading of a part of a document.
pub(crate) fn heading(text: impl Into<Text>) -> Node {
    Node::Heading(2, Style::Plain, text.into())
}

pub(crate) fn paragraph(text: impl Into<Text>) -> Node {
    Node::Paragraph(Style::Plain, text.into())
}

/// Returns a paragraph of explanations.
pub(crate) fn soft(text: impl Into<Text>) -> Node {
    Node::Paragraph(Style::Soft, text.into())
}

/// Returns a remark that a reader must not miss.
pub(crate) fn note(text: impl Into<Text>) -> Node {
    Node::Paragraph(Style::Note, text.into())
}

/// Returns a part of a page that other formats may fold; nothing if it has no content.
pub(crate) fn section(
    id: &'static str,
    title: impl Into<Text>,
    nodes: impl IntoIterator<Item = Node>,
) -> Vec<Node> {
    folded(Folding::Folded, id, title, nodes)
}

/// Returns a part of a page, which is shown where `folding` says; nothing if it has no content.
pub(crate) fn folded(
    folding: Folding,
    id: &'static str,
    title: impl Into<Text>,
    nodes: impl IntoIterator<Item = Node>,
) -> Vec<Node> {
    let nodes: Vec<Node> = nodes.into_iter().collect();
    match nodes.len() {
        0 => nodes,
        _ => vec![Node::Section(id, folding, title.into(), nodes)],
    }
}

/// Returns a part of a page with drawings below a sentence about them; nothing if there are none.
pub(crate) fn drawn(
    id: &'static str,
    title: impl Into<Text>,
    about: impl Into<Text>,
    all: impl IntoIterator<Item = Drawing>,
) -> Vec<Node> {
    let all = drawings(all).map(|all| [paragraph(about), all]);
    section(id, title, all.into_iter().flatten())
}

/// Returns drawings beside each other; nothing if there are none.
pub(crate) fn drawings(all: impl IntoIterator<Item = Drawing>) -> Option<Node> {
    let all: Vec<Drawing> = all.into_iter().collect();
    (!all.is_empty()).then_some(Node::Drawings(all))
}

/// Returns a list of `entries`; nothing if there are none.
pub(crate) fn list<T: Into<Cell>>(entries: impl IntoIterator<Item = T>) -> Option<Node> {
    let entries: Vec<Cell> = entries.into_iter().map(Into::into).collect();
    (!entries.is_empty()).then_some(Node::List(entries))
}
